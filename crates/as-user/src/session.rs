//! A process of one user that several requests share, from the side of its parent.

use crate::frame::{Frame, receive};
use crate::room::Occupant;
use crate::turns::Turns;
use canopy_model::Credentials;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests that are with a process at once: fewer bytes than a socket takes without a reader.
const WINDOW: usize = 8;

/// Those of them that may take long, so that others need not wait for them.
const LONG_MAX: usize = 4;

/// Requests of one set of credentials that wait for that.
const WAITING_MAX: usize = 2048;

/// Sending to a process takes longer only if something is wrong with it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes an answer, or why there is none. Returns false for an answer that cannot be decoded.
pub(crate) type Then = Box<dyn FnOnce(Result<&[u8], Errno>) -> bool + Send>;

fn fail(all: Vec<Then>, errno: Errno) {
    for then in all {
        then(Err(errno));
    }
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Others wait for the answer: it comes soon, or it is given up.
    Prompt,
    /// It may take as long as it takes.
    Long,
    /// Like `Long`, and it takes much of a processor: a process answers one at a time, and an
    /// account has few.
    Heavy,
}

/// A request that was not sent yet.
pub(crate) struct Unsent {
    pub(crate) frame: Frame,
    pub(crate) class: Class,
    pub(crate) then: Then,
    /// When somebody asked.
    pub(crate) since: Instant,
}

/// A request that was sent.
struct Sent {
    /// `None` if nobody waits any more.
    then: Option<Then>,
    class: Class,
    since: Instant,
    sent: Instant,
}

pub(crate) struct Session {
    pub(crate) who: Credentials,
    pub(crate) account: u32,
    turns: Arc<Turns>,
    socket: UnixStream,
    state: Mutex<State>,
}

struct State {
    next: u64,
    waiting: VecDeque<Unsent>,
    pending: HashMap<u64, Sent>,
    used: Instant,
    /// Whether the process knows who it is to be.
    is_ready: bool,
    /// Whether nothing more can be asked.
    has_ended: bool,
    /// The answer to requests that wait when it ends.
    at_end: Errno,
}

impl Session {
    /// Returns a session whose process is not there yet, and the end of the socket for it.
    pub(crate) fn new(
        who: Credentials,
        account: u32,
        turns: Arc<Turns>,
    ) -> io::Result<(Self, UnixStream)> {
        let (socket, theirs) = UnixStream::pair()?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        let state = Mutex::new(State {
            next: 0,
            waiting: VecDeque::new(),
            pending: HashMap::new(),
            used: Instant::now(),
            is_ready: false,
            has_ended: false,
            at_end: Errno::EIO,
        });
        Ok((Session { who, account, turns, socket, state }, theirs))
    }

    /// Returns the socket, for the first frames.
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Sends what was asked before the process was there.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        state.is_ready = true;
        self.send_waiting(&mut state);
    }

    /// Asks, or gives back what was asked if the process has ended.
    pub(crate) fn ask(&self, unsent: Box<Unsent>) -> Result<(), Box<Unsent>> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(unsent);
        }
        state.used = Instant::now();
        let is_late = state.pending.values().any(|sent| sent.then.is_none());
        let refusal = match unsent.class {
            Class::Prompt if is_late => Some(Errno::ETIMEDOUT),
            _ => (state.waiting.len() >= WAITING_MAX).then_some(Errno::EAGAIN),
        };
        if let Some(errno) = refusal {
            drop(state);
            (unsent.then)(Err(errno));
            return Ok(());
        }
        state.waiting.push_back(*unsent);
        self.send_waiting(&mut state);
        Ok(())
    }

    /// Sends what waits, as far as it may.
    fn send_waiting(&self, state: &mut State) {
        while state.is_ready
            && state.pending.len() < WINDOW
            && let Some(unsent) = state.next_to_send(|| self.turns.begin(self.account))
        {
            let Unsent { mut frame, class, then, since } = unsent;
            state.next += 1;
            let (number, then, sent) = (state.next, Some(then), Instant::now());
            state.pending.insert(number, Sent { then, class, since, sent });
            if frame.send(&self.socket, number, class == Class::Heavy).is_err() {
                // The thread that passes answers on sees it, and fails all that waits.
                self.hang_up();
                return;
            }
        }
    }

    /// Sends what waits, now that others of the account may have ended.
    pub(crate) fn go_on(&self) {
        self.send_waiting(&mut self.state.lock());
    }

    /// Returns since when a heavy request waits for its turn.
    pub(crate) fn waits_for_turn_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        let mut heavy = state.waiting.iter().filter(|one| one.class == Class::Heavy);
        heavy.next().map(|one| one.since)
    }

    /// Answers those who cannot wait longer than this with an error, and until answers come again,
    /// all others like them.
    pub(crate) fn give_up(&self, patience: Duration) {
        let is_late =
            |of: Class, since: &Instant| of == Class::Prompt && since.elapsed() >= patience;
        let mut late: Vec<Then> = Vec::new();
        let mut state = self.state.lock();
        for sent in state.pending.values_mut().filter(|sent| is_late(sent.class, &sent.since)) {
            late.extend(sent.then.take());
        }
        let are_late = state.waiting.iter().any(|one| is_late(one.class, &one.since));
        if are_late || !late.is_empty() {
            for unsent in std::mem::take(&mut state.waiting) {
                match unsent.class {
                    Class::Prompt => late.push(unsent.then),
                    Class::Long | Class::Heavy => state.waiting.push_back(unsent),
                }
            }
        }
        drop(state);
        fail(late, Errno::ETIMEDOUT);
    }

    /// Passes answers on until the process ends, or sends what it must not. Calls `freed` when a
    /// heavy request was answered.
    pub(crate) fn pass_answers(&self, freed: impl Fn()) -> io::Result<()> {
        let (mut answers, mut body) = (BufReader::new(&self.socket), Vec::new());
        loop {
            let number = match receive(&mut answers, &mut body) {
                Ok(head) => head.number,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut state = self.state.lock();
            let pending = state.pending.remove(&number);
            let sent = pending.ok_or_else(|| io::Error::other("an answer to nothing"))?;
            state.used = Instant::now();
            if sent.class == Class::Heavy {
                self.turns.end(self.account);
                drop(state);
                // Others of the account may have waited for longer.
                freed();
                state = self.state.lock();
            }
            self.send_waiting(&mut state);
            drop(state);
            if sent.then.is_some_and(|then| !then(Ok(&body))) {
                return Err(io::Error::other("an answer of another form"));
            }
        }
    }

    pub(crate) fn hang_up(&self) {
        // The process may have ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Answers all who wait with an error. Returns whether somebody did.
    pub(crate) fn end(&self) -> bool {
        self.hang_up();
        let mut state = self.state.lock();
        state.has_ended = true;
        let at_end = state.at_end;
        let pending: Vec<Sent> = std::mem::take(&mut state.pending).into_values().collect();
        let heavy = pending.iter().filter(|sent| sent.class == Class::Heavy).count();
        (0..heavy).for_each(|_| self.turns.end(self.account));
        let pending = pending.into_iter().filter_map(|sent| sent.then);
        let waiting = std::mem::take(&mut state.waiting).into_iter().map(|unsent| unsent.then);
        drop(state);
        let all: Vec<Then> = pending.chain(waiting).collect();
        let was_busy = !all.is_empty();
        fail(all, at_end);
        was_busy
    }

    /// Returns whether some request has been with the process for so long.
    pub(crate) fn is_stuck(&self, time: Duration) -> bool {
        let state = self.state.lock();
        state.pending.values().any(|sent| sent.sent.elapsed() > time)
    }
}

impl Occupant for Session {
    fn uid(&self) -> u32 {
        self.who.uid
    }

    fn account(&self) -> u32 {
        self.account
    }

    fn used(&self) -> Instant {
        self.state.lock().used
    }

    fn is_leaving(&self) -> bool {
        false
    }

    fn retire(&self, idle: Duration) -> bool {
        let mut state = self.state.lock();
        let is_idle =
            state.pending.is_empty() && state.waiting.is_empty() && state.used.elapsed() >= idle;
        if is_idle {
            state.has_ended = true;
            self.hang_up();
        }
        is_idle
    }

    fn make_way(&self) -> bool {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.at_end = Errno::EAGAIN;
        self.hang_up();
        true
    }
}

impl State {
    /// Takes what is to be sent next: the first that waits, but only a few that take long at a
    /// time, and one heavy one, if `has_turn`.
    fn next_to_send(&mut self, has_turn: impl FnOnce() -> bool) -> Option<Unsent> {
        let is_long = |class: Class| class != Class::Prompt;
        let long = self.pending.values().filter(|sent| is_long(sent.class)).count();
        let heavy = self.pending.values().any(|sent| sent.class == Class::Heavy);
        let may_go = |one: &Unsent| !is_long(one.class) || long < LONG_MAX;
        let find = |heavy: bool| {
            let is_next = |one: &Unsent| may_go(one) && !(heavy && one.class == Class::Heavy);
            self.waiting.iter().position(is_next)
        };
        let first = find(heavy)?;
        let at = match self.waiting[first].class == Class::Heavy && !has_turn() {
            true => find(true)?,
            false => first,
        };
        self.waiting.remove(at)
    }
}
