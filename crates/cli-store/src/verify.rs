//! `canopy store verify`: reads all objects of tables and reports faults.
//!
//! First is checked that what the current manifest refers to is there, anew if the manifest is
//! replaced meanwhile; then every byte of every object. An object that goes between the two was
//! collected, since the first step has found it.

use crate::show::stdout;
use crate::sstable;
use crate::storage::{StoredObject, find_table, open_storage, tables};
use canopy::Outcome;
use canopy_store::manifest::{Hold, Manifest, Parent, Phase, SstableId, State};
use canopy_store::sstable::{BlockCache, Sstable};
use canopy_store::{
    Environment, Error, Mutation, Object, ObjectKind, Result, SegmentInfo, SegmentKind, TableId,
    inspect, inspect_version, read_segment,
};
use canopy_text::counted;
use canopy_text::safe::message_line;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufWriter, Write};
use std::sync::Arc;

/// A manifest that is replaced so many times while it is checked is checked as it was.
const ATTEMPTS: u32 = 16;

/// Carries the subcommand out.
pub fn run(location: &str, asked: &[String]) -> anyhow::Result<Outcome> {
    let environment = open_storage(location)?;
    let ids = match asked {
        [] => tables(&environment)?,
        asked => {
            let found = asked.iter().map(|table| find_table(&environment, table));
            found.collect::<anyhow::Result<Vec<TableId>>>()?
        }
    };
    // A directory that is not mounted is not whole.
    anyhow::ensure!(!ids.is_empty(), "there are no tables in {location}");
    let mut run = Verification {
        environment,
        output: stdout(false),
        told: BTreeSet::new(),
        epoch: 0,
        verified: BTreeSet::new(),
        counts: Counts::default(),
        faults: 0,
    };
    match run.all(BTreeSet::from_iter(ids)) {
        // A reader that closed the pipe has not seen all, so do not report success.
        Err(error) if is_broken_pipe(&error) => return Ok(Outcome::Partial),
        ended => ended?,
    }
    Ok(if run.faults == 0 { Outcome::Complete } else { Outcome::Partial })
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Counts of the objects that were read.
#[derive(Default)]
struct Counts {
    tables: u64,
    manifests: u64,
    sstables: u64,
    segments: u64,
    bytes: u64,
}

struct Verification {
    environment: Environment,
    output: BufWriter<Box<dyn Write>>,
    /// The faults of this table that were printed.
    told: BTreeSet<String>,
    /// Its epoch, as the manifest has it that was current at first.
    epoch: u64,
    /// The SSTables that were read: clones share them.
    verified: BTreeSet<SstableId>,
    counts: Counts,
    faults: u64,
}

impl Verification {
    fn all(&mut self, ids: BTreeSet<TableId>) -> anyhow::Result<()> {
        for id in ids {
            self.told.clear();
            self.table(id)?;
            self.output.flush()?;
        }
        self.summary()?;
        Ok(())
    }

    /// Prints a fault, once.
    fn fault(&mut self, what: impl ToString) -> std::io::Result<()> {
        let line = message_line(&what.to_string()).into_owned();
        if self.told.contains(&line) {
            return Ok(());
        }
        self.faults += 1;
        writeln!(self.output, "{line}")?;
        self.told.insert(line);
        Ok(())
    }

    /// Prints what is remarkable and no fault.
    fn note(&mut self, what: &str) -> std::io::Result<()> {
        writeln!(self.output, "note: {}", message_line(what))
    }

    /// Prints the error of an object, unless it was collected.
    fn unless_gone(&mut self, error: Error) -> std::io::Result<()> {
        match error.is_not_found() {
            true => Ok(()),
            false => self.fault(error),
        }
    }

    fn table(&mut self, id: TableId) -> anyhow::Result<()> {
        let is_empty = |listed: Vec<canopy_store::storage::Listed>| listed.is_empty();
        if self.environment.storage.list(&format!("{id}/"), "").is_ok_and(is_empty) {
            return Ok(self.note(&format!("table {id}: nothing is there yet"))?);
        }
        self.counts.tables += 1;
        let referred = self.references(id)?;
        let mut logs: BTreeMap<u64, Segments> = BTreeMap::new();
        let listed = match self.environment.storage.list(&format!("{id}/"), "") {
            Ok(listed) => listed,
            Err(error) => return Ok(self.fault(error)?),
        };
        for listed in listed {
            let name = &*listed.name;
            match Object::parse(name) {
                Some((_, Object::Manifest(version))) => {
                    self.manifest(name, version, listed.size_bytes)?;
                }
                Some((table, Object::Sstable(name))) => self.sstable(SstableId { table, name })?,
                Some((_, Object::Segment { epoch, number })) => {
                    let log = logs.entry(epoch).or_default();
                    self.segment(id, name, epoch, number, log)?;
                }
                Some((_, Object::LogEnd { epoch, .. })) => self.log_end(name, epoch)?,
                Some((_, Object::Lock)) => {}
                None if name.starts_with(&format!("{id}/damaged/")) => {
                    self.note(&format!("{name}: a repair has kept a damaged file"))?;
                }
                None => self.note(&format!("{name}: the engine gives no object such a name"))?,
            }
        }
        for id in referred {
            self.sstable(id)?;
        }
        Ok(())
    }

    /// Checks that all that the current manifest refers to is there, and returns its SSTables.
    fn references(&mut self, id: TableId) -> anyhow::Result<BTreeSet<SstableId>> {
        // Faults common to all manifests read so far.
        let mut standing: Option<BTreeSet<String>> = None;
        let mut sstables = BTreeSet::new();
        for _ in 0..ATTEMPTS {
            let manifest = match inspect(&self.environment, id) {
                Ok(manifest) => manifest,
                Err(error) => {
                    self.epoch = u64::MAX;
                    standing = Some(BTreeSet::from([error.to_string()]));
                    break;
                }
            };
            self.epoch = manifest.state.epoch;
            let mut references = References::default();
            if let Err(error) = references.check(&self.environment, id, &manifest) {
                references.faults.insert(error.to_string());
            }
            sstables = references.sstables;
            let now = inspect(&self.environment, id);
            if now.map_or(true, |now| now.version == manifest.version) {
                standing = Some(references.faults);
                break;
            }
            let before = standing.unwrap_or_else(|| references.faults.clone());
            let both = before.intersection(&references.faults).cloned().collect::<BTreeSet<_>>();
            if both.is_empty() {
                return Ok(sstables);
            }
            standing = Some(both);
        }
        standing.into_iter().flatten().try_for_each(|fault| self.fault(fault))?;
        Ok(sstables)
    }

    fn manifest(&mut self, name: &str, version: u64, size_bytes: u64) -> anyhow::Result<()> {
        let bytes = self.environment.storage.read(name);
        match bytes.and_then(|bytes| Manifest::decode(name, &bytes)) {
            Ok(manifest) if manifest.version.number == version => {}
            Ok(manifest) => {
                self.fault(format!("{name}: has version {}", manifest.version.number))?;
            }
            Err(error) => self.unless_gone(error)?,
        }
        self.counts.manifests += 1;
        self.counts.bytes += size_bytes;
        Ok(())
    }

    /// Reads an SSTable, unless it was read before. Reports all its damaged blocks.
    fn sstable(&mut self, id: SstableId) -> anyhow::Result<()> {
        if !self.verified.insert(id) {
            return Ok(());
        }
        let name = Object::Sstable(id.name).name(id.table);
        let environment = self.environment.clone();
        let place = StoredObject { environment, name, object: None, kind: ObjectKind::Sstable };
        let sstable = match sstable::open(&place) {
            Ok(sstable) => sstable,
            Err(error) => return Ok(self.unless_gone(error)?),
        };
        self.counts.sstables += 1;
        self.counts.bytes += sstable.info().size_bytes;
        if let Err(error) = sstable.verify() {
            self.unless_gone(error)?;
            sstable.describe_blocks(|read| {
                read.map_or_else(|error| self.unless_gone(error), |_| Ok(()))
            })?;
        }
        Ok(())
    }

    /// Reads the groups that count of a segment that grew on storage of many machines.
    fn log_end(&mut self, name: &str, epoch: u64) -> anyhow::Result<()> {
        let each = |_, _: Mutation<'_>| Ok::<(), Error>(());
        match read_segment(&*self.environment.storage, name, Some(epoch), each) {
            Ok(info) => {
                self.counts.segments += 1;
                self.counts.bytes += info.size_bytes;
                Ok(())
            }
            Err(error) => Ok(self.unless_gone(error)?),
        }
    }

    fn segment(
        &mut self,
        id: TableId,
        name: &str,
        epoch: u64,
        number: u64,
        log: &mut Segments,
    ) -> anyhow::Result<()> {
        let each = |_, _: Mutation<'_>| Ok::<(), Error>(());
        let info = match read_segment(&*self.environment.storage, name, Some(epoch), each) {
            Ok(info) => info,
            Err(error) => {
                self.unless_gone(error)?;
                *log = Segments::default();
                return Ok(());
            }
        };
        self.counts.segments += 1;
        self.counts.bytes += info.size_bytes;
        if let Some(what) = log.wrong_with(&info, epoch, number) {
            self.fault(format!("{name}: {what}"))?;
        }
        if info.kind == SegmentKind::Fence && info.epoch > self.epoch {
            // The creator of a fence begins its epoch first.
            let now = inspect(&self.environment, id);
            if now.is_ok_and(|now| info.epoch > now.state.epoch) {
                self.fault(format!("{name}: a fence of an epoch that has not begun"))?;
            }
        }
        log.last = Some((number, info));
        if info.torn_bytes > 0 {
            let torn = counted(info.torn_bytes, "byte");
            self.note(&format!("{name}: its end of {torn} is torn, or being written"))?;
        }
        Ok(())
    }

    fn summary(&mut self) -> std::io::Result<()> {
        let Counts { tables, manifests, sstables, segments, bytes } = self.counts;
        let faults = match self.faults {
            0 => "no faults".into(),
            faults => counted(faults, "fault"),
        };
        writeln!(
            self.output,
            "{}, {}, {}, {}, {} read: {faults}",
            counted(tables, "table"),
            counted(manifests, "manifest"),
            counted(sstables, "SSTable"),
            counted(segments, "segment"),
            counted(bytes, "byte")
        )?;
        self.output.flush()
    }
}

/// The segments of an epoch so far.
#[derive(Default)]
struct Segments {
    /// The last one's number, and what it is.
    last: Option<(u64, SegmentInfo)>,
}

impl Segments {
    /// Returns what is wrong with a segment beside the one before it.
    fn wrong_with(&self, info: &SegmentInfo, epoch: u64, number: u64) -> Option<&'static str> {
        let is_fence = info.kind == SegmentKind::Fence;
        if is_fence && info.epoch <= epoch {
            return Some("a fence of an epoch that is no later one");
        }
        let (_, last) = self.last.filter(|(last, _)| last.checked_add(1) == Some(number))?;
        match () {
            () if last.kind == SegmentKind::Fence => Some("is behind a fence"),
            () if is_fence || info.kind == SegmentKind::Torn => None,
            () if last.torn_bytes > 0 => Some("is behind a segment that is torn"),
            () if last.nonce != info.nonce => Some("is not of the writer of the segment before"),
            () => None,
        }
    }
}

/// Objects that a manifest refers to, and faults among them.
#[derive(Default)]
struct References {
    sstables: BTreeSet<SstableId>,
    faults: BTreeSet<String>,
}

impl References {
    /// Checks all that `manifest` refers to. An error is one of listing the table.
    fn check(&mut self, environment: &Environment, id: TableId, manifest: &Manifest) -> Result<()> {
        let state = &manifest.state;
        if state.phase == Phase::Live {
            self.state(environment, state);
        }
        for checkpoint in &state.checkpoints {
            match inspect_version(environment, id, checkpoint.version) {
                Ok(kept) => self.state(environment, &kept.state),
                Err(error) => {
                    self.faults.insert(format!("{error} (of checkpoint {})", checkpoint.id));
                }
            }
        }
        let needs_parents = state.phase == Phase::Live || !state.checkpoints.is_empty();
        if needs_parents {
            state.parents.iter().for_each(|parent| self.parent(environment, id, parent));
        }
        self.parents_of_sstables(id, state);
        self.log(environment, id, state)
    }

    fn state(&mut self, environment: &Environment, state: &State) {
        for sstable in state.sstables().filter(|sstable| !self.sstables.contains(&sstable.id)) {
            let name = Object::Sstable(sstable.id.name).name(sstable.id.table);
            let cache = Arc::new(BlockCache::new(0));
            let storage = environment.storage.clone();
            if let Err(error) = Sstable::open(storage, name, &sstable.info, cache) {
                self.faults.insert(error.to_string());
            }
        }
        self.sstables.extend(state.sstables().map(|sstable| sstable.id));
    }

    /// Checks that a parent keeps what the table needs of it.
    fn parent(&mut self, environment: &Environment, id: TableId, parent: &Parent) {
        let Parent { table, checkpoint } = parent;
        match inspect(environment, *table) {
            Err(error) => {
                self.faults.insert(format!("{error} (a parent of table {id})"));
            }
            Ok(manifest) => {
                let mut all = manifest.state.checkpoints.iter();
                let is_held = |hold| match hold {
                    Hold::Pending { clone, .. } | Hold::Confirmed { clone } => clone == id,
                    Hold::Forever | Hold::Until(_) => false,
                };
                if !all.any(|one| one.id == *checkpoint && is_held(one.hold)) {
                    self.faults.insert(format!(
                        "table {table}: has no checkpoint {checkpoint} for its clone {id}"
                    ));
                }
            }
        }
    }

    fn parents_of_sstables(&mut self, id: TableId, state: &State) {
        let parents = BTreeSet::from_iter(state.parents.iter().map(|parent| parent.table));
        let others = BTreeSet::from_iter(self.sstables.iter().map(|sstable| sstable.table));
        for other in others.into_iter().filter(|other| *other != id && !parents.contains(other)) {
            self.faults
                .insert(format!("table {id}: has SSTables of {other}, which is not a parent"));
        }
    }

    /// Checks that no segment that is needed is missing before others.
    fn log(&mut self, environment: &Environment, id: TableId, state: &State) -> Result<()> {
        if state.phase != Phase::Live {
            return Ok(());
        }
        let mut numbers: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
        for listed in environment.storage.list(&format!("{id}/log/"), "")? {
            if let Some((_, Object::Segment { epoch, number })) = Object::parse(&listed.name) {
                numbers.entry(epoch).or_default().insert(number);
            }
        }
        for start in &state.log {
            let Some(all) = numbers.get(&start.epoch) else { continue };
            for (needed, found) in (start.segment..).zip(all.range(start.segment..)) {
                if needed != *found {
                    let name = Object::Segment { epoch: start.epoch, number: needed }.name(id);
                    self.faults.insert(format!("{name}: is missing, and there are later ones"));
                    break;
                }
            }
        }
        Ok(())
    }
}
