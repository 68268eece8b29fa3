//! A file of the format of today, kept as it was written: it must be read to the same records for
//! ever, and today's builder must make one of the same records. With `CANOPY_WRITE_GOLDEN` in the
//! environment the test writes it anew: only for a new format.

use super::{file, layout, open, scan};
use canopy_store::sstable::{Sstable, SstableInfo, VERSION};
use canopy_store::storage::{MemoryStorage, Storage};
use canopy_store::{Key, KeyRange, Layout, Op, Record};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn golden(extension: &str) -> PathBuf {
    let name = format!("tests/golden/sstable-{VERSION}.{extension}");
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns records that use every kind of column and block there is.
fn records() -> (Layout, Vec<Record>) {
    let layout = layout(&[(4, None), (8, None), (8, Some(1)), (1, None), (2, None), (8, None)]);
    let mut records = Vec::new();
    for at in 0..60u64 {
        let name = format!("part-{at:05}.parquet");
        let mut value = [0o100_644u32, 0o40_755, 7][at as usize % 3].to_le_bytes().to_vec();
        let time_ns = 1_700_000_000_123_456_789i64 + (at * at * 77_777_777_777) as i64;
        value.extend(time_ns.to_le_bytes());
        value.extend((time_ns - at as i64 * 1_003).to_le_bytes());
        value.push(5);
        value.extend((at as u16 * 1_009).to_le_bytes());
        value.extend((at as i64 * 3_000_000_000 - 7).to_le_bytes());
        value.extend_from_slice(&b"tail of a value"[..at as usize % 16]);
        let key = match at {
            0..20 => Key::named(7, name.as_bytes()),
            20..40 => Key::named(at * 1000, name.as_bytes()),
            _ => Key { directory: u64::MAX, hash: at / 10, name: name.into_bytes() },
        };
        let (op, value) = match at % 7 {
            5 => (Op::Delete, Vec::new()),
            6 if at > 30 => (Op::Merge, value[..9].to_vec()),
            6 => (Op::Merge, value),
            _ => (Op::Put, value),
        };
        records.push(Record { key, op, value });
    }
    records.sort_by(|one, other| one.key.cmp(&other.key));
    (layout, records)
}

fn describe(table: &Arc<Sstable>) -> String {
    let mut text = format!("{:#?}\n", table.properties());
    for range in table.range_deletes() {
        writeln!(text, "range delete {range:?}").unwrap();
    }
    for Record { key, op, value } in scan(table, KeyRange::all()).unwrap() {
        writeln!(text, "{key:?} {op:?} {}", value.escape_ascii()).unwrap();
    }
    text
}

#[test]
fn the_golden_file_has_what_it_had() {
    let (layout, records) = records();
    let end = Some(Key { directory: 9, hash: 1, name: b"end".to_vec() });
    let deletes = [KeyRange { start: Key::named(1, b""), end }, KeyRange::directory(u64::MAX)];
    let (bytes, info) = file(&layout, 500, &records, &deletes);
    let today = describe(&open(bytes.clone(), &info, 0).unwrap());
    if std::env::var_os("CANOPY_WRITE_GOLDEN").is_some() {
        std::fs::write(golden("sst"), &bytes).unwrap();
        std::fs::write(golden("txt"), &today).unwrap();
    }
    let kept = std::fs::read(golden("sst")).unwrap();
    let storage = MemoryStorage::default();
    storage.create("golden", kept.clone().into()).unwrap();
    let info = SstableInfo::read(&storage, "golden", kept.len() as u64).unwrap();
    let kept = open(kept, &info, 0).unwrap();
    kept.verify().unwrap();
    let text = std::fs::read_to_string(golden("txt")).unwrap();
    assert_eq!(describe(&kept), text, "the golden file is read otherwise");
    assert_eq!(today, text, "today's builder makes another file");
}
