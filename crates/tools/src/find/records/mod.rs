//! A search of a file system's records, without the kernel: `canopy ns find`, with the evaluator
//! and the actions that the index has.
//!
//! 1. Each start is looked up (`run_records`).
//! 2. The condition that entries meet if anything is done with them (`needed`) is given to the
//!    records, which may have an index with few candidates. Each is evaluated.
//! 3. Where no index helps, or where it matters which directories are passed (`-prune`, `-L`),
//!    threads share the directories below the start (`walk`).
//! 4. If the output is sorted, it is held until all of it is there.
//!
//! Records do not change during the search. Nothing is changed, and no commands are run: their
//! paths would be those of other files.

mod entry;
mod needed;
mod walk;

use crate::error::Result;
use crate::find::actions::{ActionSink, Actor, Held, SortField, SortKey, Sortable, in_order};
use crate::find::evaluation::{FindOutcome, Outside, RunOptions, caller};
use crate::find::language::Find;
use crate::find::messages::quoted;
use crate::find::path::{file_name, push_component, trim_slashes};
use canopy_model::{Attributes, Credentials, Device, FileType, base_name, escape};
use canopy_query::Expression;
use entry::RecordEntry;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The attributes of an entry in a file system.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Its attributes. The inode number is what directories and attributes are asked for by.
    pub attributes: Attributes,
    /// Where it points, if it is a symbolic link.
    pub target: Vec<u8>,
    /// Whether there are extended attributes.
    pub has_xattrs: bool,
}

/// The result of looking up a path.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// An entry.
    Entry(Record),
    /// Nothing.
    Missing,
    /// Nothing: the way leads through what is not a directory.
    NotDirectory,
    /// Nothing: the way leads through too many links.
    Loop,
    /// Unknown to the records: a link leads out of the file system.
    Outside,
}

/// A file system that is searched by its records. An error ends the search.
pub trait Records: Sync {
    /// Returns what lies at an absolute path, whose links are followed, but for one at its end
    /// unless `follow` is set.
    fn look(&self, path: &[u8], follow: bool) -> io::Result<Lookup>;
    /// Tells the names of a directory with what they stand for until `tell` returns false.
    fn list(&self, directory: u64, tell: &mut dyn FnMut(&[u8], Record) -> bool) -> io::Result<()>;
    /// Returns whether a directory has no names.
    fn is_empty(&self, directory: u64) -> io::Result<bool>;
    /// Returns the names and values of the extended attributes of an entry.
    fn xattrs(&self, id: u64) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>>;
    /// Passes all entries below a directory that meet a condition, and maybe others, with their
    /// paths below it, to `tell` until it returns false. Returns false, and passes none, if listing
    /// directories is as fast.
    fn select(
        &self,
        directory: u64,
        needed: &Expression,
        tell: &mut dyn FnMut(&[u8], Record) -> bool,
    ) -> io::Result<bool>;
    /// Returns the device that entries are said to be on.
    fn dev(&self) -> Device;
    /// Returns the type of the file system, as mount(8) calls it.
    fn file_system(&self) -> &str;
}

/// The search, which threads share.
struct Search<'s, 'a, R> {
    find: &'s Find,
    records: &'s R,
    sink: &'s ActionSink<'a>,
    /// The caller.
    caller: Credentials,
    /// Entries that wait until all are there.
    held: Mutex<Held<HeldEntry>>,
    /// Directories that were entered: records that say that a directory is in two lead nowhere.
    entered: Mutex<HashSet<u64>>,
    partial: AtomicBool,
    failed: Mutex<Option<io::Error>>,
    /// Links that lead out of the file system.
    outside: Outside,
}

/// A start.
struct Tree<'a> {
    number: usize,
    /// Its path, absolute.
    given: &'a [u8],
}

/// An entry that waits until all are there to be sorted.
struct HeldEntry {
    tree: usize,
    depth: u32,
    shown: Vec<u8>,
    escaped: String,
    record: Record,
}

/// Carries a find out on records, as [`super::run`] does on an index. Starts are absolute paths.
/// Blocks.
pub fn run_records<R: Records>(
    find: &Find,
    options: RunOptions,
    records: &R,
    output: &mut (dyn Write + Send),
) -> Result<FindOutcome> {
    let sink = ActionSink::new(find, options, output);
    let search = Search {
        find,
        records,
        sink: &sink,
        caller: caller(),
        held: Mutex::default(),
        entered: Mutex::default(),
        partial: AtomicBool::new(false),
        failed: Mutex::default(),
        outside: Outside::default(),
    };
    let starts = find.starts.iter().map(|start| start.as_bytes()).enumerate();
    let trees: Vec<Tree<'_>> = starts.map(|(number, given)| Tree { number, given }).collect();
    for tree in &trees {
        if sink.is_done() || search.failed.lock().is_some() {
            break;
        }
        search.start(tree)?;
    }
    search.act_in_order(&trees)?;
    search.outside.remarks().iter().for_each(|text| (options.diagnostic)(text));
    let (partial, failed) = (search.partial.into_inner(), search.failed.into_inner());
    let partial = sink.finish()? || partial;
    match failed {
        Some(error) => Err(crate::Error::Records(error)),
        None => Ok(FindOutcome { failed: Vec::new(), partial }),
    }
}

impl<'s, 'a, R: Records> Search<'s, 'a, R> {
    fn start(&self, tree: &Tree<'_>) -> Result<()> {
        let follow = self.find.globals.follows(0);
        let record = match self.look(tree.given, follow) {
            Lookup::Missing if follow => self.look(tree.given, false),
            other => other,
        };
        let record = match record {
            Lookup::Entry(record) => record,
            place => {
                self.problem(tree.given, place.problem());
                return Ok(());
            }
        };
        let mut actor = self.actor();
        let (id, is_dir) = (record.attributes.ino, record.is_directory());
        let entry = RecordEntry::new(self, tree, tree.given, file_name(tree.given), 0, &record);
        let pruned = self.meet(&entry, &mut actor)?;
        let below = is_dir && self.find.globals.depth_max > 0 && !pruned && !self.sink.is_done();
        if !below || self.select(tree, id, &mut actor)? {
            return actor.finish();
        }
        actor.finish()?;
        *self.entered.lock() = HashSet::from([id]);
        walk::walk(self, tree, id)
    }

    /// Meets all entries below a start that an index tells. Returns whether one does.
    fn select(&self, tree: &Tree<'_>, id: u64, actor: &mut Actor<'_, 'a>) -> Result<bool> {
        let (find, globals) = (self.find, &self.find.globals);
        if globals.follow_all || globals.depth_max <= 1 || find.expr.prunes() {
            return Ok(false);
        }
        let needed = needed::for_acting(find);
        if needed == Expression::always(true) {
            return Ok(false);
        }
        let mut outcome = Ok(());
        let mut shown = Vec::new();
        let selected = self.records.select(id, &needed, &mut |path, record| {
            let depth = 1 + memchr::memchr_iter(b'/', path).count();
            let depth = u32::try_from(depth).unwrap_or(u32::MAX);
            if depth > globals.depth_max {
                return true;
            }
            shown.clear();
            shown.extend_from_slice(tree.given);
            push_component(&mut shown, path);
            let name = file_name(path);
            let entry = RecordEntry::new(self, tree, &shown, name, depth, &record);
            outcome = self.meet(&entry, actor).map(drop);
            outcome.is_ok() && !self.sink.is_done() && self.failed.lock().is_none()
        });
        outcome?;
        Ok(selected.unwrap_or_else(|error| {
            self.fail(error);
            true
        }))
    }

    fn actor(&self) -> Actor<'_, 'a> {
        Actor::new(self.sink)
    }

    /// Evaluates the expression on an entry, now or when all are there. Returns whether it is
    /// pruned.
    fn meet(&self, entry: &RecordEntry<'_, '_, R>, actor: &mut Actor<'_, 'a>) -> Result<bool> {
        actor.meet(entry, entry.depth, &self.held, || HeldEntry {
            tree: entry.tree.number,
            depth: entry.depth,
            shown: entry.shown.to_vec(),
            escaped: escape(trim_slashes(entry.shown)).into_owned(),
            record: entry.record.clone(),
        })
    }

    /// Acts on what was held.
    fn act_in_order(&self, trees: &[Tree<'_>]) -> Result<()> {
        let held = std::mem::take(&mut *self.held.lock()).into_rows();
        let mut actor = self.actor();
        for row in in_order(&held, &self.find.globals) {
            if self.sink.is_done() {
                break;
            }
            let HeldEntry { tree, depth, shown, record, .. } = &held[row];
            let name = file_name(shown);
            let entry = RecordEntry::new(self, &trees[*tree], shown, name, *depth, record);
            actor.evaluate(&entry)?;
        }
        actor.finish()
    }

    fn look(&self, path: &[u8], follow: bool) -> Lookup {
        self.records.look(path, follow).unwrap_or_else(|error| {
            self.fail(error);
            Lookup::Missing
        })
    }

    /// Notes an error that ends the search.
    fn fail(&self, error: io::Error) {
        self.failed.lock().get_or_insert(error);
    }

    /// Says what is wrong with an entry, whose path is `shown`.
    fn problem(&self, shown: &[u8], what: &str) {
        self.diagnose(&format!("{}: {what}", quoted(shown)));
    }

    fn diagnose(&self, text: &str) {
        (self.sink.options.diagnostic)(text);
        self.partial.store(true, Ordering::Relaxed);
    }
}

impl Record {
    fn is_directory(&self) -> bool {
        self.attributes.file_type() == FileType::Directory
    }
}

impl Lookup {
    /// Returns what is said of a path that has no entry.
    fn problem(&self) -> &'static str {
        match self {
            Lookup::Entry(_) | Lookup::Missing => "No such file or directory",
            Lookup::NotDirectory => crate::find::messages::NOT_A_DIRECTORY,
            Lookup::Loop => crate::find::messages::TOO_MANY_LINKS,
            Lookup::Outside => "this link leads out of what is searched",
        }
    }
}

impl Sortable for HeldEntry {
    fn key(&self, field: &SortField) -> SortKey<'_> {
        let name = || base_name(&self.escaped);
        field.key(&self.escaped, name, self.depth, || self.record.attributes)
    }

    fn start(&self) -> usize {
        self.tree
    }

    fn shown(&self) -> &str {
        &self.escaped
    }
}
