//! A scan that several workers share: `INDEX/workers`, for root alone.
//!
//! A part of the scan is a set of directories with all below them, except the directories that its
//! worker has left to others: those become further parts once this one is done. The first part is
//! the whole source. So the finished parts define which parts there are, and none overlap.
//!
//! ```text
//! workers/
//!   scan-41             the scan, on top of generation 41 (0 for none)
//!   w7/                 worker 7; it goes as a whole once the worker is taken for dead, or ends
//!     alive             its number, and a byte more each time it shows that it lives
//!     journal           what it has made in the index
//!   w5.over/            a worker that has ended, or was taken for dead
//!   claim-ID-0          the first claim of a part: a link to 'alive' of its worker
//!   done-ID             a part that is done: a link to what its worker wrote of it
//!   idle                somebody has nothing to do
//! ```
//!
//! Nothing here needs locks or clocks that agree. A claim and the end of a part are links
//! (link(2)), which one worker alone can make, and a worker ends by a rename of its directory. A
//! worker is taken for dead when `alive` has not grown for some time by the clock of the observer.
//! If such a worker comes back, it works by paths in its directory, which is elsewhere by then. So
//! it notes nothing, makes no file, ends no part and publishes nothing any more.
//!
//! Shards of workers are in the class directories like all unpublished files, under numbers that
//! only workers use. The worker that finds all parts done and gets the last claim publishes them.
//! Once another generation is current, the next writer removes the directory, and all files that
//! its journals name and the generation does not need.
//!
//! - A worker that is asked to share ends its part with the listings it has. If it went on while
//!   others listed pieces of the part, and then died, the part would have to be listed without
//!   those pieces.
//! - Workers write shards where they stay, with one salt and into common class directories. Joining
//!   them adds records to manifests and copies nothing.
//! - Limits of owners are charged again when parts are joined. The publisher lists a part again
//!   that exceeds them.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::journal;
use crate::manifest::{self, ClassManifest, Current, Document, GrantRecord, ScanRecord};
use crate::marker;
use crate::names;
use crate::packed::PackedList;
use crate::retention::Retention;
use crate::safety;
use crate::source_id::SourceId;
use canopy_model::{Device, Generation, SourcePathBuf};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The shared scan: `scan-GENERATION`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SharedScan {
    /// The root, escaped.
    pub root: String,
    /// The device of the root.
    pub dev: Device,
    /// Name of the source, if given.
    pub name: Option<String>,
    /// How it is scanned.
    pub record: ScanRecord,
    /// Depth of directories that become parts of their own.
    pub level: u32,
    /// Limits for the directories of one owner, if given: classes, and names in their grants.
    pub limits: Option<(u64, u64)>,
    /// Older generations that stay, if given.
    pub retention: Option<Retention>,
    /// Further arguments of the scan, in the caller's form.
    pub asked: String,
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: i64,
    /// The generation that is current; 0 for none. This and the following come from the writer.
    pub base: Generation,
    /// The generation in names of files.
    pub generation: Generation,
    /// Makes sealed content differ from all that was sealed before, and names classes.
    pub salt: [u8; 32],
}

impl Document for SharedScan {
    const KIND: &'static str = "workers";
}

/// Result of a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PartOutcome {
    /// Entries that were listed, directories among them.
    pub entries: u64,
    /// Directories that were listed.
    pub directories: u64,
    /// Further counts, in the caller's form.
    pub counts: Vec<u64>,
    /// Faults of entries: path and fault, in the caller's form.
    pub faults: Vec<(Vec<u8>, u8, i32)>,
    /// Number of further faults.
    pub faults_left_out: u64,
    /// Descriptions of other missing parts, for people.
    pub missing: Vec<String>,
    /// Directories that are left to others, by part.
    pub left: Vec<Vec<SourcePathBuf>>,
}

/// A part that is done: `done-ID`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    pub(crate) outcome: PartOutcome,
    /// The number under which the source was begun.
    pub(crate) source: SourceId,
    /// Sources in it whose roots were listed.
    pub(crate) listed: Vec<SourceId>,
    /// Directories that are for their owner and root alone, by owner.
    pub(crate) beyond_limits: BTreeMap<u32, u64>,
    /// How often a class got fewer members than it should.
    pub(crate) folded: u64,
    /// The grants of its classes.
    pub(crate) grants: PackedList<(u32, GrantRecord)>,
    /// Shards that were written, by class.
    pub(crate) classes: Vec<ClassManifest>,
}

impl Document for PartRecord {
    const KIND: &'static str = "part";

    fn is_sound(&self) -> bool {
        self.classes.iter().all(ClassManifest::is_sound)
    }
}

/// A part of a scan: directories with all below them.
#[derive(Clone, Debug)]
pub struct ScanPart {
    /// Its identity.
    id: String,
    /// Their paths.
    pub paths: Vec<SourcePathBuf>,
}

impl ScanPart {
    /// Returns the whole source.
    fn first() -> Self {
        ScanPart { id: "0".to_owned(), paths: vec![SourcePathBuf::root()] }
    }

    /// Returns those that this one has left to others.
    fn further(&self, left: Vec<Vec<SourcePathBuf>>) -> impl Iterator<Item = ScanPart> {
        (0_u64..).zip(left).map(|(number, paths)| {
            let mut hasher = blake3::Hasher::new();
            hasher.update(self.id.as_bytes()).update(&number.to_le_bytes());
            ScanPart { id: hex::encode(&hasher.finalize().as_bytes()[..12]), paths }
        })
    }

    /// Returns whether it is the whole source.
    pub fn is_first(&self) -> bool {
        self.id == "0"
    }

    fn done(&self) -> String {
        format!("done-{}", self.id)
    }
}

/// Next step of a worker.
pub enum Next {
    /// List a part.
    Part(ScanPart),
    /// Publish the listings of all workers.
    Publish,
    /// Wait, since others are working on the remaining parts.
    Wait,
    /// Nothing: the scan was published, or given up.
    Over,
}

/// The last claim: of publishing.
const PUBLICATION: &str = "publication";

/// How many times a worker shows that it lives until one that did not is taken for dead.
const BEATS_MISSED_MAX: u32 = 60;

/// How many times it does before it leaves something to others.
const BEATS_LISTED_MIN: u32 = 5;

/// One of those who share a scan. Others take what it has once it is dropped.
pub struct Worker {
    index: PathBuf,
    scan: SharedScan,
    number: u32,
    beat: Duration,
    heart: Arc<Heartbeat>,
    thread: Option<JoinHandle<()>>,
    /// Parts that are done, by id, with those that they left to others.
    done: HashMap<String, Vec<ScanPart>>,
    /// How large `alive` of others was, and since when, by the name of their directories.
    watched: HashMap<String, (u64, Instant)>,
    /// The next number of a file.
    pub(crate) next_file: AtomicU64,
}

/// State shared with the thread that shows that a worker is alive.
#[derive(Default)]
struct Heartbeat {
    ends: AtomicBool,
    is_lost: AtomicBool,
    /// Whether a part is being listed that others could have something of.
    lists: AtomicBool,
    shares: AtomicBool,
}

impl Worker {
    /// Joins those who share the scan of an index, if there is one; each of them shows once in `beat`
    /// that it lives. Fails if anybody else could change the directory.
    pub fn join(index: &Path, beat: Duration) -> Result<Option<Self>> {
        // All that is made in it is made by its real path, which was checked.
        let Some((index, scan)) = SharedScan::find(index)? else { return Ok(None) };
        let disk = Disk::default();
        let (number, directory) = loop {
            let [a, b, c, d, ..] = marker::random_key(&index)?;
            let number = (u32::from_le_bytes([a, b, c, d]) >> 1).max(1);
            let directory = names::workers(&index).join(format!("w{number}"));
            let mut builder = std::fs::DirBuilder::new();
            std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
            match builder.create(&directory) {
                Ok(()) => break (number, directory),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(Error::io("create directory", &directory)(error)),
            }
        };
        let write = |name: &str, text: &[u8]| -> Result<()> {
            let path = directory.join(name);
            let mut file = disk.create(&path, 0o600)?;
            file.write_all(text).map_err(Error::io("write", &path))?;
            file.finish(true).map(drop)
        };
        write("journal", &journal::encode(&index, scan.generation, &BTreeMap::new()))?;
        write("alive", format!("w{number}\n").as_bytes())?;
        let heart = Arc::new(Heartbeat::default());
        let thread = std::thread::Builder::new().spawn({
            let heart = heart.clone();
            let (alive, idle) = (directory.join("alive"), names::workers(&index).join("idle"));
            move || heart.beats(&alive, &idle, beat)
        });
        Ok(Some(Worker {
            thread: Some(thread.map_err(Error::io("start a thread for", &directory))?),
            index,
            scan,
            number,
            beat,
            heart,
            done: HashMap::new(),
            watched: HashMap::new(),
            next_file: AtomicU64::new(u64::from(number) << 32),
        }))
    }

    /// Returns what is scanned.
    pub fn scan(&self) -> &SharedScan {
        &self.scan
    }

    /// Returns how long to wait where there is nothing to do.
    pub fn pause(&self) -> Duration {
        self.beat / 2
    }

    /// Returns whether others have nothing to do, so that what is not yet begun of a part should be
    /// left to them.
    pub fn should_share(&self) -> bool {
        self.heart.shares.load(Ordering::Relaxed)
    }

    /// Returns whether the worker was taken for dead, or the scan is over.
    pub fn is_lost(&self) -> bool {
        self.heart.is_lost.load(Ordering::Relaxed) || !self.directory().exists()
    }

    /// Returns the generation that has been published since the scan began, if one has.
    pub fn published(&self) -> Option<Generation> {
        current(&self.index).ok().filter(|&now| now != self.scan.base)
    }

    /// Says whether a part is being listed.
    pub(crate) fn lists(&self, lists: bool) {
        self.heart.shares.store(false, Ordering::Relaxed);
        self.heart.lists.store(lists, Ordering::Relaxed);
    }

    pub(crate) fn directory(&self) -> PathBuf {
        names::workers(&self.index).join(format!("w{}", self.number))
    }

    pub(crate) fn index(&self) -> &Path {
        &self.index
    }

    /// Finds something to do, and claims it.
    pub fn find_work(&mut self) -> Result<Next> {
        let workers = names::workers(&self.index);
        let names = match listed(&workers) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Next::Over),
            Err(error) => return Err(Error::io("list", &workers)(error)),
        };
        if self.is_lost() {
            return Ok(Next::Over);
        }
        let mut parts = vec![ScanPart::first()];
        let mut open = Vec::new();
        while let Some(part) = parts.pop() {
            if !names.contains(&part.done()) {
                open.push(part);
                continue;
            }
            if !self.done.contains_key(&part.id) {
                let further = match manifest::read::<PartRecord>(&workers.join(part.done())) {
                    Ok(record) => part.further(record.outcome.left).collect(),
                    // The publisher lists a damaged part anew, with all that it has left to others.
                    Err(error) if error.damaged_file().is_some() => Vec::new(),
                    Err(error) => return Err(error),
                };
                self.done.insert(part.id.clone(), further);
            }
            parts.extend(self.done[&part.id].iter().cloned());
        }
        if open.is_empty() {
            return Ok(match self.claim(PUBLICATION, &names)? {
                true => Next::Publish,
                false => Next::Wait,
            });
        }
        for part in open {
            if self.claim(&part.id, &names)? {
                return Ok(Next::Part(part));
            }
        }
        match OpenOptions::new().create(true).append(true).mode(0o600).open(workers.join("idle")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::io("create", &workers.join("idle"))(error))
            }
            _ => Ok(Next::Wait),
        }
    }

    /// Claims something, unless somebody who lives has it, given what there was in the directory.
    fn claim(&mut self, what: &str, names: &HashSet<String>) -> Result<bool> {
        let workers = names::workers(&self.index);
        let name = |number: u32| format!("claim-{what}-{number}");
        let number = (0..).find(|&number| !names.contains(&name(number))).unwrap_or(u32::MAX);
        if let Some(last) = number.checked_sub(1) {
            let path = workers.join(name(last));
            let mut text = [0; 16];
            let read = File::open(&path).and_then(|mut file| file.read(&mut text));
            let length = read.map_err(Error::io("read", &path))?;
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            let holder = text.lines().next().unwrap_or_default();
            let directory = workers.join(holder);
            if names.contains(holder) && !self.is_dead(holder, &directory) {
                return Ok(false);
            }
            if names.contains(holder) {
                end(&directory);
            }
        }
        let (from, to) = (self.directory().join("alive"), workers.join(name(number)));
        match std::fs::hard_link(&from, &to) {
            Ok(()) => Ok(true),
            // A server may say so of what it has done when it was asked before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(is_same_file(&from, &to))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("claim", &to)(error)),
        }
    }

    /// Returns whether a worker is taken for dead.
    fn is_dead(&mut self, holder: &str, directory: &Path) -> bool {
        // Opened, since what is known of a file on another machine may be old.
        let alive = File::open(directory.join("alive")).and_then(|file| file.metadata());
        let Ok(size) = alive.map(|about| about.len()) else { return true };
        let (now, beat) = (Instant::now(), self.beat);
        let (known, since) = self.watched.entry(holder.to_owned()).or_insert((size, now));
        if *known != size {
            (*known, *since) = (size, now);
        }
        now - *since > beat * BEATS_MISSED_MAX
    }

    /// Ends a part that was listed; returns false if somebody else has, or this worker was taken for
    /// dead.
    pub(crate) fn finish(&self, part: &ScanPart, record: &PartRecord) -> Result<bool> {
        let (from, to) = (self.directory().join(part.done()), names::workers(&self.index));
        let to = to.join(part.done());
        let written = manifest::write(&Disk::default(), &from, record, 0o600, true);
        if self.is_lost() {
            return Ok(false);
        }
        written?;
        match std::fs::hard_link(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Ok(is_same_file(&from, &to))
            }
            Err(_) if self.is_lost() => Ok(false),
            Err(error) => Err(Error::io("create", &to)(error)),
        }
    }

    /// Calls `each` with every part that is done, and what is known of it. Where `each` returns
    /// false, or nothing can be read, what the part has left to others is passed over, too, and its
    /// directories are returned.
    pub(crate) fn each_done(
        &self,
        mut each: impl FnMut(PartRecord) -> Result<bool>,
    ) -> Result<Vec<SourcePathBuf>> {
        let mut parts = vec![ScanPart::first()];
        let mut passed_over = Vec::new();
        while let Some(part) = parts.pop() {
            let path = names::workers(&self.index).join(part.done());
            let record = match manifest::read::<PartRecord>(&path) {
                Ok(record) => record,
                Err(error) if error.damaged_file().is_some() => {
                    passed_over.extend(part.paths);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let further: Vec<ScanPart> = part.further(record.outcome.left.clone()).collect();
            match each(record)? {
                true => parts.extend(further),
                false => passed_over.extend(part.paths),
            }
        }
        Ok(passed_over)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.heart.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
        end(&self.directory());
    }
}

impl Heartbeat {
    fn beats(&self, alive: &Path, idle: &Path, beat: Duration) {
        let mut listed = 0;
        while !self.ends.load(Ordering::Relaxed) {
            let written = OpenOptions::new().append(true).open(alive);
            let written = written.and_then(|mut file| file.write_all(b"."));
            if written.is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                self.is_lost.store(true, Ordering::Relaxed);
                return;
            }
            listed = if self.lists.load(Ordering::Relaxed) { listed + 1 } else { 0 };
            // One of those who could takes this on.
            if listed > BEATS_LISTED_MIN && std::fs::remove_file(idle).is_ok() {
                self.shares.store(true, Ordering::Relaxed);
            }
            std::thread::park_timeout(beat);
        }
    }
}

/// Has a worker end: whatever it does after this, it does in vain.
fn end(directory: &Path) {
    drop(std::fs::rename(directory, directory.with_extension("over")));
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.symlink_metadata().map(|about| (about.dev(), about.ino()));
    matches!((inode(one), inode(other)), (Ok(one), Ok(other)) if one == other)
}

fn listed(directory: &Path) -> io::Result<HashSet<String>> {
    std::fs::read_dir(directory)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

impl SharedScan {
    /// Returns the scan that workers share in an index, if there is one that counts still. Fails if
    /// anybody else could change the directory.
    pub fn read(index: &Path) -> Result<Option<Self>> {
        Ok(Self::find(index)?.map(|(_, scan)| scan))
    }

    /// As [`SharedScan::read`], with the real path of the index, which nobody else can change.
    fn find(index: &Path) -> Result<Option<(PathBuf, Self)>> {
        if !index.exists() {
            return Ok(None);
        }
        let index = safety::check(index, rustix::process::geteuid().as_raw())?;
        let workers = names::workers(&index);
        if !workers.exists() {
            return Ok(None);
        }
        let scan = or_none(manifest::read(&scan_path(&workers, current(&index)?)))?;
        Ok(scan.map(|scan| (index, scan)))
    }

    /// Makes the directory of workers, as a whole.
    pub(crate) fn begin(&self, index: &Path) -> Result<()> {
        let (disk, new) = (Disk::default(), index.join("workers.new"));
        disk.directories(&new, 0o700)?;
        // Remove the file of an attempt that got no further.
        disk.remove(&scan_path(&new, self.base))?;
        manifest::write(&disk, &scan_path(&new, self.base), self, 0o600, true)?;
        disk.replace(&new, &names::workers(index))
    }
}

/// How far a shared scan is.
#[derive(Clone, Debug)]
pub struct SharedProgress {
    /// The root, escaped.
    pub root: String,
    /// When it began, in nanoseconds since 1970.
    pub begun_ns: i64,
    /// Parts that are not done, as far as is known: a part may become several.
    pub parts_left: usize,
    /// Parts that are done.
    pub parts_done: usize,
    /// Entries that were listed in these.
    pub entries: u64,
}

impl SharedProgress {
    /// Returns how far the scan is that workers share in an index; `None` if there is none, or the
    /// caller may not know of it.
    pub fn of(index: &Path) -> Option<Self> {
        let (index, scan) = SharedScan::find(index).ok()??;
        let workers = names::workers(&index);
        let names = listed(&workers).ok()?;
        let SharedScan { root, begun_ns, .. } = scan;
        let mut progress =
            SharedProgress { root, begun_ns, parts_left: 0, parts_done: 0, entries: 0 };
        let mut parts = vec![ScanPart::first()];
        while let Some(part) = parts.pop() {
            let record = match names.contains(&part.done()) {
                true => manifest::read::<PartRecord>(&workers.join(part.done())).ok(),
                false => None,
            };
            let Some(record) = record else {
                progress.parts_left += 1;
                continue;
            };
            progress.parts_done += 1;
            progress.entries += record.outcome.entries;
            parts.extend(part.further(record.outcome.left));
        }
        Some(progress)
    }
}

fn scan_path(directory: &Path, base: Generation) -> PathBuf {
    directory.join(format!("scan-{base}"))
}

fn or_none<T>(read: Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the generation that is current; 0 for none.
fn current(index: &Path) -> Result<Generation> {
    let current: Option<Current> = or_none(manifest::read(&names::current(index)))?;
    Ok(current.map_or(Generation::NONE, |current| current.generation))
}

/// Returns whether there is a directory of workers, and whether what they scan counts still, where
/// this generation is current.
pub(crate) fn state(index: &Path, current: Generation) -> Option<bool> {
    let (workers, over) = (names::workers(index), names::workers_over(index));
    (workers.exists() || over.exists()).then(|| scan_path(&workers, current).exists())
}

/// Takes the directory away from all workers, and returns what their journals name.
pub(crate) fn take_away(index: &Path) -> Result<Vec<(journal::Intent, PathBuf)>> {
    let (workers, over) = (names::workers(index), names::workers_over(index));
    if !over.exists() && workers.exists() {
        std::fs::rename(&workers, &over).map_err(Error::io("rename", &workers))?;
    }
    let mut intents = Vec::new();
    for name in listed(&over).map_err(Error::io("list", &over))? {
        if is_workers(&name) {
            intents.extend(journal::read_at(&over.join(name).join("journal"))?.intents);
        }
    }
    Ok(intents)
}

/// Removes the directory that was taken away: what is called as workers call it.
pub(crate) fn remove(disk: &Disk, index: &Path) -> Result<()> {
    let over = names::workers_over(index);
    let names = listed(&over).map_err(Error::io("list", &over))?;
    for name in &names {
        let path = over.join(name);
        if is_workers(name) {
            for name in listed(&path).map_err(Error::io("list", &path))? {
                let is_own = matches!(&*name, "alive" | "CURRENT.new") || name.starts_with("done-");
                if is_own {
                    disk.remove(&path.join(name))?;
                }
            }
            // Last, as the others need it.
            disk.remove(&path.join("journal"))?;
            disk.remove_empty_dir(&path);
        } else if ["claim-", "done-", "scan-", "idle"].iter().any(|own| name.starts_with(own)) {
            disk.remove(&path)?;
        }
    }
    disk.remove_empty_dir(&over);
    Ok(())
}

/// Returns whether the directory of a worker can be called so.
fn is_workers(name: &str) -> bool {
    let number = name.strip_suffix(".over").unwrap_or(name).strip_prefix('w');
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}
