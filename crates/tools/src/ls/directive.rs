//! Features of stat(1)'s formats alone: seconds with fractions, backslash escapes.

use canopy_text::{Flags, byte_of_digits, control};

/// Prints seconds since 1970, with as many digits behind the dot as the precision says.
pub(super) fn seconds(flags: &Flags, time_ns: i64, text: &mut Vec<u8>) {
    let places = match flags.precision {
        None => 0,
        Some(_) if flags.dot => 9,
        Some(places) => places,
    };
    let unit = 10_i64.pow(9 - places.min(9) as u32);
    let (mut seconds, nanoseconds) =
        (time_ns.div_euclid(1_000_000_000), time_ns.rem_euclid(1_000_000_000));
    let mut fraction = nanoseconds / unit;
    let negative = seconds < 0;
    if negative && nanoseconds != 0 {
        // As stat does it: cut off towards 1970, but towards the past where nothing is left of the
        // fraction.
        fraction = 1_000_000_000 / unit - fraction - i64::from(nanoseconds % unit != 0);
        seconds += i64::from(fraction != 0);
    }
    let sign = flags.sign(negative);
    let digits = seconds.unsigned_abs().to_string();
    // Columns of the width that the fraction leaves, if that is more than one.
    let room = flags.width.saturating_sub(1 + places);
    let width = match places {
        0 => flags.width,
        _ if flags.left || room <= 1 => 0,
        _ => room,
    };
    let zeros = if flags.zero && !flags.left { width } else { 0 };
    let zeros = "0".repeat(zeros.saturating_sub(sign.len() + digits.len()));
    let whole = Flags { left: flags.left, width, ..Flags::default() };
    let before = text.len();
    whole.pad(format!("{sign}{zeros}{digits}").into_bytes(), text);
    if places == 0 {
        return;
    }
    let written = text.len() - before;
    let known = places.min(9);
    text.extend(format!(".{fraction:0known$}").into_bytes());
    let rest = places - known;
    text.extend(std::iter::repeat_n(b'0', rest));
    if flags.width > written + 1 {
        // stat pads by as much as the digits are too many as well.
        let blank = (flags.width - written - 1).abs_diff(known);
        text.extend(std::iter::repeat_n(b' ', blank.saturating_sub(rest)));
    }
}

/// Prints what follows a backslash of `--printf`.
pub(super) fn escape_sequence(rest: &mut &[u8], text: &mut Vec<u8>) {
    match rest.first().copied() {
        None => text.push(b'\\'),
        Some(b'0'..=b'7') => text.extend(byte_of_digits(rest, 8, 3)),
        Some(b'x') if rest.get(1).is_some_and(u8::is_ascii_hexdigit) => {
            *rest = &rest[1..];
            text.extend(byte_of_digits(rest, 16, 2));
        }
        Some(letter) => {
            *rest = &rest[1..];
            text.push(control(letter).unwrap_or(letter));
        }
    }
}

/// Returns what is wrong with the escapes of a format of `--printf`.
pub(super) fn unknown_escapes(format: &[u8]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut rest = format;
    while let Some(at) = rest.iter().position(|byte| *byte == b'\\') {
        rest = &rest[at + 1..];
        let known = match rest.first().copied() {
            None => {
                warnings.push("backslash at end of format".to_owned());
                return warnings;
            }
            Some(b'x') => rest.get(1).is_some_and(u8::is_ascii_hexdigit),
            Some(b'0'..=b'7' | b'"' | b'\\') => true,
            Some(letter) => control(letter).is_some(),
        };
        let (letter, after) = rest.split_at(1);
        if !known {
            warnings.push(format!("unrecognized escape '\\{}'", letter.escape_ascii()));
        }
        rest = after;
    }
    warnings
}
