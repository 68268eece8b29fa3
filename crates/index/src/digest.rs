//! Digests of listings: whether one is as it was, without comparing its rows.
//!
//! They are keyed with a secret of the index that only its writer knows, so that nobody can make a
//! change that they do not show.

use crate::names::Key;
use canopy_model::{Access, Attributes, ClassId, ClassTable, Listing};
use rustc_hash::FxHashMap;

/// The digests of one listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Of the directory's path, place and attributes and of all entries, whatever their order.
    pub(crate) content: u64,
    /// Of who may see it, and look names up in it.
    pub(crate) access: u64,
}

/// Computes digests; keeps those of classes.
pub(crate) struct Digester {
    secret: Key,
    bytes: Vec<u8>,
    classes: FxHashMap<ClassId, u64>,
}

impl Digester {
    pub(crate) fn new(secret: Key) -> Self {
        Digester { secret, bytes: Vec::new(), classes: FxHashMap::default() }
    }

    /// Returns the digests of a listing.
    pub(crate) fn of(&mut self, listing: &Listing<'_>, classes: &ClassTable) -> Digests {
        let Listing { path, part, dev, directory, access, rows, .. } = *listing;
        self.bytes.clear();
        self.text(path);
        self.number(u64::from(part));
        self.number(dev);
        self.attributes(directory);
        let mut content = self.end();
        for (at, row) in rows.iter().enumerate() {
            self.text(row.name);
            self.attributes(row.attributes);
            self.text(row.target);
            for xattr in rows.xattrs(at) {
                self.text(xattr.key);
                self.bytes.push(u8::from(xattr.value.is_some()));
                if let Some((value, _)) = xattr.value {
                    self.number(value.len() as u64);
                    self.bytes.extend_from_slice(value);
                }
            }
            // A sum, since the order of entries may change without them.
            content = content.wrapping_add(self.end());
        }
        Digests { content, access: self.of_access(access, classes) }
    }

    /// Returns the digest of who may see a listing.
    pub(crate) fn of_access(&mut self, access: &Access, classes: &ClassTable) -> u64 {
        let audience = [Some(access.listing.listers), access.listing.knowers, access.lookup];
        let audience = audience.map(|class| class.map(|class| self.of_class(class, classes)));
        self.bytes.clear();
        for class in audience {
            self.bytes.push(u8::from(class.is_some()));
            self.number(class.unwrap_or_default());
        }
        self.text(access.passage.as_deref().unwrap_or_default());
        self.end()
    }

    /// Returns the digest of a place: of a directory's path and a part of its listing.
    pub(crate) fn of_place(&mut self, path: &str, part: u32) -> u64 {
        self.bytes.clear();
        self.text(path);
        self.number(u64::from(part));
        self.end()
    }

    fn of_class(&mut self, class: ClassId, classes: &ClassTable) -> u64 {
        if let Some(&digest) = self.classes.get(&class) {
            return digest;
        }
        let mut grants: Vec<_> =
            classes.grants_of(class).into_iter().map(|id| classes.grant(id)).collect();
        grants.sort_unstable();
        self.bytes.clear();
        for grant in grants {
            for outcomes in [grant.users(), grant.groups()] {
                self.number(outcomes.len() as u64);
                for (&id, &passes) in outcomes {
                    self.number(u64::from(id) << 1 | u64::from(passes));
                }
            }
            self.bytes.push(u8::from(grant.other()));
        }
        let digest = self.end();
        self.classes.insert(class, digest);
        digest
    }

    fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend_from_slice(text.as_bytes());
    }

    fn attributes(&mut self, of: &Attributes) {
        for number in [of.mode, of.nlink, of.uid, of.gid, of.blksize_bytes] {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
        self.number(of.ino);
        self.number(of.rdev);
        for number in [of.size_bytes, of.blocks, of.atime_ns, of.mtime_ns, of.ctime_ns, of.btime_ns]
        {
            self.bytes.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn end(&mut self) -> u64 {
        let hash = blake3::keyed_hash(&self.secret, &self.bytes);
        self.bytes.clear();
        let mut digest = [0; 8];
        digest.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(digest)
    }
}
