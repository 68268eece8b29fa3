//! The tests of find: what they ask, which columns tell it, and what bounds of those columns
//! settle. How rows are tested is in `evaluation`.

use super::storage::StorageTest;
use crate::error::Result;
use canopy_index::column::*;
use canopy_index::{ColumnId, Columns};
use canopy_model::lustre::PROJECT_KEY;
use canopy_model::{Device, FileType, Wanted, XattrAccess, unescape, xattr_names};
use canopy_query::{AttributeTest, Field, Outcomes, Span};
use canopy_read::conditions;
use canopy_text::Glob;
use canopy_text::regular::PathRegex;
use std::ffi::CStr;

/// A number with find's sign: `+n` more, `-n` less, `n` exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// `+n`
    More(u64),
    /// `-n`
    Less(u64),
    /// `n`
    Exactly(u64),
}

impl Number {
    /// Returns whether a value is such a number.
    pub(crate) fn holds(self, value: i64) -> bool {
        self.units(1).contains(value.into())
    }

    /// Returns which values are such a number of units, rounded up.
    pub(crate) fn units(self, unit: i64) -> Span {
        let Span { least, most } = Field::Size.domain();
        let units = |n: u64, less: i128| (i128::from(n) - less) * i128::from(unit);
        match self {
            Number::More(n) => Span { least: units(n, 0) + 1, most },
            Number::Less(n) => Span { least, most: units(n, 1) },
            Number::Exactly(n) => Span { least: units(n, 1) + 1, most: units(n, 0) },
        }
    }

    /// Returns the test that a field is such a number of units, rounded up.
    pub(crate) fn of(self, field: Field, unit: i64) -> Test {
        Test::Condition(AttributeTest::Span(field, self.units(unit)))
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
    /// `-type`, `-size`, `-mtime` and other times, `-uid`, `-links`, `-inum`, `-perm` and their like
    Condition(AttributeTest),
    /// `-empty`
    Empty,
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

/// A test of an extended attribute.
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
            Test::Condition(test) => conditions::columns(*test),
            Test::Empty if dirs => PLACE,
            Test::Empty => SIZE | MODE,
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
        match self {
            Test::Always(outcome) => Ok(Outcomes::certain(*outcome)),
            Test::Condition(test) => conditions::outcomes(*test, dirs, bounds),
            Test::SameFile(file) => {
                let is_asked = file.inode_test();
                let outcomes = conditions::outcomes(is_asked, dirs, bounds)?;
                Ok(Outcomes { may_fail: true, ..outcomes })
            }
            _ => Ok(Outcomes::EITHER),
        }
    }
}

impl NamedFile {
    /// Returns the test that an entry has the inode number of the file.
    pub(crate) fn inode_test(&self) -> AttributeTest {
        let ino = self.ino.into();
        AttributeTest::Span(Field::Inode, Span { least: ino, most: ino })
    }
}
