//! What lies in storage, as far as the rules look at it, and the properties of it.

use crate::actor::Actor;
use crate::rules::{Rule, Rules};
use std::fmt;
use std::rc::Rc;

/// Not in the log, no job.
pub const NONE: u8 = 255;
/// What a fence has in place of records.
pub const FENCE: u8 = 255;
/// The manifests before it whose nonces a manifest has; 16 of them in a real one.
pub const NONCES: usize = 2;
/// Checkpoints: two of readers, and one held by each table that may be a clone.
pub const SLOTS: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Phase {
    Creating,
    Live,
    Deleted,
}

/// A checkpoint; there is none if the version is 0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Checkpoint {
    pub version: u8,
    pub nonce: u8,
    pub is_confirmed: bool,
}

/// SSTables of one table: a bit for each, at twice its job's number and its own.
pub type Ssts = u16;

/// Returns the bit of an SSTable.
pub fn sst(job: u8, number: u8) -> Ssts {
    1 << (job * 2 + number)
}

/// Records: a bit for each.
pub type Records = u8;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Manifest {
    pub version: u8,
    pub nonce: u8,
    /// The nonces of the versions before, the latest first.
    pub before: [u8; NONCES],
    pub phase: Phase,
    pub epoch: u8,
    /// By epoch, the first segment needed.
    pub log: [u8; 4],
    pub next_job: u8,
    /// The open jobs of compactions: a bit for each.
    pub jobs: u8,
    pub writer_job: u8,
    /// By table, the SSTables that the runs have.
    pub files: [Ssts; 3],
    /// What is in them.
    pub flushed: Records,
    /// A bit for each table.
    pub parents: u8,
    pub checkpoints: [Checkpoint; SLOTS],
}

impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}, {:?}", self.version, self.nonce, self.phase)
    }
}

impl Manifest {
    /// Returns version 1 of a table.
    pub fn first(phase: Phase, nonce: u8) -> Self {
        Manifest {
            version: 1,
            nonce,
            before: [0; NONCES],
            phase,
            epoch: 0,
            log: [NONE; 4],
            next_job: 1,
            jobs: 0,
            writer_job: NONE,
            files: [0; 3],
            flushed: 0,
            parents: 0,
            checkpoints: [Checkpoint::default(); SLOTS],
        }
    }

    /// Returns the nonce at a version up to this one, if it is not too long ago.
    pub fn nonce_at(&self, version: u8) -> Option<u8> {
        match usize::from(self.version - version) {
            0 => Some(self.nonce),
            back => self.before.get(back - 1).copied(),
        }
    }

    /// Returns the SSTables of a table that it needs; none if it is of a table that is deleted.
    pub fn needs(&self, table: u8) -> Ssts {
        if self.phase == Phase::Deleted { 0 } else { self.files[usize::from(table)] }
    }

    pub fn has_checkpoints(&self) -> bool {
        self.checkpoints.iter().any(|one| one.version != 0)
    }

    pub fn keeps(&self, version: u8) -> bool {
        self.checkpoints.iter().any(|one| one.version == version)
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Table {
    /// By version.
    pub manifests: Vec<Manifest>,
    pub ssts: Ssts,
    /// By epoch and number, what a segment has; 0 if there is none.
    pub log: [[u8; 4]; 4],
    /// The nonces of the versions in the order in which they became the current one. Nobody can see
    /// this: properties are about it.
    pub history: Vec<u8>,
}

impl Table {
    pub fn current(&self) -> Option<&Manifest> {
        self.manifests.last()
    }

    pub fn manifest(&self, version: u8) -> Option<&Manifest> {
        self.manifests.iter().find(|one| one.version == version)
    }

    /// Returns whether a version was the current one, with this nonce.
    pub fn was(&self, version: u8, nonce: u8) -> bool {
        self.history.get(usize::from(version) - 1) == Some(&nonce)
    }

    /// Returns what an opener would find in segments that `manifest` needs.
    pub fn logged(&self, manifest: &Manifest) -> Records {
        let mut found = 0;
        for (epoch, first) in manifest.log.iter().enumerate().filter(|(_, first)| **first != NONE) {
            let from = self.log[epoch].iter().skip(usize::from(*first));
            found |=
                from.take_while(|one| ![0, FENCE].contains(*one)).fold(0, |all, one| all | one);
        }
        found
    }
}

/// An object that is to be created.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Object {
    Manifest(Manifest),
    Sst(Ssts),
    Segment { epoch: u8, number: u8, bytes: u8 },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub tables: [Rc<Table>; 3],
    pub actors: Vec<Rc<Actor>>,
    /// What failed and may yet be created.
    pub late: Vec<(u8, Object)>,
    /// How many more calls may fail.
    pub faults: u8,
    /// The records that a writer of the first table acknowledged.
    pub acknowledged: Records,
    /// The greatest epoch whose writer finished opening, and what it had found then.
    pub opened: (u8, Records),
    /// By SSTable of the first table, those that it was made of, itself if of none.
    pub contents: [Ssts; 16],
    /// The clones whose creator knows of it.
    pub cloned: u8,
    /// The property that a step broke.
    pub broken: Option<&'static str>,
}

pub const FALSE_COMMIT: &str = "a commit that succeeded is in the history";
pub const FALSE_FAILURE: &str = "a commit that did not succeed is not in the history";
pub const NEVER_CURRENT: &str = "what is read as a version of the table was its current one once";
pub const WENT_BACK: &str = "the greatest version is the current one";
pub const MISSING: &str = "nothing is missing that a live table or a checkpoint needs";
pub const LOST: &str = "every acknowledged record is found";
pub const STALE: &str = "nothing is acknowledged after a newer writer opened without it";
pub const LOST_CLONE: &str = "an acknowledged clone is there until it is deleted";
pub const TWICE: &str = "no record is in a table twice";
pub const LEFT: &str = "what nothing refers to is removed at last";

impl World {
    pub fn table(&self, table: u8) -> &Table {
        &self.tables[usize::from(table)]
    }

    pub fn table_mut(&mut self, table: u8) -> &mut Table {
        Rc::make_mut(&mut self.tables[usize::from(table)])
    }

    /// Creates an object if there is none of its name; returns whether there was none.
    pub fn create(&mut self, table: u8, object: Object) -> bool {
        let table = self.table_mut(table);
        match object {
            Object::Manifest(manifest) => {
                let at = table.manifests.partition_point(|one| one.version < manifest.version);
                if table.manifests.get(at).is_some_and(|one| one.version == manifest.version) {
                    return false;
                }
                table.manifests.insert(at, manifest);
                if usize::from(manifest.version) == table.history.len() + 1 {
                    table.history.push(manifest.nonce);
                }
                true
            }
            Object::Sst(sst) => {
                let is_new = table.ssts & sst == 0;
                table.ssts |= sst;
                is_new
            }
            Object::Segment { epoch, number, bytes } => {
                let segment = &mut table.log[usize::from(epoch)][usize::from(number)];
                let is_new = *segment == 0;
                if is_new {
                    *segment = bytes;
                }
                is_new
            }
        }
    }

    pub fn breaks(&mut self, property: &'static str) {
        self.broken.get_or_insert(property);
    }

    fn has(&self, files: &[Ssts; 3]) -> bool {
        self.tables.iter().zip(files).all(|(table, files)| files & !table.ssts == 0)
    }

    /// Returns what SSTables of the first table were made of.
    pub fn content(&self, ssts: Ssts) -> impl Iterator<Item = Ssts> {
        (0..16).filter(move |sst| ssts >> sst & 1 == 1).map(|sst| self.contents[sst])
    }

    /// Returns whether a table has what its current manifest and its checkpoints need.
    fn is_whole(&self, table: &Table) -> bool {
        let Some(current) = table.current() else { return true };
        let kept = current.checkpoints.iter().filter(|one| one.version != 0);
        (current.phase != Phase::Live || self.has(&current.files))
            && kept.into_iter().all(|one| {
                let kept = table.manifest(one.version).filter(|kept| kept.nonce == one.nonce);
                kept.is_some_and(|kept| self.has(&kept.files))
            })
    }

    /// Returns the property that does not hold.
    pub fn wrong(&self, rules: &Rules) -> Option<&'static str> {
        if self.broken.is_some() {
            return self.broken;
        }
        for (table, at) in self.tables.iter().zip(0u8..) {
            // What rule 5 of old left for a moment was not taken for a table.
            let is_alone = table.manifests.len() == 1 && table.manifests[0].version > 1;
            if !rules.has(Rule::LastManifestStays) && is_alone {
                continue;
            }
            let greatest = table.current().map_or(0, |current| usize::from(current.version));
            if rules.has(Rule::LastManifestStays) && greatest != table.history.len() {
                return Some(WENT_BACK);
            }
            if !self.is_whole(table) {
                return Some(MISSING);
            }
            let phase = table.current().map(|current| current.phase);
            if self.cloned >> at & 1 == 1 && !matches!(phase, Some(Phase::Live | Phase::Deleted)) {
                return Some(LOST_CLONE);
            }
        }
        let current = self.tables[0].current()?;
        let mut parts = self.content(current.needs(0));
        let whole = parts.try_fold(0, |all, one| (all & one == 0).then_some(all | one));
        if whole.is_none() {
            return Some(TWICE);
        }
        let found = current.flushed | self.tables[0].logged(current);
        let is_lost = current.phase == Phase::Live && self.acknowledged & !found != 0;
        is_lost.then_some(LOST)
    }
}
