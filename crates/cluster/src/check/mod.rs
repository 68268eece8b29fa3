//! Checking a namespace on several servers, and mending it.
//!
//! Each server reads a snapshot of its own table and passes on facts, page by page
//! ([`canopy_namespace::Fact`]): each is about one file. The checker groups them by file, and judges
//! each file by all of its facts (`judge`). So the cost is linear, and a server keeps nothing but
//! its snapshot. The checker keeps facts in files once they are many (`buckets`); in memory it has 32
//! bytes for each directory, to find those that no path leads to.
//!
//! Servers go on meanwhile, and their snapshots are not of one moment. So a file that seems wrong is
//! looked at again ([`ServerRequest::FactsOf`]), some times in a second or so. A fault counts if it
//! is there each time. Indexes and sums of usage are compared within one snapshot of each table.
//!
//! | to change | read |
//! | --- | --- |
//! | rules that facts of a file obey | `judge` |
//! | answers of a server | `source` |
//! | reading contents | `contents` |
//! | repairs | `mend` |
//! | snapshots | `past` |

mod buckets;
mod contents;
mod judge;
mod mend;
mod past;
mod source;

pub use mend::{Repaired, repair, repair_contents};
pub use past::check_snapshot;
pub(crate) use source::Checking;
pub use source::DirectoryFact;

use crate::contents::objects;
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use buckets::Buckets;
use canopy_namespace::quota::Account;
use canopy_namespace::{ChunkId, Fact, FileId, Mend, NameKind, ObjectId, ROOT};
use canopy_partition::ServerId;
use canopy_store::storage::Storage;
use contents::{Chunks, Reads};
use judge::{Home, judge};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::thread;
use std::time::Duration;

/// Looks at a file that seems wrong, after the first one.
const LOOKS: usize = 4;

/// Pause between them.
const PAUSE: Duration = Duration::from_millis(250);

/// Files that are looked at again; with more, the rest is found by the next check.
const SUSPECTS_MAX: usize = 100_000;

/// Something that no namespace has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The file that it concerns; 0 if none.
    pub id: FileId,
    /// Description.
    pub what: String,
    pub(crate) repair: Option<Repair>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            FileId::NONE => f.write_str(&self.what),
            id => write!(f, "file {id}: {}", self.what),
        }
    }
}

/// A repair of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// One server mends its records.
    At(ServerId, Mend),
    /// The home gives its attributes to all servers.
    Push,
    /// A file with several names, or a directory, gets a name in `lost+found`.
    Lost {
        /// Whether it is a directory.
        is_directory: bool,
    },
    /// An object goes.
    Remove(ChunkId, ObjectId),
}

/// Something that is known about a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Item {
    Fact(Fact),
    Directory(DirectoryFact),
    /// An object in storage, its bytes, and whether its session has ended.
    Stored {
        chunk: u64,
        object: ObjectId,
        bytes: u64,
        has_ended: bool,
    },
    /// An object that a record names, and that could not be read, or is not what the record says.
    Unsound {
        chunk: u64,
        object: ObjectId,
        is_damaged: bool,
        why: String,
    },
}

/// Items of a file, with the servers that they are from.
pub(crate) type Items = Vec<(ServerId, Item)>;

/// The part of a check that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Number of records that were read.
    Records(u64),
    /// Contents that were read.
    Contents {
        /// Bytes that were read.
        bytes: u64,
        /// Bytes of all contents that are objects.
        all: u64,
    },
}

/// Checks all records of all servers, and that chunks have their objects in a storage, and returns the
/// faults. Others may change things meanwhile.
///
/// # Errors
///
/// Fails if a server does not answer, and as storage does.
pub fn check(
    peers: &dyn Peers,
    storage: &dyn Storage,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Fault>> {
    let none = Reads::Some(Chunks::new());
    run(peers, storage, &none, progress).map(|(faults, _)| faults)
}

/// Like [`check`], and reads all objects of contents.
///
/// # Errors
///
/// Fails as `check` does.
pub fn check_contents(
    peers: &dyn Peers,
    storage: &dyn Storage,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Fault>> {
    run(peers, storage, &Reads::All, progress).map(|(faults, _)| faults)
}

/// Checks, and reads some objects. Returns the faults, and the objects that are not what they must be.
fn run(
    peers: &dyn Peers,
    storage: &dyn Storage,
    reads: &Reads,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(Vec<Fault>, Chunks)> {
    let (homes, faults, unsound) = (HashMap::new(), Vec::new(), Chunks::new());
    let (keeps_objects, content_bytes) = (false, 0);
    let mut check =
        Check { peers, storage, reads, keeps_objects, content_bytes, homes, unsound, faults };
    check.keeps_objects = check.has_snapshots()?;
    let mut buckets = Buckets::default();
    let parents = check.collect(&mut buckets, progress)?;
    let mut suspects = check.suspects(&mut buckets, progress)?;
    check.judge_paths(&parents, &mut suspects)?;
    check.judge_unfinished()?;
    check.look_again(suspects)?;
    check.faults.sort_by(|one, other| (one.id, &one.what).cmp(&(other.id, &other.what)));
    Ok((check.faults, check.unsound))
}

struct Check<'a> {
    peers: &'a dyn Peers,
    storage: &'a dyn Storage,
    reads: &'a Reads,
    /// Bytes of all objects that records name.
    content_bytes: u64,
    /// Objects that were not what their records said.
    unsound: Chunks,
    /// Whether snapshots may need objects that no record names now.
    keeps_objects: bool,
    /// Homes by blocks of ids.
    homes: HashMap<u64, Home>,
    faults: Vec<Fault>,
}

/// Names of files that seem wrong.
type Suspects = BTreeMap<FileId, BTreeSet<(FileId, Vec<u8>)>>;

impl Check<'_> {
    fn servers(&self) -> impl Iterator<Item = ServerId> + use<> {
        (0..self.peers.server_count()).map(ServerId)
    }

    fn ask(&self, server: ServerId, request: ServerRequest<'_>) -> Result<Response> {
        self.peers.ask(server, Sender::SERVER, &Request::OfServer(request))
    }

    fn has_snapshots(&self) -> Result<bool> {
        match self.ask(ServerId(0), ServerRequest::Snapshots)? {
            Response::Snapshots(all, is_making) => Ok(is_making || !all.is_empty()),
            _ => Err(Error::Unfit),
        }
    }

    /// Collects what all servers and the storage know. Returns the directory above each one.
    fn collect(
        &mut self,
        buckets: &mut Buckets,
        progress: &dyn Fn(Progress),
    ) -> Result<HashMap<FileId, FileId>> {
        let mut tokens = Vec::new();
        for server in self.servers() {
            let Response::CheckBegun(token) = self.ask(server, ServerRequest::BeginCheck)? else {
                return Err(Error::Unfit);
            };
            tokens.push((server, token));
        }
        let (mut records, mut parents) = (0, HashMap::new());
        for (server, token) in tokens {
            self.collect_directories(server, buckets)?;
            let mut indexes: BTreeMap<u64, u64> = BTreeMap::new();
            let mut usage: BTreeMap<Account, [u64; 2]> = BTreeMap::new();
            let mut from = None;
            loop {
                let asked = self.ask(server, ServerRequest::Facts(token, from))?;
                let Response::Facts(page) = asked else { return Err(Error::Unfit) };
                for (number, sum) in page.indexes {
                    let of = indexes.entry(number).or_default();
                    *of = of.wrapping_add(sum);
                }
                for (account, [bytes, inodes]) in page.usage {
                    let of = usage.entry(account).or_default();
                    *of = [of[0].wrapping_add(bytes), of[1].wrapping_add(inodes)];
                }
                records += page.records;
                progress(Progress::Records(records));
                for (id, fact) in page.facts {
                    if let Fact::Name { directory, kind: NameKind::Directory, .. } = &fact {
                        parents.insert(id, *directory);
                    }
                    if let Fact::Object { bytes, .. } = &fact {
                        self.content_bytes += u64::from(*bytes);
                    }
                    buckets.add(id, server, &Item::Fact(fact))?;
                }
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
            self.judge_sums(server, indexes, usage);
        }
        self.collect_objects(buckets)?;
        Ok(parents)
    }

    /// Judges what a server has added up: entries of indexes, and usage by account.
    fn judge_sums(
        &mut self,
        server: ServerId,
        indexes: BTreeMap<u64, u64>,
        usage: BTreeMap<Account, [u64; 2]>,
    ) {
        let mut add = |what, mend| {
            let repair = Some(Repair::At(server, mend));
            self.faults.push(Fault { id: FileId::NONE, what, repair });
        };
        for (number, _) in indexes.into_iter().filter(|(_, sum)| *sum != 0) {
            let what = format!(
                "the index of attribute {number} on server {server} has not what records say"
            );
            add(what, Mend::Indexes);
        }
        for (account, sums) in usage.into_iter().filter(|(_, sums)| *sums != [0, 0]) {
            let [bytes, inodes] = sums.map(|sum| sum as i64);
            let what = format!(
                "{account} uses {bytes} bytes and {inodes} files less on server {server} than counted"
            );
            add(what, Mend::Usage);
        }
    }

    fn collect_directories(&self, server: ServerId, buckets: &mut Buckets) -> Result<()> {
        let mut after = None;
        loop {
            let asked = self.ask(server, ServerRequest::Directories(after))?;
            let Response::Directories(directories) = asked else { return Err(Error::Unfit) };
            let Some(last) = directories.last() else { return Ok(()) };
            after = Some(last.directory);
            for directory in directories {
                buckets.add(directory.directory, server, &Item::Directory(directory))?;
            }
        }
    }

    fn collect_objects(&self, buckets: &mut Buckets) -> Result<()> {
        let ended: HashSet<u64> = objects::ended(self.storage)?.into_iter().collect();
        for listed in self.storage.list(objects::CHUNKS, "")? {
            // Others may have put something there.
            let Some((chunk, object)) = objects::parse(&listed.name) else { continue };
            let item = Item::Stored {
                chunk: chunk.number,
                object,
                bytes: listed.size_bytes,
                has_ended: !self.keeps_objects && ended.contains(&object.epoch),
            };
            buckets.add(chunk.file, ServerId(0), &item)?;
        }
        Ok(())
    }

    /// Returns the files whose items do not fit together, or whose contents do not.
    fn suspects(
        &mut self,
        buckets: &mut Buckets,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Suspects> {
        let mut suspects = Suspects::new();
        self.read_contents(&mut suspects, progress, |check, reader, suspects| {
            buckets.each(&mut |id, items| {
                if suspects.len() < SUSPECTS_MAX && !judge(id, check.home(id)?, items).is_empty() {
                    suspects.insert(id, names_of(items));
                }
                reader.read(id, items)
            })
        })?;
        Ok(suspects)
    }

    fn home(&mut self, id: FileId) -> Result<Home> {
        if id == ROOT {
            return Ok(Some(ServerId(0)));
        }
        if let Some(home) = self.homes.get(&id.block().0) {
            return Ok(*home);
        }
        let home = match self.peers.ask(ServerId(0), Sender::SERVER, &Request::HomeOf(id)) {
            Ok(Response::HomeOf(home)) => Some(home),
            Ok(_) => return Err(Error::Unfit),
            // Nobody has given the id out.
            Err(Error::Namespace(canopy_namespace::Error::Posix(_))) => None,
            Err(error) => return Err(error),
        };
        self.homes.insert(id.block().0, home);
        Ok(home)
    }

    /// Finds directories that lie in circles. Those without a name are found by their own facts.
    fn judge_paths(
        &mut self,
        parents: &HashMap<FileId, FileId>,
        suspects: &mut Suspects,
    ) -> Result<()> {
        let mut reached = HashSet::from([ROOT]);
        for directory in parents.keys() {
            let (mut way, mut at) = (Vec::new(), *directory);
            while reached.insert(at) {
                way.push(at);
                match parents.get(&at) {
                    Some(parent) => at = *parent,
                    None => break,
                }
            }
            if way.contains(&at) && parents.contains_key(&at) && !suspects.contains_key(&at) {
                // It may have been moved while servers were read.
                if self.is_in_circle(at)? {
                    let what = "this directory lies in itself".to_owned();
                    self.faults.push(Fault { id: at, what, repair: None });
                }
            }
        }
        Ok(())
    }

    fn is_in_circle(&mut self, directory: FileId) -> Result<bool> {
        let mut at = directory;
        let mut seen = HashSet::new();
        while at != ROOT && seen.insert(at) {
            let items = self.items_of(at, &BTreeSet::new())?;
            let name = items.iter().find_map(|(_, item)| match item {
                Item::Fact(Fact::Name { directory, .. }) => Some(*directory),
                _ => None,
            });
            match name {
                Some(parent) => at = parent,
                None => return Ok(false),
            }
        }
        Ok(at != ROOT)
    }

    /// Finds changes that do not end.
    fn judge_unfinished(&mut self) -> Result<()> {
        let mut left: Option<BTreeSet<(ServerId, String)>> = None;
        for look in 0..=LOOKS {
            let mut found = BTreeSet::new();
            for server in self.servers() {
                let asked = self.ask(server, ServerRequest::Unfinished)?;
                let Response::Unfinished(unfinished) = asked else { return Err(Error::Unfit) };
                found.extend(unfinished.into_iter().map(|what| (server, what)));
            }
            left = Some(match left {
                None => found,
                Some(left) => left.intersection(&found).cloned().collect(),
            });
            if look == LOOKS || left.as_ref().is_none_or(BTreeSet::is_empty) {
                break;
            }
            thread::sleep(PAUSE);
        }
        for (server, what) in left.unwrap_or_default() {
            let what = format!("server {server}: {what}");
            self.faults.push(Fault { id: FileId::NONE, what, repair: None });
        }
        Ok(())
    }

    /// Returns what all servers and the storage know of a file now.
    fn items_of(&self, id: FileId, names: &BTreeSet<(FileId, Vec<u8>)>) -> Result<Items> {
        let names = Vec::from_iter(names.iter().cloned());
        let mut items = Items::new();
        for server in self.servers() {
            let asked = self.ask(server, ServerRequest::FactsOf(id, names.clone()))?;
            let Response::FactsOf(facts, directory) = asked else { return Err(Error::Unfit) };
            items.extend(facts.into_iter().map(|fact| (server, Item::Fact(fact))));
            items.extend(directory.map(|directory| (server, Item::Directory(*directory))));
        }
        Ok(items)
    }

    /// Adds to the items of a file the objects among those of an earlier look that are still there, and
    /// those that records name.
    fn add_objects(
        &self,
        id: FileId,
        before: &[(ServerId, Item)],
        items: &mut Items,
    ) -> Result<()> {
        let mut objects = BTreeSet::new();
        for (_, item) in before.iter().chain(items.iter()) {
            match item {
                Item::Stored { chunk, object, .. }
                | Item::Fact(Fact::Object { chunk, object, .. }) => {
                    objects.insert((*chunk, *object));
                }
                _ => {}
            }
        }
        for (chunk, object) in objects {
            let name = objects::name(ChunkId::new(id, chunk), object);
            let bytes = match self.storage.size(&name) {
                Ok(bytes) => bytes,
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(error.into()),
            };
            let has_ended = !self.keeps_objects && objects::has_ended(self.storage, object.epoch)?;
            items.push((ServerId(0), Item::Stored { chunk, object, bytes, has_ended }));
        }
        Ok(())
    }

    /// Looks at files again that seem wrong. Faults that stay count.
    fn look_again(&mut self, mut suspects: Suspects) -> Result<()> {
        let mut known: BTreeMap<FileId, (Vec<Fault>, Items)> = BTreeMap::new();
        for look in 0..LOOKS {
            if suspects.is_empty() {
                break;
            }
            if look > 0 {
                thread::sleep(PAUSE);
            }
            let mut left = Suspects::new();
            for (id, mut names) in suspects {
                let mut items = self.items_of(id, &names)?;
                let before = known.remove(&id);
                let old = before.as_ref().map_or(&[][..], |(_, items)| items).to_vec();
                self.add_objects(id, &old, &mut items)?;
                self.read_again(id, &mut items);
                let mut faults = judge(id, self.home(id)?, &items);
                if let Some((before, _)) = before {
                    faults.retain(|fault| before.iter().any(|one| one.what == fault.what));
                }
                if !faults.is_empty() {
                    names.extend(names_of(&items));
                    left.insert(id, names);
                    known.insert(id, (faults, items));
                }
            }
            suspects = left;
        }
        self.faults.extend(known.into_values().flat_map(|(faults, _)| faults));
        Ok(())
    }
}

/// Returns the names of a file that items are about.
fn names_of(items: &[(ServerId, Item)]) -> BTreeSet<(FileId, Vec<u8>)> {
    let names = items.iter().filter_map(|(_, item)| match item {
        Item::Fact(Fact::Name { directory, name, .. } | Fact::Found { directory, name }) => {
            Some((*directory, name.clone()))
        }
        _ => None,
    });
    names.collect()
}
