//! Second lines of errors: what to write instead of what people try. First lines are find(1)'s.

use super::words::{Operand, words};
use crate::find::messages::in_locale;
use canopy_text::safe::message_line;
use std::fmt;

/// Why a command line of find is refused: find(1)'s line, and a hint as a line of its own. Words of
/// the command line end no line in it.
#[derive(Debug)]
pub struct Misunderstood {
    said: String,
    hint: Option<String>,
}

impl fmt::Display for Misunderstood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |text: &str| message_line(&in_locale(text.to_owned())).into_owned();
        f.write_str(&line(&self.said))?;
        match &self.hint {
            Some(hint) => write!(f, "\n{}", line(hint)),
            None => Ok(()),
        }
    }
}

impl From<String> for Misunderstood {
    fn from(said: String) -> Self {
        Misunderstood { said, hint: None }
    }
}

/// Returns a hint for a word that is none of the language: the same word with another number of
/// hyphens, or the nearest one.
pub(super) fn of_word(name: &str) -> Option<String> {
    let (word, value) =
        name.split_once('=').map_or((name, None), |(word, rest)| (word, Some(rest)));
    if ["-H", "-L", "-P"].contains(&name) {
        return Some(format!("{name} goes before paths"));
    }
    let bare = |word: &str| word.trim_start_matches('-').replace('-', "").to_lowercase();
    let wanted = bare(word);
    if wanted.is_empty() {
        return None;
    }
    let known = words();
    let same = known.iter().find(|(known, _)| bare(known) == wanted);
    let near = || {
        let distance = |(known, _): &&(&str, Operand)| canopy_text::distance(&bare(known), &wanted);
        let nearest = known.iter().min_by_key(distance)?;
        canopy_text::is_near(&bare(nearest.0), &wanted).then_some(nearest)
    };
    let (found, operand) = same.or_else(near)?;
    let forms = || known.iter().filter(|(word, _)| word.split('=').next() == Some(found));
    Some(match (value, operand) {
        (None, _) => format!("there is {found}"),
        (Some(_), Operand::None) if forms().count() > 1 => {
            let forms = forms().map(|(word, _)| *word).filter(|word| word.contains('='));
            format!("write one of {}", forms.collect::<Vec<_>>().join(", "))
        }
        (Some(_), Operand::None) => format!("{found} takes no value"),
        (Some(value), _) => format!("write {found} {value}"),
    })
}

/// Returns a hint for an argument of `-size` that is not a number with a unit of find's.
pub(super) fn of_size(text: &str) -> Option<String> {
    let number = text.trim_end_matches(char::is_alphabetic);
    let unit = match text[number.len()..].to_lowercase().as_str() {
        "" => "",
        "k" | "kb" | "kib" => "k",
        "m" | "mb" | "mib" => "M",
        "g" | "gb" | "gib" => "G",
        "t" | "tb" | "tib" => "T",
        "p" | "pb" | "pib" => "P",
        "c" | "byte" | "bytes" => "c",
        _ => return None,
    };
    let (sign, digits) = match number.trim().split_at_checked(1) {
        Some(("+" | ">", digits)) => ("+", digits),
        Some(("-" | "<", digits)) => ("-", digits),
        Some(("=", digits)) => ("", digits),
        _ => ("", number),
    };
    let digits = digits.trim();
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match digits.split_once('.') {
        None if is_number(digits) => {
            Some(format!("write -size {sign}{digits}{unit}; units are c, k, M, G, T and P"))
        }
        Some((whole, part)) if is_number(part) && (whole.is_empty() || is_number(whole)) => {
            Some("sizes are whole numbers: write a smaller unit".to_owned())
        }
        _ => None,
    }
}

/// Returns a hint for an argument of `-mtime` or `-mmin` and their like that has a unit of time.
pub(super) fn of_age(name: &str, text: &str) -> Option<String> {
    const MINUTES: [(&str, u64); 9] = [
        ("min", 1),
        ("minutes", 1),
        ("h", 60),
        ("hours", 60),
        ("d", 1440),
        ("days", 1440),
        ("w", 7 * 1440),
        ("weeks", 7 * 1440),
        ("y", 365 * 1440),
    ];
    const OTHER_NAMES: [(&str, u64); 3] =
        [("m", 30 * 1440), ("months", 30 * 1440), ("years", 365 * 1440)];
    let number = text.trim_end_matches(char::is_alphabetic);
    let unit = text[number.len()..].to_lowercase();
    let digits = number.trim_start_matches(['+', '-']);
    let sign = &number[..number.len() - digits.len()];
    let is_named = |(known, _): &&(&str, u64)| {
        !unit.is_empty() && (*known == unit || unit.len() > 1 && known.starts_with(&unit))
    };
    let (_, minutes) = MINUTES.iter().chain(&OTHER_NAMES).find(is_named)?;
    let minutes = digits.parse::<u64>().ok()?.checked_mul(*minutes)?;
    let letter = name.chars().nth(1)?;
    Some(match minutes % 1440 {
        0 => format!("ages are in days: -{letter}time {sign}{}", minutes / 1440),
        _ => format!("ages are in minutes here: -{letter}min {sign}{minutes}"),
    })
}

/// Returns a hint for a user who is not known.
pub(super) fn of_user(text: &str) -> Option<String> {
    const SELF: [&str; 5] = ["me", "mine", "myself", "self", "."];
    SELF.contains(&text.to_lowercase().as_str()).then(|| "your own entries: --mine".to_owned())
}

/// Adds a hint to what is wrong, as a line of its own.
pub(super) fn with_hint(said: String, hint: Option<String>) -> Misunderstood {
    Misunderstood { said, hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bug: the end of a line between the two was shown as `?`.
    #[test]
    fn hints_have_a_line_and_words_of_others_have_none() {
        let two = with_hint("unknown predicate `-a\nb'".to_owned(), Some("x\u{2028}y".to_owned()));
        assert_eq!(two.to_string(), "unknown predicate `-a?b'\nx?y");
        assert_eq!(Misunderstood::from("a\nb".to_owned()).to_string(), "a?b");
    }

    #[test]
    fn words_of_people_become_finds() {
        for (word, hint) in [
            ("-sise", Some("there is -size")),
            ("--name", Some("there is -name")),
            ("-sort", Some("there is --sort")),
            ("--max-depth", Some("there is -maxdepth")),
            ("-name=*.c", Some("write -name *.c")),
            ("--sum=x", Some("--sum takes no value")),
            ("--count=5", Some("--count takes no value")),
            ("--mine=5", Some("-mine takes no value")),
            ("-depth=2", Some("-depth takes no value")),
            ("--colour=x", Some("write one of --color=always, --color=auto, --color=never")),
            ("-L", Some("-L goes before paths")),
            ("-xyzzy", None),
            ("--", None),
        ] {
            assert_eq!(of_word(word).as_deref(), hint, "{word}");
        }
        for (size, hint) in [
            ("+1TB", Some("write -size +1T; units are c, k, M, G, T and P")),
            ("10K", Some("write -size 10k; units are c, k, M, G, T and P")),
            ("-5mib", Some("write -size -5M; units are c, k, M, G, T and P")),
            ("1.5G", Some("sizes are whole numbers: write a smaller unit")),
            (">1G", Some("write -size +1G; units are c, k, M, G, T and P")),
            ("<10kb", Some("write -size -10k; units are c, k, M, G, T and P")),
            ("=2G", Some("write -size 2G; units are c, k, M, G, T and P")),
            ("> 5", Some("write -size +5; units are c, k, M, G, T and P")),
            (">1.5G", Some("sizes are whole numbers: write a smaller unit")),
            (">=1G", None),
            ("1,5G", None),
            ("GB", None),
            ("1x", None),
            ("x", None),
        ] {
            assert_eq!(of_size(size).as_deref(), hint, "{size}");
        }
        for (name, age, hint) in [
            ("-mtime", "+1y", Some("ages are in days: -mtime +365")),
            ("-atime", "-2weeks", Some("ages are in days: -atime -14")),
            ("-mtime", "+3h", Some("ages are in minutes here: -mmin +180")),
            ("-cmin", "2d", Some("ages are in days: -ctime 2")),
            ("-mtime", "+6m", Some("ages are in days: -mtime +180")),
            ("-mtime", "+30min", Some("ages are in minutes here: -mmin +30")),
            ("-mtime", "x", None),
            ("-mtime", "y", None),
        ] {
            assert_eq!(of_age(name, age).as_deref(), hint, "{name} {age}");
        }
    }
}
