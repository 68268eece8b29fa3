//! Written bytes of a file that are not in its records: by chunks, with their writers.

use super::extents::Extents;
use canopy_namespace::Privileges;
use canopy_namespace::operation::Writer;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Memory that a chunk takes beside its bytes, about.
const CHUNK_COST: usize = 128;

/// Bits of a mode.
const SETUID: u32 = 0o4000;
const SETGID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// Changes of a chunk, over what its record has.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    /// Whether the chunk was a hole before the extents were written, whatever its record has.
    pub(super) is_cleared: bool,
    pub(super) extents: Extents,
}

/// Changes of a file, over what its records have.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending {
    pub(super) chunks: BTreeMap<u64, Dirty>,
    /// The file is this long at least.
    pub(super) size_min: u64,
    /// The users who made the changes; none if there are none.
    pub(super) writer: Option<Writers>,
    /// When the last change was made, in nanoseconds since 1970, and the first one in milliseconds.
    pub(super) written_ns: i64,
    pub(super) since_ms: u64,
    cost: usize,
}

/// Users who have written, as far as it matters what becomes of privileges and who is bound by
/// quotas. The strictest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Writers {
    Privileged,
    Unknown,
    /// Users who are all in this group.
    Members(u32),
    /// Users of whom not all are in the file's group.
    Others,
}

impl Writers {
    /// Returns who writes a file of a group.
    pub(super) fn new(privileges: Privileges<'_>, gid: u32) -> Self {
        match privileges {
            Privileges::Keep => Writers::Privileged,
            Privileges::KeepBound => Writers::Unknown,
            Privileges::Drop(is_in) if is_in(gid) => Writers::Members(gid),
            Privileges::Drop(_) => Writers::Others,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Writers::Members(one), Writers::Members(other)) if one != other => Writers::Others,
            (one, other) => one.max(other),
        }
    }

    /// Returns the mode that a file of a group gets when its server takes what they have written.
    pub(super) fn lower(self, mode: u32, gid: u32) -> u32 {
        let keeps_setgid = match self {
            Writers::Privileged | Writers::Unknown => return mode,
            Writers::Members(of) => of == gid,
            Writers::Others => false,
        };
        match keeps_setgid && mode & GROUP_EXECUTE == 0 {
            true => mode & !SETUID,
            false => mode & !(SETUID | SETGID),
        }
    }

    /// Returns them as an operation names them.
    pub(super) fn named(self) -> Writer<'static> {
        match self {
            Writers::Privileged => Writer::Privileged,
            Writers::Unknown => Writer::Unknown,
            Writers::Members(gid) => Writer::Member(Cow::Owned(vec![gid])),
            Writers::Others => Writer::Member(Cow::Borrowed(&[])),
        }
    }
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.writer.is_none()
    }

    /// Returns about how much memory it takes.
    pub(super) fn cost(&self) -> usize {
        self.cost
    }

    /// Notes a change by somebody at a time, which leaves the file this long at least.
    pub(super) fn note(&mut self, writer: Writers, size_min: u64, now_ms: u64) {
        if self.writer.is_none() {
            self.since_ms = now_ms;
        }
        self.writer = Some(self.writer.map_or(writer, |before| before.and(writer)));
        self.size_min = self.size_min.max(size_min);
        let now_ns = i64::try_from(now_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        self.written_ns = self.written_ns.max(now_ns);
    }

    /// Writes bytes into a chunk.
    pub(super) fn write(&mut self, chunk: u64, within: u64, bytes: &[u8]) {
        let dirty = self.chunks.entry(chunk).or_insert_with(|| {
            self.cost += CHUNK_COST;
            Dirty::default()
        });
        let before = dirty.extents.cost();
        dirty.extents.write(within, bytes);
        self.cost = self.cost + dirty.extents.cost() - before;
    }

    /// Makes a chunk a hole.
    pub(super) fn clear(&mut self, chunk: u64) {
        let cleared = Dirty { is_cleared: true, extents: Extents::default() };
        self.cost += CHUNK_COST;
        if let Some(before) = self.chunks.insert(chunk, cleared) {
            self.cost -= CHUNK_COST + before.extents.cost();
        }
    }

    /// Puts these changes over earlier ones.
    pub(super) fn over(self, mut earlier: Self) -> Self {
        for (chunk, dirty) in self.chunks {
            if dirty.is_cleared {
                earlier.clear(chunk);
            }
            for (within, bytes) in dirty.extents.parts() {
                earlier.write(chunk, within, bytes);
            }
        }
        if let Some(writer) = self.writer {
            let since_ms = if earlier.is_empty() { self.since_ms } else { earlier.since_ms };
            earlier.note(writer, self.size_min, 0);
            earlier.written_ns = earlier.written_ns.max(self.written_ns);
            earlier.since_ms = since_ms;
        }
        earlier
    }
}
