//! `ls` and `stat`: what is in a directory, and all that is known of one entry.
//!
//! Here are the options; `walk` goes through arguments and directories, `order` sorts listings,
//! `print` and `long` lay lines out, `columns` names in columns, `colors` chooses colours,
//! `dired` tells Emacs where names are, [`hyperlink`] makes names links, and `stat` has formats
//! of stat(1).

mod ahead;
mod colors;
mod columns;
mod directive;
mod dired;
mod entry;
pub mod hyperlink;
mod json;
mod long;
mod order;
mod patterns;
mod print;
mod stat;
mod version;
mod walk;

use crate::error::{Error, Result};
use canopy_index::Index;
use canopy_text::{Quoting, SizeForm, Style, TimeStyle};
use std::ffi::OsString;
use std::io::Write;

pub use colors::Colors;
pub use patterns::NamePattern;
pub use stat::{StatFormat, StatOptions, Stated, stat};

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

/// Names with a dot at the beginning that are shown.
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

/// Order of entries; names decide between equal ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The bytes of names.
    #[default]
    Name,
    /// The time that is asked for, newest first.
    Time,
    /// Largest first.
    Size,
    /// Part of the name behind the last dot.
    Extension,
    /// Names, in which numbers count as such.
    Version,
    /// The columns that names take, fewest first.
    Width,
    /// The order of the index, and that of the arguments.
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

/// Symbolic links that are followed to their targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dereference {
    /// None.
    Never,
    /// Those that are arguments and lead to directories.
    #[default]
    ToDirectories,
    /// Those that are arguments.
    Arguments,
    /// All.
    Always,
}

/// Types that a character behind names marks.
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
    /// Names with a dot at the beginning that are shown.
    pub hidden: Hidden,
    /// Names that are shown only if all are, hidden ones too.
    pub hide: Vec<NamePattern>,
    /// Names that are not shown.
    pub ignore: Vec<NamePattern>,
    /// Symbolic links that are followed.
    pub dereference: Dereference,
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
    /// Whether authors are shown, who are the owners.
    pub author: bool,
    /// Whether security contexts are shown.
    pub context: bool,
    /// Whether owners and groups are shown as numbers.
    pub numeric: bool,
    /// Order of entries.
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
    /// Types that a character behind names marks.
    pub indicator: Indicator,
    /// Colours of names.
    pub colors: Option<Colors>,
    /// Columns of a line; 0 for no limit.
    pub width: usize,
    /// Columns from one tabulator to the next; 0 for none.
    pub tab: usize,
    /// Whether lines end with NUL.
    pub null: bool,
    /// Whether it is told behind long lines where names are in them, as Emacs reads it.
    pub dired: bool,
    /// Whether names are hyperlinks, on a terminal that knows them.
    pub hyperlink: bool,
    /// Whether to print JSON.
    pub json: bool,
    /// Current time, in nanoseconds since 1970.
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

    /// Returns whether of links that are looked through more is shown than their names.
    fn needs_more_than_names(&self) -> bool {
        self.layout == Layout::Long
            || matches!(self.sort, SortBy::Time | SortBy::Size)
            || self.indicator != Indicator::None
            || self.colors.is_some()
            || self.directories_first
            || self.recursive
            || self.inode
            || self.blocks
            || self.context
            || self.hyperlink
            || self.json
    }

    /// Returns whether a name is shown.
    fn shows(&self, name: &[u8]) -> bool {
        let hidden = match self.hidden {
            Hidden::All => false,
            Hidden::Almost => matches!(name, b"." | b".."),
            Hidden::No => name.starts_with(b"."),
        };
        let matches = |patterns: &[NamePattern]| patterns.iter().any(|one| one.matches(name));
        let left_out = matches(&self.ignore) || (self.hidden == Hidden::No && matches(&self.hide));
        !hidden && !left_out
    }

    /// Returns whether names are aligned in columns, so that those without quotes have a space
    /// where others have one.
    fn aligns(&self) -> bool {
        match self.layout {
            Layout::Long => true,
            Layout::Columns | Layout::Across => self.width > 0,
            Layout::Lines | Layout::Commas => false,
        }
    }

    fn end(&self) -> u8 {
        if self.null { 0 } else { b'\n' }
    }
}

/// Arguments and entries that could not be listed.
#[derive(Debug, Default)]
pub struct Unlisted {
    /// The reasons.
    pub errors: Vec<Error>,
    /// Whether an argument is among them, and not only an entry in one.
    pub arguments: bool,
}

impl Unlisted {
    fn add(&mut self, error: Error, argument: bool) {
        self.errors.push(error);
        self.arguments |= argument;
    }
}

/// Lists paths: entries that are not directories first, then each directory. Returns what could not
/// be listed; other errors end it. Blocks.
pub fn ls(
    index: &Index,
    paths: &[OsString],
    options: &LsOptions,
    output: &mut dyn Write,
) -> Result<Unlisted> {
    walk::Walk::new(index, options, output).arguments(paths)
}
