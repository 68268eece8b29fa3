//! Checking every rule that records obey: what is reachable, counts, pointers, indexes.

mod chunks;

use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::quota::{Account, Limits, Sums, Usage};
use crate::records::ids::IdsRecord;
use crate::records::indexing::is_of_names;
use crate::records::inode::{Inode, file_type, flag};
use crate::records::keys::{self, Block, FileId, ROOT, Space};
use crate::settings::Configured;
use crate::snapshot::past::Past;
use canopy_store::{Direction, Key, KeyRange, TableSnapshot, hash_of};
pub(crate) use chunks::{ChunkObjects, ObjectsToRead};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Something that no namespace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file that it concerns; 0 if none.
    pub id: FileId,
    /// Description of the fault.
    pub what: String,
    pub(crate) problem: Problem,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            FileId::NONE => f.write_str(&self.what),
            id => write!(f, "file {id}: {}", self.what),
        }
    }
}

/// The kind of a fault, for its repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// The record at this key is wrong, and its former value is unknown.
    Damaged(Key),
    /// A name's record lies elsewhere than its hash says.
    Misplaced(Key),
    /// The inode at this key says that it is another file.
    Misnamed(Key),
    /// An entry of the name index is of no name.
    StrayEntry(Key),
    /// The parts of the file do not agree.
    File,
    /// No path leads to the directory.
    Lost,
    /// The index of an attribute, by its number.
    Index(u64),
    /// Ids may be given out again.
    Ids,
    /// Storage may give another table the block of ids.
    Block(Block),
    /// A note says that an object may go which a record needs.
    FalseNote(Key),
    /// Sums of usage.
    Usage,
    /// A file of records is damaged.
    Records,
    /// Nothing that records can mend.
    Disk,
}

/// Facts about a file, collected from all records.
#[derive(Default)]
pub(crate) struct Seen {
    /// Names that hold the inode or point to it.
    names: u32,
    /// Whether the inode was seen, and what matters of it.
    inode: Option<Facts>,
    /// Names in the name index.
    indexed: u32,
    /// How many directories name it as their parent.
    pub(crate) subdirectories: u32,
    xattrs: u32,
    contents_bytes: Option<u64>,
    /// Space of its chunks in blocks, and the end of the last one.
    chunks: Option<(u64, u64)>,
}

struct Facts {
    file_type: u32,
    nlink: u32,
    flags: u32,
    size: u64,
    blocks: u64,
    is_linked: bool,
    is_orphan: bool,
}

pub(crate) struct Check<'a> {
    namespace: &'a Namespace,
    /// Whether the caller has the writer's lock.
    is_alone: bool,
    snapshot: TableSnapshot,
    configured: Arc<Configured>,
    /// The snapshot that is checked, if one is.
    past: Option<Past>,
    pub(crate) files: HashMap<FileId, Seen>,
    /// Each name of a directory: in which it lies.
    pub(crate) parents: HashMap<FileId, FileId>,
    /// By the first part of keys of each index: the sums of hashes of entries that there should be,
    /// and that there are.
    indexes: BTreeMap<u64, (u64, u64)>,
    /// Entries of names of files with several, which may be of two of them.
    of_linked: HashSet<Key>,
    /// Directories that names lie in.
    listed: HashSet<FileId>,
    /// Files whose objects are to be removed.
    doomed: HashSet<FileId>,
    /// The existing objects of chunks, with their sizes; none if there are no chunks.
    pub(crate) chunk_objects: Option<Arc<ChunkObjects>>,
    /// Chunks of files whose records or objects are not what they must be.
    pub(crate) bad_chunks: HashMap<FileId, HashSet<u64>>,
    /// Ids are less.
    id_end: FileId,
    /// The blocks that the table gives ids of, if it has any.
    own_blocks: Option<Range<Block>>,
    /// All blocks of tables of the storage, if ids lie in blocks.
    reserved: Option<Vec<Range<u64>>>,
    /// The largest id that anything is said of.
    pub(crate) last_id: FileId,
    /// Usage by the inodes.
    used: HashMap<Account, [u64; 2]>,
    /// Recorded usage, if it is counted.
    usage: HashMap<Account, [u64; 2]>,
    is_counted: bool,
    pub(crate) faults: Vec<Fault>,
}

/// Returns whether there can be such a file.
fn is_possible(id: FileId) -> bool {
    (ROOT..FileId::MAX).contains(&id)
}

/// Returns whether a key that is of no name has the id of a file in it.
fn is_of_file(key: &Key) -> bool {
    let mut spaces =
        [Space::Links, Space::Orphans, Space::Names, Space::Xattrs, Space::Contents, Space::Chunks]
            .into_iter();
    spaces.any(|space| space as u64 == key.directory)
}

/// Returns a name as faults show it, with the directory that it is in.
fn shown(key: &Key) -> String {
    format!("{} in directory {}", key.name.escape_ascii(), key.directory)
}

/// Returns a hash of an entry. Sums of these show whether two sets are equal, in any order.
fn hash_of_entry(key: &Key) -> u64 {
    let of_name = hash_of(&key.name);
    hash_of(&[key.directory, key.hash, of_name].map(u64::to_le_bytes).concat())
}

impl Namespace {
    /// Checks all records as they are now, and objects, and returns the faults. Calls `progress`
    /// with the number of records that were read. Others may change things meanwhile. Takes some
    /// 150 bytes of memory a file, and 32 for each chunk of contents.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read at all. Damage that it can describe is returned, and is
    /// not an error.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<Vec<Fault>> {
        self.check_all(false, progress)
    }

    /// Like [`check`](Self::check), and reads the contents that lie in storage.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read at all. Damage that it can describe is returned, and is
    /// not an error.
    pub fn check_contents(&self, progress: impl FnMut(u64)) -> Result<Vec<Fault>> {
        self.check_all(true, progress)
    }

    fn check_all(&self, reads_contents: bool, mut progress: impl FnMut(u64)) -> Result<Vec<Fault>> {
        self.remove_strays()?;
        match self.flush_pending() {
            // On a full disk, what is newer in memory stays there: records agree without it.
            Err(error) if !matches!(error.errno(), Errno::NOSPC | Errno::DQUOT) => {
                return Err(error);
            }
            _ => {}
        }
        let mut check = self.online_check(match reads_contents {
            true => ObjectsToRead::All,
            false => ObjectsToRead::default(),
        })?;
        check.run(&mut progress)?;
        Ok(check.faults)
    }

    /// Checks all records that a snapshot has, and whether its contents are there, or with
    /// `reads_contents` what they must be where they lie in storage.
    ///
    /// # Errors
    ///
    /// Fails where records cannot be read at all. Damage that it can describe is returned, and is
    /// not an error.
    pub fn check_past(&self, past: &Past, reads_contents: bool) -> Result<Vec<Fault>> {
        let (snapshot, _) = self.tablet.table.at_checkpoint(past.number())?;
        let mut check = Check::new(self, snapshot, past.view().configured.clone(), false);
        check.past = Some(past.clone());
        check.chunk_objects = self.chunk_objects(match reads_contents {
            true => ObjectsToRead::All,
            false => ObjectsToRead::default(),
        })?;
        check.run(&mut |_| {})?;
        Ok(check.faults)
    }

    /// Returns a check of what there is now, which others may change meanwhile.
    pub(crate) fn online_check(&self, reads: ObjectsToRead) -> Result<Check<'_>> {
        let chunk_objects = self.chunk_objects(reads)?;
        let (snapshot, configured) = {
            let _writer = self.tablet.writer.lock();
            (self.tablet.table.snapshot(), self.tablet.configured())
        };
        let mut check = Check::new(self, snapshot, configured, false);
        check.chunk_objects = chunk_objects;
        Ok(check)
    }
}

impl<'a> Check<'a> {
    pub(crate) fn new(
        namespace: &'a Namespace,
        snapshot: TableSnapshot,
        configured: Arc<Configured>,
        is_alone: bool,
    ) -> Self {
        Check {
            namespace,
            is_alone,
            snapshot,
            configured,
            past: None,
            listed: HashSet::new(),
            doomed: HashSet::new(),
            chunk_objects: None,
            bad_chunks: HashMap::new(),
            id_end: FileId::NONE,
            own_blocks: None,
            reserved: None,
            last_id: FileId::NONE,
            used: HashMap::new(),
            usage: HashMap::new(),
            is_counted: false,
            files: HashMap::new(),
            parents: HashMap::new(),
            indexes: BTreeMap::new(),
            of_linked: HashSet::new(),
            faults: Vec::new(),
        }
    }

    /// Reads everything and finds what is wrong.
    pub(crate) fn run(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        match self.read(progress) {
            Err(Error::Store(error)) if error.is_damage() => return self.judge_damage(error),
            read => read?,
        }
        self.judge_blocks()?;
        self.judge();
        if self.past.is_some() {
            return Ok(());
        }
        for (id, what) in self.namespace.snapshot_faults()? {
            self.fault(id, what);
        }
        if !self.is_alone && self.namespace.tablet.table.has_losses()? {
            let what = "the repair of damaged files was interrupted: repair it again";
            self.problem(FileId::NONE, Problem::Records, what);
        }
        Ok(())
    }

    fn read(&mut self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut scan = self.snapshot.scan(&KeyRange::all(), Direction::Forward)?;
        let mut records = 0;
        while let Some(record) = scan.next()? {
            self.add(&record.key.to_key(), record.value);
            records += 1;
            if records % 65_536 == 0 {
                progress(records);
            }
        }
        Ok(())
    }

    /// Finds the damaged files. Records that could be read are not reported: they may belong to
    /// records that could not.
    fn judge_damage(&mut self, error: canopy_store::Error) -> Result<()> {
        self.faults.clear();
        if self.past.is_some() {
            let what = "delete the snapshot, or export what can be read of it";
            self.problem(FileId::NONE, Problem::Records, format!("{error}: {what}"));
            return Ok(());
        }
        let damaged = self.namespace.tablet.table.damaged_sstables()?;
        if damaged.is_empty() {
            return Err(error.into());
        }
        for (object, what) in damaged {
            self.problem(FileId::NONE, Problem::Records, format!("{object}: {what}"));
        }
        Ok(())
    }

    /// Notes a fault of a file.
    fn fault(&mut self, id: FileId, what: impl Into<String>) {
        self.problem(id, Problem::File, what);
    }

    fn problem(&mut self, id: FileId, problem: Problem, what: impl Into<String>) {
        self.faults.push(Fault { id, what: what.into(), problem });
    }

    fn file(&mut self, id: FileId) -> &mut Seen {
        self.last_id = self.last_id.max(id);
        self.files.entry(id).or_default()
    }

    fn add(&mut self, key: &Key, value: &[u8]) {
        let space = |space: Space| key.directory == space as u64;
        if keys::all_names().contains(key.as_ref()) {
            self.add_name(key, value);
        } else if is_of_file(key) && !is_possible(FileId(key.hash)) {
            let problem = Problem::Damaged(key.clone());
            self.problem(
                FileId::NONE,
                problem,
                format!("a record of an impossible file, {}", key.hash),
            );
        } else if space(Space::Links) || space(Space::Orphans) {
            self.add_inode(FileId(key.hash), key, value);
        } else if space(Space::Names) {
            self.add_index(key);
        } else if space(Space::Xattrs) {
            self.file(FileId(key.hash)).xattrs += 1;
            let entry = self.configured.ready.xattr_entry(&key.name, value, FileId(key.hash));
            entry.into_iter().for_each(|entry| self.expect(&entry));
        } else if space(Space::Contents) {
            self.file(FileId(key.hash)).contents_bytes = Some(value.len() as u64);
        } else if space(Space::Doomed) {
            self.doomed.insert(FileId(key.hash));
        } else if space(Space::Usage) {
            self.add_usage(key, value);
        } else if space(Space::Limits) {
            let account = Account::parse(key.hash).map(drop);
            if let Err(error) = account.and_then(|()| Limits::decode(value).map(drop)) {
                let what = format!("a record of limits: {error}");
                self.problem(FileId::NONE, Problem::Damaged(key.clone()), what);
            }
        } else if *key == keys::quotas() {
            self.is_counted = true;
        } else if space(Space::Chunks) {
            // Those of files that are gone go a few at a time.
            if !self.doomed.contains(&FileId(key.hash)) {
                self.add_chunk(key, value);
            }
        } else if space(Space::Garbage) {
            self.add_note(key);
        } else if *key == keys::ids() {
            let record = IdsRecord::decode(Some(value)).ok().flatten();
            self.id_end = record.as_ref().map_or(FileId::NONE, |record| record.end);
            self.own_blocks = record.and_then(|record| record.own_blocks());
        } else if keys::is_entry(key.as_ref()) {
            let sums = self.indexes.entry(key.directory).or_default();
            sums.1 = sums.1.wrapping_add(hash_of_entry(key));
        }
    }

    /// Counts an entry that there should be in an index.
    fn expect(&mut self, entry: &Key) {
        let sums = self.indexes.entry(entry.directory).or_default();
        sums.0 = sums.0.wrapping_add(hash_of_entry(entry));
    }

    /// Counts the entries of an inode, or those of one of its names.
    fn expect_of(&mut self, inode: &Inode, name: Option<&[u8]>, is_linked: bool) {
        let configured = self.configured.clone();
        for attribute in configured.ready.attributes.iter().copied() {
            if is_of_names(attribute) != name.is_some() {
                continue;
            }
            let Some(value) = attribute.value(inode, name.unwrap_or_default()) else { continue };
            let entry = attribute.entry(&value, inode.id);
            if !is_linked || self.of_linked.insert(entry.clone()) {
                self.expect(&entry);
            }
        }
    }

    fn add_name(&mut self, key: &Key, value: &[u8]) {
        let Ok(inode) = Inode::decode(value) else {
            let what = format!("the record of name {} is not an inode", shown(key));
            return self.problem(FileId::NONE, Problem::Damaged(key.clone()), what);
        };
        if !is_possible(inode.id) {
            let what = format!("name {} is of an impossible file", shown(key));
            return self.problem(FileId::NONE, Problem::Damaged(key.clone()), what);
        }
        if *key != keys::root() {
            self.file(inode.id).names += 1;
            self.listed.insert(FileId(key.directory));
            self.last_id = self.last_id.max(FileId(key.directory));
            if keys::name_in(FileId(key.directory), &key.name) != *key {
                let what = format!("the hash of name {} is wrong", shown(key));
                self.problem(inode.id, Problem::Misplaced(key.clone()), what);
            }
        }
        let is_linked = inode.has(flag::LINKED);
        if *key != keys::root() {
            self.expect_of(&inode, Some(&key.name), is_linked);
        }
        if is_linked {
            return;
        }
        if inode.is_directory() && inode.id != ROOT {
            self.file(FileId(key.directory)).subdirectories += 1;
            self.parents.insert(inode.id, FileId(key.directory));
        }
        self.add_inode(inode.id, key, value);
    }

    fn add_inode(&mut self, id: FileId, key: &Key, value: &[u8]) {
        let is_linked = key.directory == Space::Links as u64;
        let is_orphan = key.directory == Space::Orphans as u64;
        let Ok(inode) = Inode::decode(value) else {
            return self.problem(id, Problem::Damaged(key.clone()), "its record is not an inode");
        };
        if inode.id != id {
            let what = format!("its record says that it is file {}", inode.id);
            self.problem(id, Problem::Misnamed(key.clone()), what);
        }
        let mut sums = Sums::default();
        sums.add(&inode);
        sums.add_to(&mut self.used);
        if !is_orphan && id != ROOT {
            self.expect_of(&inode, None, false);
        }
        let facts = Facts {
            file_type: inode.file_type(),
            nlink: inode.nlink,
            flags: inode.flags,
            size: inode.size,
            blocks: inode.blocks,
            is_linked,
            is_orphan,
        };
        if self.file(id).inode.replace(facts).is_some() {
            self.fault(id, "it has two inodes");
        }
    }

    fn add_usage(&mut self, key: &Key, value: &[u8]) {
        match Account::parse(key.hash).and_then(|account| Ok((account, Usage::decode(value)?))) {
            Ok((account, usage)) => drop(self.usage.insert(account, [usage.bytes, usage.inodes])),
            Err(error) => {
                self.problem(FileId::NONE, Problem::Usage, format!("a record of usage: {error}"))
            }
        }
    }

    /// Compares what is on record of usage with what inodes say.
    fn judge_usage(&mut self) {
        let usage = std::mem::take(&mut self.usage);
        let mut used = std::mem::take(&mut self.used);
        used.retain(|_, sums| self.is_counted && *sums != [0, 0]);
        let accounts = usage.keys().chain(used.keys()).collect::<BTreeSet<_>>();
        for account in accounts {
            let [[bytes, inodes], [real_bytes, real_inodes]] =
                [&usage, &used].map(|of| of.get(account).copied().unwrap_or_default());
            if (bytes, inodes) != (real_bytes, real_inodes) {
                let what = format!(
                    "{account} has {real_inodes} files with {real_bytes} bytes, and its usage \
                     says {inodes} with {bytes}"
                );
                self.problem(FileId::NONE, Problem::Usage, what);
            }
        }
    }

    fn add_index(&mut self, key: &Key) {
        let id = FileId(key.hash);
        let Some((parent, name)) = keys::parse_name(&key.name) else {
            let problem = Problem::StrayEntry(key.clone());
            return self.problem(id, problem, "an entry of the name index is too short");
        };
        let value = self.snapshot.get(keys::name_in(parent, name).as_ref());
        match value.map(|value| value.and_then(|value| Inode::decode(&value).ok())) {
            Ok(Some(inode)) if inode.id == id => self.file(id).indexed += 1,
            _ => {
                let name = name.escape_ascii();
                let what = format!("directory {parent} has no {name}, as the index says");
                self.problem(id, Problem::StrayEntry(key.clone()), what);
            }
        }
    }

    fn judge(&mut self) {
        let building = self.configured.building.numbers();
        for (first, (expected, found)) in std::mem::take(&mut self.indexes) {
            let is_building =
                building.iter().any(|one| u64::from(*one) == keys::attribute_of(first));
            if expected != found && !is_building {
                let number = keys::attribute_of(first);
                let what = format!("the index of attribute {number} has not what records say");
                self.problem(FileId::NONE, Problem::Index(number), what);
            }
        }
        let files = std::mem::take(&mut self.files);
        let mut ids = Vec::from_iter(files.keys().copied());
        ids.sort_unstable();
        for id in ids {
            self.judge_file(id, &files[&id]);
        }
        self.judge_reachability(&files);
        if self.chunk_objects.is_none() {
            self.judge_objects(&files);
        }
        self.judge_usage();
        self.files = files;
    }

    /// Finds objects that nobody has, and files whose objects are missing or of another length.
    fn judge_objects(&mut self, files: &HashMap<FileId, Seen>) {
        if let Some(past) = self.past.clone() {
            return self.judge_past_objects(&past, files);
        }
        let Ok(objects) = self.namespace.contents.objects() else {
            return self.problem(
                FileId::NONE,
                Problem::Disk,
                "the directory of objects cannot be read",
            );
        };
        let objects: HashSet<FileId> = objects.into_iter().collect();
        let has_object = |seen: &Seen| {
            let facts = seen.inode.as_ref().filter(|facts| facts.flags & flag::OBJECT != 0)?;
            Some(facts.size)
        };
        for (id, seen) in files {
            let Some(size) = has_object(seen) else { continue };
            let found = self.namespace.contents.object_size(*id);
            if found != Some(size) && self.is_still_wrong(*id) {
                let found = found.map_or("none".into(), |found| format!("one of {found} bytes"));
                let what = format!("its object must have {size} bytes, and there is {found}");
                self.fault(*id, self.namespace.about(*id, &what));
            }
        }
        // Opening the namespace for writing removes files that a crash has left.
        let objects = if self.namespace.leaves_strays { HashSet::new() } else { objects };
        for id in objects {
            let is_known = files.get(&id).is_some_and(|seen| has_object(seen).is_some());
            if !is_known && !self.doomed.contains(&id) && self.is_still_wrong(id) {
                self.fault(id, "its inode says that it has no object, and there is one");
            }
        }
    }

    /// Finds files of a snapshot whose objects are missing or of another length.
    fn judge_past_objects(&mut self, past: &Past, files: &HashMap<FileId, Seen>) {
        for (id, seen) in files {
            let Some(inode) = seen.inode.as_ref().filter(|inode| !inode.is_orphan) else {
                continue;
            };
            let size = inode.size;
            if inode.flags & flag::OBJECT == 0 {
                continue;
            }
            // The kernel may have been writing it: then the record may be behind.
            let unsettled = self.snapshot.get(Space::Unsettled.of(*id, b"").as_ref());
            let is_settled = unsettled.is_ok_and(|note| note.is_none());
            let found = self.namespace.open_past(past, *id).and_then(|file| file.object_bytes());
            match found {
                Ok(Some(found)) if found == size || !is_settled => {}
                Ok(Some(found)) => {
                    let what = format!("its object must have {size} bytes, and has {found}");
                    self.fault(*id, what);
                }
                Ok(None) => self.fault(*id, "its contents are in no object"),
                Err(error) => self.fault(*id, format!("its object: {error}")),
            }
        }
    }

    /// Returns whether the object of a file is not as its record says, now that some time has gone:
    /// others may have changed both meanwhile.
    fn is_still_wrong(&self, id: FileId) -> bool {
        let namespace = self.namespace;
        let _writer = (!self.is_alone).then(|| namespace.tablet.writer.lock());
        let is_doomed = namespace.tablet.table.get(Space::Doomed.of(id, b"").as_ref());
        // Anything that cannot be read now is still wrong.
        let is_doomed = is_doomed.is_ok_and(|found| found.is_some());
        if is_doomed || namespace.contents.find(id, false).is_some() {
            return false;
        }
        let found = namespace.contents.object_size(id);
        let inode = namespace.tablet.inode_now(id).ok().filter(|inode| inode.has(flag::OBJECT));
        inode.map(|inode| inode.size) != found
    }

    fn judge_file(&mut self, id: FileId, seen: &Seen) {
        let Some(inode) = &seen.inode else {
            return self.fault(id, "there are records of a file that has no inode");
        };
        let is_directory = inode.file_type == file_type::DIRECTORY;
        let nlink = match (is_directory, inode.is_orphan) {
            (true, false) => 2 + seen.subdirectories,
            (true, true) => 0,
            (false, _) => seen.names,
        };
        if inode.nlink != nlink {
            self.fault(id, format!("it counts {} links and has {nlink}", inode.nlink));
        }
        if seen.indexed != seen.names {
            let what = format!("it has {} names, {} in the index", seen.names, seen.indexed);
            self.fault(id, what);
        }
        if inode.is_orphan && seen.names > 0 {
            self.fault(id, "it has a name and is kept as if it had none");
        }
        if inode.is_linked && seen.names == 0 && nlink == inode.nlink {
            self.fault(id, "no name leads to it");
        }
        if is_directory && seen.names > 1 {
            self.fault(id, "a directory has several names");
        }
        if !inode.is_linked && !inode.is_orphan && seen.names > 1 {
            self.fault(id, "it has several names, and its inode lies with one");
        }
        let has = |flag| inode.flags & flag != 0;
        if has(flag::XATTRS) != (seen.xattrs > 0) {
            self.fault(
                id,
                format!("it has {} extended attributes, and its inode says otherwise", seen.xattrs),
            );
        }
        if has(flag::INLINE) != seen.contents_bytes.is_some() {
            self.fault(id, "its inode and its records differ on whether it has small contents");
        }
        if let Some(bytes) = seen.contents_bytes.filter(|bytes| *bytes != inode.size) {
            let size = inode.size;
            self.fault(id, format!("its inode says {size} bytes, its contents have {bytes}"));
        }
        if id != ROOT && id >= self.id_end {
            self.problem(id, Problem::Ids, "its id may be given to another file");
        }
        if id != ROOT && !self.is_reserved(id.block()) {
            let what = "a file of another table may get the same id";
            self.problem(id, Problem::Block(id.block()), what);
        }
        if has(flag::INLINE) && has(flag::OBJECT) {
            self.fault(id, "it has contents twice");
        }
        if self.chunk_objects.is_some() && (seen.chunks.is_some() || has(flag::OBJECT)) {
            let (blocks, end) = seen.chunks.unwrap_or_default();
            if !has(flag::OBJECT) {
                self.fault(id, "its inode says that it has no chunks, and there are some");
            } else if end > inode.size || blocks != inode.blocks {
                let (size, taken) = (inode.size, inode.blocks);
                let has = format!("it has {size} bytes in {taken} blocks");
                self.fault(id, format!("{has}, and chunks up to {end} in {blocks}"));
            }
        }
        let is_regular = inode.file_type == file_type::REGULAR;
        let has_any = has(flag::INLINE) || has(flag::OBJECT);
        if has(flag::ABSENT) && (has_any || !is_regular) {
            self.fault(id, "its contents count as absent, which they cannot be");
        }
        if is_regular && inode.size > 0 && !has_any && !has(flag::ABSENT) {
            self.fault(id, format!("it has {} bytes, but no contents", inode.size));
        }
    }

    /// Looks at which blocks of ids are reserved, if the table has any.
    fn judge_blocks(&mut self) -> Result<()> {
        let Some(own) = self.own_blocks.clone().filter(|_| self.past.is_none()) else {
            return Ok(());
        };
        self.reserved = Some(self.namespace.tablet.table.reserved_numbers()?);
        if !self.is_reserved(own.start) {
            let what = "storage may give the ids of new files to another table";
            self.problem(FileId::NONE, Problem::Block(own.start), what);
        }
        Ok(())
    }

    fn is_reserved(&self, Block(block): Block) -> bool {
        let Some(reserved) = &self.reserved else { return true };
        let behind = reserved.partition_point(|run| run.start <= block);
        behind > 0 && reserved[behind - 1].contains(&block)
    }

    /// Finds directories that no path leads to.
    fn judge_reachability(&mut self, files: &HashMap<FileId, Seen>) {
        let mut reached = HashSet::from([ROOT]);
        let mut lost = Vec::new();
        for &directory in self.parents.keys() {
            let (mut way, mut at) = (Vec::new(), directory);
            while !reached.contains(&at) {
                way.push(at);
                match self.parents.get(&at) {
                    // A way longer than there are directories goes round in circles.
                    Some(&parent) if way.len() <= self.parents.len() => at = parent,
                    _ => break,
                }
            }
            match reached.contains(&at) {
                true => reached.extend(way),
                false => lost.push(directory),
            }
        }
        lost.sort_unstable();
        for id in lost {
            self.problem(id, Problem::Lost, "no path leads to this directory");
        }
        for directory in std::mem::take(&mut self.listed) {
            let seen = files.get(&directory).and_then(|seen| seen.inode.as_ref());
            if seen.is_none_or(|facts| facts.file_type != file_type::DIRECTORY) {
                self.fault(directory, "names lie in what is not a directory");
            }
        }
    }
}
