//! The flat formats, each from the bytes of a file to records.

use super::fields::Fields;
use super::lester::{self, Line};
use super::{Collector, gpfs};
use crate::error::{Position, Result};
use crate::fault::{Checked, Fault};
use crate::input::{Blocks, Input};
use crate::number::unsigned;
use canopy_model::unescape;
use memchr::memchr;
use serde_json::Value;

/// Goes through a file segment by segment, each up to an end byte.
struct Segments<'a> {
    blocks: Blocks<'a>,
    end: u8,
}

enum Segment {
    /// Number of bytes before the end byte.
    Whole(usize),
    /// Number of bytes without an end byte: the end of the file, or more than a record may have.
    Open(usize),
}

impl Segments<'_> {
    /// Has the next segment in the window.
    fn prepare(&mut self) -> Result<Option<Segment>> {
        let mut searched = 0;
        loop {
            let bytes = self.blocks.bytes();
            if let Some(at) = memchr(self.end, &bytes[searched..]) {
                return Ok(Some(Segment::Whole(searched + at)));
            }
            searched = bytes.len();
            if !self.blocks.more()? {
                return Ok(if searched == 0 { None } else { Some(Segment::Open(searched)) });
            }
        }
    }
}

/// The columns of what `canopy export` writes as CSV and NDJSON. Their paths and targets are
/// escaped and, in CSV, modes are `st_mode` in decimal.
const EXPORTED: &[&str] = &[
    "path", "source", "name", "type", "depth", "ino", "mode", "nlink", "uid", "gid", "user",
    "group", "size", "blksize", "blocks", "atime", "mtime", "ctime", "btime", "target", "rdev",
    "xattrs",
];

/// Sets a column from a text of `canopy export`.
fn set_exported(fields: &mut Fields, column: &str, text: &str) -> Checked<()> {
    match column {
        "path" | "target" => fields.set(column, &unescape(text)),
        "mode" => fields.set_number(column, unsigned(text.as_bytes())?.into()),
        _ => fields.set(column, text.as_bytes()),
    }
}

/// Takes in a record a line, but for empty lines. `record` gives it from the line; `None` for a
/// line that is none.
pub(super) fn lines(
    input: &Input,
    collector: &mut Collector<'_>,
    mut record: impl FnMut(&[u8]) -> Option<Checked<Fields>>,
) -> Result<()> {
    let mut segments = Segments { blocks: input.text()?, end: b'\n' };
    let mut line = 0;
    let mut lost = false;
    while let Some(segment) = segments.prepare()? {
        let (length, ended) = match segment {
            Segment::Whole(length) => (length, true),
            Segment::Open(length) => (length, segments.blocks.is_last()),
        };
        let place = Position::Line(line + 1, segments.blocks.offset());
        let text = &segments.blocks.bytes()[..length];
        if !ended && !lost {
            collector.problem(place, Fault::form("a line of more than 2 MiB"))?;
        } else if ended
            && !lost
            && !text.trim_ascii().is_empty()
            && let Some(fields) = record(text)
        {
            collector.take(place, fields)?;
        }
        line += u64::from(ended);
        lost = !ended;
        let end = usize::from(matches!(segment, Segment::Whole(_)));
        segments.blocks.advance(length + end);
    }
    Ok(())
}

/// Reads NDJSON: an object a line.
pub(crate) fn ndjson(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    lines(input, collector, |text| Some(object(text)))
}

/// Reads file lists of mmapplypolicy: an entry a line.
pub(crate) fn gpfs_policy(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    lines(input, collector, |text| Some(gpfs::record(text)))
}

/// Reads what Lester prints: an entry a line.
pub(crate) fn lester(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    let mut unfinished = false;
    lines(input, collector, |text| match lester::line(text) {
        Line::Record(fields) => Some(fields),
        mark => {
            unfinished = matches!(mark, Line::Header);
            None
        }
    })?;
    if unfinished {
        let fault = Fault::missing("'#complete#' at the end: the list was cut");
        collector.problem(Position::Offset(input.length), fault)?;
    }
    Ok(())
}

fn object(text: &[u8]) -> Checked<Fields> {
    let value: Value = serde_json::from_slice(text).map_err(Fault::decoder)?;
    let Value::Object(object) = value else { return Err(Fault::form("expected an object")) };
    let mut fields = Fields::default();
    // Nulls are left out there, so columns that can be null do not tell.
    let exported =
        ["source", "name", "depth", "ino", "rdev"].iter().all(|key| object.contains_key(*key));
    for (column, value) in &object {
        match (column.as_str(), value) {
            (_, Value::Null) => {}
            ("xattrs", Value::Object(xattrs)) => {
                for (key, value) in xattrs {
                    let value = value
                        .as_str()
                        .ok_or_else(|| Fault::form(format!("xattrs: {key} is not a string")))?;
                    fields.xattrs.push((key.clone().into_bytes(), xattr_value(value)?));
                }
            }
            ("mode", Value::Number(mode)) => {
                let whole = || Fault::form("mode: expected a whole number");
                fields.set_mode(mode.as_u64().ok_or_else(whole)?)?;
            }
            (column, Value::Number(number)) => fields.set(column, number.to_string().as_bytes())?,
            (column, Value::String(text)) if exported => set_exported(&mut fields, column, text)?,
            (column, Value::String(text)) => fields.set(column, text.as_bytes())?,
            ("xattrs" | "path" | "target" | "type" | "mode" | "uid" | "gid" | "size", _) => {
                let reason = format!("{column}: expected a string or a number");
                return Err(Fault::form(reason));
            }
            _ => {}
        }
    }
    Ok(fields)
}

/// Decodes a value as getfattr(1) prints it: in hexadecimal digits behind 0x, or as it is.
fn xattr_value(text: &str) -> Checked<Vec<u8>> {
    let Some(digits) = text.strip_prefix("0x") else { return Ok(text.as_bytes().to_vec()) };
    hex::decode(digits).map_err(|_| Fault::form("xattrs: expected hexadecimal digits behind 0x"))
}

/// Reads the output of find(1): `%y %m %U %G %s %n %i %b %T@ %A@ %C@ %B@ %p\0%l\0`.
pub(crate) fn find(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    const COLUMNS: [&str; 12] = [
        "type", "mode", "uid", "gid", "size", "nlink", "ino", "blocks", "mtime", "atime", "ctime",
        "btime",
    ];
    let missing = |column: &str| Fault::missing(format!("{column}: is the -printf as documented?"));
    let mut segments = Segments { blocks: input.blocks(0, input.length), end: 0 };
    // The record whose link's target comes next.
    let mut waiting: Option<(Position, Checked<Fields>)> = None;
    while let Some(segment) = segments.prepare()? {
        let place = Position::Offset(segments.blocks.offset());
        let Segment::Whole(length) = segment else {
            // Where a record begins cannot be told any more.
            let reason = "the file ends within a record, or a record has more than 2 MiB";
            return collector.problem(place, Fault::form(reason));
        };
        let text = &segments.blocks.bytes()[..length];
        match waiting.take() {
            Some((place, fields)) => {
                let fields =
                    fields.and_then(|mut fields| fields.set("target", text).map(|()| fields));
                collector.take(place, fields)?;
            }
            None => {
                let mut parts = text.splitn(COLUMNS.len() + 1, |&byte| byte == b' ');
                let mut fields = Fields::default();
                let set = COLUMNS.iter().try_for_each(|column| {
                    let part = parts.next().ok_or_else(|| missing(column))?;
                    // find prints this for an unknown time of birth.
                    let unknown = *column == "btime" && part.starts_with(b"-1.-");
                    if unknown { Ok(()) } else { fields.set_of_find(column, part) }
                });
                let path = parts.next().ok_or_else(|| missing("path"));
                let fields = set.and(path).map(|path| {
                    fields.path = Some(path.to_vec());
                    fields
                });
                waiting = Some((place, fields));
            }
        }
        segments.blocks.advance(length + 1);
    }
    match waiting {
        Some((place, _)) => collector.problem(place, Fault::form("the file ends within a record")),
        None => Ok(()),
    }
}

/// Reads CSV: a line of column names, then a record a line; values may be quoted and hold line ends
/// then.
pub(crate) fn csv(input: &Input, delimiter: u8, collector: &mut Collector<'_>) -> Result<()> {
    let mut blocks = input.text()?;
    let mut columns: Option<Vec<String>> = None;
    let mut line = 1;
    let mut values: Vec<Vec<u8>> = Vec::new();
    loop {
        while blocks.bytes().len() < MAX_RECORD && !blocks.is_last() {
            blocks.more()?;
        }
        if blocks.bytes().is_empty() {
            return Ok(());
        }
        let place = Position::Line(line, blocks.offset());
        let length = match csv_record(blocks.bytes(), delimiter, &mut values) {
            Ok(length) => length,
            // Where a record begins cannot be told any more.
            Err(reason) => return collector.problem(place, reason),
        };
        line += memchr::memchr_iter(b'\n', &blocks.bytes()[..length]).count() as u64;
        blocks.advance(length);
        match &columns {
            _ if values.len() == 1 && values[0].is_empty() => {}
            Some(columns) if columns.len() != values.len() => {
                let reason = format!("{} values, expected {}", values.len(), columns.len());
                collector.problem(place, Fault::form(reason))?;
            }
            Some(columns) => {
                let mut fields = Fields::default();
                let exported = columns == EXPORTED;
                let set = columns.iter().zip(&values).try_for_each(|(column, value)| {
                    match std::str::from_utf8(value) {
                        Ok(text) if exported => set_exported(&mut fields, column, text),
                        _ => fields.set(column, value),
                    }
                });
                collector.take(place, set.map(|()| fields))?;
            }
            None => {
                let name = |value: &Vec<u8>| String::from_utf8_lossy(value).trim().to_lowercase();
                let names: Vec<String> = values.iter().map(name).collect();
                if !names.iter().any(|name| name == "path") {
                    return collector.problem(place, no_path(&names));
                }
                if let Some(fault) = missing_columns(&names) {
                    return collector.problem(place, fault);
                }
                columns = Some(names);
            }
        }
    }
}

/// Returns the fault of a header without columns that each row needs.
fn missing_columns(names: &[String]) -> Option<Fault> {
    let has =
        |column: &str| names.iter().any(|name| name.strip_suffix("_ns").unwrap_or(name) == column);
    let needed = ["mode", "uid", "gid", "size", "mtime"];
    let missing: Vec<String> =
        needed.iter().filter(|column| !has(column)).map(|column| format!("'{column}'")).collect();
    let columns = match missing.len() {
        0 => return None,
        1 => "column",
        _ => "columns",
    };
    Some(Fault::form(format!("the header has no {columns} {}", missing.join(", "))))
}

/// Returns the fault of a header without a path, which may have another delimiter.
fn no_path(names: &[String]) -> Fault {
    let has_path = |delimiter: char| {
        names.iter().any(|name| name.split(delimiter).any(|part| part.trim_matches('"') == "path"))
    };
    let hint = match [';', '\t', '|', ','].into_iter().find(|&delimiter| has_path(delimiter)) {
        Some('\t') => ": is --delim $'\\t' missing?".to_owned(),
        Some(delimiter) => format!(": is --delim '{delimiter}' missing?"),
        None => String::new(),
    };
    Fault::form(format!("the header has no column 'path'{hint}"))
}

/// Largest record of a CSV file.
const MAX_RECORD: usize = 1 << 20;

/// Splits the record at the beginning of `bytes` into values (RFC 4180); returns its length.
///
/// csv-core would take a quoted value without an end, and text behind a closing quote, for values;
/// here they are faults, since what follows could be anything.
fn csv_record(bytes: &[u8], delimiter: u8, values: &mut Vec<Vec<u8>>) -> Checked<usize> {
    values.clear();
    let mut at = 0;
    loop {
        let mut value = Vec::new();
        if bytes.get(at) == Some(&b'"') {
            at += 1;
            loop {
                let quote = memchr(b'"', &bytes[at..])
                    .ok_or_else(|| Fault::form("a quoted value without an end"))?;
                value.extend_from_slice(&bytes[at..at + quote]);
                at += quote + 1;
                if bytes.get(at) != Some(&b'"') {
                    break;
                }
                value.push(b'"');
                at += 1;
            }
        } else {
            let rest = &bytes[at..];
            let length = memchr::memchr2(delimiter, b'\n', rest).unwrap_or(rest.len());
            value.extend_from_slice(&rest[..length]);
            at += length;
            if value.last() == Some(&b'\r') && bytes.get(at) != Some(&delimiter) {
                value.pop();
            }
        }
        values.push(value);
        match bytes.get(at) {
            Some(&byte) if byte == delimiter => at += 1,
            Some(b'\n') => return Ok(at + 1),
            Some(b'\r') if bytes.get(at + 1) == Some(&b'\n') => return Ok(at + 2),
            None => return Ok(at),
            Some(other) => {
                let other = other.escape_ascii();
                return Err(Fault::form(format!("got '{other}' behind a quoted value")));
            }
        }
    }
}
