//! The connection of a client to one address, and the calls that wait for it.

use crate::wire::address::Address;
use crate::wire::duplex::{Duplex, End, SharedDuplex};
use crate::wire::error::{Refusal, WireError};
use crate::wire::frame::{
    Admission, BODY_MAX, FrameError, FrameWriter, ReplyEntry, SERVER_GREETING, Sizes, Status,
    ToClient, client_greeting, decode_greeting, decode_to_client,
};
use crate::wire::pending::{Pending, Slot, Stage, Terms};
use crate::wire::security::{ClientSecurity, Secured, Stream, Unfit};
use crate::wire::served::CHECK;
use crate::wire::under_way::{Live, UnderWay};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Handle;
use tokio::time::timeout;

/// Time in which a connection must be made.
const CONNECT: Duration = Duration::from_secs(10);
/// Time after which a connection is given up whose server reads nothing.
const STALLED: Duration = Duration::from_secs(10);
/// First and longest pause before an address is tried again.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Calls, and bytes, that wait for a connection or the window of one. More are refused.
const WAITING_CALLS: usize = 1 << 16;
const WAITING_BYTES: usize = 256 << 20;

/// All about one address.
pub(crate) struct Link {
    pub(crate) address: Address,
    pub(crate) handle: Handle,
    security: ClientSecurity,
    state: Mutex<State>,
}

/// Lock order: this, then that of a slot.
#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Slot>>,
    waiting_bytes: usize,
    is_connecting: bool,
    is_closed: bool,
    live: Option<Live>,
    /// Number of the last connection.
    number: u64,
    /// Attempts since the last answer.
    failures: u32,
    not_before: Option<Instant>,
}

/// A state that is locked, and what is to be done once it no longer is.
pub(crate) struct Locked<'a> {
    state: Option<MutexGuard<'a, State>>,
    /// The task of a connection that has calls to write.
    task: Option<Waker>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let Some(task) = self.task.take() else { return };
        let live = self.state.take().and_then(|state| state.live.as_ref()?.duplex.upgrade());
        match live {
            Some(duplex) => duplex.write_now(task),
            None => task.wake(),
        }
    }
}

impl Link {
    pub(crate) fn new(address: Address, security: ClientSecurity, handle: Handle) -> Arc<Self> {
        Arc::new(Link { address, handle, security, state: Mutex::default() })
    }

    pub(crate) fn lock(&self) -> Locked<'_> {
        Locked { state: Some(self.state.lock()), task: None }
    }

    /// Returns whether there is a connection.
    pub(crate) fn is_live(&self) -> bool {
        self.state.lock().live.is_some()
    }

    /// Begins a call.
    pub(crate) fn begin(
        self: &Arc<Self>,
        locked: &mut Locked<'_>,
        body: &[u8],
        terms: Terms,
    ) -> Pending {
        let now = Instant::now();
        let deadline = now + terms.time;
        let pending = |stage| {
            let slot = Slot::new(deadline, terms.room, stage);
            Pending { slot, link: self.clone(), sleep: None }
        };
        let Some(state) = locked.state.as_deref_mut() else { return pending(Stage::Abandoned) };
        if let Some(live) = &mut state.live
            && state.waiting.is_empty()
            && live.has_room(body.len(), terms.room)
            && live.refusal(body.len(), terms.room).is_none()
        {
            let pending = pending(Stage::Framed);
            live.push(pending.slot.clone(), body, now);
            locked.task = live.waker.take().or(locked.task.take());
            return pending;
        }
        if let Some(error) = self.hindrance(state, body.len(), terms.room) {
            return pending(Stage::Done(Err(error)));
        }
        let pending = pending(Stage::Waiting(body.to_vec()));
        state.waiting_bytes += body.len();
        state.waiting.push_back(pending.slot.clone());
        if state.live.is_none() && !state.is_connecting {
            state.is_connecting = true;
            self.spawn_run();
        }
        pending
    }

    /// Returns the reason why a call cannot wait.
    fn hindrance(&self, state: &mut State, body: usize, room: u32) -> Option<WireError> {
        let refusal = match &state.live {
            Some(live) => live.refusal(body, room),
            None => {
                let (bytes, limit) = (body.max(room as usize), BODY_MAX);
                (bytes > limit).then_some(Refusal::TooLarge { bytes, limit })
            }
        };
        if let Some(refusal) = refusal {
            return Some(WireError::Refused { address: self.address.clone(), refusal });
        }
        if state.is_closed {
            return Some(self.not_sent("the connection was closed by its owner"));
        }
        let is_full = |state: &State| {
            state.waiting.len() >= WAITING_CALLS || state.waiting_bytes + body > WAITING_BYTES
        };
        if is_full(state) {
            state.waiting.retain(|slot| slot.waiting_bytes().is_some());
            state.waiting_bytes =
                state.waiting.iter().filter_map(|slot| slot.waiting_bytes()).sum();
        }
        is_full(state).then(|| self.not_sent("too many calls wait for the server"))
    }

    fn not_sent(&self, reason: &str) -> WireError {
        WireError::NotSent { address: self.address.clone(), reason: reason.into() }
    }

    /// Ends all calls, and takes no more.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        let live = state.live.take();
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        let reason = "the connection was closed by its owner";
        waiting.iter().for_each(|slot| slot.complete(Err(self.not_sent(reason))));
        if let Some(mut live) = live {
            self.end_all(&mut live, reason);
            live.waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends all calls of a connection that has ended.
    fn end_all(&self, live: &mut Live, reason: &str) {
        let taken = live.taken;
        for UnderWay { slot, frame, .. } in live.remove_all(|_| true) {
            slot.complete(Err(match frame > taken {
                true => self.not_sent(reason),
                false => WireError::Lost { address: self.address.clone(), reason: reason.into() },
            }));
        }
    }

    /// Puts calls that wait into frames, as far as the window allows. Returns those that cannot be
    /// sent, with the reasons.
    fn send_waiting(&self, state: &mut State) -> Vec<(Arc<Slot>, WireError)> {
        let mut ended = Vec::new();
        let State { waiting, waiting_bytes, live: Some(live), .. } = state else { return ended };
        let now = Instant::now();
        while let Some(slot) = waiting.front() {
            let Some(bytes) = slot.waiting_bytes() else {
                waiting.pop_front();
                continue;
            };
            let refusal = live.refusal(bytes, slot.room);
            if refusal.is_none() && !live.has_room(bytes, slot.room) {
                break;
            }
            let Some(slot) = waiting.pop_front() else { break };
            *waiting_bytes = waiting_bytes.saturating_sub(bytes);
            if let Some(refusal) = refusal {
                let address = self.address.clone();
                ended.push((slot, WireError::Refused { address, refusal }));
            } else if slot.deadline > now
                && let Some(body) = slot.take_body()
            {
                live.push(slot, &body, now);
            }
        }
        if waiting.is_empty() {
            *waiting_bytes = 0;
        }
        ended
    }

    fn spawn_run(self: &Arc<Self>) {
        self.handle.spawn(self.clone().run());
    }

    /// Connects, and uses the connection until it ends.
    async fn run(self: Arc<Self>) {
        loop {
            let not_before = self.state.lock().not_before;
            if let Some(not_before) = not_before {
                tokio::time::sleep_until(not_before.into()).await;
            }
            let connected = match timeout(CONNECT, self.connect()).await {
                Ok(connected) => connected,
                Err(_) => Err(self.not_sent("connecting takes too long")),
            };
            self.note_failure();
            match connected {
                Ok((secured, sizes)) => self.clone().use_connection(secured, sizes).await,
                Err(error) => return self.end_waiting(&error),
            }
            let mut state = self.state.lock();
            if state.live.is_some() || state.is_connecting || state.waiting.is_empty() {
                return;
            }
            state.is_connecting = true;
        }
    }

    /// Ends the calls that wait for a connection, as none could be made.
    fn end_waiting(&self, error: &WireError) {
        let mut state = self.state.lock();
        state.waiting_bytes = 0;
        state.is_connecting = false;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.iter().for_each(|slot| slot.complete(Err(error.clone())));
    }

    /// Sets when the address may be tried again, until an answer arrives.
    fn note_failure(&self) {
        let mut state = self.state.lock();
        let pause = PAUSE_MAX.min(PAUSE * (1 << state.failures.min(10)));
        // Between the half and all of it, so that not all clients return at once.
        let part = RandomState::new().build_hasher().finish() % 512 + 512;
        state.not_before = Some(Instant::now() + pause * part as u32 / 1024);
        state.failures = state.failures.saturating_add(1);
    }

    /// Connects, and reads the server's greeting.
    async fn connect(&self) -> Result<(Secured, Sizes), WireError> {
        let refused = |refusal| WireError::Refused { address: self.address.clone(), refusal };
        let unfit = |unfit| match unfit {
            Unfit::Denied(reason, _) => refused(Refusal::Denied(reason)),
            Unfit::Io(error) => self.not_sent(&error.to_string()),
        };
        let mut secured = self.security.connect(&self.address).await.map_err(unfit)?;
        let stream = &mut secured.stream;
        let io = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                self.not_sent("the server closed the connection without a greeting")
            }
            _ => unfit(error.into()),
        };
        stream.write_all(&client_greeting()).await.map_err(io)?;
        stream.flush().await.map_err(io)?;
        let mut bytes = [0; SERVER_GREETING];
        // First what any greeting has, as that of another protocol may be shorter.
        stream.read_exact(&mut bytes[..1]).await.map_err(io)?;
        if bytes[0] != client_greeting()[0] {
            return Err(refused(Refusal::Version(FrameError::Magic.to_string())));
        }
        stream.read_exact(&mut bytes[1..]).await.map_err(io)?;
        let version = |error: FrameError| refused(Refusal::Version(error.to_string()));
        let greeting = decode_greeting(&bytes).map_err(version)?;
        let mut text = vec![0; greeting.text];
        stream.read_exact(&mut text).await.map_err(io)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        match greeting.admission {
            Admission::Welcome => {}
            Admission::Version => return Err(refused(Refusal::Version(text))),
            Admission::Connections => return Err(refused(Refusal::Connections(text))),
            Admission::Denied => return Err(refused(Refusal::Denied(text))),
        }
        self.security.check_accepted(&secured.stream).map_err(unfit)?;
        Ok((secured, greeting.sizes))
    }

    /// Lets calls go to a new connection, and returns it unless the link is closed.
    fn go_live(
        self: &Arc<Self>,
        stream: Stream,
        sizes: Sizes,
    ) -> Option<Arc<SharedDuplex<Stream, ClientEnd>>> {
        let mut state = self.state.lock();
        state.is_connecting = false;
        if state.is_closed {
            return None;
        }
        state.number += 1;
        let number = state.number;
        let end = ClientEnd { link: self.clone(), number, sizes, draining: None };
        let duplex = SharedDuplex::new(Duplex::new(stream, end, STALLED));
        state.live = Some(Live::new(number, sizes, Arc::downgrade(&duplex)));
        let ended = self.send_waiting(&mut state);
        drop(state);
        ended.into_iter().for_each(|(slot, error)| slot.complete(Err(error)));
        Some(duplex)
    }

    /// Sends and receives until the connection ends.
    async fn use_connection(self: Arc<Self>, secured: Secured, sizes: Sizes) {
        let Secured { stream, peer, certificate } = secured;
        let Some(duplex) = self.go_live(stream, sizes) else { return };
        let mut checks = tokio::time::interval_at((Instant::now() + CHECK).into(), CHECK);
        let reason = loop {
            tokio::select! {
                ended = duplex.run() => break ended.to_string(),
                _ = checks.tick(), if certificate.is_some() => {
                    if let Err(reason) = Secured::check(&peer, &certificate) {
                        break reason;
                    }
                }
            }
        };
        if let Some(mut duplex) = duplex.take() {
            duplex.end.close(&reason);
        }
    }
}

/// The client's end of a connection.
pub(crate) struct ClientEnd {
    link: Arc<Link>,
    number: u64,
    sizes: Sizes,
    /// The connection's calls, once the server takes no more.
    draining: Option<Live>,
}

impl ClientEnd {
    /// Uses the calls of this connection, if it has not been closed.
    fn with_live<T>(&mut self, use_it: impl FnOnce(&mut Live) -> T) -> Option<T> {
        if let Some(live) = &mut self.draining {
            return Some(use_it(live));
        }
        let mut state = self.link.state.lock();
        state.live.as_mut().filter(|live| live.number == self.number).map(use_it)
    }

    /// Ends the connection's calls.
    fn close(&mut self, reason: &str) {
        let mut state = self.link.state.lock();
        let ours = state.live.take_if(|live| live.number == self.number);
        drop(state);
        for mut live in ours.into_iter().chain(self.draining.take()) {
            self.link.end_all(&mut live, reason);
        }
    }

    fn take_replies(&mut self, frame: Bytes, replies: Vec<ReplyEntry>) -> Result<(), FrameError> {
        let mut slots = Vec::with_capacity(replies.len());
        let is_complete = self.with_live(|live| {
            slots.extend(replies.iter().map_while(|reply| live.remove(reply.id)));
            slots.len() == replies.len()
        });
        let mut ended = Vec::new();
        if self.draining.is_none() {
            let link = self.link.clone();
            let mut state = link.state.lock();
            (state.failures, state.not_before) = (0, None);
            if !state.waiting.is_empty() {
                ended = link.send_waiting(&mut state);
            }
        }
        for (slot, reply) in slots.iter().zip(replies) {
            slot.complete(self.outcome(&frame, reply));
        }
        ended.into_iter().for_each(|(slot, error)| slot.complete(Err(error)));
        match is_complete {
            Some(false) => Err(FrameError::Id),
            _ => Ok(()),
        }
    }

    fn outcome(&self, frame: &Bytes, reply: ReplyEntry) -> Result<Bytes, WireError> {
        let refusal = match reply.status {
            Status::Answered => return Ok(frame.slice(reply.body)),
            Status::Refused => {
                Refusal::Service(String::from_utf8_lossy(&frame[reply.body]).into_owned())
            }
            Status::Failed => Refusal::Failed,
            Status::TooLarge => Refusal::ReplyTooLarge,
            Status::Expired => Refusal::Expired,
        };
        Err(WireError::Refused { address: self.link.address.clone(), refusal })
    }

    /// Ends calls that the server has not taken. Further ones need another connection.
    fn take_goodbye(&mut self, taken: u64) {
        if self.draining.is_none() {
            let mut state = self.link.state.lock();
            self.draining = state.live.take_if(|live| live.number == self.number);
            if !state.waiting.is_empty() && !state.is_connecting && state.live.is_none() {
                state.is_connecting = true;
                self.link.spawn_run();
            }
        }
        let Some(live) = &mut self.draining else { return };
        // Unwritten bytes must stay unwritten: they are not under way any more.
        live.writer = FrameWriter::default();
        for call in live.remove_all(|frame| frame > taken) {
            call.slot.complete(Err(self.link.not_sent("the server stops")));
        }
    }
}

impl End for ClientEnd {
    fn frame_max(&self) -> usize {
        self.sizes.frame_max()
    }

    fn next(&mut self, buffer: &mut Vec<u8>, cx: Option<&mut Context<'_>>) {
        self.with_live(|live| {
            live.waker = match cx {
                Some(cx) if live.writer.is_empty() => Some(cx.waker().clone()),
                _ => None,
            };
            live.writer.take(buffer);
            live.taken = live.writer.begun();
        });
    }

    fn written(&mut self) {}

    fn poll_memory(&mut self, _cx: &mut Context<'_>, _length: usize) -> Poll<()> {
        Poll::Ready(())
    }

    fn poll_take(
        &mut self,
        _cx: &mut Context<'_>,
        frame: &mut Vec<u8>,
    ) -> Poll<Result<(), FrameError>> {
        Poll::Ready(match decode_to_client(frame)? {
            ToClient::Replies(replies) => {
                self.take_replies(Bytes::from(std::mem::take(frame)), replies)
            }
            ToClient::Goodbye(taken) => {
                self.take_goodbye(taken);
                Ok(())
            }
        })
    }

    fn is_done(&self) -> bool {
        match &self.draining {
            Some(live) => live.calls == 0,
            None => {
                let state = self.link.state.lock();
                state.live.as_ref().is_none_or(|live| live.number != self.number)
            }
        }
    }
}

impl Drop for ClientEnd {
    fn drop(&mut self) {
        self.close("the connection was closed by its owner");
    }
}
