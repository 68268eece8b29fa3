//! A listing as it travels from a scanner to the index: one directory and what is in it.

use crate::lustre::{self, LAYOUT_KEYS};
use crate::{Access, Attributes, Audience, Device, SourcePath};

/// One entry of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Its name, escaped (see [`crate::escape`]).
    pub name: &'a str,
    /// Its attributes.
    pub attributes: &'a Attributes,
    /// Where a symbolic link points, escaped; empty for everything else.
    pub target: &'a str,
}

/// The entries of a directory, kept in a few allocations that can be reused.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    attributes: Vec<Attributes>,
    /// Names and targets, one after the other: name 0, target 0, name 1, ...
    text: String,
    /// Where each name and each target ends in `text`, two a row.
    ends: Vec<u32>,
    /// In the order of their rows.
    xattrs: Vec<XattrPlace>,
    /// Keys and values of extended attributes.
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct XattrPlace {
    row: u32,
    start: u32,
    key_end: u32,
    value_end: u32,
    audience: Option<Audience>,
}

/// An extended attribute of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Xattr<'a> {
    /// Its name with its namespace, such as `user.mime_type`, escaped.
    pub key: &'a str,
    /// The value and those who may see it; `None` where the value is not known.
    pub value: Option<(&'a [u8], Audience)>,
}

impl Rows {
    /// Adds an entry.
    pub fn push(&mut self, name: &str, attributes: Attributes, target: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u32);
        self.text.push_str(target);
        self.ends.push(self.text.len() as u32);
        self.attributes.push(attributes);
    }

    /// Adds an extended attribute to the entry that was added last. Layouts of Lustre's lose their
    /// ids ([`lustre::forget_ids`]), and `lustre.lov` takes the place of `trusted.lov`, which says
    /// the same to root alone.
    pub fn push_xattr(&mut self, xattr: Xattr<'_>) {
        let Some(row) = self.attributes.len().checked_sub(1) else { return };
        let [public, private] = LAYOUT_KEYS;
        let has_layout = |rows: &Rows| {
            rows.xattrs(row).any(|other| other.key == public && other.value.is_some())
        };
        if xattr.key == private && has_layout(self) {
            return;
        }
        if xattr.key == public && xattr.value.is_some() {
            let first = self.xattrs.partition_point(|place| (place.row as usize) < row);
            let place = self.xattrs(row).position(|other| other.key == private);
            place.map(|at| self.xattrs.remove(first + at));
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(xattr.key.as_bytes());
        let key_end = self.bytes.len();
        if let Some((value, _)) = xattr.value {
            self.bytes.extend_from_slice(value);
            if LAYOUT_KEYS.contains(&xattr.key) {
                lustre::forget_ids(&mut self.bytes[key_end..]);
            }
        }
        self.xattrs.push(XattrPlace {
            row: row as u32,
            start: start as u32,
            key_end: key_end as u32,
            value_end: self.bytes.len() as u32,
            audience: xattr.value.map(|(_, audience)| audience),
        });
    }

    /// Adds an entry of others as it is there, in row `at`. Panics if there is no such row.
    pub fn push_row_of(&mut self, others: &Rows, at: usize) {
        let Row { name, attributes, target } = others.row(at);
        self.push(name, *attributes, target);
        if others.has_xattrs() {
            others.xattrs(at).for_each(|xattr| self.push_xattr(xattr));
        }
    }

    /// Returns the extended attributes of the entry in row `at`.
    pub fn xattrs(&self, at: usize) -> impl Iterator<Item = Xattr<'_>> {
        let first = self.xattrs.partition_point(|place| (place.row as usize) < at);
        self.xattrs[first..].iter().take_while(move |place| place.row as usize == at).map(|place| {
            let key =
                std::str::from_utf8(&self.bytes[place.start as usize..place.key_end as usize]);
            let value = &self.bytes[place.key_end as usize..place.value_end as usize];
            Xattr {
                key: key.expect("keys are kept as they were given"),
                value: place.audience.map(|audience| (value, audience)),
            }
        })
    }

    /// Replaces those who may see each value.
    pub fn map_audiences(&mut self, to: impl Fn(Audience) -> Audience) {
        for audience in self.xattrs.iter_mut().filter_map(|place| place.audience.as_mut()) {
            *audience = to(*audience);
        }
    }

    /// Returns whether any entry has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        !self.xattrs.is_empty()
    }

    /// Returns how many entries there are.
    pub fn len(&self) -> usize {
        self.attributes.len()
    }

    /// Returns whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// Forgets all entries and keeps the memory.
    pub fn clear(&mut self) {
        self.attributes.clear();
        self.text.clear();
        self.ends.clear();
        self.xattrs.clear();
        self.bytes.clear();
    }

    /// Returns the bytes of memory held, those reserved for more rows included.
    pub fn capacity_bytes(&self) -> usize {
        self.attributes.capacity() * size_of::<Attributes>()
            + self.text.capacity()
            + self.ends.capacity() * size_of::<u32>()
            + self.xattrs.capacity() * size_of::<XattrPlace>()
            + self.bytes.capacity()
    }

    /// Returns the bytes of names, targets and extended attributes.
    pub fn bytes(&self) -> usize {
        self.text.len() + self.bytes.len()
    }

    /// Returns the bytes of the name, target and extended attributes in row `at`. Panics if there is
    /// no such row.
    pub fn bytes_of(&self, at: usize) -> usize {
        let value = |xattr: Xattr<'_>| xattr.value.map_or(0, |(value, _)| value.len());
        let xattrs: usize = match self.has_xattrs() {
            true => self.xattrs(at).map(|xattr| xattr.key.len() + value(xattr)).sum(),
            false => 0,
        };
        self.name(at).len() + self.target(at).len() + xattrs
    }

    /// Returns the attributes of all entries, by row.
    pub fn attributes(&self) -> &[Attributes] {
        &self.attributes
    }

    /// Returns the name in row `at`. Panics if there is no such row.
    pub fn name(&self, at: usize) -> &str {
        let start = if at == 0 { 0 } else { self.ends[2 * at - 1] };
        &self.text[start as usize..self.ends[2 * at] as usize]
    }

    /// Returns the target in row `at`. Panics if there is no such row.
    pub fn target(&self, at: usize) -> &str {
        &self.text[self.ends[2 * at] as usize..self.ends[2 * at + 1] as usize]
    }

    /// Returns the entry in row `at`. Panics if there is no such row.
    pub fn row(&self, at: usize) -> Row<'_> {
        Row { name: self.name(at), attributes: &self.attributes[at], target: self.target(at) }
    }

    /// Returns all entries, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = Row<'_>> {
        (0..self.len()).map(|at| self.row(at))
    }
}

/// The contents of one directory at one moment: the unit of access and of update.
#[derive(Clone, Copy, Debug)]
pub struct Listing<'a> {
    /// The directory's path.
    pub path: SourcePath<'a>,
    /// How many components the path has.
    pub depth: u32,
    /// 0 for the first part of the directory's contents; a huge directory comes in several parts.
    pub part: u32,
    /// Device that holds the directory and its entries.
    pub dev: Device,
    /// The directory's own attributes.
    pub directory: &'a Attributes,
    /// The users who may see the listing, and the users who may look names up in it.
    pub access: &'a Access,
    /// The entries, directories among them, in any order.
    pub rows: &'a Rows,
}

/// Added to the number of a part: entries of it that root alone sees, since they and the directory
/// changed all the time while they were read.
pub const DOUBTFUL_PART: u32 = 1 << 30;

/// Takes in the listings that one thread finds.
pub trait Sink: Send {
    /// Why it cannot take any more.
    type Error: Send;

    /// Takes in a listing. An error ends the work of all threads.
    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Self::Error>;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ClassTable;
    use crate::fuzzing::lustre::plain;

    #[test]
    fn a_layout_is_kept_once() {
        let all = Audience { listers: ClassTable::EVERYONE, knowers: None };
        let layout = plain(1, 1 << 20, 1, "", &[5]);
        let kept = |keys: &[(&str, bool)]| {
            let mut rows = Rows::default();
            rows.push("before", Attributes::default(), "");
            rows.push_xattr(Xattr { key: "trusted.lov", value: Some((&layout, all)) });
            rows.push("file", Attributes::default(), "");
            for (key, is_known) in keys {
                let value = is_known.then_some((&layout[..], all));
                rows.push_xattr(Xattr { key, value });
            }
            assert_eq!(rows.xattrs(0).count(), 1);
            let keys: Vec<String> = rows.xattrs(1).map(|xattr| xattr.key.to_owned()).collect();
            keys.join(" ")
        };
        let (private, public) = (("trusted.lov", true), ("lustre.lov", true));
        assert_eq!(kept(&[private, ("user.a", true), public]), "user.a lustre.lov");
        assert_eq!(kept(&[public, private]), "lustre.lov");
        assert_eq!(kept(&[private, ("lustre.lov", false)]), "trusted.lov lustre.lov");
        assert_eq!(kept(&[("lustre.lov", false), private]), "lustre.lov trusted.lov");
        let mut rows = Rows::default();
        rows.push("file", Attributes::default(), "");
        rows.push_xattr(Xattr { key: "lustre.lov", value: Some((&layout, all)) });
        let mut without_ids = layout.clone();
        lustre::forget_ids(&mut without_ids);
        assert_ne!(without_ids, layout);
        assert_eq!(rows.xattrs(0).next().unwrap().value.unwrap().0, without_ids);
    }
}
