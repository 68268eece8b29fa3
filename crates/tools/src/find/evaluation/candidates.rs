//! Facts that tests need. [`Candidates`] gets them from a batch of the index ([`IndexRows`]) or
//! from an entry of the live file system, so that each test is written once.

use super::chunk::Location;
use super::facts::{ModeAndOwners, SubtreeFacts};
use crate::error::Result;
use crate::find::language::{NamedFile, XattrTest};
use crate::find::messages::unknown_value;
use arrow::array::{Array, RecordBatch};
use arrow::buffer::BooleanBuffer;
use canopy_index::column::*;
use canopy_model::{Device, FileType, Wanted};
use canopy_read::inode::text_or_empty;
use std::borrow::Cow;

/// Entries by number. Names and paths are escaped. `None` stands for what cannot be known, of which
/// no test is true. What is asked of many entries is given as a function of their number; getting
/// that fails where a column was not read.
pub(crate) trait Candidates {
    /// How many there are.
    fn len(&self) -> usize;
    /// The last component of the path.
    fn names<'s>(&'s self) -> Result<impl Fn(usize) -> Cow<'s, str>>;
    /// The path as it would be printed.
    fn shown(&self, at: usize) -> Cow<'_, str>;
    /// The type.
    fn types(&self) -> Result<impl Fn(usize) -> Option<FileType>>;
    /// An attribute that a column keeps.
    fn numbers<T: Numeric>(&self, column: Column<T>) -> Result<impl Fn(usize) -> Option<i64>>;
    /// The device.
    fn dev(&self, at: usize) -> Option<Device>;
    /// Returns whether it is on the device of a reference file.
    fn is_device_of(&self, file: &NamedFile, at: usize) -> bool {
        self.dev(at) == Some(file.dev)
    }
    /// Where a symbolic link points, empty for all else.
    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str>;
    /// Returns whether it is an empty file or directory.
    fn empties(&self) -> Result<impl Fn(usize) -> bool>;
    /// Returns whether an extended attribute passes.
    fn xattrs(&self, test: &XattrTest) -> Result<impl Fn(usize) -> bool>;
    /// Returns whether the type of what it leads to, if that is not looked at anyway, is one of
    /// these.
    fn leads_to(&self, types: &[FileType]) -> Result<impl Fn(usize) -> bool>;
    /// Returns whether access(2) would grant the wanted bits.
    fn may_access(&self, wanted: Wanted) -> Result<impl Fn(usize) -> bool>;
    /// Returns whether it is on a file system of this type.
    fn is_on(&self, file_system: &str, at: usize) -> bool;
}

/// A type of values that are numbers.
pub(crate) trait Numeric: Value {
    /// Returns the value of a row; one of 64 bits without a sign is wrapped.
    fn get(values: &Self::Slice<'_>, at: usize) -> i64;
}

macro_rules! numeric {
    ($($value:ty),*) => {
        $(impl Numeric for $value {
            fn get(values: &Self::Slice<'_>, at: usize) -> i64 {
                values[at] as i64
            }
        })*
    };
}

numeric!(u32, u64, i64, Time);

/// How a test is carried out: on some candidates, or on one.
pub(crate) trait Over {
    /// A bit for each candidate, or one alone.
    type Outcome;
    /// Asks `holds` of each by its number.
    fn each(self, holds: impl Fn(usize) -> bool) -> Self::Outcome;
}

/// The candidates of a set, which has a bit for each.
pub(crate) struct Among<'a>(pub(crate) &'a BooleanBuffer);

/// One candidate.
pub(crate) struct One(pub(crate) usize);

impl Over for Among<'_> {
    type Outcome = BooleanBuffer;

    fn each(self, holds: impl Fn(usize) -> bool) -> BooleanBuffer {
        let len = self.0.len();
        let mut words = Vec::with_capacity(len.div_ceil(64));
        for (number, mut asked) in
            self.0.bit_chunks().iter_padded().take(len.div_ceil(64)).enumerate()
        {
            let first = number * 64;
            let mut kept = 0_u64;
            if asked == u64::MAX {
                // Without branches, for the compiler to take many rows at a time.
                (0..64).for_each(|bit| kept |= u64::from(holds(first + bit)) << bit);
            }
            while asked != 0 && asked != u64::MAX {
                let bit = asked.trailing_zeros();
                kept |= u64::from(holds(first + bit as usize)) << bit;
                asked &= asked - 1;
            }
            words.push(kept);
        }
        BooleanBuffer::new(words.into(), 0, len)
    }
}

impl Over for One {
    type Outcome = bool;

    fn each(self, holds: impl Fn(usize) -> bool) -> bool {
        holds(self.0)
    }
}

/// A batch of rows of the index, all directories or all not, with what tests may ask besides
/// columns.
#[derive(Clone, Copy)]
pub(crate) struct IndexRows<'a> {
    /// The columns that the tests read.
    pub(crate) batch: &'a RecordBatch,
    /// Whether the rows are directories.
    pub(crate) dirs: bool,
    /// Whether the rows are what a symbolic link of their path leads to.
    pub(crate) via_link: bool,
    /// Where the rows are; empty where no test asks for it.
    pub(crate) locations: &'a [Location],
    /// Other known facts.
    pub(crate) facts: &'a SubtreeFacts,
}

impl Candidates for IndexRows<'_> {
    fn len(&self) -> usize {
        self.batch.num_rows()
    }

    fn names<'s>(&'s self) -> Result<impl Fn(usize) -> Cow<'s, str>> {
        let names = NAME.of(self.batch)?;
        Ok(|at| Cow::Borrowed(names.value(at)))
    }

    fn shown(&self, at: usize) -> Cow<'_, str> {
        Cow::Borrowed(&self.locations[at].shown)
    }

    fn types(&self) -> Result<impl Fn(usize) -> Option<FileType>> {
        let modes = MODE.of(self.batch)?;
        Ok(|at| Some(FileType::of_mode(modes[at])))
    }

    fn numbers<T: Numeric>(&self, column: Column<T>) -> Result<impl Fn(usize) -> Option<i64>> {
        let values = column.of(self.batch)?;
        Ok(move |at| Some(T::get(&values, at)))
    }

    fn dev(&self, at: usize) -> Option<Device> {
        Some(self.locations[at].dev)
    }

    fn is_device_of(&self, file: &NamedFile, at: usize) -> bool {
        match self.facts.source.has_devices() {
            true => self.dev(at) == Some(file.dev),
            false => self.facts.own_files.contains(&file.path),
        }
    }

    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str> {
        let targets = TARGET.find(self.batch);
        move |at| Cow::Borrowed(text_or_empty(targets, at))
    }

    fn empties(&self) -> Result<impl Fn(usize) -> bool> {
        let files = match self.dirs {
            true => None,
            false => Some((self.types()?, SIZE.of(self.batch)?)),
        };
        Ok(move |at| match &files {
            Some((types, sizes)) => types(at) == Some(FileType::Regular) && sizes[at] == 0,
            None => self.facts.empty_dirs.contains(&self.locations[at].path),
        })
    }

    fn xattrs(&self, test: &XattrTest) -> Result<impl Fn(usize) -> bool> {
        let names = XATTRS.of(self.batch)?;
        let by_value = &self.facts.xattr_matches[test.number];
        let unknown = &self.facts.unknown_values;
        let has_values = test.reads_values() && !(by_value.is_empty() && unknown.is_empty());
        let passes_by_value = move |at: usize| {
            let Location { path, shown, .. } = &self.locations[at];
            if let Some(key) = unknown.get(path).filter(|key| test.asks(key)) {
                self.facts.add_problem(shown, &unknown_value(key));
            }
            by_value.contains(path)
        };
        Ok(move |at| {
            (names.is_valid(at) && test.holds_in(names.value(at)))
                || (has_values && passes_by_value(at))
        })
    }

    fn leads_to(&self, types: &[FileType]) -> Result<impl Fn(usize) -> bool> {
        let (modes, targets) = (MODE.of(self.batch)?, TARGET.find(self.batch));
        Ok(move |at| match FileType::of_mode(modes[at]) {
            _ if self.via_link => types.contains(&FileType::Symlink),
            FileType::Symlink => {
                let target = text_or_empty(targets, at);
                self.facts.target_type_is(&self.locations[at], target, types)
            }
            other => types.contains(&other),
        })
    }

    fn may_access(&self, wanted: Wanted) -> Result<impl Fn(usize) -> bool> {
        let (modes, uids, gids) = (MODE.of(self.batch)?, UID.of(self.batch)?, GID.of(self.batch)?);
        let (names, targets) = (XATTRS.of(self.batch)?, TARGET.find(self.batch));
        Ok(move |at| match FileType::of_mode(modes[at]) {
            FileType::Symlink => {
                let target = text_or_empty(targets, at);
                self.facts.may_access_target(&self.locations[at], target, wanted)
            }
            _ => {
                let names = text_or_empty(Some(names), at);
                let owned = ModeAndOwners { mode: modes[at], uid: uids[at], gid: gids[at] };
                self.facts.may_access(self.locations[at].path.as_path(), names, owned, wanted)
            }
        })
    }

    fn is_on(&self, file_system: &str, at: usize) -> bool {
        self.facts.file_systems.name(self.locations[at].dev) == file_system
    }
}
