//! What find does with an entry that it has found.

use super::format::{Format, Found, print_long};

/// An action.
#[derive(Debug)]
pub enum Action {
    /// `-print`
    Print,
    /// `-print0`
    Print0,
    /// `-ls`
    List,
    /// `-printf`
    Printf(Printf),
}

/// A compiled format of `-printf`.
#[derive(Debug)]
pub struct Printf(pub(crate) Format);

impl Action {
    /// The columns that it needs besides those of the path.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        match self {
            Action::Print | Action::Print0 => Vec::new(),
            Action::List => {
                vec!["ino", "mode", "nlink", "uid", "gid", "size", "blocks", "mtime", "target", "rdev"]
            }
            Action::Printf(format) => format.0.columns(),
        }
    }

    /// Whether it prints anything that the listing of an entry tells.
    pub(crate) fn needs_listing(&self) -> bool {
        match self {
            Action::Print | Action::Print0 | Action::List => true,
            Action::Printf(format) => format.0.needs_listing(),
        }
    }

    /// Carries the action out. On a terminal, control characters in paths are shown as '?'.
    pub(crate) fn carry_out(&self, found: &Found<'_>, terminal: bool, now_ns: i64, output: &mut Vec<u8>) {
        match self {
            Action::Print if terminal => {
                output.extend(
                    found.shown.iter().map(|&byte| if byte < 32 || byte == 127 { b'?' } else { byte }),
                );
                output.push(b'\n');
            }
            Action::Print => {
                output.extend_from_slice(found.shown);
                output.push(b'\n');
            }
            Action::Print0 => {
                output.extend_from_slice(found.shown);
                output.push(0);
            }
            Action::List => print_long(found, now_ns, output),
            Action::Printf(format) => format.0.print(found, output),
        }
    }
}
