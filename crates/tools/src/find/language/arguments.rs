//! The arguments of tests: numbers, types, sizes, modes and ages, with find's words where they are
//! wrong.

use super::moment::{DAY_NS, SECOND_NS};
use super::test::{Number, PermBits, PermMatch, Test};
use canopy_index::column::{ATIME, BTIME, CTIME, Column, MTIME, Time};
use canopy_model::FileType;

const MINUTE_NS: i64 = 60 * SECOND_NS;

/// Returns the column of a time by find's letter: `a`, `B`, `c` or `m`.
pub(super) fn time_column(letter: char) -> Option<Column<Time>> {
    Some(match letter {
        'a' => ATIME,
        'B' => BTIME,
        'c' => CTIME,
        'm' => MTIME,
        _ => return None,
    })
}

pub(super) fn invalid(name: &str, text: &str) -> String {
    format!("invalid argument `{text}' to `{name}'")
}

fn split_sign(text: &str) -> (fn(i64) -> Number, &str) {
    match text.split_at_checked(1) {
        Some(("+", digits)) => (Number::More, digits),
        Some(("-", digits)) => (Number::Less, digits),
        _ => (Number::Exactly, text),
    }
}

fn signed_number(text: &str) -> Option<Number> {
    let (make, digits) = split_sign(text);
    let valid = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    valid.then(|| digits.parse().ok()).flatten().map(make)
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

pub(super) fn parse_size(text: &str) -> Result<Test, String> {
    let (number, unit) = match text.char_indices().last() {
        Some((at, 'b')) => (&text[..at], 512),
        Some((at, 'c')) => (&text[..at], 1),
        Some((at, 'w')) => (&text[..at], 2),
        Some((at, 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        Some((_, digit)) if digit.is_ascii_digit() => (text, 512),
        Some((_, other)) => return Err(format!("invalid -size type `{other}'")),
        None => return Err("invalid null argument to -size".to_owned()),
    };
    let number =
        signed_number(number).ok_or_else(|| format!("Invalid argument `{text}' to -size"))?;
    Ok(Test::Size(number, unit))
}

/// Parses the argument of `-mtime` and its like: `n` means from n to n + 1 days ago. The second by
/// which `-n` reaches further is GNU find's.
pub(super) fn days_test(
    column: Column<Time>,
    now_ns: i64,
    name: &str,
    text: &str,
) -> Result<Test, String> {
    let (kind, ago) = amount(text, DAY_NS).ok_or_else(|| invalid(name, text))?;
    let (after, until) = match kind {
        Number::More(_) => (i64::MIN, now_ns.saturating_sub(DAY_NS).saturating_sub(ago) - 1),
        Number::Less(_) => (now_ns.saturating_sub(SECOND_NS).saturating_sub(ago), i64::MAX),
        Number::Exactly(_) => {
            let until = now_ns.saturating_sub(ago);
            (until.saturating_sub(DAY_NS), until)
        }
    };
    Ok(Test::Time(column, after, until))
}

/// Parses the argument of `-mmin` and its like: `n` means from n - 1 to n minutes ago.
pub(super) fn minutes_test(
    column: Column<Time>,
    now_ns: i64,
    name: &str,
    text: &str,
) -> Result<Test, String> {
    let (kind, ago) = amount(text, MINUTE_NS).ok_or_else(|| invalid(name, text))?;
    let from = now_ns.saturating_sub(ago);
    let (after, until) = match kind {
        Number::More(_) => (i64::MIN, from.saturating_sub(1)),
        Number::Less(_) => (from, i64::MAX),
        Number::Exactly(_) => (from, from.saturating_add(MINUTE_NS)),
    };
    Ok(Test::Time(column, after, until))
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

/// Parses a decimal number with find's sign, times a unit. The number in the kind means nothing.
fn amount(text: &str, unit_ns: i64) -> Option<(Number, i64)> {
    let (make, digits) = split_sign(text);
    let number: f64 = digits.parse().ok().filter(|number: &f64| number.is_finite())?;
    Some((make(0), (number * unit_ns as f64) as i64))
}

pub(super) fn parse_perm(text: &str) -> Result<Test, String> {
    let (kind, mode) = match text.split_at_checked(1) {
        Some(("-", mode)) => (PermMatch::All, mode),
        Some(("/", mode)) => (PermMatch::Any, mode),
        _ => (PermMatch::Exactly, text),
    };
    let digits = !mode.is_empty() && mode.bytes().all(|byte| byte.is_ascii_digit());
    // A '+' before octal digits once meant '/': refused, as by find.
    let old = text.starts_with('+') && text[1..].starts_with(|c: char| c.is_ascii_digit());
    let bits = match digits {
        true => u32::from_str_radix(mode, 8).ok().filter(|bits| *bits <= 0o7777).map(PermBits::of),
        false if old => None,
        false => symbolic_mode(mode, false)
            .and_then(|others| Some(PermBits { others, dirs: symbolic_mode(mode, true)? })),
    };
    bits.map(|bits| Test::Perm(bits, kind)).ok_or_else(|| format!("invalid mode ‘{text}’"))
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
            let bits = permission_bits(&rest[1..end], mode, dir)? & who;
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
    fn symbolic_modes_become_bits() {
        for (text, bits) in [
            ("u=rwx,g=rx", 0o750),
            ("a+r", 0o444),
            ("+w", 0o222),
            ("u+s", 0o4000),
            ("o=t", 0o1000),
            ("ug+rw,g-w", 0o640),
        ] {
            assert_eq!(symbolic_mode(text, false), Some(bits), "{text}");
        }
        assert_eq!(symbolic_mode("u=rwX,go=rX", false), Some(0o644));
        assert_eq!(symbolic_mode("u=rwX,go=rX", true), Some(0o755));
        for wrong in ["q+r", "u=rg", "u=gr"] {
            assert_eq!(symbolic_mode(wrong, false), None, "{wrong}");
        }
    }
}
