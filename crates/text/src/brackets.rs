//! Bracket expressions of shell patterns and of find's regular expressions, as fnmatch(3) and
//! regcomp(3) of the GNU C library take them, translated to classes of the regex crate.

use crate::characters::{Case, Characters, NOTHING, Set, stands_for_byte};

/// Fault of a bracket expression, in the words of regcomp(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// Nothing follows the bracket.
    Bare,
    /// It does not end.
    Unmatched,
    /// `[:x:]` with an unknown word.
    ClassName,
    /// A range that ends before it begins, or with something that is not a character.
    RangeEnd,
    /// `[.x.]` or `[=x=]` of several characters.
    Collation,
}

impl Wrong {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Wrong::Bare => "Invalid regular expression",
            Wrong::Unmatched => "Unmatched [, [^, [:, [., or [=",
            Wrong::ClassName => "Invalid character class name",
            Wrong::RangeEnd => "Invalid range end",
            Wrong::Collation => "Invalid collation character",
        }
    }
}

/// Differences between the bracket expressions of syntaxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether there are classes such as `[:alpha:]`.
    pub(crate) classes: bool,
    /// Whether a range may end before it begins, and then has no characters.
    pub(crate) empty_ranges: bool,
    /// Whether a backslash quotes.
    pub(crate) backslash: bool,
    /// Treatment of case. Where case does not matter, `[:upper:]` and `[:lower:]` are all letters.
    pub(crate) case: Case,
    /// Unit that counts as a character.
    pub(crate) characters: Characters,
}

/// Translates a bracket expression of a regular expression, whose '[' was just read. Returns the
/// class and how many bytes of `text` it took.
pub(crate) fn of_regex(text: &str, rules: Rules) -> Result<(String, usize), Wrong> {
    let mut reader = Reader { text, at: 0, plain: true };
    let mut set = Set::new(rules.characters, rules.case);
    if reader.rest().is_empty() {
        return Err(Wrong::Bare);
    }
    let negated = reader.take_if("^");
    if reader.rest().is_empty() {
        return Err(Wrong::Bare);
    }
    let mut first = true;
    loop {
        let at = reader.at;
        let member = reader.regex_member(rules)?;
        let is_plain = reader.plain;
        match member {
            Member::Char(']') if !first && is_plain => break,
            Member::Char('-') if !first && is_plain && !reader.ahead("]") => {
                return Err(Wrong::RangeEnd);
            }
            Member::Char(low) if reader.begins_range() => {
                reader.at += 1;
                match reader.regex_member(rules)? {
                    Member::Char(high) => {
                        let ends = [low, high].map(|c| rules.case.fold(c, rules.characters));
                        if ends[0] > ends[1] && !rules.empty_ranges {
                            return Err(Wrong::RangeEnd);
                        }
                        set.add_range(low, high);
                    }
                    Member::Class(_) | Member::Equivalent(_) => return Err(Wrong::RangeEnd),
                }
            }
            // A byte that is not a character is in no set of characters.
            Member::Char(c) if rules.characters == Characters::Utf8 && stands_for_byte(c) => {}
            Member::Char(c) | Member::Equivalent(c) => set.add_range(c, c),
            Member::Class(name) => {
                let has_case = matches!(name, "upper" | "lower");
                let ignores = rules.case != Case::Matters && has_case;
                if !set.add_class(if ignores { "alpha" } else { name }) {
                    return Err(Wrong::ClassName);
                }
            }
        }
        debug_assert!(reader.at > at);
        first = false;
    }
    Ok((set.to_class(negated), reader.at))
}

/// Translates a bracket expression of a shell pattern, whose '[' was just read. Returns the class
/// and how many bytes of `text` it took, or `None` if it does not end. A malformed expression
/// matches nothing but what stands before the fault.
pub(crate) fn of_shell(text: &str, characters: Characters, case: Case) -> Option<(String, usize)> {
    let mut reader = Reader { text, at: 0, plain: true };
    let negated = reader.take_if("!") || reader.take_if("^");
    let mut set = Set::without_bytes(characters, case);
    let (mut sound, mut first) = (true, true);
    loop {
        let member = reader.shell_member()?;
        let is_end = !first && reader.plain;
        first = false;
        let low = match member {
            ShellMember::Char(']') if is_end => break,
            ShellMember::Char(c) => c,
            // Named, a character is itself alone, even where case does not matter.
            ShellMember::Collating(c) if reader.begins_range() => c,
            ShellMember::Collating(c) | ShellMember::Equivalent(c) => {
                if sound {
                    set.add_exactly(c, c);
                }
                continue;
            }
            ShellMember::Class(name) => {
                sound = sound && set.add_class(name);
                continue;
            }
            ShellMember::Unequivalent => {
                // A text that matches a member before it fails here.
                if !negated {
                    set.clear();
                }
                '['
            }
            ShellMember::Wrong => {
                sound = false;
                continue;
            }
            ShellMember::Unclosed => return Some((NOTHING.to_owned(), text.len())),
        };
        let mut high = low;
        if reader.begins_range() {
            reader.at += 1;
            match reader.range_end()? {
                ShellMember::Char(c) => high = c,
                ShellMember::Unclosed => return Some((NOTHING.to_owned(), text.len())),
                _ => high = '\0',
            }
        }
        if sound {
            set.add_range(low, high);
        }
    }
    let class = if sound || !negated { set.to_class(negated) } else { NOTHING.to_owned() };
    Some((class, reader.at))
}

enum ShellMember<'a> {
    Char(char),
    /// `[.x.]`
    Collating(char),
    /// `[=x=]`
    Equivalent(char),
    /// `[:x:]`
    Class(&'a str),
    /// `[=` that begins no `[=x=]`: the '[' is one character among others.
    Unequivalent,
    /// A malformed member.
    Wrong,
    /// `[.` without an end, of which nothing comes.
    Unclosed,
}

enum Member<'a> {
    Char(char),
    /// `[=x=]`
    Equivalent(char),
    /// `[:x:]`
    Class(&'a str),
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Whether the last member was a character that stands for itself, neither quoted nor named.
    plain: bool,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn ahead(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    fn take_if(&mut self, text: &str) -> bool {
        let taken = self.ahead(text);
        self.at += if taken { text.len() } else { 0 };
        taken
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Returns whether a '-' follows that stands for a range.
    fn begins_range(&self) -> bool {
        self.ahead("-") && !self.ahead("-]")
    }

    /// Takes what stands between `[x` and `x]`, of which the '[' was read, for one of `kinds`.
    fn named(&mut self, kinds: &[char]) -> Option<(char, Option<&'a str>)> {
        let kind = self.rest().chars().next().filter(|kind| kinds.contains(kind))?;
        let inner = &self.rest()[1..];
        let Some(end) = inner.find(&format!("{kind}]")) else { return Some((kind, None)) };
        self.at += 1 + end + 2;
        self.plain = false;
        Some((kind, Some(&inner[..end])))
    }

    fn regex_member(&mut self, rules: Rules) -> Result<Member<'a>, Wrong> {
        self.plain = true;
        let c = self.next().ok_or(Wrong::Unmatched)?;
        if c == '\\' && rules.backslash {
            self.plain = false;
            return self.next().map(Member::Char).ok_or(Wrong::Unmatched);
        }
        if c != '[' {
            return Ok(Member::Char(c));
        }
        let kinds: &[char] = if rules.classes { &[':', '=', '.'] } else { &['=', '.'] };
        let only = |name| only_char(name).ok_or(Wrong::Collation);
        match self.named(kinds) {
            None => Ok(Member::Char(c)),
            Some((_, None)) => Err(Wrong::Unmatched),
            Some((':', Some(name))) => Ok(Member::Class(name)),
            Some(('=', Some(name))) => only(name).map(Member::Equivalent),
            Some((_, Some(name))) => only(name).map(Member::Char),
        }
    }

    /// Returns the next member; `None` at the end.
    fn shell_member(&mut self) -> Option<ShellMember<'a>> {
        self.plain = true;
        let c = self.next()?;
        if c == '\\' {
            self.plain = false;
            return self.next().map(ShellMember::Char);
        }
        if c != '[' {
            return Some(ShellMember::Char(c));
        }
        let before = self.at;
        Some(match self.named(&[':', '=', '.']) {
            Some(('.', None)) => ShellMember::Unclosed,
            Some(('.', Some(name))) => {
                only_char(name).map_or(ShellMember::Wrong, ShellMember::Collating)
            }
            Some((':', Some(name))) if name.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                ShellMember::Class(name)
            }
            Some(('=', name)) => match name.and_then(only_char) {
                Some(c) => ShellMember::Equivalent(c),
                None => {
                    (self.at, self.plain) = (before, true);
                    ShellMember::Unequivalent
                }
            },
            _ => {
                // No name of a class: the '[' is one character among others.
                (self.at, self.plain) = (before, true);
                ShellMember::Char(c)
            }
        })
    }

    /// Takes what a range of a shell pattern ends with.
    fn range_end(&mut self) -> Option<ShellMember<'a>> {
        let c = self.next()?;
        match c {
            '\\' => self.next().map(ShellMember::Char),
            '[' if self.ahead(".") => Some(match self.named(&['.']) {
                Some((_, Some(name))) => {
                    only_char(name).map_or(ShellMember::Wrong, ShellMember::Char)
                }
                _ => ShellMember::Unclosed,
            }),
            c => Some(ShellMember::Char(c)),
        }
    }
}

fn only_char(name: &str) -> Option<char> {
    let mut chars = name.chars();
    chars.next().filter(|_| chars.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POSIX: Rules = Rules {
        classes: true,
        empty_ranges: false,
        backslash: false,
        case: Case::Matters,
        characters: Characters::Utf8,
    };

    #[test]
    fn wrong_expressions_have_the_words_of_regcomp() {
        for (text, wrong) in [
            ("", Wrong::Bare),
            ("^", Wrong::Bare),
            ("a", Wrong::Unmatched),
            ("[:digit", Wrong::Unmatched),
            ("[:foo:]]", Wrong::ClassName),
            ("z-a]", Wrong::RangeEnd),
            ("a-c-z]", Wrong::RangeEnd),
            ("[:digit:]-z]", Wrong::RangeEnd),
            ("[=a=]-z]", Wrong::RangeEnd),
            ("a-[:digit:]]", Wrong::RangeEnd),
            ("a-[=z=]]", Wrong::RangeEnd),
            ("[.hyphen.]]", Wrong::Collation),
            ("[=ab=]]", Wrong::Collation),
        ] {
            assert_eq!(of_regex(text, POSIX), Err(wrong), "[{text}");
        }
        let any_case = Rules { case: Case::Upper, ..POSIX };
        assert_eq!(of_regex("_-b]", any_case), Err(Wrong::RangeEnd));
    }
}
