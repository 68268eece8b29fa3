//! Arguments of GUFI's functions: columns of any type, read as SQLite's loose types would have
//! them.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, TimeUnit, TimestampNanosecondType};
use datafusion::error::Result;

const NANOSECONDS: i64 = 1_000_000_000;

/// Returns whether values are text to SQLite.
pub(super) fn is_text(values: &ArrayRef) -> bool {
    use DataType::{Binary, LargeUtf8, Utf8, Utf8View};
    matches!(values.data_type(), Utf8 | LargeUtf8 | Utf8View | Binary)
}

/// Reads values as text.
pub(super) fn texts(values: &ArrayRef) -> Result<StringArray> {
    Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone())
}

/// Reads values as whole numbers. A text gives the number at its beginning, or null; a time gives
/// seconds since 1970.
pub(super) fn integers(values: &ArrayRef) -> Result<Int64Array> {
    if is_text(values) {
        let texts = texts(values)?;
        return Ok(texts.iter().map(|text| text.and_then(leading_integer)).collect());
    }
    if matches!(values.data_type(), DataType::Timestamp(..)) {
        return seconds(values);
    }
    Ok(cast(values, &DataType::Int64)?.as_primitive().clone())
}

/// Reads values as numbers. A text gives its number, or null; a time gives seconds since 1970.
pub(super) fn numbers(values: &ArrayRef) -> Result<Float64Array> {
    if is_text(values) {
        let texts = texts(values)?;
        return Ok(texts
            .iter()
            .map(|text| text.and_then(|text| text.trim().parse().ok()))
            .collect());
    }
    let values = match values.data_type() {
        DataType::Timestamp(..) => &(std::sync::Arc::new(seconds(values)?) as ArrayRef),
        _ => values,
    };
    Ok(cast(values, &DataType::Float64)?.as_primitive().clone())
}

/// Returns the whole seconds since 1970 of times, rounded down.
pub(super) fn seconds(times: &ArrayRef) -> Result<Int64Array> {
    let DataType::Timestamp(_, zone) = times.data_type() else { return integers(times) };
    let times = cast(times, &DataType::Timestamp(TimeUnit::Nanosecond, zone.clone()))?;
    let times = times.as_primitive::<TimestampNanosecondType>();
    Ok(times.iter().map(|time| time.map(|time| time.div_euclid(NANOSECONDS))).collect())
}

fn leading_integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let sign = usize::from(text.starts_with(['-', '+']));
    let digits = text[sign..].bytes().take_while(u8::is_ascii_digit).count();
    text[..sign + digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::leading_integer;

    #[test]
    fn text_is_the_number_that_it_begins_with() {
        for (text, number) in [
            ("12", Some(12)),
            (" -7x", Some(-7)),
            ("+3", Some(3)),
            ("x", None),
            ("", None),
            ("-", None),
        ] {
            assert_eq!(leading_integer(text), number, "{text}");
        }
    }
}
