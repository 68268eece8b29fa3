//! Runs that find all as it was, which publish nothing: a generation more would only take the place
//! of one that is kept. When that was is recorded besides, in `failures`.

use super::refresh::{Refresh, Seen};
use super::sources::Begun;
use super::{NewSource, Published, Writer};
use crate::error::Result;
use crate::failures::Checked;
use crate::source_id::SourceId;
use canopy_model::Generation;
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

impl Writer {
    /// Returns whether nothing of what was listed again is other than it was, and no more was listed
    /// than was asked for.
    pub(super) fn is_as_before(&self, begun: &Begun, seen: &Seen) -> bool {
        begun.refresh.as_ref().is_some_and(|refresh| {
            refresh.compares
                && !self.has_changed
                && seen.same == seen.listings
                && seen.same == refresh.known.len()
                && refresh.whole.read().len() == refresh.whole_asked
                && self.scans.get(&refresh.source) == begun.new.scan.as_ref()
                && (!Self::has_new_root(begun) || self.has_root_as_before(begun, refresh.source))
        })
    }

    /// Returns whether what is known of the root of a source besides its listing is as it was.
    fn has_root_as_before(&self, begun: &Begun, source: SourceId) -> bool {
        let class = self.places_of(&begun.new).listers;
        let mut known =
            self.classes.get(&class).into_iter().flat_map(|held| &held.manifest.sources);
        known.find(|known| known.id == source).is_some_and(|known| {
            let times = (known.scanned_ns, known.updated_ns);
            let mut new = begun.new.record(source);
            (new.scanned_ns, new.updated_ns) = times;
            *known == new
        })
    }

    /// Returns whether all that was scanned since the index was opened are parts of sources that are
    /// as they were, so that there is nothing to publish.
    pub fn has_nothing_new(&self) -> bool {
        let is_as_before = |begun: &Begun| begun.is_as_before.load(Relaxed);
        let current = self.current.as_ref();
        !self.has_changed
            && !self.renews
            && current.is_some_and(|current| current.retention == self.retention)
            && self.begun.values().all(is_as_before)
    }

    /// Ends a run that has nothing new ([`Writer::has_nothing_new`]): no generation is made, and
    /// written files are removed. Missing parts of sources are recorded.
    pub fn end_unchanged(mut self) -> Result<Published> {
        let mut published = Published {
            generation: self
                .current
                .as_ref()
                .map_or(Generation::NONE, |current| current.generation),
            is_unchanged: true,
            ..self.published_in_all()
        };
        for (id, begun) in std::mem::take(&mut self.begun) {
            published.entries += begun.entries.load(Relaxed);
            if begun.refresh.as_ref().is_some_and(Refresh::is_all) {
                self.failures.remove(&begun.new.root);
                let NewSource { root, scanned_ns, .. } = begun.new;
                // Where a scan went on, some was listed before.
                let before = begun.refresh.and_then(|refresh| refresh.scanned_ns);
                let scanned_ns = before.unwrap_or(scanned_ns);
                let sources = self.classes.values().flat_map(|held| &held.manifest.sources);
                let roots: HashSet<&str> = sources.map(|source| &*source.root).collect();
                self.failures.check(Checked { root, scanned_ns }, |root| roots.contains(root));
            }
            self.abandon(id);
        }
        // The next run would take what this one noted for all that was found.
        if self.has_noted.load(Relaxed) {
            self.give_up_unfinished()?;
        }
        published.kept = published.entries;
        for failure in std::mem::take(&mut self.incomplete) {
            self.failures.add(failure);
        }
        published.unrecorded = self.write_failures().err().map(|error| error.to_string());
        Ok(published)
    }
}
