//! Ctrl-C stops the statement under way and nothing else.
//!
//! The signal is held back from all threads, and one thread waits for it. Nothing runs in a signal
//! handler.

use anyhow::Context;
use canopy_sql::Running;
use nix::sys::signal::{SigSet, Signal};

fn interrupts() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals
}

/// Holds Ctrl-C back. To be called before other threads are there, which then hold it back too.
pub fn hold_interrupts() -> anyhow::Result<()> {
    interrupts().thread_block().context("cannot hold signals back")
}

/// Stops the statement that a session works on at each Ctrl-C from now on.
pub fn watch(running: Running) -> anyhow::Result<()> {
    let wait = move || {
        while interrupts().wait().is_ok() {
            running.stop();
        }
    };
    std::thread::Builder::new()
        .name("interrupts".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}
