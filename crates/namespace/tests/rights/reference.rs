//! Operations as system calls on a directory of the system's, by descriptors that stand for files.

use crate::user::User;
use canopy_model::Wanted;
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Access, Change, Read};
use canopy_namespace::{
    EntryName, FileId, New, Operation, RenameMode, SetAttributes, SetTime, SetXattr,
};
use rustix::fs::{
    Access as Checked, AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

type Result<T> = std::result::Result<T, Errno>;

/// A call that succeeds returns this.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Nothing,
    Bytes(Option<Vec<u8>>),
    Names(Vec<Vec<u8>>),
    /// Names of a directory, and whether attributes are shown.
    Listed(Vec<Vec<u8>>, bool),
}

/// Attributes that both sides must agree on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) nlink: u32,
    /// None of directories, whose length means nothing.
    pub(crate) size: Option<u64>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The directory and a descriptor for each file of the namespace.
pub(crate) struct Reference {
    files: HashMap<FileId, OwnedFd>,
}

impl Reference {
    pub(crate) fn new(root: &Path, id: FileId) -> Self {
        std::fs::create_dir(root).expect("a directory");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).expect("the root");
        Reference { files: HashMap::from([(id, root)]) }
    }

    pub(crate) fn file(&self, id: FileId) -> BorrowedFd<'_> {
        self.files[&id].as_fd()
    }

    pub(crate) fn knows(&self, id: FileId) -> bool {
        self.files.contains_key(&id)
    }

    pub(crate) fn forget(&mut self, id: FileId) {
        self.files.remove(&id);
    }

    /// Remembers the file of a name, as that of an id.
    pub(crate) fn learn(&mut self, name: EntryName<'_>, id: FileId) {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = rustix::fs::openat(self.file(name.directory), name.name, flags, Mode::empty());
        self.files.insert(id, found.expect("a file that was made"));
    }

    /// Returns a path that leads to a file, whatever its own permissions are.
    fn path(&self, id: FileId) -> String {
        format!("/proc/self/fd/{}", self.file(id).as_raw_fd())
    }

    pub(crate) fn stat(&self, id: FileId) -> Stat {
        let found = rustix::fs::statat(self.file(id), "", AtFlags::EMPTY_PATH);
        found.expect("attributes")
    }

    pub(crate) fn attributes(&self, id: FileId) -> Attributes {
        let stat = self.stat(id);
        let names = list_xattrs(&self.path(id)).expect("names");
        let value = |name: Vec<u8>| {
            let value = get_xattr(&self.path(id), &name).expect("a value");
            (name, value)
        };
        let is_directory = stat.st_mode & TYPE_MASK == file_type::DIRECTORY;
        Attributes {
            mode: stat.st_mode,
            owner: (stat.st_uid, stat.st_gid),
            nlink: stat.st_nlink as u32,
            size: (!is_directory).then_some(stat.st_size as u64),
            xattrs: names.into_iter().map(value).collect(),
        }
    }

    /// Returns the names of a directory, sorted.
    pub(crate) fn names(&self, id: FileId) -> Result<Vec<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(self.path(id), flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(opened)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(&name[..], b"." | b"..") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Makes the call that an operation stands for.
    pub(crate) fn apply(&self, user: &User, operation: &Operation<'_>) -> Result<Value> {
        let mask = match operation {
            Operation::Change(Change::Create { new, .. }) => new.umask,
            _ => 0,
        };
        user.acts(mask, || match operation {
            Operation::Read(_, read) => self.read(read),
            Operation::Access(Access::Open(id, wanted)) => {
                self.open(*id, *wanted).map(|()| Value::Nothing)
            }
            Operation::Change(change) => self.change(change).map(|()| Value::Nothing),
            other => panic!("{other:?}"),
        })
    }

    /// Makes a file without a name.
    pub(crate) fn create_nameless(
        &self,
        user: &User,
        directory: FileId,
        new: &New,
    ) -> Result<OwnedFd> {
        user.acts(new.umask, || {
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let mode = Mode::from_raw_mode(new.mode & 0o7777);
            rustix::fs::openat(self.file(directory), ".", flags, mode)
        })
    }

    /// Remembers a file as that of an id.
    pub(crate) fn insert(&mut self, id: FileId, file: OwnedFd) {
        self.files.insert(id, file);
    }

    fn read(&self, read: &Read<'_>) -> Result<Value> {
        match read {
            Read::Lookup(name) => {
                let directory = self.file(name.directory);
                rustix::fs::statat(directory, name.name, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok(Value::Nothing)
            }
            Read::Parent(id) => {
                let flags = OFlags::PATH | OFlags::CLOEXEC;
                rustix::fs::openat(self.file(*id), "..", flags, Mode::empty())?;
                Ok(Value::Nothing)
            }
            Read::Readlink(id) => {
                match rustix::fs::readlinkat(self.file(*id), "", Vec::new()) {
                    Ok(target) => Ok(Value::Bytes(Some(target.into_bytes()))),
                    // The error of a path that is empty.
                    Err(Errno::NOENT) => Err(Errno::INVAL),
                    Err(errno) => Err(errno),
                }
            }
            Read::List(page) => {
                let names = self.names(page.directory)?;
                let is_shown = |name: &Vec<u8>| {
                    let directory = self.file(page.directory);
                    rustix::fs::statat(directory, &name[..], AtFlags::SYMLINK_NOFOLLOW).is_ok()
                };
                let are_shown = names.iter().all(is_shown);
                Ok(Value::Listed(names, are_shown))
            }
            Read::Xattr { id, name } => match get_xattr(&self.path(*id), name) {
                Err(Errno::NODATA) => Ok(Value::Bytes(None)),
                value => value.map(|value| Value::Bytes(Some(value))),
            },
            Read::Xattrs(id) => list_xattrs(&self.path(*id)).map(Value::Names),
            Read::Inode(id) => {
                self.stat(*id);
                Ok(Value::Nothing)
            }
            Read::Contents(_) => panic!("{read:?}"),
        }
    }

    fn open(&self, id: FileId, wanted: Wanted) -> Result<()> {
        if wanted == Wanted::EXECUTE {
            let path = self.path(id);
            return rustix::fs::accessat(CWD, path, Checked::EXEC_OK, AtFlags::EACCESS);
        }
        let how = match (wanted.includes(Wanted::READ), wanted.includes(Wanted::WRITE)) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            _ => OFlags::RDONLY,
        };
        let flags = how | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match rustix::fs::open(self.path(id), flags, Mode::empty()) {
            // Permissions let it be opened; there is nothing behind it.
            Ok(_) | Err(Errno::NXIO) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn change(&self, change: &Change<'_>) -> Result<()> {
        let at = |name: &EntryName<'_>| self.file(name.directory);
        match change {
            Change::Create { name, new, .. } => self.create(name, new)?,
            Change::Link { id, name } => {
                let path = self.path(*id);
                rustix::fs::linkat(CWD, path, at(name), name.name, AtFlags::SYMLINK_FOLLOW)?;
            }
            Change::Unlink(name) => rustix::fs::unlinkat(at(name), name.name, AtFlags::empty())?,
            Change::Rmdir(name) => rustix::fs::unlinkat(at(name), name.name, AtFlags::REMOVEDIR)?,
            Change::Rename { from, to, mode, whiteout } => {
                let mut flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                flags.set(RenameFlags::WHITEOUT, whiteout.is_some());
                rustix::fs::renameat_with(at(from), from.name, at(to), to.name, flags)?;
            }
            Change::SetAttributes { id, set, .. } => self.set_attributes(*id, set)?,
            Change::SetXattr { id, name, value, how, .. } => {
                let flags = match how {
                    SetXattr::Any => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                };
                rustix::fs::setxattr(self.path(*id), *name, value, flags)?;
            }
            Change::RemoveXattr { id, name } => rustix::fs::removexattr(self.path(*id), *name)?,
            other => panic!("{other:?}"),
        }
        Ok(())
    }

    fn create(&self, name: &EntryName<'_>, new: &New) -> Result<()> {
        let directory = self.file(name.directory);
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        let kind = FileType::from_raw_mode(new.mode);
        match kind {
            FileType::Directory => rustix::fs::mkdirat(directory, name.name, mode),
            FileType::Symlink => rustix::fs::symlinkat(&new.target[..], directory, name.name),
            _ => rustix::fs::mknodat(directory, name.name, kind, mode, new.rdev.into()),
        }
    }

    /// Sets attributes of one kind, as there is a call for each.
    fn set_attributes(&self, id: FileId, set: &SetAttributes) -> Result<()> {
        let SetAttributes { mode, uid, gid, size, atime, mtime, .. } = set;
        if let Some(mode) = mode {
            let mode = Mode::from_raw_mode(*mode);
            return rustix::fs::chmodat(CWD, self.path(id), mode, AtFlags::empty());
        }
        if let Some(size) = size {
            let cut = nix::unistd::truncate(&self.path(id)[..], *size as i64);
            return cut.map_err(|errno| Errno::from_raw_os_error(errno as i32));
        }
        if atime.is_some() || mtime.is_some() {
            let times = Timestamps { last_access: time(*atime), last_modification: time(*mtime) };
            return rustix::fs::utimensat(self.file(id), "", &times, AtFlags::EMPTY_PATH);
        }
        let uid = uid.map(rustix::process::Uid::from_raw);
        let gid = gid.map(rustix::process::Gid::from_raw);
        rustix::fs::chownat(self.file(id), "", uid, gid, AtFlags::EMPTY_PATH)
    }
}

fn time(set: Option<SetTime>) -> Timespec {
    let (tv_sec, tv_nsec) = match set {
        None => (0, rustix::fs::UTIME_OMIT),
        Some(SetTime::Now) => (0, rustix::fs::UTIME_NOW),
        Some(SetTime::To(ns)) => (ns / 1_000_000_000, ns % 1_000_000_000),
    };
    Timespec { tv_sec, tv_nsec }
}

fn get_xattr(path: &str, name: &[u8]) -> Result<Vec<u8>> {
    let mut value = vec![0; 1024];
    let length = rustix::fs::getxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn list_xattrs(path: &str) -> Result<Vec<Vec<u8>>> {
    let mut list = vec![0; 4096];
    let length = rustix::fs::listxattr(path, &mut list[..])?;
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let mut names = Vec::from_iter(names.map(<[u8]>::to_vec));
    names.sort();
    Ok(names)
}
