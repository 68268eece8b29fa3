//! Times in the forms that find(1) and stat(1) have for them.

use crate::strftime::{conversion, format_time, local};
use crate::times::{FULL, LOCALE_OTHER, LOCALE_RECENT};
use canopy_model::Attributes;

/// Returns the time, in nanoseconds since 1970, that a letter of `-printf` names.
pub fn time_of(letter: char, attributes: &Attributes) -> i64 {
    match letter {
        'a' | 'A' => attributes.atime_ns,
        'c' | 'C' => attributes.ctime_ns,
        'B' => attributes.btime_ns,
        _ => attributes.mtime_ns,
    }
}

/// Shows a date as find's `-ls` does: with the time of day if it is recent, else with the year.
/// Unlike ls, find takes 180 days for half a year, and an hour ahead, by whole seconds.
pub fn date(time_ns: i64, now_ns: i64) -> String {
    const OLD_SECONDS: i64 = 180 * 86_400;
    const AHEAD_SECONDS: i64 = 3600;
    let [time, now] = [time_ns, now_ns].map(|ns| ns.div_euclid(1_000_000_000));
    let recent = (now - OLD_SECONDS..=now + AHEAD_SECONDS).contains(&time);
    // In one step, since this is done for each line; there are no conversions of GNU's in these.
    local(time_ns).format(if recent { LOCALE_RECENT } else { LOCALE_OTHER }).to_string()
}

/// Shows a time as stat(1) does.
pub fn full_time(time_ns: i64) -> String {
    format_time(FULL, time_ns)
}

/// Shows a time as `%t` of `-printf` does: in the form of ctime(3) with ten digits of the second.
pub fn ctime(time_ns: i64) -> String {
    let time = local(time_ns);
    format!(
        "{}{} {}",
        time.format("%a %b %e %H:%M:%S"),
        fraction(time.timestamp_subsec_nanos()),
        time.format("%Y")
    )
}

/// Shows a time as `%Tk` of `-printf` does, for a letter `k`.
pub fn time_value(time_ns: i64, kind: char) -> String {
    let time = local(time_ns);
    let with_fraction = |text: String| text + &fraction(time.timestamp_subsec_nanos());
    let shown = match kind {
        '@' => Some(with_fraction(time.timestamp().to_string())),
        '+' => Some(with_fraction(time.format("%Y-%m-%d+%H:%M:%S").to_string())),
        'S' | 'T' | 'X' => conversion(&time, kind, 0).map(with_fraction),
        // GNU's other tools alone know these.
        'N' | 'q' => None,
        '%' => Some("%".to_owned()),
        kind => conversion(&time, kind, 0),
    };
    // Print an unknown letter as strftime(3) does.
    shown.unwrap_or_else(|| format!("%{kind}"))
}

/// A span of time for people.
pub fn age(span_ns: i64) -> String {
    let seconds = span_ns.max(0) / 1_000_000_000;
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn fraction(nanoseconds: u32) -> String {
    format!(".{nanoseconds:09}0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_of_finds_ls_are_recent_for_180_days_and_an_hour_ahead() {
        let now = 1_700_000_000;
        for (time, is_recent) in [
            (now - 180 * 86_400, true),
            (now - 180 * 86_400 - 1, false),
            (now, true),
            (now + 3600, true),
            (now + 3601, false),
        ] {
            let shown = date(time * 1_000_000_000 + 999_999_999, now * 1_000_000_000);
            assert_eq!(shown.contains(':'), is_recent, "{time} {shown}");
        }
    }

    #[test]
    fn letters_are_those_of_the_c_library() {
        let time = 1_700_000_003_045_000_000;
        for (kind, shown) in [
            ('@', "1700000003.0450000000"),
            ('s', "1700000003"),
            ('Y', "2023"),
            ('n', "\n"),
            ('N', "%N"),
            ('q', "%q"),
            ('%', "%"),
            ('E', "%E"),
            (':', "%:"),
            ('ü', "%ü"),
        ] {
            assert_eq!(time_value(time, kind), shown);
        }
    }
}
