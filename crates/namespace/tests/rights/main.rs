//! Permissions, beside those of Linux: random users make random calls on a directory of the
//! system's and, as operations with credentials, on a namespace. Each call fails with the same error
//! or succeeds on both sides, and the trees are equal then. Needs root.
//!
//! `CANOPY_LONG=1` makes 25 times as many calls. `CANOPY_SEED=46` repeats one run.
//!
//! tmpfs differs from a mount in one thing, which is left out: it takes setgid away from a file when
//! a user removes its ACL who is not in its group. ext4 and FUSE leave it.

mod matrix;
mod reference;
mod rules;
mod step;
mod user;

use canopy_model::{Ownership, Wanted};
use canopy_namespace::acl;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Access, Caller, Change, Read};
use canopy_namespace::{
    Contents, EntryName, Execute, FileId, Inode, Listing, Namespace, Operation, ROOT, Reply,
    Settings, create_namespace, system_clock,
};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use reference::{Attributes, Reference, Value};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use step::{Call, Choice, Files};
use tempfile::TempDir;
use user::{User, users};

const SETGID: u32 = 0o2000;

/// More files than these are not kept.
const FILES_MAX: usize = 48;

/// Numbers of calls by their kind, and by the error's number; 0 stands for success.
type Outcomes = BTreeMap<&'static str, BTreeMap<i32, u64>>;

/// A namespace, and the directory that is to be like it.
struct Site {
    namespace: Namespace,
    reference: Reference,
    /// All files that calls may be about, dead ones too; the root is the first.
    files: Vec<FileId>,
    /// Outcomes by the kind of the call.
    outcomes: Outcomes,
    _place: TempDir,
}

/// Makes a namespace in a directory.
pub(crate) fn new_namespace(place: &TempDir) -> Namespace {
    assert!(rustix::process::geteuid().is_root(), "this test switches users and needs root");
    let storage = LocalStorage::new(&place.path().join("table")).expect("a storage");
    let environment = Environment::system(Arc::new(storage));
    let settings = Settings::default().with_indexes(&["uid", "user.one"]).expect("settings");
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock())
        .expect("a namespace");
    let contents = Contents::new(&place.path().join("contents")).expect("a directory");
    Namespace::open(&environment, contents, system_clock()).expect("a namespace")
}

impl Site {
    fn new() -> Self {
        let place = tempfile::tempdir_in("/dev/shm").expect("a directory");
        std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("permissions");
        let namespace = new_namespace(&place);
        let reference = Reference::new(&place.path().join("reference"), ROOT);
        let mut site = Site {
            namespace,
            reference,
            files: vec![ROOT],
            outcomes: BTreeMap::new(),
            _place: place,
        };
        let root = &users()[0];
        let set = canopy_namespace::SetAttributes { mode: Some(0o777), ..Default::default() };
        let changer = canopy_namespace::operation::Changer::Privileged;
        let open = Operation::Change(Change::SetAttributes { id: ROOT, set, changer });
        site.step(root, Call::Execute(open)).expect("an open root");
        site
    }

    fn directories(&self) -> Vec<FileId> {
        let is_directory = |id: &FileId| self.inode(*id).is_directory();
        self.files.iter().copied().filter(is_directory).collect()
    }

    fn inode(&self, id: FileId) -> Inode {
        self.namespace.inode(id).expect("a file that is held")
    }

    /// Executes an operation of a user, as it arrives in a message.
    fn execute(&self, user: &User, operation: &Operation<'_>) -> Result<Reply, Errno> {
        let message = postcard::to_extend(operation, Vec::new()).expect("a message");
        let arrived: Operation<'_> = postcard::from_bytes(&message).expect("an operation");
        let caller = Caller::User(&user.credentials);
        self.namespace.execute_for(caller, &arrived).map_err(|error| error.errno())
    }

    /// Makes a call on both sides. Returns the error of both.
    fn step(&mut self, user: &User, call: Call) -> Result<(), Errno> {
        let (kind, expected, got) = match &call {
            Call::CreateNameless(directory, new) => {
                let expected = self.reference.create_nameless(user, *directory, new);
                let create =
                    Change::CreateNameless { directory: *directory, new: Cow::Borrowed(new) };
                let got = self.execute(user, &Operation::Change(create));
                let outcome = (expected.as_ref().err().copied(), got.as_ref().err().copied());
                if let (Ok(file), Ok(Reply::Inode(inode))) = (expected, got) {
                    self.reference.insert(inode.id, file);
                    self.files.push(inode.id);
                }
                let [expected, got] =
                    [outcome.0, outcome.1].map(|error| error.map_or(Ok(Value::Nothing), Err));
                ("create-nameless", expected, got)
            }
            Call::Execute(operation) => {
                let expected = self.reference.apply(user, operation);
                let got = self.execute(user, operation);
                if got.is_ok() && expected.is_ok() {
                    self.learn(operation);
                }
                (kind(operation), expected, got.map(|reply| value(operation, reply)))
            }
        };
        assert_eq!(got, expected, "{user:?}: {call:?}");
        let outcome = expected.as_ref().map_or_else(|errno| errno.raw_os_error(), |_| 0);
        *self.outcomes.entry(kind).or_default().entry(outcome).or_default() += 1;
        expected.map(drop)
    }

    /// Learns which files an operation has made.
    fn learn(&mut self, operation: &Operation<'_>) {
        let name = match operation {
            Operation::Change(Change::Create { name, .. }) => *name,
            Operation::Change(Change::Rename { from, whiteout: Some(_), .. }) => *from,
            _ => return,
        };
        let Ok(inode) = self.namespace.lookup(name.directory, name.name) else { return };
        if self.reference.knows(inode.id) {
            return;
        }
        if !matches!(operation, Operation::Change(Change::Create { .. })) {
            self.namespace.hold(inode.id);
        }
        self.reference.learn(name, inode.id);
        self.files.push(inode.id);
    }

    /// Lets go of files without a name, and of some others, where there are many.
    fn forget_some(&mut self, random: &mut StdRng) {
        while self.files.len() > FILES_MAX {
            let at = random.random_range(1..self.files.len());
            let dead = self.files.iter().position(|id| self.inode(*id).nlink == 0);
            let id = self.files.swap_remove(dead.unwrap_or(at));
            self.remove(id);
        }
    }

    /// Removes a directory and everything in it, and files without a name.
    fn remove_all(&mut self, id: FileId) {
        let at = self.files.iter().position(|one| *one == id).expect("a directory that is known");
        self.files.swap_remove(at);
        self.remove(id);
        while let Some(at) = self.files.iter().position(|id| self.inode(*id).nlink == 0) {
            let id = self.files.swap_remove(at);
            self.remove(id);
        }
    }

    /// Removes a file and everything in it, as root.
    fn remove(&mut self, id: FileId) {
        let root = &users()[0];
        if self.inode(id).is_directory() {
            for name in self.reference.names(id).expect("names") {
                // Another name of a file that is gone.
                let Ok(found) = self.namespace.lookup(id, &name) else { continue };
                let found = found.id;
                let within = self.files.iter().position(|one| *one == found);
                if let Some(at) = within {
                    self.files.swap_remove(at);
                    self.remove(found);
                }
            }
        }
        for (directory, name) in self.namespace.names(id).expect("names") {
            let name = EntryName::new(directory, Vec::leak(name));
            let change = match self.inode(id).is_directory() {
                true => Change::Rmdir(name),
                false => Change::Unlink(name),
            };
            self.step(root, Call::Execute(Operation::Change(change))).expect("a removal");
        }
        self.reference.forget(id);
        self.namespace.release(id, 1).expect("a file that was held");
    }

    fn attributes(&self, id: FileId) -> Attributes {
        let inode = self.inode(id);
        let names = match inode.has(flag::XATTRS) {
            true => self.namespace.xattrs(id).expect("names"),
            false => Vec::new(),
        };
        let value = |name: Vec<u8>| {
            let value = self.namespace.xattr(id, &name).expect("a value").expect("a value");
            (name, value)
        };
        Attributes {
            mode: inode.mode,
            owner: (inode.uid, inode.gid),
            nlink: inode.nlink,
            size: (!inode.is_directory()).then_some(inode.size),
            xattrs: names.into_iter().map(value).collect(),
        }
    }

    /// Compares both sides: all files, and the names of all directories.
    fn compare(&self) {
        for id in &self.files {
            assert_eq!(self.attributes(*id), self.reference.attributes(*id), "file {id}");
        }
        for id in self.directories() {
            let mut names = Vec::new();
            let tell = |entry: canopy_namespace::Entry<'_>| {
                names.push(entry.name.to_vec());
                true
            };
            self.namespace.list(&mut Listing::new(id), 0, tell).expect("a listing");
            names.sort();
            assert_eq!(names, self.reference.names(id).expect("names"), "directory {id}");
        }
        let faults = self.namespace.check(|_| {}).expect("a check");
        assert!(faults.is_empty(), "{faults:?}");
    }

    /// Returns whether tmpfs does something else than a mount would.
    fn differs(&self, user: &User, call: &Call) -> bool {
        let credentials = &user.credentials;
        let foreign = |id: FileId| {
            let inode = self.inode(id);
            !credentials.is_root() && !credentials.gids.contains(&inode.gid)
        };
        match call {
            Call::Execute(Operation::Change(Change::RemoveXattr { id, name })) => {
                *name == acl::ACCESS.as_bytes()
                    && self.inode(*id).mode & SETGID != 0
                    && foreign(*id)
            }
            Call::Execute(Operation::Change(Change::Link { id, .. })) => {
                !hard_links_are_protected() && self.inode(*id).uid != credentials.uid
            }
            // Linux makes files without a name in a directory that was removed.
            Call::CreateNameless(id, _) => {
                let inode = self.inode(*id);
                inode.is_directory() && inode.nlink == 0
            }
            // The reference has access(2) for it, which searches directories.
            Call::Execute(Operation::Access(Access::Open(id, Wanted::EXECUTE))) => {
                !self.inode(*id).is_regular()
            }
            // No name leads to the directory above a removed one.
            Call::Execute(Operation::Read(_, Read::Parent(id))) => {
                *id == ROOT || self.inode(*id).nlink == 0
            }
            _ => false,
        }
    }
}

fn hard_links_are_protected() -> bool {
    let set = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
    set.is_ok_and(|set| set.trim() == "1")
}

/// Returns what a reply says that both sides have.
fn value(operation: &Operation<'_>, reply: Reply) -> Value {
    match reply {
        Reply::Bytes(bytes) => Value::Bytes(bytes),
        Reply::Names(names) => Value::Names(names),
        Reply::Entries(entries) => {
            let mut names = Vec::from_iter(entries.iter().map(|entry| entry.name.to_vec()));
            names.sort();
            let are_shown = entries.iter().all(|entry| entry.inode.nlink > 0);
            Value::Listed(names, are_shown)
        }
        Reply::Inode(_) | Reply::File(_) | Reply::Done => Value::Nothing,
        other => panic!("{operation:?}: {other:?}"),
    }
}

fn kind(operation: &Operation<'_>) -> &'static str {
    match operation {
        Operation::Read(_, Read::Lookup(_)) => "lookup",
        Operation::Read(_, Read::Parent(_)) => "parent",
        Operation::Read(_, Read::List(_)) => "list",
        Operation::Read(_, Read::Xattr { .. }) => "xattr",
        Operation::Access(Access::Open(..)) => "open",
        Operation::Change(Change::Create { .. }) => "create",
        Operation::Change(Change::Link { .. }) => "link",
        Operation::Change(Change::Unlink(_)) => "unlink",
        Operation::Change(Change::Rmdir(_)) => "rmdir",
        Operation::Change(Change::Rename { .. }) => "rename",
        Operation::Change(Change::SetAttributes { set, .. }) => match set {
            set if set.mode.is_some() => "chmod",
            set if set.size.is_some() => "truncate",
            set if set.atime.is_some() || set.mtime.is_some() => "utimes",
            _ => "chown",
        },
        Operation::Change(Change::SetXattr { .. }) => "set-xattr",
        Operation::Change(Change::RemoveXattr { .. }) => "remove-xattr",
        _ => "other",
    }
}

fn is_long() -> bool {
    std::env::var_os("CANOPY_LONG").is_some_and(|value| value == "1")
}

/// Makes calls until there were so many. Returns their outcomes.
fn run(seed: u64, calls: usize) -> Outcomes {
    println!("CANOPY_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (mut site, users) = (Site::new(), users());
    for at in 0..calls {
        // Root makes few calls: they all succeed.
        let user = match random.random_range(0..16) {
            0..2 => &users[0],
            other => &users[1 + other % (users.len() - 1)],
        };
        let directories = site.directories();
        let files = Files { directories: &directories, all: &site.files };
        let call = Choice { random: &mut random, files, user }.call();
        if site.differs(user, &call) {
            continue;
        }
        let _ = site.step(user, call);
        site.forget_some(&mut random);
        if at % 16 == 0 {
            site.compare();
        }
    }
    site.compare();
    site.outcomes
}

/// Calls that can fail for want of permission, with the errors that show it.
const REFUSED: &[(&str, &[Errno])] = &[
    ("chmod", &[Errno::PERM]),
    ("chown", &[Errno::PERM]),
    ("create", &[Errno::ACCESS, Errno::PERM, Errno::EXIST]),
    ("create-nameless", &[Errno::ACCESS]),
    ("link", &[Errno::ACCESS, Errno::PERM, Errno::EXIST]),
    ("list", &[Errno::ACCESS]),
    ("lookup", &[Errno::ACCESS, Errno::NOENT]),
    ("open", &[Errno::ACCESS]),
    ("parent", &[Errno::ACCESS]),
    ("remove-xattr", &[Errno::ACCESS, Errno::PERM]),
    ("rename", &[Errno::ACCESS, Errno::PERM, Errno::EXIST, Errno::NOENT]),
    ("rmdir", &[Errno::ACCESS, Errno::PERM, Errno::NOTEMPTY]),
    ("set-xattr", &[Errno::ACCESS, Errno::PERM]),
    ("truncate", &[Errno::ACCESS]),
    ("unlink", &[Errno::ACCESS, Errno::PERM]),
    ("utimes", &[Errno::ACCESS, Errno::PERM]),
    ("xattr", &[Errno::ACCESS]),
];

#[test]
fn users_may_what_linux_lets_them() {
    let (first, runs) = match std::env::var("CANOPY_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => (seed, 1),
        None => (1, if is_long() { 100 } else { 4 }),
    };
    let mut outcomes = Outcomes::new();
    for seed in first..first + runs {
        for (kind, by_outcome) in run(seed, 3000) {
            let all = outcomes.entry(kind).or_default();
            by_outcome.into_iter().for_each(|(outcome, count)| {
                *all.entry(outcome).or_default() += count;
            });
        }
    }
    println!("{outcomes:?}");
    for (kind, errors) in REFUSED {
        for errno in [0].into_iter().chain(errors.iter().map(|errno| errno.raw_os_error())) {
            let has = outcomes.get(kind).is_some_and(|all| all.contains_key(&errno));
            assert!(has || runs == 1, "no {kind} had the outcome {errno}");
        }
    }
}
