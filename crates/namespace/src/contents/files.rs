//! Reading and writing what regular files have in them.

use crate::contents::chunks::Chunked;
use crate::contents::object::Object;
use crate::contents::{Extent, FILE_BYTES_MAX, Inline, Opened, adopt_times, describe};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::{Reservation, Transaction};
use crate::records::change::{Privileges, SetAttributes, lower_mode};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{FileId, Space};
use crate::records::permissions::Caller;
use crate::records::tablet::Tablet;
use crate::records::xattrs::CAPABILITY;
use canopy_store::{Batch, Durability};
use parking_lot::RwLockWriteGuard;
use rustix::io::Errno;
use std::fs::File;
use std::ops::DerefMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const FALLOC_KEEP_SIZE: i32 = 1;
const FALLOC_ZERO_RANGE: i32 = 16;

impl Namespace {
    /// Opens a regular file. Whoever opens it also holds it, and closes it before letting it go.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and with `ISDIR` or `NXIO` if it is not
    /// regular. Fails with `NODATA` if its contents are not there, and with `NFILE` if too many are
    /// open.
    pub fn open_file(&self, id: FileId) -> Result<Arc<Opened>> {
        if let Some(opened) = self.contents.find(id, true) {
            return Ok(opened);
        }
        // With the writer's lock, nobody changes what the record says of the contents meanwhile.
        let _writer = self.tablet.writer.lock();
        let (_, mut inode) = self.tablet.locate(id)?;
        self.tablet.overlay(&mut inode);
        if !inode.is_regular() {
            return Err(if inode.is_directory() { Errno::ISDIR } else { Errno::NXIO }.into());
        }
        if inode.has(flag::ABSENT) {
            return Err(Errno::NODATA.into());
        }
        let opened = Opened::new(id);
        if let Some(chunks) = self.contents.chunks().filter(|_| inode.has(flag::OBJECT)) {
            let _ = opened.object.set(Object::Chunks(Chunked::open(chunks, &inode)));
        } else if inode.has(flag::OBJECT) {
            let object = self.contents.open_object(id)?;
            let size = object.metadata().map_err(Error::io("an object"))?.len();
            if size == inode.size && self.is_read_only() {
                // The object keeps the times that it has.
            } else if size == inode.size {
                adopt_times(&object, &inode)?;
            } else {
                // A crash came between: the object is right.
                self.unsettle(id, false)?;
            }
            let _ = opened.object.set(Object::File(object));
        } else if inode.has(flag::INLINE) {
            let bytes = self.tablet.table.get(Space::Contents.of(id, b"").as_ref())?;
            let bytes =
                bytes.ok_or_else(|| Error::corrupt(format!("file {id} has no contents")))?;
            *opened.inline.write() = Inline { bytes, ..Inline::default() };
        }
        Ok(self.contents.insert(opened))
    }

    /// Opens a regular file that was just made, and that nobody else knows.
    ///
    /// # Errors
    ///
    /// Fails as the disk does.
    pub fn open_new_file(&self, inode: &Inode) -> Result<Arc<Opened>> {
        Ok(self.contents.insert(Opened::new(inode.id)))
    }

    /// Returns a file that is open.
    ///
    /// # Errors
    ///
    /// Fails with `BADF` if nobody has opened it.
    pub fn opened(&self, id: FileId) -> Result<Arc<Opened>> {
        self.contents.find(id, false).ok_or_else(|| Errno::BADF.into())
    }

    /// Returns how much space there is where large files lie, as statvfs(3) does.
    ///
    /// # Errors
    ///
    /// Fails if statvfs(3) does.
    pub fn space(&self) -> Result<rustix::fs::StatVfs> {
        self.contents.space()
    }

    /// Closes a file. The last time, what it has goes into its records; if that fails, whoever
    /// flushes tries again.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn close_file(&self, opened: &Arc<Opened>) -> Result<()> {
        loop {
            if opened.chunked().is_some_and(Chunked::is_changed) {
                // It goes to storage in a few seconds, and nobody has to wait for that.
                self.contents.close_unwritten(opened.id);
                return Ok(());
            }
            let last = self.contents.is_last(opened.id);
            if last.is_some()
                && let Err(error) = self.flush_file(opened)
            {
                self.contents.close_unwritten(opened.id);
                return Err(error);
            }
            if self.contents.close(opened.id, last) {
                return Ok(());
            }
        }
    }

    /// Reads up to `length` bytes from an offset on; fewer only at the end. Its time of access
    /// changes if `notes_access` and it is due.
    ///
    /// # Errors
    ///
    /// Fails as storage and the disk do, and with `Corrupt` if contents are damaged.
    pub fn read(
        &self,
        opened: &Opened,
        offset: u64,
        length: usize,
        notes_access: bool,
    ) -> Result<Vec<u8>> {
        let bytes = {
            let inline = opened.inline.read();
            match opened.object() {
                Some(object) => {
                    drop(inline);
                    object.read(offset, length)?
                }
                None => {
                    let start = usize::try_from(offset).unwrap_or(usize::MAX);
                    let rest = inline.bytes.get(start..).unwrap_or_default();
                    rest[..rest.len().min(length)].to_vec()
                }
            }
        };
        if notes_access && opened.file().is_none() {
            self.tablet.touch_access(opened.id)?;
        }
        Ok(bytes)
    }

    /// Writes bytes at an offset, or at the end if there is none. Returns how many: fewer only
    /// where a disk became full, as write(2) does.
    ///
    /// # Errors
    ///
    /// Fails with `FBIG` if the file would become too long, and with `NOSPC` or `DQUOT` if there is
    /// no room. Fails as the table and the disk do.
    pub fn write(
        &self,
        opened: &Opened,
        offset: Option<u64>,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        self.with_room(|| self.write_now(opened, offset, bytes, privileges))
    }

    fn write_now(
        &self,
        opened: &Opened,
        offset: Option<u64>,
        bytes: &[u8],
        privileges: Privileges<'_>,
    ) -> Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let _changing = self.contents.changing.read();
        self.keep_contents(opened)?;
        if let Some(chunked) = opened.chunked() {
            self.make_room(chunked)?;
        }
        let mut inline = opened.inline.write();
        let size = match opened.object() {
            Some(object) => object.size()?,
            None => inline.bytes.len() as u64,
        };
        let is_appended = offset.is_none();
        let offset = offset.unwrap_or(size);
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        let mut reserved = self.reserve(opened, &inline, end, offset..end, privileges)?;
        let object = self.object_for(opened, &mut inline, end)?;
        let written = match object {
            Some(Object::Chunks(chunked)) => {
                // Nobody else appends meanwhile.
                let _inline = is_appended.then_some(inline);
                chunked.reserve(reserved.take());
                chunked.write(bytes, offset)?;
                bytes.len()
            }
            Some(object) if reserved.is_some() => {
                self.unsettle(opened.id, false)?;
                let written = object.write(bytes, offset);
                // The bytes are written. If their sum cannot be now, whoever flushes tries again.
                let _ = opened.flush_inline(&self.tablet, &mut inline);
                drop(inline);
                written?
            }
            Some(object) => {
                self.unsettle(opened.id, false)?;
                let _inline = is_appended.then_some(inline);
                object.write(bytes, offset)?
            }
            None => {
                let before = self.must_flush_at_once().then(|| Inline::clone(&inline));
                let (start, end) = (offset as usize, end as usize);
                if inline.bytes.len() < end {
                    inline.bytes.resize(end, 0);
                }
                inline.bytes[start..end].copy_from_slice(bytes);
                inline.is_dirty = true;
                if let Some(before) = before {
                    self.flush_or_restore(opened, &mut inline, before)?;
                }
                drop(inline);
                bytes.len()
            }
        };
        drop(reserved);
        self.changed(opened, privileges)?;
        Ok(written)
    }

    /// Returns the object that has to take a file of `size` bytes; none if a record does.
    fn object_for<'a>(
        &self,
        opened: &'a Opened,
        inline: &mut RwLockWriteGuard<'_, Inline>,
        size: u64,
    ) -> Result<Option<&'a Object>> {
        if opened.object().is_some()
            || size <= self.tablet.configured().settings.inline_bytes_max as u64
        {
            return Ok(opened.object());
        }
        if let Some(chunks) = self.contents.chunks() {
            // A flush updates the record.
            let recorded = {
                let _writer = self.tablet.writer.lock();
                self.tablet.locate(opened.id)?.1
            };
            let chunked = Chunked::begin(chunks, &recorded, &inline.bytes)?;
            *inline.deref_mut() = Inline::default();
            self.contents.set_object(opened, Object::Chunks(chunked));
            return Ok(opened.object());
        }
        let object = self.contents.create_object(opened.id)?;
        let moved = self.move_into(&object, opened, inline);
        moved.inspect_err(|error| {
            // If nobody knows whether the record was written, the object stays.
            let is_unknown = matches!(error, Error::Store(error) if !error.is_deferred());
            if !is_unknown {
                let _ = self.contents.remove_object(opened.id);
            }
        })?;
        *inline.deref_mut() = Inline::default();
        self.contents.set_object(opened, Object::File(object));
        Ok(opened.object())
    }

    /// Puts the contents of a small file into its object, and has the record say so at once: nobody
    /// else knows where the contents are.
    fn move_into(&self, object: &File, opened: &Opened, inline: &Inline) -> Result<()> {
        object.write_all_at(&inline.bytes, 0).map_err(Error::io("an object"))?;
        let _writer = self.tablet.writer.lock();
        let (place, before) = self.tablet.locate(opened.id)?;
        if before.has(flag::INLINE) {
            // The recorded contents may be durable. They are removed, so the object must be.
            object.sync_all().map_err(Error::io("an object"))?;
            self.contents.sync_name(opened.id)?;
        }
        let mut inode = before.clone();
        self.tablet.overlay(&mut inode);
        let times = (inode.mtime_ns, inode.atime_ns);
        adopt_times(object, &inode)?;
        describe(object, &mut inode);
        (inode.mtime_ns, inode.atime_ns) = times;
        inode.flags = inode.flags & !flag::INLINE | flag::OBJECT;
        let mut batch = Transaction::new();
        batch.delete(Space::Contents.of(opened.id, b"").as_ref())?;
        batch.put(Space::Unsettled.of(opened.id, b"").as_ref(), b"")?;
        self.tablet.write_inode(&mut batch, &place, Some(&before), &inode)?;
        self.tablet.commit(batch)?;
        self.contents.unsettle(opened.id);
        self.tablet.forget_pending(opened.id);
        Ok(())
    }

    /// Notes on record that the object of an open file may differ from its record from now on: the
    /// kernel writes it itself.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn note_written(&self, opened: &Opened) -> Result<()> {
        self.with_room(|| {
            let _changing = self.contents.changing.read();
            if opened.file().is_none() {
                return Ok(());
            }
            self.keep_contents(opened)?;
            opened.is_kernels.store(true, Ordering::Release);
            self.unsettle(opened.id, false)
        })
    }

    /// Notes on record that the object of a file may differ from its record, before a change that
    /// `frees` space or does not. Chunks never do.
    fn unsettle(&self, id: FileId, frees: bool) -> Result<()> {
        if self.contents.chunks().is_some() || !self.contents.unsettle(id) {
            return Ok(());
        }
        let mut batch = Batch::new();
        batch.put(Space::Unsettled.of(id, b"").as_ref(), b"")?;
        let written = match frees {
            true => self.tablet.table.write_freeing(&batch, Durability::Visible),
            false => self.tablet.table.write(&batch, Durability::Visible),
        };
        Ok(written.inspect_err(|_| self.contents.forget_unsettled(id))?)
    }

    /// Gives a file the time and, if its contents are a record, the size of a change just made.
    fn changed(&self, opened: &Opened, privileges: Privileges<'_>) -> Result<()> {
        let now_ns = self.tablet.now_ns();
        let size = opened.object().is_none().then(|| opened.inline.read().bytes.len() as u64);
        let mut mode = None;
        self.tablet.change_pending(opened.id, |inode| {
            if let Some(size) = size {
                (inode.size, inode.blocks) = (size, size.div_ceil(512));
            }
            (inode.mtime_ns, inode.ctime_ns) = (now_ns, now_ns);
            mode = lower_mode(inode, privileges);
        })?;
        mode.map_or(Ok(()), |mode| self.set_mode(opened.id, mode))
    }

    fn set_mode(&self, id: FileId, mode: u32) -> Result<()> {
        self.tablet.change_inode(id, |inode, batch| {
            // It belongs to a change that was made.
            batch.frees = true;
            inode.mode = mode;
            Ok(())
        })?;
        Ok(())
    }

    /// Sets attributes and returns the inode. Setting none counts as giving a file the owner that it
    /// has: that is what the kernel asks for then (`FUSE_HANDLE_KILLPRIV_V2`). All of them are set,
    /// or none.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, with `NOSPC` or `DQUOT` if there is no room,
    /// and as the table does. Fails as [`truncate`](Self::truncate) does where it sets a length.
    pub fn set_attributes(
        &self,
        id: FileId,
        set: &SetAttributes,
        privileges: Privileges<'_>,
    ) -> Result<Inode> {
        self.set_attributes_for(Caller::Trusted, id, set, privileges)
    }

    /// Like `set_attributes`, for a caller. A user who may write a file now may set its length: one
    /// who has it open could do so, whatever its permissions become meanwhile. Capabilities go
    /// before the length changes, and are gone if that fails: no crash leaves them to a file that a
    /// user has changed.
    pub(crate) fn set_attributes_for(
        &self,
        caller: Caller<'_>,
        id: FileId,
        set: &SetAttributes,
        privileges: Privileges<'_>,
    ) -> Result<Inode> {
        let Some(size) = set.size else {
            let set = || self.tablet.set_attributes(caller, id, set, privileges, false);
            return self.with_room(set);
        };
        let tablet = &self.tablet;
        tablet.check_early(caller, id, |check, inode| check.attributes(inode, set).map(drop))?;
        if caller.user().is_some() && tablet.xattr(id, CAPABILITY)?.is_some() {
            tablet.remove_xattr(id, CAPABILITY)?;
        }
        if set.has_no_more_than_a_size() {
            self.truncate(id, size, privileges)?;
        } else {
            let others =
                |frees| tablet.set_attributes(caller, id, set, privileges, frees).map(drop);
            self.with_room(|| self.resize(id, size, privileges, others))?;
        }
        self.tablet.inode(id)
    }

    /// Gives a file a length; what it gains is zeros. If that fails, it has the length that it had.
    /// Where storage is full, the log has room left for what makes files shorter.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT`, `ISDIR` or `NXIO` if there is no such regular file, and with `FBIG` if
    /// the length is too large. Fails with `NOSPC` or `DQUOT` if there is no room.
    pub fn truncate(&self, id: FileId, size: u64, privileges: Privileges<'_>) -> Result<()> {
        self.with_room(|| self.resize(id, size, privileges, |_| Ok(())))
    }

    /// Sets the length of a file and runs `others`, whose argument is whether this frees space. If
    /// either fails, the file keeps its length.
    fn resize(
        &self,
        id: FileId,
        size: u64,
        privileges: Privileges<'_>,
        others: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(Errno::FBIG.into());
        }
        if size == 0 {
            self.forget_absent(id)?;
        }
        let opened = self.open_file(id)?;
        let resized = self.resize_opened(&opened, size, privileges, others);
        // Data of other writers that is not in records yet is theirs to flush.
        let _ = self.close_file(&opened);
        resized
    }

    /// Makes a file whose contents were not imported an empty one.
    fn forget_absent(&self, id: FileId) -> Result<()> {
        if !self.tablet.inode(id)?.has(flag::ABSENT) {
            return Ok(());
        }
        self.tablet.change_inode(id, |inode, batch| {
            batch.frees = true;
            if inode.has(flag::ABSENT) {
                inode.flags &= !flag::ABSENT;
                (inode.size, inode.blocks) = (0, 0);
            }
            Ok(())
        })?;
        Ok(())
    }

    fn resize_opened(
        &self,
        opened: &Opened,
        size: u64,
        privileges: Privileges<'_>,
        others: impl FnOnce(bool) -> Result<()>,
    ) -> Result<()> {
        let inode = self.tablet.inode(opened.id)?;
        let _changing = self.contents.changing.read();
        self.keep_contents(opened)?;
        let mut inline = opened.inline.write();
        // An object grows by holes.
        let reserved = self.reserve(opened, &inline, size, size..size, privileges)?;
        let before = Inline::clone(&inline);
        let size_before = match opened.object() {
            Some(object) => object.size()?,
            None => before.bytes.len() as u64,
        };
        match self.object_for(opened, &mut inline, size)? {
            Some(object) => {
                self.unsettle(opened.id, true)?;
                object.truncate(size)?;
                if let Err(error) = self.flush_if_limited(opened, &mut inline, reserved) {
                    shorten(object, size_before);
                    return Err(error);
                }
            }
            None => {
                inline.bytes.resize(size as usize, 0);
                inline.is_dirty = true;
                // Nobody else flushes what nobody else has open.
                let is_last = self.contents.is_last(opened.id).is_some();
                if is_last || reserved.is_some() || self.must_flush_at_once() {
                    self.flush_or_restore(opened, &mut inline, before.clone())?;
                }
            }
        }
        drop(inline);
        let changed = self.changed(opened, privileges);
        let done = changed.and_then(|()| others(size < size_before));
        done.inspect_err(|_| self.restore(opened, before, &inode))
    }

    /// Gives an open file the length, the contents and the times back that it had before a change
    /// that failed in part. The contents of an object that got shorter are gone.
    fn restore(&self, opened: &Opened, before: Inline, inode: &Inode) {
        {
            let mut inline = opened.inline.write();
            match opened.object() {
                Some(object) => shorten(object, inode.size),
                None => restore_inline(&mut inline, before),
            }
        }
        // The first failure is returned.
        let _ = self.tablet.change_pending(opened.id, |pending| {
            (pending.size, pending.blocks) = (inode.size, inode.blocks);
            (pending.mtime_ns, pending.ctime_ns) = (inode.mtime_ns, inode.ctime_ns);
        });
    }

    /// Changes what space a part of a file takes, as fallocate(2) does.
    ///
    /// # Errors
    ///
    /// Fails with `FBIG` or `INVAL` if the range is wrong, and with `OPNOTSUPP` if the mode is.
    /// Fails with `NOSPC` or `DQUOT` if there is no room.
    pub fn allocate(
        &self,
        opened: &Opened,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        self.with_room(|| self.allocate_now(opened, mode, part, privileges))
    }

    fn allocate_now(
        &self,
        opened: &Opened,
        mode: i32,
        part: Extent,
        privileges: Privileges<'_>,
    ) -> Result<()> {
        let Extent { offset, length } = part;
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno::FBIG)?;
        if length == 0 {
            return Err(Errno::INVAL.into());
        }
        let _changing = self.contents.changing.read();
        self.keep_contents(opened)?;
        let mut inline = opened.inline.write();
        let is_plain = mode & !FALLOC_KEEP_SIZE == 0;
        let size = if mode == 0 { end } else { u64::MAX };
        let is_gained = mode & !(FALLOC_KEEP_SIZE | FALLOC_ZERO_RANGE) == 0;
        // Chunks set no space aside.
        let is_gained = is_gained && self.contents.chunks().is_none();
        let range = offset..if is_gained { end } else { offset };
        let reserved = self.reserve(opened, &inline, size, range, privileges)?;
        match self.object_for(opened, &mut inline, size)? {
            Some(object) => {
                self.unsettle(opened.id, false)?;
                let size_before = object.size()?;
                let allocated = object.allocate(mode, offset, length);
                let flushed =
                    allocated.and_then(|()| self.flush_if_limited(opened, &mut inline, reserved));
                // Some file systems leave the file longer where there was room for a part.
                flushed.inspect_err(|_| shorten(object, size_before))?;
            }
            None if is_plain => {
                let before = Inline::clone(&inline);
                if inline.bytes.len() < end as usize {
                    inline.bytes.resize(end as usize, 0);
                    inline.is_dirty = true;
                }
                if reserved.is_some() || self.must_flush_at_once() {
                    self.flush_or_restore(opened, &mut inline, before)?;
                }
            }
            None => return Err(Errno::OPNOTSUPP.into()),
        }
        drop(inline);
        self.changed(opened, privileges)
    }

    /// Returns where data or a hole begins at or behind an offset, as lseek(2) does.
    ///
    /// # Errors
    ///
    /// Fails with `NXIO` if the offset lies at or behind the end, or no data follows, and as the
    /// disk does.
    pub fn seek(&self, opened: &Opened, is_hole: bool, offset: u64) -> Result<u64> {
        let inline = opened.inline.read();
        match opened.object() {
            Some(object) => object.seek(is_hole, offset),
            None if offset >= inline.bytes.len() as u64 => Err(Errno::NXIO.into()),
            None if is_hole => Ok(inline.bytes.len() as u64),
            None => Ok(offset),
        }
    }

    /// Makes what an open file has, and all that happened to names and attributes before, outlast a
    /// crash.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn sync_file(&self, opened: &Arc<Opened>) -> Result<()> {
        self.with_room(|| {
            self.flush_file(opened)?;
            // A caller that moves the contents out of the record now also syncs them.
            if let Some(object) = opened.file() {
                object.sync_all().map_err(Error::io("an object"))?;
                self.contents.sync_name(opened.id)?;
            }
            self.tablet.flush_inode(opened.id)?;
            Ok(self.tablet.table.sync()?)
        })
    }

    /// Puts what an open file has into its records.
    pub(crate) fn flush_file(&self, opened: &Opened) -> Result<()> {
        match opened.chunked() {
            Some(chunked) => self.flush_chunks(chunked),
            None => opened.flush_inline(&self.tablet, &mut opened.inline.write()),
        }
    }

    /// Returns whether changes of small files go into records at once: usage is counted, which is
    /// what records say, or the disk is full, which whoever changes a file must know.
    fn must_flush_at_once(&self) -> bool {
        self.tablet.accounts.counts() || self.tablet.table.is_short()
    }

    /// Puts what is written into a small file into its records, or gives it what it had before.
    fn flush_or_restore(&self, opened: &Opened, inline: &mut Inline, before: Inline) -> Result<()> {
        let flushed = opened.flush_inline(&self.tablet, inline);
        flushed.inspect_err(|_| restore_inline(inline, before))
    }

    /// Puts the usage of a large file into its records at once if its owners have limits, and gives
    /// back what was reserved.
    fn flush_if_limited(
        &self,
        opened: &Opened,
        inline: &mut Inline,
        reserved: Option<Reservation>,
    ) -> Result<()> {
        if let Some(chunked) = opened.chunked() {
            chunked.reserve(reserved);
            return Ok(());
        }
        match reserved {
            Some(_) => opened.flush_inline(&self.tablet, inline),
            None => Ok(()),
        }
    }
}

impl Opened {
    /// Puts the contents of an open file into its records. The caller has the lock of `inline`.
    pub(crate) fn flush_inline(&self, tablet: &Tablet, inline: &mut Inline) -> Result<()> {
        if !inline.is_dirty && self.object().is_none() {
            return Ok(());
        }
        let _writer = tablet.writer.lock();
        let (place, before) = match tablet.locate(self.id) {
            // It has gone meanwhile, with what it had.
            Err(Error::Posix(Errno::NOENT)) => {
                inline.is_dirty = false;
                return Ok(());
            }
            located => located?,
        };
        let mut inode = before.clone();
        tablet.overlay(&mut inode);
        let mut batch = Transaction::new();
        let key = Space::Contents.of(self.id, b"");
        if inline.is_dirty && self.object().is_none() {
            match inline.bytes.is_empty() {
                true if inode.has(flag::INLINE) => batch.delete(key.as_ref())?,
                true => {}
                false => batch.put(key.as_ref(), &inline.bytes)?,
            }
            inode.flags &= !flag::INLINE;
            inode.flags |= if inline.bytes.is_empty() { 0 } else { flag::INLINE };
            inode.size = inline.bytes.len() as u64;
            inode.blocks = inode.size.div_ceil(512);
        }
        // A file that got shorter needs no more room than is kept for that.
        batch.frees = inode.size < before.size;
        if inode != before {
            tablet.write_inode(&mut batch, &place, Some(&before), &inode)?;
        }
        if !batch.is_empty() {
            tablet.commit(batch)?;
        }
        tablet.forget_pending(self.id);
        inline.is_dirty = false;
        Ok(())
    }
}

/// Gives an object the length back that it had, if it got longer.
fn shorten(object: &Object, size: u64) {
    if object.size().is_ok_and(|now| now > size) {
        // The first failure is returned.
        let _ = object.truncate(size);
    }
}

/// Gives a small file what it had before. If the change reached its records, this has to follow.
fn restore_inline(inline: &mut Inline, before: Inline) {
    let is_dirty = before.is_dirty || !inline.is_dirty;
    *inline = Inline { is_dirty, ..before };
}
