//! Directories that are open: listings of what they have, and what queries have found.

use super::{Answer, Filesystem, GENERATION, asking};
use crate::caller::credentials;
use crate::convert::{attributes, errno, kind};
use crate::handles::Directory;
use crate::nodes::is_virtual;
use crate::past::is_past;
use canopy_namespace::{Entry, Error, Inode, Listing};
use fuser::{
    FileHandle, FopenFlags, INodeNo, ReplyDirectory, ReplyDirectoryPlus, ReplyOpen, Request,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

impl Filesystem {
    /// Opens a directory; of a query, finds what it has.
    pub(super) fn open_directory(&self, request: &Request, id: INodeNo, reply: ReplyOpen) {
        if is_past(id.0) {
            let opened = asking(request);
            return match opened.and_then(|who| self.queries.pasts.open_directory(id.0, &who)) {
                Ok(listing) => {
                    let listing = Arc::new(Mutex::new(listing));
                    let handle = self.directories.open(Directory::Listing(listing));
                    reply.opened(handle, FopenFlags::empty());
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        if !is_virtual(id.0) {
            let listing = Arc::new(Mutex::new(Listing::new(id.0)));
            let handle = self.directories.open(Directory::Listing(listing));
            return reply.opened(handle, self.cached_listing(id.0));
        }
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let directories = self.directories.clone();
        self.queries.run_query(uid, id.0, move |queries, turn| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            match who.and_then(|who| queries.find(id.0, &who, turn)) {
                Ok(found) => {
                    let handle = directories.open(Directory::Query(found));
                    reply.opened(handle, FopenFlags::empty());
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Returns how the kernel keeps the names of a directory: all changes come through it. It asks
    /// again where reading the names changes the directory's time of access.
    fn cached_listing(&self, id: u64) -> FopenFlags {
        if self.namespace.has_strays() {
            return FopenFlags::empty();
        }
        let is_due = !self.is_read_only && self.namespace.is_access_due(id).unwrap_or(true);
        let kept = if is_due { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        FopenFlags::FOPEN_CACHE_DIR | kept
    }

    /// Tells names from an offset on.
    pub(super) fn list_names(
        &self,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The kernel does not know what it is only told the names of.
        let let_go = |link: &Inode| self.queries.nodes.release(link.id, 1);
        let add = |cookie, name: &[u8], inode: &Inode, _| {
            reply.add(INodeNo(inode.id), cookie, kind(inode), OsStr::from_bytes(name))
        };
        let listed = self.list(id, handle, offset, add, let_go);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Tells names from an offset on, with attributes; what they stand for is held.
    pub(super) fn list_entries(
        &self,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let ttl = if is_virtual(id.0) || is_past(id.0) { Duration::ZERO } else { self.ttl() };
        let add = |cookie, name: &[u8], inode: &Inode, is_entry: bool| {
            let (name, attributes) = (OsStr::from_bytes(name), attributes(inode));
            let is_held = is_entry && !is_virtual(inode.id) && !is_past(inode.id);
            if is_held {
                self.namespace.hold(inode.id);
            }
            let is_full = reply.add(attributes.ino, cookie, name, &ttl, &attributes, GENERATION);
            if is_full && is_held {
                let _ = self.namespace.release(inode.id, 1);
            }
            is_full
        };
        let listed = self.list(id, handle, offset, add, |_| ());
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Tells what every directory has, and then its entries, until `add` says that it is full.
    fn list(
        &self,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(u64, &[u8], &Inode, bool) -> bool,
        taken: impl Fn(&Inode),
    ) -> Answer<()> {
        let directory = self.directories.get(handle).ok_or(rustix::io::Errno::BADF)?;
        if offset < 2 {
            let own = self.attributes_of(id.0)?;
            if offset == 0 && add(1, b".", &own, false) {
                return Ok(());
            }
            let above = match is_virtual(id.0) {
                true => own,
                false if is_past(id.0) => Inode { id: self.queries.pasts.parent(id.0)?, ..own },
                false => Inode { id: self.namespace.parent(id.0)?, ..own },
            };
            if add(2, b"..", &above, false) {
                return Ok(());
            }
        }
        match directory {
            Directory::Listing(listing) => {
                let tell = |entry: Entry<'_>| !add(entry.cookie, entry.name, entry.inode, true);
                let (listing, after) = (&mut listing.lock(), offset.max(2));
                match is_past(id.0) {
                    true => self.queries.pasts.list(id.0, listing, after, tell)?,
                    false => self.namespace.list(listing, after, tell)?,
                }
                self.touch_access(id.0)
            }
            Directory::Query(found) => {
                let first = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
                for at in first..found.count() {
                    let link = self.queries.nodes.hold_hit(id.0, &found, at);
                    if add(at as u64 + 3, found.name(at), &link, true) {
                        self.queries.nodes.release(link.id, 1);
                        break;
                    }
                    taken(&link);
                }
                Ok(())
            }
        }
    }
}
