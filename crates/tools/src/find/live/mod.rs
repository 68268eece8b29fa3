//! `--live`: the search walks the file system itself, in parallel, with the evaluator and the
//! actions that the index has.
//!
//! 1. Each start is looked at; where it is a directory, threads share the directories below it
//!    (`walk`).
//! 2. Directories are opened relative to their parent's descriptor and never through a link that
//!    the search does not follow (`dir`), so neither the length of paths nor what others rename or
//!    replace meanwhile matters.
//! 3. Each entry is evaluated as soon as its name is read. It is looked at with statx only if a
//!    test or action asks for what the directory does not tell (`entry`).
//! 4. Each thread collects printed text and writes it in large blocks. All other actions go through
//!    the action sink, one entry at a time.
//! 5. With `--sort` or `--reverse`, entries on which something is to be done are held until all are
//!    there (`act`); with `--limit`, the first ones. One that has gone by then leaves its place
//!    empty.
//!
//! A live search is not a scan. A scan looks at every entry, computes its class and hands whole
//! listings over. A live search looks only where a test asks, and acts on one entry at a time. They
//! share how threads divide directories (`canopy_scan`), not how directories are read.

mod act;
mod dir;
mod entry;
mod walk;

use crate::error::Result;
use crate::find::actions::{
    Action, ActionSink, Actor, Held, SortField, SortKey, Sortable, in_order,
};
use crate::find::evaluation::{FileSystems, FindOutcome, RunOptions};
use crate::find::language::{Find, Test};
use crate::find::messages::{quoted, system_message};
use act::HeldEntry;
use canopy_model::{Device, base_name};
use dir::Dir;
use entry::LiveEntry;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::ffi::CString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Descriptors that are left to others when their number decides how many directories may be open.
const DESCRIPTORS_KEPT: u64 = 64;

/// A live search and what becomes of what it finds.
struct Search<'s, 'a> {
    live: Live<'s>,
    sink: &'s ActionSink<'a>,
    /// Entries that wait until all are there.
    held: Mutex<Held<HeldEntry>>,
}

/// How a live search sees entries.
struct Live<'s> {
    find: &'s Find,
    options: RunOptions,
    file_systems: FileSystems,
    /// Whether directories are looked at before anything in them is changed, though they are
    /// evaluated behind it.
    looks_first: bool,
    /// Depth from which on directories are closed as soon as they are read, and opened again for
    /// each directory in them.
    open_depth: u32,
    partial: AtomicBool,
}

/// The tree of one start.
struct Tree<'a> {
    number: usize,
    /// The start path, as it was given, and as the system takes it.
    given: &'a [u8],
    name: CString,
    /// The device of the start.
    dev: OnceLock<Device>,
}

/// Carries a find out on the live file system, as [`super::run`] does on an index. Blocks.
pub fn run_live(
    find: &Find,
    options: RunOptions,
    output: &mut (dyn Write + Send),
) -> Result<FindOutcome> {
    let sink = ActionSink::new(find, options, output);
    let trees: Vec<Tree<'_>> =
        find.starts.iter().enumerate().map(|(number, given)| Tree::new(number, given)).collect();
    let search = Search { live: Live::new(&sink), sink: &sink, held: Mutex::default() };
    for tree in &trees {
        walk::walk(&search, tree)?;
        if sink.is_done() {
            break;
        }
    }
    act_in_order(&search, &trees)?;
    let partial = search.live.partial.load(Ordering::Relaxed);
    Ok(FindOutcome { failed: Vec::new(), partial: sink.finish()? || partial })
}

/// Acts on what was held.
fn act_in_order(search: &Search<'_, '_>, trees: &[Tree<'_>]) -> Result<()> {
    let held = std::mem::take(&mut *search.held.lock()).into_rows();
    let globals = &search.live.find.globals;
    let order = in_order(&held, globals);
    if globals.jobs.is_some() {
        return search.sink.side_by_side(order.len(), |place| {
            let mut actor = search.actor();
            held[order[place]].act(&search.live, trees, &mut actor)?;
            actor.finish()
        });
    }
    let mut actor = search.actor();
    for row in order {
        if search.sink.is_done() {
            break;
        }
        held[row].act(&search.live, trees, &mut actor)?;
    }
    actor.finish()
}

impl<'a> Search<'_, 'a> {
    fn actor(&self) -> Actor<'_, 'a> {
        Actor::new(self.sink)
    }

    /// Evaluates the expression on an entry, which is in `dir`, now or when all are there. Returns
    /// whether it is pruned.
    fn meet(
        &self,
        actor: &mut Actor<'_, 'a>,
        entry: &LiveEntry<'_>,
        dir: Option<&Arc<Dir>>,
    ) -> Result<bool> {
        actor.meet(entry, entry.depth, &self.held, || HeldEntry::of(entry, dir))
    }
}

impl<'a> Tree<'a> {
    fn new(number: usize, given: &'a std::ffi::OsString) -> Self {
        let given = given.as_bytes();
        let name =
            CString::new(given).expect("neither arguments nor what NULs separate have a NUL");
        Tree { number, given, name, dev: OnceLock::new() }
    }
}

impl<'s> Live<'s> {
    fn new(sink: &ActionSink<'s>) -> Self {
        let (find, options) = (sink.find, sink.options);
        let globals = &find.globals;
        let knows_mounts =
            find.has_test(&|test| matches!(test, Test::FileSystem(_))) || find.prints('F');
        let runs = find.actions.iter().any(|action| matches!(action, Action::Exec(_)));
        Live {
            find,
            options,
            file_systems: match knows_mounts {
                true => FileSystems::mounted(),
                false => FileSystems::default(),
            },
            looks_first: globals.depth_first
                && (sink.needs.iter().any(|needs| needs.stat)
                    || find.has_test(&|test| !test.reads_names_only())),
            open_depth: if globals.holds() { 0 } else { open_depth(options.threads, runs) },
            partial: AtomicBool::new(false),
        }
    }

    /// Says what is wrong with an entry below a start, unless it has gone and that does not matter.
    fn problem_below(&self, shown: &[u8], errno: Errno) {
        // In place of a directory, something else may be there.
        let gone = matches!(errno, Errno::NOENT | Errno::NOTDIR);
        if !(gone && self.find.globals.ignores_races) {
            self.problem(shown, errno);
        }
    }

    /// Says what is wrong with an entry, whose path is `shown`.
    fn problem(&self, shown: &[u8], errno: Errno) {
        self.diagnose(&format!("{}: {}", quoted(shown), system_message(&errno.into())));
    }

    /// Says what is wrong with an entry that is acted on all the same, which is not a failure.
    fn remark(&self, shown: &[u8], errno: Errno) {
        let text = format!("{}: {}", quoted(shown), system_message(&errno.into()));
        (self.options.diagnostic)(&text);
    }

    fn diagnose(&self, text: &str) {
        (self.options.diagnostic)(text);
        self.partial.store(true, Ordering::Relaxed);
    }
}

/// Returns how deep directories may stay open while those below are read. Commands keep the limit
/// of descriptors that they would have.
fn open_depth(threads: usize, runs_commands: bool) -> u32 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((256, 256));
    let raised = !runs_commands && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if raised { hard } else { soft };
    let each = limit.saturating_sub(DESCRIPTORS_KEPT) / threads.max(1) as u64;
    u32::try_from(each.saturating_sub(4)).unwrap_or(u32::MAX)
}

impl Sortable for HeldEntry {
    fn key(&self, field: &SortField) -> SortKey<'_> {
        let name = || base_name(&self.escaped);
        field.key(&self.escaped, name, self.depth, || self.stat.unwrap_or_default().0)
    }

    fn start(&self) -> usize {
        self.tree
    }

    fn shown(&self) -> &str {
        &self.escaped
    }
}
