//! Extended attributes of the entries of a directory.
//!
//! Most entries have none, which takes one system call by name to find out. A thread with its own
//! working directory enters each directory and asks by bare names, so that no path is resolved
//! twice. A thread that may not have one goes by `/proc/self/fd`. A name may lead to another inode
//! at any moment. So if an entry has attributes, they are read through one descriptor of the inode,
//! also by `/proc/self/fd`.
//!
//! Linux before 6.13 cannot list attributes relative to a descriptor. So each scanning thread takes
//! a working directory of its own, with `unshare(CLONE_FS)`.

use crate::inode::look_at_open;
use crate::rules::Rules;
use canopy_model::lustre::{self, LAYOUT_KEYS, PROJECT_KEY};
use canopy_model::{
    Acl, Attributes, Audience, ClassTable, Permissions, Xattr, XattrAccess, escape,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Largest list of names and largest value that Linux has.
const BYTES_MAX: usize = 64 * 1024;

/// Bytes of values of one inode after which the others are left out: some file systems let users
/// give an inode any number of them.
const VALUES_BYTES_MAX: usize = 1 << 20;

/// How often an inode is read again whose permissions change meanwhile.
const TRIES: u32 = 8;

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
    /// The ACL when it is read a second time.
    acl: Vec<u8>,
    ranges: Vec<(std::ops::Range<usize>, Option<std::ops::Range<usize>>)>,
}

impl XattrReader {
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

    /// Returns whether the entry of this name in the directory has any. The name may lead to
    /// another inode right afterwards.
    pub(crate) fn any(&mut self, name: &CStr) -> Result<bool, Errno> {
        let length = if self.own_directory == Some(true) {
            rustix::fs::llistxattr_query(name)
        } else {
            let path = [&self.prefix[..], name.to_bytes()].concat();
            rustix::fs::llistxattr_query(path)
        };
        match length {
            Ok(length) => Ok(length > 0),
            Err(Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    /// Reads all attributes of an inode, which need not be open for reading (`O_PATH` does), for
    /// [`XattrReader::found`]. Returns what the inode is; its permissions were the same before and
    /// after, so that each value was for those whom they let read. Fails with `AGAIN`, and keeps
    /// no attribute, if they never were.
    pub(crate) fn read(&mut self, inode: impl AsFd) -> Result<Attributes, Errno> {
        let path = format!("/proc/self/fd/{}", inode.as_fd().as_raw_fd());
        let path = CString::new(path).expect("a number has no NUL");
        let mut before = look_at_open(&inode)?.0;
        for _ in 0..TRIES {
            self.load(&path)?;
            let same_acl = self.has_acl_still(&path);
            let after = look_at_open(&inode)?.0;
            let permissions = |of: &Attributes| (of.mode, of.uid, of.gid);
            if same_acl && permissions(&before) == permissions(&after) {
                return Ok(after);
            }
            before = after;
        }
        self.ranges.clear();
        Err(Errno::AGAIN)
    }

    /// Returns whether what was read last has more values than are kept: the names of the others
    /// are all that is known of them.
    pub(crate) fn has_too_many(&self) -> bool {
        self.values.len() >= VALUES_BYTES_MAX
            && self.ranges.iter().any(|(_, value)| value.is_none())
    }

    /// Calls `each` with every attribute that was read last, of an inode with these attributes.
    /// `audience` are the users who may look the entry up. Values that take permissions of the
    /// inode's own are left out if `rules` do not know who has them.
    pub(crate) fn found(
        &self,
        attributes: &Attributes,
        rules: Rules,
        audience: Audience,
        classes: &ClassTable,
        mut each: impl FnMut(Xattr<'_>),
    ) {
        let acl = self
            .value_of(Acl::XATTR_NAME.as_bytes())
            .map(|value| value.and_then(|value| Acl::decode(value).ok()).ok_or(()));
        let permissions = Permissions::of_inode(attributes, acl.as_ref().map(Result::as_ref));
        let Permissions { uid, gid, acl, .. } = permissions;
        let told = rules.decide_access(uid, gid, acl);
        for (name, value) in &self.ranges {
            let key = escape(&self.names[name.clone()]);
            let audience = classes.value_audience(audience, &key, permissions);
            let known = told || XattrAccess::of(&key) != XattrAccess::Read;
            let value = value.clone().filter(|_| known);
            let value = value.map(|value| (&self.values[value], audience));
            each(Xattr { key: &key, value });
        }
    }

    /// Returns the value that was read of a name: `Some(None)` if there is one that cannot be read.
    fn value_of(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (_, value) = self.ranges.iter().find(|(name, _)| &self.names[name.clone()] == key)?;
        Some(value.clone().map(|value| &self.values[value]))
    }

    /// Returns whether the inode at `path` has the ACL that was read, or none as then.
    fn has_acl_still(&mut self, path: &CStr) -> bool {
        self.acl.resize(BYTES_MAX, 0);
        let length = rustix::fs::getxattr(path, Acl::XATTR_NAME, &mut self.acl[..]);
        let now = match length {
            Ok(length) => Some(Some(&self.acl[..length])),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(_) => Some(None),
        };
        self.value_of(Acl::XATTR_NAME.as_bytes()) == now
    }

    /// Adds the project of an inode of Lustre's to the names that are listed, which end at
    /// `length`: clients return it, but do not list it. Returns where they end then. Leaves out the
    /// project 0, which most inodes have.
    fn add_project(&mut self, path: &CStr, length: usize) -> usize {
        let names = || self.names[..length].split(|&byte| byte == 0);
        let project = PROJECT_KEY.to_bytes();
        let is_of_lustre = names().any(|name| LAYOUT_KEYS.iter().any(|key| key.as_bytes() == name));
        if !is_of_lustre || names().any(|name| name == project) {
            return length;
        }
        let mut value = [0; 16];
        let read = rustix::fs::getxattr(path, PROJECT_KEY, &mut value[..]);
        let is_told =
            read.is_ok_and(|bytes| lustre::project(&value[..bytes]).is_some_and(|id| id > 0));
        let key = PROJECT_KEY.to_bytes_with_nul();
        match self.names.get_mut(length..length + key.len()).filter(|_| is_told) {
            Some(room) => {
                room.copy_from_slice(key);
                length + key.len()
            }
            None => length,
        }
    }

    fn load(&mut self, path: &CStr) -> Result<(), Errno> {
        self.ranges.clear();
        self.values.clear();
        self.names.resize(BYTES_MAX, 0);
        let length = match rustix::fs::listxattr(path, &mut self.names[..]) {
            Ok(length) => length,
            Err(Errno::OPNOTSUPP) => 0,
            // The inode is open: it is `/proc` that is not there.
            Err(Errno::NOENT) => return Err(Errno::NOSYS),
            Err(errno) => return Err(errno),
        };
        let length = self.add_project(path, length);
        let mut start = 0;
        while let Some(name_length) = self.names[start..length].iter().position(|&byte| byte == 0) {
            let name = start..start + name_length;
            start += name_length + 1;
            let key = CStr::from_bytes_with_nul(&self.names[name.start..start])
                .map_err(|_| Errno::INVAL)?;
            let first = self.values.len();
            // The ACL, which says for whom the values are, is always kept.
            if first >= VALUES_BYTES_MAX && key.to_bytes() != Acl::XATTR_NAME.as_bytes() {
                self.ranges.push((name, None));
                continue;
            }
            self.values.resize(first + BYTES_MAX, 0);
            let value = match rustix::fs::getxattr(path, key, &mut self.values[first..]) {
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
