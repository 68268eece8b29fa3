//! Patterns of names and paths: shell patterns as fnmatch(3) takes them. They are matched against
//! escaped names, in which a byte that is no UTF-8 is one character.

use crate::brackets::{NOTHING, of_shell};
use crate::error::{Error, Result};
use canopy_model::escape;
use memchr::memmem::Finder;
use regex::Regex;

/// A shell pattern. `*` and `?` match any character, '/' and a leading '.' among them, as in find.
#[derive(Debug)]
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
    Regex(Regex),
}

impl Glob {
    /// Compiles a pattern. Fails if it is too large.
    pub fn new(pattern: &[u8], ignore_case: bool) -> Result<Self> {
        let pattern = escape(pattern).into_owned();
        if !ignore_case && let Some(simple) = Self::simple(&pattern) {
            return Ok(simple);
        }
        let flags = if ignore_case { "(?si)" } else { "(?s)" };
        let regex = format!("{flags}\\A(?:{})\\z", glob_to_regex(&pattern, ignore_case));
        Regex::new(&regex).map(Glob::Regex).map_err(|_| Error::LargePattern(pattern))
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
            Glob::Regex(regex) => regex.is_match(text),
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

fn glob_to_regex(pattern: &str, ignore_case: bool) -> String {
    let mut regex = String::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '*' => regex.push_str(".*"),
            '?' => regex.push('.'),
            '[' => match of_shell(rest, ignore_case) {
                Some((class, length)) => {
                    regex.push_str(&class);
                    rest = &rest[length..];
                }
                None => regex.push_str("\\["),
            },
            '\\' => match rest.chars().next() {
                Some(quoted) => {
                    regex.push_str(&regex::escape(quoted.encode_utf8(&mut [0; 4])));
                    rest = &rest[quoted.len_utf8()..];
                }
                // Where nothing is quoted, nothing matches.
                None => regex.push_str(NOTHING),
            },
            c => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
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
        ] {
            let glob = Glob::new(pattern.as_bytes(), false).unwrap();
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
        ] {
            let glob = Glob::new(pattern.as_bytes(), true).unwrap();
            assert_eq!(glob.matches(text), matches, "{pattern} {text}");
        }
        assert!(Glob::new(b"A*B", true).unwrap().matches("axb"));
        assert!(Glob::new(b"a?b", false).unwrap().matches(&escape(b"a\xffb")));
    }
}
