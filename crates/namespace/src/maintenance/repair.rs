//! Mending what `check` finds. Nothing that somebody wrote is removed: what no name leads to gets
//! one in `lost+found`, and contents that nobody has become files there.
//!
//! It goes in rounds: all records are checked, what is found is mended, and so on until nothing is.
//! Records that say wrong things about themselves come first, then files, then directories that no
//! path leads to, and last what follows from all others: indexes and sums. Each batch of a round is
//! a step nearer, so whoever repairs after a crash goes on.

mod chunks;
mod files;
mod lost;

use crate::error::Result;
use crate::maintenance::check::{Check, ChunkObjects, Fault, ObjectsToRead, Problem};
use crate::namespace::Namespace;
use crate::records::inode::{Inode, file_type};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::open_files::OpenFiles;
use crate::records::tablet::Writer;
use canopy_store::{Batch, Durability};
use parking_lot::MutexGuard;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The directory, in the root directory, for files without a name.
pub const LOST_AND_FOUND: &str = "lost+found";

/// Faults that are mended give rise to others; more rounds are not made.
const ROUNDS_MAX: usize = 16;

/// Records that are written at a time.
const STEP: usize = 1024;

/// Result of repairing a namespace.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Repairs, a line each, in order.
    pub done: Vec<String>,
    /// Faults that could not be repaired.
    pub left: Vec<Fault>,
}

/// A repair that is under way. Nobody changes anything meanwhile.
struct Repair<'a> {
    namespace: &'a Namespace,
    writer: MutexGuard<'a, Writer>,
    done: Vec<String>,
    batch: Batch,
    /// The directory for what was lost, once it is there.
    lost_and_found: Option<FileId>,
    /// Names that were taken there in this round.
    taken: HashSet<Vec<u8>>,
    /// The objects of chunks, if contents are such.
    chunk_objects: Option<Arc<ChunkObjects>>,
}

impl Namespace {
    /// Mends what is wrong with the records. Others who would change something wait until it is
    /// done, a second or so for each million of files; files that are open are left as they are.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read or written at all.
    pub fn repair(&self) -> Result<Repaired> {
        self.repair_with(ObjectsToRead::default())
    }

    /// Like [`repair`](Self::repair), and first reads the contents that lie in storage: damaged
    /// ones count as lost.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read or written at all.
    pub fn repair_contents(&self) -> Result<Repaired> {
        self.tablet.table.salvage()?;
        // While nobody waits.
        let mut check = self.online_check(ObjectsToRead::All)?;
        check.run(&mut |_| {})?;
        self.repair_with(ObjectsToRead::Some(check.bad_objects()?))
    }

    fn repair_with(&self, reads: ObjectsToRead) -> Result<Repaired> {
        // Damaged files first: nothing else can be read for sure.
        let losses = self.tablet.table.salvage()?;
        // A fault whose repair cannot be written is left out.
        let _ = self.flush_pending();
        if losses.is_empty() {
            self.remove_crashed_chunks();
        }
        let chunk_objects = self.chunk_objects(reads)?;
        let lost_snapshots = self.end_lost_snapshots()?;
        let _setting = self.setting.lock();
        let writer = self.tablet.writer.lock();
        self.tablet.flush_what_is_sound()?;
        let mut repair = Repair {
            namespace: self,
            writer,
            done: Vec::new(),
            batch: Batch::new(),
            lost_and_found: None,
            taken: HashSet::new(),
            chunk_objects,
        };
        let mut left = Vec::new();
        for name in lost_snapshots {
            repair
                .report(FileId::NONE, format!("snapshot {name} is deleted: its records are lost"));
        }
        repair.mend_losses(&losses)?;
        left.extend(repair.run()?);
        let mut done = repair.done;
        drop(repair.writer);
        self.tablet.table.sync()?;
        if !losses.is_empty() {
            let name = self.tablet.table.keep_report(&(done.join("\n") + "\n"))?;
            done.push(format!("{name} has this report"));
            self.tablet.table.forget_losses()?;
        }
        // The rest may be a record that names one of them.
        if let Some(chunks) = self.contents.chunks().filter(|_| left.is_empty()) {
            // A repair counts once it is in SSTables.
            self.tablet.table.flush()?;
            let removed = self.remove_stray_chunks(chunks)?;
            // Those that were made since it was opened go when it is opened next.
            chunks.collecting.lock().is_uncertain |= !done.is_empty();
            if removed > 0 {
                let plural = if removed == 1 { "" } else { "s" };
                done.push(format!("removed {removed} object{plural} that no record names"));
            }
        }
        // Entries that were removed from indexes are built anew.
        self.build_indexes(|| true)?;
        Ok(Repaired { done, left })
    }
}

impl Namespace {
    /// Removes the objects that a crash has left, which is not a fault.
    fn remove_crashed_chunks(&self) {
        let chunks = self.contents.chunks().filter(|_| self.has_strays.load(Ordering::Acquire));
        if chunks.is_some_and(|chunks| self.remove_stray_chunks(chunks).is_ok()) {
            self.has_strays.store(false, Ordering::Release);
        }
    }
}

impl<'a> Repair<'a> {
    /// Mends until nothing is wrong, or nothing gets better; returns what is left.
    fn run(&mut self) -> Result<Vec<Fault>> {
        for _ in 0..ROUNDS_MAX {
            let mut check = self.check()?;
            let faults = std::mem::take(&mut check.faults);
            let before = self.done.len();
            if !faults.is_empty() {
                self.taken.clear();
                self.mend(&check, &faults)?;
                self.write()?;
                let contents = &self.namespace.contents;
                self.namespace.tablet.pending.write().retain(|id, _| contents.is_dirty(*id));
            }
            if self.done.len() == before {
                return Ok(faults);
            }
        }
        Ok(std::mem::take(&mut self.check()?.faults))
    }

    fn check(&self) -> Result<Check<'a>> {
        let namespace = self.namespace;
        let snapshot = namespace.tablet.table.snapshot();
        let mut check = Check::new(namespace, snapshot, namespace.tablet.configured(), true);
        check.chunk_objects = self.chunk_objects.clone();
        check.run(&mut |_| {})?;
        Ok(check)
    }

    /// Mends the first kind of faults that there are: others may follow from them.
    fn mend(&mut self, check: &Check<'_>, faults: &[Fault]) -> Result<()> {
        // No file gets an id that another one has.
        if faults.iter().any(|fault| fault.problem == Problem::Ids) {
            self.mend_ids(check)?;
        }
        self.mend_blocks(faults)?;
        if self.mend_records(faults)? {
            return Ok(());
        }
        let suspects = faults.iter().filter(|fault| fault.problem == Problem::File);
        let suspects = BTreeSet::from_iter(suspects.map(|fault| fault.id));
        if !suspects.is_empty() {
            return self.mend_files(check, &suspects, faults);
        }
        let lost = faults.iter().filter(|fault| fault.problem == Problem::Lost);
        let lost = Vec::from_iter(lost.map(|fault| fault.id));
        if !lost.is_empty() {
            return self.mend_circles(check, &lost);
        }
        for fault in faults {
            if let Problem::Index(number) = fault.problem {
                self.rebuild_index(number)?;
            }
        }
        match faults.iter().any(|fault| fault.problem == Problem::Usage) {
            true => {
                self.namespace.tablet.count_again()?;
                self.report(FileId::NONE, "usage is counted again");
                Ok(())
            }
            false => Ok(()),
        }
    }

    fn report(&mut self, id: FileId, what: impl Into<String>) {
        let what = what.into();
        self.done.push(if id == FileId::NONE { what } else { format!("file {id}: {what}") });
    }

    /// Writes what was mended so far.
    fn write(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.namespace.tablet.table.write(&self.batch, Durability::Visible)?;
            self.batch.clear();
        }
        Ok(())
    }

    fn write_some(&mut self) -> Result<()> {
        if self.batch.len() >= STEP { self.write() } else { Ok(()) }
    }

    fn mend_ids(&mut self, check: &Check<'_>) -> Result<()> {
        let end = check.last_id.max(ROOT).next();
        self.writer.ids.skip_to(&self.namespace.tablet.table, end)?;
        let end = self.writer.ids.end();
        self.writer.ids.put_end(&mut self.batch, end)?;
        self.report(FileId::NONE, format!("new files get numbers from {end} on"));
        self.write()
    }

    /// Reserves blocks of ids that nobody has and that there are files of.
    fn mend_blocks(&mut self, faults: &[Fault]) -> Result<()> {
        let blocks = faults.iter().filter_map(|fault| match fault.problem {
            Problem::Block(block) => Some(block),
            _ => None,
        });
        for block in BTreeSet::from_iter(blocks) {
            if self.writer.ids.claim(&self.namespace.tablet.table, block)? {
                let what = format!("block {} of numbers of files is reserved again", block.0);
                self.report(FileId::NONE, what);
            }
        }
        Ok(())
    }

    /// Mends records that say wrong things about themselves; returns whether there were any.
    fn mend_records(&mut self, faults: &[Fault]) -> Result<bool> {
        let before = self.done.len();
        // Unreadable records first: others are read below.
        for Fault { id, what, problem } in faults {
            match problem {
                Problem::Damaged(key) if *key == keys::root() => {
                    let root = self.new_directory(ROOT, 0o700);
                    self.batch.put(key.as_ref(), &root.encode())?;
                    let what = "the root directory is made anew: only root may enter it until you \
                                change its mode";
                    self.report(ROOT, what);
                }
                Problem::Damaged(key) => {
                    self.batch.delete(key.as_ref())?;
                    self.report(*id, format!("removed what cannot be read: {what}"));
                }
                _ => {}
            }
            self.write_some()?;
        }
        self.write()?;
        for Fault { id, problem, .. } in faults {
            match problem {
                Problem::StrayEntry(key) => {
                    self.batch.delete(key.as_ref())?;
                    self.report(*id, "removed an entry of the name index that is of no name");
                    self.keep_orphan(*id)?;
                }
                Problem::FalseNote(key) => {
                    self.batch.delete(key.as_ref())?;
                    self.report(*id, "removed a note that an object may go, which is needed");
                }
                Problem::Misplaced(key) => {
                    let Some(mut found) = self.namespace.tablet.record(key)? else { continue };
                    self.batch.delete(key.as_ref())?;
                    let right = keys::name_in(FileId(key.directory), &key.name);
                    if self.namespace.tablet.record(&right)?.is_none() {
                        self.batch.put(right.as_ref(), &found.encode())?;
                        self.report(*id, "moved a name to where its hash says");
                    } else {
                        self.batch.delete(
                            keys::name_of(*id, FileId(key.directory), &key.name).as_ref(),
                        )?;
                        self.attach(&mut found)?;
                    }
                    // The next one may have the same name.
                    self.write()?;
                }
                Problem::Misnamed(key) => {
                    let Some(mut found) = self.namespace.tablet.record(key)? else { continue };
                    found.id = *id;
                    self.batch.put(key.as_ref(), &found.encode())?;
                    self.report(*id, "its record says which file it is");
                }
                _ => {}
            }
            self.write_some()?;
        }
        Ok(self.done.len() > before)
    }

    /// Gives a file that counts as nameless, though it had a name a moment ago, a name again.
    fn keep_orphan(&mut self, id: FileId) -> Result<()> {
        let Some(mut found) = self.of(Space::Orphans, id)? else { return Ok(()) };
        self.batch.delete(Space::Orphans.of(id, b"").as_ref())?;
        found.nlink = 1;
        self.attach(&mut found)?;
        self.write()
    }

    /// Gives the first directory of each circle a name in `lost+found`.
    fn mend_circles(&mut self, check: &Check<'_>, lost: &[FileId]) -> Result<()> {
        let mut seen: HashMap<FileId, usize> = HashMap::new();
        for (walk, &directory) in lost.iter().enumerate() {
            let mut at = directory;
            let is_circle = loop {
                match seen.insert(at, walk) {
                    Some(before) => break before == walk,
                    None => match check.parents.get(&at) {
                        Some(parent) => at = *parent,
                        None => break false,
                    },
                }
            };
            if !is_circle {
                continue;
            }
            for (parent, name) in self.namespace.names(at)? {
                let key = keys::name_in(parent, &name);
                if let Some(mut found) = self.namespace.tablet.record(&key)? {
                    self.batch.delete(key.as_ref())?;
                    self.batch.delete(keys::name_of(at, parent, &name).as_ref())?;
                    self.attach(&mut found)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Empties the index of an attribute, which is built anew then.
    fn rebuild_index(&mut self, number: u64) -> Result<()> {
        let number = number as u32;
        let before = self.namespace.tablet.configured();
        let mut settings = before.settings.clone();
        if let Some(name) = before.name_of(number) {
            settings.building.insert(name);
        }
        self.batch.delete_range(&keys::index(number))?;
        self.batch.put(keys::settings().as_ref(), &settings.encode()?)?;
        self.write()?;
        *self.namespace.tablet.configured.write() = Arc::new(settings.configured()?);
        self.report(FileId::NONE, format!("the index of attribute {number} is built anew"));
        Ok(())
    }

    fn new_directory(&self, id: FileId, permissions: u32) -> Inode {
        let mode = file_type::DIRECTORY | permissions;
        self.with_times(Inode { mode, nlink: 2, id, ..Inode::default() })
    }

    /// Gives an inode all times that it has none of.
    fn with_times(&self, inode: Inode) -> Inode {
        let now_ns = self.namespace.now_ns();
        let times = [now_ns; 4];
        let [mtime_ns, ctime_ns, atime_ns, btime_ns] = times;
        Inode { mtime_ns, ctime_ns, atime_ns, btime_ns, ..inode }
    }

    /// Returns the directory for what was lost, made if it is missing. One of that name that others
    /// than root get into is somebody's, and what was lost may be from where they do not.
    fn lost_and_found(&mut self) -> Result<FileId> {
        if let Some(id) = self.lost_and_found {
            return Ok(id);
        }
        let mut name = LOST_AND_FOUND.to_owned();
        loop {
            match self.namespace.tablet.record(&keys::name_in(ROOT, name.as_bytes()))? {
                Some(found)
                    if found.is_directory() && found.uid == 0 && found.mode & 0o077 == 0 =>
                {
                    self.lost_and_found = Some(found.id);
                    return Ok(found.id);
                }
                Some(_) => name.push('~'),
                None => break,
            }
        }
        let id = self.writer.ids.new_id(&self.namespace.tablet.table)?;
        let directory = self.new_directory(id, 0o700);
        self.put_name(ROOT, name.as_bytes(), &directory)?;
        self.write()?;
        self.lost_and_found = Some(id);
        Ok(id)
    }

    /// Puts an inode under its only name. Indexes of attributes are mended afterwards, and so is
    /// what its directory counts.
    fn put_name(&mut self, parent: FileId, name: &[u8], inode: &Inode) -> Result<()> {
        self.batch.put(keys::name_in(parent, name).as_ref(), &inode.encode())?;
        Ok(self.batch.put(keys::name_of(inode.id, parent, name).as_ref(), b"")?)
    }

    /// Gives a file a name in `lost+found`. `found` is its inode or a pointer to it.
    fn attach(&mut self, found: &mut Inode) -> Result<()> {
        let directory = self.lost_and_found()?;
        let mut name = format!("#{}", found.id).into_bytes();
        while self.taken.contains(&name)
            || self.namespace.tablet.record(&keys::name_in(directory, &name))?.is_some()
        {
            name.push(b'~');
        }
        self.put_name(directory, &name, found)?;
        let shown = String::from_utf8_lossy(&name).into_owned();
        self.report(found.id, format!("is now {LOST_AND_FOUND}/{shown}"));
        self.taken.insert(name);
        self.write_some()
    }

    fn of(&self, space: Space, id: FileId) -> Result<Option<Inode>> {
        self.namespace.tablet.record(&space.of(id, b""))
    }
}
