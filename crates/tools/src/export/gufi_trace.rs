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

mod survey;

use super::blocks::{Blocks, Output, push_number};
use super::xattrs::{Pair, Values};
use crate::error::{Error, Result};
use arrow::array::RecordBatch;
use canopy_index::column::{INODE, NAME, TARGET};
use canopy_index::{Columns, FileKind, RowRange, Shard};
use canopy_model::{Attributes, FileType, base_name, unescape};
use canopy_read::cursor::Cursor;
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::locate::{Start, absolute_path};
use canopy_read::plan;
use canopy_read::work::by_workers;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use survey::{Head, ListingsUnit, Survey};

/// Listings of a unit of work.
const UNIT_LISTINGS: usize = 4096;

/// Entries read at a time.
const CHUNK_ROWS: usize = 32 * 1024;

/// Separates names and values of extended attributes.
const XATTR_DELIM: u8 = 0x1F;

/// Checks that no two starts have the same name, by which the format tells them apart.
pub(super) fn check(starts: &[Start]) -> Result<()> {
    let mut names = FxHashSet::default();
    for start in starts {
        if !names.insert(name_of(start)) {
            return Err(Error::SameName(String::from_utf8_lossy(&name_of(start)).into_owned()));
        }
    }
    Ok(())
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
    let units = units(starts, &values)?;
    let survey = Survey::of(&units, threads)?;
    let broken_lines = AtomicU64::new(0);
    by_workers(
        threads.max(outputs.len()),
        &units,
        |worker| {
            let blocks = Blocks::new(&outputs[worker % outputs.len()]);
            Ok(Stanzas { delim, blocks, prefix: Vec::new(), broken_lines: 0 })
        },
        |stanzas, unit| stanzas.unit(unit, &survey),
        |stanzas| {
            broken_lines.fetch_add(stanzas.broken_lines, Ordering::Relaxed);
            stanzas.blocks.finish()
        },
    )?;
    Ok((broken_lines.into_inner(), left_out))
}

/// Gives what the names of a start begin with.
fn name_of(start: &Start) -> Vec<u8> {
    let path = absolute_path(&start.source, start.path.as_path());
    let name = base_name(&path);
    if name.is_empty() { b"/".to_vec() } else { unescape(name).into_owned() }
}

/// Divides the listings of all starts among workers.
fn units<'a>(starts: &'a [Start], values: &'a [Values]) -> Result<Vec<ListingsUnit<'a>>> {
    let mut units = Vec::new();
    for (start, values) in starts.iter().zip(values) {
        for range in plan::below(&start.view, start.source.id, start.path.as_path())? {
            let pieces = range.pieces(UNIT_LISTINGS).into_iter();
            units.extend(pieces.map(|range| ListingsUnit { start, values, range }));
        }
    }
    Ok(units)
}

/// Writes stanzas of one worker.
struct Stanzas<'a> {
    delim: u8,
    blocks: Blocks<'a>,
    /// Prefix of all names of the stanza.
    prefix: Vec<u8>,
    broken_lines: u64,
}

impl Stanzas<'_> {
    fn unit(&mut self, unit: &ListingsUnit<'_>, survey: &Survey) -> Result<()> {
        let source = unit.start.source.id;
        let name = name_of(unit.start);
        let mut heads = unit.heads(|_| ())?;
        for head in heads.iter_mut().filter(|head| head.path != unit.start.path) {
            if head.parent == 0
                && let Some(parent) = head.path.as_path().parent()
            {
                let ino = survey.inodes.get(&(source, parent.to_buf()));
                head.parent = ino.copied().unwrap_or(0);
            }
        }
        let mut rows = entries(&unit.range.shard, unit.range.rows(FileKind::Entries)?);
        for head in &heads {
            // Further parts are written with the first one, which may be in another shard.
            if head.part > 0 {
                rows.take(head.entries.len(), |_, _| Ok::<_, Error>(()))?;
                continue;
            }
            self.directory(head, unit, &name);
            rows.take(head.entries.len(), |batch, rows| self.entries(batch, rows, head, unit))?;
            let parts = survey.parts.get(&(source, head.path.clone()));
            for part in parts.into_iter().flatten() {
                let mut rows = entries(&part.shard, vec![part.entries.clone()]);
                let count = part.entries.len();
                rows.take(count, |batch, rows| self.entries(batch, rows, head, unit))?;
            }
            self.blocks.ends()?;
        }
        Ok(())
    }

    fn directory(&mut self, head: &Head, unit: &ListingsUnit<'_>, name: &[u8]) {
        let below = head.path.as_str().get(unit.start.path.as_str().len()..);
        let below = below.unwrap_or("").trim_start_matches('/');
        self.prefix.clear();
        self.prefix.extend_from_slice(name);
        if !below.is_empty() {
            if name != b"/" {
                self.prefix.push(b'/');
            }
            self.prefix.extend_from_slice(&unescape(below));
        }
        let path = std::mem::take(&mut self.prefix);
        self.line(
            &path,
            b'd',
            &head.attributes,
            b"",
            head.parent,
            unit.values.of(head.path.as_path()),
        );
        self.prefix = path;
        if self.prefix.last() != Some(&b'/') {
            self.prefix.push(b'/');
        }
    }

    fn entries(
        &mut self,
        batch: &RecordBatch,
        rows: RowRange,
        head: &Head,
        unit: &ListingsUnit<'_>,
    ) -> Result<()> {
        let inodes = InodeColumns::of(batch);
        let (names, targets) = (NAME.of(batch)?, TARGET.find(batch));
        let parent = head.attributes.ino;
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
                false => unit.values.of(head.path.as_path().child(names.value(at)).as_path()),
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
            push_number(line, number);
            line.push(delim);
        }
        let seconds = |time_ns: i64| time_ns.div_euclid(1_000_000_000);
        for time in [a.atime_ns, a.mtime_ns, a.ctime_ns] {
            push_number(line, seconds(time));
            line.push(delim);
        }
        push_text(line, target, delim);
        push_xattrs(line, xattrs);
        line.push(delim);
        push_number(line, seconds(a.btime_ns));
        line.push(delim);
        // Four numbers and two texts for other systems' attributes.
        for text in ["0", "0", "0", "0", "0000", "0000"] {
            line.extend_from_slice(text.as_bytes());
            line.push(delim);
        }
        push_number(line, parent);
        line.push(delim);
        if memchr::memchr(b'\n', &line[begin..]).is_some() {
            self.broken_lines += 1;
        }
        line.push(b'\n');
    }
}

/// Takes entries of a shard some at a time.
fn entries(shard: &Shard, rows: Vec<RowRange>) -> Cursor<'_> {
    let columns: Columns = INODE | NAME | TARGET;
    Cursor::new(shard, FileKind::Entries, columns, rows, CHUNK_ROWS)
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
