//! Sessions of clients at a server.
//!
//! A session begins with its first change, hold, lock or renewal here. While its client is silent, it stays for
//! [`SessionSettings::kept`]: until then a change that is sent again gets its first reply. A client
//! gives up retries earlier, and ends its session when it needs it no longer. Files that it holds are
//! let go earlier (`holds`).

use crate::error::{Error, Result};
use crate::handles::tag_of;
use crate::holds::SessionHolds;
use crate::locks::ServerLocks;
use crate::message::{Sender, SessionId};
use crate::process::Process;
use crate::server::Server;
use canopy_namespace::operation::{Change, Operation};
use canopy_namespace::{ChangeId, FileId, Reply};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Time since some moment, which never goes back.
pub type SteadyClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Returns the system's clock.
pub fn steady_clock() -> SteadyClock {
    static START: OnceLock<Instant> = OnceLock::new();
    Arc::new(|| START.get_or_init(Instant::now).elapsed())
}

/// Limits of sessions.
#[derive(Clone)]
pub struct SessionSettings {
    /// Time without a request after which a session's changes are forgotten. It is much longer than
    /// clients retry.
    pub kept: Duration,
    /// Time without a request after which a session's holds of files are lost.
    pub lease: Duration,
    /// Time from the opening of a server until files without a name are removed that nobody holds:
    /// clients hold theirs again.
    pub grace: Duration,
    /// Largest number of sessions of machines at a server, and of those of users.
    pub sessions_max: usize,
    /// The clock. Only when something is released or forgotten depends on it.
    pub clock: SteadyClock,
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings {
            kept: Duration::from_secs(15 * 60),
            lease: Duration::from_secs(10),
            grace: Duration::from_secs(2),
            sessions_max: 65_536,
            clock: steady_clock(),
        }
    }
}

/// State of a server for sessions of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Number of sessions.
    pub sessions: usize,
    /// Number of records of executed changes.
    pub changes: usize,
    /// Number of files that sessions hold.
    pub holds: usize,
    /// Number of locks of programs.
    pub locks: usize,
    /// Number of locks that wait for others.
    pub waiting_locks: usize,
}

/// Sessions of one identity: a machine, or a user.
const SESSIONS_OF_ONE: usize = 4096;

/// Holds of all users and machines that are not trusted, each of which takes some 125 bytes.
const HOLDS_MAX: usize = 1 << 23;

/// Sessions of a server.
pub(crate) struct Sessions {
    settings: SessionSettings,
    all: Mutex<HashMap<SessionId, Session>>,
    /// Locks on files that sessions hold. Changed with `all` locked.
    pub(crate) locks: ServerLocks,
    /// Numbers of sessions and holds by their owners. Changed with `all` locked.
    owners: Mutex<Owners>,
    /// Number of lives of sessions so far.
    lives: AtomicU64,
    /// End of the time in which files without a name stay; none if it is over.
    grace_end: Mutex<Option<Duration>>,
}

/// Numbers of sessions and holds by the tags of their owners.
#[derive(Default)]
struct Owners {
    by_tag: HashMap<u64, OfOwner>,
    /// Holds of all owners that are not trusted.
    holds: Arc<AtomicUsize>,
}

#[derive(Default)]
struct OfOwner {
    sessions: usize,
    holds: Arc<AtomicUsize>,
}

/// Counters of the holds of a session: that of its owner, and that of all owners.
#[derive(Clone)]
pub(crate) struct HoldCounters([Arc<AtomicUsize>; 2]);

impl HoldCounters {
    pub(crate) fn add(&self, count: usize) {
        self.0.iter().for_each(|counter| _ = counter.fetch_add(count, Ordering::Relaxed));
    }

    pub(crate) fn subtract(&self, count: usize) {
        self.0.iter().for_each(|counter| _ = counter.fetch_sub(count, Ordering::Relaxed));
    }
}

impl Owners {
    fn count(&self, id: SessionId) -> usize {
        self.by_tag.get(&tag_of(id)).map_or(0, |owner| owner.sessions)
    }

    /// Returns the most sessions that the owner of one may have, of which there are `all`. Machines have a
    /// number of their own. A user may have half of those that are left of the users' number.
    fn most(&self, id: SessionId, all: usize, sessions_max: usize) -> usize {
        let of_machines = self.count(SessionId(0));
        let left = sessions_max.saturating_sub(all - of_machines);
        match tag_of(id) {
            0 => sessions_max,
            _ => SESSIONS_OF_ONE.min(left.div_ceil(2)),
        }
    }

    /// Adds a session. Returns the counters of its holds.
    fn add(&mut self, id: SessionId) -> HoldCounters {
        let tag = tag_of(id);
        let owner = self.by_tag.entry(tag).or_default();
        owner.sessions += 1;
        let all = if tag == 0 { Arc::default() } else { self.holds.clone() };
        HoldCounters([owner.holds.clone(), all])
    }

    fn remove(&mut self, id: SessionId) {
        let Some(owner) = self.by_tag.get_mut(&tag_of(id)) else { return };
        owner.sessions -= 1;
        if owner.sessions == 0 {
            self.by_tag.remove(&tag_of(id));
        }
    }

    /// Returns whether the owner of a session can have another hold: at most half of the holds that
    /// are left.
    fn may_hold(&self, id: SessionId, holds_max: usize) -> bool {
        let Some(owner) = self.by_tag.get(&tag_of(id)).filter(|_| tag_of(id) != 0) else {
            return true;
        };
        let left = holds_max.saturating_sub(self.holds.load(Ordering::Relaxed));
        owner.holds.load(Ordering::Relaxed) <= left / 2
    }
}

struct Session {
    /// The moment of its last request.
    seen: Duration,
    files: SessionHolds,
}

impl Session {
    fn new(seen: Duration, life: u64, holds: HoldCounters) -> Self {
        Session { seen, files: SessionHolds::new(life, holds) }
    }
}

impl Sessions {
    /// Returns sessions that a table has records of. They count as seen now.
    pub(crate) fn new(settings: SessionSettings, recorded: Vec<u64>) -> Self {
        let seen = (settings.clock)();
        let lives = AtomicU64::new(recorded.len() as u64);
        let mut owners = Owners::default();
        let session = |(id, life)| {
            let id = SessionId(id);
            (id, Session::new(seen, life, owners.add(id)))
        };
        let all = recorded.into_iter().zip(0..).map(session).collect();
        let grace_end = Mutex::new(Some(seen + settings.grace));
        Sessions {
            settings,
            all: Mutex::new(all),
            locks: ServerLocks::default(),
            owners: Mutex::new(owners),
            lives,
            grace_end,
        }
    }

    fn next_life(&self) -> u64 {
        self.lives.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn now(&self) -> Duration {
        (self.settings.clock)()
    }

    /// Notes a request of a session, which begins with it if it is new.
    pub(crate) fn begin(&self, id: SessionId) -> Result<()> {
        let seen = self.now();
        let mut all = self.all.lock();
        if let Some(session) = all.get_mut(&id) {
            session.seen = seen;
            return Ok(());
        }
        let mut owners = self.owners.lock();
        let most = owners.most(id, all.len(), self.settings.sessions_max);
        if owners.count(id) >= most {
            return Err(Error::TooManySessions(most));
        }
        let holds = owners.add(id);
        all.insert(id, Session::new(seen, self.next_life(), holds));
        Ok(())
    }

    /// Fails with `NFILE` if the owner of a session has too many holds.
    pub(crate) fn check_holds(&self, id: SessionId) -> Result<()> {
        match self.owners.lock().may_hold(id, HOLDS_MAX) {
            true => Ok(()),
            false => Err(canopy_namespace::Error::from(Errno::NFILE).into()),
        }
    }

    /// Notes a request of a session, if there is one.
    pub(crate) fn note(&self, id: SessionId) {
        if let Some(session) = self.all.lock().get_mut(&id) {
            session.seen = self.now();
        }
    }

    /// Has sessions be there whose records came from another server.
    pub(crate) fn adopt(&self, ids: impl Iterator<Item = u64>) {
        let seen = self.now();
        let mut all = self.all.lock();
        for id in ids {
            all.entry(SessionId(id)).or_insert_with(|| {
                let holds = self.owners.lock().add(SessionId(id));
                Session::new(seen, self.next_life(), holds)
            });
        }
    }

    /// Does something with what a session holds, if there is one.
    pub(crate) fn with<T>(
        &self,
        id: SessionId,
        change: impl FnOnce(&mut SessionHolds) -> T,
    ) -> Option<T> {
        self.all.lock().get_mut(&id).map(|session| change(&mut session.files))
    }

    /// Does something with what each session holds.
    pub(crate) fn each(&self, mut change: impl FnMut(SessionId, &mut SessionHolds)) {
        let mut all = self.all.lock();
        all.iter_mut().for_each(|(id, session)| change(*id, &mut session.files));
    }

    /// Takes from silent sessions what they hold.
    pub(crate) fn lose_silent(&self) -> Vec<FileId> {
        let now = self.now();
        let is_silent = |session: &Session| now.saturating_sub(session.seen) >= self.settings.lease;
        let mut all = self.all.lock();
        let holds = |session: &Session| !session.files.is_empty();
        let silent = all.iter_mut().filter(|(_, session)| is_silent(session) && holds(session));
        let lost = silent.flat_map(|(id, session)| {
            let files = session.files.lose(self.next_life());
            files.into_iter().map(|file| (*id, file))
        });
        let lost = Vec::from_iter(lost);
        self.locks.drop_all(lost.iter().copied());
        lost.into_iter().map(|(_, file)| file).collect()
    }

    /// Returns whether clients may restore what a server before this one has forgotten.
    pub(crate) fn is_grace(&self) -> bool {
        self.grace_end.lock().is_some()
    }

    /// Returns whether files without a name stay no longer, once.
    pub(crate) fn ends_grace(&self) -> bool {
        let mut end = self.grace_end.lock();
        let is_over = end.is_some_and(|end| self.now() >= end);
        if is_over {
            *end = None;
        }
        is_over
    }
}

/// Returns whether a late copy of a change has to get this reply, too. Others may be executed again, such
/// as a write that has written nothing, as the client has to write it in another way.
fn is_final(operation: &Operation<'_>, reply: &Reply) -> bool {
    let is_repeatable =
        matches!(operation, Operation::Change(Change::Sync(_) | Change::TouchAccess(_)));
    !is_repeatable && matches!(reply, Reply::Done | Reply::File(_) | Reply::Inode(_))
}

impl Server {
    /// Executes a change of a session, unless it was executed before. Returns the reply, and whether
    /// it is a first one. `execute` runs it.
    pub(crate) fn execute_once(
        &self,
        sender: Sender<'_>,
        operation: &Operation<'_>,
        execute: impl FnOnce() -> Result<Reply>,
    ) -> Result<(Reply, bool)> {
        let change = sender.change().filter(|_| matches!(operation, Operation::Change(_)));
        let Some(change) = change else {
            self.check_life(sender)?;
            return Ok((execute()?, true));
        };
        self.sessions.begin(sender.session)?;
        if let Some(reply) = self.tablet.reply_to(change, operation)? {
            return Ok((reply, false));
        }
        self.check_life(sender)?;
        let running = ChangeId::begin(Some(change));
        let executed = execute();
        drop(running);
        // A copy of the request may have been executed meanwhile.
        match executed {
            Ok(reply) => {
                if is_final(operation, &reply) {
                    self.tablet.note_unchanged(change, &reply)?;
                }
                Ok((reply, true))
            }
            Err(error) => match self.tablet.reply_to(change, operation)? {
                Some(reply) => Ok((reply, false)),
                None => {
                    if let Error::Namespace(canopy_namespace::Error::Posix(errno)) = &error {
                        // If there is no room, a copy is executed anew, as before.
                        let _ = self.tablet.note_refused(change, *errno);
                    }
                    Err(error)
                }
            },
        }
    }

    pub(crate) fn session_counts(&self) -> Result<SessionCounts> {
        let mut counts = SessionCounts::default();
        self.sessions.each(|_, files| {
            counts.sessions += 1;
            counts.holds += files.len();
        });
        (counts.locks, counts.waiting_locks) = self.sessions.locks.counts();
        counts.changes = self.tablet.executed_records()?.len();
        Ok(counts)
    }

    /// Ends a session: its client sends nothing of it again.
    pub(crate) fn end_session(&self, id: SessionId) -> Result<()> {
        self.end_session_if(id, |_| true)
    }

    fn end_session_if(&self, id: SessionId, ends: impl Fn(&Session) -> bool) -> Result<()> {
        let (held, executed) = {
            let mut all = self.sessions.all.lock();
            if !all.get(&id).is_some_and(ends) {
                return Ok(());
            }
            let session = all.remove(&id);
            self.sessions.owners.lock().remove(id);
            let held = session.map(|mut session| session.files.lose(0)).unwrap_or_default();
            self.sessions.locks.drop_all(held.iter().map(|file| (id, *file)));
            // With the lock: a change that comes now begins the session anew, and is kept.
            (held, self.tablet.executed_of(id.0))
        };
        held.into_iter().try_for_each(|id| self.tablet.release(id, 1))?;
        Ok(self.tablet.forget_executed(id.0, &executed)?)
    }

    /// Ends the sessions of clients that have been silent for too long.
    pub(crate) fn end_silent_sessions(&self) -> Result<()> {
        let now = self.sessions.now();
        let is_silent =
            |session: &Session| now.saturating_sub(session.seen) >= self.sessions.settings.kept;
        let all = self.sessions.all.lock();
        let silent = all.iter().filter(|(_, session)| is_silent(session)).map(|(id, _)| *id);
        let silent = Vec::from_iter(silent);
        drop(all);
        silent.into_iter().try_for_each(|id| self.end_session_if(id, is_silent))
    }
}

/// Time between two calls of [`Process::tick`].
const TICK: Duration = Duration::from_millis(200);

/// Starts the thread that has a process do what is due. It ends when the process is dropped.
pub(crate) fn start_ticking(process: &Arc<Process>) -> Result<()> {
    let process = Arc::downgrade(process);
    let run = move || loop {
        thread::sleep(TICK);
        let Some(process) = process.upgrade() else { return };
        process.tick();
    };
    let spawned = thread::Builder::new().name("cluster-sessions".into()).spawn(run);
    let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
    Ok(spawned.map(|_| ()).map_err(io)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_holds_to_others() {
        let mut owners = Owners::default();
        let [one, other, trusted] = [1 << 40, 2 << 40, 7].map(SessionId);
        let [holds, of_other, of_trusted] = [one, other, trusted].map(|id| owners.add(id));
        of_trusted.add(1000);
        let fill = |owners: &Owners, id, holds: &HoldCounters| {
            (0..).find(|_| {
                let is_full = !owners.may_hold(id, 300);
                holds.add(usize::from(!is_full));
                is_full
            })
        };
        assert_eq!(fill(&owners, one, &holds), Some(101));
        assert_eq!(fill(&owners, other, &of_other), Some(67));
        assert!(owners.may_hold(trusted, 300));
        holds.subtract(101);
        assert!(owners.may_hold(other, 300));
        owners.remove(one);
        assert_eq!(owners.count(one), 0);
    }

    /// Sixteen users once left no session to anybody, not even to machines.
    #[test]
    fn users_leave_sessions_to_each_other_and_to_machines() {
        const MOST: usize = 1000;
        let mut owners = Owners::default();
        let mut all = 0;
        let mut begin = |id: SessionId| {
            let may = owners.count(id) < owners.most(id, all, MOST);
            if may {
                owners.add(id);
                all += 1;
            }
            may
        };
        for user in 1..=5 {
            let begun = (0..MOST as u64).take_while(|at| begin(SessionId(user << 40 | at))).count();
            assert!(begun > 10, "{user}: {begun}");
        }
        assert!((0..MOST as u64).all(|at| begin(SessionId(at))), "machines have their own");
        assert!(!begin(SessionId(7)));
        assert!(begin(SessionId(6 << 40)), "another user");
    }
}
