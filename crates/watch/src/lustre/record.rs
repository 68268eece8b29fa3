//! Records of a change log, as `lfs changelog` prints them.
//!
//! ```text
//! INDEX TYPE TIME DATE FLAGS t=[FID] ... p=[FID] NAME s=[FID] sp=[FID] OLD-NAME
//! ```
//!
//! with a space between any two, of which all behind `t=` may be missing. `t=` is what the record is
//! about, `p=` the directory of NAME, and of a renamed entry `s=` is the entry itself and `sp=` the
//! directory that had it. Between `t=` and `p=` stand the job, user, client and mode.
//!
//! Jobs, names of extended attributes and names of files hold whatever their users like, line ends
//! and what looks like fields included. So whatever looks like a field counts as one, besides the
//! true one, which leaves what else a line may mean no less suspect.

use std::fmt;

/// Identifies a file of a Lustre file system, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid {
    /// The sequence.
    pub sequence: u64,
    /// The number in it.
    pub object: u32,
    /// Always 0 so far.
    pub version: u32,
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[0x{:x}:0x{:x}:0x{:x}]", self.sequence, self.object, self.version)
    }
}

/// Type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The log itself was begun or ended.
    Mark,
    /// A file that is not a directory was made: CREAT, SLINK, MKNOD.
    Created,
    /// MKDIR.
    DirectoryCreated,
    /// HLINK.
    Linked,
    /// UNLNK.
    Unlinked,
    /// RMDIR.
    DirectoryRemoved,
    /// RENME, and the second half that old servers had (RNMTO); MIGRT, which gives new FIDs.
    Moved,
    /// Contents changed, or where they are: CLOSE, LYOUT, TRUNC, HSM, MTIME, FLRW, RESYNC.
    Contents,
    /// SATTR, XATTR, CTIME, and whatever is not known.
    Attributes,
    /// Nothing that an index has: OPEN, NOPEN, ATIME, GXATR.
    Nothing,
}

/// One record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) index: u64,
    pub(super) kind: Kind,
    pub(super) flags: u32,
    pub(super) target: Option<Fid>,
    pub(super) parent: Option<Fid>,
    /// Behind `parent`; empty if there is none, or none that is certain.
    pub(super) name: &'a [u8],
    pub(super) source: Option<Fid>,
    pub(super) source_parent: Option<Fid>,
    /// The name in `source_parent`.
    pub(super) source_name: &'a [u8],
    /// Further FIDs that look like fields; one of them may be the true one.
    pub(super) doubtful: Vec<Fid>,
}

/// The flag of UNLNK and RENME that the last name of `t=` is gone.
const LAST_NAME: u32 = 1;

impl<'a> Record<'a> {
    /// Reads a line without its end.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, &'static str> {
        let (index, rest) = word(line);
        let index = decimal(index).ok_or("it does not begin with the number of a record")?;
        let (kind, rest) = word(rest);
        let kind = kind_of(kind).ok_or("it has no type")?;
        let (time, rest) = word(rest.trim_ascii_start());
        let (date, rest) = word(rest);
        if !is_like(time, b"00:00:00.000000000") || !is_like(date, b"0000.00.00") {
            return Err("it has no time");
        }
        let (flags, rest) = word(rest);
        let flags = flags.strip_prefix(b"0x").and_then(hexadecimal).ok_or("it has no flags")?;
        let flags = u32::try_from(flags).map_err(|_| "it has no flags")?;
        let mut record = Record {
            index,
            kind,
            flags,
            target: None,
            parent: None,
            name: b"",
            source: None,
            source_parent: None,
            source_name: b"",
            doubtful: Vec::new(),
        };
        record.read_fields(rest)?;
        Ok(record)
    }

    /// Whether no name of the target is left.
    pub(super) fn is_last_name(&self) -> bool {
        self.flags & LAST_NAME != 0
    }

    /// Whether it names what records of its kind do.
    pub(super) fn is_whole(&self) -> bool {
        match self.kind {
            Kind::Mark | Kind::Nothing => true,
            Kind::Contents | Kind::Attributes => self.target.or(self.parent).is_some(),
            // Old servers name what was moved, and where to, in two records.
            Kind::Moved => {
                self.parent.is_some() && self.source.is_some() == self.source_parent.is_some()
            }
            _ => self.parent.is_some(),
        }
    }

    fn read_fields(&mut self, rest: &'a [u8]) -> Result<(), &'static str> {
        let target = rest.strip_prefix(b"t=").and_then(fid_at_start);
        let (target, length) = target.ok_or("it has no target")?;
        self.target = Some(target).filter(is_some_file);
        let mut at = b"t=".len() + length;
        // Where a name begins, and where the field ends that it belongs to.
        let (mut name, mut source_name) = (None, None);
        while let Some(found) = rest[at..].iter().position(|&byte| byte == b'=') {
            let key_end = at + found;
            at = key_end + 1;
            let key_start =
                rest[..key_end].iter().rposition(|&byte| byte == b' ').map_or(0, |s| s + 1);
            let key = &rest[key_start..key_end];
            if !matches!(key, b"t" | b"p" | b"s" | b"sp") {
                continue;
            }
            let Some((fid, length)) = fid_at_start(&rest[at..]) else { continue };
            at += length;
            let fid = Some(fid).filter(is_some_file);
            let place = match key {
                b"p" if name.is_none() => {
                    name = Some((at, rest.len()));
                    &mut self.parent
                }
                b"s" if self.kind == Kind::Moved && self.source.is_none() => {
                    if let Some((_, end)) = &mut name {
                        *end = key_start.saturating_sub(1);
                    }
                    &mut self.source
                }
                b"sp" if self.kind == Kind::Moved && source_name.is_none() => {
                    source_name = Some((at, rest.len()));
                    &mut self.source_parent
                }
                _ => {
                    self.doubtful.extend(fid);
                    continue;
                }
            };
            *place = fid;
        }
        if self.doubtful.is_empty() {
            let text = |range: Option<(usize, usize)>| {
                let (start, end) = range?;
                rest.get(start..end)?.strip_prefix(b" ").filter(|name| is_name(name))
            };
            self.name = text(name).unwrap_or_default();
            self.source_name = text(source_name).unwrap_or_default();
        }
        Ok(())
    }
}

/// Returns whether a line begins as records do. Any other line behind a record is the rest of a
/// name that contains a line end.
pub(super) fn looks_like_record(line: &[u8]) -> bool {
    line.first().is_some_and(u8::is_ascii_digit)
}

fn is_name(bytes: &[u8]) -> bool {
    !matches!(bytes, b"" | b"." | b"..") && !bytes.contains(&b'/') && !bytes.contains(&0)
}

fn is_some_file(fid: &Fid) -> bool {
    *fid != Fid { sequence: 0, object: 0, version: 0 }
}

/// Returns what is before the first space, and what is behind it.
fn word(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&byte| byte == b' ') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, b""),
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0, |number, &digit| {
        Some(number << 4 | u64::from(char::from(digit).to_digit(16)?))
    })
}

/// Whether bytes are as a pattern has them, with any digit for `0`.
fn is_like(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes.len() == pattern.len()
        && bytes.iter().zip(pattern).all(|(&byte, &wanted)| match wanted {
            b'0' => byte.is_ascii_digit(),
            wanted => byte == wanted,
        })
}

fn kind_of(word: &[u8]) -> Option<Kind> {
    let (number, name) = word.split_first_chunk::<2>()?;
    if !number.iter().all(u8::is_ascii_digit) || name.is_empty() {
        return None;
    }
    Some(match name {
        b"MARK" => Kind::Mark,
        b"CREAT" | b"SLINK" | b"MKNOD" => Kind::Created,
        b"MKDIR" => Kind::DirectoryCreated,
        b"HLINK" => Kind::Linked,
        b"UNLNK" => Kind::Unlinked,
        b"RMDIR" => Kind::DirectoryRemoved,
        b"RENME" | b"RNMTO" | b"MIGRT" => Kind::Moved,
        b"CLOSE" | b"LYOUT" | b"TRUNC" | b"HSM" | b"MTIME" | b"FLRW" | b"RESYNC" => Kind::Contents,
        b"OPEN" | b"NOPEN" | b"ATIME" | b"GXATR" => Kind::Nothing,
        _ => Kind::Attributes,
    })
}

/// Reads `[0xSEQUENCE:0xOBJECT:0xVERSION]` at the beginning; returns it with its length.
fn fid_at_start(bytes: &[u8]) -> Option<(Fid, usize)> {
    // The longest has so many bytes.
    let end = bytes.iter().take(48).position(|&byte| byte == b']')?;
    let mut numbers = bytes.get(..end)?.strip_prefix(b"[")?.split(|&byte| byte == b':');
    let mut number = || hexadecimal(numbers.next()?.strip_prefix(b"0x")?);
    let (sequence, object, version) = (number()?, number()?, number()?);
    if numbers.next().is_some() {
        return None;
    }
    let (object, version) = (u32::try_from(object).ok()?, u32::try_from(version).ok()?);
    Some((Fid { sequence, object, version }, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fid(object: u32) -> Fid {
        Fid { sequence: 0x3_0000_5716, object, version: 0 }
    }

    fn parse(line: &str) -> Record<'_> {
        Record::parse(line.as_bytes()).unwrap()
    }

    /// The records of the paper on Brindexer (table III), each on one line.
    #[test]
    fn records_are_read_as_published() {
        let created = parse(
            "11332885 01CREAT 22:27:47.308560896 2019.11.28 0x0 t=[0x300005716:0x626c:0x0] \
             p=[0x300005716:0xe7:0x0] hello.txt",
        );
        assert_eq!((created.index, created.kind), (11_332_885, Kind::Created));
        assert_eq!((created.target, created.parent), (Some(fid(0x626c)), Some(fid(0xe7))));
        assert_eq!(created.name, b"hello.txt");
        let written = parse(
            "11332886 17MTIME 22:27:47.327910351 2019.11.28 0x7 t=[0x300005716:0x626c:0x0]  hello.txt",
        );
        assert_eq!((written.kind, written.flags), (Kind::Contents, 7));
        assert_eq!((written.target, written.parent), (Some(fid(0x626c)), None));
        let renamed = parse(
            "11332887 08RENME 22:27:47.416587265 2019.11.28 0x1 t=[0x300005716:0x17a:0x0] \
             p=[0x300005716:0xe7:0x0] hello.txt s=[0x300005716:0x626b:0x0] \
             sp=[0x300005716:0x626c:0x0] hi.txt",
        );
        assert_eq!((renamed.kind, renamed.is_last_name()), (Kind::Moved, true));
        assert_eq!((renamed.parent, renamed.name), (Some(fid(0xe7)), &b"hello.txt"[..]));
        assert_eq!((renamed.source, renamed.source_parent), (Some(fid(0x626b)), Some(fid(0x626c))));
        assert_eq!((renamed.source_name, &renamed.doubtful[..]), (&b"hi.txt"[..], &[][..]));
    }

    #[test]
    fn records_of_today_have_more_fields() {
        let closed = parse(
            "17 11CLOSE 17:00:00.123456789 2026.01.02 0x42 t=[0x300005716:0x2:0x0] j=dd.500 ef=0xf \
             u=500:500 nid=10.0.0.1@tcp m=-w- p=[0x300005716:0xe7:0x0]",
        );
        assert_eq!(
            (closed.kind, closed.parent, closed.name),
            (Kind::Contents, Some(fid(0xe7)), &b""[..])
        );
        let attribute = parse(
            "18 15XATTR 17:00:00.123456789 2026.01.02 0x0 t=[0x300005716:0x2:0x0] ef=0xf u=0:0 \
             nid=0@lo x=user.a p=b",
        );
        assert_eq!((attribute.kind, attribute.parent), (Kind::Attributes, None));
        let state = parse(
            "19 16HSM   17:00:00.1 2026.01.02 0x0 t=[0x1:0x2:0x0]"
                .replace(".1 ", ".100000000 ")
                .leak(),
        );
        assert_eq!(state.kind, Kind::Contents);
        let unknown = parse(
            "20 29NEVER 17:00:00.123456789 2026.01.02 0x0 t=[0x0:0x0:0x0] p=[0x300005716:0xe7:0x0] a b ",
        );
        assert_eq!(
            (unknown.kind, unknown.target, unknown.name),
            (Kind::Attributes, None, &b"a b "[..])
        );
        let old = parse("21 09RNMTO 17:00:00.123456789 2026.01.02 0x0 t=[0:0x0:0x0] p=[0x300005716:0xe7:0x0] new".replace("[0:", "[0x0:").leak());
        assert_eq!((old.kind, old.parent, old.source), (Kind::Moved, Some(fid(0xe7)), None));
    }

    #[test]
    fn text_like_a_field_is_doubtful_and_leaves_nothing_out() {
        let time = "17:00:00.123456789 2026.01.02 0x0";
        let line = format!(
            "1 01CREAT {time} t=[0x300005716:0x1:0x0] j=p=[0x300005716:0x2:0x0] \
             p=[0x300005716:0x3:0x0] a p=[0x300005716:0x4:0x0] b s=[0x300005716:0x5:0x0]"
        );
        let record = parse(&line);
        let mut all = Vec::from_iter(record.parent.into_iter().chain(record.doubtful));
        all.sort();
        assert_eq!(all, [3, 4, 5].map(fid));
        let line = format!(
            "1 08RENME {time} t=[0x0:0x0:0x0] j=x p=[0x300005716:0x2:0x0] p=[0x300005716:0x3:0x0] a \
             s=[0x300005716:0x4:0x0] b s=[0x300005716:0x5:0x0] sp=[0x300005716:0x6:0x0] c \
             sp=[0x300005716:0x7:0x0]"
        );
        let record = parse(&line);
        let own = [record.parent, record.source, record.source_parent];
        let mut all = Vec::from_iter(own.into_iter().flatten().chain(record.doubtful));
        all.sort();
        assert_eq!(all, [2, 3, 4, 5, 6, 7].map(fid));
        assert_eq!((record.name, record.source_name), (&b""[..], &b""[..]));
        for name in ["..", ".", "a/b", "a\0"] {
            let line = format!("1 02MKDIR {time} t=[0x1:0x1:0x0] p=[0x1:0x2:0x0] {name}");
            assert_eq!(parse(&line).name, b"", "{name}");
        }
    }

    #[test]
    fn other_lines_than_records_are_refused() {
        let whole = "20 01CREAT 17:00:00.123456789 2026.01.02 0x0 t=[0x1:0x2:0x0]";
        assert!(Record::parse(whole.as_bytes()).is_ok());
        for end in 0..whole.len() {
            assert!(Record::parse(&whole.as_bytes()[..end]).is_err(), "{}", &whole[..end]);
        }
        for wrong in [
            whole.replace("20 ", "99999999999999999999 "),
            whole.replace("20 ", "-20 "),
            whole.replace("01CREAT", "CREAT"),
            whole.replace("17:00", "17.00"),
            whole.replace("0x2", "0x100000000"),
            whole.replace("[0x1", "[0x11112222333344445"),
            whole.replace(":0x0]", ":0x0:0x0]"),
            whole.replace("0x0 ", "0x1ffffffff "),
        ] {
            assert!(Record::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_read(bytes: Vec<u8>, rest in "[ pst=\\[\\]0xa:]{0,80}") {
            let _ = Record::parse(&bytes);
            let line = format!("1 08RENME 17:00:00.123456789 2026.01.02 0x0 t=[0x1:0x2:0x0]{rest}");
            let _ = Record::parse(line.as_bytes());
        }

        #[test]
        fn fids_are_read_as_they_are_written(sequence: u64, object: u32, version: u32) {
            let fid = Fid { sequence, object, version };
            let written = fid.to_string();
            prop_assert_eq!(fid_at_start(written.as_bytes()), Some((fid, written.len())));
        }
    }
}
