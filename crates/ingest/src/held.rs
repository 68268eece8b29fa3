//! How many entries an index holds.

use canopy_index::{Index, SourceId};
use canopy_text::counted;
use std::path::Path;

/// Counts of entries and index files, for one source or all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Entries that are not directories.
    pub files: i64,
    /// Directories, roots among them.
    pub directories: i64,
    /// Size of the files of the index.
    pub bytes: u64,
    /// Shards of the index.
    pub shards: usize,
}

impl Held {
    /// Returns how many entries there are, as many as find(1) prints.
    pub fn entries(&self) -> i64 {
        self.files + self.directories
    }

    /// Returns how many there are of what, for people.
    pub fn shown(&self) -> String {
        let Held { files, directories, .. } = self;
        format!("{} and {}", counted(files, "file"), counted(directories, "directory"))
    }
}

/// Counts the entries and index files of a source, or of all sources.
///
/// # Errors
///
/// If the index cannot be read.
pub fn count(index: &Index, source: Option<SourceId>) -> anyhow::Result<Held> {
    let is_asked = |id: SourceId| source.is_none_or(|asked| asked == id);
    let roots = index.sources().iter().filter(|source| is_asked(source.id)).count();
    let (shards, bytes, totals) = index.extent(source)?;
    Ok(Held { files: totals.entries, directories: roots as i64 + totals.dirs, bytes, shards })
}

/// Counts the entries and index files of the sources with these roots; `None` if one of them is not
/// a source of its own, or the index cannot be read.
pub fn count_of(location: &Path, roots: &[String]) -> Option<Held> {
    let index = Index::open(location).ok()?;
    let mut sum = Held::default();
    for root in roots {
        let source = index.sources().iter().find(|source| source.root == *root)?;
        let held = count(&index, Some(source.id)).ok()?;
        sum.files += held.files;
        sum.directories += held.directories;
    }
    Some(sum)
}
