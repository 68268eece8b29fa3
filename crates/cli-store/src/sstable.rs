//! `canopy store stat` of an SSTable

use crate::manifest::{bytes_per, print_aligned};
use crate::show::{self, stdout};
use crate::storage::{StoredObject, open_object};
use canopy::Outcome;
use canopy_store::ObjectKind;
use canopy_store::sstable::{BlockCache, Sstable, SstableInfo, VERSION};
use canopy_text::counted;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

/// Memory for blocks that are looked up; scans do not fill it.
const CACHE_BYTES: u64 = 1 << 20;

/// Bytes of the footer itself.
const FOOTER_BYTES: u64 = 56;

/// Opens an SSTable without a manifest.
pub fn open(place: &StoredObject) -> canopy_store::Result<Arc<Sstable>> {
    let storage = &place.environment.storage;
    let size_bytes = storage.size(&place.name)?;
    let info = SstableInfo::read(&**storage, &place.name, size_bytes)?;
    let cache = Arc::new(BlockCache::new(CACHE_BYTES));
    Sstable::open(storage.clone(), place.name.clone(), &info, cache).map(Arc::new)
}

/// Totals of all blocks.
#[derive(Default)]
struct Blocks {
    apart: u64,
    column_bytes: u64,
    text_bytes: u64,
    name_bytes: u64,
    tail_bytes: u64,
    /// Sizes of the smallest and the greatest block.
    least_bytes: u64,
    most_bytes: u64,
    /// Bits of each column's codes, and numbers of blocks by the encoding of that column.
    columns: Vec<(u64, BTreeMap<&'static str, u64>)>,
}

/// Carries the subcommand out.
pub fn run(location: &str, is_json: bool) -> anyhow::Result<Outcome> {
    let place = open_object(location)?;
    anyhow::ensure!(
        place.kind == ObjectKind::Sstable,
        "{location}: no SSTable; 'canopy store dump' prints it"
    );
    let sstable = open(&place)?;
    let blocks = describe(&sstable)?;
    let mut output = stdout(is_json);
    match is_json {
        true => writeln!(output, "{:#}", as_json(&sstable, &blocks))?,
        false => print(&sstable, &blocks, &mut output)?,
    }
    output.flush()?;
    Ok(Outcome::Complete)
}

fn describe(sstable: &Sstable) -> canopy_store::Result<Blocks> {
    let columns = sstable.properties().layout.columns.len();
    let mut all = Blocks { least_bytes: u64::MAX, ..Blocks::default() };
    all.columns.resize_with(columns, Default::default);
    sstable.describe_blocks(|block| {
        let block = block?;
        let bytes = block.range.end - block.range.start;
        all.least_bytes = all.least_bytes.min(bytes);
        all.most_bytes = all.most_bytes.max(bytes);
        all.column_bytes += block.column_bytes as u64;
        all.text_bytes += block.text_bytes as u64;
        all.name_bytes += block.name_bytes as u64;
        all.tail_bytes += block.tail_bytes as u64;
        all.apart += u64::from(!block.columns.is_empty());
        for ((bits, kinds), (kind, width)) in all.columns.iter_mut().zip(block.columns) {
            *bits += u64::from(width) * block.records;
            *kinds.entry(kind).or_default() += 1;
        }
        Ok::<_, canopy_store::Error>(())
    })?;
    all.least_bytes = all.least_bytes.min(all.most_bytes);
    Ok(all)
}

/// Returns the bytes of blocks, range deletes, index, filter, properties and footer.
fn sections(sstable: &Sstable) -> [(&'static str, u64); 6] {
    let info = sstable.info();
    let [deletes, index, filter] = sstable.tail_parts().map(|bytes| bytes as u64);
    let known = deletes + index + filter + FOOTER_BYTES;
    [
        ("blocks", info.size_bytes.saturating_sub(info.tail_bytes)),
        ("range_deletes", deletes),
        ("index", index),
        ("filter", filter),
        ("properties", info.tail_bytes.saturating_sub(known)),
        ("footer", FOOTER_BYTES),
    ]
}

fn print(sstable: &Sstable, blocks: &Blocks, output: &mut dyn Write) -> io::Result<()> {
    let (info, properties) = (sstable.info(), sstable.properties());
    let per_record = bytes_per(info.size_bytes, info.records);
    writeln!(output, "SSTable      {}", show::text(sstable.name().as_bytes()))?;
    writeln!(output, "format       {VERSION}")?;
    writeln!(output, "bytes        {} ({per_record} a record)", info.size_bytes)?;
    for (name, bytes) in sections(sstable) {
        let name = name.replace('_', " ");
        writeln!(
            output,
            "  {name:<15}{bytes:>12}  {:>6} a record",
            bytes_per(bytes, info.records)
        )?;
    }
    let (deletes, merges) = (counted(info.deletes, "delete"), counted(info.merges, "merge"));
    writeln!(output, "records      {} ({deletes}, {merges})", info.records)?;
    if let Some((first, last)) = &properties.ends {
        writeln!(output, "first key    {}", show::key(first.as_ref()))?;
        writeln!(output, "last key     {}", show::key(last.as_ref()))?;
    }
    writeln!(output, "keys         {}", show::range(&properties.span))?;
    for range in sstable.range_deletes() {
        writeln!(output, "range delete {}", show::range(range))?;
    }
    writeln!(
        output,
        "blocks       {} of {} to {} bytes, {} with columns apart",
        sstable.blocks(),
        blocks.least_bytes,
        blocks.most_bytes,
        blocks.apart
    )?;
    writeln!(output, "numbers      {} bytes", blocks.column_bytes)?;
    writeln!(
        output,
        "text         {} bytes: {} of names and {} behind columns, compressed",
        blocks.text_bytes, blocks.name_bytes, blocks.tail_bytes
    )?;
    print_columns(sstable, blocks, output)
}

fn print_columns(sstable: &Sstable, blocks: &Blocks, output: &mut dyn Write) -> io::Result<()> {
    let properties = sstable.properties();
    if properties.layout.columns.is_empty() {
        return Ok(());
    }
    let heads = ["COLUMN", "STORED (BLOCKS)", "WIDTH", "BITS/RECORD", "BYTES"];
    let mut rows = vec![heads.map(str::to_owned)];
    for (column, (bits, kinds)) in properties.layout.columns.iter().zip(&blocks.columns) {
        let kinds = kinds.iter().map(|(kind, count)| format!("{kind} {count}"));
        rows.push([
            show::text(column.name.as_bytes()),
            Vec::from_iter(kinds).join(", "),
            column.width.to_string(),
            bytes_per(*bits, properties.records),
            bits.div_ceil(8).to_string(),
        ]);
    }
    print_aligned(&rows, 2, "  ", output)
}

fn as_json(sstable: &Sstable, blocks: &Blocks) -> Value {
    let (info, properties) = (sstable.info(), sstable.properties());
    let sections = sections(sstable).map(|(name, bytes)| (name.to_owned(), json!(bytes)));
    let ends = properties.ends.as_ref();
    let columns = properties.layout.columns.iter().zip(&blocks.columns);
    let columns = columns.map(|(column, (bits, kinds))| {
        json!({
            "name": show::text(column.name.as_bytes()),
            "width": column.width,
            "near": column.near,
            "code_bytes": bits.div_ceil(8),
            "blocks": kinds,
        })
    });
    json!({
        "name": show::text(sstable.name().as_bytes()),
        "format": VERSION,
        "bytes": info.size_bytes,
        "sections": Value::Object(sections.into_iter().collect()),
        "records": info.records,
        "deletes": info.deletes,
        "merges": info.merges,
        "first": ends.map(|(first, _)| show::key(first.as_ref())),
        "last": ends.map(|(_, last)| show::key(last.as_ref())),
        "keys": show::range_json(&properties.span),
        "range_deletes": Vec::from_iter(sstable.range_deletes().iter().map(show::range_json)),
        "blocks": sstable.blocks(),
        "blocks_apart": blocks.apart,
        "least_block_bytes": blocks.least_bytes,
        "most_block_bytes": blocks.most_bytes,
        "number_bytes": blocks.column_bytes,
        "text_bytes": blocks.text_bytes,
        "name_bytes": blocks.name_bytes,
        "tail_bytes": blocks.tail_bytes,
        "columns": Vec::from_iter(columns),
    })
}
