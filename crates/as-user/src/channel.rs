//! An end of the socket between a process and whoever asks it.

use crate::frame::{Frame, decode, receive};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufReader, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;

/// By how much heavy requests give way to others, of all users.
const HEAVY_NICENESS: i32 = 10;

/// Why a request has no answer of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// Answering it has panicked.
    Panicked,
    /// The answer is longer than a frame.
    TooLong,
}

/// An end of the socket between a process and whoever asks it.
pub struct Channel {
    socket: UnixStream,
}

impl Channel {
    pub(crate) fn new(socket: UnixStream) -> Self {
        Channel { socket }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// Fails if it is longer than a frame may be, or if nobody reads it any more.
    pub fn send(&self, what: &impl Serialize) -> io::Result<()> {
        Frame::encode(what)?.send(&self.socket, 0, false)
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// Fails with `UnexpectedEof` at the end, and for what is not a `T`.
    pub fn receive<T: DeserializeOwned>(&self) -> io::Result<T> {
        let mut body = Vec::new();
        receive(&self.socket, &mut body)?;
        decode(&body)
    }

    /// Answers the requests of a [`Pool`](crate::Pool) until the other end is closed. Heavy ones
    /// take turns in a thread of their own. `failed` makes the answers to those that fail.
    ///
    /// # Errors
    /// Fails for what is not a request, and if the socket does.
    pub fn serve<Q, R>(
        self,
        answer: impl Fn(&Q) -> R + Send + Sync + 'static,
        failed: impl Fn(&Q, Unanswered) -> R + Send + Sync + 'static,
    ) -> io::Result<()>
    where
        Q: DeserializeOwned + Send + 'static,
        R: Serialize,
    {
        let answers = Mutex::new(self.socket.try_clone()?);
        let reply = Arc::new(move |number: u64, asked: &Q| {
            let told = catch_unwind(AssertUnwindSafe(|| answer(asked)));
            let told = told.unwrap_or_else(|_| failed(asked, Unanswered::Panicked));
            let frame = Frame::encode(&told);
            let frame = frame.or_else(|_| Frame::encode(&failed(asked, Unanswered::TooLong)));
            // Nobody waits any more if this fails.
            let _ = frame.and_then(|mut frame| frame.send(&*answers.lock(), number, false));
        });
        let (heavy, waiting) = channel::<(u64, Q)>();
        let nicer = reply.clone();
        let work = move || {
            // If this fails, they do not give way.
            let _ = rustix::process::nice(HEAVY_NICENESS);
            waiting.into_iter().for_each(|(number, asked)| nicer(number, &asked));
        };
        let thread = std::thread::Builder::new().name("heavy".to_owned()).spawn(work);
        let (mut requests, mut body) = (BufReader::new(self.socket), Vec::new());
        loop {
            let head = match receive(&mut requests, &mut body) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                received => received?,
            };
            let asked: Q = decode(&body)?;
            // Where there are no more threads for the user, this one does all.
            match head.is_heavy && thread.is_ok() {
                true => heavy.send((head.number, asked)).map_err(|_| ErrorKind::BrokenPipe)?,
                false => reply(head.number, &asked),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
