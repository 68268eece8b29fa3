//! Namespaces of older versions are opened, checked and changed. `golden/format-1` was made by
//! the last version before ids of files lay in blocks: `canopy ns create`, `import --data` of a small
//! tree, and `snapshot create`.

use canopy_namespace::inode::file_type;
use canopy_namespace::{
    Block, Contents, FORMAT, FileId, Namespace, New, Ownership, Privileges, ROOT, Settings,
    create_namespace, keys, origin_of, system_clock,
};
use canopy_store::storage::{LocalStorage, MemoryStorage};
use canopy_store::{Base, Environment, KeyRange, clone, reserved_numbers};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// The ids of files that the older version would have made next. The last one is of `sub/deep`.
const NEXT: FileId = FileId(1030);

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let to = to.join(entry.file_name());
        match entry.file_type().expect("a type").is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), &to).expect("a copy")),
        }
    }
}

struct Older {
    _directory: tempfile::TempDir,
    environment: Environment,
    contents: std::path::PathBuf,
}

fn older() -> Older {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1");
    let path = directory.path().join("namespace");
    copy(&golden, &path);
    let storage = LocalStorage::new(&path).expect("a storage");
    let environment = Environment::system(Arc::new(storage));
    Older { _directory: directory, environment, contents: path.join("contents") }
}

impl Older {
    fn contents(&self) -> Contents {
        Contents::new(&self.contents).expect("a directory")
    }

    fn open(&self) -> Namespace {
        Namespace::open(&self.environment, self.contents(), system_clock()).expect("a namespace")
    }
}

fn make(namespace: &Namespace, name: &str) -> FileId {
    let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
    namespace.create(ROOT, name.as_bytes(), &new, false).expect("a file").id
}

fn id(namespace: &Namespace, path: &str) -> FileId {
    let names = path.split('/');
    names.fold(ROOT, |at, name| namespace.lookup(at, name.as_bytes()).expect("a name").id)
}

/// Checks what the older version has written.
fn check(namespace: &Namespace) {
    assert_eq!(namespace.check(|_| {}).expect("a check"), []);
    for (path, expected) in [("link", 2), ("large", 3), ("second", 1027), ("sub/small", 1027)] {
        assert_eq!(id(namespace, path), FileId(expected), "{path}");
    }
    assert_eq!(id(namespace, "sub/deep").next(), NEXT);
    assert_eq!(namespace.readlink(FileId(2)).expect("a link"), b"sub/small");
    let value = namespace.xattr(FileId(3), b"user.run").expect("an attribute");
    assert_eq!(value.as_deref(), Some(&b"7"[..]));
    for (path, bytes) in [("sub/small", b"hello\n".to_vec()), ("large", vec![b'x'; 5000])] {
        let opened = namespace.open_file(id(namespace, path)).expect("a file");
        assert_eq!(namespace.read(&opened, 0, 9000, false).expect("bytes"), bytes);
        namespace.close_file(&opened).expect("a close");
    }
}

#[test]
fn a_namespace_of_format_1_stays_usable() {
    let older = older();
    let storage = &*older.environment.storage;
    let (format, table) = origin_of(storage).expect("a namespace");
    assert_eq!(format, 1);
    let namespace = older.open();
    check(&namespace);
    assert_eq!(reserved_numbers(storage, 0).expect("a listing"), [], "nothing is made yet");
    assert_eq!(make(&namespace, "new"), NEXT);
    assert_eq!(reserved_numbers(storage, 0).expect("a listing"), [0..65_536]);
    let owner = canopy_store::owner_of_numbers(storage, &(0..65_536)).expect("an owner");
    assert_eq!(owner, Some(table));
    namespace.close().expect("a close");
    drop(namespace);
    let namespace = older.open();
    check(&namespace);
    assert!(make(&namespace, "later") > NEXT);
    // A restored older tree has no blocks, and its ids are not given out again.
    let last = make(&namespace, "last");
    namespace.restore_snapshot("first").expect("a restore");
    drop(namespace);
    let namespace = older.open();
    check(&namespace);
    assert!(namespace.lookup(ROOT, b"last").is_err());
    let next = make(&namespace, "after");
    assert!(next > last && next.block() == Block(0), "{next}");
    assert_eq!(namespace.check(|_| {}).expect("a check"), []);
    assert_eq!(reserved_numbers(storage, 0).expect("a listing"), [0..65_536]);
}

#[test]
fn a_namespace_of_format_1_is_read_without_a_change() {
    let older = older();
    let namespace = Namespace::open_read_only(&older.environment, older.contents(), system_clock());
    check(&namespace.expect("a namespace"));
    let storage = &*older.environment.storage;
    assert_eq!(reserved_numbers(storage, 0).expect("a listing"), []);
}

#[test]
fn a_clone_of_a_namespace_of_format_1_has_ids_of_its_own() {
    let older = older();
    let (_, table) = origin_of(&*older.environment.storage).expect("a namespace");
    let bases = [Base { table, checkpoint: None }];
    let copy = clone(&older.environment, &bases, &KeyRange::all()).expect("a clone");
    // The clone as the namespace of its storage, before the original makes a file.
    let storage = &older.environment.storage;
    storage.remove("namespace").expect("a removal");
    let origin = format!(r#"{{"format":2,"table":"{copy}"}}"#);
    storage.create("namespace", origin.into()).expect("an object");
    let namespace = older.open();
    check(&namespace);
    assert_eq!(make(&namespace, "new"), FileId::from_parts(Block(65_536), 0));
    assert_eq!(namespace.check(|_| {}).expect("a check"), []);
    // A snapshot's files are those with less ids.
    namespace.create_snapshot("of-the-clone").expect("a snapshot");
    let large = id(&namespace, "large");
    let opened = namespace.open_file(large).expect("a file");
    namespace.write(&opened, Some(0), b"changed", Privileges::Keep).expect("a write");
    namespace.close_file(&opened).expect("a close");
    let past = namespace.past(b"of-the-clone").expect("a snapshot");
    let file = namespace.open_past(&past, large).expect("a file of then");
    assert_eq!(namespace.read_past(&file, 0, 7).expect("bytes"), b"xxxxxxx");
}

#[test]
fn other_formats_are_refused_and_new_namespaces_have_the_latest() {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let settings = Settings::default();
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    let storage = &*environment.storage;
    let (format, table) = origin_of(storage).expect("a namespace");
    assert_eq!(format, FORMAT);
    for format in [0, FORMAT + 1, 99] {
        storage.remove("namespace").expect("a removal");
        let origin = format!(r#"{{"format":{format},"table":"{table}"}}"#);
        storage.create("namespace", origin.into()).expect("an object");
        let error = origin_of(storage).expect_err("another format").to_string();
        assert!(error.contains(&format!("has format {format};")), "{error}");
    }
}

#[test]
fn the_record_of_ids_of_format_1_was_a_number() {
    let older = older();
    let namespace = older.open();
    let record = namespace.table().get(keys::ids().as_ref()).expect("a read");
    assert_eq!(record, Some(NEXT.to_be_bytes().to_vec()));
    make(&namespace, "new");
    let record = namespace.table().get(keys::ids().as_ref()).expect("a read");
    assert_eq!(record.map(|record| record.len()), Some(40), "older versions refuse it");
}
