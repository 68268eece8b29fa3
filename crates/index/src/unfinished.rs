//! A scan that has not come to its end: `INDEX/unfinished`, for root alone.
//!
//! It has the manifests of what the index would hold if what was scanned so far were published, and
//! what remains to be scanned. No reader knows of it: it is not a generation. Its files are named
//! in `INDEX/unfinished-files`, in the form of a journal with the number of the generation that was
//! current; they stay as long as that is, and go once another one is. That list is replaced first,
//! so that no file is named by the document alone.
//!
//! A resumed scan works as an update: remaining directories are listed again from the root. So every
//! rule for directories that change between updates also holds for changes during an interruption.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::failures::Failure;
use crate::journal::{self, Intent};
use crate::manifest::{self, AllManifests, ClassManifest, Document};
use crate::names;
use crate::workers::SharedProgress;
use canopy_model::{Generation, SourcePathBuf, unescape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How long a scan that was interrupted can go on: what was listed is as old.
const AGE_MAX_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

/// A scan of sources that has not come to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unfinished {
    /// Arguments of the scan, in the caller's form.
    pub asked: String,
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: i64,
    /// When this was noted, in nanoseconds since 1970.
    pub noted_ns: i64,
    /// Roots of the sources that were scanned to their end, escaped.
    pub done: Vec<String>,
    /// The source that was not.
    pub source: Option<UnfinishedSource>,
    /// Entries that were scanned, directories among them.
    pub entries: u64,
    /// Directories that were listed.
    pub directories: u64,
    /// Further counts, in the caller's form.
    pub counts: Vec<u64>,
}

/// A source that was not scanned to its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnfinishedSource {
    /// Its root, escaped.
    pub root: String,
    /// Identity of the tree, in the caller's form, to check that it is still there.
    pub identity: String,
    /// When its scan began, in nanoseconds since 1970.
    pub scanned_ns: i64,
    /// Whether times of directories may show that they need not be read.
    pub trusts_times: bool,
    /// Whether listings lack some of what they should have.
    pub is_partial: bool,
    /// Descriptions of missing parts, for people.
    pub missing: Vec<String>,
    /// Directories that remain to be listed, below the root.
    pub remaining: Vec<RemainingDirectory>,
}

/// A directory that remains to be listed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemainingDirectory {
    /// Its path.
    pub path: SourcePathBuf,
    /// Part of it that remains.
    pub extent: RemainingExtent,
    /// Directories in it that were known, besides those of its listing.
    pub(crate) known: Vec<String>,
}

/// Part of a directory that remains to be listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemainingExtent {
    /// It and all below it; the index has nothing of these.
    New,
    /// It and all below it.
    Whole,
    /// It, but what is below only as far as that remains, too, or is not known.
    #[default]
    Alone,
}

impl RemainingDirectory {
    /// Returns one of which nothing else is known.
    pub fn new(path: SourcePathBuf, extent: RemainingExtent) -> Self {
        RemainingDirectory { path, extent, ..Self::default() }
    }

    /// Returns whether all below it remains.
    pub fn is_whole(&self) -> bool {
        self.extent != RemainingExtent::Alone
    }
}

/// The document.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct UnfinishedRecord {
    /// The generation that was current; 0 for none.
    pub(crate) base: Generation,
    /// The last one in names of files.
    pub(crate) generation: Generation,
    pub(crate) about: Unfinished,
    /// Missing parts of sources that were scanned to their end.
    pub(crate) incomplete: Vec<Failure>,
    /// Directories that are for their owner and root alone, by owner.
    pub(crate) beyond_limits: BTreeMap<u32, u64>,
    /// Classes that are not as in the generation that was current, by their place in `classes`.
    pub(crate) changed: Vec<u32>,
    /// State besides the manifests, which it does not name.
    pub(crate) state: AllManifests,
    pub(crate) classes: Vec<ClassManifest>,
}

impl Document for UnfinishedRecord {
    const KIND: &'static str = "unfinished";

    fn is_sound(&self) -> bool {
        self.classes.iter().all(ClassManifest::is_sound)
            && self.changed.iter().all(|&class| (class as usize) < self.classes.len())
    }
}

/// An interrupted scan in an index.
pub(crate) enum Found {
    Nothing,
    /// It can be resumed.
    Record(Box<UnfinishedRecord>),
    /// It cannot be resumed, for this reason.
    Useless(String),
}

/// Reads the interrupted scan of an index in which this generation is current, now.
pub(crate) fn read(index: &Path, current: Generation, now_ns: i64, key: names::Key) -> Found {
    let path = names::unfinished(index);
    let has = |path: &Path| path.symlink_metadata().is_ok();
    if !has(&path) {
        return match has(&names::unfinished_files(index)) {
            true => Found::Useless("nothing was noted of it".to_owned()),
            false => Found::Nothing,
        };
    }
    match manifest::read::<UnfinishedRecord>(&path) {
        Ok(record) if record.state.key != key => {
            Found::Useless("it is of another index".to_owned())
        }
        Ok(record) if record.base != current => {
            Found::Useless("the index has been written since".to_owned())
        }
        Ok(_) if files(index, current).is_none() => {
            Found::Useless("the list of its files is missing or damaged".to_owned())
        }
        // The clock may have been set back.
        Ok(record) if !(0..AGE_MAX_NS).contains(&now_ns.saturating_sub(record.about.noted_ns)) => {
            Found::Useless("it was interrupted more than 24 hours ago".to_owned())
        }
        Ok(record) => Found::Record(Box::new(record)),
        Err(Error::Version { .. }) => Found::Useless("another version noted it".to_owned()),
        Err(error) => Found::Useless(error.to_string()),
    }
}

/// Returns the files that belong to a scan that can go on, below the index, where this generation is
/// current.
pub(crate) fn files(index: &Path, current: Generation) -> Option<Vec<PathBuf>> {
    names::unfinished(index).symlink_metadata().ok()?;
    let path = names::unfinished_files(index);
    path.symlink_metadata().ok()?;
    let list = journal::read_at(&path).ok()?;
    let is_own = list.generation == current;
    is_own.then(|| list.intents.into_iter().map(|(_, path)| path).collect())
}

/// Returns what is known of a scan that can go on, where this generation is current, if the caller
/// may read that.
pub(crate) fn about(index: &Path, current: Generation) -> Option<Unfinished> {
    files(index, current)?;
    let record: UnfinishedRecord = manifest::read(&names::unfinished(index)).ok()?;
    (record.base == current).then_some(record.about)
}

/// Describes the first scan of an index that has not ended, and the command that continues it;
/// `None` if there is no such scan.
pub(crate) fn first_scan(index: &Path) -> Option<String> {
    if names::workers(index).symlink_metadata().is_ok() {
        let told = match SharedProgress::of(index) {
            Some(SharedProgress { root, parts_left, .. }) => format!(
                "workers share its first scan, of {}, with {} left",
                String::from_utf8_lossy(&unescape(&root)),
                counted(parts_left, "part")
            ),
            None => "workers share its first scan".to_owned(),
        };
        return Some(format!("{told}; 'canopy index --worker' joins or continues the scan"));
    }
    names::unfinished(index).symlink_metadata().ok()?;
    let left = about(index, Generation::NONE).and_then(|about| Some(about.source?.remaining.len()));
    let left = left.map_or_else(String::new, |left| {
        format!(", with {} and all below left", counted(left, "directory"))
    });
    Some(format!(
        "its first scan was interrupted, or is running{left}; run the same 'canopy index' again to \
         continue it"
    ))
}

fn counted(count: usize, one: &str) -> String {
    match (count, one.strip_suffix('y')) {
        (1, _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{count} {stem}ies"),
        (_, None) => format!("{count} {one}s"),
    }
}

/// Returns whether there is anything of such a scan.
pub(crate) fn is_there(index: &Path) -> bool {
    let paths = [names::unfinished(index), names::unfinished_files(index)];
    paths.iter().any(|path| path.symlink_metadata().is_ok())
}

/// Notes a scan that has not come to its end, which has these files.
pub(crate) fn write(
    disk: &Disk,
    index: &Path,
    record: &UnfinishedRecord,
    files: &BTreeMap<PathBuf, Intent>,
) -> Result<()> {
    // Files first: they are in no journal once the writer has ended.
    disk.sync_all(index)?;
    let replace = |path: PathBuf, text: &[u8]| -> Result<()> {
        let new = path.with_extension("new");
        disk.remove(&new)?;
        let write = || -> Result<()> {
            let mut file = disk.create(&new, 0o600)?;
            file.write_all(text).map_err(Error::io("write", &new))?;
            file.finish(true)?;
            disk.replace(&new, &path)
        };
        // On a full disk it would take the place of something else.
        write().inspect_err(|_| drop(disk.remove(&new)))
    };
    let list = names::unfinished_files(index);
    replace(list, &journal::encode(index, record.base, files))?;
    let path = names::unfinished(index);
    let text = manifest::encode(&path, record)?;
    replace(path, &text)
}
