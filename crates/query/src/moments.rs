//! Times of queries: dates, seconds since 1970, and durations from the present.
//!
//! A date stands for all of its day, a minute for all of its seconds, and so on, so that of `<`,
//! `=` and `>` exactly one is true of any time. A duration leads to a moment, which no file's time
//! is by more than chance.

use crate::Context;
use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp, Zoned};

const SECOND_NS: i128 = 1_000_000_000;
const MINUTE_NS: i128 = 60 * SECOND_NS;
const HOUR_NS: i128 = 60 * MINUTE_NS;
const DAY_NS: i128 = 24 * HOUR_NS;

/// The times that a value stands for, from the first to the last, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    pub first_ns: i64,
    pub last_ns: i64,
    /// Whether it is a moment that depends on the present.
    pub relative: bool,
}

type Result<T> = std::result::Result<T, String>;

/// Reads a time.
pub(crate) fn times(text: &str, context: &Context<'_>) -> Result<Times> {
    let lower = text.to_ascii_lowercase();
    match lower.as_str() {
        "now" => return moment(context.now_ns.into()),
        "today" => return day(local(context).date(), &context.zone),
        "yesterday" => {
            let yesterday = local(context).date().yesterday().map_err(|_| beyond(text))?;
            return day(yesterday, &context.zone);
        }
        _ => {}
    }
    match lower.as_bytes() {
        [b'@', ..] => seconds(&lower[1..]).ok_or_else(|| invalid(text))?,
        [b'-', ..] => ago(&lower[1..], context),
        [b'+', ..] => from_now(&lower[1..], context),
        [b'0'..=b'9', ..] => date(&lower, context),
        _ => Err(invalid(text)),
    }
}

/// Reads how long ago something was, such as `30d` or `1h30min`.
pub(crate) fn ago(text: &str, context: &Context<'_>) -> Result<Times> {
    away(text, context, -1)
}

fn from_now(text: &str, context: &Context<'_>) -> Result<Times> {
    away(text, context, 1)
}

fn invalid(text: &str) -> String {
    format!(
        "'{text}' is not a time: give a date as in 2026-11-22 or 2026-11-22T10:00Z, a duration as \
         in -30d, seconds since 1970 as in @1700000000, today, yesterday or now"
    )
}

fn beyond(text: &str) -> String {
    format!("times reach from 1678 to 2261, and '{text}' is none of these")
}

fn local(context: &Context<'_>) -> Zoned {
    let now = Timestamp::from_nanosecond(context.now_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    now.to_zoned(context.zone.clone())
}

fn moment(time_ns: i128) -> Result<Times> {
    let time_ns = i64::try_from(time_ns).map_err(|_| beyond("that"))?;
    Ok(Times { first_ns: time_ns, last_ns: time_ns, relative: true })
}

/// Returns all times from one up to, but not including, another.
fn span(first_ns: i128, beyond_ns: i128) -> Option<Times> {
    let (first_ns, last_ns) = (first_ns.try_into().ok()?, (beyond_ns - 1).try_into().ok()?);
    Some(Times { first_ns, last_ns, relative: false })
}

/// Reads digits, with a fraction of at most nine more, as an amount of units. Returns how many
/// nanoseconds the last digit stands for, too.
fn decimal(text: &str, unit_ns: i128) -> Option<(i128, i128)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let dangling = whole.is_empty() || text.ends_with('.');
    if dangling || !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let parts = 10_i128.pow(fraction.len() as u32);
    let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<i128>().ok()? };
    let whole = i128::from(whole.parse::<u64>().ok()?);
    Some((whole * unit_ns + fraction * unit_ns / parts, unit_ns / parts))
}

/// Reads seconds since 1970, which stand for as much as their last digit does.
fn seconds(text: &str) -> Option<Result<Times>> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let (time_ns, digit_ns) = decimal(digits, SECOND_NS)?;
    let time_ns = sign * time_ns;
    // The first and the last nanosecond that there are end amid a second.
    Some(span(time_ns, time_ns + digit_ns).ok_or_else(|| beyond(&format!("@{text}"))))
}

/// Reads a duration, and returns the moment so far away from the present.
fn away(text: &str, context: &Context<'_>, sign: i8) -> Result<Times> {
    let invalid = || {
        format!("'{text}' is not a duration: give one as in 30d, with s, min, h, d, w, mon or y")
    };
    let (mut rest, mut duration_ns, mut months) = (text.trim(), 0_i128, 0_i64);
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, behind) = rest.split_at(rest.find(|c| !is_number(c)).unwrap_or(rest.len()));
        let behind = behind.trim_start();
        let end = behind.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(end);
        let parsed = match unit_of(unit) {
            Some(Unit::Nanoseconds(unit_ns)) => decimal(number, unit_ns).map(|(ns, _)| (ns, 0)),
            Some(Unit::Months(unit)) => {
                let months = number.parse::<u16>().ok();
                months.map(|number| (0, i64::from(number) * unit))
            }
            None if unit == "m" => {
                return Err(format!("'{text}' may mean minutes or months: write min or mon"));
            }
            None if unit.is_empty() => {
                return Err(format!("'{text}' needs a unit: s, min, h, d, w, mon or y"));
            }
            None => None,
        };
        let (more_ns, more_months) = parsed.ok_or_else(invalid)?;
        duration_ns = duration_ns.saturating_add(more_ns);
        months += more_months;
        rest = behind.trim_start();
    }
    if text.trim().is_empty() {
        return Err(invalid());
    }
    let span = Span::new().try_months(i64::from(sign) * months).map_err(|_| beyond(text))?;
    let base = local(context).checked_add(span).map_err(|_| beyond(text))?;
    let time_ns = base.timestamp().as_nanosecond() + i128::from(sign) * duration_ns;
    moment(time_ns).map_err(|_| beyond(text))
}

enum Unit {
    Nanoseconds(i128),
    Months(i64),
}

fn unit_of(word: &str) -> Option<Unit> {
    Some(match word {
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Nanoseconds(SECOND_NS),
        "min" | "mins" | "minute" | "minutes" => Unit::Nanoseconds(MINUTE_NS),
        "h" | "hour" | "hours" => Unit::Nanoseconds(HOUR_NS),
        "d" | "day" | "days" => Unit::Nanoseconds(DAY_NS),
        "w" | "week" | "weeks" => Unit::Nanoseconds(7 * DAY_NS),
        "mon" | "month" | "months" => Unit::Months(1),
        "y" | "year" | "years" => Unit::Months(12),
        _ => return None,
    })
}

/// Reads a date, as ISO 8601 writes it, or parts of one from the left: a year, a month, a day, a
/// minute, a second, a fraction of one.
fn date(text: &str, context: &Context<'_>) -> Result<Times> {
    if text.len() != 4 && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!(
            "'{text}' may be a date, seconds or days: write 2026-11-22, @{text}, or -{text}d for \
             so many days ago"
        ));
    }
    if text.ends_with(|c: char| c.is_ascii_alphabetic()) && !text.contains('-') {
        return Err(format!("'{text}' may be ago or to come: write -{text}, or age>{text}"));
    }
    let (date, time) = match text.split_once(['t', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let (date, time, zone) = match time {
        Some(time) => {
            let (time, zone) = split_zone(time);
            (date, Some(time), zone)
        }
        None => match date.find(['z', '+']) {
            Some(at) => (&date[..at], None, &date[at..]),
            None => (date, None, ""),
        },
    };
    let zone = match zone {
        "" => context.zone.clone(),
        zone => zone_of(zone).ok_or_else(|| invalid(text))?,
    };
    match time {
        None => calendar(date, &zone).ok_or_else(|| invalid(text))?,
        Some(time) => {
            let Some(first) = day_of(date) else { return Err(invalid(text)) };
            let (time, length_ns) = time_of_day(first, time).ok_or_else(|| invalid(text))?;
            let ambiguous = zone.to_ambiguous_zoned(time);
            if ambiguous.is_ambiguous() {
                return Err(format!(
                    "clocks were set at '{text}': add a zone, such as Z or +01:00"
                ));
            }
            let first = ambiguous.compatible().map_err(|_| beyond(text))?;
            let first_ns = first.timestamp().as_nanosecond();
            span(first_ns, first_ns + length_ns).ok_or_else(|| beyond(text))
        }
    }
}

/// Takes the zone off the end of a time of day.
fn split_zone(time: &str) -> (&str, &str) {
    time.split_at(time.find(['z', '+', '-']).unwrap_or(time.len()))
}

/// Reads `z`, `+01`, `+0100` or `+01:00`.
fn zone_of(text: &str) -> Option<TimeZone> {
    if text == "z" {
        return Some(TimeZone::UTC);
    }
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let digits = text.get(1..).filter(|digits| digits.is_ascii())?;
    let (hours, minutes) = match digits.len() {
        2 => (digits, "00"),
        4 => digits.split_at(2),
        5 => digits.split_once(':')?,
        _ => return None,
    };
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2).filter(|number| *number < 60)?);
    let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60;
    Offset::from_seconds(sign * seconds).ok().map(TimeZone::fixed)
}

/// Reads a number of so many digits.
fn number(text: &str, digits: usize) -> Option<i16> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten()
}

/// Reads a year, a month or a day.
fn calendar(text: &str, zone: &TimeZone) -> Option<Result<Times>> {
    let parts: Vec<&str> = text.split('-').collect();
    let (first, length) = match parts[..] {
        [year] => (Date::new(number(year, 4)?, 1, 1).ok()?, Span::new().years(1)),
        [year, month] => {
            let month = number(month, 2)? as i8;
            (Date::new(number(year, 4)?, month, 1).ok()?, Span::new().months(1))
        }
        _ => (day_of(text)?, Span::new().days(1)),
    };
    let beyond = || beyond(text);
    let Ok(next) = first.checked_add(length) else { return Some(Err(beyond())) };
    Some(between(first, next, zone).ok_or_else(beyond))
}

fn day_of(text: &str) -> Option<Date> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let date = Date::new(number(year, 4)?, number(month, 2)? as i8, number(day, 2)? as i8);
    date.ok().filter(|_| parts.next().is_none())
}

fn day(date: Date, zone: &TimeZone) -> Result<Times> {
    let next = date.tomorrow().ok();
    let times = next.and_then(|next| between(date, next, zone));
    times.ok_or_else(|| beyond(&date.to_string()))
}

/// Returns the times from the start of one day up to that of another.
fn between(first: Date, next: Date, zone: &TimeZone) -> Option<Times> {
    let start = |date: Date| Some(date.to_zoned(zone.clone()).ok()?.timestamp().as_nanosecond());
    span(start(first)?, start(next)?)
}

/// Reads a time of day. Returns how many nanoseconds it stands for, too.
fn time_of_day(date: Date, text: &str) -> Option<(DateTime, i128)> {
    let mut parts = text.splitn(3, ':');
    let (hour, minute) = (number(parts.next()?, 2)? as i8, number(parts.next()?, 2)? as i8);
    let Some(second) = parts.next() else {
        let time = jiff::civil::Time::new(hour, minute, 0, 0).ok()?;
        return Some((date.to_datetime(time), MINUTE_NS));
    };
    let whole = number(second.split('.').next()?, 2)? as i8;
    let (second_ns, digit_ns) = decimal(second, SECOND_NS)?;
    let rest_ns = (second_ns % SECOND_NS) as i32;
    let time = jiff::civil::Time::new(hour, minute, whole, rest_ns).ok()?;
    Some((date.to_datetime(time), digit_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000 * SECOND_NS as i64;

    fn read(text: &str, zone: TimeZone) -> Result<(i128, i128)> {
        let none: &dyn Fn(&str) -> Option<u32> = &|_| None;
        let context = Context { now_ns: NOW, zone, user: none, group: none };
        let times = times(text, &context)?;
        Ok((times.first_ns.into(), i128::from(times.last_ns) + 1 - i128::from(times.first_ns)))
    }

    #[test]
    fn times_stand_for_what_their_last_digit_does() {
        // NOW is 2023-11-14T22:13:20Z.
        const DAY: i128 = 86_400;
        let midnight = 1_699_920_000;
        for (text, first, length_ns) in [
            ("2023-11-14", midnight, DAY_NS),
            ("2023-11-14Z", midnight, DAY_NS),
            ("2023-11-14+01:00", midnight - 3600, DAY_NS),
            ("today", midnight, DAY_NS),
            ("Yesterday", midnight - DAY, DAY_NS),
            ("2023-11", midnight - 13 * DAY, 30 * DAY_NS),
            ("2023", midnight - 317 * DAY, 365 * DAY_NS),
            ("2023-11-14T22:13", 1_699_999_980, MINUTE_NS),
            ("2023-11-14t22:13:20z", 1_700_000_000, SECOND_NS),
            ("2023-11-14 22:13:20", 1_700_000_000, SECOND_NS),
            ("2023-11-14T22:13:20.000", 1_700_000_000, SECOND_NS / 1000),
            ("2023-11-14T23:13:20+01:00", 1_700_000_000, SECOND_NS),
            ("2023-11-14T17:13:20-0500", 1_700_000_000, SECOND_NS),
            ("2023-11-15T00:13:20+02", 1_700_000_000, SECOND_NS),
            ("@1700000000", 1_700_000_000, SECOND_NS),
            ("@1700000000.0", 1_700_000_000, SECOND_NS / 10),
            ("@1700000000.000000000", 1_700_000_000, 1),
            ("@-5", -5, SECOND_NS),
            ("now", 1_700_000_000, 1),
            ("-30d", 1_700_000_000 - 30 * DAY, 1),
            ("+1d", 1_700_000_000 + DAY, 1),
            ("-1d12h", 1_700_000_000 - 3 * DAY / 2, 1),
            ("-1.5h", 1_700_000_000 - 5400, 1),
            ("-2min 5 s", 1_700_000_000 - 125, 1),
            ("-1week", 1_700_000_000 - 7 * DAY, 1),
            ("-1mon", 1_700_000_000 - 31 * DAY, 1),
            ("-1y", 1_700_000_000 - 365 * DAY, 1),
        ] {
            let expected = Ok((first * SECOND_NS, length_ns));
            assert_eq!(read(text, TimeZone::UTC), expected, "{text}");
        }
        assert_eq!(read("@-1.5", TimeZone::UTC), Ok((-1_500_000_000, SECOND_NS / 10)));
        let least = "@-9223372036.854775808";
        assert_eq!(read(least, TimeZone::UTC), Ok((i64::MIN.into(), 1)));
    }

    #[test]
    fn days_begin_where_the_zone_says() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let hour = HOUR_NS;
        assert_eq!(read("2023-10-29", zone.clone()).unwrap().1, 25 * hour);
        assert_eq!(read("2023-03-26", zone.clone()).unwrap().1, 23 * hour);
        assert_eq!(read("1970-01-01", zone.clone()).unwrap().0, -hour);
        for text in ["2023-10-29T02:30", "2023-03-26T02:30"] {
            assert!(read(text, zone.clone()).unwrap_err().contains("zone"), "{text}");
            assert!(read(&format!("{text}Z"), zone.clone()).is_ok());
        }
    }

    #[test]
    fn other_values_than_times_are_refused() {
        for (text, said) in [
            ("", "not a time"),
            ("soon", "not a time"),
            ("@", "not a time"),
            ("@1.", "not a time"),
            ("@1.0000000000", "not a time"),
            ("@99999999999", "1678"),
            ("@-9223372037", "1678"),
            ("2023-13-01", "not a time"),
            ("2023-02-30", "not a time"),
            ("2023-1-1", "not a time"),
            ("2023-11-14T", "not a time"),
            ("2023-11-14T10", "not a time"),
            ("2023-11-14T25:00", "not a time"),
            ("2023-11-14T10:00+1", "not a time"),
            ("2023-11-14T10:00+01:60", "not a time"),
            ("0001-01-01", "1678"),
            ("9999-12-31", "1678"),
            ("20231114", "@20231114"),
            ("30", "-30d"),
            ("30d", "-30d"),
            ("-30", "unit"),
            ("-5m", "min or mon"),
            ("-5M", "min or mon"),
            ("-", "not a duration"),
            ("-d", "not a duration"),
            ("-1x", "not a duration"),
            ("-1.5mon", "not a duration"),
            ("-9999y", "1678"),
            ("-18446744073709551615w", "1678"),
            ("-99999999999999999999d", "not a duration"),
            ("2023-11-14T10:00ä", "not a time"),
            ("2023-11-14+ä0", "not a time"),
            ("2023-11-14+aä1", "not a time"),
        ] {
            let error = read(text, TimeZone::UTC).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
