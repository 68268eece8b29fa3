//! `ls` and `stat`: what is in a directory, and all that is known of one entry.
//!
//! Here are the options; [`order`] sorts listings, [`print`] and [`long`] lay lines out,
//! [`columns`] names in columns, [`colors`] chooses colours and [`stat`] has formats of stat(1).

mod ahead;
mod colors;
mod columns;
mod directive;
mod entry;
mod long;
mod order;
mod print;
mod stat;

use crate::error::{Error, Result};
use ahead::ReadAhead;
use canopy_index::Index;
use canopy_model::{FileType, escape, join};
use canopy_read::follow::{Lost, followed, inode_followed};
use canopy_read::links::Links;
use canopy_read::locate::{Start, with_one_slash};
use canopy_read::resolve::locate_all;
use canopy_text::{Quoting, SizeForm, Style, TimeStyle};
use entry::{LsEntry, Target, children, parent_of};
use order::sort;
use print::Printer;
use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

pub use colors::Colors;
pub use stat::{StatFormat, StatOptions, stat};

/// How entries are laid out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// One a line, with attributes.
    Long,
    /// One a line.
    #[default]
    Lines,
    /// In columns, from top to bottom.
    Columns,
    /// In columns, from left to right.
    Across,
    /// One after the other, with commas.
    Commas,
}

/// Which names that begin with a dot are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hidden {
    /// None.
    #[default]
    No,
    /// All but `.` and `..`.
    Almost,
    /// All.
    All,
}

/// What entries are sorted by; names decide where that is equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The bytes of names.
    #[default]
    Name,
    /// The time that is asked for, newest first.
    Time,
    /// Largest first.
    Size,
    /// What follows the last dot.
    Extension,
    /// The order of the index.
    None,
}

/// A time of an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LsTime {
    /// Last change of the contents.
    #[default]
    Modification,
    /// Last access.
    Access,
    /// Last change of the inode.
    Change,
    /// Birth.
    Birth,
}

/// Which types are told by a character behind names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Indicator {
    /// None.
    #[default]
    None,
    /// Directories.
    Slash,
    /// All but executable files.
    FileType,
    /// All.
    Classify,
}

/// How to list.
#[derive(Clone, Debug, Default)]
pub struct LsOptions {
    /// How entries are laid out.
    pub layout: Layout,
    /// Which names that begin with a dot are shown.
    pub hidden: Hidden,
    /// Whether to show directories themselves instead of what is in them.
    pub directory: bool,
    /// Whether to list directories in directories too.
    pub recursive: bool,
    /// Whether to print inode numbers.
    pub inode: bool,
    /// Whether to print the space that entries take.
    pub blocks: bool,
    /// Whether owners are shown.
    pub owner: bool,
    /// Whether groups are shown.
    pub group: bool,
    /// Whether owners and groups are shown as numbers.
    pub numeric: bool,
    /// What entries are sorted by.
    pub sort: SortBy,
    /// Whether to turn the order around.
    pub reverse: bool,
    /// Whether directories come first.
    pub directories_first: bool,
    /// The time that is shown and sorted by.
    pub time: LsTime,
    /// How times are shown.
    pub time_style: TimeStyle,
    /// How space is shown.
    pub block_form: SizeForm,
    /// How sizes are shown.
    pub size_form: SizeForm,
    /// How names are quoted.
    pub quoting: Quoting,
    /// Which types are told by a character behind names.
    pub indicator: Indicator,
    /// Colours of names.
    pub colors: Option<Colors>,
    /// Columns of a line; 0 for no limit.
    pub width: usize,
    /// Columns from one tabulator to the next; 0 for none.
    pub tab: usize,
    /// Whether lines end with NUL.
    pub null: bool,
    /// What time it is, in nanoseconds since 1970.
    pub now_ns: i64,
}

impl LsOptions {
    /// Returns the quoting of names and of paths of directories.
    fn quotings(&self) -> (Quoting, Quoting) {
        let mut names = self.quoting.clone();
        names.also.extend(match self.indicator {
            // In this order since ls has it so.
            Indicator::FileType => &b"*=>@|"[..],
            Indicator::Classify => b"=>@|",
            _ => b"",
        });
        if names.style == Style::Escape {
            names.also.push(b' ');
        }
        let mut paths = self.quoting.clone();
        paths.also.push(b':');
        (names, paths)
    }

    /// Returns whether it has to be known what symbolic links lead to.
    fn needs_targets(&self) -> bool {
        let long = self.layout == Layout::Long;
        self.directories_first
            || self.indicator >= Indicator::FileType
            || self.colors.as_ref().is_some_and(|colors| colors.need_targets(long))
    }

    fn end(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// What could not be listed.
#[derive(Debug, Default)]
pub struct Unlisted {
    /// Why not.
    pub errors: Vec<Error>,
    /// Whether an argument is among it, and not only what was found in one.
    pub arguments: bool,
}

impl Unlisted {
    fn add(&mut self, error: Error, argument: bool) {
        self.errors.push(error);
        self.arguments |= argument;
    }
}

/// Lists paths: entries that are no directories first, then each directory. Returns what could not
/// be listed; other errors end it. Blocks.
pub fn ls(
    index: &Index,
    paths: &[OsString],
    options: &LsOptions,
    output: &mut dyn Write,
) -> Result<Unlisted> {
    let (names, headings) = options.quotings();
    let printer = Printer::new(options, names, headings, output);
    let mut ls =
        Ls { index, options, printer, failed: Unlisted::default(), headed: false, links: None };
    let mut single = Vec::new();
    let mut directories = Vec::new();
    let mut several = paths.len() > 1;
    for given in paths {
        let starts = match ls.argument(given) {
            Ok(starts) => starts,
            Err(error) if error.is_of_path() => {
                ls.failed.add(error, true);
                continue;
            }
            Err(error) => return Err(error),
        };
        // What stands for a path above sources must not look like what is in that path.
        several |= starts.iter().any(|start| start.given != given.as_encoded_bytes());
        for start in starts {
            if start.is_dir() && !options.directory {
                let name = start.given.clone();
                let entry = LsEntry { name, inode: start.inode.clone(), target: Target::NoLink };
                directories.push((entry, start));
            } else {
                let target = ls.target(&start);
                single.push(LsEntry { name: start.given, inode: start.inode, target });
            }
        }
    }
    sort(options, &mut single, |entry| entry);
    sort(options, &mut directories, |(entry, _)| entry);
    ls.headed = options.recursive || several;
    let singles = !single.is_empty();
    if singles {
        ls.printer.print(&single, directories.iter().map(|(entry, _)| entry))?;
    }
    if singles && !directories.is_empty() {
        ls.printer.blank()?;
    }
    for (_, start) in directories {
        ls.tree(start)?;
    }
    ls.printer.finish()?;
    Ok(ls.failed)
}

struct Ls<'a> {
    index: &'a Index,
    options: &'a LsOptions,
    printer: Printer<'a>,
    failed: Unlisted,
    /// Whether directories have a heading.
    headed: bool,
    /// Follows links of the view that was listed last.
    links: Option<(Arc<Index>, Links)>,
}

impl Ls<'_> {
    /// Returns the entries that an argument means: of a symbolic link to a directory, that
    /// directory, unless the link itself is looked at.
    fn argument(&self, given: &OsString) -> Result<Vec<Start>> {
        let starts = locate_all(self.index, given)?;
        starts.into_iter().map(|start| self.led_to(start)).collect()
    }

    fn led_to(&self, start: Start) -> Result<Start> {
        let options = self.options;
        let itself = options.directory
            || options.layout == Layout::Long
            || options.indicator == Indicator::Classify
            || start.inode.attributes.file_type() != FileType::Symlink;
        if itself {
            return Ok(start);
        }
        match followed(self.index, &Links::new(start.view.clone()), start.clone()) {
            Ok(found) if found.is_dir() => Ok(Start { given: start.given, ..found }),
            // As ls does, which looks at the link itself only where it leads to nothing.
            Err(Lost::Unreachable) => {
                let given = String::from_utf8_lossy(&start.given).into_owned();
                Err(canopy_read::Error::NotFound(given).into())
            }
            _ => Ok(start),
        }
    }

    fn target(&mut self, start: &Start) -> Target {
        if start.inode.attributes.file_type() != FileType::Symlink {
            return Target::NoLink;
        }
        if !self.options.needs_targets() {
            return Target::Unknown;
        }
        let links = match &mut self.links {
            Some((view, links)) if Arc::ptr_eq(view, &start.view) => links,
            other => &mut other.insert((start.view.clone(), Links::new(start.view.clone()))).1,
        };
        match inode_followed(self.index, links, start) {
            Ok(inode) => Target::Mode(inode.attributes.mode),
            Err(Lost::Missing | Lost::Unreachable) => Target::Missing,
            Err(Lost::Outside) => Target::Unknown,
        }
    }

    /// Lists a directory, and those in it if asked.
    fn tree(&mut self, start: Start) -> Result<()> {
        let root = start.clone();
        let path_order = self.options.sort == SortBy::Name && !self.options.reverse;
        let mut ahead = match self.options.recursive {
            true => ReadAhead::new(&root, path_order)?,
            false => None,
        };
        let mut left = vec![start];
        while let Some(start) = left.pop() {
            let listed = match &mut ahead {
                Some(ahead) => ahead.take(&start.path)?,
                None => None,
            };
            // Names that are not UTF-8 come in another order.
            let Some(listed) =
                listed.map_or_else(|| children(&start), |listed| Ok(Some(listed)))?
            else {
                let what = format!("the contents of {}", String::from_utf8_lossy(&start.given));
                self.failed.add(canopy_read::Error::NotFound(what).into(), start.path == root.path);
                continue;
            };
            let mut entries = self.entries(&start, listed)?;
            sort(self.options, &mut entries, |entry| entry);
            if self.headed {
                self.printer.heading(&start.given)?;
            }
            self.printer.total(&entries)?;
            self.printer.print(&entries, std::iter::empty())?;
            if self.options.recursive {
                let dirs = entries.iter().rev().filter(|entry| {
                    entry.inode.attributes.file_type() == FileType::Directory
                        && entry.name != b"."
                        && entry.name != b".."
                });
                left.extend(dirs.map(|entry| child(&start, entry)));
            }
        }
        Ok(())
    }

    /// Returns what is shown of a directory that has these entries.
    fn entries(&mut self, start: &Start, mut entries: Vec<LsEntry>) -> Result<Vec<LsEntry>> {
        if self.options.hidden == Hidden::No {
            entries.retain(|entry| !entry.name.starts_with(b"."));
        }
        for entry in &mut entries {
            if entry.inode.attributes.file_type() == FileType::Symlink {
                entry.target = self.target(&child(start, entry));
            }
        }
        if self.options.hidden == Hidden::All {
            let dot =
                |name: &[u8], inode| LsEntry { name: name.to_vec(), inode, target: Target::NoLink };
            entries.push(dot(b".", start.inode.clone()));
            entries.push(dot(b"..", parent_of(self.index, start)?));
        }
        Ok(entries)
    }
}

/// Returns an entry of a directory as the start of a further listing.
fn child(start: &Start, entry: &LsEntry) -> Start {
    let path = join(&start.path, &escape(&entry.name));
    let mut given = with_one_slash(&start.given).to_vec();
    start.append_below(&mut given, &path);
    Start { given, path, inode: entry.inode.clone(), ..start.clone() }
}
