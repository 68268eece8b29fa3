//! An open file: what its records have, as far as that is known, and what was written since.
//!
//! Locks are taken in this order: `flushing`, `loading`, `state`. The last is held for moments, and nothing
//! is awaited with it.

use super::known::Known;
use super::pending::Pending;
use super::users::Users;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::StoredContents;
use canopy_namespace::{FileId, Inode, Stored};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is open, however often.
pub(super) struct OpenFile {
    pub(super) id: FileId,
    pub(super) state: Mutex<State>,
    /// Held by whoever sends what was written, or sets the length.
    pub(super) flushing: Mutex<()>,
    /// Held by whoever reads the records.
    pub(super) loading: Mutex<()>,
    /// Users who have it open, if servers check them.
    pub(super) users: Users,
}

pub(super) struct State {
    /// The inode, as records last had it.
    pub(super) inode: Inode,
    /// The moment at which that was learned.
    pub(super) learned: LocalMoment,
    /// Contents that are a record.
    pub(super) small: Option<Vec<u8>>,
    /// Whether no user who has the file open may read it.
    pub(super) is_withheld: bool,
    pub(super) known: Known,
    /// Whether the records have to be read anew.
    pub(super) is_stale: bool,
    /// Counts what was learned of the records: an older reply must not replace a newer one.
    pub(super) version: u64,
    /// Changes that are being sent.
    pub(super) sending: Option<Arc<Pending>>,
    /// Changes since.
    pub(super) pending: Pending,
    /// Whether changes were dropped, and no program has learned of it.
    pub(super) has_lost: bool,
}

/// A moment in this process: a number that grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LocalMoment(u64);

impl LocalMoment {
    /// Returns a moment after all earlier ones.
    pub(super) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        LocalMoment(LAST.fetch_add(1, Ordering::SeqCst) + 1)
    }
}

/// Bytes of a chunk beneath changes that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// Nothing: all of it is zeros.
    Hole,
    /// Its part of the small contents.
    Small,
    /// Its part of small contents that nobody here may read.
    Withheld,
    Stored(Stored),
    /// It has to be asked for.
    Unknown,
}

impl OpenFile {
    pub(super) fn new(stored: StoredContents) -> Self {
        let id = stored.inode.id;
        let mut state = State {
            inode: Inode::default(),
            learned: LocalMoment::default(),
            small: None,
            is_withheld: false,
            known: Known::default(),
            is_stale: true,
            version: 0,
            sending: None,
            pending: Pending::default(),
            has_lost: false,
        };
        state.learn(0, stored);
        OpenFile {
            id,
            state: Mutex::new(state),
            flushing: Mutex::default(),
            loading: Mutex::default(),
            users: Users::default(),
        }
    }

    /// Has the records read anew before they are used next. What was asked for before does not
    /// count.
    pub(super) fn doubt(&self) {
        let mut state = self.state.lock();
        state.is_stale = true;
        state.version += 1;
    }

    /// Returns whether everything that was written is in the records.
    pub(super) fn is_clean(&self) -> bool {
        let state = self.state.lock();
        state.pending.is_empty() && state.sending.is_none()
    }
}

impl State {
    /// Takes on what records have from a chunk on.
    pub(super) fn learn(&mut self, from: u64, stored: StoredContents) {
        if self.is_stale {
            self.known = Known::default();
            self.is_stale = false;
        }
        self.known.add(from, &stored.chunks, stored.next);
        self.is_withheld = stored.is_withheld;
        self.set_inode(stored.inode, stored.small);
    }

    /// Takes on an inode and small contents that records have.
    pub(super) fn set_inode(&mut self, inode: Inode, small: Option<Vec<u8>>) {
        (self.inode, self.small) = (inode, small);
        self.learned = LocalMoment::next();
        self.version += 1;
    }

    /// Returns the size, with what was written.
    pub(super) fn size(&self) -> u64 {
        let sending = self.sending.as_ref().map_or(0, |sending| sending.size_min);
        self.inode.size.max(sending).max(self.pending.size_min)
    }

    /// Returns whether contents are chunks. Otherwise a record has them, or there are none.
    pub(super) fn is_chunked(&self) -> bool {
        self.inode.has(flag::OBJECT)
    }

    /// Returns the length of contents that are a record, or at most that of those that are withheld.
    pub(super) fn small_length(&self) -> u64 {
        match &self.small {
            None if self.is_withheld => self.inode.size,
            small => small.as_ref().map_or(0, Vec::len) as u64,
        }
    }

    /// Returns the changes that were not sent, the earlier first.
    pub(super) fn layers(&self) -> impl Iterator<Item = &Pending> {
        self.sending.as_deref().into_iter().chain([&self.pending])
    }

    /// Returns what the record of a chunk has.
    pub(super) fn recorded(&self, chunk: u64) -> Base {
        if !self.is_chunked() {
            return match &self.small {
                Some(_) => Base::Small,
                None if self.is_withheld && self.inode.size > 0 => Base::Withheld,
                None => Base::Hole,
            };
        }
        match self.known.get(chunk) {
            None => Base::Unknown,
            Some(None) => Base::Hole,
            Some(Some(stored)) => Base::Stored(stored),
        }
    }

    /// Returns what a chunk has beneath all changes.
    pub(super) fn base(&self, chunk: u64) -> Base {
        let is_cleared =
            |layer: &Pending| layer.chunks.get(&chunk).is_some_and(|dirty| dirty.is_cleared);
        if self.layers().any(is_cleared) { Base::Hole } else { self.recorded(chunk) }
    }

    /// Calls `pass` with the parts of a range of a chunk that were written, the earlier first: the
    /// place in the range, and the bytes.
    pub(super) fn written(
        &self,
        chunk: u64,
        range: &std::ops::Range<u64>,
        mut pass: impl FnMut(usize, &[u8]),
    ) {
        let layers = Vec::from_iter(self.layers().filter_map(|layer| layer.chunks.get(&chunk)));
        // A hole that was made later takes what was written before.
        let first = layers.iter().rposition(|dirty| dirty.is_cleared).unwrap_or(0);
        for dirty in &layers[first.min(layers.len())..] {
            dirty.extents.within(range.clone()).for_each(|(at, bytes)| pass(at, bytes));
        }
    }

    /// Returns where the last bytes of a chunk end that may not be zeros; 0 if it is a hole.
    pub(super) fn end_of_data(&self, chunk: u64, chunk_bytes: u64) -> u64 {
        let base = match self.base(chunk) {
            Base::Hole | Base::Unknown => 0,
            Base::Stored(stored) => u64::from(stored.used),
            Base::Small | Base::Withheld => {
                let length = self.small_length();
                length.saturating_sub(chunk * chunk_bytes).min(chunk_bytes)
            }
        };
        let mut end = base;
        self.written(chunk, &(0..chunk_bytes), |at, bytes| {
            end = end.max((at + bytes.len()) as u64);
        });
        end
    }

    /// Has the records read anew if an inode shows that they have changed. One that was asked for before
    /// something newer was learned gets that: a size does not go back.
    pub(super) fn note_shown(&mut self, inode: &mut Inode, asked: LocalMoment) {
        if self.learned > asked && inode.ctime_ns < self.inode.ctime_ns {
            inode.size = self.inode.size;
            (inode.mtime_ns, inode.ctime_ns) = (self.inode.mtime_ns, self.inode.ctime_ns);
            return;
        }
        let of = |inode: &Inode| (inode.size, inode.mtime_ns, inode.ctime_ns, inode.flags);
        if of(inode) != of(&self.inode) {
            self.is_stale = true;
            self.version += 1;
        }
    }

    /// Gives an inode what was written and is not in its record.
    pub(super) fn describe(&self, inode: &mut Inode) {
        for layer in self.layers().filter(|layer| !layer.is_empty()) {
            inode.size = inode.size.max(layer.size_min);
            inode.mtime_ns = inode.mtime_ns.max(layer.written_ns);
            inode.ctime_ns = inode.ctime_ns.max(layer.written_ns);
            if let Some(writer) = layer.writer {
                inode.mode = writer.lower(inode.mode, inode.gid);
            }
        }
    }
}
