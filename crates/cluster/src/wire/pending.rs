//! A call of a client that waits for its answer.

use crate::wire::error::WireError;
use crate::wire::link::Link;
use bytes::Bytes;
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// Conditions of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Time after which the caller no longer waits.
    pub time: Duration,
    /// Bytes that the answer can have. They count in the window until the answer has arrived, so
    /// fewer calls are under way at once if they are many.
    pub room: u32,
}

impl Terms {
    /// Bytes that an answer can have, unless the caller asks for more.
    pub const ROOM: u32 = 16 << 10;

    /// Returns terms of a call whose answer is short.
    pub fn within(time: Duration) -> Self {
        Terms { time, room: Self::ROOM }
    }

    /// Returns the terms with room for an answer of `room` bytes.
    pub fn with_room(self, room: u32) -> Self {
        Terms { room, ..self }
    }
}

/// Stages of a call.
pub(crate) enum Stage {
    /// It waits for a connection, or for the window.
    Waiting(Vec<u8>),
    /// It is in a frame.
    Framed,
    Done(Result<Bytes, WireError>),
    /// Nobody waits for it.
    Abandoned,
}

/// A call, as the caller and the connection share it.
pub(crate) struct Slot {
    pub(crate) deadline: Instant,
    pub(crate) room: u32,
    state: Mutex<SlotState>,
}

struct SlotState {
    stage: Stage,
    waker: Option<Waker>,
}

impl Slot {
    pub(crate) fn new(deadline: Instant, room: u32, stage: Stage) -> Arc<Self> {
        Arc::new(Slot { deadline, room, state: Mutex::new(SlotState { stage, waker: None }) })
    }

    /// Ends the call.
    pub(crate) fn complete(&self, outcome: Result<Bytes, WireError>) {
        let mut state = self.state.lock();
        if matches!(state.stage, Stage::Abandoned) {
            return;
        }
        state.stage = Stage::Done(outcome);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the body of a call that is put into a frame now; none if nobody waits for it any more.
    pub(crate) fn take_body(&self) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut state.stage, Stage::Framed) {
            Stage::Waiting(body) => Some(body),
            other => {
                state.stage = other;
                None
            }
        }
    }

    /// Returns the bytes of the body of a call that waits; none if nobody waits for it any more.
    pub(crate) fn waiting_bytes(&self) -> Option<usize> {
        match &self.state.lock().stage {
            Stage::Waiting(body) => Some(body.len()),
            _ => None,
        }
    }
}

/// A call that was begun: a future of its answer. If it is dropped, the answer is discarded.
pub struct Pending {
    pub(crate) slot: Arc<Slot>,
    pub(crate) link: Arc<Link>,
    pub(crate) sleep: Option<Pin<Box<Sleep>>>,
}

/// Wakes a thread.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static PARKED: Waker = Waker::from(Arc::new(Parked(std::thread::current())));
}

impl Pending {
    /// Waits for the answer.
    ///
    /// # Errors
    ///
    /// Fails if there is none; the error states whether the server may have executed the call.
    pub fn wait(self) -> Result<Bytes, WireError> {
        self.wait_with(Duration::MAX, &mut |_| Some(Duration::MAX))
    }

    /// Like `wait`, but calls `look` if there is no answer after `time`, with whether the call was sent.
    /// This returns the time until the next call of it, or none if nobody wants the answer any more.
    ///
    /// # Errors
    ///
    /// Fails as `wait` does.
    pub fn wait_with(
        self,
        time: Duration,
        look: &mut dyn FnMut(bool) -> Option<Duration>,
    ) -> Result<Bytes, WireError> {
        PARKED.with(|waker| {
            let mut due = Instant::now().checked_add(time);
            loop {
                if let Poll::Ready(outcome) = self.poll_slot(waker) {
                    return outcome;
                }
                let now = Instant::now();
                let mut left = self.slot.deadline.saturating_duration_since(now);
                if left.is_zero() {
                    return self.give_up();
                }
                if let Some(at) = due {
                    if at <= now {
                        let is_sent = matches!(self.slot.state.lock().stage, Stage::Framed);
                        let Some(time) = look(is_sent) else { return self.give_up() };
                        due = Instant::now().checked_add(time);
                        continue;
                    }
                    left = left.min(at - now);
                }
                std::thread::park_timeout(left);
            }
        })
    }

    fn poll_slot(&self, waker: &Waker) -> Poll<Result<Bytes, WireError>> {
        let mut state = self.slot.state.lock();
        if matches!(state.stage, Stage::Done(_))
            && let Stage::Done(outcome) = std::mem::replace(&mut state.stage, Stage::Abandoned)
        {
            return Poll::Ready(outcome);
        }
        if !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            state.waker = Some(waker.clone());
        }
        Poll::Pending
    }

    /// Takes the answer if it arrived at the last moment. Otherwise abandons the call.
    fn give_up(&self) -> Result<Bytes, WireError> {
        let mut state = self.slot.state.lock();
        let is_sent = match std::mem::replace(&mut state.stage, Stage::Abandoned) {
            Stage::Done(outcome) => return outcome,
            Stage::Waiting(_) => false,
            Stage::Framed | Stage::Abandoned => true,
        };
        Err(WireError::TimedOut { address: self.link.address.clone(), is_sent })
    }
}

impl Future for Pending {
    type Output = Result<Bytes, WireError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(outcome) = self.poll_slot(cx.waker()) {
            return Poll::Ready(outcome);
        }
        // A timer of the connections' runtime, as the caller's may have none.
        let (deadline, link) = (self.slot.deadline, self.link.clone());
        let sleep = self.sleep.get_or_insert_with(|| {
            let _entered = link.handle.enter();
            Box::pin(tokio::time::sleep_until(deadline.into()))
        });
        match sleep.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(self.give_up()),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.slot.state.lock().stage = Stage::Abandoned;
    }
}
