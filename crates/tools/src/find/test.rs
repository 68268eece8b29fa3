//! The tests of find: what each reads, how it is evaluated over a batch of rows, and what bounds
//! say of it.

use super::rows::{Among, Over, Rows};
use arrow::buffer::BooleanBuffer;
use canopy_model::{FileType, Wanted};
use canopy_text::Glob;
use canopy_text::{group_name, user_name};
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

    /// The values that make such a number of units, rounded up: more than the first and up to the
    /// second.
    fn span(self, unit: i64) -> (i64, i64) {
        match self {
            Number::More(n) => (n.saturating_mul(unit), i64::MAX),
            Number::Less(n) => (i64::MIN, n.saturating_sub(1).saturating_mul(unit)),
            Number::Exactly(n) => {
                (n.saturating_sub(1).saturating_mul(unit), n.saturating_mul(unit))
            }
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
    /// A time column later than the first moment (exclusive) and up to the second one (inclusive),
    /// in nanoseconds since 1970: `-mtime`, `-mmin`, `-newer` and their like.
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
    /// `-used`: last read later after the last change than the first span (exclusive) and up to the
    /// second one, in nanoseconds
    Used(i64, i64),
    /// `-samefile`, by device and inode
    SameFile(u64, u64),
    /// `-fstype`
    FileSystem(String),
    /// `-readable`, `-writable`, `-executable`
    Access(Wanted),
}

/// A test of extended attributes: whether there is one with such a name and, if asked, such a
/// value.
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
    /// Whether names in listings are not enough: where a value is asked for, or a name that
    /// listings do not tell.
    pub(crate) fn reads_values(&self) -> bool {
        const HIDDEN: &str = "trusted.";
        let may_be_hidden =
            HIDDEN.starts_with(&self.key_start) || self.key_start.starts_with(HIDDEN);
        self.value.is_some() || may_be_hidden
    }

    /// Whether an attribute passes.
    pub(crate) fn holds(&self, key: &str, value: &str) -> bool {
        self.key.matches(key) && self.value.as_ref().is_none_or(|glob| glob.matches(value))
    }

    /// Whether one of the names that are joined in a column passes.
    pub(crate) fn holds_in(&self, joined: &str) -> bool {
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

impl Test {
    /// The columns that the test reads of rows that are all directories or all not; `listing` if it
    /// asks for their paths.
    pub(crate) fn columns(&self, dirs: bool) -> &'static [&'static str] {
        match self {
            Test::Always(_) => &[],
            Test::Name(_) => &["name"],
            Test::Path(_) | Test::Regex(_) => &["listing", "name"],
            Test::Type(_) | Test::Perm(..) => &["mode"],
            Test::Size(..) => &["size"],
            Test::Empty if dirs => &["listing", "name"],
            Test::Empty => &["size", "mode"],
            Test::Time(column, ..) | Test::Id(column, _) => {
                std::slice::from_ref(column_ref(column))
            }
            Test::Inode(_) => &["ino"],
            Test::Xattr(test) if test.reads_values() => &["xattrs", "listing", "name"],
            Test::Xattr(_) => &["xattrs"],
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

    /// The rows of `among` that pass.
    pub(crate) fn evaluate(&self, rows: &impl Rows, among: &BooleanBuffer) -> BooleanBuffer {
        match self {
            Test::Always(true) => among.clone(),
            Test::Always(false) => BooleanBuffer::new_unset(rows.len()),
            _ => self.check(rows, Among(among)),
        }
    }

    /// Carries the test out over rows.
    pub(crate) fn check<O: Over>(&self, rows: &impl Rows, over: O) -> O::Outcome {
        match self {
            Test::Always(outcome) => over.each(|_| *outcome),
            Test::Name(glob) => {
                let names = rows.names();
                over.each(|at| glob.matches(&names(at)))
            }
            Test::Path(glob) => over.each(|at| glob.matches(&rows.shown(at))),
            Test::Regex(regex) => over.each(|at| regex.is_match(&rows.shown(at))),
            Test::Type(types) => {
                let kinds = rows.types();
                over.each(|at| kinds(at).is_some_and(|kind| types.contains(&kind)))
            }
            Test::Size(number, unit) => {
                let (after, until) = number.span(*unit);
                let sizes = rows.sizes();
                over.each(|at| sizes(at).is_some_and(|size| after < size && size <= until))
            }
            Test::Empty => over.each(rows.empties()),
            Test::Time(column, after, until) => {
                let times = rows.times(column);
                over.each(|at| times(at).is_some_and(|time| *after < time && time <= *until))
            }
            Test::Id(column, number) => {
                let ids = rows.ids(column);
                over.each(|at| ids(at).is_some_and(|id| number.holds(i64::from(id))))
            }
            Test::Inode(number) => {
                let inodes = rows.inodes();
                over.each(|at| inodes(at).is_some_and(|inode| number.holds(inode as i64)))
            }
            Test::Xattr(test) => over.each(rows.xattrs(test)),
            Test::Target(glob) => {
                let targets = rows.targets();
                over.each(|at| match &*targets(at) {
                    "" => false,
                    target => glob.matches(target),
                })
            }
            Test::TargetType(types) => over.each(|at| rows.leads_to(types, at)),
            Test::NoUser => {
                let ids = rows.ids("uid");
                over.each(|at| ids(at).is_some_and(|id| user_name(id).is_none()))
            }
            Test::NoGroup => {
                let ids = rows.ids("gid");
                over.each(|at| ids(at).is_some_and(|id| group_name(id).is_none()))
            }
            Test::Used(after, until) => {
                let (read, changed) = (rows.times("atime"), rows.times("ctime"));
                over.each(|at| {
                    let span = read(at)
                        .zip(changed(at))
                        .map(|(read, changed)| read.saturating_sub(changed));
                    span.is_some_and(|span| *after < span && span <= *until)
                })
            }
            Test::SameFile(dev, ino) => {
                let inodes = rows.inodes();
                over.each(|at| inodes(at) == Some(*ino) && rows.dev(at) == Some(*dev))
            }
            Test::FileSystem(name) => over.each(|at| rows.is_on(name, at)),
            Test::Access(wanted) => over.each(|at| rows.may_access(*wanted, at)),
            Test::Perm(bits, kind) => {
                let modes = rows.modes();
                over.each(|at| {
                    modes(at).is_some_and(|mode| match kind {
                        PermMatch::Exactly => mode & 0o7777 == *bits,
                        PermMatch::All => mode & bits == *bits,
                        PermMatch::Any => *bits == 0 || mode & bits != 0,
                    })
                })
            }
        }
    }

    /// Whether it has this outcome, whatever the row.
    pub(crate) fn is(&self, outcome: bool) -> bool {
        matches!(self, Test::Always(always) if *always == outcome)
    }

    /// Whether it asks for nothing but the name and the path of an entry.
    pub(crate) fn reads_names_only(&self) -> bool {
        matches!(self, Test::Always(_) | Test::Name(_) | Test::Path(_) | Test::Regex(_))
    }

    /// Whether the test may pass, and whether it may fail, among rows that are all directories or
    /// all not and whose columns lie within bounds.
    pub(crate) fn may_be(
        &self,
        dirs: bool,
        bounds: &dyn Fn(&str) -> Option<(i64, i64)>,
    ) -> (bool, bool) {
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
            Test::Id(column, number) => {
                bounds(column).map_or(unknown, |bounds| number.may_be(bounds))
            }
            Test::Inode(number) => bounds("ino").map_or(unknown, |bounds| number.may_be(bounds)),
            Test::SameFile(_, ino) => bounds("ino")
                .map_or(unknown, |(low, high)| (low <= *ino as i64 && *ino as i64 <= high, true)),
            _ => unknown,
        }
    }
}

/// The one static place of a column's name, so that a slice of it can be given out.
fn column_ref(name: &str) -> &'static &'static str {
    static NAMES: [&str; 7] = ["atime", "mtime", "ctime", "btime", "uid", "gid", "nlink"];
    NAMES
        .iter()
        .find(|known| **known == name)
        .unwrap_or_else(|| panic!("no test reads the column {name}"))
}

/// Whether values between two bounds may lie after `after` and up to `until`, and whether they may
/// not.
fn may_be_within((after, until): (i64, i64), (low, high): (i64, i64)) -> (bool, bool) {
    (high > after && low <= until, low <= after || high > until)
}
