//! The parallel walk. Its remaining work consists of pieces that `stealing` shares among threads. A
//! directory keeps its descriptor open while anything below it waits to be read or handed over,
//! unless there are too few descriptors (`handle`).

use crate::directory::{Directory, Moves, Round};
use crate::faults::{Counts, Fault, ScanError, Step};
use crate::handle::Shared;
use crate::inode::{Stat, stat_at};
use crate::options::ScanOptions;
use crate::remaining::{Left, Remaining};
use crate::root::{Root, TICK};
use crate::rules::{MountRules, Rules};
use crate::selection::{Known, Selected, Selection};
use crate::stealing::{Stack, share};
use canopy_model::{ClassTable, Device, Rows, Sink, SourcePath, unescape};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod doubts;
mod task;
mod thread;

pub(crate) use doubts::Checked;
use task::{Begun, Task};
use thread::Thread;

/// Time that threads wait for directories that change all the time, besides a tenth of what the walk
/// has taken: whoever has them change must not hold a scan up.
const WAITS_MAX: Duration = Duration::from_secs(10);

/// A part of a source to walk.
#[derive(Clone, Copy)]
pub struct Subtree<'a> {
    /// The part to list.
    pub selection: &'a Selection,
    /// Earlier knowledge of the rest.
    pub known: &'a dyn Known,
    /// Where others list the rest: they have listed what is on the way.
    pub others: Option<&'a Others<'a>>,
}

/// Returns whether a directory, by its path and the depth of that, is left to others with all below
/// it.
pub type Others<'a> = dyn Fn(SourcePath<'_>, u32) -> bool + Sync + 'a;

/// Stops a walk for a moment, or for good.
pub struct Pauses<'a, S: Sink> {
    /// Returns whether it is time. All threads ask, often.
    pub due: &'a (dyn Fn() -> bool + Sync),
    /// Called when all threads have stopped and have handed over what they read, with the sinks and
    /// what says what is left. An error ends the walk.
    pub pause: &'a mut Pause<'a, S>,
}

type Pause<'a, S> =
    dyn FnMut(&mut Vec<S>, &dyn Fn() -> Left) -> Result<(), <S as Sink>::Error> + 'a;

/// Rules of a walk, and counts and errors that it reports.
#[derive(Clone, Copy)]
pub struct ScanContext<'a> {
    /// Limits of the walk, and directories that it leaves out.
    pub options: &'a ScanOptions,
    /// Takes in the access classes of listings.
    pub classes: &'a ClassTable,
    /// Rules of mounted file systems.
    pub rules: &'a MountRules,
    /// Counts what the walk finds.
    pub counts: &'a Counts,
    /// Called with errors of single entries, which are counted too.
    pub on_error: &'a (dyn Fn(&ScanError) + Sync),
}

/// Walks the tree of `root`, or a part of it, one thread a sink, and gives the sinks back. The error
/// of a sink ends the walk. Blocks.
pub fn scan<S: Sink>(
    root: Root,
    part: Option<Subtree<'_>>,
    cx: &ScanContext<'_>,
    mut sinks: Vec<S>,
    pauses: Pauses<'_, S>,
) -> Result<Vec<S>, S::Error> {
    let ScanContext { options, classes, rules, counts, on_error } = *cx;
    let Pauses { due, pause } = pauses;
    let walk = Walk {
        due,
        paused: AtomicBool::new(false),
        known: part.map(|part| part.known),
        others: part.and_then(|part| part.others),
        options,
        classes,
        rules,
        counts,
        on_error,
        root_dev: root.dev,
        root_path: root.escaped_path(),
        // A scan for its own user may look at that user's mounts.
        untouched: by_last_name(
            rules.untouched(options.one_reader, (root.directory.mount, root.directory.dev)),
        ),
        round: AtomicU64::new(root.rounds),
        shared: root.directory.handle.shared().clone(),
        moves: Moves::default(),
        begun: Instant::now(),
        waits: AtomicU32::new(0),
        root_entries: AtomicU64::new(0),
    };
    if walk.is_left_out(&root.directory) {
        return Ok(sinks);
    }
    let selected = part.map_or(Selected::Whole, |part| Selected::Part(part.selection));
    let Some(selected) = walk.settle(&root.directory, selected) else { return Ok(sinks) };
    let (directory, begun) = (root.directory, Begun::default());
    let mut tasks = vec![vec![Task::Read { directory, begun, selected }]];
    loop {
        let run = |sink, stack: &Stack<'_, _>| Thread::new(&walk, sink, stack).run();
        let (done, left) = share(tasks, sinks, run);
        sinks = done.into_iter().collect::<Result<_, _>>()?;
        if left.iter().all(Vec::is_empty) {
            return Ok(sinks);
        }
        pause(&mut sinks, &|| walk.left(left.iter().flatten()))?;
        walk.paused.store(false, Ordering::Relaxed);
        tasks = left;
    }
}

fn by_last_name(paths: Vec<Vec<u8>>) -> HashMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut by_name: HashMap<Vec<u8>, Vec<Vec<u8>>> = HashMap::new();
    for path in paths {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
        by_name.entry(name).or_default().push(path);
    }
    by_name
}

struct Walk<'a> {
    due: &'a (dyn Fn() -> bool + Sync),
    /// Whether threads stop.
    paused: AtomicBool,
    known: Option<&'a dyn Known>,
    others: Option<&'a Others<'a>>,
    options: &'a ScanOptions,
    classes: &'a ClassTable,
    rules: &'a MountRules,
    counts: &'a Counts,
    on_error: &'a (dyn Fn(&ScanError) + Sync),
    root_dev: Device,
    /// Absolute path of the root, escaped.
    root_path: String,
    /// Where users have mounted file systems of their own, by the last name of the path.
    untouched: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// How often threads have handed over what they read.
    round: AtomicU64,
    shared: Arc<Shared>,
    moves: Moves,
    begun: Instant,
    /// Ticks that threads have waited for what changes all the time.
    waits: AtomicU32,
    /// Entries of the root, once all of it was listed.
    root_entries: AtomicU64,
}

impl Walk<'_> {
    fn report(&self, path: SourcePath<'_>, fault: Fault) {
        let error = ScanError { path: path.to_buf(), fault };
        let count = match fault {
            Fault::Narrowed => &self.counts.narrowed,
            Fault::Moved => &self.counts.moved,
            Fault::LongPath => &self.counts.long_paths,
            Fault::Failed(..) if error.vanished() => &self.counts.vanished,
            Fault::Failed(..) => &self.counts.failed,
        };
        count.fetch_add(1, Ordering::Relaxed);
        // The times of a directory tell that an entry went away, and one that was not opened has no
        // listing.
        let is_partial = match fault {
            Fault::Failed(step, _) => step != Step::List && !error.vanished(),
            fault => fault == Fault::Moved,
        };
        self.counts.partial.fetch_add(is_partial.into(), Ordering::Relaxed);
        (self.on_error)(&error);
    }

    /// Begins a round. Its moment is taken first: looks of all later rounds come after it.
    fn next_round(&self) -> Round {
        let moment = self.shared.clock.now();
        Round { number: self.round.fetch_add(1, Ordering::SeqCst) + 1, moment }
    }

    /// Returns the part of an open directory that is listed; `None` for nothing. A directory that
    /// is not as it was known is listed as a whole, since others may see all below it.
    fn settle<'s>(&self, directory: &Directory, selected: Selected<'s>) -> Option<Selected<'s>> {
        let Some(known) = self.known else { return Some(selected) };
        if selected.is_whole() {
            return Some(Selected::Whole);
        }
        let path = directory.path();
        if known.has(path.as_path(), directory.dev, directory.attributes.ino, &directory.access) {
            return Some(selected).filter(|selected| !matches!(selected, Selected::IfChanged));
        }
        known.replaces(path.as_path());
        Some(Selected::Whole)
    }

    /// Returns whether threads stop now.
    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
            || (self.due)() && {
                self.paused.store(true, Ordering::Relaxed);
                true
            }
    }

    /// Waits until another entry may be looked at, unless threads stop.
    fn wait_for_rate(&self) {
        if let Some(limit) = &self.options.rate_limit {
            limit.take(&|| self.is_paused());
        }
    }

    /// Waits for the next tick of the clock. Returns `false` if there was enough waiting.
    fn waits_a_tick(&self) -> bool {
        let most = WAITS_MAX + self.begun.elapsed() / 10;
        let may = TICK * self.waits.fetch_add(1, Ordering::Relaxed) < most;
        if may {
            std::thread::sleep(TICK);
        }
        may
    }

    /// Returns what is left where these pieces of work are.
    fn left<'t>(&self, tasks: impl Iterator<Item = &'t Task<'t>> + Clone) -> Left {
        let remaining: Vec<Remaining> = tasks.clone().flat_map(Task::remaining).collect();
        let is_root_listed = remaining.iter().all(|directory| !directory.path.as_path().is_root());
        let root_entries =
            if is_root_listed { self.root_entries.load(Ordering::Relaxed) } else { 0 };
        Left {
            entries: tasks.map(Task::listed_entries).sum::<u64>() + root_entries,
            directories: is_root_listed.into(),
            remaining,
        }
    }

    /// Returns whether a directory need not be read, and gives the directories in it that are
    /// entered. The root is always read.
    fn is_unread(&self, directory: &Directory, subdirs: &mut Vec<CString>) -> bool {
        let Some(known) = self.known.filter(|_| directory.depth > 0) else { return false };
        let (path, none) = (directory.path(), Rows::default());
        known.has_unread(&directory.listing(path.as_path(), &none), &mut |escaped| {
            if self.is_untouched(directory, escaped) {
                return None;
            }
            let name = CString::new(unescape(escaped)).ok()?;
            self.wait_for_rate();
            let stat = stat_at(directory.fd().ok()?, &name).ok()?;
            if !self.ends_at(directory, &stat) {
                subdirs.push(name);
            }
            Some(stat.attributes)
        })
    }

    /// Returns whether the contents of a directory are left out because of where it is.
    fn is_left_out(&self, directory: &Directory) -> bool {
        self.options.skipped.contains(&(directory.dev, directory.attributes.ino))
            || (self.options.one_file_system && directory.dev != self.root_dev)
    }

    /// Returns whether an entry that was looked at is where a file system is mounted in a directory
    /// that has nothing to index.
    fn ends_at(&self, directory: &Directory, entry: &Stat) -> bool {
        (entry.mount, entry.dev) != (directory.mount, directory.dev)
            && self.rules.leaves_out(entry.mount, entry.dev)
    }

    /// Returns the rules for values of an entry that was looked at. Where all of a directory is for
    /// root alone, its values are too.
    fn rules_of_values(&self, directory: &Directory, entry: &Stat) -> Rules {
        match directory.rules() {
            _ if (entry.mount, entry.dev) != (directory.mount, directory.dev) => {
                self.rules.of_mount(entry.mount, entry.dev)
            }
            rules @ (Rules::Mode | Rules::Mapped) => rules,
            _ => Rules::Kernel,
        }
    }

    /// Returns whether an entry is left out because of its name, which is given escaped, too.
    fn leaves_out_name(&self, directory: &Directory, name: &[u8], escaped: &str) -> bool {
        let path = || unescape(directory.path_of(escaped).as_str()).into_owned();
        self.options.excludes.matches(name, path) || self.is_untouched(directory, escaped)
    }

    /// Has nothing stay of what was known at and below a directory, of which nothing is listed.
    fn replace_all(&self, path: SourcePath<'_>) {
        if let Some(known) = self.known {
            known.replaces(path);
        }
    }

    /// Returns whether something is mounted at an entry of this name, escaped, that is not touched.
    fn is_untouched(&self, directory: &Directory, name: &str) -> bool {
        // Few names are the last of such a path.
        if self.untouched.is_empty() || !self.untouched.contains_key(&*unescape(name)) {
            return false;
        }
        let path = directory.path_of(name).as_path().absolute(&self.root_path);
        let path = unescape(&path);
        let is = self.untouched.values().flatten().any(|mount| **mount == *path);
        if is {
            self.rules.note_left_out(path.into_owned());
        }
        is
    }
}
