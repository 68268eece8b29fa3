//! Costs of requests that are carried out together: each request is charged for the directories
//! that it caused to be listed.

use canopy_index::SourceId;
use canopy_model::{SourcePath, SourcePathBuf};
use canopy_watch::requests::Share;
use parking_lot::Mutex;
use std::collections::HashMap;

/// A directory of an index.
type IndexedDirectory = (SourceId, SourcePathBuf);

/// Listings, counted by request.
#[derive(Default)]
pub(crate) struct Costs(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The source that is scanned.
    source: SourceId,
    /// Requests for each directory.
    asked: HashMap<IndexedDirectory, Vec<usize>>,
    /// Requests for entries of a directory, which is listed for their rows.
    above: HashMap<IndexedDirectory, Vec<usize>>,
    /// Listings, and entries in them, by the directory that was asked for, or above that.
    listed: HashMap<IndexedDirectory, (u64, u64)>,
    requests: usize,
}

impl Costs {
    /// Notes the next request: a directory, and whether the one above is listed, too.
    pub(crate) fn request(&self, source: SourceId, path: SourcePath<'_>, with_row: bool) {
        let mut inner = self.0.lock();
        let number = inner.requests;
        inner.requests += 1;
        inner.asked.entry((source, path.to_buf())).or_default().push(number);
        if let Some(above) = path.parent().filter(|_| with_row) {
            inner.above.entry((source, above.to_buf())).or_default().push(number);
        }
    }

    /// Notes the source of the next listings.
    pub(crate) fn begin(&self, source: SourceId) {
        self.0.lock().source = source;
    }

    /// Notes that a directory was listed, or part of it.
    pub(crate) fn listed(&self, path: SourcePath<'_>, entries: u64) {
        let mut inner = self.0.lock();
        let source = inner.source;
        let mut at = Some(path);
        let mut place = (source, path.to_buf());
        // A directory listed below a requested one is new there: the request pays for it.
        while let Some(path) = at {
            place.1.set(path);
            if inner.asked.contains_key(&place) {
                break;
            }
            at = path.parent();
        }
        if at.is_none() {
            place.1.set(path);
        }
        let (listings, all) = inner.listed.entry(place).or_default();
        *listings += 1;
        *all += entries;
    }

    /// Returns the share of each request, in their order. Requests for one directory split its
    /// cost.
    pub(crate) fn shares(&self) -> Vec<Share> {
        let inner = self.0.lock();
        let mut shares = vec![Share::default(); inner.requests];
        for (place, &(listings, entries)) in &inner.listed {
            let own = inner.asked.get(place).or_else(|| inner.above.get(place));
            for &number in own.into_iter().flatten() {
                let count = own.map_or(1, Vec::len) as u64;
                shares[number].listings += listings.div_ceil(count);
                shares[number].entries += entries.div_ceil(count);
            }
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_directories() {
        let costs = Costs::default();
        costs.request(SourceId(1), SourcePath::escaped("large"), true);
        costs.request(SourceId(1), SourcePath::escaped("small/a"), true);
        costs.request(SourceId(1), SourcePath::escaped("small/a"), false);
        costs.request(SourceId(1), SourcePath::escaped("small/b"), true);
        costs.request(SourceId(2), SourcePath::escaped("large"), false);
        costs.begin(SourceId(1));
        costs.listed(SourcePath::escaped("large"), 100_000);
        costs.listed(SourcePath::escaped("large"), 100_000);
        costs.listed(SourcePath::escaped("large/new/below"), 7);
        costs.listed(SourcePath::escaped("small/a"), 10);
        // For the rows of a and b.
        costs.listed(SourcePath::escaped("small"), 5);
        costs.listed(SourcePath::escaped(""), 3);
        costs.begin(SourceId(2));
        costs.listed(SourcePath::escaped("large"), 1);
        let share = |listings, entries| Share { listings, entries };
        let expected = [share(4, 200_010), share(2, 8), share(1, 5), share(1, 3), share(1, 1)];
        assert_eq!(costs.shares(), expected);
    }
}
