//! Operations as futures, for programs that wait for many at once by an executor of their own.
//!
//! Threads of this module execute them through a [`Client`]. Each takes all operations of one caller
//! that wait, up to a frame of them. So thousands of futures need few threads, and share frames as the
//! operations of [`Client::execute_all`] do. The futures need no particular executor.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::wire::CALLS_MAX;
use canopy_model::Credentials;
use canopy_namespace::Reply;
use canopy_namespace::operation::{Caller, Operation};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

/// A client whose operations are futures. Once it is dropped, operations that were begun still end.
pub struct AsyncClient(Arc<Shared>);

struct Shared {
    client: Arc<Client>,
    queue: Mutex<Queue>,
    added: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    is_closed: bool,
}

/// An operation that waits for a thread.
struct Waiting {
    who: Option<Credentials>,
    /// The operation, encoded.
    operation: Vec<u8>,
    slot: Arc<Slot>,
}

/// The outcome of an operation, as the future and a thread share it.
#[derive(Default)]
struct Slot(Mutex<SlotState>);

#[derive(Default)]
struct SlotState {
    outcome: Option<Result<Reply>>,
    waker: Option<Waker>,
}

/// An operation under way: a future of its reply. It is executed even if this is dropped.
#[must_use = "the reply is lost"]
pub struct Execution(Arc<Slot>);

impl AsyncClient {
    /// Starts threads that execute operations through a client.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no thread.
    pub fn new(client: Arc<Client>, threads: usize) -> io::Result<Self> {
        let (queue, added) = (Mutex::default(), Condvar::new());
        let shared = AsyncClient(Arc::new(Shared { client, queue, added }));
        for _ in 0..threads.max(1) {
            let shared = shared.0.clone();
            thread::Builder::new().name("operations".into()).spawn(move || shared.run())?;
        }
        Ok(shared)
    }

    /// Begins an operation of a caller. The future fails as [`Client::execute_for`] does.
    ///
    /// # Errors
    ///
    /// Fails with `Unfit` if the operation cannot be encoded.
    pub fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Execution> {
        let operation = postcard::to_extend(operation, Vec::new()).map_err(|_| Error::Unfit)?;
        let (who, slot) = (caller.user().cloned(), Arc::new(Slot::default()));
        let waiting = Waiting { who, operation, slot: slot.clone() };
        self.0.queue.lock().waiting.push_back(waiting);
        self.0.added.notify_one();
        Ok(Execution(slot))
    }
}

impl Drop for AsyncClient {
    fn drop(&mut self) {
        self.0.queue.lock().is_closed = true;
        self.0.added.notify_all();
    }
}

impl Shared {
    fn run(&self) {
        while let Some(together) = self.next() {
            self.execute(&together);
        }
    }

    /// Returns operations of one caller; none once no more come.
    fn next(&self) -> Option<Vec<Waiting>> {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() {
            if queue.is_closed {
                return None;
            }
            self.added.wait(&mut queue);
        }
        let mut together: Vec<Waiting> = Vec::new();
        while let Some(next) = queue.waiting.front()
            && together.len() < CALLS_MAX
            && together.first().is_none_or(|first| first.who == next.who)
        {
            together.extend(queue.waiting.pop_front());
        }
        Some(together)
    }

    fn execute(&self, together: &[Waiting]) {
        let caller = match together.first().and_then(|first| first.who.as_ref()) {
            Some(who) => Caller::User(who),
            None => Caller::Trusted,
        };
        let (mut operations, mut slots) = (Vec::new(), Vec::new());
        for one in together {
            match postcard::from_bytes::<Operation<'_>>(&one.operation) {
                Ok(operation) => {
                    operations.push(operation);
                    slots.push(&one.slot);
                }
                Err(_) => one.slot.complete(Err(Error::Unfit)),
            }
        }
        let replies = self.client.execute_all(caller, &operations);
        slots.into_iter().zip(replies).for_each(|(slot, reply)| slot.complete(reply));
    }
}

impl Slot {
    fn complete(&self, outcome: Result<Reply>) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for Execution {
    type Output = Result<Reply>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<Reply>> {
        let mut state = self.0.0.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
