//! A record of a GUFI trace.
//!
//! ```text
//! record  := name D type D number{11} link D xattrs D number{5} text D text D pinode D LF
//! number  := decimal D: inode, mode, nlink, uid, gid, size, blksize, blocks, atime, mtime, ctime;
//!            times are in seconds;
//!            behind xattrs: creation time and four integers of the file system, which are not used
//! D       := the delimiter, 0x1E unless told otherwise
//! xattrs  := (name U value U)*, U is 0x1F
//! ```
//!
//! In the *prefixed* form, names, links, texts and xattrs begin with their length in bytes as 4
//! hexadecimal digits, and xattrs with a count of pairs in 4 more, which the length includes; so a
//! name can hold any byte. In the *plain* form, they end at the next delimiter. An external
//! database has a record of its own: `name D e D LF`.
//!
//! Bytes are only ever taken as what they are by their position: a name may hold what looks like a
//! record.

use super::Form;
use crate::fault::{Checked, Fault};
use crate::number::{hex_4, seconds, size, unsigned, unsigned_32};
use canopy_model::{Attributes, FileType};
use memchr::{memchr, memchr_iter};

/// Between names and values of extended attributes.
const XATTR_DELIMITER: u8 = 0x1F;

/// Largest record: five texts of 64 KiB and the numbers between them.
pub(crate) const RECORD_BYTES_MAX: usize = 400 << 10;

/// The form by which the records of a file are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub form: Form,
    pub delimiter: u8,
}

/// Why bytes are not a record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SplitError {
    /// They end too early.
    Incomplete,
    /// They cannot be one, whatever follows.
    Bad(Fault),
}

impl SplitError {
    fn bad(reason: String) -> Self {
        SplitError::Bad(Fault::form(reason))
    }
}

/// The fields of a record, not yet looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    pub path: &'a [u8],
    /// `d`, `f`, `l`, or `e` for an external database, of which only the path is set.
    pub kind: u8,
    numbers: [&'a [u8]; 11],
    pub target: &'a [u8],
    xattrs: &'a [u8],
    /// Number of xattrs, if the record states it.
    xattr_count: Option<usize>,
    crtime: &'a [u8],
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    layout: Layout,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], SplitError> {
        let taken = self.bytes.get(self.at..self.at + length).ok_or(SplitError::Incomplete)?;
        self.at += length;
        Ok(taken)
    }

    fn delimiter(&mut self, behind: &str) -> Result<(), SplitError> {
        match self.bytes.get(self.at) {
            None => Err(SplitError::Incomplete),
            Some(&byte) if byte == self.layout.delimiter => {
                self.at += 1;
                Ok(())
            }
            Some(&byte) => {
                let got = byte.escape_ascii();
                Err(SplitError::bad(format!(
                    "got '{got}' behind the {behind}, expected the delimiter"
                )))
            }
        }
    }

    /// Takes a field up to the next delimiter.
    fn plain(&mut self) -> Result<&'a [u8], SplitError> {
        let rest = &self.bytes[self.at..];
        let length = memchr(self.layout.delimiter, rest).ok_or(SplitError::Incomplete)?;
        self.at += length + 1;
        Ok(&rest[..length])
    }

    /// Takes a short field up to the next delimiter.
    fn short(&mut self, what: &str) -> Result<&'a [u8], SplitError> {
        const LENGTH_MAX: usize = 24;
        let rest = &self.bytes[self.at..];
        let rest = &rest[..rest.len().min(LENGTH_MAX)];
        match rest.iter().position(|&byte| byte == self.layout.delimiter) {
            Some(length) => {
                self.at += length + 1;
                Ok(&rest[..length])
            }
            None if rest.len() < LENGTH_MAX => Err(SplitError::Incomplete),
            None => Err(SplitError::Bad(Fault::value(rest, format!("a number as {what}")))),
        }
    }

    fn length(&mut self, what: &str) -> Result<usize, SplitError> {
        let digits = self.take(4)?;
        hex_4(digits)
            .map_err(|fault| SplitError::Bad(fault.within(format_args!("length of the {what}"))))
    }

    fn text(&mut self, what: &str) -> Result<&'a [u8], SplitError> {
        if self.layout.form == Form::Plain {
            return self.plain();
        }
        let length = self.length(what)?;
        let text = self.take(length)?;
        self.delimiter(what)?;
        Ok(text)
    }

    fn xattrs(&mut self) -> Result<(&'a [u8], Option<usize>), SplitError> {
        if self.layout.form == Form::Plain {
            return Ok((self.plain()?, None));
        }
        let length = self.length("extended attributes")?;
        let Some(length) = length.checked_sub(4) else {
            return Err(SplitError::bad(format!(
                "extended attributes of {length} bytes, expected at least 4"
            )));
        };
        let count = self.length("extended attributes")?;
        let pairs = self.take(length)?;
        self.delimiter("extended attributes")?;
        Ok((pairs, Some(count)))
    }
}

impl<'a> Record<'a> {
    /// Splits the record at the beginning of `bytes` into its fields; returns its length too.
    pub(crate) fn split(bytes: &'a [u8], layout: Layout) -> Result<(Self, usize), SplitError> {
        const NUMBERS: [&str; 11] = [
            "inode",
            "mode",
            "nlink",
            "uid",
            "gid",
            "size",
            "block size",
            "blocks",
            "atime",
            "mtime",
            "ctime",
        ];
        let mut cursor = Cursor { bytes, at: 0, layout };
        let path = cursor.text("name")?;
        let kind = cursor.take(1)?[0];
        cursor.delimiter("type")?;
        let mut record = Record {
            path,
            kind,
            numbers: [&[]; 11],
            target: &[],
            xattrs: &[],
            xattr_count: None,
            crtime: &[],
        };
        if kind != b'e' {
            for (number, what) in record.numbers.iter_mut().zip(NUMBERS) {
                *number = cursor.short(what)?;
            }
            record.target = cursor.text("link")?;
            (record.xattrs, record.xattr_count) = cursor.xattrs()?;
            record.crtime = cursor.short("creation time")?;
            for what in ["ossint1", "ossint2", "ossint3", "ossint4"] {
                cursor.short(what)?;
            }
            cursor.text("osstext1")?;
            cursor.text("osstext2")?;
            cursor.short("inode of the directory")?;
        }
        match cursor.take(1)? {
            b"\n" => Ok((record, cursor.at)),
            other => {
                let got = other.escape_ascii();
                Err(SplitError::bad(format!(
                    "got '{got}' behind the last field, expected the end of the line"
                )))
            }
        }
    }

    /// Returns the attributes.
    pub(crate) fn attributes(&self) -> Checked<Attributes> {
        let [ino, mode, nlink, uid, gid, bytes, blksize, blocks, atime, mtime, ctime] =
            self.numbers;
        let attributes = Attributes {
            ino: unsigned(ino)?,
            mode: self.mode(unsigned_32(mode)?)?,
            nlink: unsigned_32(nlink)?,
            uid: unsigned_32(uid)?,
            gid: unsigned_32(gid)?,
            size_bytes: size(bytes)?,
            blksize_bytes: unsigned_32(blksize)?,
            blocks: size(blocks)?,
            atime_ns: seconds(atime)?,
            mtime_ns: seconds(mtime)?,
            ctime_ns: seconds(ctime)?,
            btime_ns: seconds(self.crtime)?,
            rdev: 0,
        };
        if attributes.file_type() != FileType::Symlink && !self.target.is_empty() {
            return Err(Fault::contradiction("a link's target on what is not a symbolic link"));
        }
        if memchr(0, self.target).is_some() {
            return Err(Fault::contradiction("a link's target with a NUL"));
        }
        Ok(attributes)
    }

    /// Checks the mode, which must agree with the type.
    fn mode(&self, mode: u32) -> Checked<u32> {
        let file_type = FileType::of_mode(mode);
        let own = file_type.letter() as u8;
        let agrees = match file_type {
            FileType::Directory | FileType::Symlink => self.kind == own,
            FileType::Unknown => false,
            // GUFI calls everything else a file.
            _ => self.kind == b'f' || self.kind == own,
        };
        if agrees && mode <= 0o177_777 {
            return Ok(mode);
        }
        let kind = self.kind.escape_ascii();
        let reason = format!("mode {mode:o} does not agree with type '{kind}'");
        Err(Fault::contradiction(reason))
    }

    /// Names and values of the extended attributes.
    pub(crate) fn xattrs(&self) -> Checked<Pairs<'a>> {
        let found = memchr_iter(XATTR_DELIMITER, self.xattrs).count();
        let pairs = self.xattr_count.unwrap_or(found / 2);
        if found != 2 * pairs {
            // A value that holds the delimiter cannot be told from the next name.
            let expected = 2 * pairs;
            let reason = format!("{found} delimiters in extended attributes, expected {expected}");
            return Err(Fault::form(reason));
        }
        if self.xattrs.last().is_some_and(|&byte| byte != XATTR_DELIMITER) {
            return Err(Fault::form("extended attributes do not end with their delimiter"));
        }
        let pairs = Pairs { rest: self.xattrs };
        if pairs
            .clone()
            .any(|(key, _)| key.is_empty() || key.len() > 255 || memchr(0, key).is_some())
        {
            return Err(Fault::name(
                "an extended attribute with an empty name, a NUL in it, or more than 255 bytes",
            ));
        }
        Ok(pairs)
    }
}

/// Names and values of extended attributes, in the order of the record.
#[derive(Clone, Debug)]
pub(crate) struct Pairs<'a> {
    rest: &'a [u8],
}

impl Pairs<'_> {
    /// No pairs.
    pub(crate) const EMPTY: Pairs<'static> = Pairs { rest: &[] };
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let key_end = memchr(XATTR_DELIMITER, self.rest)?;
        let (key, rest) = (&self.rest[..key_end], &self.rest[key_end + 1..]);
        let value_end = memchr(XATTR_DELIMITER, rest)?;
        self.rest = &rest[value_end + 1..];
        Some((key, &rest[..value_end]))
    }
}

/// Finds out from its first record which form a file has.
///
/// A record cannot be one in both forms: what is the link's length in the prefixed form is the link
/// in the plain one, and the first record is a directory, which has none.
pub(crate) fn detect(bytes: &[u8], delimiter: u8) -> Checked<Form> {
    let fault = |form| match Record::split(bytes, Layout { form, delimiter }) {
        Ok((record, _)) if record.kind != b'd' => {
            Some(Fault::form("the first record is not a directory"))
        }
        Ok((record, _)) => record.attributes().err(),
        Err(SplitError::Bad(fault)) => Some(fault),
        Err(SplitError::Incomplete) => Some(Fault::form("the first record has no end")),
    };
    let Some(prefixed) = fault(Form::Prefixed) else { return Ok(Form::Prefixed) };
    let Some(plain) = fault(Form::Plain) else { return Ok(Form::Plain) };
    let looks_prefixed = bytes.get(..4).is_some_and(|digits| hex_4(digits).is_ok());
    let fault = if looks_prefixed { prefixed } else { plain };
    Err(fault.within("not a GUFI trace"))
}
