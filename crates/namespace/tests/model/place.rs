//! The operations on a namespace, as the kernel would ask for them.

use crate::step::{Act, Names, Step, bytes};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Hold, Moment};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, EntryName, Execute, Failure, FileContents, FileId, Inode, Listing, NamedInode,
    Namespace, New, Operation, Privileges, ROOT, Reply, system_clock,
};
use canopy_query::{Component, Context, Expression};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::io::Errno;
use std::cell::Cell;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// So much is cached of contents that are chunks: two of them.
const CACHE_BYTES: u64 = 8192;

pub(crate) struct Fixture {
    directory: PathBuf,
    namespace: Arc<Namespace>,
    /// The directory that paths begin at.
    root: FileId,
}

pub(crate) fn as_errno<T>(result: canopy_namespace::Result<T>) -> Result<T> {
    result.map_err(|error| error.errno())
}

/// Opens a copy of what a namespace has on the disk, as if its process had died.
pub(crate) fn crash(place: &Fixture, copy: &Path) -> Fixture {
    let copied = Command::new("cp").arg("-a").arg(&place.directory).arg(copy).status();
    assert!(copied.expect("cp").success());
    Fixture::open(copy.into())
}

/// Executes an operation as a server does: as it arrives in a message. So does the outcome.
pub(crate) fn by_message(
    operation: &Operation<'_>,
    execute: impl FnOnce(&Operation<'_>) -> canopy_namespace::Result<Reply>,
) -> canopy_namespace::Result<Reply> {
    let message = postcard::to_extend(operation, Vec::new()).expect("a message");
    let arrived: Operation<'_> = postcard::from_bytes(&message).expect("an operation");
    assert_eq!(arrived, *operation);
    assert_eq!(arrived.target(), operation.target());
    let outcome = execute(&arrived).map_err(|error| Failure::from(&error));
    let message = postcard::to_extend(&outcome, Vec::new()).expect("a message");
    let arrived: std::result::Result<Reply, Failure> =
        postcard::from_bytes(&message).expect("an outcome");
    assert_eq!(arrived, outcome);
    arrived.map_err(canopy_namespace::Error::from)
}

impl Names for Fixture {
    fn root(&self) -> FileId {
        self.root
    }

    fn lookup(&self, name: EntryName<'_>) -> Result<Inode> {
        let execute: &dyn Execute = &*self.namespace;
        as_errno(execute.lookup(Moment::Now, name))
    }
}

impl Fixture {
    pub(crate) fn open(directory: PathBuf) -> Self {
        let storage = LocalStorage::new(&directory).expect("a storage");
        let environment = Environment::system(Arc::new(storage));
        let contents = Contents::new(&directory.join("contents")).expect("a directory");
        let contents = contents.with_cache_bytes(CACHE_BYTES);
        let namespace =
            Namespace::open(&environment, contents, system_clock()).expect("a namespace");
        Fixture { directory, namespace: Arc::new(namespace), root: ROOT }
    }

    /// Returns the same namespace with paths that begin at a directory in its root, which is made
    /// if it is missing.
    pub(crate) fn at(&self, name: &str) -> Self {
        let new = New { mode: file_type::DIRECTORY | 0o755, ..New::default() };
        let found = self.namespace.lookup(ROOT, name.as_bytes());
        let found = found.or_else(|_| self.namespace.create(ROOT, name.as_bytes(), &new, false));
        let root = found.expect("a directory").id;
        Fixture { directory: self.directory.clone(), namespace: self.namespace.clone(), root }
    }

    pub(crate) fn reopen(self) -> Self {
        let directory = self.directory;
        drop(self.namespace);
        Fixture::open(directory)
    }

    /// Removes objects of chunks that nobody needs.
    pub(crate) fn collect(&self) {
        self.namespace.collect().expect("a collection");
    }

    pub(crate) fn sync(&self) {
        self.namespace.sync().expect("a sync");
    }

    /// Wants other indexes.
    pub(crate) fn change_indexes(&self, random: &mut StdRng) {
        let all = ["size", "uid", "type", "mtime", "ctime", "ext", "name", "user.one", "user.two"];
        let some = Vec::from_iter(all.iter().filter(|_| random.random_ratio(1, 2)));
        self.namespace.set_indexes(&some).expect("indexes");
    }

    /// Has usage counted, or not any more: limits that nobody reaches, as root does all here.
    pub(crate) fn change_quotas(&self, random: &mut StdRng) {
        let account = Account::User(random.random_range(0..3));
        let inodes_hard = random.random_range(0..3);
        let limits = Limits { inodes_hard, ..Limits::default() };
        self.namespace.set_limits(account, limits).expect("limits");
    }

    /// Builds some of what is missing in indexes, and begins anew the next time.
    pub(crate) fn build_some(&self, steps: u32) {
        let left = Cell::new(steps);
        let goes_on = || left.replace(left.get().saturating_sub(1)) > 0;
        self.namespace.build_indexes(goes_on).expect("indexes");
    }

    /// Writes the log, as a thread of the engine does all the time.
    pub(crate) fn sync_log(&self) {
        self.namespace.table().sync().expect("a sync");
    }

    pub(crate) fn check(&self) {
        let found = self.namespace.check_contents(|_| {}).expect("a check");
        assert!(found.is_empty(), "{found:#?}");
    }

    /// Searches, and compares that with going through all directories.
    pub(crate) fn check_search(&self) {
        let queries = [
            "[size>4K]",
            "[size<100 and type=f]",
            "[uid=1 or gid=2]",
            "[ext=txt]",
            "[name~long*]",
            "[mtime=@1700000000 and not uid=0]",
            "[user.one]",
            "[links>1]",
            "[path~a/*]",
            "[type=d and not (uid=1 or name=a)]",
        ];
        let nobody = |_: &str| None;
        let context = Context {
            now_ns: 1_800_000_000_000_000_000,
            zone: jiff::tz::TimeZone::UTC,
            user: &nobody,
            group: &nobody,
        };
        for query in queries {
            let component = canopy_query::parse(query.as_bytes(), &context);
            let Ok(Some(Component::Search(expression))) = component else {
                panic!("{query}: {component:?}")
            };
            let (mut expected, mut found) = (Vec::new(), Vec::new());
            self.walk(ROOT, "", &expression, &mut expected);
            let root = Credentials::new(0, [0]);
            let searched = self.namespace.search(ROOT, &expression, &root, |one| {
                found.push(String::from_utf8_lossy(&one.path).into_owned());
                true
            });
            searched.expect("a search");
            expected.sort();
            found.sort();
            assert_eq!(found, expected, "{query}");
        }
    }

    /// Searches while others change what is found.
    pub(crate) fn search_all(&self) {
        let nobody = |_: &str| None;
        let zone = jiff::tz::TimeZone::UTC;
        let context = Context { now_ns: 0, zone, user: &nobody, group: &nobody };
        for query in ["[size>100]", "[type=d]", "[ext=txt or user.one]"] {
            let component = canopy_query::parse(query.as_bytes(), &context);
            let Ok(Some(Component::Search(expression))) = component else { panic!("{query}") };
            let root = Credentials::new(0, [0]);
            let searched = self.namespace.search(ROOT, &expression, &root, |_| true);
            searched.expect("a search");
        }
    }

    fn walk(&self, id: FileId, path: &str, expression: &Expression, found: &mut Vec<String>) {
        let mut entries = Vec::new();
        let listed = self.namespace.list(&mut Listing::new(id), 0, |entry| {
            entries.push((entry.name.to_vec(), entry.inode.clone()));
            true
        });
        listed.expect("a listing");
        for (name, inode) in entries {
            let below = format!("{path}{}", String::from_utf8_lossy(&name));
            let xattr = |name: &[u8]| self.namespace.xattr(inode.id, name).expect("an attribute");
            let candidate =
                NamedInode { inode: &inode, name: &name, path: below.as_bytes(), xattr: &xattr };
            if expression.matches(&candidate) {
                found.push(below.clone());
            }
            if inode.is_directory() {
                self.walk(inode.id, &format!("{below}/"), expression, found);
            }
        }
    }

    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        as_errno(by_message(operation, |operation| self.namespace.execute(operation)))
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<Reply> {
        match &step.act {
            Act::Walk(_, errno) | Act::Refuse(_, errno) => Err(*errno),
            Act::Execute(operation) => self.execute(operation),
            Act::Write(id, offset, length) => self.write(*id, *offset, *length),
            Act::UnlinkOpen(id, name) => self.unlink_open(*id, *name),
        }
    }

    fn write(&self, id: FileId, offset: u64, length: usize) -> Result<Reply> {
        let contents: &dyn FileContents = &*self.namespace;
        as_errno(contents.open(id))?;
        let bytes = bytes(offset, length);
        as_errno(contents.write_at(id, offset, bytes, Privileges::Keep))?;
        let read = as_errno(contents.read_at(id, offset, bytes.len() + 1, true))?;
        let all = as_errno(contents.read_at(id, 0, 1 << 20, true))?;
        let rest = &all[offset as usize..];
        assert_eq!(read, rest[..rest.len().min(bytes.len() + 1)]);
        as_errno(contents.close(id))?;
        Ok(Reply::Done)
    }

    fn unlink_open(&self, id: FileId, name: EntryName<'static>) -> Result<Reply> {
        let namespace = &*self.namespace;
        let nlink = as_errno(namespace.inode(id))?.nlink;
        self.execute(&Operation::Hold(Hold::File(id)))?;
        let release = Operation::Hold(Hold::Release(id, 1));
        as_errno(namespace.open(id)).inspect_err(|_| {
            self.execute(&release).expect("a release");
        })?;
        self.execute(&Operation::Change(Change::Unlink(name)))?;
        as_errno(namespace.write_at(id, 10, b"still there", Privileges::Keep))?;
        assert_eq!(as_errno(namespace.read_at(id, 10, 11, true))?, b"still there");
        assert_eq!(as_errno(namespace.inode(id))?.nlink, nlink - 1);
        as_errno(FileContents::close(namespace, id))?;
        self.execute(&release)
    }

    /// Returns what [`Reference::tree`](crate::reference::Reference::tree) does.
    pub(crate) fn tree(&self) -> String {
        let mut lines = Vec::new();
        let root = as_errno(self.namespace.inode(self.root)).expect("a root");
        self.describe(&root, "", &mut lines);
        lines.sort();
        lines.join("\n")
    }

    fn describe(&self, inode: &Inode, path: &str, lines: &mut Vec<String>) {
        let Inode { mode, uid, gid, nlink, .. } = inode;
        let mut line = format!("{path} {mode:o} {uid} {gid} {nlink}");
        if inode.is_regular() {
            let opened = self.namespace.open_file(inode.id).expect("a file");
            let contents = self.namespace.read(&opened, 0, 1 << 20, true).expect("contents");
            self.namespace.close_file(&opened).expect("a file closed");
            let sum =
                contents.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            write!(line, " {} {sum:x}", inode.size).expect("text");
        }
        if inode.mtime_ns.rem_euclid(1_000_000_000) == 5 {
            write!(line, " {}", inode.mtime_ns.div_euclid(1_000_000_000)).expect("text");
        }
        if inode.file_type() == file_type::SYMLINK {
            write!(line, " -> {}", String::from_utf8_lossy(&inode.target)).expect("text");
        }
        for name in ["user.one", "user.two"] {
            if let Some(value) = self.namespace.xattr(inode.id, name.as_bytes()).expect("a value") {
                write!(line, " {name}={}", value.len()).expect("text");
            }
        }
        lines.push(line);
        if inode.is_directory() {
            let mut entries = Vec::new();
            let mut listing = Listing::new(inode.id);
            let listed = self.namespace.list(&mut listing, 0, |entry| {
                entries.push((entry.name.to_vec(), entry.inode.clone()));
                true
            });
            listed.expect("a listing");
            for (name, inode) in entries {
                let name = String::from_utf8_lossy(&name).into_owned();
                let below = if path.is_empty() { name } else { format!("{path}/{name}") };
                self.describe(&inode, &below, lines);
            }
        }
    }

    /// Returns whether what a crash left is a tree that there was: names, owners and modes are, and
    /// so are contents that are records. Times and contents of larger files may be newer.
    pub(crate) fn resembles(&self, tree: &str, found: &str) -> bool {
        let names = |tree: &str| {
            Vec::from_iter(tree.lines().map(|line| {
                let mut words = Vec::from_iter(line.split(' '));
                words.truncate(words.len().min(5));
                words.join(" ")
            }))
        };
        names(tree) == names(found)
    }
}
