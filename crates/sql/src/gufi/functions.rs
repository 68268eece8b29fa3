//! GUFI's scalar functions, and a few of SQLite's that its documents use.
//!
//! Those that run commands (`strop`, `intop`, `blobop`) are not here: a query must not start
//! programs.

use super::paths;
use super::text;
use super::values::{integers, numbers, seconds, texts};
use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, StringArray};
use arrow::datatypes::{DataType, Field};
use canopy_read::links::parent_of;
use canopy_text::{group_or_number, user_or_number};
use datafusion::error::{DataFusionError, Result};
use datafusion::functions::utils::make_scalar_function;
use datafusion::logical_expr::{ScalarUDF, Signature, SimpleScalarUDF, TypeSignature, Volatility};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns all functions, those that the views alone use included.
pub(super) fn all() -> Vec<ScalarUDF> {
    let stable = Volatility::Stable;
    let pure = Volatility::Immutable;
    let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
    let (word, number) = (DataType::Utf8, DataType::Int64);
    vec![
        function("uidtouser", 1, stable, word.clone(), |a| named(a, user_or_number)),
        function("gidtogroup", 1, stable, word.clone(), |a| named(a, group_or_number)),
        function("modetotxt", 1, pure, word.clone(), |a| {
            let modes = integers(&a[0])?;
            Ok(Arc::new(
                modes.iter().map(|m| Some(text::mode(m.unwrap_or(0)))).collect::<StringArray>(),
            ))
        }),
        function("strftime", 2, stable, word.clone(), strftime),
        function("datetime", 2, stable, word.clone(), datetime),
        function("blocksize", 2, pure, word.clone(), blocksize),
        function("intcat", 1, pure, word.clone(), |a| of_numbers(a, text::integer_category)),
        function("bytecat", 1, pure, word.clone(), |a| of_numbers(a, text::byte_category)),
        function("agecat", 1, stable, word.clone(), |a| {
            let now = now_s();
            of_numbers(a, move |time| text::age_category(now as f64 - time))
        }),
        function("epochtoage", 2, stable, number.clone(), epochtoage),
        function("hostname", 0, stable, word.clone(), |_| {
            Ok(Arc::new(StringArray::from(vec![hostname()])))
        }),
        function("human_readable_size", 1, pure, word.clone(), |a| of_numbers(a, text::size)),
        function("basename", 1, pure, word.clone(), |a| {
            let paths = texts(&a[0])?;
            let name = |path: Option<&str>| path.map_or("", text::base_name).to_owned();
            Ok(Arc::new(StringArray::from_iter_values(paths.iter().map(name))))
        }),
        function("ext", 1, pure, word.clone(), |a| of_texts(a, text::extension)),
        function("stdev_from_parts", 4, pure, DataType::Float64, stdev_from_parts),
        function("below", 2, pure, DataType::Boolean, paths::below),
        function("gufi_listed_below", 2, pure, DataType::Boolean, paths::below),
        function("gufi_rpad", 2, pure, word.clone(), rpad),
        function("gufi_seconds", 1, pure, number.clone(), |a| Ok(Arc::new(seconds(&a[0])?))),
        function("gufi_directory", 1, pure, word.clone(), |a| of_texts(a, |p| Some(parent_of(p)))),
        function("gufi_join", 2, pure, word.clone(), paths::joined),
        function("gufi_root", 2, pure, word.clone(), paths::roots),
        function("gufi_ancestors", 2, pure, list, paths::ancestors),
        function("gufi_xattrs", 1, pure, word, paths::xattr_names),
        function("gufi_xattr_count", 1, pure, number, paths::xattr_counts),
    ]
}

/// Makes a function whose arguments may be of any type.
fn function(
    name: &str,
    arguments: usize,
    volatility: Volatility,
    returns: DataType,
    call: fn(&[ArrayRef]) -> Result<ArrayRef>,
) -> ScalarUDF {
    let kind = if arguments == 0 { TypeSignature::Nullary } else { TypeSignature::Any(arguments) };
    let signature = Signature::new(kind, volatility);
    let call = Arc::new(make_scalar_function(call, Vec::new()));
    SimpleScalarUDF::new_with_signature(name, signature, returns, call).into()
}

fn of_texts(arguments: &[ArrayRef], function: impl Fn(&str) -> Option<&str>) -> Result<ArrayRef> {
    let values = texts(&arguments[0])?;
    Ok(Arc::new(values.iter().map(|value| value.and_then(&function)).collect::<StringArray>()))
}

fn of_numbers<T: AsRef<str>>(
    arguments: &[ArrayRef],
    function: impl Fn(f64) -> Option<T>,
) -> Result<ArrayRef> {
    let values = numbers(&arguments[0])?;
    Ok(Arc::new(values.iter().map(|value| value.and_then(&function)).collect::<StringArray>()))
}

fn named(arguments: &[ArrayRef], name: fn(u32) -> String) -> Result<ArrayRef> {
    let ids = integers(&arguments[0])?;
    let text = |id: i64| u32::try_from(id).map_or_else(|_| id.to_string(), name);
    Ok(Arc::new(ids.iter().map(|id| id.map(text)).collect::<StringArray>()))
}

fn strftime(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (formats, times) = (texts(&arguments[0])?, integers(&arguments[1])?);
    let rows = formats.iter().zip(&times);
    let texts = rows.map(|(format, time)| match format {
        Some(format) => text::time(format, time.unwrap_or(0), false).map(Some),
        None => Ok(None),
    });
    Ok(Arc::new(texts.collect::<Result<StringArray, super::error::Error>>()?))
}

fn datetime(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (times, units) = (integers(&arguments[0])?, texts(&arguments[1])?);
    if units.iter().flatten().any(|unit| unit != "unixepoch") {
        let why = "datetime() is for seconds since 1970 here: datetime(mtime, 'unixepoch')";
        return Err(DataFusionError::Execution(why.to_owned()));
    }
    let texts =
        times.iter().map(|time| time.map(|time| text::time("%F %T", time, true)).transpose());
    Ok(Arc::new(texts.collect::<Result<StringArray, super::error::Error>>()?))
}

fn blocksize(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (sizes, units) = (integers(&arguments[0])?, texts(&arguments[1])?);
    let rows = sizes.iter().zip(units.iter());
    let texts = rows.map(|(size, unit)| match (size, unit) {
        (Some(size), Some(unit)) => text::blocks(size, unit).map(Some),
        _ => Ok(None),
    });
    Ok(Arc::new(texts.collect::<Result<StringArray, super::error::Error>>()?))
}

fn epochtoage(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (times, units) = (integers(&arguments[0])?, texts(&arguments[1])?);
    let now = now_s();
    let age = |(time, unit): (Option<i64>, Option<&str>)| {
        let age = now.checked_sub(time?).filter(|age| *age >= 0)?;
        Some(age / text::unit_seconds(unit?))
    };
    Ok(Arc::new(times.iter().zip(units.iter()).map(age).collect::<Int64Array>()))
}

fn stdev_from_parts(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let columns = arguments.iter().map(numbers).collect::<Result<Vec<Float64Array>>>()?;
    let at = |column: usize, row: usize| {
        columns[column].is_valid(row).then(|| columns[column].value(row))
    };
    let value = |row: usize| {
        let (squares, sum, count) = (at(0, row)?, at(1, row)?, at(2, row)?);
        let divisor = count * (count - f64::from(u8::from(at(3, row)? != 0.0)));
        Some(((count * squares - sum * sum) / divisor).sqrt()).filter(|value| value.is_finite())
    };
    Ok(Arc::new((0..columns[0].len()).map(value).collect::<Float64Array>()))
}

/// The longest text that `rpad` makes, in characters: the standard library fills up no more.
const WIDTH_MAX: usize = u16::MAX as usize;

fn rpad(arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let (values, widths) = (texts(&arguments[0])?, integers(&arguments[1])?);
    let pad = |(value, width): (Option<&str>, Option<i64>)| {
        let width = usize::try_from(width?).unwrap_or(0).min(WIDTH_MAX);
        Some(format!("{:<width$}", value?))
    };
    Ok(Arc::new(values.iter().zip(&widths).map(pad).collect::<StringArray>()))
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_end().to_owned()
}

fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
