//! Every rule of the records is broken by hand, and mended: nothing is lost, whatever was wrong, and
//! whenever a repair was interrupted.

use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::keys::{self, Space};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, FileId, Inode, LOST_AND_FOUND, Listing, Namespace, New, Privileges, ROOT, SetXattr,
    Settings, create_namespace, system_clock,
};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Direction, Durability, Environment, Key};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A namespace that can be damaged.
struct Place {
    namespace: Namespace,
    path: PathBuf,
}

fn open(path: &Path) -> Namespace {
    let storage = LocalStorage::new(path).unwrap();
    let environment = Environment::system(std::sync::Arc::new(storage));
    let contents = Contents::new(&path.join("contents")).unwrap();
    Namespace::open(&environment, contents, system_clock()).unwrap()
}

impl Place {
    /// A tree with everything that there can be.
    fn new(directory: &TempDir) -> Self {
        let path = directory.path().join("namespace");
        let storage = LocalStorage::new(&path).unwrap();
        let environment = Environment::system(std::sync::Arc::new(storage));
        let indexes = ["size", "uid", "mtime", "ext", "name", "user.one"];
        let settings = Settings::default().with_indexes(&indexes).unwrap();
        create_namespace(&environment, &settings, (0, 0), &system_clock()).unwrap();
        drop(environment);
        let place = Place { namespace: open(&path), path };
        let top = place.make(ROOT, "top", file_type::DIRECTORY | 0o750);
        let sub = place.make(top, "sub", file_type::DIRECTORY | 0o755);
        let deep = place.make(sub, "deep", file_type::DIRECTORY | 0o755);
        place.make(ROOT, "empty", file_type::DIRECTORY | 0o755);
        for (parent, name, bytes) in [
            (top, "small.txt", 100),
            (top, "large.dat", 50_000),
            (sub, "linked", 200),
            (deep, "large linked", 9000),
            (deep, "bottom", 10),
            (deep, "nothing", 0),
        ] {
            let id = place.make(parent, name, file_type::REGULAR | 0o640);
            place.write(id, name, bytes);
        }
        let linked = place.id("top/sub/linked");
        place.namespace.link(linked, ROOT, b"another name").unwrap();
        let linked = place.id("top/sub/deep/large linked");
        place.namespace.link(linked, top, b"its other name").unwrap();
        let with = |path, name: &str| {
            let how = SetXattr::Any;
            let id = place.id(path);
            place.namespace.set_xattr(id, name.as_bytes(), b"1", how, Privileges::Keep).unwrap();
        };
        with("top/small.txt", "user.one");
        with("top/sub/deep", "user.two");
        let limits = Limits { inodes_hard: 1000, ..Limits::default() };
        place.namespace.set_limits(Account::User(0), limits).unwrap();
        place.namespace.set_tree_limits(sub, limits).unwrap();
        place.namespace.sync().unwrap();
        place
    }

    fn make(&self, parent: FileId, name: &str, mode: u32) -> FileId {
        let new = New { mode, ..New::default() };
        self.namespace.create(parent, name.as_bytes(), &new, false).unwrap().id
    }

    fn write(&self, id: FileId, name: &str, bytes: usize) {
        let bytes = name.as_bytes().repeat(bytes / name.len() + 1)[..bytes].to_vec();
        let opened = self.namespace.open_file(id).unwrap();
        self.namespace.write(&opened, Some(0), &bytes, Privileges::Keep).unwrap();
        self.namespace.close_file(&opened).unwrap();
    }

    fn inode(&self, path: &str) -> Inode {
        let mut inode = self.namespace.inode(ROOT).unwrap();
        for name in path.split('/').filter(|name| !name.is_empty()) {
            inode = self.namespace.lookup(inode.id, name.as_bytes()).unwrap();
        }
        inode
    }

    fn id(&self, path: &str) -> FileId {
        self.inode(path).id
    }

    fn key(&self, path: &str) -> Key {
        match path.rsplit_once('/') {
            Some((above, name)) => Key::named(self.id(above), name.as_bytes()),
            None => Key::named(ROOT, path.as_bytes()),
        }
    }

    fn put(&self, key: &Key, value: &[u8]) {
        let mut batch = Batch::new();
        batch.put(key.as_ref(), value).unwrap();
        self.namespace.table().write(&batch, Durability::Durable).unwrap();
    }

    fn delete(&self, key: &Key) {
        let mut batch = Batch::new();
        batch.delete(key.as_ref()).unwrap();
        self.namespace.table().write(&batch, Durability::Durable).unwrap();
    }

    fn get(&self, key: &Key) -> Option<Inode> {
        let value = self.namespace.table().get(key.as_ref()).unwrap();
        value.map(|value| Inode::decode(&value).unwrap())
    }

    /// Changes the inode that lies at a path, or beside it.
    fn change(&self, path: &str, change: impl FnOnce(&mut Inode)) {
        let key = if path.is_empty() { keys::root() } else { self.key(path) };
        let found = self.get(&key).unwrap();
        let key = if found.has(flag::LINKED) { Space::Links.of(found.id, b"") } else { key };
        let mut inode = self.get(&key).unwrap();
        change(&mut inode);
        self.put(&key, &inode.encode());
    }

    fn object(&self, id: FileId) -> PathBuf {
        self.path.join(format!("contents/{:02x}/{id:016x}", id % 256))
    }

    /// What files have in them, by that, with how many there are.
    fn contents(&self) -> BTreeMap<Vec<u8>, usize> {
        let mut found = BTreeMap::new();
        let mut seen = std::collections::HashSet::new();
        let mut left = vec![ROOT];
        while let Some(directory) = left.pop() {
            let mut inodes = Vec::new();
            let tell = |entry: canopy_namespace::Entry<'_>| {
                inodes.push(entry.inode.clone());
                true
            };
            self.namespace.list(&mut Listing::new(directory), 0, tell).unwrap();
            for inode in inodes {
                if inode.is_directory() {
                    left.push(inode.id);
                } else if seen.insert(inode.id) && !inode.has(flag::ABSENT) {
                    let opened = self.namespace.open_file(inode.id).unwrap();
                    let bytes = self.namespace.read(&opened, 0, 1 << 20, false).unwrap();
                    self.namespace.close_file(&opened).unwrap();
                    *found.entry(bytes).or_default() += 1;
                }
            }
        }
        found.remove(&b""[..]);
        found
    }

    fn faults(&self) -> Vec<String> {
        let faults = self.namespace.check(|_| {}).unwrap();
        faults.into_iter().map(|fault| format!("{}: {}", fault.id, fault.what)).collect()
    }
}

type Damage = (&'static str, bool, fn(&Place));

/// All that can be wrong: a name, whether contents are lost with it, and how to do it. Paths that
/// are damaged are each used once, so that several can be done.
const DAMAGES: &[Damage] = &[
    ("a name of a small file", false, |place| place.put(&place.key("top/small.txt"), b"?")),
    ("a name of a large file", false, |place| place.put(&place.key("top/large.dat"), b"?")),
    ("a name of a directory", false, |place| place.put(&place.key("top/sub/deep"), b"?")),
    ("a name of the top", false, |place| place.put(&place.key("top"), b"?")),
    ("the root", false, |place| place.put(&keys::root(), b"?")),
    ("an impossible number", false, |place| {
        place.change("top/small.txt", |inode| inode.id = u64::MAX);
    }),
    ("a hash", false, |place| {
        let key = place.key("top/small.txt");
        let inode = place.get(&key).unwrap();
        place.delete(&key);
        place.put(&Key { hash: 7, ..key }, &inode.encode());
    }),
    ("a hash of what there is already", false, |place| {
        let (key, other) = (place.key("top/small.txt"), place.key("top/large.dat"));
        let inode = place.get(&key).unwrap();
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, key.directory, &key.name));
        place.put(&keys::name_of(inode.id, key.directory, &other.name), b"");
        place.put(&Key { hash: 7, ..other }, &inode.encode());
    }),
    ("an inode aside", false, |place| {
        place.put(&Space::Links.of(place.id("top/sub/linked"), b""), b"?");
    }),
    ("an inode aside that is missing", false, |place| {
        place.delete(&Space::Links.of(place.id("top/sub/deep/large linked"), b""));
    }),
    ("an inode aside of another file", false, |place| {
        place.change("top/sub/linked", |inode| inode.id = 3);
    }),
    ("an inode that lies aside, too", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&Space::Links.of(inode.id, b""), &inode.encode());
    }),
    ("an inode under two names", false, |place| {
        let inode = place.inode("top/large.dat");
        place.put(&Key::named(ROOT, b"copy"), &inode.encode());
    }),
    ("an inode without a name", false, |place| {
        let inode = place.inode("top/small.txt");
        let key = place.key("top/small.txt");
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, key.directory, &key.name));
        place.put(&Space::Links.of(inode.id, b""), &Inode { nlink: 0, ..inode }.encode());
    }),
    ("a name of no file", false, |place| {
        place.put(&Key::named(ROOT, b"dangling"), &Inode::pointer(4_000_000).encode());
        place.put(&keys::name_of(4_000_000, ROOT, b"dangling"), b"");
    }),
    ("names that are not in the index", false, |place| {
        for path in ["top/sub/linked", "another name", "top", "top/sub/deep/bottom"] {
            let (id, key) = (place.id(path), place.key(path));
            place.delete(&keys::name_of(id, key.directory, &key.name));
        }
    }),
    ("names that only the index has", false, |place| {
        place.put(&keys::name_of(place.id("top"), ROOT, b"nowhere"), b"");
        place.put(&keys::name_of(5_000_000, ROOT, b"top"), b"");
        place.put(&Space::Names.of(place.id("top"), b"short"), b"");
    }),
    ("entries of indexes that are missing", false, |place| {
        for range in [keys::index(1), keys::index(2), keys::index(3)] {
            let mut scan = place.namespace.table().scan(&range, Direction::Forward).unwrap();
            let Some(key) = scan.next().unwrap().map(|record| record.key.to_key()) else {
                continue;
            };
            place.delete(&key);
        }
        let mut batch = Batch::new();
        let xattrs = canopy_namespace::attributes::Attribute::Xattr(0).number();
        batch.delete_range(&keys::index(xattrs)).unwrap();
        place.namespace.table().write(&batch, Durability::Durable).unwrap();
    }),
    ("entries of indexes that are too many", false, |place| {
        place.put(&keys::entry(1, &[0; 8], place.id("top")), b"");
        place.put(&keys::entry(9999, &[0; 8], place.id("top")), b"");
    }),
    ("counts of links", false, |place| {
        place.change("top/small.txt", |inode| inode.nlink = 9);
        place.change("top/sub/linked", |inode| inode.nlink = 1);
        place.change("top/sub", |inode| inode.nlink = 77);
        place.change("", |inode| inode.nlink = 1);
    }),
    ("a file that counts as nameless", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&Space::Orphans.of(inode.id, b""), &inode.encode());
    }),
    ("a file that only counts as nameless", false, |place| {
        let inode = place.inode("top/small.txt");
        place.put(&place.key("top/small.txt"), &Inode::pointer(inode.id).encode());
        place.put(&Space::Orphans.of(inode.id, b""), &Inode { nlink: 0, ..inode }.encode());
    }),
    ("a directory with two names", false, |place| {
        let inode = place.inode("top/sub/deep");
        place.put(&Key::named(ROOT, b"deep again"), &inode.encode());
        place.put(&keys::name_of(inode.id, ROOT, b"deep again"), b"");
    }),
    ("flags of extended attributes", false, |place| {
        place.change("top/small.txt", |inode| inode.flags &= !flag::XATTRS);
        place.change("top/large.dat", |inode| inode.flags |= flag::XATTRS);
        place.put(&Space::Xattrs.of(6_000_000, b"user.lost"), b"1");
    }),
    ("flags of contents", false, |place| {
        place.change("top/small.txt", |inode| inode.flags &= !flag::INLINE);
        place.change("top/large.dat", |inode| inode.flags &= !flag::OBJECT);
        place.change("top/sub/deep/nothing", |inode| inode.flags |= flag::INLINE);
        place.change("top/sub/deep", |inode| inode.flags |= flag::OBJECT | flag::ABSENT);
        place.change("top/sub/linked", |inode| inode.flags |= flag::ABSENT | flag::OBJECT);
    }),
    ("contents that are missing", true, |place| {
        place.delete(&Space::Contents.of(place.id("top/small.txt"), b""));
        fs::remove_file(place.object(place.id("top/large.dat"))).unwrap();
    }),
    ("sizes", false, |place| {
        place.change("top/small.txt", |inode| inode.size = 5);
        place.change("top/large.dat", |inode| inode.size = 5);
        place.change("top/sub/deep/nothing", |inode| inode.size = 5);
    }),
    ("contents of no file", false, |place| {
        place.put(&Space::Contents.of(7_000_000, b""), b"found again");
        let object = place.object(7_000_001);
        fs::create_dir_all(object.parent().unwrap()).unwrap();
        fs::write(object, "found again, too").unwrap();
    }),
    ("contents of what has others", false, |place| {
        let small = place.object(place.id("top/small.txt"));
        fs::create_dir_all(small.parent().unwrap()).unwrap();
        fs::write(small, "another object").unwrap();
        place.put(&Space::Contents.of(place.id("top/large.dat"), b""), b"other contents");
        place.put(&Space::Contents.of(place.id("empty"), b""), b"contents of a directory");
    }),
    ("ids", false, |place| place.delete(&keys::ids())),
    ("a directory that lies in itself", false, |place| {
        let (sub, deep) = (place.inode("top/sub"), place.id("top/sub/deep"));
        let key = place.key("top/sub");
        place.delete(&key);
        place.delete(&keys::name_of(sub.id, key.directory, &key.name));
        place.put(&Key::named(deep, b"sub"), &sub.encode());
        place.put(&keys::name_of(sub.id, deep, b"sub"), b"");
    }),
    ("a directory that is missing", false, |place| {
        let (id, key) = (place.id("top/sub"), place.key("top/sub"));
        place.delete(&key);
        place.delete(&keys::name_of(id, key.directory, &key.name));
    }),
    ("names in a file", false, |place| {
        let (inode, file) = (place.inode("top/large.dat"), place.id("top/small.txt"));
        let key = place.key("top/large.dat");
        place.delete(&key);
        place.delete(&keys::name_of(inode.id, key.directory, &key.name));
        place.put(&Key::named(file, b"large.dat"), &inode.encode());
        place.put(&keys::name_of(inode.id, file, b"large.dat"), b"");
    }),
    ("usage", false, |place| {
        place.put(&Space::Usage.of(0, b""), &[0; 32]);
        place.put(&Space::Usage.of(1 << 32 | 55, b""), &[1; 32]);
        place.put(&Space::Usage.of(9 << 32, b""), &[1; 32]);
        place.put(&Space::Usage.of(77, b""), b"short");
    }),
    ("limits", false, |place| {
        place.put(&Space::Limits.of(7, b""), b"short");
        place.put(&Space::Limits.of(9 << 32, b""), &[1; 48]);
    }),
    ("usage that is missing", false, |place| place.delete(&Space::Usage.of(0, b""))),
    ("lost+found", false, |place| {
        place.make(ROOT, LOST_AND_FOUND, file_type::REGULAR | 0o600);
        place.put(&place.key("top/small.txt"), b"?");
    }),
];

/// Mends what is wrong, and fails if not all is well then.
#[track_caller]
fn mend(place: &Place, before: &BTreeMap<Vec<u8>, usize>, loses: bool, context: &str) {
    let repaired = place.namespace.repair().unwrap();
    assert!(repaired.left.is_empty(), "{context}: {repaired:#?}");
    assert_eq!(place.faults(), [""; 0], "{context}: {:#?}", repaired.done);
    let after = place.contents();
    for (bytes, count) in before.iter().filter(|_| !loses) {
        let found = after.get(bytes);
        assert!(found >= Some(count), "{context}: lost {}", String::from_utf8_lossy(bytes));
    }
    let again = place.namespace.repair().unwrap();
    assert_eq!(again.done, [""; 0], "{context}");
    // It can be used.
    let id = place.make(ROOT, "new", file_type::REGULAR | 0o600);
    place.write(id, "new", 20_000);
    place.namespace.unlink(ROOT, b"new").unwrap();
    assert_eq!(place.faults(), [""; 0], "{context}");
}

#[test]
fn nothing_is_mended_where_nothing_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::new(&directory);
    let before = place.contents();
    assert_eq!(before.len(), 5);
    mend(&place, &before, false, "nothing");
    assert!(place.namespace.lookup(ROOT, LOST_AND_FOUND.as_bytes()).is_err());
}

#[test]
fn every_damage_is_found_and_mended() {
    for (name, loses, damage) in DAMAGES {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(&directory);
        let before = place.contents();
        damage(&place);
        assert_ne!(place.faults(), [""; 0], "{name}");
        mend(&place, &before, *loses, name);
    }
}

#[test]
fn what_was_lost_gets_into_no_directory_of_others() {
    for (mode, uid, expected) in
        [(0o700, 0, "lost+found"), (0o755, 0, "lost+found~"), (0o700, 2001, "lost+found~")]
    {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(&directory);
        let new = New { mode: file_type::DIRECTORY | mode, uid, ..New::default() };
        place.namespace.create(ROOT, LOST_AND_FOUND.as_bytes(), &new, false).unwrap();
        place.put(&place.key("top"), b"?");
        mend(&place, &BTreeMap::new(), true, expected);
        let found = place.inode(expected);
        assert_eq!((found.uid, found.mode & 0o777), (0, 0o700));
        let mut names = 0;
        let tell = |_: canopy_namespace::Entry<'_>| {
            names += 1;
            true
        };
        place.namespace.list(&mut Listing::new(found.id), 0, tell).unwrap();
        assert!(names > 0, "{expected}");
    }
}

#[test]
fn what_was_damaged_before_it_was_opened_is_mended() {
    for (name, loses, damage) in DAMAGES {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(&directory);
        let before = place.contents();
        damage(&place);
        let Place { namespace, path } = place;
        namespace.close().unwrap();
        drop(namespace);
        let place = Place { namespace: open(&path), path };
        mend(&place, &before, *loses, name);
    }
}

#[test]
fn what_has_its_contents_is_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let place = Place::new(&directory);
    for name in ["flags of contents", "counts of links", "flags of extended attributes", "sizes"] {
        DAMAGES.iter().find(|damage| damage.0 == name).unwrap().2(&place);
    }
    place.namespace.repair().unwrap();
    assert_eq!(place.inode("top/small.txt").size, 100);
    assert_eq!(place.inode("top/large.dat").size, 50_000);
    assert_eq!(place.inode("top/sub/linked").nlink, 2);
    assert_eq!(place.inode("").nlink, 4);
    // What is missing is no zeros.
    let nothing = place.inode("top/sub/deep/nothing");
    assert!(nothing.has(flag::ABSENT) && nothing.size == 5);
    assert_eq!(
        place.namespace.xattr(place.id("top/small.txt"), b"user.one").unwrap().unwrap(),
        b"1"
    );
    assert!(place.namespace.lookup(ROOT, LOST_AND_FOUND.as_bytes()).is_err());
}

#[test]
fn several_damages_and_interruptions_are_mended() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    for seed in 0..seeds.unwrap_or(60) {
        let mut random = StdRng::seed_from_u64(seed);
        let directory = tempfile::tempdir().unwrap();
        let place = Place::new(&directory);
        let before = place.contents();
        let (mut names, mut is_lossy) = (Vec::new(), false);
        for (name, loses, damage) in DAMAGES.sample(&mut random, 4) {
            // What it would damage may be damaged already.
            let told = std::panic::take_hook();
            std::panic::set_hook(Box::new(|_| ()));
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| damage(&place)));
            std::panic::set_hook(told);
            if done.is_ok() {
                names.push(*name);
                is_lossy |= loses;
            }
        }
        let context = format!("seed {seed}: {names:?}");
        let former = newest_log(&place.path);
        let length = fs::metadata(&former).unwrap().len();
        let copy = directory.path().join("copy");
        let repaired = place.namespace.repair().unwrap();
        assert!(repaired.left.is_empty(), "{context}: {repaired:#?}");
        copy_tree(&place.path, &copy);
        mend(&place, &before, is_lossy, &context);
        // A crash took what was written last.
        let log = newest_log(&copy);
        let is_former = log.strip_prefix(&copy) == former.strip_prefix(&place.path);
        let least = if is_former { length } else { 0 };
        let whole = fs::metadata(&log).unwrap().len();
        let kept = random.random_range(least..=whole);
        fs::File::options().write(true).open(&log).unwrap().set_len(kept).unwrap();
        let place = Place { namespace: open(&copy), path: copy };
        mend(&place, &before, is_lossy, &format!("{context}, {kept} of {whole} bytes"));
    }
}

/// The file that the log is written to.
fn newest_log(path: &Path) -> PathBuf {
    let mut found = Vec::new();
    let mut left = vec![path.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            let is_log = path.components().any(|part| part.as_os_str() == "log");
            match path.is_dir() {
                true => left.push(path),
                false if is_log => found.push(path),
                false => {}
            }
        }
    }
    found.into_iter().max().unwrap()
}

fn copy_tree(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.unwrap().success());
}
