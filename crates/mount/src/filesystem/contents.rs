//! Contents of files: opening, reading, writing and changing the space that they take.

use super::locks::{free_all, note_closing};
use super::names::free;
use super::{Answer, Filesystem, GENERATION, asking, empty, real};
use crate::caller::CallingProcess;
use crate::convert::{attributes, errno};
use crate::handles::PASSED_THROUGH;
use crate::locks::Locks;
use crate::node::{Node, Shown};
use canopy_events::LimitedEvents;
use canopy_model::{Credentials, Wanted};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Access, Caller, LockKind, LockOwner, Moment, Operation};
use canopy_namespace::{
    EntryName, Error, Execute, Extent, FileId, Inode, New, Privileges, SetAttributes,
};
use fuser::{
    Errno, FileHandle, FopenFlags, OpenAccMode, OpenFlags, ReplyCreate, ReplyData, ReplyEmpty,
    ReplyLseek, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// More than so many bytes that a snapshot needs are copied by another thread before a change.
const KEPT_AT_ONCE_BYTES: u64 = 8 << 20;

/// Another mount may make and remove a file so often while it is opened here.
const CREATE_ATTEMPTS: usize = 16;

const O_EXCL: i32 = 0o200;
const O_TRUNC: i32 = 0o1000;
const O_NOATIME: i32 = 0o1000000;
const STICKY: u32 = 0o1000;
/// Flag by which the kernel marks the opening of a program to be executed.
const FMODE_EXEC: i32 = 0x20;
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// Where a program writes: at an offset, or at the end, which the kernel takes to be there.
#[derive(Clone, Copy)]
pub(super) struct WritePlace {
    pub(super) offset: u64,
    pub(super) appends: bool,
}

/// A part of a file that is read.
#[derive(Clone, Copy)]
pub(super) struct FilePart {
    pub(super) offset: u64,
    pub(super) size: u32,
}

impl Filesystem {
    /// Does something with contents: by another thread if it may have to wait for storage.
    pub(super) fn transfer(
        &self,
        uid: u32,
        is_here: bool,
        work: impl FnOnce(&dyn Execute) + Send + 'static,
    ) {
        match &self.transfers {
            Some(transfers) if !is_here => {
                let namespace = self.namespace.clone();
                transfers.run(uid, move |_| work(&*namespace));
            }
            _ => work(&*self.namespace),
        }
    }

    /// Does what changes the contents of a file: in another thread, once they were copied, if a
    /// snapshot needs so many of them that others would wait.
    pub(super) fn change(&self, uid: u32, id: FileId, change: impl FnOnce(&Self) + Send + 'static) {
        if self.must_copy(id) {
            let this = self.clone();
            return self.queries.run(uid, move |_, _| {
                // Where that fails, the change fails too, and says why.
                let _ = this.namespace.copy_before_change(id);
                change(&this);
            });
        }
        change(self);
    }

    /// Returns whether so many bytes have to be copied before a file can be changed.
    fn must_copy(&self, id: FileId) -> bool {
        self.namespace.bytes_to_copy(id).is_ok_and(|bytes| bytes > KEPT_AT_ONCE_BYTES)
    }

    /// Opens a regular file, of now or of a snapshot.
    pub(super) fn open_file(
        &self,
        request: &Request,
        node: Node,
        flags: OpenFlags,
        reply: ReplyOpen,
    ) {
        let writes = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if let Node::Snapshot(file) = node
            && !writes
        {
            let opened = asking(request).and_then(|who| self.queries.pasts.open(file, &who));
            return match opened {
                Ok(handle) => {
                    let flags = FopenFlags::FOPEN_NOFLUSH | FopenFlags::FOPEN_KEEP_CACHE;
                    reply.opened(handle, flags);
                }
                Err(error) => reply.error(errno(&error)),
            };
        }
        let id = match real(node) {
            Ok(id) => id,
            Err(error) => return reply.error(errno(&error)),
        };
        let opened = match self.check_open(request, id, flags) {
            Ok(user) => user,
            Err(error) => return reply.error(errno(&error)),
        };
        let open = move |this: &Self| match this
            .open_for(id, opened, writes, |object| reply.open_backing(object))
        {
            Ok((handle, flags, None)) => reply.opened(handle, flags),
            Ok((handle, flags, Some(backing))) => {
                reply.opened_passthrough(handle, flags, &backing);
            }
            Err(error) => reply.error(errno(&error)),
        };
        // Others are copied when they are first written.
        match writes && self.passes_through {
            true => self.change(request.uid(), id, open),
            false => open(self),
        }
    }

    /// Has servers check that the user behind a request may open a file, if they check users. Returns
    /// the user, and the rights that were found.
    fn check_open(
        &self,
        request: &Request,
        id: FileId,
        flags: OpenFlags,
    ) -> Answer<Option<(Credentials, Wanted)>> {
        if !self.names_users {
            return Ok(None);
        }
        let mut wanted = wanted(flags);
        // The kernel opens a program that is executed; its user may not be able to read it.
        if flags.0 & FMODE_EXEC != 0 {
            wanted = Wanted::EXECUTE;
        }
        let who = asking(request)?;
        let open = Operation::Access(Access::Open(id, wanted));
        self.namespace.execute_for(Caller::User(&who), &open)?;
        Ok(Some((who, wanted)))
    }

    /// Opens a regular file for the kernel, and returns how.
    fn open_for(
        &self,
        id: FileId,
        user: Option<(Credentials, Wanted)>,
        writes: bool,
        make_backing: impl FnOnce(&std::fs::File) -> io::Result<fuser::BackingId>,
    ) -> Answer<(FileHandle, FopenFlags, Option<Arc<fuser::BackingId>>)> {
        match user {
            Some((who, wanted)) => self.namespace.open_for(&who, wanted, id)?,
            None => self.namespace.open(id)?,
        }
        // Asked before the lock of all open files is taken.
        let local = self.passes_through.then(|| self.namespace.local_file(id)).flatten();
        let backing = self.modes.open(id, || make_backing(local?.file()?).ok());
        let noted = match backing.is_some() && writes {
            true => self.namespace.lend_for_writing(id),
            false => Ok(()),
        };
        // Where the kernel keeps nothing anyway, servers are not asked.
        let is_due = noted.and_then(|()| match self.cache_times {
            Some(_) => Ok(true),
            None => self.namespace.is_access_due(id),
        });
        let is_due = is_due.inspect_err(|_| {
            self.modes.close(id);
            // The first error is told.
            let _ = self.namespace.close(id);
        })?;
        let mut flags = self.open_flags(writes);
        // Reads from the kernel's memory change no time of access.
        if backing.is_none() && !is_due {
            flags |= FopenFlags::FOPEN_KEEP_CACHE;
        }
        let handle = if backing.is_some() { PASSED_THROUGH } else { self.new_handle() };
        Ok((handle, flags, backing))
    }

    /// Returns the handle of a file that is opened. Where servers keep locks, each has its own.
    fn new_handle(&self) -> FileHandle {
        self.locks.as_ref().map_or(FileHandle(0), |locks| locks.handle())
    }

    /// Returns how the kernel opens a file. It is to say when a program closes one that others may
    /// read then, or that it may have locked.
    fn open_flags(&self, writes: bool) -> FopenFlags {
        match self.cache_times.is_some() && writes || self.locks.is_some() {
            true => FopenFlags::empty(),
            false => FopenFlags::FOPEN_NOFLUSH,
        }
    }

    /// Makes a regular file and opens it, or opens one that another mount has just made. `flags` are
    /// those of open(2).
    pub(super) fn create_file(
        &self,
        request: &Request,
        parent: Node,
        name: &OsStr,
        new: &New,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let ttl = self.ttl();
        let opened = free(parent, name).and_then(|parent| {
            let name = EntryName::new(parent, name.as_bytes());
            for _ in 0..CREATE_ATTEMPTS {
                match self.create_new(request, name, new) {
                    Err(error)
                        if error.errno() == rustix::io::Errno::EXIST && flags & O_EXCL == 0 => {}
                    created => return created,
                }
                match self.open_made(request, name, flags) {
                    // It has gone again.
                    Err(error) if error.errno() == rustix::io::Errno::NOENT => {}
                    opened => return opened,
                }
            }
            Err(rustix::io::Errno::STALE.into())
        });
        match opened {
            Ok((inode, flags)) => reply.created(
                &ttl.of(&*self.namespace, &inode),
                &attributes(&Shown::file(inode)),
                GENERATION,
                self.new_handle(),
                flags,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create_new(
        &self,
        request: &Request,
        name: EntryName<'_>,
        new: &New,
    ) -> Answer<(Inode, FopenFlags)> {
        let by = self.by(request)?;
        let inode = by.create(name, new)?;
        // A new file has no object yet.
        let opened = by.open_new(&inode);
        self.modes.open(inode.id, || None);
        opened?;
        if self.cache_times.is_some() {
            self.created.note(request.pid(), inode.clone());
        }
        Ok((inode, self.open_flags(true) | FopenFlags::FOPEN_KEEP_CACHE))
    }

    /// Opens a regular file that is there, as open(2) does with `O_CREAT`. The kernel checks nothing
    /// then. Fails with `STALE` for anything else than a regular file: then the kernel looks again, once.
    fn open_made(
        &self,
        request: &Request,
        name: EntryName<'_>,
        flags: i32,
    ) -> Answer<(Inode, FopenFlags)> {
        let stale = rustix::io::Errno::STALE;
        if self.passes_through {
            return Err(stale.into());
        }
        let above = self.namespace.inode(Moment::Now, name.directory)?;
        let by = self.by(request)?;
        let inode = by.lookup_held(name)?;
        let open = || {
            if inode.file_type() != file_type::REGULAR {
                return Err(stale.into());
            }
            if is_protected(&above, &inode, request.uid()) {
                return Err(rustix::io::Errno::ACCESS.into());
            }
            let cuts = flags & O_TRUNC != 0;
            let wanted = match wanted(OpenFlags(flags)) {
                Wanted::READ if cuts => Wanted::READ_WRITE,
                wanted => wanted,
            };
            let who = asking(request)?;
            let check = Operation::Access(Access::Open(inode.id, wanted));
            self.namespace.execute_for(Caller::User(&who), &check)?;
            let user = self.names_users.then_some((who, wanted));
            let none = |_: &std::fs::File| Err(io::ErrorKind::Unsupported.into());
            let (_, opened, _) = self.open_for(inode.id, user, true, none)?;
            if cuts {
                let set = SetAttributes { size: Some(0), ..SetAttributes::default() };
                let changer = self.changer(CallingProcess::of(request), inode.id, true);
                let cut = by.set_attributes(inode.id, &set, changer);
                return cut.map(|inode| (inode, opened)).inspect_err(|_| {
                    self.modes.close(inode.id);
                    // The first error is reported.
                    let _ = self.namespace.close(inode.id);
                });
            }
            Ok((inode.clone(), opened))
        };
        // As the kernel does not know of it, nothing else lets it go.
        open().inspect_err(|_| _ = self.namespace.release(inode.id, 1))
    }

    /// Reads from an open file.
    pub(super) fn read_file(
        &self,
        request: &Request,
        node: Node,
        handle: FileHandle,
        part: FilePart,
        flags: OpenFlags,
        reply: ReplyData,
    ) {
        let FilePart { offset, size } = part;
        let events = self.events.clone();
        if let Node::Snapshot(_) = node {
            let queries = self.queries.clone();
            return self.transfer(request.uid(), false, move |_| {
                match queries.pasts.read(handle, offset, size as usize) {
                    Ok(bytes) => reply.data(&bytes),
                    Err(error) => reply.error(logged_errno(&events, &error)),
                }
            });
        }
        let is_here = |id| self.namespace.is_here(id, Extent::new(offset, size.into()), false);
        let (id, is_here) = match current(node).and_then(|id| Ok((id, is_here(id)?))) {
            Ok(found) => found,
            Err(error) => return reply.error(errno(&error)),
        };
        let notes_access = flags.0 & O_NOATIME == 0 && !self.is_read_only;
        self.transfer(request.uid(), is_here, move |namespace| {
            match namespace.read_at(id, offset, size as usize, notes_access) {
                Ok(bytes) => reply.data(&bytes),
                Err(error) => reply.error(logged_errno(&events, &error)),
            }
        });
    }

    /// Writes into an open file.
    pub(super) fn write_file(
        &self,
        request: &Request,
        node: Node,
        WritePlace { offset, appends }: WritePlace,
        data: &[u8],
        flags: WriteFlags,
        reply: ReplyWrite,
    ) {
        let by = CallingProcess::of(request);
        let appends = appends && !flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let is_here = |id| self.namespace.is_here(id, Extent::new(offset, data.len() as u64), true);
        let (id, is_here) = match current(node).and_then(|id| Ok((id, is_here(id)?))) {
            Ok(found) => found,
            Err(error) => return reply.error(errno(&error)),
        };
        let events = self.events.clone();
        let locks = self.locks.clone();
        let write = move |namespace: &dyn Execute, data: &[u8], reply: ReplyWrite| {
            let end = if appends { namespace.append_offset(id) } else { Ok(None) };
            let at = match end {
                Ok(end) => end.unwrap_or(offset),
                Err(error) => return reply.error(logged_errno(&events, &error)),
            };
            let is_in = |gid| by.is_in(gid);
            let privileges = match flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                true => Privileges::Drop(&is_in),
                // Data that was written through a map comes from no known user.
                false if by.uid == 0 && !flags.contains(WriteFlags::FUSE_WRITE_CACHE) => {
                    Privileges::Keep
                }
                false => Privileges::KeepBound,
            };
            match namespace.write_at(id, at, data, privileges) {
                Ok(count) => reply.written(count as u32),
                Err(error) => return reply.error(logged_errno(&events, &error)),
            }
            // The kernel has the bytes where it took the end to be.
            if let Some(locks) = locks.filter(|_| at != offset) {
                locks.forget_pages(node.into());
            }
        };
        if self.must_copy(id) {
            let data = data.to_vec();
            let write = move |this: &Self| write(&*this.namespace, &data, reply);
            return self.change(by.uid, id, write);
        }
        if is_here && !appends {
            return write(&*self.namespace, data, reply);
        }
        let data = data.to_vec();
        self.transfer(by.uid, false, move |namespace| write(namespace, &data, reply));
    }

    /// Lets others see what a program wrote that closes a file, and frees its locks.
    pub(super) fn publish_file(
        &self,
        request: &Request,
        node: Node,
        handle: FileHandle,
        owner: fuser::LockOwner,
        reply: ReplyEmpty,
    ) {
        let Node::File(id) = node else { return reply.ok() };
        if self.cache_times.is_none() && self.locks.is_none() {
            return reply.ok();
        }
        let events = self.events.clone();
        let owner = LockOwner { kind: LockKind::Range, number: owner.0 };
        let locks = self.locks.clone();
        let owners = locks.as_ref().map(|locks| locks.owners(handle)).unwrap_or_default();
        self.transfer(request.uid(), false, move |namespace| {
            let published = namespace.publish(id);
            forget_dropped(&published, locks.as_deref(), node);
            note_closing(namespace, id, owners.into_iter().filter(|other| *other != owner));
            match published.and(free_all(namespace, id, [owner])) {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(logged_errno(&events, &error)),
            }
        });
    }

    /// Closes a file.
    pub(super) fn close_file(
        &self,
        request: &Request,
        node: Node,
        handle: FileHandle,
        reply: ReplyEmpty,
    ) {
        match node {
            Node::File(id) => {
                self.modes.close(id);
                // Servers take what was written since it was published.
                let is_here = self.cache_times.is_none() && self.locks.is_none();
                let owners = self.locks.as_ref().map(|locks| locks.close(handle));
                self.transfer(request.uid(), is_here, move |namespace| {
                    let freed = free_all(namespace, id, owners.unwrap_or_default());
                    empty(reply, namespace.close(id).and(freed));
                });
            }
            Node::Snapshot(_) | Node::Query(_) => {
                self.queries.pasts.close(handle);
                reply.ok();
            }
        }
    }

    /// Makes what a file has outlast a crash.
    pub(super) fn sync_file(&self, request: &Request, node: Node, reply: ReplyEmpty) {
        let Node::File(id) = node else { return reply.ok() };
        let (events, locks) = (self.events.clone(), self.locks.clone());
        self.transfer(request.uid(), false, move |namespace| {
            let synced = namespace.sync_contents(id);
            forget_dropped(&synced, locks.as_deref(), node);
            match synced {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(logged_errno(&events, &error)),
            }
        });
    }

    /// Changes what space a part of a file takes.
    pub(super) fn allocate(
        &self,
        request: &Request,
        node: Node,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let by = CallingProcess::of(request);
        let id = match current(node) {
            Ok(id) => id,
            Err(error) => return reply.error(errno(&error)),
        };
        let allocate = move |namespace: &dyn Execute| {
            let is_in = |gid| by.is_in(gid);
            let privileges = if by.uid == 0 { Privileges::Keep } else { Privileges::Drop(&is_in) };
            empty(reply, namespace.allocate_at(id, mode, Extent::new(offset, length), privileges));
        };
        if self.must_copy(id) {
            return self.change(by.uid, id, move |this| allocate(&*this.namespace));
        }
        // Parts of chunks are fetched, for holes in them.
        self.transfer(by.uid, false, allocate);
    }

    /// Finds where data or a hole begins.
    pub(super) fn seek(
        &self,
        node: Node,
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
        let found = match node {
            Node::Snapshot(_) => self.queries.pasts.seek(handle, is_hole, offset),
            _ => current(node).and_then(|id| self.namespace.seek_from(id, is_hole, offset)),
        };
        match found {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(&error)),
        }
    }
}

/// Returns the errno of an error, and warns of errors of the storage.
fn logged_errno(events: &LimitedEvents, error: &Error) -> Errno {
    if !matches!(error, Error::Posix(_)) {
        events.warn(&error.to_string());
    }
    errno(error)
}

/// Returns the rights that opening a file needs.
fn wanted(flags: OpenFlags) -> Wanted {
    match flags.acc_mode() {
        OpenAccMode::O_RDONLY => Wanted::READ,
        OpenAccMode::O_WRONLY => Wanted::WRITE,
        OpenAccMode::O_RDWR => Wanted::READ_WRITE,
    }
}

/// Returns whether the kernel lets a user open no file of others with `O_CREAT` in a directory
/// (fs.protected_regular, `may_create_in_sticky` of Linux).
fn is_protected(directory: &Inode, file: &Inode, uid: u32) -> bool {
    let is_own = file.uid == directory.uid || file.uid == uid;
    if directory.mode & STICKY == 0 || is_own {
        return false;
    }
    let setting = std::fs::read_to_string("/proc/sys/fs/protected_regular");
    match setting.as_deref().map(str::trim) {
        Ok("0") => false,
        Ok("1") => directory.mode & 0o002 != 0,
        _ => directory.mode & 0o022 != 0,
    }
}

/// Has the kernel forget bytes that were dropped since programs have lost locks on the file.
fn forget_dropped(sent: &Answer<()>, locks: Option<&Locks>, node: Node) {
    if let (Err(Error::Posix(rustix::io::Errno::IO)), Some(locks)) = (sent, locks) {
        locks.forget_pages(node.into());
    }
}

/// Returns the file of a node that can be open as it is now.
pub(super) fn current(node: Node) -> Answer<FileId> {
    match node {
        Node::File(id) => Ok(id),
        Node::Query(_) | Node::Snapshot(_) => Err(rustix::io::Errno::BADF.into()),
    }
}
