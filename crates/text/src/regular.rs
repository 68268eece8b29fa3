//! find's regular expressions: the syntaxes of `-regextype`, translated to that of the regex crate.
//!
//! They are matched against escaped names, in which a byte that is no UTF-8 is one character that
//! no dot matches.

use crate::error::{Error, Result};
use crate::pattern::{FOREIGN, bracket};
use canopy_model::escape;
use regex::Regex;

/// What tells the syntaxes of `-regextype` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// find's default: `\(`, `\|`, `+`, `?`, no intervals.
    Emacs,
    /// `\(`, `\|`, `\+`, `\?`, `\{`.
    Basic,
    /// `\(` and `\{` alone.
    Minimal,
    /// `(`, `|`, `+`, `?`, `{`.
    Extended,
}

impl Syntax {
    /// Returns the syntax that `-regextype` names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "findutils-default" | "emacs" => Syntax::Emacs,
            "ed" | "grep" | "posix-basic" | "sed" => Syntax::Basic,
            "posix-minimal-basic" => Syntax::Minimal,
            "gnu-awk" | "posix-awk" | "awk" | "posix-egrep" | "egrep" | "posix-extended" => {
                Syntax::Extended
            }
            _ => return Err(Error::Syntax(name.to_owned())),
        })
    }

    /// Returns what a character is, plain or behind a backslash.
    fn meaning(self, c: char, quoted: bool) -> Meaning {
        let plain_operators = self == Syntax::Extended;
        match c {
            '(' | ')' if quoted != plain_operators => Meaning::Group,
            '|' if quoted != plain_operators && self != Syntax::Minimal => Meaning::Alternative,
            '{' | '}' if quoted != plain_operators && self != Syntax::Emacs => Meaning::Interval,
            '*' if !quoted => Meaning::Repeat,
            '+' | '?' => match (self, quoted) {
                (Syntax::Emacs | Syntax::Extended, false) | (Syntax::Basic, true) => {
                    Meaning::Repeat
                }
                _ => Meaning::Literal,
            },
            _ => Meaning::Literal,
        }
    }
}

enum Meaning {
    Group,
    Alternative,
    Interval,
    Repeat,
    Literal,
}

/// Compiles a regular expression, which must match the whole path.
pub fn compile(pattern: &[u8], syntax: Syntax, ignore_case: bool) -> Result<Regex> {
    let pattern = escape(pattern).into_owned();
    let failed = |why| Error::Regex { pattern: pattern.clone(), why };
    let mut translation = Translation { syntax, regex: String::new(), at_start: true };
    let mut rest = pattern.as_str();
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        match c {
            '[' => {
                let (class, length) =
                    bracket(rest, false).ok_or_else(|| failed("Unmatched [, [^, [:, [., or [="))?;
                translation.regex.push_str(&class);
                translation.at_start = false;
                rest = &rest[length..];
            }
            '\\' => {
                let quoted = rest.chars().next().ok_or_else(|| failed("Trailing backslash"))?;
                rest = &rest[quoted.len_utf8()..];
                if quoted.is_ascii_digit() && quoted != '0' {
                    return Err(failed("back-references are not supported"));
                }
                translation.quoted(quoted);
            }
            c => translation.plain(c, rest),
        }
    }
    let flags = if ignore_case { "(?si)" } else { "(?s)" };
    let regex = format!("{flags}\\A(?:{})\\z", translation.regex);
    Regex::new(&regex).map_err(|_| failed("Invalid regular expression"))
}

struct Translation {
    syntax: Syntax,
    regex: String,
    /// Whether nothing stands here yet that could be repeated.
    at_start: bool,
}

impl Translation {
    fn literal(&mut self, c: char) {
        self.regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
        self.at_start = false;
    }

    fn operator(&mut self, c: char, quoted: bool) {
        match self.syntax.meaning(c, quoted) {
            Meaning::Group | Meaning::Alternative => {
                self.regex.push(c);
                self.at_start = c != ')';
            }
            Meaning::Repeat if self.at_start => self.literal(c),
            // A second repetition would make the first one lazy.
            Meaning::Repeat if self.regex.ends_with(['*', '+', '?']) && !self.ends_quoted() => {
                if !self.regex.ends_with(c) {
                    self.regex.pop();
                    self.regex.push('*');
                }
            }
            Meaning::Repeat | Meaning::Interval => self.regex.push(c),
            Meaning::Literal => self.literal(c),
        }
    }

    fn ends_quoted(&self) -> bool {
        let before = &self.regex.as_bytes()[..self.regex.len() - 1];
        before.iter().rev().take_while(|&&byte| byte == b'\\').count() % 2 == 1
    }

    fn quoted(&mut self, c: char) {
        match c {
            '`' => self.regex.push_str("\\A"),
            '\'' => self.regex.push_str("\\z"),
            'w' | 'W' | 'b' | 'B' => {
                self.regex.extend(['\\', c]);
                self.at_start = false;
            }
            's' | 'S' if self.syntax != Syntax::Emacs => {
                self.regex.extend(['\\', c]);
                self.at_start = false;
            }
            '<' => self.regex.push_str("\\b{start}"),
            '>' => self.regex.push_str("\\b{end}"),
            c => self.operator(c, true),
        }
    }

    fn plain(&mut self, c: char, rest: &str) {
        let anchors_anywhere = self.syntax == Syntax::Extended;
        match c {
            // In find's default syntax the dot is not the end of a line.
            '.' => {
                let newline = if self.syntax == Syntax::Emacs { "\n" } else { "" };
                self.regex.push_str(&format!("[^{newline}{FOREIGN}]"));
                self.at_start = false;
            }
            '^' if anchors_anywhere || self.at_start => self.regex.push('^'),
            '$' if anchors_anywhere || ["", "\\)", "\\|"].iter().any(|end| ends(rest, end)) => {
                self.regex.push('$');
            }
            '0'..='9' | ',' if self.in_interval() => self.regex.push(c),
            c => self.operator(c, false),
        }
    }

    fn in_interval(&self) -> bool {
        let digits = self.regex.trim_end_matches(|c: char| c.is_ascii_digit() || c == ',');
        digits.ends_with('{') && !digits.ends_with("\\{")
    }
}

/// Returns whether an anchor before `rest` stands at an end.
fn ends(rest: &str, end: &str) -> bool {
    if end.is_empty() { rest.is_empty() } else { rest.starts_with(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_syntax_has_its_operators() {
        for (syntax, pattern, text, matches) in [
            (Syntax::Emacs, ".*/a", "./x/a", true),
            (Syntax::Emacs, ".*/a", "./x/ab", false),
            (Syntax::Emacs, "\\(a\\|b\\)+", "abab", true),
            (Syntax::Emacs, "(a)", "(a)", true),
            (Syntax::Emacs, "a{2}", "a{2}", true),
            (Syntax::Emacs, "a|b", "a|b", true),
            (Syntax::Emacs, "*a", "*a", true),
            (Syntax::Emacs, ".*[0-9]\\.txt", "x1.txt", true),
            (Syntax::Basic, "a\\{2\\}", "aa", true),
            (Syntax::Basic, "a+", "a+", true),
            (Syntax::Basic, "a\\+", "aaa", true),
            (Syntax::Minimal, "a\\+", "a+", true),
            (Syntax::Extended, "(a|b){2,3}", "aba", true),
            (Syntax::Extended, "\\(a\\)", "(a)", true),
            (Syntax::Extended, "a.b", "a\nb", true),
            (Syntax::Emacs, "a.b", "a\nb", false),
            (Syntax::Basic, "a**", "aa", true),
            (Syntax::Extended, "a\\**", "a**", true),
        ] {
            let regex = compile(pattern.as_bytes(), syntax, false).unwrap();
            assert_eq!(regex.is_match(text), matches, "{syntax:?} {pattern} {text}");
        }
        assert!(compile(b"A", Syntax::Emacs, true).unwrap().is_match("a"));
        assert!(compile(b"a\\", Syntax::Emacs, false).is_err());
        assert!(compile(b"[a", Syntax::Emacs, false).is_err());
        assert!(compile(b"\\(a\\)\\1", Syntax::Emacs, false).is_err());
    }
}
