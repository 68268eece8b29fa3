//! Writing shards anew: without their dead rows, and small ones of a class as one; files of sealed
//! records too (`join_sealed`).
//!
//! Nothing that a reader sees changes. [`Due::Now`] defines which of it is due. An index that is
//! updated all the time should have few shards and few dead rows. Dead rows should not stay for
//! long, since every reader of a class finds them in its files.

use super::copying::{LISTINGS, copy_listings, copy_values};
use super::cut::Cut;
use super::{Held, Writer, now_ns};
use crate::builder::{Builder, SHARD_ROWS_MAX};
use crate::error::Result;
use crate::listing_ordinal::ListingRange;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::shard::{SMALL_ROWS_MAX, Shard};
use crate::source_id::SourceId;
use canopy_model::{ClassId, parallel};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Small shards of a source in a class from which on they become one.
const SMALL_SHARDS_MAX: usize = 16;

/// For how long a row or a sealed record may be dead before its file is written anew, in
/// nanoseconds.
pub(super) const DEAD_FOR_MAX_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Memory for which it pays that another thread writes, in bytes.
const THREAD_BYTES: usize = 128 << 20;

/// Rows that are copied at a time.
const COPIED_ROWS: usize = 64 * 1024;

/// Shards that are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// All that have dead rows, and small ones where a class has several of them.
    Any,
    /// Those that have been waiting for long, or are too many.
    Now,
}

/// Result of a compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compacted {
    /// Shards that were written anew.
    pub shards: usize,
    /// Shards that have taken their place.
    pub became: usize,
    /// Rows that were left out.
    pub dead: usize,
    /// Files of sealed records that were written anew.
    pub sealed: usize,
    /// Whether some of the due work was left for another time.
    pub is_partial: bool,
}

/// Shards that are written anew as few.
struct Group {
    class: ClassId,
    source: SourceId,
    shards: Vec<Shard>,
    /// Their rows that count.
    rows: usize,
    /// Whether one of them is to be written anew, whatever others there are.
    is_dirty: bool,
}

impl Writer {
    /// Writes shards anew, of which the rows that count are at most `rows_max`, or those of one
    /// shard, and sealed records likewise. Counts with the next generation, like all else. Returns
    /// nothing, and changes no shard, if `stop` has said so.
    pub fn compact(
        &mut self,
        due: Due,
        rows_max: usize,
        stop: impl Fn() -> bool + Sync,
    ) -> Result<Option<Compacted>> {
        self.settle();
        let (groups, is_partial) = self.groups(due, rows_max)?;
        let all = || groups.iter().flat_map(|group| &group.shards);
        let mut compacted = Compacted { shards: all().count(), is_partial, ..Compacted::default() };
        for shard in all() {
            let (live, all) = shard.live_rows()?;
            compacted.dead += all - live;
        }
        let cuts = Mutex::new(Vec::new());
        let threads = self.options.threads.min(self.options.memory_bytes / THREAD_BYTES).max(1);
        let share = self.options.memory_bytes / threads / 2;
        let mut threads = vec![(); threads];
        let count = groups.len();
        let finished = AtomicUsize::new(0);
        parallel(&mut threads, groups, |(), group| {
            if self.write_anew(&group, share, &stop)? {
                let gone = group.shards.iter().map(|shard| shard.record().id.clone());
                cuts.lock().extend(gone.map(|id| Cut::Gone(group.class, id)));
                finished.fetch_add(1, Ordering::Relaxed);
            }
            Result::Ok(())
        })?;
        if finished.into_inner() < count {
            // The files are in the journal.
            self.shards.lock().clear();
            return Ok(None);
        }
        compacted.became = self.shards.lock().len();
        self.take_out(cuts.into_inner());
        let Some((sealed, is_partial)) = self.join_sealed(due, rows_max as u64, stop)? else {
            return Ok(None);
        };
        (compacted.sealed, compacted.is_partial) = (sealed, compacted.is_partial | is_partial);
        Ok(Some(compacted))
    }

    /// Finds out what is written anew, and whether there is more of it.
    fn groups(&self, due: Due, rows_max: usize) -> Result<(Vec<Group>, bool)> {
        let mut candidates: BTreeMap<(ClassId, SourceId), Vec<(Shard, usize, bool)>> =
            BTreeMap::new();
        let small_max = if due == Due::Now { SMALL_SHARDS_MAX } else { 1 };
        let now_ns = now_ns();
        let is_old = |since: Option<i64>| since.is_some_and(|ns| now_ns - ns > DEAD_FOR_MAX_NS);
        let is_dirty_page = |page: &PageRecord| match due {
            Due::Any => page.dead_since_ns.is_some(),
            Due::Now => page.is_wasteful || is_old(page.dead_since_ns),
        };
        for source in self.sources().iter().map(|(source, _)| source.id) {
            let has_many_small = |held: &Held| {
                let pages =
                    held.manifest.shards.pages.iter().filter(|page| page.extent.source == source);
                pages.map(|page| page.small_shards as usize).sum::<usize>() > small_max
            };
            let many = self.classes.iter().filter(|(_, held)| has_many_small(held));
            let many: HashSet<ClassId> = many.map(|(&class, _)| class).collect();
            let is_wanted = |class, page: &PageRecord| {
                is_dirty_page(page) || page.small_shards > 0 && many.contains(&class)
            };
            for (class, shard) in self.shards_where(source, is_wanted)? {
                let live = shard.live_rows()?.0;
                let is_dirty = match due {
                    Due::Any => shard.has_dead(),
                    Due::Now => shard.is_wasteful()? || is_old(shard.record().dead_since_ns),
                };
                candidates.entry((class, source)).or_default().push((shard, live, is_dirty));
            }
        }
        let (mut groups, mut sum, mut is_partial) = (Vec::new(), 0, false);
        for ((class, source), mut shards) in candidates {
            let small = shards.iter().filter(|(_, live, _)| *live < SMALL_ROWS_MAX).count();
            let join = small > small_max;
            shards.retain(|(_, live, is_dirty)| *is_dirty || join && *live < SMALL_ROWS_MAX);
            let mut group = Group { class, source, shards: Vec::new(), rows: 0, is_dirty: false };
            for (shard, live, is_dirty) in shards {
                // A shard alone that could stay as it is would be no step forward.
                let is_something = !groups.is_empty() || group.is_dirty || group.shards.len() > 1;
                if is_something && sum + live > rows_max {
                    is_partial = true;
                    break;
                }
                if group.rows > 0 && group.rows + live > SHARD_ROWS_MAX {
                    let next = Group { shards: Vec::new(), rows: 0, is_dirty: false, ..group };
                    groups.push(std::mem::replace(&mut group, next));
                }
                sum += live;
                group.rows += live;
                group.is_dirty |= is_dirty;
                group.shards.push(shard);
            }
            if group.is_dirty || group.shards.len() > 1 {
                groups.push(group);
            }
        }
        Ok((groups, is_partial))
    }

    /// Writes what counts of shards as new ones, none but the last of which is small, however few
    /// bytes of memory there are: these would be written anew for ever. Returns whether it has come
    /// to its end.
    fn write_anew(&self, group: &Group, share: usize, stop: &impl Fn() -> bool) -> Result<bool> {
        let mut builder = Builder::default();
        let flush = |builder: &mut Builder| match builder.is_empty() {
            true => Ok(()),
            false => self.write_shard(group.class, group.source, std::mem::take(builder)).map(drop),
        };
        for shard in &group.shards {
            for mut live in shard.live_listings()? {
                while !live.is_empty() {
                    if stop() {
                        return Ok(false);
                    }
                    let some = first_listings(shard, live.clone())?;
                    live.start = some.end;
                    copy_listings(shard, some, &mut builder)?;
                    let is_large = builder.rows() >= SMALL_ROWS_MAX && builder.bytes() > share;
                    if builder.is_full() || is_large {
                        flush(&mut builder)?;
                    }
                }
            }
            copy_values(shard, &shard.live_values()?, &mut builder)?;
            for kind in FileKind::ALL {
                shard.close(kind);
            }
        }
        flush(&mut builder)?;
        Ok(true)
    }
}

/// Returns the first listings of a range, as many as fit into memory well.
fn first_listings(shard: &Shard, listings: ListingRange) -> Result<ListingRange> {
    let mut some = listings.start..listings.end.min(listings.start + LISTINGS);
    while some.end - some.start > 1 {
        let (entries, dirs) = shard.rows_of_range(some.clone())?;
        if entries.len() + dirs.len() <= COPIED_ROWS {
            break;
        }
        some.end = some.start + (some.end - some.start) / 2;
    }
    Ok(some)
}
