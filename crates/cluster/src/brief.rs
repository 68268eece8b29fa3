//! Brief requests: those whose thread must not wait, since others wait for it. A request that has to wait
//! after all fails with [`Error::WouldWait`], and a thread that may wait executes it from the beginning.
//!
//! Whether a thread may wait is known beside the parameters of requests, as is the change that it
//! executes (`canopy_namespace::ChangeId`).

use crate::error::{Error, Result};
use std::cell::Cell;
use std::marker::PhantomData;

thread_local! {
    static MUST_NOT_WAIT: Cell<bool> = const { Cell::new(false) };
}

/// A thread that executes a request.
#[must_use]
pub(crate) struct Executing {
    before: bool,
    /// Stays in its thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Executing {
    fn drop(&mut self) {
        MUST_NOT_WAIT.set(self.before);
    }
}

/// Has this thread wait, or not, until the result is dropped.
pub(crate) fn execute(may_wait: bool) -> Executing {
    Executing { before: MUST_NOT_WAIT.replace(!may_wait), of_thread: PhantomData }
}

/// To be called before this thread waits, or changes something that others have to know at once.
///
/// # Errors
///
/// Fails with `WouldWait` if it must not.
pub(crate) fn check() -> Result<()> {
    if MUST_NOT_WAIT.get() { Err(Error::WouldWait) } else { Ok(()) }
}
