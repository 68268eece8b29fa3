//! Numbers of JSON that readers with floating point alone, such as jq and JavaScript, would round:
//! beside each stands a text.
//!
//! | number | text beside it |
//! | --- | --- |
//! | a time, `scanned_ns` | `scanned`: RFC 3339 in UTC, with nanoseconds |
//! | any other beyond 2^53, `ino` | `ino_text`: all of its digits |

use chrono::{DateTime, SecondsFormat};
use serde_json::{Map, Value};

/// The greatest number up to which floating point has all whole ones.
pub(crate) const EXACT_MAX: u128 = 1 << 53;

/// The end of names of times.
const TIME: &str = "_ns";

/// Returns a document with the texts beside its numbers.
pub fn exact(document: Value) -> Value {
    match document {
        Value::Array(values) => Value::Array(values.into_iter().map(exact).collect()),
        Value::Object(members) => {
            let mut all = Map::new();
            for (name, value) in members {
                if let Value::Number(number) = &value
                    && let Some((name, text)) = text_beside(&name, &number.to_string())
                {
                    all.entry(name).or_insert_with(|| text.into());
                }
                all.insert(name, exact(value));
            }
            Value::Object(all)
        }
        other => other,
    }
}

/// Adds the texts to a document that is printed with a line for each member, whose order stays.
pub fn exact_lines(document: &str) -> String {
    let mut all = String::with_capacity(document.len() + document.len() / 4);
    for line in document.split_inclusive('\n') {
        all.push_str(&line_before(line).unwrap_or_default());
        all.push_str(line);
    }
    all
}

/// Returns the line of the text that stands before the line of a number.
fn line_before(line: &str) -> Option<String> {
    let member = line.trim_start();
    let blank = &line[..line.len() - member.len()];
    let (name, value) = member.strip_prefix('"')?.split_once("\": ")?;
    let digits = value.trim_end().trim_end_matches(',');
    let (name, text) = text_beside(name, digits)?;
    Some(format!("{blank}\"{name}\": \"{text}\",\n"))
}

/// Returns the name and the text that stand beside a number.
pub(crate) fn text_beside(name: &str, digits: &str) -> Option<(String, String)> {
    let number: i128 = digits.parse().ok()?;
    match name.strip_suffix(TIME).filter(|name| !name.is_empty()) {
        Some(name) => {
            let time = DateTime::from_timestamp_nanos(i64::try_from(number).ok()?);
            Some((name.to_owned(), time.to_rfc3339_opts(SecondsFormat::Nanos, true)))
        }
        None if number.unsigned_abs() > EXACT_MAX => {
            Some((format!("{name}_text"), digits.to_owned()))
        }
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_stand_beside_numbers_that_floating_point_rounds() {
        let time = 1_790_000_000_123_456_789_i64;
        let document = json!({
            "ino": 144_115_205_272_502_273_u64,
            "size": 1_u64 << 53,
            "least": i64::MIN,
            "rows": [{ "mtime_ns": time, "name": "a_ns" }],
            "none_ns": null,
            "ratio": 0.5,
        });
        let expected = json!({
            "ino": 144_115_205_272_502_273_u64,
            "ino_text": "144115205272502273",
            "size": 1_u64 << 53,
            "least": i64::MIN,
            "least_text": "-9223372036854775808",
            "rows": [{
                "mtime": "2026-09-21T14:13:20.123456789Z",
                "mtime_ns": time,
                "name": "a_ns",
            }],
            "none_ns": null,
            "ratio": 0.5,
        });
        assert_eq!(exact(document.clone()), expected);
        // The line form has the same members.
        let lines = exact_lines(&format!("{document:#}"));
        assert_eq!(serde_json::from_str::<Value>(&lines).unwrap(), expected, "{lines}");
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_a_number() {
        let document = json!({ "path": "\n\"x_ns\": 5", "list": ["\"y_ns\": 5,"] });
        let lines = format!("{document:#}");
        assert_eq!(exact_lines(&lines), lines);
        assert_eq!(exact(document.clone()), document);
    }
}
