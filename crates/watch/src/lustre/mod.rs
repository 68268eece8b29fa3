//! Changes that the change logs of a Lustre file system tell of; `docs/watch.md` says how to set it
//! up.
//!
//! After "Efficient Metadata Indexing for HPC Storage Systems" (Brindexer, CCGrid 2020), algorithm 2:
//! a record names files by FIDs, of which the directories become suspects, and paths of FIDs are
//! kept. Each metadata target has a log, and each log a thread of its own.
//!
//! Why nothing is missed, besides what `intake` says: a path is asked for after the record was read,
//! so it is as new, or newer. A path that is kept is true until something is moved. That is told by
//! a record that was not read yet, and this makes all at the new place suspect; from then on the path
//! is no longer kept. The logs share what is kept, since what one tells of another may have been
//! moved by. A FID that leads nowhere is of a file that is gone, and whoever removed it or moved it
//! here has a record of its own.
//!
//! A record is cleared from its log once the generation that has what it told is durable, and so
//! what was not cleared is read again by whoever starts anew.

mod mount;
mod order;
mod record;

pub use mount::{FileLocation, Lustre, Mount, Records};
pub use record::Fid;

use crate::error::Result;
use crate::events::{EventFeed, Form, Lines, wait};
use crate::handles::Unresolved;
use crate::intake::{EventCounts, Intake, with_source};
use crate::journal::Position;
use crate::recent::Recent;
use crate::suspects::Suspect;
use crate::territory::{ChangeEvent, Territory, What};
use nix::poll::PollTimeout;
use order::Order;
use parking_lot::Mutex;
use record::{Kind, Record, looks_like_record};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How logs are followed.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How many FIDs with their paths are kept at most.
    pub paths_kept: usize,
    /// How often a log is asked for more.
    pub asked_every: Duration,
}

impl Default for Options {
    /// The paper did best with 5000 paths, of directories alone; here files are kept, too.
    fn default() -> Self {
        Options { paths_kept: 1 << 18, asked_every: Duration::from_secs(1) }
    }
}

const CHUNK_BYTES: usize = 256 << 10;

/// How long to wait before a file that fails is opened again.
const RETRIED_EVERY_MS: u16 = 10_000;

/// Longest line of a record; its names and its job are shorter.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Where records of a metadata target come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Log {
    /// Its log, and who clears it, if anybody does.
    Target {
        /// Name of the target, such as `scratch-MDT0000`.
        name: String,
        /// The reader that was registered, such as `cl1`.
        user: Option<String>,
    },
    /// A file or a FIFO with what `lfs changelog` prints, or with `-` standard input.
    File(PathBuf),
}

/// The change logs of a file system.
pub struct ChangeLogs {
    paths: Arc<Paths>,
    asked_every: Duration,
    targets: Vec<Target>,
    files: Vec<(PathBuf, EventFeed)>,
}

/// A log that is asked for records.
struct Target {
    number: usize,
    name: String,
    user: Option<String>,
    reader: Reader,
    /// The first record that is still there, as far as is known.
    begins: Option<u64>,
    /// Lines from that of the last record on, which come again when the log is read again.
    last_lines: Vec<u8>,
}

impl ChangeLogs {
    /// Begins to read logs. The second value says whether the index has everything that is not told
    /// from now on, since each log goes on where it was read to.
    pub fn begin(
        lustre: Box<dyn Lustre>,
        logs: &[Log],
        options: Options,
        intake: &Intake,
    ) -> Result<(Self, bool)> {
        let paths = Arc::new(Paths::new(lustre, options.paths_kept));
        let names = logs.iter().filter_map(|log| match log {
            Log::Target { name, .. } => Some(identity(name, intake.territory())),
            Log::File(_) => None,
        });
        let mut noted = intake.follow_logs(names.collect()).into_iter();
        let (targets, files) = (Vec::new(), Vec::new());
        let asked_every = options.asked_every;
        let mut all = ChangeLogs { paths: paths.clone(), asked_every, targets, files };
        let mut goes_on = true;
        for log in logs {
            match log {
                Log::Target { name, user } => {
                    let before = noted.next().flatten();
                    goes_on &= before.is_some();
                    let reader = Reader::new(paths.clone(), before);
                    let (name, user, number) = (name.clone(), user.clone(), all.targets.len());
                    let (begins, last_lines) = (None, Vec::new());
                    all.targets.push(Target { number, name, user, reader, begins, last_lines });
                }
                Log::File(path) => {
                    let position = intake.position().filter(|_| logs.len() == 1);
                    let (feed, has_more) = open(path, position, &paths)?;
                    goes_on &= has_more;
                    all.files.push((path.clone(), feed));
                }
            }
        }
        Ok((all, goes_on))
    }

    /// Tells the intake of what is read until that is stopped, or all are files and have ended. Each
    /// line that cannot be read is given to `on_bad_line`, and what fails to `on_trouble`, with
    /// `None` once it no longer does.
    pub fn run(
        self,
        intake: &Intake,
        on_bad_line: &(dyn Fn(String) + Sync),
        on_trouble: &(dyn Fn(Option<String>) + Sync),
    ) -> Result<()> {
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for (path, feed) in self.files {
                let paths = &self.paths;
                threads.push(
                    scope.spawn(move || {
                        read_file(&path, feed, paths, intake, on_bad_line, on_trouble)
                    }),
                );
            }
            let pause = PollTimeout::try_from(self.asked_every).unwrap_or(PollTimeout::MAX);
            for mut target in self.targets {
                let lustre = &*self.paths.lustre;
                threads.push(
                    scope.spawn(move || target.run(lustre, pause, intake, on_bad_line, on_trouble)),
                );
            }
            let ended = threads.into_iter().map(|thread| match thread.join() {
                Ok(ended) => ended,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            ended.fold(Ok(()), Result::and)
        })
    }
}

/// Opens a file of records.
fn open(path: &Path, at: Option<Position>, paths: &Arc<Paths>) -> Result<(EventFeed, bool)> {
    EventFeed::open_as(path, at, Box::new(Reader::new(paths.clone(), None)))
}

/// Reads a file of records to its end. After a failure, all is suspect, since records may have been
/// missed while the file could not be read.
fn read_file(
    path: &Path,
    feed: EventFeed,
    paths: &Arc<Paths>,
    intake: &Intake,
    on_bad_line: &dyn Fn(String),
    on_trouble: &dyn Fn(Option<String>),
) -> Result<()> {
    let mut opened = Ok(feed);
    loop {
        let Err(error) = opened.and_then(|feed| feed.run(intake, on_bad_line)) else {
            return Ok(());
        };
        on_trouble(Some(with_source(&error)));
        wait(intake, None, RETRIED_EVERY_MS.into())?;
        if intake.is_stopped() {
            return Ok(());
        }
        opened = open(path, None, paths).map(|(feed, _)| feed);
        if opened.is_ok() {
            on_trouble(None);
        }
        intake.suspect_all();
    }
}

/// Returns the key of a log in the journal. It includes the followed trees, since records that were
/// cleared have told other trees nothing.
fn identity(name: &str, territory: &Territory) -> Vec<u8> {
    let (roots, left_out) = territory.trees();
    let parts = [name.as_bytes()].into_iter().chain(roots.iter().map(Vec::as_slice));
    let parts = parts.chain([&b""[..]]).chain(left_out.iter().map(Vec::as_slice));
    Vec::from_iter(parts).join(&0)
}

impl Target {
    fn run(
        &mut self,
        lustre: &dyn Lustre,
        pause: PollTimeout,
        intake: &Intake,
        on_bad_line: &dyn Fn(String),
        on_trouble: &dyn Fn(Option<String>),
    ) -> Result<()> {
        let mut failed = None;
        while !intake.is_stopped() {
            let read = self.read(lustre, intake, on_bad_line);
            let done = read.and_then(|()| self.clear(lustre, intake));
            // Records stay in the log and can be read later; nothing is missed.
            let fails = done.err().map(|error| format!("{}: {}", self.name, with_source(&error)));
            if fails != failed && !intake.is_stopped() {
                on_trouble(fails.clone());
                failed = fails;
            }
            wait(intake, None, pause)?;
        }
        Ok(())
    }

    /// Reads all that the log has by now.
    fn read(
        &mut self,
        lustre: &dyn Lustre,
        intake: &Intake,
        on_bad_line: &dyn Fn(String),
    ) -> io::Result<()> {
        let records = lustre.records(&self.name, self.reader.order.last())?;
        let mut has_records = false;
        let (mut chunk, mut rest) = (vec![0; CHUNK_BYTES], Vec::new());
        loop {
            wait(intake, Some(&records.lines), PollTimeout::NONE).map_err(io::Error::other)?;
            if intake.is_stopped() {
                return Ok(());
            }
            let length = match rustix::io::read(&records.lines, &mut chunk[..]) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if length == 0 {
                break;
            }
            let end =
                chunk[..length].iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
            if end > 0 {
                rest.extend_from_slice(&chunk[..end]);
                let lines = std::mem::take(&mut rest);
                self.take_in(&lines, !has_records, intake, on_bad_line);
                has_records = true;
            }
            rest.extend_from_slice(&chunk[end..length]);
            if rest.len() > LINE_BYTES_MAX {
                return Err(io::Error::other("a line without an end"));
            }
        }
        records.finish()?;
        // A line without an end is read again as a whole.
        has_records |= !rest.is_empty();
        if self.reader.order.end(has_records) {
            intake.forget_log(self.number);
            self.begins = None;
            self.reader.paths.forget_all();
            let heard = EventCounts { overflows: 1, ..EventCounts::default() };
            intake.take_in(&intake.territory().all_suspect(), heard);
        }
        Ok(())
    }

    fn take_in(
        &mut self,
        lines: &[u8],
        is_first: bool,
        intake: &Intake,
        on_bad_line: &dyn Fn(String),
    ) {
        // The last record tells nothing new again; it shows that the log is the same.
        let lines = match lines.strip_prefix(&self.last_lines[..]) {
            Some(new) if is_first => new,
            _ => lines,
        };
        let told = Lines { bytes: lines, is_cut: false, on_bad_line };
        let (suspects, heard) = self.reader.take_in(&told, intake);
        intake.take_in(&suspects, heard);
        let order = &self.reader.order;
        intake.take_in_records(self.number, order.settled());
        self.begins = self.begins.or(order.begins());
        match self.reader.last_at {
            Some(at) => self.last_lines = lines[at..].to_vec(),
            None if self.last_lines.len() < LINE_BYTES_MAX => self.last_lines.extend(lines),
            None => self.last_lines.clear(),
        }
    }

    /// Clears what the index has.
    fn clear(&mut self, lustre: &dyn Lustre, intake: &Intake) -> io::Result<()> {
        let Some(durable) = intake.note_log(self.number) else { return Ok(()) };
        // To clear up to 0 would be to clear all.
        if let Some(user) = &self.user
            && self.begins.is_some_and(|begins| durable >= begins.max(1))
        {
            lustre.clear(&self.name, user, durable)?;
            self.begins = Some(durable + 1);
        }
        Ok(())
    }
}

/// From FIDs to paths, for all logs of a file system.
struct Paths {
    lustre: Box<dyn Lustre>,
    kept: Mutex<PathCache>,
}

struct PathCache {
    places: Recent<Fid, Arc<FileLocation>>,
    /// How often something was forgotten: what was asked for before is not kept.
    forgotten: u64,
}

impl Paths {
    fn new(lustre: Box<dyn Lustre>, len_max: usize) -> Self {
        let places = Recent::new(len_max, |place: &Arc<FileLocation>| place.path.len());
        Paths { lustre, kept: Mutex::new(PathCache { places, forgotten: 0 }) }
    }

    fn place(
        &self,
        fid: Fid,
        heard: &mut EventCounts,
    ) -> std::result::Result<Arc<FileLocation>, Unresolved> {
        let forgotten = {
            let mut kept = self.kept.lock();
            if let Some(place) = kept.places.get(&fid) {
                heard.cache_hits += 1;
                return Ok(place);
            }
            kept.forgotten
        };
        heard.cache_misses += 1;
        let place = Arc::new(self.lustre.resolve(fid)?);
        let mut kept = self.kept.lock();
        if kept.forgotten == forgotten {
            kept.places.insert(fid, place.clone());
        }
        Ok(place)
    }

    fn forget(&self, fid: Fid) {
        let mut kept = self.kept.lock();
        kept.forgotten += 1;
        kept.places.forget(&fid);
    }

    fn forget_all(&self) {
        let mut kept = self.kept.lock();
        kept.forgotten += 1;
        kept.places.clear();
    }
}

/// Reads records of one log.
struct Reader {
    paths: Arc<Paths>,
    order: Order,
    /// Where the last record in a row begins in the lines that were read last, if it is there.
    last_at: Option<usize>,
    /// Whether the last line was a record, which may have ended within a name.
    is_in_name: bool,
}

impl Reader {
    fn new(paths: Arc<Paths>, before: Option<u64>) -> Self {
        Reader { paths, order: Order::new(before), last_at: None, is_in_name: false }
    }

    /// Reads lines and notes which records they are.
    fn parse<'a>(
        &mut self,
        lines: &'a [u8],
        heard: &mut EventCounts,
        on_bad_line: &dyn Fn(String),
    ) -> Vec<Record<'a>> {
        let mut records = Vec::new();
        self.last_at = None;
        let mut end = 0;
        for line in lines.split(|&byte| byte == b'\n') {
            let begin = end;
            end += line.len() + 1;
            if line.is_empty() || self.is_in_name && !looks_like_record(line) {
                continue;
            }
            match Record::parse(line) {
                Ok(record) => {
                    self.order.record(record.index);
                    if self.order.last() == Some(record.index) {
                        self.last_at = Some(begin);
                    }
                    self.is_in_name = true;
                    records.push(record);
                }
                Err(why) => {
                    self.order.bad_line();
                    heard.bad_lines += 1;
                    on_bad_line(why.to_owned());
                }
            }
        }
        heard.events += records.len() as u64;
        records
    }
}

impl Form for Reader {
    fn take_in(&mut self, lines: &Lines<'_>, intake: &Intake) -> (Vec<Suspect>, EventCounts) {
        let mut heard = EventCounts::default();
        if lines.is_cut {
            self.order.bad_line();
            self.is_in_name = true;
        }
        let records = self.parse(lines.bytes, &mut heard, lines.on_bad_line);
        // Paths looked up below are as new as the last of these records, but cached paths are not.
        records.iter().for_each(|record| self.forget(record));
        let mut telling = Translation {
            paths: &self.paths,
            territory: intake.territory(),
            suspects: Vec::new(),
            links: Vec::new(),
            heard,
            failed: None,
        };
        let mut is_lost = self.order.is_broken();
        for record in &records {
            is_lost |= record.kind == Kind::Mark || !record.is_whole();
            telling.add(record);
        }
        let Translation { mut suspects, links, mut heard, failed, .. } = telling;
        if let Some(errno) = failed {
            intake.note_unresolved(&errno.into());
        }
        if is_lost {
            heard.overflows += 1;
            self.paths.forget_all();
        }
        if is_lost || failed.is_some() {
            suspects = intake.territory().all_suspect();
        }
        intake.take_in_links(&links);
        (suspects, heard)
    }
}

impl Reader {
    /// Forgets what a record makes untrue.
    fn forget(&self, record: &Record<'_>) {
        let fids = record.source.iter().chain(&record.target).chain(&record.doubtful);
        match record.kind {
            Kind::Linked | Kind::Unlinked | Kind::DirectoryRemoved => {
                fids.for_each(|&fid| self.paths.forget(fid));
            }
            Kind::Moved => fids.for_each(|&fid| self.forget_moved(fid)),
            // It may be anything.
            _ => record.doubtful.iter().for_each(|&fid| self.forget_moved(fid)),
        }
    }

    fn forget_moved(&self, fid: Fid) {
        self.paths.forget(fid);
        match self.paths.place(fid, &mut EventCounts::default()) {
            Err(Unresolved::Gone) => {}
            Ok(place) if !place.is_dir => {}
            // All below a directory has another path now.
            Ok(_) | Err(_) => self.paths.forget_all(),
        }
    }
}

/// Suspects collected from records.
struct Translation<'a> {
    paths: &'a Paths,
    territory: &'a Territory,
    suspects: Vec<Suspect>,
    links: Vec<u64>,
    heard: EventCounts,
    /// Why a path could not be told.
    failed: Option<Errno>,
}

impl Translation<'_> {
    fn add(&mut self, record: &Record<'_>) {
        let Record { target, parent, name, source_parent, source_name, .. } = *record;
        match record.kind {
            Kind::Mark | Kind::Nothing => return,
            Kind::Created => self.in_directory(parent, name, What::Appeared),
            Kind::DirectoryCreated => {
                self.in_directory(parent, name, What::Appeared);
                self.is_now(target);
            }
            Kind::Linked => {
                self.in_directory(parent, name, What::Appeared);
                self.is_now(target);
            }
            Kind::Unlinked => {
                self.in_directory(parent, name, What::Vanished);
                if !record.is_last_name() {
                    self.is_now(target);
                }
            }
            Kind::DirectoryRemoved => self.in_directory(parent, name, What::Vanished),
            Kind::Moved => {
                self.in_directory(parent, name, What::Appeared);
                self.in_directory(source_parent, source_name, What::Vanished);
                self.is_now(record.source);
                self.is_now(target);
            }
            Kind::Contents | Kind::Attributes => {
                let what = match record.kind {
                    Kind::Contents => What::Contents,
                    _ => What::Attributes,
                };
                self.changed(target, what);
                if let Some(parent) = parent {
                    self.in_directory(Some(parent), name, What::Contents);
                }
            }
        }
        for &fid in &record.doubtful {
            self.in_directory(Some(fid), b"", What::Contents);
            self.is_now(Some(fid));
        }
    }

    fn place(&mut self, fid: Fid) -> Option<Arc<FileLocation>> {
        match self.paths.place(fid, &mut self.heard) {
            Ok(place) => Some(place),
            Err(Unresolved::Gone) => {
                self.heard.gone += 1;
                None
            }
            Err(Unresolved::Failed(errno)) => {
                self.heard.unresolved += 1;
                self.failed = Some(errno);
                None
            }
        }
    }

    /// Something happened to an entry of a directory, or without a name to any.
    fn in_directory(&mut self, directory: Option<Fid>, name: &[u8], what: What) {
        let Some(place) = directory.and_then(|fid| self.place(fid)) else { return };
        if !place.is_dir {
            return self.entry(&place, What::Attributes);
        }
        self.suspect(&ChangeEvent { directory: &place.path, name, is_dir: false, what });
    }

    /// A file changed, whatever it is.
    fn changed(&mut self, fid: Option<Fid>, what: What) {
        let Some(place) = fid.and_then(|fid| self.place(fid)) else { return };
        let what = if place.is_dir { What::Attributes } else { what };
        self.entry(&place, what);
        self.links.extend(place.linked);
    }

    fn entry(&mut self, place: &FileLocation, what: What) {
        let slash = place.path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        let directory = &place.path[..slash.max(1)];
        let name = &place.path[(slash + 1).min(place.path.len())..];
        self.suspect(&ChangeEvent { directory, name, is_dir: place.is_dir, what });
    }

    /// A file may have come to where it is, with all below it, or have lost a name elsewhere.
    fn is_now(&mut self, fid: Option<Fid>) {
        let Some(place) = fid.and_then(|fid| self.place(fid)) else { return };
        if place.is_dir {
            return self.territory.suspects_in(&place.path, &mut self.suspects);
        }
        self.entry(&place, What::Attributes);
        self.links.extend(place.linked);
    }

    fn suspect(&mut self, change: &ChangeEvent<'_>) {
        if !self.territory.concerns(change.directory) {
            self.heard.elsewhere += 1;
        }
        self.territory.suspects_of(change, &mut self.suspects);
    }
}
