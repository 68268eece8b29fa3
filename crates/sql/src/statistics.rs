//! The columns that summaries have in SQL.

use arrow::array::{
    ArrayRef, Date32Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampNanosecondArray, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use canopy_index::Columns;
use canopy_index::column::time_type;
use canopy_model::{Count, Histogram, Parts, Summary, size_class_min};
use canopy_read::summaries::Wanted;
use chrono::NaiveDate;
use std::sync::Arc;

/// A column that a [`Summary`] gives.
pub(super) struct Statistic {
    pub(super) name: &'static str,
    value: Value,
    /// Columns of entries that it is made of.
    columns: &'static [&'static str],
}

enum Value {
    Number(fn(&Summary) -> i64),
    /// Null where there are no entries.
    Extremum(fn(&Summary) -> i64),
    /// In nanoseconds since 1970; null where there are no entries.
    Time(fn(&Summary) -> i64),
    /// Null where there are no entries.
    Id(fn(&Summary) -> Option<u32>),
    Sizes,
    Months(fn(&Summary) -> &Histogram),
    Extensions,
}

const fn number(
    name: &'static str,
    columns: &'static [&'static str],
    value: fn(&Summary) -> i64,
) -> Statistic {
    Statistic { name, value: Value::Number(value), columns }
}

const fn extremum(
    name: &'static str,
    columns: &'static [&'static str],
    value: fn(&Summary) -> i64,
) -> Statistic {
    Statistic { name, value: Value::Extremum(value), columns }
}

const fn time(
    name: &'static str,
    columns: &'static [&'static str],
    value: fn(&Summary) -> i64,
) -> Statistic {
    Statistic { name, value: Value::Time(value), columns }
}

const fn id(
    name: &'static str,
    columns: &'static [&'static str],
    value: fn(&Summary) -> Option<u32>,
) -> Statistic {
    Statistic { name, value: Value::Id(value), columns }
}

/// All statistics, in the order of their columns.
pub(super) const STATISTICS: [Statistic; 34] = [
    number("files", &["mode"], |s| s.types[0]),
    number("symlinks", &["mode"], |s| s.types[1]),
    number("fifos", &["mode"], |s| s.types[2]),
    number("sockets", &["mode"], |s| s.types[3]),
    number("block_devices", &["mode"], |s| s.types[4]),
    number("char_devices", &["mode"], |s| s.types[5]),
    number("others", &["mode"], |s| s.types[6]),
    number("zero_files", &["mode", "size"], |s| s.zero_files),
    number("linked", &["nlink"], |s| s.linked),
    number("with_xattrs", &["xattrs"], |s| s.with_xattrs),
    number("size", &["size"], |s| s.bytes),
    extremum("size_min", &["size"], |s| s.size.min),
    extremum("size_max", &["size"], |s| s.size.max),
    number("blocks", &["blocks"], |s| s.blocks),
    extremum("blocks_min", &["blocks"], |s| s.blocks_each.min),
    extremum("blocks_max", &["blocks"], |s| s.blocks_each.max),
    number("owners", &["uid"], |s| s.uids.len() as i64),
    number("groups", &["gid"], |s| s.gids.len() as i64),
    id("uid_min", &["uid"], |s| s.uids.first().copied()),
    id("uid_max", &["uid"], |s| s.uids.last().copied()),
    id("gid_min", &["gid"], |s| s.gids.first().copied()),
    id("gid_max", &["gid"], |s| s.gids.last().copied()),
    time("atime_min", &["atime"], |s| s.times[0].min),
    time("atime_max", &["atime"], |s| s.times[0].max),
    time("mtime_min", &["mtime"], |s| s.times[1].min),
    time("mtime_max", &["mtime"], |s| s.times[1].max),
    time("ctime_min", &["ctime"], |s| s.times[2].min),
    time("ctime_max", &["ctime"], |s| s.times[2].max),
    time("btime_min", &["btime"], |s| s.times[3].min),
    time("btime_max", &["btime"], |s| s.times[3].max),
    Statistic { name: "size_hist", value: Value::Sizes, columns: &["size"] },
    Statistic {
        name: "mtime_hist",
        value: Value::Months(|s| &s.mtimes),
        columns: &["size", "mtime"],
    },
    Statistic {
        name: "atime_hist",
        value: Value::Months(|s| &s.atimes),
        columns: &["size", "atime"],
    },
    Statistic { name: "extensions", value: Value::Extensions, columns: &["name", "size"] },
];

/// What has to be read for the columns of these names.
pub(super) fn wanted<'a>(names: impl Iterator<Item = &'a str>) -> Wanted {
    let mut wanted = Wanted { parts: Parts::default(), columns: Columns::NONE };
    for name in names {
        let Some(statistic) = STATISTICS.iter().find(|statistic| statistic.name == name) else {
            continue;
        };
        let parts = &mut wanted.parts;
        parts.owners |= statistic.columns == ["uid"] || statistic.columns == ["gid"];
        parts.histograms |= matches!(statistic.value, Value::Sizes | Value::Months(_));
        parts.extensions |= matches!(statistic.value, Value::Extensions);
        wanted.columns.add(statistic.columns);
    }
    wanted
}

impl Statistic {
    /// Its column.
    pub(super) fn field(&self) -> Field {
        let extremum = |data_type| Field::new(self.name, data_type, true);
        match &self.value {
            Value::Number(_) => Field::new(self.name, DataType::Int64, false),
            Value::Extremum(_) => extremum(DataType::Int64),
            Value::Time(_) => extremum(time_type()),
            Value::Id(_) => extremum(DataType::UInt32),
            Value::Sizes => Field::new(self.name, list_of("low", DataType::Int64), false),
            Value::Months(_) => Field::new(self.name, list_of("month", DataType::Date32), false),
            Value::Extensions => Field::new(self.name, list_of("extension", DataType::Utf8), false),
        }
    }

    /// Its values for some summaries.
    pub(super) fn array(&self, summaries: &[&Summary]) -> ArrayRef {
        let rows = || summaries.iter().copied();
        let some = |value: fn(&Summary) -> i64| {
            let value = move |s: &Summary| (s.entries() > 0).then(|| value(s));
            rows().map(value).collect::<Vec<_>>()
        };
        match &self.value {
            Value::Number(value) => Arc::new(Int64Array::from_iter_values(rows().map(value))),
            Value::Extremum(value) => Arc::new(Int64Array::from(some(*value))),
            Value::Time(value) => {
                Arc::new(TimestampNanosecondArray::from(some(*value)).with_timezone("UTC"))
            }
            Value::Id(value) => Arc::new(rows().map(value).collect::<UInt32Array>()),
            Value::Sizes => {
                let lows = |summary: &Summary| -> Vec<(i64, Count)> {
                    summary
                        .sizes
                        .iter()
                        .map(|(class, count)| (size_class_min(class), count))
                        .collect()
                };
                let lists: Vec<_> = rows().map(lows).collect();
                list("low", DataType::Int64, lists, |lows| Arc::new(Int64Array::from(lows)))
            }
            Value::Months(histogram) => {
                let months = |summary: &Summary| -> Vec<(i32, Count)> {
                    histogram(summary)
                        .iter()
                        .map(|(month, count)| (first_day(month), count))
                        .collect()
                };
                let lists: Vec<_> = rows().map(months).collect();
                list("month", DataType::Date32, lists, |days| Arc::new(Date32Array::from(days)))
            }
            Value::Extensions => {
                let lists: Vec<_> = rows().map(extensions).collect();
                list("extension", DataType::Utf8, lists, |names| Arc::new(StringArray::from(names)))
            }
        }
    }
}

/// By count, the greatest first.
fn extensions(summary: &Summary) -> Vec<(&str, Count)> {
    let mut found: Vec<(&str, Count)> =
        summary.extensions.iter().map(|(extension, count)| (&**extension, *count)).collect();
    found.sort_unstable_by(|a, b| b.1.entries.cmp(&a.1.entries).then(a.0.cmp(b.0)));
    found
}

/// The first day of a month since January 1970, in days since 1970.
fn first_day(month: i32) -> i32 {
    let first =
        NaiveDate::from_ymd_opt(1970 + month.div_euclid(12), month.rem_euclid(12) as u32 + 1, 1);
    first.map_or(0, |day| day.to_epoch_days())
}

fn fields_of(key: &str, key_type: DataType) -> Fields {
    let number = |name: &str| Field::new(name, DataType::Int64, false);
    Fields::from(vec![Field::new(key, key_type, false), number("count"), number("size")])
}

fn list_of(key: &str, key_type: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Struct(fields_of(key, key_type)), false)))
}

fn list<K>(
    key: &str,
    key_type: DataType,
    lists: Vec<Vec<(K, Count)>>,
    keys: impl Fn(Vec<K>) -> ArrayRef,
) -> ArrayRef {
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
    let (names, counts): (Vec<K>, Vec<Count>) = lists.into_iter().flatten().unzip();
    let number = |value: fn(&Count) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(counts.iter().map(value)))
    };
    let columns = vec![keys(names), number(|count| count.entries), number(|count| count.bytes)];
    let fields = fields_of(key, key_type);
    let item = Arc::new(Field::new("item", DataType::Struct(fields.clone()), false));
    Arc::new(ListArray::new(item, offsets, Arc::new(StructArray::new(fields, columns, None)), None))
}
