//! Sessions of clients at a server.
//!
//! A session begins with its first change here. While its client is silent, it stays for
//! [`SessionSettings::kept`]: until then a change that is sent again gets its first reply. A client
//! gives up retries earlier, and ends its session when it needs it no longer.

use crate::error::{Error, Result};
use crate::message::{Sender, SessionId};
use crate::process::Process;
use crate::server::Server;
use canopy_namespace::operation::Operation;
use canopy_namespace::{ChangeId, Reply};
use parking_lot::Mutex;
use std::collections::HashMap;
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
    /// Largest number of sessions of a server.
    pub sessions_max: usize,
    /// The clock. Only when something is released or forgotten depends on it.
    pub clock: SteadyClock,
}

impl Default for SessionSettings {
    fn default() -> Self {
        SessionSettings {
            kept: Duration::from_secs(15 * 60),
            sessions_max: 65_536,
            clock: steady_clock(),
        }
    }
}

/// What a server keeps for sessions of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Number of sessions.
    pub sessions: usize,
    /// Number of records of executed changes.
    pub changes: usize,
}

/// Sessions of a server.
pub(crate) struct Sessions {
    settings: SessionSettings,
    all: Mutex<HashMap<SessionId, Session>>,
}

struct Session {
    /// The moment of its last request.
    seen: Duration,
}

impl Sessions {
    /// Returns sessions that a table has records of. They count as seen now.
    pub(crate) fn new(settings: SessionSettings, recorded: Vec<u64>) -> Self {
        let seen = (settings.clock)();
        let session = |id| (SessionId(id), Session { seen });
        let all = recorded.into_iter().map(session).collect();
        Sessions { settings, all: Mutex::new(all) }
    }

    pub(crate) fn now(&self) -> Duration {
        (self.settings.clock)()
    }

    /// Notes a request of a session, which begins with it if it is new.
    fn begin(&self, id: SessionId) -> Result<()> {
        let seen = self.now();
        let mut all = self.all.lock();
        if let Some(session) = all.get_mut(&id) {
            session.seen = seen;
            return Ok(());
        }
        if all.len() >= self.settings.sessions_max {
            return Err(Error::TooManySessions(self.settings.sessions_max));
        }
        all.insert(id, Session { seen });
        Ok(())
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
            all.entry(SessionId(id)).or_insert(Session { seen });
        }
    }
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
        let Some(change) = change else { return Ok((execute()?, true)) };
        self.sessions.begin(sender.session)?;
        if let Some(reply) = self.tablet.reply_to(change, operation)? {
            return Ok((reply, false));
        }
        let running = ChangeId::begin(Some(change));
        let executed = execute();
        drop(running);
        // A copy of the request may have been executed meanwhile.
        match executed {
            Ok(reply) => Ok((reply, true)),
            Err(error) => match self.tablet.reply_to(change, operation)? {
                Some(reply) => Ok((reply, false)),
                None => Err(error),
            },
        }
    }

    pub(crate) fn session_counts(&self) -> Result<SessionCounts> {
        let sessions = self.sessions.all.lock().len();
        let changes = self.tablet.executed_records()?.len();
        Ok(SessionCounts { sessions, changes })
    }

    /// Ends a session: its client sends nothing of it again.
    pub(crate) fn end_session(&self, id: SessionId) -> Result<()> {
        self.end_session_if(id, |_| true)
    }

    fn end_session_if(&self, id: SessionId, ends: impl Fn(&Session) -> bool) -> Result<()> {
        let executed = {
            let mut all = self.sessions.all.lock();
            if !all.get(&id).is_some_and(ends) {
                return Ok(());
            }
            all.remove(&id);
            // With the lock: a change that comes now begins the session anew, and is kept.
            self.tablet.executed_of(id.0)
        };
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
