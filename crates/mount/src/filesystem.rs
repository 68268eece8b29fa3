//! The kernel's requests, one function each.

use crate::caller::credentials;
use crate::convert::{attributes, errno, kind, set_time};
use crate::handles::{Directories, Directory, Modes, PASSED_THROUGH};
use crate::past::is_past;
use crate::pool::{CONTENTS, Pool};
use crate::queries::{Log, Queries, is_virtual};
use crate::results::is_query;
use crate::{Options, control, quotas};
use canopy_model::Credentials;
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::quota::Quota;
use canopy_namespace::{
    Entry, Error, Inode, Listing, NAME_BYTES_MAX, Namespace, New, Privileges, RenameMode,
    SetAttributes, SetXattr, acl,
};
use fuser::{
    BsdFileFlags, Errno, FileHandle, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long the kernel may believe what it was told. All changes come through it.
const TTL: Duration = Duration::from_secs(3600);

/// Ids are never used again, so there is one generation.
const GENERATION: Generation = Generation(0);

/// More than so many bytes that a snapshot needs are copied by another thread before a change.
const KEPT_AT_ONCE_BYTES: u64 = 8 << 20;

/// So many failures of storage a minute are told of.
const FAILURES_MAX: u32 = 100;

/// The largest write, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;

const O_NOATIME: i32 = 0o1000000;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

type Answer<T> = Result<T, Error>;

#[derive(Clone)]
pub(crate) struct Filesystem {
    namespace: Arc<Namespace>,
    queries: Arc<Queries>,
    directories: Arc<Directories>,
    modes: Arc<Modes>,
    /// For contents that lie in storage, which may take long to fetch and to send.
    transfers: Option<Arc<Pool>>,
    log: Log,
    passes_through: bool,
    is_read_only: bool,
}

impl Filesystem {
    pub(crate) fn new(namespace: Arc<Namespace>, options: &Options) -> Self {
        Filesystem {
            queries: Arc::new(Queries::new(namespace.clone(), options.log.clone())),
            transfers: (namespace.settings().chunk_bytes > 0)
                .then(|| Arc::new(Pool::new(CONTENTS))),
            log: seldom(options.log.clone()),
            namespace,
            directories: Arc::default(),
            modes: Arc::default(),
            passes_through: options.passes_through,
            is_read_only: options.is_read_only,
        }
    }

    /// Looks a name up that no record has: a query, or a result of one.
    fn look_up_virtual(&self, request: &Request, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let name = name.as_bytes().to_vec();
        let answer = |found: Answer<Inode>, reply: ReplyEntry| match found {
            Ok(inode) => reply.entry(&Duration::ZERO, &attributes(&inode), GENERATION),
            Err(error) => reply.error(errno(&error)),
        };
        if let Some(found) = self.queries.snapshot(parent, &name, || asking(request)) {
            return answer(found, reply);
        }
        if is_query(&name) {
            return answer(self.queries.query(parent, &name), reply);
        }
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        self.queries.run_query(uid, parent, move |queries| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            answer(who.and_then(|who| queries.result(parent, &name, &who)), reply);
        });
    }

    /// Does something with contents: by another thread if it may have to wait for storage.
    fn transfer(&self, uid: u32, is_here: bool, work: impl FnOnce(&Namespace) + Send + 'static) {
        match &self.transfers {
            Some(transfers) if !is_here => {
                let namespace = self.namespace.clone();
                transfers.run(uid, move || work(&namespace));
            }
            _ => work(&self.namespace),
        }
    }

    fn attributes_of(&self, id: u64) -> Answer<Inode> {
        match id {
            _ if is_virtual(id) => self.queries.inode(id),
            _ if is_past(id) => self.queries.pasts.inode(id),
            _ => self.namespace.inode(id),
        }
    }

    /// Returns what the tree that a file is in may use, if it has limits.
    fn tree_of(&self, id: u64) -> Answer<Option<Quota>> {
        match is_virtual(id) || is_past(id) {
            true => Ok(None),
            false => self.namespace.quota_of_tree(id),
        }
    }

    /// Notes that something was read, where anything may change.
    fn touch_access(&self, id: u64) -> Answer<()> {
        if self.is_read_only || is_past(id) { Ok(()) } else { self.namespace.touch_access(id) }
    }

    /// Does what changes the contents of a file: in another thread, once they were copied, if a
    /// snapshot needs so many of them that others would wait.
    fn change(&self, uid: u32, id: u64, change: impl FnOnce(&Self) + Send + 'static) {
        if self.must_copy(id) {
            let this = self.clone();
            return self.queries.run(uid, move |_| {
                // Where that fails, the change fails too, and says why.
                let _ = this.namespace.keep_before_change(id);
                change(&this);
            });
        }
        change(self);
    }

    /// Returns whether so many bytes have to be copied before a file can be changed.
    fn must_copy(&self, id: u64) -> bool {
        self.namespace.bytes_to_keep(id).is_ok_and(|bytes| bytes > KEPT_AT_ONCE_BYTES)
    }

    fn create_entry(&self, parent: INodeNo, name: &OsStr, new: &New, reply: ReplyEntry) {
        let created = free(parent, name)
            .and_then(|parent| self.namespace.create(parent, name.as_bytes(), new, true));
        match created {
            Ok(inode) => reply.entry(&TTL, &attributes(&inode), GENERATION),
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
            Directory::Query(found, _) => {
                let first = usize::try_from(offset.saturating_sub(2)).unwrap_or(usize::MAX);
                for (at, hit) in found.hits.iter().enumerate().skip(first) {
                    let link = self.queries.hold_hit(id.0, hit);
                    if add(at as u64 + 3, &hit.name, &link, true) {
                        self.queries.release(link.id, 1);
                        break;
                    }
                    taken(&link);
                }
                Ok(())
            }
        }
    }

    /// Opens a regular file for the kernel, and returns how.
    fn open_for(
        &self,
        id: INodeNo,
        writes: bool,
        make_backing: impl FnOnce(&std::fs::File) -> io::Result<fuser::BackingId>,
    ) -> Answer<(FileHandle, FopenFlags, Option<Arc<fuser::BackingId>>)> {
        let opened = self.namespace.open_file(id.0)?;
        let is_limited = self.namespace.is_limited(id.0).unwrap_or(true);
        let backing = self.modes.open(id.0, || match opened.file() {
            // Nobody else would see that a limit is passed.
            Some(object) if self.passes_through && !is_limited => make_backing(object).ok(),
            _ => None,
        });
        let noted = match backing.is_some() && writes {
            true => self.namespace.note_written(&opened),
            false => Ok(()),
        };
        let is_due = noted.and_then(|()| self.namespace.is_access_due(id.0));
        let is_due = is_due.inspect_err(|_| {
            self.modes.close(id.0);
            // The first error is told.
            let _ = self.namespace.close_file(&opened);
        })?;
        let mut flags = FopenFlags::FOPEN_NOFLUSH;
        // What is read from the kernel's memory changes no time of access.
        if backing.is_none() && !is_due {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        let handle = if backing.is_some() { PASSED_THROUGH } else { FileHandle(0) };
        Ok((handle, flags, backing))
    }
}

/// Returns the error of an attribute that no user may have here.
fn check_xattr(name: &[u8]) -> Result<(), Errno> {
    let prefixes: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let is_acl = [acl::ACCESS, acl::DEFAULT].iter().any(|one| one.as_bytes() == name);
    let is_known =
        prefixes.iter().any(|prefix| name.starts_with(prefix) && name.len() > prefix.len());
    match is_acl || is_known {
        true => Ok(()),
        false if prefixes.contains(&name) => Err(Errno::EINVAL),
        false => Err(Errno::EOPNOTSUPP),
    }
}

/// Returns the id of what can be changed: not that of a query, nor of a file of a snapshot.
fn real(id: INodeNo) -> Answer<u64> {
    match is_virtual(id.0) || is_past(id.0) {
        true => Err(rustix::io::Errno::ROFS.into()),
        false => Ok(id.0),
    }
}

/// Returns the id of a directory that a file can be called so in: names of snapshots are none of
/// users, who could pass what is theirs off as a snapshot.
fn free(parent: INodeNo, name: &OsStr) -> Answer<u64> {
    let name = name.as_bytes();
    match is_query(name) && name.starts_with(b"[@") {
        true => Err(rustix::io::Errno::PERM.into()),
        false => real(parent),
    }
}

/// Returns who asks.
fn asking(request: &Request) -> Answer<Credentials> {
    Ok(credentials(request.uid(), request.gid(), request.pid())?)
}

/// A process that asks for something.
#[derive(Clone, Copy)]
struct By {
    uid: u32,
    gid: u32,
    pid: u32,
}

impl By {
    fn of(request: &Request) -> Self {
        By { uid: request.uid(), gid: request.gid(), pid: request.pid() }
    }

    /// Returns whether the process is in a group.
    fn is_in(self, gid: u32) -> bool {
        let who = credentials(self.uid, self.gid, self.pid);
        who.is_ok_and(|who| who.is_root() || who.gids.contains(&gid))
    }
}

/// Returns a log that tells of so much a minute at most: anybody may read what is damaged again and
/// again.
fn seldom(log: Log) -> Log {
    let told = Mutex::new((Instant::now(), 0));
    Arc::new(move |said| {
        let mut told = told.lock();
        if told.0.elapsed() >= Duration::from_secs(60) {
            *told = (Instant::now(), 0);
        }
        told.1 += 1;
        if told.1 <= FAILURES_MAX {
            log(said);
        }
    })
}

/// Returns the number of an error of contents, and has the log tell what is wrong with storage.
fn told(log: &Log, error: &Error) -> Errno {
    if !matches!(error, Error::Posix(_)) {
        log(&error.to_string());
    }
    errno(error)
}

fn privileges(keeps: bool, is_in: &dyn Fn(u32) -> bool) -> Privileges<'_> {
    if keeps { Privileges::Keep } else { Privileges::Drop(is_in) }
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
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
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
        if self.passes_through {
            let known = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH);
            self.passes_through = known.is_ok() && config.set_max_stack_depth(1).is_ok();
        }
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if is_virtual(parent.0) {
            return self.look_up_virtual(request, parent.0, name, reply);
        }
        if is_past(parent.0) {
            let found = asking(request)
                .and_then(|who| self.queries.pasts.lookup(parent.0, name.as_bytes(), &who));
            return match found {
                Ok(inode) => reply.entry(&Duration::ZERO, &attributes(&inode), GENERATION),
                Err(error)
                    if error.errno() == rustix::io::Errno::NOENT && is_query(name.as_bytes()) =>
                {
                    self.look_up_virtual(request, parent.0, name, reply);
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        match self.namespace.lookup_held(parent.0, name.as_bytes()) {
            Ok(inode) => reply.entry(&TTL, &attributes(&inode), GENERATION),
            Err(error)
                if error.errno() == rustix::io::Errno::NOENT && is_query(name.as_bytes()) =>
            {
                self.look_up_virtual(request, parent.0, name, reply);
            }
            // All changes come through the kernel, so it may remember what there is not.
            Err(error) if error.errno() == rustix::io::Errno::NOENT => {
                reply.entry(&TTL, &attributes(&Inode::default()), GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn forget(&self, _: &Request, id: INodeNo, times: u64) {
        if is_virtual(id.0) {
            return self.queries.release(id.0, times);
        }
        if is_past(id.0) {
            return;
        }
        // What fails here is left for the next opening of the namespace.
        let _ = self.namespace.release(id.0, times);
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ttl = if is_virtual(id.0) || is_past(id.0) { Duration::ZERO } else { TTL };
        match self.attributes_of(id.0) {
            Ok(inode) => reply.attr(&ttl, &attributes(&inode)),
            Err(error) => reply.error(errno(&error)),
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
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
        };
        let by = By::of(request);
        let set_all = move |this: &Self| {
            let is_in = |gid| by.is_in(gid);
            let privileges = privileges(by.uid == 0, &is_in);
            match real(id).and_then(|id| this.namespace.set_attributes(id, &set, privileges)) {
                Ok(inode) => reply.attr(&TTL, &attributes(&inode)),
                Err(error) => reply.error(errno(&error)),
            }
        };
        match size.is_some() && real(id).is_ok() {
            true => self.change(by.uid, id.0, set_all),
            false => set_all(self),
        }
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        let target = match is_virtual(id.0) {
            true => self.queries.inode(id.0).map(|link| link.target),
            false if is_past(id.0) => self.queries.pasts.inode(id.0).map(|link| link.target),
            false => self.namespace.readlink(id.0).and_then(|target| {
                self.touch_access(id.0)?;
                Ok(target)
            }),
        };
        match target {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
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
        let mode = if mode & TYPE_MASK == 0 { mode | file_type::REGULAR } else { mode };
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, rdev, target: Vec::new() };
        self.create_entry(parent, name, &new, reply);
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
        let mode = file_type::DIRECTORY | mode & 0o7777;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, ..New::default() };
        self.create_entry(parent, name, &new, reply);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed =
            real(parent).and_then(|parent| self.namespace.unlink(parent, name.as_bytes()));
        empty(reply, removed.map(drop));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = real(parent).and_then(|parent| self.namespace.rmdir(parent, name.as_bytes()));
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
        let target = target.as_os_str().as_bytes().to_vec();
        let (uid, gid) = (request.uid(), request.gid());
        let mode = file_type::SYMLINK | 0o777;
        let new = New { mode, uid, gid, target, ..New::default() };
        self.create_entry(parent, name, &new, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = if flags.is_empty() {
            RenameMode::Replace
        } else if flags == RenameFlags::RENAME_NOREPLACE {
            RenameMode::NoReplace
        } else if flags == RenameFlags::RENAME_EXCHANGE {
            RenameMode::Exchange
        } else {
            return reply.error(Errno::EINVAL);
        };
        let renamed = real(parent).and_then(|from| {
            let (from, to) =
                ((from, name.as_bytes()), (free(new_parent, new_name)?, new_name.as_bytes()));
            self.namespace.rename(from, to, mode)
        });
        empty(reply, renamed);
    }

    fn link(&self, _: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = real(id).and_then(|id| {
            let parent = free(parent, name)?;
            self.namespace.link(id, parent, name.as_bytes())
        });
        match linked {
            Ok(inode) => {
                // The kernel holds it already, so it cannot have gone.
                self.namespace.hold(inode.id);
                reply.entry(&TTL, &attributes(&inode), GENERATION);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn open(&self, request: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if is_past(id.0) {
            let opened = match writes {
                true => Err(rustix::io::Errno::ROFS.into()),
                false => asking(request).and_then(|who| self.queries.pasts.open(id.0, &who)),
            };
            return match opened {
                Ok(handle) => {
                    let flags = FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE;
                    reply.opened(handle, flags);
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        let open = move |this: &Self| match this
            .open_for(id, writes, |object| reply.open_backing(object))
        {
            Ok((handle, flags, None)) => reply.opened(handle, flags),
            Ok((handle, flags, Some(backing))) => {
                reply.opened_passthrough(handle, flags, &backing);
            }
            Err(error) => reply.error(errno(&error)),
        };
        // Others are copied when they are first written.
        match writes && self.passes_through {
            true => self.change(request.uid(), id.0, open),
            false => open(self),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        let mode = file_type::REGULAR | mode & 0o7777;
        let (uid, gid) = (request.uid(), request.gid());
        let new = New { mode, umask, uid, gid, ..New::default() };
        let created = free(parent, name)
            .and_then(|parent| self.namespace.create(parent, name.as_bytes(), &new, true));
        let opened = created.and_then(|inode| {
            // A new file has no object yet.
            let opened = self.namespace.open_new_file(&inode);
            self.modes.open(inode.id, || None);
            opened.map(|_| inode)
        });
        match opened {
            Ok(inode) => reply.created(
                &TTL,
                &attributes(&inode),
                GENERATION,
                FileHandle(0),
                FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE,
            ),
            Err(error) => reply.error(errno(&error)),
        }
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
        let log = self.log.clone();
        if is_past(id.0) {
            let queries = self.queries.clone();
            return self.transfer(request.uid(), false, move |_| {
                match queries.pasts.read(handle, offset, size as usize) {
                    Ok(bytes) => reply.data(&bytes),
                    Err(error) => reply.error(told(&log, &error)),
                }
            });
        }
        let opened = match self.namespace.opened(id.0) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(&error)),
        };
        let notes_access = flags.0 & O_NOATIME == 0 && !self.is_read_only;
        let is_here = opened.is_here(offset, size.into(), false);
        self.transfer(request.uid(), is_here, move |namespace| {
            match namespace.read(&opened, offset, size as usize, notes_access) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(told(&log, &error)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let by = By::of(request);
        let opened = match self.namespace.opened(id.0) {
            Ok(opened) => opened,
            Err(error) => return reply.error(errno(&error)),
        };
        let is_here = opened.is_here(offset, data.len() as u64, true);
        let log = self.log.clone();
        let write = move |namespace: &Namespace, data: &[u8], reply: ReplyWrite| {
            let is_in = |gid| by.is_in(gid);
            let privileges = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                true => Privileges::Drop(&is_in),
                // What was written through a map comes from nobody.
                false if by.uid == 0 && !flags.contains(WriteFlags::FUSE_WRITE_CACHE) => {
                    Privileges::Keep
                }
                false => Privileges::KeepBound,
            };
            match namespace.write(&opened, Some(offset), data, privileges) {
                Ok(()) => reply.written(data.len() as u32),
                Err(error) => reply.error(told(&log, &error)),
            }
        };
        if self.must_copy(id.0) {
            let data = data.to_vec();
            let write = move |this: &Self| write(&this.namespace, &data, reply);
            return self.change(by.uid, id.0, write);
        }
        if is_here {
            return write(&self.namespace, data, reply);
        }
        let data = data.to_vec();
        self.transfer(by.uid, false, move |namespace| write(namespace, &data, reply));
    }

    fn release(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if is_past(id.0) {
            self.queries.pasts.close(handle);
            return reply.ok();
        }
        self.modes.close(id.0);
        let closed = self.namespace.opened(id.0);
        empty(reply, closed.and_then(|opened| self.namespace.close_file(&opened)));
    }

    fn fsync(&self, request: &Request, id: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if is_past(id.0) {
            return reply.ok();
        }
        let opened = self.namespace.opened(id.0);
        let log = self.log.clone();
        self.transfer(request.uid(), false, move |namespace| {
            match opened.and_then(|opened| namespace.sync_file(&opened)) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(told(&log, &error)),
            }
        });
    }

    fn opendir(&self, request: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
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
            return reply.opened(handle, FopenFlags::empty());
        }
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let directories = self.directories.clone();
        self.queries.run_query(uid, id.0, move |queries| {
            let who = credentials(uid, gid, pid).map_err(Error::from);
            match who.and_then(|who| queries.find(id.0, &who)) {
                Ok(found) => match directories.open_query(uid, found) {
                    Some(handle) => reply.opened(handle, FopenFlags::empty()),
                    None => reply.error(Errno::EMFILE),
                },
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn readdir(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        // The kernel does not know what it is only told the names of.
        let let_go = |link: &Inode| self.queries.release(link.id, 1);
        let add = |cookie, name: &[u8], inode: &Inode, _| {
            reply.add(INodeNo(inode.id), cookie, kind(inode), OsStr::from_bytes(name))
        };
        let listed = self.list(id, handle, offset, add, let_go);
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdirplus(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let ttl = if is_virtual(id.0) || is_past(id.0) { Duration::ZERO } else { TTL };
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

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.close(handle);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, id: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let is_ours = is_virtual(id.0) || is_past(id.0);
        empty(reply, if is_ours { Ok(()) } else { self.namespace.sync_inode(id.0) });
    }

    fn statfs(&self, _: &Request, id: INodeNo, reply: ReplyStatfs) {
        let space = self.namespace.space().and_then(|mut space| {
            if let Some(tree) = self.tree_of(id.0)? {
                quotas::limit_space(&mut space, &tree);
            }
            Ok(space)
        });
        match space {
            Ok(space) => reply.statfs(
                space.f_blocks,
                space.f_bfree,
                space.f_bavail,
                space.f_files,
                space.f_ffree,
                space.f_bsize as u32,
                NAME_BYTES_MAX as u32,
                space.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        }
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
        let name = name.as_bytes();
        if control::is_control(id.0, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let value = value.to_vec();
            return self.queries.run(request.uid(), move |queries| {
                let set = control::set(&namespace, &name, &value);
                if let Err(error) = &set {
                    queries.tell(&format!("{}: {error}", value.escape_ascii()));
                }
                empty(reply, set);
            });
        }
        if quotas::is_quota(name) {
            // The kernel keeps the directory locked meanwhile: who may not set it, does not wait.
            if !asking(request).is_ok_and(|who| quotas::may_set(name, &who)) {
                return reply.error(Errno::EPERM);
            }
            let (namespace, value) = (self.namespace.clone(), value.to_vec());
            return self.queries.run(request.uid(), move |_| {
                empty(reply, real(id).and_then(|id| quotas::set(&namespace, id, &value)));
            });
        }
        let how = match flags {
            0 => SetXattr::Any,
            XATTR_CREATE => SetXattr::Create,
            XATTR_REPLACE => SetXattr::Replace,
            _ => return reply.error(Errno::EINVAL),
        };
        match check_xattr(name) {
            Err(errno) => reply.error(errno),
            Ok(()) => {
                let by = By::of(request);
                let is_in = |gid| by.is_in(gid);
                let privileges = privileges(by.uid == 0, &is_in);
                let set = real(id)
                    .and_then(|id| self.namespace.set_xattr(id, name, value, how, privileges));
                empty(reply, set);
            }
        }
    }

    fn getxattr(&self, request: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.as_bytes();
        if let Err(errno) = check_xattr(name) {
            return reply.error(errno);
        }
        if is_virtual(id.0) {
            return reply.error(Errno::ENODATA);
        }
        if control::is_control(id.0, name, request.uid()) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            let is_read_only = self.is_read_only;
            return self.queries.run(request.uid(), move |_| {
                match control::get(&namespace, &name, is_read_only) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        if quotas::is_quota(name) && !is_past(id.0) {
            let who = asking(request);
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            return self.queries.run(request.uid(), move |_| {
                match who.and_then(|who| quotas::get(&namespace, id.0, &name, &who)) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        let found = match is_past(id.0) {
            true => asking(request).and_then(|who| self.queries.pasts.xattr(id.0, name, &who)),
            false => self.namespace.xattr(id.0, name),
        };
        match found {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let names = match id.0 {
            id if is_virtual(id) => Ok(Vec::new()),
            id if is_past(id) => self.queries.pasts.xattrs(id),
            id => self.namespace.xattrs(id),
        };
        match names {
            Ok(mut names) => {
                // As other file systems do; who may read their values is the kernel's to say.
                names.retain(|name| request.uid() == 0 || !name.starts_with(b"trusted."));
                let list = names.iter().flat_map(|name| name.iter().chain(&[0])).copied();
                xattr(reply, &Vec::from_iter(list), size);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn removexattr(&self, _: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match check_xattr(name.as_bytes()) {
            Err(errno) => reply.error(errno),
            Ok(()) => {
                let name = name.as_bytes();
                empty(reply, real(id).and_then(|id| self.namespace.remove_xattr(id, name)));
            }
        }
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
        let by = By::of(request);
        let opened = self.namespace.opened(id.0);
        let allocate = move |namespace: &Namespace| {
            let is_in = |gid| by.is_in(gid);
            let privileges = privileges(by.uid == 0, &is_in);
            let allocated = opened
                .and_then(|opened| namespace.allocate(&opened, mode, (offset, length), privileges));
            empty(reply, allocated);
        };
        if self.must_copy(id.0) {
            return self.change(by.uid, id.0, move |this| allocate(&this.namespace));
        }
        // Parts of chunks are fetched, for holes in them.
        self.transfer(by.uid, false, allocate);
    }

    fn lseek(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return reply.error(Errno::EINVAL);
        }
        let is_hole = whence == SEEK_HOLE;
        let found = match is_past(id.0) {
            true => self.queries.pasts.seek(handle, is_hole, offset),
            false => {
                let opened = self.namespace.opened(id.0);
                opened.and_then(|opened| self.namespace.seek(&opened, is_hole, offset))
            }
        };
        match found {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Answers with a value, or with its size if none is taken.
fn xattr(reply: ReplyXattr, value: &[u8], size: u32) {
    match size {
        0 => reply.size(value.len() as u32),
        _ if value.len() > size as usize => reply.error(Errno::ERANGE),
        _ => reply.data(value),
    }
}
