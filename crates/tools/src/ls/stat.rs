//! `stat`: all that is known of an entry, in stat(1)'s forms.

use super::directive::{escape_sequence, seconds, unknown_escapes};
use super::json;
use crate::error::{Error, Result};
use crate::find::Outside;
use canopy_index::Index;
use canopy_model::{Attributes, Device, FileType, unescape};
use canopy_read::Lost;
use canopy_read::contexts::context_of;
use canopy_read::follow::locate_followed;
use canopy_read::locate::{Start, absolute_path, device_within, to_path};
use canopy_read::resolve::locate;
use canopy_text::clock::full_time;
use canopy_text::safe::terminal_name;
use canopy_text::{Flags, Quoting, Style, group_name, mode_string, user_name};
use rustix::fs::{major, minor};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The form without options, but for the line of the device.
const DEFAULT: [&str; 4] = [
    "  File: %N\n  Size: %-10s\tBlocks: %-10b IO Block: %-6o %F\n",
    "Device: %Hd,%Ld\tInode: %-11i Links: %h\n",
    "Device: %Hd,%Ld\tInode: %-11i Links: %-5h Device type: %Hr,%Lr\n",
    "Access: (%04a/%10.10A)  Uid: (%5u/%8U)   Gid: (%5g/%8G)\n\
     Access: %x\nModify: %y\nChange: %z\n Birth: %w\n",
];

/// The form of `--terse`.
const TERSE: &str = "%n %s %b %f %u %g %D %i %h %t %T %X %Y %Z %W %o\n";

/// In which form to print.
#[derive(Clone, Debug)]
pub enum StatFormat {
    /// Lines with all attributes.
    Full,
    /// All attributes in one line.
    Terse,
    /// Directives, and an end of line behind them.
    Line(Vec<u8>),
    /// Directives, with backslash escapes and nothing behind them.
    Escaped(Vec<u8>),
    /// A list of objects of JSON.
    Json,
}

impl StatFormat {
    /// Returns whether it has to be known how names are quoted: as stat(1), which asks for that
    /// only where a format has the directive without flags.
    pub fn asks_how_to_quote(&self) -> bool {
        match self {
            StatFormat::Line(format) | StatFormat::Escaped(format) => {
                format.windows(2).any(|two| two == b"%N")
            }
            StatFormat::Full | StatFormat::Terse | StatFormat::Json => false,
        }
    }
}

/// How to print.
#[derive(Clone, Debug)]
pub struct StatOptions {
    /// The form.
    pub format: StatFormat,
    /// Whether symbolic links are followed.
    pub dereference: bool,
    /// How `%N` quotes names in formats that [ask](StatFormat::asks_how_to_quote).
    pub quoting: Quoting,
    /// Whether the output is a terminal, which names must not disturb.
    pub terminal: bool,
}

/// Result of `stat` for some paths.
#[derive(Debug, Default)]
pub struct Stated {
    /// Reasons why some could not be answered.
    pub failed: Vec<Error>,
    /// Escapes of the format that mean nothing, each time one was met.
    pub warnings: Vec<String>,
    /// The directive of the format that makes no sense, which ended it.
    pub refused: Option<String>,
}

/// Finds the entry that a path leads to.
fn led_to(index: &Index, given: &OsStr) -> canopy_read::Result<Start> {
    match locate_followed(index, given) {
        Err(canopy_read::Error::Lost { path, why: Lost::Outside }) => {
            let start = locate(index, given)?;
            let found = Outside::default().reached(&start);
            let inode = found.map_err(|why| canopy_read::Error::Lost { path, why })?;
            Ok(Start { inode, ..start })
        }
        found => found,
    }
}

/// Prints what is known of each path. Returns the paths that could not be answered; other errors
/// end it. Blocks.
pub fn stat(
    index: &Index,
    paths: &[OsString],
    options: &StatOptions,
    output: &mut dyn Write,
) -> Result<Stated> {
    let mut stated = Stated::default();
    let mut printed_any = false;
    for given in paths {
        let found = match given.as_bytes() {
            b"-" => match standard_input(index) {
                Ok(None) => {
                    stated.failed.push(Error::StandardInput);
                    continue;
                }
                Ok(Some(start)) => Ok(start),
                Err(error) => Err(error),
            },
            _ if options.dereference => led_to(index, given),
            _ => locate(index, given),
        };
        match found {
            Ok(start) => {
                let mut text = Vec::new();
                if matches!(options.format, StatFormat::Json) {
                    let first = !std::mem::replace(&mut printed_any, true);
                    text.extend_from_slice(if first { b"[\n" } else { b",\n" });
                }
                let printed = print(&start, options, &mut text, &mut stated);
                output.write_all(&text)?;
                match printed {
                    Err(Error::Directive(directive)) => {
                        stated.refused = Some(directive);
                        break;
                    }
                    printed => printed?,
                }
            }
            Err(error) if error.is_of_path() => stated.failed.push(Error::cannot("statx", error)),
            Err(error) => return Err(error.into()),
        }
    }
    if matches!(options.format, StatFormat::Json) {
        output.write_all(if printed_any { b"\n]\n" } else { b"[]\n" })?;
    }
    output.flush()?;
    Ok(stated)
}

/// Finds the file that standard input is; `None` if it has no path.
fn standard_input(index: &Index) -> canopy_read::Result<Option<Start>> {
    let path = match Path::new("/proc/self/fd/0").read_link() {
        Ok(path) if path.is_absolute() => path,
        _ => return Ok(None),
    };
    Ok(Some(Start { given: b"-".to_vec(), ..locate(index, path.as_os_str())? }))
}

fn print(
    start: &Start,
    options: &StatOptions,
    text: &mut Vec<u8>,
    stated: &mut Stated,
) -> Result<()> {
    let failed = &mut stated.failed;
    let plain = Quoting { style: Style::Literal, ..options.quoting.clone() };
    let device = start.device()?;
    let printer = |quoting| Printer { start, device, quoting, terminal: options.terminal };
    match &options.format {
        StatFormat::Full => {
            let device = start.inode.attributes.file_type();
            let device = matches!(device, FileType::Block | FileType::Character);
            let [head, file_line, device_line, tail] = DEFAULT;
            for part in [head, if device { device_line } else { file_line }, tail] {
                printer(&plain).print(part.as_bytes(), false, text, failed)?;
            }
            if !start.inode.xattrs.is_empty() {
                text.extend_from_slice(b"Xattrs: ");
                text.extend_from_slice(&terminal_name(
                    &unescape(&start.inode.xattrs),
                    options.terminal,
                ));
                text.push(b'\n');
            }
        }
        StatFormat::Terse => printer(&plain).print(TERSE.as_bytes(), false, text, failed)?,
        StatFormat::Line(format) => {
            printer(&options.quoting).print(format, false, text, failed)?;
            text.push(b'\n');
        }
        StatFormat::Escaped(format) => {
            printer(&options.quoting).print(format, true, text, failed)?;
            stated.warnings.extend(unknown_escapes(format));
        }
        StatFormat::Json => json::print_all(start, device, text),
    }
    Ok(())
}

struct Printer<'a> {
    start: &'a Start,
    /// The device of the file, or of what is in the directory.
    device: Device,
    quoting: &'a Quoting,
    terminal: bool,
}

/// Value of a directive.
enum Value {
    Text(Vec<u8>),
    Number(u64),
    Signed(i64),
    Octal(u64),
    Hex(u64),
    /// Nanoseconds since 1970.
    Time(i64),
}

impl Printer<'_> {
    /// Prints a format. Unknown values become placeholders.
    fn print(
        &self,
        format: &[u8],
        escapes: bool,
        text: &mut Vec<u8>,
        failed: &mut Vec<Error>,
    ) -> Result<()> {
        let mut rest = format;
        while let Some((&byte, after)) = rest.split_first() {
            rest = after;
            match byte {
                b'%' => self.directive(&mut rest, text, failed)?,
                b'\\' if escapes => escape_sequence(&mut rest, text),
                byte => text.push(byte),
            }
        }
        Ok(())
    }

    /// Prints what follows a '%'.
    fn directive(
        &self,
        rest: &mut &[u8],
        text: &mut Vec<u8>,
        failed: &mut Vec<Error>,
    ) -> Result<()> {
        let all = *rest;
        // Groups of digits, of which the C locale has none, and other digits, likewise.
        let flags = Flags::read(rest, b"'I");
        let length = all.len() - rest.len();
        let wrong = |length: usize| {
            Err(Error::Directive(format!("%{}", String::from_utf8_lossy(&all[..length]))))
        };
        if flags.is_too_wide() {
            return wrong(length);
        }
        if length > 0 && matches!(rest.first(), None | Some(b'%')) {
            return wrong(length + usize::from(!rest.is_empty()));
        }
        let part = rest.first().filter(|part| matches!(part, b'H' | b'L')).copied();
        let letter = match part.map_or(rest.first(), |_| rest.get(1)) {
            Some(letter @ (b'd' | b'r')) if part.is_some() => *letter,
            _ if part.is_some() => {
                *rest = &rest[1..];
                text.push(b'?');
                return Ok(());
            }
            letter => letter.copied().unwrap_or(b'%'),
        };
        *rest = rest.get(1 + usize::from(part.is_some())..).unwrap_or_default();
        match self.value(letter, part) {
            _ if letter == b'%' => text.push(b'%'),
            _ if letter == b'N' => self.quoted_name(&flags, text),
            _ if letter == b'C' => {
                let context = context_of(self.start)?;
                if context.is_none() {
                    failed.push(Error::NoContext(self.start.given.clone()));
                }
                flags.text(context.unwrap_or_else(|| b"?".to_vec()), text);
            }
            Some(Value::Text(value)) => flags.text(value, text),
            Some(Value::Signed(value)) => flags.signed(value, text),
            Some(Value::Number(value)) => flags.number(value.to_string(), "", text),
            Some(Value::Octal(value)) => flags.number(format!("{value:o}"), "0", text),
            Some(Value::Hex(value)) => flags.number(format!("{value:x}"), "0x", text),
            Some(Value::Time(time_ns)) => seconds(&flags, time_ns, text),
            // The value is unknown to stat, or to the index.
            None => text.push(b'?'),
        }
        Ok(())
    }

    fn value(&self, letter: u8, part: Option<u8>) -> Option<Value> {
        let inode = &self.start.inode;
        let a: &Attributes = &inode.attributes;
        let of_device = |device: u64| match part {
            Some(b'H') => u64::from(major(device)),
            Some(_) => u64::from(minor(device)),
            None => device,
        };
        let named = |name: Option<String>| {
            Value::Text(name.unwrap_or_else(|| "UNKNOWN".to_owned()).into_bytes())
        };
        let shown = |time_ns| Value::Text(full_time(time_ns).into_bytes());
        Some(match letter {
            b'a' => Value::Octal(u64::from(a.mode & 0o7777)),
            b'A' => Value::Text(mode_string(a.mode).into_bytes()),
            b'b' => Value::Number(a.blocks as u64),
            b'B' => Value::Number(512),
            b'd' => Value::Number(of_device(self.device.0)),
            b'D' => Value::Hex(self.device.0),
            b'f' => Value::Hex(u64::from(a.mode)),
            b'F' => Value::Text(type_name(a).as_bytes().to_vec()),
            b'g' => Value::Number(u64::from(a.gid)),
            b'G' => named(group_name(a.gid)),
            b'h' => Value::Number(u64::from(a.nlink)),
            b'i' => Value::Number(a.ino),
            b'm' => {
                let mounted = mount_point(self.start, self.device).ok()?;
                let mounted = mounted.as_os_str().as_bytes();
                Value::Text(terminal_name(mounted, self.terminal).into_owned())
            }
            b'n' => Value::Text(terminal_name(&self.start.given, self.terminal).into_owned()),
            b'o' => Value::Number(u64::from(a.blksize_bytes)),
            b'r' => Value::Number(of_device(a.rdev)),
            b'R' => Value::Hex(a.rdev),
            b's' => Value::Signed(a.size_bytes),
            b't' => Value::Hex(u64::from(major(a.rdev))),
            b'T' => Value::Hex(u64::from(minor(a.rdev))),
            b'u' => Value::Number(u64::from(a.uid)),
            b'U' => named(user_name(a.uid)),
            b'w' if a.btime_ns == 0 => Value::Text(b"-".to_vec()),
            b'w' => shown(a.btime_ns),
            b'W' => Value::Time(a.btime_ns),
            b'x' => shown(a.atime_ns),
            b'X' => Value::Time(a.atime_ns),
            b'y' => shown(a.mtime_ns),
            b'Y' => Value::Time(a.mtime_ns),
            b'z' => shown(a.ctime_ns),
            b'Z' => Value::Time(a.ctime_ns),
            _ => return None,
        })
    }

    /// Prints the name, and where it is a symbolic link, what it leads to, each with flags of its
    /// own.
    fn quoted_name(&self, flags: &Flags, text: &mut Vec<u8>) {
        let quote = |name: &[u8]| match self.quoting.style {
            Style::Literal => terminal_name(name, self.terminal).into_owned(),
            _ => self.quoting.quote(name).into_owned(),
        };
        flags.text(quote(&self.start.given), text);
        if self.start.inode.attributes.file_type() == FileType::Symlink {
            text.extend_from_slice(b" -> ");
            flags.text(quote(&unescape(&self.start.inode.target)), text);
        }
    }
}

/// Returns where the file system is mounted that an entry is on: the directory furthest up that all
/// have the same device from there on, in the source by the index and above it by the live file
/// system.
fn mount_point(start: &Start, device: Device) -> Result<PathBuf> {
    let mut mounted = start.path.as_path();
    while let Some(above) = mounted.parent() {
        // Nobody can tell of a directory that the caller may not list.
        let found = device_within(&start.view, &start.source, above)?;
        if found.is_some_and(|found| found != device) {
            return Ok(to_path(&absolute_path(&start.source, mounted)));
        }
        mounted = above;
    }
    let mut mounted = to_path(&start.source.root);
    while let Some(above) = mounted.parent() {
        if above.symlink_metadata().map_or(true, |found| Device(found.dev()) != device) {
            break;
        }
        mounted = above.to_owned();
    }
    Ok(mounted)
}

fn type_name(attributes: &Attributes) -> &'static str {
    match attributes.file_type() {
        FileType::Regular if attributes.size_bytes == 0 => "regular empty file",
        FileType::Regular => "regular file",
        FileType::Directory => "directory",
        FileType::Symlink => "symbolic link",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
        FileType::Block => "block special file",
        FileType::Character => "character special file",
        FileType::Unknown => "weird file",
    }
}
