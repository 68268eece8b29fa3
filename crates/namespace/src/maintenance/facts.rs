//! Facts about files that the records of one tablet contribute to a check of several tablets. Each
//! fact is about one file, so whoever has all facts of a file, from all tablets, can judge it alone.
//!
//! Indexes are checked here: entries lie beside the records that they follow from. Sums of hashes of
//! the entries that there should be, and that there are, differ if an index is wrong. Sums of usage are
//! those of the table, so they are checked here, too.
//!
//! Not its job: judging, and anything that is not in records of the namespace (`cluster`, `check`).

use crate::contents::chunks::{ChunkId, ObjectId, Stored, blocks, parse_key, parse_note};
use crate::error::Result;
use crate::quota::{Account, Sums, Usage};
use crate::records::acl;
use crate::records::change::is_indexed;
use crate::records::indexing::is_of_names;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::moving::HalfState;
use crate::records::range::TabletRange;
use crate::records::tablet::Tablet;
use crate::settings::Configured;
use canopy_store::{Direction, Key, KeyRange, TableSnapshot, hash_of};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// Facts of a page have not many more bytes.
const BYTES_MAX: usize = 256 << 10;

/// Records that are read for one page at most.
const RECORDS_MAX: u64 = 65_536;

/// Content of a name's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum NameKind {
    /// The inode of its file.
    Whole,
    /// A pointer to a file with several names.
    Linked,
    /// The access half of a directory.
    Directory,
}

/// The parts of an inode that have to agree with other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct InodeFact {
    /// Number of links.
    pub nlink: u32,
    /// Bits of [`flag`].
    pub flags: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space of the contents, in blocks.
    pub blocks: u64,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// A fact about a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Fact {
    /// A name that the tablet holds.
    Name {
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
        /// Content of its record.
        kind: NameKind,
        /// The inode, or what the record has of it.
        inode: InodeFact,
    },
    /// The inode of a file with several names.
    Linked(InodeFact),
    /// The inode of a file without a name.
    Orphan(InodeFact),
    /// A content half of a directory.
    Half {
        /// The inode.
        inode: InodeFact,
        /// Whether it is the one of partition 0.
        is_first: bool,
        /// Version of its attributes.
        version: u64,
        /// A hash of its attributes.
        attributes: u64,
    },
    /// An entry of the index of names.
    Found {
        /// The directory.
        directory: FileId,
        /// The name.
        name: Vec<u8>,
    },
    /// Number of extended attributes.
    Xattrs(u32),
    /// Bytes of contents that are a record.
    Contents(u64),
    /// Chunks: their space in blocks, and the end of the last one.
    Chunks {
        /// Blocks.
        blocks: u64,
        /// Offset of the end.
        end: u64,
    },
    /// An object that a record names.
    Object {
        /// The number of the chunk.
        chunk: u64,
        /// The object.
        object: ObjectId,
        /// Its length.
        bytes: u32,
        /// Hash of its bytes.
        checksum: u64,
    },
    /// A directory whose name may be missing.
    Making,
    /// The file is gone. Records of its chunks go next.
    Doomed,
    /// Names in a directory that the tablet holds, and directories among them.
    Entries {
        /// Number of names.
        names: u64,
        /// Number of directories.
        directories: u32,
    },
    /// A name in a directory that the tablet does not hold.
    Copy {
        /// The hash of the name.
        hash: u64,
    },
    /// A record that is not what it must be. `is_note` if it can be removed without loss.
    Wrong {
        /// Description.
        what: String,
        /// Whether it is a note of garbage.
        is_note: bool,
    },
}

/// A table at the moment that is checked.
pub struct CheckedTable {
    snapshot: TableSnapshot,
    /// The names that the tablet held then.
    held: TabletRange,
    /// Whether usage was counted.
    counts: bool,
}

/// A page of facts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FactPage {
    /// Facts, each with the file that it is about.
    pub facts: Vec<(FileId, Fact)>,
    /// Sums of hashes of index entries, by the numbers of attributes: those that there are, less those
    /// that there should be.
    pub indexes: BTreeMap<u64, u64>,
    /// Bytes and inodes by account: those that were counted, less those that inodes use. Empty where
    /// usage is not counted.
    pub usage: BTreeMap<Account, [u64; 2]>,
    /// Number of records that were read.
    pub records: u64,
    /// The place where the next page begins; none at the end.
    pub next: Option<Place>,
}

impl FactPage {
    fn add_usage(&mut self, account: Account, [bytes, inodes]: [u64; 2]) {
        let of = self.usage.entry(account).or_default();
        *of = [of[0].wrapping_add(bytes), of[1].wrapping_add(inodes)];
    }
}

/// A place in a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place(u64, u64, Vec<u8>);

impl Tablet {
    /// Returns the table as it is, for `facts`.
    pub fn checked(&self) -> CheckedTable {
        let _writer = self.writer.lock();
        let (snapshot, held) = (self.table.snapshot(), self.range.frozen());
        CheckedTable { snapshot, held, counts: self.counts_usage() }
    }

    /// Returns facts from the records of a table, from a place on, or from the first record.
    ///
    /// # Errors
    ///
    /// Fails as the table does. A record that cannot be read as one is a fact.
    pub fn facts(&self, table: &CheckedTable, from: Option<&Place>) -> Result<FactPage> {
        let snapshot = &table.snapshot;
        let mut range = KeyRange::all();
        if let Some(Place(directory, hash, name)) = from {
            range.start = Key { directory: *directory, hash: *hash, name: name.clone() };
        }
        let mut collecting = Collecting::new(self, snapshot);
        collecting.counts = table.counts.then_some(&table.held);
        let mut scan = snapshot.scan(&range, Direction::Forward)?;
        while let Some(record) = scan.next()? {
            let key = record.key.to_key();
            collecting.add(&key, record.value)?;
            collecting.page.records += 1;
            if collecting.bytes >= BYTES_MAX || collecting.page.records >= RECORDS_MAX {
                let next = key.successor();
                collecting.page.next = Some(Place(next.directory, next.hash, next.name));
                break;
            }
        }
        collecting.end_run();
        Ok(collecting.page)
    }

    /// Returns what records say now of a file, with these names of it.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn facts_of(&self, id: FileId, names: &[(FileId, Vec<u8>)]) -> Result<Vec<Fact>> {
        let snapshot = {
            let _writer = self.writer.lock();
            self.table.snapshot()
        };
        let mut collecting = Collecting::new(self, &snapshot);
        let spaces = [
            Space::Links,
            Space::Orphans,
            Space::Directories,
            Space::Names,
            Space::Xattrs,
            Space::Contents,
            Space::Chunks,
            Space::Making,
            Space::Doomed,
            Space::Garbage,
        ];
        let mut ranges = Vec::from_iter(spaces.map(|space| space.range_of(id)));
        ranges.push(keys::names_in(id));
        if id == ROOT {
            let start = keys::root();
            ranges.push(KeyRange { end: Some(start.clone().successor()), start });
        }
        for range in ranges {
            let mut scan = snapshot.scan(&range, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                collecting.add(&record.key.to_key(), record.value)?;
            }
        }
        for (directory, name) in names {
            let key = keys::name_in(*directory, name);
            if let Some(value) = snapshot.get(key.as_ref())? {
                collecting.add_name(&key, &value);
            }
        }
        collecting.end_run();
        let facts = collecting.page.facts.into_iter();
        let mut facts = Vec::from_iter(facts.filter(|(of, _)| *of == id).map(|(_, fact)| fact));
        facts.sort();
        facts.dedup();
        Ok(facts)
    }
}

/// Facts that records with neighbouring keys contribute together.
enum Run {
    None,
    Names { directory: FileId, is_split: bool, names: u64, directories: u32 },
    Xattrs(FileId, u32),
    Chunks(FileId, u64, u64),
}

struct Collecting<'a> {
    tablet: &'a Tablet,
    snapshot: &'a TableSnapshot,
    configured: Arc<Configured>,
    page: FactPage,
    bytes: usize,
    run: Run,
    /// The names whose files count, if usage is compared.
    counts: Option<&'a TabletRange>,
}

impl<'a> Collecting<'a> {
    fn new(tablet: &'a Tablet, snapshot: &'a TableSnapshot) -> Self {
        let configured = tablet.configured();
        let (page, run) = (FactPage::default(), Run::None);
        Collecting { tablet, snapshot, configured, page, bytes: 0, run, counts: None }
    }

    fn fact(&mut self, id: FileId, fact: Fact) {
        let variable = match &fact {
            Fact::Name { name, .. } | Fact::Found { name, .. } => name.len(),
            Fact::Wrong { what, .. } => what.len(),
            _ => 0,
        };
        self.bytes += 48 + variable;
        self.page.facts.push((id, fact));
    }

    fn wrong(&mut self, id: FileId, what: impl Into<String>) {
        self.fact(id, Fact::Wrong { what: what.into(), is_note: false });
    }

    fn end_run(&mut self) {
        match std::mem::replace(&mut self.run, Run::None) {
            Run::Names { directory, names, directories, .. } if names > 0 => {
                self.fact(directory, Fact::Entries { names, directories });
            }
            Run::Xattrs(id, count) => self.fact(id, Fact::Xattrs(count)),
            Run::Chunks(id, blocks, end) => self.fact(id, Fact::Chunks { blocks, end }),
            Run::None | Run::Names { .. } => {}
        }
    }

    /// Compares usage: adds what was counted, and subtracts what an inode uses.
    fn add_usage(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        let Some(held) = self.counts else { return Ok(()) };
        if key.directory == Space::Usage as u64 {
            let usage = Usage::decode(value)?;
            self.page.add_usage(Account::parse(key.hash)?, [usage.bytes, usage.inodes]);
            return Ok(());
        }
        let apart = [Space::Links, Space::Orphans, Space::Directories];
        let is_counted = match keys::is_name(key.as_ref()) {
            true => held.has_name(FileId(key.directory), key.hash),
            false => *key == keys::root() || apart.map(|one| one as u64).contains(&key.directory),
        };
        // A record that is not an inode is a fact by itself.
        if let Some(inode) = Inode::decode(value).ok().filter(|_| is_counted) {
            let mut sums = Sums::default();
            sums.subtract(&inode);
            sums.parts().for_each(|(account, by)| self.page.add_usage(account, by));
        }
        Ok(())
    }

    fn add(&mut self, key: &Key, value: &[u8]) -> Result<()> {
        self.add_usage(key, value)?;
        let space = |space: Space| key.directory == space as u64;
        let id = FileId(key.hash);
        if *key == keys::root() {
            self.add_half(ROOT, value)?;
        } else if keys::is_name(key.as_ref()) {
            self.add_name_of_run(key, value);
        } else if space(Space::Links) {
            self.add_linked(id, value)?;
        } else if space(Space::Orphans) {
            match inode_of(id, value) {
                Ok(inode) => self.fact(id, Fact::Orphan(fact_of(&inode))),
                Err(what) => self.wrong(id, what),
            }
        } else if space(Space::Directories) {
            self.add_half(id, value)?;
        } else if space(Space::Names) {
            match keys::parse_name(&key.name) {
                Some((directory, name)) => {
                    self.fact(id, Fact::Found { directory, name: name.to_vec() });
                }
                None => self.wrong(id, "an entry of the name index is too short"),
            }
        } else if space(Space::Xattrs) {
            self.add_xattr(id, &key.name, value);
        } else if space(Space::Contents) {
            self.fact(id, Fact::Contents(value.len() as u64));
        } else if space(Space::Chunks) {
            self.add_chunk(id, &key.name, value);
        } else if space(Space::Garbage) {
            self.add_note(id, &key.name)?;
        } else if space(Space::Making) && key.name.is_empty() {
            self.fact(id, Fact::Making);
        } else if space(Space::Doomed) {
            self.fact(id, Fact::Doomed);
        } else if keys::is_entry(key.as_ref()) {
            let number = keys::attribute_of(key.directory);
            let sum = self.page.indexes.entry(number).or_default();
            *sum = sum.wrapping_add(hash_of_entry(key));
        }
        Ok(())
    }

    /// Counts an entry that there should be in an index.
    fn expect(&mut self, entry: &Key) {
        let sum = self.page.indexes.entry(keys::attribute_of(entry.directory)).or_default();
        *sum = sum.wrapping_sub(hash_of_entry(entry));
    }

    /// Counts the entries of an inode.
    fn expect_inode(&mut self, inode: &Inode) {
        let configured = self.configured.clone();
        for attribute in configured.indexes.attributes.iter().filter(|one| !is_of_names(**one)) {
            let entry = attribute.value(inode, b"").map(|value| attribute.entry(&value, inode.id));
            entry.iter().for_each(|entry| self.expect(entry));
        }
    }

    /// Counts the entries of names of a file, each once.
    fn expect_names<'n>(&mut self, inode: &Inode, names: impl Iterator<Item = &'n [u8]>) {
        let configured = self.configured.clone();
        let attributes = configured.indexes.attributes.iter().copied();
        let attributes = Vec::from_iter(attributes.filter(|one| is_of_names(*one)));
        if attributes.is_empty() {
            return;
        }
        let mut entries = HashSet::new();
        for name in names {
            entries.extend(attributes.iter().filter_map(|attribute| {
                Some(attribute.entry(&attribute.value(inode, name)?, inode.id))
            }));
        }
        entries.iter().for_each(|entry| self.expect(entry));
    }

    fn add_name_of_run(&mut self, key: &Key, value: &[u8]) {
        let directory = FileId(key.directory);
        match self.run {
            Run::Names { directory: of, .. } if of == directory => {}
            _ => {
                self.end_run();
                let is_split = self.tablet.range().is_split(directory);
                self.run = Run::Names { directory, is_split, names: 0, directories: 0 };
            }
        }
        let is_directory = self.add_name(key, value);
        if let (Run::Names { names, directories, .. }, Some(is_directory)) =
            (&mut self.run, is_directory)
        {
            *names += 1;
            *directories += u32::from(is_directory);
        }
    }

    /// Adds a name. Returns whether it is of a directory, unless the tablet does not hold it.
    fn add_name(&mut self, key: &Key, value: &[u8]) -> Option<bool> {
        let directory = FileId(key.directory);
        let Ok(inode) = Inode::decode(value) else {
            let shown = key.name.escape_ascii();
            self.wrong(directory, format!("the record of its name {shown} is not an inode"));
            return None;
        };
        if !inode.is_pointer() {
            self.expect_names(&inode, std::iter::once(&key.name[..]));
            self.expect_inode(&inode);
        }
        let is_split = match self.run {
            Run::Names { directory: of, is_split, .. } if of == directory => is_split,
            _ => self.tablet.range().is_split(directory),
        };
        if is_split && !self.tablet.range().has_name(directory, key.hash) {
            self.fact(directory, Fact::Copy { hash: key.hash });
            return None;
        }
        if keys::name_in(directory, &key.name) != *key {
            let shown = key.name.escape_ascii();
            self.wrong(directory, format!("the hash of its name {shown} is wrong"));
        }
        let kind = match &inode {
            inode if inode.has(flag::LINKED) => NameKind::Linked,
            inode if inode.has(flag::ACCESS_HALF) => NameKind::Directory,
            _ => NameKind::Whole,
        };
        let (name, fact) = (key.name.clone(), fact_of(&inode));
        self.fact(inode.id, Fact::Name { directory, name, kind, inode: fact });
        Some(inode.is_directory())
    }

    fn add_linked(&mut self, id: FileId, value: &[u8]) -> Result<()> {
        let inode = match inode_of(id, value) {
            Ok(inode) => inode,
            Err(what) => {
                self.wrong(id, what);
                return Ok(());
            }
        };
        self.expect_apart(&inode)?;
        self.fact(id, Fact::Linked(fact_of(&inode)));
        Ok(())
    }

    /// Counts the entries of an inode that lies apart from its names.
    fn expect_apart(&mut self, inode: &Inode) -> Result<()> {
        self.expect_inode(inode);
        let mut names = Vec::new();
        let mut scan = self.snapshot.scan(&Space::Names.range_of(inode.id), Direction::Forward)?;
        while let Some(record) = scan.next()? {
            names.extend(keys::parse_name(record.key.name).map(|(_, name)| name.to_vec()));
        }
        self.expect_names(inode, names.iter().map(Vec::as_slice));
        Ok(())
    }

    fn add_half(&mut self, id: FileId, value: &[u8]) -> Result<()> {
        let inode = match inode_of(id, value) {
            Ok(inode) => inode,
            Err(what) => {
                self.wrong(id, what);
                return Ok(());
            }
        };
        let is_first = !inode.has(flag::FURTHER);
        let place = if id == ROOT { keys::root() } else { Space::Directories.of(id, b"") };
        if is_first && is_indexed(&place) {
            self.expect_apart(&inode)?;
        }
        let mut attributes = Vec::new();
        for number in [inode.mode, inode.uid, inode.gid, inode.project] {
            attributes.extend_from_slice(&number.to_le_bytes());
        }
        for acl in [acl::ACCESS, acl::DEFAULT] {
            let value = self.snapshot.get(Space::Xattrs.of(id, acl.as_bytes()).as_ref())?;
            attributes.extend(postcard::to_extend(&value, Vec::new()).unwrap_or_default());
        }
        let state = Space::Partitions.of(id, &crate::HALF_STATE.to_be_bytes());
        let state = self.snapshot.get(state.as_ref())?;
        let state = state.map_or(Ok(HalfState::default()), |value| postcard::from_bytes(&value));
        let Ok(HalfState { version, .. }) = state else {
            self.wrong(id, "the record of its attributes' version is damaged");
            return Ok(());
        };
        let (inode, attributes) = (fact_of(&inode), hash_of(&attributes));
        self.fact(id, Fact::Half { inode, is_first, version, attributes });
        Ok(())
    }

    fn add_xattr(&mut self, id: FileId, name: &[u8], value: &[u8]) {
        let entry = self.configured.indexes.xattr_entry(name, value, id);
        entry.iter().for_each(|entry| self.expect(entry));
        match &mut self.run {
            Run::Xattrs(of, count) if *of == id => *count += 1,
            _ => {
                self.end_run();
                self.run = Run::Xattrs(id, 1);
            }
        }
    }

    fn add_chunk(&mut self, id: FileId, name: &[u8], value: &[u8]) {
        let (Some(chunk), Some(stored)) = (parse_key(name), Stored::decode(value)) else {
            return self.wrong(id, "the record of a chunk is damaged");
        };
        let bytes = self.configured.settings.chunk_bytes;
        let chunk_end = chunk.saturating_mul(bytes).saturating_add(stored.used.into());
        match &mut self.run {
            Run::Chunks(of, space, end) if *of == id => {
                *space += blocks(stored.used.into());
                *end = chunk_end.max(*end);
            }
            _ => {
                self.end_run();
                self.run = Run::Chunks(id, blocks(stored.used.into()), chunk_end);
            }
        }
        if !stored.is_lost() {
            let Stored { object, object_bytes: bytes, checksum, .. } = stored;
            self.fact(id, Fact::Object { chunk, object, bytes, checksum });
        }
    }

    /// Looks at a note that an object may go: no record may need it.
    fn add_note(&mut self, id: FileId, name: &[u8]) -> Result<()> {
        let Some((chunk, object)) = parse_note(name) else {
            self.wrong(id, "a note of an object is damaged");
            return Ok(());
        };
        let record = self.snapshot.get(ChunkId::new(id, chunk).key().as_ref())?;
        let named = record.and_then(|value| Stored::decode(&value));
        if named.is_some_and(|stored| stored.object == object) {
            let what = format!("a note says that the object of chunk {chunk} may go");
            self.fact(id, Fact::Wrong { what, is_note: true });
        }
        Ok(())
    }
}

fn inode_of(id: FileId, value: &[u8]) -> std::result::Result<Inode, String> {
    match Inode::decode(value) {
        Err(_) => Err("its record is not an inode".into()),
        Ok(inode) if inode.id != id => Err(format!("its record says that it is file {}", inode.id)),
        Ok(inode) => Ok(inode),
    }
}

fn fact_of(inode: &Inode) -> InodeFact {
    let Inode { nlink, flags, size, blocks, .. } = *inode;
    InodeFact { nlink, flags, size, blocks, is_directory: inode.is_directory() }
}

/// Returns a hash of an entry. Sums of these show whether two sets are equal, in any order.
fn hash_of_entry(key: &Key) -> u64 {
    let of_name = hash_of(&key.name);
    hash_of(&[key.directory, key.hash, of_name].map(u64::to_le_bytes).concat())
}
