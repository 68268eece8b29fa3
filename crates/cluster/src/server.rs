//! A logical server: a tablet, and the partitions of directories that it holds.

use crate::arrivals::ArrivedHolds;
use crate::brief;
use crate::check::Checking;
use crate::cuts::Cuts;
use crate::error::{Error, Result};
use crate::growth::Growth;
use crate::intents::{Intents, LockKey, SentRecords};
use crate::layout::{KnownDirectory, Layout};
use crate::leases::Leases;
use crate::message::Partitions;
use crate::metrics::Metrics;
use crate::mkdir::MakingDirectories;
use crate::pace::{Pace, system_pace};
use crate::quotas::ServerQuotas;
use crate::searching::Arrivals;
use crate::sessions::{SessionSettings, Sessions};
use crate::snapshots::Snapshots;
use crate::tally::Tallies;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read, Target};
use canopy_namespace::{
    Effect, EntryName, FileId, HALF_STATE, MovedEntry, MovedRanges, OwnedName, PLACEMENT,
    PartitionRecord, Reply, Tablet, WHOLE,
};
use canopy_partition::{
    Answer, Attempt, Holding, Holdings, OfferState, PartitionId, Placement, ServerId, SplitHistory,
};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Directories whose partitions a server remembers for its intents.
const MAPS: usize = 1 << 14;

/// Time until a simulated thread looks again for the end of something.
const PAUSE: Duration = Duration::from_millis(1);

/// A logical server of this process.
pub(crate) struct Server {
    pub(crate) id: ServerId,
    pub(crate) tablet: Tablet,
    pub(crate) layout: Arc<Layout>,
    pub(crate) metrics: Arc<Metrics>,
    /// Held by changes of attributes of directories, which several servers get.
    attributes: Mutex<()>,
    /// Sessions of clients.
    pub(crate) sessions: Sessions,
    /// Leases of directories, for clients.
    pub(crate) leases: Leases,
    /// Holds of files that are on their way here.
    pub(crate) arrived_holds: ArrivedHolds,
    /// Directories that are being made.
    pub(crate) making: MakingDirectories,
    /// Shares of limits, and those that the authority has given.
    pub(crate) quotas: ServerQuotas,
    /// Changes of clients, and pauses of them.
    pub(crate) cuts: Cuts,
    /// Snapshots of the namespace. Only server 0 has any.
    pub(crate) snapshots: Snapshots,
    /// Whether the log could not be written last, as the disk was full.
    pub(crate) is_full: AtomicBool,
    /// Counts attempts.
    attempts: AtomicU64,
    /// Holds partitions and locks of intents while operations run; changes when they do.
    pub(crate) state: RwLock<State>,
    /// Locked by changes that wait for the end of a hand-over, or of an intent.
    waiting: Mutex<()>,
    ended: Condvar,
    /// Time, and whether a simulation decides who waits.
    pace: Arc<dyn Pace>,
    is_simulated: bool,
    /// Held by whoever makes a part of an intent.
    pub(crate) ending: Mutex<()>,
    /// Whether the end of an offer has to be known soon.
    pub(crate) asks_for_offers: AtomicBool,
    /// Records of executed changes that files have taken to other servers.
    pub(crate) sent_records: SentRecords,
    /// Partitions of directories whose names intents of this server concern, as far as they are known.
    maps: Mutex<HashMap<FileId, KnownDirectory>>,
    /// Numbers of entries of partitions.
    pub(crate) growth: Growth,
    pub(crate) tallies: Tallies,
    /// The snapshot of a check.
    pub(crate) checking: Checking,
}

/// Partitions of a server, and what intents have locked there.
pub(crate) struct State {
    /// Those of directories that were ever split, or that were offered.
    directories: HashMap<FileId, Holdings>,
    /// Servers of the partitions of directories that were split, or are about to be.
    pub(crate) placements: HashMap<FileId, Placement>,
    /// The names that are being handed over.
    moving: Option<HandingOver>,
    /// Counts changes of partitions, and those that may have moved a file.
    pub(crate) changes: u64,
    pub(crate) intents: Intents,
    /// Names that were not held before, for queries under way.
    pub(crate) arrivals: Arrivals,
}

/// Records of a table about partitions.
#[derive(Default)]
struct Recorded {
    directories: HashMap<FileId, Holdings>,
    placements: HashMap<FileId, Placement>,
    growth: Growth,
}

impl Recorded {
    fn read(tablet: &Tablet) -> Result<Self> {
        let mut records: HashMap<FileId, Vec<(PartitionId, Holding)>> = HashMap::new();
        let mut recorded = Recorded::default();
        let is_needed = |record: &PartitionRecord| record.partition != HALF_STATE;
        for record in tablet.partition_records()?.into_iter().filter(is_needed) {
            let damaged = || canopy_namespace::Error::Corrupt("the record of a partition".into());
            let value = record.value.unwrap_or_default();
            if record.partition == PLACEMENT {
                let placement = postcard::from_bytes(&value).map_err(|_| damaged())?;
                recorded.placements.insert(record.directory, placement);
                continue;
            }
            if record.partition == WHOLE {
                let whole: Vec<_> = postcard::from_bytes(&value).map_err(|_| damaged())?;
                recorded.growth.keep_whole(record.directory, whole);
                continue;
            }
            let partition = PartitionId::new(record.partition).ok_or_else(damaged)?;
            let holding = postcard::from_bytes(&value).map_err(|_| damaged())?;
            records.entry(record.directory).or_default().push((partition, holding));
        }
        for (directory, records) in records {
            recorded.directories.insert(directory, records.into_iter().collect());
        }
        Ok(recorded)
    }
}

#[derive(Clone)]
struct HandingOver {
    directory: FileId,
    child: PartitionId,
    attempt: Attempt,
    hashes: RangeInclusive<u64>,
}

impl HandingOver {
    fn has(&self, directory: FileId, hash: u64) -> bool {
        self.directory == directory && self.hashes.contains(&hash)
    }
}

impl Server {
    /// Takes a tablet that was opened, with the partitions that its table has records of.
    pub(crate) fn new(
        id: ServerId,
        tablet: Tablet,
        layout: Arc<Layout>,
        settings: SessionSettings,
        metrics: Arc<Metrics>,
        pace: Option<Arc<dyn Pace>>,
    ) -> Result<Self> {
        let Recorded { directories, placements, growth } = Recorded::read(&tablet)?;
        for (directory, holdings) in &directories {
            tablet.restore_range(*directory, ranges(holdings));
        }
        let intents = Intents::open(&tablet)?;
        let state = State {
            directories,
            placements,
            moving: None,
            // A successor must not repeat a number.
            changes: tablet.table().manifest().state.epoch << 32,
            intents,
            arrivals: Arrivals::default(),
        };
        let sessions = Sessions::new(settings, tablet.open_executed()?);
        let making = MakingDirectories::open(&tablet, sessions.now())?;
        let quotas = ServerQuotas::open(&tablet)?;
        let snapshots = Snapshots::open(&tablet)?;
        Ok(Server {
            id,
            tablet,
            layout,
            metrics,
            attributes: Mutex::new(()),
            sessions,
            leases: Leases::default(),
            arrived_holds: ArrivedHolds::default(),
            making,
            quotas,
            cuts: Cuts::default(),
            snapshots,
            is_full: AtomicBool::new(false),
            attempts: AtomicU64::new(1),
            growth,
            tallies: Tallies::default(),
            checking: Checking::default(),
            state: RwLock::new(state),
            waiting: Mutex::new(()),
            ended: Condvar::new(),
            is_simulated: pace.is_some(),
            pace: pace.unwrap_or_else(system_pace),
            ending: Mutex::new(()),
            asks_for_offers: AtomicBool::new(false),
            sent_records: SentRecords::default(),
            maps: Mutex::default(),
        })
    }

    /// Executes an operation on what this server holds. A change of names that are being handed over
    /// waits for the decision.
    ///
    /// # Errors
    ///
    /// Fails with `WrongServer` if another server holds them, and as the tablet does.
    pub(crate) fn execute(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        let state = self.wait_for_hand_over(operation)?;
        let executed = self.tablet.execute_for(caller, operation);
        // While this was read, a change of several servers may have taken the file away. It ends only
        // once `state` is free, so the file cannot have come back.
        if let Target::File(id) = operation.target()
            && state.intents.holder(&[LockKey::File(id)]).is_some()
            && !self.tablet.has_file(id)?
        {
            let error = canopy_namespace::Error::NotHere(Target::File(id));
            return Err(self.refusal(&state, error));
        }
        executed.map_err(|error| self.refusal(&state, error))
    }

    /// Returns the id of the next attempt of this server.
    pub(crate) fn next_attempt(&self) -> Attempt {
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        Attempt { epoch: self.epoch(), number }
    }

    /// Does something to a directory while no hand-over of it begins, and passes on whether it has
    /// partitions elsewhere, or may get one.
    pub(crate) fn with_directory<T>(
        &self,
        directory: FileId,
        change: impl FnOnce(bool) -> Result<T>,
    ) -> Result<T> {
        let state = self.state.read();
        let is_moving = state.moving.as_ref().is_some_and(|one| one.directory == directory);
        let holdings = state.directories.get(&directory);
        let is_split = holdings.is_some_and(|holdings| *holdings != Holdings::new_directory());
        change(is_moving || is_split)
    }

    /// Does something else on a name that this server has to hold, as `execute` does.
    pub(crate) fn change<T>(
        &self,
        directory: FileId,
        hash: u64,
        change: impl FnOnce(&Tablet) -> canopy_namespace::Result<T>,
    ) -> Result<T> {
        let target = Target::Name { directory, hash };
        let keys = [LockKey::Name(directory, hash)];
        let state = self.wait(|moving| Ok(moving.has(directory, hash)), &keys)?;
        if !self.tablet.holds(directory, hash)? {
            return Err(self.refusal(&state, canopy_namespace::Error::NotHere(target)));
        }
        change(&self.tablet).map_err(|error| self.refusal(&state, error))
    }

    /// Does something else to a file that this server has to have, as `execute` does.
    pub(crate) fn change_file<T>(
        &self,
        id: FileId,
        change: impl FnOnce(&Tablet) -> canopy_namespace::Result<T>,
    ) -> Result<T> {
        let state = self.wait_for_hand_over(&Operation::Change(Change::TouchAccess(id)))?;
        if !self.tablet.has_file(id)? {
            return Err(self.refusal(&state, canopy_namespace::Error::NotHere(Target::File(id))));
        }
        change(&self.tablet).map_err(|error| self.refusal(&state, error))
    }

    /// Does something to names, of which this server has to hold the first. None if it does not hold
    /// all of them, or if `change` finds that other servers are concerned.
    pub(crate) fn change_if_local<T>(
        &self,
        names: &[EntryName<'_>],
        change: impl FnOnce(&Tablet) -> canopy_namespace::Result<Option<T>>,
    ) -> Result<Option<T>> {
        let has = |moving: &HandingOver| {
            Ok(names.iter().any(|name| moving.has(name.directory, name.hash())))
        };
        let keys = names.iter().map(|name| LockKey::Name(name.directory, name.hash()));
        let state = self.wait(has, &Vec::from_iter(keys))?;
        for (at, name) in names.iter().enumerate() {
            let (directory, hash) = (name.directory, name.hash());
            match self.tablet.holds(directory, hash)? {
                true => {}
                false if at == 0 => self.check_held(&state, directory, hash)?,
                false => return Ok(None),
            }
        }
        change(&self.tablet).map_err(|error| self.refusal(&state, error))
    }

    /// Does something to a file that has to be here, and to a name. None if `change` finds that other
    /// servers are concerned.
    pub(crate) fn change_file_if_local<T>(
        &self,
        id: FileId,
        name: EntryName<'_>,
        change: impl FnOnce(&Tablet) -> canopy_namespace::Result<Option<T>>,
    ) -> Result<Option<T>> {
        let (directory, hash) = (name.directory, name.hash());
        let has = |moving: &HandingOver| {
            let old = self.tablet.name_of(id)?;
            let is_old = old.is_some_and(|(directory, hash)| moving.has(directory, hash));
            Ok(is_old || moving.has(directory, hash))
        };
        let keys = [LockKey::File(id), LockKey::Name(directory, hash)];
        let state = self.wait(has, &keys)?;
        let stat = Operation::Read(Moment::Now, Read::Inode(id));
        self.tablet.execute(&stat).map_err(|error| self.refusal(&state, error))?;
        change(&self.tablet).map_err(|error| self.refusal(&state, error))
    }

    /// Returns the name of a file whose inode is the record of that name, which is its only one.
    pub(crate) fn only_name(&self, id: FileId) -> Result<Option<OwnedName>> {
        let state = self.state.read();
        let stat = Operation::Read(Moment::Now, Read::Inode(id));
        self.tablet.execute(&stat).map_err(|error| self.refusal(&state, error))?;
        if self.tablet.name_of(id)?.is_none() {
            return Ok(None);
        }
        let first = self.tablet.names(id)?.into_iter().next();
        Ok(first.map(|(directory, name)| OwnedName { directory, name }))
    }

    /// Returns the partition that has a hash, and its server, as far as this server knows.
    pub(crate) fn find(&self, directory: FileId, hash: u64) -> Result<(PartitionId, ServerId)> {
        let home = self.layout.home(directory)?;
        let maps = self.maps.lock();
        Ok(maps.get(&directory).map_or((PartitionId::ZERO, home), |known| known.find(home, hash)))
    }

    /// Learns what another server knows of the partitions of a directory.
    pub(crate) fn learn(&self, directory: FileId, partitions: Partitions) {
        let mut maps = self.maps.lock();
        if maps.len() >= MAPS {
            maps.clear();
        }
        maps.entry(directory).or_default().learn(partitions);
    }

    /// Waits until something may have ended that a change waits for, and not longer than this.
    pub(crate) fn pause(&self, longest: Duration) {
        if self.is_simulated {
            return self.pace.pause(longest);
        }
        let mut waiting = self.waiting.lock();
        self.ended.wait_for(&mut waiting, longest);
    }

    /// Returns the time since some moment.
    pub(crate) fn now(&self) -> Duration {
        self.pace.now()
    }

    /// Has nobody else change attributes of directories until the result is dropped.
    pub(crate) fn lock_attributes(&self) -> MutexGuard<'_, ()> {
        if !self.is_simulated {
            return self.attributes.lock();
        }
        loop {
            match self.attributes.try_lock() {
                Some(locked) => return locked,
                None => self.pause(PAUSE),
            }
        }
    }

    /// Has changes go on that wait for the end of something.
    pub(crate) fn notify(&self) {
        let _waiting = self.waiting.lock();
        self.ended.notify_all();
    }

    /// Returns whether nothing is left to be done for changes of several servers.
    pub(crate) fn has_no_intents(&self) -> bool {
        self.state.read().intents.is_at_rest()
    }

    /// Returns whether no hand-over runs, and nothing of one and of intents is left that concerns names
    /// on other servers. New ones do not begin while changes are paused.
    pub(crate) fn is_still(&self) -> bool {
        let state = self.state.read();
        let mut holdings = state.directories.values();
        state.moving.is_none()
            && state.intents.is_at_rest()
            && holdings.all(|holdings| holdings.unconfirmed().next().is_none())
    }

    /// Waits until no hand-over concerns a change or a hold.
    pub(crate) fn wait_for_hand_over(
        &self,
        operation: &Operation<'_>,
    ) -> Result<RwLockReadGuard<'_, State>> {
        if !matches!(operation, Operation::Change(_) | Operation::Hold(_)) {
            return Ok(self.state.read());
        }
        let keys = match operation.target() {
            Target::Name { directory, hash } => vec![LockKey::Name(directory, hash)],
            Target::File(id) => vec![LockKey::File(id)],
            Target::Anywhere => Vec::new(),
        };
        let concerns = |moving: &HandingOver| {
            let is_named = match operation.target() {
                Target::Name { directory, hash } => moving.has(directory, hash),
                Target::File(id) => self
                    .tablet
                    .name_of(id)?
                    .is_some_and(|(directory, hash)| moving.has(directory, hash)),
                Target::Anywhere => false,
            };
            let is_other = match operation {
                Operation::Change(Change::Rename { to, .. } | Change::Link { name: to, .. }) => {
                    moving.has(to.directory, to.hash())
                }
                _ => false,
            };
            Ok(is_named || is_other)
        };
        self.wait(concerns, &keys)
    }

    /// Waits until no hand-over concerns a change. Fails if an intent has locked what it needs.
    fn wait(
        &self,
        concerns: impl Fn(&HandingOver) -> canopy_namespace::Result<bool>,
        keys: &[LockKey],
    ) -> Result<RwLockReadGuard<'_, State>> {
        let mut has_waited = false;
        loop {
            let state = self.state.read();
            if let Some(intent) = state.intents.holder(keys) {
                return Err(Error::InDoubt(intent));
            }
            match &state.moving {
                Some(moving) if concerns(moving)? => {}
                _ => return Ok(state),
            }
            brief::check()?;
            if !std::mem::replace(&mut has_waited, true) {
                self.metrics.handover_waits.add(1);
            }
            if self.is_simulated {
                drop(state);
                self.pause(PAUSE);
                continue;
            }
            let mut waiting = self.waiting.lock();
            drop(state);
            self.ended.wait(&mut waiting);
        }
    }

    /// Begins a hand-over of names: once this returns, no change of them runs. Returns whether it
    /// began: not while another one runs, changes are paused, or an intent has locked one of the
    /// names.
    pub(crate) fn begin_moving(
        &self,
        directory: FileId,
        child: PartitionId,
        attempt: Attempt,
    ) -> bool {
        let hashes = child.hashes(child.first_depth());
        let mut state = self.state.write();
        let is_locked = !state.intents.holders_in(directory, &hashes).is_empty();
        // With the lock: a cut looks at `moving` after it has paused this.
        let is_free = state.moving.is_none() && !is_locked && !self.cuts.is_paused();
        if is_free {
            state.moving = Some(HandingOver { directory, child, attempt, hashes });
        }
        is_free
    }

    /// Answers a receiver about an attempt of this server.
    pub(crate) fn answer_of(
        &self,
        directory: FileId,
        child: PartitionId,
        attempt: Attempt,
    ) -> Result<Answer> {
        let answer = {
            let state = self.state.read();
            let running = state.moving.as_ref().map(|moving| moving.attempt);
            let holdings = self.holdings_in(&state, directory)?;
            holdings.answer(child, attempt, self.epoch(), running)
        };
        // The receiver holds the partition by this word, so a crash must not take it back.
        if answer == Answer::Given {
            self.tablet.table().sync()?;
        }
        Ok(answer)
    }

    /// Returns the epoch of the table.
    pub(crate) fn epoch(&self) -> u64 {
        self.tablet.table().manifest().state.epoch
    }

    /// Ends a hand-over: changes go on, here or elsewhere.
    pub(crate) fn end_moving(&self) {
        self.state.write().moving = None;
        self.notify();
    }

    /// Returns whether a directory was removed, so that it gets no names any more.
    pub(crate) fn has_removed(&self, directory: FileId) -> Result<bool> {
        match self.tablet.inode(directory) {
            Ok(inode) => Ok(inode.nlink == 0),
            Err(error) if error.errno() == Errno::NOENT => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the partitions of a directory here.
    pub(crate) fn holdings(&self, directory: FileId) -> Result<Holdings> {
        self.holdings_in(&self.state.read(), directory)
    }

    /// Returns them by a state that is locked. A directory without records was never split.
    pub(crate) fn holdings_in(&self, state: &State, directory: FileId) -> Result<Holdings> {
        if let Some(holdings) = state.directories.get(&directory) {
            return Ok(holdings.clone());
        }
        Ok(match self.tablet.has_first_partition(directory)? {
            true => Holdings::new_directory(),
            false => Holdings::default(),
        })
    }

    /// Changes the partitions of a directory, records them for good, and has the tablet hold what they
    /// say. `decide` returns whether there is anything to record. A directory that is about to be
    /// removed stays as it is.
    pub(crate) fn record(
        &self,
        directory: FileId,
        decide: impl FnOnce(&mut Holdings) -> bool,
    ) -> Result<bool> {
        self.record_with(&mut self.state.write(), directory, decide)
    }

    /// Records entries of an attempt, if it goes on. Returns whether it does.
    pub(crate) fn take_entries(
        &self,
        directory: FileId,
        child: PartitionId,
        attempt: Attempt,
        entries: &[MovedEntry],
    ) -> Result<bool> {
        if !self.clear_copies_of(entries, directory, child)? {
            return Ok(false);
        }
        // With the lock: a late message must not bring entries of an attempt that has ended.
        let state = self.state.read();
        let takes = self.holdings_in(&state, directory)?.takes_entries(child, attempt)
            && !state.has_otherwise(&self.tablet, directory, entries)?;
        if takes {
            self.tablet.take_entries(directory, entries)?;
        }
        Ok(takes)
    }

    /// Removes entries of a partition that have to go, no more of them than this, if its record is
    /// still this one. Returns whether nothing is left to be done.
    pub(crate) fn remove_some(
        &self,
        directory: FileId,
        partition: PartitionId,
        expected: Holding,
        count_max: usize,
    ) -> Result<bool> {
        // With the lock: the names may come back as soon as somebody else has removed the rest.
        let mut state = self.state.write();
        let holdings = state.directories.get(&directory);
        if holdings.and_then(|holdings| holdings.record(partition)) != Some(expected) {
            return Ok(true);
        }
        let hashes = partition.hashes(partition.first_depth());
        if !self.tablet.remove_copies(directory, &hashes, count_max)? {
            return Ok(false);
        }
        self.record_with(&mut state, directory, |holdings| {
            holdings.removed(partition);
            true
        })
    }

    fn record_with(
        &self,
        state: &mut State,
        directory: FileId,
        decide: impl FnOnce(&mut Holdings) -> bool,
    ) -> Result<bool> {
        if state.is_closed(directory) {
            return Ok(false);
        }
        let before = self.holdings_in(state, directory)?;
        let mut after = before.clone();
        if !decide(&mut after) {
            return Ok(false);
        }
        let records = records_between(directory, &before, &after);
        let held = ranges(&after);
        state.arrivals.note(directory, &ranges(&before), &held);
        match held == ranges(&before) && state.directories.contains_key(&directory) {
            true => self.tablet.put_partition_records(&records)?,
            false => {
                let before = ranges(&before);
                let (arrived, left) = (difference(&held, &before), difference(&before, &held));
                let moved = MovedRanges { arrived, left };
                self.tablet.set_partitions(&records, directory, held, &moved)?;
            }
        }
        state.directories.insert(directory, after);
        state.changes += 1;
        self.growth.forget(directory);
        // If the log cannot take it now, it does later: what is in memory is what the table has.
        self.tablet.table().sync_visible()?;
        Ok(true)
    }

    /// Returns the histories of all partitions of a directory that are held here.
    pub(crate) fn histories(&self, directory: FileId) -> Result<Vec<SplitHistory>> {
        Ok(self.holdings(directory)?.histories().collect())
    }

    /// Returns the histories of all partitions of a directory that are held here, and that of one which
    /// is being handed over.
    pub(crate) fn known_partitions(&self, directory: FileId) -> Result<Vec<SplitHistory>> {
        let state = self.state.read();
        let moving = state.moving.as_ref().filter(|moving| moving.directory == directory);
        let moving = moving.map(|moving| moving.child);
        let moving = moving.and_then(|child| SplitHistory::new(child, child.first_depth()));
        Ok(self.holdings_in(&state, directory)?.histories().chain(moving).collect())
    }

    /// Returns the number of partitions here of directories that were split.
    pub(crate) fn partition_count(&self) -> u64 {
        let state = self.state.read();
        let split = state.directories.values().flat_map(Holdings::histories);
        split.filter(|history| history.depth() > 0).count() as u64
    }

    /// Returns whether the server was offered entries of a directory, or of any, and does not know
    /// what became of them.
    pub(crate) fn has_offers(&self, directory: Option<FileId>) -> bool {
        self.any_holdings(directory, |holdings| holdings.unanswered().next().is_some())
    }

    /// Returns whether entries of a directory, or of any, are left of an attempt that has ended.
    pub(crate) fn has_ended_offers(&self, directory: Option<FileId>) -> bool {
        let ended = OfferState::Ended;
        self.any_holdings(directory, |holdings| {
            let mut records = holdings.records();
            records.any(|(_, one)| matches!(one, Holding::Offered { state, .. } if state == ended))
        })
    }

    fn any_holdings(&self, directory: Option<FileId>, has: impl Fn(&Holdings) -> bool) -> bool {
        let state = self.state.read();
        match directory {
            Some(directory) => state.directories.get(&directory).is_some_and(has),
            None => state.directories.values().any(has),
        }
    }

    /// Returns the directories whose attributes other servers may not have yet.
    pub(crate) fn pending_attributes(&self) -> Result<Vec<FileId>> {
        let mut pending = Vec::new();
        for record in self.tablet.partition_records()? {
            let is_state = record.partition == HALF_STATE;
            if is_state && self.tablet.half_state(record.directory)?.is_pending {
                pending.push(record.directory);
            }
        }
        Ok(pending)
    }

    /// Returns all directories with records of partitions.
    pub(crate) fn directories(&self) -> Vec<FileId> {
        self.directories_that(|_| true)
    }

    /// Returns the directories whose partitions here meet a condition, in order.
    pub(crate) fn directories_that(&self, is_one: impl Fn(&Holdings) -> bool) -> Vec<FileId> {
        let state = self.state.read();
        let chosen = state.directories.iter().filter(|(_, holdings)| is_one(holdings));
        let mut directories = Vec::from_iter(chosen.map(|(directory, _)| *directory));
        directories.sort_unstable();
        directories
    }
}

impl State {
    /// Returns whether a name is being handed over.
    pub(crate) fn is_moving(&self, directory: FileId, hash: u64) -> bool {
        self.moving.as_ref().is_some_and(|moving| moving.has(directory, hash))
    }

    /// Returns whether nothing of the names of a directory is on its way here, or from here.
    pub(crate) fn is_at_rest(&self, directory: FileId) -> bool {
        let is_moving = self.moving.as_ref().is_some_and(|moving| moving.directory == directory);
        let is_held = |holdings: &Holdings| {
            holdings.records().all(|(_, holding)| matches!(holding, Holding::Held { .. }))
        };
        !is_moving && self.directories.get(&directory).is_none_or(is_held)
    }

    /// Forgets the partitions of directories that effects have removed.
    pub(crate) fn forget_directories(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::Vanish(id) = effect {
                self.directories.remove(id);
                self.placements.remove(id);
            }
        }
    }

    /// Returns all partitions of directories that have records of them.
    pub(crate) fn all_holdings(&self) -> impl Iterator<Item = (FileId, PartitionId, Holding)> {
        self.directories.iter().flat_map(|(directory, holdings)| {
            holdings.records().map(|(partition, holding)| (*directory, partition, holding))
        })
    }

    /// Returns the partitions of a directory that has records of them.
    pub(crate) fn holdings_of(&self, directory: FileId) -> Option<&Holdings> {
        self.directories.get(&directory)
    }

    /// Returns whether a change has closed a directory, to remove it.
    pub(crate) fn is_closed(&self, directory: FileId) -> bool {
        self.intents.is_closed(directory)
    }
}

/// Returns the ranges of hashes of the partitions that are held.
fn ranges(holdings: &Holdings) -> Vec<RangeInclusive<u64>> {
    let hashes = |history: SplitHistory| history.partition().hashes(history.depth());
    holdings.histories().map(hashes).collect()
}

/// Returns the hashes that some ranges have and others do not.
fn difference(
    some: &[RangeInclusive<u64>],
    others: &[RangeInclusive<u64>],
) -> Vec<RangeInclusive<u64>> {
    let mut left = some.to_vec();
    for other in others {
        let without = |range: RangeInclusive<u64>| {
            let before = other.start().checked_sub(1).map(|end| *range.start()..=end);
            let after = other.end().checked_add(1).map(|start| start..=*range.end());
            let is_apart = other.end() < range.start() || range.end() < other.start();
            let parts = if is_apart { [Some(range), None] } else { [before, after] };
            parts.into_iter().flatten().filter(|part| !part.is_empty())
        };
        left = left.into_iter().flat_map(without).collect();
    }
    left
}

/// Returns the records that differ.
fn records_between(directory: FileId, before: &Holdings, after: &Holdings) -> Vec<PartitionRecord> {
    let record = |partition: PartitionId, value| PartitionRecord {
        directory,
        partition: partition.number(),
        value,
    };
    let gone = before.records().filter(|(partition, _)| after.record(*partition).is_none());
    let written = after.records().map(|(partition, holding)| {
        // A few numbers cannot fail to be encoded into memory.
        record(partition, Some(postcard::to_extend(&holding, Vec::new()).unwrap_or_default()))
    });
    gone.map(|(partition, _)| record(partition, None)).chain(written).collect()
}
