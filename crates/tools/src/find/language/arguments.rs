//! The arguments of tests: numbers, types, sizes, modes and ages, with find's words where they are
//! wrong.

use super::hints::{Misunderstood, of_age, of_size, of_user, with_hint};
use super::moment::{DAY_NS, SECOND_NS};
use super::test::{Number, Test};
use canopy_model::FileType;
use canopy_query::{AttributeTest, Field, PermissionMatch, Span};

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// The bits that `-perm` asks for, which `X` makes others for directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PermBits {
    /// Directories.
    pub(super) dirs: u32,
    /// All other entries.
    pub(super) others: u32,
}

/// Returns the time that find has a letter for: `a`, `B`, `c` or `m`.
pub(super) fn time_field(letter: char) -> Option<Field> {
    Some(match letter {
        'a' => Field::Atime,
        'B' => Field::Btime,
        'c' => Field::Ctime,
        'm' => Field::Mtime,
        _ => return None,
    })
}

/// Returns the test that a time is later than the first moment (exclusive) and up to the second one
/// (inclusive), in nanoseconds since 1970; the least `i64` stands for no moment.
pub(super) fn time_test(field: Field, after: i64, until: i64) -> Test {
    let least = if after == i64::MIN { after.into() } else { i128::from(after) + 1 };
    Test::Condition(AttributeTest::Span(field, Span { least, most: until.into() }))
}

pub(super) fn invalid(name: &str, text: &str) -> String {
    format!("invalid argument `{text}' to `{name}'")
}

fn invalid_age(name: &str, text: &str) -> Misunderstood {
    with_hint(invalid(name, text), of_age(name, text))
}

fn split_sign(text: &str) -> (fn(u64) -> Number, &str) {
    match text.split_at_checked(1) {
        Some(("+", digits)) => (Number::More, digits),
        Some(("-", digits)) => (Number::Less, digits),
        _ => (Number::Exactly, text),
    }
}

/// Takes a number as strtoumax(3) does, with find's sign in front.
fn signed_number(text: &str) -> Option<Number> {
    let (make, number) = split_sign(text);
    let number = number.trim_start_matches(is_space);
    let digits = number.strip_prefix('+').unwrap_or(number);
    let number: u64 = is_digits(digits).then(|| digits.parse().ok())??;
    Some(make(number))
}

/// Returns whether a text is digits and nothing else.
pub(super) fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether isspace(3) takes it for white space.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

pub(super) fn parse_number(name: &str, text: &str) -> Result<Number, String> {
    signed_number(text).ok_or_else(|| invalid(name, text))
}

/// Parses the letters of `-type` and `-xtype`.
pub(super) fn parse_types(name: &str, text: &str) -> Result<Vec<FileType>, String> {
    let mut types = Vec::new();
    let mut letters = text.chars();
    loop {
        let Some(letter) = letters.next() else {
            return Err(if text.is_empty() {
                format!("Arguments to {name} should contain at least one letter")
            } else {
                format!(
                    "Last file type in list argument to {name} is missing, i.e., list is ending \
                     on: ','"
                )
            });
        };
        let one = match letter {
            'f' => FileType::Regular,
            'd' => FileType::Directory,
            'l' => FileType::Symlink,
            'p' => FileType::Fifo,
            's' => FileType::Socket,
            'b' => FileType::Block,
            'c' => FileType::Character,
            other => return Err(format!("Unknown argument to {name}: {other}")),
        };
        if types.contains(&one) {
            return Err(format!("Duplicate file type '{letter}' in the argument list to {name}."));
        }
        types.push(one);
        match letters.next() {
            None => return Ok(types),
            Some(',') => {}
            Some(_) => {
                return Err(format!("Must separate multiple arguments to {name} using: ','"));
            }
        }
    }
}

pub(super) fn parse_size(text: &str) -> Result<Test, Misunderstood> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'b')) => (&text[..at], 512),
        Some((at, 'c')) => (&text[..at], 1),
        Some((at, 'w')) => (&text[..at], 2),
        Some((at, 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        // Unlike find(1), but like other finds.
        Some((at, 'T')) => (&text[..at], 1 << 40),
        Some((at, 'P')) => (&text[..at], 1 << 50),
        Some((_, digit)) if digit.is_ascii_digit() => (text, 512),
        Some((_, other)) => {
            return Err(with_hint(format!("invalid -size type `{other}'"), of_size(text)));
        }
        None => return Err("invalid null argument to -size".to_owned().into()),
    };
    let invalid = || with_hint(format!("Invalid argument `{text}' to -size"), of_size(text));
    let number = signed_number(number).ok_or_else(invalid)?;
    Ok(number.of(Field::Size, unit))
}

/// Parses the argument of `-mtime` and its like: `n` means from n to n + 1 days ago. The second by
/// which `-n` reaches further is GNU find's.
pub(super) fn days_test(
    field: Field,
    now_ns: i64,
    name: &str,
    text: &str,
) -> Result<Test, Misunderstood> {
    let (kind, ago) = amount(text, DAY_NS).ok_or_else(|| invalid_age(name, text))?;
    let (after, until) = match kind {
        Number::More(_) => (i64::MIN, now_ns.saturating_sub(DAY_NS).saturating_sub(ago) - 1),
        Number::Less(_) => (now_ns.saturating_sub(SECOND_NS).saturating_sub(ago), i64::MAX),
        Number::Exactly(_) => {
            let until = now_ns.saturating_sub(ago);
            (until.saturating_sub(DAY_NS), until)
        }
    };
    Ok(time_test(field, after, until))
}

/// Parses the argument of `-mmin` and its like: `n` means from n - 1 to n minutes ago.
pub(super) fn minutes_test(
    field: Field,
    now_ns: i64,
    name: &str,
    text: &str,
) -> Result<Test, Misunderstood> {
    let (kind, ago) = amount(text, MINUTE_NS).ok_or_else(|| invalid_age(name, text))?;
    let from = now_ns.saturating_sub(ago);
    let (after, until) = match kind {
        Number::More(_) => (i64::MIN, from.saturating_sub(1)),
        Number::Less(_) => (from, i64::MAX),
        Number::Exactly(_) => (from, from.saturating_add(MINUTE_NS)),
    };
    Ok(time_test(field, after, until))
}

/// Parses the argument of `-used`, how long after its last change an entry was last read: `n`
/// means from n - 1 to n days.
pub(super) fn used_test(text: &str) -> Result<Test, String> {
    let (kind, days) =
        amount(text, DAY_NS).ok_or_else(|| format!("Invalid argument {text} to -used"))?;
    Ok(match kind {
        Number::More(_) => Test::Used(days, i64::MAX),
        Number::Less(_) => Test::Used(-1, days.saturating_sub(1)),
        Number::Exactly(_) => Test::Used((days - DAY_NS - 1).max(-1), days - 1),
    })
}

/// Parses a number with find's sign, times a unit. The number in the kind means nothing.
fn amount(text: &str, unit_ns: i64) -> Option<(Number, i64)> {
    let (make, number) = split_sign(text);
    Some((make(0), (floating(number)? * unit_ns as f64) as i64))
}

/// Takes a number as strtod(3) does: decimal, hexadecimal or infinite.
fn floating(text: &str) -> Option<f64> {
    let text = text.trim_start_matches(is_space);
    let (negative, digits) = match text.split_at_checked(1) {
        Some(("-", digits)) => (true, digits),
        Some(("+", digits)) => (false, digits),
        _ => (false, text),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits)?,
        None if digits.starts_with(['+', '-']) => return None,
        None => digits.parse().ok()?,
    };
    // Too large a number is wrong, but infinity has a name.
    let is_wrong = number.is_nan() || number.is_infinite() && digits.starts_with(char::is_numeric);
    (!is_wrong).then_some(if negative { -number } else { number })
}

/// Takes the digits of a hexadecimal number, with a point and an exponent of two.
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = match text.split_once(['p', 'P']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut number = 0.0;
    for digit in whole.chars().chain(fraction.chars()) {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    let shift = i32::try_from(fraction.len()).ok()?.checked_mul(4)?;
    Some(number * f64::powi(2.0, i32::checked_sub(exponent, shift)?))
}

/// Takes the argument of `-user` or `-group`, by which `id` looks up whom the system knows.
pub(super) fn parse_owner(
    text: &str,
    id: impl Fn(&str) -> Option<u32>,
    is_user: bool,
) -> Result<Number, Misunderstood> {
    let exactly = |id: u32| Ok(Number::Exactly(id.into()));
    if is_digits(text) {
        return match id(text).map(exactly) {
            Some(known) => known,
            None => Err(format!("{text}: Numerical result out of range").into()),
        };
    }
    // A sign is part of no number here.
    if let Some(id) = id(text).filter(|_| !text.starts_with('+')) {
        return exactly(id);
    }
    Err(match (is_user, text) {
        (true, "") => "The argument to -user should not be empty".to_owned().into(),
        (false, "") => "argument to -group is empty, but should be a group name".to_owned().into(),
        (true, name) => {
            with_hint(format!("‘{name}’ is not the name of a known user"), of_user(name))
        }
        (false, name) => {
            let said = format!("‘{name}’ is not the name of an existing group");
            match name.trim_start_matches(|c: char| c.is_ascii_digit()) {
                suffix if suffix.len() < name.len() => format!(
                    "{said} and it does not look like a numeric group ID because it has the \
                     unexpected suffix ‘{suffix}’"
                ),
                _ => said,
            }
            .into()
        }
    })
}

pub(super) fn parse_perm(text: &str) -> Result<(PermBits, PermissionMatch), String> {
    let (kind, mode) = match text.split_at_checked(1) {
        Some(("-", mode)) => (PermissionMatch::All, mode),
        Some(("/", mode)) => (PermissionMatch::Any, mode),
        _ => (PermissionMatch::Exactly, text),
    };
    let digits = is_digits(mode);
    // A '+' before octal digits once meant '/': refused, as by find.
    let old = text.starts_with('+') && text[1..].starts_with(|c: char| c.is_ascii_digit());
    let bits = match digits {
        true => octal(mode).map(|bits| PermBits { dirs: bits, others: bits }),
        false if old => None,
        false => symbolic_mode(mode, false)
            .and_then(|others| Some(PermBits { others, dirs: symbolic_mode(mode, true)? })),
    };
    bits.map(|bits| (bits, kind)).ok_or_else(|| format!("invalid mode ‘{text}’"))
}

/// Takes a mode in octal digits.
fn octal(digits: &str) -> Option<u32> {
    u32::from_str_radix(digits, 8).ok().filter(|bits| *bits <= 0o7777)
}

/// Returns the bits that a symbolic mode such as `u=rw,g+x` makes of none, for a directory or for
/// what is none.
fn symbolic_mode(text: &str, dir: bool) -> Option<u32> {
    let mut mode = 0_u32;
    for clause in text.split(',') {
        let operators = clause.find(['+', '-', '='])?;
        let mut who = 0;
        for class in clause[..operators].chars() {
            who |= match class {
                'u' => 0o4700,
                'g' => 0o2070,
                'o' => 0o1007,
                'a' => 0o7777,
                _ => return None,
            };
        }
        if who == 0 {
            who = 0o7777;
        }
        let mut rest = &clause[operators..];
        while let Some(operator) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |at| at + 1);
            let letters = &rest[1..end];
            let bits = match is_digits(letters) {
                // For all, where nobody is named, and at the end of the clause.
                true => octal(letters).filter(|_| operators == 0 && end == rest.len())?,
                false => permission_bits(letters, mode, dir)? & who,
            };
            match operator {
                '+' => mode |= bits,
                '-' => mode &= !bits,
                _ => mode = (mode & !who) | bits,
            }
            rest = &rest[end..];
        }
    }
    Some(mode)
}

/// Returns the bits that letters stand for, of a mode so far. A class to copy from stands alone.
fn permission_bits(letters: &str, mode: u32, dir: bool) -> Option<u32> {
    let copied = |shift: u32| (mode >> shift & 7) * 0o111;
    match letters {
        "u" => return Some(copied(6)),
        "g" => return Some(copied(3)),
        "o" => return Some(copied(0)),
        _ => {}
    }
    letters.chars().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if dir || mode & 0o111 != 0 => 0o111,
                'X' => 0,
                's' => 0o6000,
                't' => 0o1000,
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_library() {
        for (text, number) in [
            ("+1", Some(Number::More(1))),
            ("-1", Some(Number::Less(1))),
            ("++0", Some(Number::More(0))),
            ("- 3", Some(Number::Less(3))),
            (" 1", Some(Number::Exactly(1))),
            ("18446744073709551615", Some(Number::Exactly(u64::MAX))),
            ("18446744073709551616", None),
            ("--1", None),
            ("+-1", None),
            ("1 ", None),
            ("0x1", None),
            ("+", None),
            ("", None),
        ] {
            assert_eq!(signed_number(text), number, "{text}");
        }
        for (text, number) in [
            ("1", Some(1.0)),
            (" 1", Some(1.0)),
            ("+1.5", Some(1.5)),
            ("-.5", Some(-0.5)),
            ("2.", Some(2.0)),
            ("1e2", Some(100.0)),
            ("0x10", Some(16.0)),
            ("0x1.8p1", Some(3.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("1e-400", Some(0.0)),
            ("1e400", None),
            ("nan", None),
            ("+-1", None),
            ("0x", None),
            ("0x1p", None),
            ("1 ", None),
            ("", None),
        ] {
            assert_eq!(floating(text), number, "{text}");
        }
    }

    #[test]
    fn symbolic_modes_become_bits() {
        for (text, bits) in [
            ("u=rwx,g=rx", 0o750),
            ("a+r", 0o444),
            ("+w", 0o222),
            ("u+s", 0o4000),
            ("o=t", 0o1000),
            ("ug+rw,g-w", 0o640),
            ("=644", 0o644),
            ("a+x,-11", 0o100),
        ] {
            assert_eq!(symbolic_mode(text, false), Some(bits), "{text}");
        }
        assert_eq!(symbolic_mode("u=rwX,go=rX", false), Some(0o644));
        assert_eq!(symbolic_mode("u=rwX,go=rX", true), Some(0o755));
        for wrong in ["q+r", "u=rg", "u=gr", "u=7", "=8", "=10000", "=1+r"] {
            assert_eq!(symbolic_mode(wrong, false), None, "{wrong}");
        }
    }
}
