//! `canopy store dump`

use crate::show::{self, stdout};
use crate::sstable;
use crate::storage::{StoredObject, find_table, open_object, open_storage};
use canopy::commands::store::Dump;
use canopy::{Outcome, message};
use canopy_store::manifest::{LogStart, Manifest};
use canopy_store::{
    Direction, Environment, Error, Key, KeyRange, KeyRef, Layout, MergeOperator, Mutation, Object,
    ObjectKind, Op, Options, Reader, SegmentInfo, SegmentKind, SstableCache, TableId, inspect,
    read_segment,
};
use canopy_text::counted;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// Memory for open SSTables and their blocks.
const MEMORY_BYTES: u64 = 64 << 20;

/// Carries the subcommand out.
pub fn run(arguments: &Dump) -> anyhow::Result<Outcome> {
    let range = range_of(arguments)?;
    let direction = if arguments.reverse { Direction::Backward } else { Direction::Forward };
    let mut dumping = Dumping {
        output: stdout(arguments.json),
        is_json: arguments.json,
        left: arguments.limit,
        layout: Layout::default(),
        range,
        direction,
        outcome: Outcome::Complete,
    };
    let ended = match &arguments.table {
        Some(table) => {
            let environment = open_storage(&arguments.storage)?;
            let id = find_table(&environment, table)?;
            dumping.table(&environment, id, arguments.log)
        }
        None => dumping.object(&open_object(&arguments.storage)?),
    };
    // Print the output so far even after an error.
    dumping.output.flush()?;
    match ended {
        Ok(()) | Err(Ended::Enough) => Ok(dumping.outcome),
        Err(Ended::Failed(error)) => Err(error),
    }
}

fn range_of(arguments: &Dump) -> anyhow::Result<KeyRange> {
    if let Some(prefix) = &arguments.prefix {
        return show::parse_prefix(prefix);
    }
    let key = |typed: &Option<String>| typed.as_deref().map(show::parse_key).transpose();
    Ok(KeyRange { start: key(&arguments.from)?.unwrap_or_default(), end: key(&arguments.to)? })
}

/// Why no more is printed.
enum Ended {
    /// As many lines as were asked for.
    Enough,
    Failed(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Ended {
    fn from(error: E) -> Self {
        Ended::Failed(error.into())
    }
}

/// Where a change is in a log.
#[derive(Clone, Copy)]
struct LogPlace {
    epoch: u64,
    segment: u64,
}

struct Dumping {
    output: BufWriter<Box<dyn Write>>,
    is_json: bool,
    /// Lines that may be printed yet, if there is a limit.
    left: Option<u64>,
    /// The columns of values.
    layout: Layout,
    range: KeyRange,
    direction: Direction,
    outcome: Outcome,
}

impl Dumping {
    fn line(&mut self, line: impl std::fmt::Display) -> Result<(), Ended> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1).ok_or(Ended::Enough)?;
        }
        Ok(writeln!(self.output, "{line}")?)
    }

    /// Prints what is not all of what was asked for.
    fn warn(&mut self, what: impl std::fmt::Display) {
        message(what);
        self.outcome = Outcome::Partial;
    }

    /// Prints a record; `merges` are operands that change its value, in their order.
    fn record(
        &mut self,
        op: Op,
        key: KeyRef<'_>,
        value: Option<&[u8]>,
        merges: &[Vec<u8>],
    ) -> Result<(), Ended> {
        if self.is_json {
            let mut object = show::key_json(key);
            object.insert("op".into(), show::op(op).into());
            if let Some(value) = value {
                object.insert("value".into(), show::value_json(&self.layout, value));
            }
            if !merges.is_empty() {
                object.insert("merges".into(), self.operands_json(merges));
            }
            return self.line(Value::Object(object));
        }
        let mut line = format!("{}\t{}", show::op(op), show::key(key));
        let value = value.map(|value| show::value(&self.layout, value));
        let merges = merges.iter().map(|operand| show::value(&self.layout, operand));
        let merges = merges.map(|operand| format!("merge {operand}"));
        for part in value.into_iter().chain(merges) {
            line.push('\t');
            line.push_str(&part);
        }
        self.line(line)
    }

    fn operands_json(&self, merges: &[Vec<u8>]) -> Value {
        merges.iter().map(|operand| show::value_json(&self.layout, operand)).collect()
    }

    fn object(&mut self, place: &StoredObject) -> Result<(), Ended> {
        let StoredObject { environment, name, object, kind } = place;
        match kind {
            ObjectKind::Manifest => {
                let bytes = environment.storage.read(name)?;
                let manifest = Manifest::decode(name, &bytes)?;
                self.manifest(&manifest, object.map(|(table, _)| table), environment)
            }
            ObjectKind::Sstable => self.sstable(place),
            ObjectKind::Segment => {
                let of = |object: &(TableId, Object)| match object {
                    (_, Object::Segment { epoch, number }) => {
                        Some(LogPlace { epoch: *epoch, segment: *number })
                    }
                    _ => None,
                };
                if self.direction == Direction::Backward {
                    return Err(anyhow::anyhow!("{name}: a log has no order of keys").into());
                }
                // Without its table, nobody knows the columns.
                let table = object.and_then(|(id, _)| inspect(environment, id).ok());
                self.layout = table.map(|manifest| manifest.state.layout).unwrap_or_default();
                let info = self.segment(environment, name, object.as_ref().and_then(of))?;
                self.end_of_segment(name, &info)
            }
        }
    }

    fn manifest(
        &mut self,
        manifest: &Manifest,
        table: Option<TableId>,
        environment: &Environment,
    ) -> Result<(), Ended> {
        if self.is_json {
            let object = crate::manifest::as_json(manifest);
            return self.line(object);
        }
        let now_ms = environment.clock.now_ms();
        Ok(crate::manifest::print(manifest, table, now_ms, &mut self.output)?)
    }

    fn sstable(&mut self, place: &StoredObject) -> Result<(), Ended> {
        let sstable = sstable::open(place)?;
        self.layout = sstable.properties().layout.clone();
        for range in sstable.range_deletes() {
            let part = range.intersection(&self.range);
            if !part.is_empty() {
                self.range_delete(&part, None)?;
            }
        }
        let mut cursor = sstable.cursor(self.range.clone());
        if self.direction == Direction::Backward {
            cursor.to_end();
        }
        loop {
            let is_there = match self.direction {
                Direction::Forward => cursor.advance()?,
                Direction::Backward => cursor.retreat()?,
            };
            let Some(record) = cursor.record().filter(|_| is_there) else { return Ok(()) };
            let (op, value) = (record.op, record.value);
            let merges = if op == Op::Merge { vec![value.to_vec()] } else { Vec::new() };
            self.record(op, record.key, (op == Op::Put).then_some(value), &merges)?;
        }
    }

    fn range_delete(&mut self, range: &KeyRange, group: Option<u64>) -> Result<(), Ended> {
        if self.is_json {
            let keys = show::range_json(range);
            return self.line(json!({"op": "range delete", "keys": keys, "group": group}));
        }
        self.line(format_args!("range delete\t{}", show::range(range)))
    }

    /// Prints what a table has in SSTables, and what its log has if that is asked for.
    fn table(
        &mut self,
        environment: &Environment,
        id: TableId,
        with_log: bool,
    ) -> Result<(), Ended> {
        let cache = SstableCache::new(environment, MEMORY_BYTES);
        loop {
            let manifest = inspect(environment, id)?;
            self.layout = manifest.state.layout.clone();
            let operands = Arc::new(Operands::new(&manifest));
            let operator = operands.name.as_ref().map(|_| operands.clone() as _);
            let options = Options { operator, ..Options::default() };
            let reader = Reader::open(environment, id, None, &cache, &options)?;
            let mut last = None;
            let error = match self.records(&reader, &operands, &mut last) {
                Err(Ended::Failed(error)) => error,
                ended => {
                    ended?;
                    // Flushes since then went to SSTables that were not read, so read the log by
                    // the old manifest.
                    let log = &reader.manifest().state.log;
                    return if with_log { self.log(environment, id, log) } else { Ok(()) };
                }
            };
            // Without a checkpoint, SSTables may be collected under a reader, who begins again.
            let is_gone = error.downcast_ref::<Error>().is_some_and(Error::is_not_found);
            let version = inspect(environment, id)?.version;
            if !is_gone || version == reader.manifest().version {
                return Err(Ended::Failed(error));
            }
            if let Some(last) = last {
                self.warn(format_args!(
                    "{error:#}: it was collected while it was read; from {} on this is version {}",
                    show::key(last.as_ref()),
                    version.number
                ));
                match self.direction {
                    Direction::Forward => self.range.start = last.successor(),
                    Direction::Backward => self.range.end = Some(last),
                }
            }
        }
    }

    /// Prints the records of a table; `last` becomes the key of the last one.
    fn records(
        &mut self,
        reader: &Reader,
        operands: &Operands,
        last: &mut Option<Key>,
    ) -> Result<(), Ended> {
        let mut scan = reader.scan(&self.range, self.direction)?;
        loop {
            operands.begin();
            let Some(record) = scan.next()? else { return Ok(()) };
            let Merged { operands: mut newest_first, has_value } = operands.take();
            newest_first.reverse();
            let is_put = newest_first.is_empty() || has_value;
            let op = if is_put { Op::Put } else { Op::Merge };
            self.record(op, record.key, is_put.then_some(record.value), &newest_first)?;
            *last = Some(record.key.to_key());
        }
    }

    /// Prints what is in the logs of a table from `log` on, the oldest first: what is in none of
    /// the SSTables of that manifest.
    fn log(
        &mut self,
        environment: &Environment,
        id: TableId,
        log: &[LogStart],
    ) -> Result<(), Ended> {
        for start in log {
            for number in start.segment.. {
                let name = Object::Segment { epoch: start.epoch, number }.name(id);
                let place = LogPlace { epoch: start.epoch, segment: number };
                let read = self.segment(environment, &name, Some(place));
                let info = match read {
                    Err(Ended::Failed(error))
                        if error.downcast_ref::<Error>().is_some_and(Error::is_not_found) =>
                    {
                        break;
                    }
                    read => read?,
                };
                if info.kind == SegmentKind::Fence {
                    break;
                }
                self.end_of_segment(&name, &info)?;
            }
        }
        if inspect(environment, id)?.state.log != log {
            self.warn(format_args!(
                "the log of table {id} was flushed while it was read: what is missing here is in \
                 SSTables now; run it again"
            ));
        }
        Ok(())
    }

    fn segment(
        &mut self,
        environment: &Environment,
        name: &str,
        place: Option<LogPlace>,
    ) -> Result<SegmentInfo, Ended> {
        let epoch = place.map(|place| place.epoch);
        read_segment(&*environment.storage, name, epoch, |group, change| {
            self.change(change, group, place)
        })
    }

    fn change(
        &mut self,
        change: Mutation<'_>,
        group: u64,
        place: Option<LogPlace>,
    ) -> Result<(), Ended> {
        let mut object = match &change {
            Mutation::Record(record) if !self.range.contains(record.key) => return Ok(()),
            Mutation::DeleteRange(range) if self.range.intersection(range).is_empty() => {
                return Ok(());
            }
            Mutation::Record(record) if self.is_json => {
                let mut object = show::key_json(record.key);
                object.insert("op".into(), show::op(record.op).into());
                match record.op {
                    Op::Put => {
                        let value = show::value_json(&self.layout, record.value);
                        object.insert("value".into(), value);
                    }
                    Op::Merge => {
                        let merges = self.operands_json(&[record.value.to_vec()]);
                        object.insert("merges".into(), merges);
                    }
                    Op::Delete => {}
                }
                object
            }
            Mutation::DeleteRange(range) if self.is_json => serde_json::Map::from_iter([
                ("op".to_owned(), "range delete".into()),
                ("keys".to_owned(), show::range_json(range)),
            ]),
            Mutation::Record(record) => {
                let is = |op| record.op == op;
                let merges = if is(Op::Merge) { vec![record.value.to_vec()] } else { Vec::new() };
                let value = is(Op::Put).then_some(record.value);
                return self.record(record.op, record.key, value, &merges);
            }
            Mutation::DeleteRange(range) => return self.range_delete(range, None),
        };
        if let Some(LogPlace { epoch, segment }) = place {
            object.insert("epoch".into(), epoch.into());
            object.insert("segment".into(), segment.into());
        }
        object.insert("group".into(), group.into());
        self.line(Value::Object(object))
    }

    /// Says what a segment has besides changes.
    fn end_of_segment(&mut self, name: &str, info: &SegmentInfo) -> Result<(), Ended> {
        let torn = info.torn_bytes;
        if info.kind == SegmentKind::Fence {
            message(format_args!("{name}: a fence of epoch {}", info.epoch));
        }
        if torn > 0 {
            message(format_args!(
                "{name}: its end of {} is torn, or being written",
                counted(torn, "byte")
            ));
        }
        Ok(())
    }
}

/// Stands in for any merge operator: it leaves values alone and collects the operands of the key
/// that a scan is at, since only the program that wrote them knows what they mean.
struct Operands {
    /// The name of the operator that it stands in for; none if the table has no merges.
    name: Option<String>,
    of_key: Mutex<Merged>,
}

/// Merges of one key.
#[derive(Default)]
struct Merged {
    /// Operands, the newest first.
    operands: Vec<Vec<u8>>,
    /// Whether there is a value below them.
    has_value: bool,
}

impl Operands {
    fn new(manifest: &Manifest) -> Self {
        let name = Some(manifest.state.merge_operator.clone()).filter(|name| !name.is_empty());
        Operands { name, of_key: Mutex::default() }
    }

    /// Forgets the operands of the last key.
    fn begin(&self) {
        *self.of_key.lock() = Merged::default();
    }

    fn take(&self) -> Merged {
        std::mem::take(&mut self.of_key.lock())
    }
}

impl MergeOperator for Operands {
    fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }

    fn apply(&self, _key: KeyRef<'_>, value: Option<&[u8]>, operand: &[u8]) -> Vec<u8> {
        let mut merged = self.of_key.lock();
        if merged.operands.is_empty() {
            merged.operands.push(operand.to_vec());
        }
        merged.has_value = value.is_some();
        value.unwrap_or_default().to_vec()
    }

    fn combine(&self, _key: KeyRef<'_>, first: &[u8], second: &[u8]) -> Vec<u8> {
        let mut merged = self.of_key.lock();
        if merged.operands.is_empty() {
            merged.operands.push(second.to_vec());
        }
        merged.operands.push(first.to_vec());
        Vec::new()
    }
}
