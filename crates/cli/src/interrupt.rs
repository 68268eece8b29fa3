//! Signals that end a command: Ctrl-C and its like.
//!
//! They are blocked in all threads but one, which waits for them: no code runs in a handler.

use crate::outcome::message;
use anyhow::Context;
use nix::sys::signal::{SigSet, Signal, raise};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the work of a command that writes an index may go on before it is ended anyhow: what it
/// leaves behind is in the journal, and the next run removes it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is checked whether the work has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// Whether a signal has come.
static ASKED: AtomicBool = AtomicBool::new(false);
/// Whether the process is to live until it ends by itself, or says that it is done.
static ENDS_BY_ITSELF: AtomicBool = AtomicBool::new(false);
/// Whether Ctrl-C has come again.
static ASKED_AGAIN: AtomicBool = AtomicBool::new(false);
/// Whether what was made is removed.
static DONE: AtomicBool = AtomicBool::new(false);

/// Blocks those of the signals that are not ignored, as nohup(1) has SIGHUP ignored. To be called
/// before other threads are there, which then block them too.
pub fn block(signals: &[Signal]) -> anyhow::Result<SigSet> {
    // A signal that is ignored comes through once it is blocked and waited for.
    let ignored = ignored().unwrap_or_default();
    let is_ignored = |signal: &Signal| ignored >> (*signal as i32 - 1) & 1 == 1;
    let set: SigSet = signals.iter().copied().filter(|signal| !is_ignored(signal)).collect();
    set.thread_block().context("cannot hold signals back")?;
    Ok(set)
}

/// Returns the signals that the process ignores, each a bit, the lowest for signal 1.
fn ignored() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// Waits for one of the signals in a thread of its own, calls `end` and ends the process by it.
pub fn end_by(signals: SigSet, end: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        end();
        let _ = signals.thread_unblock();
        let _ = raise(signal);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

/// Has signals that end the process wait until a command that writes an index has removed what it
/// made, or noted how far it is; a second Ctrl-C does not wait. To be called before other threads
/// are there.
pub fn watch() -> anyhow::Result<()> {
    let signals = block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
    let again = [Signal::SIGINT].into_iter().filter(|&signal| signals.contains(signal));
    let again: SigSet = again.collect();
    end_by(signals, move || {
        ASKED.store(true, Ordering::SeqCst);
        std::thread::spawn(move || ASKED_AGAIN.store(again.wait().is_ok(), Ordering::SeqCst));
        let asked = Instant::now();
        let waits = || {
            let is_patient = ENDS_BY_ITSELF.load(Ordering::SeqCst) || asked.elapsed() < PATIENCE;
            is_patient && !ASKED_AGAIN.load(Ordering::SeqCst)
        };
        while !DONE.load(Ordering::SeqCst) && waits() {
            std::thread::sleep(LOOKED_EVERY);
        }
    })
}

/// Returns whether the command is to end.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Keeps the process alive from now on, until it ends by itself.
pub fn go_on_to_the_end() {
    ENDS_BY_ITSELF.store(true, Ordering::SeqCst);
}

/// Ends the process, which [`asked`] said is to end and which has removed what it made, or noted how
/// far it is: then `continued` says what is left, and what continues it.
pub fn end(continued: Option<&str>) -> ! {
    match continued {
        Some(continued) => {
            message(format_args!("interrupted; nothing was published; {continued}"));
        }
        None => message("interrupted; nothing was published"),
    }
    DONE.store(true, Ordering::SeqCst);
    // The thread that waits for signals ends the process by the one that came.
    loop {
        std::thread::park();
    }
}
