//! Comma-separated values with a header.
//!
//! The file is read once for the types of its columns, so that no later row can contradict them: a
//! column is of the first of whole numbers, numbers, truth values and times that all its values
//! are, else text. Digits with a leading zero and whole numbers of more than 64 bits stay text, as
//! they are names rather than amounts. An empty field is null.

use super::attached::{Content, FileResult, FileRows, open_regular};
use super::error::FileError;
use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray, UInt64Array,
};
use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
use arrow::csv::ReaderBuilder;
use arrow::csv::reader::Format;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use canopy_index::column::time_type;
use canopy_read::plan::BATCH_ROWS;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An opened file.
#[derive(Debug)]
pub(super) struct Csv {
    path: PathBuf,
    schema: SchemaRef,
}

/// Candidate types of a column, from the narrowest on.
const TYPES: [Type; 5] = [Type::Int, Type::UInt, Type::Float, Type::Bool, Type::Time];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type {
    Int,
    UInt,
    Float,
    Bool,
    Time,
}

impl Type {
    fn data_type(self) -> DataType {
        match self {
            Type::Int => DataType::Int64,
            Type::UInt => DataType::UInt64,
            Type::Float => DataType::Float64,
            Type::Bool => DataType::Boolean,
            Type::Time => time_type(),
        }
    }

    fn admits(self, text: &str) -> bool {
        match self {
            Type::Int => is_amount(text) && text.parse::<i64>().is_ok(),
            Type::UInt => is_amount(text) && text.parse::<u64>().is_ok(),
            Type::Float => float(text).is_some(),
            Type::Bool => truth(text).is_some(),
            Type::Time => time(text).is_some(),
        }
    }
}

/// Returns whether a text is written as an amount: digits without a zero in front, after a sign or
/// not, and any text behind them.
fn is_amount(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.as_bytes() {
        [b'0', next, ..] => !next.is_ascii_digit(),
        [first, ..] => first.is_ascii_digit(),
        [] => false,
    }
}

fn float(text: &str) -> Option<f64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.bytes().all(|byte| byte.is_ascii_digit());
    if !is_amount(text) || (whole && text.parse::<i64>().is_err() && text.parse::<u64>().is_err()) {
        return None;
    }
    text.parse().ok().filter(|number: &f64| number.is_finite())
}

fn truth(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

fn time(text: &str) -> Option<i64> {
    let dashes = text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    if dashes { string_to_timestamp_nanos(text).ok() } else { None }
}

/// Opens a file and finds the types of its columns.
pub(super) fn open(path: &Path) -> FileResult<Csv> {
    let format = Format::default().with_header(true);
    let (header, _) = format.infer_schema(open_regular(path)?, Some(0))?;
    let names: Vec<&str> = header.fields().iter().map(|field| field.name().as_str()).collect();
    if names.is_empty() {
        return Err(FileError::Empty);
    }
    let text = |name: &str| Field::new(name.trim_start_matches('\u{feff}'), DataType::Utf8, true);
    let texts: SchemaRef = Arc::new(Schema::new(names.into_iter().map(text).collect::<Vec<_>>()));
    let mut types: Vec<Option<Vec<Type>>> = vec![None; texts.fields().len()];
    for batch in rows(path, &texts, None)? {
        let batch = batch?;
        for (possible, column) in types.iter_mut().zip(batch.columns()) {
            for value in column.as_string::<i32>().iter().flatten() {
                let possible = possible.get_or_insert_with(|| TYPES.to_vec());
                possible.retain(|kind| kind.admits(value));
                if possible.is_empty() {
                    break;
                }
            }
        }
    }
    let fields = texts.fields().iter().zip(types).map(|(field, possible)| {
        let kind = possible.and_then(|possible| possible.first().copied());
        Field::new(field.name(), kind.map_or(DataType::Utf8, Type::data_type), true)
    });
    Ok(Csv { path: path.to_owned(), schema: Arc::new(Schema::new(fields.collect::<Vec<_>>())) })
}

/// Reads all rows as texts, of some of the columns or of all.
fn rows(
    path: &Path,
    texts: &SchemaRef,
    columns: Option<&[usize]>,
) -> FileResult<impl Iterator<Item = FileResult<RecordBatch>> + Send + use<>> {
    let mut builder =
        ReaderBuilder::new(texts.clone()).with_header(true).with_batch_size(BATCH_ROWS);
    if let Some(columns) = columns {
        builder = builder.with_projection(columns.to_vec());
    }
    let reader = builder.build(open_regular(path)?)?;
    Ok(reader.map(|batch| Ok(batch?)))
}

impl Content for Csv {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn read(&self, columns: &[usize]) -> FileResult<FileRows> {
        let fields = self.schema.fields();
        let texts = fields.iter().map(|field| Field::new(field.name(), DataType::Utf8, true));
        let texts = Arc::new(Schema::new(texts.collect::<Vec<_>>()));
        let types: Vec<DataType> =
            columns.iter().map(|&at| fields[at].data_type().clone()).collect();
        Ok(Box::new(rows(&self.path, &texts, Some(columns))?.map(move |batch| {
            let batch = batch?;
            batch
                .columns()
                .iter()
                .zip(&types)
                .map(|(column, data_type)| typed(column, data_type))
                .collect()
        })))
    }
}

/// Parses the values of a column of texts. The file may have changed since its types were found.
fn typed(column: &ArrayRef, data_type: &DataType) -> FileResult<ArrayRef> {
    let texts: &StringArray = column.as_string();
    let changed = |text: &str| FileError::ValueChanged {
        text: text.to_owned(),
        data_type: data_type.clone(),
    };
    macro_rules! parsed {
        ($array:ty, $parse:expr) => {{
            let parse = $parse;
            let value = |text: Option<&str>| {
                text.map(|text| parse(text).ok_or_else(|| changed(text))).transpose()
            };
            texts.iter().map(value).collect::<FileResult<$array>>()?
        }};
    }
    Ok(match data_type {
        DataType::Int64 => Arc::new(parsed!(Int64Array, |text: &str| text.parse::<i64>().ok())),
        DataType::UInt64 => Arc::new(parsed!(UInt64Array, |text: &str| text.parse::<u64>().ok())),
        DataType::Float64 => Arc::new(parsed!(Float64Array, float)),
        DataType::Boolean => Arc::new(parsed!(BooleanArray, truth)),
        DataType::Timestamp(..) => {
            Arc::new(parsed!(TimestampNanosecondArray, time).with_timezone("UTC"))
        }
        _ => column.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn types_of(values: &[&str]) -> DataType {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let lines: Vec<String> = values.iter().map(|value| format!("\"{value}\",x\n")).collect();
        std::fs::write(&path, format!("value,other\n{}", lines.concat())).unwrap();
        let csv = open(&path).unwrap();
        let rows: usize = csv.read(&[0]).unwrap().map(|columns| columns.unwrap()[0].len()).sum();
        assert_eq!(rows, values.len());
        csv.schema().field(0).data_type().clone()
    }

    #[test]
    fn columns_have_the_narrowest_type_of_all_their_values() {
        assert_eq!(types_of(&["1", "", "-7"]), DataType::Int64);
        assert_eq!(types_of(&["1", "18446744073709551615"]), DataType::UInt64);
        assert_eq!(types_of(&["-1", "18446744073709551615"]), DataType::Float64);
        assert_eq!(types_of(&["1", "2.5", "1e300"]), DataType::Float64);
        assert_eq!(types_of(&["true", "FALSE"]), DataType::Boolean);
        assert_eq!(types_of(&["2024-02-29", "2024-02-29T10:00:00Z"]), time_type());
        assert_eq!(types_of(&[]), DataType::Utf8);
        for text in
            ["007", "nan", "inf", "1e999", "99999999999999999999", "0x1f", "2024-13-01", "+1", "-"]
        {
            assert_eq!(types_of(&["1", text]), DataType::Utf8, "{text}");
        }
        // One value among many is enough.
        let mut many = vec!["5"; 20_000];
        many.push("five");
        assert_eq!(types_of(&many), DataType::Utf8);
    }
}
