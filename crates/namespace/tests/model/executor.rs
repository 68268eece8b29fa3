//! Steps on anything that executes operations, as the kernel would ask for them. It knows no
//! namespace: tests of other crates include this file, `step.rs` and `reference.rs` to have servers
//! do what a file system does.

use crate::step::{Act, Names, Step, bytes};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Hold, Moment};
use canopy_namespace::{
    EntryName, Execute, Failure, FileId, Inode, Listing, Operation, Privileges, Reply,
};
use rustix::io::Errno;
use std::fmt::Write;
use std::sync::Arc;

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Executes steps below a directory.
pub(crate) struct Executor {
    pub(crate) execute: Arc<dyn Execute>,
    /// The directory that paths begin at.
    pub(crate) root: FileId,
}

pub(crate) fn as_errno<T>(result: canopy_namespace::Result<T>) -> Result<T> {
    result.map_err(|error| error.errno())
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

impl Names for Executor {
    fn root(&self) -> FileId {
        self.root
    }

    fn lookup(&self, name: EntryName<'_>) -> Result<Inode> {
        as_errno(self.execute.lookup(Moment::Now, name))
    }
}

impl Executor {
    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        as_errno(by_message(operation, |operation| self.execute.execute(operation)))
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
        let contents = &*self.execute;
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
        let files = &*self.execute;
        let nlink = as_errno(files.inode(Moment::Now, id))?.nlink;
        self.execute(&Operation::Hold(Hold::File(id)))?;
        let release = Operation::Hold(Hold::Release(id, 1));
        as_errno(files.open(id)).inspect_err(|_| {
            self.execute(&release).expect("a release");
        })?;
        self.execute(&Operation::Change(Change::Unlink(name)))?;
        as_errno(files.write_at(id, 10, b"still there", Privileges::Keep))?;
        assert_eq!(as_errno(files.read_at(id, 10, 11, true))?, b"still there");
        assert_eq!(as_errno(files.inode(Moment::Now, id))?.nlink, nlink - 1);
        as_errno(files.close(id))?;
        self.execute(&release)
    }

    /// Returns what [`Reference::tree`](crate::reference::Reference::tree) does.
    pub(crate) fn tree(&self) -> String {
        let mut lines = Vec::new();
        let root = as_errno(self.execute.inode(Moment::Now, self.root)).expect("a root");
        self.describe(&root, "", &mut lines);
        lines.sort();
        lines.join("\n")
    }

    fn describe(&self, inode: &Inode, path: &str, lines: &mut Vec<String>) {
        let Inode { mode, uid, gid, nlink, .. } = inode;
        let mut line = format!("{path} {mode:o} {uid} {gid} {nlink}");
        if inode.is_regular() {
            self.execute.open(inode.id).expect("a file");
            let contents = self.execute.read_at(inode.id, 0, 1 << 20, true).expect("contents");
            self.execute.close(inode.id).expect("a file closed");
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
            if let Some(value) =
                self.execute.xattr(Moment::Now, inode.id, name.as_bytes()).expect("a value")
            {
                write!(line, " {name}={}", value.len()).expect("text");
            }
        }
        lines.push(line);
        if inode.is_directory() {
            let mut entries = Vec::new();
            let mut listing = Listing::new(inode.id);
            let listed = self.execute.list(Moment::Now, &mut listing, 0, |entry| {
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
}
