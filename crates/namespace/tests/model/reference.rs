//! The same operations on a directory of the system's.

use crate::step::{Act, Step, bytes};
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Change, Entries, Moment, Operation, Read};
use canopy_namespace::{
    Entry, EntryName, FileId, Inode, New, RenameMode, Reply, SetAttributes, SetTime, SetXattr,
};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

pub(crate) struct Reference {
    root: PathBuf,
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

impl Reference {
    pub(crate) fn new(root: &Path) -> Self {
        fs::create_dir(root).expect("a directory");
        rustix::process::umask(Mode::empty());
        rustix::fs::chmod(root, Mode::from_raw_mode(0o755)).expect("a mode");
        Reference { root: root.into() }
    }

    pub(crate) fn apply(&self, step: &Step) -> Result<Reply, Errno> {
        match &step.act {
            Act::Walk(path, _) => self.inode(&self.root.join(path)).map(Reply::Inode),
            Act::Refuse(operation, _) | Act::Execute(operation) => self.execute(step, operation),
            Act::Write(id, offset, length) => {
                let file = self.open(&self.root.join(step.path(*id)))?;
                file.write_all_at(bytes(*offset, *length), *offset).map_err(errno)?;
                Ok(Reply::Done)
            }
            Act::UnlinkOpen(id, _) => {
                let path = self.root.join(step.path(*id));
                let file = self.open(&path)?;
                rustix::fs::unlink(&path)?;
                let nlink = file.metadata().map_err(errno)?.nlink();
                file.write_all_at(b"still there", 10).map_err(errno)?;
                let mut read = [0; 11];
                file.read_exact_at(&mut read, 10).map_err(errno)?;
                assert_eq!(&read, b"still there");
                assert_eq!(file.metadata().map_err(errno)?.nlink(), nlink);
                Ok(Reply::Done)
            }
        }
    }

    /// Executes an operation on the files that a step names.
    fn execute(&self, step: &Step, operation: &Operation<'_>) -> Result<Reply, Errno> {
        match operation {
            Operation::Read(Moment::Now, read) => self.read(step, read),
            Operation::Change(change) => self.change(step, change),
            other => unreachable!("{other:?}"),
        }
    }

    fn read(&self, step: &Step, read: &Read<'_>) -> Result<Reply, Errno> {
        let of = |id: &FileId| self.root.join(step.path(*id));
        Ok(match read {
            Read::Lookup(name) => Reply::Inode(self.inode(&self.root.join(step.path_of(*name)))?),
            Read::Inode(id) => Reply::Inode(self.inode(&of(id))?),
            Read::Readlink(id) => Reply::Bytes(Some(self.target(&of(id))?)),
            Read::List(page) => {
                let mut entries = Entries::default();
                for entry in fs::read_dir(of(&page.directory)).map_err(errno)? {
                    let name = entry.map_err(errno)?.file_name();
                    let inode = self.inode(&of(&page.directory).join(&name))?;
                    entries.push(Entry { name: name.as_bytes(), inode: &inode, cookie: 0 });
                }
                Reply::Entries(entries)
            }
            Read::Xattr { id, name } => {
                let mut value = vec![0; 300];
                match rustix::fs::lgetxattr(of(id), *name, &mut value[..]) {
                    Ok(length) => Reply::Bytes(Some(value[..length].to_vec())),
                    Err(Errno::NODATA) => Reply::Bytes(None),
                    Err(errno) => return Err(errno),
                }
            }
            Read::Xattrs(id) => {
                let mut list = vec![0; 300];
                let length = rustix::fs::llistxattr(of(id), &mut list[..])?;
                let names = list[..length].split(|byte| *byte == 0).map(<[u8]>::to_vec);
                let mut names = Vec::from_iter(names.filter(|name| name.starts_with(b"user.")));
                names.sort();
                Reply::Names(names)
            }
            Read::Parent(_) | Read::Contents(_) => unreachable!("{read:?}"),
        })
    }

    fn change(&self, step: &Step, change: &Change<'_>) -> Result<Reply, Errno> {
        let at = |name: EntryName<'_>| self.root.join(step.path_of(name));
        let of = |id: &FileId| self.root.join(step.path(*id));
        match change {
            Change::Create { name, new, .. } => self.create(&at(*name), new)?,
            Change::Link { id, name } => {
                rustix::fs::linkat(CWD, of(id), CWD, at(*name), AtFlags::empty())?;
                return self.inode(&at(*name)).map(Reply::Inode);
            }
            Change::Unlink(name) => rustix::fs::unlink(at(*name))?,
            Change::Rmdir(name) => rustix::fs::rmdir(at(*name))?,
            Change::Rename { from, to, mode, .. } => {
                let flags = match mode {
                    RenameMode::Replace => RenameFlags::empty(),
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                };
                rustix::fs::renameat_with(CWD, at(*from), CWD, at(*to), flags)?;
            }
            Change::SetAttributes { id, set, .. } => {
                self.set(&of(id), set)?;
                return self.inode(&of(id)).map(Reply::Inode);
            }
            Change::SetXattr { id, name, value, how, .. } => {
                let flags = match how {
                    SetXattr::Any => XattrFlags::empty(),
                    SetXattr::Create => XattrFlags::CREATE,
                    SetXattr::Replace => XattrFlags::REPLACE,
                };
                plain(&of(id))?;
                rustix::fs::lsetxattr(of(id), *name, value, flags)?;
            }
            Change::RemoveXattr { id, name } => {
                plain(&of(id))?;
                rustix::fs::lremovexattr(of(id), *name)?;
            }
            other => unreachable!("{other:?}"),
        }
        match change {
            Change::Create { name, .. } => self.inode(&at(*name)).map(Reply::Inode),
            _ => Ok(Reply::Done),
        }
    }

    fn create(&self, path: &Path, new: &New) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(new.mode & 0o7777);
        match new.mode & TYPE_MASK {
            file_type::REGULAR => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                rustix::fs::open(path, flags, mode).map(drop)
            }
            file_type::DIRECTORY => rustix::fs::mkdir(path, mode),
            file_type::SYMLINK => rustix::fs::symlink(&new.target[..], path),
            _ => rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0),
        }
    }

    fn set(&self, path: &Path, set: &SetAttributes) -> Result<(), Errno> {
        if let Some(mode) = set.mode {
            match is_symlink(path) {
                true => return Err(Errno::OPNOTSUPP),
                false => rustix::fs::chmod(path, Mode::from_raw_mode(mode))?,
            }
        }
        if set.uid.is_some() || set.gid.is_some() {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let (Some(SetTime::To(atime)), Some(SetTime::To(mtime))) = (set.atime, set.mtime) {
            let time = |ns: i64| Timespec {
                tv_sec: ns.div_euclid(1_000_000_000),
                tv_nsec: ns.rem_euclid(1_000_000_000),
            };
            let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
            rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        match set.size {
            Some(size) => self.open(path)?.set_len(size).map_err(errno),
            None => Ok(()),
        }
    }

    fn target(&self, path: &Path) -> Result<Vec<u8>, Errno> {
        Ok(rustix::fs::readlink(path, Vec::new())?.into_bytes())
    }

    fn inode(&self, path: &Path) -> Result<Inode, Errno> {
        let stat = fs::symlink_metadata(path).map_err(errno)?;
        let target = if stat.is_symlink() { self.target(path)? } else { Vec::new() };
        Ok(Inode {
            mode: stat.mode(),
            uid: stat.uid(),
            gid: stat.gid(),
            nlink: stat.nlink() as u32,
            size: stat.len(),
            mtime_ns: stat.mtime() * 1_000_000_000 + stat.mtime_nsec(),
            target,
            ..Inode::default()
        })
    }

    fn open(&self, path: &Path) -> Result<File, Errno> {
        plain(path)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Returns a line for each file, with all that must be the same.
    pub(crate) fn tree(&self) -> String {
        let mut lines = Vec::new();
        describe(&self.root, Path::new(""), &mut lines);
        lines.sort();
        lines.join("\n")
    }
}

fn is_symlink(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
}

/// Only regular files and directories have contents and attributes of users here.
fn plain(path: &Path) -> Result<(), Errno> {
    let kind = fs::symlink_metadata(path).map_err(errno)?.file_type();
    match kind.is_file() || kind.is_dir() {
        true => Ok(()),
        false => Err(Errno::PERM),
    }
}

fn describe(root: &Path, path: &Path, lines: &mut Vec<String>) {
    let full = root.join(path);
    let stat = fs::symlink_metadata(&full).expect("attributes");
    let mut line = format!(
        "{} {:o} {} {} {}",
        path.display(),
        stat.mode(),
        stat.uid(),
        stat.gid(),
        stat.nlink()
    );
    if stat.is_file() {
        let contents = fs::read(&full).expect("contents");
        let sum = contents.iter().fold(7u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        write!(line, " {} {sum:x}", stat.len()).expect("text");
    }
    if stat.mtime_nsec() == 5 {
        write!(line, " {}", stat.mtime()).expect("text");
    }
    if stat.is_symlink() {
        write!(line, " -> {}", fs::read_link(&full).expect("a target").display()).expect("text");
    }
    if stat.is_file() || stat.is_dir() {
        for name in ["user.one", "user.two"] {
            let mut value = vec![0; 300];
            if let Ok(length) = rustix::fs::lgetxattr(&full, name, &mut value[..]) {
                write!(line, " {name}={length}").expect("text");
            }
        }
    }
    lines.push(line);
    if stat.is_dir() {
        for entry in fs::read_dir(&full).expect("names") {
            describe(root, &path.join(entry.expect("a name").file_name()), lines);
        }
    }
}
