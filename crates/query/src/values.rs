//! Values of tests that are numbers: sizes, counts, ids, types and permissions.

use crate::test::Types;
use canopy_text::parse_size;

type Result<T> = std::result::Result<T, String>;

/// The unit of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Nothing: an id or a count.
    One,
    /// Bytes, with the units that du(1) and ls(1) have for them.
    Byte,
    /// Bytes, of which the attribute counts 512 at once.
    Block,
}

/// Reads a number. Returns the least one that is not less, and the largest that is not more: the
/// same, but for amounts that are between two.
pub(crate) fn number(name: &str, text: &str, unit: Unit) -> Result<(i128, i128)> {
    match unit {
        Unit::One => whole(name, text).map(|number| (number, number)),
        Unit::Byte => size(text, 1),
        Unit::Block => size(text, 512),
    }
}

fn whole(name: &str, text: &str) -> Result<i128> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        let hint = match name {
            "uid" => ", or user=NAME",
            "gid" => ", or group=NAME",
            "blocks" => " of 512 bytes, or as in allocated>1M",
            _ => "",
        };
        return Err(format!("{name} takes a number{hint}, not '{text}'"));
    }
    decimal(text, "")?;
    let number = text.parse::<u64>().map_err(|_| format!("'{text}' is too large"))?;
    Ok(number.into())
}

/// Refuses zeros in front, which make octal numbers for some programs, and decimal ones for others.
/// `rest` is behind the digits.
fn decimal(digits: &str, rest: &str) -> Result<()> {
    let Some(behind) = digits.strip_prefix('0').filter(|behind| !behind.is_empty()) else {
        return Ok(());
    };
    let number = match behind.trim_start_matches('0') {
        "" => "0",
        number => number,
    };
    Err(format!("numbers are decimal: write '{number}{rest}' without a 0 in front"))
}

/// Reads an amount of bytes, and counts it in blocks of so many.
fn size(text: &str, block: i128) -> Result<(i128, i128)> {
    let invalid = || format!("'{text}' is not a size: give one as in 4096, 10K, 1.5G, 2TiB or 3MB");
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    decimal(whole, &text[whole.len()..])?;
    let wrong_fraction = fraction.contains('.') || number.ends_with('.') || fraction.len() > 15;
    if whole.is_empty() || wrong_fraction {
        return Err(invalid());
    }
    let large = || format!("'{text}' is too large");
    let whole = whole.parse::<u64>().map_err(|_| large())?;
    let parts = 10_i128.pow(fraction.len() as u32);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| invalid())? };
    // At most 2^64 times 10^15 times 2^60, in as many parts.
    let unit = unit_of(suffix.trim_start()).ok_or_else(|| match suffix {
        "b" => format!("'{text}' may be bits, bytes or blocks: write {number}B for bytes"),
        _ => invalid(),
    })?;
    let amount = (i128::from(whole) * parts + fraction).checked_mul(unit.into());
    let amount = amount.ok_or_else(large)?;
    let divisor = parts * block;
    let least = amount / divisor + i128::from(amount % divisor != 0);
    if least > i128::from(u64::MAX) {
        return Err(large());
    }
    Ok((least, amount / divisor))
}

fn unit_of(suffix: &str) -> Option<u64> {
    match suffix {
        "" | "B" | "c" => Some(1),
        // A unit begins with a letter.
        suffix if !suffix.starts_with(|c: char| c.is_ascii_alphabetic()) => None,
        suffix => parse_size(&format!("1{suffix}")).ok(),
    }
}

/// Reads types: letters as find(1) has them, several for any of them, or a word for one.
pub(crate) fn types(text: &str) -> Result<Types> {
    const WORDS: [(&str, char); 12] = [
        ("file", 'f'),
        ("regular", 'f'),
        ("dir", 'd'),
        ("directory", 'd'),
        ("link", 'l'),
        ("symlink", 'l'),
        ("pipe", 'p'),
        ("fifo", 'p'),
        ("socket", 's'),
        ("block", 'b'),
        ("char", 'c'),
        ("character", 'c'),
    ];
    let word = WORDS.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
    if let Some((_, letter)) = word {
        return Ok(Types::of(*letter).unwrap_or_default());
    }
    let invalid = || {
        format!("'{text}' is not a type: give one or more of the letters f, d, l, p, s, b and c")
    };
    let types = text.chars().map(Types::of).try_fold(Types::default(), |all, one| {
        let one = one?;
        Some(all.union(one))
    });
    types.filter(|types| *types != Types::default()).ok_or_else(invalid)
}

/// Reads permissions, which are octal.
pub(crate) fn permissions(text: &str) -> Result<u32> {
    let octal = !text.is_empty() && text.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
    let bits = octal.then(|| u32::from_str_radix(text, 8).ok()).flatten();
    bits.filter(|bits| *bits <= 0o7777).ok_or_else(|| {
        format!("'{text}' are not permissions: give them in octal, as in 644 or 4755")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (text, least, most) in [
            ("0", 0, 0),
            ("4096", 4096, 4096),
            ("10K", 10_240, 10_240),
            ("10k", 10_240, 10_240),
            ("1KB", 1000, 1000),
            ("1KiB", 1024, 1024),
            ("1.5G", 3 << 29, 3 << 29),
            ("1.3K", 1332, 1331),
            ("7B", 7, 7),
            ("7c", 7, 7),
            ("15E", 15 << 60, 15 << 60),
            ("18446744073709551615", u64::MAX.into(), u64::MAX.into()),
        ] {
            assert_eq!(size(text, 1), Ok((least, most)), "{text}");
        }
        assert_eq!(size("1K", 512), Ok((2, 2)));
        assert_eq!(size("1000", 512), Ok((2, 1)));
        assert_eq!(size("0.1K", 512), Ok((1, 0)));
    }

    #[test]
    fn other_values_than_sizes_are_refused() {
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "010",
            "0x10",
            "1Kb",
            "1b",
            "1.",
            ".5",
            "1..5",
            "1.2.3",
            "16E",
            "1Z",
            "99999999999999999999",
            "1 2",
            "1K5",
            "1ä",
            "1.0000000000000001",
            "1Q",
            "1.5.K",
        ] {
            assert!(size(text, 1).is_err(), "{text}");
        }
    }

    #[test]
    fn counts_are_whole() {
        assert_eq!(whole("uid", "1000"), Ok(1000));
        for text in ["", "1K", "-1", "007", "bob", "18446744073709551616"] {
            assert!(whole("uid", text).is_err(), "{text}");
        }
    }

    #[test]
    fn types_are_letters_or_a_word() {
        let types_of = |letters: &str| types(letters).unwrap();
        assert_eq!(types_of("fd"), Types::of('f').unwrap().union(Types::of('d').unwrap()));
        assert_eq!(types_of("dir"), types_of("d"));
        for text in ["", "x", "f,d", "files", "D"] {
            assert!(types(text).is_err(), "{text}");
        }
    }

    #[test]
    fn permissions_are_octal() {
        assert_eq!(permissions("0644"), Ok(0o644));
        assert_eq!(permissions("4755"), Ok(0o4755));
        for text in ["", "888", "+x", "10000", "u=r", "77777777777777"] {
            assert!(permissions(text).is_err(), "{text}");
        }
    }
}
