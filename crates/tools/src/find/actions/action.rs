//! The actions: what find does with an entry that it has found.

use super::entry::EntryView;
use super::exec::Exec;
use super::json::print_json;
use super::long::print_long;
use super::printf::PrintfFormat;
use crate::ls::Colors;
use canopy_index::Columns;
use canopy_index::column::*;
use canopy_model::Attributes;
use canopy_text::safe::hidden_name;

/// An action.
#[derive(Debug)]
pub enum Action {
    /// `-print`, `-ls`, `-printf`, and `-fprint` and its like
    Write(EntryFormat, Destination),
    /// `-exec`, `-execdir`, `-ok`, `-okdir`
    Exec(Exec),
    /// `-quit`
    Quit,
    /// `-delete`, only in a live search
    Delete,
    /// `--count`: no more than to be counted
    Count,
    /// `--sum`: to be added up
    Sum,
}

/// The text that is written for an entry.
#[derive(Debug)]
pub enum EntryFormat {
    /// `-print`
    Line,
    /// The same with names in colours
    Colored(Box<Colors>),
    /// `-print0`
    Zero,
    /// `-ls`
    List,
    /// `-printf`
    Printf(PrintfFormat),
    /// `--ndjson`, and `--json`, where objects are elements of one list
    Json,
}

/// Where an action writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, by its place in `Find::files`.
    File(usize),
}

impl Action {
    /// Returns the columns that it needs besides those of the path.
    pub(crate) fn columns(&self) -> Columns {
        match self {
            Action::Write(format, _) => format.columns(),
            Action::Sum => INO | MODE | NLINK | SIZE | BLOCKS,
            Action::Exec(_) | Action::Quit | Action::Delete | Action::Count => Columns::NONE,
        }
    }

    /// Returns the format of `-printf` and its like.
    pub(crate) fn printf(&self) -> Option<&PrintfFormat> {
        match self {
            Action::Write(EntryFormat::Printf(format), _) => Some(format),
            _ => None,
        }
    }

    /// Returns whether it uses anything that the listing of an entry tells.
    pub(crate) fn needs_listing(&self) -> bool {
        match self {
            Action::Write(EntryFormat::Printf(format), _) => format.needs_listing(),
            // It has the device.
            Action::Sum => true,
            Action::Write(..) | Action::Exec(_) => true,
            Action::Quit | Action::Delete | Action::Count => false,
        }
    }

    /// Returns whether it prints the device of an entry.
    pub(crate) fn needs_device(&self) -> bool {
        match self {
            Action::Write(EntryFormat::Printf(format), _) => format.has('D'),
            Action::Write(format, _) => matches!(format, EntryFormat::Json),
            Action::Sum => true,
            _ => false,
        }
    }

    /// Returns whether it can be carried out by many threads at once, in any order.
    pub(crate) fn is_parallel(&self) -> bool {
        match self {
            Action::Write(EntryFormat::Printf(format), Destination::Stdout) => {
                !format.needs_look_up()
            }
            Action::Write(_, to) => *to == Destination::Stdout,
            Action::Count | Action::Sum | Action::Delete => true,
            Action::Exec(_) | Action::Quit => false,
        }
    }

    /// Returns whether what follows depends on its outcome.
    pub(crate) fn decides(&self) -> bool {
        match self {
            Action::Exec(exec) => exec.decides(),
            Action::Quit | Action::Delete => true,
            Action::Write(..) | Action::Count | Action::Sum => false,
        }
    }
}

impl EntryFormat {
    fn columns(&self) -> Columns {
        let listed = INO | MODE | NLINK | UID | GID | SIZE | BLOCKS | MTIME | TARGET | RDEV;
        match self {
            EntryFormat::Line | EntryFormat::Zero => Columns::NONE,
            EntryFormat::Colored(_) => MODE | NLINK,
            EntryFormat::List => listed,
            EntryFormat::Printf(format) => format.columns(),
            EntryFormat::Json => listed | ATIME | CTIME | BTIME,
        }
    }

    /// Writes an entry. On a terminal, what cannot be printed of paths is shown as '?', but where
    /// lines end with NUL.
    pub(crate) fn write(
        &self,
        entry: &EntryView<'_>,
        terminal: bool,
        now_ns: i64,
        output: &mut Vec<u8>,
    ) {
        match self {
            EntryFormat::Line => {
                output.extend_from_slice(&hidden_name(entry.shown, terminal));
                output.push(b'\n');
            }
            EntryFormat::Colored(colors) => {
                let Attributes { mode, nlink, .. } = entry.attributes;
                colors.write_path(&hidden_name(entry.shown, terminal), mode, nlink, output);
                output.push(b'\n');
            }
            EntryFormat::Zero => {
                output.extend_from_slice(entry.shown);
                output.push(0);
            }
            EntryFormat::List => print_long(entry, now_ns, output),
            EntryFormat::Printf(format) => format.print(entry, terminal, output),
            EntryFormat::Json => {
                print_json(entry, output);
                output.push(b'\n');
            }
        }
    }
}
