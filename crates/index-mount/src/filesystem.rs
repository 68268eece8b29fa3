//! The kernel's requests, one function each. All but those about the mount itself go to the process
//! that answers for the caller (`views`).

use crate::handles::{Handle, Handles, Page};
use crate::nodes::{Hit, Node, Nodes};
use crate::protocol::{Entry, Folder, KnownEntry, ReplyKind, RequestKind};
use crate::recent::Recent;
use crate::view::UserView;
use crate::views::Views;
use canopy_as_user::{Accounts, Class};
use canopy_fuse::attributes::{ERROR, PLAN, process};
use canopy_fuse::caller::credentials;
use canopy_fuse::results::is_query;
use canopy_model::Credentials;
use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyXattr, Request,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Ids are distinguished by types, and by inode numbers.
const GENERATION: Generation = Generation(0);

/// The longest name, in bytes.
const NAME_BYTES_MAX: u32 = 255;

/// How every query is answered.
const PLANNED: &[u8] = b"looks in: the index; blocks of rows are skipped whose least and greatest \
    sizes, times and owners rule the query out\n";

type Answer<T> = Result<T, nix::errno::Errno>;

/// State that every request needs, even if it is answered later.
pub(crate) struct Shared {
    nodes: Nodes,
    handles: Handles,
    recent: Recent,
    pub(crate) views: Views,
    /// The only user, if the kernel lets nobody but the owner in.
    owner: Option<Credentials>,
    /// How long the kernel may cache replies. With several users, not at all: it would show one the
    /// replies for another.
    ttl: Duration,
}

pub(crate) struct Filesystem(Arc<Shared>);

impl Filesystem {
    pub(crate) fn new(
        views: Views,
        accounts: Accounts,
        owner: Option<Credentials>,
        ttl: Duration,
    ) -> Self {
        let handles = Handles::new(accounts.clone());
        let (nodes, recent) = (Nodes::new(), Recent::new(accounts));
        Filesystem(Arc::new(Shared { nodes, handles, recent, views, owner, ttl }))
    }
}

impl Shared {
    /// Returns the caller, with all groups. Fails if these cannot be found: without them, a user
    /// might see entries that are for all but a group.
    fn who(&self, request: &Request) -> Answer<Credentials> {
        if let Some(owner) = &self.owner {
            return Ok(owner.clone());
        }
        let who = credentials(request.uid(), request.gid(), request.pid());
        let who = who.map_err(|_| nix::errno::Errno::EACCES)?;
        // Groups change nothing of what root sees.
        Ok(if who.is_root() { Credentials::new(0, []) } else { who })
    }

    fn node(&self, id: INodeNo) -> Answer<Node> {
        self.nodes.get(id.0).ok_or(nix::errno::Errno::ESTALE)
    }

    /// Asks for who makes a request, and calls `then` with the answer.
    fn ask(
        self: &Arc<Self>,
        who: &Credentials,
        asked: RequestKind,
        then: impl FnOnce(&Shared, Answer<ReplyKind>) + Send + 'static,
    ) {
        self.ask_for(who, Class::Prompt, asked, then);
    }

    fn ask_for(
        self: &Arc<Self>,
        who: &Credentials,
        class: Class,
        asked: RequestKind,
        then: impl FnOnce(&Shared, Answer<ReplyKind>) + Send + 'static,
    ) {
        let shared = self.clone();
        // Searches take long, whoever waits for them.
        let class = if UserView::is_search(&asked) { Class::Heavy } else { class };
        self.views.ask(who, &asked, class, move |told| then(&shared, told));
    }

    /// Asks something of an entry that has an id. Other nodes are passed to `other`.
    fn ask_entry<R: Send + 'static>(
        self: &Arc<Self>,
        request: &Request,
        id: INodeNo,
        reply: R,
        question: impl FnOnce(KnownEntry) -> RequestKind,
        then: impl FnOnce(&Shared, R, Answer<ReplyKind>) + Send + 'static,
        other: impl FnOnce(&Shared, R, Answer<(Node, Credentials)>),
    ) {
        let asks = self.who(request).and_then(|who| Ok((self.node(id)?, who)));
        match asks {
            Ok((Node::Entry(place), who)) => {
                self.ask(&who, question(place), |shared, told| then(shared, reply, told));
            }
            asks => other(self, reply, asks),
        }
    }

    /// Returns the entry that the caller has just seen at the first path of `place`.
    fn recent_entry(&self, who: &Credentials, place: &KnownEntry) -> Option<Entry> {
        let entry = self.recent.get(who, place.paths.first()?)?;
        place.inode.is_none_or(|inode| inode == (entry.dev, entry.ino)).then_some(entry)
    }

    /// Returns whether the caller has just seen that the entry has no extended attributes.
    fn has_no_xattrs(&self, request: &Request, id: INodeNo) -> bool {
        let entry = self.who(request).and_then(|who| match self.node(id)? {
            Node::Entry(place) => Ok(self.recent_entry(&who, &place)),
            _ => Ok(None),
        });
        matches!(entry, Ok(Some(entry)) if !entry.has_xattrs)
    }

    fn folder(&self, id: INodeNo) -> Answer<Folder> {
        match self.node(id)? {
            Node::Entry(place) => Ok(Folder { place, queries: Vec::new() }),
            Node::Query(folder) => Ok(folder),
            Node::Hit(_) => Err(nix::errno::Errno::ENOTDIR),
        }
    }

    /// Keeps the node of a name, and returns its attributes.
    fn hold(
        &self,
        folder: &Folder,
        name: &[u8],
        told: ReplyKind,
        who: Credentials,
    ) -> Answer<FileAttr> {
        match told {
            ReplyKind::Query => {
                let mut folder = folder.clone();
                folder.queries.push(name.to_vec());
                Ok(query_attributes(self.nodes.hold_query(folder)))
            }
            ReplyKind::Entry(entry, path) if folder.queries.is_empty() => {
                self.recent.add(&who, [(path.clone(), &entry)]);
                let id = self.nodes.hold_entry(&entry, path);
                Ok(attributes(id, &entry))
            }
            ReplyKind::Entry(entry, _) => {
                let hit = Hit { who, entry: entry.clone() };
                Ok(attributes(self.nodes.hold_hit(folder, name, hit), &entry))
            }
            _ => Err(nix::errno::Errno::EIO),
        }
    }

    /// Adds entries of an open directory until `add` returns that the page is full. `add` takes the
    /// offset of the next entry, a name, an entry if it may be held, and the attributes.
    fn add_page(
        &self,
        id: INodeNo,
        handle: &Handle,
        page: &Page,
        offset: u64,
        add: &mut dyn FnMut(u64, &[u8], Option<&Entry>, FileAttr) -> bool,
    ) {
        let own = query_attributes(id.0);
        if offset == 0 && add(1, b".", None, own) {
            return;
        }
        // The kernel knows what is above.
        if offset <= 1 && add(2, b"..", None, own) {
            return;
        }
        let first = offset.saturating_sub(2);
        let path = handle.folder.place.paths.first().map_or(&b""[..], Vec::as_slice);
        for (at, (name, entry)) in (page.first..).zip(&page.entries) {
            if at < first {
                continue;
            }
            let number = match handle.folder.queries.is_empty() {
                true => self.nodes.number(entry, &below(path, name)),
                false => u64::MAX >> 1,
            };
            if add(at + 3, name, Some(entry), attributes(number, entry)) {
                break;
            }
        }
    }

    /// Remembers the entries of a page for the credentials that got them.
    fn remember(&self, who: &Credentials, folder: &Folder, page: &Page) {
        if let Some(path) = folder.place.paths.first().filter(|_| folder.queries.is_empty()) {
            let entries = page.entries.iter();
            self.recent.add(who, entries.map(|(name, entry)| (below(path, name), entry)));
        }
    }

    /// Reads entries of an open directory as who asks sees them, and gives `done` a page of them
    /// that has the one at an offset.
    fn read_directory<R: Send + 'static>(
        self: &Arc<Self>,
        request: &Request,
        id: INodeNo,
        number: FileHandle,
        offset: u64,
        reply: R,
        done: impl FnOnce(&Shared, R, Answer<(Arc<Handle>, Arc<Page>)>) + Send + 'static,
    ) {
        let who = match self.who(request) {
            Ok(who) => who,
            Err(errno) => return done(self, reply, Err(errno)),
        };
        let handle = self.handles.get(number.0);
        let handle = handle.map_or_else(
            || self.folder(id).map(|folder| Arc::new(self.handles.handle(folder, who.clone()))),
            Ok,
        );
        let handle = match handle {
            Ok(handle) => handle,
            Err(errno) => return done(self, reply, Err(errno)),
        };
        let first = offset.saturating_sub(2);
        // Only who opened it is told what was listed then.
        let page = (handle.who == who).then(|| self.handles.page(number.0, first)).flatten();
        if let Some(page) = page {
            return done(self, reply, Ok((handle, page)));
        }
        let asked = RequestKind::List { folder: handle.folder.clone(), handle: number.0, first };
        self.ask(&who.clone(), asked, move |shared, told| match told {
            Ok(ReplyKind::Page(entries, is_more)) => {
                let page = Arc::new(Page { first, entries, is_more });
                shared.remember(&who, &handle.folder, &page);
                if handle.who == who {
                    shared.handles.keep_page(number.0, page.clone());
                }
                done(shared, reply, Ok((handle, page)));
            }
            Ok(_) => done(shared, reply, Err(nix::errno::Errno::EIO)),
            Err(errno) => done(shared, reply, Err(errno)),
        });
    }
}

/// Returns the path of a name in a directory.
fn below(directory: &[u8], name: &[u8]) -> Vec<u8> {
    [directory, if directory.is_empty() { b"" } else { b"/" }, name].concat()
}

fn errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_i32(errno as i32)
}

fn query_attributes(id: u64) -> FileAttr {
    let entry = Entry { mode: 0o040_555, nlink: 2, blksize: 4096, ..Entry::default() };
    attributes(id, &entry)
}

fn attributes(id: u64, entry: &Entry) -> FileAttr {
    FileAttr {
        ino: INodeNo(id),
        size: entry.size,
        blocks: entry.blocks,
        atime: system_time(entry.atime_ns),
        mtime: system_time(entry.mtime_ns),
        ctime: system_time(entry.ctime_ns),
        crtime: system_time(entry.btime_ns),
        kind: match entry.mode & 0o170_000 {
            0o040_000 => FileType::Directory,
            0o120_000 => FileType::Symlink,
            0o010_000 => FileType::NamedPipe,
            0o140_000 => FileType::Socket,
            0o020_000 => FileType::CharDevice,
            0o060_000 => FileType::BlockDevice,
            _ => FileType::RegularFile,
        },
        perm: (entry.mode & 0o7777) as u16,
        nlink: entry.nlink,
        uid: entry.uid,
        gid: entry.gid,
        rdev: entry.rdev,
        blksize: entry.blksize,
        flags: 0,
    }
}

fn system_time(time_ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(time_ns.unsigned_abs());
    if time_ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let mut wanted = vec![InitFlags::FUSE_PARALLEL_DIROPS];
        if !self.0.ttl.is_zero() {
            wanted.extend([InitFlags::FUSE_DO_READDIRPLUS, InitFlags::FUSE_READDIRPLUS_AUTO]);
        }
        for flag in wanted {
            // A kernel without it does it in a slower way.
            let _ = config.add_capabilities(flag);
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let shared = &self.0;
        let asks = shared.who(request).and_then(|who| Ok((shared.folder(parent)?, who)));
        let (folder, who) = match asks {
            Ok(asks) => asks,
            Err(error) => return reply.error(errno(error)),
        };
        let name = name.as_bytes().to_vec();
        if let Some(path) = folder.place.paths.first().filter(|_| folder.queries.is_empty()) {
            let path = below(path, &name);
            if let Some(entry) = shared.recent.get(&who, &path) {
                let id = shared.nodes.hold_entry(&entry, path);
                return reply.entry(&shared.ttl, &attributes(id, &entry), GENERATION);
            }
        }
        let asked = RequestKind::Lookup(folder.clone(), name.clone());
        shared.ask(&who.clone(), asked, move |shared, told| {
            // The user's results of a query may change, whatever the kernel knows from others.
            let is_virtual = !folder.queries.is_empty() || is_query(&name);
            let ttl = if is_virtual { Duration::ZERO } else { shared.ttl };
            match told.and_then(|told| shared.hold(&folder, &name, told, who)) {
                Ok(attributes) => reply.entry(&ttl, &attributes, GENERATION),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn forget(&self, _: &Request, id: INodeNo, times: u64) {
        self.0.nodes.release(id.0, times);
    }

    fn getattr(&self, request: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let asks = self.0.who(request).and_then(|who| Ok((self.0.node(id)?, who)));
        if let Ok((Node::Entry(place), who)) = &asks
            && let Some(entry) = self.0.recent_entry(who, place)
        {
            return reply.attr(&self.0.ttl, &attributes(id.0, &entry));
        }
        self.0.ask_entry(
            request,
            id,
            reply,
            RequestKind::Attributes,
            move |shared, reply, told| match told {
                Ok(ReplyKind::Entry(entry, _)) => {
                    reply.attr(&shared.ttl, &attributes(id.0, &entry))
                }
                Ok(_) => reply.error(Errno::EIO),
                Err(error) => reply.error(errno(error)),
            },
            |_, reply, asks| match asks {
                Ok((Node::Hit(hit), who)) if hit.who == who => {
                    reply.attr(&Duration::ZERO, &attributes(id.0, &hit.entry));
                }
                Ok((Node::Hit(_), _)) => reply.error(Errno::EACCES),
                Ok(_) => reply.attr(&Duration::ZERO, &query_attributes(id.0)),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn readlink(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        self.0.ask_entry(
            request,
            id,
            reply,
            RequestKind::Attributes,
            |_, reply, told| match told {
                Ok(ReplyKind::Entry(entry, _)) if !entry.target.is_empty() => {
                    reply.data(&entry.target)
                }
                Ok(_) => reply.error(Errno::EINVAL),
                Err(error) => reply.error(errno(error)),
            },
            |_, reply, asks| match asks {
                Ok((Node::Hit(hit), who)) if hit.who == who => reply.data(&hit.entry.target),
                Ok((Node::Hit(_), _)) => reply.error(Errno::EACCES),
                Ok(_) => reply.error(Errno::EINVAL),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        // An index has no contents.
        reply.error(Errno::EOPNOTSUPP);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        reply.error(Errno::EOPNOTSUPP);
    }

    fn access(&self, request: &Request, id: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        let bits = mask.bits() as u32 & 7;
        self.0.ask_entry(
            request,
            id,
            reply,
            |place| RequestKind::Access(place, bits),
            |_, reply, told| match told {
                Ok(_) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            },
            move |_, reply, asks| match asks {
                Ok(_) if bits & 2 != 0 => reply.error(Errno::EROFS),
                Ok(_) => reply.ok(),
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn opendir(&self, request: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let shared = &self.0;
        let asks = shared.who(request).and_then(|who| Ok((shared.folder(id)?, who)));
        let (folder, who) = match asks {
            Ok(asks) => asks,
            Err(error) => return reply.error(errno(error)),
        };
        let number = shared.handles.next();
        let asked = RequestKind::List { folder: folder.clone(), handle: number, first: 0 };
        // Nothing is locked yet.
        shared.ask_for(&who.clone(), Class::Long, asked, move |shared, told| match told {
            Ok(ReplyKind::Page(entries, is_more)) => {
                let page = Arc::new(Page { first: 0, entries, is_more });
                shared.remember(&who, &folder, &page);
                shared.handles.open(number, shared.handles.handle(folder, who));
                shared.handles.keep_page(number, page);
                reply.opened(FileHandle(number), FopenFlags::empty());
            }
            Ok(_) => reply.error(Errno::EIO),
            Err(error) => reply.error(errno(error)),
        });
    }

    fn readdir(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        self.0.read_directory(
            request,
            id,
            handle,
            offset,
            reply,
            move |shared, mut reply, read| match read {
                Ok((handle, page)) => {
                    let mut add = |next, name: &[u8], _: Option<&Entry>, about: FileAttr| {
                        reply.add(about.ino, next, about.kind, OsStr::from_bytes(name))
                    };
                    shared.add_page(id, &handle, &page, offset, &mut add);
                    reply.ok();
                }
                Err(error) => reply.error(errno(error)),
            },
        );
    }

    fn readdirplus(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        self.0.read_directory(
            request,
            id,
            handle,
            offset,
            reply,
            move |shared, mut reply, read| {
                let (handle, page) = match read {
                    Ok(read) => read,
                    Err(error) => return reply.error(errno(error)),
                };
                let queries = &handle.folder.queries;
                let ttl = if queries.is_empty() { shared.ttl } else { Duration::ZERO };
                let path = handle.folder.place.paths.first().map_or(&b""[..], Vec::as_slice);
                let mut add = |next, name: &[u8], entry: Option<&Entry>, mut about: FileAttr| {
                    if let Some(entry) = entry {
                        let held = match queries.is_empty() {
                            true => shared.nodes.hold_entry(entry, below(path, name)),
                            false => {
                                let hit = Hit { who: handle.who.clone(), entry: entry.clone() };
                                shared.nodes.hold_hit(&handle.folder, name, hit)
                            }
                        };
                        about.ino = INodeNo(held);
                    }
                    let shown = OsStr::from_bytes(name);
                    let is_full = reply.add(about.ino, next, shown, &ttl, &about, GENERATION);
                    if is_full && entry.is_some() {
                        shared.nodes.release(about.ino.0, 1);
                    }
                    is_full
                };
                shared.add_page(id, &handle, &page, offset, &mut add);
                reply.ok();
            },
        );
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        if let Some(closed) = self.0.handles.close(handle.0) {
            // A process that has ended knows nothing of it.
            self.0.views.notify(&closed.who, &RequestKind::Close(handle.0));
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        reply.statfs(0, 0, 0, 0, 0, 4096, NAME_BYTES_MAX, 4096);
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if let Some(process) = process(id, name.as_bytes(), request.uid()) {
            return xattr(reply, Ok(ReplyKind::Bytes(process)), size);
        }
        let name = name.as_bytes().to_vec();
        let is_plan = name == PLAN.as_bytes();
        // Why a query failed is not an attribute of the entry.
        if name != ERROR.as_bytes() && self.0.has_no_xattrs(request, id) {
            return reply.error(Errno::ENODATA);
        }
        self.0.ask_entry(
            request,
            id,
            reply,
            |place| RequestKind::Xattr(place, name),
            move |_, reply, told| xattr(reply, told, size),
            move |_, reply, asks| match asks {
                Ok((Node::Query(_), _)) if is_plan => {
                    xattr(reply, Ok(ReplyKind::Bytes(PLANNED.to_vec())), size);
                }
                asks => reply.error(asks.err().map_or(Errno::ENODATA, errno)),
            },
        );
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        if self.0.has_no_xattrs(request, id) {
            return xattr(reply, Ok(ReplyKind::Bytes(Vec::new())), size);
        }
        self.0.ask_entry(
            request,
            id,
            reply,
            RequestKind::XattrNames,
            move |_, reply, told| xattr(reply, told, size),
            move |_, reply, asks| match asks {
                Ok(_) => xattr(reply, Ok(ReplyKind::Bytes(Vec::new())), size),
                Err(error) => reply.error(errno(error)),
            },
        );
    }
}

/// Answers with a value, or with its size if none is taken.
fn xattr(reply: ReplyXattr, told: Answer<ReplyKind>, size: u32) {
    match told {
        Ok(ReplyKind::Bytes(value)) if size == 0 => reply.size(value.len() as u32),
        Ok(ReplyKind::Bytes(value)) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(ReplyKind::Bytes(value)) => reply.data(&value),
        Ok(_) => reply.error(Errno::EIO),
        Err(error) => reply.error(errno(error)),
    }
}
