//! Moments: the dates of `-newerXt` and the day's end of `-daystart`.

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Span, Timestamp, Zoned};
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
/// `last friday`. `None` for everything else, and for a time of day that clocks skipped. If clocks
/// showed it twice, it is the moment that find(1) takes: the second one in zones east of UTC.
pub fn parse_moment(text: &str, now_ns: i64) -> Option<i64> {
    parse_moment_at(text, &local(now_ns))
}

/// Words of dates, to which the parser takes one more letter as a zone: `todayz`.
const WORDS: &str = "now today tomorrow yesterday ago noon midnight this next last year years month \
    months fortnight fortnights week weeks day days hour hours minute minutes min mins second \
    seconds sec secs jan january feb february mar march apr april may jun june jul july aug august \
    sep sept september oct october nov november dec december sun sunday mon monday tue tues \
    tuesday wed wednes wednesday thu thur thurs thursday fri friday sat saturday am pm";

/// Returns whether a letter is glued to a word, which date(1) refuses.
fn has_glued_letter(text: &str) -> bool {
    let is_word = |word: &str| WORDS.split_whitespace().any(|known| known == word);
    let text = text.to_ascii_lowercase();
    let mut runs = text.split(|c: char| !c.is_ascii_alphabetic());
    runs.any(|run| {
        let shorter = run.split_at_checked(run.len().saturating_sub(1));
        !is_word(run) && shorter.is_some_and(|(shorter, _)| is_word(shorter))
    })
}

fn parse_moment_at(text: &str, now: &Zoned) -> Option<i64> {
    if has_glued_letter(text) {
        return None;
    }
    // As in date(1), where nothing stands for the beginning of the day.
    let start = if text.trim().is_empty() { now.start_of_day().ok()? } else { now.clone() };
    Some(match parse_datetime_at_date(start, text).ok()? {
        ParsedDateTime::InRange(moment) => clamped(&settled(text, now, moment)?),
        // Beyond the year 9999.
        ParsedDateTime::Extended(_) => i64::MAX,
    })
}

/// Decides what a date means where clocks were set, as mktime(3) does for find(1). The parser has
/// moved times that were skipped, and has taken the first of those that came twice. `None` for one
/// that was skipped.
fn settled(text: &str, now: &Zoned, moment: Zoned) -> Option<Zoned> {
    // Dates with a zone of their own, and seconds since 1970, have an offset that never changes.
    let zone = moment.time_zone().clone();
    let Some(written) = as_written(text, now, &zone) else { return Some(moment) };
    match zone.to_ambiguous_zoned(written).offset() {
        AmbiguousOffset::Gap { .. } => None,
        AmbiguousOffset::Fold { before, .. } => shown_twice(written, &zone, before),
        AmbiguousOffset::Unambiguous { .. } => Some(moment),
    }
}

/// Returns which of two moments mktime(3) of the C library takes for a time that clocks show twice:
/// it begins its search at that time in UTC, before both in zones west of there and behind them in
/// zones east.
fn shown_twice(written: DateTime, zone: &TimeZone, before: Offset) -> Option<Zoned> {
    let in_utc = written.to_zoned(TimeZone::UTC).ok()?.timestamp();
    let both = zone.to_ambiguous_zoned(written);
    match zone.to_offset(in_utc) == before {
        true => both.earlier().ok(),
        false => both.later().ok(),
    }
}

/// Returns the date and time of day that a text names; `None` if it names only a distance from now,
/// or adds one of hours or less.
fn as_written(text: &str, now: &Zoned, zone: &TimeZone) -> Option<DateTime> {
    let lower = text.to_ascii_lowercase();
    if ["hour", "min", "sec"].iter().any(|unit| lower.contains(unit)) {
        return None;
    }
    // A zone of the text itself is what `zone` is already.
    let quoted = text.trim_start().strip_prefix("TZ=\"");
    let text = quoted.and_then(|rest| rest.split_once('"')).map_or(text, |(_, rest)| rest);
    let fixed = |now: DateTime| {
        let now = now.to_zoned(TimeZone::UTC).ok()?;
        match parse_datetime_at_date(now, text).ok()? {
            ParsedDateTime::InRange(moment) => Some(moment.datetime()),
            ParsedDateTime::Extended(_) => None,
        }
    };
    let now = now.timestamp().to_zoned(zone.clone()).datetime();
    let other = now.checked_add(Span::new().minutes(457)).ok()?;
    let (written, from_other) = (fixed(now)?, fixed(other)?);
    let is_distance = from_other.duration_since(written) == other.duration_since(now);
    (!is_distance).then_some(written)
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
    fn letters_that_are_glued_to_words_are_no_zones() {
        let now = local(1_700_000_000 * SECOND_NS);
        for text in ["yesterdayy", "todayz", "nowz", "1 week agoo", "12:00 yesterdayq", "Mart 5"] {
            assert_eq!(parse_moment_at(text, &now), None, "{text}");
        }
        for text in ["yesterday", "now", "1 week ago", "12:00 yesterday", "5 sept 2024", "12:00Z"] {
            assert!(parse_moment_at(text, &now).is_some(), "{text}");
        }
    }

    #[test]
    fn dates_where_clocks_were_set_are_those_of_find() {
        let zoned = |zone: &str, now: &str| {
            let now: Timestamp = now.parse().unwrap();
            now.to_zoned(TimeZone::get(zone).unwrap())
        };
        // With date(1) and find(1) of GNU: in summer, in winter, and within an hour of the change.
        for now in ["2026-07-01T12:00:00Z", "2026-11-25T12:00:00Z", "2026-10-25T00:20:00Z"] {
            for (zone, text, seconds) in [
                ("Europe/Berlin", "2026-10-25 02:30", Some(1_792_891_800)),
                ("Europe/Berlin", "TZ=\"America/New_York\" 2026-11-01 01:30", Some(1_793_511_000)),
                ("Europe/Berlin", "2026-10-25 02:30 +0200", Some(1_792_888_200)),
                ("Europe/Berlin", "@1792888200", Some(1_792_888_200)),
                ("Europe/Berlin", "2026-10-25 00:30Z", Some(1_792_888_200)),
                ("Europe/Berlin", "2026-03-29 02:30", None),
                ("Europe/Berlin", "TZ=\"America/New_York\" 2026-03-08 02:30", None),
                ("Europe/Berlin", "2026-03-29 03:00", Some(1_774_746_000)),
                ("Europe/Berlin", "2026-03-29", Some(1_774_738_800)),
                ("America/New_York", "2026-11-01 01:30", Some(1_793_511_000)),
                ("America/New_York", "2026-03-08 02:30", None),
                ("Australia/Lord_Howe", "2026-04-05 01:45", Some(1_775_315_700)),
                ("Australia/Lord_Howe", "2026-10-04 02:15", None),
                // Midnight was skipped.
                ("America/Sao_Paulo", "2018-11-04", None),
            ] {
                let found = parse_moment_at(text, &zoned(zone, now));
                assert_eq!(found, seconds.map(|at: i64| at * SECOND_NS), "{zone} {text} {now}");
            }
        }
        // A distance from now is one of seconds that pass, whatever clocks show.
        let second = zoned("Europe/Berlin", "2026-10-25T01:30:00Z");
        let first = second.timestamp().as_second() - 3600;
        assert_eq!(parse_moment_at("1 hour ago", &second), Some(first * SECOND_NS));
        let now = zoned("Europe/Berlin", "2026-10-25T00:30:00Z");
        assert_eq!(parse_moment_at("now", &now), Some(now.timestamp().as_second() * SECOND_NS));
    }

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
