//! Ctrl-C stops the statement under way and nothing else.
//!
//! A statement of the prompt runs in a process of its own, since the engine may compute for hours
//! without looking up. Ctrl-C goes to both processes: the prompt holds it back, and the one with
//! the statement ends by it, behind its files.

use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, raise};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

/// Holds signals that end the process back. To be called before other threads are there, which then
/// hold them back too.
fn hold(signals: &[Signal]) -> anyhow::Result<SigSet> {
    let set: SigSet = signals.iter().copied().collect();
    set.thread_block().context("cannot hold signals back")?;
    Ok(set)
}

/// Has Ctrl-C do nothing to this process. To be called before other threads are there.
pub fn hold_interrupts() -> anyhow::Result<()> {
    hold(&[Signal::SIGINT]).map(drop)
}

/// Has signals that end the process remove a directory first. To be called before other threads are
/// there.
pub fn end_without(directory: PathBuf) -> anyhow::Result<()> {
    let signals = hold(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        // What cannot be removed stays in a directory for temporary files.
        let _ = std::fs::remove_dir_all(&directory);
        let mut stderr = std::io::stderr();
        if stderr.is_terminal() {
            // Where the display of the progress was.
            let _ = stderr.write_all(b"\r\x1b[K");
        }
        let _ = signals.thread_unblock();
        let _ = raise(signal);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}
