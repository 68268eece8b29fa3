//! Work of one thread of the walk: opens directories, reads them, hands their listings over.

use super::doubts::{OpenDirectory, ReadName, enter, fail, is_closed, read_more};
use super::task::{Begun, Task};
use super::{Walk, doubts};
use crate::batch::Batch;
use crate::directory::{Directory, Known, OpenAt, Seen};
use crate::entry::Names;
use crate::faults::{Fault, Step};
use crate::inode::{open_dir, stat_at};
use crate::moment::Moment;
use crate::selection::{Selected, Selection};
use crate::stealing::Stack;
use crate::xattrs::XattrReader;
use canopy_model::{Attributes, FileType, Rows, Sink, SourcePath, escape, unescape};
use rustix::fd::OwnedFd;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Entries after which the listing of a directory is handed over and goes on as another part.
const PART_ROWS: usize = 64 * 1024;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 64 * 1024;

/// Entries that are looked at before a thread asks again whether to stop.
const PAUSE_ASKED_EVERY: usize = 32;

/// The rest of a directory after a part of it.
#[derive(PartialEq, Eq)]
enum Rest {
    Nothing,
    /// Names that were read, and maybe more.
    Names,
    /// Entries from the position of its descriptor on.
    Unread,
    /// Names that were read, and entries from the position of its descriptor on, since threads
    /// stop.
    Paused,
    /// Names alone, since the directory may be read but not searched.
    Closed,
}

/// The result of looking at the names that were read.
#[derive(PartialEq, Eq)]
enum Found {
    Entries,
    /// Nothing: the directory may not be searched.
    Closed,
}

/// Finds the subdirectories of a directory that need not be looked into.
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

/// State of one thread of the walk.
pub(super) struct Thread<'a, 's, S> {
    walk: &'a Walk<'s>,
    sink: S,
    stack: &'a Stack<'a, Task<'s>>,
    rows: Rows,
    names: Names,
    subdirs: Vec<CString>,
    /// The directory whose subdirectories are walked only where they have changed, if any.
    unchanged: Option<Unchanged<'s>>,
    buffer: Vec<MaybeUninit<u8>>,
    xattrs: XattrReader,
    batch: Batch,
    /// A moment before the entries in `rows` were read, at which all on the way was as noted.
    since: Moment,
}

impl<'a, 's, S: Sink> Thread<'a, 's, S> {
    pub(super) fn new(walk: &'a Walk<'s>, sink: S, stack: &'a Stack<'a, Task<'s>>) -> Self {
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
            since: Moment::NEVER,
        }
    }

    pub(super) fn run(mut self) -> Result<S, S::Error> {
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
            outcome = handed_over.and_then(|()| self.work(task));
        }
        if outcome.is_err() {
            stack.stop();
        }
        outcome.map(|()| self.sink)
    }

    /// Reads a directory, after opening it if it is not open.
    fn work(&mut self, task: Task<'s>) -> Result<(), S::Error> {
        let (above, name, selected, passed) = match task {
            Task::Read { directory, begun, selected } => {
                return self.read(directory, begun, selected);
            }
            Task::Open { above, name, selected, passed } => (above, name, selected, passed),
        };
        if self.is_left(&above, &name, selected) {
            return Ok(());
        }
        self.make_room(&above)?;
        let Some(directory) = self.open(above.clone(), name, passed) else { return Ok(()) };
        let Some(settled) = self.walk.settle(&directory, selected) else { return Ok(()) };
        // One that is new, or another, has another row.
        if !selected.is_whole() && settled.is_whole() {
            self.list_passed(above, passed);
        }
        self.read(directory, Begun::default(), settled)
    }

    /// Closes directories until another one may be opened in this.
    fn make_room(&mut self, above: &Directory) -> Result<(), S::Error> {
        let shared = above.handle.shared();
        if shared.has_too_many_open() {
            above.close_above();
        }
        if shared.has_too_many_open() { self.hand_over() } else { Ok(()) }
    }

    /// Returns whether a directory in another one is left to others.
    fn is_left(&self, above: &Directory, name: &CString, selected: Selected<'s>) -> bool {
        let Some(others) = self.walk.others else { return false };
        let path = || above.path_of(&escape(name.as_bytes()));
        matches!(selected, Selected::Whole) && others(path().as_path(), above.depth + 1)
    }

    /// Reads a directory, of which some may have been read, and puts its subdirectories on the
    /// stack. It reads one part of a large directory, and the subtrees in that part before the
    /// next. It does not read a directory that is only on the way to others.
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
            let known =
                self.walk.known.map(|known| known.subdirectories(directory.path().as_path()));
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
        let Begun { mut parts, entries: mut listed, rows, subdirs, since, names } = begun;
        self.subdirs.clear();
        self.rows.clear();
        self.names.clear();
        self.since = if rows.is_empty() { directory.moment() } else { since };
        if !(rows.is_empty() && names.is_empty()) {
            (self.rows, self.subdirs, self.names) = (rows, subdirs, names);
        }
        let rest = self.read_parts(&directory, &mut parts, &mut listed)?;
        directory.handle.set_midway(matches!(rest, Rest::Unread | Rest::Paused));
        match rest {
            Rest::Unread | Rest::Paused => {
                let (rows, names) =
                    (std::mem::take(&mut self.rows), std::mem::take(&mut self.names));
                // Below a directory of which nothing is listed, nothing is either.
                let subdirs = match parts {
                    0 => std::mem::take(&mut self.subdirs),
                    _ => Vec::new(),
                };
                let since = self.since;
                let begun = Begun { parts, entries: listed, rows, subdirs, since, names };
                self.stack.put(Task::Read { directory: directory.clone(), begun, selected });
            }
            Rest::Closed => {
                let lacks_some = u64::from(parts > 0);
                self.walk.counts.partial.fetch_add(lacks_some, Ordering::Relaxed);
                let fault = Fault::Failed(Step::List, Errno::ACCESS);
                self.walk.report(directory.path().as_path(), fault);
            }
            Rest::Nothing | Rest::Names => {
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

    /// Reads a directory from where its descriptor stands, up to what is to wait. Counts the parts
    /// of its listing, and their entries.
    fn read_parts(
        &mut self,
        directory: &Arc<Directory>,
        parts: &mut u32,
        listed: &mut u64,
    ) -> Result<Rest, S::Error> {
        let Ok(fd) = directory.fd() else {
            self.walk.report(directory.path().as_path(), Fault::Moved);
            return Ok(Rest::Nothing);
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut entries = RawDir::new(&*fd, &mut buffer);
        let outcome = loop {
            let rest = self.fill(OpenDirectory { directory, fd: &fd }, &mut entries);
            let is_part = match rest {
                Rest::Paused => false,
                // Names without attributes are not kept: the directory is one that cannot be listed.
                Rest::Closed => false,
                Rest::Nothing => *parts == 0 || !self.rows.is_empty(),
                Rest::Names | Rest::Unread => !self.rows.is_empty(),
            };
            let mut kept = Ok(());
            if is_part {
                *listed += self.rows.len() as u64;
                kept = self.keep(directory, *parts);
                *parts += 1;
            }
            // A directory that is read in the midst must stay open.
            let goes_on = rest == Rest::Names
                || rest == Rest::Unread && directory.handle.shared().has_many_open();
            if !goes_on || kept.is_err() {
                break kept.map(|()| rest);
            }
        };
        self.buffer = buffer;
        outcome
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
        let path = || above.path_of(&escaped);
        if self.is_pointless(&above) {
            return None;
        }
        // The names in passed directories have not been checked.
        if passed.is_some() && walk.leaves_out_name(&above, name.as_bytes(), &escaped) {
            self.list_passed(above, passed);
            return None;
        }
        if above.path_bytes_of(&escaped) > walk.options.path_bytes_max {
            walk.report(path().as_path(), Fault::LongPath);
            return None;
        }
        let since = above.moment();
        let opened = above.fd().and_then(|above| open_dir(above, &name));
        let opened = opened.and_then(|fd| Ok((Seen::of(&fd)?, fd)));
        let (seen, fd): (Seen, OwnedFd) = match opened {
            Ok(opened) => opened,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
                if passed.is_some() && walk.others.is_none() =>
            {
                self.list_passed(above, passed);
                return None;
            }
            Err(errno) => {
                walk.report(path().as_path(), Fault::Failed(Step::List, errno));
                return None;
            }
        };
        let stat = seen.stat;
        if walk.moves.are_too_many(stat.dev, stat.attributes.ino) {
            walk.report(path().as_path(), Fault::Moved);
            return None;
        }
        if passed.is_some() && walk.ends_at(&above, &stat) {
            walk.replace_all(path().as_path());
            return None;
        }
        let (rules, lag_ns) = if (stat.mount, stat.dev) == (above.mount, above.dev) {
            (above.rules(), above.lag_ns())
        } else {
            (walk.rules.of(&fd, stat.mount, stat.dev), walk.rules.lag_ns(stat.mount, stat.dev))
        };
        let absolute = || path().as_path().absolute(&walk.root_path);
        let approach = &walk.classes.below(&above.access, absolute);
        let is_shown = !walk.options.one_reader;
        let known = Known { rules, lag_ns, approach, since, is_shown };
        let shared = above.handle.shared().clone();
        let place = OpenAt::Below(above, escaped);
        let directory = Directory::new(place, fd, seen, &known, walk.classes, &shared);
        if walk.is_left_out(&directory) {
            walk.replace_all(directory.path().as_path());
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
    fn fill(&mut self, at: OpenDirectory<'_>, entries: &mut RawDir<'_, &OwnedFd>) -> Rest {
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
                more = self.read_names(at.directory, entries);
            } else if self.rows.bytes() >= self.walk.options.part_bytes {
                return Rest::Names;
            }
            if self.look(at) == Found::Closed {
                return Rest::Closed;
            }
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
                    self.walk.report(directory.path().as_path(), Fault::Failed(Step::List, errno));
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
    fn look(&mut self, place: OpenDirectory<'_>) -> Found {
        let OpenDirectory { directory, fd } = place;
        let walk = self.walk;
        let mut xattrs = match self.names.is_empty() {
            true => None,
            false => enter(walk, directory, fd, &mut self.xattrs),
        };
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
            let escaped = escape(name.to_bytes());
            if walk.leaves_out_name(directory, name.to_bytes(), &escaped) {
                continue;
            }
            walk.wait_for_rate();
            let xattrs = xattrs.as_deref_mut();
            let stat = match stat_at(fd, name) {
                Ok(stat) => stat,
                Err(Errno::ACCESS) if self.rows.is_empty() && is_closed(fd) => {
                    self.names.clear();
                    return Found::Closed;
                }
                Err(errno) => {
                    fail(walk, directory, &escaped, Step::Look, errno);
                    continue;
                }
            };
            let read_name = ReadName { name, escaped: &escaped };
            let read = read_more(walk, place, read_name, stat, xattrs, &mut self.rows);
            let Some(entry) = read else { continue };
            let is_known = |known: &Unchanged<'_>| known.has(&escaped, &entry.attributes);
            if entry.attributes.file_type() == FileType::Directory
                && !walk.ends_at(directory, &entry)
                && !self.unchanged.as_ref().is_some_and(is_known)
            {
                self.subdirs.push(name.to_owned());
            }
        }
        tell(looked_at);
        Found::Entries
    }

    /// Keeps the listing in `rows` until the directories above are looked at again.
    fn keep(&mut self, directory: &Arc<Directory>, part: u32) -> Result<(), S::Error> {
        self.walk.counts.entries.fetch_add(self.rows.len() as u64, Ordering::Relaxed);
        self.batch.put(directory, part, self.since, &mut self.rows);
        self.since = directory.moment();
        if self.batch.is_full() { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), S::Error> {
        let walk = self.walk;
        let round = (!walk.options.one_reader).then(|| (walk.next_round(), &walk.moves));
        let changed = |path: SourcePath<'_>, fault| walk.report(path, fault);
        let unread = |directory: Arc<Directory>, stays: bool| match walk.known.filter(|_| stays) {
            Some(known) => {
                let (path, none) = (directory.path(), Rows::default());
                let entries = known.keeps(&directory.listing(path.as_path(), &none));
                walk.counts.looked_at.fetch_add(entries, Ordering::Relaxed);
                walk.counts.entries.fetch_add(entries, Ordering::Relaxed);
                walk.counts.directories.fetch_add(1, Ordering::Relaxed);
            }
            None => {
                let (selected, begun) = (Selected::Alone, Begun::default());
                self.stack.put(Task::Read { directory, begun, selected });
            }
        };
        let xattrs = &mut self.xattrs;
        let check = |directory: &Directory, since, rows, narrowing| {
            doubts::check(walk, xattrs, directory, since, rows, narrowing)
        };
        self.batch.hand_over(&mut self.sink, walk.classes, round, changed, unread, check)
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
