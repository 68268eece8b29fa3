//! A file system of two clients, each with a mount of its own, that keeps or breaks the promises that
//! tables need. It is in memory; its files are as real as any to the processes that use it.

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

/// How the file system breaks its promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Nothing,
    /// A client sees names that the other one made only after some time.
    LateNames(Duration),
    /// A client sees them at once by name, but late in listings.
    LateListings(Duration),
    /// The system remembers for some time that a name is missing.
    RemembersMissing(Duration),
    /// A client does not see names of four digits for some time, and gives them to other files.
    Overwrites(Duration),
    /// Files have one name.
    NoLinks,
}

struct Entry {
    ino: u64,
    by: u64,
    since: Instant,
}

struct Node {
    is_directory: bool,
    bytes: Vec<u8>,
    entries: BTreeMap<OsString, Entry>,
    links: u32,
    mode: u16,
}

#[derive(Default)]
struct Tree {
    nodes: BTreeMap<u64, Node>,
}

struct Client {
    tree: Arc<Mutex<Tree>>,
    number: u64,
    fault: Fault,
}

/// Mounts one file system on two directories.
pub fn mount(directories: [&Path; 2], fault: Fault) -> [BackgroundSession; 2] {
    let tree = Arc::new(Mutex::new(Tree::default()));
    tree.lock().unwrap().add(1, true, 0o755);
    let mut number = 0;
    directories.map(|directory| {
        number += 1;
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("clients".into())];
        let client = Client { tree: tree.clone(), number, fault };
        fuser::spawn_mount(client, directory, &config).unwrap()
    })
}

impl Tree {
    fn add(&mut self, ino: u64, is_directory: bool, mode: u16) {
        let links = if is_directory { 2 } else { 0 };
        let (bytes, entries) = (Vec::new(), BTreeMap::new());
        self.nodes.insert(ino, Node { is_directory, bytes, entries, links, mode });
    }

    fn attributes(&self, ino: u64) -> FileAttr {
        let node = &self.nodes[&ino];
        let (time, size) = (SystemTime::now(), node.bytes.len() as u64);
        FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: if node.is_directory { FileType::Directory } else { FileType::RegularFile },
            perm: node.mode,
            nlink: node.links,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

fn is_number(name: &OsStr) -> bool {
    name.len() == 4 && name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
}

const NEVER: Duration = Duration::ZERO;

impl Client {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap()
    }

    fn sees(&self, name: &OsStr, entry: &Entry, is_listed: bool) -> bool {
        let late = match self.fault {
            Fault::LateNames(late) => late,
            Fault::Overwrites(late) if is_number(name) => late,
            Fault::LateListings(late) if is_listed => late,
            _ => return true,
        };
        entry.by == self.number || entry.since.elapsed() >= late
    }

    /// Gives a node a name. Returns whether the name was free.
    fn name(&self, tree: &mut Tree, parent: u64, name: &OsStr, ino: u64) -> bool {
        let entry = Entry { ino, by: self.number, since: Instant::now() };
        let entries = &mut tree.nodes.get_mut(&parent).unwrap().entries;
        let overwrites = matches!(self.fault, Fault::Overwrites(_)) && is_number(name);
        if entries.contains_key(name) && !overwrites {
            return false;
        }
        entries.insert(name.to_owned(), entry);
        true
    }

    fn make(&self, parent: u64, name: &OsStr, is_directory: bool, mode: u32) -> Option<FileAttr> {
        let mut tree = self.tree();
        let ino = tree.nodes.keys().last().unwrap() + 1;
        tree.add(ino, is_directory, (mode & 0o777) as u16);
        if !self.name(&mut tree, parent, name, ino) {
            tree.nodes.remove(&ino);
            return None;
        }
        if !is_directory {
            tree.nodes.get_mut(&ino).unwrap().links = 1;
        }
        Some(tree.attributes(ino))
    }

    fn remove(&self, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        let mut tree = self.tree();
        let removed = tree.nodes.get_mut(&parent).unwrap().entries.remove(name);
        match removed {
            Some(entry) => {
                let node = tree.nodes.get_mut(&entry.ino).unwrap();
                node.links -= 1;
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }
}

impl Filesystem for Client {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let tree = self.tree();
        let entry = tree.nodes[&parent.0].entries.get(name);
        match (entry.filter(|entry| self.sees(name, entry, false)), self.fault) {
            (Some(entry), _) => reply.entry(&NEVER, &tree.attributes(entry.ino), Generation(0)),
            (None, Fault::RemembersMissing(time)) => {
                let missing = FileAttr { ino: INodeNo(0), ..tree.attributes(1) };
                reply.entry(&time, &missing, Generation(0));
            }
            (None, _) => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&NEVER, &self.tree().attributes(ino.0));
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut tree = self.tree();
        let node = tree.nodes.get_mut(&ino.0).unwrap();
        node.mode = mode.map_or(node.mode, |mode| (mode & 0o777) as u16);
        node.bytes.truncate(size.map_or(usize::MAX, |size| size as usize));
        reply.attr(&NEVER, &tree.attributes(ino.0));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        match self.make(parent.0, name, true, mode) {
            Some(made) => reply.entry(&NEVER, &made, Generation(0)),
            None => reply.error(Errno::EEXIST),
        }
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let (handle, flags) = (FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
        match self.make(parent.0, name, false, mode) {
            Some(made) => reply.created(&NEVER, &made, Generation(0), handle, flags),
            None => reply.error(Errno::EEXIST),
        }
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if self.fault == Fault::NoLinks {
            return reply.error(Errno::EPERM);
        }
        let mut tree = self.tree();
        if !self.name(&mut tree, parent.0, name, ino.0) {
            return reply.error(Errno::EEXIST);
        }
        tree.nodes.get_mut(&ino.0).unwrap().links += 1;
        reply.entry(&NEVER, &tree.attributes(ino.0), Generation(0));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(parent.0, name, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let is_empty = {
            let tree = self.tree();
            let entry = tree.nodes[&parent.0].entries.get(name);
            entry.is_none_or(|entry| tree.nodes[&entry.ino].entries.is_empty())
        };
        match is_empty {
            true => self.remove(parent.0, name, reply),
            false => reply.error(Errno::ENOTEMPTY),
        }
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        _: fuser::RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mut tree = self.tree();
        let Some(entry) = tree.nodes.get_mut(&parent.0).unwrap().entries.remove(name) else {
            return reply.error(Errno::ENOENT);
        };
        tree.nodes.get_mut(&new_parent.0).unwrap().entries.insert(new_name.to_owned(), entry);
        reply.ok();
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let tree = self.tree();
        let bytes = &tree.nodes[&ino.0].bytes;
        let start = bytes.len().min(offset as usize);
        reply.data(&bytes[start..bytes.len().min(start + size as usize)]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let mut tree = self.tree();
        let bytes = &mut tree.nodes.get_mut(&ino.0).unwrap().bytes;
        let end = offset as usize + data.len();
        bytes.resize(bytes.len().max(end), 0);
        bytes[offset as usize..end].copy_from_slice(data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let tree = self.tree();
        let seen =
            tree.nodes[&ino.0].entries.iter().filter(|(name, entry)| self.sees(name, entry, true));
        for (at, (name, entry)) in seen.enumerate().skip(offset as usize) {
            let kind = tree.attributes(entry.ino).kind;
            if reply.add(INodeNo(entry.ino), at as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
