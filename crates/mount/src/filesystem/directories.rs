//! Directories that are open: listings of what they have, and what queries have found.

use super::{Answer, Filesystem, GENERATION, asking};
use crate::convert::{attributes_of, errno, kind};
use crate::handles::Directory;
use crate::node::{Node, QueryId, Shown};
use canopy_fuse::caller::credentials;
use canopy_model::Wanted;
use canopy_namespace::operation::{Access, Caller, Moment, Operation};
use canopy_namespace::{Entry, Error, FileId, Inode, Listing};
use fuser::{FileHandle, FopenFlags, ReplyDirectory, ReplyDirectoryPlus, ReplyOpen, Request};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

impl Filesystem {
    /// Opens a directory; of a query, finds what it has.
    pub(super) fn open_directory(&self, request: &Request, node: Node, reply: ReplyOpen) {
        let by = match self.by(request) {
            Ok(by) => by,
            Err(error) => return reply.error(errno(&error)),
        };
        let open = |listing| {
            let listing = Arc::new(Mutex::new(listing));
            self.directories.open(Directory::Listing(by.clone(), listing))
        };
        let query = match node {
            Node::Query(query) => query,
            Node::File(id) => {
                if let Err(error) = self.check_listing(request, id) {
                    return reply.error(errno(&error));
                }
                let handle = open(Listing::new(id));
                return reply.opened(handle, self.cached_listing(id));
            }
            Node::Snapshot(directory) => {
                let opened = asking(request)
                    .and_then(|who| self.queries.pasts.open_directory(directory, &who));
                return match opened {
                    Ok(listing) => reply.opened(open(listing), FopenFlags::empty()),
                    Err(error) => reply.error(errno(&error)),
                };
            }
        };
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let directories = self.directories.clone();
        self.queries.run_query(uid, node, move |queries, turn| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            match who.and_then(|who| queries.find(query, &who, turn)) {
                Ok(found) => {
                    let handle = directories.open(Directory::Query(found));
                    reply.opened(handle, FopenFlags::empty());
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    /// Has servers check that the user behind a request may read a directory, if they check users.
    fn check_listing(&self, request: &Request, id: FileId) -> Answer<()> {
        if !self.names_users {
            return Ok(());
        }
        let open = Operation::Access(Access::Open(id, Wanted::READ));
        self.namespace.execute_for(Caller::User(&asking(request)?), &open).map(drop)
    }

    /// Returns how the kernel keeps the names of a directory: not at all if others change them.
    /// It asks again where reading the names changes the directory's time of access.
    fn cached_listing(&self, id: FileId) -> FopenFlags {
        if self.cache_times.is_some() || self.namespace.state().is_ok_and(|state| state.has_strays)
        {
            return FopenFlags::empty();
        }
        let is_due = !self.is_read_only && self.namespace.is_access_due(id).unwrap_or(true);
        let kept = if is_due { FopenFlags::empty() } else { FopenFlags::FOPEN_KEEP_CACHE };
        FopenFlags::FOPEN_CACHE_DIR | kept
    }

    /// Replies with names from an offset on.
    pub(super) fn list_names(
        &self,
        node: Node,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The kernel does not know what it is only told the names of.
        let let_go = |link: QueryId| self.queries.nodes.release(link, 1);
        let add = |cookie, name: &[u8], node: Node, inode: &Inode, _| {
            reply.add(node.into(), cookie, kind(inode), OsStr::from_bytes(name))
        };
        let listed = self.list(node, handle, offset, add, let_go);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Replies with names from an offset on, with attributes. Holds their nodes.
    pub(super) fn list_entries(
        &self,
        node: Node,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let ttl = self.ttl_of(node);
        let add = |cookie, name: &[u8], node: Node, inode: &Inode, is_entry: bool| {
            let (name, attributes) = (OsStr::from_bytes(name), attributes_of(node, inode));
            let held = match node {
                Node::File(id) if is_entry => Some(id),
                _ => None,
            };
            if held.is_some_and(|id| self.namespace.hold(id).is_err()) {
                return true;
            }
            let ttl = ttl.of(&*self.namespace, inode);
            let is_full = reply.add(attributes.ino, cookie, name, &ttl, &attributes, GENERATION);
            if is_full && let Some(id) = held {
                let _ = self.namespace.release(id, 1);
            }
            is_full
        };
        let listed = self.list(node, handle, offset, add, |_| ());
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    /// Returns the directory above one; the directory itself where a user would need a right to know it,
    /// which no number of `..` is worth.
    fn above(&self, id: FileId) -> Answer<FileId> {
        if self.names_users {
            return Ok(id);
        }
        self.namespace.parent(Moment::Now, id)
    }

    /// Adds `.` and `..` and then the entries of a directory, until `add` returns that the reply is
    /// full. `add` takes a cookie, a name, a node with its attributes, and whether it is an entry.
    /// Passes links that were added to `taken`.
    fn list(
        &self,
        node: Node,
        handle: FileHandle,
        offset: u64,
        mut add: impl FnMut(u64, &[u8], Node, &Inode, bool) -> bool,
        taken: impl Fn(QueryId),
    ) -> Answer<()> {
        let directory = self.directories.get(handle).ok_or(rustix::io::Errno::BADF)?;
        let by = match &directory {
            Directory::Listing(by, _) => by.clone(),
            Directory::Query(_) => self.namespace.clone(),
        };
        if offset < 2 {
            let own = self.shown(node)?.inode;
            if offset == 0 && add(1, b".", node, &own, false) {
                return Ok(());
            }
            let above = match node {
                Node::File(id) => Node::File(self.above(id)?),
                Node::Snapshot(directory) => {
                    Node::Snapshot(self.queries.pasts.parent(&*by, directory)?)
                }
                Node::Query(_) => node,
            };
            if add(2, b"..", above, &own, false) {
                return Ok(());
            }
        }
        match directory {
            Directory::Listing(_, listing) => {
                let (listing, after) = (&mut listing.lock(), offset.max(2));
                match node {
                    Node::Snapshot(directory) => {
                        let add = |cookie, name: &[u8], shown: &Shown| {
                            !add(cookie, name, shown.node, &shown.inode, true)
                        };
                        self.queries.pasts.list(&*by, directory, listing, after, add)?;
                    }
                    _ => by.list(Moment::Now, listing, after, |entry: Entry<'_>| {
                        let node = Node::File(entry.inode.id);
                        !add(entry.cookie, entry.name, node, entry.inode, true)
                    })?,
                }
                self.touch_access(&*by, node)
            }
            Directory::Query(found) => {
                let Node::Query(query) = node else { return Err(rustix::io::Errno::BADF.into()) };
                let first = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
                for at in first..found.count() {
                    let (link, inode) = self.queries.nodes.hold_hit(query, &found, at);
                    if add(at as u64 + 3, found.name(at), Node::Query(link), &inode, true) {
                        self.queries.nodes.release(link, 1);
                        break;
                    }
                    taken(link);
                }
                Ok(())
            }
        }
    }
}
