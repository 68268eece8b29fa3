//! `du`: space and counts of directories, as du(1) adds them up.
//!
//! There are three ways to an answer. With `-s` each argument costs two look-ups a shard. Lines of
//! directories take one pass over the listings. Options that depend on single entries (`-a`,
//! `--time`, exclusion, other file systems) take a walk over all rows, in `walk`. All print in path
//! order, each directory after its contents, unless lines are to be sorted. Where symbolic links
//! are followed, directories are looked up one by one, in `logical`.

mod breakdown;
mod lines;
mod logical;
mod tree;
mod walk;

use crate::error::{Error, Result, found_or_failed};
use crate::find::Outside;
use canopy_index::{Index, SourceId};
use canopy_model::{Attributes, Device, SourcePath, SourcePathBuf, Totals, escape, join, unescape};
use canopy_read::Lost;
use canopy_read::fold::fold_tree;
use canopy_read::follow::locate_all_followed;
use canopy_read::gaps;
use canopy_read::listings::depth;
use canopy_read::locate::{Start, absolute_path, why_unlisted, with_one_slash};
use canopy_read::resolve::{locate, locate_all};
use canopy_read::totals::{DirectoryTotals, SeenInodes, VisibleTree, truncated};
use canopy_text::{Characters, Glob, SizeForm, TimeStyle};
use lines::{Line, Lines};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

pub use breakdown::By;

/// Quantity that is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Space taken on disk.
    #[default]
    Disk,
    /// Sizes of files and directories.
    Apparent,
    /// Number of inodes.
    Inodes,
}

/// Time that is shown: the latest of all entries that a line stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// Last access.
    Access,
    /// Last change of the contents.
    Modification,
    /// Last change of the inode.
    Change,
}

/// In which order lines are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Largest first.
    Size,
    /// By the bytes of paths.
    Name,
}

/// How to add up and print.
#[derive(Debug, Default)]
pub struct DuOptions {
    /// Quantity that is added up.
    pub measure: Measure,
    /// How sizes are shown.
    pub form: SizeForm,
    /// Whether to print a line for entries that are not directories too.
    pub all: bool,
    /// How far below an argument lines are printed; 0 for the argument alone.
    pub depth_max: Option<u32>,
    /// Whether to print a grand total.
    pub total: bool,
    /// Whether lines end with NUL.
    pub null: bool,
    /// Whether every name of a hard link counts.
    pub count_links: bool,
    /// Whether lines of directories are without the directories in them.
    pub separate: bool,
    /// Whether symbolic links that are named as arguments are followed.
    pub dereference: bool,
    /// Whether all symbolic links are followed.
    pub logical: bool,
    /// Whether every file and directory counts once, also where no hard link tells that it may have
    /// been met before; so it is with several arguments.
    pub once: bool,
    /// Whether directories on other devices than their argument's are left out.
    pub one_file_system: bool,
    /// Patterns of what is left out, of whole paths or of what follows a slash.
    pub exclude: Vec<Exclude>,
    /// The time that is shown, and how.
    pub time: Option<(TimeKind, TimeStyle)>,
    /// Lines with less than this are not printed, or those with more than its negative.
    pub threshold: i64,
    /// Show sums of parts instead of directories.
    pub by: Option<By>,
    /// The user to whom all that is added up belongs.
    pub owner: Option<u32>,
    /// The order of lines; none for that of the walk.
    pub order: Option<Order>,
    /// How many lines to print at most.
    pub top: Option<usize>,
    /// Whether to print JSON.
    pub json: bool,
    /// Whether to print directories as a tree with bars of these columns.
    pub tree: Option<usize>,
    /// Whether bars are of `#`.
    pub ascii: bool,
    /// Whether the output is a terminal, which names must not disturb.
    pub terminal: bool,
    /// How many threads read.
    pub threads: usize,
}

impl DuOptions {
    /// Returns how what is added up is shown: a count without a unit.
    fn shown_form(&self) -> SizeForm {
        match self.measure {
            Measure::Inodes => self.form.with_block_bytes(1),
            Measure::Disk | Measure::Apparent => self.form,
        }
    }

    /// Returns whether an entry is to be added up, by its owner.
    fn counts(&self, attributes: &Attributes) -> bool {
        self.owner.is_none_or(|owner| owner == attributes.uid)
    }

    /// Returns the time of an entry that is asked for, the earliest there is if none is.
    fn time_of(&self, attributes: &Attributes) -> i64 {
        match self.time {
            None => i64::MIN,
            Some((TimeKind::Access, _)) => attributes.atime_ns,
            Some((TimeKind::Modification, _)) => attributes.mtime_ns,
            Some((TimeKind::Change, _)) => attributes.ctime_ns,
        }
    }
}

/// A pattern of `--exclude`.
#[derive(Debug)]
pub struct Exclude(Glob);

impl Exclude {
    /// Compiles a shell pattern, in which `*` matches slashes too. Fails as [`Glob::new`] does.
    pub fn new(pattern: &[u8]) -> canopy_text::Result<Self> {
        Glob::new(pattern, false, Characters::of_locale()).map(Exclude)
    }

    /// Returns whether an escaped path, or what follows one of its slashes, matches.
    fn matches(&self, path: &str) -> bool {
        let after = |(at, _): (usize, &str)| &path[at + 1..];
        let mut ends = path.match_indices('/').map(after).filter(|rest| !rest.starts_with('/'));
        self.0.matches(path) || ends.any(|rest| self.0.matches(rest))
    }
}

/// Prints the space that each path takes. Returns the paths that could not be answered; other
/// errors end it. Blocks.
pub fn run(
    index: &Index,
    paths: &[OsString],
    options: &DuOptions,
    output: &mut dyn Write,
) -> Result<Vec<Error>> {
    let lines = Lines::new(options, output);
    // The grand total's time is at least 1970, as in du(1).
    let sum = Tally { time_ns: 0, ..Tally::default() };
    let (seen, counted) = (SeenInodes::default(), Vec::new());
    let mut du = Du { index, options, alone: false, seen, counted, lines, sum };
    let mut failed = Vec::new();
    for given in paths {
        if given.is_empty() {
            failed.push(Error::NoName);
            continue;
        }
        let given = OsStr::from_bytes(with_one_slash(given.as_bytes()));
        if du.excluded(&escape(given.as_bytes())) {
            continue;
        }
        let found = match options.dereference || options.logical {
            true => led_to(index, given),
            false => locate_all(index, given),
        };
        let said = |error| Error::cannot("access", error);
        let Some(starts) = found_or_failed(found, &mut failed, said)? else { continue };
        du.alone = !options.once && paths.len() == 1 && starts.len() == 1;
        for start in &starts {
            match options.by {
                Some(_) => breakdown::print(start, options, &mut du.lines)?,
                None if options.logical => {
                    let sum = logical::walk(&mut du, start, &mut failed)?;
                    du.sum += sum;
                }
                None => du.argument(start, &mut failed)?,
            }
            if options.tree.is_some() {
                du.lines.finish()?;
            }
        }
    }
    du.lines.finish()?;
    if options.total {
        let line = du.line(&du.sum, b"total".to_vec());
        du.lines.total(line)?;
    }
    du.lines.end()?;
    Ok(failed)
}

/// Finds what a path leads to, also to a file that no index covers.
fn led_to(index: &Index, given: &OsStr) -> canopy_read::Result<Vec<Start>> {
    match locate_all_followed(index, given) {
        Err(canopy_read::Error::Lost { path, why: Lost::Outside }) => {
            let start = locate(index, given)?;
            let found = Outside::default().file(&start);
            let inode = found.map_err(|why| canopy_read::Error::Lost { path, why })?;
            Ok(vec![Start { inode, ..start }])
        }
        found => found,
    }
}

/// Sum of some entries.
#[derive(Clone, Copy, Debug)]
struct Tally {
    totals: Totals,
    /// The latest time of any of them, in nanoseconds since 1970.
    time_ns: i64,
}

impl Default for Tally {
    fn default() -> Self {
        Tally { totals: Totals::default(), time_ns: i64::MIN }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.totals += other.totals;
        self.time_ns = self.time_ns.max(other.time_ns);
    }
}

impl Tally {
    /// Returns whether nothing was added up.
    fn is_empty(&self) -> bool {
        self.totals.entries == 0 && self.totals.dirs == 0
    }

    /// Returns what an entry that is not a directory adds.
    fn of_file(attributes: &Attributes, options: &DuOptions) -> Self {
        let totals = Totals::of_entry(attributes.size_bytes, attributes.blocks);
        Tally { totals, time_ns: options.time_of(attributes) }
    }

    /// Returns what a directory adds by itself.
    fn of_dir(attributes: &Attributes, options: &DuOptions) -> Self {
        if !options.counts(attributes) {
            return Tally::default();
        }
        let totals = Totals::of_directory(attributes.size_bytes, attributes.blocks);
        Tally { totals, time_ns: options.time_of(attributes) }
    }
}

/// An argument that was counted, and is not counted again where another one meets it.
struct Counted {
    source: SourceId,
    path: SourcePathBuf,
    dev: Device,
    /// Its device and inode, where another path may lead to the same directory.
    id: Option<(Device, u64)>,
    /// How it was named, escaped.
    given: String,
}

impl Counted {
    fn of(start: &Start, id: Option<(Device, u64)>) -> Self {
        let (source, path, dev) = (start.source.id, start.path.clone(), start.inode.dev);
        Counted { source, path, dev, id, given: escape(&start.given).into_owned() }
    }
}

struct Du<'a> {
    index: &'a Index,
    options: &'a DuOptions,
    /// Whether there is but one argument.
    alone: bool,
    /// Links that were counted already, over all arguments.
    seen: SeenInodes,
    counted: Vec<Counted>,
    lines: Lines<'a>,
    sum: Tally,
}

impl Du<'_> {
    /// Puts the lines of an argument, unless an earlier one has counted it.
    fn argument(&mut self, start: &Start, failed: &mut Vec<Error>) -> Result<()> {
        let id = self.directory_id(start)?;
        let is_again = id.is_some() && self.counted.iter().any(|counted| counted.id == id);
        if is_again || self.counted_above(start) {
            return Ok(());
        }
        let sum = if !start.is_dir() {
            self.file(start)?
        } else if self.is_summary(start) {
            self.report_unlisted(start, &[], failed)?;
            self.summary(start)?
        } else {
            let loops = gaps::loops(start)?;
            self.report_unlisted(start, &loops, failed)?;
            match self.must_walk(start) {
                true => walk::walk(self, start, loops)?,
                false => self.tree(start, &loops)?,
            }
        };
        self.sum += sum;
        self.counted.push(Counted::of(start, id));
        Ok(())
    }

    /// Returns the device and inode of a directory that another argument may be, too, by a bind
    /// mount. Imports may lack inode numbers.
    fn directory_id(&self, start: &Start) -> Result<Option<(Device, u64)>> {
        let ino = start.inode.attributes.ino;
        match self.alone || self.options.count_links || !start.is_dir() || ino == 0 {
            true => Ok(None),
            false => Ok(Some((start.device()?, ino))),
        }
    }

    fn excluded(&self, path: &str) -> bool {
        self.options.exclude.iter().any(|pattern| pattern.matches(path))
    }

    /// Returns whether an earlier argument has counted this one.
    fn counted_above(&self, start: &Start) -> bool {
        let met = |counted: &Counted| {
            counted.source == start.source.id
                && start.path.as_path().is_below(counted.path.as_path())
                && (!self.options.one_file_system || counted.dev == start.inode.dev)
                && !self.excluded_below(counted, start.path.as_path())
        };
        !self.options.count_links && self.counted.iter().any(met)
    }

    /// Returns whether an argument was counted without what leads from it to a path.
    fn excluded_below(&self, counted: &Counted, path: SourcePath<'_>) -> bool {
        let below = path.as_str()[counted.path.as_str().len()..].trim_start_matches('/');
        let ends = below.match_indices('/').map(|(at, _)| at).chain([below.len()]);
        let given = counted.given.trim_end_matches('/');
        !below.is_empty() && ends.into_iter().any(|end| self.excluded(&join(given, &below[..end])))
    }

    /// Returns earlier arguments that lie below this one, by their paths.
    fn counted_below(&self, start: &Start) -> Vec<SourcePathBuf> {
        if self.options.count_links {
            return Vec::new();
        }
        let below = |counted: &&Counted| {
            counted.source == start.source.id
                && counted.path.as_path().is_below(start.path.as_path())
        };
        self.counted.iter().filter(below).map(|counted| counted.path.clone()).collect()
    }

    /// Reports directories below a start that the caller may not list, or that the index lacks,
    /// unless they are excluded.
    fn report_unlisted(
        &self,
        start: &Start,
        loops: &[SourcePathBuf],
        failed: &mut Vec<Error>,
    ) -> Result<()> {
        let from = Counted::of(start, None);
        for directory in gaps::unlisted(start)? {
            let elsewhere = self.options.one_file_system && directory.inode.dev != start.inode.dev;
            let path = directory.path.as_path();
            let in_loop = || loops.iter().any(|around| path.is_below(around.as_path()));
            if elsewhere || in_loop() || self.excluded_below(&from, path) {
                continue;
            }
            failed.extend(why_unread(&directory)?);
        }
        Ok(())
    }

    /// Returns whether the sums that are kept ready are all that is asked for.
    fn is_summary(&self, start: &Start) -> bool {
        let options = self.options;
        !self.must_walk(start) && options.depth_max == Some(0) && !options.separate
    }

    /// Returns whether single entries have to be looked at.
    fn must_walk(&self, start: &Start) -> bool {
        let options = self.options;
        options.all
            || options.one_file_system
            || !options.exclude.is_empty()
            || options.time.is_some()
            || options.owner.is_some()
            || !self.counted_below(start).is_empty()
    }

    /// Puts the line of a start that is not a directory, unless it was counted.
    fn file(&mut self, start: &Start) -> Result<Tally> {
        let attributes = &start.inode.attributes;
        let id = (start.inode.dev, attributes.ino);
        if !self.options.counts(attributes) {
            return Ok(Tally::default());
        }
        if attributes.nlink > 1 && !self.options.count_links && !self.seen.insert(id) {
            return Ok(Tally::default());
        }
        let tally = Tally::of_file(attributes, self.options);
        self.lines.put(self.line(&tally, start.given.clone()))?;
        Ok(tally)
    }

    /// Puts the one line of a directory with all below it.
    fn summary(&mut self, start: &Start) -> Result<Tally> {
        let mut tally = Tally::of_dir(&start.inode.attributes, self.options);
        let subtree = VisibleTree::of(start, self.options.threads);
        tally.totals += match self.options.count_links {
            true => subtree.sum_of_names()?,
            false if self.alone => subtree.sum_alone()?,
            false => subtree.sum(&mut self.seen)?,
        };
        self.lines.put(self.line(&tally, start.given.clone()))?;
        Ok(tally)
    }

    /// Puts the lines of a start and the directories below it but those that are in loops.
    fn tree(&mut self, start: &Start, loops: &[SourcePathBuf]) -> Result<Tally> {
        let subtree = VisibleTree::of(start, self.options.threads);
        let shown = self.options.depth_max.unwrap_or(u32::MAX).saturating_add(start.depth());
        // Directories below those that are shown are added to them, unless they are to be apart.
        let apart = self.options.separate || !loops.is_empty();
        let kept = if apart { usize::MAX } else { shown as usize };
        let in_loop =
            |path: SourcePath<'_>| loops.iter().any(|around| path.is_below(around.as_path()));
        let mut nodes = subtree.nodes(kept)?;
        nodes.retain(|node| !in_loop(node.path.as_path()));
        let own = Tally::of_dir(&start.inode.attributes, self.options).totals;
        match nodes.first_mut() {
            Some(first) if first.path == start.path => first.own += own,
            _ => nodes.insert(0, DirectoryTotals { path: start.path.clone(), own }),
        }
        let links = if self.options.count_links { Vec::new() } else { subtree.links()? };
        for link in links {
            if !in_loop(link.listing.as_path()) && !self.seen.insert(link.id) {
                let path = truncated(link.listing.as_path(), kept);
                if let Ok(at) = nodes.binary_search_by(|node| node.path.as_path().cmp(&path)) {
                    nodes[at].own -= link.once;
                }
            }
        }
        self.put_tree(start, &nodes, shown)
    }

    /// Puts the lines of nodes in path order, the start first. Returns the sum of all.
    fn put_tree(&mut self, start: &Start, nodes: &[DirectoryTotals], shown: u32) -> Result<Tally> {
        let mut all = Totals::default();
        let directories = nodes.iter().map(|node| (node.path.as_path(), node.own));
        fold_tree(start.path.as_path(), directories, |folded| {
            all = folded.total;
            if depth(folded.path) > shown {
                return Ok(());
            }
            let totals = if self.options.separate { *folded.own } else { folded.total };
            let line = self.line(&Tally { totals, ..Tally::default() }, start.display(folded.path));
            self.lines.put(line)
        })?;
        Ok(Tally { totals: all, ..Tally::default() })
    }

    fn line(&self, sum: &Tally, path: Vec<u8>) -> Line {
        let size = measured(self.options.measure, &sum.totals);
        let time_ns = self.options.time.is_some().then_some(sum.time_ns);
        Line { size, time_ns, key: None, path }
    }
}

/// Returns the error for a directory whose listing the caller does not see. `None` for a mount point:
/// scans do not always enter it.
fn why_unread(directory: &Start) -> Result<Option<Error>> {
    static MOUNT_POINTS: LazyLock<HashSet<Vec<u8>>> = LazyLock::new(|| {
        let mounts = canopy_scan::mounts().unwrap_or_default();
        mounts.into_iter().map(|mount| mount.point).collect()
    });
    let is_mount_point = || {
        let path = absolute_path(&directory.source, directory.path.as_path());
        MOUNT_POINTS.contains(&*unescape(&path))
    };
    let why = match why_unlisted(directory)? {
        None if is_mount_point() => return Ok(None),
        why => why.unwrap_or(Lost::Unseen),
    };
    Ok(Some(Error::Cannot { what: "read directory", path: directory.given.clone(), why }))
}

/// Returns what totals come to.
fn measured(measure: Measure, totals: &Totals) -> i128 {
    match measure {
        Measure::Disk => totals.disk_bytes(),
        Measure::Apparent => totals.bytes.saturating_add(totals.dir_bytes),
        Measure::Inodes => (totals.entries + totals.dirs).into(),
    }
}
