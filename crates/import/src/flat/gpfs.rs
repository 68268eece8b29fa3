//! File lists of mmapplypolicy, the policy engine of IBM Storage Scale.
//!
//! A line is `inode generation snapshot SHOW -- path`, with the texts of SHOW and path encoded as
//! the rule's `ESCAPE '%'` says: all bytes but `a-z A-Z 0-9 - _ . ~` as `%XX`, slashes too. A path
//! with any other byte was not encoded so; decoding it would let the names of files forge paths.

use super::fields::Fields;
use crate::fault::{Checked, Fault};
use crate::number::{hex_2, size, unsigned};
use canopy_model::storage_scale;
use memchr::{memchr, memmem};

/// Attributes in SHOW, in this order, with `|` between. Lists of older rules end before
/// `POOL_NAME`.
const SHOW: [&str; 14] = [
    "MODE",
    "NLINK",
    "USER_ID",
    "GROUP_ID",
    "FILE_SIZE",
    "KB_ALLOCATED",
    "BLOCKSIZE",
    "ACCESS_TIME",
    "MODIFICATION_TIME",
    "CHANGE_TIME",
    "CREATION_TIME",
    "POOL_NAME",
    "FILESET_NAME",
    "MISC_ATTRIBUTES",
];

/// How many values there are without those that say where the file's data are.
const SHOW_BEFORE_STORAGE: usize = 11;

/// Reads an entry from its line.
pub(super) fn record(line: &[u8]) -> Checked<Fields> {
    let at =
        memmem::find(line, b" -- ").ok_or_else(|| Fault::missing("' -- ' in front of a path"))?;
    let (mut rest, path) = (&line[..at], &line[at + b" -- ".len()..]);
    let mut fields = Fields::default();
    for column in ["ino", "generation", "snapshot"] {
        rest = rest.trim_ascii_start();
        let end = memchr(b' ', rest).unwrap_or(rest.len());
        unsigned(&rest[..end]).map_err(|fault| fault.within(column))?;
        // The others are not columns of ours, and are skipped.
        fields.set(column, &rest[..end])?;
        rest = &rest[end..];
    }
    let show = decoded(rest.trim_ascii(), false)?;
    let values: Vec<&[u8]> = show.split(|&byte| byte == b'|').collect();
    if values.len() != SHOW.len() && values.len() != SHOW_BEFORE_STORAGE {
        return Err(Fault::form(format!(
            "SHOW has {} values, expected {}: {}",
            values.len(),
            SHOW.len(),
            SHOW.join("|")
        )));
    }
    for (attribute, value) in SHOW.into_iter().zip(values) {
        set(&mut fields, attribute, value).map_err(|fault| fault.within(attribute))?;
    }
    let mut path = decoded(path, true)?;
    // The root of a file system.
    if path.ends_with(b"/.") {
        path.truncate(path.len() - b"/.".len());
    }
    fields.path = Some(path);
    Ok(fields)
}

fn set(fields: &mut Fields, attribute: &str, value: &[u8]) -> Checked<()> {
    let xattr = match attribute {
        "POOL_NAME" => Some(storage_scale::POOL),
        "FILESET_NAME" => Some(storage_scale::FILESET),
        "MISC_ATTRIBUTES" => Some(storage_scale::STATE),
        _ => None,
    };
    if let Some(key) = xattr {
        if !value.is_empty() {
            fields.xattrs.push((key.into(), value.to_vec()));
        }
        return Ok(());
    }
    if value.is_empty() {
        return Err(Fault::missing("value"));
    }
    match attribute {
        "MODE" => fields.set_mode(mode(value)?),
        "NLINK" => fields.set("nlink", value),
        "USER_ID" => fields.set("uid", value),
        "GROUP_ID" => fields.set("gid", value),
        "FILE_SIZE" => fields.set("size", value),
        "KB_ALLOCATED" => fields.set_number("blocks", i128::from(size(value)?) * 2),
        "BLOCKSIZE" => fields.set("blksize", value),
        "ACCESS_TIME" => fields.set("atime", &timestamp(value)?),
        "MODIFICATION_TIME" => fields.set("mtime", &timestamp(value)?),
        "CHANGE_TIME" => fields.set("ctime", &timestamp(value)?),
        _ => fields.set("btime", &timestamp(value)?),
    }
}

/// Writes `2026-11-21 15:00:00.25`, which is UTC, as RFC 3339 has it.
fn timestamp(value: &[u8]) -> Checked<Vec<u8>> {
    match value {
        [_, _, _, _, b'-', .., b'0'..=b'9'] => Ok([value, b"Z"].concat()),
        _ => Err(Fault::value(value, "YYYY-MM-DD HH:MM:SS")),
    }
}

/// Reads `st_mode` from ten characters as ls(1) prints them.
fn mode(value: &[u8]) -> Checked<u64> {
    let invalid = || Fault::value(value, "ten characters as of ls -l");
    let &[kind, ref bits @ ..] = value else { return Err(invalid()) };
    let kind = match kind {
        b'-' => 0o100_000,
        b'd' => 0o040_000,
        b'l' => 0o120_000,
        b'p' => 0o010_000,
        b's' => 0o140_000,
        b'b' => 0o060_000,
        b'c' => 0o020_000,
        _ => return Err(invalid()),
    };
    let (triples, []) = bits.as_chunks::<3>() else { return Err(invalid()) };
    let [user, group, others] = triples else { return Err(invalid()) };
    let special = [(user, b's', 0o4000), (group, b's', 0o2000), (others, b't', 0o1000)];
    let mut mode = kind;
    for (at, (&[read, write, search], letter, bit)) in special.into_iter().enumerate() {
        let mut three = match (read, write) {
            (b'-', b'-') => 0,
            (b'-', b'w') => 2,
            (b'r', b'-') => 4,
            (b'r', b'w') => 6,
            _ => return Err(invalid()),
        };
        three |= match search {
            b'-' => 0,
            b'x' => 1,
            _ if search == letter => 1,
            _ if search == letter.to_ascii_uppercase() => 0,
            _ => return Err(invalid()),
        };
        if search.eq_ignore_ascii_case(&letter) {
            mode |= bit;
        }
        mode |= three << (6 - 3 * at);
    }
    Ok(mode)
}

/// Decodes an encoded text. `strict` says that all that has to be encoded
/// must be.
fn decoded(text: &[u8], strict: bool) -> Checked<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        rest = behind;
        match *first {
            b'%' => {
                let missing = || Fault::form("a '%' without two digits behind it");
                let digits = rest.first_chunk::<2>().ok_or_else(missing)?;
                bytes.push(hex_2(*digits)?);
                rest = &rest[2..];
            }
            byte @ (b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~') => {
                bytes.push(byte)
            }
            byte if strict => {
                let byte = byte.escape_ascii();
                return Err(Fault::form(format!(
                    "a path with a '{byte}' as it is: the external list needs ESCAPE '%'"
                )));
            }
            byte => bytes.push(byte),
        }
    }
    Ok(bytes)
}
