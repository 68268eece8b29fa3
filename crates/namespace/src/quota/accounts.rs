//! Usage and limits of all accounts, in memory, and the changes of usage by transactions.

use super::shares::{Shares, Shortage, check_shortages};
use super::{Account, BLOCK_BYTES, Limits, Usage};
use crate::error::{Error, Result};
use crate::records::executed::ChangeId;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, Space};
use canopy_store::{Batch, Direction, Durability, Table};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering};

const SECOND_NS: i64 = 1_000_000_000;

/// Usage of inodes, or a change of it: bytes and inodes by account. The numbers wrap around, so
/// that adding and subtracting one amount has no effect.
#[derive(Debug, Default)]
pub(crate) struct Sums(Vec<(Account, [u64; 2])>);

impl Sums {
    /// Adds what an inode uses.
    pub(crate) fn add(&mut self, inode: &Inode) {
        self.change(inode, [inode.blocks.wrapping_mul(BLOCK_BYTES), 1]);
    }

    /// Takes away what an inode uses.
    pub(crate) fn subtract(&mut self, inode: &Inode) {
        let bytes = inode.blocks.wrapping_mul(BLOCK_BYTES);
        self.change(inode, [bytes.wrapping_neg(), 1u64.wrapping_neg()]);
    }

    /// Adds all of it to sums by account.
    pub(crate) fn add_to(&self, all: &mut HashMap<Account, [u64; 2]>) {
        for (account, by) in &self.0 {
            let sums = all.entry(*account).or_default();
            *sums = added(*sums, *by);
        }
    }

    /// Returns the sums by account.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Account, [u64; 2])> + '_ {
        self.0.iter().copied()
    }

    /// Adds sums by account.
    pub(crate) fn add_all(&mut self, all: &HashMap<Account, [u64; 2]>) {
        all.iter().for_each(|(account, by)| self.change_account(*account, *by));
    }

    /// Returns the change of an account.
    fn of(&self, account: Account) -> [i64; 2] {
        let found = self.0.iter().find(|(one, _)| *one == account);
        found.map_or([0; 2], |(_, by)| by.map(|by| by as i64))
    }

    /// Changes the sums of an inode's accounts. Records that lead to an inode elsewhere, and those of
    /// further partitions of a directory, are not counted.
    fn change(&mut self, inode: &Inode, by: [u64; 2]) {
        if inode.has(flag::LINKED | flag::ACCESS_HALF | flag::FURTHER) {
            return;
        }
        Account::of(inode).for_each(|account| self.change_account(account, by));
    }

    fn change_account(&mut self, account: Account, by: [u64; 2]) {
        match self.0.iter_mut().find(|(one, _)| *one == account) {
            Some((_, sums)) => *sums = added(*sums, by),
            None => self.0.push((account, by)),
        }
    }
}

fn added(one: [u64; 2], other: [u64; 2]) -> [u64; 2] {
    [one[0].wrapping_add(other[0]), one[1].wrapping_add(other[1])]
}

/// A batch of changes to records, with its effect on the sums of quotas.
#[derive(Default)]
pub(crate) struct Transaction {
    batch: Batch,
    pub(crate) sums: Sums,
    /// Usage that leaves for other tables, less that which arrives. It is in `sums`, too.
    pub(crate) moved: Sums,
    /// Whether it fails if it would pass a limit.
    pub(crate) is_bound: bool,
    /// Whether it frees space: where storage is full, there is room for it.
    pub(crate) frees: bool,
    /// The change of a session that this executes, whose record is in the batch.
    pub(crate) executed: Option<ChangeId>,
}

impl Transaction {
    pub(crate) fn new() -> Self {
        Transaction::default()
    }

    /// Returns a change that frees space.
    pub(crate) fn freeing() -> Self {
        Transaction { frees: true, ..Transaction::default() }
    }

    /// Counts a file that arrives from another table, if usage is counted.
    pub(crate) fn arrives(&mut self, inode: &Inode, counts: bool) {
        if counts {
            self.sums.add(inode);
        }
        self.moved.subtract(inode);
    }

    /// Counts a file that leaves for another table, if usage is counted.
    pub(crate) fn leaves(&mut self, inode: &Inode, counts: bool) {
        if counts {
            self.sums.subtract(inode);
        }
        self.moved.add(inode);
    }

    fn shortage(&self, state: &State, account: Account, now_ns: i64) -> Option<Shortage> {
        let (by, moved) = (self.sums.of(account), self.moved.of(account));
        let needed = [0, 1].map(|kind| by[kind].wrapping_add(moved[kind]));
        state.shortage(account, needed, now_ns)
    }
}

impl Deref for Transaction {
    type Target = Batch;

    fn deref(&self) -> &Batch {
        &self.batch
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }
}

/// Whether there are sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Nobody counts.
    #[default]
    Off,
    /// Somebody adds up what there was at some moment; the sums are what has changed since.
    Counting,
    /// The sums are those of all inodes, and on record.
    On,
}

/// All accounts. They change with the writer's lock only, but for what is reserved.
#[derive(Default)]
pub(crate) struct Accounts {
    pub(super) state: Mutex<State>,
    /// Whether changes have to say what they do to sums.
    is_counting: AtomicBool,
    /// Whether there is any limit.
    has_limits: AtomicBool,
    /// Whether authorities of accounts have to know something.
    has_notices: AtomicBool,
}

/// Outcome of a change for accounts, which counts once the change is written.
#[derive(Default)]
pub(crate) struct Updated {
    usage: Vec<(Account, Usage)>,
    /// Notes of moves.
    moved: Vec<(Account, [i64; 2])>,
    /// Accounts that got less, of bytes and files.
    freed: Vec<(Account, [bool; 2])>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) mode: Mode,
    pub(super) usage: HashMap<Account, Usage>,
    pub(super) limits: HashMap<Account, Limits>,
    /// Bytes that files are about to take.
    pub(super) reserved: HashMap<Account, u64>,
    pub(super) shares: Shares,
}

impl Accounts {
    /// Loads usage and limits from the table. Removes sums that an interrupted count left behind.
    pub(crate) fn open(table: &Table) -> Result<Self> {
        let mut state = State { shares: Shares::open(table)?, ..State::default() };
        if table.get(keys::quotas().as_ref())?.is_some() {
            state.mode = Mode::On;
            let mut scan = table.scan(&Space::Usage.range(), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                // Damage here is not a reason not to open the rest: `check` reports it.
                let account = Account::parse(record.key.hash);
                if let (Ok(account), Ok(usage)) = (account, Usage::decode(record.value)) {
                    state.usage.insert(account, usage);
                }
            }
            let mut scan = table.scan(&Space::Limits.range(), Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let account = Account::parse(record.key.hash);
                if let (Ok(account), Ok(limits)) = (account, Limits::decode(record.value)) {
                    state.limits.insert(account, limits);
                }
            }
        } else if table.scan(&Space::Usage.range(), Direction::Forward)?.next()?.is_some() {
            // The process that began to count died before all sums were written.
            let mut batch = Batch::new();
            batch.delete_range(&Space::Usage.range())?;
            table.write_freeing(&batch, Durability::Visible)?;
        }
        state.notice_all();
        let accounts = Accounts { state: Mutex::new(state), ..Accounts::default() };
        accounts.note();
        Ok(accounts)
    }

    /// Notes what others ask for without the lock.
    pub(super) fn note(&self) {
        let state = self.state.lock();
        self.has_notices.store(state.has_notices(), Ordering::Release);
        self.is_counting.store(state.mode != Mode::Off, Ordering::Release);
        self.has_limits.store(!state.limits.is_empty(), Ordering::Release);
    }

    /// Returns whether changes have to say what they do to sums.
    pub(crate) fn counts(&self) -> bool {
        self.is_counting.load(Ordering::Acquire)
    }

    /// Returns whether authorities of accounts have to know something.
    pub(super) fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Acquire)
    }

    /// Returns those of an inode's accounts whose bytes have a limit.
    pub(crate) fn limited(&self, inode: &Inode) -> Vec<Account> {
        if !self.has_limits.load(Ordering::Acquire) {
            return Vec::new();
        }
        let state = self.state.lock();
        let is_limited = |account: &Account| {
            let limits = state.limits.get(account);
            limits.is_some_and(|limits| limits.bytes_soft != 0 || limits.bytes_hard != 0)
        };
        Account::of(inode).filter(is_limited).collect()
    }

    /// Adds to a change the sums that it leads to, and returns them. `EDQUOT` if it must not pass a
    /// limit and would, and `Short` if a share does not suffice.
    pub(crate) fn admit(&self, change: &mut Transaction, now_ns: i64) -> Result<Updated> {
        let mut updated = Updated::default();
        if change.sums.0.is_empty() && change.moved.0.is_empty() {
            return Ok(updated);
        }
        let state = self.state.lock();
        let mut shortages = Vec::new();
        for (account, by) in &change.sums.0 {
            // The arriving amount may equal the removed one.
            let moved = change.moved.of(*account);
            if *by == [0, 0] && moved == [0, 0] {
                continue;
            }
            let before = state.usage.get(account).copied().unwrap_or_default();
            if change.is_bound {
                state.check(*account, &before, *by, now_ns)?;
                shortages.extend(change.shortage(&state, *account, now_ns));
            }
            let after = state.after(*account, before, *by, now_ns);
            if state.mode == Mode::On {
                put_usage(&mut change.batch, *account, &after)?;
                if state.has_ended(*account, &after) {
                    change.batch.delete(account.key(Space::Limits).as_ref())?;
                }
            }
            updated.usage.push((*account, after));
            let freed = [0, 1].map(|kind| (by[kind] as i64).wrapping_add(moved[kind]) < 0);
            updated.freed.push((*account, freed));
        }
        check_shortages(shortages)?;
        for (account, by) in change.moved.0.iter().filter(|(_, by)| *by != [0, 0]) {
            let moved = state.put_moved(&mut change.batch, *account, by.map(|by| by as i64))?;
            updated.moved.push((*account, moved));
        }
        Ok(updated)
    }

    /// Takes on sums that are on record.
    pub(crate) fn adopt(&self, updated: Updated) {
        let Updated { usage, moved, freed } = updated;
        if usage.is_empty() && moved.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        let mut has_ended = false;
        for (account, usage) in usage {
            if state.mode == Mode::On && state.has_ended(account, &usage) {
                state.limits.remove(&account);
                has_ended = true;
            }
            match usage == Usage::default() {
                true => state.usage.remove(&account),
                false => state.usage.insert(account, usage),
            };
        }
        moved.into_iter().for_each(|(account, moved)| state.adopt_moved(account, moved));
        freed.into_iter().for_each(|(account, freed)| state.notice(account, freed));
        let has_notices = state.has_notices();
        drop(state);
        if has_ended || has_notices {
            self.note();
        }
    }
}

/// Adds to `batch` what an account uses. What uses nothing has no record.
pub(super) fn put_usage(batch: &mut Batch, account: Account, usage: &Usage) -> Result<()> {
    let key = account.key(Space::Usage);
    match *usage == Usage::default() {
        true => batch.delete(key.as_ref())?,
        false => batch.put(key.as_ref(), &usage.encode())?,
    }
    Ok(())
}

impl State {
    pub(super) fn is_on(&self) -> bool {
        self.mode == Mode::On
    }

    /// Returns whether an account that uses so much now is a tree that has ended: its directory,
    /// which counts itself, is gone, and all that was moved out of it.
    fn has_ended(&self, account: Account, usage: &Usage) -> bool {
        let is_tree = matches!(account, Account::Tree(_));
        is_tree && usage.inodes == 0 && self.limits.contains_key(&account)
    }

    /// Returns an error if an account may not use so much more.
    pub(super) fn check(
        &self,
        account: Account,
        usage: &Usage,
        by: [u64; 2],
        now_ns: i64,
    ) -> Result<()> {
        let Some(limits) = self.limits.get(&account) else { return Ok(()) };
        let reserved = self.reserved.get(&account).copied().unwrap_or(0);
        let grace_ns = i64::try_from(limits.grace_s).unwrap_or(i64::MAX).saturating_mul(SECOND_NS);
        let passes = |used: u64, by: u64, soft: u64, hard: u64, since_ns: i64| {
            let after = used.saturating_add(by);
            // Less is always possible.
            let is_more = (by as i64) > 0;
            let is_over = since_ns != 0 && now_ns.saturating_sub(since_ns) > grace_ns;
            is_more && ((hard != 0 && after > hard) || (soft != 0 && after > soft && is_over))
        };
        let bytes = usage.bytes.saturating_add(reserved);
        let (soft, hard) = (limits.bytes_soft, limits.bytes_hard);
        if passes(bytes, by[0], soft, hard, usage.bytes_since_ns)
            || passes(
                usage.inodes,
                by[1],
                limits.inodes_soft,
                limits.inodes_hard,
                usage.inodes_since_ns,
            )
        {
            return Err(Error::Posix(Errno::DQUOT));
        }
        Ok(())
    }

    /// Returns what an account uses after a change.
    pub(super) fn after(
        &self,
        account: Account,
        mut usage: Usage,
        by: [u64; 2],
        now_ns: i64,
    ) -> Usage {
        [usage.bytes, usage.inodes] = added([usage.bytes, usage.inodes], by);
        let limits = self.limits.get(&account).copied().unwrap_or_default();
        let since = |used: u64, soft: u64, since_ns: i64| match soft != 0 && used > soft {
            true if since_ns != 0 => since_ns,
            true => now_ns.max(1),
            false => 0,
        };
        usage.bytes_since_ns = since(usage.bytes, limits.bytes_soft, usage.bytes_since_ns);
        usage.inodes_since_ns = since(usage.inodes, limits.inodes_soft, usage.inodes_since_ns);
        usage
    }
}
