//! find's regular expressions: the syntaxes of `-regextype`, translated to that of the regex crate.
//!
//! They are matched against escaped names, in which a byte that is no UTF-8 is one character that
//! no dot matches.

use crate::brackets::{FOREIGN, Rules, Wrong, of_regex};
use crate::error::{Error, Result};
use canopy_model::escape;
use regex::{Regex, RegexBuilder};

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
    /// As `Extended`; a `{` that begins no interval is itself.
    Egrep,
    /// As `Egrep`; a backslash quotes in brackets too.
    GnuAwk,
    /// As `GnuAwk`, without `\w` and its like.
    PosixAwk,
    /// As `PosixAwk`, without intervals and back-references.
    Awk,
}

impl Syntax {
    /// Returns the syntax that `-regextype` names.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "findutils-default" | "emacs" => Syntax::Emacs,
            "ed" | "grep" | "posix-basic" | "sed" => Syntax::Basic,
            "posix-minimal-basic" => Syntax::Minimal,
            "posix-extended" => Syntax::Extended,
            "posix-egrep" | "egrep" => Syntax::Egrep,
            "gnu-awk" => Syntax::GnuAwk,
            "posix-awk" => Syntax::PosixAwk,
            "awk" => Syntax::Awk,
            _ => return Err(Error::Syntax(name.to_owned())),
        })
    }

    /// Returns whether parentheses and their like are operators as they are.
    fn has_plain_operators(self) -> bool {
        !matches!(self, Syntax::Emacs | Syntax::Basic | Syntax::Minimal)
    }

    /// Returns whether there are `\w`, `\s`, `\<` and their like.
    fn has_gnu_operators(self) -> bool {
        !matches!(self, Syntax::Awk | Syntax::PosixAwk)
    }

    fn brackets(self, ignore_case: bool) -> Rules {
        Rules {
            ignore_case,
            classes: self != Syntax::Emacs,
            empty_ranges: self == Syntax::Emacs,
            backslash: matches!(self, Syntax::Awk | Syntax::PosixAwk | Syntax::GnuAwk),
        }
    }

    /// Returns what a character is, plain or behind a backslash.
    fn meaning(self, c: char, quoted: bool) -> Meaning {
        let plain_operators = self.has_plain_operators();
        let is_operator = quoted != plain_operators;
        match c {
            '(' if is_operator => Meaning::Open,
            ')' if is_operator => Meaning::Close,
            '|' if is_operator && self != Syntax::Minimal => Meaning::Alternative,
            '{' if is_operator && !matches!(self, Syntax::Emacs | Syntax::Awk) => Meaning::Interval,
            '*' if !quoted => Meaning::Repeat,
            '+' | '?' => match (self, quoted) {
                (Syntax::Minimal, _) => Meaning::Literal,
                (Syntax::Basic, quoted) if quoted => Meaning::Repeat,
                (Syntax::Basic, _) => Meaning::Literal,
                (_, quoted) if quoted => Meaning::Literal,
                _ => Meaning::Repeat,
            },
            _ => Meaning::Literal,
        }
    }
}

enum Meaning {
    Open,
    Close,
    Alternative,
    Interval,
    Repeat,
    Literal,
}

/// Compiles a regular expression, which must match the whole path.
pub fn compile(pattern: &[u8], syntax: Syntax, ignore_case: bool) -> Result<Regex> {
    let (pattern, regex) = translate(pattern, syntax, ignore_case)?;
    let flags = if ignore_case { "(?si)" } else { "(?s)" };
    let invalid = |_| Error::Regex { pattern, why: "Invalid regular expression" };
    Regex::new(&format!("{flags}\\A(?:{regex})\\z")).map_err(invalid)
}

/// Compiles a regular expression that may match any part of a text, as in grep(1), and that takes
/// no more than so many bytes of memory.
pub fn compile_search(
    pattern: &[u8],
    syntax: Syntax,
    ignore_case: bool,
    bytes_max: usize,
) -> Result<Regex> {
    let (pattern, regex) = translate(pattern, syntax, ignore_case)?;
    let mut builder = RegexBuilder::new(&regex);
    builder.dot_matches_new_line(true).case_insensitive(ignore_case).size_limit(bytes_max);
    let why = |error| match error {
        regex::Error::CompiledTooBig(_) => "Regular expression too big",
        _ => "Invalid regular expression",
    };
    builder.build().map_err(|error| Error::Regex { pattern, why: why(error) })
}

/// Returns the escaped pattern, and what the regex crate calls it.
fn translate(pattern: &[u8], syntax: Syntax, ignore_case: bool) -> Result<(String, String)> {
    let pattern = escape(pattern).into_owned();
    let mut translation = Translation {
        syntax,
        rules: syntax.brackets(ignore_case),
        regex: String::new(),
        at_start: true,
        repeated: None,
        depth: 0,
        rest: &pattern,
    };
    match translation.translate() {
        Ok(()) => {
            let regex = translation.regex;
            Ok((pattern, regex))
        }
        Err(why) => Err(Error::Regex { pattern, why }),
    }
}

struct Translation<'a> {
    syntax: Syntax,
    rules: Rules,
    regex: String,
    /// Whether nothing stands here yet that could be repeated.
    at_start: bool,
    /// The operator of repetition that the translation ends with, '{' for an interval.
    repeated: Option<char>,
    /// How many groups are open.
    depth: usize,
    /// What is still to be read.
    rest: &'a str,
}

impl Translation<'_> {
    fn translate(&mut self) -> Result<(), &'static str> {
        while let Some(c) = self.next() {
            let repeated = self.repeated.take();
            match c {
                '[' => {
                    let (class, length) =
                        of_regex(self.rest, self.rules).map_err(Wrong::message)?;
                    self.atom(&class);
                    self.rest = &self.rest[length..];
                }
                '\\' => {
                    let quoted = self.next().ok_or("Trailing backslash")?;
                    let is_reference = quoted.is_ascii_digit() && quoted != '0';
                    if is_reference && self.syntax != Syntax::Awk {
                        return Err("back-references are not supported");
                    }
                    self.quoted(quoted, repeated)?;
                }
                c => self.plain(c, repeated)?,
            }
        }
        if self.depth == 0 { Ok(()) } else { Err("Unmatched ( or \\(") }
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn atom(&mut self, regex: &str) {
        self.regex.push_str(regex);
        self.at_start = false;
    }

    fn literal(&mut self, c: char) {
        self.atom(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }

    /// Takes what may be an operator, behind one of repetition if `repeated` tells which.
    fn operator(
        &mut self,
        c: char,
        quoted: bool,
        repeated: Option<char>,
    ) -> Result<(), &'static str> {
        match self.syntax.meaning(c, quoted) {
            Meaning::Open => {
                self.regex.push('(');
                self.depth += 1;
                self.at_start = true;
            }
            Meaning::Close if self.depth > 0 => {
                self.atom(")");
                self.depth -= 1;
            }
            Meaning::Close if quoted => return Err("Unmatched ) or \\)"),
            Meaning::Close => self.literal(c),
            Meaning::Alternative => {
                self.regex.push('|');
                self.at_start = true;
            }
            Meaning::Interval => self.interval()?,
            Meaning::Repeat if self.at_start => self.leading(c)?,
            Meaning::Repeat => self.repeat(c, repeated),
            Meaning::Literal => self.literal(c),
        }
        Ok(())
    }

    /// Takes an operator of repetition behind nothing that could be repeated.
    fn leading(&mut self, c: char) -> Result<(), &'static str> {
        match self.syntax {
            Syntax::Extended | Syntax::PosixAwk => {
                return Err("Invalid preceding regular expression");
            }
            Syntax::Basic if c == '{' => {
                return Err("Invalid preceding regular expression");
            }
            Syntax::Egrep => {}
            _ => self.literal(c),
        }
        Ok(())
    }

    /// Appends an operator of repetition; a '?' behind another one would make that one lazy.
    fn repeat(&mut self, c: char, repeated: Option<char>) {
        match repeated {
            None => self.regex.push(c),
            Some('{') => self.regex.push_str(match c {
                '?' => "{0,1}",
                '+' => "{1,}",
                _ => "{0,}",
            }),
            Some(before) if before == c => {}
            Some(_) => {
                self.regex.pop();
                self.regex.push('*');
            }
        }
        self.repeated = match repeated {
            None | Some('{') => Some(if repeated.is_some() { '{' } else { c }),
            Some(before) if before == c => Some(c),
            Some(_) => Some('*'),
        };
    }

    /// Takes an interval whose brace was just read, if there is one.
    fn interval(&mut self) -> Result<(), &'static str> {
        let end = if self.syntax.has_plain_operators() { "}" } else { "\\}" };
        let literal = matches!(self.syntax, Syntax::Egrep | Syntax::GnuAwk | Syntax::PosixAwk);
        let (inner, rest) = match self.rest.split_once(end) {
            Some((inner, rest)) => (inner, rest),
            None if literal => {
                self.literal('{');
                return Ok(());
            }
            None => return Err("Unmatched \\{"),
        };
        const CONTENT: &str = "Invalid content of \\{\\}";
        let (least, most) = inner.split_once(',').map_or((inner, None), |(a, b)| (a, Some(b)));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(least) || !most.is_none_or(is_number) {
            let is_list = inner.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
            if literal && !is_list {
                self.literal('{');
                return Ok(());
            }
            return Err(CONTENT);
        }
        if inner.is_empty() {
            return Err(CONTENT);
        }
        if self.at_start {
            return self.leading('{');
        }
        // Without a lower bound it is 0.
        let number = |text: &str| text.parse::<u16>().ok().filter(|number| *number <= 0x7fff);
        let least = if least.is_empty() { Some(0) } else { number(least) };
        let least = least.ok_or("Regular expression too big")?;
        let most = match most {
            None => least.to_string(),
            Some("") => String::new(),
            Some(most) => number(most).ok_or("Regular expression too big")?.to_string(),
        };
        if most.parse::<u16>().is_ok_and(|most| most < least) {
            return Err(CONTENT);
        }
        self.regex.push_str(&format!("{{{least},{most}}}"));
        self.repeated = Some('{');
        self.rest = rest;
        Ok(())
    }

    fn quoted(&mut self, c: char, repeated: Option<char>) -> Result<(), &'static str> {
        if self.syntax.has_gnu_operators() {
            match c {
                '`' => self.regex.push_str("\\A"),
                '\'' => self.regex.push_str("\\z"),
                'w' | 'W' | 'b' | 'B' | 's' | 'S' => self.atom(&format!("\\{c}")),
                '<' => self.regex.push_str("\\b{start}"),
                '>' => self.regex.push_str("\\b{end}"),
                c => return self.operator(c, true, repeated),
            }
            return Ok(());
        }
        self.operator(c, true, repeated)
    }

    fn plain(&mut self, c: char, repeated: Option<char>) -> Result<(), &'static str> {
        let anchors_anywhere = self.syntax.has_plain_operators();
        match c {
            // In find's default syntax the dot is not the end of a line.
            '.' => {
                let newline = if self.syntax == Syntax::Emacs { "\n" } else { "" };
                self.atom(&format!("[^{newline}{FOREIGN}]"));
            }
            '^' if anchors_anywhere || self.at_start => self.regex.push('^'),
            '$' if anchors_anywhere
                || self.rest.is_empty()
                || self.rest.starts_with("\\)")
                || self.rest.starts_with("\\|") =>
            {
                self.regex.push('$');
            }
            c => return self.operator(c, false, repeated),
        }
        Ok(())
    }
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
            (Syntax::Emacs, ".*\\s.*", "asb", false),
            (Syntax::Emacs, ".*\\s.*", "a b", true),
            (Syntax::Emacs, "\\S*", "a b", false),
            (Syntax::GnuAwk, ".*\\s.*", "a b", true),
            (Syntax::Awk, ".*\\s.*", "asb", true),
            (Syntax::PosixAwk, ".*\\<b\\w", "a<bw", true),
            (Syntax::Emacs, "[[:upper:]]*", ":]]", true),
            (Syntax::Emacs, "[z-a]", "z", false),
            (Syntax::Emacs, "[^z-a]", "z", true),
            (Syntax::Extended, "[[=a=]][[.b.]]", "ab", true),
            (Syntax::Extended, "a{,3}", "aaa", true),
            (Syntax::Extended, "a{,3}", "aaaa", false),
            (Syntax::Basic, "a\\{,3\\}", "aa", true),
            (Syntax::Extended, "a{2}?", "", true),
            (Syntax::Extended, "a{2}?", "aa", true),
            (Syntax::Extended, "a*{1}", "aaa", true),
            (Syntax::Egrep, "a{1x}", "a{1x}", true),
            (Syntax::Awk, "a{2}", "a{2}", true),
            (Syntax::Extended, "a)", "a)", true),
            (Syntax::Awk, "a[\\]]", "a]", true),
            (Syntax::Awk, "a\\1", "a1", true),
            (Syntax::Egrep, "(*a)", "a", true),
            (Syntax::GnuAwk, "(*a)", "*a", true),
        ] {
            let regex = compile(pattern.as_bytes(), syntax, false).unwrap();
            assert_eq!(regex.is_match(text), matches, "{syntax:?} {pattern} {text}");
        }
        for (syntax, pattern, why) in [
            (Syntax::Extended, "[[:foo:]]", "Invalid character class name"),
            (Syntax::Extended, "[z-a]", "Invalid range end"),
            (Syntax::Emacs, "[[.hyphen.]]", "Invalid collation character"),
            (Syntax::Extended, "a{2", "Unmatched \\{"),
            (Syntax::Extended, "a{1,2,3}", "Invalid content of \\{\\}"),
            (Syntax::Extended, "a{3,1}", "Invalid content of \\{\\}"),
            (Syntax::Extended, "{2}", "Invalid preceding regular expression"),
            (Syntax::Extended, "a|*b", "Invalid preceding regular expression"),
            (Syntax::Extended, "a(", "Unmatched ( or \\("),
            (Syntax::Emacs, "a\\)", "Unmatched ) or \\)"),
        ] {
            let error = compile(pattern.as_bytes(), syntax, false).unwrap_err();
            assert!(error.to_string().ends_with(why), "{pattern}: {error}");
        }
        let upper = compile(b"[[:upper:]]*", Syntax::Extended, true).unwrap();
        assert!(upper.is_match("a\u{ff15}") && !upper.is_match("1"));
        assert!(compile(b"A", Syntax::Emacs, true).unwrap().is_match("a"));
        assert!(compile(b"a\\", Syntax::Emacs, false).is_err());
        assert!(compile(b"[a", Syntax::Emacs, false).is_err());
        assert!(compile(b"\\(a\\)\\1", Syntax::Emacs, false).is_err());
    }

    #[test]
    fn a_search_finds_parts_within_its_memory() {
        let search =
            |pattern: &str| compile_search(pattern.as_bytes(), Syntax::Extended, false, 1 << 18);
        for (pattern, text, matches) in [
            ("b", "abc", true),
            ("^b", "abc", false),
            ("^a|c$", "bbc", true),
            ("a.c", "a\nc", true),
            ("\\.h5$", "x.h5", true),
        ] {
            assert_eq!(search(pattern).unwrap().is_match(text), matches, "{pattern} {text}");
        }
        let error = search("((((a{99}){99}){99}){99})").unwrap_err();
        assert!(error.to_string().ends_with("Regular expression too big"), "{error}");
        assert!(search("*.c").is_err());
    }
}
