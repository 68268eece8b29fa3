//! A namespace of one table, which nobody else has open: everything appears in one commit.

use super::target::{Contents, NewFile, Place, Target};
use super::tree::Plan;
use crate::copy::{Copier, Failed};
use crate::faults::Faults;
use anyhow::Context;
use canopy_namespace::inode::flag;
use canopy_namespace::{Bulk, FileId, Inode, Namespace};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;

/// A namespace on its way to contain the tree.
pub struct OneTable<'a> {
    namespace: &'a Namespace,
    bulk: Bulk<'a>,
    faults: &'a Faults,
    copier: Copier,
}

impl<'a> OneTable<'a> {
    pub fn begin(namespace: &'a Namespace, faults: &'a Faults) -> anyhow::Result<Self> {
        let bulk = Bulk::begin(namespace)?;
        Ok(OneTable { namespace, bulk, faults, copier: Copier::default() })
    }

    /// Returns the id of the directory that everything goes into.
    pub fn top(&mut self, plan: &Plan) -> anyhow::Result<FileId> {
        match plan.name {
            Some(_) => Ok(self.bulk.new_id()?),
            None => Ok(plan.directory.id),
        }
    }

    /// Shows everything. Nothing of it is visible before.
    pub fn finish(mut self, plan: &Plan, mut top: NewFile) -> anyhow::Result<()> {
        self.add_xattrs(&mut top.inode, top.xattrs, &|| ".".into())?;
        let mut directory = top.inode;
        if let Some((parent, name)) = &plan.name {
            self.bulk.add(*parent, name, &directory)?;
            directory = plan.directory.clone();
            directory.nlink += 1;
        }
        if !plan.takes_attributes || plan.name.is_some() {
            let now_ns = self.namespace.now_ns();
            (directory.mtime_ns, directory.ctime_ns) = (now_ns, now_ns);
        }
        Ok(self.bulk.commit(&directory)?)
    }

    fn add_xattrs(
        &mut self,
        inode: &mut Inode,
        xattrs: Vec<(Vec<u8>, Vec<u8>)>,
        path: &dyn Fn() -> String,
    ) -> anyhow::Result<()> {
        for (name, value) in xattrs {
            match self.bulk.add_xattr(inode, &name, &value) {
                Err(canopy_namespace::Error::Posix(errno @ (Errno::INVAL | Errno::TOOBIG))) => {
                    self.faults.attribute(path(), &name, errno);
                }
                added => added?,
            }
        }
        Ok(())
    }

    /// Gives a file its id, contents and extended attributes, and returns the inode.
    fn prepare(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<Inode> {
        let NewFile { mut inode, xattrs, contents } = file;
        match contents {
            Contents::None => {}
            Contents::Small(bytes) => {
                inode.id = self.bulk.new_id()?;
                self.bulk.add_contents(&mut inode, &bytes)?;
            }
            Contents::Large(source) => {
                if let Some(error) = self.copy(&source, &mut inode)? {
                    inode.flags |= flag::ABSENT;
                    self.faults.add((place.path)(), format_args!("its contents: {error}"));
                }
            }
        }
        if inode.id == FileId::NONE {
            inode.id = self.bulk.new_id()?;
        }
        self.add_xattrs(&mut inode, xattrs, place.path)?;
        Ok(inode)
    }

    fn copy(&mut self, source: &File, inode: &mut Inode) -> anyhow::Result<Option<std::io::Error>> {
        let (id, object) = self.bulk.create_object()?;
        match self.copier.copy(source, &object, inode.size) {
            Ok(()) => {
                inode.id = id;
                self.bulk.use_object(inode, &object)?;
                Ok(None)
            }
            Err(Failed::Source(error)) => {
                self.bulk.abandon_object(id);
                Ok(Some(error))
            }
            Err(Failed::Target(error)) => Err(error).context("contents cannot be written"),
        }
    }
}

impl Target for OneTable<'_> {
    fn small_bytes_max(&self) -> usize {
        self.bulk.inline_bytes_max()
    }

    fn spreads_beyond(&self) -> Option<u64> {
        None
    }

    fn spread(&mut self, _directory: FileId) {}

    fn has_name(&mut self, directory: FileId, name: &[u8]) -> anyhow::Result<bool> {
        match self.namespace.lookup(directory, name) {
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error.into()),
            Ok(_) => Ok(true),
        }
    }

    fn new_directories(
        &mut self,
        _parent: FileId,
        names: &[CString],
        _path: &dyn Fn(&CString) -> String,
    ) -> anyhow::Result<Vec<Option<FileId>>> {
        names.iter().map(|_| Ok(Some(self.bulk.new_id()?))).collect()
    }

    fn drop_directory(&mut self, _place: &Place<'_>) -> anyhow::Result<()> {
        Ok(())
    }

    fn add_directory(&mut self, place: &Place<'_>, directory: NewFile) -> anyhow::Result<()> {
        let NewFile { mut inode, xattrs, .. } = directory;
        self.add_xattrs(&mut inode, xattrs, place.path)?;
        Ok(self.bulk.add(place.parent, place.name, &inode)?)
    }

    fn add(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<()> {
        let inode = self.prepare(place, file)?;
        Ok(self.bulk.add(place.parent, place.name, &inode)?)
    }

    fn add_first(&mut self, place: &Place<'_>, file: NewFile) -> anyhow::Result<Option<Inode>> {
        let inode = self.prepare(place, file)?;
        self.bulk.add_name(place.parent, place.name, inode.id)?;
        Ok(Some(inode))
    }

    fn add_name(&mut self, place: &Place<'_>, id: FileId) -> anyhow::Result<()> {
        Ok(self.bulk.add_name(place.parent, place.name, id)?)
    }

    fn add_linked(&mut self, inode: &Inode) -> anyhow::Result<()> {
        Ok(self.bulk.add_linked(inode)?)
    }
}
