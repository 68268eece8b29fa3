//! Jobs of the threads that send: changes of the servers' records, and contents.

use super::{Contents, NewFile, Place};
use crate::copy::next_data;
use crate::faults::Faults;
use crate::servers::Served;
use anyhow::{Context, bail};
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation};
use canopy_namespace::{
    EntryName, Error, Execute, FileContents, FileId, Inode, New, Origin, Privileges, Reply, Result,
    SetAttributes, SetTime, SetXattr,
};
use canopy_store::hash_of;
use rustix::fs::Statx;
use rustix::io::Errno;
use std::borrow::Cow;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The attribute that marks a directory with an unfinished import, and a file without its contents.
pub const MARK: &[u8] = b"trusted.canopy.import";

/// Fault of a name that the namespace has already.
pub const TAKEN: &str = "something else has its name in the namespace: left as it is";

/// Bytes of attributes that go with a file. More follow one by one.
const XATTR_BYTES: usize = 128 << 10;

/// Bytes of contents that are read at once.
const READ_BYTES: usize = 1 << 20;

/// Fields of an inode before the end of the import.
const UNFINISHED: u32 = file_type::DIRECTORY | 0o700;

/// A file that is sent.
pub struct Sent {
    parent: FileId,
    name: Vec<u8>,
    path: String,
    pub file: NewFile,
}

impl Sent {
    pub fn new(place: &Place<'_>, file: NewFile) -> Self {
        let Place { parent, name, path } = *place;
        Sent { parent, name: name.to_vec(), path: path(), file }
    }

    fn name(&self) -> EntryName<'_> {
        EntryName::new(self.parent, &self.name)
    }

    /// Returns about how many bytes a message of it has.
    pub fn size_bytes(&self) -> usize {
        let small = match &self.file.contents {
            Contents::Small(bytes) => bytes.len(),
            _ => 0,
        };
        let xattrs = self.file.xattrs.iter().map(|(name, value)| name.len() + value.len());
        small + xattrs.sum::<usize>().min(XATTR_BYTES) + self.file.inode.target.len() + 512
    }

    /// Returns the file as it is made, and the attributes that follow.
    fn as_new(&self) -> (New, &[(Vec<u8>, Vec<u8>)]) {
        let NewFile { inode, xattrs, contents } = &self.file;
        let mut bytes = 0;
        let with_it = xattrs.iter().take_while(|(name, value)| {
            bytes += name.len() + value.len();
            bytes <= XATTR_BYTES
        });
        let (first, later) = xattrs.split_at(with_it.count());
        let mut xattrs = first.to_vec();
        if matches!(contents, Contents::Large(_)) {
            xattrs.push((MARK.to_vec(), Vec::new()));
        }
        let small = match contents {
            Contents::Small(bytes) => bytes.clone(),
            _ => Vec::new(),
        };
        let Inode { mtime_ns, ctime_ns, atime_ns, btime_ns, .. } = *inode;
        let absent = inode.has(flag::ABSENT).then_some((inode.size, inode.blocks));
        let origin = Origin { mtime_ns, ctime_ns, atime_ns, btime_ns, absent, small, xattrs };
        let Inode { mode, uid, gid, rdev, .. } = *inode;
        let (target, origin) = (inode.target.clone(), Some(Box::new(origin)));
        (New { mode, umask: 0, uid, gid, rdev, target, origin }, later)
    }
}

/// Work for a thread.
pub enum Job {
    /// Files that are complete with their names.
    Files(Vec<Sent>),
    /// A file with large contents.
    Large(Sent),
    /// Contents of a file that has its name.
    Contents(Sent, Inode),
    /// Another name of a file.
    Link { parent: FileId, name: Vec<u8>, path: String, id: FileId },
    /// Attributes of directories, with their paths.
    Directories(Vec<(String, NewFile)>),
}

/// The way to the servers.
pub struct Sender<'a> {
    pub served: &'a Served,
    pub faults: &'a Faults,
    /// Whether an earlier import may have made some of the files.
    pub resumes: bool,
}

impl Sender<'_> {
    fn namespace(&self) -> &dyn Execute {
        &*self.served.namespace
    }

    pub fn now_ns(&self) -> Result<i64> {
        self.namespace().now_ns()
    }

    pub fn execute_all(&self, operations: &[Operation<'_>]) -> Vec<Result<Reply>> {
        let client = self.served.connection.client();
        let replies = client.execute_all(Caller::Trusted, operations);
        replies.into_iter().map(|reply| Ok(reply?)).collect()
    }

    /// Does a job.
    pub fn work(&self, job: Job) -> anyhow::Result<()> {
        match job {
            Job::Files(files) => self.send_files(&files),
            Job::Large(sent) => match self.create(&sent)? {
                Some((inode, false)) => self.send_contents(sent, &inode),
                _ => Ok(()),
            },
            Job::Contents(sent, inode) => self.send_contents(sent, &inode),
            Job::Link { parent, name, path, id } => {
                self.link(EntryName::new(parent, &name), &path, id)
            }
            Job::Directories(directories) => directories
                .into_iter()
                .try_for_each(|(path, directory)| self.complete(&path, directory)),
        }
    }

    /// Returns the file of a name, if it has one.
    pub fn found(&self, parent: FileId, name: &[u8]) -> Result<Option<Inode>> {
        match self.namespace().lookup(Moment::Now, EntryName::new(parent, name)) {
            Err(error) if error.errno() == Errno::NOENT => Ok(None),
            found => found.map(Some),
        }
    }

    /// Removes a name. A directory with something in it stays.
    pub fn remove(&self, parent: FileId, name: &[u8], is_directory: bool) -> anyhow::Result<()> {
        let name = EntryName::new(parent, name);
        let removed = match is_directory {
            true => self.namespace().rmdir(name),
            false => self.namespace().unlink(name),
        };
        match removed.map_err(|error| (error.errno(), error)) {
            Ok(_) | Err((Errno::NOENT | Errno::NOTEMPTY | Errno::EXIST, _)) => Ok(()),
            Err((_, error)) => Err(error.into()),
        }
    }

    fn send_files(&self, files: &[Sent]) -> anyhow::Result<()> {
        let new = Vec::from_iter(files.iter().map(Sent::as_new));
        let created = Vec::from_iter(files.iter().zip(&new).map(|(sent, (new, _))| {
            let (name, new) = (sent.name(), Cow::Borrowed(new));
            Operation::Change(Change::Create { name, new, holds: false })
        }));
        let replies = self.execute_all(&created);
        for ((sent, (_, later)), reply) in files.iter().zip(&new).zip(replies) {
            self.created(sent, later, reply)?;
        }
        Ok(())
    }

    /// Creates a file, or finds the one that an earlier import made. Returns its inode and whether it is
    /// complete; none if it cannot be made.
    pub fn create(&self, sent: &Sent) -> anyhow::Result<Option<(Inode, bool)>> {
        let (new, later) = sent.as_new();
        let create = Change::Create { name: sent.name(), new: Cow::Borrowed(&new), holds: false };
        let reply = self.namespace().execute(&Operation::Change(create));
        self.created(sent, later, reply)
    }

    fn created(
        &self,
        sent: &Sent,
        later: &[(Vec<u8>, Vec<u8>)],
        reply: Result<Reply>,
    ) -> anyhow::Result<Option<(Inode, bool)>> {
        let is_large = matches!(sent.file.contents, Contents::Large(_));
        match reply {
            Ok(Reply::Inode(inode)) => {
                for (name, value) in later {
                    self.set_xattr(&sent.path, inode.id, name, value)?;
                }
                Ok(Some((inode, !is_large)))
            }
            Ok(_) => bail!("a server has sent a reply that does not fit"),
            Err(error) if error.errno() == Errno::EXIST => self.existing(sent),
            // An attribute that no file can have here: without it.
            Err(error)
                if matches!(error.errno(), Errno::INVAL | Errno::TOOBIG)
                    && !sent.file.xattrs.is_empty() =>
            {
                self.create_without_attributes(sent)
            }
            Err(error) => Err(error).with_context(|| sent.path.clone()),
        }
    }

    /// Creates a file, and then gives it one attribute after the other.
    fn create_without_attributes(&self, sent: &Sent) -> anyhow::Result<Option<(Inode, bool)>> {
        let (mut new, _) = sent.as_new();
        let is_large = matches!(sent.file.contents, Contents::Large(_));
        if let Some(origin) = &mut new.origin {
            origin.xattrs.retain(|(name, _)| name == MARK);
        }
        let create = Change::Create { name: sent.name(), new: Cow::Borrowed(&new), holds: false };
        let reply = self.namespace().execute(&Operation::Change(create));
        let Reply::Inode(inode) = reply.with_context(|| sent.path.clone())? else {
            bail!("a server has sent a reply that does not fit")
        };
        for (name, value) in &sent.file.xattrs {
            self.set_xattr(&sent.path, inode.id, name, value)?;
        }
        Ok(Some((inode, !is_large)))
    }

    /// Returns the file that has a name, and whether it is complete, if an earlier import has made it.
    fn existing(&self, sent: &Sent) -> anyhow::Result<Option<(Inode, bool)>> {
        let found = match self.resumes {
            true => self.found(sent.parent, &sent.name)?,
            false => None,
        };
        let wanted = &sent.file.inode;
        let Some(found) = found.filter(|found| found.file_type() == wanted.file_type()) else {
            self.faults.add(&sent.path, TAKEN);
            return Ok(None);
        };
        if matches!(sent.file.contents, Contents::Large(_))
            && self.namespace().xattr(Moment::Now, found.id, MARK)?.is_some()
        {
            return Ok(Some((found, false)));
        }
        if !is_equal(&found, wanted) {
            self.faults.add(&sent.path, TAKEN);
            return Ok(None);
        }
        Ok(Some((found, true)))
    }

    fn link(&self, name: EntryName<'_>, path: &str, id: FileId) -> anyhow::Result<()> {
        let linked = self.namespace().link(id, name);
        let error = match linked {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        match error.errno() {
            Errno::EXIST => {}
            Errno::MLINK | Errno::NOENT => {
                self.faults.add(path, format_args!("another name of a file: {error}"));
                return Ok(());
            }
            _ => return Err(error).with_context(|| path.to_owned()),
        }
        let found = match self.resumes {
            true => self.found(name.directory, name.name)?,
            false => None,
        };
        match found {
            Some(found) if found.id == id => Ok(()),
            // The earlier import has seen the names of the file in another order.
            Some(found) if is_equal(&found, &self.namespace().inode(Moment::Now, id)?) => {
                self.remove(name.directory, name.name, false)?;
                self.namespace().link(id, name).with_context(|| path.to_owned())?;
                Ok(())
            }
            _ => {
                self.faults.add(path, TAKEN);
                Ok(())
            }
        }
    }

    /// Sends the contents of a file that has none, and then gives it its times.
    fn send_contents(&self, sent: Sent, inode: &Inode) -> anyhow::Result<()> {
        let Contents::Large(source) = &sent.file.contents else { return Ok(()) };
        let (id, size) = (inode.id, sent.file.inode.size);
        if inode.size == 0 && !inode.has(flag::OBJECT | flag::INLINE) {
            self.served.namespace.open_new(inode)?;
        } else {
            // Where the source has holes by now, the earlier import may have copied data.
            let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
            self.namespace().set_attributes(id, &empty, Changer::Privileged)?;
            self.served.namespace.open(id)?;
        }
        let copied = self.copy(source, id, size);
        let closed = self.served.namespace.close(id);
        if let Err(error) = copied? {
            self.faults.add(&sent.path, format_args!("its contents: {error}"));
            return self.leave_contents(sent);
        }
        closed.with_context(|| sent.path.clone())?;
        // There may be a hole at the end.
        let set = SetAttributes { size: Some(size), ..times_of(&sent.file.inode) };
        self.namespace().set_attributes(id, &set, Changer::Privileged)?;
        Ok(self.namespace().remove_xattr(id, MARK)?)
    }

    fn copy(&self, source: &File, id: FileId, size: u64) -> Result<std::io::Result<()>> {
        let mut buffer = vec![0; READ_BYTES];
        let mut at = 0;
        loop {
            let (mut from, to) = match next_data(source, at, size) {
                Ok(Some(range)) => range,
                Ok(None) => return Ok(Ok(())),
                Err(errno) => return Ok(Err(errno.into())),
            };
            while from < to {
                let most = (to - from).min(READ_BYTES as u64) as usize;
                let count = match source.read_at(&mut buffer[..most], from) {
                    Ok(0) => return Ok(Ok(())),
                    Ok(count) => count,
                    Err(error) => return Ok(Err(error)),
                };
                let mut bytes = &buffer[..count];
                while !bytes.is_empty() {
                    let written =
                        self.served.namespace.write_at(id, from, bytes, Privileges::Keep)?;
                    from += written as u64;
                    bytes = &bytes[written..];
                }
            }
            at = to;
        }
    }

    /// Replaces a file whose contents cannot be read by one whose contents are absent.
    fn leave_contents(&self, mut sent: Sent) -> anyhow::Result<()> {
        self.remove(sent.parent, &sent.name, false)?;
        sent.file.contents = Contents::None;
        sent.file.inode.flags |= flag::ABSENT;
        self.create(&sent).map(drop)
    }

    fn set_xattr(&self, path: &str, id: FileId, name: &[u8], value: &[u8]) -> anyhow::Result<()> {
        match set_xattr(self.namespace(), id, name, value) {
            Err(Error::Posix(errno @ (Errno::INVAL | Errno::TOOBIG | Errno::OPNOTSUPP))) => {
                self.faults.attribute(path, name, errno);
                Ok(())
            }
            set => set.with_context(|| path.to_owned()),
        }
    }

    /// Gives a directory its attributes.
    fn complete(&self, path: &str, directory: NewFile) -> anyhow::Result<()> {
        let NewFile { inode, xattrs, .. } = directory;
        for (name, value) in &xattrs {
            self.set_xattr(path, inode.id, name, value)?;
        }
        let set = SetAttributes {
            mode: Some(inode.mode & 0o7777),
            uid: Some(inode.uid),
            gid: Some(inode.gid),
            ..times_of(&inode)
        };
        let set = self.namespace().set_attributes(inode.id, &set, Changer::Privileged);
        set.with_context(|| path.to_owned()).map(drop)
    }

    /// Completes the directory that everything went into, and removes its mark.
    pub fn finish_top(&self, takes_attributes: bool, top: NewFile) -> anyhow::Result<()> {
        let id = top.inode.id;
        if takes_attributes {
            self.complete(".", top)?;
        }
        Ok(self.namespace().remove_xattr(id, MARK)?)
    }
}

/// Gives a file an extended attribute.
pub fn set_xattr(namespace: &dyn Execute, id: FileId, name: &[u8], value: &[u8]) -> Result<()> {
    namespace.set_xattr(id, name, value, SetXattr::Any, Changer::Privileged)
}

/// Returns a directory that only root sees until it is complete. It inherits no ACL.
pub fn unfinished_directory(now_ns: i64) -> New {
    let (mtime_ns, ctime_ns, atime_ns, btime_ns) = (now_ns, now_ns, now_ns, now_ns);
    let origin = Origin { mtime_ns, ctime_ns, atime_ns, btime_ns, ..Origin::default() };
    New { mode: UNFINISHED, origin: Some(Box::new(origin)), ..New::default() }
}

/// Returns the value of the mark for a source.
pub fn mark_of(stat: &Statx) -> String {
    let birth = format!("{}.{}", stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
    format!("{:016x}", hash_of(format!("{} {birth}", stat.stx_ino).as_bytes()))
}

fn times_of(inode: &Inode) -> SetAttributes {
    let [atime, mtime] = [inode.atime_ns, inode.mtime_ns].map(|time| Some(SetTime::To(time)));
    SetAttributes { atime, mtime, ..SetAttributes::default() }
}

/// Returns whether a file is one that was imported before.
fn is_equal(found: &Inode, wanted: &Inode) -> bool {
    found.file_type() == wanted.file_type()
        && found.size == wanted.size
        && found.mtime_ns == wanted.mtime_ns
        && found.target == wanted.target
}
