//! What the commands that fill an index share.

use super::update_costs::Costs;
use crate::outcome::Outcome;
use crate::{Engine, interrupt};
use canopy_index::{Published, ShardWriter, Writer};
use canopy_model::{Listing, Sink};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often what is shown of the progress changes.
const SHOWN_EVERY: Duration = Duration::from_millis(200);

/// Set in the environment of commands whose parent wants to know that they go on.
pub(super) const TELLS_PARENT: &str = "CANOPY_TELLS_PARENT";

/// What these print then: that more was done, and that what may hang is over.
pub(super) const GOES_ON: u8 = b'\x06';
pub(super) const IS_OVER: u8 = b'\x04';

/// Joins what finds listings and the index, which do not know each other.
pub struct Shards<'a>(pub ShardWriter<'a>);

/// Why no more listings are taken in.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The index cannot be written.
    #[error(transparent)]
    Index(#[from] canopy_index::Error),
    /// The command was told to end.
    #[error("interrupted")]
    Interrupted,
}

/// Returns the file of the index that is damaged or missing, if that is what went wrong.
pub(super) fn damaged_file(error: &anyhow::Error) -> Option<PathBuf> {
    let own = error.chain().find_map(|cause| cause.downcast_ref::<canopy_index::Error>());
    let of_scan = error.downcast_ref::<Stopped>().and_then(|stopped| match stopped {
        Stopped::Index(error) => Some(error),
        Stopped::Interrupted => None,
    });
    own.or(of_scan)?.damaged_file().map(Path::to_owned)
}

impl Sink for Shards<'_> {
    type Error = Stopped;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Stopped> {
        match interrupt::asked() {
            true => Err(Stopped::Interrupted),
            false => Ok(self.0.push(listing)?),
        }
    }
}

/// The same for what asks by itself whether it is to end, and goes on later.
pub struct Listings<'a> {
    /// Where listings go.
    pub shards: ShardWriter<'a>,
    /// What tells where the scan is.
    whereabouts: Arc<Whereabouts>,
    costs: Option<Arc<Costs>>,
}

impl<'a> Listings<'a> {
    /// Returns one for each writer.
    pub(super) fn of(
        writers: Vec<ShardWriter<'a>>,
        whereabouts: &Arc<Whereabouts>,
        costs: &Option<Arc<Costs>>,
    ) -> Vec<Self> {
        let sink = |shards| Listings {
            shards,
            whereabouts: Arc::clone(whereabouts),
            costs: costs.clone(),
        };
        writers.into_iter().map(sink).collect()
    }
}

impl Sink for Listings<'_> {
    type Error = Stopped;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Stopped> {
        self.whereabouts.offer(listing.path);
        if let Some(costs) = &self.costs {
            costs.listed(listing.path, listing.rows.len() as u64);
        }
        Ok(self.shards.push(listing)?)
    }
}

/// The path of a directory that was just listed, kept when somebody wants to know it.
#[derive(Default)]
pub struct Whereabouts {
    is_wanted: AtomicBool,
    path: Mutex<String>,
}

impl Whereabouts {
    fn offer(&self, path: &str) {
        if self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::Relaxed) {
            path.clone_into(&mut self.path.lock());
        }
    }

    /// Returns the path of a directory that was listed since it was asked for last, or before,
    /// escaped.
    pub fn path(&self) -> String {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.path.lock().clone()
    }

    /// Forgets it, since another source begins.
    pub fn forget(&self) {
        self.path.lock().clear();
    }
}

/// Ends the process, without what was written, if it was asked to end.
pub fn end_if_asked(writer: Writer) -> Writer {
    if interrupt::asked() {
        interrupt::go_on_to_the_end();
        drop(writer);
        interrupt::end(None);
    }
    writer
}

/// Publishes what was written; nothing interrupts that.
pub fn publish(writer: Writer) -> canopy_index::Result<Published> {
    interrupt::go_on_to_the_end();
    end_if_asked(writer).publish()
}

/// Publishes what was written, if anything is other than it was, with derived tables that follow.
pub fn publish_changes(
    mut writer: Writer,
    engine: Option<&Engine>,
    threads: usize,
) -> anyhow::Result<(Published, Outcome)> {
    if writer.has_nothing_new() {
        interrupt::go_on_to_the_end();
        return Ok((end_if_asked(writer).end_unchanged()?, Outcome::Complete));
    }
    let derived = match engine {
        Some(engine) => (engine.refresh)(&mut writer, threads)?,
        None => Outcome::Complete,
    };
    Ok((publish(writer)?, derived))
}

/// Does `work` while another thread shows on a terminal how far it is: `message` says it, given the
/// time since it began.
pub fn with_progress<T>(
    message: impl Fn(Duration) -> String + Sync,
    work: impl FnOnce() -> T,
) -> T {
    show_progress(message, || 0, false, work)
}

/// Like [`with_progress`], but also reports to the parent process, if it asked for that, whenever
/// `done_so_far` returns another number.
pub(super) fn with_progress_reported<T>(
    message: impl Fn(Duration) -> String + Sync,
    done_so_far: impl Fn() -> u64 + Sync,
    work: impl FnOnce() -> T,
) -> T {
    let tells_parent = std::env::var_os(TELLS_PARENT).is_some();
    show_progress(message, done_so_far, tells_parent, work)
}

fn show_progress<T>(
    message: impl Fn(Duration) -> String + Sync,
    done_so_far: impl Fn() -> u64 + Sync,
    tells_parent: bool,
    work: impl FnOnce() -> T,
) -> T {
    // Hidden by itself where standard error is no terminal.
    let bar = ProgressBar::new_spinner();
    if bar.is_hidden() && !tells_parent {
        return work();
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
                bar.set_message(message(begun.elapsed()));
                bar.tick();
                let now = tells_parent.then(&done_so_far);
                if now != last {
                    notify_parent(GOES_ON);
                    last = now;
                }
                std::thread::park_timeout(SHOWN_EVERY);
            }
        });
        let ends = Ends { done: &done, show: show.thread() };
        let result = work();
        drop(ends);
        bar.finish_and_clear();
        if tells_parent {
            notify_parent(IS_OVER);
        }
        result
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
