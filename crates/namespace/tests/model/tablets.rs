//! Two tablets, each with a table of its own and half of the names of the root by their hashes.
//! All that lies below a name of the root lies in one of them. Each refuses what the other holds,
//! and changes nothing. On its own names a tablet does what a namespace does. A change that would
//! concern both is refused.

use crate::executor::{Result, as_errno, by_message};
use crate::reference::Reference;
use crate::step::{Act, Names, Step, comparable, step};
use canopy_model::ErrorKind;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Administration, Change, Changer, Hold, Moment, Operation, Page, QuotasRequest, Read,
    SnapshotsRequest, Target,
};
use canopy_namespace::{
    Contents, DirectoryHalf, EntryName, Error, FileId, Inode, Listing, Namespace, New, NoOpenFiles,
    Ownership, ROOT, Reply, SetAttributes, SetXattr, Settings, Tablet, TabletRange, cookie_before,
    create_namespace, create_table, keys, open_table, system_clock, table_of,
};
use canopy_store::storage::MemoryStorage;
use canopy_store::{Batch, Durability, Environment, SstableCache, TableId};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// The second tablet holds names of the root from this hash on.
const MIDDLE: u64 = 1 << 63;

/// The ids of files that the second tablet makes are not less.
const SECOND_IDS: u64 = 1 << 40;

struct Halves {
    environments: [Environment; 2],
    tablets: [Tablet; 2],
}

/// Opens the tablet of one half.
fn open(environment: &Environment, half: usize) -> Tablet {
    let id = table_of(&*environment.storage).expect("a table");
    tablet(environment, id, half)
}

fn tablet(environment: &Environment, id: TableId, half: usize) -> Tablet {
    let table = open_table(environment, id, SstableCache::new(environment, 1 << 20));
    let hashes = if half == 0 { 0..=MIDDLE - 1 } else { MIDDLE..=u64::MAX };
    let range = TabletRange::Part([(ROOT, hashes)].into_iter().collect());
    let tablet = Tablet::new(table.expect("a table"), range, system_clock(), Arc::new(NoOpenFiles));
    let tablet = tablet.expect("a tablet");
    tablet.remove_orphans().expect("a recovery");
    tablet
}

/// Makes a table, with a root and ids of its own.
fn create(settings: &Settings, half: usize) -> Environment {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    create_namespace(&environment, settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    let id = table_of(&*environment.storage).expect("a table");
    let table = open_table(&environment, id, SstableCache::new(&environment, 1 << 20));
    let first = FileId(if half == 0 { ROOT.0 + 1 } else { SECOND_IDS });
    let mut batch = Batch::new();
    batch.put(keys::ids().as_ref(), &first.to_be_bytes()).expect("a batch");
    table.expect("a table").write(&batch, Durability::Durable).expect("a write");
    environment
}

impl Halves {
    fn new(indexes: &[&str]) -> Self {
        let settings = Settings::default().with_indexes(indexes).expect("settings");
        let environments = [0, 1].map(|half| create(&settings, half));
        let tablets = [0, 1].map(|half| open(&environments[half], half));
        Halves { environments, tablets }
    }

    fn sync(&self) {
        for tablet in &self.tablets {
            tablet.flush_pending().expect("a flush");
            tablet.table().sync().expect("a sync");
        }
    }

    /// Opens both again. Between, each half is a namespace that obeys all rules by itself.
    fn reopen(self) -> Self {
        self.sync();
        let Halves { environments, tablets } = self;
        drop(tablets);
        for environment in &environments {
            let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
            let contents = Contents::new(directory.path()).expect("a directory");
            let namespace = Namespace::open(environment, contents, system_clock());
            let namespace = namespace.expect("a namespace");
            let faults = namespace.check(|_| {}).expect("a check");
            assert!(faults.is_empty(), "{faults:#?}");
            namespace.close().expect("a close");
        }
        let tablets = [0, 1].map(|half| open(&environments[half], half));
        Halves { environments, tablets }
    }

    /// Executes an operation where it belongs, after the other tablet has refused it.
    fn execute(&self, operation: &Operation<'_>) -> canopy_namespace::Result<Reply> {
        let holder = holder(operation.target());
        let refused = self.tablets[1 - holder].execute(operation);
        let error = refused.expect_err("what the other one holds");
        assert!(matches!(error, Error::NotHere(target) if target == operation.target()), "{error}");
        assert_eq!(error.kind().retry(), canopy_model::Retry::Elsewhere);
        by_message(operation, |operation| self.tablets[holder].execute(operation))
    }

    fn apply(&self, step: &Step) -> Result<Reply> {
        match &step.act {
            Act::Walk(_, errno) | Act::Refuse(_, errno) => Err(*errno),
            Act::Execute(operation) => as_errno(self.execute(operation)),
            Act::Write(..) | Act::UnlinkOpen(..) => unreachable!("contents are no tablet's"),
        }
    }

    /// Returns all entries of a directory: of the root, those of one half behind the other's.
    fn entries(&self, directory: FileId) -> Vec<(Vec<u8>, Inode)> {
        let starts = if directory == ROOT { vec![0, cookie_before(MIDDLE)] } else { vec![0] };
        let mut found = Vec::new();
        for mut after in starts {
            loop {
                let page = Page { directory, after, name: None, count_max: 3 };
                let list = Operation::Read(Moment::Now, Read::List(page));
                let Ok(Reply::Entries(entries)) = self.execute(&list) else { panic!("{list:?}") };
                for entry in entries.iter() {
                    after = entry.cookie;
                    found.push((entry.name.to_vec(), entry.inode.clone()));
                }
                if entries.count() < 3 {
                    break;
                }
                let next = Read::List(Page { after, ..page });
                let next = Operation::Read(Moment::Now, next).target();
                assert_eq!(holder(next), holder(list.target()), "entries of one half");
            }
        }
        found
    }

    /// Returns what [`Reference::tree`] does. No file has contents.
    fn tree(&self) -> String {
        let [one, other] = [0, 1].map(|half| self.tablets[half].inode(ROOT).expect("a root"));
        let root = Inode { nlink: one.nlink + other.nlink - 2, ..one };
        let mut lines = Vec::new();
        self.describe(&root, "", &mut lines);
        lines.sort();
        lines.join("\n")
    }

    fn describe(&self, inode: &Inode, path: &str, lines: &mut Vec<String>) {
        let Inode { mode, uid, gid, nlink, .. } = inode;
        let mut line = format!("{path} {mode:o} {uid} {gid} {nlink}");
        if inode.is_regular() {
            line.push_str(" 0 7");
        }
        if inode.mtime_ns.rem_euclid(1_000_000_000) == 5 {
            write!(line, " {}", inode.mtime_ns.div_euclid(1_000_000_000)).expect("text");
        }
        if inode.file_type() == file_type::SYMLINK {
            write!(line, " -> {}", String::from_utf8_lossy(&inode.target)).expect("text");
        }
        for name in ["user.one", "user.two"].into_iter().filter(|_| inode.id != ROOT) {
            let read = Read::Xattr { id: inode.id, name: name.as_bytes() };
            match self.execute(&Operation::Read(Moment::Now, read)) {
                Ok(Reply::Bytes(None)) => {}
                Ok(Reply::Bytes(Some(value))) => {
                    write!(line, " {name}={}", value.len()).expect("text");
                }
                other => panic!("{other:?}"),
            }
        }
        lines.push(line);
        if inode.is_directory() {
            for (name, inode) in self.entries(inode.id) {
                let name = String::from_utf8_lossy(&name).into_owned();
                let below = if path.is_empty() { name } else { format!("{path}/{name}") };
                self.describe(&inode, &below, lines);
            }
        }
    }
}

impl Names for Halves {
    fn root(&self) -> FileId {
        ROOT
    }

    fn lookup(&self, name: EntryName<'_>) -> Result<Inode> {
        match as_errno(self.execute(&Operation::Read(Moment::Now, Read::Lookup(name))))? {
            Reply::Inode(inode) => Ok(inode),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns which tablet holds a target.
fn holder(target: Target) -> usize {
    usize::from(match target {
        Target::Name { directory: ROOT, hash } => hash >= MIDDLE,
        Target::Name { directory: id, .. } | Target::File(id) => id.0 >= SECOND_IDS,
        Target::Anywhere => unreachable!("not a tablet's"),
    })
}

fn holder_of(name: EntryName<'_>) -> usize {
    holder(Target::Name { directory: name.directory, hash: name.hash() })
}

/// Returns whether an operation would concern both tablets.
fn is_across(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Change(Change::Rename { from, to, .. }) => holder_of(*from) != holder_of(*to),
        Operation::Change(Change::Link { id, name }) => {
            holder(Target::File(*id)) != holder_of(*name)
        }
        _ => false,
    }
}

/// Runs steps at random. Returns how many of them would have concerned both tablets.
fn run(seed: u64, steps: usize) -> usize {
    let directory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let mut random = StdRng::seed_from_u64(seed);
    let indexes: [&[&str]; 2] = [&[], &["size", "uid", "mtime", "ext", "name", "user.one"]];
    let mut halves = Halves::new(indexes[seed as usize % 2]);
    let reference = Reference::new(&directory.path().join("reference"));
    let (mut log, mut across) = (Vec::new(), 0);
    for at in 0..steps {
        let step = step(&mut random, &halves);
        let context = || format!("seed {seed}, step {at}\n{}", log.join("\n"));
        match &step.act {
            // Contents are beside the tablets, and so is a length.
            Act::Write(..) | Act::UnlinkOpen(..) => continue,
            Act::Execute(Operation::Change(Change::SetAttributes { set, .. }))
            | Act::Refuse(Operation::Change(Change::SetAttributes { set, .. }), _)
                if set.size.is_some() =>
            {
                continue;
            }
            Act::Execute(operation) if is_across(operation) => {
                let refused = halves.execute(operation).expect_err("a change of both halves");
                let is_clear = (refused.kind(), refused.errno());
                assert_eq!(is_clear, (ErrorKind::Invalid, Errno::XDEV), "{}", context());
                across += 1;
            }
            _ => {
                let expected = comparable(reference.apply(&step));
                let got = comparable(halves.apply(&step));
                assert_eq!(got, expected, "{step:?}\n{}", context());
                log.push(format!("{step:?}: {expected:?}"));
            }
        }
        if random.random_ratio(1, 40) {
            assert_eq!(halves.tree(), reference.tree(), "seed {seed}, step {at}");
        }
        if random.random_ratio(1, 150) {
            halves = halves.reopen();
        }
    }
    assert_eq!(halves.tree(), reference.tree(), "seed {seed}");
    let again = halves.reopen();
    assert_eq!(again.tree(), reference.tree(), "seed {seed}, opened again");
    across
}

#[test]
fn two_tablets_do_what_a_file_system_does() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    let across: usize = (0..seeds.unwrap_or(10)).map(|seed| run(seed, 400)).sum();
    assert!(across > 0, "the test tests something");
}

/// Returns two names of the root, one of each half.
fn names_of_halves() -> [EntryName<'static>; 2] {
    let names: [&[u8]; 7] = [b"a", b"b", b"c", b"d", b"e", b"f", b"g"];
    let names = names.map(|name| EntryName::new(ROOT, name));
    let of = |half| names.into_iter().find(|name| holder_of(*name) == half);
    [0, 1].map(|half| of(half).expect("a name of each half"))
}

#[test]
fn the_tablet_with_the_first_partition_has_the_attributes() {
    let halves = Halves::new(&[]);
    let half = halves.tablets[0].directory_half(ROOT).expect("a root");
    // The second table of a cluster has no first partition of the root.
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let (settings, clock) = (Settings::default(), system_clock());
    let id = create_table(&environment, &settings, Ownership::ROOT, &clock, false);
    let second = tablet(&environment, id.expect("a table"), 1);
    second.put_content_half(&DirectoryHalf { version: 1, ..half }).expect("a copy");
    let changer = || Changer::Privileged;
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let xattr = Change::SetXattr {
        id: ROOT,
        name: b"user.x",
        value: b"v",
        how: SetXattr::Any,
        changer: changer(),
    };
    for change in [Change::SetAttributes { id: ROOT, set, changer: changer() }, xattr] {
        let operation = Operation::Change(change);
        let error = second.execute(&operation).expect_err("a change of a copy");
        assert!(matches!(error, Error::NotHere(_) | Error::AcrossTablets(_)), "{error}");
        halves.tablets[0].execute(&operation).expect("a change of attributes");
    }
}

#[test]
fn operations_on_both_tablets_are_refused_whole() {
    let halves = Halves::new(&[]);
    let names = names_of_halves();
    let create = |name, mode| {
        let new = Cow::Owned(New { mode, ..New::default() });
        halves.execute(&Operation::Change(Change::Create { name, new, holds: false }))
    };
    let ids = names.map(|name| match create(name, file_type::DIRECTORY | 0o755) {
        Ok(Reply::Inode(inode)) => inode.id,
        other => panic!("{other:?}"),
    });
    let within = EntryName::new(ids[1], b"x");
    create(within, file_type::REGULAR | 0o644).expect("a file");
    let before = halves.tree();
    let changer = || Changer::Privileged;
    let mode = canopy_namespace::RenameMode::Replace;
    for change in [
        Change::Rename { from: names[0], to: names[1], mode, whiteout: None },
        Change::Rename { from: within, to: names[0], mode, whiteout: Some(Ownership::ROOT) },
        Change::Link { id: ids[0], name: names[1] },
    ] {
        let operation = Operation::Change(change);
        for tablet in &halves.tablets {
            let error = tablet.execute(&operation).expect_err("a change of both");
            assert!(matches!(error, Error::NotHere(_) | Error::AcrossTablets(_)), "{error}");
        }
        assert_eq!(halves.tree(), before, "{operation:?}");
    }
    // Nothing is listed behind the range.
    let mut listing = Listing::new(ROOT);
    let listed = halves.tablets[0]
        .list(&mut listing, cookie_before(MIDDLE), |entry| panic!("{entry:?} is not in this half"));
    listed.expect("no entries");
    // A length is what records have, where nobody has files open.
    let Ok(file) = halves.lookup(within) else { panic!("no file") };
    for size in [10, 0] {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        let length = Change::SetAttributes { id: file.id, set, changer: changer() };
        let reply = halves.execute(&Operation::Change(length));
        assert!(matches!(reply, Ok(Reply::Inode(inode)) if inode.size == size));
    }
    // Snapshots and quotas are not a tablet's.
    for others in [
        Operation::Snapshots(SnapshotsRequest::All),
        Operation::Quotas(QuotasRequest::All),
        Operation::Administration(Administration::State),
    ] {
        let error = halves.tablets[0].execute(&others).expect_err("another room's");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    let rmdir = |name| halves.execute(&Operation::Change(Change::Rmdir(name)));
    assert!(matches!(rmdir(names[1]), Err(Error::Posix(Errno::NOTEMPTY))));
    // A directory that lies in one tablet alone goes as ever, and a file that is held stays.
    let hold = Operation::Hold(Hold::Name(within));
    halves.execute(&hold).expect("a file");
    halves.execute(&Operation::Change(Change::Unlink(within))).expect("a file");
    assert!(matches!(rmdir(names[1]), Ok(Reply::File(id)) if id == ids[1]));
    let read = Operation::Read(Moment::Now, Read::Inode(file.id));
    assert!(matches!(halves.execute(&read), Ok(Reply::Inode(inode)) if inode.nlink == 0));
    halves.execute(&Operation::Hold(Hold::Release(file.id, 1))).expect("a release");
    let gone = halves.tablets[1].execute(&read).expect_err("a file that went");
    assert!(matches!(gone, Error::NotHere(Target::File(id)) if id == file.id));
    let again = halves.reopen();
    assert_eq!(again.tree().lines().count(), 2);
}
