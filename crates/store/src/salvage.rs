//! Putting sound files in place of damaged ones: what can be read of an SSTable becomes a new one,
//! and a log is read past groups that are damaged.
//!
//! ```text
//! <table>/damaged/<job>-<number>          a damaged SSTable, as far as it can be read
//! <table>/damaged/log-<epoch>-<number>    a damaged segment
//! <table>/damaged/<either>.loss           what was lost with it, a `Loss` in Postcard's encoding
//! <table>/damaged/report-<time>.txt       what a repair has reported
//! ```
//!
//! The copy and the note are written before the commit that replaces the SSTable, so that a caller
//! that was killed still learns of the loss. A note stays until [`Table::forget_losses`].

use crate::commit::{commit, current};
use crate::environment::Environment;
use crate::error::{Error, Invalid, Result};
use crate::key::{Key, KeyRange, KeyRef};
use crate::log::create_or_confirm;
use crate::manifest::{LeaseKind, Run, SstableId, SstableRef, State};
use crate::names::{SstableName, TableId};
use crate::record::Op;
use crate::runs::{FoundInRun, OpenRun, SstableCache};
use crate::scan::{Direction, Source};
use crate::sstable::{BlockCache, Salvaged, Sstable, SstableInfo, fingerprint, salvage};
use crate::storage::{Created, Listed};
use crate::table::{Options, Table};
use crate::view::Layers;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// At most so many damaged files are kept aside; then the oldest goes.
const ASIDE_MAX: usize = 16;

/// A disk that cannot read a part of a file is asked for pieces of this size.
const PIECE_BYTES: u64 = 4096;

/// The end of the names of notes.
const NOTE: &str = ".loss";

/// The beginning of the names of reports.
const REPORT: &str = "report-";

/// A damaged object, and the records that were lost with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// The name that the object has or had.
    pub object: String,
    /// The fault of the object.
    pub what: String,
    /// The name of a copy of the object, if there was anything to copy.
    pub aside: Option<String>,
    /// Whether it is a segment of a log: any key may have lost its newest change then.
    pub is_log: bool,
    /// The keys whose records may be lost with an SSTable, in order.
    pub ranges: Vec<KeyRange>,
    /// The number of records that are left.
    pub left: u64,
    /// The numbers of puts, merges and deletes that are lost, of an SSTable.
    pub lost: [u64; 3],
    /// The number of bytes that are lost of a log.
    pub lost_bytes: u64,
    /// Whether some records that are left are not proved by a checksum.
    pub is_unproved: bool,
    /// Keys that probably have another value than before: their newest record is lost and an older
    /// one counts, or what newer merges change is lost.
    pub stale: Vec<Stale>,
    /// Whether there may be more such keys in the ranges.
    pub has_unknown_stale: bool,
}

/// A key that has another value since a record of it was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The key.
    pub key: Key,
    /// CRC-32 of that value: a key with yet another one was written again since.
    pub checksum: u32,
}

impl Stale {
    /// Returns whether `value` is that value.
    pub fn is_value(&self, value: &[u8]) -> bool {
        crc32fast::hash(value) == self.checksum
    }
}

impl Loss {
    /// Returns whether the record of a key may be lost with an SSTable.
    pub fn has(&self, key: KeyRef<'_>) -> bool {
        self.ranges.iter().any(|range| range.contains(key))
    }
}

impl Table {
    /// Reads all SSTables, and puts files of what can be read in place of damaged ones, in one
    /// commit. Returns all losses that were not forgotten, also those of earlier calls. Others may
    /// use the table meanwhile.
    ///
    /// # Errors
    ///
    /// Fails with `Contended` if others keep changing the table, and as storage does. Damage that
    /// it can mend is not an error.
    pub fn salvage(&self) -> Result<Vec<Loss>> {
        // Records in memory are newer than all lost ones.
        self.flush()?;
        let (environment, id, cache, options) = self.parts();
        if salvage_sstables(environment, id, cache, options)? {
            self.refresh()?;
        }
        losses(environment, id)
    }

    /// Returns the damaged or missing SSTables, each with its fault. Reads all of them.
    ///
    /// # Errors
    ///
    /// Fails with `NotFound` if there is no such table, with `Corrupt` if its manifest is damaged,
    /// and as storage does.
    pub fn damaged_sstables(&self) -> Result<Vec<(String, String)>> {
        let (environment, id, ..) = self.parts();
        damaged_sstables(environment, id)
    }

    /// Returns whether there are losses that were not forgotten.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn has_losses(&self) -> Result<bool> {
        let (environment, id, ..) = self.parts();
        let listed = environment.storage.list(&id.damaged(), "")?;
        Ok(listed.iter().any(|one| one.name.ends_with(NOTE)))
    }

    /// Keeps a text beside damaged files, and returns the name of the object.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn keep_report(&self, text: &str) -> Result<String> {
        let (environment, id, ..) = self.parts();
        let name = format!("{}{REPORT}{:020}.txt", id.damaged(), environment.clock.now_ms());
        create_or_confirm(environment, &name, &Bytes::from(text.to_owned()), false)?;
        Ok(name)
    }

    /// Forgets the losses, which the caller has handled. Copies of damaged files stay.
    ///
    /// # Errors
    ///
    /// Fails as storage does.
    pub fn forget_losses(&self) -> Result<()> {
        let (environment, id, ..) = self.parts();
        let listed = environment.storage.list(&id.damaged(), "")?;
        let mut notes = listed.iter().filter(|one| one.name.ends_with(NOTE));
        notes.try_for_each(|note| environment.storage.remove(&note.name))
    }
}

/// Returns the damaged or missing SSTables of a table, each with its fault. Reads all except those
/// that only checkpoints need.
///
/// # Errors
///
/// Fails with `NotFound` if there is no such table, with `Corrupt` if its manifest is damaged, and
/// as storage does.
pub fn damaged_sstables(
    environment: &Environment,
    table: TableId,
) -> Result<Vec<(String, String)>> {
    let state = current(environment, table)?.state;
    let damaged = find_damaged(environment, &state)?;
    let named = damaged.into_iter().map(|(id, what)| (id.table.sstable(id.name), what));
    Ok(named.collect())
}

fn find_damaged(environment: &Environment, state: &State) -> Result<BTreeMap<SstableId, String>> {
    let blocks = Arc::new(BlockCache::new(1 << 20));
    let mut damaged = BTreeMap::new();
    for one in state.sstables() {
        let name = one.id.table.sstable(one.id.name);
        let opened = Sstable::open(environment.storage.clone(), name, &one.info, blocks.clone());
        match opened.and_then(|opened| Arc::new(opened).verify()) {
            Ok(()) => {}
            Err(Error::Corrupt { what, .. }) => drop(damaged.insert(one.id, what)),
            Err(error) if error.is_not_found() => {
                damaged.insert(one.id, "is missing".to_owned());
            }
            Err(Error::Storage { source, .. }) if is_disk_error(&source) => {
                damaged.insert(one.id, source.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    Ok(damaged)
}

fn is_disk_error(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

/// Returns whether any SSTable was replaced.
fn salvage_sstables(
    environment: &Environment,
    table: TableId,
    cache: &Arc<SstableCache>,
    options: &Options,
) -> Result<bool> {
    let damaged = find_damaged(environment, &current(environment, table)?.state)?;
    if damaged.is_empty() {
        return Ok(false);
    }
    let deadline_ms = environment.clock.now_ms().saturating_add(options.job_ms);
    let (manifest, job) = commit(environment, table, None, |state, _| {
        state.check_live(table)?;
        options.check_operator(state)?;
        let has_damaged = |run: &&Run| run.sstables.iter().any(|one| damaged.contains_key(&one.id));
        let runs = state.runs.iter().filter(has_damaged);
        let inputs = runs.flat_map(|run| &run.sstables).map(|one| one.id).collect();
        // Nobody merges them meanwhile.
        Ok(state.open_job(LeaseKind::Compaction(inputs), Some(deadline_ms)))
    })?;
    let mut work = Work {
        environment,
        table,
        cache,
        options,
        job,
        state: manifest.state.clone(),
        damaged: &damaged,
        replaced: BTreeMap::new(),
    };
    let replaced = work.run().and_then(|()| work.commit());
    if replaced.is_err() {
        // New objects can go at once; if this fails, too, they go after the deadline.
        let _ = commit(environment, table, None, |state, _| state.close_job(job));
    }
    replaced.map(|()| true)
}

struct Work<'a> {
    environment: &'a Environment,
    table: TableId,
    cache: &'a Arc<SstableCache>,
    options: &'a Options,
    job: u64,
    /// With the SSTables that were replaced so far.
    state: State,
    damaged: &'a BTreeMap<SstableId, String>,
    /// New SSTables for damaged ones; none if nothing is left.
    replaced: BTreeMap<SstableId, Option<(SstableId, SstableInfo)>>,
}

impl Work<'_> {
    /// Writes an SSTable of what is left of each damaged one, and notes what is lost. That needs all
    /// of them: a newer run may settle what an older one has lost.
    fn run(&mut self) -> Result<()> {
        let mut all = Vec::new();
        for at in 0..self.state.runs.len() {
            let found = self.state.runs[at].sstables.iter();
            let found = found.filter(|one| self.damaged.contains_key(&one.id)).cloned();
            for one in Vec::from_iter(found) {
                let bytes = read_what_can_be(self.environment, &one)?;
                if !bytes.is_empty() {
                    keep_aside(self.environment, self.table, &file_name(one.id.name), &bytes)?;
                }
                let mut salvaged = salvage(&bytes, &one.info, &self.state.layout)?;
                if !self.replaced.contains_key(&one.id) {
                    let new = self.write(&salvaged)?;
                    self.replaced.insert(one.id, new);
                }
                salvaged.file = None;
                all.push((at, one, salvaged, !bytes.is_empty()));
            }
        }
        self.state.runs.iter_mut().for_each(|run| replace(run, &self.replaced));
        for (at, one, salvaged, is_there) in all {
            let loss = self.loss(at, &one, &salvaged, is_there)?;
            put_note(self.environment, self.table, &file_name(one.id.name), &loss)?;
        }
        Ok(())
    }

    fn write(&self, salvaged: &Salvaged) -> Result<Option<(SstableId, SstableInfo)>> {
        let Some((bytes, info)) = &salvaged.file else { return Ok(None) };
        let number = self.replaced.len() as u32;
        let name = SstableName { job: self.job, number };
        let object = self.table.sstable(name);
        match create_or_confirm(self.environment, &object, bytes, false)? {
            Created::Now => Ok(Some((SstableId { table: self.table, name }, info.clone()))),
            Created::ThereWasOne => {
                Err(Error::corrupt(object, "there is one already, of another process"))
            }
        }
    }

    /// Returns the loss from an SSTable of the run at `at`.
    fn loss(&self, at: usize, one: &SstableRef, of: &Salvaged, is_there: bool) -> Result<Loss> {
        let SstableInfo { records, deletes, merges, .. } = one.info;
        let puts = records.saturating_sub(deletes).saturating_sub(merges);
        let lost = [puts, merges, deletes];
        let ranges = of.lost.iter().map(|range| range.intersection(&one.range));
        let ranges = Vec::from_iter(ranges.filter(|range| !range.is_empty()));
        let (mut stale, mut has_unknown_stale) = (Vec::new(), of.has_lost_ranges);
        match of.has_filter() {
            true => {
                for key in self.older_keys(at, &ranges, usize::MAX)? {
                    if of.may_have_had(key.as_ref()) {
                        stale.extend(self.stale(at, key)?);
                    }
                }
            }
            false => has_unknown_stale |= !self.older_keys(at, &ranges, 1)?.is_empty(),
        }
        for key in self.merged_keys(at, &ranges)? {
            stale.extend(self.without_base(at, key)?);
        }
        let aside = format!("{}{}", self.table.damaged(), file_name(one.id.name));
        let what = self.damaged.get(&one.id).cloned().unwrap_or_default();
        Ok(Loss {
            object: one.id.table.sstable(one.id.name),
            what,
            aside: is_there.then_some(aside),
            is_log: false,
            ranges,
            left: of.left.iter().sum(),
            lost: std::array::from_fn(|kind| lost[kind].saturating_sub(of.left[kind])),
            lost_bytes: 0,
            is_unproved: of.is_unproved,
            stale,
            has_unknown_stale,
        })
    }

    /// Returns the keys that runs older than the one at `at` have in some ranges, at most so many of
    /// each run and range.
    fn older_keys(&self, at: usize, ranges: &[KeyRange], most: usize) -> Result<BTreeSet<Key>> {
        let mut keys = BTreeSet::new();
        for run in &self.state.runs[at + 1..] {
            let run = OpenRun::new(run.clone(), self.cache.clone());
            for range in ranges {
                let (mut source, mut count) = (run.source(range, Direction::Forward)?, 0);
                while let Some(record) = source.record().filter(|_| count < most) {
                    keys.insert(record.key.to_key());
                    source.advance()?;
                    count += 1;
                }
            }
        }
        Ok(keys)
    }

    /// Returns the keys in some ranges that runs newer than the one at `at` have merges of.
    fn merged_keys(&self, at: usize, ranges: &[KeyRange]) -> Result<BTreeSet<Key>> {
        let mut keys = BTreeSet::new();
        for run in &self.state.runs[..at] {
            let run = OpenRun::new(run.clone(), self.cache.clone());
            for range in ranges {
                let mut source = run.source(range, Direction::Forward)?;
                while let Some(record) = source.record() {
                    if record.op == Op::Merge {
                        keys.insert(record.key.to_key());
                    }
                    source.advance()?;
                }
            }
        }
        Ok(keys)
    }

    /// Returns a key with the value that it has now, unless a newer run than the one at `at` settles
    /// what that is.
    fn stale(&self, at: usize, key: Key) -> Result<Option<Stale>> {
        let known = fingerprint(key.as_ref());
        for run in &self.state.runs[..at] {
            let run = OpenRun::new(run.clone(), self.cache.clone());
            let (found, hides) = run.get(key.as_ref(), known)?;
            let is_settled =
                matches!(found, FoundInRun::Record(Op::Put | Op::Delete, _) | FoundInRun::Nothing);
            if is_settled || hides {
                return Ok(None);
            }
        }
        let value = self.value(&self.state.runs, &key)?;
        Ok(value.map(|value| Stale { key, checksum: crc32fast::hash(&value) }))
    }

    /// Like `stale`, for a key with newer merges whose base is lost.
    fn without_base(&self, at: usize, key: Key) -> Result<Option<Stale>> {
        match self.value(&self.state.runs[at + 1..], &key)? {
            Some(_) => Ok(None),
            None => self.stale(at, key),
        }
    }

    fn value(&self, runs: &[Run], key: &Key) -> Result<Option<Vec<u8>>> {
        let state = State { runs: runs.to_vec(), ..self.state.clone() };
        let view = Layers::of(&state, self.cache, self.options.operator.clone());
        view.get(key.as_ref(), u64::MAX)
    }

    /// Puts the new SSTables in place of the damaged ones.
    fn commit(&self) -> Result<()> {
        commit(self.environment, self.table, None, |state, _| {
            state.check_live(self.table)?;
            let is_ours =
                |one: &SstableRef| one.id.table == self.table && one.id.name.job == self.job;
            let is_left = |one: &SstableRef| self.replaced.contains_key(&one.id);
            if state.sstables().any(is_ours) || !state.sstables().any(is_left) {
                // An attempt whose outcome was not known succeeded.
                return Ok(());
            }
            state.close_job(self.job)?;
            // No checkpoint keeps the damaged files for those who read them now: it would be damaged.
            state.runs.iter_mut().for_each(|run| replace(run, &self.replaced));
            state.runs.retain(|run| !run.sstables.is_empty());
            Ok(())
        })?;
        Ok(())
    }
}

fn replace(run: &mut Run, by: &BTreeMap<SstableId, Option<(SstableId, SstableInfo)>>) {
    run.sstables.retain_mut(|one| match by.get(&one.id) {
        None => true,
        Some(None) => false,
        Some(Some((id, info))) => {
            (one.id, one.info) = (*id, info.clone());
            true
        }
    });
}

fn file_name(name: SstableName) -> String {
    format!("{:020}-{:010}", name.job, name.number)
}

/// Returns the bytes of an SSTable. Zeros stand for those that the disk cannot read; there are none
/// of a file that is missing.
fn read_what_can_be(environment: &Environment, one: &SstableRef) -> Result<Bytes> {
    let name = one.id.table.sstable(one.id.name);
    read_lenient(environment, &name)
}

pub(crate) fn read_lenient(environment: &Environment, name: &str) -> Result<Bytes> {
    match environment.storage.read(name) {
        Err(Error::Storage { source, .. }) if is_disk_error(&source) => {}
        Err(error) if error.is_not_found() => return Ok(Bytes::new()),
        read => return read,
    }
    let size_bytes = environment.storage.size(name)?;
    let mut bytes = vec![0; size_bytes as usize];
    for start in (0..size_bytes).step_by(PIECE_BYTES as usize) {
        let end = size_bytes.min(start + PIECE_BYTES);
        match environment.storage.read_range(name, start..end) {
            Ok(piece) => bytes[start as usize..end as usize].copy_from_slice(&piece),
            Err(Error::Storage { source, .. }) if is_disk_error(&source) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes.into())
}

/// Keeps a copy of a damaged file. The oldest copies go when there are many.
pub(crate) fn keep_aside(
    environment: &Environment,
    table: TableId,
    file_name: &str,
    bytes: &Bytes,
) -> Result<()> {
    let prefix = table.damaged();
    let name = format!("{prefix}{file_name}");
    let listed = environment.storage.list(&prefix, "")?;
    let is_report = |one: &Listed| one.name[prefix.len()..].starts_with(REPORT);
    let copies = listed.iter().filter(|one| !one.name.ends_with(NOTE) && !is_report(one));
    let copies = copies.filter(|one| one.name != name);
    let copies = Vec::from_iter(copies);
    for oldest in copies.iter().take((copies.len() + 1).saturating_sub(ASIDE_MAX)) {
        environment.storage.remove(&oldest.name)?;
    }
    // An attempt that was interrupted may have left one.
    environment.storage.remove(&name)?;
    create_or_confirm(environment, &name, bytes, false).map(drop)
}

/// Notes what is lost with a file.
pub(crate) fn put_note(
    environment: &Environment,
    table: TableId,
    file_name: &str,
    loss: &Loss,
) -> Result<()> {
    let name = format!("{}{file_name}{NOTE}", table.damaged());
    let bytes = postcard::to_extend(loss, Vec::new()).map_err(Invalid::LossEncoding)?;
    environment.storage.remove(&name)?;
    create_or_confirm(environment, &name, &bytes.into(), false).map(drop)
}

/// Returns the losses that are noted.
fn losses(environment: &Environment, table: TableId) -> Result<Vec<Loss>> {
    let listed = environment.storage.list(&table.damaged(), "")?;
    let notes = listed.iter().filter(|one| one.name.ends_with(NOTE));
    let mut losses = Vec::new();
    for note in notes {
        let bytes = environment.storage.read(&note.name)?;
        // A note that is damaged itself says nothing, and is not a reason not to go on.
        losses.extend(postcard::from_bytes::<Loss>(&bytes).ok());
    }
    Ok(losses)
}
