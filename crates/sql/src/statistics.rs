//! The columns that summaries have in SQL.

use arrow::array::{
    ArrayRef, Date32Array, Int64Array, ListArray, StringArray, StructArray,
    TimestampNanosecondArray, UInt32Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, Fields};
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns};
use canopy_model::{Count, Histogram, Summary, clamped, size_class_min};
use canopy_read::summaries::StatisticsRequest;
use chrono::NaiveDate;
use std::sync::Arc;

/// A column that a [`Summary`] gives.
#[derive(Debug)]
pub(super) struct Statistic {
    /// The name in SQL.
    pub(super) name: &'static str,
    value: Measure,
    /// Columns of entries that it is made of.
    columns: Columns,
}

#[derive(Debug)]
enum Measure {
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

const fn statistic(name: &'static str, columns: &[ColumnId], value: Measure) -> Statistic {
    Statistic { name, value, columns: Columns::of(columns) }
}

use Measure::{Extensions, Extremum, Id, Months, Number, Sizes, Time};

/// All statistics, in the order of their columns.
pub(super) static STATISTICS: [Statistic; 34] = [
    statistic("files", &[MODE.id()], Number(|s| s.types[0])),
    statistic("symlinks", &[MODE.id()], Number(|s| s.types[1])),
    statistic("fifos", &[MODE.id()], Number(|s| s.types[2])),
    statistic("sockets", &[MODE.id()], Number(|s| s.types[3])),
    statistic("block_devices", &[MODE.id()], Number(|s| s.types[4])),
    statistic("char_devices", &[MODE.id()], Number(|s| s.types[5])),
    statistic("others", &[MODE.id()], Number(|s| s.types[6])),
    statistic("zero_files", &[MODE.id(), SIZE.id()], Number(|s| s.zero_files)),
    statistic("linked", &[NLINK.id()], Number(|s| s.linked)),
    statistic("with_xattrs", &[XATTRS.id()], Number(|s| s.with_xattrs)),
    statistic("size", &[SIZE.id()], Number(|s| clamped(s.bytes))),
    statistic("size_min", &[SIZE.id()], Extremum(|s| s.size.min)),
    statistic("size_max", &[SIZE.id()], Extremum(|s| s.size.max)),
    statistic("blocks", &[BLOCKS.id()], Number(|s| clamped(s.blocks))),
    statistic("blocks_min", &[BLOCKS.id()], Extremum(|s| s.blocks_each.min)),
    statistic("blocks_max", &[BLOCKS.id()], Extremum(|s| s.blocks_each.max)),
    statistic("owners", &[UID.id()], Number(|s| s.uids.len() as i64)),
    statistic("groups", &[GID.id()], Number(|s| s.gids.len() as i64)),
    statistic("uid_min", &[UID.id()], Id(|s| s.uids.first().copied())),
    statistic("uid_max", &[UID.id()], Id(|s| s.uids.last().copied())),
    statistic("gid_min", &[GID.id()], Id(|s| s.gids.first().copied())),
    statistic("gid_max", &[GID.id()], Id(|s| s.gids.last().copied())),
    statistic("atime_min", &[ATIME.id()], Time(|s| s.times[0].min)),
    statistic("atime_max", &[ATIME.id()], Time(|s| s.times[0].max)),
    statistic("mtime_min", &[MTIME.id()], Time(|s| s.times[1].min)),
    statistic("mtime_max", &[MTIME.id()], Time(|s| s.times[1].max)),
    statistic("ctime_min", &[CTIME.id()], Time(|s| s.times[2].min)),
    statistic("ctime_max", &[CTIME.id()], Time(|s| s.times[2].max)),
    statistic("btime_min", &[BTIME.id()], Time(|s| s.times[3].min)),
    statistic("btime_max", &[BTIME.id()], Time(|s| s.times[3].max)),
    statistic("size_hist", &[SIZE.id()], Sizes),
    statistic("mtime_hist", &[SIZE.id(), MTIME.id()], Months(|s| &s.mtimes)),
    statistic("atime_hist", &[SIZE.id(), ATIME.id()], Months(|s| &s.atimes)),
    statistic("extensions", &[NAME.id(), SIZE.id()], Extensions),
];

impl Statistic {
    /// Adds the statistics of entries that it needs.
    pub(super) fn add_to(&self, wanted: &mut StatisticsRequest) {
        let parts = &mut wanted.parts;
        parts.owners |= self.columns == UID.into() || self.columns == GID.into();
        parts.histograms |= matches!(self.value, Sizes | Months(_));
        parts.extensions |= matches!(self.value, Extensions);
        wanted.columns.add(self.columns);
    }

    /// Returns its column as Arrow has it.
    pub(super) fn field(&self) -> Field {
        let extremum = |data_type| Field::new(self.name, data_type, true);
        match &self.value {
            Number(_) => Field::new(self.name, DataType::Int64, false),
            Extremum(_) => extremum(DataType::Int64),
            Time(_) => extremum(time_type()),
            Id(_) => extremum(DataType::UInt32),
            Sizes => Field::new(self.name, list_of("low", DataType::Int64), false),
            Months(_) => Field::new(self.name, list_of("month", DataType::Date32), false),
            Extensions => Field::new(self.name, list_of("extension", DataType::Utf8), false),
        }
    }

    /// Returns its values for some summaries.
    pub(super) fn array(&self, summaries: &[&Summary]) -> ArrayRef {
        let rows = || summaries.iter().copied();
        let some = |value: fn(&Summary) -> i64| {
            let value = move |s: &Summary| (s.entries() > 0).then(|| value(s));
            rows().map(value).collect::<Vec<_>>()
        };
        match &self.value {
            Number(value) => Arc::new(Int64Array::from_iter_values(rows().map(value))),
            Extremum(value) => Arc::new(Int64Array::from(some(*value))),
            Time(value) => {
                // A birth that is not known is 0.
                let birth = self.columns == BTIME.into();
                let known = |time: &i64| !birth || *time != 0;
                let times: Vec<_> =
                    some(*value).into_iter().map(|time| time.filter(known)).collect();
                Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC"))
            }
            Id(value) => Arc::new(rows().map(value).collect::<UInt32Array>()),
            Sizes => {
                let lists = rows().map(|summary| {
                    let sizes = summary.sizes.iter();
                    sizes.map(|(class, count)| (size_class_min(class), count)).collect()
                });
                list("low", DataType::Int64, lists, |lows| Arc::new(Int64Array::from(lows)))
            }
            Months(histogram) => {
                let lists = rows().map(|summary| {
                    let months = histogram(summary).iter();
                    months.map(|(month, count)| (first_day(month), count)).collect()
                });
                list("month", DataType::Date32, lists, |days| Arc::new(Date32Array::from(days)))
            }
            Extensions => {
                let lists = rows().map(extensions);
                list("extension", DataType::Utf8, lists, |names| Arc::new(StringArray::from(names)))
            }
        }
    }
}

/// Returns the counts by extension, the greatest first.
fn extensions(summary: &Summary) -> Vec<(&str, Count)> {
    let mut found: Vec<(&str, Count)> =
        summary.extensions.iter().map(|(extension, count)| (&**extension, *count)).collect();
    found.sort_unstable_by(|a, b| b.1.entries.cmp(&a.1.entries).then(a.0.cmp(b.0)));
    found
}

/// Returns the first day of a month since January 1970, in days since 1970.
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
    lists: impl Iterator<Item = Vec<(K, Count)>>,
    keys: impl Fn(Vec<K>) -> ArrayRef,
) -> ArrayRef {
    let lists: Vec<_> = lists.collect();
    let offsets = OffsetBuffer::from_lengths(lists.iter().map(Vec::len));
    let (names, counts): (Vec<K>, Vec<Count>) = lists.into_iter().flatten().unzip();
    let number = |value: fn(&Count) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(counts.iter().map(value)))
    };
    let columns =
        vec![keys(names), number(|count| count.entries), number(|count| clamped(count.bytes))];
    let fields = fields_of(key, key_type);
    let item = Arc::new(Field::new("item", DataType::Struct(fields.clone()), false));
    Arc::new(ListArray::new(item, offsets, Arc::new(StructArray::new(fields, columns, None)), None))
}
