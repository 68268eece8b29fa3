//! Extended attributes of the entries of a directory.
//!
//! The system calls for them take paths, not a descriptor and a name. A thread that has its own
//! working directory enters each directory and asks by bare names, so that no path is resolved
//! twice; where a thread may not have one, it goes by `/proc/self/fd`.

use canopy_model::{Acl, Attributes, Audience, ClassTable, Permissions, Xattr, escape};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Largest list of names and largest value that Linux has.
const BYTES_MAX: usize = 64 * 1024;

/// The name of an extended attribute, and its value with those who may see it, where it can be
/// read.
pub type FoundXattr = (String, Option<(Vec<u8>, Audience)>);

/// Reads extended attributes in one thread.
#[derive(Default)]
pub(crate) struct XattrReader {
    /// Whether the thread's working directory is its own; unknown before the first directory is
    /// entered.
    own_directory: Option<bool>,
    /// Path of the directory where it is not.
    prefix: Vec<u8>,
    names: Vec<u8>,
    values: Vec<u8>,
    ranges: Vec<(std::ops::Range<usize>, Option<std::ops::Range<usize>>)>,
}

impl XattrReader {
    /// Returns a reader that leaves the thread's working directory alone, by which its caller may
    /// have relative paths.
    pub(crate) fn staying() -> Self {
        XattrReader { own_directory: Some(false), ..XattrReader::default() }
    }

    /// Goes to a directory.
    pub(crate) fn enter(&mut self, directory: &OwnedFd) -> Result<(), Errno> {
        let own = *self
            .own_directory
            .get_or_insert_with(|| nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).is_ok());
        if own {
            rustix::process::fchdir(directory)
        } else {
            self.prefix.clear();
            self.prefix.extend(format!("/proc/self/fd/{}/", directory.as_fd().as_raw_fd()).bytes());
            Ok(())
        }
    }

    /// Calls `each` with every attribute of an entry of the directory. `audience` are those who
    /// may look the entry up.
    pub(crate) fn read(
        &mut self,
        name: &CStr,
        attributes: &Attributes,
        audience: Audience,
        classes: &ClassTable,
        mut each: impl FnMut(Xattr<'_>),
    ) -> Result<(), Errno> {
        if self.own_directory == Some(true) {
            self.load(name)?;
        } else {
            let path = [&self.prefix[..], name.to_bytes()].concat();
            self.load(&CString::new(path).map_err(|_| Errno::INVAL)?)?;
        }
        if self.ranges.is_empty() {
            return Ok(());
        }
        let value_of = |key: &[u8]| {
            let (_, value) =
                self.ranges.iter().find(|(name, _)| &self.names[name.clone()] == key)?;
            Some(value.clone().map(|value| &self.values[value]))
        };
        let acl = value_of(Acl::XATTR_NAME.as_bytes())
            .map(|value| value.and_then(|value| Acl::decode(value).ok()).ok_or(()));
        let permissions = Permissions::of_inode(attributes, acl.as_ref().map(Result::as_ref));
        for (name, value) in &self.ranges {
            let key = escape(&self.names[name.clone()]);
            let audience = classes.value_audience(audience, &key, permissions);
            let value = value.clone().map(|value| (&self.values[value], audience));
            each(Xattr { key: &key, value });
        }
        Ok(())
    }

    fn load(&mut self, path: &CStr) -> Result<(), Errno> {
        self.ranges.clear();
        self.names.resize(BYTES_MAX, 0);
        let length = match rustix::fs::llistxattr(path, &mut self.names[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            Err(errno) => return Err(errno),
        };
        if length == 0 {
            return Ok(());
        }
        self.values.clear();
        let mut start = 0;
        while let Some(name_length) = self.names[start..length].iter().position(|&byte| byte == 0) {
            let name = start..start + name_length;
            start += name_length + 1;
            let key = CStr::from_bytes_with_nul(&self.names[name.start..start])
                .map_err(|_| Errno::INVAL)?;
            let first = self.values.len();
            self.values.resize(first + BYTES_MAX, 0);
            let value = match rustix::fs::lgetxattr(path, key, &mut self.values[first..]) {
                Ok(length) => {
                    self.values.truncate(first + length);
                    Some(first..first + length)
                }
                // It was removed meanwhile, or its namespace hides it.
                Err(Errno::NODATA) => {
                    self.values.truncate(first);
                    continue;
                }
                Err(_) => {
                    self.values.truncate(first);
                    None
                }
            };
            self.ranges.push((name, value));
        }
        Ok(())
    }
}
