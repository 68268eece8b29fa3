//! Frames in both directions on one connection, by one task: neither direction waits for the other.
//!
//! Memory is bounded: one buffer to read into, the frame that is being read (the other part of the
//! program is asked for its bytes first), and the frames that are being written.

use crate::wire::frame::{FrameError, LENGTH, frame_length};
use parking_lot::Mutex;
use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Bytes that are read at once.
const READ: usize = 32 << 10;
/// A buffer that has grown larger is given back.
const KEPT: usize = 256 << 10;

thread_local! {
    /// A buffer to read into, which the connections of a thread use in turns.
    static SPARE: Cell<Option<Box<[u8]>>> = const { Cell::new(None) };
}

/// Use that one side makes of the frames.
pub(crate) trait End {
    /// Returns the bytes that a frame from the other end can have behind its length.
    fn frame_max(&self) -> usize;

    /// Moves frames that are to be written into `buffer`, which is empty. If there are none and
    /// `cx` is given, has its waker called once there are.
    fn next(&mut self, buffer: &mut Vec<u8>, cx: Option<&mut Context<'_>>);

    /// Takes note that all frames of the last [`next`](End::next) were written.
    fn written(&mut self);

    /// Waits until there is memory for a frame of `length` bytes to be read.
    fn poll_memory(&mut self, cx: &mut Context<'_>, length: usize) -> Poll<()>;

    /// Takes a frame, once it can.
    fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        frame: &mut Vec<u8>,
    ) -> Poll<Result<(), FrameError>>;

    /// Returns whether nothing more will be read or written.
    fn is_done(&self) -> bool;
}

/// Why a connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The end wanted it.
    Done,
    /// The other end closed it.
    Closed,
    /// It broke.
    Io(io::Error),
    /// The other end has read nothing for too long.
    Stalled,
    /// The other end broke the rules.
    Violation(FrameError),
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Ended::Done => f.write_str("the connection has served its purpose"),
            Ended::Closed => f.write_str("the other end closed it"),
            Ended::Io(error) => write!(f, "{error}"),
            Ended::Stalled => f.write_str("the other end does not read"),
            Ended::Violation(error) => write!(f, "{error}"),
        }
    }
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Ended::Io(error)
    }
}

/// A frame that is being read, from its length on.
struct Incoming {
    length: usize,
    /// Empty and without memory until the end has granted it.
    bytes: Vec<u8>,
    is_granted: bool,
}

/// One connection and the end that uses it.
pub(crate) struct Duplex<S, E> {
    pub(crate) stream: S,
    pub(crate) end: E,
    /// Bytes that were read and not used: those from `used` to `filled`. Without memory if there are
    /// none, as most connections are silent most of the time.
    read: Box<[u8]>,
    used: usize,
    filled: usize,
    incoming: Option<Incoming>,
    writing: Vec<u8>,
    written: usize,
    is_flushed: bool,
    stall: Option<Pin<Box<Sleep>>>,
    stall_after: Duration,
}

/// A connection that its task shares with other threads. A thread that has an answer or a call writes
/// it at once, unless another one uses the connection now. That saves waking the task.
pub(crate) struct SharedDuplex<S, E>(Mutex<Option<Duplex<S, E>>>);

impl<S: AsyncRead + AsyncWrite + Unpin, E: End + Unpin> SharedDuplex<S, E> {
    pub(crate) fn new(duplex: Duplex<S, E>) -> Arc<Self> {
        Arc::new(SharedDuplex(Mutex::new(Some(duplex))))
    }

    /// Reads and writes until the connection ends.
    pub(crate) async fn run(&self) -> Ended {
        poll_fn(|cx| match &mut *self.0.lock() {
            Some(duplex) => duplex.poll(cx),
            None => Poll::Ready(Ended::Done),
        })
        .await
    }

    /// Does something with the connection, unless it was taken.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Duplex<S, E>) -> T) -> Option<T> {
        self.0.lock().as_mut().map(change)
    }

    /// Takes the connection out: nobody else uses it any more.
    pub(crate) fn take(&self) -> Option<Duplex<S, E>> {
        self.0.lock().take()
    }

    /// Writes pending answers or calls. Wakes the task if it has anything else to do.
    pub(crate) fn write_now(&self, task: Waker) {
        let is_done = match self.0.try_lock().as_deref_mut() {
            Some(Some(duplex)) => duplex.write_now(&task),
            _ => false,
        };
        if !is_done {
            task.wake();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin, E: End + Unpin> Duplex<S, E> {
    pub(crate) fn new(stream: S, end: E, stall_after: Duration) -> Self {
        Duplex {
            stream,
            end,
            read: Box::default(),
            used: 0,
            filled: 0,
            incoming: None,
            writing: Vec::new(),
            written: 0,
            is_flushed: true,
            stall: None,
            stall_after,
        }
    }

    /// Writes pending answers or calls in place of the task. Returns whether nothing is left to do for
    /// the task; otherwise it has to be woken.
    fn write_now(&mut self, task: &Waker) -> bool {
        let mut cx = Context::from_waker(task);
        loop {
            // The task gets the same error when it is woken.
            if !matches!(self.poll_written(&mut cx), Poll::Ready(Ok(()))) {
                return false;
            }
            self.end.next(&mut self.writing, Some(&mut cx));
            if self.writing.is_empty() {
                return !self.end.is_done();
            }
            self.is_flushed = false;
        }
    }

    /// Writes what the end still has to say, without reading, and closes the connection.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        loop {
            poll_fn(|cx| self.poll_written(cx)).await?;
            self.end.next(&mut self.writing, None);
            if self.writing.is_empty() {
                return tokio::io::AsyncWriteExt::shutdown(&mut self.stream).await;
            }
            self.is_flushed = false;
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Ended> {
        loop {
            // Replies and calls that appear while this runs need no waker.
            let is_writing = match self.poll_write(cx) {
                Ok(is_writing) => is_writing,
                Err(ended) => return Poll::Ready(ended),
            };
            if self.end.is_done() && !is_writing {
                return Poll::Ready(Ended::Done);
            }
            match self.poll_read(cx) {
                Poll::Ready(Ok(())) => continue,
                Poll::Ready(Err(ended)) => return Poll::Ready(ended),
                Poll::Pending => {}
            }
            if is_writing {
                return Poll::Pending;
            }
            self.end.next(&mut self.writing, Some(cx));
            if self.writing.is_empty() && !self.end.is_done() {
                return Poll::Pending;
            }
            self.is_flushed = self.writing.is_empty();
        }
    }

    /// Writes all there is, and returns whether the other end has to read first.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        loop {
            if self.poll_written(cx)?.is_pending() {
                let sleep = || Box::pin(tokio::time::sleep(self.stall_after));
                let stall = self.stall.get_or_insert_with(sleep);
                return match stall.as_mut().poll(cx) {
                    Poll::Ready(()) => Err(Ended::Stalled),
                    Poll::Pending => Ok(true),
                };
            }
            self.end.next(&mut self.writing, None);
            if self.writing.is_empty() {
                return Ok(false);
            }
            self.is_flushed = false;
        }
    }

    /// Writes the frames that the end has given.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_flushed {
            return Poll::Ready(Ok(()));
        }
        while self.written < self.writing.len() {
            let rest = &self.writing[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
            self.stall = None;
        }
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.stall = None;
        self.is_flushed = true;
        self.written = 0;
        self.writing.clear();
        if self.writing.capacity() > KEPT {
            self.writing = Vec::new();
        }
        self.end.written();
        Poll::Ready(Ok(()))
    }

    /// Reads once, and gives the end all frames that are whole then.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Ended>> {
        if !ready!(self.poll_frames(cx))? {
            return Poll::Ready(Ok(()));
        }
        // The rest is less than the length of a frame.
        if self.read.is_empty() {
            self.read = SPARE.take().unwrap_or_else(|| vec![0; READ].into());
        }
        self.read.copy_within(self.used..self.filled, 0);
        (self.used, self.filled) = (0, self.filled - self.used);
        let mut buffer = ReadBuf::new(&mut self.read[self.filled..]);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        let count = buffer.filled().len();
        self.filled += count;
        if self.filled == 0 {
            SPARE.set(Some(std::mem::take(&mut self.read)));
        }
        ready!(polled)?;
        Poll::Ready(if count == 0 { Err(Ended::Closed) } else { Ok(()) })
    }

    /// Gives the end one frame of those that were read, if one is whole. Returns whether more has
    /// to be read first.
    fn poll_frames(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, Ended>> {
        if self.incoming.is_none() {
            let Some(length) = self.read[self.used..self.filled].first_chunk::<LENGTH>() else {
                return Poll::Ready(Ok(true));
            };
            let length = frame_length(*length, self.end.frame_max()).map_err(Ended::Violation)?;
            self.used += LENGTH;
            self.incoming = Some(Incoming { length, bytes: Vec::new(), is_granted: false });
        }
        let Some(incoming) = &mut self.incoming else { return Poll::Ready(Ok(true)) };
        if !incoming.is_granted {
            ready!(self.end.poll_memory(cx, incoming.length));
            incoming.is_granted = true;
            incoming.bytes.reserve_exact(incoming.length);
        }
        let missing = incoming.length - incoming.bytes.len();
        let count = missing.min(self.filled - self.used);
        incoming.bytes.extend_from_slice(&self.read[self.used..self.used + count]);
        self.used += count;
        if count < missing {
            return Poll::Ready(Ok(true));
        }
        ready!(self.end.poll_take(cx, &mut incoming.bytes)).map_err(Ended::Violation)?;
        self.incoming = None;
        Poll::Ready(Ok(false))
    }
}
