//! Output of Lester, the Lustre lister, with its action `fslist`: the formats `ne2scan`, `lustre`
//! and `extended`.
//!
//! A line is `atime|ctime|mtime|uid|gid|mode|size|inode|` with, by format, `objects|` and `FID|`
//! behind it, and an absolute path. Neither objects nor FID begin with a slash, so the first value
//! that does is the path. Lines that begin with `#` are the header and the footer of `ne2scan`.

use super::fields::Fields;
use crate::fault::{Checked, Fault};

const COLUMNS: [&str; 8] = ["atime", "ctime", "mtime", "uid", "gid", "mode", "size", "ino"];

/// Objects and FID.
const MORE_MAX: usize = 2;

/// A parsed line.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Line {
    /// The header, after which a footer must come.
    Header,
    Footer,
    Record(Checked<Fields>),
}

/// Parses a line.
pub(super) fn line(text: &[u8]) -> Line {
    match text {
        _ if text.starts_with(b"#IDENT#|") => Line::Header,
        _ if text.starts_with(b"#complete#") => Line::Footer,
        _ => Line::Record(record(text)),
    }
}

fn record(text: &[u8]) -> Checked<Fields> {
    let mut fields = Fields::default();
    let mut rest = text;
    let next = |rest: &mut &[u8]| {
        let at = memchr::memchr(b'|', rest)?;
        let value = rest[..at].to_vec();
        *rest = &rest[at + 1..];
        Some(value)
    };
    for column in COLUMNS {
        let value = next(&mut rest).ok_or_else(|| Fault::missing(column))?;
        // Times of the root come from find(1).
        fields.set_of_find(column, &value)?;
    }
    for _ in 0..MORE_MAX {
        if !rest.starts_with(b"/") {
            next(&mut rest).ok_or_else(|| Fault::missing("path"))?;
        }
    }
    if !rest.starts_with(b"/") {
        return Err(Fault::missing("absolute path where one should be"));
    }
    fields.path = Some(rest.to_vec());
    Ok(fields)
}
