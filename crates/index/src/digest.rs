//! Digests of listings: whether one is as it was, without comparing its rows.
//!
//! They are keyed with a secret of the index that only its writer knows, so that nobody can make a
//! change that they do not show.
//!
//! A digest has 8 bytes in `listings`; comparing rows would read the whole index. SipHash is a
//! keyed hash that is fast on short inputs.

use crate::names::Key;
use canopy_model::{
    Access, Approach, Attributes, ClassId, ClassTable, Device, Listing, SourcePath,
};
use rustc_hash::FxHashMap;
use siphasher::sip::SipHasher13;
use std::hash::Hasher;

/// Context by which the key of digests is derived from the secret; used for nothing else.
const KEY_CONTEXT: &str = "canopy 2026-11-23 SipHash-1-3 digests of listings";

/// The digests of one listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Digests {
    /// Digest of the directory's path, place and attributes and of all entries, whatever their
    /// order. For the root of a source, it also covers who may look that up.
    pub(crate) content: u64,
    /// Digest of the users who may see the listing, and look names up in it.
    pub(crate) access: u64,
}

/// The key of digests.
#[derive(Clone, Copy, Default)]
pub(crate) struct DigestKey(SipHasher13);

impl DigestKey {
    pub(crate) fn new(secret: Key) -> Self {
        let derived = blake3::derive_key(KEY_CONTEXT, &secret);
        let (words, _) = derived.as_chunks();
        let [first, second] = [0, 1].map(|at| u64::from_le_bytes(words[at]));
        DigestKey(SipHasher13::new_with_keys(first, second))
    }

    /// Returns the digest of a directory by itself: of its device and attributes but the time of
    /// access.
    pub(crate) fn of_directory(self, dev: Device, attributes: &Attributes) -> u64 {
        let mut hasher = self.0;
        add_numbers(&mut hasher, numbers_of(&Attributes { atime_ns: 0, ..*attributes }));
        add_numbers(&mut hasher, [dev.0]);
        hasher.finish()
    }

    /// Returns the digest of a place: of a directory's path and a part of its listing.
    pub(crate) fn of_place(self, path: SourcePath<'_>, part: u32) -> u64 {
        let mut hasher = self.0;
        add_numbers(&mut hasher, [u64::from(part)]);
        hasher.write(path.as_str().as_bytes());
        hasher.finish()
    }
}

/// Computes digests of listings; keeps those of classes.
pub(crate) struct Digester {
    key: DigestKey,
    classes: FxHashMap<ClassId, u64>,
}

impl Digester {
    pub(crate) fn new(key: DigestKey) -> Self {
        Digester { key, classes: FxHashMap::default() }
    }

    /// Returns the digests of a listing.
    pub(crate) fn of(&mut self, listing: &Listing<'_>, classes: &ClassTable) -> Digests {
        let Listing { path, part, dev, directory, access, rows, .. } = *listing;
        let mut hasher = self.key.0;
        add_numbers(&mut hasher, numbers_of(directory));
        add_numbers(&mut hasher, [u64::from(part), dev.0]);
        hasher.write(path.as_str().as_bytes());
        let mut content = hasher.finish();
        for (at, row) in rows.iter().enumerate() {
            let mut hasher = self.key.0;
            add_numbers(&mut hasher, numbers_of(row.attributes));
            add_numbers(&mut hasher, [pair(row.name.len() as u32, row.target.len() as u32)]);
            hasher.write(row.name.as_bytes());
            hasher.write(row.target.as_bytes());
            for xattr in rows.xattrs(at) {
                add_text(&mut hasher, xattr.key.as_bytes());
                add_numbers(&mut hasher, [u64::from(xattr.value.is_some())]);
                if let Some((value, _)) = xattr.value {
                    add_text(&mut hasher, value);
                }
            }
            // A sum, since the order of entries may change without them.
            content = content.wrapping_add(hasher.finish());
        }
        Digests { content, access: self.of_access(access, classes) }
    }

    /// Returns the digest of the users who may look the root of a source up, which its listing does
    /// not contain.
    pub(crate) fn of_approach(&mut self, approach: &Approach, classes: &ClassTable) -> u64 {
        let Approach { audience, passage } = approach.clone();
        self.of_access(&Access { listing: audience, passage, ..Access::EVERYONE }, classes)
    }

    /// Returns the digest of who may see a listing.
    pub(crate) fn of_access(&mut self, access: &Access, classes: &ClassTable) -> u64 {
        let audience = [Some(access.listing.listers), access.listing.knowers, access.lookup];
        let audience = audience.map(|class| class.map(|class| self.of_class(class, classes)));
        let mut hasher = self.key.0;
        for class in audience {
            add_numbers(&mut hasher, [u64::from(class.is_some()), class.unwrap_or_default()]);
        }
        hasher.write(access.passage.as_deref().unwrap_or_default().as_bytes());
        hasher.finish()
    }

    fn of_class(&mut self, class: ClassId, classes: &ClassTable) -> u64 {
        if let Some(&digest) = self.classes.get(&class) {
            return digest;
        }
        let mut grants: Vec<_> =
            classes.grants_of(class).into_iter().map(|id| classes.grant(id)).collect();
        grants.sort_unstable();
        let mut hasher = self.key.0;
        for grant in grants {
            for outcomes in [grant.users(), grant.groups()] {
                add_numbers(&mut hasher, [outcomes.len() as u64]);
                for (&id, &passes) in outcomes {
                    add_numbers(&mut hasher, [u64::from(id) << 1 | u64::from(passes)]);
                }
            }
            add_numbers(&mut hasher, [u64::from(grant.other())]);
        }
        let digest = hasher.finish();
        self.classes.insert(class, digest);
        digest
    }
}

/// Adds numbers, each as its bytes, the lowest first.
fn add_numbers<const COUNT: usize>(hasher: &mut SipHasher13, numbers: [u64; COUNT]) {
    hasher.write(numbers.map(u64::to_le_bytes).as_flattened());
}

/// Adds bytes, after their number.
fn add_text(hasher: &mut SipHasher13, bytes: &[u8]) {
    add_numbers(hasher, [bytes.len() as u64]);
    hasher.write(bytes);
}

fn numbers_of(of: &Attributes) -> [u64; 11] {
    let times = [of.atime_ns, of.mtime_ns, of.ctime_ns, of.btime_ns].map(i64::cast_unsigned);
    let [atime, mtime, ctime, btime] = times;
    let (size, blocks) = (of.size_bytes.cast_unsigned(), of.blocks.cast_unsigned());
    let (mode, ids) = (pair(of.mode, of.nlink), pair(of.uid, of.gid));
    let blksize = u64::from(of.blksize_bytes);
    [mode, ids, blksize, of.ino, of.rdev, size, blocks, atime, mtime, ctime, btime]
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}
