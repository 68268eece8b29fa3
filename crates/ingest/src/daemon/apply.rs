//! Has the index follow a batch of suspects, by the verbs that the host carries out.

use super::verb::{Verb, VerbCall, VerbResult, VerbRunner};
use crate::Context;
use crate::update::{Suspect, Suspects};
use anyhow::Context as _;
use canopy_index::Index;
use canopy_model::{Generation, unescape};
use canopy_read::locate::subdirectories;
use canopy_read::resolve::locate;
use canopy_read::totals::VisibleTree;
use canopy_watch::requests::{Round, Share};
use canopy_watch::{Batch, is_at_or_below};
use std::ffi::OsStr;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Approximate number of entries of a directory that is listed alone.
const DIRECTORY_ENTRIES: i64 = 50;

/// Brings an index up to date.
pub(super) struct Applier<'a> {
    /// The values of the daemon.
    pub cx: Context<'a>,
    /// Carries verbs out.
    pub runner: &'a dyn VerbRunner,
    /// The index.
    pub index: PathBuf,
    /// Whether a source that is not in the index yet stays on one file system.
    pub one_file_system: bool,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// Turn of a source under that limit, before others have theirs.
    pub turn: Duration,
    /// Most suspects of a source that wait.
    pub suspects_max: usize,
}

impl Applier<'_> {
    /// Divides a batch into the part for this turn of its source, by the entries of the index there,
    /// and the rest, both in any order: a slow scan of one source does not delay others.
    pub fn turn_of(&self, batch: &Batch) -> (Batch, Vec<canopy_watch::Suspect>) {
        let all = || (batch.clone(), Vec::new());
        let Some(rate) = self.rate_max else { return all() };
        let Ok(index) = Index::open(&self.index) else { return all() };
        let entries_max = (f64::from(rate.get()) * self.turn.as_secs_f64()) as i64;
        let mut now = Batch { suspects: Vec::new(), ..batch.clone() };
        let mut left = Vec::from_iter(batch.suspects.iter().rev().cloned());
        let mut entries = 0;
        while let Some(suspect) = left.pop() {
            let Known { entries: more, subdirectories } = Known::of(&index, &suspect);
            // If they were too many, they would become one again.
            let has_room = left.len() + subdirectories.len() < self.suspects_max / 4;
            if more > entries_max && has_room && !subdirectories.is_empty() {
                left.extend(subdirectories);
                left.push(canopy_watch::Suspect { recursive: false, ..suspect });
                continue;
            }
            if entries + more > entries_max && !now.suspects.is_empty() {
                left.push(suspect);
                break;
            }
            entries += more;
            now.suspects.push(suspect);
        }
        left.reverse();
        (now, left)
    }

    /// Updates the index for a batch, and returns the generation that contains it. Ends early, with an
    /// error, once `stop` returns true.
    ///
    /// # Errors
    ///
    /// If the verb fails, or was ended early.
    pub fn apply(
        &self,
        root: &[u8],
        batch: &Batch,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Generation> {
        let tree = Path::new(OsStr::from_bytes(root));
        let result = if self.has(root)? {
            let suspect = |suspect: &canopy_watch::Suspect| Suspect {
                path: path(&suspect.path),
                recursive: suspect.recursive,
                with_row: true,
                given: None,
            };
            let all = batch.suspects.iter().map(suspect).collect();
            let mut inodes = batch.links.clone();
            inodes.sort_unstable();
            let links = Vec::from_iter((!inodes.is_empty()).then(|| (tree.to_owned(), inodes)));
            let suspects = Suspects { all, links, are_requests: false };
            self.run(Verb::Update { suspects: &suspects, repairs: true }, stop)
        } else {
            self.run(Verb::Scan { tree, one_file_system: self.one_file_system }, stop)
        };
        result?.generation.context("no generation has the batch")
    }

    /// Reads the changes of a namespace, given with `ns:` in front, and returns the generation that
    /// contains them, if there were any. Ends early, with an error, once `stop` returns true.
    ///
    /// # Errors
    ///
    /// If the verb fails, or was ended early.
    pub fn follow(
        &self,
        namespace: &Path,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<Option<Generation>> {
        Ok(self.run(Verb::Follow(namespace), stop)?.generation)
    }

    /// Lists directories again that users asked for. Returns a generation that contains them, and the
    /// share of each user. Without changes, there is no new generation.
    ///
    /// # Errors
    ///
    /// If the source is not in the index yet, the verb fails, or was ended early.
    pub fn serve(
        &self,
        root: &[u8],
        round: &Round,
        stop: &dyn Fn() -> bool,
    ) -> anyhow::Result<(Generation, Vec<Share>)> {
        anyhow::ensure!(self.has(root)?, "the source is not in the index yet");
        let all = round.asked().map(|asked| Suspect {
            path: path(&asked.path),
            recursive: false,
            with_row: asked.with_row,
            given: None,
        });
        let suspects = Suspects { all: all.collect(), are_requests: true, ..Suspects::default() };
        let result = self.run(Verb::Update { suspects: &suspects, repairs: false }, stop)?;
        let shares = result.shares.filter(|shares| shares.len() == suspects.all.len());
        result.generation.zip(shares).context("not each request has its share of the costs")
    }

    /// Compacts a portion of the index, if that is due; returns whether it was. Ends early, with an
    /// error, once `stop` returns true.
    ///
    /// # Errors
    ///
    /// If the verb fails, or was ended early.
    pub fn compact(&self, stop: &dyn Fn() -> bool) -> anyhow::Result<bool> {
        Ok(self.run(Verb::Compact, stop)?.generation.is_some())
    }

    /// Returns whether a directory is a source of the index, or lies in one.
    ///
    /// # Errors
    ///
    /// If the index cannot be read.
    pub fn has(&self, root: &[u8]) -> anyhow::Result<bool> {
        if !canopy_index::is_there(&self.index)? {
            return Ok(false);
        }
        let index = Index::open(&self.index)?;
        let holds = |source: &str| is_at_or_below(root, &unescape(source));
        Ok(index.sources().iter().any(|source| holds(&source.root)))
    }

    fn run(&self, verb: Verb<'_>, stop: &dyn Fn() -> bool) -> anyhow::Result<VerbResult> {
        let call = VerbCall { verb, index: &self.index, rate_max: self.rate_max, stop };
        self.runner.run(&self.cx, &call)
    }
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// Data of the index about a suspect.
#[derive(Default)]
struct Known {
    /// Approximate number of entries to look at.
    entries: i64,
    /// Subdirectories of a recursive suspect.
    subdirectories: Vec<canopy_watch::Suspect>,
}

impl Known {
    /// Returns nothing for a path that the index lacks.
    fn of(index: &Index, suspect: &canopy_watch::Suspect) -> Self {
        let known = || -> canopy_read::Result<Self> {
            if !suspect.recursive {
                return Ok(Known { entries: DIRECTORY_ENTRIES, subdirectories: Vec::new() });
            }
            let start = locate(index, OsStr::from_bytes(&suspect.path))?;
            let totals = VisibleTree::of(&start, 1).sum_alone()?;
            let names = subdirectories(&start.view, &start.source, start.path.as_path())?;
            let above = suspect.path.strip_suffix(b"/").unwrap_or(&suspect.path);
            let below = |name: &String| canopy_watch::Suspect {
                path: [above, b"/", &unescape(name)].concat(),
                recursive: true,
            };
            let subdirectories = names.iter().map(below).collect();
            Ok(Known { entries: totals.entries + totals.dirs, subdirectories })
        };
        known().unwrap_or_default()
    }
}
