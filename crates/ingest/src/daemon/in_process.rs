//! Verbs of a daemon that run in its process, each in a thread: a panic ends the verb alone.

use super::pulse::Pulse;
use super::verb::{Verb, VerbCall, VerbResult, VerbRunner};
use crate::compact::{CompactRequest, Portion, compact};
use crate::follow::follow;
use crate::listing::{MEMORY_BYTES, available_threads};
use crate::scan::{ScanRequest, scan};
use crate::update::{UpdateOptions, update};
use crate::{Cancel, Context, Namespaces, Observer, Progress};
use anyhow::Context as _;
use canopy_scan::threads_max;
use std::any::Any;
use std::fmt::Display;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Time between two calls of [`VerbCall::stop`].
const LOOKED_EVERY: Duration = Duration::from_millis(5);

/// Time between two looks at the progress of a verb.
const OBSERVED_EVERY: Duration = Duration::from_millis(200);

/// Waiting times for a verb.
struct Patience {
    /// Without progress in a source.
    reads: Duration,
    /// After it was cancelled: it may be publishing.
    ends: Duration,
}

const PATIENCE: Patience =
    Patience { reads: Duration::from_secs(600), ends: Duration::from_secs(60) };

/// Carries verbs out in this process. The observer of the daemon's context gets their messages, and
/// derived tables are computed by the context's.
///
/// A file system that does not answer blocks the daemon, which then calls [`VerbCall::stop`] no more.
/// The host gets no more [`Event::Alive`](super::Event::Alive), and so the watchdog of a service ends
/// it.
#[derive(Clone, Copy, Default)]
pub struct InProcess<'a> {
    /// Opens namespaces that are followed.
    pub namespaces: Option<&'a dyn Namespaces>,
}

impl VerbRunner for InProcess<'_> {
    fn run(&self, cx: &Context<'_>, call: &VerbCall<'_>) -> anyhow::Result<VerbResult> {
        let VerbCall { verb, index, rate_max, stop } = *call;
        let cancel = Cancel::default();
        let observer = Watched { observer: cx.observer, pulse: Pulse::default() };
        let own = Context { observer: &observer, cancel: &cancel, ..*cx };
        let namespaces = self.namespaces;
        in_thread(&cancel, &observer.pulse, &PATIENCE, stop, || match verb {
            Verb::Scan { tree, one_file_system } => {
                let paths = vec![tree.to_owned()];
                let threads = threads(&own);
                let request = ScanRequest {
                    paths,
                    threads,
                    one_file_system,
                    rate_max,
                    ..ScanRequest::default()
                };
                let generation = scan(&own, index, &request, None)?.published.generation;
                Ok(VerbResult { generation: Some(generation), shares: None })
            }
            Verb::Update { suspects, repairs } => {
                let options = UpdateOptions {
                    threads: threads(&own),
                    rate_max,
                    repairs,
                    ..UpdateOptions::default()
                };
                let updated = update(&own, index, || Ok(suspects.clone()), &options)?;
                Ok(VerbResult { generation: Some(updated.generation), shares: updated.shares })
            }
            Verb::Follow(namespace) => {
                let namespaces = namespaces.context("this program cannot read namespaces")?;
                let paths = vec![namespace.to_owned()];
                let request =
                    ScanRequest { paths, threads: threads(&own), ..ScanRequest::default() };
                let followed = follow(&own, index, &request, namespaces)?;
                Ok(VerbResult {
                    generation: followed.read.map(|_| followed.generation),
                    shares: None,
                })
            }
            Verb::Compact => compact_once(&own, index),
        })
    }
}

/// Rewrites one portion of an index, if that is due.
fn compact_once(cx: &Context<'_>, index: &Path) -> anyhow::Result<VerbResult> {
    let request = CompactRequest {
        only_due: true,
        once: true,
        retention: None,
        replaces: false,
        threads: threads(cx),
        memory_bytes: MEMORY_BYTES,
    };
    let mut generation = None;
    compact(cx, index, &request, |portion| {
        let (Portion::Rewritten(now, _) | Portion::Kept(now)) = portion;
        generation = Some(now);
        Ok(())
    })?;
    Ok(VerbResult { generation, shares: None })
}

/// Returns the number of threads that are configured, or one per core, as far as they may open files.
fn threads(cx: &Context<'_>) -> usize {
    let configured = cx.site.settings.threads.unwrap_or_else(available_threads);
    configured.clamp(1, 1024).min(threads_max())
}

/// Carries out `work` in a thread and returns its result. Cancels it once `stop` returns true or the
/// pulse stands still. `stop` is called all the time, but not while the work neither goes on nor ends.
fn in_thread<T: Send>(
    cancel: &Cancel,
    pulse: &Pulse,
    patience: &Patience,
    stop: &dyn Fn() -> bool,
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    std::thread::scope(|scope| {
        let (ends, ended) = channel::<()>();
        let run = move || {
            // Dropped at the end, also by a panic.
            let _ends = ends;
            work()
        };
        let thread = Builder::new().name("verb".to_owned()).spawn_scoped(scope, run)?;
        let (mut cancelled_at, mut was_silent) = (None::<Instant>, false);
        while ended.recv_timeout(LOOKED_EVERY) == Err(RecvTimeoutError::Timeout) {
            let is_silent = pulse.is_silent(patience.reads);
            was_silent |= is_silent;
            let hangs = is_silent && cancelled_at.is_some_and(|at| at.elapsed() > patience.ends);
            if cancelled_at.is_none() && is_silent || !hangs && stop() {
                cancelled_at.get_or_insert_with(Instant::now);
                cancel.request();
            }
        }
        match thread.join() {
            Ok(Err(_)) if was_silent => anyhow::bail!(
                "nothing could be read for a long time: a file system in the source does not answer"
            ),
            Ok(result) => result,
            Err(panic) => Err(error_of(&*panic)),
        }
    })
}

/// Returns the message of a panic as an error.
fn error_of(panic: &(dyn Any + Send)) -> anyhow::Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    anyhow::anyhow!("a thread has panicked: {}", text.unwrap_or("it has not said why"))
}

/// Passes messages on to the observer of the host, and notes the progress.
struct Watched<'a> {
    observer: &'a dyn Observer,
    pulse: Pulse,
}

impl Observer for Watched<'_> {
    fn warn(&self, text: &dyn Display) {
        self.observer.warn(text);
    }

    fn note(&self, text: &dyn Display) {
        self.observer.note(text);
    }

    fn observe(&self, progress: &dyn Progress, work: &mut dyn FnMut()) {
        std::thread::scope(|scope| {
            let (ends, ended) = channel::<()>();
            let look = move || {
                let mut last = None;
                while ended.recv_timeout(OBSERVED_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let now = Some(progress.done());
                    if now != last {
                        self.pulse.beat();
                        last = now;
                    }
                }
            };
            // Without the thread, only a verb that takes very long counts as one that hangs.
            let _ = Builder::new().name("progress".to_owned()).spawn_scoped(scope, look);
            let _ends = ends;
            work();
        });
        self.pulse.finish_reading();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said_of(
        work: impl FnOnce(&Cancel, &Pulse) -> String + Send,
        stop: &dyn Fn() -> bool,
    ) -> String {
        let soon = Duration::from_millis(50);
        let (cancel, pulse) = (Cancel::default(), Pulse::default());
        let patience = Patience { reads: soon, ends: soon };
        let run = || Ok(work(&cancel, &pulse));
        in_thread(&cancel, &pulse, &patience, stop, run).unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn a_verb_ends_by_itself_when_it_is_stopped_when_it_hangs_and_by_a_panic() {
        let until_cancelled = |cancel: &Cancel| {
            while !cancel.wait(Duration::from_secs(3600)) {}
            "cancelled".to_owned()
        };
        assert_eq!(said_of(|_, _| "done".to_owned(), &|| false), "done");
        let works = |cancel: &Cancel, pulse: &Pulse| {
            pulse.finish_reading();
            until_cancelled(cancel)
        };
        assert_eq!(said_of(works, &|| true), "cancelled");
        assert_eq!(said_of(|cancel, _| until_cancelled(cancel), &|| false), "cancelled");
        assert_eq!(
            said_of(|_, _| panic!("on purpose"), &|| false),
            "a thread has panicked: on purpose"
        );
    }
}
