//! What tests ask of entries: [`Rows`] is answered by a batch of the index ([`Batch`]) and by an
//! entry of the live file system.

use super::known::Known;
use super::test::XattrTest;
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_model::{FileType, Wanted};
use canopy_read::columns::{numbers, strings, text_or_empty};
use std::borrow::Cow;

/// Entries by number. Names and paths are escaped. `None` stands for what cannot be told, of which
/// no test is true.
pub(crate) trait Rows {
    fn len(&self) -> usize;
    fn names<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str>;
    /// The path as it would be printed.
    fn shown(&self, at: usize) -> Cow<'_, str>;
    fn types(&self) -> impl Fn(usize) -> Option<FileType>;
    fn modes(&self) -> impl Fn(usize) -> Option<u32>;
    fn sizes(&self) -> impl Fn(usize) -> Option<i64>;
    fn inodes(&self) -> impl Fn(usize) -> Option<u64>;
    /// `uid`, `gid` or `nlink`.
    fn ids(&self, column: &str) -> impl Fn(usize) -> Option<u32>;
    /// `atime`, `mtime`, `ctime` or `btime`.
    fn times(&self, column: &str) -> impl Fn(usize) -> Option<i64>;
    fn dev(&self, at: usize) -> Option<u64>;
    /// Where a symbolic link points, empty for all else.
    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str>;
    /// Whether it is an empty file or directory.
    fn empties(&self) -> impl Fn(usize) -> bool;
    /// Whether an extended attribute passes.
    fn xattrs(&self, test: &XattrTest) -> impl Fn(usize) -> bool;
    /// Whether the type of what it leads to, if that is not looked at anyway, is one of these.
    fn leads_to(&self, types: &[FileType], at: usize) -> bool;
    fn may_access(&self, wanted: Wanted, at: usize) -> bool;
    fn is_on(&self, file_system: &str, at: usize) -> bool;
}

/// How a test is carried out: on some rows, or on one.
pub(crate) trait Over {
    type Outcome;
    fn each(self, holds: impl Fn(usize) -> bool) -> Self::Outcome;
}

/// The rows of a set, which is as long as there are rows.
pub(crate) struct Among<'a>(pub(crate) &'a BooleanBuffer);

/// One row.
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

/// A batch of rows, all directories or all not, with what tests may ask besides columns.
pub(crate) struct Batch<'a> {
    /// The columns that the tests read.
    pub(crate) batch: &'a RecordBatch,
    /// Whether the rows are directories.
    pub(crate) dirs: bool,
    /// Whether the rows are what a symbolic link of their path leads to.
    pub(crate) via_link: bool,
    /// The path of each row as it would be printed, escaped. Empty where no test asks for it.
    pub(crate) shown: &'a [String],
    /// The path of each row in the source. Empty where no test asks for it.
    pub(crate) paths: &'a [String],
    /// The device of each row. Empty where no test asks for the path.
    pub(crate) devs: &'a [u64],
    /// What is known besides.
    pub(crate) known: &'a Known,
}

impl Rows for Batch<'_> {
    fn len(&self) -> usize {
        self.batch.num_rows()
    }

    fn names<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str> {
        let names = strings(self.batch, "name");
        |at| Cow::Borrowed(names.value(at))
    }

    fn shown(&self, at: usize) -> Cow<'_, str> {
        Cow::Borrowed(&self.shown[at])
    }

    fn types(&self) -> impl Fn(usize) -> Option<FileType> {
        let modes = numbers::<UInt32Type>(self.batch, "mode").values();
        |at| Some(FileType::of_mode(modes[at]))
    }

    fn modes(&self) -> impl Fn(usize) -> Option<u32> {
        let modes = numbers::<UInt32Type>(self.batch, "mode").values();
        |at| Some(modes[at])
    }

    fn sizes(&self) -> impl Fn(usize) -> Option<i64> {
        let sizes = numbers::<Int64Type>(self.batch, "size").values();
        |at| Some(sizes[at])
    }

    fn inodes(&self) -> impl Fn(usize) -> Option<u64> {
        let inodes = numbers::<UInt64Type>(self.batch, "ino").values();
        |at| Some(inodes[at])
    }

    fn ids(&self, column: &str) -> impl Fn(usize) -> Option<u32> {
        let ids = numbers::<UInt32Type>(self.batch, column).values();
        |at| Some(ids[at])
    }

    fn times(&self, column: &str) -> impl Fn(usize) -> Option<i64> {
        let times = numbers::<TimestampNanosecondType>(self.batch, column).values();
        |at| Some(times[at])
    }

    fn dev(&self, at: usize) -> Option<u64> {
        Some(self.devs[at])
    }

    fn targets<'s>(&'s self) -> impl Fn(usize) -> Cow<'s, str> {
        let targets = self.batch.column_by_name("target").map(|column| column.as_string::<i32>());
        move |at| Cow::Borrowed(text_or_empty(targets, at))
    }

    fn empties(&self) -> impl Fn(usize) -> bool {
        let files = (!self.dirs).then(|| (self.types(), self.sizes()));
        move |at| match &files {
            Some((types, sizes)) => types(at) == Some(FileType::Regular) && sizes(at) == Some(0),
            None => self.known.empty_dirs.contains(&self.paths[at]),
        }
    }

    fn xattrs(&self, test: &XattrTest) -> impl Fn(usize) -> bool {
        let names = strings(self.batch, "xattrs");
        let hits = &self.known.hits[test.number];
        move |at| {
            (names.is_valid(at) && test.holds_in(names.value(at)))
                || (!hits.is_empty() && hits.contains(&self.paths[at]))
        }
    }

    fn leads_to(&self, types: &[FileType], at: usize) -> bool {
        match self.via_link {
            true => types.contains(&FileType::Symlink),
            false => self.known.type_is(self, at, types),
        }
    }

    fn may_access(&self, wanted: Wanted, at: usize) -> bool {
        self.known.may_access(self, at, wanted)
    }

    fn is_on(&self, file_system: &str, at: usize) -> bool {
        self.known.file_systems.name(self.devs[at]) == file_system
    }
}
