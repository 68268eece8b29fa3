//! The format of `-printf`.

use super::entry::EntryView;
use canopy_index::Columns;
use canopy_index::column::*;
use canopy_model::Attributes;
use canopy_text::clock::{ctime, time_of, time_value};
use canopy_text::safe::hidden_name;
use canopy_text::{
    Flags, WIDTH_MAX, byte_of_digits, control, group_or_number, mode_string, user_or_number,
};
use std::io::Write;

/// A compiled format.
#[derive(Debug)]
pub(crate) struct PrintfFormat {
    segments: Vec<Segment>,
}

#[derive(Debug)]
enum Segment {
    Text(Vec<u8>),
    Directive {
        value: Value,
        flags: Flags,
    },
    /// `\c`: print nothing more.
    Stop,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Plain(char),
    Time(char, char),
}

impl PrintfFormat {
    /// Compiles a format. What find(1) would warn of is added to the warnings.
    pub(crate) fn new(format: &[u8], warnings: &mut Vec<String>) -> Result<Self, String> {
        let mut segments = Vec::new();
        let mut text = Vec::new();
        let mut rest = format;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'\\' => match escape_sequence(&mut rest, warnings) {
                    Some(bytes) => text.extend(bytes),
                    None => {
                        segments.push(Segment::Text(std::mem::take(&mut text)));
                        segments.push(Segment::Stop);
                        break;
                    }
                },
                b'%' if rest.first() == Some(&b'%') => {
                    text.push(b'%');
                    rest = &rest[1..];
                }
                b'%' => {
                    let before = rest;
                    match directive(&mut rest, warnings)? {
                        Some(segment) => {
                            segments.push(Segment::Text(std::mem::take(&mut text)));
                            segments.push(segment);
                        }
                        None => {
                            let as_it_is = &before[..before.len() - rest.len()];
                            text.push(b'%');
                            text.extend(as_it_is.strip_suffix(b"%").unwrap_or(as_it_is));
                        }
                    }
                }
                byte => text.push(byte),
            }
        }
        segments.push(Segment::Text(text));
        Ok(PrintfFormat { segments })
    }

    /// Returns the columns that it needs besides those of the path.
    pub(crate) fn columns(&self) -> Columns {
        self.segments.iter().fold(Columns::NONE, |columns, segment| match segment {
            Segment::Directive { value: Value::Plain(letter) | Value::Time(letter, _), .. } => {
                columns | columns_of(*letter)
            }
            Segment::Text(_) | Segment::Stop => columns,
        })
    }

    /// Prints an entry. On a terminal, what cannot be printed of paths is shown as '?'.
    pub(crate) fn print(&self, entry: &EntryView<'_>, terminal: bool, output: &mut Vec<u8>) {
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => output.extend_from_slice(text),
                Segment::Stop => return,
                Segment::Directive { value, flags } if flags.is_plain() => {
                    write_value(*value, entry, terminal, output)
                }
                Segment::Directive { value: Value::Plain('d'), flags } => {
                    flags.signed(i64::from(entry.depth), output);
                }
                Segment::Directive { value: Value::Plain('m'), flags } => {
                    flags.number(format!("{:o}", entry.attributes.mode & 0o7777), "0", output);
                }
                Segment::Directive { value, flags } => {
                    let mut text = Vec::new();
                    write_value(*value, entry, terminal, &mut text);
                    flags.text(text, output);
                }
            }
        }
    }

    /// Returns whether it prints anything that the listing of an entry tells: its path, depth or
    /// device.
    pub(crate) fn needs_listing(&self) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Directive { value: Value::Plain(letter), .. } => "phPHdDFYZ".contains(*letter),
            _ => false,
        })
    }

    /// Returns whether it prints anything but what names and types tell.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.segments.iter().any(|segment| match segment {
            Segment::Directive { value: Value::Plain(letter), .. } => !"fpPhHdyZ".contains(*letter),
            Segment::Directive { value: Value::Time(..), .. } => true,
            Segment::Text(_) | Segment::Stop => false,
        })
    }

    /// Returns whether it prints what has to be looked up elsewhere: `%F`, `%Y` or `%Z`.
    pub(crate) fn needs_look_up(&self) -> bool {
        "FYZ".chars().any(|letter| self.has(letter))
    }

    /// Returns whether it has this directive.
    pub(crate) fn has(&self, letter: char) -> bool {
        self.segments.iter().any(|segment| {
            matches!(segment, Segment::Directive { value: Value::Plain(l), .. } if *l == letter)
        })
    }
}

fn columns_of(letter: char) -> Columns {
    match letter {
        's' => SIZE.into(),
        'b' | 'k' => BLOCKS.into(),
        'S' => BLOCKS | SIZE,
        'm' | 'M' | 'y' => MODE.into(),
        'u' | 'U' => UID.into(),
        'g' | 'G' => GID.into(),
        'i' => INO.into(),
        'n' => NLINK.into(),
        'l' => TARGET.into(),
        'Y' => TARGET | MODE,
        't' | 'T' => MTIME.into(),
        'a' | 'A' => ATIME.into(),
        'c' | 'C' => CTIME.into(),
        'B' => BTIME.into(),
        _ => Columns::NONE,
    }
}

/// Reads what follows a backslash. `None` means: stop.
fn escape_sequence(rest: &mut &[u8], warnings: &mut Vec<String>) -> Option<Vec<u8>> {
    let Some((&byte, after)) = rest.split_first() else {
        warnings.push("warning: escape `\\' followed by nothing at all".to_owned());
        return Some(vec![b'\\']);
    };
    if let Some(value) = byte_of_digits(rest, 8, 3) {
        return Some(vec![value]);
    }
    *rest = after;
    Some(match byte {
        b'c' => return None,
        b'\\' => vec![b'\\'],
        letter if letter != b'e' && control(letter).is_some() => {
            control(letter).into_iter().collect()
        }
        other => {
            warnings.push(format!("warning: unrecognized escape `\\{}'", char::from(other)));
            vec![b'\\', other]
        }
    })
}

/// Reads what follows a '%'. `None` stands for what is not a directive and printed as it is.
fn directive(rest: &mut &[u8], warnings: &mut Vec<String>) -> Result<Option<Segment>, String> {
    let flags = Flags::read(rest, b"");
    if flags.is_too_wide() {
        return Err(format!("error: a width or precision is larger than {WIDTH_MAX}"));
    }
    let mut next = || {
        let (&byte, after) = rest.split_first().ok_or("error: % at end of format string")?;
        *rest = after;
        Ok::<u8, String>(byte)
    };
    let byte = next()?;
    let value = match char::from(byte) {
        letter @ ('A' | 'B' | 'C' | 'T') => {
            let Ok(kind) = next() else {
                let warning = format!(
                    "warning: format directive `%{letter}' should be followed by another character"
                );
                warnings.push(warning);
                return Ok(None);
            };
            Value::Time(letter, char::from(kind))
        }
        letter if "abcdDfFgGhHiklmMnpPsStuUyYZ".contains(letter) => Value::Plain(letter),
        letter @ ('{' | '[' | '(') => {
            return Err(format!(
                "error: the format directive `%{letter}' is reserved for future use"
            ));
        }
        // With a width, find(1) prints that and leaves the second sign out.
        '%' => return Ok(None),
        letter => {
            warnings.push(format!("warning: unrecognized format directive `%{letter}'"));
            return Ok(None);
        }
    };
    Ok(Some(Segment::Directive { value, flags }))
}

fn write_value(value: Value, entry: &EntryView<'_>, terminal: bool, output: &mut Vec<u8>) {
    let attributes = &entry.attributes;
    let Attributes { mode, uid, gid, blocks, .. } = *attributes;
    let letter = match value {
        // A birth that is not known is not text.
        Value::Time('B', _) if attributes.btime_ns == 0 => return,
        Value::Time(letter, kind) => {
            return output
                .extend_from_slice(time_value(time_of(letter, attributes), kind).as_bytes());
        }
        Value::Plain(letter) => letter,
    };
    let mut name = |name: &[u8]| output.extend_from_slice(&hidden_name(name, terminal));
    let written = match letter {
        'p' => return name(entry.shown),
        'f' => return name(entry.name),
        'h' => return name(directory_name(entry.shown)),
        'P' => return name(below(entry)),
        'H' => return name(entry.start),
        'l' => return name(entry.target),
        'F' => return name(entry.looked_up.file_system.as_bytes()),
        'Z' => return name(&entry.looked_up.context),
        'Y' => write!(output, "{}", entry.looked_up.target_type),
        's' => write!(output, "{}", attributes.size_bytes),
        'b' => write!(output, "{blocks}"),
        'k' => write!(output, "{}", blocks / 2 + blocks % 2),
        'd' => write!(output, "{}", entry.depth),
        'D' => write!(output, "{}", entry.dev),
        'm' => write!(output, "{:o}", mode & 0o7777),
        'M' => write!(output, "{}", mode_string(mode)),
        'u' => write!(output, "{}", user_or_number(uid)),
        'U' => write!(output, "{uid}"),
        'g' => write!(output, "{}", group_or_number(gid)),
        'G' => write!(output, "{gid}"),
        'i' => write!(output, "{}", attributes.ino),
        'n' => write!(output, "{}", attributes.nlink),
        'y' => write!(output, "{}", attributes.file_type().letter()),
        'S' => write!(output, "{}", sparseness(attributes)),
        't' | 'a' | 'c' => write!(output, "{}", ctime(time_of(letter, attributes))),
        _ => unreachable!("directives are checked when the format is compiled"),
    };
    written.expect("writing to memory does not fail");
}

/// Formats space taken over size as C's `%g` prints it.
fn sparseness(attributes: &Attributes) -> String {
    let (blocks, size) = (attributes.blocks as f64, attributes.size_bytes as f64);
    if attributes.size_bytes == 0 {
        return if attributes.blocks == 0 { "1".to_owned() } else { "inf".to_owned() };
    }
    general(512.0 * blocks / size)
}

/// Formats a number with six significant digits and no trailing zeros: C's `%g`.
fn general(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let exponent =
        format!("{value:.5e}").split('e').nth(1).and_then(|e| e.parse::<i32>().ok()).unwrap_or(0);
    let trimmed = |text: String| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if (-4..6).contains(&exponent) {
        return trimmed(format!("{value:.*}", (5 - exponent).max(0) as usize));
    }
    let scientific = format!("{value:.5e}");
    let mantissa = scientific.split('e').next().unwrap_or_default().to_owned();
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Returns the directory of a path. As in find(1), slashes at the end of the path are left out only
/// if more than one character stands before them.
fn directory_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let path = if end > 1 { &path[..end] } else { path };
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => &path[..at],
        None => b".",
    }
}

fn below<'a>(entry: &EntryView<'a>) -> &'a [u8] {
    let rest = &entry.shown[entry.start.len().min(entry.shown.len())..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_paths_are_finds() {
        for (path, directory) in [
            (&b"t"[..], &b"."[..]),
            (b"t/", b"t"),
            (b"t//", b"t/"),
            (b"tree/", b"."),
            (b"tree//", b"."),
            (b"/tmp/t//", b"/tmp"),
            (b"t//b", b"t/"),
            (b"/t", b""),
            (b"/", b""),
            (b"//", b"/"),
            (b".//", b"./"),
        ] {
            assert_eq!(directory_name(path), directory, "{}", path.escape_ascii());
        }
    }
}
