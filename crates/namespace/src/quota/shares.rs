//! Limits of accounts that use several tables: each table enforces a share. `cluster` decides on
//! shares, by the rules of `canopy_partition` (`shares`); here they meet usage.
//!
//! ```text
//! shares   bytes and files that have left for other tables, less those that have arrived i64, i64,
//!          round u64, u64, base i64, i64, end i64, flags u64
//! ledgers  what the authority of the account knows (`cluster`)
//! ```
//!
//! Flags: 1 bytes are limited, 2 files are limited, 4 room may be used without asking. A table
//! notes moves whether or not it counts usage, so counting can begin at any moment, on each table
//! at another one.

use super::accounts::State;
use super::{Account, Accounts, numbers};
use crate::error::{Error, Result};
use crate::records::keys::Space;
use crate::records::tablet::Tablet;
use canopy_store::{Batch, Direction, Durability, Table};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Share of a table in the limit of an account. The default one limits nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Order of the messages that change it.
    pub round: [u64; 2],
    /// Bytes and files that the account may use in this table.
    pub base: [i64; 2],
    /// Whether bytes and files are limited.
    pub bound: [bool; 2],
    /// Whether room may be used without asking the authority.
    pub is_open: bool,
    /// End of the time in which room may be used, in nanoseconds since 1970.
    pub until_ns: i64,
}

impl Default for Share {
    fn default() -> Self {
        Share { round: [0; 2], base: [0; 2], bound: [false; 2], is_open: true, until_ns: i64::MAX }
    }
}

/// An account whose share does not suffice for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// The account.
    pub account: Account,
    /// Bytes and files that the change takes.
    pub needed: [i64; 2],
    /// Bytes and files that are missing here.
    pub missing: [i64; 2],
}

/// Something that the authority of an account has to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// The account.
    pub account: Account,
    /// Whether more is used here than the share: users whom limits do not bind have done so.
    /// Otherwise something was freed.
    pub is_overdrawn: bool,
}

/// A record of an authority about an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerRecord {
    /// The account.
    pub account: Account,
    /// The rest of the key.
    pub rest: Vec<u8>,
    /// The record; none if it goes.
    pub value: Option<Vec<u8>>,
}

/// Share of an account, and notes of moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) share: Share,
    /// Amounts that have left for other tables, less those that have arrived.
    pub(super) moved: [i64; 2],
}

/// Shares in memory.
#[derive(Default)]
pub(super) struct Shares {
    held: HashMap<Account, Held>,
    /// Room that changes are about to use, which the authority had granted for them.
    pledged: HashMap<Account, [i64; 2]>,
    notices: BTreeMap<Account, Notice>,
    /// Accounts that need no further notice, until their shares change.
    noticed: HashMap<Account, Notice>,
}

impl Share {
    fn is_bound(&self) -> bool {
        self.bound != [false; 2]
    }

    /// Returns whether the authority has to know when something is freed.
    fn reports(&self) -> bool {
        self.is_bound() && (!self.is_open || self.until_ns != i64::MAX)
    }
}

impl Held {
    fn encode(&self) -> Vec<u8> {
        let Share { round, base, bound, is_open, until_ns } = self.share;
        let flags = [bound[0], bound[1], is_open].map(u64::from);
        let numbers = [
            self.moved[0] as u64,
            self.moved[1] as u64,
            round[0],
            round[1],
            base[0] as u64,
            base[1] as u64,
            until_ns as u64,
            flags[0] | flags[1] << 1 | flags[2] << 2,
        ];
        numbers.map(u64::to_le_bytes).concat()
    }

    fn decode(value: &[u8]) -> Result<Self> {
        let [left, left_files, epoch, number, base, base_files, until_ns, flags] =
            numbers(value, "a share")?;
        let share = Share {
            round: [epoch, number],
            base: [base as i64, base_files as i64],
            bound: [flags & 1 != 0, flags & 2 != 0],
            is_open: flags & 4 != 0,
            until_ns: until_ns as i64,
        };
        Ok(Held { share, moved: [left as i64, left_files as i64] })
    }
}

/// Adds to `batch` the share of an account. The default has no record.
fn put_held(batch: &mut Batch, account: Account, held: &Held) -> Result<()> {
    let key = account.key(Space::Shares);
    match *held == Held::default() {
        true => batch.delete(key.as_ref())?,
        false => batch.put(key.as_ref(), &held.encode())?,
    }
    Ok(())
}

fn sum(one: [i64; 2], other: [i64; 2]) -> [i64; 2] {
    [one[0].wrapping_add(other[0]), one[1].wrapping_add(other[1])]
}

impl Shares {
    /// Reads the shares of a table.
    pub(super) fn open(table: &Table) -> Result<Self> {
        let mut shares = Shares::default();
        let mut scan = table.scan(&Space::Shares.range(), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            shares.held.insert(Account::parse(record.key.hash)?, Held::decode(record.value)?);
        }
        Ok(shares)
    }
}

/// Shares, beside the usage that they limit.
impl State {
    fn held(&self, account: Account) -> Held {
        self.shares.held.get(&account).copied().unwrap_or_default()
    }

    /// Returns the usage of an account, with notes of moves.
    fn used(&self, account: Account) -> [i64; 2] {
        let usage = self.usage.get(&account).copied().unwrap_or_default();
        sum([usage.bytes as i64, usage.inodes as i64], self.held(account).moved)
    }

    fn room(&self, account: Account) -> [i64; 2] {
        let (base, used) = (self.held(account).share.base, self.used(account));
        [base[0].saturating_sub(used[0]), base[1].saturating_sub(used[1])]
    }

    /// Returns the shortage if the share of an account does not suffice for a change.
    pub(super) fn shortage(
        &self,
        account: Account,
        needed: [i64; 2],
        now_ns: i64,
    ) -> Option<Shortage> {
        let share = self.shares.held.get(&account)?.share;
        let room = self.room(account);
        let is_usable = share.is_open && now_ns <= share.until_ns;
        let is_short = |kind: usize| needed[kind] > 0 && (!is_usable || room[kind] < needed[kind]);
        let is_any_short = (0..2).any(|kind| share.bound[kind] && is_short(kind));
        // The missing amount, at least 0. It includes a debt.
        let missing = [0, 1].map(|kind| match needed[kind] > 0 {
            true if is_usable => needed[kind].saturating_sub(room[kind]).max(0),
            true => needed[kind],
            false => 0,
        });
        is_any_short.then_some(Shortage { account, needed, missing })
    }

    /// Adds to `batch` the notes of moves, and returns them.
    pub(super) fn put_moved(
        &self,
        batch: &mut Batch,
        account: Account,
        by: [i64; 2],
    ) -> Result<[i64; 2]> {
        let mut held = self.held(account);
        held.moved = sum(held.moved, by);
        put_held(batch, account, &held)?;
        Ok(held.moved)
    }

    pub(super) fn adopt_moved(&mut self, account: Account, moved: [i64; 2]) {
        let held = Held { moved, ..self.held(account) };
        self.set_held(account, held);
    }

    fn set_held(&mut self, account: Account, held: Held) {
        match held == Held::default() {
            true => _ = self.shares.held.remove(&account),
            false => _ = self.shares.held.insert(account, held),
        }
    }

    /// Notes what the authority has to know after a change, by which an account got so much less.
    pub(super) fn notice(&mut self, account: Account, freed: [bool; 2]) {
        let share = self.held(account).share;
        if !share.is_bound() {
            return;
        }
        let room = self.room(account);
        let is_overdrawn = (0..2).any(|kind| share.bound[kind] && room[kind] < 0);
        let is_freed = (0..2).any(|kind| share.bound[kind] && freed[kind]) && share.reports();
        let notice = Notice { account, is_overdrawn };
        let is_known = self.shares.noticed.get(&account) == Some(&notice);
        if (is_overdrawn || is_freed) && !is_known {
            self.shares.noticed.insert(account, notice);
            self.shares.notices.insert(account, notice);
        }
    }

    pub(super) fn has_notices(&self) -> bool {
        !self.shares.notices.is_empty()
    }

    /// Notes all room that the authority may not know of, once a table was opened.
    pub(super) fn notice_all(&mut self) {
        for account in Vec::from_iter(self.shares.held.keys().copied()) {
            let freed = self.room(account).map(|room| room > 0);
            self.notice(account, freed);
        }
    }
}

/// Room that the authority has granted for a change, until the change has used it: it is not given
/// back meanwhile.
pub struct Pledge {
    accounts: Arc<Accounts>,
    account: Account,
    amounts: [i64; 2],
}

impl Drop for Pledge {
    fn drop(&mut self) {
        let mut state = self.accounts.state.lock();
        if let Some(pledged) = state.shares.pledged.get_mut(&self.account) {
            *pledged = [0, 1].map(|kind| pledged[kind].saturating_sub(self.amounts[kind]));
            if *pledged == [0; 2] {
                state.shares.pledged.remove(&self.account);
            }
        }
    }
}

impl Tablet {
    /// Returns the share of an account.
    pub fn share(&self, account: Account) -> Share {
        self.accounts.state.lock().held(account).share
    }

    /// Returns all accounts with limited shares.
    pub fn limited_accounts(&self) -> Vec<Account> {
        let state = self.accounts.state.lock();
        let limited = state.shares.held.iter().filter(|(_, held)| held.share.is_bound());
        limited.map(|(account, _)| *account).collect()
    }

    /// Changes the share of an account, for good if it `is_durable`. `change` gets the share, the
    /// usage of the account with notes of moves, and the room that changes are about to use. It
    /// returns the new share, if that is another one, and its outcome.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn change_share<T>(
        &self,
        account: Account,
        is_durable: bool,
        change: impl FnOnce(Share, [i64; 2], [i64; 2]) -> (Option<Share>, T),
    ) -> Result<T> {
        let _writer = self.writer.lock();
        let (held, used, pledged) = {
            let state = self.accounts.state.lock();
            let pledged = state.shares.pledged.get(&account).copied().unwrap_or_default();
            (state.held(account), state.used(account), pledged)
        };
        let (share, outcome) = change(held.share, used, pledged);
        let Some(share) = share else { return Ok(outcome) };
        let held = Held { share, ..held };
        let mut batch = Batch::new();
        put_held(&mut batch, account, &held)?;
        self.table.write_freeing(&batch, Durability::Visible)?;
        {
            let mut state = self.accounts.state.lock();
            state.set_held(account, held);
            state.shares.noticed.remove(&account);
            state.shares.notices.remove(&account);
        }
        if is_durable {
            self.table.sync_visible()?;
        }
        Ok(outcome)
    }

    /// Sets room aside that is about to be used by a change.
    pub fn pledge(&self, shortage: &Shortage) -> Pledge {
        let amounts = shortage.needed.map(|needed| needed.max(0));
        let mut state = self.accounts.state.lock();
        let pledged = state.shares.pledged.entry(shortage.account).or_default();
        *pledged = sum(*pledged, amounts);
        drop(state);
        Pledge { accounts: self.accounts.clone(), account: shortage.account, amounts }
    }

    /// Returns whether no other change is about to use room of the account.
    pub fn is_only_pledge(&self, pledge: &Pledge) -> bool {
        let state = self.accounts.state.lock();
        state.shares.pledged.get(&pledge.account) == Some(&pledge.amounts)
    }

    /// Returns what is missing of an account for a change now; none if there is enough.
    pub fn shortage_now(&self, shortage: &Shortage) -> Option<Shortage> {
        let now_ns = self.now_ns();
        self.accounts.state.lock().shortage(shortage.account, shortage.needed, now_ns)
    }

    /// Returns whether authorities of accounts have to know something.
    pub fn has_notices(&self) -> bool {
        self.accounts.has_notices()
    }

    /// Returns what authorities of accounts have to know.
    pub fn notices(&self) -> Vec<Notice> {
        if !self.accounts.has_notices() {
            return Vec::new();
        }
        self.accounts.state.lock().shares.notices.values().copied().collect()
    }

    /// Takes what authorities of accounts have to know.
    pub fn take_notices(&self) -> Vec<Notice> {
        let mut state = self.accounts.state.lock();
        let notices = std::mem::take(&mut state.shares.notices);
        drop(state);
        self.accounts.note();
        notices.into_values().collect()
    }

    /// Puts notices back that could not be sent.
    pub fn return_notices(&self, notices: &[Notice]) {
        let mut state = self.accounts.state.lock();
        for notice in notices {
            state.shares.notices.entry(notice.account).or_insert(*notice);
        }
        drop(state);
        self.accounts.note();
    }

    /// Returns the bytes and files that an account uses here, with notes of moves: a file on its
    /// way to another table counts here. None unless all usage is counted.
    pub fn used(&self, account: Account) -> Option<[i64; 2]> {
        let state = self.accounts.state.lock();
        state.is_on().then(|| state.used(account))
    }

    /// Returns the usage of accounts behind one, in their order, like `used`. No more of them than
    /// this. None unless all usage is counted.
    pub fn all_used(
        &self,
        after: Option<Account>,
        count_max: usize,
    ) -> Option<Vec<(Account, [i64; 2])>> {
        let state = self.accounts.state.lock();
        if !state.is_on() {
            return None;
        }
        let accounts = state.usage.keys().chain(state.shares.held.keys());
        let mut accounts = Vec::from_iter(accounts.filter(|one| after < Some(**one)));
        accounts.sort_unstable();
        accounts.dedup();
        let some = accounts.into_iter().take(count_max);
        Some(some.map(|account| (*account, state.used(*account))).collect())
    }

    /// Returns the records of the authority about all accounts.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a key is damaged.
    pub fn ledger_records(&self) -> Result<Vec<LedgerRecord>> {
        let mut scan = self.table.scan(&Space::Ledgers.range(), Direction::Forward)?;
        let mut records = Vec::new();
        while let Some(record) = scan.next()? {
            records.push(LedgerRecord {
                account: Account::parse(record.key.hash)?,
                rest: record.key.name.to_vec(),
                value: Some(record.value.to_vec()),
            });
        }
        Ok(records)
    }

    /// Writes records of the authority about accounts. Everybody sees them.
    /// [`Table::sync_visible`](canopy_store::Table::sync_visible) makes them outlast a crash, once the
    /// caller has noted them.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn put_ledger_records(&self, records: &[LedgerRecord]) -> Result<()> {
        let _writer = self.writer.lock();
        let mut batch = Batch::new();
        for LedgerRecord { account, rest, value } in records {
            let mut key = account.key(Space::Ledgers);
            key.name.clone_from(rest);
            match value {
                Some(value) => batch.put(key.as_ref(), value)?,
                None => batch.delete(key.as_ref())?,
            }
        }
        Ok(self.table.write_freeing(&batch, Durability::Visible)?)
    }

    /// Ends all shares, and counting. Notes of moves stay.
    pub(super) fn end_shares(&self, batch: &mut Batch) -> Result<HashMap<Account, Held>> {
        let state = self.accounts.state.lock();
        let mut left = HashMap::new();
        for (account, held) in &state.shares.held {
            let held = Held { share: Share::default(), ..*held };
            put_held(batch, *account, &held)?;
            if held != Held::default() {
                left.insert(*account, held);
            }
        }
        Ok(left)
    }
}

impl State {
    pub(super) fn set_shares(&mut self, held: HashMap<Account, Held>) {
        self.shares = Shares { held, ..Shares::default() };
    }
}

/// Returns the error of a change for which shares do not suffice, if there are such.
pub(super) fn check_shortages(shortages: Vec<Shortage>) -> Result<()> {
    match shortages.is_empty() {
        true => Ok(()),
        false => Err(Error::Short(shortages)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let share = Share {
            round: [7, u64::MAX],
            base: [-5, i64::MAX],
            bound: [true, false],
            is_open: false,
            until_ns: -1,
        };
        for held in [Held { share, moved: [-3, 4] }, Held::default()] {
            let value = held.encode();
            assert_eq!(Held::decode(&value).unwrap(), held);
            assert!(Held::decode(&value[1..]).is_err());
        }
    }
}
