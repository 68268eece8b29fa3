//! ncdu's export format (<https://dev.yorhel.nl/ncdu/jsonfmt>), with extended information: one
//! array `[MAJOR, MINOR, METADATA, DIRECTORY]`. A directory is an array of an object about itself
//! and of its entries; any other entry is an object.
//!
//! Read byte by byte in one pass: open directories are a list on the heap, so that no depth of the
//! input is a depth of the stack. Texts are any bytes, since ncdu writes names as they are.
//!
//! Entries that ncdu did not look into or at (`excluded`, `read_error` without a mode) are left
//! out, as a scan leaves them out. A directory without known attributes is for root alone.

use super::Collector;
use super::fields::Fields;
use crate::error::{Error, Position, Result};
use crate::fault::{Checked, Fault};
use crate::input::{Blocks, Input};
use crate::number::{size, unsigned};
use crate::path::{check_name, trimmed};
use std::borrow::Cow;

/// Longest name, path of the root, or number. More is not a name of any file system.
const TEXT_BYTES_MAX: usize = 65_535;

/// Reads one export.
pub(crate) fn ncdu(input: &Input, collector: &mut Collector<'_>) -> Result<()> {
    let mut reader = Reader { blocks: input.text()? };
    let mut tree = Tree { collector, open: Vec::new(), path: Vec::new(), root_dev: None };
    match read(&mut reader, &mut tree) {
        Ok(()) => Ok(()),
        Err(Stop::Error(error)) => Err(error),
        // The rest cannot be understood after a fault.
        Err(Stop::Fault(fault)) => {
            collector.problem(Position::Offset(reader.blocks.offset()), fault)
        }
    }
}

/// Why reading ends early.
enum Stop {
    Error(Error),
    Fault(Fault),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Stop::Error(error)
    }
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Stop::Fault(fault)
    }
}

type Read<T> = std::result::Result<T, Stop>;

fn read(reader: &mut Reader<'_>, tree: &mut Tree<'_, '_>) -> Read<()> {
    reader.expect(b'[', "an export of ncdu, which begins with '['")?;
    let version = reader.scalar()?;
    if version != b"1" {
        let fault = Fault::value(&version, "version 1 of ncdu's export format");
        return Err(fault.into());
    }
    reader.expect(b',', "','")?;
    reader.scalar()?;
    reader.expect(b',', "','")?;
    reader.skip()?;
    reader.expect(b',', "','")?;
    reader.expect(b'[', "the directory that was exported")?;
    tree.item(reader, true)?;
    while !tree.open.is_empty() {
        match reader.next("',' or ']'")? {
            b']' => tree.close(),
            b',' => match reader.peek("an entry")? {
                b'[' => {
                    reader.expect(b'[', "'['")?;
                    tree.item(reader, true)?;
                }
                _ => tree.item(reader, false)?,
            },
            other => return Err(unexpected(other, "',' or ']'").into()),
        }
    }
    // Later versions may have more here.
    while reader.next("',' or ']'")? == b',' {
        reader.skip()?;
    }
    match reader.peek_or_end()? {
        None => Ok(()),
        Some(other) => Err(unexpected(other, "the end of the file").into()),
    }
}

/// The directories read so far.
struct Tree<'c, 'p> {
    collector: &'c mut Collector<'p>,
    /// Directories whose arrays are open, the root first.
    open: Vec<Open>,
    /// The path of the last one, without a slash at its end.
    path: Vec<u8>,
    root_dev: Option<Vec<u8>>,
}

struct Open {
    /// Bytes of the path of the directory that holds it.
    parent_bytes: usize,
    dev: Option<Vec<u8>>,
}

impl Tree<'_, '_> {
    fn close(&mut self) {
        if let Some(closed) = self.open.pop() {
            self.path.truncate(closed.parent_bytes);
        }
    }

    /// Takes in the object of an entry; of a directory, which is open from then on, if it is the
    /// first of an array.
    fn item(&mut self, reader: &mut Reader<'_>, is_directory: bool) -> Read<()> {
        reader.peek("an entry")?;
        let place = Position::Offset(reader.blocks.offset());
        let info = Info::read(reader)?;
        let parent_bytes = self.path.len();
        let name = info.name.as_deref().ok_or_else(|| Fault::missing("name"))?;
        if self.open.is_empty() {
            if !name.starts_with(b"/") {
                return Err(Fault::value(name, "an absolute path of the root").into());
            }
            self.path.extend_from_slice(trimmed(name));
        } else {
            check_name(name)?;
            self.path.push(b'/');
            self.path.extend_from_slice(name);
            if self.path.len() > TEXT_BYTES_MAX {
                return Err(
                    Fault::name(format!("a path of more than {TEXT_BYTES_MAX} bytes")).into()
                );
            }
        }
        let dev = info.dev.clone().or_else(|| self.open.last().and_then(|open| open.dev.clone()));
        if self.open.is_empty() {
            self.root_dev.clone_from(&dev);
        }
        if !info.left_out || is_directory {
            let path = if self.path.is_empty() { b"/" } else { &self.path[..] };
            let elsewhere = if dev == self.root_dev { None } else { dev.as_deref() };
            let fields = info.fields(path, is_directory, elsewhere);
            self.collector.take(place, fields)?;
        }
        match is_directory {
            true => self.open.push(Open { parent_bytes, dev }),
            false => self.path.truncate(parent_bytes),
        }
        Ok(())
    }
}

/// Attributes of an entry in its object.
#[derive(Default)]
struct Info {
    name: Option<Vec<u8>>,
    dev: Option<Vec<u8>>,
    /// Values by the names of columns.
    columns: Vec<(&'static str, Vec<u8>)>,
    disk_bytes: Option<Vec<u8>>,
    mode: Option<Vec<u8>>,
    ino: Option<Vec<u8>>,
    /// Whether the object has no usable attribute but the name.
    left_out: bool,
    read_error: bool,
    /// Whether it is one of several names.
    linked: bool,
}

impl Info {
    fn read(reader: &mut Reader<'_>) -> Read<Self> {
        let mut info = Info::default();
        reader.expect(b'{', "an entry, which begins with '{'")?;
        if reader.peek("a name or '}'")? == b'}' {
            reader.next("'}'")?;
            return Ok(info);
        }
        loop {
            reader.peek("a name")?;
            let key = reader.text()?;
            reader.expect(b':', "':'")?;
            match &key[..] {
                b"name" => {
                    reader.peek("a text")?;
                    info.name = Some(reader.text()?);
                }
                b"dev" => info.dev = Some(reader.scalar()?),
                b"dsize" => info.disk_bytes = Some(reader.scalar()?),
                b"mode" => info.mode = Some(reader.scalar()?),
                b"ino" => info.ino = Some(reader.scalar()?),
                b"asize" => info.columns.push(("size", reader.scalar()?)),
                b"nlink" => info.columns.push(("nlink", reader.scalar()?)),
                // Keys of our own exports, for values that ncdu does not take.
                b"canopy_uid" => info.columns.push(("uid", reader.scalar()?)),
                b"canopy_gid" => info.columns.push(("gid", reader.scalar()?)),
                b"canopy_mtime" => info.columns.push(("mtime", reader.scalar()?)),
                b"uid" => info.columns.push(("uid", reader.scalar()?)),
                b"gid" => info.columns.push(("gid", reader.scalar()?)),
                b"mtime" => info.columns.push(("mtime", reader.scalar()?)),
                b"hlnkc" => info.linked = reader.scalar()? == b"true",
                b"read_error" => info.read_error = reader.scalar()? == b"true",
                b"excluded" => {
                    reader.skip()?;
                    info.left_out = true;
                }
                _ => reader.skip()?,
            }
            match reader.next("',' or '}'")? {
                b',' => {}
                b'}' => break,
                other => return Err(unexpected(other, "',' or '}'").into()),
            }
        }
        info.left_out |= info.read_error && info.mode.is_none();
        Ok(info)
    }

    /// Puts the record together; of an entry on another file system than the root, with that.
    fn fields(&self, path: &[u8], is_directory: bool, elsewhere: Option<&[u8]>) -> Checked<Fields> {
        let mut fields = Fields::default();
        fields.path = Some(path.to_vec());
        if is_directory {
            fields.set("type", b"d")?;
        }
        // ncdu leaves out what is 0.
        fields.set("size", b"0")?;
        let Some(mode) = &self.mode else {
            if !self.left_out {
                let reason = "no mode: export with extended information (ncdu -e)";
                return Err(Fault::form(reason));
            }
            // For root alone.
            for column in ["mode", "uid", "gid", "mtime"] {
                fields.set(column, b"0")?;
            }
            return Ok(fields);
        };
        fields.set_mode(unsigned(mode).map_err(|fault| fault.within("mode"))?)?;
        // Some versions tell only that there are several.
        fields.set("nlink", if self.linked { b"2" } else { b"1" })?;
        for (column, text) in &self.columns {
            match *column {
                "uid" | "gid" => fields.set(column, &id(text))?,
                "mtime" => fields.set(column, &seconds(text))?,
                _ => fields.set(column, text)?,
            }
        }
        let disk_bytes = self.disk_bytes.as_deref().map_or(Ok(0), size);
        let disk_bytes = disk_bytes.map_err(|fault| fault.within("dsize"))?;
        fields.set_number("blocks", i128::from(disk_bytes / 512))?;
        if let Some(ino) = &self.ino {
            let ino = unsigned(ino).map_err(|fault| fault.within("ino"))?;
            let ino = elsewhere.map_or(ino, |dev| made_up(dev, ino));
            fields.set_number("ino", ino.into())?;
        }
        Ok(fields)
    }
}

/// Returns the text of an id. ncdu 1 holds ids as signed numbers of 32 bits and prints them with 64:
/// 4294967294 becomes 18446744073709551614.
fn id(text: &[u8]) -> Cow<'_, [u8]> {
    const EXTENDED: u64 = !0 << 31;
    match unsigned(text) {
        Ok(number) if number >= EXTENDED => Cow::Owned((number as u32).to_string().into_bytes()),
        _ => Cow::Borrowed(text),
    }
}

/// Returns the text of a time in seconds. ncdu 1 prints those before 1970 modulo 2^64.
fn seconds(text: &[u8]) -> Cow<'_, [u8]> {
    match unsigned(text) {
        Ok(number) if number > i64::MAX as u64 => {
            Cow::Owned((number as i64).to_string().into_bytes())
        }
        _ => Cow::Borrowed(text),
    }
}

/// An inode number for an entry of another file system, since a source has one device: two names of
/// one inode have the same, and no inode of the root's file system is likely to have it.
fn made_up(dev: &[u8], ino: u64) -> u64 {
    let hash = blake3::hash(&[dev, b":", &ino.to_le_bytes()].concat());
    let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 1
}

fn unexpected(got: u8, expected: &'static str) -> Fault {
    Fault::value(&[got], expected)
}

/// JSON, token by token.
struct Reader<'a> {
    blocks: Blocks<'a>,
}

impl Reader<'_> {
    /// Returns the next byte, where there is one.
    fn byte(&mut self) -> Read<Option<u8>> {
        loop {
            if let Some(&byte) = self.blocks.bytes().first() {
                return Ok(Some(byte));
            }
            if !self.blocks.more()? {
                return Ok(None);
            }
        }
    }

    /// Returns the next byte that is not white space, without taking it; `None` at the end.
    fn peek_or_end(&mut self) -> Read<Option<u8>> {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.byte()? {
            self.blocks.advance(1);
        }
        self.byte()
    }

    fn peek(&mut self, expected: &'static str) -> Read<u8> {
        let end = || Fault::form(format!("the file ends, expected {expected}"));
        Ok(self.peek_or_end()?.ok_or_else(end)?)
    }

    fn next(&mut self, expected: &'static str) -> Read<u8> {
        let byte = self.peek(expected)?;
        self.blocks.advance(1);
        Ok(byte)
    }

    fn expect(&mut self, byte: u8, expected: &'static str) -> Read<()> {
        let got = self.peek(expected)?;
        if got != byte {
            return Err(unexpected(got, expected).into());
        }
        self.blocks.advance(1);
        Ok(())
    }

    /// Takes a byte of a text.
    fn inside(&mut self) -> Read<u8> {
        let byte = self.byte()?.ok_or_else(|| Fault::form("the file ends within a text"))?;
        self.blocks.advance(1);
        Ok(byte)
    }

    /// Reads a text: any bytes but control characters, with the escapes of JSON.
    fn text(&mut self) -> Read<Vec<u8>> {
        self.expect(b'"', "a text")?;
        let mut text = Vec::new();
        loop {
            match self.inside()? {
                b'"' => return Ok(text),
                b'\\' => self.escape(&mut text)?,
                byte @ ..0x20 => return Err(unexpected(byte, "no control character").into()),
                byte => text.push(byte),
            }
            if text.len() > TEXT_BYTES_MAX {
                let reason = format!("a text of more than {TEXT_BYTES_MAX} bytes");
                return Err(Fault::form(reason).into());
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Read<()> {
        let byte = match self.inside()? {
            byte @ (b'"' | b'\\' | b'/') => byte,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let first = self.hex()?;
                let code = match first {
                    0xD800..0xDC00 => {
                        let low = match (self.inside()?, self.inside()?) {
                            (b'\\', b'u') => self.hex()?,
                            _ => 0,
                        };
                        let low = low.checked_sub(0xDC00).filter(|low| *low < 0x400);
                        low.map(|low| 0x1_0000 + ((first - 0xD800) << 10) + low)
                    }
                    code => Some(code),
                };
                let character = code.and_then(char::from_u32);
                let character = character.ok_or_else(|| Fault::form("half a character"))?;
                text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            other => return Err(unexpected(other, "an escape of JSON").into()),
        };
        text.push(byte);
        Ok(())
    }

    fn hex(&mut self) -> Read<u32> {
        let mut code = 0;
        for _ in 0..4 {
            let byte = self.inside()?;
            let digit = char::from(byte).to_digit(16);
            code = code << 4 | digit.ok_or_else(|| unexpected(byte, "a hexadecimal digit"))?;
        }
        Ok(code)
    }

    /// Reads a number or a word.
    fn scalar(&mut self) -> Read<Vec<u8>> {
        let first = self.peek("a number or a word")?;
        let mut text = Vec::new();
        while let Some(byte @ (b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'+' | b'-' | b'.')) =
            self.byte()?
        {
            text.push(byte);
            self.blocks.advance(1);
            if text.len() > 64 {
                return Err(Fault::form("a number of more than 64 digits").into());
            }
        }
        if text.is_empty() { Err(unexpected(first, "a number or a word").into()) } else { Ok(text) }
    }

    /// Skips a value, however deep it is.
    fn skip(&mut self) -> Read<()> {
        let mut depth = 0_u64;
        loop {
            match self.peek("a value")? {
                b'"' => drop(self.text()?),
                b'[' | b'{' => {
                    self.blocks.advance(1);
                    depth += 1;
                    continue;
                }
                b']' | b'}' if depth > 0 => {
                    self.blocks.advance(1);
                    depth -= 1;
                }
                b',' | b':' if depth > 0 => {
                    self.blocks.advance(1);
                    continue;
                }
                _ => drop(self.scalar()?),
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}
