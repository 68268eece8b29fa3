//! The progress of a scan, for people who wait at a terminal.

use crate::Context;
use crate::held::count;
use crate::listing::Scans;
use canopy_index::Index;
use canopy_model::unescape;
use canopy_scan::Counts;
use canopy_text::counted;
use canopy_text::safe::message_line;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The progress of a run.
pub(super) struct TreeProgress {
    /// Entries that the last generation has of each source, by its root, escaped.
    known: HashMap<String, u64>,
    sources: usize,
    current: Mutex<Option<Current>>,
}

/// The source that is scanned.
struct Current {
    /// Its place among those that are.
    number: usize,
    root: PathBuf,
    known: Option<u64>,
    begun: Instant,
    entries_before: u64,
}

impl TreeProgress {
    /// Returns the progress of a run over this number of trees. `location` is the index.
    pub(super) fn new(cx: &Context<'_>, location: &Path, sources: usize) -> Self {
        let is_seen = cx.observer.shows_progress();
        let index = is_seen.then(|| Index::open(location).ok()).flatten();
        let known = index.map(|index| {
            // Without the root, as scans count.
            let entries = |id| u64::try_from(count(&index, Some(id)).ok()?.entries() - 1).ok();
            let sources = index.sources().iter();
            sources.filter_map(|it| Some((it.root.clone(), entries(it.id)?))).collect()
        });
        TreeProgress { known: known.unwrap_or_default(), sources, current: Mutex::new(None) }
    }

    /// Begins a tree.
    pub(super) fn begin(&self, root: &Path, escaped: &str, counts: &Counts) {
        let mut current = self.current.lock();
        *current = Some(Current {
            number: current.as_ref().map_or(0, |last| last.number) + 1,
            root: root.to_owned(),
            known: self.known.get(escaped).copied(),
            begun: Instant::now(),
            entries_before: counts.entries.load(Ordering::Relaxed),
        });
    }

    /// Returns a line for people.
    pub(super) fn shown(&self, scans: &Scans<'_>) -> String {
        let current = self.current.lock();
        let Some(current) = &*current else { return "preparing".to_owned() };
        let Current { number, ref root, known, begun, entries_before } = *current;
        let number = if self.sources > 1 {
            format!("{number} of {}: ", self.sources)
        } else {
            String::new()
        };
        let entries = scans.counts.entries.load(Ordering::Relaxed) - entries_before;
        let pace = pace(entries, known, begun.elapsed());
        let errors = match scans.counts.faults() {
            0 => String::new(),
            errors => format!(", {}", counted(errors, "error")),
        };
        let mut line = format!("{number}{}: {pace}{errors}", root.display());
        let at = scans.whereabouts.path();
        if !at.as_path().is_root() {
            line += "; ";
            line += &String::from_utf8_lossy(&unescape(at.as_str()));
        }
        message_line(&line).into_owned()
    }
}

/// Returns how many entries there are so far, of how many if that is known, and how long the rest
/// takes.
fn pace(entries: u64, known: Option<u64>, elapsed: Duration) -> String {
    let rate = entries as f64 / elapsed.as_secs_f64().max(0.001);
    let Some(known) = known.filter(|known| *known > entries) else {
        return format!("{}, {rate:.0}/s", counted(entries, "entry"));
    };
    let done =
        format!("{entries} of about {} ({} %)", counted(known, "entry"), entries * 100 / known);
    if entries == 0 {
        return done;
    }
    let seconds = ((known - entries) as f64 / rate).ceil() as u64;
    let left = match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    };
    format!("{done}, {rate:.0}/s, {left} left")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_is_told_where_the_last_generation_knows_it() {
        for (entries, known, seconds, expected) in [
            (500, None, 2, "500 entries, 250/s"),
            (0, Some(10), 1, "0 of about 10 entries (0 %)"),
            (500, Some(2000), 2, "500 of about 2000 entries (25 %), 250/s, 6 s left"),
            (9, Some(90_009), 1, "9 of about 90009 entries (0 %), 9/s, 2 h 46 min left"),
            (99, Some(9999), 10, "99 of about 9999 entries (0 %), 10/s, 16 min left"),
            (2001, Some(2000), 1, "2001 entries, 2001/s"),
        ] {
            assert_eq!(pace(entries, known, Duration::from_secs(seconds)), expected);
        }
    }
}
