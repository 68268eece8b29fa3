//! The parallel walk. What is still to be read are the pieces of work that `stealing` shares among
//! threads. A directory keeps its descriptor open as long as anything below it waits to be read or
//! to be handed over.

use crate::batch::Batch;
use crate::directory::{Directory, Moves, Place};
use crate::entry::{Names, look_closer};
use crate::faults::{Counts, Fault, ScanError, Step};
use crate::inode::{Stat, open_dir, stat_at, stat_open};
use crate::options::ScanOptions;
use crate::remaining::{Extent, Left, Remaining};
use crate::root::Root;
use crate::rules::{MountRules, Rules};
use crate::selection::{Known, Selected, Selection};
use crate::stealing::{Stack, share};
use crate::xattrs::XattrReader;
use canopy_model::{
    Attributes, ClassTable, FileType, Rows, Sink, escape, join, join_absolute, unescape,
};
use nix::sys::resource::{Resource, getrlimit};
use rustix::fd::OwnedFd;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Entries after which the listing of a directory is handed over and goes on as another part.
const PART_ROWS: usize = 64 * 1024;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 64 * 1024;

/// Entries that are looked at before a thread asks again whether to stop.
const PAUSE_ASKED_EVERY: usize = 32;

/// Levels of nested directories that are read however few descriptors there are.
const LEVELS_MIN: usize = 64;

/// The part of a source that is walked.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// What to list.
    pub selection: &'a Selection,
    /// What is known of the rest.
    pub known: &'a dyn Known,
    /// Where others list the rest: they have listed what is on the way.
    pub others: Option<&'a Others<'a>>,
}

/// Returns whether a directory, by its path below the root, escaped, and its depth below that, is
/// left to others with all below it.
pub type Others<'a> = dyn Fn(&str, u32) -> bool + Sync + 'a;

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

/// Walks the tree of `root`, or a part of it, one thread a sink, and gives the sinks back. Errors
/// of single entries are counted and told to `on_error`; the error of a sink ends the walk. Blocks.
pub fn scan<S: Sink>(
    (root, part): (Root, Option<Part<'_>>),
    options: &ScanOptions,
    classes: &ClassTable,
    rules: &MountRules,
    counts: &Counts,
    on_error: &(dyn Fn(&ScanError) + Sync),
    (mut sinks, pauses): (Vec<S>, Pauses<'_, S>),
) -> Result<Vec<S>, S::Error> {
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
        levels_max: levels_max(sinks.len()),
        // Of one's own one may look at.
        untouched: by_last_name(
            rules.untouched(options.one_reader, (root.directory.mount, root.directory.dev)),
        ),
        round: AtomicU64::new(root.rounds),
        moves: Moves::default(),
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

/// Returns how many threads can walk with the open files that the system allows, each of them
/// [`LEVELS_MIN`] levels deep at least.
pub fn threads_max() -> usize {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft as usize);
    let of_a_thread = 2 * LEVELS_MIN + Batch::descriptors_max(LEVELS_MIN);
    (descriptors / 2 / of_a_thread).max(1)
}

/// Returns how many levels of nested directories can be read: each thread may have every directory
/// of a path open, and as many whose listings wait.
fn levels_max(threads: usize) -> usize {
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft as usize);
    let of_a_thread = descriptors / 2 / threads.max(1);
    (of_a_thread.saturating_sub(Batch::descriptors_max(0)) / 2).max(LEVELS_MIN)
}

/// What is still to be read.
enum Task<'a> {
    /// The entries of a directory: what was begun, then from where its descriptor stands.
    Read { directory: Arc<Directory>, begun: Begun, selected: Selected<'a> },
    /// A directory in another one.
    Open {
        above: Arc<Directory>,
        name: CString,
        selected: Selected<'a>,
        /// What is selected above, if that was not listed.
        passed: Option<&'a Selection>,
    },
}

/// What of a directory was read.
#[derive(Default)]
struct Begun {
    /// Parts of it that were listed, and their entries.
    parts: u32,
    entries: u64,
    /// Entries of the next part, and subdirectories among them. A part that threads stop in is not
    /// handed over: a listing has the same parts however often they do.
    rows: Rows,
    subdirs: Vec<CString>,
    /// Names behind those.
    names: Names,
}

impl Task<'_> {
    /// Returns how many entries of what remains were listed.
    fn listed_entries(&self) -> u64 {
        match self {
            Task::Read { begun, .. } => begun.entries,
            Task::Open { .. } => 0,
        }
    }

    /// Returns what remains to be listed before this is done.
    fn remaining(&self) -> Vec<Remaining> {
        let (path, selected, has_parts) = match self {
            Task::Read { directory, begun, selected } => {
                (directory.path(), selected, begun.parts > 0)
            }
            Task::Open { above, name, selected, .. } => {
                (join(&above.path(), &escape(name.as_bytes())), selected, false)
            }
        };
        let extent = match selected {
            Selected::Whole if !has_parts => Extent::New,
            Selected::Whole | Selected::Alone => Extent::Alone,
            Selected::IfChanged => Extent::Whole,
            Selected::Part(selection) => {
                let mut remaining = Vec::new();
                selection.each_below(&path, &mut |path, whole| {
                    let extent = if whole { Extent::Whole } else { Extent::Alone };
                    remaining.push(Remaining { path: path.to_owned(), extent });
                });
                return remaining;
            }
        };
        vec![Remaining { path, extent }]
    }
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
    root_dev: u64,
    /// Absolute path of the root, escaped.
    root_path: String,
    levels_max: usize,
    /// Where users have mounted file systems of their own, by the last name of the path.
    untouched: HashMap<Vec<u8>, Vec<Vec<u8>>>,
    /// How often threads have handed over what they read.
    round: AtomicU64,
    moves: Moves,
    /// Entries of the root, once all of it was listed.
    root_entries: AtomicU64,
}

impl Walk<'_> {
    fn report(&self, path: &str, fault: Fault) {
        let error = ScanError { path: unescape(path).into_owned(), fault };
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

    /// Returns what of a directory is listed, now that it is open; `None` for nothing. What is not
    /// as it was known is listed as a whole, since others may see all below it.
    fn settle<'s>(&self, directory: &Directory, selected: Selected<'s>) -> Option<Selected<'s>> {
        let Some(known) = self.known else { return Some(selected) };
        if selected.is_whole() {
            return Some(Selected::Whole);
        }
        let path = directory.path();
        if known.has(&path, directory.dev, directory.attributes.ino, &directory.access) {
            return Some(selected).filter(|selected| !matches!(selected, Selected::IfChanged));
        }
        known.replaces(&path);
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

    /// Returns what is left where these pieces of work are.
    fn left<'t>(&self, tasks: impl Iterator<Item = &'t Task<'t>> + Clone) -> Left {
        let remaining: Vec<Remaining> = tasks.clone().flat_map(Task::remaining).collect();
        let is_root_listed = remaining.iter().all(|directory| !directory.path.is_empty());
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
        known.has_unread(&directory.listing(&path, &none), &mut |escaped| {
            if self.is_untouched(directory, escaped) {
                return None;
            }
            let name = CString::new(unescape(escaped)).ok()?;
            self.wait_for_rate();
            let stat = stat_at(&directory.fd, &name).ok()?;
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
        let path = || unescape(&join(&directory.path(), escaped)).into_owned();
        self.options.excludes.matches(name, path) || self.is_untouched(directory, escaped)
    }

    /// Has nothing stay of what was known at and below a directory, of which nothing is listed.
    fn replace_all(&self, path: &str) {
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
        let path = join_absolute(&self.root_path, &join(&directory.path(), name));
        let path = unescape(&path);
        let is = self.untouched.values().flatten().any(|mount| **mount == *path);
        if is {
            self.rules.note_left_out(path.into_owned());
        }
        is
    }
}

/// What is left of a directory after a part of it.
#[derive(PartialEq, Eq)]
enum Rest {
    Nothing,
    /// Names that were read, and maybe more.
    Names,
    /// What its descriptor stands before.
    Unread,
    /// Names that were read, and what its descriptor stands before, since threads stop.
    Paused,
}

/// Tells which subdirectories of a directory need not be looked into.
struct Unchanged<'a> {
    selection: &'a Selection,
    known: HashMap<String, Attributes>,
}

impl Unchanged<'_> {
    /// Returns whether a directory is as it was when the one above was listed before.
    fn has(&self, name: &str, now: &Attributes) -> bool {
        let place = |of: &Attributes| (of.ino, of.mode, of.uid, of.gid, of.ctime_ns);
        self.selection.child(&unescape(name)).is_none()
            && self.known.get(name).is_some_and(|known| place(known) == place(now))
    }
}

struct Thread<'a, 's, S> {
    walk: &'a Walk<'s>,
    sink: S,
    stack: &'a Stack<'a, Task<'s>>,
    rows: Rows,
    names: Names,
    subdirs: Vec<CString>,
    /// Of a directory whose subdirectories are walked only where they have changed.
    unchanged: Option<Unchanged<'s>>,
    buffer: Vec<MaybeUninit<u8>>,
    xattrs: XattrReader,
    batch: Batch,
}

impl<'a, 's, S: Sink> Thread<'a, 's, S> {
    fn new(walk: &'a Walk<'s>, sink: S, stack: &'a Stack<'a, Task<'s>>) -> Self {
        Thread {
            walk,
            sink,
            stack,
            rows: Rows::default(),
            names: Names::default(),
            subdirs: Vec::new(),
            unchanged: None,
            buffer: vec![MaybeUninit::uninit(); DIRENT_BYTES],
            xattrs: XattrReader::default(),
            batch: Batch::default(),
        }
    }

    fn run(mut self) -> Result<S, S::Error> {
        let stack = self.stack;
        let mut outcome = Ok(());
        while outcome.is_ok() {
            if self.walk.is_paused() {
                stack.stop();
            }
            // While others work, what was read need not wait.
            let mut handed_over = Ok(());
            let Some(task) = stack.take(|| handed_over = self.hand_over()) else {
                outcome = handed_over;
                if outcome.is_ok() && self.walk.is_paused() {
                    outcome = self.hand_over();
                }
                break;
            };
            outcome = handed_over.and_then(|()| match task {
                Task::Read { directory, begun, selected } => self.read(directory, begun, selected),
                Task::Open { above, name, selected, .. }
                    if self.is_left(&above, &name, selected) =>
                {
                    Ok(())
                }
                Task::Open { above, name, selected, passed } => {
                    let opened = self.open(above.clone(), name, passed);
                    let settled = opened.and_then(|directory| {
                        let settled = self.walk.settle(&directory, selected)?;
                        // One that is new, or another, has another row.
                        if !selected.is_whole() && settled.is_whole() {
                            self.list_passed(above, passed);
                        }
                        Some((directory, settled))
                    });
                    match settled {
                        Some((directory, selected)) => {
                            self.read(directory, Begun::default(), selected)
                        }
                        None => Ok(()),
                    }
                }
            });
        }
        if outcome.is_err() {
            stack.stop();
        }
        outcome.map(|()| self.sink)
    }

    /// Returns whether a directory in another one is left to others.
    fn is_left(&self, above: &Directory, name: &CString, selected: Selected<'s>) -> bool {
        let Some(others) = self.walk.others else { return false };
        let path = || join(&above.path(), &escape(name.as_bytes()));
        matches!(selected, Selected::Whole) && others(&path(), above.depth + 1)
    }

    /// Reads a directory, of which some may have been read, and puts its subdirectories on the
    /// stack. Of a large one it reads one part, and what is in that is read before the next. One
    /// that is only on the way to others is not read.
    fn read(
        &mut self,
        directory: Arc<Directory>,
        begun: Begun,
        selected: Selected<'s>,
    ) -> Result<(), S::Error> {
        self.unchanged = None;
        if let Selected::Part(selection) = selected {
            if !selection.is_listed() {
                self.pass(&directory, selection);
                return Ok(());
            }
            let known = self.walk.known.map(|known| known.subdirectories(&directory.path()));
            self.unchanged = Some(Unchanged { selection, known: known.unwrap_or_default() });
        }
        if self.is_pointless(&directory) {
            return Ok(());
        }
        self.subdirs.clear();
        if begun.parts == 0
            && begun.rows.is_empty()
            && matches!(selected, Selected::Whole)
            && self.walk.is_unread(&directory, &mut self.subdirs)
        {
            self.put_subdirs(&directory, selected);
            self.batch.put_unread(&directory);
            return if self.batch.is_full() { self.hand_over() } else { Ok(()) };
        }
        let Begun { mut parts, entries: mut listed, rows, subdirs, names } = begun;
        self.subdirs.clear();
        self.rows.clear();
        self.names.clear();
        if !(rows.is_empty() && names.is_empty()) {
            (self.rows, self.subdirs, self.names) = (rows, subdirs, names);
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(&directory.fd, &mut buffer);
        let mut outcome;
        let rest = loop {
            let rest = self.fill(&directory, &mut entries);
            outcome = Ok(());
            let is_part = match rest {
                Rest::Paused => false,
                Rest::Nothing => parts == 0 || !self.rows.is_empty(),
                Rest::Names | Rest::Unread => !self.rows.is_empty(),
            };
            if is_part {
                let entries = self.rows.len() as u64;
                outcome = self.keep(&directory, parts);
                parts += 1;
                listed += entries;
            }
            if rest != Rest::Names || outcome.is_err() {
                break rest;
            }
        };
        self.buffer = buffer;
        outcome?;
        match rest {
            Rest::Unread | Rest::Paused => {
                let (rows, names) =
                    (std::mem::take(&mut self.rows), std::mem::take(&mut self.names));
                // Below a directory of which nothing is listed, nothing is either.
                let subdirs = match parts {
                    0 => std::mem::take(&mut self.subdirs),
                    _ => Vec::new(),
                };
                let begun = Begun { parts, entries: listed, rows, subdirs, names };
                self.stack.put(Task::Read { directory: directory.clone(), begun, selected });
            }
            _ => {
                let counts = self.walk.counts;
                counts.directories.fetch_add(1, Ordering::Relaxed);
                counts.unmapped.fetch_add(directory.is_of_unmapped().into(), Ordering::Relaxed);
                if directory.depth == 0 {
                    self.walk.root_entries.store(listed, Ordering::Relaxed);
                }
            }
        }
        self.put_subdirs(&directory, selected);
        Ok(())
    }

    /// Returns whether nothing that is read below a directory would be kept, since it was moved.
    fn is_pointless(&self, directory: &Directory) -> bool {
        self.walk.moves.any() && directory.is_gone()
    }

    /// Goes on to what is selected below a directory, which is not read.
    fn pass(&self, directory: &Arc<Directory>, selection: &'s Selection) {
        for (name, child) in selection.take_on() {
            let Ok(name) = CString::new(name.as_slice()) else { continue };
            self.stack.put(Task::Open {
                above: directory.clone(),
                name,
                selected: Selected::Part(child),
                passed: Some(selection),
            });
        }
    }

    /// Opens a directory. `None` if its contents are left out or cannot be read. If there is none
    /// any more in a directory that was `passed`, that is read instead.
    fn open(
        &self,
        above: Arc<Directory>,
        name: CString,
        passed: Option<&'s Selection>,
    ) -> Option<Arc<Directory>> {
        let walk = self.walk;
        let escaped: Box<str> = escape(name.as_bytes()).into();
        let path = || join(&above.path(), &escaped);
        if self.is_pointless(&above) {
            return None;
        }
        // Of what is passed, nobody has looked at the names.
        if passed.is_some() && walk.leaves_out_name(&above, name.as_bytes(), &escaped) {
            self.list_passed(above, passed);
            return None;
        }
        if above.path_bytes_of(&escaped) > walk.options.path_bytes_max
            || above.depth as usize >= walk.levels_max
        {
            walk.report(&path(), Fault::LongPath);
            return None;
        }
        let opened = open_dir(&above.fd, &name).and_then(|fd| Ok((stat_open(&fd)?, fd)));
        let (stat, fd): (Stat, OwnedFd) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
                if passed.is_some() && walk.others.is_none() =>
            {
                self.list_passed(above, passed);
                return None;
            }
            Err(errno) => {
                walk.report(&path(), Fault::Failed(Step::List, errno));
                return None;
            }
        };
        if walk.moves.are_too_many(stat.dev, stat.attributes.ino) {
            walk.report(&path(), Fault::Moved);
            return None;
        }
        if passed.is_some() && walk.ends_at(&above, &stat) {
            walk.replace_all(&path());
            return None;
        }
        let rules = if (stat.mount, stat.dev) == (above.mount, above.dev) {
            above.rules()
        } else {
            walk.rules.of(&fd, stat.mount, stat.dev)
        };
        let absolute = || join_absolute(&walk.root_path, &path());
        let approach = walk.classes.below(&above.access, absolute);
        let place = Place::Below(above, escaped);
        let directory = Directory::new(place, fd, &stat, rules, walk.classes, &approach);
        if walk.is_left_out(&directory) {
            walk.replace_all(&directory.path());
            return None;
        }
        Some(directory)
    }

    /// Reads a directory that was passed after all, since what was selected in it is not there.
    fn list_passed(&self, directory: Arc<Directory>, passed: Option<&'s Selection>) {
        if self.walk.others.is_none()
            && let Some(selection) = passed.filter(|selection| selection.list_too())
        {
            let (selected, begun) = (Selected::Part(selection), Begun::default());
            self.stack.put(Task::Read { directory, begun, selected });
        }
    }

    /// Reads entries into `rows`, as many as a part may have.
    fn fill(&mut self, directory: &Directory, entries: &mut RawDir<'_, &OwnedFd>) -> Rest {
        let mut more = true;
        loop {
            if self.walk.is_paused() {
                return Rest::Paused;
            }
            if self.names.is_empty() {
                if !more {
                    return Rest::Nothing;
                }
                if self.rows.len() >= PART_ROWS {
                    return Rest::Unread;
                }
                more = self.read_names(directory, entries);
            } else if self.rows.bytes() >= self.walk.options.part_bytes {
                return Rest::Names;
            }
            self.look(directory);
        }
    }

    /// Reads the names of one system call. Returns whether there may be more.
    fn read_names(&mut self, directory: &Directory, entries: &mut RawDir<'_, &OwnedFd>) -> bool {
        self.names.clear();
        loop {
            match entries.next() {
                Some(Ok(entry)) => {
                    let name = entry.file_name();
                    if !matches!(name.to_bytes(), b"." | b"..") {
                        self.names.push(name);
                    }
                }
                Some(Err(Errno::INTR)) => continue,
                Some(Err(errno)) => {
                    self.walk.counts.partial.fetch_add(1, Ordering::Relaxed);
                    self.walk.report(&directory.path(), Fault::Failed(Step::List, errno));
                    return false;
                }
                None => return false,
            }
            if entries.is_buffer_empty() {
                return true;
            }
        }
    }

    /// Looks at the inodes of the names that were read, as many as a part may have.
    fn look(&mut self, directory: &Directory) {
        let walk = self.walk;
        let fail = |path: &str, step, errno| walk.report(path, Fault::Failed(step, errno));
        let mut with_xattrs = !walk.options.no_xattrs && !self.names.is_empty();
        if with_xattrs && let Err(errno) = self.xattrs.enter(&directory.fd) {
            fail(&directory.path(), Step::Xattrs, errno);
            with_xattrs = false;
        }
        let asks_often = walk.options.rate_limit.is_some();
        let mut looked_at: usize = 0;
        let mut told: usize = 0;
        let mut tell = |looked_at: usize| {
            walk.counts.looked_at.fetch_add((looked_at - told) as u64, Ordering::Relaxed);
            told = looked_at;
        };
        while self.rows.bytes() < walk.options.part_bytes {
            looked_at += 1;
            let is_asked = asks_often || looked_at.is_multiple_of(PAUSE_ASKED_EVERY);
            if is_asked {
                tell(looked_at);
                if walk.is_paused() {
                    break;
                }
            }
            let Some(name) = self.names.take() else { break };
            let bytes = name.to_bytes();
            let escaped = escape(bytes);
            let path = || join(&directory.path(), &escaped);
            if walk.leaves_out_name(directory, bytes, &escaped) {
                continue;
            }
            walk.wait_for_rate();
            let stat = match stat_at(&directory.fd, name) {
                Ok(stat) => stat,
                Err(errno) => {
                    fail(&path(), Step::Look, errno);
                    continue;
                }
            };
            let xattrs = with_xattrs.then_some(&mut self.xattrs);
            let failed = |step, errno| fail(&path(), step, errno);
            let Some(entry) = look_closer(directory, name, stat, xattrs, failed) else {
                continue;
            };
            let attributes = entry.stat.attributes;
            let target =
                entry.target.as_ref().map_or("".into(), |target| escape(target.to_bytes()));
            self.rows.push(&escaped, attributes, &target);
            if attributes.file_type() == FileType::Directory
                && !walk.ends_at(directory, &entry.stat)
                && !self.unchanged.as_ref().is_some_and(|known| known.has(&escaped, &attributes))
            {
                self.subdirs.push(name.to_owned());
            }
            if entry.has_xattrs {
                let rows = &mut self.rows;
                let listing = directory.access.listing;
                let rules = walk.rules_of_values(directory, &entry.stat);
                self.xattrs.found(&attributes, rules, listing, walk.classes, |xattr| {
                    rows.push_xattr(xattr);
                });
            }
        }
        tell(looked_at);
    }

    /// Keeps the listing in `rows` until the directories above are looked at again.
    fn keep(&mut self, directory: &Arc<Directory>, part: u32) -> Result<(), S::Error> {
        self.walk.counts.entries.fetch_add(self.rows.len() as u64, Ordering::Relaxed);
        self.batch.put(directory, part, &mut self.rows);
        if self.batch.is_full() { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), S::Error> {
        let walk = self.walk;
        let round = (!walk.options.one_reader)
            .then(|| (walk.round.fetch_add(1, Ordering::SeqCst) + 1, &walk.moves));
        let changed = |path: &str, fault| walk.report(path, fault);
        let unread = |directory: Arc<Directory>, stays: bool| match walk.known.filter(|_| stays) {
            Some(known) => {
                let entries = known.keeps(&directory.listing(&directory.path(), &Rows::default()));
                walk.counts.looked_at.fetch_add(entries, Ordering::Relaxed);
                walk.counts.entries.fetch_add(entries, Ordering::Relaxed);
                walk.counts.directories.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                let (selected, begun) = (Selected::Alone, Begun::default());
                self.stack.put(Task::Read { directory, begun, selected });
            }
        };
        self.batch.hand_over(&mut self.sink, walk.classes, round, changed, unread)
    }

    /// Puts the subdirectories on the stack so that they are read in the order of their names.
    fn put_subdirs(&mut self, directory: &Arc<Directory>, selected: Selected<'s>) {
        if matches!(selected, Selected::Alone) {
            return;
        }
        self.subdirs.sort_unstable_by(|a, b| b.cmp(a));
        for name in self.subdirs.drain(..) {
            let selected = match selected {
                Selected::Part(selection) => match selection.child(name.as_bytes()) {
                    Some(_) if selection.is_passed() => continue,
                    Some(child) => Selected::Part(child),
                    None => Selected::IfChanged,
                },
                other => other,
            };
            self.stack.put(Task::Open { above: directory.clone(), name, selected, passed: None });
        }
    }
}
