//! Times as `--time-style` asks for them, in the C locale.

use chrono::{DateTime, Local};
use std::fmt::Write;

/// Half a Gregorian year, in nanoseconds: what ls(1) takes for recent.
const HALF_YEAR_NS: i64 = 31_556_952 / 2 * 1_000_000_000;

/// Formats of strftime(3) for recent and for other times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeStyle {
    recent: String,
    other: String,
}

impl TimeStyle {
    fn of(recent: &str, other: &str) -> Self {
        TimeStyle { recent: recent.to_owned(), other: other.to_owned() }
    }

    /// `full-iso`: all digits and the zone.
    pub fn full_iso() -> Self {
        TimeStyle::of("%Y-%m-%d %H:%M:%S.%N %z", "%Y-%m-%d %H:%M:%S.%N %z")
    }

    /// `long-iso`: up to minutes, as du(1) does by default.
    pub fn long_iso() -> Self {
        TimeStyle::of("%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M")
    }

    /// `locale`: what ls(1) does by default.
    pub fn locale() -> Self {
        TimeStyle::of("%b %e %H:%M", "%b %e  %Y")
    }

    /// The style of that name, as du(1) knows it.
    pub fn parse_for_du(text: &str) -> Result<Self, String> {
        match text.strip_prefix('+') {
            Some(format) => Ok(TimeStyle::of(format, format)),
            None if named("iso", text) => Ok(TimeStyle::of("%Y-%m-%d", "%Y-%m-%d")),
            None if named("long-iso", text) => Ok(TimeStyle::long_iso()),
            None if named("full-iso", text) => Ok(TimeStyle::full_iso()),
            None => {
                Err(format!("unknown time style '{text}': give full-iso, long-iso, iso or +FORMAT"))
            }
        }
    }

    /// The style of that name, as ls(1) knows it. `+FORMAT` may have two lines: for other and for
    /// recent times. A style of `posix-` is for all locales but POSIX's.
    pub fn parse_for_ls(text: &str) -> Result<Self, String> {
        let (posix, text) = match text.strip_prefix("posix-") {
            Some(text) => (true, text),
            None => (false, text),
        };
        match text.strip_prefix('+') {
            Some(format) => match format.split_once('\n') {
                Some((_, recent)) if recent.contains('\n') => {
                    Err(format!("'{text}' has too many lines"))
                }
                Some((other, recent)) => Ok(TimeStyle::of(recent, other)),
                None => Ok(TimeStyle::of(format, format)),
            },
            None if posix && is_posix_locale() => Ok(TimeStyle::locale()),
            None if named("locale", text) => Ok(TimeStyle::locale()),
            None if named("iso", text) => Ok(TimeStyle::of("%m-%d %H:%M", "%Y-%m-%d ")),
            None if named("long-iso", text) => Ok(TimeStyle::long_iso()),
            None if named("full-iso", text) => Ok(TimeStyle::full_iso()),
            None => Err(format!(
                "unknown time style '{text}': give full-iso, long-iso, iso, locale or +FORMAT"
            )),
        }
    }

    /// Shows a time of nanoseconds since 1970 in the local zone.
    pub fn show(&self, time_ns: i64, now_ns: i64) -> String {
        let recent = now_ns.saturating_sub(HALF_YEAR_NS) < time_ns && time_ns < now_ns;
        format_time(if recent { &self.recent } else { &self.other }, time_ns)
    }
}

/// Whether times are shown as the POSIX locale has them.
fn is_posix_locale() -> bool {
    let variables =
        ["LC_ALL", "LC_TIME", "LANG"].map(|name| std::env::var(name).unwrap_or_default());
    let locale = variables.into_iter().find(|value| !value.is_empty());
    locale.is_none_or(|locale| matches!(locale.as_str(), "C" | "POSIX"))
}

/// Whether a text is a name or the beginning of it.
fn named(name: &str, text: &str) -> bool {
    !text.is_empty() && name.starts_with(text)
}

/// A time as strftime(3) shows it, with GNU's `%N`, flags and widths.
pub fn format_time(format: &str, time_ns: i64) -> String {
    let time = DateTime::from_timestamp_nanos(time_ns).with_timezone(&Local);
    let mut shown = String::new();
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        shown.push_str(&rest[..at]);
        let spec = &rest[at + 1..];
        let flags = spec.len() - spec.trim_start_matches(['-', '_', '0', '^', '#']).len();
        let after = spec[flags..].trim_start_matches(|c: char| c.is_ascii_digit());
        let width = &spec[flags..spec.len() - after.len()];
        let after = after.strip_prefix(['E', 'O']).unwrap_or(after);
        let colons = after.len() - after.trim_start_matches(':').len();
        let Some(letter) = after[colons..].chars().next() else {
            shown.push_str(&rest[at..]);
            return shown;
        };
        rest = &after[colons + letter.len_utf8()..];
        match conversion(&time, letter, colons) {
            Some(text) => shown.push_str(&adjusted(text, letter, &spec[..flags], width)),
            None => {
                // What is no conversion stands for itself.
                shown.push('%');
                shown.push_str(&spec[..spec.len() - rest.len()]);
            }
        }
    }
    shown.push_str(rest);
    shown
}

/// What one letter stands for, with its usual padding.
fn conversion(time: &DateTime<Local>, letter: char, colons: usize) -> Option<String> {
    let spec = match (letter, colons) {
        ('z', 1) => "%:z",
        ('z', 2) => "%::z",
        (_, 1..) => return None,
        ('N', _) => return Some(format!("{:09}", time.timestamp_subsec_nanos())),
        ('s', _) => return Some(time.timestamp().to_string()),
        ('P', _) => return Some(time.format("%P").to_string()),
        ('c', _) => "%a %b %e %H:%M:%S %Y",
        ('x' | 'D', _) => "%m/%d/%y",
        ('X' | 'T', _) => "%H:%M:%S",
        ('r', _) => "%I:%M:%S %p",
        ('R', _) => "%H:%M",
        ('F', _) => "%Y-%m-%d",
        ('n', _) => return Some("\n".to_owned()),
        ('t', _) => return Some("\t".to_owned()),
        ('%', _) => return Some("%".to_owned()),
        ('Z', _) => return Some(zone(time)),
        ('q', _) => return Some(((chrono::Datelike::month0(time) / 3) + 1).to_string()),
        (letter, _) if "aAbBhCdeGgHIjklmMpSuUVwWyYz".contains(letter) => {
            return Some(time.format(&format!("%{letter}")).to_string());
        }
        _ => return None,
    };
    Some(time.format(spec).to_string())
}

/// The abbreviation of the time zone, which the chrono crate does not know for the local one.
fn zone(time: &DateTime<Local>) -> String {
    if time.offset().local_minus_utc() == 0 {
        "UTC".to_owned()
    } else {
        time.format("%z").to_string()
    }
}

/// Applies flags and a width.
fn adjusted(text: String, letter: char, flags: &str, width: &str) -> String {
    let mut text = if flags.contains('^') { text.to_uppercase() } else { text };
    if flags.contains('#') {
        text = if letter == 'p' { text.to_lowercase() } else { text.to_uppercase() };
    }
    let numeric = "CdegGHIjklmMNqsSuUVwWyY".contains(letter);
    let pad = flags.chars().rev().find(|flag| matches!(flag, '-' | '_' | '0'));
    let width: usize = width.parse::<usize>().unwrap_or(0).min(1000);
    if letter == 'N' {
        // Fewer digits are those in front.
        text.truncate(if width == 0 { 9 } else { width.min(9) });
        let trimmed = text.trim_end_matches('0').len();
        if pad == Some('-') {
            text.truncate(trimmed);
        }
        return text;
    }
    if numeric && pad.is_some() {
        let digits = text.trim_start_matches(['0', ' ']);
        let digits = if digits.is_empty() { "0" } else { digits };
        let full = width.max(if pad == Some('-') { 0 } else { text.len() });
        let fill = if pad == Some('0') { '0' } else { ' ' };
        let mut padded = String::new();
        (digits.len()..full).filter(|_| pad != Some('-')).for_each(|_| padded.push(fill));
        return padded + digits;
    }
    let fill = match pad {
        Some('0') => '0',
        None if numeric && !"ekl".contains(letter) => '0',
        _ => ' ',
    };
    let mut padded = String::new();
    (text.len()..width).for_each(|_| padded.push(fill));
    write!(padded, "{text}").expect("writing to memory does not fail");
    padded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_flags_and_widths() {
        let time = 1_700_000_003_045_000_000;
        for (format, shown) in [
            ("%s.%N|%3N|%s", "1700000003.045000000|045|1700000003"),
            ("%%|%Q|%", "%|%Q|%"),
            ("%5s|%-N", "1700000003|045"),
        ] {
            assert_eq!(format_time(format, time), shown, "{format}");
        }
    }

    #[test]
    fn half_a_year_is_recent() {
        let style = TimeStyle::parse_for_ls("+other\nrecent").unwrap();
        let now = 2 * HALF_YEAR_NS;
        let shown =
            [now, now - 1, HALF_YEAR_NS + 1, HALF_YEAR_NS].map(|time| style.show(time, now));
        assert_eq!(shown, ["other", "recent", "recent", "other"]);
    }
}
