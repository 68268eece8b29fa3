//! The texts that GUFI's functions give: modes, categories, sizes, times.

use super::error::{Error, Result};
use canopy_text::mode_string;
use chrono::format::{Item, StrftimeItems};
use chrono::{DateTime, Local, Utc};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 60 * MINUTE_S;
const DAY_S: i64 = 24 * HOUR_S;
const WEEK_S: i64 = 7 * DAY_S;
const MONTH_S: i64 = 30 * DAY_S;
const YEAR_S: i64 = 365 * DAY_S;
const DECADE_S: i64 = 10 * YEAR_S;

/// Letters of the units of powers of 1024 (or 1000).
const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// Writes a mode as ls(1) shows it; all types but directories and links are `-`.
pub(super) fn mode(mode: i64) -> String {
    let mut text = mode_string(mode as u32);
    if !text.starts_with(['d', 'l']) {
        text.replace_range(..1, "-");
    }
    text
}

/// Returns the power of 1000 that a number is in; none below zero.
pub(super) fn integer_category(value: f64) -> Option<&'static str> {
    category(value, 1000.0, ["O", "K", "M", "B", "T", "q"], "Q")
}

/// Returns the power of 1024 that a size is in; none below zero.
pub(super) fn byte_category(value: f64) -> Option<&'static str> {
    category(value, 1024.0, ["B", "K", "M", "G", "T", "P"], "E")
}

fn category(
    value: f64,
    base: f64,
    names: [&'static str; 6],
    last: &'static str,
) -> Option<&'static str> {
    if value.is_nan() || value < 0.0 {
        return None;
    }
    if value == 0.0 {
        return Some("Zero");
    }
    let mut end = base;
    for name in names {
        if value < end {
            return Some(name);
        }
        end *= base;
    }
    Some(last)
}

/// Returns the unit of an age; none for the future.
pub(super) fn age_category(age_s: f64) -> Option<&'static str> {
    if age_s.is_nan() || age_s < 0.0 {
        return None;
    }
    if age_s == 0.0 {
        return Some("Zero");
    }
    let below = [
        (MINUTE_S, "Secs"),
        (HOUR_S, "Mins"),
        (DAY_S, "Hrs"),
        (WEEK_S, "Days"),
        (MONTH_S, "Wks"),
        (YEAR_S, "Mos"),
        (DECADE_S, "Yrs"),
    ];
    Some(below.iter().find(|(end, _)| age_s < *end as f64).map_or("Decs", |(_, name)| name))
}

/// Returns the seconds of the unit that a text begins with; days where it is none.
pub(super) fn unit_seconds(unit: &str) -> i64 {
    match unit.chars().next() {
        Some('s') => 1,
        Some('m') => MINUTE_S,
        Some('h') => HOUR_S,
        Some('w') => WEEK_S,
        Some('M') => MONTH_S,
        Some('y') => YEAR_S,
        Some('D') => DECADE_S,
        _ => DAY_S,
    }
}

/// Writes a size with one decimal and the largest unit of powers of 1024 that leaves it at least 1.
pub(super) fn size(bytes: f64) -> Option<String> {
    let mut value = bytes;
    let mut unit = None;
    for letter in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = Some(letter);
    }
    Some(format!("{value:.1}{}", unit.map(String::from).unwrap_or_default()))
}

/// Returns how many blocks a size fills. The block is `[COUNT][UNIT]`, where the unit is a letter
/// (powers of 1024), `KiB` and the like, or `KB` (powers of 1000). Without a count the unit is
/// appended.
pub(super) fn blocks(size: i64, block: &str) -> Result<String> {
    let bad = || Error::BlockUnit(block.to_owned());
    let size = u64::try_from(size).map_err(|_| Error::Size(size))?;
    let digits = block.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = block.split_at(digits);
    let mut bytes: u64 = if digits == 0 { 1 } else { count.parse().map_err(|_| bad())? };
    if !unit.is_empty() {
        let letter = unit.chars().next().unwrap_or(' ');
        let power = UNITS.iter().position(|known| *known == letter).ok_or_else(bad)?;
        let base: u64 = match &unit[1..] {
            "" | "iB" => 1024,
            "B" => 1000,
            _ => return Err(bad()),
        };
        bytes = base.pow(power as u32 + 1).checked_mul(bytes).ok_or_else(bad)?;
    }
    if bytes == 0 {
        return Err(bad());
    }
    Ok(format!("{}{}", size.div_ceil(bytes), if digits == 0 { unit } else { "" }))
}

/// Returns the text behind the last dot, which may be the first character; none if it is empty.
pub(super) fn extension(name: &str) -> Option<&str> {
    let at = name.rfind('.')?;
    Some(&name[at + 1..]).filter(|extension| !extension.is_empty())
}

/// Returns the last component of a path without slashes at its end.
pub(super) fn base_name(path: &str) -> &str {
    let trimmed = path.trim_end_matches('/');
    if trimmed.is_empty() { "/" } else { &trimmed[trimmed.rfind('/').map_or(0, |at| at + 1)..] }
}

/// Writes a time in seconds since 1970 in the form of strftime(3), in local time or UTC.
pub(super) fn time(format: &str, time_s: i64, utc: bool) -> Result<String> {
    let items: Vec<Item> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        return Err(Error::TimeFormat(format.to_owned()));
    }
    let time = DateTime::<Utc>::from_timestamp(time_s, 0).ok_or(Error::Time(time_s))?;
    Ok(match utc {
        true => time.format_with_items(items.iter()).to_string(),
        false => time.with_timezone(&Local).format_with_items(items.iter()).to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_as_ls_shows_them() {
        for (bits, text) in [
            (0o100_644, "-rw-r--r--"),
            (0o040_755, "drwxr-xr-x"),
            (0o120_777, "lrwxrwxrwx"),
            (0o106_755, "-rwsr-sr-x"),
            (0o041_777, "drwxrwxrwt"),
            (0o047_000, "d--S--S--T"),
            (0, "----------"),
        ] {
            assert_eq!(mode(bits), text, "{bits:o}");
        }
    }

    #[test]
    fn blocks_are_rounded_up_and_carry_the_unit_that_has_no_count() {
        for (size, block, text) in [
            (1024, "K", "1K"),
            (1024, "1K", "1"),
            (1024, "KB", "2KB"),
            (1024, "1KB", "2"),
            (1024, "KiB", "1KiB"),
            (1025, "1KiB", "2"),
            (0, "K", "0K"),
            (1025, "", "1025"),
            (5_000_000, "M", "5M"),
            (1025, "512", "3"),
            (i64::MAX, "E", "8E"),
        ] {
            assert_eq!(blocks(size, block).unwrap(), text, "{size} {block}");
        }
        for block in ["x", "0", "0K", "KX", "KiX", "KiBx", "ü", "99999999999999999999", "99E"] {
            assert!(blocks(1, block).is_err(), "{block}");
        }
        assert!(blocks(-1, "K").is_err());
    }

    #[test]
    fn sizes_and_numbers_fall_into_categories_of_their_powers() {
        for (value, integer, byte) in [
            (0.0, "Zero", "Zero"),
            (1.0, "O", "B"),
            (999.0, "O", "B"),
            (1000.0, "K", "B"),
            (1024.0, "K", "K"),
            (1048576.0, "M", "M"),
            (1e18, "Q", "P"),
            (2e18, "Q", "E"),
        ] {
            assert_eq!(
                (integer_category(value), byte_category(value)),
                (Some(integer), Some(byte)),
                "{value}"
            );
        }
        assert_eq!((integer_category(-1.0), byte_category(f64::NAN)), (None, None));
        let sizes = [(0.0, "0.0"), (1023.0, "1023.0"), (1024.0, "1.0K"), (123_456_789.0, "117.7M")];
        for (bytes, text) in sizes {
            assert_eq!(size(bytes).as_deref(), Some(text));
        }
        assert_eq!(size(f64::MAX).map(|text| text.ends_with('E')), Some(true));
    }

    #[test]
    fn ages_fall_into_categories_of_their_unit() {
        for (age_s, name) in
            [(0, "Zero"), (59, "Secs"), (60, "Mins"), (DAY_S, "Days"), (DECADE_S, "Decs")]
        {
            assert_eq!(age_category(age_s as f64), Some(name));
        }
        assert_eq!(age_category(-1.0), None);
    }

    #[test]
    fn names_and_extensions_end_where_they_do_in_gufi() {
        for (name, base, ext) in [
            ("/a/b/", "b", None),
            ("/", "/", None),
            ("", "/", None),
            ("a", "a", None),
            (".b", ".b", Some("b")),
            ("a.", "a.", None),
            ("x.tar.gz", "x.tar.gz", Some("gz")),
            ("dir.d/file", "file", Some("d/file")),
        ] {
            assert_eq!((base_name(name), extension(name)), (base, ext), "{name}");
        }
    }

    #[test]
    fn times_have_the_form_of_strftime() {
        assert_eq!(time("%F %T", 1_680_818_366, true).unwrap(), "2023-04-06 21:59:26");
        assert_eq!(time("%b %e %H:%M %j %s %%", 0, true).unwrap(), "Jan  1 00:00 001 0 %");
        assert_eq!(time("%F %T", -1, true).unwrap(), "1969-12-31 23:59:59");
        assert!(time("%Q", 0, true).is_err());
        assert!(time("%F", i64::MAX, true).is_err());
    }
}
