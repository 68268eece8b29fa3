//! Contents of files in records, for clients of servers: read, and changed with the
//! lock of a change. Nobody has files open beside that (`OpenFiles`), so records are all there is.
//!
//! Objects of chunks are made before a record names them, and go once none does: see
//! `contents/chunks/collect.rs`, whose notes these changes write.
//!
//! A session that has ended (`Space::Ended`) cannot have its objects named any more. The note of
//! that is for good, so that what is unnamed then is unnamed for ever.

use crate::contents::FILE_BYTES_MAX;
use crate::contents::chunks::{ChunkId, Stored, blocks, decoded, note_garbage, parse_key};
use crate::error::{Error, Result};
use crate::operation::{
    CHUNKS_MAX, ContentsPart, PutChunks, StoredContents, WriteSmall, Writer as WrittenBy,
};
use crate::quota::Transaction;
use crate::records::change::{Privileges, SetAttributes, lower_mode};
use crate::records::executed::Outcome;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space};
use crate::records::permissions::{Caller, Check};
use crate::records::tablet::Tablet;
use crate::records::xattrs::CAPABILITY;
use canopy_model::Wanted;
use canopy_store::{Direction, Durability, Key, KeyRange};
use rustix::io::Errno;

/// Records of chunks that are removed in one batch when a file is cut off.
const STEP: usize = 1 << 14;

/// A change of contents, before it is written.
struct Writing {
    place: Key,
    before: Inode,
    inode: Inode,
    batch: Transaction,
}

impl Tablet {
    /// Returns what records have of a file's contents.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, with `ISDIR` or `NXIO` if it is not regular, and
    /// with `NODATA` if its contents were not imported. Fails as the table does.
    pub(crate) fn contents(&self, part: &ContentsPart) -> Result<StoredContents> {
        let _writer = self.writer.lock();
        self.contents_now(None, part)
    }

    /// Like `contents`, with the checks of a user, for a caller that has the writer's lock.
    pub(crate) fn contents_now(
        &self,
        check: Option<Check<'_>>,
        part: &ContentsPart,
    ) -> Result<StoredContents> {
        let id = part.id;
        let (_, mut inode) = self.locate(id)?;
        check_regular(&inode)?;
        let may = |wanted| check.map_or(Ok(()), |check| check.contents(&inode, wanted));
        let reads = may(Wanted::READ);
        // A writer needs the size, and the objects that its chunks replace.
        if reads.is_err() {
            may(Wanted::WRITE)?;
        }
        self.overlay(&mut inode);
        let is_withheld = reads.is_err();
        let small = self.small_contents(&inode)?.filter(|_| !is_withheld);
        let mut chunks = Vec::new();
        let count_max = part.count_max.min(CHUNKS_MAX) as usize;
        let mut next = None;
        if inode.has(flag::OBJECT) {
            let start = ChunkId::new(id, part.from).key();
            let range = KeyRange { start, ..Space::Chunks.range_of(id) };
            let mut scan = self.table.scan(&range, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let chunk = chunk_of(id, record.key.name)?;
                if chunks.len() == count_max {
                    next = Some(chunk);
                    break;
                }
                chunks.push((chunk, decoded(ChunkId::new(id, chunk), record.value)?));
            }
        }
        if is_withheld {
            // A checksum would confirm what somebody guesses.
            chunks.iter_mut().for_each(|(_, stored)| *stored = stored.without_checksum());
        }
        Ok(StoredContents { inode, small, is_withheld, chunks, next })
    }

    fn small_contents(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        if !inode.has(flag::INLINE) {
            return Ok(None);
        }
        let bytes = self.table.get(Space::Contents.of(inode.id, b"").as_ref())?;
        let missing = || Error::corrupt(format!("file {} has no contents", inode.id));
        bytes.ok_or_else(missing).map(Some)
    }

    /// Begins a change of contents. The caller has the writer's lock.
    fn begin_writing(
        &self,
        caller: Caller<'_>,
        id: FileId,
        writer: &WrittenBy<'_>,
    ) -> Result<Writing> {
        let (place, before) = self.locate(id)?;
        check_regular(&before)?;
        if let Some(who) = caller.user() {
            self.check(who).contents(&before, Wanted::WRITE)?;
        }
        let mut inode = before.clone();
        self.overlay(&mut inode);
        let mut batch = Transaction::new();
        self.drop_privileges(caller, &mut inode, &mut batch, writer)?;
        let now_ns = self.now_ns();
        (inode.mtime_ns, inode.ctime_ns) = (now_ns, now_ns);
        Ok(Writing { place, before, inode, batch })
    }

    /// Takes from a file that is written what lets its programs act as others. A user's own groups
    /// count, not those that the operation claims.
    fn drop_privileges(
        &self,
        caller: Caller<'_>,
        inode: &mut Inode,
        batch: &mut Transaction,
        writer: &WrittenBy<'_>,
    ) -> Result<()> {
        let user = caller.user().filter(|who| !who.is_root());
        let is_in = |gid| match (user, writer) {
            (Some(who), _) => who.gids.contains(&gid),
            (None, WrittenBy::Member(groups)) => groups.contains(&gid),
            (None, _) => true,
        };
        let privileges = match (user, writer) {
            (Some(_), _) | (None, WrittenBy::Member(_)) => Privileges::Drop(&is_in),
            (None, WrittenBy::Unknown) => Privileges::KeepBound,
            (None, WrittenBy::Privileged) => Privileges::Keep,
        };
        batch.is_bound = !matches!(privileges, Privileges::Keep);
        inode.mode = lower_mode(inode, privileges).unwrap_or(inode.mode);
        if caller.user().is_some() {
            self.drop_xattr(inode, batch, CAPABILITY)?;
        }
        Ok(())
    }

    /// Writes a change of contents, and returns the inode. The caller has the writer's lock.
    fn end_writing(&self, writing: Writing) -> Result<Inode> {
        let Writing { place, before, inode, mut batch } = writing;
        self.write_inode(&mut batch, &place, Some(&before), &inode)?;
        self.commit(batch)?;
        self.forget_pending(inode.id);
        Ok(inode)
    }

    /// Writes pieces into a file whose contents are a record, or that is empty. Returns the inode;
    /// none if the contents are something else, or would be.
    ///
    /// # Errors
    ///
    /// Fails as [`contents`](Self::contents) does, with `FBIG` if the file would become too long,
    /// and with `NOSPC` or `DQUOT` if there is no room.
    pub(crate) fn write_small(
        &self,
        caller: Caller<'_>,
        id: FileId,
        write: &WriteSmall<'_>,
        writer: &WrittenBy<'_>,
    ) -> Result<Option<Inode>> {
        let ends = write.pieces.iter().map(|piece| end_of(piece.offset, piece.bytes.len() as u64));
        let end = ends.chain([end_of(write.size_min, 0)]).try_fold(0, |end, one| Ok(one?.max(end)));
        let end: u64 = end.map_err(|error: Error| error)?;
        let _writer = self.writer.lock();
        let mut writing = self.begin_writing(caller, id, writer)?;
        if writing.before.has(flag::OBJECT) {
            return Ok(None);
        }
        let mut bytes = self.small_contents(&writing.before)?.unwrap_or_default();
        let size = end.max(bytes.len() as u64);
        if size > self.configured().settings.inline_bytes_max as u64 {
            return Ok(None);
        }
        bytes.resize(size as usize, 0);
        for piece in &write.pieces {
            let start = piece.offset as usize;
            bytes[start..start + piece.bytes.len()].copy_from_slice(piece.bytes);
        }
        self.put_small(&mut writing.inode, &mut writing.batch, &bytes)?;
        self.put_outcome(&mut writing.batch, Outcome::Inode(&writing.inode))?;
        self.end_writing(writing).map(Some)
    }

    /// Adds to a batch that small contents are these, and gives the inode their length.
    fn put_small(&self, inode: &mut Inode, batch: &mut Transaction, bytes: &[u8]) -> Result<()> {
        let key = Space::Contents.of(inode.id, b"");
        match bytes.is_empty() {
            true if inode.has(flag::INLINE) => batch.delete(key.as_ref())?,
            true => {}
            false => batch.put(key.as_ref(), bytes)?,
        }
        inode.flags &= !flag::INLINE;
        inode.flags |= if bytes.is_empty() { 0 } else { flag::INLINE };
        inode.size = bytes.len() as u64;
        inode.blocks = blocks(inode.size);
        Ok(())
    }

    /// Records which objects have chunks of a file. Returns the inode; none if its records are not
    /// as the client believes, and nothing changed.
    ///
    /// # Errors
    ///
    /// Fails as [`contents`](Self::contents) does, and with `STALE` if the session has ended. Fails
    /// with `INVAL` if these cannot be chunks, and with `FBIG` if the file would become too long.
    /// Fails with `NOSPC` or `DQUOT` if there is no room.
    pub(crate) fn put_chunks(
        &self,
        caller: Caller<'_>,
        id: FileId,
        put: &PutChunks<'_>,
        writer: &WrittenBy<'_>,
    ) -> Result<Option<Inode>> {
        let end = check_chunks(put, self.configured().settings.chunk_bytes)?;
        let _writer = self.writer.lock();
        let mut writing = self.begin_writing(caller, id, writer)?;
        if self.has_ended(put.session)? {
            return Err(Errno::STALE.into());
        }
        if put.small.is_some_and(|small| !small.is_empty())
            && let Some(who) = caller.user()
        {
            // The outcome would confirm what somebody guesses.
            self.check(who).contents(&writing.before, Wanted::READ)?;
        }
        if self.small_contents(&writing.before)?.as_deref() != put.small {
            return Ok(None);
        }
        let Writing { before, inode, batch, .. } = &mut writing;
        let mut taken = if before.has(flag::OBJECT) { inode.blocks } else { 0 };
        for change in &*put.chunks {
            let chunk = ChunkId::new(id, change.chunk);
            let old = self.chunk_record(chunk)?.filter(|_| before.has(flag::OBJECT));
            // No two objects have one name, and some clients do not know the checksum.
            let known = |stored: Option<Stored>| stored.map(|stored| stored.without_checksum());
            if known(old) != known(change.before) {
                return Ok(None);
            }
            taken = replace_chunk(batch, chunk, old, change.after, taken)?;
        }
        if put.small.is_some() {
            batch.delete(Space::Contents.of(id, b"").as_ref())?;
        }
        inode.size = inode.size.max(end);
        inode.blocks = taken;
        inode.flags = inode.flags & !flag::INLINE | flag::OBJECT;
        self.put_outcome(&mut writing.batch, Outcome::Inode(&writing.inode))?;
        self.end_writing(writing).map(Some)
    }

    fn chunk_record(&self, chunk: ChunkId) -> Result<Option<Stored>> {
        let value = self.table.get(chunk.key().as_ref())?;
        value.map(|value| decoded(chunk, &value)).transpose()
    }

    /// Sets the length of a file and other attributes: all of them, or none. What it gains is zeros.
    /// A file with very many chunks loses those behind the length in several steps, before.
    ///
    /// # Errors
    ///
    /// Fails as [`contents`](Self::contents) does, and with `FBIG` if the length is too large. Fails
    /// with `AGAIN` if small contents would have to become a chunk first, which a client makes.
    /// Fails with `NOSPC` or `DQUOT` if there is no room.
    pub(crate) fn set_length(
        &self,
        caller: Caller<'_>,
        id: FileId,
        (size, set): (u64, &SetAttributes),
        privileges: Privileges<'_>,
    ) -> Result<Inode> {
        end_of(size, 0)?;
        self.check_early(caller, id, |check, inode| check.attributes(inode, set).map(drop))?;
        while self.cut_some_chunks(caller, id, size, set)? {}
        let mut inode = self.change_inode(id, |inode, batch| {
            let check = caller.user().map(|who| self.check(who));
            check.map_or(Ok(()), |check| check.attributes(inode, set).map(drop))?;
            if inode.is_directory() {
                return Err(Errno::ISDIR.into());
            }
            if !inode.is_regular() {
                return Err(Errno::INVAL.into());
            }
            batch.is_bound = !matches!(privileges, Privileges::Keep);
            batch.frees = size <= inode.size;
            self.resize(inode, batch, size)?;
            let now_ns = self.now_ns();
            (inode.mtime_ns, inode.ctime_ns) = (now_ns, now_ns);
            inode.mode = lower_mode(inode, privileges).unwrap_or(inode.mode);
            if check.is_some() {
                self.drop_xattr(inode, batch, CAPABILITY)?;
            }
            match set.has_no_more_than_a_size() {
                true => Ok(()),
                false => self.apply_attributes(caller, inode, batch, set),
            }
        })?;
        self.overlay(&mut inode);
        Ok(inode)
    }

    /// Adds to a batch that a file has a length.
    fn resize(&self, inode: &mut Inode, batch: &mut Transaction, size: u64) -> Result<()> {
        if inode.has(flag::ABSENT) {
            // Contents that were not imported are forgotten with the length.
            return match size {
                0 => {
                    inode.flags &= !flag::ABSENT;
                    (inode.size, inode.blocks) = (0, 0);
                    Ok(())
                }
                _ => Err(Errno::NODATA.into()),
            };
        }
        if !inode.has(flag::OBJECT) {
            let mut bytes = self.small_contents(inode)?.unwrap_or_default();
            if size <= self.configured().settings.inline_bytes_max as u64 {
                bytes.resize(size as usize, 0);
                return self.put_small(inode, batch, &bytes);
            }
            if !bytes.is_empty() {
                return Err(Errno::AGAIN.into());
            }
            // All of it is a hole.
            inode.flags |= flag::OBJECT;
            (inode.size, inode.blocks) = (size, 0);
            return Ok(());
        }
        for (chunk, old, after) in self.cut_chunks(inode.id, size, usize::MAX)? {
            inode.blocks = replace_chunk(batch, chunk, Some(old), after, inode.blocks)?;
        }
        inode.size = size;
        if size == 0 {
            // The next contents may be a record again.
            inode.flags &= !flag::OBJECT;
            inode.blocks = 0;
        }
        Ok(())
    }

    /// Returns the chunks of a file that a length cuts off or shortens, the last one first, with what
    /// they have and what is left of them.
    fn cut_chunks(
        &self,
        id: FileId,
        size: u64,
        count_max: usize,
    ) -> Result<Vec<(ChunkId, Stored, Option<Stored>)>> {
        let chunk_bytes = self.configured().settings.chunk_bytes.max(1);
        let (last, within) = (size / chunk_bytes, size % chunk_bytes);
        let start = ChunkId::new(id, last).key();
        let range = KeyRange { start, ..Space::Chunks.range_of(id) };
        let mut scan = self.table.scan(&range, Direction::Backward)?;
        let mut cut = Vec::new();
        while cut.len() < count_max
            && let Some(record) = scan.next()?
        {
            let chunk = ChunkId::new(id, chunk_of(id, record.key.name)?);
            let old = decoded(chunk, record.value)?;
            let is_left = chunk.number == last && within > 0;
            if is_left && u64::from(old.used) <= within {
                continue;
            }
            cut.push((chunk, old, is_left.then_some(Stored { used: within as u32, ..old })));
        }
        Ok(cut)
    }

    /// Makes holes of some chunks that a length cuts off, if they are too many for one batch.
    /// Returns whether it did.
    fn cut_some_chunks(
        &self,
        caller: Caller<'_>,
        id: FileId,
        size: u64,
        set: &SetAttributes,
    ) -> Result<bool> {
        let _writer = self.writer.lock();
        let cut = self.cut_chunks(id, size, STEP + 1)?;
        if cut.len() <= STEP {
            return Ok(false);
        }
        let (place, before) = self.locate(id)?;
        if let Some(who) = caller.user() {
            self.check(who).attributes(&before, set)?;
        }
        let mut inode = before.clone();
        self.overlay(&mut inode);
        let mut batch = Transaction::freeing();
        for (chunk, old, _) in cut.into_iter().take(STEP) {
            inode.blocks = replace_chunk(&mut batch, chunk, Some(old), None, inode.blocks)?;
        }
        self.end_writing(Writing { place, before, inode, batch }).map(|_| true)
    }

    /// Notes for good that a session of a client has ended. From then on, none of its objects gets
    /// into a record that does not have it.
    ///
    /// # Errors
    ///
    /// Fails as the table does: with `Store` if another process has opened it since.
    pub fn end_session(&self, session: u64) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::freeing();
        batch.put(Space::Ended.numbered(session, b"").as_ref(), b"")?;
        Ok(self.table.write_freeing(&batch, Durability::Durable)?)
    }

    /// Returns sessions that have ended, in the order of their numbers: those above `after`, or from
    /// the first one, and no more than this.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn ended_sessions(&self, after: Option<u64>, count_max: usize) -> Result<Vec<u64>> {
        let mut range = Space::Ended.range();
        if let Some(after) = after {
            range.start = Space::Ended.numbered(after, b"").successor();
        }
        let mut scan = self.table.scan(&range, Direction::Forward)?;
        let mut sessions = Vec::new();
        while sessions.len() < count_max
            && let Some(record) = scan.next()?
        {
            sessions.push(record.key.hash);
        }
        Ok(sessions)
    }

    /// Returns whether the table was added to others, and lacks notes that they have.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn is_new(&self) -> Result<bool> {
        Ok(self.table.get(keys::new().as_ref())?.is_some())
    }

    /// Notes for good that these sessions have ended, and that the table has all notes that it needs
    /// if `is_ready`.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn adopt_ended(&self, sessions: &[u64], is_ready: bool) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Transaction::new();
        for session in sessions {
            batch.put(Space::Ended.numbered(*session, b"").as_ref(), b"")?;
        }
        if is_ready {
            batch.delete(keys::new().as_ref())?;
        }
        Ok(self.table.write(&batch, Durability::Durable)?)
    }

    fn has_ended(&self, session: u64) -> Result<bool> {
        Ok(self.table.get(Space::Ended.numbered(session, b"").as_ref())?.is_some())
    }
}

/// Adds to a batch that a chunk gets another record. Returns the blocks that the file takes then.
fn replace_chunk(
    batch: &mut Transaction,
    chunk: ChunkId,
    old: Option<Stored>,
    new: Option<Stored>,
    taken: u64,
) -> Result<u64> {
    match new {
        Some(new) => batch.put(chunk.key().as_ref(), &new.encode())?,
        None if old.is_some() => batch.delete(chunk.key().as_ref())?,
        None => {}
    }
    if let Some(old) = old
        && new.is_none_or(|new| new.object != old.object)
    {
        note_garbage(batch, chunk, &old)?;
    }
    let of = |stored: Option<Stored>| stored.map_or(0, |one| blocks(one.used.into()));
    Ok((taken + of(new)).saturating_sub(of(old)))
}

/// Returns how long a file is that has these chunks; an error if none can have them. A message may
/// say anything.
fn check_chunks(put: &PutChunks<'_>, chunk_bytes: u64) -> Result<u64> {
    let is_in_order = put.chunks.is_sorted_by(|one, next| one.chunk < next.chunk);
    if chunk_bytes == 0 || put.session == 0 || put.chunks.len() > CHUNKS_MAX as usize {
        return Err(Errno::INVAL.into());
    }
    let is_chunk = |stored: &Stored| {
        stored.object.epoch == put.session
            && (1..=stored.object_bytes).contains(&stored.used)
            && u64::from(stored.object_bytes) <= chunk_bytes
    };
    if !is_in_order || !put.chunks.iter().filter_map(|one| one.after.as_ref()).all(is_chunk) {
        return Err(Errno::INVAL.into());
    }
    let mut end = end_of(put.size_min, 0)?;
    for change in &*put.chunks {
        let start = change.chunk.checked_mul(chunk_bytes).ok_or(Errno::FBIG)?;
        let used = change.after.map_or(0, |stored| u64::from(stored.used));
        end = end.max(match used {
            0 => 0,
            used => end_of(start, used)?,
        });
    }
    Ok(end)
}

/// Returns where a part ends; `FBIG` if no file reaches so far.
fn end_of(offset: u64, length: u64) -> Result<u64> {
    let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
    Ok(end.ok_or(Errno::FBIG)?)
}

fn chunk_of(id: FileId, name: &[u8]) -> Result<u64> {
    parse_key(name).ok_or_else(|| Error::corrupt(format!("file {id}: a chunk's key")))
}

/// Returns an error unless a file is regular and its contents are there.
fn check_regular(inode: &Inode) -> Result<()> {
    match inode.is_regular() {
        true if inode.has(flag::ABSENT) => Err(Errno::NODATA.into()),
        true => Ok(()),
        false => Err(if inode.is_directory() { Errno::ISDIR } else { Errno::NXIO }.into()),
    }
}
