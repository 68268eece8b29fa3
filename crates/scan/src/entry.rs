//! The entries of a directory: their names and attributes.

use crate::faults::Step;
use crate::inode::{Stat, open_inode, stat_open};
use crate::xattrs::XattrReader;
use canopy_model::FileType;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// Names read ahead of looking at them, each with its NUL.
#[derive(Default)]
pub(crate) struct Names {
    text: Vec<u8>,
    ends: Vec<usize>,
    /// How many were taken.
    taken: usize,
}

impl Names {
    /// Adds a name.
    pub(crate) fn push(&mut self, name: &CStr) {
        self.text.extend_from_slice(name.to_bytes_with_nul());
        self.ends.push(self.text.len());
    }

    /// Returns whether all were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.ends.len()
    }

    /// Takes the next name, if there is one.
    pub(crate) fn take(&mut self) -> Option<&CStr> {
        let at = self.taken;
        let end = *self.ends.get(at)?;
        self.taken += 1;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        let name = CStr::from_bytes_with_nul(&self.text[start..end]);
        Some(name.expect("names are kept with one NUL"))
    }

    /// Forgets all names and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
        self.taken = 0;
    }
}

/// Metadata of an entry that takes more than one system call.
pub(crate) struct Entry {
    pub(crate) stat: Stat,
    /// Where a symbolic link points.
    pub(crate) target: Option<CString>,
    /// Whether the reader has attributes of it.
    pub(crate) has_xattrs: bool,
}

/// Reads where an entry points and its extended attributes, if it has any. A name may lead to
/// another inode at any moment: where one look is not all, one descriptor stands for the inode, and
/// `stat`, seen before by name, is not used. `None` if it cannot be opened. (An entry that
/// takes the place of another between these two calls, and has no attributes when asked, at worst
/// lacks those of the other.)
pub(crate) fn look_closer(
    directory: &OwnedFd,
    name: &CStr,
    stat: Stat,
    xattrs: Option<&mut XattrReader>,
    failed: impl Fn(Step, Errno),
) -> Option<Entry> {
    let is_link = stat.attributes.file_type() == FileType::Symlink;
    let with_some = xattrs.and_then(|xattrs| match xattrs.any(name) {
        Ok(any) => any.then_some(xattrs),
        Err(errno) => {
            failed(Step::Xattrs, errno);
            None
        }
    });
    let mut entry = Entry { stat, target: None, has_xattrs: false };
    if !is_link && with_some.is_none() {
        return Some(entry);
    }
    let opened = open_inode(directory, name).and_then(|inode| Ok((stat_open(&inode)?, inode)));
    let inode = match opened {
        Ok((stat, inode)) => {
            entry.stat = stat;
            inode
        }
        Err(errno) => {
            failed(Step::Look, errno);
            return None;
        }
    };
    if entry.stat.attributes.file_type() == FileType::Symlink {
        match rustix::fs::readlinkat(&inode, c"", Vec::new()) {
            Ok(target) => entry.target = Some(target),
            Err(errno) => failed(Step::ReadLink, errno),
        }
    }
    if let Some(xattrs) = with_some {
        match xattrs.read(&inode) {
            Ok(attributes) => {
                (entry.stat.attributes, entry.has_xattrs) = (attributes, true);
                if xattrs.has_too_many() {
                    failed(Step::Xattrs, Errno::TOOBIG);
                }
            }
            Err(errno) => failed(Step::Xattrs, errno),
        }
    }
    Some(entry)
}
