//! Costs of requests that are carried out together: each request is charged for the directories
//! that it caused to be listed.

use canopy_index::SourceId;
use canopy_watch::requests::Share;
use parking_lot::Mutex;
use std::collections::HashMap;

/// A path in a source, by the source's number.
type SourcePath = (SourceId, String);

/// Listings, counted by request.
#[derive(Default)]
pub(crate) struct Costs(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The source that is scanned.
    source: SourceId,
    /// Requests for each directory.
    asked: HashMap<SourcePath, Vec<usize>>,
    /// Requests for entries of a directory, which is listed for their rows.
    above: HashMap<SourcePath, Vec<usize>>,
    /// Listings, and entries in them, by the directory that was asked for, or above that.
    listed: HashMap<SourcePath, (u64, u64)>,
    requests: usize,
}

impl Costs {
    /// Notes the next request: a directory, and whether the one above is listed, too.
    pub(crate) fn request(&self, source: SourceId, path: &str, with_row: bool) {
        let mut inner = self.0.lock();
        let number = inner.requests;
        inner.requests += 1;
        inner.asked.entry((source, path.to_owned())).or_default().push(number);
        if let Some(above) = parent(path).filter(|_| with_row) {
            inner.above.entry((source, above.to_owned())).or_default().push(number);
        }
    }

    /// Notes the source of the next listings.
    pub(crate) fn begin(&self, source: SourceId) {
        self.0.lock().source = source;
    }

    /// Notes that a directory was listed, or part of it.
    pub(crate) fn listed(&self, path: &str, entries: u64) {
        let mut inner = self.0.lock();
        let source = inner.source;
        let mut at = Some(path);
        let mut place = (source, path.to_owned());
        // A directory listed below a requested one is new there: the request pays for it.
        while let Some(path) = at {
            path.clone_into(&mut place.1);
            if inner.asked.contains_key(&place) {
                break;
            }
            at = parent(path);
        }
        if at.is_none() {
            path.clone_into(&mut place.1);
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

/// Returns the directory above a path in a source; none of the root.
fn parent(path: &str) -> Option<&str> {
    match path.rsplit_once('/') {
        Some((above, _)) => Some(above),
        None => (!path.is_empty()).then_some(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_its_own_directories() {
        let costs = Costs::default();
        costs.request(SourceId(1), "large", true);
        costs.request(SourceId(1), "small/a", true);
        costs.request(SourceId(1), "small/a", false);
        costs.request(SourceId(1), "small/b", true);
        costs.request(SourceId(2), "large", false);
        costs.begin(SourceId(1));
        costs.listed("large", 100_000);
        costs.listed("large", 100_000);
        costs.listed("large/new/below", 7);
        costs.listed("small/a", 10);
        // For the rows of a and b.
        costs.listed("small", 5);
        costs.listed("", 3);
        costs.begin(SourceId(2));
        costs.listed("large", 1);
        let share = |listings, entries| Share { listings, entries };
        let expected = [share(4, 200_010), share(2, 8), share(1, 5), share(1, 3), share(1, 1)];
        assert_eq!(costs.shares(), expected);
    }
}
