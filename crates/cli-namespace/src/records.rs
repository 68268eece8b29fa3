//! The records of a namespace as `find` searches them.

use crate::viewed::Viewed;
use canopy_model::{Attributes, Device};
use canopy_namespace::inode::flag;
use canopy_namespace::{FileId, Inode, ROOT, ReadView};
use canopy_query::Expression;
use canopy_tools::find::{Lookup, Record, Records};
use std::io;

/// Most links that are followed on one path, as by the kernel.
const LINKS_MAX: u32 = 40;

/// Preferred size of reads and writes, in bytes, as a mount returns it.
const BLOCK_BYTES: u32 = 4096;

/// The records of a namespace at one moment.
pub struct NamespaceRecords<'a> {
    view: &'a ReadView,
    dev: Device,
}

impl<'a> NamespaceRecords<'a> {
    /// Makes them searchable.
    pub fn new(viewed: &'a Viewed) -> Self {
        let dev = viewed.mount.as_ref().map_or(Device(0), |mount| mount.dev);
        NamespaceRecords { view: &viewed.view, dev }
    }
}

/// Returns the attributes that a mount would show.
pub fn attributes(inode: &Inode) -> Attributes {
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    Attributes {
        ino: inode.id.0,
        mode: inode.mode,
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        size_bytes: signed(inode.size),
        blksize_bytes: BLOCK_BYTES,
        blocks: signed(inode.blocks),
        atime_ns: inode.atime_ns,
        mtime_ns: inode.mtime_ns,
        ctime_ns: inode.ctime_ns,
        btime_ns: inode.btime_ns,
        rdev: inode.rdev.into(),
    }
}

fn record(inode: Inode) -> Record {
    let (attributes, has_xattrs) = (attributes(&inode), inode.has(flag::XATTRS));
    Record { attributes, target: inode.target, has_xattrs }
}

impl Records for NamespaceRecords<'_> {
    fn look(&self, path: &[u8], follow: bool) -> io::Result<Lookup> {
        Ok(match self.way(path, follow).map_err(io::Error::other)? {
            Ok(inode) => Lookup::Entry(record(inode)),
            Err(place) => place,
        })
    }

    fn list(&self, directory: u64, tell: &mut dyn FnMut(&[u8], Record) -> bool) -> io::Result<()> {
        let listed =
            self.view.list(FileId(directory), None, |name, inode| tell(name, record(inode)));
        listed.map_err(io::Error::other)
    }

    fn is_empty(&self, directory: u64) -> io::Result<bool> {
        self.view.is_empty(FileId(directory)).map_err(io::Error::other)
    }

    fn xattrs(&self, id: u64) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        let told =
            self.view.xattrs(FileId(id), |name, value| all.push((name.to_vec(), value.to_vec())));
        told.map(|()| all).map_err(io::Error::other)
    }

    fn select(
        &self,
        directory: u64,
        needed: &Expression,
        tell: &mut dyn FnMut(&[u8], Record) -> bool,
    ) -> io::Result<bool> {
        let selected = self.view.search_by_index(FileId(directory), needed, |found| {
            tell(&found.path, record(found.inode))
        });
        selected.map_err(io::Error::other)
    }

    fn dev(&self) -> Device {
        self.dev
    }

    fn file_system(&self) -> &str {
        canopy_mount::TYPE
    }
}

impl NamespaceRecords<'_> {
    /// Follows a path as the kernel would. Absolute links lead from the root if it has their first
    /// name; the namespace does not know their other targets.
    fn way(&self, path: &[u8], follow: bool) -> canopy_namespace::Result<Result<Inode, Lookup>> {
        fn names(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
            path.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec)
        }
        let mut ahead: Vec<Vec<u8>> = names(path).filter(|name| !name.is_empty()).collect();
        let mut way = vec![self.view.root()?];
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            let Some(at) = way.last() else { break };
            if !at.is_directory() {
                return Ok(Err(Lookup::NotDirectory));
            }
            match &name[..] {
                b"" | b"." => continue,
                b".." if way.len() == 1 => return Ok(Err(Lookup::Outside)),
                b".." => {
                    way.pop();
                    continue;
                }
                _ => {}
            }
            let Some(found) = self.view.lookup(at.id, &name)? else {
                return Ok(Err(Lookup::Missing));
            };
            if found.target.is_empty() || (ahead.is_empty() && !follow) {
                way.push(found);
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Ok(Err(Lookup::Loop));
            }
            if found.target.starts_with(b"/") {
                way.truncate(1);
                let first = found.target.split(|byte| *byte == b'/').find(|name| !name.is_empty());
                if let Some(first) = first
                    && self.view.lookup(ROOT, first)?.is_none()
                {
                    return Ok(Err(Lookup::Outside));
                }
            }
            ahead.extend(names(&found.target));
        }
        Ok(way.pop().ok_or(Lookup::Missing))
    }
}
