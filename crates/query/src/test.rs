//! Single tests of a query: what of a file they compare, and with what.

use crate::expression::Candidate;
use crate::pattern::Pattern;
use canopy_model::FileType;
use std::cmp::Ordering;

/// A number or a time of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The length in bytes.
    Size,
    /// Space that the contents take, in units of 512 bytes.
    Blocks,
    /// Type and permissions as one number, which SQL compares. Brackets and find compare its parts.
    Mode,
    /// The owner.
    Uid,
    /// The owning group.
    Gid,
    /// How many names there are.
    Links,
    /// Number of the project, to which a quota of directory trees counts it.
    Project,
    /// Inode number.
    Inode,
    /// When the contents were changed.
    Mtime,
    /// When the contents or an attribute were changed.
    Ctime,
    /// When the contents were read.
    Atime,
    /// When it was made.
    Btime,
}

impl Field {
    /// Returns the name that queries have for it.
    pub fn name(self) -> &'static str {
        match self {
            Field::Size => "size",
            Field::Blocks => "blocks",
            Field::Mode => "mode",
            Field::Uid => "uid",
            Field::Gid => "gid",
            Field::Links => "links",
            Field::Project => "project",
            Field::Inode => "inode",
            Field::Mtime => "mtime",
            Field::Ctime => "ctime",
            Field::Atime => "atime",
            Field::Btime => "btime",
        }
    }

    /// Returns whether it is a time, in nanoseconds since 1970.
    pub fn is_time(self) -> bool {
        matches!(self, Field::Mtime | Field::Ctime | Field::Atime | Field::Btime)
    }

    /// Returns all values that it can have: those of `i64` for times, of `u64` for all else.
    pub fn domain(self) -> Span {
        match self.is_time() {
            true => Span { least: i64::MIN.into(), most: i64::MAX.into() },
            false => Span { least: 0, most: u64::MAX.into() },
        }
    }

    /// Returns the first and the last value of a span as a column of `i64` has them; `None` if it
    /// has none of them. What is less than nothing counts as nothing.
    pub fn signed(self, span: Span) -> Option<(i64, i64)> {
        let counts_from_nothing = !self.is_time() && span.least <= 0;
        let least = if counts_from_nothing { i64::MIN.into() } else { span.least };
        Span { least, ..span }.within(i64::MIN, i64::MAX)
    }

    /// Returns whether 0 stands for a value that is not known, of which no test is true.
    pub fn may_be_unknown(self) -> bool {
        self == Field::Btime
    }
}

/// Values from the least to the most, both included: none, if the least is larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first value.
    pub least: i128,
    /// The last value.
    pub most: i128,
}

impl Span {
    /// Returns whether a value is in it.
    pub fn contains(self, value: i128) -> bool {
        (self.least..=self.most).contains(&value)
    }

    /// Returns whether no value is in it.
    pub fn is_empty(self) -> bool {
        self.least > self.most
    }

    /// Returns the values that are in both.
    pub fn intersection(self, other: Self) -> Self {
        Span { least: self.least.max(other.least), most: self.most.min(other.most) }
    }

    /// Returns the first and the last value as numbers of another type: if the span reaches
    /// beyond all of them, the least or the largest of the type. `None` if no number of the type is
    /// in the span.
    pub fn within<T: TryFrom<i128> + Into<i128>>(self, least: T, most: T) -> Option<(T, T)> {
        let both = self.intersection(Span { least: least.into(), most: most.into() });
        let ends = (both.least.try_into().ok()?, both.most.try_into().ok()?);
        (!both.is_empty()).then_some(ends)
    }
}

/// Kinds of files: a bit for each value that the upper four bits of a mode have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Types(u16);

/// The bits of a mode that say what kind of file it is.
const TYPE_MASK: u32 = 0o170_000;

/// Those of a symbolic link.
const SYMLINK: u32 = 0o120_000;

/// The kinds of files by find's letters for them.
const LETTERS: [(char, u32); 7] = [
    ('f', 0o100_000),
    ('d', 0o040_000),
    ('l', SYMLINK),
    ('p', 0o010_000),
    ('s', 0o140_000),
    ('b', 0o060_000),
    ('c', 0o020_000),
];

impl Types {
    /// All kinds, also those that no file system knows.
    pub const ALL: Types = Types(u16::MAX);

    /// Returns the kind that find(1) has this letter for.
    pub fn of(letter: char) -> Option<Self> {
        let bits = LETTERS.iter().find(|(known, _)| *known == letter)?.1;
        Some(Types(1 << (bits >> 12)))
    }

    /// Returns the kinds of both.
    pub fn union(self, other: Self) -> Self {
        Types(self.0 | other.0)
    }

    /// Returns the kinds that are in both.
    pub fn intersection(self, other: Self) -> Self {
        Types(self.0 & other.0)
    }

    /// Returns all other kinds.
    pub fn complement(self) -> Self {
        Types(!self.0)
    }

    /// Returns whether the kind in a mode is among them.
    #[inline]
    pub fn contains(self, mode: u32) -> bool {
        self.0 >> ((mode & TYPE_MASK) >> 12) & 1 == 1
    }

    /// Returns whether a kind is among them. `Unknown` is if any kind without a letter is.
    #[inline]
    pub fn has(self, kind: FileType) -> bool {
        let bits = match kind {
            FileType::Regular => 1 << 0o10,
            FileType::Directory => 1 << 0o4,
            FileType::Symlink => 1 << 0o12,
            FileType::Fifo => 1 << 0o1,
            FileType::Socket => 1 << 0o14,
            FileType::Block => 1 << 0o6,
            FileType::Character => 1 << 0o2,
            FileType::Unknown => !0b0001_0101_0101_0110,
        };
        self.0 & bits != 0
    }

    /// Returns find's letters for them; `None` if there are no letters for all of them.
    pub fn letters(self) -> Option<String> {
        let known = LETTERS.iter().filter(|(_, bits)| self.contains(*bits));
        let letters: String = known.map(|(letter, _)| *letter).collect();
        (self.0.count_ones() as usize == letters.len()).then_some(letters)
    }

    /// Returns the values of the upper bits of a mode, in ascending order.
    pub fn values(self) -> impl Iterator<Item = u64> {
        (0..16).filter(move |value| self.0 >> value & 1 == 1)
    }
}

/// How permissions are compared, as `-perm` of find(1) does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PermissionMatch {
    /// `perm`: exactly these bits are set.
    Exactly,
    /// `perm-all`: all of these are set.
    All,
    /// `perm-any`: at least one of these is set.
    Any,
}

impl PermissionMatch {
    /// Returns whether a mode is as bits ask for.
    #[inline]
    pub fn holds(self, mode: u32, bits: u32) -> bool {
        match self {
            PermissionMatch::Exactly => mode & 0o7777 == bits,
            PermissionMatch::All => mode & bits == bits,
            PermissionMatch::Any => mode & bits != 0,
        }
    }
}

/// A text that belongs to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextField {
    /// The name.
    Name,
    /// The text behind the last dot of the name; not every name has one.
    Extension,
    /// The path from the directory that the query hangs below.
    Path,
    /// Where a symbolic link leads; nothing else has it.
    Target,
}

impl TextField {
    /// Returns the name that queries have for it.
    pub fn name(self) -> &'static str {
        match self {
            TextField::Name => "name",
            TextField::Extension => "ext",
            TextField::Path => "path",
            TextField::Target => "target",
        }
    }

    /// Returns the text of a file.
    fn of(self, candidate: &impl Candidate) -> Option<&[u8]> {
        match self {
            TextField::Name => Some(candidate.name()),
            TextField::Extension => extension(candidate.name()),
            TextField::Path => Some(candidate.path()),
            TextField::Target => {
                let is_link = candidate.mode() & TYPE_MASK == SYMLINK;
                is_link.then(|| candidate.target())
            }
        }
    }
}

/// Returns what follows the last dot of a name; `None` if there is nothing, or the name only begins
/// with a dot.
pub fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0)?;
    Some(&name[dot + 1..]).filter(|extension| !extension.is_empty())
}

/// A comparison of what is in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

impl Order {
    /// Returns the operator.
    pub fn symbol(self) -> &'static str {
        match self {
            Order::Less => "<",
            Order::LessEqual => "<=",
            Order::Greater => ">",
            Order::GreaterEqual => ">=",
        }
    }

    /// Returns whether values that compare so are in this order.
    pub fn holds(self, ordering: Ordering) -> bool {
        match self {
            Order::Less => ordering.is_lt(),
            Order::LessEqual => ordering.is_le(),
            Order::Greater => ordering.is_gt(),
            Order::GreaterEqual => ordering.is_ge(),
        }
    }
}

/// A number that people wrote: exact if it is whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Decimal {
    /// A whole number.
    Whole(i128),
    /// Any other, or one that is too large.
    Real(f64),
}

impl Decimal {
    /// Reads a number such as `-12`, `3.5` or `1e9`, with white space around it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.trim_ascii();
        // Other numbers of Rust, such as `inf`, have other letters.
        let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
        if !text.bytes().all(is_part) {
            return None;
        }
        if let Ok(whole) = text.parse() {
            return Some(Decimal::Whole(whole));
        }
        text.parse().ok().filter(|real: &f64| real.is_finite()).map(Decimal::Real)
    }

    /// Compares two numbers.
    pub fn compare(self, other: Self) -> Ordering {
        match (self, other) {
            (Decimal::Whole(a), Decimal::Whole(b)) => a.cmp(&b),
            (a, b) => a.real().total_cmp(&b.real()),
        }
    }

    fn real(self) -> f64 {
        match self {
            Decimal::Whole(whole) => whole as f64,
            // Without the sign of zero, which `total_cmp` minds.
            Decimal::Real(real) => real + 0.0,
        }
    }
}

/// A test of an extended attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum XattrTest {
    /// That there is one of the name.
    Exists,
    /// The value matches.
    Value(Pattern),
    /// How the value compares with a number, if it is one itself.
    Number(Order, Decimal),
    /// How the value's bytes compare with others.
    Bytes(Order, Vec<u8>),
}

impl XattrTest {
    fn passes(&self, value: &[u8]) -> bool {
        match self {
            XattrTest::Exists => true,
            XattrTest::Value(pattern) => pattern.matches(value),
            XattrTest::Number(order, number) => {
                Decimal::parse(value).is_some_and(|value| order.holds(value.compare(*number)))
            }
            XattrTest::Bytes(order, bytes) => order.holds(value.cmp(bytes)),
        }
    }
}

/// One test of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Test {
    /// All files pass, or none.
    Always(bool),
    /// An attribute of the inode is as asked for.
    Attribute(AttributeTest),
    /// A text is as a pattern says.
    Text(TextField, Pattern),
    /// An extended attribute of this name is as asked for.
    Xattr(Vec<u8>, XattrTest),
}

/// One test of an attribute that is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttributeTest {
    /// A number or time is in a span. False of one that is not known.
    Span(Field, Span),
    /// The file is of one of some kinds.
    Type(Types),
    /// The lower twelve bits of the mode are as asked for.
    Permissions(PermissionMatch, u32),
}

impl AttributeTest {
    /// Returns whether a file passes.
    pub fn passes(self, candidate: &impl Candidate) -> bool {
        match self {
            AttributeTest::Span(field, span) => {
                let value = candidate.number(field);
                span.contains(value) && !(value == 0 && field.may_be_unknown())
            }
            AttributeTest::Type(types) => types.contains(candidate.mode()),
            AttributeTest::Permissions(kind, bits) => kind.holds(candidate.mode(), bits),
        }
    }
}

impl Test {
    /// Returns whether a file passes.
    pub fn passes(&self, candidate: &impl Candidate) -> bool {
        match self {
            Test::Always(passes) => *passes,
            Test::Attribute(test) => test.passes(candidate),
            Test::Text(field, pattern) => {
                field.of(candidate).is_some_and(|text| pattern.matches(text))
            }
            Test::Xattr(name, test) => {
                candidate.xattr(name).is_some_and(|value| test.passes(&value))
            }
        }
    }

    /// Returns how much it takes to find out, for the order in which tests are made.
    pub(crate) fn cost(&self) -> u8 {
        match self {
            Test::Always(_) | Test::Attribute(_) => 0,
            Test::Text(..) => 1,
            Test::Xattr(..) => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_what_people_write() {
        for (text, expected) in [
            ("12", Some(Decimal::Whole(12))),
            (" -3\n", Some(Decimal::Whole(-3))),
            ("3.5", Some(Decimal::Real(3.5))),
            ("1e3", Some(Decimal::Real(1000.0))),
            ("inf", None),
            ("nan", None),
            ("1e999", None),
            ("", None),
            ("1 2", None),
            ("0x10", None),
            ("e", None),
        ] {
            assert_eq!(Decimal::parse(text.as_bytes()), expected, "{text}");
        }
        let compare = |a: &str, b: &str| {
            let [a, b] = [a, b].map(|text| Decimal::parse(text.as_bytes()).unwrap());
            a.compare(b)
        };
        assert_eq!(compare("9007199254740993", "9007199254740992"), Ordering::Greater);
        assert_eq!(compare("10", "9.5"), Ordering::Greater);
        assert_eq!(compare("-0.0", "0"), Ordering::Equal);
    }

    #[test]
    fn types_have_letters() {
        let types = Types::of('d').unwrap().union(Types::of('f').unwrap());
        assert_eq!(types.letters().as_deref(), Some("fd"));
        assert!(types.contains(0o040_755) && !types.contains(0o120_777));
        assert_eq!(types.complement().letters(), None);
        assert_eq!(types.values().collect::<Vec<_>>(), [4, 8]);
        assert_eq!(Types::ALL.values().count(), 16);
        assert_eq!(Types::of('x'), None);
    }

    #[test]
    fn extensions_follow_the_last_dot() {
        for (name, expected) in [
            ("a.h5", Some("h5")),
            ("a.tar.gz", Some("gz")),
            (".bashrc", None),
            ("a.", None),
            ("a", None),
            ("", None),
            (".a.b", Some("b")),
        ] {
            assert_eq!(extension(name.as_bytes()), expected.map(str::as_bytes), "{name}");
        }
    }
}
