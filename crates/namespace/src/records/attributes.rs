//! Attributes that a namespace may keep indexes of: their numbers in keys, and values as bytes that
//! are in the order of the values. The only statement of what an index entry's value looks like.
//!
//! ```text
//! numbers   u64, big endian
//! type      the upper four bits of the mode as such a number
//! times     nanoseconds since 1970 as i64, the sign bit flipped, big endian
//! texts     their first 255 bytes, 0 as 1 1 and 1 as 1 2; and a 0, so that none begins another
//! ```
//!
//! Since long texts are cut, the files of an index range are candidates: the file itself decides.

use crate::records::inode::Inode;
use crate::records::keys;
use crate::records::keys::FileId;
use canopy_query::extension;
use canopy_store::{Key, KeyRange};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// More of a text is not in an index.
pub const TEXT_BYTES_MAX: usize = 255;

/// The number of the first extended attribute.
const XATTR: u32 = 1 << 16;

/// An attribute that can have an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Attribute {
    /// The length in bytes.
    Size,
    /// Space of the contents, in units of 512 bytes.
    Blocks,
    /// The owner.
    Uid,
    /// The owning group.
    Gid,
    /// How many names the file has.
    Links,
    /// Number of the project, to which a quota of directory trees counts it.
    Project,
    /// Type of the file.
    Type,
    /// When the contents were changed.
    Mtime,
    /// When the contents or an attribute were changed.
    Ctime,
    /// When the contents were read.
    Atime,
    /// When it was made.
    Btime,
    /// The text behind the last dot of the name.
    Extension,
    /// The name.
    Name,
    /// An extended attribute, by the number that the settings give it.
    Xattr(u16),
}

/// All attributes of an inode and its name, with their numbers and names. Numbers are part of keys:
/// they are never used again for anything else.
const BUILT_IN: [(Attribute, u32, &str); 13] = [
    (Attribute::Size, 1, "size"),
    (Attribute::Blocks, 2, "blocks"),
    (Attribute::Uid, 3, "uid"),
    (Attribute::Gid, 4, "gid"),
    (Attribute::Links, 5, "links"),
    (Attribute::Project, 6, "project"),
    (Attribute::Type, 7, "type"),
    (Attribute::Mtime, 8, "mtime"),
    (Attribute::Ctime, 9, "ctime"),
    (Attribute::Atime, 10, "atime"),
    (Attribute::Btime, 11, "btime"),
    (Attribute::Extension, 12, "ext"),
    (Attribute::Name, 13, "name"),
];

/// The value of an index entry, in bytes that are in the order of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number, a type or a time.
    Number([u8; 8]),
    /// A text.
    Text(Vec<u8>),
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Value::Number(bytes) => bytes,
            Value::Text(bytes) => bytes,
        }
    }
}

impl Value {
    /// Returns the value of a number.
    pub fn number(number: u64) -> Self {
        Value::Number(number.to_be_bytes())
    }

    /// Returns the value of a time in nanoseconds since 1970.
    pub fn time(time_ns: i64) -> Self {
        Value::Number((time_ns as u64 ^ 1 << 63).to_be_bytes())
    }

    /// Returns the value of a text.
    pub fn text(text: &[u8]) -> Self {
        let mut bytes = text_start(text);
        bytes.push(0);
        Value::Text(bytes)
    }
}

/// Returns how the values of all texts begin that begin with this one.
fn text_start(text: &[u8]) -> Vec<u8> {
    let text = &text[..text.len().min(TEXT_BYTES_MAX)];
    let mut bytes = Vec::with_capacity(text.len() + 1);
    for byte in text {
        match byte {
            0 | 1 => bytes.extend([1, byte + 1]),
            _ => bytes.push(*byte),
        }
    }
    bytes
}

impl Attribute {
    /// Returns all attributes but the extended ones.
    pub fn built_in() -> impl Iterator<Item = Attribute> {
        BUILT_IN.iter().map(|(attribute, ..)| *attribute)
    }

    /// Returns the number by which keys know the index.
    pub fn number(self) -> u32 {
        match self {
            Attribute::Xattr(number) => XATTR | u32::from(number),
            _ => self.row().map_or(0, |row| row.1),
        }
    }

    /// Returns the name that queries and settings have for it; none for extended attributes, whose
    /// names are in the settings.
    pub fn name(self) -> Option<&'static str> {
        self.row().map(|row| row.2)
    }

    /// Returns the attribute of such a name.
    pub fn named(name: &str) -> Option<Self> {
        BUILT_IN.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    fn row(self) -> Option<&'static (Attribute, u32, &'static str)> {
        BUILT_IN.iter().find(|row| row.0 == self)
    }

    /// Returns what the index has of a file under one of its names; `None` if the index does not
    /// have the file, and for extended attributes, whose [`Value::text`] is enough.
    pub fn value(self, inode: &Inode, name: &[u8]) -> Option<Value> {
        Some(match self {
            Attribute::Size => Value::number(inode.size),
            Attribute::Blocks => Value::number(inode.blocks),
            Attribute::Uid => Value::number(inode.uid.into()),
            Attribute::Gid => Value::number(inode.gid.into()),
            Attribute::Links => Value::number(inode.nlink.into()),
            Attribute::Project => Value::number(inode.project.into()),
            Attribute::Type => Value::number((inode.file_type() >> 12).into()),
            Attribute::Mtime => Value::time(inode.mtime_ns),
            Attribute::Ctime => Value::time(inode.ctime_ns),
            Attribute::Atime => Value::time(inode.atime_ns),
            Attribute::Btime => Value::time(inode.btime_ns),
            Attribute::Extension => Value::text(extension(name)?),
            Attribute::Name => Value::text(name),
            Attribute::Xattr(_) => return None,
        })
    }

    /// Returns the key of a file's entry.
    pub fn entry(self, value: &Value, id: keys::FileId) -> Key {
        keys::entry(self.number(), value, id)
    }

    /// Returns the range of all entries.
    pub fn all(self) -> KeyRange {
        keys::index(self.number())
    }

    /// Returns the range of entries with values from `least` to `most`, both included.
    pub fn range(self, least: &Value, most: &Value) -> KeyRange {
        self.between(least, following(most))
    }

    /// Returns the range of entries with texts from `least` on.
    pub fn texts_from(self, least: &[u8]) -> KeyRange {
        self.between(&Value::text(least), None)
    }

    /// Returns the range of entries with texts up to `most`, which is included.
    pub fn texts_to(self, most: &[u8]) -> KeyRange {
        self.between(&[], following(&Value::text(most)))
    }

    /// Returns the range of entries with texts that begin with `start`.
    pub fn texts_with(self, start: &[u8]) -> KeyRange {
        let start = text_start(start);
        self.between(&start, following(&start))
    }

    fn between(self, least: &[u8], beyond: Option<Vec<u8>>) -> KeyRange {
        let all = self.all();
        let start = if least.is_empty() { all.start } else { self.bound(least) };
        KeyRange { start, end: beyond.map(|beyond| self.bound(&beyond)).or(all.end) }
    }

    /// Returns the key that lies before the entries of all values that are not less.
    fn bound(self, value: &[u8]) -> Key {
        let mut key = keys::entry(self.number(), value, FileId::NONE);
        key.name.truncate(key.name.len().saturating_sub(size_of::<keys::FileId>()));
        key
    }
}

/// Returns the least bytes that are greater than all that begin with these.
fn following(bytes: &[u8]) -> Option<Vec<u8>> {
    let last = bytes.iter().rposition(|byte| *byte < u8::MAX)?;
    let mut following = bytes[..=last].to_vec();
    following[last] += 1;
    Some(following)
}

/// Attributes that have indexes in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes {
    /// Those that every inode and its name have.
    pub attributes: BTreeSet<Attribute>,
    /// Numbers of extended attributes, by name.
    pub xattrs: BTreeMap<Vec<u8>, u16>,
}

impl Indexes {
    /// Returns whether there is an index of an attribute.
    pub fn has(&self, attribute: Attribute) -> bool {
        match attribute {
            Attribute::Xattr(number) => self.xattrs.values().any(|known| *known == number),
            _ => self.attributes.contains(&attribute),
        }
    }

    /// Returns the numbers of all.
    pub fn numbers(&self) -> Vec<u32> {
        let xattrs = self.xattrs.values().map(|number| Attribute::Xattr(*number).number());
        self.attributes.iter().map(|one| one.number()).chain(xattrs).collect()
    }

    /// Returns which index an extended attribute has, if it has one.
    pub fn xattr(&self, name: &[u8]) -> Option<Attribute> {
        self.xattrs.get(name).copied().map(Attribute::Xattr)
    }

    /// Returns the name of an attribute, as settings have it.
    pub fn name_of(&self, attribute: Attribute) -> String {
        let is_it = |number: &u16| Attribute::Xattr(*number) == attribute;
        let xattr = self.xattrs.iter().find(|(_, number)| is_it(number));
        match (attribute.name(), xattr) {
            (Some(name), _) => name.to_owned(),
            (None, Some((name, _))) => name.escape_ascii().to_string(),
            (None, None) => "an extended attribute".to_owned(),
        }
    }

    /// Returns the keys of all entries of a file under one of its names, without extended
    /// attributes.
    pub fn entries(&self, inode: &Inode, name: &[u8]) -> impl Iterator<Item = Key> {
        self.attributes.iter().filter_map(move |attribute| {
            Some(attribute.entry(&attribute.value(inode, name)?, inode.id))
        })
    }

    /// Returns the key of the entry of a file's extended attribute, if there is an index of it.
    pub fn xattr_entry(&self, name: &[u8], value: &[u8], id: keys::FileId) -> Option<Key> {
        Some(self.xattr(name)?.entry(&Value::text(value), id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn numbers_and_names_are_unique() {
        let numbers: BTreeSet<u32> = Attribute::built_in().map(Attribute::number).collect();
        assert_eq!(numbers.len(), BUILT_IN.len());
        assert!(!numbers.contains(&0) && numbers.iter().all(|number| *number < XATTR));
        for attribute in Attribute::built_in() {
            assert_eq!(attribute.name().and_then(Attribute::named), Some(attribute));
        }
        assert_eq!(Attribute::Xattr(7).number(), XATTR + 7);
    }

    fn random_text(random: &mut StdRng) -> Vec<u8> {
        let length = random.random_range(0..20);
        (0..length).map(|_| [0, 1, 2, b'a', 0xff][random.random_range(0..5)]).collect()
    }

    #[test]
    fn keys_are_in_the_order_of_texts() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..20_000 {
            let [a, b, start] = [(); 3].map(|()| random_text(&mut random));
            let [small, large] = [0, u64::MAX];
            let index = Attribute::Name;
            let keys = [(&a, large), (&b, small)]
                .map(|(t, id)| index.entry(&Value::text(t), keys::FileId(id)));
            if a != b {
                assert_eq!(a < b, keys[0] < keys[1], "{a:?} {b:?}");
            }
            let key = keys[0].as_ref();
            assert_eq!(index.texts_from(&b).contains(key), a >= b);
            assert_eq!(index.texts_to(&b).contains(key), a <= b);
            assert_eq!(index.range(&Value::text(&b), &Value::text(&b)).contains(key), a == b);
            let start = &start[..start.len().min(3)];
            assert_eq!(index.texts_with(start).contains(key), a.starts_with(start));
            assert!(index.all().contains(key));
        }
    }

    #[test]
    fn keys_are_in_the_order_of_numbers_and_times() {
        let times = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let numbers = [0, 1, 255, 256, u64::MAX - 1, u64::MAX];
        let index = Attribute::Mtime;
        let times = times.map(Value::time);
        let numbers = numbers.map(Value::number);
        for values in [&times[..], &numbers[..]] {
            assert!(values.is_sorted());
            for (at, value) in values.iter().enumerate() {
                for id in [0, u64::MAX] {
                    let key = index.entry(value, keys::FileId(id));
                    for (least, low) in values.iter().enumerate() {
                        for (most, high) in values.iter().enumerate().skip(least) {
                            let inside = (least..=most).contains(&at);
                            assert_eq!(index.range(low, high).contains(key.as_ref()), inside);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let index = Attribute::Xattr(3);
        let long = vec![0; 300];
        let key = index.entry(&Value::text(&long), keys::FileId(1));
        assert!(index.range(&Value::text(&long), &Value::text(&long)).contains(key.as_ref()));
        assert!(index.texts_with(&long).contains(key.as_ref()));
        assert!(index.texts_from(&long[..256]).contains(key.as_ref()));
        assert!(index.texts_to(&long[..256]).contains(key.as_ref()));
    }

    #[test]
    fn entries_are_those_of_the_indexes() {
        let indexes = Indexes {
            attributes: [Attribute::Size, Attribute::Extension].into(),
            xattrs: [(b"user.run".to_vec(), 2)].into(),
        };
        let inode = Inode { id: keys::FileId(9), size: 5, ..Inode::default() };
        assert_eq!(indexes.entries(&inode, b"a").count(), 1);
        assert_eq!(indexes.entries(&inode, b"a.c").count(), 2);
        assert!(indexes.xattr_entry(b"user.run", b"7", keys::FileId(9)).is_some());
        assert!(indexes.xattr_entry(b"user.walk", b"7", keys::FileId(9)).is_none());
        assert!(indexes.has(Attribute::Xattr(2)) && !indexes.has(Attribute::Xattr(3)));
    }
}
