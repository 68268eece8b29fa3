//! du's walk over single entries, in path order.
//!
//! The listing of a directory comes before those below it, and tells its subdirectories; those
//! without a listing of their own, which the caller cannot list, count by themselves.

use super::{Du, Tally, TimeKind};
use crate::error::Result;
use canopy_index::Columns;
use canopy_index::column::*;
use canopy_model::{Attributes, Device, SourcePath, SourcePathBuf, escape, join};
use canopy_read::depth_first::{self, ListedDirectory, ListingRows};
use canopy_read::inode::InodeColumns;
use canopy_read::listings::depth;
use canopy_read::locate::Start;

/// Puts the lines of a start and what is below it, but for what is in loops. Returns the sum of
/// all.
pub(super) fn walk(du: &mut Du<'_>, start: &Start, loops: Vec<SourcePathBuf>) -> Result<Tally> {
    let given = escape(&start.given).into_owned();
    let mut counted = du.counted_below(start);
    counted.extend(loops);
    let owner = Columns::from(UID).when(du.options.owner.is_some());
    let columns = NAME | INO | NLINK | SIZE | BLOCKS | time_column(du) | owner;
    let own = Tally::of_dir(&start.inode.attributes, du.options);
    let first = OpenDirectory { path: start.path.clone(), own, ..OpenDirectory::default() };
    let mut walk = Walk { du, start, given, counted, open: vec![first] };
    depth_first::in_order(start, columns, |directory, rows| walk.listing(directory, rows))?;
    let mut sum = Tally::default();
    while !walk.open.is_empty() {
        sum = walk.close()?;
    }
    Ok(sum)
}

/// Returns the column of the time that is asked for.
fn time_column(du: &Du<'_>) -> Columns {
    match du.options.time {
        None => Columns::NONE,
        Some((TimeKind::Access, _)) => ATIME.into(),
        Some((TimeKind::Modification, _)) => MTIME.into(),
        Some((TimeKind::Change, _)) => CTIME.into(),
    }
}

/// A directory on the way from the start to where the walk is.
#[derive(Default)]
struct OpenDirectory {
    path: SourcePathBuf,
    /// Itself and its entries that are not directories.
    own: Tally,
    /// The directories in it with all below them.
    below: Tally,
    /// Directories in it that the walk has not come by, the next one last.
    ahead: Vec<(String, Tally)>,
    sorted: bool,
    /// Whether it is left out with all below it.
    skipped: bool,
}

struct Walk<'a, 'd, 'o> {
    du: &'d mut Du<'o>,
    start: &'a Start,
    given: String,
    /// Paths that earlier arguments have counted, and those of loops.
    counted: Vec<SourcePathBuf>,
    open: Vec<OpenDirectory>,
}

/// An entry that is not a directory.
struct File {
    name: String,
    /// Device and inode, if it has several links.
    link: Option<(Device, u64)>,
    tally: Tally,
}

impl Walk<'_, '_, '_> {
    /// Takes a listing in.
    fn listing(&mut self, directory: &ListedDirectory, rows: ListingRows<'_, '_>) -> Result<()> {
        let path = directory.path.as_path();
        while self.open.len() > 1 && !path.is_below(self.top().path.as_path()) {
            self.close()?;
        }
        while self.top().path.as_path() != path {
            self.descend(path)?;
        }
        let other = self.du.options.one_file_system && directory.dev != self.start.inode.dev;
        if other && self.open.len() > 1 {
            self.top().skipped = true;
        }
        let skipped = self.top().skipped;
        let options = self.du.options;
        let mut files: Vec<File> = Vec::new();
        rows.entries.take(rows.entry_count, |batch, range| -> Result<()> {
            let (names, inodes) = (NAME.of(batch)?, InodeColumns::of(batch));
            files.extend(range.filter(|_| !skipped).filter_map(|at| {
                let inode: Attributes = inodes.row(at);
                let link = (inode.nlink > 1).then_some((directory.dev, inode.ino));
                let tally = Tally::of_file(&inode, options);
                let name = names.value(at).to_owned();
                options.counts(&inode).then_some(File { name, link, tally })
            }));
            Ok(())
        })?;
        let top = self.top();
        top.sorted = false;
        rows.dirs.take(rows.dir_count, |batch, range| -> Result<()> {
            let (names, inodes) = (NAME.of(batch)?, InodeColumns::of(batch));
            top.ahead.extend(
                range.filter(|_| !skipped).map(|at| {
                    (names.value(at).to_owned(), Tally::of_dir(&inodes.row(at), options))
                }),
            );
            Ok(())
        })?;
        self.files(path, files)
    }

    /// Counts the entries of a directory that are not directories.
    fn files(&mut self, directory: SourcePath<'_>, files: Vec<File>) -> Result<()> {
        let shown = self.du.options.all && self.depth(directory) < self.depth_max();
        for File { name, link, tally } in files {
            let path = directory.child(&name);
            if self.left_out(path.as_path()) {
                continue;
            }
            let again =
                link.is_some_and(|id| !self.du.options.count_links && !self.du.seen.insert(id));
            if again {
                continue;
            }
            self.top().own += tally;
            if shown {
                let line = self.du.line(&tally, self.start.display(path.as_path()));
                self.du.lines.put(line)?;
            }
        }
        Ok(())
    }

    fn top(&mut self) -> &mut OpenDirectory {
        self.open.last_mut().expect("the start is open until the walk ends")
    }

    /// Opens the next directory on the way to a path, and counts those before it.
    fn descend(&mut self, path: SourcePath<'_>) -> Result<()> {
        let top = self.open.last().expect("the start is open until the walk ends");
        let (around, skipped) = (top.path.clone(), top.skipped);
        let from = match around.as_str() {
            "" => 0,
            around => around.len() + 1,
        };
        let name = path.as_str()[from..].split('/').next().unwrap_or_default();
        self.pass(Some(name))?;
        let path = around.as_path().child(name);
        let top = self.top();
        let ahead = top.ahead.pop_if(|(next, _)| next == name);
        let own = ahead.map(|(_, own)| own).unwrap_or_default();
        let skipped = skipped || self.left_out(path.as_path());
        self.open.push(OpenDirectory { path, own, skipped, ..OpenDirectory::default() });
        Ok(())
    }

    /// Counts directories that have no listing: those before a name, or all that are left.
    fn pass(&mut self, until: Option<&str>) -> Result<()> {
        let top = self.top();
        if !top.sorted {
            top.ahead.sort_by(|a, b| b.0.cmp(&a.0));
            top.sorted = true;
        }
        loop {
            let top = self.top();
            let before =
                |(next, _): &mut (String, Tally)| until.is_none_or(|until| next.as_str() < until);
            let Some((name, own)) = top.ahead.pop_if(before) else { return Ok(()) };
            let path = top.path.as_path().child(&name);
            let skipped = top.skipped || self.left_out(path.as_path());
            self.open.push(OpenDirectory { path, own, skipped, ..OpenDirectory::default() });
            self.close()?;
        }
    }

    /// Prints the innermost directory and adds it to the one around it. Returns its sum.
    fn close(&mut self) -> Result<Tally> {
        self.pass(None)?;
        let Some(done) = self.open.pop() else { return Ok(Tally::default()) };
        if done.skipped {
            return Ok(Tally::default());
        }
        let mut sum = done.own;
        sum += done.below;
        let is_omitted = self.du.options.owner.is_some() && sum.is_empty() && !self.open.is_empty();
        if self.depth(done.path.as_path()) <= self.depth_max() && !is_omitted {
            let shown = if self.du.options.separate { done.own } else { sum };
            let line = self.du.line(&shown, self.start.display(done.path.as_path()));
            self.du.lines.put(line)?;
        }
        if let Some(around) = self.open.last_mut() {
            around.below += sum;
        }
        Ok(sum)
    }

    /// Returns whether an entry is not to be counted, or was already.
    fn left_out(&self, path: SourcePath<'_>) -> bool {
        if self.counted.iter().any(|counted| counted.as_path() == path) {
            return true;
        }
        if self.du.options.exclude.is_empty() {
            return false;
        }
        let below = path.as_str()[self.start.path.as_str().len()..].trim_start_matches('/');
        self.du.excluded(&join(self.given.trim_end_matches('/'), below))
    }

    /// Returns how far below the start a path is.
    fn depth(&self, path: SourcePath<'_>) -> u32 {
        depth(path).saturating_sub(self.start.depth())
    }

    fn depth_max(&self) -> u32 {
        self.du.options.depth_max.unwrap_or(u32::MAX)
    }
}
