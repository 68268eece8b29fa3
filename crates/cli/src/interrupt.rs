//! Signals that end a command: Ctrl-C and its like.
//!
//! They are blocked in all threads but one, which waits for them: no code runs in a handler.

use anyhow::Context;
use canopy_ingest::Cancel;
use nix::sys::signal::{SigSet, Signal, raise};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the work of a command that writes an index may go on before it is ended anyhow: what it
/// leaves behind is in the journal, and the next run removes it.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is checked whether the work has ended.
const LOOKED_EVERY: Duration = Duration::from_millis(20);

/// Blocks those of the signals that are not ignored, as nohup(1) has SIGHUP ignored. To be called
/// before other threads are there, which then block them too.
///
/// # Errors
///
/// If signals cannot be blocked.
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

/// Waits for one of the signals in a thread of its own, calls `end` with it and ends the process by it.
///
/// # Errors
///
/// If no thread can be started.
pub fn end_by(signals: SigSet, end: impl FnOnce(Signal) + Send + 'static) -> anyhow::Result<()> {
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        end(signal);
        let _ = signals.thread_unblock();
        let _ = raise(signal);
    };
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(wait)
        .context("cannot start a thread")?;
    Ok(())
}

/// A signal that asked a command to end.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<Mutex<Option<Signal>>>);

impl Interrupt {
    /// Cancels a command that writes an index at the first signal to end. The process lives until the
    /// command has removed its files, or saved its progress; a second Ctrl-C does not wait. To be
    /// called before there are other threads.
    ///
    /// # Errors
    ///
    /// If signals cannot be blocked, or no thread started.
    pub fn watch(&self, cancel: &Cancel) -> anyhow::Result<()> {
        let signals = block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?;
        let again = [Signal::SIGINT].into_iter().filter(|&signal| signals.contains(signal));
        let again: SigSet = again.collect();
        let (received, cancel) = (self.0.clone(), cancel.clone());
        end_by(signals, move |signal| {
            *received.lock() = Some(signal);
            cancel.request();
            let is_asked_again = Arc::new(AtomicBool::new(false));
            let asked_again = is_asked_again.clone();
            std::thread::spawn(move || asked_again.store(again.wait().is_ok(), Ordering::SeqCst));
            let asked = Instant::now();
            let is_patient = || cancel.is_finishing() || asked.elapsed() < PATIENCE;
            while is_patient() && !is_asked_again.load(Ordering::SeqCst) {
                std::thread::sleep(LOOKED_EVERY);
            }
        })
    }

    /// Ends the process by the signal, if one came. To be called once the command has ended.
    pub fn end_process(&self) {
        if let Some(signal) = *self.0.lock() {
            let _ = SigSet::from_iter([signal]).thread_unblock();
            let _ = raise(signal);
        }
    }
}
