//! Numbers, dates and names in reports, as people read them.

use super::Owner;
use canopy_text::safe::report_name;
use chrono::{DateTime, Local, SecondsFormat};

/// Formats a number with commas between thousands.
pub(super) fn grouped(number: impl Into<i128>) -> String {
    let number = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats the date of a time, in the local zone.
pub(super) fn short_date(time_ns: i64) -> String {
    DateTime::from_timestamp_nanos(time_ns).with_timezone(&Local).format("%Y-%m-%d").to_string()
}

/// Formats a time as RFC 3339 has it, in UTC.
pub(super) fn rfc3339(time_ns: i64) -> String {
    DateTime::from_timestamp_nanos(time_ns).to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// Names a user or group, else gives its number.
pub(super) fn owner_name(owner: &Owner) -> String {
    name_or_id(owner.id, owner.name.as_deref())
}

/// Gives the name of an owner, else the number.
pub(super) fn name_or_id(id: u32, name: Option<&str>) -> String {
    name.map_or_else(|| id.to_string(), report_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::escape;

    #[test]
    fn nothing_in_a_name_is_hidden() {
        for (name, shown) in [
            (&b"plain name"[..], "plain name"),
            (b"a\nb\tc\x1b[31m\x7f", "a\\nb\\tc\\x1b[31m\\x7f"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("ü \u{202e}gpj.exe".as_bytes(), "ü \\u{202e}gpj.exe"),
            (b"back\\slash", "back\\\\slash"),
        ] {
            assert_eq!(report_name(&escape(name)), shown);
        }
    }

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0, 999, 1000, 1_234_567, -1000].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "1,234,567", "-1,000"]);
    }
}
