//! The kernel's requests, one function each. What they do is in `names.rs`, `attributes.rs`,
//! `contents.rs` and `directories.rs`; here are what they share and what takes a line or two.

mod attributes;
mod contents;
mod directories;
mod locks;
mod names;

use crate::convert::{attributes, errno, set_time};
use crate::created::Created;
use crate::handles::{Directories, Modes};
use crate::locks::{Locks, is_ending};
use crate::node::{Node, Shown};
use crate::pool::{CONTENTS, Pool};
use crate::queries::Queries;
use crate::shown_names::ShownNames;
use crate::ttl::CacheTimes;
use crate::{Options, behalf};
use canopy_as_user::Accounts;
use canopy_events::LimitedEvents;
use canopy_fuse::attributes::process;
use canopy_fuse::caller::credentials;
use canopy_model::Credentials;
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{FileLocks, program};
use canopy_namespace::{EntryName, Error, Execute, FileId, New, ROOT, SetAttributes};
use fuser::{
    BsdFileFlags, FileHandle, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How long the kernel may cache replies where all changes come through it.
const TTL: Duration = Duration::from_secs(3600);

/// Ids are never used again, so there is one generation.
const GENERATION: Generation = Generation(0);

/// The largest write, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;

type Answer<T> = Result<T, Error>;

#[derive(Clone)]
pub(crate) struct Filesystem {
    namespace: Arc<dyn Execute>,
    queries: Arc<Queries>,
    directories: Arc<Directories>,
    modes: Arc<Modes>,
    /// Locks of programs, if servers keep them.
    locks: Option<Arc<Locks>>,
    /// For contents that lie in storage, which may take long to fetch and to send.
    transfers: Option<Arc<Pool>>,
    /// Faults of the storage, which reads can cause again and again.
    events: Arc<LimitedEvents>,
    passes_through: bool,
    is_read_only: bool,
    /// How long the kernel may believe something, if others change the namespace, too.
    cache_times: Option<CacheTimes>,
    /// Files that were just made, where others change the namespace, too.
    created: Arc<Created>,
    /// Names that the kernel has of directories, where other mounts rename them.
    shown_names: Option<Arc<ShownNames>>,
    /// Whether operations name the user behind them.
    names_users: bool,
    /// The kernel's root: that of the namespace, or of a snapshot.
    root: Node,
}

impl Filesystem {
    /// Returns how long the kernel may believe what is looked up from now on. What a crash has left
    /// may give files other sizes and times until it was looked at.
    fn ttl(&self) -> CacheTimes {
        if let Some(cache_times) = self.cache_times {
            return cache_times;
        }
        let is_settled = self.namespace.state().is_ok_and(|state| !state.has_strays);
        if is_settled { CacheTimes::all_for(TTL) } else { CacheTimes::NOTHING }
    }

    /// Returns the namespace for the user behind a request: where servers check that user's rights, it
    /// names the user.
    fn by(&self, request: &Request) -> Answer<Arc<dyn Execute>> {
        match self.names_users {
            true => behalf::of(&self.namespace, request),
            false => Ok(self.namespace.clone()),
        }
    }

    /// Begins to work for the program behind a request: a signal to it ends waits for servers. Writes
    /// and all that sends them (flush, fsync, release) are not interrupted.
    fn work_for(&self, request: &Request) -> Option<program::Working> {
        let has_servers = self.locks.is_some();
        has_servers.then(|| program::work_for(request.pid(), is_ending))
    }

    /// Returns the locks of programs, if servers keep them.
    pub(crate) fn locks(&self) -> Option<Arc<Locks>> {
        self.locks.clone()
    }

    /// Returns the servers that keep locks of programs, if they do.
    pub(crate) fn servers_of_locks(&self) -> Option<&dyn FileLocks> {
        self.namespace.locks()
    }

    /// Returns the names that the kernel has of directories, if other mounts rename them.
    pub(crate) fn shown_names(&self) -> Option<Arc<ShownNames>> {
        self.shown_names.clone()
    }

    pub(crate) fn new(namespace: Arc<dyn Execute>, options: &Options) -> Answer<Self> {
        let accounts = Accounts::system();
        let queries =
            Arc::new(Queries::new(namespace.clone(), accounts.clone(), options.names_users));
        let root = match &options.snapshot {
            None => Node::File(ROOT),
            Some(name) => queries.pasts.enter_root(name.as_bytes())?.node,
        };
        Ok(Filesystem {
            queries,
            transfers: (namespace.settings()?.chunk_bytes > 0)
                .then(|| Arc::new(Pool::new(CONTENTS, accounts))),
            events: Arc::default(),
            locks: locks::of(&*namespace),
            namespace,
            directories: Arc::default(),
            modes: Arc::default(),
            passes_through: options.passes_through,
            is_read_only: options.is_read_only,
            cache_times: options.cache_times,
            created: Arc::default(),
            shown_names: options.cache_times.map(|_| Arc::default()),
            names_users: options.names_users,
            root,
        })
    }

    /// Returns the node that the kernel names.
    fn node(&self, id: INodeNo) -> Node {
        match Node::from(id) {
            Node::File(ROOT) => self.root,
            node => node,
        }
    }

    /// Returns how long the kernel may cache the attributes of a node from now on.
    fn ttl_of(&self, node: Node) -> CacheTimes {
        if node.is_current() { self.ttl() } else { CacheTimes::NOTHING }
    }
}

/// Returns the file of a node that can be changed. `EROFS` for queries and files of snapshots.
fn real(node: Node) -> Answer<FileId> {
    match node {
        Node::File(id) => Ok(id),
        Node::Query(_) | Node::Snapshot(_) => Err(rustix::io::Errno::ROFS.into()),
    }
}

/// Returns who asks.
fn asking(request: &Request) -> Answer<Credentials> {
    Ok(credentials(request.uid(), request.gid(), request.pid())?)
}

fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

impl fuser::Filesystem for Filesystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ];
        for flag in wanted {
            // A kernel without it does it in a slower way.
            let _ = config.add_capabilities(flag);
        }
        if self.locks.is_some() {
            // Without them, the kernel keeps locks of this machine alone.
            for flag in [InitFlags::FUSE_POSIX_LOCKS, InitFlags::FUSE_FLOCK_LOCKS] {
                let _ = config.add_capabilities(flag);
            }
        }
        // Names that servers report are not cached, and each would have to be held.
        if self.cache_times.is_none() {
            let plus = InitFlags::FUSE_DO_READDIRPLUS | InitFlags::FUSE_READDIRPLUS_AUTO;
            let _ = config.add_capabilities(plus);
        }
        if self.passes_through {
            let known = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
            self.passes_through = known.is_ok() && config.set_max_stack_depth(1).is_ok();
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let _work = self.work_for(request);
        self.find_name(request, self.node(parent), name, reply);
    }

    fn forget(&self, _: &Request, id: INodeNo, times: u64) {
        match Node::from(id) {
            Node::Query(id) => self.queries.nodes.release(id, times),
            Node::Snapshot(_) => {}
            Node::File(id) => {
                // The next opening of the namespace completes a release that fails here.
                let _ = self.namespace.release(id, times);
            }
        }
    }

    fn getattr(&self, request: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let _work = self.work_for(request);
        let node = self.node(id);
        let created = match node {
            Node::File(id) => self.created.take(request.pid(), id),
            Node::Query(_) | Node::Snapshot(_) => None,
        };
        match created {
            Some(inode) => reply.attr(&Duration::ZERO, &attributes(&Shown::file(inode))),
            None => self.reply_attributes(node, reply),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let _work = self.work_for(request);
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        // The kernel names the open file for ftruncate(2) alone.
        let is_open = handle.is_some();
        let set = SetAttributes { mode, uid, gid, size, atime, mtime, is_open };
        self.set_attributes(request, self.node(id), set, reply);
    }

    fn readlink(&self, request: &Request, id: INodeNo, reply: ReplyData) {
        let _work = self.work_for(request);
        self.reply_target(request, self.node(id), reply);
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let _work = self.work_for(request);
        let mode = if mode & TYPE_MASK == 0 { mode | file_type::REGULAR } else { mode };
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, rdev, ..New::default() };
        self.create_entry(request, self.node(parent), name, &new, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let _work = self.work_for(request);
        let mode = file_type::DIRECTORY | mode & 0o7777;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, ..New::default() };
        self.create_entry(request, self.node(parent), name, &new, reply);
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _work = self.work_for(request);
        let removed = real(self.node(parent))
            .and_then(|parent| self.by(request)?.unlink(EntryName::new(parent, name.as_bytes())));
        empty(reply, removed.map(drop));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _work = self.work_for(request);
        let removed = real(self.node(parent))
            .and_then(|parent| self.by(request)?.rmdir(EntryName::new(parent, name.as_bytes())));
        if let (Some(names), Ok(_)) = (&self.shown_names, &removed) {
            names.remove(parent, name);
        }
        empty(reply, removed.map(drop));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let _work = self.work_for(request);
        let target = target.as_os_str().as_bytes().to_vec();
        let (uid, gid) = (request.uid(), request.gid());
        let mode = file_type::SYMLINK | 0o777;
        let new = New { mode, uid, gid, target, ..New::default() };
        self.create_entry(request, self.node(parent), name, &new, reply);
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let _work = self.work_for(request);
        let old = names::NodeName { parent: self.node(parent), name };
        let new = names::NodeName { parent: self.node(new_parent), name: new_name };
        self.rename_entry(request, old, new, flags, reply);
    }

    fn link(
        &self,
        request: &Request,
        id: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let _work = self.work_for(request);
        self.add_link(request, self.node(id), self.node(parent), name, reply);
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let _work = self.work_for(request);
        self.open_file(request, self.node(id), flags, reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let _work = self.work_for(request);
        let mode = file_type::REGULAR | mode & 0o7777;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, ..New::default() };
        self.create_file(request, self.node(parent), name, &new, flags, reply);
    }

    fn read(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let _work = self.work_for(request);
        let part = contents::FilePart { offset, size };
        self.read_file(request, self.node(id), handle, part, flags, reply);
    }

    fn write(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        open_flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let appends = self.cache_times.is_some() && open_flags.0 & nix::libc::O_APPEND != 0;
        let place = contents::WritePlace { offset, appends };
        self.write_file(request, self.node(id), place, data, flags, reply);
    }

    fn flush(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.publish_file(request, self.node(id), handle, owner, reply);
    }

    fn release(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.close_file(request, self.node(id), handle, reply);
    }

    fn fsync(&self, request: &Request, id: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.sync_file(request, self.node(id), reply);
    }

    fn opendir(&self, request: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let _work = self.work_for(request);
        self.open_directory(request, self.node(id), reply);
    }

    fn readdir(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectory,
    ) {
        let _work = self.work_for(request);
        self.list_names(self.node(id), handle, offset, reply);
    }

    fn readdirplus(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        reply: ReplyDirectoryPlus,
    ) {
        let _work = self.work_for(request);
        self.list_entries(self.node(id), handle, offset, reply);
    }

    fn releasedir(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.close(handle);
        if matches!(Node::from(id), Node::Query(_)) {
            self.queries.forget_old();
        }
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, id: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let _work = self.work_for(request);
        empty(
            reply,
            match self.node(id) {
                Node::File(id) => self.namespace.sync_inode(id),
                Node::Query(_) | Node::Snapshot(_) => Ok(()),
            },
        );
    }

    fn statfs(&self, request: &Request, id: INodeNo, reply: ReplyStatfs) {
        let _work = self.work_for(request);
        self.reply_space(self.node(id), reply);
    }

    fn setxattr(
        &self,
        request: &Request,
        id: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let _work = self.work_for(request);
        self.set_xattr(request, self.node(id), name, value, flags, reply);
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let _work = self.work_for(request);
        if let Some(process) = process(id, name.as_bytes(), request.uid()) {
            return attributes::xattr(reply, &process, size);
        }
        self.reply_xattr(request, self.node(id), name, size, reply);
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let _work = self.work_for(request);
        self.reply_xattrs(request, self.node(id), size, reply);
    }

    fn removexattr(&self, request: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let _work = self.work_for(request);
        self.remove_xattr(request, self.node(id), name, reply);
    }

    fn getlk(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let _work = self.work_for(request);
        let call = locks::LockCall { handle, owner: owner.0, start, end, kind, pid };
        self.reply_lock(request, self.node(id), call, reply);
    }

    fn setlk(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        // An unlock has to be made.
        let _work = (kind != nix::libc::F_UNLCK).then(|| self.work_for(request));
        let call = locks::LockCall { handle, owner: owner.0, start, end, kind, pid };
        self.change_lock(request, self.node(id), call, waits, reply);
    }

    fn fallocate(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.allocate(request, self.node(id), offset, length, mode, reply);
    }

    fn lseek(
        &self,
        request: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let _work = self.work_for(request);
        self.seek(self.node(id), handle, offset, whence, reply);
    }
}
