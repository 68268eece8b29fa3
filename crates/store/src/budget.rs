//! One budget for the memtables of many tables.
//!
//! Each table notes what its memtables take. If those that still grow take more than half of the
//! budget, the largest is flushed, whichever table has it: idle tables keep their few records in
//! memory. The other half is for memtables that are being flushed. Writers are slowed down while
//! the last quarter fills up, and wait once the budget is used up.
//!
//! Memory that a reader holds of a flushed memtable is not counted.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Multiple of the bytes that a table of its own budget may use, from which on every write waits.
const STOP_TIMES: u64 = 4;

/// Bytes that the memtables of tables may take together, and that they take. Share one in a
/// process, and let [`UpkeepThreads`](crate::UpkeepThreads) look after all of its tables: once it
/// is used up, writers wait until others are flushed, for up to two seconds a batch.
pub struct MemtableBudget {
    /// More bytes in memtables that still grow have the largest flushed.
    growing_bytes_max: u64,
    /// From so many bytes on, writers are slowed down, the more until there are `slow_span_bytes`
    /// more.
    slow_bytes: u64,
    slow_span_bytes: u64,
    /// From so many bytes on, every write takes long.
    stop_bytes: u64,
    /// From so many bytes on, writers wait for flushes.
    limit_bytes: u64,
    /// Bytes of the memtables of all tables, and of those that still grow.
    used: AtomicU64,
    growing: AtomicU64,
    shares: Mutex<Vec<Weak<Share>>>,
}

impl MemtableBudget {
    /// Returns a budget of so many bytes.
    pub fn new(bytes: u64) -> Arc<Self> {
        Arc::new(MemtableBudget {
            growing_bytes_max: bytes / 2,
            slow_bytes: bytes - bytes / 4,
            slow_span_bytes: bytes / 4,
            stop_bytes: u64::MAX,
            limit_bytes: bytes,
            ..MemtableBudget::of_one(bytes)
        })
    }

    /// Returns the budget of a table that shares none. Its memtable is flushed once it is full.
    pub(crate) fn of_one(memory_bytes: u64) -> Self {
        MemtableBudget {
            growing_bytes_max: u64::MAX,
            slow_bytes: memory_bytes,
            slow_span_bytes: memory_bytes,
            stop_bytes: memory_bytes.saturating_mul(STOP_TIMES),
            limit_bytes: u64::MAX,
            used: AtomicU64::new(0),
            growing: AtomicU64::new(0),
            shares: Mutex::default(),
        }
    }

    /// Returns the bytes that memtables take now, and changes that are not in a log yet.
    pub fn used_bytes(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns by how much writers are slowed down: 0 for not at all, up to 1.
    pub(crate) fn pressure(&self) -> f64 {
        let over = self.used_bytes().saturating_sub(self.slow_bytes);
        if over == 0 {
            return 0.0;
        }
        (over as f64 / self.slow_span_bytes.max(1) as f64).min(1.0)
    }

    /// Returns whether every write takes long.
    pub(crate) fn is_stopped(&self) -> bool {
        self.used_bytes() > self.stop_bytes
    }

    /// Returns whether writers wait for flushes.
    pub(crate) fn is_used_up(&self) -> bool {
        self.used_bytes() >= self.limit_bytes
    }

    /// Returns how many bytes of a log may be in memory while it is recovered.
    pub(crate) fn recovered_bytes(&self) -> u64 {
        (self.slow_bytes / 2).min(self.growing_bytes_max / 2)
    }

    /// Returns the most that `part` has for any table.
    fn most(&self, part: impl Fn(&Share) -> u64) -> u64 {
        let mut shares = self.shares.lock();
        shares.retain(|share| share.strong_count() > 0);
        let all = shares.iter().filter_map(Weak::upgrade);
        all.map(|share| part(&share)).max().unwrap_or(0)
    }
}

/// Share of one table in a budget.
pub(crate) struct Share {
    budget: Arc<MemtableBudget>,
    /// Bytes of the memtable that grows.
    growing: AtomicU64,
    /// Bytes of those that are full, and of changes that are not in the log yet.
    waiting: AtomicU64,
    /// Whether its log has too many segments.
    has_long_log: AtomicBool,
}

impl Share {
    /// Returns the share of a table that has nothing yet.
    pub(crate) fn of(budget: Arc<MemtableBudget>) -> Arc<Self> {
        let share = Arc::new(Share {
            budget,
            growing: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            has_long_log: AtomicBool::new(false),
        });
        share.budget.shares.lock().push(Arc::downgrade(&share));
        share
    }

    pub(crate) fn budget(&self) -> &MemtableBudget {
        &self.budget
    }

    /// Notes what the table takes. One thread at a time does so.
    pub(crate) fn set(&self, growing: u64, waiting: u64) {
        let [growing_before, waiting_before] =
            [&self.growing, &self.waiting].map(|part| part.load(Ordering::Relaxed));
        self.growing.store(growing, Ordering::Relaxed);
        self.waiting.store(waiting, Ordering::Relaxed);
        // Differences wrap around; sums do not.
        let by = growing.wrapping_sub(growing_before);
        self.budget.growing.fetch_add(by, Ordering::Relaxed);
        let by = by.wrapping_add(waiting).wrapping_sub(waiting_before);
        self.budget.used.fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the bytes that the table takes.
    pub(crate) fn used(&self) -> u64 {
        self.growing.load(Ordering::Relaxed) + self.waiting.load(Ordering::Relaxed)
    }

    /// Returns whether no table takes more.
    pub(crate) fn is_largest(&self) -> bool {
        self.used() >= self.budget.most(Share::used)
    }

    /// Returns whether the memtable that grows has to be flushed, as the largest of too many.
    pub(crate) fn is_due(&self) -> bool {
        let growing = self.growing.load(Ordering::Relaxed);
        growing > 0
            && self.budget.growing.load(Ordering::Relaxed) > self.budget.growing_bytes_max
            && growing >= self.budget.most(|share| share.growing.load(Ordering::Relaxed))
    }

    /// Notes whether the table's log has too many segments.
    pub(crate) fn set_long_log(&self, is_long: bool) {
        self.has_long_log.store(is_long, Ordering::Relaxed);
    }

    /// Returns whether the table's log has too many segments.
    pub(crate) fn has_long_log(&self) -> bool {
        self.has_long_log.load(Ordering::Relaxed)
    }

    /// Returns whether a flush may have something to do: memtables that are full, the largest, or one
    /// with a long log.
    pub(crate) fn may_flush(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 || self.has_long_log() || self.is_due()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}
