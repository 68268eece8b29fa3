//! Text that strangers can influence, made safe to show: it neither commands a terminal nor passes
//! for something else.
//!
//! | place | function | a control character becomes |
//! | --- | --- | --- |
//! | a message on standard error or in a log | [`message_line`] | `?`, ends of lines too |
//! | lines that the program itself puts into a message | [`message_lines`] | `?` |
//! | a name in the answer of a tool | [`terminal_name`] | `$'\n'`, on a terminal alone |
//! | a name in the answer of find | [`hidden_name`] | `?`, on a terminal alone |
//! | a value in a line of text | [`one_line`] | `\n`, `\u{1b}` |
//! | a cell of a table | [`table_cell`] | `\n`, `\x1b` |
//! | a name in a report | [`report_name`] | `\n`, `\x1b`; no name looks like another |
//! | a file format written to a terminal | [`TerminalWriter`] | `?` |
//! | a value for a spreadsheet | [`spreadsheet_cell`] | itself; formulas get a `'` |
//!
//! The only place that decides what is safe. JSON has rules of its own. The locale decides which
//! bytes a terminal takes for control characters: in one that is not UTF-8, each byte from 0x80 to
//! 0x9f is one.

use crate::locale::is_utf8;
use crate::quote::{self, Quoting};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::LazyLock;

/// Whether the locale's characters are those of UTF-8, found out once.
static UTF8: LazyLock<bool> = LazyLock::new(is_utf8);

/// Returns whether a byte is a control character where characters have one byte.
fn is_control_byte(byte: &u8) -> bool {
    matches!(byte, 0x80..=0x9f)
}

/// Returns whether a terminal that does not know UTF-8 would take a byte of a character for a
/// control character.
fn has_control_byte(c: char) -> bool {
    !c.is_ascii() && c.encode_utf8(&mut [0; 4]).as_bytes().iter().any(is_control_byte)
}

/// Returns whether terminals of the locale take a part of a character for a control character.
pub fn is_split_here(c: char) -> bool {
    !*UTF8 && has_control_byte(c)
}

/// Returns whether a terminal without UTF-8 shows messages.
fn is_bare_terminal() -> bool {
    !*UTF8 && std::io::stderr().is_terminal()
}

/// Replaces the control characters of a message by `?`, but for ends of lines: only for text of
/// which the program has made all lines itself, and each piece that comes from elsewhere safe.
pub fn message_lines(text: &str) -> Cow<'_, str> {
    let bare = is_bare_terminal();
    replaced(text, |c| c != '\n' && may_break(c) || bare && has_control_byte(c))
}

/// Replaces all control characters of a message by `?`, and what else may end a line, so that no
/// part of it looks like another message.
pub fn message_line(text: &str) -> Cow<'_, str> {
    let bare = is_bare_terminal();
    replaced(text, |c| may_break(c) || bare && has_control_byte(c))
}

/// Returns whether a character commands a terminal or may end a line.
fn may_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

fn replaced(text: &str, unsafe_here: impl Fn(char) -> bool) -> Cow<'_, str> {
    match text.contains(&unsafe_here) {
        true => Cow::Owned(text.chars().map(|c| if unsafe_here(c) { '?' } else { c }).collect()),
        false => Cow::Borrowed(text),
    }
}

/// Returns a name as a terminal may have it: quoted for a shell if anything in it cannot be
/// printed. Returns its bytes for anything but a terminal.
pub fn terminal_name(name: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    let is_shown = || quote::is_printable(name) && (*UTF8 || !name.iter().any(is_control_byte));
    match terminal && !name.iter().all(u8::is_ascii_graphic) && !is_shown() {
        true => Quoting::terminal(is_utf8()).quote(name),
        false => Cow::Borrowed(name),
    }
}

/// Returns a name as find(1) has it on a terminal: `?` for each character that cannot be printed.
/// Returns its bytes for anything but a terminal.
pub fn hidden_name(name: &[u8], terminal: bool) -> Cow<'_, [u8]> {
    match terminal && !name.iter().all(u8::is_ascii_graphic) {
        true => Quoting { hide: true, utf8: is_utf8(), ..Quoting::default() }.quote(name),
        false => Cow::Borrowed(name),
    }
}

/// Escapes a value that is shown in a line of text as the language Rust does in strings.
pub fn one_line(text: &str) -> String {
    let escaped = text.escape_debug();
    if *UTF8 || !text.contains(has_control_byte) {
        return escaped.to_string();
    }
    let mut shown = String::with_capacity(text.len() + 8);
    escaped.for_each(|c| match has_control_byte(c) {
        true => push_bytes(c, &mut shown),
        false => shown.push(c),
    });
    shown
}

/// Escapes what would disturb a table: controls, and characters that turn the direction of text.
/// With `lines`, ends of lines stay.
pub fn table_cell(text: &str, lines: bool) -> Cow<'_, str> {
    cell(text, lines, *UTF8)
}

fn cell(text: &str, lines: bool, utf8: bool) -> Cow<'_, str> {
    let is_split = |c: char| !utf8 && has_control_byte(c);
    let disturbs = |c: char| c.is_control() || is_directional_format(c) || is_split(c);
    if !text.contains(disturbs) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '\n' if lines => shown.push('\n'),
            '\n' | '\t' | '\r' => shown.extend(c.escape_default()),
            c if is_split(c) => push_bytes(c, &mut shown),
            c if c.is_control() => push_hex(u32::from(c), &mut shown),
            c if disturbs(c) => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Returns a name or path, escaped as the index has it, with everything visible that would not be
/// seen as it is; a backslash is doubled.
pub fn report_name(escaped: &str) -> String {
    let mut shown = String::with_capacity(escaped.len());
    for c in escaped.chars() {
        match c {
            '\\' => shown.push_str("\\\\"),
            '\n' => shown.push_str("\\n"),
            '\t' => shown.push_str("\\t"),
            // A byte that is not UTF-8.
            '\u{10FF80}'.. => push_hex(u32::from(c) & 0xFF, &mut shown),
            c if c.is_ascii_control() => push_hex(u32::from(c), &mut shown),
            c if c.is_control() || turns_text(c) || is_invisible(c) => {
                shown.extend(c.escape_unicode());
            }
            c => shown.push(c),
        }
    }
    shown
}

/// First characters of formulas, also in full width.
const FORMULA: [char; 10] =
    ['=', '+', '-', '@', '\t', '\r', '\u{ff1d}', '\u{ff0b}', '\u{ff0d}', '\u{ff20}'];

/// Separators of cells, here or in locales that use semicolons or tabs.
pub const CELL_SEPARATORS: [char; 4] = [';', '\t', '\n', '\r'];

/// Puts an apostrophe before what a spreadsheet would compute, whatever it takes for a separator.
/// Numbers stay.
pub fn spreadsheet_cell(value: &str) -> Cow<'_, str> {
    if !value.contains(FORMULA) || value.parse::<f64>().is_ok() {
        return Cow::Borrowed(value);
    }
    let mut text = String::with_capacity(value.len() + 1);
    let mut begins = true;
    for c in value.chars() {
        if begins && FORMULA.contains(&c) {
            text.push('\'');
        }
        begins = CELL_SEPARATORS.contains(&c);
        text.push(c);
    }
    Cow::Owned(text)
}

fn push_bytes(c: char, text: &mut String) {
    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_hex(u32::from(byte), text));
}

fn push_hex(code: u32, text: &mut String) {
    write!(text, "\\x{code:02x}").expect("writing to memory does not fail");
}

/// Returns whether a character changes the direction of the text around it.
pub fn turns_text(c: char) -> bool {
    is_directional_format(c) || matches!(c, '\u{200E}' | '\u{200F}' | '\u{061C}')
}

/// Returns whether a character begins or ends an embedding, an override or an isolate.
fn is_directional_format(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200D}' | '\u{FEFF}' | '\u{2028}' | '\u{2029}')
}

/// Writes to a terminal what was not made for one: control characters but ends of lines and tabs
/// become `?`.
#[derive(Debug)]
pub struct TerminalWriter<W> {
    inner: W,
    utf8: bool,
    /// Bytes that the character under way still has.
    left: u8,
    /// Whether the byte before can begin one of the control characters of two bytes.
    after_lead: bool,
}

impl<W> TerminalWriter<W> {
    /// Stands in front of another writer, which gets whole buffers.
    pub fn new(inner: W) -> Self {
        TerminalWriter { inner, utf8: is_utf8(), left: 0, after_lead: false }
    }
}

impl<W: Write> Write for TerminalWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let mut shown = bytes.to_vec();
        for byte in &mut shown {
            let second = self.after_lead && matches!(*byte, 0x80..=0x9f);
            let inside = self.left > 0 && matches!(*byte, 0x80..=0xbf);
            self.left = match *byte {
                0x80..=0xbf => self.left.saturating_sub(1),
                0xc2..=0xdf => 1,
                0xe0..=0xef => 2,
                0xf0..=0xf4 => 3,
                _ => 0,
            };
            self.after_lead = *byte == 0xc2;
            match *byte {
                // U+00BF: the first byte may be written already.
                0x80..=0x9f if self.utf8 && second => *byte = 0xbf,
                0x80..=0x9f if self.utf8 && inside => {}
                0..=8 | 11..=31 | 127..=0x9f => *byte = b'?',
                _ => {}
            }
        }
        self.inner.write_all(&shown)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::escape;

    #[test]
    fn messages_hold_no_controls() {
        assert_eq!(message_lines("a\nb\t\u{9b}c"), "a\nb??c");
        assert_eq!(message_line("a\nb\t\u{9b}c\rd\u{85}e\u{2028}f"), "a?b??c?d?e?f");
    }

    #[test]
    fn terminals_get_quoted_names() {
        assert_eq!(&*terminal_name(b"a b", true), b"a b");
        assert_eq!(&*terminal_name(b"a\nb", true), b"'a'$'\\n''b'");
        assert_eq!(&*terminal_name(b"a\nb", false), b"a\nb");
        assert_eq!(&*hidden_name(b"a b\x1b[1m\x9b", true), b"a b?[1m?");
        assert_eq!(&*hidden_name(b"a\x1b", false), b"a\x1b");
    }

    #[test]
    fn cells_are_escaped_where_they_disturb() {
        assert_eq!(table_cell("a\\ü", false), "a\\ü");
        let text = "a\n\r\u{1b}\u{9b}\u{202e}\u{200e}\\";
        assert_eq!(table_cell(text, false), "a\\n\\r\\x1b\\x9b\\u{202e}\u{200e}\\");
        assert_eq!(table_cell("a\n\t", true), "a\n\\t");
        // The second byte of U+011B is a control character where terminals do not know UTF-8.
        assert_eq!(cell("ě é日\u{9b}", false, true), "ě é日\\x9b");
        assert_eq!(cell("ě é日\u{9b}", false, false), "\\xc4\\x9b é\\xe6\\x97\\xa5\\xc2\\x9b");
    }

    #[test]
    fn spreadsheets_compute_no_value() {
        for (value, shown) in [
            ("plain", "plain"),
            ("-17", "-17"),
            ("+3.5e2", "+3.5e2"),
            ("=1+1", "'=1+1"),
            ("-rw-r--r--", "'-rw-r--r--"),
            ("@SUM(1)", "'@SUM(1)"),
            ("\tx", "'\tx"),
            ("\rx", "'\rx"),
            ("a;=1+1", "a;'=1+1"),
            ("a=b", "a=b"),
            ("\u{ff1d}1", "'\u{ff1d}1"),
        ] {
            assert_eq!(spreadsheet_cell(value), shown);
        }
    }

    #[test]
    fn nothing_in_the_name_of_a_report_is_hidden() {
        for (name, shown) in [
            (&b"plain name"[..], "plain name"),
            (b"a\nb\tc\x1b[31m\x7f", "a\\nb\\tc\\x1b[31m\\x7f"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("ü \u{202e}gpj.exe\u{9b}".as_bytes(), "ü \\u{202e}gpj.exe\\u{9b}"),
            (b"back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(report_name(&escape(name)), shown);
        }
    }

    #[test]
    fn control_characters_reach_no_terminal_even_in_pieces() {
        let shown = |text: &[u8], utf8: bool, size: usize| {
            let mut shown = Vec::new();
            let mut writer = TerminalWriter { utf8, ..TerminalWriter::new(&mut shown) };
            text.chunks(size).for_each(|piece| writer.write_all(piece).unwrap());
            shown
        };
        let text = "ü\u{1b}[1m,\u{9b}2J\u{7f}\r\tz\n£日\u{10FF9B}";
        for size in 1..5 {
            let utf8 = String::from_utf8(shown(text.as_bytes(), true, size)).unwrap();
            assert_eq!(utf8, "ü?[1m,¿2J??\tz\n£日\u{10FF9B}");
            assert_eq!(shown(b"a\x9b2J\xc3\x9b\x9b\xe2\x82", true, size), b"a?2J\xc3\x9b?\xe2\x82");
            // The second byte of U+011B is a control character elsewhere.
            assert_eq!(shown("ě\u{9b}é".as_bytes(), false, size), b"\xc4?\xc2?\xc3\xa9");
        }
    }
}
