//! du's walk that follows symbolic links: directories are looked up one by one, wherever links
//! lead, and everything counts once, by device and inode.

use super::{Du, Tally, why_unread};
use crate::error::{Error, Result};
use crate::find::Outside;
use canopy_model::{Device, FileType, escape};
use canopy_read::contents::Contents;
use canopy_read::follow::followed;
use canopy_read::links::Links;
use canopy_read::locate::Start;
use canopy_read::{Inode, Lost};

/// A directory that the walk is in.
struct OpenDirectory {
    start: Start,
    id: (Device, u64),
    /// Its entries that are still to be counted, by name.
    ahead: std::vec::IntoIter<(String, Inode)>,
    /// Itself and its entries that are not directories.
    own: Tally,
    /// The directories in it with all below them.
    below: Tally,
}

struct Walk<'a, 'd, 'o> {
    du: &'a mut Du<'o>,
    failed: &'d mut Vec<Error>,
    /// The device of the argument.
    device: Device,
    open: Vec<OpenDirectory>,
    /// Follows links of the view of the last one.
    links: Option<Links>,
    /// Follows links that no index can follow.
    outside: Outside,
    sum: Tally,
}

/// Puts the lines of a start, which is not a symbolic link, and what is below it. Returns the sum
/// of all; adds links that lead to nothing that is known.
pub(super) fn walk(du: &mut Du<'_>, start: &Start, failed: &mut Vec<Error>) -> Result<Tally> {
    let (device, sum) = (start.device()?, Tally::default());
    let outside = Outside::default();
    let mut walk = Walk { du, failed, device, open: Vec::new(), links: None, outside, sum };
    walk.meet(start.clone())?;
    while let Some(directory) = walk.open.last_mut() {
        match directory.ahead.next() {
            Some((name, inode)) => {
                let start = child(&directory.start, &name, inode);
                if !walk.du.excluded(&escape(&start.given))
                    && let Some(start) = walk.led_to(start)
                {
                    walk.meet(start)?;
                }
            }
            None => walk.leave()?,
        }
    }
    Ok(walk.sum)
}

impl Walk<'_, '_, '_> {
    /// Returns what an entry leads to, and tells of links that lead to nothing.
    fn led_to(&mut self, start: Start) -> Option<Start> {
        if start.inode.attributes.file_type() != FileType::Symlink {
            return Some(start);
        }
        let given = start.given.clone();
        let links = Links::of(&mut self.links, &start.view);
        let found = match followed(self.du.index, links, start.clone()) {
            Err(Lost::Outside) => self.outside.file(&start).map(|inode| Start { inode, ..start }),
            found => found,
        };
        match found {
            Ok(found) => Some(Start { given, ..found }),
            Err(lost) => {
                self.failed.push(Error::of_link(&given, lost));
                None
            }
        }
    }

    /// Counts a file, or opens a directory.
    fn meet(&mut self, start: Start) -> Result<()> {
        let options = self.du.options;
        let attributes = start.inode.attributes;
        let id = (start.device()?, attributes.ino);
        let elsewhere = options.one_file_system && id.0 != self.device;
        // Where every name counts, directories that lie in themselves still end.
        let met = match options.count_links {
            true => self.open.iter().any(|directory| directory.id == id),
            false => !self.du.seen.insert(id),
        };
        if elsewhere || met {
            return Ok(());
        }
        if start.is_dir() {
            let own = Tally::of_dir(&attributes, options);
            let contents =
                Contents::of(&start.view, &start.source, start.path.as_path(), usize::MAX)?;
            let ahead = match contents {
                Contents::Listed(all) => all,
                Contents::Unlisted | Contents::TooMany => {
                    self.failed.extend(why_unread(&start)?);
                    Vec::new()
                }
            };
            let (ahead, below) = (ahead.into_iter(), Tally::default());
            self.open.push(OpenDirectory { start, id, ahead, own, below });
            return Ok(());
        }
        if !options.counts(&attributes) {
            return Ok(());
        }
        let tally = Tally::of_file(&attributes, options);
        let depth = self.open.len();
        if depth == 0 || (options.all && self.is_shown(depth)) {
            self.du.lines.put(self.du.line(&tally, start.given))?;
        }
        match self.open.last_mut() {
            Some(directory) => directory.own += tally,
            None => self.sum += tally,
        }
        Ok(())
    }

    /// Puts the line of the innermost directory and adds it to the one around it.
    fn leave(&mut self) -> Result<()> {
        let Some(done) = self.open.pop() else { return Ok(()) };
        let mut sum = done.own;
        sum += done.below;
        let is_omitted = self.du.options.owner.is_some() && sum.is_empty() && !self.open.is_empty();
        if self.is_shown(self.open.len()) && !is_omitted {
            let shown = if self.du.options.separate { done.own } else { sum };
            self.du.lines.put(self.du.line(&shown, done.start.given))?;
        }
        match self.open.last_mut() {
            Some(around) => around.below += sum,
            None => self.sum += sum,
        }
        Ok(())
    }

    /// Returns whether there are lines of what is so far below the argument.
    fn is_shown(&self, depth: usize) -> bool {
        let most = self.du.options.depth_max.unwrap_or(u32::MAX);
        u32::try_from(depth).is_ok_and(|depth| depth <= most)
    }
}

fn child(directory: &Start, name: &str, inode: Inode) -> Start {
    let path = directory.path.as_path().child(name);
    let given = directory.display(path.as_path());
    Start { given, path, inode, ..directory.clone() }
}
