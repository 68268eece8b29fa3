//! The record of everything that clients were answered, and what follows from it for reads.
//!
//! Each name has one client that changes it, and so has each file. So a name has *versions*, in the
//! order in which they were issued. A read has to return one that is not older than what was
//! acknowledged before it began, nor than what the same client has read before, and one that was
//! issued before it ended. A version that was refused is taken back, and nobody may have seen it. One
//! whose outcome is unknown may appear at any time; its client leaves the name alone from then on.

use canopy_namespace::FileId;
use std::collections::{BTreeMap, BTreeSet};

/// A name: directory and name.
pub type NameKey = (FileId, String);

/// An id that is not known yet: the file was created, and the reply has not arrived.
pub const UNKNOWN: FileId = FileId(0);

/// Value of something that one client changes.
pub struct Register<T> {
    versions: Vec<Version<T>>,
}

struct Version<T> {
    value: T,
    is_acknowledged: bool,
    was_seen: bool,
}

/// A value that may be known in part.
pub trait Known: Clone + std::fmt::Debug {
    /// Returns what both are; none if they differ.
    fn join(&self, other: &Self) -> Option<Self>;
}

impl Known for Option<FileId> {
    fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Some(UNKNOWN), Some(_)) => Some(*other),
            (Some(_), Some(UNKNOWN)) => Some(*self),
            _ => (self == other).then_some(*self),
        }
    }
}

impl Known for Option<i64> {
    /// A time that nobody has set is any.
    fn join(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (None, _) => Some(*other),
            (_, None) => Some(*self),
            _ => (self == other).then_some(*self),
        }
    }
}

impl<T: Known> Register<T> {
    pub fn new(value: T) -> Self {
        let first = Version { value, is_acknowledged: true, was_seen: false };
        Register { versions: vec![first] }
    }

    /// Returns the number of the last version that was acknowledged.
    pub fn floor(&self) -> usize {
        self.versions.iter().rposition(|version| version.is_acknowledged).unwrap_or(0)
    }

    /// Returns the values that reads may return which begin and end now.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.versions[self.floor()..].iter().map(|version| &version.value)
    }

    /// Returns the value, unless it is unknown.
    pub fn value(&self) -> Option<&T> {
        let last = self.versions.last().filter(|version| version.is_acknowledged);
        last.map(|version| &version.value)
    }

    pub fn issue(&mut self, value: T) {
        self.versions.push(Version { value, is_acknowledged: false, was_seen: false });
    }

    /// Acknowledges the last version.
    pub fn acknowledge(&mut self, value: Option<T>) {
        let last = self.versions.last_mut().expect("a version");
        if let Some(value) = value {
            let joined = last.value.join(&value);
            assert!(joined.is_some(), "{value:?} was seen as {:?}", last.value);
            last.value = joined.unwrap_or(value);
        }
        last.is_acknowledged = true;
    }

    /// Takes the last version back: it was refused.
    pub fn refuse(&mut self) {
        let last = self.versions.pop().expect("a version");
        assert!(!last.is_acknowledged);
        assert!(!last.was_seen, "{:?} was refused, but somebody has seen it", last.value);
    }

    /// Checks the result of a read, which had to return the version of this number or a later one.
    /// Returns the number of the version that it may have been.
    pub fn read(&mut self, floor: usize, value: &T) -> Option<usize> {
        for (number, version) in self.versions.iter_mut().enumerate().skip(floor) {
            if let Some(joined) = version.value.join(value) {
                version.value = joined;
                version.was_seen = true;
                return Some(number);
            }
        }
        None
    }

    pub fn history(&self) -> String {
        let version = |version: &Version<T>| {
            let sign = if version.is_acknowledged { "" } else { "?" };
            format!("{:?}{sign}", version.value)
        };
        Vec::from_iter(self.versions.iter().map(version)).join(" ")
    }
}

/// Whether something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    No,
    /// It was asked for, and its outcome is unknown.
    Maybe,
    Yes,
}

/// A file of a client.
pub struct ModelFile {
    pub mtime: Register<Option<i64>>,
    pub removal: Removal,
    /// Whether all names are known.
    pub is_certain: bool,
}

/// A directory.
pub struct ModelDirectory {
    pub removal: Removal,
}

impl ModelDirectory {
    pub fn new() -> Self {
        ModelDirectory { removal: Removal::No }
    }
}

#[derive(Default)]
pub struct Model {
    pub names: BTreeMap<NameKey, Register<Option<FileId>>>,
    pub files: BTreeMap<FileId, ModelFile>,
    pub directories: BTreeMap<FileId, ModelDirectory>,
    /// Files under names that all clients change.
    pub common: Common,
}

/// Files under names that all clients change. None is replaced, and none gets a second name.
#[derive(Default)]
pub struct Common {
    pub created: BTreeSet<FileId>,
    pub removed: BTreeSet<FileId>,
    /// Number of creations and removals whose outcome is unknown.
    pub unknown_creations: usize,
    pub unknown_removals: usize,
}

impl Model {
    pub fn register(&mut self, key: &NameKey) -> &mut Register<Option<FileId>> {
        self.names.entry(key.clone()).or_insert_with(|| Register::new(None))
    }

    /// Returns a name of a directory that certainly exists.
    pub fn certain_name(&self, directory: FileId) -> Option<&str> {
        let is_certain = |register: &Register<_>| register.values().all(Option::is_some);
        let mut names = self.names_of(directory).filter(|(_, register)| is_certain(register));
        names.next().map(|(key, _)| key.1.as_str())
    }

    fn names_of(
        &self,
        directory: FileId,
    ) -> impl Iterator<Item = (&NameKey, &Register<Option<FileId>>)> {
        let from = (directory, String::new());
        self.names.range(from..).take_while(move |((of, _), _)| *of == directory)
    }

    /// Returns whether a directory is there for sure.
    pub fn has_directory(&self, directory: FileId) -> bool {
        self.directories.get(&directory).is_some_and(|one| one.removal == Removal::No)
    }

    /// Returns the names that a file certainly has, and those that it may have.
    pub fn links(&self, id: FileId) -> [u32; 2] {
        let mut links = [0, 0];
        for register in self.names.values() {
            let values = Vec::from_iter(register.values());
            links[0] += u32::from(values.iter().all(|value| **value == Some(id)));
            links[1] += u32::from(values.iter().any(|value| **value == Some(id)));
        }
        links
    }
}
