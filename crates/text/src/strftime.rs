//! Times as strftime(3) shows them in the C locale and the local zone, with what GNU's tools add:
//! `%N`, flags and widths.

use chrono::{DateTime, Datelike, Local};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Half a Gregorian year, in nanoseconds.
pub(crate) const HALF_YEAR_NS: i64 = 31_556_952 / 2 * 1_000_000_000;

/// Conversions that the chrono crate does as the C library.
const COMMON: &str = "%a%A%b%B%C%d%e%g%G%h%H%I%j%k%l%m%M%p%P%s%S%u%U%V%w%W%y%Y%z";

/// Returns a time in the local zone; it is given in nanoseconds since 1970.
pub(crate) fn local(time_ns: i64) -> DateTime<Local> {
    DateTime::from_timestamp_nanos(time_ns).with_timezone(&Local)
}

/// Returns whether a time is of the half year before now, for which the time of day is more use
/// than the year. Both ends of the half year count only if `inclusive`.
pub(crate) fn is_recent(time_ns: i64, now_ns: i64, inclusive: bool) -> bool {
    let begin_ns = now_ns.saturating_sub(HALF_YEAR_NS);
    match inclusive {
        true => (begin_ns..=now_ns).contains(&time_ns),
        false => begin_ns < time_ns && time_ns < now_ns,
    }
}

/// Shows a time of nanoseconds since 1970. Unknown conversions stay as they are.
pub(crate) fn format_time(format: &str, time_ns: i64) -> String {
    let time = local(time_ns);
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
                shown.push('%');
                shown.push_str(&spec[..spec.len() - rest.len()]);
            }
        }
    }
    shown.push_str(rest);
    shown
}

/// Returns what a letter stands for, with its usual padding, or `None` if it is not a conversion.
pub(crate) fn conversion(time: &DateTime<Local>, letter: char, colons: usize) -> Option<String> {
    let spec = match (letter, colons) {
        ('z', 1) => "%:z",
        ('z', 2) => "%::z",
        (_, 1..) => return None,
        ('N', _) => return Some(format!("{:09}", time.timestamp_subsec_nanos())),
        ('c', _) => "%a %b %e %H:%M:%S %Y",
        ('x' | 'D', _) => "%m/%d/%y",
        ('X' | 'T', _) => "%H:%M:%S",
        ('r', _) => "%I:%M:%S %p",
        ('R', _) => "%H:%M",
        ('F', _) => "%Y-%m-%d",
        ('n', _) => "\n",
        ('t', _) => "\t",
        ('%', _) => "%%",
        ('Z', _) => return Some(zone(time)),
        ('q', _) => return Some((time.month0() / 3 + 1).to_string()),
        // The letter stands behind its '%'.
        (letter, _) => COMMON.find(letter).map(|at| &COMMON[at - 1..=at])?,
    };
    Some(time.format(spec).to_string())
}

/// Returns the abbreviation of the local time zone, which the chrono crate does not know.
fn zone(time: &DateTime<Local>) -> String {
    let moment = Timestamp::from_second(time.timestamp()).unwrap_or(Timestamp::UNIX_EPOCH);
    TimeZone::system().to_offset_info(moment).abbreviation().to_owned()
}

/// Applies flags and a width to what a letter stands for.
fn adjusted(mut text: String, letter: char, flags: &str, width: &str) -> String {
    if flags.is_empty() && width.is_empty() {
        return text;
    }
    if flags.contains('^') {
        text = text.to_uppercase();
    }
    if flags.contains('#') {
        text = if letter == 'p' { text.to_lowercase() } else { text.to_uppercase() };
    }
    let pad = flags.chars().rev().find(|flag| matches!(flag, '-' | '_' | '0'));
    let width = width.parse::<usize>().unwrap_or(0).min(1000);
    if letter == 'N' {
        // Fewer digits are those in front.
        text.truncate(if width == 0 { 9 } else { width.min(9) });
        if pad == Some('-') {
            text.truncate(text.trim_end_matches('0').len());
        }
        return text;
    }
    let numeric = "CdegGHIjklmMqsSuUVwWyY".contains(letter);
    if numeric && pad.is_some() {
        let digits = text.trim_start_matches(['0', ' ']);
        let digits = if digits.is_empty() { "0" } else { digits };
        let full = if pad == Some('-') { 0 } else { width.max(text.len()) };
        return padded(digits, if pad == Some('0') { '0' } else { ' ' }, full);
    }
    let zero = pad == Some('0') || (pad.is_none() && numeric && !"ekl".contains(letter));
    padded(&text, if zero { '0' } else { ' ' }, width)
}

fn padded(text: &str, fill: char, width: usize) -> String {
    let mut padded = String::new();
    padded.extend(std::iter::repeat_n(fill, width.saturating_sub(text.len())));
    padded + text
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
            ("%12s|%_12s|%-12s", "001700000003|  1700000003|1700000003"),
            ("%n%t%+%:", "\n\t%+%:"),
        ] {
            assert_eq!(format_time(format, time), shown, "{format}");
        }
    }
}
