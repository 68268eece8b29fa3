//! Threads for what may take long: queries, checks that root asks for, contents that are fetched.
//!
//! Accounts take turns. Little work runs at a time; a piece that has run for [`SLICE`] lets that of
//! another account run that has had less time, and goes on when it is its turn again. So a short
//! query never waits for a long one, whatever others ask.

use canopy_as_user::Accounts;
use canopy_namespace::operation::program;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long work runs before others have their turn.
const SLICE: Duration = Duration::from_millis(10);

/// The clock is read once in this many calls of [`Turn::pause`].
const CALLS: u32 = 32;

/// Time that is counted for a piece of work at least, so that many small ones are not free.
const LEAST: Duration = Duration::from_micros(20);

/// While work that has begun takes more memory than this, no more begins than may run.
const MEMORY_BYTES_MAX: usize = 1 << 30;

/// How much is done at once.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// Work that runs at a time.
    pub(crate) running: usize,
    /// Work that has begun, of all accounts: each piece has a thread until it is done.
    pub(crate) begun: usize,
    /// Work of one account that has begun.
    pub(crate) of_account: usize,
    /// Work of one account that waits; more is dropped.
    pub(crate) waiting: usize,
}

/// For queries: an account has one.
pub(crate) const QUERIES: Limits = Limits { running: 3, begun: 256, of_account: 1, waiting: 64 };

/// For contents: what waits are processes that read and write, and the kernel's reading ahead.
pub(crate) const CONTENTS: Limits =
    Limits { running: 16, begun: 16, of_account: 8, waiting: usize::MAX };

type Work = Box<dyn FnOnce(&Turn<'_>) + Send>;

/// Work that has begun and waits for its turn.
#[derive(Default)]
struct Paused {
    may_go_on: AtomicBool,
    changed: Condvar,
}

#[derive(Default)]
struct Account {
    waiting: VecDeque<Work>,
    begun: usize,
    paused: VecDeque<Arc<Paused>>,
    /// Time that its work had, from where the account with the least stood when it came.
    used: Duration,
}

#[derive(Default)]
struct State {
    accounts: BTreeMap<u32, Account>,
    running: usize,
    begun: usize,
    /// Threads, and those of them that wait for work.
    threads: usize,
    idle: usize,
    /// Memory of all work that has begun.
    bytes: usize,
    stops: bool,
}

/// The next piece of work of an account.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Paused(u32),
    Waiting(u32),
}

impl State {
    /// Returns the next piece of work to run: one of the account that has had the least time.
    fn next(&self, limits: &Limits) -> Option<Next> {
        if self.running >= limits.running {
            return None;
        }
        let is_large = self.bytes > MEMORY_BYTES_MAX;
        let begun_max = if is_large { limits.running } else { limits.begun };
        // Where there is no thread, it does not keep others from going on.
        let has_room = self.begun < begun_max.min(self.threads);
        let ready = self.accounts.iter().filter_map(|(&uid, account)| {
            let next = match account.paused.is_empty() {
                false => Next::Paused(uid),
                true if has_room && account.may_begin(limits) => Next::Waiting(uid),
                true => return None,
            };
            Some((account.used, next))
        });
        ready.min_by_key(|(used, _)| *used).map(|(_, next)| next)
    }

    fn account(&mut self, uid: u32) -> &mut Account {
        let least = self.accounts.values().map(|account| account.used).min().unwrap_or_default();
        let new = || Account { used: least, ..Account::default() };
        self.accounts.entry(uid).or_insert_with(new)
    }

    /// Counts time for an account, and forgets it once it wants nothing more.
    fn count(&mut self, uid: u32, time: Duration) {
        if let Some(account) = self.accounts.get_mut(&uid) {
            account.used += time.max(LEAST);
            if account.waiting.is_empty() && account.begun == 0 {
                self.accounts.remove(&uid);
            }
        }
    }
}

impl Account {
    fn may_begin(&self, limits: &Limits) -> bool {
        !self.waiting.is_empty() && self.begun < limits.of_account
    }
}

struct Shared {
    state: Mutex<State>,
    /// Wakes a thread that waits for work.
    work: Condvar,
    limits: Limits,
    accounts: Accounts,
}

/// The right of a piece of work to run.
pub(crate) struct Turn<'a> {
    shared: &'a Shared,
    account: u32,
    since: Cell<Instant>,
    calls: Cell<u32>,
    /// Memory that the work takes.
    bytes: Cell<usize>,
}

impl Turn<'_> {
    /// Lets the work of others run if this has run for a while. To be called often, with the memory
    /// that the work takes.
    pub(crate) fn pause(&self, bytes: usize) {
        let calls = self.calls.get() + 1;
        self.calls.set(calls % CALLS);
        if calls < CALLS || self.since.get().elapsed() < SLICE {
            return;
        }
        let shared = self.shared;
        let mut state = shared.state.lock();
        state.bytes = state.bytes - self.bytes.replace(bytes) + bytes;
        state.count(self.account, self.since.get().elapsed());
        let paused = Arc::<Paused>::default();
        state.running -= 1;
        state.account(self.account).paused.push_back(paused.clone());
        shared.dispatch(&mut state);
        while !paused.may_go_on.load(Ordering::SeqCst) && !state.stops {
            paused.changed.wait(&mut state);
        }
        if !paused.may_go_on.load(Ordering::SeqCst) {
            state.running += 1;
            state.account(self.account).paused.retain(|one| !Arc::ptr_eq(one, &paused));
        }
        self.since.set(Instant::now());
    }
}

/// The threads; they end once this is dropped and they have done what they do.
pub(crate) struct Pool(Arc<Shared>);

impl Pool {
    pub(crate) fn new(limits: Limits, accounts: Accounts) -> Self {
        let (state, work) = (Mutex::default(), Condvar::new());
        Pool(Arc::new(Shared { state, work, limits, accounts }))
    }

    /// Has something done for a user, and for the program that this thread works for. If too much of the
    /// account waits, it is dropped.
    pub(crate) fn run(&self, uid: u32, work: impl FnOnce(&Turn<'_>) + Send + 'static) {
        let account = self.0.accounts.of(uid);
        let program = program::current();
        let work = move |turn: &Turn<'_>| {
            let _working = program::resume(program);
            work(turn);
        };
        let mut state = self.0.state.lock();
        let waiting = &mut state.account(account).waiting;
        if waiting.len() >= self.0.limits.waiting {
            return;
        }
        waiting.push_back(Box::new(work));
        self.0.staff(&mut state);
        self.0.dispatch(&mut state);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.stops = true;
        for paused in state.accounts.values().flat_map(|account| &account.paused) {
            paused.changed.notify_one();
        }
        self.0.work.notify_all();
    }
}

impl Shared {
    /// Starts a thread if there is work to begin and none waits for it.
    fn staff(self: &Arc<Self>, state: &mut State) {
        let may_begin = |one: &Account| one.may_begin(&self.limits);
        let is_short = state.idle == 0 && state.threads < self.limits.begun;
        if !is_short || !state.accounts.values().any(may_begin) {
            return;
        }
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("query".to_owned());
        if thread.spawn(move || shared.serve()).is_ok() {
            state.threads += 1;
        }
    }

    /// Has work go on as long as some may run. What begins is taken by a thread that waits for it.
    fn dispatch(&self, state: &mut State) {
        loop {
            match state.next(&self.limits) {
                Some(Next::Paused(uid)) => {
                    let Some(paused) = state.account(uid).paused.pop_front() else { return };
                    state.running += 1;
                    paused.may_go_on.store(true, Ordering::SeqCst);
                    paused.changed.notify_one();
                }
                Some(Next::Waiting(_)) => {
                    self.work.notify_one();
                    return;
                }
                None => return,
            }
        }
    }

    fn serve(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            match state.next(&self.limits) {
                Some(Next::Waiting(uid)) => state = self.do_one(state, uid),
                // More are there only while much has begun.
                _ if state.idle >= self.limits.running => break,
                _ if state.stops && state.accounts.values().all(|one| one.waiting.is_empty()) => {
                    break;
                }
                _ => {
                    state.idle += 1;
                    self.work.wait(&mut state);
                    state.idle -= 1;
                }
            }
        }
        state.threads -= 1;
    }

    /// Does the first work that waits of an account.
    fn do_one<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        uid: u32,
    ) -> MutexGuard<'a, State> {
        let account = state.account(uid);
        let Some(work) = account.waiting.pop_front() else { return state };
        account.begun += 1;
        state.begun += 1;
        state.running += 1;
        // Other waiting work may begin, too, since this thread is busy.
        self.staff(&mut state);
        self.dispatch(&mut state);
        drop(state);
        let since = Cell::new(Instant::now());
        let (calls, bytes) = (Cell::default(), Cell::default());
        let turn = Turn { shared: self, account: uid, since, calls, bytes };
        // A request that is dropped is answered with an error.
        let _ = catch_unwind(AssertUnwindSafe(|| work(&turn)));
        let time = turn.since.get().elapsed();
        let mut state = self.state.lock();
        state.bytes -= turn.bytes.get();
        state.running -= 1;
        state.begun -= 1;
        state.account(uid).begun -= 1;
        state.count(uid, time);
        self.dispatch(&mut state);
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn pool(limits: Limits) -> Pool {
        Pool::new(limits, Accounts::of_ranges(vec![(100_000..200_000, 1), (200_000..300_000, 2)]))
    }

    #[test]
    fn one_user_does_not_keep_others_waiting() {
        let pool = pool(QUERIES);
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for _ in 0..10 {
            let released = released.clone();
            pool.run(1, move |_| assert!(released.lock().recv().is_err()));
        }
        let (done, told) = channel();
        pool.run(2, move |_| done.send(()).expect("somebody waits"));
        told.recv_timeout(PATIENCE).expect("another user's turn");
        drop(release);
    }

    /// One user had 60 uids, and each of them a thread.
    #[test]
    fn all_uids_of_an_account_count_as_one() {
        let pool = pool(QUERIES);
        let (most, now) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (done, told) = channel();
        for uid in 100_000..100_060 {
            let (most, now, done) = (most.clone(), now.clone(), done.clone());
            pool.run(uid, move |_| {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                done.send(()).expect("somebody waits");
            });
        }
        for _ in 0..60 {
            told.recv_timeout(PATIENCE).expect("its turn");
        }
        assert_eq!(most.load(Ordering::SeqCst), 1);
    }

    /// Long work of as many accounts as there was room for kept all others waiting to its end.
    #[test]
    fn long_work_of_many_accounts_lets_short_work_run() {
        let pool = pool(QUERIES);
        let is_over = Arc::new(AtomicUsize::new(0));
        let (done, told) = channel();
        for uid in 10..110 {
            let (is_over, done) = (is_over.clone(), done.clone());
            pool.run(uid, move |turn| {
                while is_over.load(Ordering::SeqCst) == 0 {
                    turn.pause(0);
                }
                done.send(uid).expect("somebody waits");
            });
        }
        for uid in [7, 8, 9] {
            let done = done.clone();
            pool.run(uid, move |_| done.send(uid).expect("somebody waits"));
        }
        let mut first: Vec<u32> =
            (0..3).map(|_| told.recv_timeout(PATIENCE).expect("a turn")).collect();
        first.sort_unstable();
        assert_eq!(first, [7, 8, 9]);
        is_over.store(1, Ordering::SeqCst);
        for _ in 10..110 {
            told.recv_timeout(PATIENCE).expect("the long ones end, too");
        }
        while !pool.0.state.lock().accounts.is_empty() {
            std::thread::yield_now();
        }
    }

    /// Work that has begun keeps its memory.
    #[test]
    fn little_begins_while_much_memory_is_taken() {
        let pool = pool(QUERIES);
        let is_over = Arc::new(AtomicUsize::new(0));
        let begun = Arc::new(AtomicUsize::new(0));
        let (done, told) = channel();
        for uid in 10..20 {
            let (is_over, begun, done) = (is_over.clone(), begun.clone(), done.clone());
            pool.run(uid, move |turn| {
                begun.fetch_add(1, Ordering::SeqCst);
                while is_over.load(Ordering::SeqCst) == 0 {
                    turn.pause(2 * MEMORY_BYTES_MAX);
                }
                done.send(()).expect("somebody waits");
            });
        }
        std::thread::sleep(20 * SLICE);
        let most = begun.load(Ordering::SeqCst);
        is_over.store(1, Ordering::SeqCst);
        for _ in 10..20 {
            told.recv_timeout(PATIENCE).expect("all end");
        }
        // Those that began before the memory was taken.
        assert!((1..10).contains(&most), "{most}");
    }

    #[test]
    fn work_that_panics_or_is_too_much_is_dropped() {
        let pool = pool(QUERIES);
        let (done, told) = channel();
        for _ in 0..QUERIES.running + 1 {
            pool.run(1, |_| panic!("on purpose"));
        }
        let (release, released) = channel::<()>();
        pool.run(100_001, move |_| assert!(released.recv().is_err()));
        for _ in 0..2 * QUERIES.waiting {
            let done = done.clone();
            pool.run(100_002, move |_| done.send(()).expect("somebody waits"));
        }
        drop((release, done));
        let count = std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).count();
        assert!((1..=QUERIES.waiting).contains(&count), "{count}");
    }
}
