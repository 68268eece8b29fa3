//! Progress of long work, on a terminal and for a parent process.

use crate::outcome::message;
use crate::parent::{FINISHED, PROGRESS, REPORTS_PROGRESS};
use canopy_ingest::{Observer, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use std::fmt::Display;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often what is shown of the progress changes.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Carries out `work` while another thread shows its progress, as [`Progress::line`] formats it, and
/// returns its result.
pub fn with_progress<T>(progress: &dyn Progress, work: impl FnOnce() -> T) -> T {
    canopy_ingest::with_progress(&Terminal, progress, work)
}

/// Shows progress alone.
struct Terminal;

impl Observer for Terminal {
    fn warn(&self, text: &dyn Display) {
        message(text);
    }

    fn note(&self, text: &dyn Display) {
        message(text);
    }

    fn observe(&self, progress: &dyn Progress, work: &mut dyn FnMut()) {
        show(progress, work);
    }
}

/// Carries out `work` while another thread shows its progress on a terminal, and reports it to the
/// parent process, if that asked for it.
pub(crate) fn show(progress: &dyn Progress, work: &mut dyn FnMut()) {
    let tells_parent = std::env::var_os(REPORTS_PROGRESS).is_some();
    // Hidden by itself where standard error is not a terminal.
    let bar = ProgressBar::new_spinner();
    if bar.is_hidden() && !tells_parent {
        work();
        return;
    }
    bar.set_style(
        ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}")
            .expect("the template is valid"),
    );
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let show = scope.spawn(|| {
            let begun = Instant::now();
            let mut last = None;
            while !done.load(Ordering::Relaxed) {
                bar.set_message(progress.line(begun.elapsed()));
                bar.tick();
                let now = tells_parent.then(|| progress.done());
                if now != last {
                    notify_parent(PROGRESS);
                    last = now;
                }
                std::thread::park_timeout(SHOWN_EVERY);
            }
        });
        let ends = Ends { done: &done, show: show.thread() };
        work();
        drop(ends);
        bar.finish_and_clear();
        if tells_parent {
            notify_parent(FINISHED);
        }
    })
}

/// Sends a byte to the parent process, which may be gone.
fn notify_parent(what: u8) {
    let mut output = std::io::stdout().lock();
    let _ = output.write_all(&[what]).and_then(|()| output.flush());
}

/// Ends the display, also where the work has panicked, which would otherwise wait for it.
struct Ends<'a> {
    done: &'a AtomicBool,
    show: &'a Thread,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        self.show.unpark();
    }
}
