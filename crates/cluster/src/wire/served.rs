//! One connection of a server, from its first byte to its last.

use crate::wire::calls::{Batch, Call, Connection, EndedCalls, Frame, Service};
use crate::wire::duplex::{Duplex, End, Ended, SharedDuplex};
use crate::wire::frame::{
    Admission, CLIENT_GREETING, CallEntry, FrameError, Sizes, check_client_greeting, decode_calls,
    server_greeting,
};
use crate::wire::limits::Limits;
use crate::wire::registry::{ConnectionGuard, Registry, UnauthenticatedGuard};
use crate::wire::security::{Accepted, Origin, Secured, ServerSecurity, Unfit};
use canopy_events::LimitedEvents;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, oneshot, watch};
use tokio::time::timeout;

/// Time between two checks of a certificate whose connection stays open.
pub(crate) const CHECK: Duration = Duration::from_secs(1);
/// Time in which the other end can read why its connection is closed.
const FAREWELL: Duration = Duration::from_secs(1);
const FAREWELL_BYTES: u64 = 256 << 10;

/// Everything that the connections of a listener share.
pub(crate) struct Shared {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) security: ServerSecurity,
    pub(crate) limits: Limits,
    pub(crate) registry: Arc<Registry>,
    /// Connections that were refused, for the log.
    pub(crate) refusals: LimitedEvents,
    /// Becomes true once the listener stops.
    pub(crate) is_stopping: watch::Receiver<bool>,
}

impl Shared {
    fn note_refusal(&self, origin: &Origin, reason: &str) {
        self.refusals.warn(&format!("a connection of {origin} was refused: {reason}"));
    }
}

/// A connection before it has authenticated itself.
pub(crate) struct Newcomer {
    pub(crate) stream: Accepted,
    pub(crate) origin: Origin,
    pub(crate) guard: UnauthenticatedGuard,
    /// Ends once another connection needs the place.
    pub(crate) evicted: oneshot::Receiver<()>,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(shared: Arc<Shared>, newcomer: Newcomer) {
    let Newcomer { stream, origin, guard, mut evicted } = newcomer;
    let greeted = tokio::select! {
        greeted = timeout(shared.limits.handshake, greet(&shared, stream, &origin)) => greeted,
        _ = &mut evicted => return,
    };
    drop(guard);
    let Ok(Some((secured, admitted, sizes))) = greeted else { return };
    let Secured { stream, peer, certificate } = secured;
    let connection = Arc::new(Connection {
        peer,
        share: admitted.share.clone(),
        outbox: Default::default(),
        duplex: OnceLock::new(),
    });
    let end = ServerEnd::new(connection.clone(), &shared, sizes);
    let duplex = SharedDuplex::new(Duplex::new(stream, end, shared.limits.stalled));
    connection.duplex.get_or_init(|| Arc::downgrade(&duplex));
    let mut is_stopping = shared.is_stopping.clone();
    let mut checks = tokio::time::interval_at((Instant::now() + CHECK).into(), CHECK);
    let violation = loop {
        let stops = async {
            // An error is that the listener has gone, with this task.
            let _ = is_stopping.wait_for(|is_stopping| *is_stopping).await;
        };
        tokio::select! {
            ended = duplex.run() => match ended {
                Ended::Violation(error) => break Some(error.to_string()),
                Ended::Done => break None,
                _ => return,
            },
            _ = stops, if duplex.with(|duplex| duplex.end.is_stopping) == Some(false) => {
                duplex.with(|duplex| duplex.end.stop());
            }
            _ = checks.tick(), if certificate.is_some() => {
                if let Err(reason) = Secured::check(&connection.peer, &certificate) {
                    break Some(reason);
                }
            }
        }
    };
    if let Some(violation) = violation {
        connection.outbox.lock().writer.violation(&violation);
    }
    let Some(mut duplex) = duplex.take() else { return };
    let _ = timeout(FAREWELL, duplex.finish()).await;
    discard(&mut duplex.stream).await;
    drop(admitted);
}

/// Reads what the other end has sent already. Otherwise the system would discard what was sent to it.
async fn discard(stream: &mut (impl AsyncRead + Unpin)) {
    let mut rest = stream.take(FAREWELL_BYTES);
    let _ = timeout(FAREWELL, tokio::io::copy(&mut rest, &mut tokio::io::sink())).await;
}

/// Secures a connection, and admits it or writes why not.
async fn greet(
    shared: &Shared,
    stream: Accepted,
    origin: &Origin,
) -> Option<(Secured, ConnectionGuard, Sizes)> {
    let mut secured = match shared.security.secure(stream, origin).await {
        Ok(secured) => secured,
        Err(Unfit::Denied(reason, Some(mut stream))) => {
            shared.note_refusal(origin, &reason);
            refuse(&mut stream, Admission::Denied, &reason).await;
            return None;
        }
        Err(Unfit::Denied(reason, None)) => {
            shared.note_refusal(origin, &reason);
            return None;
        }
        Err(Unfit::Io(_)) => return None,
    };
    let mut greeting = [0; CLIENT_GREETING];
    secured.stream.read_exact(&mut greeting).await.ok()?;
    let admitted = check_client_greeting(&greeting)
        .map_err(|error| (Admission::Version, error.to_string()))
        .and_then(|()| {
            let denied = |reason| (Admission::Denied, reason);
            let grant = shared.service.grant(&secured.peer).map_err(denied)?;
            let full = |reason| (Admission::Connections, reason);
            let admitted = shared.registry.admit(&secured.peer, &grant).map_err(full)?;
            Ok(admitted)
        });
    match admitted {
        Ok(admitted) => {
            let sizes = admitted.share.sizes;
            let greeting = server_greeting(Admission::Welcome, sizes, "");
            secured.stream.write_all(&greeting).await.ok()?;
            secured.stream.flush().await.ok()?;
            Some((secured, admitted, sizes))
        }
        Err((admission, reason)) => {
            shared.note_refusal(origin, &reason);
            refuse(&mut secured.stream, admission, &reason).await;
            None
        }
    }
}

async fn refuse(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    admission: Admission,
    reason: &str,
) {
    let greeting = server_greeting(admission, Sizes::default(), reason);
    if stream.write_all(&greeting).await.is_ok() && stream.shutdown().await.is_ok() {
        discard(stream).await;
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send>>;

/// A frame whose calls wait for memory for their answers.
struct Decoded {
    entries: Vec<CallEntry>,
    bytes: usize,
    room: usize,
    arrived: Instant,
}

/// The server's end of a connection.
pub(crate) struct ServerEnd {
    connection: Arc<Connection>,
    service: Arc<dyn Service>,
    sizes: Sizes,
    /// Calls under way, and their bytes, as the window counts them.
    calls: usize,
    bytes: usize,
    /// Calls whose answers are being written.
    writing: EndedCalls,
    taken: u64,
    decoded: Option<Decoded>,
    waiting: Option<Waiting>,
    memory: Option<OwnedSemaphorePermit>,
    is_stopping: bool,
}

impl ServerEnd {
    fn new(connection: Arc<Connection>, shared: &Shared, sizes: Sizes) -> Self {
        ServerEnd {
            connection,
            service: shared.service.clone(),
            sizes,
            calls: 0,
            bytes: 0,
            writing: EndedCalls::default(),
            taken: 0,
            decoded: None,
            waiting: None,
            memory: None,
            is_stopping: false,
        }
    }

    /// Takes no more frames, and says so.
    fn stop(&mut self) {
        self.is_stopping = true;
        self.connection.outbox.lock().writer.goodbye(self.taken);
    }

    /// Decodes a frame and checks it against the window.
    fn decode(&self, frame: &[u8]) -> Result<Decoded, FrameError> {
        let entries = decode_calls(frame, self.sizes.body_max)?;
        let room = entries.iter().map(|entry| entry.room as usize).sum::<usize>();
        let bytes = room + entries.iter().map(|entry| entry.body.len()).sum::<usize>();
        let window = self.sizes.window;
        let is_within = self.calls + entries.len() <= window.calls as usize
            && self.bytes + bytes <= window.bytes as usize;
        match is_within {
            true => Ok(Decoded { entries, bytes, room, arrived: Instant::now() }),
            false => Err(FrameError::Window { calls: window.calls, bytes: window.bytes }),
        }
    }

    /// Waits for memory of calls or of answers.
    fn poll_permit(
        &mut self,
        cx: &mut Context<'_>,
        is_for_calls: bool,
        bytes: usize,
    ) -> Poll<Option<OwnedSemaphorePermit>> {
        let share = &self.connection.share;
        let memory = if is_for_calls { &share.calls } else { &share.answers };
        // A frame has at most 64 MiB, and a window is a u32.
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if self.waiting.is_none() {
            if let Ok(permit) = memory.clone().try_acquire_many_owned(bytes) {
                return Poll::Ready(Some(permit));
            }
            self.waiting = Some(Box::pin(memory.clone().acquire_many_owned(bytes)));
        }
        let Some(waiting) = &mut self.waiting else { return Poll::Ready(None) };
        let permit = ready!(waiting.as_mut().poll(cx));
        self.waiting = None;
        Poll::Ready(permit.ok())
    }

    /// Gives the calls of a frame to the service.
    fn deliver(&mut self, frame: &mut Vec<u8>, decoded: Decoded) {
        self.calls += decoded.entries.len();
        self.bytes += decoded.bytes;
        self.taken += 1;
        let frame = Arc::new(Frame {
            connection: self.connection.clone(),
            bytes: std::mem::take(frame),
            _memory: self.memory.take(),
        });
        let has_deadline = decoded.entries.iter().any(|entry| entry.left_ms != 0);
        let now = if has_deadline { Instant::now() } else { decoded.arrived };
        let mut calls = Vec::with_capacity(decoded.entries.len());
        for CallEntry { id, left_ms, room, body } in decoded.entries {
            let left = Duration::from_millis(left_ms.into());
            let deadline = (left_ms != 0).then(|| decoded.arrived + left);
            let call = Call { frame: frame.clone(), id, room, body, deadline, is_answered: false };
            match deadline.is_some_and(|deadline| deadline <= now) {
                true => call.expire(),
                false => calls.push(call),
            }
        }
        drop(frame);
        if !calls.is_empty() {
            let connection = self.connection.clone();
            self.service.take(Batch { connection, calls: calls.into_iter() });
        }
    }
}

impl End for ServerEnd {
    fn frame_max(&self) -> usize {
        self.sizes.frame_max()
    }

    fn next(&mut self, buffer: &mut Vec<u8>, cx: Option<&mut Context<'_>>) {
        let ended = self.connection.next(buffer, cx);
        self.calls -= ended.calls;
        self.bytes -= ended.bytes;
        self.writing.room += ended.room;
    }

    fn written(&mut self) {
        let room = std::mem::take(&mut self.writing.room);
        self.connection.share.answers.add_permits(room);
    }

    fn poll_memory(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<()> {
        if self.is_stopping {
            return Poll::Pending;
        }
        self.memory = ready!(self.poll_permit(cx, true, length));
        Poll::Ready(())
    }

    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        frame: &mut Vec<u8>,
    ) -> Poll<Result<(), FrameError>> {
        if self.is_stopping {
            return Poll::Pending;
        }
        if self.decoded.is_none() {
            self.decoded = Some(self.decode(frame)?);
        }
        let Some(room) = self.decoded.as_ref().map(|decoded| decoded.room) else {
            return Poll::Ready(Ok(()));
        };
        if let Some(permit) = ready!(self.poll_permit(cx, false, room)) {
            // Given back as answers are written, or when the connection ends.
            permit.forget();
        }
        if let Some(decoded) = self.decoded.take() {
            self.deliver(frame, decoded);
        }
        Poll::Ready(Ok(()))
    }

    fn is_done(&self) -> bool {
        self.is_stopping && self.calls == 0
    }
}

impl Drop for ServerEnd {
    fn drop(&mut self) {
        self.written();
        self.connection.close();
    }
}
