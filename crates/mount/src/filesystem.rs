//! The kernel's requests, one function each.

use crate::convert::{attributes, errno, kind, set_time};
use crate::handles::{Directories, Directory, Modes, PASSED_THROUGH};
use crate::queries::{Queries, credentials, is_query, is_virtual};
use crate::{Options, control};
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::{
    Error, Inode, Listing, NAME_BYTES_MAX, Namespace, New, Privileges, RenameMode, SetAttributes,
    SetXattr, acl,
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
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it was told. All changes come through it.
const TTL: Duration = Duration::from_secs(3600);

/// Ids are never used again, so there is one generation.
const GENERATION: Generation = Generation(0);

/// The largest write, in bytes.
const WRITE_BYTES_MAX: u32 = 1 << 20;

const O_NOATIME: i32 = 0o1000000;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;
const XATTR_CREATE: i32 = 1;
const XATTR_REPLACE: i32 = 2;

type Answer<T> = Result<T, Error>;

pub(crate) struct Filesystem {
    namespace: Arc<Namespace>,
    queries: Arc<Queries>,
    directories: Arc<Directories>,
    modes: Modes,
    passes_through: bool,
    is_read_only: bool,
}

impl Filesystem {
    pub(crate) fn new(namespace: Arc<Namespace>, options: &Options) -> Self {
        Filesystem {
            queries: Arc::new(Queries::new(namespace.clone(), options.log.clone())),
            namespace,
            directories: Arc::default(),
            modes: Modes::default(),
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
        if is_query(&name) {
            return answer(self.queries.query(parent, &name), reply);
        }
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        self.queries.run(uid, move |queries| {
            let who = credentials(uid, gid, pid);
            answer(queries.result(parent, &name, &who), reply);
        });
    }

    fn attributes_of(&self, id: u64) -> Answer<Inode> {
        if is_virtual(id) { self.queries.inode(id) } else { self.namespace.inode(id) }
    }

    /// Notes that something was read, where anything may change.
    fn touch_access(&self, id: u64) -> Answer<()> {
        if self.is_read_only { Ok(()) } else { self.namespace.touch_access(id) }
    }

    fn create_entry(&self, parent: INodeNo, name: &OsStr, new: &New, reply: ReplyEntry) {
        let created = real(parent)
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
                false => Inode { id: self.namespace.parent(id.0)?, ..own },
            };
            if add(2, b"..", &above, false) {
                return Ok(());
            }
        }
        match directory {
            Directory::Listing(listing) => {
                self.namespace.list(&mut listing.lock(), offset.max(2), |entry| {
                    !add(entry.cookie, entry.name, entry.inode, true)
                })?;
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
        let backing = self.modes.open(id.0, || match opened.object() {
            Some(object) if self.passes_through => make_backing(object).ok(),
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

/// Returns the id of a directory whose names can be changed: not that of a query.
fn real(id: INodeNo) -> Answer<u64> {
    if is_virtual(id.0) { Err(rustix::io::Errno::ROFS.into()) } else { Ok(id.0) }
}

/// Returns whether the process that asks is in a group.
fn is_in(request: &Request, gid: u32) -> bool {
    let who = credentials(request.uid(), request.gid(), request.pid());
    who.is_root() || who.gids.contains(&gid)
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
        // What fails here is left for the next opening of the namespace.
        let _ = self.namespace.release(id.0, times);
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let ttl = if is_virtual(id.0) { Duration::ZERO } else { TTL };
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
        let is_in = |gid| is_in(request, gid);
        let privileges = privileges(request.uid() == 0, &is_in);
        match real(id).and_then(|id| self.namespace.set_attributes(id, &set, privileges)) {
            Ok(inode) => reply.attr(&TTL, &attributes(&inode)),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        let target = match is_virtual(id.0) {
            true => self.queries.inode(id.0).map(|link| link.target),
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
            let (from, to) = ((from, name.as_bytes()), (real(new_parent)?, new_name.as_bytes()));
            self.namespace.rename(from, to, mode)
        });
        empty(reply, renamed);
    }

    fn link(&self, _: &Request, id: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = real(id).and_then(|id| {
            let parent = real(parent)?;
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

    fn open(&self, _: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        match self.open_for(id, writes, |object| reply.open_backing(object)) {
            Ok((handle, flags, None)) => reply.opened(handle, flags),
            Ok((handle, flags, Some(backing))) => reply.opened_passthrough(handle, flags, &backing),
            Err(error) => reply.error(errno(&error)),
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
        let created = real(parent)
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
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let read = self.namespace.opened(id.0).and_then(|opened| {
            let notes_access = flags.0 & O_NOATIME == 0 && !self.is_read_only;
            self.namespace.read(&opened, offset, size as usize, notes_access)
        });
        match read {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(&error)),
        }
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
        let is_in = |gid| is_in(request, gid);
        let keeps = !flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let written = self.namespace.opened(id.0).and_then(|opened| {
            self.namespace.write(&opened, Some(offset), data, privileges(keeps, &is_in))
        });
        match written {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.modes.close(id.0);
        let closed = self.namespace.opened(id.0);
        empty(reply, closed.and_then(|opened| self.namespace.close_file(&opened)));
    }

    fn fsync(&self, _: &Request, id: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let opened = self.namespace.opened(id.0);
        empty(reply, opened.and_then(|opened| self.namespace.sync_file(&opened)));
    }

    fn opendir(&self, request: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        if !is_virtual(id.0) {
            let listing = Arc::new(Mutex::new(Listing::new(id.0)));
            let handle = self.directories.open(Directory::Listing(listing));
            return reply.opened(handle, FopenFlags::empty());
        }
        let (uid, gid, pid) = (request.uid(), request.gid(), request.pid());
        let directories = self.directories.clone();
        self.queries.run(uid, move |queries| {
            match queries.find(id.0, &credentials(uid, gid, pid)) {
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
        let ttl = if is_virtual(id.0) { Duration::ZERO } else { TTL };
        let add = |cookie, name: &[u8], inode: &Inode, is_entry: bool| {
            let (name, attributes) = (OsStr::from_bytes(name), attributes(inode));
            let is_held = is_entry && !is_virtual(inode.id);
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
        empty(reply, self.namespace.sync_inode(id.0));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.namespace.space() {
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
        if control::is_control(id.0, name) {
            return empty(reply, control::set(&self.namespace, name, value));
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
                let is_in = |gid| is_in(request, gid);
                let privileges = privileges(request.uid() == 0, &is_in);
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
        if control::is_control(id.0, name) {
            let (namespace, name) = (self.namespace.clone(), name.to_vec());
            return self.queries.run(request.uid(), move |_| {
                match control::get(&namespace, &name) {
                    Ok(value) => xattr(reply, &value, size),
                    Err(error) => reply.error(errno(&error)),
                }
            });
        }
        match self.namespace.xattr(id.0, name) {
            Ok(Some(value)) => xattr(reply, &value, size),
            Ok(None) => reply.error(Errno::ENODATA),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn listxattr(&self, request: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let names = if is_virtual(id.0) { Ok(Vec::new()) } else { self.namespace.xattrs(id.0) };
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
        let opened = self.namespace.opened(id.0);
        let is_in = |gid| is_in(request, gid);
        let privileges = privileges(request.uid() == 0, &is_in);
        let allocated = opened.and_then(|opened| {
            self.namespace.allocate(&opened, mode, (offset, length), privileges)
        });
        empty(reply, allocated);
    }

    fn lseek(
        &self,
        _: &Request,
        id: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        if whence != SEEK_DATA && whence != SEEK_HOLE {
            return reply.error(Errno::EINVAL);
        }
        let opened = self.namespace.opened(id.0);
        match opened.and_then(|opened| self.namespace.seek(&opened, whence == SEEK_HOLE, offset)) {
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
