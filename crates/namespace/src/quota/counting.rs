//! Beginning to count, setting limits, and telling what is used.

use super::accounts::{Mode, put_usage};
use super::{Account, Limits, Quota, Sums, Usage};
use crate::error::Result;
use crate::namespace::Namespace;
use crate::records::inode::Inode;
use crate::records::keys::{self, FileId, Space};
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use canopy_store::{Batch, Direction, Durability, TableSnapshot};
use std::collections::{BTreeMap, HashMap};

/// Sums that are written in one batch.
const STEP: usize = 1 << 18;

impl Namespace {
    /// Sets what a user or a group may use; no limits are none. The first ones make it count what
    /// there is, while others go on: a second for some million files.
    ///
    /// # Errors
    ///
    /// Fails with `NOSPC` or `DQUOT` if there is no room, and as the table and the disk do.
    pub fn set_limits(&self, account: Account, limits: Limits) -> Result<()> {
        let _setting = self.setting.lock();
        self.put_limits(account, limits)
    }

    /// Does so for who has the lock of settings.
    pub(super) fn put_limits(&self, account: Account, limits: Limits) -> Result<()> {
        let is_none = limits.are_none() && limits.directory == FileId::NONE;
        if is_none && !self.tablet.accounts.counts() {
            return Ok(());
        }
        self.start_counting()?;
        self.tablet.put_limits(account, limits, is_none)
    }

    /// Counts what there is, unless that was done. The caller has the lock of settings.
    fn start_counting(&self) -> Result<()> {
        if self.tablet.accounts.counts() {
            return Ok(());
        }
        self.flush_pending()?;
        self.tablet.start_counting()
    }

    /// Returns whether usage is counted all the time: since there was a limit.
    pub fn counts_usage(&self) -> bool {
        self.tablet.accounts.counts()
    }

    /// Returns what all accounts use and may, in their order. Where nothing is counted all the
    /// time, goes through all files.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn quotas(&self) -> Result<Vec<Quota>> {
        self.flush_pending()?;
        let state = self.tablet.accounts.state.lock();
        if state.mode == Mode::On {
            let mut all = BTreeMap::new();
            for account in state.usage.keys().chain(state.limits.keys()) {
                let usage = state.usage.get(account).copied().unwrap_or_default();
                let limits = state.limits.get(account).copied().unwrap_or_default();
                all.insert(*account, Quota { account: *account, usage, limits });
            }
            return Ok(all.into_values().collect());
        }
        drop(state);
        let counted = self.tablet.count_once()?;
        let quota = |(account, [bytes, inodes]): (Account, [u64; 2])| {
            let usage = Usage { bytes, inodes, ..Usage::default() };
            Quota { account, usage, limits: Limits::default() }
        };
        Ok(counted.into_iter().map(quota).collect())
    }

    /// Returns what an account uses and may; none where nothing is counted.
    pub fn quota(&self, account: Account) -> Option<Quota> {
        let state = self.tablet.accounts.state.lock();
        (state.mode == Mode::On).then(|| Quota {
            account,
            usage: state.usage.get(&account).copied().unwrap_or_default(),
            limits: state.limits.get(&account).copied().unwrap_or_default(),
        })
    }

    /// Returns what the tree that a file belongs to uses and may, if it has limits.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, with `Corrupt` if a record is damaged, and as
    /// the table does.
    pub fn quota_of_tree(&self, id: FileId) -> Result<Option<Quota>> {
        if !self.tablet.accounts.counts() {
            return Ok(None);
        }
        let project = self.inode(id)?.project;
        let quota = (project != 0).then(|| self.quota(Account::Tree(project))).flatten();
        Ok(quota.filter(|quota| !quota.limits.are_none()))
    }
}

impl Tablet {
    /// Counts what there is, while others go on, unless that was done. Only one caller at a time.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn start_counting(&self) -> Result<()> {
        if self.accounts.counts() {
            return Ok(());
        }
        let (snapshot, range) = {
            let _writer = self.writer.lock();
            self.count_changes(Mode::Counting);
            (self.table.snapshot(), self.range.frozen())
        };
        let counted = count(&snapshot, &range);
        let _writer = self.writer.lock();
        let outcome = counted.and_then(|counted| self.begin_with(&counted));
        outcome.inspect_err(|_| self.count_changes(Mode::Off))?;
        Ok(self.table.sync_visible()?)
    }

    /// Ends counting, and all shares, for good. The sums are forgotten.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn stop_counting(&self) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Batch::new();
        batch.delete_range(&Space::Usage.range())?;
        batch.delete(keys::quotas().as_ref())?;
        let held = self.end_shares(&mut batch)?;
        self.table.write_freeing(&batch, Durability::Visible)?;
        self.accounts.state.lock().set_shares(held);
        self.count_changes(Mode::Off);
        Ok(self.table.sync_visible()?)
    }

    /// Returns whether all usage is counted.
    pub fn counts_usage(&self) -> bool {
        self.accounts.state.lock().is_on()
    }

    /// Adds up what there is now: bytes and inodes by account.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn count_once(&self) -> Result<BTreeMap<Account, [u64; 2]>> {
        let (snapshot, range) = {
            let _writer = self.writer.lock();
            (self.table.snapshot(), self.range.frozen())
        };
        Ok(count(&snapshot, &range)?.into_iter().collect())
    }

    /// Puts the limits of an account on record, or takes them away if `is_none`. The caller has the
    /// lock of settings, and usage is counted.
    fn put_limits(&self, account: Account, limits: Limits, is_none: bool) -> Result<()> {
        let now_ns = self.now_ns();
        let _writer = self.writer.lock();
        let mut batch = Batch::new();
        let mut state = self.accounts.state.lock();
        let key = account.key(Space::Limits);
        let former = state.limits.get(&account).copied();
        match is_none {
            true => {
                batch.delete(key.as_ref())?;
                state.limits.remove(&account);
            }
            false => {
                batch.put(key.as_ref(), &limits.encode())?;
                state.limits.insert(account, limits);
            }
        }
        let usage = state.usage.get(&account).copied().unwrap_or_default();
        let after = state.after(account, usage, [0, 0], now_ns);
        put_usage(&mut batch, account, &after)?;
        let ends = state.limits.is_empty();
        if ends {
            batch.delete_range(&Space::Usage.range())?;
            batch.delete(keys::quotas().as_ref())?;
        }
        if let Err(error) = self.table.write(&batch, Durability::Visible) {
            match former {
                Some(former) => state.limits.insert(account, former),
                None => state.limits.remove(&account),
            };
            return Err(error.into());
        }
        match (ends, after == Usage::default()) {
            (true, _) => {
                state.usage.clear();
                state.mode = Mode::Off;
            }
            (false, true) => drop(state.usage.remove(&account)),
            (false, false) => drop(state.usage.insert(account, after)),
        }
        drop(state);
        self.accounts.note();
        Ok(self.table.sync_visible()?)
    }

    /// Forgets what was counted. The caller has the writer's lock.
    fn count_changes(&self, mode: Mode) {
        let mut state = self.accounts.state.lock();
        state.mode = mode;
        state.usage.clear();
        drop(state);
        self.accounts.note();
    }

    /// Puts sums on record: those of a snapshot, and what has changed since. They count once all
    /// are there; where they did before, they were wrong. The caller makes them outlast a crash.
    fn begin_with(&self, counted: &HashMap<Account, [u64; 2]>) -> Result<()> {
        let mut state = self.accounts.state.lock();
        let mut usage = state.usage.clone();
        for (account, [bytes, inodes]) in counted {
            let sums = usage.entry(*account).or_default();
            sums.bytes = sums.bytes.wrapping_add(*bytes);
            sums.inodes = sums.inodes.wrapping_add(*inodes);
        }
        usage.retain(|_, usage| *usage != Usage::default());
        let mut batch = Batch::new();
        batch.delete_range(&Space::Usage.range())?;
        for (account, usage) in &usage {
            put_usage(&mut batch, *account, usage)?;
            if batch.len() >= STEP {
                self.table.write(&batch, Durability::Visible)?;
                batch.clear();
            }
        }
        batch.put(keys::quotas().as_ref(), b"")?;
        self.table.write(&batch, Durability::Visible)?;
        (state.mode, state.usage) = (Mode::On, usage);
        Ok(())
    }

    /// Counts everything again, if it is counted. The caller has the locks of settings and of the
    /// writer.
    pub(crate) fn count_again(&self) -> Result<()> {
        let mode = self.accounts.state.lock().mode;
        match mode {
            Mode::On => {
                let counted = count(&self.table.snapshot(), &self.range.frozen())?;
                self.accounts.state.lock().usage.clear();
                self.begin_with(&counted)?;
                Ok(self.table.sync_visible()?)
            }
            _ => {
                let mut batch = Batch::new();
                batch.delete_range(&Space::Usage.range())?;
                Ok(self.table.write(&batch, Durability::Durable)?)
            }
        }
    }
}

/// Adds up what all inodes use: bytes and inodes by account. Names outside of the range arrive, or
/// have left: their files count elsewhere.
fn count(snapshot: &TableSnapshot, held: &TabletRange) -> Result<HashMap<Account, [u64; 2]>> {
    let mut all = HashMap::new();
    let apart = [Space::Links, Space::Orphans, Space::Directories].map(Space::range);
    for range in [keys::all_names()].into_iter().chain(apart) {
        let mut scan = snapshot.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let key = record.key;
            let is_held = !keys::is_in_directory(key.directory)
                || held.has_name(FileId(key.directory), key.hash);
            if is_held {
                let mut sums = Sums::default();
                sums.add(&Inode::decode(record.value)?);
                sums.add_to(&mut all);
            }
        }
    }
    Ok(all)
}
