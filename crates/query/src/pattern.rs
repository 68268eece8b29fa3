//! Patterns for texts: a text, a shell pattern or a regular expression.

use canopy_model::escape;
use canopy_text::regular::{Syntax, compile_search};
use canopy_text::{Characters, Glob};
use regex::Regex;
use std::fmt;
use std::sync::Arc;

/// Memory limit of one regular expression, in bytes. A query also has a limit of their number.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// How a pattern is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The text itself.
    Equal,
    /// A shell pattern of the whole text, as fnmatch(3) takes it; `*` matches '/' and a leading dot
    /// too.
    Glob,
    /// An extended regular expression of POSIX, of any part of the text.
    Regex,
}

/// A text, a shell pattern or a regular expression, ready to be compared with.
#[derive(Clone)]
pub struct Pattern {
    kind: Kind,
    source: Vec<u8>,
    ignore_case: bool,
    compiled: Compiled,
}

#[derive(Clone)]
enum Compiled {
    Bytes,
    Glob(Arc<Glob>),
    Regex(Regex),
}

impl Pattern {
    /// Compiles a pattern. Fails with what is wrong with it.
    ///
    /// # Errors
    ///
    /// Fails if the pattern is too large or wrong.
    pub fn new(kind: Kind, source: &[u8], ignore_case: bool) -> canopy_text::Result<Self> {
        let glob = |source: &[u8]| {
            Glob::new(source, ignore_case, Characters::Utf8)
                .map(|glob| Compiled::Glob(Arc::new(glob)))
        };
        let compiled = match kind {
            Kind::Equal if ignore_case => glob(&literal(source))?,
            Kind::Equal => Compiled::Bytes,
            Kind::Glob => glob(source)?,
            Kind::Regex => {
                let (syntax, bytes_max) = (Syntax::EXTENDED, REGEX_BYTES_MAX);
                Compiled::Regex(compile_search(source, syntax, ignore_case, bytes_max)?)
            }
        };
        Ok(Pattern { kind, source: source.to_vec(), ignore_case, compiled })
    }

    /// Compiles the pattern of all texts that begin with this one.
    ///
    /// # Errors
    ///
    /// Fails if the text is too large.
    pub fn beginning_with(text: &[u8]) -> canopy_text::Result<Self> {
        let mut source = literal(text);
        source.push(b'*');
        Self::new(Kind::Glob, &source, false)
    }

    /// Returns how the pattern is read.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the pattern as it was given.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// Returns whether letters match those of the other case.
    pub fn ignores_case(&self) -> bool {
        self.ignore_case
    }

    /// Returns whether a text is as the pattern says.
    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.compiled {
            Compiled::Bytes => self.source == text,
            Compiled::Glob(glob) => glob.matches(&escape(text)),
            Compiled::Regex(regex) => regex.is_match(&escape(text)),
        }
    }

    /// Returns the only text that matches, if there is only one.
    pub fn only(&self) -> Option<&[u8]> {
        let only = match self.kind {
            Kind::Equal => true,
            Kind::Glob => self.source.iter().all(|byte| !is_special(byte)),
            Kind::Regex => false,
        };
        (only && !self.ignore_case).then_some(&self.source)
    }

    /// Returns how all texts begin that match.
    pub fn beginning(&self) -> &[u8] {
        match self.kind {
            _ if self.ignore_case => &[],
            Kind::Equal => &self.source,
            Kind::Glob => {
                let end = self.source.iter().position(is_special);
                &self.source[..end.unwrap_or(self.source.len())]
            }
            Kind::Regex => regex_beginning(&self.source),
        }
    }
}

fn is_special(byte: &u8) -> bool {
    b"*?[\\".contains(byte)
}

/// Returns the shell pattern that only this text matches.
fn literal(text: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(text.len());
    for byte in text {
        if is_special(byte) {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

/// Returns plain letters behind a `^`, if they must stand there. The last one may be repeated no
/// time by what follows it.
fn regex_beginning(regex: &[u8]) -> &[u8] {
    let Some(rest) = regex.strip_prefix(b"^").filter(|rest| !rest.contains(&b'|')) else {
        return &[];
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-".contains(byte);
    let length = rest.iter().take_while(|byte| is_plain(byte)).count();
    match rest.get(length) {
        Some(b'*' | b'?' | b'{' | b'+') => &rest[..length.saturating_sub(1)],
        _ => &rest[..length],
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        let key = |pattern: &Self| (pattern.kind, pattern.ignore_case);
        key(self) == key(other) && self.source == other.source
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let case = if self.ignore_case { " in any case" } else { "" };
        write!(f, "{:?} {:?}{case}", self.kind, String::from_utf8_lossy(&self.source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(kind: Kind, source: &str, ignore_case: bool) -> Pattern {
        Pattern::new(kind, source.as_bytes(), ignore_case).unwrap()
    }

    #[test]
    fn kinds_match_what_they_say() {
        for (kind, source, ignore_case, text, matches) in [
            (Kind::Equal, "a*", false, "a*", true),
            (Kind::Equal, "a*", false, "ab", false),
            (Kind::Equal, "a*", true, "A*", true),
            (Kind::Equal, "a[b]\\?", true, "A[B]\\?", true),
            (Kind::Equal, "a*", true, "AB", false),
            (Kind::Glob, "*.h5", false, "x.h5", true),
            (Kind::Glob, "*.h5", true, "x.H5", true),
            (Kind::Glob, "*.h5", false, "x.h5x", false),
            (Kind::Regex, "h.$", false, "x.h5", true),
            (Kind::Regex, "^h", false, "x.h5", false),
            (Kind::Regex, "(a|b){2}", false, "xabx", true),
            (Kind::Regex, "H5", true, "x.h5", true),
        ] {
            let matched = pattern(kind, source, ignore_case).matches(text.as_bytes());
            assert_eq!(matched, matches, "{source} {text}");
        }
        assert!(pattern(Kind::Glob, "a?", false).matches(b"a\xff"));
        assert!(Pattern::new(Kind::Equal, b"\xff", false).unwrap().matches(b"\xff"));
    }

    #[test]
    fn beginnings_are_known() {
        for (kind, source, only, beginning) in [
            (Kind::Equal, "a*", true, "a*"),
            (Kind::Glob, "run*.h5", false, "run"),
            (Kind::Glob, "run", true, "run"),
            (Kind::Glob, "*", false, ""),
            (Kind::Glob, "a\\*", false, "a"),
            (Kind::Regex, "^run", false, "run"),
            (Kind::Regex, "^run*", false, "ru"),
            (Kind::Regex, "^run{0}", false, "ru"),
            (Kind::Regex, "^*", false, ""),
            (Kind::Regex, "^a|b", false, ""),
            (Kind::Regex, "^a(b|c)", false, ""),
            (Kind::Regex, "^a.*", false, "a"),
            (Kind::Regex, "run", false, ""),
            (Kind::Regex, "^(a)", false, ""),
        ] {
            let Ok(pattern) = Pattern::new(kind, source.as_bytes(), false) else { continue };
            assert_eq!(pattern.only().is_some(), only, "{source}");
            assert_eq!(pattern.beginning(), beginning.as_bytes(), "{source}");
        }
        assert_eq!(pattern(Kind::Equal, "a", true).beginning(), b"");
    }

    #[test]
    fn large_expressions_are_refused() {
        for source in ["((a{99}){99}){99}", "(", "*"] {
            assert!(Pattern::new(Kind::Regex, source.as_bytes(), false).is_err(), "{source}");
        }
    }
}
