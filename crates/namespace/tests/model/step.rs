//! Steps at random: operations, as a kernel makes them of paths. It walks to the directories first,
//! and refuses some requests without asking.

use crate::executor::Result;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Changer, Moment, Operation, Page, Read};
use canopy_namespace::{
    EntryName, FileId, Inode, New, RenameMode, SetAttributes, SetTime, SetXattr,
};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

/// No write and no value has more bytes.
const BYTES_MAX: usize = 5000;

/// Bytes to write: from each offset on another part of them.
static BYTES: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..2 * BYTES_MAX).map(|at| (at * 7 % 251) as u8 + 1).collect());

/// Returns what a write of a length at an offset has.
pub(crate) fn bytes(offset: u64, length: usize) -> &'static [u8] {
    &BYTES[offset as usize % BYTES_MAX..][..length]
}

/// One step, and where the files lie that it names by their ids.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) act: Act,
    paths: HashMap<FileId, String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Does not find a path.
    Walk(String, Errno),
    /// Refuses what would be this operation.
    Refuse(Operation<'static>, Errno),
    Execute(Operation<'static>),
    Write(FileId, u64, usize),
    /// Opens a file, and unlinks it while it is open; then writes, reads and closes it.
    UnlinkOpen(FileId, EntryName<'static>),
}

/// A path of names below the root.
type Path = Vec<&'static str>;

impl Step {
    /// Returns the path of a file, as it was before the step.
    pub(crate) fn path(&self, id: FileId) -> &str {
        &self.paths[&id]
    }

    /// Returns the path that a name stands for.
    pub(crate) fn path_of(&self, name: EntryName<'_>) -> String {
        let last = std::str::from_utf8(name.name).expect("a name of ours");
        match self.path(name.directory) {
            "" => last.to_owned(),
            directory => format!("{directory}/{last}"),
        }
    }
}

/// A namespace, as far as a walk needs it.
pub(crate) trait Names {
    /// Returns the directory that paths begin at.
    fn root(&self) -> FileId;

    /// Returns the inode of a name.
    fn lookup(&self, name: EntryName<'_>) -> Result<Inode>;
}

/// Returns the directory that names lead to from the root on.
pub(crate) fn reach<'a>(place: &dyn Names, names: impl Iterator<Item = &'a str>) -> Result<FileId> {
    let mut at = place.root();
    for name in names {
        let found = place.lookup(EntryName::new(at, name.as_bytes()))?;
        match found.file_type() {
            file_type::DIRECTORY => at = found.id,
            file_type::SYMLINK => return Err(Errno::NOENT),
            _ => return Err(Errno::NOTDIR),
        }
    }
    Ok(at)
}

/// Walks through a namespace.
struct Walk<'a> {
    place: &'a dyn Names,
    paths: HashMap<FileId, String>,
}

/// The path that was not found, and why.
struct Lost(String, Errno);

impl Walk<'_> {
    /// Returns a path's last name in its directory.
    fn parent(&mut self, path: &Path) -> std::result::Result<EntryName<'static>, Lost> {
        let (last, above) = path.split_last().expect("a name");
        let found = reach(self.place, above.iter().copied());
        let directory = found.map_err(|errno| Lost(path.join("/"), errno))?;
        self.paths.insert(directory, above.join("/"));
        Ok(EntryName::new(directory, last.as_bytes()))
    }

    /// Returns a name and its file.
    fn find(&mut self, path: &Path) -> std::result::Result<(EntryName<'static>, Inode), Lost> {
        let name = self.parent(path)?;
        let found = self.place.lookup(name).map_err(|errno| Lost(path.join("/"), errno))?;
        self.paths.insert(found.id, path.join("/"));
        Ok((name, found))
    }

    /// Returns a step that makes a file.
    fn create(&mut self, path: &Path, new: New) -> std::result::Result<Act, Lost> {
        let name = self.parent(path)?;
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        Ok(Act::Execute(Operation::Change(create)))
    }

    fn set(
        &mut self,
        path: &Path,
        set: SetAttributes,
        refused: impl FnOnce(&Inode) -> Option<Errno>,
    ) -> std::result::Result<Act, Lost> {
        let (_, found) = self.find(path)?;
        let changer = Changer::Privileged;
        let change = Operation::Change(Change::SetAttributes { id: found.id, set, changer });
        Ok(match refused(&found) {
            Some(errno) => Act::Refuse(change, errno),
            None => Act::Execute(change),
        })
    }

    fn link(&mut self, one: &Path, other: &Path) -> std::result::Result<Act, Lost> {
        let (_, found) = self.find(one)?;
        let name = self.parent(other)?;
        let link = Operation::Change(Change::Link { id: found.id, name });
        // The kernel looks at the new name first.
        Ok(match self.place.lookup(name) {
            Ok(_) => Act::Refuse(link, Errno::EXIST),
            Err(_) => Act::Execute(link),
        })
    }

    fn rename(
        &mut self,
        one: &Path,
        other: &Path,
        mode: RenameMode,
    ) -> std::result::Result<Act, Lost> {
        let (from, to) = (self.parent(one)?, self.parent(other)?);
        // The kernel finds out what is above the other before it asks.
        let (_, moved) = self.find(one)?;
        let replaced = self.place.lookup(to);
        let rename = Operation::Change(Change::Rename { from, to, mode, whiteout: None });
        let refused = match (mode, replaced) {
            (RenameMode::NoReplace, Ok(_)) => Some(Errno::EXIST),
            (RenameMode::Exchange, Err(errno)) => Some(errno),
            _ if moved.is_directory() && is_above(one, other) => Some(Errno::INVAL),
            _ if is_above(other, one) && mode == RenameMode::Exchange => Some(Errno::INVAL),
            _ if is_above(other, one) => Some(Errno::NOTEMPTY),
            _ => None,
        };
        Ok(match refused {
            Some(errno) => Act::Refuse(rename, errno),
            None => Act::Execute(rename),
        })
    }

    /// Returns a step with the contents or attributes of a file, as `make` makes it. Only regular
    /// files and directories have such here.
    fn with_plain(
        &mut self,
        path: &Path,
        make: impl FnOnce(FileId) -> Operation<'static>,
    ) -> std::result::Result<Act, Lost> {
        let (_, found) = self.find(path)?;
        let operation = make(found.id);
        Ok(match found.is_regular() || found.is_directory() {
            true => Act::Execute(operation),
            false => Act::Refuse(operation, Errno::PERM),
        })
    }

    fn truncate(&mut self, path: &Path, size: u64) -> std::result::Result<Act, Lost> {
        let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
        self.set(path, set, |found| match (found.is_regular(), found.is_directory()) {
            (true, _) => None,
            (_, true) => Some(Errno::ISDIR),
            _ => Some(Errno::PERM),
        })
    }

    /// Returns a use of the contents of a file or a directory, which has none. What else there is
    /// gets a truncation, which is refused.
    fn with_contents(
        &mut self,
        path: &Path,
        make: impl FnOnce(FileId, EntryName<'static>) -> Act,
    ) -> std::result::Result<Act, Lost> {
        let (name, found) = self.find(path)?;
        match found.is_regular() || found.is_directory() {
            true => Ok(make(found.id, name)),
            false => self.truncate(path, 0),
        }
    }

    fn change(&mut self, random: &mut StdRng) -> std::result::Result<Act, Lost> {
        let one = path(random);
        let modes = [0o644, 0o600, 0o755, 0o4755, 0o2750, 0o1777, 0];
        let mode = *modes.choose(random).expect("a mode");
        let of = |mode| New { mode, ..New::default() };
        let set = SetAttributes::default();
        match random.random_range(0..34) {
            0..5 => self.create(&one, of(file_type::REGULAR | mode)),
            // The kernel takes setuid and setgid bits away here.
            5..10 => self.create(&one, of(file_type::DIRECTORY | mode & 0o1777)),
            10 => {
                let target = b"nowhere/at all".to_vec();
                self.create(&one, New { target, ..of(file_type::SYMLINK | 0o777) })
            }
            11 => self.create(&one, of(file_type::FIFO | 0o600)),
            12..14 => self.link(&one, &path(random)),
            14..17 => self.parent(&one).map(|name| execute(Change::Unlink(name))),
            17 => self.parent(&one).map(|name| execute(Change::Rmdir(name))),
            18..22 => {
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                self.rename(&one, &path(random), *modes.choose(random).expect("a mode"))
            }
            22 => self.set(&one, SetAttributes { mode: Some(mode), ..set }, |found| {
                (found.file_type() == file_type::SYMLINK).then_some(Errno::OPNOTSUPP)
            }),
            23 => {
                let mut owner = || Some(random.random_range(0..3));
                self.set(&one, SetAttributes { uid: owner(), gid: owner(), ..set }, |_| None)
            }
            24 => {
                let time = |seconds: i64| Some(SetTime::To(seconds * 1_000_000_000 + 5));
                let (atime, mtime) =
                    (time(random.random_range(-5..2_000_000_000)), time(1_700_000_000));
                self.set(&one, SetAttributes { atime, mtime, ..set }, |_| None)
            }
            25 => self.truncate(&one, random.random_range(0..9000)),
            26..30 => {
                let offset = random.random_range(0..6000);
                let length = random.random_range(1..BYTES_MAX);
                self.with_contents(&one, |id, _| Act::Write(id, offset, length))
            }
            30..33 => self.change_xattr(random, &one),
            _ => self.with_contents(&one, Act::UnlinkOpen),
        }
    }

    fn change_xattr(&mut self, random: &mut StdRng, one: &Path) -> std::result::Result<Act, Lost> {
        let name = xattr(random);
        if random.random_ratio(1, 3) {
            let make = |id| Operation::Change(Change::RemoveXattr { id, name });
            return self.with_plain(one, make);
        }
        let hows = [SetXattr::Any, SetXattr::Create, SetXattr::Replace];
        let how = *hows.choose(random).expect("a way");
        let value = bytes(1, random.random_range(0..200));
        let changer = Changer::Privileged;
        self.with_plain(one, |id| {
            Operation::Change(Change::SetXattr { id, name, value, how, changer })
        })
    }

    fn read(&mut self, random: &mut StdRng) -> std::result::Result<Act, Lost> {
        let one = path(random);
        let name = self.parent(&one)?;
        if random.random_ratio(1, 4) {
            return Ok(Act::Execute(Operation::Read(Moment::Now, Read::Lookup(name))));
        }
        let (_, found) = self.find(&one)?;
        let id = found.id;
        let read = match random.random_range(0..5) {
            0 => Read::Inode(id),
            1 if found.is_directory() => {
                Read::List(Page { directory: id, after: 0, name: None, count_max: 1000 })
            }
            2 if found.is_regular() => Read::Xattr { id, name: xattr(random) },
            3 if found.is_regular() => Read::Xattrs(id),
            _ => Read::Readlink(id),
        };
        Ok(Act::Execute(Operation::Read(Moment::Now, read)))
    }
}

fn execute(change: Change<'static>) -> Act {
    Act::Execute(Operation::Change(change))
}

fn xattr(random: &mut StdRng) -> &'static [u8] {
    let names: [&[u8]; 2] = [b"user.one", b"user.two"];
    names.choose(random).expect("a name")
}

fn is_above(one: &Path, other: &Path) -> bool {
    one.len() < other.len() && other.starts_with(one)
}

fn path(random: &mut StdRng) -> Path {
    let depth = random.random_range(1..4);
    let names = ["a", "b", "c", "dir", "e", "long name with spaces", "f.txt"];
    Vec::from_iter((0..depth).map(|_| *names.choose(random).expect("a name")))
}

/// Returns the next step on a namespace.
pub(crate) fn step(random: &mut StdRng, place: &dyn Names) -> Step {
    let mut walk = Walk { place, paths: HashMap::new() };
    let act = match random.random_ratio(1, 6) {
        true => walk.read(random),
        false => walk.change(random),
    };
    let act = act.unwrap_or_else(|Lost(path, errno)| Act::Walk(path, errno));
    Step { act, paths: walk.paths }
}

/// Returns a reply without what no other file system says: ids, indexes of attributes, and times
/// that nobody has set.
pub(crate) fn comparable(outcome: Result<canopy_namespace::Reply>) -> Result<Comparable> {
    use canopy_namespace::Reply;
    Ok(match outcome? {
        Reply::Done | Reply::File(_) => Comparable::Done,
        Reply::Inode(inode) => Comparable::Inode(plain(&inode)),
        Reply::Bytes(bytes) => Comparable::Bytes(bytes),
        Reply::Names(names) => Comparable::Names(names),
        Reply::Entries(entries) => {
            let entries = entries.iter().map(|entry| (entry.name.to_vec(), plain(entry.inode)));
            let mut entries = Vec::from_iter(entries);
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Comparable::Entries(entries)
        }
        other => unreachable!("{other:?}"),
    })
}

/// The part of a reply that two file systems have in common.
#[derive(Debug, PartialEq)]
pub(crate) enum Comparable {
    Done,
    Inode(Inode),
    Bytes(Option<Vec<u8>>),
    Names(Vec<Vec<u8>>),
    Entries(Vec<(Vec<u8>, Inode)>),
}

fn plain(inode: &Inode) -> Inode {
    let Inode { mode, uid, gid, nlink, size, mtime_ns, target, .. } = inode.clone();
    let size = if inode.is_directory() { 0 } else { size };
    let mtime_ns = if mtime_ns.rem_euclid(1_000_000_000) == 5 { mtime_ns } else { 0 };
    Inode { mode, uid, gid, nlink, size, mtime_ns, target, ..Inode::default() }
}
