//! Moments: the dates of `-newerXt` and the day's end of `-daystart`.

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use parse_datetime::{ParsedDateTime, parse_datetime_at_date};

pub(super) const SECOND_NS: i64 = 1_000_000_000;
pub(super) const DAY_NS: i64 = 86_400 * SECOND_NS;

/// Returns the end of the local day, from which ages count with `-daystart`, in nanoseconds since
/// 1970.
pub(super) fn end_of_day(now_ns: i64) -> i64 {
    let start = local(now_ns).start_of_day();
    start.ok().as_ref().map_or(now_ns, clamped).saturating_add(DAY_NS)
}

/// Parses a moment as date(1) does, such as `@SECONDS`, `2024-06-01 12:00 UTC`, `2 days ago` or
/// `last friday`. `None` for everything else.
pub fn parse_moment(text: &str, now_ns: i64) -> Option<i64> {
    let now = local(now_ns);
    // As in date(1), where nothing stands for the beginning of the day.
    let now = if text.trim().is_empty() { now.start_of_day().ok()? } else { now };
    Some(match parse_datetime_at_date(now, text).ok()? {
        ParsedDateTime::InRange(moment) => clamped(&moment),
        // Beyond the year 9999.
        ParsedDateTime::Extended(_) => i64::MAX,
    })
}

fn local(time_ns: i64) -> Zoned {
    // Nanoseconds of 64 bits end in 2262, far from the last year that there is.
    let time = Timestamp::from_nanosecond(time_ns.into()).unwrap_or(Timestamp::UNIX_EPOCH);
    time.to_zoned(TimeZone::system())
}

/// Returns a moment in nanoseconds since 1970; the first or the last that there is for one beyond
/// it: as no file has such a time, tests have the same outcome.
fn clamped(moment: &Zoned) -> i64 {
    let time_ns = moment.timestamp().as_nanosecond();
    i64::try_from(time_ns).unwrap_or(if time_ns < 0 { i64::MIN } else { i64::MAX })
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
            ("Tue, 14 Nov 2023 22:13:20 +0000", 1_700_000_000),
            ("2 hours ago", 1_700_000_000 - 7200),
            ("3 days 2 hours ago", 1_700_000_000 + 3 * 86_400 - 7200),
            ("90 min", 1_700_000_000 + 5400),
            ("now", 1_700_000_000),
        ] {
            assert_eq!(parse_moment(text, now), Some(seconds * SECOND_NS), "{text}");
        }
        assert_eq!(parse_moment("@1.5", now), Some(1_500_000_000));
        assert_eq!(parse_moment("2300-01-01", now), Some(i64::MAX));
        assert_eq!(parse_moment("12000-01-01", now), Some(i64::MAX));
        assert_eq!(parse_moment("1600-01-01", now), Some(i64::MIN));
        for text in ["foo", "@", "@x", "12 frogs", "2023-13-01"] {
            assert_eq!(parse_moment(text, now), None, "{text}");
        }
    }
}
