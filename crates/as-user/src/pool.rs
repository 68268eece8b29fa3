//! Processes that several requests share: one for each set of credentials, started when somebody
//! asks, and ended when nobody has for a while.
//!
//! A request waits only for other requests of its own account: a thread for each process passes
//! requests on and answers back. An account has a share of the processes, and few heavy requests at
//! a time, however many uids are subordinate to it.

use crate::accounts::Accounts;
use crate::channel::Channel;
use crate::frame::{Frame, decode};
use crate::process::{identity, spawn};
use crate::room::{Occupant, Room, RoomLimits};
use crate::service::Service;
use crate::session::{Class, Session, Unsent};
use crate::turns::Turns;
use canopy_events::LimitedEvents;
use canopy_model::Credentials;
use nix::errno::Errno;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::marker::PhantomData;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often to look for processes that are idle or stuck, and for answers that are late.
const ROUND: Duration = Duration::from_secs(1);

/// Limits of the processes of a pool, and of their requests.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Processes at once.
    pub room: RoomLimits,
    /// Heavy requests of one account that are answered at a time, one in a process.
    pub heavy_of_account: usize,
    /// A process ends when nobody has asked it for so long.
    pub idle: Duration,
    /// A process that does not answer a request for so long is ended.
    pub stuck: Duration,
    /// Prompt requests fail if they have no answer after this time.
    pub patience: Duration,
}

impl PoolLimits {
    /// The limits of a machine with many users.
    pub const STANDARD: PoolLimits = PoolLimits {
        room: RoomLimits { all: 128, of_account: 16, of_user: 8 },
        heavy_of_account: 2,
        idle: Duration::from_secs(120),
        stuck: Duration::from_secs(300),
        patience: Duration::from_secs(10),
    };
}

/// How requests are answered.
enum How {
    /// By processes that become the users who ask. The frame is the first one for the service.
    AsUsers(&'static Service, Vec<u8>),
    /// By a thread of this process, for the user that it runs as.
    InThread(Arc<dyn Fn(Channel) + Send + Sync>),
}

/// Answers requests `Q` of many users by `R`, each with the rights of the user who asks.
pub struct Pool<Q, R> {
    shared: Arc<Owner>,
    types: PhantomData<fn(Q) -> R>,
}

/// Ends all processes when the last clone of a pool is dropped.
struct Owner(Arc<Shared>);

impl Drop for Owner {
    fn drop(&mut self) {
        self.0.room.lock().iter().for_each(|session| session.hang_up());
    }
}

impl<Q, R> Clone for Pool<Q, R> {
    fn clone(&self) -> Self {
        Pool { shared: self.shared.clone(), types: PhantomData }
    }
}

impl<Q: Serialize, R: DeserializeOwned + 'static> Pool<Q, R> {
    /// Returns a pool whose requests are answered by processes that become the users. Takes root.
    /// Each begins with the frame `setup`.
    ///
    /// # Errors
    /// Fails if the frame is too long.
    pub fn of_processes(
        service: &'static Service,
        setup: &impl Serialize,
        accounts: Accounts,
        limits: PoolLimits,
    ) -> io::Result<Self> {
        let mut frame = Vec::new();
        Frame::encode(setup)?.send(&mut frame, 0, false)?;
        Ok(Self::new(How::AsUsers(service, frame), accounts, limits))
    }

    /// Returns a pool whose requests are answered by `serve` in a thread of this process, for the
    /// one user that it runs as.
    pub fn in_thread(serve: impl Fn(Channel) + Send + Sync + 'static, limits: PoolLimits) -> Self {
        Self::new(How::InThread(Arc::new(serve)), Accounts::of_ranges(Vec::new()), limits)
    }

    fn new(how: How, accounts: Accounts, limits: PoolLimits) -> Self {
        let turns = Arc::new(Turns::new(limits.heavy_of_account));
        let room = Mutex::new(Room::new(limits.room));
        let events = LimitedEvents::default();
        let shared = Arc::new(Shared { how, limits, events, accounts, turns, room });
        shared.look_after();
        Pool { shared: Arc::new(Owner(shared)), types: PhantomData }
    }

    /// Asks for a user, and calls `then` with the answer, mostly from another thread. Never waits
    /// for it. The answer is an error if the process
    ///
    /// - has been ended, or has ended (EIO),
    /// - is not answering in time (ETIMEDOUT, prompt requests),
    /// - cannot be had, as there are too many (EAGAIN),
    /// - cannot take a request that is longer than a frame (EMSGSIZE).
    pub fn ask(
        &self,
        who: &Credentials,
        class: Class,
        asked: &Q,
        then: impl FnOnce(Result<R, Errno>) + Send + 'static,
    ) {
        match Frame::encode(asked) {
            Ok(frame) => self.shared.0.ask(who, unsent(frame, class, then)),
            Err(_) => then(Err(Errno::EMSGSIZE)),
        }
    }

    /// Sends a request that needs no answer to the process of a user, if there is one.
    pub fn notify(&self, who: &Credentials, asked: &Q) {
        let session = self.shared.0.room.lock().get(who).cloned();
        if let Some(session) = session
            && let Ok(frame) = Frame::encode(asked)
        {
            // One that has ended need not know.
            let _ = session.ask(unsent(frame, Class::Long, |_: Result<R, Errno>| {}));
        }
    }

    /// Warns the administrator, up to a limit of events per minute.
    pub fn warn(&self, text: &str) {
        self.shared.0.events.warn(text);
    }
}

fn unsent<R: DeserializeOwned>(
    frame: Frame,
    class: Class,
    then: impl FnOnce(Result<R, Errno>) + Send + 'static,
) -> Box<Unsent> {
    let then = move |told: Result<&[u8], Errno>| {
        let told = told.map(|body| decode(body).ok());
        let is_sound = !matches!(told, Ok(None));
        then(told.and_then(|answer| answer.ok_or(Errno::EIO)));
        is_sound
    };
    Box::new(Unsent { frame, class, then: Box::new(then), since: Instant::now() })
}

struct Shared {
    how: How,
    limits: PoolLimits,
    events: LimitedEvents,
    accounts: Accounts,
    turns: Arc<Turns>,
    room: Mutex<Room<Credentials, Session>>,
}

impl Shared {
    /// Starts the thread that ends what is idle or stuck, until the pool is gone.
    fn look_after(self: &Arc<Self>) {
        let watched = Arc::downgrade(self);
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(ROUND);
                let Some(shared) = watched.upgrade() else { return };
                shared.end_idle();
            }
        });
    }

    fn end_idle(&self) {
        let all: Vec<Arc<Session>> = self.room.lock().iter().cloned().collect();
        for session in all {
            session.give_up(self.limits.patience);
            if !session.retire(self.limits.idle) && session.is_stuck(self.limits.stuck) {
                session.hang_up();
            }
        }
    }

    fn ask(self: &Arc<Self>, who: &Credentials, unsent: Box<Unsent>) {
        let mut unsent = unsent;
        loop {
            unsent = match self.session(who) {
                Ok(session) => match session.ask(unsent) {
                    Ok(()) => return,
                    // It ends just now.
                    Err(unsent) => unsent,
                },
                Err(errno) => {
                    (unsent.then)(Err(errno));
                    return;
                }
            };
        }
    }

    fn session(self: &Arc<Self>, who: &Credentials) -> Result<Arc<Session>, Errno> {
        let mut room = self.room.lock();
        if let Some(session) = room.get(who)
            && !session.has_ended()
        {
            return Ok(session.clone());
        }
        room.remove(who);
        let account = self.accounts.of(who.uid);
        if !room.make_room(who.uid, account) {
            return Err(Errno::EAGAIN);
        }
        let session = Session::new(who.clone(), account, self.turns.clone());
        let (session, theirs) = session.map_err(|_| Errno::EAGAIN)?;
        let session = Arc::new(session);
        let (shared, run) = (self.clone(), session.clone());
        let thread = std::thread::Builder::new().name("answers".to_owned());
        thread.spawn(move || shared.run(&run, theirs)).map_err(|_| Errno::EAGAIN)?;
        room.insert(who.clone(), session.clone());
        Ok(session)
    }

    /// Starts a process and passes its answers on until it ends.
    fn run(&self, session: &Arc<Session>, theirs: UnixStream) {
        let started = self.start(session, theirs);
        let answered = match &started {
            Ok(_) => {
                session.begin();
                session.pass_answers(|| self.go_on(session.account))
            }
            Err(_) => Ok(()),
        };
        let uid = session.who.uid;
        if let Err(error) = &started {
            self.events.warn(&format!("cannot start a process for uid {uid}: {error}"));
        }
        if let Err(error) = answered {
            self.events.warn(&format!("the process that answers for uid {uid} is ended: {error}"));
        }
        let was_busy = session.end();
        self.go_on(session.account);
        self.room.lock().leave(session);
        if let Ok(Some(mut child)) = started {
            // It has ended, or is of no use any more.
            let _ = child.kill();
            let status = child.wait();
            if was_busy && let Ok(status) = status {
                self.events
                    .warn(&format!("the process that answers for uid {uid} ended: {status}"));
            }
        }
    }

    fn start(&self, session: &Session, theirs: UnixStream) -> io::Result<Option<Child>> {
        match &self.how {
            How::InThread(serve) => {
                let serve = serve.clone();
                let work = move || serve(Channel::new(theirs));
                std::thread::Builder::new().name("service".to_owned()).spawn(work)?;
                Ok(None)
            }
            How::AsUsers(service, setup) => {
                let mut child = spawn(service, theirs, Stdio::null(), Stdio::null())?;
                let Credentials { uid, gids } = &session.who;
                let alone = [*uid];
                let gids = if gids.is_empty() { &alone } else { &gids[..] };
                let sent = identity(*uid, gids)
                    .and_then(|mut frame| frame.send(session.socket(), 0, false))
                    .and_then(|()| io::Write::write_all(&mut session.socket(), setup));
                if let Err(error) = sent {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(error);
                }
                Ok(Some(child))
            }
        }
    }

    /// Has processes of an account go on with heavy requests that wait, the one that has waited for
    /// longest first.
    fn go_on(&self, account: u32) {
        let room = self.room.lock();
        let own: Vec<Arc<Session>> =
            room.iter().filter(|session| session.account == account).cloned().collect();
        drop(room);
        let since = |session: &Arc<Session>| session.waits_for_turn_since();
        let mut waiting: Vec<(Instant, Arc<Session>)> =
            own.into_iter().filter_map(|session| Some((since(&session)?, session))).collect();
        waiting.sort_by_key(|(since, _)| *since);
        waiting.iter().for_each(|(_, session)| session.go_on());
    }
}
