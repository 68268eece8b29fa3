//! The program behind the work of a thread: a signal to it ends waits for servers.
//!
//! A mount works for a thread of a program, and notes it here ([`work_for`]). Code that waits for
//! servers asks from time to time whether to go on ([`is_interrupted`]), and fails with `EINTR` if not.
//!
//! `EINTR` means that nothing was changed. So whoever sends a change notes it if the change may have
//! been executed ([`note_change`]). From then on the work is not interrupted: it ends with an answer,
//! or when its time is over. Work that is quick is never interrupted, so that a signal that a program
//! handles does not fail calls that succeed otherwise.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Time for which work is not interrupted.
const QUICK: Duration = Duration::from_millis(500);

/// Time between two looks for signals.
const LOOK: Duration = Duration::from_millis(100);

/// A thread of a program that waits for work.
#[derive(Clone, Copy)]
pub struct Program {
    /// Number of the thread in the system.
    thread: u32,
    /// Returns whether a signal ends that thread's waiting.
    has_signal: fn(u32) -> bool,
    since: Instant,
    looked: Instant,
    has_changed: bool,
}

thread_local! {
    static PROGRAM: Cell<Option<Program>> = const { Cell::new(None) };
}

/// Work of this thread for a program, or for none. It ends when this is dropped.
#[must_use]
pub struct Working {
    before: Option<Program>,
    /// Stays in its thread.
    of_thread: PhantomData<*const ()>,
}

impl Drop for Working {
    fn drop(&mut self) {
        PROGRAM.set(self.before);
    }
}

/// Begins work for a thread of a program. `has_signal` returns whether a signal has come for it.
pub fn work_for(thread: u32, has_signal: fn(u32) -> bool) -> Working {
    let now = Instant::now();
    let program = Program { thread, has_signal, since: now, looked: now, has_changed: false };
    resume(Some(program))
}

/// Begins work that no signal interrupts.
pub fn work_for_nobody() -> Working {
    resume(None)
}

/// Returns the program that this thread works for, to pass it to another thread ([`resume`]).
pub fn current() -> Option<Program> {
    PROGRAM.get()
}

/// Begins to work for a program, as another thread does.
pub fn resume(program: Option<Program>) -> Working {
    Working { before: PROGRAM.replace(program), of_thread: PhantomData }
}

/// Notes that the work may have changed something.
pub fn note_change() {
    if let Some(program) = PROGRAM.get() {
        PROGRAM.set(Some(Program { has_changed: true, ..program }));
    }
}

/// Returns whether the work has to end: it has lasted long, has changed nothing, and the program got a
/// signal. Looks for signals ten times a second at most.
pub fn is_interrupted() -> bool {
    let Some(program) = PROGRAM.get().filter(|program| !program.has_changed) else { return false };
    let now = Instant::now();
    if now.duration_since(program.since) < QUICK || now.duration_since(program.looked) < LOOK {
        return false;
    }
    if (program.has_signal)(program.thread) {
        return true;
    }
    PROGRAM.set(Some(Program { looked: now, ..program }));
    false
}

/// Returns the time until the next look for signals; none if nobody's signals end the work.
pub fn look_after() -> Option<Duration> {
    PROGRAM.get().map(|_| LOOK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_lasts_is_interrupted_unless_it_changed_something() {
        assert!(!is_interrupted() && look_after().is_none());
        let begun = Instant::now();
        let work = work_for(1, |thread| thread == 1);
        while !is_interrupted() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(begun.elapsed() >= QUICK);
        assert!(is_interrupted());
        let program = current();
        let heard = std::thread::spawn(move || {
            let _work = resume(program);
            is_interrupted()
        });
        assert!(heard.join().is_ok_and(|heard| heard));
        {
            let _own = work_for_nobody();
            assert!(!is_interrupted());
        }
        note_change();
        assert!(!is_interrupted());
        drop(work);
        assert!(current().is_none());
    }
}
