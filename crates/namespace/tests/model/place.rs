//! The operations on a namespace, as the kernel would ask for them.

use crate::reference::bytes;
use crate::{
    Arc, Contents, Environment, Errno, LocalStorage, Namespace, New, Path, RenameMode,
    SetAttributes, SetTime, Step, system_clock,
};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::query::{Candidate, Component, Context, Expression};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{EntryName, FileId, Inode, Listing, Privileges, ROOT};
use rand::RngExt;
use rand::rngs::StdRng;
use std::cell::Cell;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

type Result<T> = std::result::Result<T, Errno>;

/// So much is cached of contents that are chunks: two of them.
const CACHE_BYTES: u64 = 8192;

pub(crate) struct Fixture {
    directory: PathBuf,
    namespace: Arc<Namespace>,
    /// The directory that paths begin at.
    root: FileId,
}

fn as_errno<T>(result: canopy_namespace::Result<T>) -> Result<T> {
    result.map_err(|error| error.errno())
}

/// Opens a copy of what a namespace has on the disk, as if its process had died.
pub(crate) fn crash(place: &Fixture, copy: &Path) -> Fixture {
    let copied = Command::new("cp").arg("-a").arg(&place.directory).arg(copy).status();
    assert!(copied.expect("cp").success());
    Fixture::open(copy.into())
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
            let component = canopy_namespace::query::parse(query.as_bytes(), &context);
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
            let component = canopy_namespace::query::parse(query.as_bytes(), &context);
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
                Candidate { inode: &inode, name: &name, path: below.as_bytes(), xattr: &xattr };
            if expression.matches(&candidate) {
                found.push(below.clone());
            }
            if inode.is_directory() {
                self.walk(inode.id, &format!("{below}/"), expression, found);
            }
        }
    }

    /// Returns the directory and the name that a path ends with.
    fn parent<'a>(&self, path: &'a str) -> Result<(FileId, &'a [u8])> {
        let (before, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut at = self.root;
        for name in before.split('/').filter(|name| !name.is_empty()) {
            let found = as_errno(self.namespace.lookup(at, name.as_bytes()))?;
            match found.file_type() {
                file_type::DIRECTORY => at = found.id,
                file_type::SYMLINK => return Err(Errno::NOENT),
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok((at, name.as_bytes()))
    }

    fn find(&self, path: &str) -> Result<Inode> {
        let (parent, name) = self.parent(path)?;
        as_errno(self.namespace.lookup(parent, name))
    }

    fn plain(&self, path: &str) -> Result<Inode> {
        let found = self.find(path)?;
        match found.is_regular() || found.is_directory() {
            true => Ok(found),
            false => Err(Errno::PERM),
        }
    }

    fn create(&self, path: &str, new: &New) -> Result<()> {
        let (parent, name) = self.parent(path)?;
        as_errno(self.namespace.create(parent, name, new, false)).map(drop)
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<()> {
        let of = |mode| New { mode, ..New::default() };
        let namespace = &self.namespace;
        match step {
            Step::Create(path, mode) => self.create(path, &of(file_type::REGULAR | mode)),
            // The kernel takes setuid and setgid bits away here.
            Step::Mkdir(path, mode) => self.create(path, &of(file_type::DIRECTORY | mode & 0o1777)),
            Step::Symlink(path) => {
                let target = b"nowhere/at all".to_vec();
                self.create(path, &New { target, ..of(file_type::SYMLINK | 0o777) })
            }
            Step::Fifo(path) => self.create(path, &of(file_type::FIFO | 0o600)),
            Step::Link(one, other) => {
                let found = self.find(one)?;
                let (parent, name) = self.parent(other)?;
                // The kernel looks at the new name first.
                if namespace.lookup(parent, name).is_ok() {
                    return Err(Errno::EXIST);
                }
                as_errno(namespace.link(found.id, parent, name)).map(drop)
            }
            Step::Unlink(path) => {
                let (parent, name) = self.parent(path)?;
                as_errno(namespace.unlink(parent, name)).map(drop)
            }
            Step::Rmdir(path) => {
                let (parent, name) = self.parent(path)?;
                as_errno(namespace.rmdir(parent, name)).map(drop)
            }
            Step::Rename(one, other, mode) => {
                let (from, to) = (self.parent(one)?, self.parent(other)?);
                // The kernel finds out what is above the other before it asks.
                let (moved, replaced) = (self.find(one)?, self.find(other));
                match (mode, &replaced) {
                    (RenameMode::NoReplace, Ok(_)) => return Err(Errno::EXIST),
                    (RenameMode::Exchange, Err(errno)) => return Err(*errno),
                    _ => {}
                }
                if moved.is_directory() && other.starts_with(&format!("{one}/")) {
                    return Err(Errno::INVAL);
                }
                if one.starts_with(&format!("{other}/")) {
                    let is_exchange = *mode == RenameMode::Exchange;
                    return Err(if is_exchange { Errno::INVAL } else { Errno::NOTEMPTY });
                }
                let name = |(directory, name)| EntryName::new(directory, name);
                as_errno(namespace.rename(name(from), name(to), *mode))
            }
            Step::Chmod(path, mode) => {
                let found = self.find(path)?;
                if found.file_type() == file_type::SYMLINK {
                    return Err(Errno::OPNOTSUPP);
                }
                self.set(&found, &SetAttributes { mode: Some(*mode), ..Default::default() })
            }
            Step::Chown(path, uid, gid) => {
                let (uid, gid) = (Some(*uid), Some(*gid));
                self.set(&self.find(path)?, &SetAttributes { uid, gid, ..Default::default() })
            }
            Step::Times(path, atime, mtime) => {
                let time = |seconds: i64| Some(SetTime::To(seconds * 1_000_000_000 + 5));
                let (atime, mtime) = (time(*atime), time(*mtime));
                let set = SetAttributes { atime, mtime, ..Default::default() };
                self.set(&self.find(path)?, &set)
            }
            _ => self.apply_to_contents(step),
        }
    }

    fn set(&self, found: &Inode, set: &SetAttributes) -> Result<()> {
        as_errno(self.namespace.set_attributes(found.id, set, Privileges::Keep)).map(drop)
    }

    fn apply_to_contents(&self, step: &Step) -> Result<()> {
        let namespace = &self.namespace;
        match step {
            Step::Truncate(path, size) => {
                let found = self.plain(path)?;
                let set = SetAttributes { size: Some(*size), ..Default::default() };
                match found.is_directory() {
                    true => Err(Errno::ISDIR),
                    false => self.set(&found, &set),
                }
            }
            Step::Write(path, offset, length) => {
                let opened = as_errno(namespace.open_file(self.plain(path)?.id))?;
                let bytes = bytes(*offset, *length);
                as_errno(namespace.write(&opened, Some(*offset), &bytes, Privileges::Keep))?;
                assert_eq!(
                    as_errno(namespace.read(&opened, *offset, bytes.len() + 1, true))?[..],
                    {
                        let all = as_errno(namespace.read(&opened, 0, 1 << 20, true))?;
                        let rest = &all[*offset as usize..];
                        rest[..rest.len().min(bytes.len() + 1)].to_vec()
                    }
                );
                as_errno(namespace.close_file(&opened))
            }
            Step::SetXattr(path, name, length, how) => {
                let found = self.plain(path)?;
                let value = bytes(1, *length);
                as_errno(namespace.set_xattr(
                    found.id,
                    name.as_bytes(),
                    &value,
                    *how,
                    Privileges::Keep,
                ))
            }
            Step::RemoveXattr(path, name) => {
                let found = self.plain(path)?;
                as_errno(namespace.remove_xattr(found.id, name.as_bytes()))
            }
            Step::UnlinkOpen(path) => {
                let (parent, name) = self.parent(path)?;
                let found = self.plain(path)?;
                namespace.hold(found.id);
                let opened = as_errno(namespace.open_file(found.id)).inspect_err(|_| {
                    namespace.release(found.id, 1).expect("a release");
                })?;
                as_errno(namespace.unlink(parent, name))?;
                as_errno(namespace.write(&opened, Some(10), b"still there", Privileges::Keep))?;
                assert_eq!(as_errno(namespace.read(&opened, 10, 11, true))?, b"still there");
                assert_eq!(as_errno(namespace.inode(found.id))?.nlink, found.nlink - 1);
                as_errno(namespace.close_file(&opened))?;
                as_errno(namespace.release(found.id, 1))
            }
            _ => unreachable!("{step:?}"),
        }
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
