//! An entry as an object of JSON. Names that are not UTF-8 are escaped, as in SQL.

use super::entry::EntryView;
use crate::json::EXACT_MAX;
use canopy_model::{FileType, escape};
use canopy_text::safe::is_split_here;
use canopy_text::{group_or_number, user_or_number};
use chrono::{DateTime, SecondsFormat};
use std::io::Write;

/// Prints `{"path":...}` without an end of line. Times are RFC 3339 in UTC, and null for a birth
/// that is not known; sizes are bytes, blocks 512 bytes. Behind them stand texts of numbers beyond
/// 2^53, as `ino_text`.
pub(crate) fn print_json(entry: &EntryView<'_>, output: &mut Vec<u8>) {
    let a = &entry.attributes;
    output.push(b'{');
    text("path", &escape(entry.shown), output);
    output.push(b',');
    text("name", &escape(entry.name), output);
    let time = |ns| DateTime::from_timestamp_nanos(ns).to_rfc3339_opts(SecondsFormat::Nanos, true);
    let numbers = write!(
        output,
        ",\"type\":\"{}\",\"depth\":{},\"dev\":{},\"ino\":{},\"mode\":{},\"nlink\":{},\
        \"uid\":{},\"gid\":{},",
        a.file_type().letter(),
        entry.depth,
        entry.dev,
        a.ino,
        a.mode & 0o7777,
        a.nlink,
        a.uid,
        a.gid
    );
    numbers.expect("writing to memory does not fail");
    text("user", &user_or_number(a.uid), output);
    output.push(b',');
    text("group", &group_or_number(a.gid), output);
    let rest = write!(
        output,
        ",\"size\":{},\"blocks\":{},\"atime\":\"{}\",\"mtime\":\"{}\",\"ctime\":\"{}\",\
        \"btime\":{}",
        a.size_bytes,
        a.blocks,
        time(a.atime_ns),
        time(a.mtime_ns),
        time(a.ctime_ns),
        match a.btime_ns {
            0 => "null".to_owned(),
            known => format!("\"{}\"", time(known)),
        }
    );
    rest.expect("writing to memory does not fail");
    if a.file_type() == FileType::Symlink {
        output.push(b',');
        text("target", &escape(entry.target), output);
    }
    for (name, number) in [
        ("dev", i128::from(entry.dev.0)),
        ("ino", a.ino.into()),
        ("nlink", a.nlink.into()),
        ("size", a.size_bytes.into()),
        ("blocks", a.blocks.into()),
    ] {
        if number.unsigned_abs() > EXACT_MAX {
            output.push(b',');
            text(&format!("{name}_text"), &number.to_string(), output);
        }
    }
    output.push(b'}');
}

fn text(key: &str, value: &str, output: &mut Vec<u8>) {
    let mut quoted = String::with_capacity(value.len() + key.len() + 5);
    quoted.push_str(&format!("\"{key}\":\""));
    for c in value.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            // All controls, those of C1 and 0x7F too, which JSON would allow and terminals obey.
            // So are characters that a terminal of the locale would take for several.
            c if c.is_control() || is_split_here(c) => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                units.iter().for_each(|unit| quoted.push_str(&format!("\\u{unit:04x}")));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    output.extend_from_slice(quoted.as_bytes());
}
