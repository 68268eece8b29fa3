//! The columns of flat formats, one name and one meaning for all of them, and an entry as it is put
//! together from them.

use crate::fault::{Checked, Fault};
use crate::number::{signed, size, unsigned, unsigned_32};
use canopy_model::{Attributes, FileType, clamped};

const SECOND_NS: i64 = 1_000_000_000;

/// Type of a column, where a format has types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    Text,
    Number,
    Time,
}

impl Holds {
    /// Returns the type of a column of this name. `None` for columns that [`Fields::set`] skips.
    pub(crate) fn of(column: &str) -> Option<Self> {
        Some(match column {
            "path" | "target" | "type" => Holds::Text,
            "mode" | "uid" | "gid" | "size" | "nlink" | "ino" | "blocks" | "blksize" | "rdev" => {
                Holds::Number
            }
            "mtime" | "atime" | "ctime" | "btime" => Holds::Time,
            "mtime_ns" | "atime_ns" | "ctime_ns" | "btime_ns" => Holds::Time,
            _ => return None,
        })
    }
}

/// An entry from its columns; what is not given has a default.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    pub path: Option<Vec<u8>>,
    pub target: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    kind: Option<u32>,
    mode: Option<u32>,
    uid: Option<u32>,
    gid: Option<u32>,
    size_bytes: Option<i64>,
    nlink: Option<u32>,
    ino: Option<u64>,
    blocks: Option<i64>,
    blksize_bytes: Option<u32>,
    mtime_ns: Option<i64>,
    atime_ns: Option<i64>,
    ctime_ns: Option<i64>,
    btime_ns: Option<i64>,
    rdev: u64,
}

impl Fields {
    /// Sets a column from its text. Columns of other names are not a concern of an index. An empty
    /// text is as good as none, but for the path of the root.
    pub(crate) fn set(&mut self, column: &str, text: &[u8]) -> Checked<()> {
        let named = |fault: Fault| fault.within(column);
        match column {
            "path" => self.path = Some(text.to_vec()),
            _ if text.is_empty() => {}
            "target" => self.target = text.to_vec(),
            "type" => self.kind = Some(kind(text)?),
            "mode" => self.mode = Some(octal(text).map_err(named)?),
            "uid" => self.uid = Some(unsigned_32(text).map_err(named)?),
            "gid" => self.gid = Some(unsigned_32(text).map_err(named)?),
            "size" => self.size_bytes = Some(size(text).map_err(named)?),
            "nlink" => self.nlink = Some(unsigned_32(text).map_err(named)?),
            "ino" => self.ino = Some(unsigned(text).map_err(named)?),
            "blocks" => self.blocks = Some(size(text).map_err(named)?),
            "blksize" => self.blksize_bytes = Some(unsigned_32(text).map_err(named)?),
            "rdev" => self.rdev = unsigned(text).map_err(named)?,
            "mtime" => self.mtime_ns = Some(time(text).map_err(named)?),
            "atime" => self.atime_ns = Some(time(text).map_err(named)?),
            "ctime" => self.ctime_ns = Some(time(text).map_err(named)?),
            "btime" => self.btime_ns = Some(time(text).map_err(named)?),
            "mtime_ns" => self.mtime_ns = Some(signed(text).map_err(named)?),
            "atime_ns" => self.atime_ns = Some(signed(text).map_err(named)?),
            "ctime_ns" => self.ctime_ns = Some(signed(text).map_err(named)?),
            "btime_ns" => self.btime_ns = Some(signed(text).map_err(named)?),
            _ => {}
        }
        Ok(())
    }

    /// Sets a column from a whole number: a time in seconds, a mode as `st_mode`.
    pub(crate) fn set_number(&mut self, column: &str, number: i128) -> Checked<()> {
        match column {
            "mode" => self.set_mode(u64::try_from(number).unwrap_or(u64::MAX)),
            _ => self.set(column, number.to_string().as_bytes()),
        }
    }

    /// Sets a column from its text as find(1) prints it. Times before 1970 differ: `-2.5` is the
    /// second -2 and half a second more.
    pub(crate) fn set_of_find(&mut self, column: &str, text: &[u8]) -> Checked<()> {
        if !matches!(column, "mtime" | "atime" | "ctime" | "btime") || text.is_empty() {
            return self.set(column, text);
        }
        let time_ns = time_of_find(text).map_err(|fault| fault.within(column))?;
        self.set_time(column, time_ns.into());
        Ok(())
    }

    /// Sets a time from nanoseconds since 1970; what does not fit is clamped.
    pub(crate) fn set_time(&mut self, column: &str, time_ns: i128) {
        let time_ns = clamped(time_ns);
        match column.trim_end_matches("_ns") {
            "mtime" => self.mtime_ns = Some(time_ns),
            "atime" => self.atime_ns = Some(time_ns),
            "ctime" => self.ctime_ns = Some(time_ns),
            "btime" => self.btime_ns = Some(time_ns),
            _ => {}
        }
    }

    /// Sets the mode from `st_mode` as a number.
    pub(crate) fn set_mode(&mut self, mode: u64) -> Checked<()> {
        let mode = u32::try_from(mode).ok().filter(|&mode| mode <= 0o177_777);
        let expected = "mode: expected at most 0177777";
        self.mode = Some(mode.ok_or_else(|| Fault::contradiction(expected))?);
        Ok(())
    }

    /// Checks the columns that were set and puts the attributes together.
    pub(crate) fn attributes(&self) -> Checked<Attributes> {
        let needed = |column: &'static str| Fault::missing(column);
        let mode = self.mode.ok_or_else(|| needed("mode"))?;
        let mode = match (mode & 0o170_000, self.kind) {
            (0, None) => return Err(needed("type")),
            (0, Some(kind)) => mode | kind,
            (of_mode, Some(kind)) if of_mode != kind => {
                let reason = format!("mode {mode:o} does not agree with the type");
                return Err(Fault::contradiction(reason));
            }
            _ => mode,
        };
        if FileType::of_mode(mode) == FileType::Unknown {
            return Err(Fault::contradiction(format!("mode {mode:o} has no type")));
        }
        if FileType::of_mode(mode) != FileType::Symlink && !self.target.is_empty() {
            return Err(Fault::contradiction("a link's target on what is not a symbolic link"));
        }
        let size_bytes = self.size_bytes.ok_or_else(|| needed("size"))?;
        let mtime_ns = self.mtime_ns.ok_or_else(|| needed("mtime"))?;
        Ok(Attributes {
            ino: self.ino.unwrap_or(0),
            mode,
            // Without inodes, links to one file cannot be told from different files.
            nlink: if self.ino.is_some() { self.nlink.unwrap_or(1) } else { 1 },
            uid: self.uid.ok_or_else(|| needed("uid"))?,
            gid: self.gid.ok_or_else(|| needed("gid"))?,
            size_bytes,
            blksize_bytes: self.blksize_bytes.unwrap_or(4096),
            blocks: self.blocks.unwrap_or(size_bytes / 512 + i64::from(size_bytes % 512 > 0)),
            atime_ns: self.atime_ns.unwrap_or(mtime_ns),
            mtime_ns,
            ctime_ns: self.ctime_ns.unwrap_or(mtime_ns),
            btime_ns: self.btime_ns.unwrap_or(0),
            rdev: self.rdev,
        })
    }
}

fn kind(text: &[u8]) -> Checked<u32> {
    Ok(match text {
        b"f" | b"file" => 0o100_000,
        b"d" | b"dir" | b"directory" => 0o040_000,
        b"l" | b"link" | b"symlink" => 0o120_000,
        b"p" | b"fifo" => 0o010_000,
        b"s" | b"socket" => 0o140_000,
        b"b" | b"block" => 0o060_000,
        b"c" | b"char" => 0o020_000,
        _ => {
            return Err(Fault::value(text, "one of f, d, l, p, s, b, c").within("type"));
        }
    })
}

fn octal(text: &[u8]) -> Checked<u32> {
    let invalid = || Fault::value(text, "an octal number up to 177777");
    if text.is_empty() || text.len() > 8 {
        return Err(invalid());
    }
    let mode = text.iter().try_fold(0, |mode: u32, &byte| match byte {
        b'0'..=b'7' => Ok(mode << 3 | u32::from(byte - b'0')),
        _ => Err(invalid()),
    })?;
    if mode > 0o177_777 { Err(invalid()) } else { Ok(mode) }
}

/// Description of times, for errors.
const TIME: &str = "seconds since 1970 or a time such as 2026-11-21T15:00:00Z";

/// Reads seconds since 1970 with up to nine digits behind the point (more are cut off), or RFC
/// 3339.
pub(crate) fn time(text: &[u8]) -> Checked<i64> {
    if text.len() > 5 && text[4] == b'-' {
        return rfc_3339(text);
    }
    let (seconds, part) = seconds_and_part(text)?;
    let part = if text.starts_with(b"-") { -part } else { part };
    Ok(nanoseconds(seconds, part))
}

/// Reads seconds since 1970 as find(1) prints them: what follows the point is added, whatever the
/// sign.
fn time_of_find(text: &[u8]) -> Checked<i64> {
    let (seconds, part) = seconds_and_part(text)?;
    Ok(nanoseconds(seconds, part))
}

fn seconds_and_part(text: &[u8]) -> Checked<(i64, i64)> {
    let (whole, fraction) = match memchr::memchr(b'.', text) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &b""[..]),
    };
    let invalid = |_| Fault::value(text, TIME);
    Ok((signed(whole).map_err(invalid)?, fraction_ns(fraction).map_err(invalid)?))
}

/// Returns a time in nanoseconds since 1970, or the nearest that 64 bits hold.
fn nanoseconds(seconds: i64, part_ns: i64) -> i64 {
    let time_ns = i128::from(seconds) * i128::from(SECOND_NS) + i128::from(part_ns);
    clamped(time_ns)
}

fn fraction_ns(digits: &[u8]) -> Checked<i64> {
    let mut part = 0;
    for at in 0..digits.len().max(9) {
        let digit = digits.get(at).map_or(0, |byte| byte.wrapping_sub(b'0'));
        if digit > 9 {
            return Err(Fault::value(digits, "digits of a second"));
        }
        if at < 9 {
            part = part * 10 + i64::from(digit);
        }
    }
    Ok(part)
}

/// Reads `2026-11-21T14:36:42.5Z`, or with an offset such as `+01:00`; a blank may stand for the
/// `T`.
fn rfc_3339(text: &[u8]) -> Checked<i64> {
    let invalid = || Fault::value(text, TIME);
    let field = |range: std::ops::Range<usize>, most: i64| {
        let number = text.get(range).and_then(|digits| signed(digits).ok());
        number.filter(|number| (0..=most).contains(number)).ok_or_else(invalid)
    };
    let is = |at: usize, bytes: &[u8]| text.get(at).is_some_and(|byte| bytes.contains(byte));
    if !(is(7, b"-") && is(10, b"T t") && is(13, b":") && is(16, b":")) {
        return Err(invalid());
    }
    let (year, month, day) = (field(0..4, 9999)?, field(5..7, 12)?, field(8..10, 31)?);
    if month == 0 || day == 0 {
        return Err(invalid());
    }
    let seconds = field(11..13, 23)? * 3600 + field(14..16, 59)? * 60 + field(17..19, 60)?;
    let mut rest = &text[19..];
    let mut part = 0;
    if let Some(fraction) = rest.strip_prefix(b".") {
        let digits = fraction.iter().take_while(|byte| byte.is_ascii_digit()).count();
        part = fraction_ns(&fraction[..digits])?;
        rest = &fraction[digits..];
    }
    let offset = match rest {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h0, h1, b':', m0, m1] => {
            let two = |a: u8, b: u8| {
                unsigned(&[a, b]).ok().and_then(|n| i64::try_from(n).ok()).ok_or_else(invalid)
            };
            let offset = two(*h0, *h1)? * 3600 + two(*m0, *m1)? * 60;
            if *sign == b'-' { -offset } else { offset }
        }
        _ => return Err(invalid()),
    };
    // Days since 1970 in the Gregorian calendar, by Howard Hinnant's days_from_civil.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468;
    Ok(nanoseconds(days * 86_400 + seconds - offset, part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_far_away_are_those_that_were_written() {
        assert_eq!(
            [&b"-0.5"[..], b"-1.5", b"-2"].map(time),
            [-5, -15, -20].map(|tenth| Ok(tenth * SECOND_NS / 10))
        );
        // find(1) prints the second before and what follows it.
        let of_find = [&b"-1.5000000000"[..], b"-2.5000000000", b"-2.0000000000", b"1.25"];
        let expected =
            [-500, -1500, -2000, 1250].map(|thousandth| Ok(thousandth * SECOND_NS / 1000));
        assert_eq!(of_find.map(time_of_find), expected);
        // The last second that 64 bits have a part of, and the first.
        assert_eq!(time(b"9223372036.854775807"), Ok(i64::MAX));
        assert_eq!(time(b"9223372036.854775808"), Ok(i64::MAX));
        assert_eq!(time(b"-9223372036.854775808"), Ok(i64::MIN));
        assert_eq!(time_of_find(b"-9223372037.1452241920"), Ok(i64::MIN));
        assert_eq!(time(b"1901-12-13T20:45:51Z"), Ok(-2_147_483_649 * SECOND_NS));
        for far in [&b"2300-01-01T00:00:00Z"[..], b"2446-05-10T22:38:55Z", b"9999-12-31T00:00:00Z"]
        {
            assert_eq!(time(far), Ok(i64::MAX));
        }
        assert_eq!(time(b"0001-01-01T00:00:00Z"), Ok(i64::MIN));
    }

    #[test]
    fn times_have_three_spellings() {
        assert_eq!(time(b"1700000000"), Ok(1_700_000_000 * SECOND_NS));
        assert_eq!(time(b"1.5"), Ok(1_500_000_000));
        assert_eq!(time(b"-1.5"), Ok(-1_500_000_000));
        assert_eq!(time(b"1.0000000009"), Ok(SECOND_NS));
        assert_eq!(time(b"1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(time(b"2023-11-14T22:13:20.25Z"), Ok(1_700_000_000_250_000_000));
        assert_eq!(time(b"2023-11-14 23:13:20+01:00"), Ok(1_700_000_000 * SECOND_NS));
        assert_eq!(time(b"2024-02-29T00:00:00Z"), Ok(1_709_164_800 * SECOND_NS));
        for bad in
            [&b""[..], b"x", b"1.x", b"2023-13-01T00:00:00Z", b"2023-11-14", b"2023-11-14T22:13:20"]
        {
            assert!(time(bad).is_err());
        }
    }
}
