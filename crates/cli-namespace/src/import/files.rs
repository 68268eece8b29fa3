//! Files that are not directories: their attributes, contents and other names.

use super::look;
use super::target::{Contents, NewFile, Target};
use super::tree::Tree;
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::{FileId, Inode};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::Statx;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};

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
        if inode.file_type() != u32::from(stat.stx_mode) & TYPE_MASK
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

impl<T: Target> Tree<'_, T> {
    /// Adds a file that is not a directory.
    pub(super) fn add_file(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        stat: &Statx,
    ) -> anyhow::Result<()> {
        if stat.stx_nlink > 1
            && let Some((id, whole)) = self.links.again(stat)
        {
            self.at(name, |target, place| target.add_name(place, id))?;
            return whole.map_or(Ok(()), |inode| self.target.add_linked(&inode));
        }
        let Some((stat, file)) = self.look_closer(directory, name, stat) else { return Ok(()) };
        if stat.stx_nlink <= 1 {
            return self.at(name, |target, place| target.add(place, file));
        }
        let inode = self.at(name, |target, place| target.add_first(place, file))?;
        match inode.and_then(|inode| self.links.first(&stat, inode)) {
            Some(other) => self.target.add_linked(&other),
            None => Ok(()),
        }
    }

    /// Returns a file with its target, contents and extended attributes. If several looks are
    /// needed, all are at one inode: its name may lead to another meanwhile. `None` if it cannot be
    /// looked at.
    fn look_closer(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        stat: &Statx,
    ) -> Option<(Statx, NewFile)> {
        let project = self.levels.last().map_or(0, |level| level.inode.project);
        let mut inode = look::inode_of(stat, FileId::NONE, project);
        let has_xattrs = self.xattrs.any(name).unwrap_or_else(|errno| {
            self.leave_out(name, errno);
            false
        });
        let with_data = self.plan.with_data && inode.is_regular() && inode.size > 0;
        if !has_xattrs && !with_data && inode.file_type() != file_type::SYMLINK {
            if inode.is_regular() && inode.size > 0 {
                inode.flags |= flag::ABSENT;
            }
            return Some((*stat, NewFile { inode, ..NewFile::default() }));
        }
        let looked = look::open_place(directory, name).and_then(|place| {
            let stat = look::look_at_open(&place)?;
            match u32::from(stat.stx_mode) & TYPE_MASK == file_type::DIRECTORY {
                true => Err(Errno::NOTDIR),
                false => Ok((place, stat)),
            }
        });
        let read = looked.and_then(|(place, stat)| {
            let inode = look::inode_of(&stat, FileId::NONE, project);
            let mut file = NewFile { inode, ..NewFile::default() };
            self.read_inside(&place, name, &mut file)?;
            Ok((place, stat, file))
        });
        match read {
            Ok((place, stat, mut file)) => {
                if has_xattrs {
                    file.xattrs = self.read_xattrs(&place, name);
                }
                Some((stat, file))
            }
            Err(errno) => {
                self.leave_out(name, errno);
                None
            }
        }
    }

    /// Reads the target of a link, or the contents of a regular file. If these cannot be read, they
    /// count as absent.
    fn read_inside(
        &mut self,
        place: &OwnedFd,
        name: &CStr,
        file: &mut NewFile,
    ) -> Result<(), Errno> {
        let inode = &mut file.inode;
        match inode.file_type() {
            file_type::SYMLINK => {
                inode.target = rustix::fs::readlinkat(place, c"", Vec::new())?.into_bytes();
                inode.size = inode.target.len() as u64;
            }
            file_type::REGULAR if inode.size > 0 => {
                inode.flags |= flag::ABSENT;
                if self.plan.with_data {
                    match self.contents(place, inode.size) {
                        Ok(contents) => {
                            inode.flags &= !flag::ABSENT;
                            file.contents = contents;
                        }
                        Err(error) => {
                            let what = format_args!("its contents: {error}");
                            self.faults.add(self.path(name), what);
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the contents of a regular file, which was this long.
    fn contents(&self, place: &OwnedFd, size: u64) -> io::Result<Contents> {
        let mut file = File::from(look::open_again(place)?);
        let most = self.target.small_bytes_max();
        if size > most as u64 {
            return Ok(Contents::Large(file));
        }
        let mut bytes = Vec::with_capacity(size as usize);
        (&mut file).take(most as u64 + 1).read_to_end(&mut bytes)?;
        // It may have grown meanwhile.
        Ok(if bytes.len() > most { Contents::Large(file) } else { Contents::Small(bytes) })
    }

    /// Returns the extended attributes of an open file in the directory where the walk is.
    pub(super) fn read_xattrs(&mut self, file: impl AsFd, name: &CStr) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        let read = self.xattrs.read(file, |xattr, value| match value {
            Ok(value) => found.push((xattr.to_vec(), value.to_vec())),
            Err(errno) => missing.push((xattr.to_vec(), errno)),
        });
        for (xattr, errno) in missing {
            self.faults.attribute(self.path(name), &xattr, errno);
        }
        if let Err(errno) = read {
            let error = io::Error::from(errno);
            self.faults.add(self.path(name), format_args!("its extended attributes: {error}"));
        }
        found
    }
}
