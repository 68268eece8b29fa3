//! The words of a query: names, operators, and values as they are or in quotes.

use crate::QueryError;
use canopy_text::safe::message_line;
use std::borrow::Cow;

/// An operator between an attribute and a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Glob,
    Regex,
}

/// How operators are written; with `true`, the opposite is meant.
const OPERATORS: [(&str, Operator, bool); 11] = [
    ("!=~", Operator::Regex, true),
    ("!=", Operator::Equal, true),
    ("!~", Operator::Glob, true),
    ("=~", Operator::Regex, false),
    ("==", Operator::Equal, false),
    ("=", Operator::Equal, false),
    ("<=", Operator::LessEqual, false),
    ("<", Operator::Less, false),
    (">=", Operator::GreaterEqual, false),
    (">", Operator::Greater, false),
    ("~", Operator::Glob, false),
];

/// A value, and whether it was in quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub bytes: Vec<u8>,
    pub quoted: bool,
    pub at: usize,
}

impl Value {
    /// Returns the value for a message.
    pub(crate) fn shown(&self) -> String {
        shown(&self.bytes)
    }

    /// Returns the value as text; bytes that are none make it one that nothing is called.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.bytes)
    }

    pub(crate) fn wrong(&self, message: impl Into<String>) -> QueryError {
        QueryError { message: message.into(), at: self.at }
    }
}

/// Returns bytes for a message.
pub(crate) fn shown(bytes: &[u8]) -> String {
    message_line(&String::from_utf8_lossy(bytes)).into_owned()
}

/// A place in a query.
#[derive(Clone)]
pub(crate) struct Cursor<'a> {
    text: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Cursor { text, at: 0 }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn wrong(&self, message: impl Into<String>) -> QueryError {
        QueryError { message: message.into(), at: self.at }
    }

    pub(crate) fn skip_space(&mut self) {
        self.at += self.rest().iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }

    /// Returns the next byte behind white space.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.rest().first().copied()
    }

    /// Takes these bytes if they stand here, behind white space.
    pub(crate) fn take(&mut self, bytes: &str) -> bool {
        self.skip_space();
        let found = self.rest().starts_with(bytes.as_bytes());
        self.at += if found { bytes.len() } else { 0 };
        found
    }

    /// Returns the word that stands here: what has no white space and no sign of the language.
    pub(crate) fn peek_word(&mut self) -> &'a [u8] {
        self.skip_space();
        let rest = self.rest();
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"=!<>~&|(),\"'{}".contains(byte);
        &rest[..rest.iter().position(is_end).unwrap_or(rest.len())]
    }

    pub(crate) fn take_word(&mut self) -> &'a [u8] {
        let word = self.peek_word();
        self.at += word.len();
        word
    }

    /// Takes a word of the language, whichever case it has.
    pub(crate) fn take_keyword(&mut self, keyword: &str) -> bool {
        let word = self.peek_word();
        let found = word.eq_ignore_ascii_case(keyword.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    /// Takes an operator, if one stands here; `true` with it means the opposite.
    pub(crate) fn operator(&mut self) -> Result<Option<(Operator, bool)>, QueryError> {
        self.skip_space();
        let length = self.rest().iter().take_while(|byte| b"=!<>~".contains(byte)).count();
        if length == 0 {
            return Ok(None);
        }
        let sign = &self.rest()[..length];
        let known = OPERATORS.iter().find(|(text, ..)| text.as_bytes() == sign);
        let Some((_, operator, negated)) = known else {
            return Err(self.wrong(format!(
                "unknown operator '{}': give =, !=, <, <=, >, >=, ~, !~, =~ or !=~, and quote a \
                 value that begins so",
                shown(sign)
            )));
        };
        self.at += length;
        Ok(Some((*operator, *negated)))
    }

    /// Takes one value, or several in braces. Whether they were in braces comes with them.
    pub(crate) fn values(&mut self) -> Result<(Vec<Value>, bool), QueryError> {
        if !self.take("{") {
            return Ok((vec![self.value()?], false));
        }
        let mut values = vec![self.value()?];
        while self.take(",") {
            values.push(self.value()?);
        }
        match self.take("}") {
            true => Ok((values, true)),
            false => Err(self.wrong("a set ends with '}', as in type={f,d}")),
        }
    }

    /// Takes a value.
    pub(crate) fn value(&mut self) -> Result<Value, QueryError> {
        match self.peek() {
            Some(b'"') => self.escaped(),
            Some(b'\'') => self.literal(),
            _ => self.bare(),
        }
    }

    /// Takes a value without quotes: up to white space, or to what can stand between tests.
    fn bare(&mut self) -> Result<Value, QueryError> {
        let (at, rest) = (self.at, self.rest());
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"&|),}".contains(byte);
        let bytes = &rest[..rest.iter().position(is_end).unwrap_or(rest.len())];
        let Some(first) = bytes.first() else {
            return Err(self.wrong("a value is missing; an empty one is \"\""));
        };
        let sign = bytes.iter().find(|byte| b"<>=(){\"'".contains(byte));
        let sign = sign.or(Some(first).filter(|byte| b"!~".contains(byte)));
        if let Some(sign) = sign {
            let sign = char::from(*sign);
            let value = shown(bytes);
            return Err(
                self.wrong(format!("quote a value that has {sign} in it, as in \"...\": {value}"))
            );
        }
        self.at += bytes.len();
        Ok(Value { bytes: bytes.to_vec(), quoted: false, at })
    }

    /// Takes a value in single quotes, in which all is as it is.
    fn literal(&mut self) -> Result<Value, QueryError> {
        let at = self.at;
        let inner = self.rest().get(1..).unwrap_or_default();
        let Some(length) = inner.iter().position(|byte| *byte == b'\'') else {
            return Err(self.wrong("a quote is not closed: '"));
        };
        self.at += length + 2;
        self.closed(Value { bytes: inner[..length].to_vec(), quoted: true, at })
    }

    /// Takes a value in double quotes, in which a backslash means something.
    fn escaped(&mut self) -> Result<Value, QueryError> {
        let at = self.at;
        let mut bytes = Vec::new();
        self.at += 1;
        loop {
            let [first, rest @ ..] = self.rest() else {
                self.at = at;
                return Err(self.wrong("a quote is not closed: \""));
            };
            match (first, rest) {
                (b'"', _) => break,
                (b'\\', rest) => {
                    let (byte, length) = escape(rest).ok_or_else(|| {
                        self.wrong(
                            "a backslash in double quotes stands before \\, \", ', n, r, t, 0 or \
                             x and two digits; write \\\\ for a backslash",
                        )
                    })?;
                    bytes.push(byte);
                    self.at += 1 + length;
                }
                (byte, _) => {
                    bytes.push(*byte);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        self.closed(Value { bytes, quoted: true, at })
    }

    /// Sees to it that nothing sticks to a closing quote.
    fn closed(&self, value: Value) -> Result<Value, QueryError> {
        let is_end = |byte: &u8| byte.is_ascii_whitespace() || b"&|),}=!<>~".contains(byte);
        match self.rest().first() {
            Some(next) if !is_end(next) => Err(self.wrong("quote the whole value")),
            _ => Ok(value),
        }
    }
}

/// Returns the byte that stands behind a backslash, and how long it is written.
fn escape(text: &[u8]) -> Option<(u8, usize)> {
    Some(match text {
        [byte @ (b'\\' | b'"' | b'\''), ..] => (*byte, 1),
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'0', ..] => (0, 1),
        [b'x', high, low, ..] => {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            ((digit(*high)? * 16 + digit(*low)?) as u8, 3)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Vec<u8>, String> {
        let mut cursor = Cursor::new(text.as_bytes());
        cursor.value().map(|value| value.bytes).map_err(|error| error.message)
    }

    #[test]
    fn values_are_bare_or_quoted() {
        for (text, expected) in [
            ("abc", &b"abc"[..]),
            (" *.c ", b"*.c"),
            ("*~", b"*~"),
            ("[!a]*|", b"[!a]*"),
            ("a)", b"a"),
            ("\\.c", b"\\.c"),
            ("''", b""),
            ("'a\\n b'", b"a\\n b"),
            ("\"a\\n\\x2f\\xFF\\0\\\\\\\"\\'\"", b"a\n/\xff\0\\\"'"),
            ("\"a\"=", b"a"),
        ] {
            assert_eq!(value(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn ambiguous_words_are_refused() {
        for (text, said) in [
            ("", "a value is missing"),
            (")", "a value is missing"),
            ("!a", "quote a value"),
            ("~a", "quote a value"),
            ("a=b", "quote a value"),
            ("a(b)", "quote a value"),
            ("a{b}", "quote a value"),
            ("it's", "quote a value"),
            ("'a", "not closed"),
            ("\"a", "not closed"),
            ("\"a\\", "backslash"),
            ("\"a\\.\"", "backslash"),
            ("\"\\xg0\"", "backslash"),
            ("\"\\x1", "backslash"),
            ("'a'b", "quote the whole value"),
        ] {
            let message = value(text).unwrap_err();
            assert!(message.contains(said), "{text}: {message}");
        }
    }

    #[test]
    fn operators_are_taken_whole() {
        for (text, expected) in [
            ("=~x", Some((Operator::Regex, false))),
            (" !=~ x", Some((Operator::Regex, true))),
            ("!= ~", Some((Operator::Equal, true))),
            ("==1", Some((Operator::Equal, false))),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(Cursor::new(text.as_bytes()).operator(), Ok(expected), "{text}");
        }
        for text in ["=<1", "=>", "<>", "~~", "!", "=!x", "!!="] {
            assert!(Cursor::new(text.as_bytes()).operator().is_err(), "{text}");
        }
    }
}
