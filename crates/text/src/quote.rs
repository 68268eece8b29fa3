//! Names as GNU's tools quote them: `quotearg.c`, as far as ls(1) and stat(1) use it.
//!
//! A byte that is not part of a character of the locale, and a character that cannot be printed,
//! are never shown as they are but in [`Style::Literal`] without [`Quoting::hide`], which is for
//! pipes.

use crate::printf::letter_of;
use std::borrow::Cow;
use std::path::Path;
use unicode_width::UnicodeWidthChar;

/// How names are quoted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    /// Not at all.
    #[default]
    Literal,
    /// For a shell, quoted only where needed; unprintable characters stay as they are.
    Shell,
    /// Like `Shell`, but always quoted.
    ShellAlways,
    /// For a shell, quoted only where needed; unprintable characters become `$'\n'`.
    ShellEscape,
    /// Like `ShellEscape`, but always quoted.
    ShellEscapeAlways,
    /// As a string of the language C.
    C,
    /// Like `C`, but quoted only where needed.
    CMaybe,
    /// As in a string of the language C, without quotes around it.
    Escape,
    /// Like `C`, with the quotation marks of the locale.
    Locale,
    /// Like `Locale`, or with the quotation marks of the language C where the locale is not UTF-8.
    CLocale,
}

impl Style {
    /// The names of styles, as `--quoting-style` takes them.
    pub const NAMES: [(&str, Style); 10] = [
        ("literal", Style::Literal),
        ("shell", Style::Shell),
        ("shell-always", Style::ShellAlways),
        ("shell-escape", Style::ShellEscape),
        ("shell-escape-always", Style::ShellEscapeAlways),
        ("c", Style::C),
        ("c-maybe", Style::CMaybe),
        ("escape", Style::Escape),
        ("locale", Style::Locale),
        ("clocale", Style::CLocale),
    ];

    /// Returns the name of the style.
    pub fn name(self) -> &'static str {
        let found = Style::NAMES.iter().find(|(_, style)| *style == self);
        found.map_or("literal", |(name, _)| name)
    }

    /// Returns whether only names that are not plain have quotes, for which others are indented.
    pub fn is_variable(self) -> bool {
        matches!(self, Style::Shell | Style::ShellEscape | Style::CMaybe)
    }
}

/// A way to quote names.
#[derive(Clone, Debug, Default)]
pub struct Quoting {
    /// The style.
    pub style: Style,
    /// Whether what cannot be printed is shown as `?`.
    pub hide: bool,
    /// Characters that are quoted too, where there is a way to.
    pub also: Vec<u8>,
    /// Whether the locale is UTF-8. Otherwise bytes above 127 are not characters.
    pub utf8: bool,
}

impl Quoting {
    /// Returns what a terminal needs: quotes for a shell, where a name is not plain.
    pub fn terminal(utf8: bool) -> Self {
        Quoting { style: Style::ShellEscape, utf8, ..Quoting::default() }
    }

    /// Quotes a name.
    pub fn quote<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        let quoted = match self.style {
            Style::Literal => Cow::Borrowed(name),
            style if style.is_variable() && !self.needs_quotes(name) => Cow::Borrowed(name),
            Style::Shell | Style::ShellAlways => Cow::Owned(self.shell(name, false)),
            Style::ShellEscape | Style::ShellEscapeAlways => Cow::Owned(self.shell(name, true)),
            Style::C => Cow::Owned(self.c(name, ["\""; 2], &self.also)),
            Style::CMaybe => Cow::Owned(self.c(name, ["\""; 2], b"")),
            Style::Escape => Cow::Owned(self.c(name, [""; 2], &self.also)),
            Style::Locale | Style::CLocale if self.utf8 => {
                Cow::Owned(self.c(name, ["\u{2018}", "\u{2019}"], &self.also))
            }
            Style::Locale => Cow::Owned(self.c(name, ["'"; 2], &self.also)),
            Style::CLocale => Cow::Owned(self.c(name, ["\""; 2], &self.also)),
        };
        match self.hide {
            true => Cow::Owned(self.hidden(&quoted)),
            false => quoted,
        }
    }

    /// Returns whether a style that puts quotes only around names that are not plain does so.
    pub fn needs_quotes(&self, name: &[u8]) -> bool {
        if self.style == Style::CMaybe {
            return glyphs(name, self.utf8).any(|glyph| !glyph.printable)
                || name.iter().any(|byte| *byte == b'"' || self.also.contains(byte));
        }
        let isolated = name.len() == 1 && matches!(name[0], b'{' | b'}');
        let first = name.first().is_none_or(|first| matches!(first, b'#' | b'~'));
        let special = |byte: &u8| {
            matches!(byte, 7..=13 | b' '..=b'"' | b'$' | b'&'..=b'*' | b';'..=b'?')
                || matches!(byte, b'[' | b'\\' | b'^' | b'`' | b'|')
                || self.also.contains(byte)
        };
        let escapes = self.style == Style::ShellEscape;
        isolated
            || first
            || name
                .iter()
                .any(|byte| special(byte) && (escapes || !matches!(byte, 7 | 8 | 11 | 12)))
            || (escapes && glyphs(name, self.utf8).any(|glyph| !glyph.printable))
    }

    /// Puts single quotes around a name, or double quotes where it holds single ones and nothing
    /// that those do not keep.
    fn shell(&self, name: &[u8], escapes: bool) -> Vec<u8> {
        let plain = |glyph: &Glyph<'_>| match glyph.bytes {
            [byte] => {
                byte.is_ascii_alphanumeric()
                    || matches!(
                        byte,
                        b' ' | b'#' | b'~' | b'\'' | b'%' | b'+'..=b'/' | b':' | b'@' | b']' | b'_'
                    )
            }
            // A character of several bytes is as good as a letter.
            _ => glyph.printable,
        };
        let first_only = |name: &[u8]| !name.iter().skip(1).any(|byte| matches!(byte, b'#' | b'~'));
        if name.contains(&b'\'')
            && first_only(name)
            && glyphs(name, self.utf8).all(|glyph| plain(&glyph))
        {
            return [b"\"", name, b"\""].concat();
        }
        let mut quoted = vec![b'\''];
        let mut escaping = false;
        for glyph in glyphs(name, self.utf8) {
            let special = match glyph.bytes {
                [byte] => letter_of(*byte).filter(|letter| !matches!(letter, b'\\')),
                _ => None,
            };
            if escapes && !glyph.printable {
                if !escaping {
                    quoted.extend_from_slice(b"'$'");
                    escaping = true;
                }
                match special {
                    Some(letter) => quoted.extend([b'\\', letter]),
                    None => glyph.bytes.iter().for_each(|byte| octal(*byte, &mut quoted)),
                }
                continue;
            }
            if glyph.bytes == b"'" {
                quoted.extend_from_slice(b"'\\''");
                escaping = false;
                continue;
            }
            if escaping {
                quoted.extend_from_slice(b"''");
                escaping = false;
            }
            quoted.extend_from_slice(glyph.bytes);
        }
        quoted.push(b'\'');
        quoted
    }

    fn c(&self, name: &[u8], [left, right]: [&str; 2], also: &[u8]) -> Vec<u8> {
        let mut quoted = left.as_bytes().to_vec();
        for glyph in glyphs(name, self.utf8) {
            match glyph.bytes {
                [byte] if letter_of(*byte).is_some() => {
                    quoted.extend([b'\\', letter_of(*byte).unwrap_or(*byte)]);
                }
                bytes
                    if bytes == right.as_bytes()
                        || (bytes.len() == 1 && also.contains(&bytes[0])) =>
                {
                    quoted.push(b'\\');
                    quoted.extend_from_slice(bytes);
                }
                bytes if glyph.printable => quoted.extend_from_slice(bytes),
                bytes => bytes.iter().for_each(|byte| octal(*byte, &mut quoted)),
            }
        }
        quoted.extend_from_slice(right.as_bytes());
        quoted
    }

    fn hidden(&self, name: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(name.len());
        for glyph in glyphs(name, self.utf8) {
            shown.extend_from_slice(if glyph.printable { glyph.bytes } else { b"?" });
        }
        shown
    }

    /// Returns how many columns a quoted name takes.
    pub fn width(&self, quoted: &[u8]) -> usize {
        glyphs(quoted, self.utf8).map(|glyph| glyph.width).sum()
    }
}

/// Returns whether all of a name can be printed in UTF-8.
pub(crate) fn is_printable(name: &[u8]) -> bool {
    glyphs(name, true).all(|glyph| glyph.printable)
}

/// A character, or a byte that is none, or a character that the end of the name cuts off.
struct Glyph<'a> {
    bytes: &'a [u8],
    printable: bool,
    width: usize,
}

fn glyphs(name: &[u8], utf8: bool) -> impl Iterator<Item = Glyph<'_>> {
    let mut rest = name;
    std::iter::from_fn(move || {
        let first = *rest.first()?;
        let character = match (first, utf8) {
            (0..0x80, _) => Some(char::from(first)),
            (_, true) => rest.utf8_chunks().next().and_then(|chunk| chunk.valid().chars().next()),
            (_, false) => None,
        };
        let length = match character {
            Some(character) => character.len_utf8(),
            None if utf8 && is_cut_off(rest) => rest.len(),
            None => 1,
        };
        let (bytes, after) = rest.split_at(length);
        rest = after;
        let width = character.and_then(columns);
        // A byte that is not part of a character takes a column, a control character none. In a
        // locale of ASCII alone, neither takes one.
        let unknown = usize::from(utf8 && character.is_none());
        Some(Glyph { bytes, printable: width.is_some(), width: width.unwrap_or(unknown) })
    })
}

/// Returns whether all that is left is the beginning of a character.
fn is_cut_off(rest: &[u8]) -> bool {
    std::str::from_utf8(rest)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

/// Returns how many columns a character takes; none if it cannot be printed.
fn columns(character: char) -> Option<usize> {
    match character {
        // A soft hyphen is shown; separators of lines and paragraphs are none of the C library's
        // printable characters.
        '\u{ad}' => Some(1),
        '\u{2028}' | '\u{2029}' => None,
        _ => character.width(),
    }
}

fn octal(byte: u8, quoted: &mut Vec<u8>) {
    quoted.extend([b'\\', b'0' + (byte >> 6), b'0' + (byte >> 3 & 7), b'0' + (byte & 7)]);
}

/// Returns a path as a word that a shell takes.
pub fn shell_word(path: &Path) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@%,=".contains(letter);
    let shown = path.display().to_string();
    match shown.chars().all(is_plain) && !shown.starts_with('-') {
        true => shown,
        // A control character would not be printed.
        false if shown.contains(char::is_control) => {
            let letters = shown.chars().map(|letter| match letter {
                '\'' | '\\' => format!("\\{letter}"),
                letter if letter.is_control() => letter.escape_default().to_string(),
                letter => letter.to_string(),
            });
            format!("$'{}'", String::from_iter(letters))
        }
        false => format!("'{}'", shown.replace('\'', "'\\''")),
    }
}
