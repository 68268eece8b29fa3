//! SSTables: what was written is read, whatever it is; what was damaged is noticed.

mod damage;
mod golden;
mod model;
mod reads;

use canopy_store::sstable::{BlockCache, Builder, BuilderOptions, Sstable, SstableInfo};
use canopy_store::storage::{Created, MemoryStorage, Storage};
use canopy_store::{Column, KeyRange, Layout, Record, Result};
use std::sync::Arc;

/// Returns a layout of columns with these widths, each near to the column of the number given.
fn layout(columns: &[(u8, Option<u8>)]) -> Layout {
    let column = |(at, (width, near)): (usize, &(u8, Option<u8>))| Column {
        name: format!("column {at}"),
        width: *width,
        near: *near,
    };
    Layout { columns: columns.iter().enumerate().map(column).collect() }
}

/// Returns the file of `records`, which are sorted.
fn file(
    layout: &Layout,
    block_bytes: usize,
    records: &[Record],
    range_deletes: &[KeyRange],
) -> (Vec<u8>, SstableInfo) {
    let mut builder = Builder::new(layout, BuilderOptions { block_bytes });
    for record in records {
        builder.add(record.as_ref()).unwrap();
    }
    range_deletes.iter().for_each(|range| builder.delete_range(range.clone()));
    let (file, info) = builder.finish().unwrap();
    assert_eq!(file.len() as u64, info.size_bytes);
    (file.into(), info)
}

/// Opens the file that `bytes` are.
fn open(bytes: Vec<u8>, info: &SstableInfo, cache_bytes: u64) -> Result<Arc<Sstable>> {
    let storage = MemoryStorage::default();
    assert_eq!(storage.create("sst/1-1", bytes.into())?, Created::Now);
    let cache = Arc::new(BlockCache::new(cache_bytes));
    Sstable::open(Arc::new(storage), "sst/1-1".into(), info, cache).map(Arc::new)
}

/// Returns all records in `range`.
fn scan(table: &Arc<Sstable>, range: KeyRange) -> Result<Vec<Record>> {
    let mut cursor = table.cursor(range);
    let mut records = Vec::new();
    while cursor.advance()? {
        records.extend(cursor.record().map(|record| record.to_record()));
    }
    Ok(records)
}
