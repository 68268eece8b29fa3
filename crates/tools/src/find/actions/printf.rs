//! The format of `-printf`, and the pieces of `-ls`.

use canopy_model::{Attributes, FileType};
use canopy_text::clock::{ctime, time_of, time_value};
use canopy_text::{Flags, control};
use canopy_text::{group_name, user_name};
use rustix::fd::BorrowedFd;
use std::io::Write;

/// One entry, as actions see it.
pub(crate) struct Found<'a> {
    /// The path to print; empty where no action needs it (see [`Format::needs_listing`]).
    pub(crate) shown: &'a [u8],
    /// Its last component.
    pub(crate) name: &'a [u8],
    /// The start path, as it was given.
    pub(crate) start: &'a [u8],
    /// The followed link through which it was found, else the start path.
    pub(crate) link: &'a [u8],
    /// How far below the start it is.
    pub(crate) depth: u32,
    /// Where it points, if it is a symbolic link.
    pub(crate) target: &'a [u8],
    /// Device that holds it.
    pub(crate) dev: u64,
    pub(crate) attributes: Attributes,
    /// What only some directives ask for.
    pub(crate) rare: Rare,
    /// Its directory, where that is open: in a live search, but for starts.
    pub(crate) directory: Option<BorrowedFd<'a>>,
}

/// What `%F`, `%Y` and `%Z` print.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rare {
    pub(crate) file_system: String,
    pub(crate) target_type: char,
    pub(crate) context: Vec<u8>,
}

/// A compiled format.
#[derive(Debug)]
pub(crate) struct Format {
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(Vec<u8>),
    Directive {
        what: What,
        flags: Flags,
    },
    /// `\c`: print nothing more.
    Stop,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Plain(char),
    Time(char, char),
}

impl Format {
    /// Compiles a format. What find(1) would warn of is added to the warnings.
    pub(crate) fn new(format: &[u8], warnings: &mut Vec<String>) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut text = Vec::new();
        let mut rest = format;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'\\' => match escape_sequence(&mut rest, warnings) {
                    Some(bytes) => text.extend(bytes),
                    None => {
                        pieces.push(Piece::Text(std::mem::take(&mut text)));
                        pieces.push(Piece::Stop);
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
                        Some(piece) => {
                            pieces.push(Piece::Text(std::mem::take(&mut text)));
                            pieces.push(piece);
                        }
                        None => {
                            text.push(b'%');
                            text.extend(&before[..before.len() - rest.len()]);
                        }
                    }
                }
                byte => text.push(byte),
            }
        }
        pieces.push(Piece::Text(text));
        Ok(Format { pieces })
    }

    /// The columns that it needs besides those of the path.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let columns = self.pieces.iter().flat_map(|piece| match piece {
            Piece::Directive { what: What::Plain(letter), .. } => columns_of(*letter),
            Piece::Directive { what: What::Time(letter, _), .. } => {
                columns_of(letter.to_ascii_lowercase())
            }
            Piece::Text(_) | Piece::Stop => &[],
        });
        columns.copied().collect()
    }

    /// Prints an entry.
    pub(crate) fn print(&self, found: &Found<'_>, output: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => output.extend_from_slice(text),
                Piece::Stop => return,
                Piece::Directive { what, flags } if flags.is_plain() => value(*what, found, output),
                Piece::Directive { what: What::Plain('d'), flags } => {
                    flags.signed(i64::from(found.depth), output);
                }
                Piece::Directive { what: What::Plain('m'), flags } => {
                    flags.number(format!("{:o}", found.attributes.mode & 0o7777), "0", output);
                }
                Piece::Directive { what, flags } => {
                    let mut text = Vec::new();
                    value(*what, found, &mut text);
                    flags.text(text, output);
                }
            }
        }
    }

    /// Whether it prints anything that the listing of an entry tells: its path, depth or device.
    pub(crate) fn needs_listing(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Directive { what: What::Plain(letter), .. } => "phPHdDFYZ".contains(*letter),
            _ => false,
        })
    }

    /// Whether it prints anything but what names and types tell.
    pub(crate) fn needs_attributes(&self) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Directive { what: What::Plain(letter), .. } => !"fpPhHdyZ".contains(*letter),
            Piece::Directive { what: What::Time(..), .. } => true,
            Piece::Text(_) | Piece::Stop => false,
        })
    }

    /// Whether it prints anything that has to be looked up elsewhere: `%F`, `%Y` or `%Z`.
    pub(crate) fn needs_known(&self) -> bool {
        "FYZ".chars().any(|letter| self.has(letter))
    }

    /// Whether it has this directive.
    pub(crate) fn has(&self, letter: char) -> bool {
        let is = |piece: &Piece| matches!(piece, Piece::Directive { what: What::Plain(l), .. } if *l == letter);
        self.pieces.iter().any(is)
    }
}

fn columns_of(letter: char) -> &'static [&'static str] {
    match letter {
        's' => &["size"],
        'b' | 'k' => &["blocks"],
        'S' => &["blocks", "size"],
        'm' | 'M' | 'y' => &["mode"],
        'u' | 'U' => &["uid"],
        'g' | 'G' => &["gid"],
        'i' => &["ino"],
        'n' => &["nlink"],
        'l' => &["target"],
        'Y' => &["target", "mode"],
        't' => &["mtime"],
        'a' => &["atime"],
        'c' => &["ctime"],
        'B' => &["btime"],
        _ => &[],
    }
}

/// Reads what follows a backslash. `None` means: stop.
fn escape_sequence(rest: &mut &[u8], warnings: &mut Vec<String>) -> Option<Vec<u8>> {
    let Some((&byte, after)) = rest.split_first() else {
        warnings.push("warning: escape `\\' followed by nothing at all".to_owned());
        return Some(vec![b'\\']);
    };
    let digits = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    if digits > 0 {
        let value =
            rest[..digits].iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
        *rest = &rest[digits..];
        return Some(vec![value as u8]);
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

/// Reads what follows a '%'. `None` stands for what is no directive and printed as it is.
fn directive(rest: &mut &[u8], warnings: &mut Vec<String>) -> Result<Option<Piece>, String> {
    let flags = Flags::read(rest, b"");
    let mut next = || {
        let (&byte, after) = rest.split_first().ok_or("error: % at end of format string")?;
        *rest = after;
        Ok::<u8, String>(byte)
    };
    let byte = next()?;
    let what = match char::from(byte) {
        letter @ ('A' | 'B' | 'C' | 'T') => {
            let Ok(kind) = next() else {
                let warning = format!(
                    "warning: format directive `%{letter}' should be followed by another character"
                );
                warnings.push(warning);
                return Ok(None);
            };
            What::Time(letter, char::from(kind))
        }
        letter if "abcdDfFgGhHiklmMnpPsStuUyYZ".contains(letter) => What::Plain(letter),
        letter @ ('{' | '[' | '(') => {
            return Err(format!(
                "error: the format directive `%{letter}' is reserved for future use"
            ));
        }
        letter => {
            warnings.push(format!("warning: unrecognized format directive `%{letter}'"));
            return Ok(None);
        }
    };
    Ok(Some(Piece::Directive { what, flags }))
}

fn value(what: What, found: &Found<'_>, output: &mut Vec<u8>) {
    let attributes = &found.attributes;
    let Attributes { mode, uid, gid, blocks, .. } = *attributes;
    let letter = match what {
        What::Time(letter, kind) => {
            return output
                .extend_from_slice(time_value(time_of(letter, attributes), kind).as_bytes());
        }
        What::Plain(letter) => letter,
    };
    let written = match letter {
        'p' => return output.extend_from_slice(found.shown),
        'f' => return output.extend_from_slice(found.name),
        'h' => return output.extend_from_slice(directory_name(trim_slashes(found.shown))),
        'P' => return output.extend_from_slice(below(found)),
        'H' => return output.extend_from_slice(found.start),
        'l' => return output.extend_from_slice(found.target),
        'F' => return output.extend_from_slice(found.rare.file_system.as_bytes()),
        'Z' => return output.extend_from_slice(&found.rare.context),
        'Y' => write!(output, "{}", found.rare.target_type),
        's' => write!(output, "{}", attributes.size_bytes),
        'b' => write!(output, "{blocks}"),
        'k' => write!(output, "{}", blocks / 2 + blocks % 2),
        'd' => write!(output, "{}", found.depth),
        'D' => write!(output, "{}", found.dev),
        'm' => write!(output, "{:o}", mode & 0o7777),
        'M' => write!(output, "{}", canopy_text::mode_string(mode)),
        'u' => write_name(user_name(uid), uid, output),
        'U' => write!(output, "{uid}"),
        'g' => write_name(group_name(gid), gid, output),
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

fn write_name(name: Option<String>, id: u32, output: &mut Vec<u8>) -> std::io::Result<()> {
    match name {
        Some(name) => output.write_all(name.as_bytes()),
        None => write!(output, "{id}"),
    }
}

/// Space taken over size, as C's `%g` prints it.
fn sparseness(attributes: &Attributes) -> String {
    let (blocks, size) = (attributes.blocks as f64, attributes.size_bytes as f64);
    if attributes.size_bytes == 0 {
        return if attributes.blocks == 0 { "1".to_owned() } else { "inf".to_owned() };
    }
    general(512.0 * blocks / size)
}

/// A number with six significant digits and no trailing zeros: C's `%g`.
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

/// The last component of a path, as `%f`.
pub(crate) fn file_name(path: &[u8]) -> &[u8] {
    let trimmed = trim_slashes(path);
    match trimmed.iter().rposition(|&byte| byte == b'/') {
        Some(at) if trimmed.len() > 1 => &path[at + 1..],
        _ => path,
    }
}

fn directory_name(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => &path[..at],
        None => b".",
    }
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(1, |at| at + 1);
    &path[..end.min(path.len())]
}

fn below<'a>(found: &Found<'a>) -> &'a [u8] {
    let rest = &found.shown[found.start.len().min(found.shown.len())..];
    rest.strip_prefix(b"/").unwrap_or(rest)
}
