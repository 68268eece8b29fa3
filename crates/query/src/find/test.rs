//! The tests of find: what each reads, how it is evaluated over a batch of rows, and what bounds say of it.

use super::known::Known;
use super::pattern::Glob;
use crate::columns::{numbers, strings, text_or_empty};
use crate::names::{group_name, user_name};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::{Int64Type, TimestampNanosecondType, UInt32Type, UInt64Type};
use canopy_model::{FileType, Wanted};
use regex::Regex;

/// A number with find's sign: `+n` more, `-n` less, `n` exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `+n`
    More(i64),
    /// `-n`
    Less(i64),
    /// `n`
    Exactly(i64),
}

impl Number {
    pub(crate) fn holds(self, value: i64) -> bool {
        match self {
            Number::More(n) => value > n,
            Number::Less(n) => value < n,
            Number::Exactly(n) => value == n,
        }
    }

    /// The values that make such a number of units, rounded up: more than the first and up to the second.
    fn span(self, unit: i64) -> (i64, i64) {
        match self {
            Number::More(n) => (n.saturating_mul(unit), i64::MAX),
            Number::Less(n) => (i64::MIN, n.saturating_sub(1).saturating_mul(unit)),
            Number::Exactly(n) => (n.saturating_sub(1).saturating_mul(unit), n.saturating_mul(unit)),
        }
    }

    /// Whether it may hold, and whether it may not, for values between two bounds.
    fn may_be(self, (low, high): (i64, i64)) -> (bool, bool) {
        match self {
            Number::More(n) => (high > n, low <= n),
            Number::Less(n) => (low < n, high >= n),
            Number::Exactly(n) => (low <= n && n <= high, low != n || high != n),
        }
    }
}

/// How the bits of `-perm` are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermMatch {
    /// `mode`: exactly these.
    Exactly,
    /// `-mode`: all of these.
    All,
    /// `/mode`: any of these, or none asked for.
    Any,
}

/// One test.
#[derive(Debug)]
pub enum Test {
    /// `-true`, `-false`
    Always(bool),
    /// `-name`, `-iname`
    Name(Glob),
    /// `-path`, `-ipath`
    Path(Glob),
    /// `-regex`
    Regex(Regex),
    /// `-type`, by letters
    Type(Vec<FileType>),
    /// `-size`, in units of so many bytes, rounded up
    Size(Number, i64),
    /// `-empty`
    Empty,
    /// A time column later than the first moment (exclusive) and up to the second one (inclusive), in
    /// nanoseconds since 1970: `-mtime`, `-mmin`, `-newer` and their like.
    Time(&'static str, i64, i64),
    /// A column of unsigned 32 bits: `-uid`, `-gid`, `-links`, `-user`, `-group`
    Id(&'static str, Number),
    /// `-inum`
    Inode(Number),
    /// `-perm`
    Perm(u32, PermMatch),
    /// `-xattr`, `-acl`
    Xattr(XattrTest),
    /// `-lname`, `-ilname`
    Target(Glob),
    /// `-xtype`
    TargetType(Vec<FileType>),
    /// `-nouser`
    NoUser,
    /// `-nogroup`
    NoGroup,
    /// `-used`: last read later after the last change than the first span (exclusive) and up to the second one, in
    /// nanoseconds
    Used(i64, i64),
    /// `-samefile`, by device and inode
    SameFile(u64, u64),
    /// `-fstype`
    FileSystem(String),
    /// `-readable`, `-writable`, `-executable`
    Access(Wanted),
}

/// A test of extended attributes: whether there is one with such a name and, if asked, such a value.
#[derive(Debug)]
pub struct XattrTest {
    /// Tells this test from the others of its kind in the expression.
    pub(crate) number: usize,
    /// Pattern of the name, and its text up to the first wildcard.
    pub(crate) key: Glob,
    pub(crate) key_start: String,
    pub(crate) value: Option<Glob>,
}

impl XattrTest {
    /// Whether names in listings are not enough: where a value is asked for, or a name that listings do not tell.
    pub(crate) fn reads_values(&self) -> bool {
        const HIDDEN: &str = "trusted.";
        let may_be_hidden = HIDDEN.starts_with(&self.key_start) || self.key_start.starts_with(HIDDEN);
        self.value.is_some() || may_be_hidden
    }

    /// Whether an attribute passes.
    pub(crate) fn holds(&self, key: &str, value: &str) -> bool {
        self.key.matches(key) && self.value.as_ref().is_none_or(|glob| glob.matches(value))
    }

    /// Whether one of the names that are joined in a column passes.
    fn holds_in(&self, joined: &str) -> bool {
        self.value.is_none() && split_names(joined).any(|key| self.key.matches(&key))
    }
}

/// The names of extended attributes that are joined in the column `xattrs`.
pub(crate) fn split_names(joined: &str) -> impl Iterator<Item = String> {
    let mut rest = joined.chars();
    std::iter::from_fn(move || {
        let mut name = String::new();
        while let Some(c) = rest.next() {
            match c {
                '\\' => name.extend(rest.next()),
                ',' => break,
                c => name.push(c),
            }
        }
        (!name.is_empty()).then_some(name)
    })
}

/// A batch of rows, all directories or all not, with what tests may ask besides columns.
pub(crate) struct Rows<'a> {
    /// The columns that the tests read.
    pub(crate) batch: &'a RecordBatch,
    /// Whether the rows are directories.
    pub(crate) dirs: bool,
    /// The path of each row as it would be printed, escaped. Empty where no test asks for it.
    pub(crate) shown: &'a [String],
    /// The path of each row in the source. Empty where no test asks for it.
    pub(crate) paths: &'a [String],
    /// The device of each row. Empty where no test asks for the path.
    pub(crate) devs: &'a [u64],
    /// What is known besides.
    pub(crate) known: &'a Known,
}

impl Rows<'_> {
    pub(crate) fn len(&self) -> usize {
        self.batch.num_rows()
    }

    /// The rows of `among` for which `holds` is true, which is asked of few others.
    fn keep(&self, among: &BooleanBuffer, holds: impl Fn(usize) -> bool) -> BooleanBuffer {
        let len = self.len();
        let mut words = Vec::with_capacity(len.div_ceil(64));
        for (number, mut asked) in among.bit_chunks().iter_padded().take(len.div_ceil(64)).enumerate() {
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

impl Test {
    /// The columns that the test reads.
    pub(crate) fn columns(&self) -> &'static [&'static str] {
        match self {
            Test::Always(_) => &[],
            Test::Name(_) => &["name"],
            Test::Path(_) | Test::Regex(_) => &["listing", "name"],
            Test::Type(_) | Test::Perm(..) => &["mode"],
            Test::Size(..) => &["size"],
            Test::Empty => &["listing", "name", "size", "mode"],
            Test::Time(column, ..) | Test::Id(column, _) => std::slice::from_ref(column_ref(column)),
            Test::Inode(_) => &["ino"],
            Test::Xattr(_) => &["xattrs", "listing", "name"],
            Test::Target(_) => &["target"],
            Test::TargetType(_) => &["mode", "target", "listing", "name"],
            Test::NoUser => &["uid"],
            Test::NoGroup => &["gid"],
            Test::Used(..) => &["atime", "ctime"],
            Test::SameFile(..) => &["ino", "listing", "name"],
            Test::FileSystem(_) => &["listing", "name"],
            Test::Access(_) => &["mode", "uid", "gid", "xattrs", "target", "listing", "name"],
        }
    }

    /// Whether the test asks for the path of a row.
    pub(crate) fn reads_path(&self) -> bool {
        matches!(self, Test::Path(_) | Test::Regex(_) | Test::Empty)
            || matches!(
                self,
                Test::TargetType(_) | Test::SameFile(..) | Test::FileSystem(_) | Test::Access(_)
            )
            || matches!(self, Test::Xattr(test) if test.reads_values())
    }

    /// The rows of `among` that pass.
    pub(crate) fn evaluate(&self, rows: &Rows<'_>, among: &BooleanBuffer) -> BooleanBuffer {
        let batch = rows.batch;
        match self {
            Test::Always(true) => among.clone(),
            Test::Always(false) => BooleanBuffer::new_unset(rows.len()),
            Test::Name(glob) => {
                let names = strings(batch, "name");
                rows.keep(among, |at| glob.matches(names.value(at)))
            }
            Test::Path(glob) => rows.keep(among, |at| glob.matches(&rows.shown[at])),
            Test::Regex(regex) => rows.keep(among, |at| regex.is_match(&rows.shown[at])),
            Test::Type(types) => {
                let modes = numbers::<UInt32Type>(batch, "mode").values();
                rows.keep(among, |at| types.contains(&FileType::of_mode(modes[at])))
            }
            Test::Size(number, unit) => {
                let sizes = numbers::<Int64Type>(batch, "size").values();
                let (after, until) = number.span(*unit);
                rows.keep(among, |at| after < sizes[at] && sizes[at] <= until)
            }
            Test::Empty if rows.dirs => {
                rows.keep(among, |at| rows.known.empty_dirs.contains(&rows.paths[at]))
            }
            Test::Empty => {
                let sizes = numbers::<Int64Type>(batch, "size").values();
                let modes = numbers::<UInt32Type>(batch, "mode").values();
                let regular = |at| FileType::of_mode(modes[at]) == FileType::Regular;
                rows.keep(among, |at| sizes[at] == 0 && regular(at))
            }
            Test::Time(column, after, until) => {
                let times = numbers::<TimestampNanosecondType>(batch, column).values();
                rows.keep(among, |at| *after < times[at] && times[at] <= *until)
            }
            Test::Id(column, number) => {
                let ids = numbers::<UInt32Type>(batch, column).values();
                rows.keep(among, |at| number.holds(i64::from(ids[at])))
            }
            Test::Inode(number) => {
                let inodes = numbers::<UInt64Type>(batch, "ino").values();
                rows.keep(among, |at| number.holds(inodes[at] as i64))
            }
            Test::Xattr(test) => {
                let names = strings(batch, "xattrs");
                let hits = &rows.known.hits[test.number];
                rows.keep(among, |at| {
                    (names.is_valid(at) && test.holds_in(names.value(at)))
                        || (!hits.is_empty() && hits.contains(&rows.paths[at]))
                })
            }
            Test::Target(glob) => {
                let targets = batch.column_by_name("target").map(|column| column.as_string::<i32>());
                rows.keep(among, |at| match text_or_empty(targets, at) {
                    "" => false,
                    target => glob.matches(target),
                })
            }
            Test::TargetType(types) => rows.keep(among, |at| rows.known.type_is(rows, at, types)),
            Test::NoUser => {
                let ids = numbers::<UInt32Type>(batch, "uid").values();
                rows.keep(among, |at| user_name(ids[at]).is_none())
            }
            Test::NoGroup => {
                let ids = numbers::<UInt32Type>(batch, "gid").values();
                rows.keep(among, |at| group_name(ids[at]).is_none())
            }
            Test::Used(after, until) => {
                let [read, changed] =
                    ["atime", "ctime"].map(|name| numbers::<TimestampNanosecondType>(batch, name).values());
                rows.keep(among, |at| {
                    let span = read[at].saturating_sub(changed[at]);
                    *after < span && span <= *until
                })
            }
            Test::SameFile(dev, ino) => {
                let inodes = numbers::<UInt64Type>(batch, "ino").values();
                rows.keep(among, |at| inodes[at] == *ino && rows.devs[at] == *dev)
            }
            Test::FileSystem(name) => {
                rows.keep(among, |at| rows.known.file_systems.name(rows.devs[at]) == name.as_str())
            }
            Test::Access(wanted) => rows.keep(among, |at| rows.known.may_access(rows, at, *wanted)),
            Test::Perm(bits, kind) => {
                let modes = numbers::<UInt32Type>(batch, "mode").values();
                rows.keep(among, |at| match kind {
                    PermMatch::Exactly => modes[at] & 0o7777 == *bits,
                    PermMatch::All => modes[at] & bits == *bits,
                    PermMatch::Any => *bits == 0 || modes[at] & bits != 0,
                })
            }
        }
    }

    /// Whether it has this outcome, whatever the row.
    pub(crate) fn is(&self, outcome: bool) -> bool {
        matches!(self, Test::Always(always) if *always == outcome)
    }

    /// Whether the test may pass, and whether it may fail, among rows that are all directories or all not and whose columns
    /// lie within bounds.
    pub(crate) fn may_be(&self, dirs: bool, bounds: &dyn Fn(&str) -> Option<(i64, i64)>) -> (bool, bool) {
        let unknown = (true, true);
        match self {
            Test::Always(outcome) => (*outcome, !*outcome),
            Test::Type(types) => {
                let dir = types.contains(&FileType::Directory);
                match dirs {
                    true => (dir, !dir),
                    false => (types.len() > usize::from(dir), true),
                }
            }
            Test::Size(number, unit) => {
                bounds("size").map_or(unknown, |bounds| may_be_within(number.span(*unit), bounds))
            }
            Test::Time(column, after, until) => {
                bounds(column).map_or(unknown, |bounds| may_be_within((*after, *until), bounds))
            }
            Test::Id(column, number) => bounds(column).map_or(unknown, |bounds| number.may_be(bounds)),
            Test::Inode(number) => bounds("ino").map_or(unknown, |bounds| number.may_be(bounds)),
            Test::SameFile(_, ino) => {
                bounds("ino").map_or(unknown, |(low, high)| (low <= *ino as i64 && *ino as i64 <= high, true))
            }
            _ => unknown,
        }
    }
}

/// The one static place of a column's name, so that a slice of it can be given out.
fn column_ref(name: &str) -> &'static &'static str {
    static NAMES: [&str; 7] = ["atime", "mtime", "ctime", "btime", "uid", "gid", "nlink"];
    NAMES.iter().find(|known| **known == name).unwrap_or_else(|| panic!("no test reads the column {name}"))
}

/// Whether values between two bounds may lie after `after` and up to `until`, and whether they may not.
fn may_be_within((after, until): (i64, i64), (low, high): (i64, i64)) -> (bool, bool) {
    (high > after && low <= until, low <= after || high > until)
}
