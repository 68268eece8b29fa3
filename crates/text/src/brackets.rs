//! Bracket expressions of shell patterns and of find's regular expressions, as fnmatch(3) and
//! regcomp(3) of the GNU C library take them, translated to classes of the regex crate.

use crate::locale::is_utf8;

/// The escaped bytes that are no UTF-8: no character, as far as regular expressions go.
pub(crate) const FOREIGN: &str = "\\x{10FF80}-\\x{10FFFF}";

/// A class that no character is in.
pub(crate) const NOTHING: &str = "[a&&b]";

/// What is wrong with a bracket expression, in the words of regcomp(3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It does not end.
    Unmatched,
    /// `[:x:]` with an unknown word.
    ClassName,
    /// A range that ends before it begins, or at what is no character.
    RangeEnd,
    /// `[.x.]` or `[=x=]` of several characters.
    Collation,
}

impl Wrong {
    pub(crate) fn message(self) -> &'static str {
        match self {
            Wrong::Unmatched => "Unmatched [, [^, [:, [., or [=",
            Wrong::ClassName => "Invalid character class name",
            Wrong::RangeEnd => "Invalid range end",
            Wrong::Collation => "Invalid collation character",
        }
    }
}

/// What tells the bracket expressions of regular expressions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether there are classes such as `[:alpha:]`.
    pub(crate) classes: bool,
    /// Whether a range may end before it begins, and then has no characters.
    pub(crate) empty_ranges: bool,
    /// Whether [:upper:] and [:lower:] are all letters.
    pub(crate) ignore_case: bool,
    /// Whether a backslash quotes.
    pub(crate) backslash: bool,
}

/// Translates a bracket expression of a regular expression, whose '[' was just read. Returns the
/// class and how many bytes of `text` it took.
pub(crate) fn of_regex(text: &str, rules: Rules) -> Result<(String, usize), Wrong> {
    let mut reader = Reader { text, at: 0 };
    let mut members = Members::new(reader.take_if("^"));
    let mut first = true;
    loop {
        let at = reader.at;
        match reader.regex_member(rules)? {
            Member::Char(']') if !first && reader.at == at + 1 => break,
            Member::Char('-') if !first && reader.at == at + 1 && !reader.ahead("]") => {
                return Err(Wrong::RangeEnd);
            }
            Member::Char(low) if reader.begins_range() => {
                reader.at += 1;
                match reader.regex_member(rules)? {
                    Member::Char(high) if low <= high => members.range(low, high),
                    Member::Char(_) if rules.empty_ranges => {}
                    _ => return Err(Wrong::RangeEnd),
                }
            }
            Member::Char(c) => members.range(c, c),
            Member::Class(class) => members.classes.push_str(&class),
        }
        first = false;
    }
    let all = format!("[^{FOREIGN}]");
    let members = if members.negated { members.without_foreign() } else { members };
    Ok((members.class(&all), reader.at))
}

/// Translates a bracket expression of a shell pattern, whose '[' was just read. Returns the class
/// and how many bytes of `text` it took, or `None` if it does not end. A malformed expression
/// matches nothing but what stands before the fault.
pub(crate) fn of_shell(text: &str, ignore_case: bool) -> Option<(String, usize)> {
    let mut reader = Reader { text, at: 0 };
    let mut members = Members::new(reader.take_if("!") || reader.take_if("^"));
    let mut sound = true;
    let mut first = true;
    loop {
        let at = reader.at;
        let member = reader.shell_member()?;
        let low = match member {
            Some(Member::Char(']')) if !first && reader.at == at + 1 => break,
            Some(Member::Char(c)) => c,
            Some(Member::Class(class)) => {
                if sound {
                    members.classes.push_str(&class);
                }
                first = false;
                continue;
            }
            None => {
                sound = false;
                first = false;
                continue;
            }
        };
        first = false;
        let mut high = low;
        if reader.begins_range() {
            reader.at += 1;
            high = reader.range_end()?;
        }
        if sound && ignore_case {
            members.range_of_both_cases(low, high);
        } else if sound {
            members.range(low, high);
        }
    }
    if !sound && members.negated {
        return Some((NOTHING.to_owned(), reader.at));
    }
    let class = members.class(".");
    // Classes such as [:upper:] mind the case even where the pattern does not.
    Some((if ignore_case { format!("(?-i:{class})") } else { class }, reader.at))
}

enum Member {
    Char(char),
    /// What stands for it within a class of the regex crate.
    Class(String),
}

struct Members {
    negated: bool,
    ranges: String,
    classes: String,
}

impl Members {
    fn new(negated: bool) -> Self {
        Members { negated, ranges: String::new(), classes: String::new() }
    }

    fn range(&mut self, low: char, high: char) {
        if low <= high {
            let (low, high) = (u32::from(low), u32::from(high));
            self.ranges.push_str(&format!("\\x{{{low:X}}}-\\x{{{high:X}}}"));
        }
    }

    /// Adds the characters whose lower case lies between the lower cases of two: what fnmatch(3)
    /// compares where case does not matter.
    fn range_of_both_cases(&mut self, low: char, high: char) {
        /// Beyond, characters have no case.
        const CASES_END: char = '\u{1F000}';
        let (low, high) = (lower(low), lower(high));
        self.range(low, high);
        for c in low..=high.min(CASES_END) {
            let mut upper = c.to_uppercase();
            if let (Some(upper), None) = (upper.next(), upper.next())
                && upper != c
            {
                self.range(upper, upper);
            }
        }
    }

    fn without_foreign(mut self) -> Self {
        self.ranges.push_str(FOREIGN);
        self
    }

    /// Returns the class; `all` is what the complement of nothing is.
    fn class(&self, all: &str) -> String {
        let Members { negated, ranges, classes } = self;
        match (negated, ranges.is_empty() && classes.is_empty()) {
            (false, true) => NOTHING.to_owned(),
            (true, true) => all.to_owned(),
            (false, false) => format!("[{ranges}{classes}]"),
            (true, false) => format!("[^{ranges}{classes}]"),
        }
    }
}

fn lower(c: char) -> char {
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(only), None) => only,
        _ => c,
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
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
        Some((kind, Some(&inner[..end])))
    }

    fn regex_member(&mut self, rules: Rules) -> Result<Member, Wrong> {
        let c = self.next().ok_or(Wrong::Unmatched)?;
        if c == '\\' && rules.backslash {
            return self.next().map(Member::Char).ok_or(Wrong::Unmatched);
        }
        if c != '[' {
            return Ok(Member::Char(c));
        }
        let kinds: &[char] = if rules.classes { &[':', '=', '.'] } else { &['=', '.'] };
        match self.named(kinds) {
            None => Ok(Member::Char(c)),
            Some((_, None)) => Err(Wrong::Unmatched),
            Some((':', Some("upper" | "lower"))) if rules.ignore_case => {
                class("alpha").map(Member::Class).ok_or(Wrong::ClassName)
            }
            Some((':', Some(name))) => class(name).map(Member::Class).ok_or(Wrong::ClassName),
            Some((_, Some(name))) => only_char(name).map(Member::Char).ok_or(Wrong::Collation),
        }
    }

    /// Returns the next member, `Some(None)` where it is malformed, and `None` at the end.
    fn shell_member(&mut self) -> Option<Option<Member>> {
        let c = self.next()?;
        if c == '\\' {
            return self.next().map(|quoted| Some(Member::Char(quoted)));
        }
        if c != '[' {
            return Some(Some(Member::Char(c)));
        }
        let before = self.at;
        Some(match self.named(&[':', '=', '.']) {
            None | Some((_, None)) => Some(Member::Char(c)),
            Some((':', Some(name))) if !name.bytes().all(|byte| byte.is_ascii_lowercase()) => {
                // No name of a class: the '[' is one character among others.
                self.at = before;
                Some(Member::Char(c))
            }
            Some((':', Some(name))) => class(name).map(Member::Class),
            Some((_, Some(name))) => only_char(name).map(Member::Char),
        })
    }

    /// Takes what a range of a shell pattern ends with.
    fn range_end(&mut self) -> Option<char> {
        let c = self.next()?;
        match c {
            '\\' => self.next(),
            '[' if self.ahead(".") => match self.named(&['.']) {
                Some((_, Some(name))) => only_char(name).or(Some('\0')),
                _ => Some(c),
            },
            c => Some(c),
        }
    }
}

fn only_char(name: &str) -> Option<char> {
    let mut chars = name.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// White space as the C library has it, where blanks that do not break lines are none.
const BLANK: &str = "\\t \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200A}\\x{205F}\\x{3000}";

/// Returns what a class of POSIX is within a class of the regex crate: in a locale with UTF-8 what
/// the GNU C library takes it for, else that of ASCII.
fn class(name: &str) -> Option<String> {
    const NAMES: [&str; 12] = [
        "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space",
        "upper", "xdigit",
    ];
    if !NAMES.contains(&name) {
        return None;
    }
    Some(if is_utf8() { unicode_class(name) } else { format!("[:{name}:]") })
}

fn unicode_class(name: &str) -> String {
    let space = format!("{BLANK}\\n-\\r\\x{{2028}}\\x{{2029}}");
    let shown = format!("\\p{{Cn}}\\p{{Cc}}{FOREIGN}");
    match name {
        "upper" => "\\p{Uppercase}\\p{Lt}".to_owned(),
        "lower" => "\\p{Lowercase}\\p{Lt}".to_owned(),
        // Digits of other scripts are letters there.
        "alpha" => "[\\p{Alphabetic}\\p{Nd}--0-9]".to_owned(),
        "alnum" => "\\p{Alphabetic}\\p{Nd}".to_owned(),
        "blank" => BLANK.to_owned(),
        "space" => space,
        "cntrl" => "\\p{Cc}\\x{2028}\\x{2029}".to_owned(),
        "print" => format!("[^{shown}\\x{{2028}}\\x{{2029}}]"),
        "graph" => format!("[^{shown}{space}]"),
        "punct" => format!("[^{shown}{space}\\p{{Alphabetic}}\\p{{Nd}}]"),
        name => format!("[:{name}:]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    const POSIX: Rules =
        Rules { classes: true, empty_ranges: false, ignore_case: false, backslash: false };

    #[test]
    fn wrong_expressions_have_the_words_of_regcomp() {
        for (text, wrong) in [
            ("a", Wrong::Unmatched),
            ("[:digit", Wrong::Unmatched),
            ("[:foo:]]", Wrong::ClassName),
            ("z-a]", Wrong::RangeEnd),
            ("a-c-z]", Wrong::RangeEnd),
            ("[:digit:]-z]", Wrong::RangeEnd),
            ("a-[:digit:]]", Wrong::RangeEnd),
            ("[.hyphen.]]", Wrong::Collation),
            ("[=ab=]]", Wrong::Collation),
        ] {
            assert_eq!(of_regex(text, POSIX), Err(wrong), "[{text}");
        }
    }

    #[test]
    fn classes_are_those_of_unicode() {
        for (name, members, others) in [
            ("upper", "AÄǅ", "aäª1"),
            ("lower", "aäªǅ", "AÄ"),
            ("alpha", "aäª５", "1-_"),
            ("alnum", "aä1５", "- "),
            ("digit", "19", "５a"),
            ("space", " \n\u{2028}", "\u{A0}x"),
            ("blank", " \t", "\n\u{A0}"),
            ("cntrl", "\x01\u{2028}", "a "),
            ("punct", ".]\\\u{AD}=", "a1 \u{10FF90}"),
            ("graph", "a\u{A0}.", " \n\u{2028}\u{10FF90}"),
            ("print", "a ", "\n\u{2028}\u{10FF90}"),
            ("xdigit", "aF9", "g"),
        ] {
            let regex = Regex::new(&format!("^[{}]$", unicode_class(name))).unwrap();
            for c in members.chars() {
                assert!(regex.is_match(&c.to_string()), "{name} {c:?}");
            }
            for c in others.chars() {
                assert!(!regex.is_match(&c.to_string()), "{name} {c:?}");
            }
        }
    }
}
