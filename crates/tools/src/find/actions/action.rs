//! What find does with an entry that it has found.

use super::exec::Exec;
use super::format::{Format, Found};
use super::json::print_json;
use super::long::print_long;

/// An action.
#[derive(Debug)]
pub enum Action {
    /// `-print`, `-ls`, `-printf`, and `-fprint` and its like
    Write(Form, Sink),
    /// `-exec`, `-execdir`, `-ok`, `-okdir`
    Exec(Exec),
    /// `-quit`
    Quit,
    /// `-delete`, only in a live search
    Delete,
    /// `--count`: no more than to be counted
    Count,
}

/// What is written of an entry.
#[derive(Debug)]
pub enum Form {
    /// `-print`
    Line,
    /// `-print0`
    Zero,
    /// `-ls`
    List,
    /// `-printf`
    Printf(Printf),
    /// `--ndjson`, and `--json`, where objects are elements of one list
    Json,
}

/// Where an action writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// A file, by its place in [`super::Find::files`].
    File(usize),
}

/// A compiled format of `-printf`.
#[derive(Debug)]
pub struct Printf(pub(crate) Format);

/// Columns of an object of `--json`.
const JSON_COLUMNS: [&str; 13] = [
    "ino", "mode", "nlink", "uid", "gid", "size", "blocks", "atime", "mtime", "ctime", "btime",
    "target", "rdev",
];

impl Action {
    /// The columns that it needs besides those of the path.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        match self {
            Action::Write(form, _) => form.columns(),
            Action::Exec(_) | Action::Quit | Action::Delete | Action::Count => Vec::new(),
        }
    }

    /// Whether it uses anything that the listing of an entry tells.
    pub(crate) fn needs_listing(&self) -> bool {
        match self {
            Action::Write(Form::Printf(format), _) => format.0.needs_listing(),
            Action::Write(..) | Action::Exec(_) => true,
            Action::Quit | Action::Delete | Action::Count => false,
        }
    }

    /// Whether it prints the device of an entry.
    pub(crate) fn needs_device(&self) -> bool {
        match self {
            Action::Write(Form::Printf(format), _) => format.0.has('D'),
            Action::Write(form, _) => matches!(form, Form::Json),
            _ => false,
        }
    }

    /// Whether it can be carried out on many rows at once, in any order.
    pub(crate) fn is_simple(&self) -> bool {
        match self {
            Action::Write(Form::Printf(format), Sink::Stdout) => !format.0.needs_known(),
            Action::Write(_, sink) => *sink == Sink::Stdout,
            Action::Count | Action::Delete => true,
            Action::Exec(_) | Action::Quit => false,
        }
    }

    /// Whether what follows hangs on its outcome.
    pub(crate) fn decides(&self) -> bool {
        match self {
            Action::Exec(exec) => exec.decides(),
            Action::Quit | Action::Delete => true,
            Action::Write(..) | Action::Count => false,
        }
    }
}

impl Form {
    fn columns(&self) -> Vec<&'static str> {
        match self {
            Form::Line | Form::Zero => Vec::new(),
            Form::List => {
                vec![
                    "ino", "mode", "nlink", "uid", "gid", "size", "blocks", "mtime", "target",
                    "rdev",
                ]
            }
            Form::Printf(format) => format.0.columns(),
            Form::Json => JSON_COLUMNS.to_vec(),
        }
    }

    /// Writes an entry. On a terminal, control characters in paths are shown as '?'.
    pub(crate) fn write(
        &self,
        found: &Found<'_>,
        terminal: bool,
        now_ns: i64,
        output: &mut Vec<u8>,
    ) {
        match self {
            Form::Line if terminal => {
                output.extend(
                    found
                        .shown
                        .iter()
                        .map(|&byte| if byte < 32 || byte == 127 { b'?' } else { byte }),
                );
                output.push(b'\n');
            }
            Form::Line => {
                output.extend_from_slice(found.shown);
                output.push(b'\n');
            }
            Form::Zero => {
                output.extend_from_slice(found.shown);
                output.push(0);
            }
            Form::List => print_long(found, now_ns, output),
            Form::Printf(format) => format.0.print(found, output),
            Form::Json => {
                print_json(found, output);
                output.push(b'\n');
            }
        }
    }
}
