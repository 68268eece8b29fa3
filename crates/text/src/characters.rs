//! Characters of the locale: which texts differ, sets of characters in the notation of the regex
//! crate, and which characters are equal where case does not matter.
//!
//! Texts are escaped names: a byte that is not UTF-8 is one character from U+10FF80 on. Where
//! characters are single bytes, all bytes above 127 are such characters.

use crate::locale::is_utf8;
use canopy_model::escape;
use std::borrow::Cow;
use std::sync::LazyLock;

/// The characters that stand for bytes.
const BYTES_FIRST: char = '\u{10FF80}';

/// The characters that stand for bytes, in a class of the regex crate.
pub(crate) const BYTES: &str = "\\x{10FF80}-\\x{10FFFF}";

/// A class that no character is in.
pub(crate) const NOTHING: &str = "[a&&b]";

/// Unit that counts as a character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// A character in UTF-8; a byte that is not UTF-8 is not a character.
    Utf8,
    /// A byte. Those above 127 are in no class and have no case.
    Bytes,
}

/// How the case of letters is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    /// It matters.
    Matters,
    /// Lower cases are compared, as by fnmatch(3).
    Lower,
    /// Upper cases are compared, as by regcomp(3).
    Upper,
}

impl Characters {
    /// Returns what a character is in the locale of the environment.
    pub fn of_locale() -> Self {
        if is_utf8() { Characters::Utf8 } else { Characters::Bytes }
    }

    fn have_case(self, c: char) -> bool {
        self == Characters::Utf8 || c.is_ascii()
    }

    /// Returns a text of which each character of an escaped text is one character.
    pub(crate) fn of(self, escaped: &str) -> Cow<'_, str> {
        if self == Characters::Utf8 || escaped.is_ascii() {
            return Cow::Borrowed(escaped);
        }
        let mut text = String::with_capacity(2 * escaped.len());
        for c in escaped.chars() {
            match c.is_ascii() || stands_for_byte(c) {
                true => text.push(c),
                // No UTF-8 begins with these bytes, so that each is escaped.
                false => {
                    c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| text += &escape(&[byte]));
                }
            }
        }
        Cow::Owned(text)
    }
}

impl Case {
    /// Returns what is compared of a character.
    pub(crate) fn fold(self, c: char, characters: Characters) -> char {
        let cased = self.cased();
        let at = cased.binary_search_by_key(&c, |&(of, _)| of).ok();
        at.filter(|_| characters.have_case(c)).map_or(c, |at| cased[at].1)
    }

    /// Returns the characters for which another one is compared, with that, in their order.
    fn cased(self) -> &'static [(char, char)] {
        match self {
            Case::Matters => &[],
            Case::Lower => &LOWER,
            Case::Upper => &UPPER,
        }
    }
}

/// Returns whether a character of an escaped text stands for a byte.
pub(crate) fn stands_for_byte(c: char) -> bool {
    c >= BYTES_FIRST
}

/// Returns whether characters of an escaped text stand for bytes.
pub(crate) fn has_bytes(escaped: &str) -> bool {
    // All of them begin with this byte.
    memchr::memchr(0xF4, escaped.as_bytes()).is_some() && escaped.chars().any(stands_for_byte)
}

/// A set of characters, in the notation of the regex crate.
pub(crate) struct Set {
    characters: Characters,
    case: Case,
    /// The characters that stand for bytes, which classes and complements leave out.
    bytes: &'static str,
    members: String,
}

impl Set {
    pub(crate) fn new(characters: Characters, case: Case) -> Self {
        Set { characters, case, bytes: BYTES, members: String::new() }
    }

    /// Begins a set for texts in which every character stands for itself.
    pub(crate) fn without_bytes(characters: Characters, case: Case) -> Self {
        Set { bytes: "", ..Set::new(characters, case) }
    }

    /// Returns the set of one character and those that are the same but for their case.
    pub(crate) fn only(c: char, characters: Characters, case: Case) -> String {
        let mut set = Set::new(characters, case);
        set.add_range(c, c);
        set.to_class(false)
    }

    /// Adds the characters between two, both included, and those that are the same but for their
    /// case; none if the last is before the first.
    pub(crate) fn add_range(&mut self, low: char, high: char) {
        let [mut low, high] = [low, high].map(|c| self.case.fold(c, self.characters));
        let folded = low..=high;
        let characters = self.characters;
        let cased = self.case.cased().iter().filter(|(c, _)| characters.have_case(*c));
        for &(c, other) in cased {
            let (is_between, is_same) = ((low..=high).contains(&c), folded.contains(&other));
            // For itself, it is never compared.
            if is_between && !is_same {
                self.add_exactly(low, before(c));
                low = after(c);
            } else if is_same && !is_between {
                self.add_exactly(c, c);
            }
        }
        self.add_exactly(low, high);
    }

    /// Adds a class of POSIX. Returns whether it is known.
    pub(crate) fn add_class(&mut self, name: &str) -> bool {
        const NAMES: [&str; 12] = [
            "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
            "space", "upper", "xdigit",
        ];
        let known = NAMES.contains(&name);
        if known {
            self.members += &match self.characters {
                Characters::Utf8 => unicode_class(name, self.bytes),
                Characters::Bytes => format!("[:{name}:]"),
            };
        }
        known
    }

    /// Adds the characters between two, both included, and no others.
    pub(crate) fn add_exactly(&mut self, low: char, high: char) {
        if low <= high {
            let (low, high) = (u32::from(low), u32::from(high));
            self.members += &format!("\\x{{{low:X}}}-\\x{{{high:X}}}");
        }
    }

    /// Removes all characters.
    pub(crate) fn clear(&mut self) {
        self.members.clear();
    }

    /// Returns it, or its complement, as a class of the regex crate.
    pub(crate) fn to_class(&self, negated: bool) -> String {
        let members = &self.members;
        let left_out = match self.characters {
            Characters::Utf8 => format!("{members}{}", self.bytes),
            Characters::Bytes => members.clone(),
        };
        match negated {
            false if members.is_empty() => NOTHING.to_owned(),
            false => format!("[{members}]"),
            true if left_out.is_empty() => ".".to_owned(),
            true => format!("[^{left_out}]"),
        }
    }
}

/// Returns the character before one that is not the first.
fn before(c: char) -> char {
    ('\0'..c).next_back().unwrap_or(c)
}

/// Returns the character after one that is not the last.
fn after(c: char) -> char {
    (c..=char::MAX).nth(1).unwrap_or(c)
}

static LOWER: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let mut lower = cased(char::to_lowercase);
    // The only one whose lower case is two characters to Unicode and one to the C library.
    let at = lower.partition_point(|&(c, _)| c < 'İ');
    lower.insert(at, ('İ', 'i'));
    lower
});

static UPPER: LazyLock<Vec<(char, char)>> = LazyLock::new(|| cased(char::to_uppercase));

fn cased<C: Iterator<Item = char>>(fold: impl Fn(char) -> C) -> Vec<(char, char)> {
    /// Beyond, characters have no case.
    const CASES_END: char = '\u{1F000}';
    let folded = |c: char| {
        let mut folded = fold(c);
        folded.next().filter(|&other| other != c && folded.next().is_none())
    };
    ('\0'..CASES_END).filter_map(|c| Some((c, folded(c)?))).collect()
}

/// White space as the C library has it, where blanks that do not break lines are none.
const BLANK: &str = "\\t \\x{1680}\\x{2000}-\\x{2006}\\x{2008}-\\x{200A}\\x{205F}\\x{3000}";

/// Returns what a class of POSIX is within a class of the regex crate: what the GNU C library takes
/// it for in a locale with UTF-8. The characters of `bytes` can be printed in none.
fn unicode_class(name: &str, bytes: &str) -> String {
    let space = format!("{BLANK}\\n-\\r\\x{{2028}}\\x{{2029}}");
    let shown = format!("\\p{{Cn}}\\p{{Cc}}{bytes}");
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
            let regex = Regex::new(&format!("^[{}]$", unicode_class(name, BYTES))).unwrap();
            for c in members.chars() {
                assert!(regex.is_match(&c.to_string()), "{name} {c:?}");
            }
            for c in others.chars() {
                assert!(!regex.is_match(&c.to_string()), "{name} {c:?}");
            }
        }
    }

    #[test]
    fn cases_are_those_that_are_compared() {
        for (c, case, same, others) in [
            ('k', Case::Lower, "kK\u{212A}", "l"),
            ('K', Case::Upper, "kK", "\u{212A}"),
            ('s', Case::Upper, "sSſ", "ß"),
            ('s', Case::Lower, "sS", "ſ"),
            ('I', Case::Lower, "iIİ", "ı"),
            ('i', Case::Upper, "iIı", "İ"),
            ('ä', Case::Upper, "äÄ", "a"),
            ('x', Case::Matters, "x", "X"),
            ('[', Case::Lower, "[", "xX"),
        ] {
            let class = Set::only(c, Characters::Utf8, case);
            let regex = Regex::new(&format!("^{class}$")).unwrap();
            assert!(same.chars().all(|c| regex.is_match(&c.to_string())), "{c} {case:?}");
            assert!(!others.chars().any(|c| regex.is_match(&c.to_string())), "{c} {case:?}");
        }
        let mut set = Set::new(Characters::Utf8, Case::Lower);
        set.add_range('-', 'a');
        let regex = Regex::new(&set.to_class(false)).unwrap();
        assert!(["-", "_", "a", "A"].iter().all(|c| regex.is_match(c)));
        assert!(!["b", "B", "Z"].iter().any(|c| regex.is_match(c)));
        let byte = Set::only('k', Characters::Bytes, Case::Lower);
        assert!(!Regex::new(&byte).unwrap().is_match("\u{212A}"));
    }

    #[test]
    fn bytes_are_characters_where_the_locale_says_so() {
        let escaped = escape("aü".as_bytes()).into_owned() + &escape(b"\xff");
        let bytes = Characters::Bytes.of(&escaped);
        assert_eq!(bytes.chars().count(), 4);
        assert_eq!(canopy_model::unescape(&bytes), &b"a\xc3\xbc\xff"[..]);
        assert!(has_bytes(&escaped) && !has_bytes("aü"));
    }
}
