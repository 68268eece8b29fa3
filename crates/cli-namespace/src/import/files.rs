//! Files that are not directories: their attributes, contents and other names.

use super::look;
use super::tree::Tree;
use crate::copy::Failed;
use anyhow::Context;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::{FileId, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Statx;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::Read;

/// Files with several names, by device and inode number: those of which not all names were seen.
#[derive(Default)]
pub struct Links(HashMap<(u64, u64), Inode>);

impl Links {
    /// Counts another name of a file, if it was seen before, and returns its id; and its inode, if
    /// this is the last name.
    fn again(&mut self, stat: &Statx) -> Option<(FileId, Option<Inode>)> {
        let place = (look::device_of(stat), stat.stx_ino);
        let inode = self.0.get_mut(&place)?;
        // A number may have become that of another file meanwhile.
        if inode.file_type() != u32::from(stat.stx_mode) & canopy_namespace::inode::TYPE_MASK
            || inode.btime_ns != look::inode_of(stat, FileId::NONE, 0).btime_ns
        {
            return None;
        }
        inode.nlink += 1;
        let (id, is_last) = (inode.id, inode.nlink >= stat.stx_nlink);
        Some((id, if is_last { self.0.remove(&place) } else { None }))
    }

    /// Notes the first name of a file; returns the inode of another one in its place.
    fn first(&mut self, stat: &Statx, inode: Inode) -> Option<Inode> {
        self.0.insert((look::device_of(stat), stat.stx_ino), inode)
    }

    /// Takes all out of which not every name was seen.
    pub fn take_all(&mut self) -> impl Iterator<Item = Inode> + use<> {
        std::mem::take(&mut self.0).into_values()
    }
}

impl Tree<'_> {
    /// Adds a file that is not a directory.
    pub(super) fn add_file(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        stat: &Statx,
    ) -> anyhow::Result<()> {
        let Some(parent) = self.levels.last().map(|level| level.inode.id) else { return Ok(()) };
        if stat.stx_nlink > 1
            && let Some((id, whole)) = self.links.again(stat)
        {
            self.bulk.add_name(parent, name.to_bytes(), id)?;
            return Ok(whole.map_or(Ok(()), |inode| self.bulk.add_linked(&inode))?);
        }
        let Some((stat, inode)) = self.look_closer(directory, name, stat)? else { return Ok(()) };
        if stat.stx_nlink <= 1 {
            return Ok(self.bulk.add(parent, name.to_bytes(), &inode)?);
        }
        self.bulk.add_name(parent, name.to_bytes(), inode.id)?;
        match self.links.first(&stat, inode) {
            Some(other) => Ok(self.bulk.add_linked(&other)?),
            None => Ok(()),
        }
    }

    /// Returns the inode of a file, with its target, contents and extended attributes. If several
    /// looks are needed, all are at one inode: its name may lead to another meanwhile. `None` if it
    /// cannot be looked at.
    fn look_closer(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        stat: &Statx,
    ) -> anyhow::Result<Option<(Statx, Inode)>> {
        let project = self.levels.last().map_or(0, |level| level.inode.project);
        let mut inode = look::inode_of(stat, FileId::NONE, project);
        let has_xattrs = self.xattrs.any(name).unwrap_or_else(|errno| {
            self.leave_out(name, errno);
            false
        });
        let with_data = self.plan.with_data && inode.is_regular() && inode.size > 0;
        if !has_xattrs && !with_data && inode.file_type() != file_type::SYMLINK {
            inode.id = self.bulk.new_id()?;
            if inode.is_regular() && inode.size > 0 {
                inode.flags |= flag::ABSENT;
            }
            return Ok(Some((*stat, inode)));
        }
        let place = match look::open_place(directory, name) {
            Ok(place) => place,
            Err(errno) => {
                self.leave_out(name, errno);
                return Ok(None);
            }
        };
        let stat = match look::look_at_open(&place) {
            Ok(stat) if stat.stx_mode & 0o170_000 == file_type::DIRECTORY as u16 => {
                self.leave_out(name, Errno::NOTDIR);
                return Ok(None);
            }
            Ok(stat) => stat,
            Err(errno) => {
                self.leave_out(name, errno);
                return Ok(None);
            }
        };
        let mut inode = look::inode_of(&stat, FileId::NONE, project);
        match inode.file_type() {
            file_type::SYMLINK => match rustix::fs::readlinkat(&place, c"", Vec::new()) {
                Ok(target) => {
                    inode.target = target.into_bytes();
                    inode.size = inode.target.len() as u64;
                }
                Err(errno) => {
                    self.leave_out(name, errno);
                    return Ok(None);
                }
            },
            file_type::REGULAR if self.plan.with_data && inode.size > 0 => {
                self.read_contents(&place, name, &mut inode)?;
            }
            file_type::REGULAR if inode.size > 0 => inode.flags |= flag::ABSENT,
            _ => {}
        }
        if inode.id == FileId::NONE {
            inode.id = self.bulk.new_id()?;
        }
        if has_xattrs {
            self.read_xattrs(&place, &mut inode, name)?;
        }
        Ok(Some((stat, inode)))
    }

    /// Adds the contents of a regular file; if it cannot be read, its contents count as absent.
    fn read_contents(
        &mut self,
        place: &OwnedFd,
        name: &CStr,
        inode: &mut Inode,
    ) -> anyhow::Result<()> {
        let size = inode.size;
        let failed = match look::open_again(place) {
            Ok(file) if size <= self.bulk.inline_bytes_max() as u64 => {
                self.read_small(&File::from(file), inode)?
            }
            Ok(file) => self.read_large(&File::from(file), inode)?,
            Err(errno) => Some(errno.into()),
        };
        if let Some(error) = failed {
            inode.flags |= flag::ABSENT;
            self.faults.add(self.path(name), format_args!("its contents: {error}"));
        }
        Ok(())
    }

    fn read_small(
        &mut self,
        mut file: &File,
        inode: &mut Inode,
    ) -> anyhow::Result<Option<std::io::Error>> {
        let most = self.bulk.inline_bytes_max();
        let mut bytes = Vec::with_capacity(inode.size as usize);
        if let Err(error) = file.by_ref().take(most as u64 + 1).read_to_end(&mut bytes) {
            return Ok(Some(error));
        }
        if bytes.len() > most {
            // It has grown meanwhile.
            inode.size = bytes.len() as u64;
            return self.read_large(file, inode);
        }
        inode.id = self.bulk.new_id()?;
        self.bulk.add_contents(inode, &bytes)?;
        Ok(None)
    }

    fn read_large(
        &mut self,
        file: &File,
        inode: &mut Inode,
    ) -> anyhow::Result<Option<std::io::Error>> {
        let (id, object) = self.bulk.create_object()?;
        match self.copier.copy(file, &object, inode.size) {
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

    /// Adds the extended attributes of an open file in the directory where the walk is, which has
    /// its id already.
    pub(super) fn read_xattrs(
        &mut self,
        file: impl AsFd,
        inode: &mut Inode,
        name: &CStr,
    ) -> anyhow::Result<()> {
        let (bulk, mut missing, mut failed) = (&mut self.bulk, Vec::new(), None);
        let read = self.xattrs.read(file, |xattr, value| {
            match value.map(|value| bulk.add_xattr(inode, xattr, value)) {
                Ok(Ok(())) => {}
                Ok(Err(canopy_namespace::Error::Posix(errno))) | Err(errno) => {
                    missing.push((String::from_utf8_lossy(xattr).into_owned(), errno));
                }
                Ok(Err(error)) => failed = Some(error),
            }
        });
        for (xattr, errno) in missing {
            let error = std::io::Error::from(errno);
            self.faults.add(self.path(name), format_args!("its attribute {xattr}: {error}"));
        }
        if let Err(errno) = read {
            let error = std::io::Error::from(errno);
            self.faults.add(self.path(name), format_args!("its extended attributes: {error}"));
        }
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
