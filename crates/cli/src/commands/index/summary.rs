//! The summary that `canopy index` prints.

use crate::outcome::{say, say_json, without_numbers};
use canopy_index::Unfinished;
use canopy_ingest::Held;
use canopy_ingest::scan::Scanned;
use canopy_text::counted;
use canopy_text::{TimeStyle, human_size};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Begins the summary of a run that published nothing, since nothing had changed.
pub(crate) const UNCHANGED: &str = "nothing has changed since ";

/// Formats a time, in nanoseconds since 1970.
pub(super) fn shown_time(time_ns: i64) -> String {
    TimeStyle::long_iso().show(time_ns, time_ns)
}

/// The summary of a scan.
pub(super) struct Summary<'a> {
    /// The result of the scan.
    pub scanned: &'a Scanned,
    /// Duration of the command.
    pub seconds: f64,
    /// Counts of the sources, as 'canopy info' prints them; `None` if one is part of another
    /// source.
    pub held: Option<Held>,
}

impl Summary<'_> {
    fn entries(&self) -> u64 {
        match &self.held {
            Some(held) => u64::try_from(held.entries()).unwrap_or_default(),
            None => {
                self.scanned.published.entries
                    + self.scanned.resumed.as_ref().map_or(0, |resumed| resumed.entries)
            }
        }
    }

    /// Formats the indexed entries for people.
    fn shown(&self) -> String {
        let listed = self.scanned.counts.directories.load(Ordering::Relaxed);
        match &self.held {
            Some(held) => held.shown(),
            None => {
                let entries = counted(self.entries(), "entry");
                format!("{entries} in {}", counted(listed, "directory"))
            }
        }
    }

    /// Prints a line, and another where the run went on with an earlier one.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let Summary { scanned, seconds, .. } = self;
        let Scanned { published, counts, .. } = scanned;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        say(format_args!(
            "{}generation {}: {}, {seconds:.1} s ({:.0} entries/s), {} in {}, {} unreadable, \
             {} vanished",
            if published.is_unchanged { UNCHANGED } else { "" },
            published.generation,
            self.shown(),
            published.entries as f64 / seconds,
            human_size(published.bytes as i64),
            counted(published.shards, "shard"),
            count(&counts.failed),
            count(&counts.vanished),
        ))?;
        if let Some(Unfinished { entries, directories, begun_ns, .. }) =
            self.scanned.resumed.as_ref()
        {
            let begun = shown_time(*begun_ns);
            say(format_args!(
                "resumed: {entries} of the entries, in {}, are from the scan of {begun}",
                counted(directories, "directory")
            ))?;
        }
        Ok(())
    }

    /// Prints the summary as an object, with the result of each tree.
    pub(super) fn print_json(&self) -> anyhow::Result<()> {
        let Summary { scanned, seconds, .. } = self;
        let Scanned { published, counts, .. } = scanned;
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let failed = |(path, error): &(PathBuf, anyhow::Error)| {
            let error = without_numbers(&format!("{error:#}"));
            json!({ "path": path.to_string_lossy(), "error": error })
        };
        let object = json!({
            "generation": published.generation,
            "unchanged": published.is_unchanged,
            "complete": scanned.is_complete,
            "entries": self.entries(),
            "resumed_entries": self.scanned.resumed.as_ref().map(|resumed| resumed.entries),
            "files": self.held.map(|held| held.files),
            "directories": self.held.map_or(count(&counts.directories), |held| {
                u64::try_from(held.directories).unwrap_or_default()
            }),
            "listed_directories": count(&counts.directories),
            "seconds": seconds,
            "bytes": published.bytes,
            "shards": published.shards,
            "unreadable": count(&counts.failed),
            "vanished": count(&counts.vanished),
            "sources": scanned.roots,
            "failed": scanned.failed.iter().map(failed).collect::<Vec<Value>>(),
        });
        say_json(&object)
    }
}
