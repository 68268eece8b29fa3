//! The tests of find: what they ask, which columns tell it, and what bounds of those columns
//! settle. How rows are tested is in `evaluation`.

use super::storage::StorageTest;
use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns};
use canopy_model::lustre::PROJECT_KEY;
use canopy_model::{Device, FileType, Wanted, XattrAccess, unescape, xattr_names};
use canopy_text::Glob;
use canopy_text::regular::PathRegex;
use std::ffi::CStr;

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
    /// Returns whether a value is such a number.
    pub(crate) fn holds(self, value: i64) -> bool {
        match self {
            Number::More(n) => value > n,
            Number::Less(n) => value < n,
            Number::Exactly(n) => value == n,
        }
    }

    /// Returns which values are such a number of units, rounded up: those larger than the first and
    /// up to the second.
    pub(crate) fn span(self, unit: i64) -> (i64, i64) {
        match self {
            Number::More(n) => (n.saturating_mul(unit), i64::MAX),
            Number::Less(n) => (i64::MIN, n.saturating_sub(1).saturating_mul(unit)),
            Number::Exactly(n) => {
                (n.saturating_sub(1).saturating_mul(unit), n.saturating_mul(unit))
            }
        }
    }

    /// Returns what may come of it for values between two bounds.
    fn outcomes(self, (low, high): (i64, i64)) -> Outcomes {
        let (may_pass, may_fail) = match self {
            Number::More(n) => (high > n, low <= n),
            Number::Less(n) => (low < n, high >= n),
            Number::Exactly(n) => (low <= n && n <= high, low != n || high != n),
        };
        Outcomes { may_pass, may_fail }
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

/// The bits that `-perm` asks for, which `X` makes others for directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermBits {
    /// Of directories.
    pub dirs: u32,
    /// Of all else.
    pub others: u32,
}

impl PermBits {
    /// The same bits for all.
    pub(crate) fn of(bits: u32) -> Self {
        PermBits { dirs: bits, others: bits }
    }

    /// Returns whether the mode of an entry, its type included, is as asked for.
    pub(crate) fn match_mode(self, mode: u32, kind: PermMatch) -> bool {
        let bits = match FileType::of_mode(mode) {
            FileType::Directory => self.dirs,
            _ => self.others,
        };
        match kind {
            PermMatch::Exactly => mode & 0o7777 == bits,
            PermMatch::All => mode & bits == bits,
            PermMatch::Any => bits == 0 || mode & bits != 0,
        }
    }
}

/// The reference file of `-samefile`, as the live file system has it.
#[derive(Debug)]
pub struct NamedFile {
    /// Its path, as it was given.
    pub(crate) path: Vec<u8>,
    /// Whether a symbolic link at the path was followed.
    pub(crate) follows: bool,
    pub(crate) dev: Device,
    pub(crate) ino: u64,
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
    Regex(PathRegex),
    /// `-type`, by letters
    Type(Vec<FileType>),
    /// `-size`, in units of so many bytes, rounded up
    Size(Number, i64),
    /// `-empty`
    Empty,
    /// A time column later than the first moment (exclusive) and up to the second one (inclusive),
    /// in nanoseconds since 1970: `-mtime`, `-mmin`, `-newer` and their like. False of a birth that
    /// is not known.
    Time(Column<Time>, i64, i64),
    /// A column of unsigned 32 bits: `-uid`, `-gid`, `-links`, `-user`, `-group`
    Id(Column<u32>, Number),
    /// `-inum`
    Inode(Number),
    /// `-perm`
    Perm(PermBits, PermMatch),
    /// `-xattr`, `-acl`, `-ost` and its like
    Xattr(XattrTest),
    /// `-lname`, `-ilname`
    Target(Glob),
    /// `-xtype`
    TargetType(Vec<FileType>),
    /// `-nouser`, `-nogroup`: an id in a column of which no name is known
    NoName(Column<u32>, fn(u32) -> Option<String>),
    /// `-used`: last read later after the last change than the first span (exclusive) and up to the
    /// second one, in nanoseconds
    Used(i64, i64),
    /// `-samefile`
    SameFile(NamedFile),
    /// `-fstype`
    FileSystem(String),
    /// `-readable`, `-writable`, `-executable`
    Access(Wanted),
}

/// A test of extended attributes: whether there is one that passes.
#[derive(Debug)]
pub struct XattrTest {
    /// Tells this test from the others of its kind in the expression.
    pub(crate) number: usize,
    pub(crate) asked: AskedXattr,
}

/// What is asked of an extended attribute.
#[derive(Debug)]
pub enum AskedXattr {
    /// Such a name, of which the text up to the first wildcard stands alone, and such a value.
    Named(Glob, String, Option<Glob>),
    /// A value that tells such a thing of storage.
    Storage(StorageTest),
}

impl XattrTest {
    /// Returns whether names in listings are not enough: where a value is asked for, or a name that
    /// listings do not tell.
    pub(crate) fn reads_values(&self) -> bool {
        match &self.asked {
            AskedXattr::Named(_, start, value) => value.is_some() || XattrAccess::may_hide(start),
            AskedXattr::Storage(_) => true,
        }
    }

    /// Returns whether an attribute of this name may pass.
    pub(crate) fn asks(&self, key: &str) -> bool {
        match &self.asked {
            AskedXattr::Named(name, ..) => name.matches(key),
            AskedXattr::Storage(test) => test.asks(key),
        }
    }

    /// Returns the name of the attribute that it asks for, if that may be there without being listed.
    pub(crate) fn unlisted_key(&self) -> Option<&'static CStr> {
        let is_project = matches!(self.asked, AskedXattr::Storage(StorageTest::Project(_)));
        is_project.then_some(PROJECT_KEY)
    }

    /// Returns whether an attribute of this name that may pass does, whatever its value.
    pub(crate) fn passes_by_name(&self) -> bool {
        matches!(self.asked, AskedXattr::Named(_, _, None))
    }

    /// Returns whether an attribute that may pass does; `None` if its value cannot be understood.
    pub(crate) fn holds(&self, key: &str, value: &str) -> Option<bool> {
        match &self.asked {
            AskedXattr::Named(_, _, wanted) => {
                Some(wanted.as_ref().is_none_or(|glob| glob.matches(value)))
            }
            AskedXattr::Storage(test) => test.holds(key, &unescape(value)),
        }
    }

    /// Returns whether one of the names that are joined in a column passes.
    pub(crate) fn holds_in(&self, joined: &str) -> bool {
        self.passes_by_name() && xattr_names::decode(joined).any(|key| self.asks(&key))
    }
}

/// Which outcomes a test may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// Whether it may pass.
    pub may_pass: bool,
    /// Whether it may fail.
    pub may_fail: bool,
}

impl Outcomes {
    const EITHER: Outcomes = Outcomes { may_pass: true, may_fail: true };

    /// Returns what may come of asking whether values between two bounds are larger than `after`
    /// and at most `until`.
    fn within((after, until): (i64, i64), (low, high): (i64, i64)) -> Self {
        Outcomes { may_pass: high > after && low <= until, may_fail: low <= after || high > until }
    }
}

/// Where paths come from.
const PLACE: Columns = Columns::of(&[LISTING.id(), NAME.id()]);

impl Test {
    /// Returns the columns that the test reads of rows that are all directories or all not;
    /// [`LISTING`] among them if it asks for paths.
    pub(crate) fn columns(&self, dirs: bool) -> Columns {
        match self {
            Test::Always(_) => Columns::NONE,
            Test::Name(_) => NAME.into(),
            Test::Path(_) | Test::Regex(_) | Test::FileSystem(_) => PLACE,
            Test::Type(_) | Test::Perm(..) => MODE.into(),
            Test::Size(..) => SIZE.into(),
            Test::Empty if dirs => PLACE,
            Test::Empty => SIZE | MODE,
            Test::Time(column, ..) => (*column).into(),
            Test::Id(column, _) => (*column).into(),
            Test::Inode(_) => INO.into(),
            Test::Xattr(test) => PLACE.when(test.reads_values()) | XATTRS,
            Test::Target(_) => TARGET.into(),
            Test::TargetType(_) => PLACE | MODE | TARGET,
            Test::NoName(column, _) => (*column).into(),
            Test::Used(..) => ATIME | CTIME,
            Test::SameFile(..) => PLACE | INO,
            Test::Access(_) => PLACE | MODE | UID | GID | XATTRS | TARGET,
        }
    }

    /// Returns whether it has this outcome, whatever the row.
    pub(crate) fn is(&self, outcome: bool) -> bool {
        matches!(self, Test::Always(always) if *always == outcome)
    }

    /// Returns whether it asks for nothing but the name and the path of an entry.
    pub(crate) fn reads_names_only(&self) -> bool {
        matches!(self, Test::Always(_) | Test::Name(_) | Test::Path(_) | Test::Regex(_))
    }

    /// Returns which outcomes it may have among rows that are all directories or all not and whose
    /// columns lie within bounds, where `bounds` knows them.
    pub(crate) fn outcomes(
        &self,
        dirs: bool,
        bounds: &dyn Fn(ColumnId) -> Result<Option<(i64, i64)>>,
    ) -> Result<Outcomes> {
        let known = |column: ColumnId, of: &dyn Fn((i64, i64)) -> Outcomes| -> Result<Outcomes> {
            Ok(bounds(column)?.map_or(Outcomes::EITHER, of))
        };
        match self {
            Test::Always(outcome) => Ok(Outcomes { may_pass: *outcome, may_fail: !outcome }),
            Test::Type(types) => {
                let dir = types.contains(&FileType::Directory);
                Ok(match dirs {
                    true => Outcomes { may_pass: dir, may_fail: !dir },
                    false => Outcomes { may_pass: types.len() > usize::from(dir), may_fail: true },
                })
            }
            Test::Size(number, unit) => {
                known(SIZE.id(), &|bounds| Outcomes::within(number.span(*unit), bounds))
            }
            Test::Time(column, after, until) => {
                known(column.id(), &|(low, high)| {
                    let mut outcomes = Outcomes::within((*after, *until), (low, high));
                    // A birth that is not known is 0, and no test is true of it.
                    outcomes.may_fail |= column.id() == BTIME.id() && low <= 0 && 0 <= high;
                    outcomes
                })
            }
            Test::Id(column, number) => known(column.id(), &|bounds| number.outcomes(bounds)),
            Test::Inode(number) => known(INO.id(), &|bounds| number.outcomes(bounds)),
            Test::SameFile(file) => known(INO.id(), &|(low, high)| Outcomes {
                may_pass: low <= file.ino as i64 && file.ino as i64 <= high,
                may_fail: true,
            }),
            _ => Ok(Outcomes::EITHER),
        }
    }
}
