//! GUFI's trace, in its newer form with lengths before texts (`worktofile` in its `trace.c`).
//!
//! A *stanza* is a line for a directory and a line for each of its entries that are not
//! directories. Stanzas come in any order and in any part. Names are paths that begin with the last
//! component of the start. Directories that the caller cannot list have no stanza, as GUFI's own
//! walk leaves them out. GUFI knows files and symbolic links only; other entries have find's
//! letters, which its readers take.
//!
//! A line has its directory's inode number, which for a directory is in another listing. So the
//! listings are read twice: a survey looks for directories whose parent is not before them in the
//! same unit, and for further parts of huge directories, which belong to the stanza of the first
//! part; then stanzas are written.

use super::blocks::{Blocks, Output, push_decimal, push_unsigned};
use super::xattrs::{Pair, Values};
use crate::error::{Error, Result};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{UInt32Type, UInt64Type};
use canopy_index::{FileKind, RowRange, Shard};
use canopy_model::{Attributes, FileType, base_name, is_below, join, parent, unescape};
use canopy_read::columns::{INODE, InodeColumns, numbers, strings, text_or_empty};
use canopy_read::cursor::Cursor;
use canopy_read::locate::{Start, absolute_path};
use canopy_read::work::{by_workers, in_parallel};
use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const BATCH_ROWS: usize = 8192;

/// Listings of a unit of work.
const UNIT_LISTINGS: usize = 4096;

/// Entries read at a time.
const CHUNK_ROWS: usize = 32 * 1024;

/// Separates names and values of extended attributes.
const XATTR_DELIM: u8 = 0x1F;

/// Listings of one shard below one start.
struct Unit<'a> {
    start: &'a Start,
    values: &'a Values,
    shard: &'a Shard,
    listings: RowRange,
}

/// Another part of a huge directory.
struct Part<'a> {
    part: u32,
    shard: &'a Shard,
    entries: RowRange,
}

/// What stanzas need to know of other listings, by source and path.
#[derive(Default)]
struct Survey<'a> {
    inodes: FxHashMap<(u32, String), u64>,
    parts: FxHashMap<(u32, String), Vec<Part<'a>>>,
}

/// The head of a stanza.
struct Head {
    path: String,
    part: u32,
    attributes: Attributes,
    /// Inode of the directory that holds it, 0 if not known.
    parent: u64,
    entries: RowRange,
}

/// Writes the stanzas of all starts, by `threads` or as many workers as there are outputs. Returns
/// how many names and targets hold an end of line, and how many extended attributes were left out.
pub(super) fn write(
    starts: &[Start],
    delim: u8,
    all_xattrs: bool,
    threads: usize,
    outputs: &[Mutex<Output>],
) -> Result<(u64, u64)> {
    let mut names = FxHashSet::default();
    for start in starts {
        if !names.insert(name_of(start)) {
            return Err(Error::SameName(String::from_utf8_lossy(&name_of(start)).into_owned()));
        }
    }
    let mut units = Vec::new();
    let mut values = starts.iter().map(Values::below).collect::<Result<Vec<_>>>()?;
    let mut left_out = 0;
    if !all_xattrs {
        // GUFI keeps no others, and takes a value to end at its first NUL.
        let readable = |(key, value): &Pair| {
            key.starts_with(b"user.")
                && !value.iter().any(|byte| matches!(*byte, 0 | b'\n' | XATTR_DELIM))
        };
        left_out = values.iter_mut().map(|values| values.retain(readable)).sum();
    }
    for (start, values) in starts.iter().zip(&values) {
        for shard in start.view.shards_of(start.source.id) {
            let listings = shard.listings_below(&start.path)?;
            let ends = |first: usize| listings.end.min(first + UNIT_LISTINGS);
            let firsts = listings.clone().step_by(UNIT_LISTINGS);
            units.extend(firsts.map(|first| Unit {
                start,
                values,
                shard,
                listings: first..ends(first),
            }));
        }
    }
    let survey = survey(&units, threads)?;
    let broken_lines = AtomicU64::new(0);
    by_workers(
        threads.max(outputs.len()),
        &units,
        |worker| {
            let blocks = Blocks::new(&outputs[worker % outputs.len()]);
            Ok(Stanzas { delim, blocks, prefix: Vec::new(), names: 0, broken_lines: 0 })
        },
        |stanzas, unit| stanzas.unit(unit, &survey),
        |stanzas| {
            broken_lines.fetch_add(stanzas.broken_lines, Ordering::Relaxed);
            stanzas.blocks.finish()
        },
    )?;
    Ok((broken_lines.into_inner(), left_out))
}

/// What the names of a start begin with.
fn name_of(start: &Start) -> Vec<u8> {
    let path = absolute_path(&start.source, &start.path);
    let name = base_name(&path);
    if name.is_empty() { b"/".to_vec() } else { unescape(name).into_owned() }
}

fn survey<'a>(units: &[Unit<'a>], threads: usize) -> Result<Survey<'a>> {
    let survey = Mutex::new(Survey::default());
    let wanted = Mutex::new(FxHashSet::default());
    in_parallel(threads, units, |unit| -> Result<()> {
        let source = unit.start.source.id;
        let mut missing = Vec::new();
        let mut parts = Vec::new();
        for head in heads(unit, |path| missing.push(path.to_owned()))? {
            if head.part > 0 {
                let part = Part { part: head.part, shard: unit.shard, entries: head.entries };
                parts.push((head.path, part));
            }
        }
        wanted
            .lock()
            .expect("no thread panics while it holds the lock")
            .extend(missing.into_iter().map(|path| (source, path)));
        let mut survey = survey.lock().expect("no thread panics while it holds the lock");
        for (path, part) in parts {
            survey.parts.entry((source, path)).or_default().push(part);
        }
        Ok(())
    })?;
    let wanted = wanted.into_inner().expect("no thread panics while it holds the lock");
    in_parallel(threads, if wanted.is_empty() { &[] } else { units }, |unit| -> Result<()> {
        let mut found = Vec::new();
        let columns = ["path", "ino"];
        let listings = std::slice::from_ref(&unit.listings);
        for batch in unit.shard.read(FileKind::Listings, &columns, listings, BATCH_ROWS)? {
            let batch = batch?;
            let inodes = numbers::<UInt64Type>(&batch, "ino").values();
            for (path, &ino) in strings(&batch, "path").iter().flatten().zip(inodes) {
                let key = (unit.start.source.id, path.to_owned());
                if wanted.contains(&key) {
                    found.push((key, ino));
                }
            }
        }
        survey.lock().expect("no thread panics while it holds the lock").inodes.extend(found);
        Ok(())
    })?;
    let mut survey = survey.into_inner().expect("no thread panics while it holds the lock");
    survey.parts.values_mut().for_each(|parts| parts.sort_by_key(|part| part.part));
    Ok(survey)
}

/// The heads of a unit. A directory whose parent is not before it in the unit has parent 0, and
/// `missing` gets the parent's path.
fn heads(unit: &Unit<'_>, mut missing: impl FnMut(&str)) -> Result<Vec<Head>> {
    let mut heads: Vec<Head> = Vec::with_capacity(unit.listings.len());
    // Directories at or above the last one, with their inodes.
    let mut above: Vec<(String, u64)> = Vec::new();
    let mut columns = INODE.to_vec();
    columns.extend(["path", "part", "first_entry"]);
    let listings = std::slice::from_ref(&unit.listings);
    for batch in unit.shard.read(FileKind::Listings, &columns, listings, BATCH_ROWS)? {
        let batch = batch?;
        let inodes = InodeColumns::of(&batch);
        let paths = strings(&batch, "path");
        let [parts, firsts] =
            ["part", "first_entry"].map(|name| numbers::<UInt32Type>(&batch, name).values());
        for at in 0..batch.num_rows() {
            let (path, attributes) = (paths.value(at), inodes.row(at));
            while above.pop_if(|(top, _)| top == path || !is_below(path, top)).is_some() {}
            let mut parent_ino = 0;
            if path != unit.start.path
                && let Some(parent) = parent(path)
            {
                match above.last() {
                    Some((top, ino)) if top == parent => parent_ino = *ino,
                    _ => missing(parent),
                }
            }
            above.push((path.to_owned(), attributes.ino));
            let first = firsts[at] as usize;
            if let Some(before) = heads.last_mut() {
                before.entries.end = first;
            }
            let path = path.to_owned();
            heads.push(Head {
                path,
                part: parts[at],
                attributes,
                parent: parent_ino,
                entries: first..first,
            });
        }
    }
    let end = unit.shard.rows_of(unit.listings.clone())?.0.end;
    if let Some(last) = heads.last_mut() {
        last.entries.end = end;
    }
    if heads.iter().any(|head| head.entries.start > head.entries.end) {
        return Err(unit.shard.corrupt(FileKind::Listings, "its ordinals are out of order").into());
    }
    Ok(heads)
}

/// Writes stanzas of one worker.
struct Stanzas<'a> {
    delim: u8,
    blocks: Blocks<'a>,
    /// What all names of the stanza begin with, and how many there have been.
    prefix: Vec<u8>,
    names: u64,
    broken_lines: u64,
}

impl Stanzas<'_> {
    fn unit(&mut self, unit: &Unit<'_>, survey: &Survey<'_>) -> Result<()> {
        let source = unit.start.source.id;
        let name = name_of(unit.start);
        let mut heads = heads(unit, |_| ())?;
        for head in &mut heads {
            if head.parent == 0
                && let Some(parent) = parent(&head.path)
            {
                let ino = survey.inodes.get(&(source, parent.to_owned()));
                head.parent = ino.copied().filter(|_| head.path != unit.start.path).unwrap_or(0);
            }
        }
        let all = heads.first().map_or(0, |head| head.entries.start)
            ..heads.last().map_or(0, |h| h.entries.end);
        let mut columns = INODE.to_vec();
        columns.extend(["name", "target"]);
        let mut rows =
            Cursor::new(unit.shard, FileKind::Entries, (&columns).into(), all, CHUNK_ROWS);
        for head in &heads {
            // Further parts are written with the first one, which may be in another shard.
            if head.part > 0 {
                rows.take(head.entries.len(), |_, _| Ok::<_, Error>(()))?;
                continue;
            }
            self.directory(head, unit, &name);
            let ino = head.attributes.ino;
            rows.take(head.entries.len(), |batch, rows| -> Result<()> {
                self.entries(batch, rows, ino, head, unit)
            })?;
            let parts = survey.parts.get(&(source, head.path.clone()));
            for part in parts.into_iter().flatten() {
                let rows = part.entries.clone();
                let mut rows =
                    Cursor::new(part.shard, FileKind::Entries, (&columns).into(), rows, CHUNK_ROWS);
                rows.take(part.entries.len(), |batch, rows| -> Result<()> {
                    self.entries(batch, rows, ino, head, unit)
                })?;
            }
            self.blocks.ends()?;
        }
        Ok(())
    }

    fn directory(&mut self, head: &Head, unit: &Unit<'_>, name: &[u8]) {
        let below = head.path.get(unit.start.path.len()..).unwrap_or("").trim_start_matches('/');
        self.prefix.clear();
        self.prefix.extend_from_slice(name);
        if !below.is_empty() {
            if name != b"/" {
                self.prefix.push(b'/');
            }
            self.prefix.extend_from_slice(&unescape(below));
        }
        let path = std::mem::take(&mut self.prefix);
        self.line(&path, b'd', &head.attributes, b"", head.parent, unit.values.of(&head.path));
        self.prefix = path;
        if self.prefix.last() != Some(&b'/') {
            self.prefix.push(b'/');
        }
    }

    fn entries(
        &mut self,
        batch: &RecordBatch,
        rows: RowRange,
        parent: u64,
        head: &Head,
        unit: &Unit<'_>,
    ) -> Result<()> {
        let inodes = InodeColumns::of(batch);
        let names = strings(batch, "name");
        let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
        let mut path = std::mem::take(&mut self.prefix);
        let directory = path.len();
        for at in rows {
            path.truncate(directory);
            path.extend_from_slice(&unescape(names.value(at)));
            let attributes = inodes.row(at);
            let target = unescape(text_or_empty(targets, at));
            let letter = FileType::of_mode(attributes.mode).letter() as u8;
            let xattrs = match unit.values.is_empty() {
                true => &[],
                false => unit.values.of(&join(&head.path, names.value(at))),
            };
            self.line(&path, letter, &attributes, &target, parent, xattrs);
        }
        path.truncate(directory);
        self.prefix = path;
        self.blocks.goes_on()
    }

    fn line(
        &mut self,
        path: &[u8],
        letter: u8,
        attributes: &Attributes,
        target: &[u8],
        parent: u64,
        xattrs: &[Pair],
    ) {
        self.names += 1;
        let delim = self.delim;
        let line = &mut self.blocks.buffer;
        let begin = line.len();
        push_text(line, path, delim);
        line.extend_from_slice(&[letter, delim]);
        let a = attributes;
        for number in [
            a.ino,
            a.mode.into(),
            a.nlink.into(),
            a.uid.into(),
            a.gid.into(),
            a.size_bytes as u64,
            a.blksize_bytes.into(),
            a.blocks as u64,
        ] {
            push_unsigned(line, number);
            line.push(delim);
        }
        let seconds = |time_ns: i64| time_ns.div_euclid(1_000_000_000);
        for time in [a.atime_ns, a.mtime_ns, a.ctime_ns] {
            push_decimal(line, seconds(time));
            line.push(delim);
        }
        push_text(line, target, delim);
        push_xattrs(line, xattrs);
        line.push(delim);
        push_decimal(line, seconds(a.btime_ns));
        line.push(delim);
        // Four numbers and two texts for other systems' attributes.
        for text in ["0", "0", "0", "0", "0000", "0000"] {
            line.extend_from_slice(text.as_bytes());
            line.push(delim);
        }
        push_unsigned(line, parent);
        line.push(delim);
        if memchr::memchr(b'\n', &line[begin..]).is_some() {
            self.broken_lines += 1;
        }
        line.push(b'\n');
    }
}

/// Appends a text behind its length in four hexadecimal digits.
fn push_text(line: &mut Vec<u8>, text: &[u8], delim: u8) {
    push_hex(line, text.len());
    line.extend_from_slice(text);
    line.push(delim);
}

fn push_hex(line: &mut Vec<u8>, length: usize) {
    for shift in [12, 8, 4, 0] {
        line.push(b"0123456789abcdef"[length >> shift & 0xF]);
    }
}

/// Appends the length of what follows, the number of pairs, and the pairs.
fn push_xattrs(line: &mut Vec<u8>, xattrs: &[Pair]) {
    let begin = line.len();
    line.extend_from_slice(b"00040000");
    let mut count = 0;
    for (name, value) in xattrs {
        count += 1;
        line.extend_from_slice(name);
        line.push(XATTR_DELIM);
        line.extend_from_slice(value);
        line.push(XATTR_DELIM);
    }
    if count > 0 {
        let mut lengths = Vec::with_capacity(8);
        push_hex(&mut lengths, line.len() - begin - 4);
        push_hex(&mut lengths, count);
        line[begin..begin + 8].copy_from_slice(&lengths);
    }
}
