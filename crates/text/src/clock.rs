//! Times as `-printf` and `-ls` show them, in the local zone and the words of the C locale.

use canopy_model::Attributes;
use chrono::{DateTime, Local};

/// Letters of strftime(3) in the C library; the chrono crate knows others.
const TIME_LETTERS: &str = "abcdeghjklmnprstuwxyzABCDFGHIMPRSTUVWXYZ";

pub fn time_of(letter: char, attributes: &Attributes) -> i64 {
    match letter {
        'a' | 'A' => attributes.atime_ns,
        'c' | 'C' => attributes.ctime_ns,
        'B' => attributes.btime_ns,
        _ => attributes.mtime_ns,
    }
}

fn local(time_ns: i64) -> DateTime<Local> {
    DateTime::from_timestamp_nanos(time_ns).with_timezone(&Local)
}

/// A date as ls(1) shows it: half a year back, the year stands instead of the time of day.
pub fn date(time_ns: i64, now_ns: i64) -> String {
    let recent = (0..=31_556_952 / 2 * 1_000_000_000).contains(&now_ns.saturating_sub(time_ns));
    local(time_ns).format(if recent { "%b %e %H:%M" } else { "%b %e  %Y" }).to_string()
}

/// A time as stat(1) shows it.
pub fn full_time(time_ns: i64) -> String {
    local(time_ns).format("%Y-%m-%d %H:%M:%S%.9f %z").to_string()
}

/// As `%t`: the form of ctime(3) with ten digits of the second.
pub fn ctime(time_ns: i64) -> String {
    let time = local(time_ns);
    format!(
        "{}.{:09}0 {}",
        time.format("%a %b %e %H:%M:%S"),
        time.timestamp_subsec_nanos(),
        time.format("%Y")
    )
}

pub fn time_value(time_ns: i64, kind: char) -> String {
    let time = local(time_ns);
    let fraction = format!(".{:09}0", time.timestamp_subsec_nanos());
    match kind {
        '@' => format!("{}{fraction}", time.timestamp()),
        '+' => format!("{}{fraction}", time.format("%Y-%m-%d+%H:%M:%S")),
        'S' => format!("{}{fraction}", time.format("%S")),
        'T' | 'X' => format!("{}{fraction}", time.format("%H:%M:%S")),
        'c' => time.format("%a %b %e %H:%M:%S %Y").to_string(),
        'x' | 'D' => time.format("%m/%d/%y").to_string(),
        'Z' => time_zone(&time),
        // What strftime(3) does with a letter that it does not know.
        kind if !TIME_LETTERS.contains(kind) => format!("%{kind}"),
        kind => time.format(&format!("%{kind}")).to_string(),
    }
}

/// The abbreviation of the time zone, which the chrono crate does not know for the local one.
fn time_zone(time: &DateTime<Local>) -> String {
    if time.offset().local_minus_utc() == 0 {
        "UTC".to_owned()
    } else {
        time.format("%z").to_string()
    }
}
