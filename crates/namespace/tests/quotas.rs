//! Quotas: what is counted, what is refused, and that the sums are right whatever happens.

use canopy_namespace::inode::file_type;
use canopy_namespace::quota::{Account, GRACE_S, Limits, Usage};
use canopy_namespace::{
    Bulk, Clock, Contents, EntryName, Extent, FileId, Inode, Namespace, New, Ownership, Privileges,
    ROOT, RenameMode, SetAttributes, Settings, create_namespace,
};
use canopy_store::storage::LocalStorage;
use canopy_store::{Batch, Durability, Environment, Key};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use tempfile::TempDir;

const ADA: u32 = 1000;
const BOB: u32 = 1001;

/// So many files are counted while others change.
const FILES: u64 = 20_000;

struct Fixture {
    namespace: Namespace,
    now_ns: Arc<AtomicI64>,
    directory: TempDir,
}

fn open(directory: &Path, clock: Clock) -> Namespace {
    let environment = Environment::system(Arc::new(LocalStorage::new(directory).unwrap()));
    Namespace::open(&environment, Contents::new(&directory.join("contents")).unwrap(), clock)
        .unwrap()
}

fn place() -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let now_ns = Arc::new(AtomicI64::new(1_700_000_000_000_000_000));
    let now = now_ns.clone();
    let clock: Clock = Arc::new(move || now.fetch_add(1000, Ordering::Relaxed));
    let environment = Environment::system(Arc::new(LocalStorage::new(directory.path()).unwrap()));
    create_namespace(&environment, &Settings::default(), Ownership::ROOT, &clock).unwrap();
    drop(environment);
    Fixture { namespace: open(directory.path(), clock), now_ns, directory }
}

fn bytes(hard: u64) -> Limits {
    Limits { bytes_hard: hard, ..Limits::default() }
}

fn inodes(hard: u64) -> Limits {
    Limits { inodes_hard: hard, ..Limits::default() }
}

impl Fixture {
    fn make(&self, parent: FileId, name: &str, mode: u32, uid: u32) -> Result<Inode, Errno> {
        let new = New { mode, uid, gid: uid, ..New::default() };
        let made = self.namespace.create(parent, name.as_bytes(), &new, false);
        made.map_err(|error| error.errno())
    }

    fn file(&self, name: &str, uid: u32) -> Result<FileId, Errno> {
        self.make(ROOT, name, file_type::REGULAR | 0o644, uid).map(|inode| inode.id)
    }

    fn directory(&self, parent: FileId, name: &str) -> FileId {
        self.make(parent, name, file_type::DIRECTORY | 0o777, 0).unwrap().id
    }

    fn write(&self, id: FileId, offset: u64, length: usize) -> Result<(), Errno> {
        self.write_as(id, offset, length, Privileges::KeepBound)
    }

    fn write_as(
        &self,
        id: FileId,
        offset: u64,
        length: usize,
        privileges: Privileges<'_>,
    ) -> Result<(), Errno> {
        let opened = self.namespace.open_file(id).unwrap();
        let written = self.namespace.write(&opened, Some(offset), &vec![b'x'; length], privileges);
        self.namespace.close_file(&opened).unwrap();
        written.map(drop).map_err(|error| error.errno())
    }

    fn set(&self, id: FileId, set: &SetAttributes) -> Result<(), Errno> {
        let set = self.namespace.set_attributes(id, set, Privileges::KeepBound);
        set.map(drop).map_err(|error| error.errno())
    }

    fn truncate(&self, id: FileId, size: u64) -> Result<(), Errno> {
        self.set(id, &SetAttributes { size: Some(size), ..SetAttributes::default() })
    }

    fn limit(&self, account: Account, limits: Limits) {
        self.namespace.set_limits(account, limits).unwrap();
    }

    fn usage(&self, account: Account) -> Usage {
        self.namespace.quota(account).unwrap().usage
    }

    /// Bytes and inodes of a user.
    fn used(&self, uid: u32) -> (u64, u64) {
        let usage = self.usage(Account::User(uid));
        (usage.bytes, usage.inodes)
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(self.namespace.check(|_| {}).unwrap(), []);
    }

    /// What a crash leaves of what was synced.
    fn reopened(self) -> Self {
        self.namespace.sync().unwrap();
        let now = self.now_ns.clone();
        drop(self.namespace);
        let clock: Clock = Arc::new(move || now.fetch_add(1000, Ordering::Relaxed));
        let namespace = open(self.directory.path(), clock);
        Fixture { namespace, now_ns: self.now_ns, directory: self.directory }
    }
}

#[test]
fn existing_files_and_changes_are_counted() {
    let place = place();
    let small = place.file("small", ADA).unwrap();
    place.write(small, 0, 1000).unwrap();
    assert!(!place.namespace.counts_usage());
    assert!(place.namespace.quota(Account::User(ADA)).is_none());
    // Without limits, all is added up for who asks.
    let all = place.namespace.quotas().unwrap();
    let of = |account| all.iter().find(|one| one.account == account).unwrap().usage;
    assert_eq!((of(Account::User(ADA)).bytes, of(Account::User(ADA)).inodes), (1024, 1));
    assert_eq!(of(Account::User(0)).inodes, 1);
    place.limit(Account::Group(BOB), inodes(1));
    assert_eq!(place.used(ADA), (1024, 1));
    place.file("more", ADA).unwrap();
    place.write(small, 0, 1025).unwrap();
    assert_eq!(place.used(ADA), (1536, 2));
    place.write(small, 0, 10_000).unwrap();
    assert_eq!(place.used(ADA), (12_288, 2));
    place.namespace.unlink(ROOT, b"more").unwrap();
    place.check();
    let place = place.reopened();
    assert_eq!(place.used(ADA), (12_288, 1));
    let set = SetAttributes { uid: Some(BOB), ..SetAttributes::default() };
    place.set(small, &set).unwrap();
    assert_eq!((place.used(ADA), place.used(BOB)), ((0, 0), (12_288, 1)));
    assert_eq!(place.usage(Account::Group(ADA)).inodes, 1);
    place.check();
    place.namespace.unlink(ROOT, b"small").unwrap();
    assert_eq!(place.used(BOB), (0, 0));
    place.check();
}

#[test]
fn more_accounts_are_counted_than_one_batch_takes() {
    let place = place();
    let files = 650_000;
    // Counting reads records, which are alike for files that are made one by one, and slowly.
    let mut bulk = Bulk::begin(&place.namespace).unwrap();
    for uid in 1..=files {
        let (id, mode) = (bulk.new_id().unwrap(), file_type::REGULAR | 0o644);
        let inode = Inode { mode, uid, gid: uid, nlink: 1, id, ..Inode::default() };
        bulk.add(ROOT, uid.to_string().as_bytes(), &inode).unwrap();
    }
    bulk.commit(&place.namespace.inode(ROOT).unwrap()).unwrap();
    place.limit(Account::Group(BOB), inodes(1));
    let place = place.reopened();
    assert_eq!(place.usage(Account::User(1)).inodes, 1);
    assert_eq!(place.usage(Account::Group(files)).inodes, 1);
    place.check();
}

#[test]
fn interrupted_counts_do_not_count() {
    let place = place();
    place.file("one", ADA).unwrap();
    // Some of the sums, and not the note that comes after all of them.
    let key = Key { directory: 1 << 63 | 8, hash: ADA.into(), name: Vec::new() };
    let mut batch = Batch::new();
    batch.put(key.as_ref(), &[7, 0, 0, 0].map(u64::to_le_bytes).concat()).unwrap();
    place.namespace.table().write(&batch, Durability::Durable).unwrap();
    let place = place.reopened();
    place.check();
    place.limit(Account::Group(BOB), inodes(1));
    assert_eq!(place.used(ADA).1, 1);
    place.check();
}

#[test]
fn nobody_passes_a_hard_limit_but_root() {
    let place = place();
    place.limit(Account::User(ADA), Limits { inodes_hard: 3, ..bytes(20 << 10) });
    let one = place.file("one", ADA).unwrap();
    let two = place.file("two", ADA).unwrap();
    place.write(one, 0, 4096).unwrap();
    assert_eq!(place.write(two, 0, 17 << 10), Err(Errno::DQUOT));
    assert_eq!(place.namespace.inode(two).unwrap().size, 0);
    place.write(two, 0, 16 << 10).unwrap();
    assert_eq!(place.used(ADA), (20 << 10, 2));
    assert_eq!(place.write(two, 16 << 10, 1), Err(Errno::DQUOT));
    // What is there can be written again.
    place.write(two, 0, 16 << 10).unwrap();
    // Small ones have no bytes left either.
    let three = place.file("three", ADA).unwrap();
    assert_eq!(place.write(three, 0, 1), Err(Errno::DQUOT));
    assert_eq!(place.file("four", ADA), Err(Errno::DQUOT));
    assert!(place.namespace.lookup(ROOT, b"four").is_err());
    // A hole takes nothing.
    place.truncate(two, 1 << 30).unwrap();
    assert_eq!(place.write(two, 1 << 29, 1), Err(Errno::DQUOT));
    assert_eq!(place.truncate(three, 100), Err(Errno::DQUOT));
    let opened = place.namespace.open_file(two).unwrap();
    let allocated =
        place.namespace.allocate(&opened, 0, Extent::new(1 << 20, 1 << 20), Privileges::KeepBound);
    assert_eq!(allocated.unwrap_err().errno(), Errno::DQUOT);
    place.namespace.close_file(&opened).unwrap();
    place.check();
    // Root may.
    place.write_as(three, 0, 3000, Privileges::Keep).unwrap();
    assert_eq!(place.used(ADA), ((20 << 10) + 3072, 3));
    // Less is always possible.
    place.truncate(two, 4096).unwrap();
    assert_eq!(place.used(ADA), ((8 << 10) + 3072, 3));
    place.write(two, 0, 8192).unwrap();
    // A file of somebody else is not given to who has no room for it.
    let gift = place.make(ROOT, "gift", file_type::REGULAR | 0o644, BOB).unwrap().id;
    let set = SetAttributes { uid: Some(ADA), ..SetAttributes::default() };
    assert_eq!(place.set(gift, &set), Err(Errno::DQUOT));
    place.namespace.set_attributes(gift, &set, Privileges::Keep).unwrap();
    assert_eq!(place.used(ADA).1, 4);
    // Names are not counted.
    place.namespace.link(one, ROOT, b"another").unwrap();
    place.check();
    place.limit(Account::User(ADA), Limits::default());
    assert!(!place.namespace.counts_usage());
    place.write(three, 0, 100 << 10).unwrap();
    place.check();
}

#[test]
fn space_that_was_allocated_can_be_written() {
    let place = place();
    place.limit(Account::User(ADA), bytes(1 << 20));
    let id = place.file("one", ADA).unwrap();
    let opened = place.namespace.open_file(id).unwrap();
    let allocate = |mode, length| {
        let range = Extent::new(0, length);
        let allocated = place.namespace.allocate(&opened, mode, range, Privileges::KeepBound);
        allocated.map_err(|error| error.errno())
    };
    assert_eq!(allocate(0, 2 << 20), Err(Errno::DQUOT));
    match allocate(0, 1 << 20) {
        Err(Errno::OPNOTSUPP) => return,
        allocated => allocated.unwrap(),
    }
    assert_eq!(place.used(ADA), (1 << 20, 1));
    for at in 0..16 {
        place.write(id, at << 16, 1 << 16).unwrap();
    }
    assert_eq!(place.write(id, 1 << 20, 1), Err(Errno::DQUOT));
    assert_eq!(place.used(ADA), (1 << 20, 1));
    place.namespace.close_file(&opened).unwrap();
    place.check();
}

#[test]
fn a_soft_limit_holds_after_some_time() {
    let place = place();
    let limits = Limits { inodes_soft: 2, inodes_hard: 5, ..Limits::default() };
    place.limit(Account::Group(ADA), limits);
    for name in ["1", "2", "3"] {
        place.file(name, ADA).unwrap();
    }
    let since_ns = place.usage(Account::Group(ADA)).inodes_since_ns;
    assert!(since_ns > 1_700_000_000_000_000_000);
    let day_ns = 86_400_000_000_000;
    place.now_ns.fetch_add(6 * day_ns, Ordering::Relaxed);
    let place = place.reopened();
    place.file("4", ADA).unwrap();
    assert_eq!(place.usage(Account::Group(ADA)).inodes_since_ns, since_ns);
    assert_eq!(GRACE_S, 7 * 86_400);
    place.now_ns.fetch_add(day_ns, Ordering::Relaxed);
    assert_eq!(place.file("5", ADA), Err(Errno::DQUOT));
    for name in ["3", "4"] {
        place.namespace.unlink(ROOT, name.as_bytes()).unwrap();
    }
    assert_eq!(place.usage(Account::Group(ADA)).inodes_since_ns, 0);
    // The time begins anew.
    place.file("5", ADA).unwrap();
    // The hard limit holds at once.
    for name in ["6", "7"] {
        place.file(name, ADA).unwrap();
    }
    assert_eq!(place.file("8", ADA), Err(Errno::DQUOT));
    // Who is beyond a limit that is set now has the time, too.
    place.limit(Account::User(ADA), Limits { inodes_soft: 1, grace_s: 3600, ..limits });
    assert!(place.usage(Account::User(ADA)).inodes_since_ns > since_ns);
    place.check();
}

#[test]
fn trees_are_counted_and_nothing_is_moved_into_them() {
    let place = place();
    let namespace = &place.namespace;
    let [top, outside] = ["top", "outside"].map(|name| place.directory(ROOT, name));
    let below = place.directory(top, "below");
    let inner = place.directory(below, "inner");
    let make = |parent, name: &str| {
        place.make(parent, name, file_type::REGULAR | 0o644, ADA).map(|inode| inode.id)
    };
    let file = make(below, "file").unwrap();
    place.write(file, 0, 600).unwrap();
    let alone = make(inner, "alone").unwrap();
    let stranger = make(outside, "stranger").unwrap();
    // What is a tree already stays one.
    let own = namespace.set_tree_limits(inner, Limits::default()).unwrap();
    let account = namespace.set_tree_limits(top, inodes(4)).unwrap();
    assert_ne!(own, account);
    let usage = |account| place.usage(account);
    assert_eq!((usage(account).inodes, usage(account).bytes), (3, 1024));
    assert_eq!(usage(own).inodes, 2);
    assert_eq!(namespace.quota_of_tree(alone).unwrap(), None);
    assert_eq!(namespace.quota_of_tree(file).unwrap().unwrap().account, account);
    let fourth = make(top, "fourth").unwrap();
    assert_eq!(make(below, "fifth"), Err(Errno::DQUOT));
    make(inner, "not of it").unwrap();
    let rename = |from: (FileId, &'static str), to: (FileId, &'static str), mode| {
        let name =
            |(directory, name): (FileId, &'static str)| EntryName::new(directory, name.as_bytes());
        let renamed = namespace.rename(name(from), name(to), mode);
        renamed.map_err(|error| error.errno())
    };
    let replace = RenameMode::Replace;
    assert_eq!(rename((outside, "stranger"), (top, "x"), replace), Err(Errno::XDEV));
    assert_eq!(rename((inner, "alone"), (below, "x"), replace), Err(Errno::XDEV));
    let exchange = RenameMode::Exchange;
    assert_eq!(rename((top, "fourth"), (outside, "stranger"), exchange), Err(Errno::XDEV));
    assert_eq!(namespace.link(stranger, top, b"x").unwrap_err().errno(), Errno::XDEV);
    rename((top, "fourth"), (below, "fourth"), replace).unwrap();
    rename((below, "inner"), (below, "inside"), replace).unwrap();
    // What leaves is still counted.
    rename((below, "fourth"), (outside, "fourth"), replace).unwrap();
    assert_eq!(usage(account).inodes, 4);
    rename((outside, "fourth"), (below, "back"), replace).unwrap();
    place.check();
    let place = place.reopened();
    let namespace = &place.namespace;
    assert!(namespace.remove_tree(top).unwrap());
    assert!(!namespace.remove_tree(top).unwrap());
    assert_eq!(namespace.inode(fourth).unwrap().project, 0);
    assert_eq!(namespace.inode(alone).unwrap().project, 1);
    assert!(namespace.remove_tree(inner).unwrap());
    assert!(!namespace.counts_usage());
    place.check();
}

#[test]
fn changes_while_files_are_counted_count() {
    let place = place();
    for at in 0..FILES {
        place.file(&format!("{at}"), ADA).unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let mut at = 0;
            while !is_over.load(Ordering::Relaxed) || at < 100 {
                let id = place.file(&format!("new {at}"), BOB).unwrap();
                place.write(id, 0, 700).unwrap();
                if at < FILES {
                    place.namespace.unlink(ROOT, format!("{at}").as_bytes()).unwrap();
                }
                at += 1;
            }
            at
        });
        for limit in 0..20 {
            place.limit(Account::User(ADA), inodes(limit % 2 * 100_000));
        }
        place.limit(Account::User(ADA), inodes(100_000));
        is_over.store(true, Ordering::Relaxed);
        let changes = changing.join().unwrap();
        assert_eq!(place.used(BOB), (changes * 1024, changes));
        assert_eq!(place.used(ADA), (0, FILES - changes.min(FILES)));
    });
    place.check();
}

#[test]
fn threads_do_not_pass_a_limit_together() {
    let place = place();
    place.limit(Account::User(ADA), Limits { inodes_hard: 200, ..bytes(1 << 20) });
    let made = std::thread::scope(|scope| {
        let threads = [0, 1, 2, 3].map(|thread| {
            let place = &place;
            scope.spawn(move || {
                let mut made = 0;
                for at in 0..200 {
                    let Ok(id) = place.file(&format!("{thread} {at}"), ADA) else { continue };
                    made += 1;
                    let _ = place.write(id, 0, 1 << (at % 16));
                    let _ = place.write(id, 40_000, 5000);
                }
                made
            })
        });
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
    });
    assert_eq!(made, 200);
    let (bytes, inodes) = place.used(ADA);
    assert!(bytes <= 1 << 20 && bytes > 900 << 10, "{bytes}");
    assert_eq!(inodes, 200);
    place.check();
}

#[test]
fn imports_are_counted() {
    let place = place();
    place.limit(Account::User(BOB), inodes(5));
    let mut bulk = Bulk::begin(&place.namespace).unwrap();
    for at in 0..1000 {
        let mode = file_type::REGULAR | 0o644;
        let id = bulk.new_id().unwrap();
        let mut inode = Inode { mode, uid: ADA, nlink: 1, id, ..Inode::default() };
        bulk.add_contents(&mut inode, &[7; 600]).unwrap();
        bulk.add(ROOT, format!("{at}").as_bytes(), &inode).unwrap();
    }
    bulk.commit(&place.namespace.inode(ROOT).unwrap()).unwrap();
    assert_eq!(place.used(ADA), (1024 * 1000, 1000));
    place.check();
    let place = place.reopened();
    assert_eq!(place.used(ADA), (1024 * 1000, 1000));
    place.check();
}
