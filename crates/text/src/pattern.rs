//! Patterns of names and paths: shell patterns as fnmatch(3) takes them. They are matched against
//! escaped names, in which a byte that is not UTF-8 is one character, and so is each byte of a
//! character from U+10FF80 on. A name that is UTF-8 as a whole is matched unescaped.

use crate::brackets::of_shell;
use crate::characters::{Case, Characters, NOTHING, Set, has_bytes};
use crate::error::{Error, Result};
use canopy_model::{escape, unescape};
use memchr::memmem::Finder;
use regex::Regex;
use std::borrow::Cow;

/// A shell pattern. `*` and `?` match any character, '/' and a leading '.' among them, as in find.
#[derive(Clone, Debug)]
pub enum Glob {
    /// The text itself.
    Literal(String),
    /// `text*`
    Prefix(String),
    /// `*text`
    Suffix(String),
    /// `*text*`
    Contains(Box<Finder<'static>>),
    /// `text*text*text`: how it begins, what follows in this order, how it ends.
    Parts(String, Vec<Finder<'static>>, String),
    /// Everything else.
    Wildcards(Wildcards),
}

/// A shell pattern as regular expressions.
#[derive(Clone, Debug)]
pub struct Wildcards {
    /// Matches characters, where the name and the pattern are UTF-8.
    of_characters: Option<Regex>,
    /// Matches bytes.
    of_bytes: Regex,
    is_ascii: bool,
}

impl Glob {
    /// Compiles a pattern for texts of such characters. Fails if it is too large.
    pub fn new(pattern: &[u8], ignore_case: bool, characters: Characters) -> Result<Self> {
        let escaped = escape(pattern);
        let simple = match ignore_case || has_bytes(&escaped) {
            true => None,
            false => Self::simple(&escaped),
        };
        match simple {
            Some(simple) => Ok(simple),
            None => {
                let exact = std::str::from_utf8(pattern).ok();
                Wildcards::new(&escaped, exact, ignore_case, characters).map(Glob::Wildcards)
            }
        }
    }

    /// Compiles a pattern without anything but stars, which needs no regular expression: that would
    /// cost several times as much.
    fn simple(pattern: &str) -> Option<Self> {
        if pattern.contains(['?', '[', '\\']) {
            return None;
        }
        let Some((begin, rest)) = pattern.split_once('*') else {
            return Some(Glob::Literal(pattern.to_owned()));
        };
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let finder = |text: &str| Finder::new(text).into_owned();
        let middles: Vec<Finder<'static>> =
            middle.split('*').filter(|part| !part.is_empty()).map(finder).collect();
        Some(match (begin, &middles[..], end) {
            (begin, [], "") => Glob::Prefix(begin.to_owned()),
            ("", [], end) => Glob::Suffix(end.to_owned()),
            ("", [only], "") => Glob::Contains(Box::new(only.clone())),
            _ => Glob::Parts(begin.to_owned(), middles, end.to_owned()),
        })
    }

    /// Returns whether the whole text matches.
    pub fn matches(&self, text: &str) -> bool {
        match self {
            Glob::Literal(literal) => text == literal,
            Glob::Prefix(prefix) => text.starts_with(prefix.as_str()),
            Glob::Suffix(suffix) => text.ends_with(suffix.as_str()),
            Glob::Contains(finder) => finder.find(text.as_bytes()).is_some(),
            Glob::Parts(begin, middles, end) => parts_match(text, begin, middles, end),
            Glob::Wildcards(wildcards) => wildcards.matches(text),
        }
    }
}

/// Looks for each part after the one before it; the first place is always good enough.
fn parts_match(text: &str, begin: &str, middles: &[Finder<'static>], end: &str) -> bool {
    let Some(rest) = text.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)) else {
        return false;
    };
    let mut rest = rest.as_bytes();
    middles.iter().all(|middle| {
        let found = middle.find(rest);
        if let Some(at) = found {
            rest = &rest[at + middle.needle().len()..];
        }
        found.is_some()
    })
}

impl Wildcards {
    /// Compiles an escaped pattern, which is `exact` unescaped if it is UTF-8.
    fn new(
        escaped: &str,
        exact: Option<&str>,
        ignore_case: bool,
        characters: Characters,
    ) -> Result<Self> {
        let compiled = |pattern: &str, characters: Characters| {
            let case = if ignore_case { Case::Lower } else { Case::Matters };
            let regex = to_regex(pattern, characters, case);
            let regex = Regex::new(&format!("(?s)\\A(?:{regex})\\z"));
            regex.map_err(|_| Error::LargePattern(escaped.to_owned()))
        };
        let exact = exact.filter(|_| characters == Characters::Utf8);
        Ok(Wildcards {
            of_characters: exact.map(|exact| compiled(exact, Characters::Utf8)).transpose()?,
            of_bytes: compiled(&Characters::Bytes.of(escaped), Characters::Bytes)?,
            is_ascii: escaped.is_ascii(),
        })
    }

    /// Returns whether the whole text matches, character by character or, as fnmatch(3) tries where
    /// they do not, byte by byte.
    fn matches(&self, text: &str) -> bool {
        let is_ascii = text.is_ascii();
        if let Some(regex) = &self.of_characters
            && let Some(exact) = if is_ascii { Some(text.into()) } else { unescaped(text) }
        {
            let matches = regex.is_match(&exact);
            if matches || (is_ascii && self.is_ascii) {
                return matches;
            }
        }
        self.of_bytes.is_match(&Characters::Bytes.of(text))
    }
}

/// Returns the text that an escaped one stands for; `None` if that is not UTF-8.
fn unescaped(text: &str) -> Option<Cow<'_, str>> {
    match unescape(text) {
        Cow::Borrowed(_) => Some(text.into()),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    }
}

fn to_regex(pattern: &str, characters: Characters, case: Case) -> String {
    let mut regex = String::new();
    let mut rest = pattern;
    let literal = |c: char| Set::only(c, characters, case);
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match of_shell(rest, characters, case) {
                Some((class, length)) => {
                    regex.push_str(&class);
                    rest = &rest[length..];
                }
                None => regex.push_str("\\["),
            },
            '\\' => match rest.chars().next() {
                Some(quoted) => {
                    regex.push_str(&literal(quoted));
                    rest = &rest[quoted.len_utf8()..];
                }
                // Where nothing is quoted, nothing matches.
                None => regex.push_str(NOTHING),
            },
            c => regex.push_str(&literal(c)),
        }
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::too_many_lines, reason = "a list of cases")]
    fn globs_match_as_fnmatch_does() {
        for (pattern, text, matches) in [
            ("*.c", "a.c", true),
            ("*.c", ".c", true),
            ("*.c", "a.cc", false),
            ("a*", "a", true),
            ("a?c", "a/c", true),
            ("a?c", "aäc", true),
            ("a?c", "äc", false),
            ("?", "ä", true),
            ("??", "ä", true),
            ("???", "ä", false),
            ("?b?c", "äbc", false),
            ("[!a][!a]", "ä", true),
            ("[ä-ö]", "å", true),
            ("[ab]x", "bx", true),
            ("[!ab]x", "bx", false),
            ("[^ab]x", "cx", true),
            ("[a-c]", "b", true),
            ("[]]", "]", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("[[:digit:]]*", "7up", true),
            ("*a*b*", "xaxbx", true),
            ("{a,b}", "a", false),
            ("*", "", true),
            ("[a-]", "-", true),
            ("**", "ab", true),
            ("[\\]]", "]", true),
            ("a*b*c", "aXbXc", true),
            ("a*b*c", "ac", false),
            ("ab*ba", "aba", false),
            ("*a*a", "a", false),
            ("*a*a*", "xaxa", true),
            ("a[&&b]c", "a&c", true),
            ("[z-a]", "b", false),
            ("[z-a]", "z", false),
            ("[!z-a]", "b", true),
            ("[z-aa]", "a", true),
            ("[[:foo:]]", "f", false),
            ("[![:foo:]]", "x", false),
            ("*[[:foo:]a]", "a", false),
            ("*[a[:foo:]]", "a", true),
            ("[[=a=]]", "a", true),
            ("[[.a.]]", "a", true),
            ("[[.hyphen.]]", "-", false),
            ("[[.a.]-c]", "b", true),
            ("[a-[.c.]]", "b", true),
            ("[a-c-z]", "-", true),
            ("[a-c-z]", "x", false),
            ("[--/]", ".", true),
            ("[\\a-\\c]", "b", true),
            ("[^]a]", "b", true),
            ("[^]a]", "]", false),
            ("[[-a]", "]", true),
            ("\\", "\\", false),
            ("*\\", "a\\", false),
            ("*\\\\", "a\\", true),
            ("[[.", "[", false),
            ("[a[.]", "a", false),
            ("[a-[.c]", "b", false),
            ("[a[=]", "a", false),
            ("[a[=]", "=", true),
            ("[[=a=]-b]", "-", true),
        ] {
            let glob = Glob::new(pattern.as_bytes(), false, Characters::Utf8).unwrap();
            assert_eq!(glob.matches(text), matches, "{pattern} {text}");
        }
        for (pattern, text, matches) in [
            ("[A-z]*", "b", true),
            ("[A-z]*", "]", false),
            ("[ä]b", "ÄB", true),
            ("[A-C]", "b", true),
            ("[!a-c]", "B", false),
            ("[[:upper:]]*", "ab", false),
            ("[[:upper:]]*", "Ab", true),
            ("[[.a.]]", "A", false),
            ("[[=A=]]", "A", true),
            ("[--a]", "Z", false),
            ("[--a]", "A", true),
        ] {
            let glob = Glob::new(pattern.as_bytes(), true, Characters::Utf8).unwrap();
            assert_eq!(glob.matches(text), matches, "{pattern} {text}");
        }
    }

    #[test]
    fn the_last_characters_of_unicode_are_characters() {
        for (pattern, text, is_match) in [
            ("?", "\u{10FF90}", true),
            ("[!a]", "\u{10FF90}", true),
            ("[!\u{10FF90}]", "\u{10FF90}", false),
            ("[!\u{10FF90}]", "\u{10FF91}", true),
            ("[\u{10FF80}-\u{10FFFF}]", "\u{10FF90}", true),
            ("a?c", "a\u{10FFFF}c", true),
            ("??", "\u{10FF90}", false),
            ("\u{10FF90}*", "\u{10FF90}x", true),
            ("[[:punct:]]", "\u{10FF90}", true),
            ("[[:alpha:]]", "\u{10FF90}", false),
        ] {
            let glob = Glob::new(pattern.as_bytes(), false, Characters::Utf8).unwrap();
            assert_eq!(glob.matches(&escape(text.as_bytes())), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn bytes_are_tried_too() {
        let matches = |pattern: &[u8], ignore_case, characters, text: &[u8]| {
            Glob::new(pattern, ignore_case, characters).unwrap().matches(&escape(text))
        };
        for characters in [Characters::Utf8, Characters::Bytes] {
            assert!(matches(b"A*B", true, characters, b"axb"));
            assert!(matches(b"a?b", false, characters, b"a\xffb"));
            assert!(matches(b"*\xbc", false, characters, "ü".as_bytes()));
            assert!(matches(b"\xc3?", false, characters, "ü".as_bytes()));
            assert!(matches(b"??\xff", false, characters, b"\xc3\xbc\xff"));
            assert!(!matches(b"?\xff", false, characters, b"\xc3\xbc\xff"));
            assert!(matches(b"[\x80-\xff]", false, characters, b"\xfe"));
        }
        for (pattern, ignore_case, text, of_bytes) in [
            ("?", false, "ü", false),
            ("[[:alpha:]]", false, "ü", false),
            ("Ü", true, "ü", false),
            ("Ü*", false, "Üx", true),
        ] {
            let [pattern, text] = [pattern, text].map(str::as_bytes);
            assert!(matches(pattern, ignore_case, Characters::Utf8, text));
            assert_eq!(matches(pattern, ignore_case, Characters::Bytes, text), of_bytes);
        }
    }
}
