//! Snapshots against copies of what they have to keep, through changes, crashes and failures of
//! storage.

#[path = "../../cli/tests/common/length.rs"]
mod length;

use bytes::Bytes;
use canopy_namespace::inode::file_type;
use canopy_namespace::{
    Contents, EntryName, FileId, Listing, Namespace, New, Ownership, Privileges, ROOT, Settings,
    create_namespace, system_clock,
};
use canopy_store::manifest::Hold;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Clock, Environment, Error, Result};
use length::rounds;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// The files of a directory, with what they have in them.
type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// Nobody else uses the storage, so there is nothing to wait for.
struct Hasty;

impl Clock for Hasty {
    fn now_ms(&self) -> u64 {
        system_clock()() as u64 / 1_000_000
    }

    fn sleep(&self, _: Duration) {}
}

fn environment(storage: &Arc<dyn Storage>) -> Environment {
    Environment { clock: Arc::new(Hasty), ..Environment::system(storage.clone()) }
}

fn namespace(storage: &Arc<dyn Storage>, contents: &Path) -> Namespace {
    let environment = environment(storage);
    let contents = Contents::new(contents).expect("a directory");
    Namespace::open(&environment, contents, system_clock()).expect("a namespace")
}

fn created(storage: &Arc<dyn Storage>, contents: &Path) -> Namespace {
    let environment = environment(storage);
    let settings = Settings::default();
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    namespace(storage, contents)
}

fn make(namespace: &Namespace, name: &[u8]) -> FileId {
    let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
    namespace.create(ROOT, name, &new, false).expect("a file").id
}

fn write(namespace: &Namespace, id: FileId, offset: u64, bytes: &[u8]) {
    let opened = namespace.open_file(id).expect("it is there");
    namespace.write(&opened, Some(offset), bytes, Privileges::Keep).expect("a write");
    namespace.close_file(&opened).expect("a close");
}

/// What a snapshot has.
fn past_tree(namespace: &Namespace, name: &str) -> Tree {
    let past = namespace.past(name.as_bytes()).expect("a snapshot");
    let mut ids = Vec::new();
    past.list(&mut Listing::new(ROOT), 0, |entry| {
        ids.push((entry.name.to_vec(), entry.inode.id, entry.inode.size));
        true
    })
    .expect("a listing");
    let files = ids.into_iter().map(|(name, id, size)| {
        let file = namespace.open_past(&past, id).expect("a file");
        let bytes = namespace.read_past(&file, 0, 1 << 24).expect("its contents");
        assert_eq!(bytes.len() as u64, size, "{}", name.escape_ascii());
        (name, bytes)
    });
    files.collect()
}

/// The current tree.
fn tree_of(namespace: &Namespace) -> Tree {
    let mut ids = Vec::new();
    let mut listing = Listing::new(ROOT);
    let listed = namespace.list(&mut listing, 0, |entry| {
        ids.push((entry.name.to_vec(), entry.inode.id));
        true
    });
    listed.expect("a listing");
    let files = ids.into_iter().map(|(name, id)| {
        let opened = namespace.open_file(id).expect("a file");
        let bytes = namespace.read(&opened, 0, 1 << 24, false).expect("its contents");
        namespace.close_file(&opened).expect("a close");
        (name, bytes)
    });
    files.collect()
}

fn names(namespace: &Namespace) -> Vec<String> {
    namespace.snapshots().into_iter().map(|one| one.name).collect()
}

#[track_caller]
fn assert_sound(namespace: &Namespace) {
    let faults = namespace.check(|_| {}).expect("a check");
    assert!(faults.is_empty(), "{faults:#?}");
}

fn change(namespace: &Namespace, tree: &mut Tree, random: &mut StdRng) {
    let name = vec![b'a' + random.random_range(0..8)];
    let id = namespace.lookup(ROOT, &name).ok().map(|inode| inode.id);
    let Some(id) = id else {
        make(namespace, &name);
        tree.insert(name, Vec::new());
        return;
    };
    let bytes = tree.get_mut(&name).expect("it is there");
    match random.random_range(0..10) {
        0 => {
            namespace.unlink(ROOT, &name).expect("it is there");
            tree.remove(&name);
        }
        1 => {
            let size = [0, 10, 5000, 50_000][random.random_range(0..4)];
            namespace.truncate(id, size, Privileges::Keep).expect("a length");
            bytes.resize(size as usize, 0);
        }
        2 => {
            let other = vec![b'a' + random.random_range(0..8)];
            let how = canopy_namespace::RenameMode::Replace;
            namespace
                .rename(EntryName::new(ROOT, &name), EntryName::new(ROOT, &other), how)
                .expect("a name");
            let bytes = tree.remove(&name).expect("it is there");
            tree.insert(other, bytes);
        }
        _ => {
            let offset = random.random_range(0..20_000);
            let new = vec![random.random::<u8>(); random.random_range(1..30_000)];
            write(namespace, id, offset as u64, &new);
            let end = offset + new.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[offset..end].copy_from_slice(&new);
        }
    }
}

#[test]
fn snapshots_stay_as_they_were_whatever_changes() {
    for seed in 0..rounds(4, 25) {
        let mut random = StdRng::seed_from_u64(seed);
        let place = TempDir::new_in("/dev/shm").expect("a directory");
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
        let mut open = created(&storage, place.path());
        let (mut tree, mut kept) = (Tree::new(), BTreeMap::<String, Tree>::new());
        for step in 0..120 {
            change(&open, &mut tree, &mut random);
            if random.random_ratio(1, 6) {
                open.create_snapshot(&format!("s{step}")).expect("a snapshot");
                kept.insert(format!("s{step}"), tree.clone());
            }
            if random.random_ratio(1, 12) && !kept.is_empty() {
                let at = random.random_range(0..kept.len());
                let name = kept.keys().nth(at).expect("it is there").clone();
                open.delete_snapshot(&name).expect("it is there");
                kept.remove(&name);
            }
            if random.random_ratio(1, 15) {
                open.sync().expect("a sync");
            }
            if random.random_ratio(1, 25) && !kept.is_empty() {
                let at = random.random_range(0..kept.len());
                let (name, then) = kept.iter().nth(at).expect("it is there");
                open.restore_snapshot(name).expect("it is there");
                drop(open);
                open = namespace(&storage, place.path());
                tree.clone_from(then);
                assert!(tree_of(&open) == tree, "seed {seed}, step {step}: {name} is not restored");
            }
            if random.random_ratio(1, 30) {
                open.close().expect("a close");
                drop(open);
                open = namespace(&storage, place.path());
            }
            if step % 10 == 9 {
                for (name, tree) in &kept {
                    assert!(past_tree(&open, name) == *tree, "seed {seed}, step {step}: {name}");
                }
            }
        }
        assert_sound(&open);
        for name in kept.keys() {
            open.delete_snapshot(name).expect("it is there");
        }
        open.sync().expect("a sync");
        // Nothing is kept for snapshots that there are not.
        let parts = std::fs::read_dir(place.path()).expect("objects");
        for part in parts {
            for object in std::fs::read_dir(part.expect("a part").path()).expect("objects") {
                let name = object.expect("an object").file_name();
                assert!(!name.to_string_lossy().contains('.'), "seed {seed}: {name:?}");
            }
        }
        assert_sound(&open);
    }
}

/// Storage that fails from some change on.
struct Failing {
    storage: Arc<dyn Storage>,
    /// So many changes are left.
    left: AtomicU64,
}

impl Failing {
    fn fail(&self) -> Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        let dead =
            |_| Error::Storage { object: "a test".into(), source: std::io::Error::other("dead") };
        left.map(drop).map_err(dead)
    }
}

impl Storage for Failing {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.storage.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.storage.read(name)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        self.fail()?;
        self.storage.create(name, bytes)
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.storage.list(prefix, after)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.fail()?;
        self.storage.remove(name)
    }

    fn append_to(&self, _: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

/// Does something with a namespace that has a snapshot and changes since, whose storage fails from
/// each change on in turn, and gives what is there when it is opened anew to `judge`, with whether it
/// had succeeded.
fn at_every_failure(
    act: impl Fn(&Namespace) -> canopy_namespace::Result<()>,
    judge: impl Fn(&Namespace, bool, &[Tree; 2]),
) {
    let mut at = 0;
    loop {
        let place = TempDir::new_in("/dev/shm").expect("a directory");
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
        let before = created(&memory, place.path());
        let ids = Vec::from_iter([b"one", b"two"].map(|name| make(&before, name)));
        ids.iter().for_each(|id| write(&before, *id, 0, &[1; 9000]));
        before.create_snapshot("first").expect("a snapshot");
        let was = past_tree(&before, "first");
        write(&before, ids[0], 100, &[2; 9000]);
        let small = make(&before, b"small");
        write(&before, small, 0, b"small");
        before.close().expect("a close");
        drop(before);

        let failing = Arc::new(Failing { storage: memory.clone(), left: AtomicU64::new(u64::MAX) });
        let storage: Arc<dyn Storage> = failing.clone();
        let open = namespace(&storage, place.path());
        failing.left.store(at, Ordering::SeqCst);
        let succeeded = act(&open).is_ok();
        drop(open);
        let open = namespace(&memory, place.path());
        let mut now = was.clone();
        now.get_mut(&b"one"[..]).expect("it is there").truncate(100);
        now.get_mut(&b"one"[..]).expect("it is there").extend([2; 9000]);
        now.insert(b"small".to_vec(), b"small".to_vec());
        judge(&open, succeeded, &[was, now]);
        assert_sound(&open);
        let all = open.table().checkpoints().expect("checkpoints");
        let forever = all.iter().filter(|one| one.hold == Hold::Forever).count();
        assert_eq!(forever, names(&open).len(), "after {at} changes");
        if succeeded {
            assert!(at > 2, "nothing failed");
            break;
        }
        at += 1;
    }
}

#[test]
fn a_snapshot_is_there_or_not_wherever_storage_fails() {
    at_every_failure(
        |open| open.create_snapshot("second").map(drop),
        |open, succeeded, [was, now]| {
            let names = names(open);
            assert!(past_tree(open, "first") == *was);
            assert!(names == ["first"] || names == ["first", "second"], "{names:?}");
            assert!(!succeeded || names.len() == 2);
            if names.len() == 2 {
                assert!(past_tree(open, "second") == *now);
            }
        },
    );
}

#[test]
fn deleting_a_snapshot_keeps_what_others_need_wherever_storage_fails() {
    at_every_failure(
        |open| {
            if names(open).len() == 1 {
                open.create_snapshot("second")?;
                // Kept for both.
                let id = open.lookup(ROOT, b"two")?.id;
                let opened = open.open_file(id)?;
                open.write(&opened, Some(0), &[9; 10], Privileges::Keep)?;
                open.close_file(&opened)?;
            }
            open.delete_snapshot("second")
        },
        |open, succeeded, [was, now]| {
            let names = names(open);
            assert!(past_tree(open, "first") == *was);
            assert!(!succeeded || names == ["first"], "{names:?}");
            if names.len() == 2 {
                assert!(past_tree(open, "second") == *now);
            }
        },
    );
}

#[test]
fn restoring_is_interrupted_anywhere() {
    at_every_failure(
        |open| open.restore_snapshot("first"),
        |open, succeeded, [was, now]| {
            let tree = tree_of(open);
            assert!(tree == *was || !succeeded && tree == *now, "{succeeded}");
            assert!(past_tree(open, "first") == *was);
            assert_eq!(names(open), ["first"]);
        },
    );
}

#[test]
fn names_of_snapshots_are_checked() {
    let place = TempDir::new_in("/dev/shm").expect("a directory");
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    let open = created(&storage, place.path());
    for name in ["", ".", "..", "-x", "a/b", "a b", "a]", "\u{fc}", "a\n", &"x".repeat(101)] {
        assert!(open.create_snapshot(name).is_err(), "{name:?}");
    }
    open.create_snapshot("2026-11-23T10:00+01:00").expect("a snapshot");
    let again = open.create_snapshot("2026-11-23T10:00+01:00").expect_err("there is one");
    assert_eq!(again.errno(), rustix::io::Errno::EXIST);
    let missing = open.delete_snapshot("none").expect_err("there is none");
    assert_eq!(missing.errno(), rustix::io::Errno::NOENT);
    assert!(open.past(b"none").is_err());
}
