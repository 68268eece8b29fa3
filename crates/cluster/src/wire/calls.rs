//! Calls as a service gets them, and their way back.

use crate::wire::duplex::SharedDuplex;
use crate::wire::frame::{FrameWriter, Status};
use crate::wire::limits::Grant;
use crate::wire::peer::Peer;
use crate::wire::registry::Share;
use crate::wire::security::Stream;
use crate::wire::served::ServerEnd;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Waker};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Executes calls.
pub trait Service: Send + Sync + 'static {
    /// Takes the calls of one frame. This must not block: it runs on a thread that reads and writes
    /// other connections, too. Each call is answered when it is done, in any order, by any thread.
    fn take(&self, batch: Batch);

    /// Returns the limits of a peer, or the reason why it is not accepted.
    ///
    /// # Errors
    ///
    /// Fails with the reason.
    fn grant(&self, peer: &Peer) -> Result<Grant, String> {
        let _ = peer;
        Ok(Grant::default())
    }
}

/// Calls of one frame: an iterator in the order of the client.
pub struct Batch {
    pub(crate) connection: Arc<Connection>,
    pub(crate) calls: std::vec::IntoIter<Call>,
}

impl Batch {
    /// Returns the client.
    pub fn peer(&self) -> &Peer {
        &self.connection.peer
    }
}

impl Iterator for Batch {
    type Item = Call;

    fn next(&mut self) -> Option<Call> {
        self.calls.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.calls.size_hint()
    }
}

impl ExactSizeIterator for Batch {}

/// A frame of calls, whose memory counts until the last of them is done.
pub(crate) struct Frame {
    pub(crate) connection: Arc<Connection>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) _memory: Option<OwnedSemaphorePermit>,
}

/// A call. One that is dropped is answered as failed.
pub struct Call {
    pub(crate) frame: Arc<Frame>,
    pub(crate) id: u32,
    pub(crate) room: u32,
    pub(crate) body: Range<usize>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) is_answered: bool,
}

impl Call {
    /// Returns the body.
    pub fn body(&self) -> &[u8] {
        &self.frame.bytes[self.body.clone()]
    }

    /// Returns the client.
    pub fn peer(&self) -> &Peer {
        &self.frame.connection.peer
    }

    /// Returns the moment after which the client no longer waits.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Returns the bytes that the answer can have.
    pub fn room(&self) -> usize {
        self.room as usize
    }

    /// Answers. An answer with more bytes than [`room`](Call::room) becomes an error of the client.
    pub fn answer(mut self, body: &[u8]) {
        if let Some(task) = self.end(Status::Answered, body) {
            self.frame.connection.write_now(task);
        }
    }

    /// Refuses the call, which must not have been executed.
    pub fn refuse(mut self, reason: &str) {
        let reason = &reason.as_bytes()[..reason.floor_char_boundary(self.room().min(1 << 10))];
        if let Some(waker) = self.end(Status::Refused, reason) {
            waker.wake();
        }
    }

    /// Ends the call, and returns the waker of the connection if it sleeps.
    fn end(&mut self, status: Status, body: &[u8]) -> Option<Waker> {
        self.is_answered = true;
        let (status, body) = match body.len() > self.room() {
            true if status == Status::Answered => (Status::TooLarge, &[][..]),
            _ => (status, body),
        };
        let connection = &self.frame.connection;
        let mut outbox = connection.outbox.lock();
        if outbox.is_closed {
            drop(outbox);
            connection.share.answers.add_permits(self.room());
            return None;
        }
        outbox.writer.reply(self.id, status, body);
        outbox.ended.calls += 1;
        outbox.ended.bytes += self.body.len() + self.room();
        outbox.ended.room += self.room();
        outbox.waker.take()
    }

    pub(crate) fn expire(mut self) {
        if let Some(waker) = self.end(Status::Expired, &[]) {
            waker.wake();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.is_answered
            && let Some(waker) = self.end(Status::Failed, &[])
        {
            waker.wake();
        }
    }
}

/// Answers that are sent together: those of a connection in one frame, where they fit. They are sent
/// when this is dropped, so hold it only while answers are at hand.
#[derive(Default)]
pub struct Replies {
    /// Connections that have something to write, with their tasks.
    written: Vec<(Arc<Connection>, Waker)>,
}

impl Replies {
    /// Answers a call.
    pub fn answer(&mut self, mut call: Call, body: &[u8]) {
        if let Some(task) = call.end(Status::Answered, body) {
            self.written.push((call.frame.connection.clone(), task));
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        for (connection, task) in self.written.drain(..) {
            connection.write_now(task);
        }
    }
}

/// One connection, as its calls know it.
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    pub(crate) share: Arc<Share>,
    pub(crate) outbox: Mutex<Outbox>,
    /// The connection itself, once it is in use.
    pub(crate) duplex: OnceLock<Weak<SharedDuplex<Stream, ServerEnd>>>,
}

/// Calls that were answered, and their share of the window and of the memory for answers.
#[derive(Clone, Copy, Default)]
pub(crate) struct EndedCalls {
    pub(crate) calls: usize,
    pub(crate) bytes: usize,
    pub(crate) room: usize,
}

/// Answers that wait to be written.
#[derive(Default)]
pub(crate) struct Outbox {
    pub(crate) writer: FrameWriter,
    pub(crate) ended: EndedCalls,
    pub(crate) is_closed: bool,
    waker: Option<Waker>,
}

impl Connection {
    /// Writes answers, or has the connection's task write them.
    fn write_now(&self, task: Waker) {
        match self.duplex.get().and_then(Weak::upgrade) {
            Some(duplex) => duplex.write_now(task),
            None => task.wake(),
        }
    }

    /// Moves what waits into `buffer`, and returns the calls that it ends. If there is nothing, `cx`
    /// is woken once there is.
    pub(crate) fn next(&self, buffer: &mut Vec<u8>, cx: Option<&mut Context<'_>>) -> EndedCalls {
        let mut outbox = self.outbox.lock();
        match cx {
            Some(cx) if outbox.writer.is_empty() => outbox.waker = Some(cx.waker().clone()),
            _ => outbox.waker = None,
        }
        outbox.writer.take(buffer);
        std::mem::take(&mut outbox.ended)
    }

    /// Ends the connection: answers are no longer kept.
    pub(crate) fn close(&self) {
        let mut outbox = self.outbox.lock();
        outbox.is_closed = true;
        outbox.waker = None;
        outbox.writer = FrameWriter::default();
        let ended = std::mem::take(&mut outbox.ended);
        drop(outbox);
        self.share.answers.add_permits(ended.room);
    }
}
