//! Colours of names, as ls(1) takes them from `LS_COLORS`. Codes are written as they are given
//! there, so that terminals get from both the same bytes; a library that parses codes would write
//! its own.

use super::entry::{LsEntry, Target};
use canopy_model::{FileType, xattr_names};
use canopy_text::{byte_of_digits, control};

/// The attribute of a program that runs with capabilities.
const CAPABILITY: &str = "security.capability";

/// The keys of `LS_COLORS`, with what they stand for if it does not say.
const KEYS: [(&str, Option<&str>); 24] = [
    ("lc", Some("\x1b[")),
    ("rc", Some("m")),
    ("ec", None),
    ("rs", Some("0")),
    ("no", None),
    ("fi", None),
    ("di", Some("01;34")),
    ("ln", Some("01;36")),
    ("pi", Some("33")),
    ("so", Some("01;35")),
    ("bd", Some("01;33")),
    ("cd", Some("01;33")),
    ("mi", None),
    ("or", None),
    ("ex", Some("01;32")),
    ("do", Some("01;35")),
    ("su", Some("37;41")),
    ("sg", Some("30;43")),
    ("st", Some("37;44")),
    ("ow", Some("34;42")),
    ("tw", Some("30;42")),
    ("ca", Some("30;41")),
    ("mh", None),
    ("cl", Some("\x1b[K")),
];

/// Codes by type and by the end of names.
#[derive(Clone, Debug)]
pub struct Colors {
    codes: [Option<Vec<u8>>; KEYS.len()],
    /// Ends of names and their codes, those that come first in force.
    endings: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether symbolic links have the colour of what they lead to.
    as_target: bool,
}

impl Colors {
    /// Reads a value of `LS_COLORS`, which may be empty. Returns `None` if it makes no sense.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let mut codes = KEYS.map(|(_, code)| code.map(|code| code.as_bytes().to_vec()));
        let mut endings = Vec::new();
        let mut rest = value;
        while let Some(&first) = rest.first() {
            if first == b':' {
                rest = &rest[1..];
                continue;
            }
            let name = match first {
                b'*' => {
                    rest = &rest[1..];
                    token(&mut rest, b'=')?
                }
                _ => {
                    let (name, after) = rest.split_at_checked(2)?;
                    rest = after;
                    name.to_vec()
                }
            };
            rest = rest.strip_prefix(b"=")?;
            let code = token(&mut rest, b':')?;
            if first == b'*' {
                endings.insert(0, (name, code));
            } else {
                let at = KEYS.iter().position(|(key, _)| key.as_bytes() == name)?;
                codes[at] = Some(code);
            }
        }
        let mut colors = Colors { codes, endings, as_target: false };
        colors.as_target = colors.code("ln") == Some(b"target");
        Some(colors)
    }

    fn code(&self, key: &str) -> Option<&[u8]> {
        let at = KEYS.iter().position(|(known, _)| *known == key)?;
        self.codes[at].as_deref()
    }

    /// Returns whether a key has a colour.
    pub(super) fn colored(&self, key: &str) -> bool {
        self.code(key).is_some_and(|code| !matches!(code, b"" | b"0" | b"00"))
    }

    /// Returns whether it has to be known what symbolic links lead to.
    pub(super) fn need_targets(&self, long: bool) -> bool {
        self.colored("or") || (self.colored("ex") && self.as_target) || (self.colored("mi") && long)
    }

    /// Returns the code of an entry's name.
    pub(super) fn of_entry(&self, entry: &LsEntry) -> Option<&[u8]> {
        let attributes = &entry.inode.attributes;
        let mode = match entry.target {
            Target::Mode(mode) if self.as_target => mode,
            _ => attributes.mode,
        };
        let capable = xattr_names::has(&entry.inode.xattrs, CAPABILITY);
        let key = self.key(mode, attributes.nlink, capable);
        match key {
            "fi" => self.of_file(&entry.name),
            // The target has no colour to give.
            "ln" if self.as_target => self.code("or"),
            "ln" if entry.target == Target::Missing && self.colored("or") => self.code("or"),
            key => self.code(key),
        }
    }

    /// Writes a path: the directories in their colour, and its name in the colour of an entry with
    /// this mode and number of names. Targets of symbolic links are not looked up.
    pub(crate) fn write_path(&self, path: &[u8], mode: u32, nlink: u32, output: &mut Vec<u8>) {
        let trimmed = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
        let name = path[..trimmed].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let code = match self.key(mode, nlink, false) {
            "fi" => self.of_file(&path[name..]),
            "ln" if self.as_target => None,
            key => self.code(key),
        };
        let mut write = |part: &[u8], code: Option<&[u8]>| match code {
            Some(code) if !matches!(code, b"" | b"0" | b"00") && !part.is_empty() => {
                self.begin(code, output);
                output.extend_from_slice(part);
                self.end(output);
            }
            _ => output.extend_from_slice(part),
        };
        write(&path[..name], self.code("di"));
        write(&path[name..], code);
    }

    /// Returns the code of the name behind a symbolic link's arrow.
    pub(super) fn of_target(&self, entry: &LsEntry, name: &[u8]) -> Option<&[u8]> {
        match entry.target {
            Target::Mode(mode) => match self.key(mode, entry.inode.attributes.nlink, false) {
                "fi" => self.of_file(name),
                key => self.code(key),
            },
            Target::Missing if self.colored("mi") => self.code("mi"),
            Target::Missing => self.code("or"),
            _ => None,
        }
    }

    fn key(&self, mode: u32, nlink: u32, capable: bool) -> &'static str {
        let first = |keys: &[(bool, &'static str)], otherwise| {
            keys.iter()
                .find(|(holds, key)| *holds && self.colored(key))
                .map_or(otherwise, |(_, key)| *key)
        };
        match FileType::of_mode(mode) {
            FileType::Regular => first(
                &[
                    (mode & 0o4000 != 0, "su"),
                    (mode & 0o2000 != 0, "sg"),
                    (capable, "ca"),
                    (mode & 0o111 != 0, "ex"),
                    (nlink > 1, "mh"),
                ],
                "fi",
            ),
            FileType::Directory => first(
                &[
                    (mode & 0o1002 == 0o1002, "tw"),
                    (mode & 0o0002 != 0, "ow"),
                    (mode & 0o1000 != 0, "st"),
                ],
                "di",
            ),
            FileType::Symlink => "ln",
            FileType::Fifo => "pi",
            FileType::Socket => "so",
            FileType::Block => "bd",
            FileType::Character => "cd",
            FileType::Unknown => "or",
        }
    }

    fn of_file(&self, name: &[u8]) -> Option<&[u8]> {
        let ends = |ending: &[u8]| {
            name.len() >= ending.len()
                && name[name.len() - ending.len()..].eq_ignore_ascii_case(ending)
        };
        let found =
            self.endings.iter().find(|(ending, _)| ends(ending)).map(|(_, code)| code.as_slice());
        found.or_else(|| self.code("fi"))
    }

    /// Writes a code.
    pub(super) fn begin(&self, code: &[u8], output: &mut Vec<u8>) {
        output.extend_from_slice(self.code("lc").unwrap_or_default());
        output.extend_from_slice(code);
        output.extend_from_slice(self.code("rc").unwrap_or_default());
    }

    /// Writes what ends a colour.
    pub(super) fn end(&self, output: &mut Vec<u8>) {
        match self.code("ec") {
            Some(code) => output.extend_from_slice(code),
            None => self.begin(self.code("rs").unwrap_or_default(), output),
        }
    }

    /// Returns the code of text that is not a name.
    pub(super) fn normal(&self) -> Option<&[u8]> {
        self.code("no").filter(|_| self.colored("no"))
    }

    /// Writes what clears the rest of a line.
    pub(super) fn clear(&self, output: &mut Vec<u8>) {
        output.extend_from_slice(self.code("cl").unwrap_or_default());
    }

    /// Writes what takes the colour of text that is not a name back.
    pub(super) fn restore(&self, output: &mut Vec<u8>) {
        self.begin(b"", output);
    }

    /// Returns whether that is needed at the end of all output.
    pub(super) fn restores_at_end(&self) -> bool {
        self.code("lc") != Some(b"\x1b[") || self.code("rc") != Some(b"m")
    }
}

/// Reads a name or code up to its end, with what stands for other characters resolved.
fn token(rest: &mut &[u8], end: u8) -> Option<Vec<u8>> {
    let mut found = Vec::new();
    loop {
        let (byte, after) = match rest.split_first() {
            None if end == b':' => return Some(found),
            None => return None,
            Some((byte, after)) => (*byte, after),
        };
        if byte == end || byte == b':' {
            return (byte == end).then_some(found);
        }
        *rest = after;
        match byte {
            b'\\' => found.push(backslash(rest)?),
            b'^' => {
                let (&letter, after) = rest.split_first()?;
                *rest = after;
                found.push(match letter {
                    b'?' => 127,
                    b'@'..=b'~' => letter & 31,
                    _ => return None,
                });
            }
            byte => found.push(byte),
        }
    }
}

fn backslash(rest: &mut &[u8]) -> Option<u8> {
    if let Some(byte) = byte_of_digits(rest, 8, 3) {
        return Some(byte);
    }
    let (&letter, after) = rest.split_first()?;
    *rest = after;
    Some(match letter {
        b'?' => 127,
        b'_' => b' ',
        b'x' | b'X' => return byte_of_digits(rest, 16, 2),
        other => control(other).unwrap_or(other),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_colours_of_directory_and_name() {
        let colors = Colors::parse(b"di=1:ex=2:*.c=3:ln=target").unwrap();
        for (path, mode, expected) in [
            (&b"./a/x.c"[..], 0o100_644, "[./a/](1)[x.c](3)"),
            (b"/", 0o040_755, "[/](1)"),
            (b"/usr//", 0o040_755, "[/](1)[usr//](1)"),
            (b"x", 0o100_755, "[x](2)"),
            (b"x", 0o100_644, "x"),
            (b"x", 0o120_777, "x"),
        ] {
            let mut shown = Vec::new();
            colors.write_path(path, mode, 1, &mut shown);
            let mut plain = String::new();
            for part in expected.split_inclusive(')') {
                match part.strip_suffix(')').and_then(|part| part.split_once("](")) {
                    Some((text, code)) => {
                        plain += &format!("\x1b[{code}m{}\x1b[0m", &text[1..]);
                    }
                    None => plain += part,
                }
            }
            assert_eq!(String::from_utf8(shown).unwrap(), plain, "{expected}");
        }
    }

    #[test]
    fn values_are_read_as_ls_reads_them() {
        let colors = Colors::parse(b"di=1;3\\x34:*.Tar=\\e31:*.a\\:b=^[x::ln=target:").unwrap();
        assert_eq!(colors.code("di"), Some(&b"1;34"[..]));
        assert!(colors.as_target);
        assert_eq!(colors.of_file(b"x.TAR"), Some(&b"\x1b31"[..]));
        assert_eq!(colors.of_file(b"x.a:b"), Some(&b"\x1bx"[..]));
        assert_eq!(colors.of_file(b"tar"), None);
        for bad in ["di", "di=1:x", "zz=1", "*.a:1", "di=\\", "di=^1"] {
            assert!(Colors::parse(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
