//! Moments: the dates of `-newerXt` and the day's end of `-daystart`.

use chrono::{DateTime, Days, Local, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeZone};

pub(super) const SECOND_NS: i64 = 1_000_000_000;
pub(super) const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Returns the end of the local day, from which ages count with `-daystart`, in nanoseconds since
/// 1970.
pub(super) fn end_of_day(now_ns: i64) -> i64 {
    let now = DateTime::from_timestamp_nanos(now_ns).with_timezone(&Local);
    let start = now.date_naive().and_time(NaiveTime::MIN);
    nanoseconds(start).unwrap_or(now_ns).saturating_add(DAY_NS)
}

/// Parses a moment as people write it: `@SECONDS`, a date, a time of today, both (also with a zone
/// at the end), `now`, `today`, `yesterday`, `tomorrow`, `N UNITS [ago]`, `last UNIT`, `next UNIT`.
/// `None` for everything else.
pub(super) fn parse_moment(text: &str, now_ns: i64) -> Option<i64> {
    let text = text.trim();
    if let Some(seconds) = text.strip_prefix('@') {
        return epoch(seconds);
    }
    if let Some(zoned) = with_zone(text) {
        return Some(zoned);
    }
    let now = DateTime::from_timestamp_nanos(now_ns).with_timezone(&Local).naive_local();
    if let Some(moment) = date_and_time(text, now) {
        return nanoseconds(moment);
    }
    relative(text, now)
}

fn nanoseconds(moment: NaiveDateTime) -> Option<i64> {
    Local.from_local_datetime(&moment).earliest()?.timestamp_nanos_opt()
}

fn epoch(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (seconds, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(seconds) || !all_digits(fraction) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<9}")[..9].parse().ok()?;
    let total = seconds.parse::<i64>().ok()?.checked_mul(SECOND_NS)?.checked_add(fraction)?;
    Some(if negative { -total } else { total })
}

fn with_zone(text: &str) -> Option<i64> {
    let utc = text.strip_suffix(['Z', 'z']).or_else(|| text.strip_suffix(" UTC"));
    if let Some(moment) = utc.and_then(|text| date_and_time(text.trim(), NaiveDateTime::MIN)) {
        return moment.and_utc().timestamp_nanos_opt();
    }
    [
        "%Y-%m-%dT%H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M:%S%.f %z",
        "%Y-%m-%d %H:%M:%S%.f%z",
        "%Y-%m-%d %H:%M %z",
    ]
    .iter()
    .find_map(|form| DateTime::parse_from_str(text, form).ok()?.timestamp_nanos_opt())
}

fn date_and_time(text: &str, now: NaiveDateTime) -> Option<NaiveDateTime> {
    let moments =
        ["%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M"];
    let dates = ["%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%d %b %Y", "%b %d %Y", "%b %d, %Y", "%m/%d/%Y"];
    let moment = moments.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok());
    let date = || {
        let date = dates.iter().find_map(|form| NaiveDate::parse_from_str(text, form).ok())?;
        Some(date.and_time(NaiveTime::MIN))
    };
    let time = || {
        let forms = ["%H:%M:%S%.f", "%H:%M"];
        let time = forms.iter().find_map(|form| NaiveTime::parse_from_str(text, form).ok())?;
        Some(now.date().and_time(time))
    };
    moment.or_else(date).or_else(time)
}

fn relative(text: &str, now: NaiveDateTime) -> Option<i64> {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let (words, sign) = match words.split_last() {
        Some((&"ago", rest)) => (rest, -1),
        _ => (&words[..], 1),
    };
    let (count, unit) = match words {
        ["now" | "today"] => (0, "day"),
        ["yesterday"] => (-1, "day"),
        ["tomorrow"] => (1, "day"),
        ["last", unit] => (-1, *unit),
        ["next", unit] => (1, *unit),
        [unit] => (1, *unit),
        [count, unit] => (count.parse::<i64>().ok()?, *unit),
        _ => return None,
    };
    let count = count.checked_mul(sign)?;
    let seconds = match unit.strip_suffix('s').unwrap_or(unit) {
        "sec" | "second" => 1,
        "min" | "minute" => 60,
        "hour" => 3600,
        unit => return nanoseconds(by_calendar(now, count, unit)?),
    };
    nanoseconds(now)?.checked_add(count.checked_mul(seconds)?.checked_mul(SECOND_NS)?)
}

fn by_calendar(now: NaiveDateTime, count: i64, unit: &str) -> Option<NaiveDateTime> {
    let steps = |each: u64| count.unsigned_abs().checked_mul(each);
    match unit {
        "day" | "week" | "fortnight" => {
            let days = Days::new(steps(match unit {
                "day" => 1,
                "week" => 7,
                _ => 14,
            })?);
            if count < 0 { now.checked_sub_days(days) } else { now.checked_add_days(days) }
        }
        "month" | "year" => {
            let months = u32::try_from(steps(if unit == "month" { 1 } else { 12 })?).ok()?;
            let months = Months::new(months);
            if count < 0 { now.checked_sub_months(months) } else { now.checked_add_months(months) }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_people_become_moments() {
        let now = 1_700_000_000 * SECOND_NS;
        for (text, seconds) in [
            ("@0", 0),
            ("@12", 12),
            ("1970-01-02Z", 86_400),
            ("1970-01-01T00:00:07Z", 7),
            ("1970-01-01 01:00:00 +0100", 0),
            ("2023-11-14 22:13:20 UTC", 1_700_000_000),
            ("2 hours ago", 1_700_000_000 - 7200),
            ("90 min", 1_700_000_000 + 5400),
            ("now", 1_700_000_000),
        ] {
            assert_eq!(parse_moment(text, now), Some(seconds * SECOND_NS), "{text}");
        }
        assert_eq!(parse_moment("@1.5", now), Some(1_500_000_000));
        for text in ["foo", "", "@", "@x", "12 frogs", "2023-13-01"] {
            assert_eq!(parse_moment(text, now), None, "{text}");
        }
    }
}
