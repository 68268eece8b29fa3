//! A namespace on several servers: entries are created through them, many at once, while the servers
//! go on.
//!
//! The directory that everything goes into has a mark while the import runs, with the identity of the
//! source. An import of the same source finds the mark of one that was interrupted, and completes it:
//! entries that are there and agree with the source are left as they are.
//!
//! - A file gets its attributes and small contents with its name, in one change. One with large
//!   contents has a mark of its own until they are there.
//! - Directories are open to their owner alone (root, until they are complete), and get their
//!   attributes after everything in them. A new directory for the tree thus hides it until the end.

mod sending;

use super::pool::Pool;
use super::target::{Contents, NewFile, Place, Target};
use super::tree::{Plan, is_taken};
use crate::faults::Faults;
use crate::servers::{Access, Served, is_served};
use crate::unmount::mounted_on;
use anyhow::{Context, bail};
use canopy_cluster::Peers;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, Execute, FileId, Inode, Reply};
use rustix::fd::OwnedFd;
use rustix::fs::{Dir, Statx};
use rustix::io::Errno;
pub use sending::Sender;
use sending::{Job, Sent};
use std::borrow::Cow;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Entries that go together, and the bytes at which no more are added.
const ENTRIES: usize = 256;
const BYTES: usize = 256 << 10;

/// Jobs that wait for a thread, and threads.
pub const JOBS: usize = 32;
pub const THREADS: usize = 8;

/// Directories that wait for their attributes until all entries that were found before are there.
const DIRECTORIES: usize = 4096;

/// A cluster on its way to contain the tree.
pub struct Cluster<'a> {
    sender: &'a Sender<'a>,
    pool: &'a Pool<Job>,
    batch: Vec<Sent>,
    batch_bytes: usize,
    /// Directories without their attributes.
    directories: Vec<(String, NewFile)>,
}

/// The directory that everything goes into.
pub struct Top {
    /// Its id.
    pub id: FileId,
    /// Whether an import of this source was interrupted there.
    pub resumes: bool,
}

/// Prepares the directory that everything goes into: makes it if it is missing, and marks it.
pub fn prepare(
    served: &Served,
    plan: &mut Plan,
    source: &OwnedFd,
    stat: &Statx,
) -> anyhow::Result<Top> {
    let namespace: &dyn Execute = &*served.namespace;
    let id = match &plan.name {
        None => plan.directory.id,
        Some((parent, name)) => {
            let new = sending::unfinished_directory(namespace.now_ns()?);
            let (name, new) = (EntryName::new(*parent, name), Cow::Borrowed(&new));
            let create = Change::Create { name, new, holds: false };
            match namespace.execute(&Operation::Change(create))? {
                Reply::Inode(inode) => inode.id,
                _ => bail!("a server has sent a reply that does not fit"),
            }
        }
    };
    let mark = sending::mark_of(stat);
    let found = namespace.xattr(Moment::Now, id, sending::MARK)?;
    let taken = |takes: bool| [mark.as_bytes(), if takes { b" new" } else { b"" }].concat();
    match found {
        None => {
            check_names(served, plan, source)?;
            sending::set_xattr(namespace, id, sending::MARK, &taken(plan.takes_attributes))?;
            plan.has_names = false;
            Ok(Top { id, resumes: false })
        }
        Some(found) if found == taken(true) || found == taken(false) => {
            plan.takes_attributes = found == taken(true);
            plan.has_names = false;
            Ok(Top { id, resumes: true })
        }
        Some(_) => bail!(
            "an import of another directory was interrupted there: complete that one first, or import \
             into another directory (--into)"
        ),
    }
}

/// Fails if the source is a mount of the cluster.
pub fn check_other(source: &Path, served: &Served) -> anyhow::Result<()> {
    let shown = source.display();
    let real = source.canonicalize().with_context(|| format!("cannot find {shown}"))?;
    let Some(mount) = real.ancestors().find_map(|above| mounted_on(above).ok().flatten()) else {
        return Ok(());
    };
    let mounted = Path::new(OsStr::from_bytes(&mount.source)).to_owned();
    if mount.file_system != canopy_mount::TYPE || !is_served(&mounted)? {
        return Ok(());
    }
    let other = Served::open(&mounted, &Access::without_contents())?;
    let is_same = other.connection.cluster() == served.connection.cluster();
    other.end()?;
    if is_same {
        bail!("{shown} lies in the namespace, which cannot be imported into itself");
    }
    Ok(())
}

/// Fails if the directory has one of the names of the source already.
fn check_names(served: &Served, plan: &Plan, source: &OwnedFd) -> anyhow::Result<()> {
    if !plan.has_names {
        return Ok(());
    }
    let entries = Dir::read_from(source).context("cannot read the source")?;
    let mut names = Vec::new();
    let check = |names: &mut Vec<CString>| -> anyhow::Result<()> {
        let lookups = Vec::from_iter(names.iter().map(|name| {
            let name = EntryName::new(plan.directory.id, name.to_bytes());
            Operation::Read(Moment::Now, Read::Lookup(name))
        }));
        let found = served.connection.client().execute_all(Caller::Trusted, &lookups);
        for (name, found) in names.iter().zip(found) {
            match found.map_err(canopy_namespace::Error::from) {
                Err(error) if error.errno() == Errno::NOENT => {}
                Err(error) => return Err(error.into()),
                Ok(_) => return Err(is_taken(name.to_bytes())),
            }
        }
        names.clear();
        Ok(())
    };
    for entry in entries {
        let name = entry.context("cannot read the source")?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
        if names.len() == ENTRIES {
            check(&mut names)?;
        }
    }
    check(&mut names)
}

impl<'a> Cluster<'a> {
    pub fn new(sender: &'a Sender<'a>, pool: &'a Pool<Job>) -> Self {
        Cluster { sender, pool, batch: Vec::new(), batch_bytes: 0, directories: Vec::new() }
    }

    /// Gives all directories their attributes, the top as the last, and removes its mark.
    pub fn finish(mut self, plan: &Plan, top: NewFile) -> anyhow::Result<()> {
        self.complete_directories()?;
        self.pool.finish()?;
        self.sender.finish_top(plan.takes_attributes, top)
    }

    fn faults(&self) -> &'a Faults {
        self.sender.faults
    }

    fn send_batch(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        match batch.is_empty() {
            true => Ok(()),
            false => self.pool.add(Job::Files(batch)),
        }
    }

    /// Gives directories their attributes, once everything in them was created: that sets times.
    fn complete_directories(&mut self) -> anyhow::Result<()> {
        self.send_batch()?;
        self.pool.finish()?;
        let mut directories = std::mem::take(&mut self.directories).into_iter();
        loop {
            let some = Vec::from_iter(directories.by_ref().take(ENTRIES));
            if some.is_empty() {
                return Ok(());
            }
            self.pool.add(Job::Directories(some))?;
        }
    }
}

impl Target for Cluster<'_> {
    fn small_bytes_max(&self) -> usize {
        self.sender.served.connection.settings().inline_bytes_max
    }

    fn spreads_beyond(&self) -> Option<u64> {
        let remote = self.sender.served.connection.remote();
        (remote.server_count() > 1).then(|| remote.policy().entries_max)
    }

    fn spread(&mut self, directory: FileId) {
        // Without it, partitions split by themselves.
        let _ = canopy_cluster::spread(&**self.sender.served.connection.remote(), directory);
    }

    /// Returns false: names were looked up at the beginning.
    fn has_name(&mut self, _directory: FileId, _name: &[u8]) -> anyhow::Result<bool> {
        Ok(false)
    }

    fn new_directories(
        &mut self,
        parent: FileId,
        names: &[CString],
        path: &dyn Fn(&CString) -> String,
    ) -> anyhow::Result<Vec<Option<FileId>>> {
        let new = sending::unfinished_directory(self.sender.now_ns()?);
        let create = Vec::from_iter(names.iter().map(|name| {
            let name = EntryName::new(parent, name.to_bytes());
            Operation::Change(Change::Create { name, new: Cow::Borrowed(&new), holds: false })
        }));
        let made = self.sender.execute_all(&create);
        let made = names.iter().zip(made).map(|(name, made)| match made {
            Ok(Reply::Inode(inode)) => Ok(Some(inode.id)),
            Ok(_) => bail!("a server has sent a reply that does not fit"),
            Err(error) if error.errno() == Errno::EXIST => {
                let found = self.sender.found(parent, name.to_bytes())?;
                let found = found.filter(|found| self.sender.resumes && found.is_directory());
                if found.is_none() {
                    self.faults().add(path(name), sending::TAKEN);
                }
                Ok(found.map(|found| found.id))
            }
            Err(error) => Err(error.into()),
        });
        made.collect()
    }

    fn drop_directory(&mut self, place: &Place<'_>) -> anyhow::Result<()> {
        // One that an earlier attempt has filled stays.
        self.sender.remove(place.parent, place.name, true)
    }

    fn add_directory(&mut self, place: &Place<'_>, directory: NewFile) -> anyhow::Result<()> {
        self.directories.push(((place.path)(), directory));
        match self.directories.len() {
            DIRECTORIES.. => self.complete_directories(),
            _ => Ok(()),
        }
    }

    fn add(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<()> {
        let sent = Sent::new(place, file);
        if matches!(sent.file.contents, Contents::Large(_)) {
            return self.pool.add(Job::Large(sent));
        }
        self.batch_bytes += sent.size_bytes();
        self.batch.push(sent);
        match self.batch.len() >= ENTRIES || self.batch_bytes >= BYTES {
            true => self.send_batch(),
            false => Ok(()),
        }
    }

    fn add_first(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<Option<Inode>> {
        let sent = Sent::new(place, file);
        let Some((inode, is_complete)) = self.sender.create(&sent)? else { return Ok(None) };
        let noted = Inode { id: inode.id, nlink: 1, ..sent.file.inode.clone() };
        if !is_complete {
            self.pool.add(Job::Contents(sent, inode))?;
        }
        Ok(Some(noted))
    }

    fn add_name(&mut self, place: &Place<'_>, id: FileId) -> anyhow::Result<()> {
        let Place { parent, name, path } = *place;
        self.pool.add(Job::Link { parent, name: name.to_vec(), path: path(), id })
    }

    fn add_linked(&mut self, _inode: &Inode) -> anyhow::Result<()> {
        Ok(())
    }
}
