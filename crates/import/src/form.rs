//! Descriptions of the formats, for errors of files that are probably in another one.

use crate::error::{Error, Position};
use crate::{Format, Request};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Longest beginning of a file that an error shows, in bytes.
const SHOWN_BYTES: usize = 80;

/// Adds to a fault of the first record what the format expects and how the file begins. Other
/// errors stay as they are.
pub(crate) fn explained(error: Error, request: &Request) -> Error {
    let first = match &error {
        Error::Records { first, .. } => first,
        first => first,
    };
    let Error::Record { path, place, .. } = first else { return error };
    if !matches!(place, Position::Offset(0) | Position::Line(1, _)) {
        return error;
    }
    let Some((format, expected)) = described(request.format) else { return error };
    let begins = beginning(path);
    // A format that does not fit has no use for leniency.
    let error = match error {
        Error::Records { first, .. } => first,
        error => Box::new(error),
    };
    Error::Format { error, format, expected, begins }
}

/// Returns the name and the description of a format; `None` where the first record has no place in
/// a file.
fn described(format: Format) -> Option<(&'static str, &'static str)> {
    Some(match format {
        Format::GufiTrace => {
            ("gufi-trace", "a trace of gufi_dir2trace; --delim sets its delimiter")
        }
        Format::Ndjson => ("ndjson", "an object a line, with path, mode, uid, gid, size, mtime"),
        Format::Csv => {
            ("csv", "a first line of column names: path, type, mode, uid, gid, size, mtime")
        }
        Format::Find => (
            "find",
            "the output of find -printf '%y %m %U %G %s %n %i %b %T@ %A@ %C@ %B@ %p\\0%l\\0'",
        ),
        Format::GpfsPolicy => {
            ("gpfs-policy", "a list of mmapplypolicy with the rule in docs/import.md")
        }
        Format::Lester => ("lester", "the output of Lester with -A fslist -a show_dirs"),
        Format::Ncdu => ("ncdu", "the output of ncdu -e -o"),
        Format::GufiIndex | Format::Parquet => return None,
    })
}

/// Returns the first line of a file as a part of a message; empty for inputs that cannot be read
/// twice.
fn beginning(path: &Path) -> String {
    let mut bytes = Vec::new();
    let is_file = path.metadata().is_ok_and(|metadata| metadata.is_file());
    let read = is_file
        && File::open(path)
            .is_ok_and(|file| file.take(SHOWN_BYTES as u64 + 1).read_to_end(&mut bytes).is_ok());
    if !read {
        return String::new();
    }
    let line = bytes.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let more = if line.len() > SHOWN_BYTES { "..." } else { "" };
    let line = &line[..line.len().min(SHOWN_BYTES)];
    format!("; its first line is '{}{more}'", line.escape_ascii())
}
