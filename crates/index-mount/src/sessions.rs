//! Who answers for whom: one helper for each set of credentials, started when somebody asks, and
//! ended when nobody has for a while.
//!
//! A request waits only for other requests of its own account: a thread for each helper passes
//! requests on and answers back. An account has a share of the helpers, and a few searches at a
//! time, however many uids are subordinate to it.

use crate::helper::{ARGUMENT, program, serve_in_thread};
use crate::protocol::{Answer, ReplyKind, Request, RequestKind, Setup, receive, send};
use crate::view::{Opener, UserView};
use canopy_credentials::Accounts;
use canopy_model::Credentials;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many helpers there are at once; of one account, which may have many uids; and of one uid,
/// which may have several sets of groups.
const HELPERS_MAX: usize = 128;
const HELPERS_OF_ACCOUNT_MAX: usize = 16;
const HELPERS_OF_USER_MAX: usize = 8;

/// How many searches of one account go on at a time, one in a helper.
const SEARCHES_OF_ACCOUNT_MAX: usize = 2;

/// A helper ends when nobody has asked for so long.
const IDLE: Duration = Duration::from_secs(120);

/// A helper that does not answer for so long is ended.
const STUCK: Duration = Duration::from_secs(300);

/// While the kernel waits for some answers, it keeps a directory locked for all users: they come in
/// this time, or it is told that there are none.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often to look for these.
const ROUND: Duration = Duration::from_secs(1);

/// So many requests are with a helper at once: fewer bytes than a socket takes without a reader.
const WINDOW: usize = 8;

/// So many of these may take long, so that others need not wait for them.
const LONG_MAX: usize = 4;

/// So many requests of one set of credentials wait for that.
const WAITING_MAX: usize = 2048;

/// Sending to a helper takes longer only if something is wrong with it.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// So many lines a minute are told in the log, of so many bytes at most.
const LINES_MAX: u32 = 100;
const LINE_BYTES_MAX: usize = 1000;

/// Is told what users should know of.
pub type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Takes an answer.
type Then = Box<dyn FnOnce(Result<ReplyKind, Errno>) + Send>;

/// Whether nobody else is kept waiting by a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// It may take as long as it takes.
    Long,
    /// The kernel may have locked a directory.
    Short,
}

/// A question that was not sent yet.
struct Unsent {
    asked: RequestKind,
    then: Then,
    patience: Patience,
    is_search: bool,
    since: Instant,
}

impl Unsent {
    fn new(asked: RequestKind, then: Then, patience: Patience) -> Box<Self> {
        let is_search = UserView::is_search(&asked);
        Box::new(Unsent { asked, then, patience, is_search, since: Instant::now() })
    }
}

/// A question that was sent.
struct Sent {
    /// None if nobody waits any more.
    then: Option<Then>,
    patience: Patience,
    is_search: bool,
    /// When somebody asked.
    since: Instant,
    sent: Instant,
}

/// How many searches go on, by account.
#[derive(Default)]
struct Searches(Mutex<HashMap<u32, usize>>);

impl Searches {
    /// Counts one more; returns whether the account may have it.
    fn begin(&self, account: u32) -> bool {
        let mut all = self.0.lock();
        let count = all.entry(account).or_default();
        let may_begin = *count < SEARCHES_OF_ACCOUNT_MAX;
        *count += usize::from(may_begin);
        may_begin
    }

    fn end(&self, account: u32) {
        let mut all = self.0.lock();
        if let Some(count) = all.get_mut(&account) {
            *count -= 1;
            if *count == 0 {
                all.remove(&account);
            }
        }
    }
}

/// How questions are answered.
pub(crate) enum How {
    /// By processes that become the users who ask.
    AsUsers {
        index: PathBuf,
        /// The path that the root of the mount stands for.
        root: PathBuf,
    },
    /// By a thread of this process, for the user that it runs as.
    AsOwner {
        opener: Opener,
        /// The same, escaped.
        root: String,
    },
}

pub(crate) struct Sessions {
    how: How,
    log: Log,
    accounts: Accounts,
    searches: Arc<Searches>,
    all: Mutex<HashMap<Credentials, Arc<Session>>>,
    /// When lines were counted from, and how many there were.
    lines: Mutex<(Instant, u32)>,
}

struct Session {
    who: Credentials,
    account: u32,
    searches: Arc<Searches>,
    socket: UnixStream,
    state: Mutex<State>,
}

struct State {
    next: u64,
    waiting: VecDeque<Unsent>,
    pending: HashMap<u64, Sent>,
    used: Instant,
    /// Whether the helper knows who it is to be.
    is_ready: bool,
    /// Whether nothing more can be asked.
    has_ended: bool,
    /// The answer to requests that wait when it ends.
    at_end: Errno,
}

impl Sessions {
    pub(crate) fn start(how: How, accounts: Accounts, log: Log) -> Arc<Self> {
        let lines = Mutex::new((Instant::now(), 0));
        let (searches, all) = (Arc::default(), Mutex::default());
        let sessions = Arc::new(Sessions { how, log, accounts, searches, all, lines });
        let watched = Arc::downgrade(&sessions);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(ROUND);
                let Some(sessions) = watched.upgrade() else { return };
                sessions.end_idle();
            }
        });
        sessions
    }

    /// Asks for a user, and calls `then` with the answer, from another thread.
    pub(crate) fn ask(
        self: &Arc<Self>,
        who: &Credentials,
        (asked, patience): (RequestKind, Patience),
        then: impl FnOnce(Result<ReplyKind, Errno>) + Send + 'static,
    ) {
        let mut unasked = Unsent::new(asked, Box::new(then), patience);
        loop {
            unasked = match self.session(who) {
                Ok(session) => match session.ask(unasked) {
                    Ok(()) => return,
                    // It ends just now.
                    Err(unasked) => unasked,
                },
                Err(errno) => return (unasked.then)(Err(errno)),
            };
        }
    }

    /// Tells a helper something, if there is one.
    pub(crate) fn ask_if_there(&self, who: &Credentials, asked: RequestKind) {
        let session = self.all.lock().get(who).cloned();
        // One that has ended need not be told.
        let unasked = Unsent::new(asked, Box::new(drop), Patience::Long);
        let _ = session.map(|session| session.ask(unasked));
    }

    /// Writes to the log, up to a limit of lines per minute.
    pub(crate) fn log_limited(&self, line: &str) {
        let mut lines = self.lines.lock();
        if lines.0.elapsed() > Duration::from_secs(60) {
            *lines = (Instant::now(), 0);
        }
        lines.1 = lines.1.saturating_add(1);
        let count = lines.1;
        drop(lines);
        if count <= LINES_MAX {
            // Who answers may have been told anything.
            let clean: String = line.chars().filter(|c| !c.is_control()).collect();
            let end = clean.floor_char_boundary(LINE_BYTES_MAX);
            (self.log)(&clean[..end]);
        }
    }

    fn session(self: &Arc<Self>, who: &Credentials) -> Result<Arc<Session>, Errno> {
        let mut all = self.all.lock();
        if let Some(session) = all.get(who)
            && !session.state.lock().has_ended
        {
            return Ok(session.clone());
        }
        all.remove(who);
        let account = self.accounts.of(who.uid);
        let of_user = |other: &Session| other.who.uid == who.uid;
        let of_account = |other: &Session| other.account == account;
        if count(&all, of_user) >= HELPERS_OF_USER_MAX {
            make_room(&mut all, of_user)?;
        }
        if count(&all, of_account) >= HELPERS_OF_ACCOUNT_MAX {
            make_room(&mut all, of_account)?;
        }
        if all.len() >= HELPERS_MAX {
            make_room(&mut all, |_| true).or_else(|_| take_from_largest(&mut all, account))?;
        }
        let (ours, theirs) = UnixStream::pair().map_err(|_| Errno::EAGAIN)?;
        let used = Instant::now();
        let (waiting, pending) = (VecDeque::new(), HashMap::new());
        let (is_ready, has_ended, at_end) = (false, false, Errno::EIO);
        let state = State { next: 0, waiting, pending, used, is_ready, has_ended, at_end };
        ours.set_write_timeout(Some(SEND_TIMEOUT)).map_err(|_| Errno::EAGAIN)?;
        let (searches, state) = (self.searches.clone(), Mutex::new(state));
        let session = Session { who: who.clone(), account, searches, socket: ours, state };
        let session = Arc::new(session);
        let (sessions, run) = (self.clone(), session.clone());
        let thread = std::thread::Builder::new().name("answers".to_owned());
        thread.spawn(move || sessions.run(&run, theirs)).map_err(|_| Errno::EAGAIN)?;
        all.insert(who.clone(), session.clone());
        Ok(session)
    }

    /// Starts a helper and passes its answers on until it ends.
    fn run(&self, session: &Arc<Session>, theirs: UnixStream) {
        let started = self.start_helper(session, theirs);
        let answered = match &started {
            Ok(_) => {
                session.begin();
                session.pass_answers(
                    |line| self.log_limited(line),
                    || self.search_next(session.account),
                )
            }
            Err(_) => Ok(()),
        };
        let uid = session.who.uid;
        if let Err(error) = &started {
            self.log_limited(&format!("cannot start a process for uid {uid}: {error}"));
        }
        if let Err(error) = answered {
            self.log_limited(&format!("the process that answers for uid {uid} is ended: {error}"));
        }
        let was_busy = session.end();
        self.search_next(session.account);
        let mut all = self.all.lock();
        if all.get(&session.who).is_some_and(|one| Arc::ptr_eq(one, session)) {
            all.remove(&session.who);
        }
        drop(all);
        if let Ok(Some(mut child)) = started {
            // It has ended, or is of no use any more.
            let _ = child.kill();
            let status = child.wait();
            if was_busy && let Ok(status) = status {
                self.log_limited(&format!(
                    "the process that answers for uid {uid} ended: {status}"
                ));
            }
        }
    }

    fn start_helper(&self, session: &Session, theirs: UnixStream) -> io::Result<Option<Child>> {
        match &self.how {
            How::AsOwner { opener, root } => {
                serve_in_thread(theirs, UserView::new(opener.clone(), root.clone()))?;
                Ok(None)
            }
            How::AsUsers { index, root } => {
                let mut command = Command::new(program());
                command.arg0("canopy-ns").arg(ARGUMENT).env_clear().current_dir("/");
                command.envs(std::env::var_os("TZ").map(|zone| ("TZ", zone)));
                command.stdin(Stdio::from(OwnedFd::from(theirs)));
                let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
                drop(command);
                let Credentials { uid, gids } = session.who.clone();
                let gids = if gids.is_empty() { vec![uid] } else { gids };
                let setup = Setup { uid, gids, index: index.clone(), root: root.clone() };
                send(&session.socket, &setup)?;
                Ok(Some(child))
            }
        }
    }

    /// Has helpers of an account go on with searches that wait, the one that has waited for longest
    /// first.
    fn search_next(&self, account: u32) {
        let all = self.all.lock();
        let own: Vec<Arc<Session>> =
            all.values().filter(|session| session.account == account).cloned().collect();
        drop(all);
        let since = |session: &Arc<Session>| session.state.lock().waits_to_search_since();
        let mut waiting: Vec<(Instant, Arc<Session>)> =
            own.into_iter().filter_map(|session| Some((since(&session)?, session))).collect();
        waiting.sort_by_key(|(since, _)| *since);
        for (_, session) in waiting {
            session.send_waiting(&mut session.state.lock());
        }
    }

    fn end_idle(&self) {
        let all: Vec<Arc<Session>> = self.all.lock().values().cloned().collect();
        for session in all {
            session.give_up(PATIENCE);
            if !session.retire(IDLE) && session.is_stuck() {
                session.hang_up();
            }
        }
    }
}

type All = HashMap<Credentials, Arc<Session>>;

fn count(all: &All, among: impl Fn(&Session) -> bool) -> usize {
    all.values().filter(|one| among(one)).count()
}

/// Ends the helper that has been idle for longest, among some of them.
fn make_room(all: &mut All, among: impl Fn(&Session) -> bool) -> Result<(), Errno> {
    let mut idle: Vec<(Instant, Arc<Session>)> = Vec::new();
    for session in all.values().filter(|one| among(one)) {
        idle.push((session.state.lock().used, session.clone()));
    }
    idle.sort_by_key(|(used, _)| *used);
    let ended = idle.iter().find(|(_, session)| session.retire(Duration::ZERO));
    let (_, ended) = ended.ok_or(Errno::EAGAIN)?;
    all.remove(&ended.who);
    Ok(())
}

/// Ends a helper of the account that has most of them, though it is busy, for an account that has
/// fewer, even with one more.
fn take_from_largest(all: &mut All, account: u32) -> Result<(), Errno> {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    for session in all.values() {
        *counts.entry(session.account).or_default() += 1;
    }
    let own = counts.get(&account).copied().unwrap_or_default();
    let most = counts.into_iter().max_by_key(|(_, count)| *count).ok_or(Errno::EAGAIN)?;
    if most.1 <= own + 1 {
        return Err(Errno::EAGAIN);
    }
    let used = |session: &&Arc<Session>| session.state.lock().used;
    let theirs = all.values().filter(|session| session.account == most.0);
    let ended = theirs.min_by_key(used).ok_or(Errno::EAGAIN)?.clone();
    ended.make_way();
    all.remove(&ended.who);
    Ok(())
}

impl Session {
    /// Sends what was asked before the helper was there.
    fn begin(&self) {
        let mut state = self.state.lock();
        state.is_ready = true;
        self.send_waiting(&mut state);
    }

    /// Asks, or gives back what was asked if the helper has ended.
    fn ask(&self, unasked: Box<Unsent>) -> Result<(), Box<Unsent>> {
        let mut state = self.state.lock();
        if state.has_ended {
            return Err(unasked);
        }
        state.used = Instant::now();
        let is_late = state.pending.values().any(|sent| sent.then.is_none());
        let refusal = match unasked.patience {
            Patience::Short if is_late => Some(Errno::ETIMEDOUT),
            _ => (state.waiting.len() >= WAITING_MAX).then_some(Errno::EAGAIN),
        };
        if let Some(errno) = refusal {
            drop(state);
            (unasked.then)(Err(errno));
            return Ok(());
        }
        state.waiting.push_back(*unasked);
        self.send_waiting(&mut state);
        Ok(())
    }

    /// Sends what waits, as far as it may.
    fn send_waiting(&self, state: &mut State) {
        while state.is_ready
            && state.pending.len() < WINDOW
            && let Some(unsent) = state.next_to_send(|| self.searches.begin(self.account))
        {
            let Unsent { asked, then, patience, is_search, since } = unsent;
            state.next += 1;
            let (number, then, sent) = (state.next, Some(then), Instant::now());
            state.pending.insert(number, Sent { then, patience, is_search, since, sent });
            if send(&self.socket, &Request { number, asked }).is_err() {
                // The thread that passes answers on sees it, and tells all who wait.
                self.hang_up();
                return;
            }
        }
    }

    /// Tells those who cannot wait longer than this that there is no answer, and until answers come
    /// again, all others like them.
    fn give_up(&self, patience: Duration) {
        let is_late =
            |of: Patience, since: &Instant| of == Patience::Short && since.elapsed() >= patience;
        let mut late: Vec<Then> = Vec::new();
        let mut state = self.state.lock();
        for sent in state.pending.values_mut().filter(|sent| is_late(sent.patience, &sent.since)) {
            late.extend(sent.then.take());
        }
        let are_late = state.waiting.iter().any(|one| is_late(one.patience, &one.since));
        if are_late || !late.is_empty() {
            for unsent in std::mem::take(&mut state.waiting) {
                match unsent.patience {
                    Patience::Short => late.push(unsent.then),
                    Patience::Long => state.waiting.push_back(unsent),
                }
            }
        }
        drop(state);
        late.into_iter().for_each(|then| then(Err(Errno::ETIMEDOUT)));
    }

    /// Passes answers on until the helper ends, or says what it must not. Calls `searched` after each
    /// search.
    fn pass_answers(&self, tell: impl Fn(&str), searched: impl Fn()) -> io::Result<()> {
        let mut answers = BufReader::new(&self.socket);
        loop {
            let Answer { number, reply: told } = match receive(&mut answers) {
                Ok(answer) => answer,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            };
            let mut state = self.state.lock();
            let pending = state.pending.remove(&number);
            let sent = pending.ok_or_else(|| io::Error::other("an answer to nothing"))?;
            state.used = Instant::now();
            if sent.is_search {
                self.searches.end(self.account);
                drop(state);
                // Others of the account may have waited for longer.
                searched();
                state = self.state.lock();
            }
            self.send_waiting(&mut state);
            drop(state);
            let told = told.map_err(|failure| {
                failure.log.iter().for_each(|line| tell(line));
                match failure.errno {
                    1..4096 => Errno::from_raw(failure.errno),
                    _ => Errno::EIO,
                }
            });
            if let Some(then) = sent.then {
                then(told);
            }
        }
    }

    fn hang_up(&self) {
        // What has ended already is as good.
        let _ = self.socket.shutdown(Shutdown::Both);
    }

    /// Tells all who wait that there is no answer. Returns whether somebody did.
    fn end(&self) -> bool {
        self.hang_up();
        let mut state = self.state.lock();
        state.has_ended = true;
        let at_end = state.at_end;
        let pending: Vec<Sent> = std::mem::take(&mut state.pending).into_values().collect();
        let searches = pending.iter().filter(|sent| sent.is_search).count();
        (0..searches).for_each(|_| self.searches.end(self.account));
        let pending = pending.into_iter().filter_map(|sent| sent.then);
        let waiting = std::mem::take(&mut state.waiting).into_iter().map(|unsent| unsent.then);
        drop(state);
        let all: Vec<Then> = pending.chain(waiting).collect();
        let was_busy = !all.is_empty();
        all.into_iter().for_each(|then| then(Err(at_end)));
        was_busy
    }

    /// Ends the helper if nobody has waited for it for so long. Returns whether that was so.
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

    /// Ends the helper for that of another account.
    fn make_way(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.at_end = Errno::EAGAIN;
        self.hang_up();
    }

    fn is_stuck(&self) -> bool {
        let state = self.state.lock();
        state.pending.values().any(|sent| sent.sent.elapsed() > STUCK)
    }
}

impl State {
    /// Takes what is to be sent next: the first that waits, but only a few that take long at a time,
    /// and one search, if `may_search`.
    fn next_to_send(&mut self, may_search: impl FnOnce() -> bool) -> Option<Unsent> {
        let long = self.pending.values().filter(|sent| sent.patience == Patience::Long).count();
        let searches = self.pending.values().any(|sent| sent.is_search);
        let may_go = |one: &Unsent| one.patience == Patience::Short || long < LONG_MAX;
        let find = |searches: bool| {
            self.waiting.iter().position(|one| may_go(one) && !(searches && one.is_search))
        };
        let first = find(searches)?;
        let at = match self.waiting[first].is_search && !may_search() {
            true => find(true)?,
            false => first,
        };
        self.waiting.remove(at)
    }

    /// Returns since when a search waits for its turn.
    fn waits_to_search_since(&self) -> Option<Instant> {
        self.waiting.iter().find(|one| one.is_search).map(|one| one.since)
    }
}
