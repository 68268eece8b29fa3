//! Directories with most in them.

use super::*;
use crate::report::listings::Held;

/// Contents of single directories, without those below them.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Directories {
    /// How many can be listed.
    listed: i64,
    mean_entries: f64,
    /// Standard deviation of all of them (not of a sample).
    stdev_entries: f64,
    most_entries: Vec<FullDirectory>,
    /// By the sizes of their entries that are not directories.
    most_bytes: Vec<LargeDirectory>,
}

/// How many entries one directory has.
#[derive(Clone, Debug, Serialize)]
struct FullDirectory {
    path: String,
    /// Directories among them.
    entries: i128,
}

/// Sum of the files of one directory.
#[derive(Clone, Debug, Serialize)]
struct LargeDirectory {
    path: String,
    bytes: i128,
}

/// Collection of the pass over listings.
#[derive(Default)]
pub(in crate::report) struct DirectorySizes {
    listed: i64,
    entries: i64,
    squares: u128,
    most_entries: TopK,
    most_bytes: TopK,
}

impl DirectorySizes {
    /// Begins with none.
    pub(in crate::report) fn new(top: usize) -> Self {
        let (most_entries, most_bytes) = (TopK::new(top), TopK::new(top));
        DirectorySizes { most_entries, most_bytes, ..DirectorySizes::default() }
    }

    /// Takes in what one directory holds.
    pub(in crate::report) fn add(&mut self, id: RowId, held: &Held) {
        self.listed += 1;
        self.entries += held.entries;
        let entries = u128::from(held.entries.unsigned_abs());
        self.squares = self.squares.saturating_add(entries * entries);
        self.most_entries.offer(held.entries, id);
        self.most_bytes.offer(held.bytes, id);
    }

    /// Takes in the directories of another worker.
    pub(in crate::report) fn merge(&mut self, other: DirectorySizes) {
        self.listed += other.listed;
        self.entries += other.entries;
        self.squares = self.squares.saturating_add(other.squares);
        self.most_entries.merge(other.most_entries);
        self.most_bytes.merge(other.most_bytes);
    }
}

impl ReportSection for Directories {
    const TITLE: &'static str = "Directories with most in them";
    const NOTE: Option<&'static str> = Some("Without what is in directories below.");
    const NEEDS: &'static [Need] = &[Need::Listings];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let found = std::mem::take(&mut facts.listings.directories);
        let (mean_entries, stdev_entries) =
            mean_and_deviation(found.listed, i128::from(found.entries), found.squares);
        let entries = facts.first_directories(found.most_entries)?.into_iter();
        let bytes = facts.first_directories(found.most_bytes)?.into_iter();
        Ok(Some(Directories {
            listed: found.listed,
            mean_entries,
            stdev_entries,
            most_entries: entries.map(|(path, entries)| FullDirectory { path, entries }).collect(),
            most_bytes: bytes.map(|(path, bytes)| LargeDirectory { path, bytes }).collect(),
        }))
    }

    fn blocks(&self) -> Vec<Block> {
        let known = Block::Facts(vec![
            (count(self.listed), "directories"),
            (format!("{:.1}", self.mean_entries).into(), "entries each, on average"),
            (format!("{:.1}", self.stdev_entries).into(), "standard deviation"),
        ]);
        let entries = table(&[("entries", true), ("path", false)], &self.most_entries, |row| {
            vec![count(row.entries), name(&row.path)]
        });
        let bytes = table(&[("sizes", true), ("path", false)], &self.most_bytes, |row| {
            vec![size(row.bytes), name(&row.path)]
        });
        let (entries, bytes) =
            (entries.titled("Most entries"), bytes.titled("Most bytes in files"));
        vec![known, entries.block(), bytes.block()]
    }
}
