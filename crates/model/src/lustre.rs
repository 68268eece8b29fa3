//! Extended attributes of Lustre, decoded:
//!
//! - the places of a file's parts ([`Layout`]);
//! - the places of a striped directory's parts ([`Stripes`]);
//! - the state of an archived file ([`HsmState`]).
//!
//! The structures are those of `lustre_user.h` and `lustre_idl.h`, little-endian and without gaps:
//!
//! - `lov_user_md_v1`: magic, pattern, 16 bytes of the inode's own id, stripe size as `u32`, stripe
//!   count and generation as `u16`; then an object of 24 bytes for each stripe, whose last `u32` is
//!   the index of the OST. `v3` has 16 bytes with the name of the pool in front of the objects.
//! - `lov_comp_md_v1`, of files whose parts have layouts of their own: 32 bytes, of which the 16
//!   bits at 14 are the number of components; a `lov_comp_md_entry_v1` of 48 bytes for each (id,
//!   flags, start and end as `u64`, place and size of its layout as `u32`); then these layouts.
//! - `lov_foreign_md`: magic and what others have put there.
//! - `lmv_mds_md_v1`, of directories: magic, stripe count, MDT, hash, and more; the pool at 40.
//! - `hsm_attrs`: 32 bits of compatibility, flags as `u32`, archive and version as `u64`.
//!
//! The same bytes are in `trusted.*`, which only root is shown, and in `lustre.*`.
//!
//! Layouts are decoded when somebody asks, from the attribute as the scan stored it. Columns of
//! their own would need the access classes of the attribute. A scan drops the ids of inode and
//! objects ([`forget_ids`]), which answer no query. So layouts add 11 bytes an entry to an index
//! instead of 20 (26 with three components); OSTs, counts and pools stay.

use std::ffi::CStr;
use std::ops::Range;

/// Names of the attributes that hold a [`Layout`].
pub const LAYOUT_KEYS: [&str; 2] = ["lustre.lov", "trusted.lov"];

/// Names of the attributes that hold [`Stripes`].
pub const STRIPES_KEYS: [&str; 2] = ["lustre.lmv", "trusted.lmv"];

/// Names of the attributes that hold a [`HsmState`].
pub const HSM_KEYS: [&str; 2] = ["lustre.hsm", "trusted.hsm"];

/// Name of the attribute that holds the id of a project, as decimal digits. Clients since 2.16
/// return it to root, and mostly do not list it.
pub const PROJECT_KEY: &CStr = c"trusted.projid";

/// Returns the id of a project that is the value of [`PROJECT_KEY`], if it is one.
pub fn project(value: &[u8]) -> Option<u32> {
    // `parse` would take a sign too.
    let digits = text(value);
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
/// As `v3`; the objects are OSTs that files in a directory shall be on.
const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;
/// As composite, with components that grow.
const MAGIC_EXTENDING: u32 = 0x0BD8_0BD0;

const V1_BYTES: usize = 32;
const POOL_BYTES: usize = 16;
const V3_BYTES: usize = V1_BYTES + POOL_BYTES;
const COMPOSITE_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
const OBJECT_BYTES: usize = 24;

/// Stripe counts from here on mean all OSTs there are, and stand for no objects.
const ALL_STRIPES: u16 = 0xFFE0;

/// The index of an object that there is not.
const NO_OST: u32 = u32::MAX;

const PATTERNS: [(u32, &str); 9] = [
    (0x1, "raid0"),
    (0x2, "raid1"),
    (0x4, "parity"),
    (0x100, "mdt"),
    (0x200, "overstriped"),
    (FOREIGN, "foreign"),
    (0x800, "compress"),
    (0x4000_0000, "hole"),
    (RELEASED, "released"),
];
const FOREIGN: u32 = 0x400;
const RELEASED: u32 = 0x8000_0000;

const FLAGS: [(u32, &str); 11] = [
    (0x1, "stale"),
    (0x2, "prefrd"),
    (0x4, "prefwr"),
    (0x8, "offline"),
    (INSTANTIATED, "init"),
    (0x20, "nosync"),
    (EXTENSION, "extension"),
    (0x80, "parity"),
    (0x100, "compress"),
    (0x200, "partial"),
    (0x400, "nocompr"),
];
const INSTANTIATED: u32 = 0x10;
const EXTENSION: u32 = 0x40;

/// Places of the parts of a file, or of files to be made in a directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout<'a> {
    /// Whether parts of the file have layouts of their own.
    pub is_composite: bool,
    /// One for all of the file, or one for each part, in the order of the attribute.
    pub components: Vec<Component<'a>>,
}

/// The layout of a part of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Component<'a> {
    /// Its number, 0 if it is of all of the file.
    pub id: u32,
    flags: u32,
    /// Where the part begins, in bytes.
    pub start: u64,
    /// Where it ends; `None` if it has all that follows.
    pub end: Option<u64>,
    pattern: u32,
    /// Bytes that follow each other on one OST; those by which a component grows, if it is one that
    /// does.
    pub stripe_size: u64,
    /// How many stripes there are; `None` of as many as there are OSTs.
    pub stripe_count: Option<u16>,
    /// Name of the pool of OSTs, empty if there is none.
    pub pool: &'a [u8],
    objects: &'a [[u8; OBJECT_BYTES]],
    /// Where its own layout is in the attribute.
    place: usize,
}

/// A stripe of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeOnOst {
    /// Its number in the component.
    pub number: usize,
    /// Index of the OST that has it.
    pub ost: u32,
    /// How many bytes of the file are in it, if that has no holes.
    pub bytes: u64,
}

impl<'a> Layout<'a> {
    /// Decodes the value of an attribute of [`LAYOUT_KEYS`]. Returns `None` if it is none.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        if !matches!(u32_at(bytes, 0)?, MAGIC_COMPOSITE | MAGIC_EXTENDING) {
            let component = Component::decode(bytes, 0..bytes.len())?;
            return Some(Layout { is_composite: false, components: vec![component] });
        }
        let entries = bytes.get(COMPOSITE_BYTES..)?.as_chunks::<ENTRY_BYTES>().0;
        let entries = entries.get(..usize::from(u16_at(bytes, 14)?))?;
        // Layouts follow each other: in each other, they would make more of the bytes than there are.
        let mut free = COMPOSITE_BYTES + entries.len() * ENTRY_BYTES;
        let component = |entry: &[u8; ENTRY_BYTES]| {
            let (start, size) = (u32_at(entry, 24)? as usize, u32_at(entry, 28)? as usize);
            let place = start..start.checked_add(size)?;
            if place.start < std::mem::replace(&mut free, place.end) {
                return None;
            }
            let end = u64_at(entry, 16)?;
            Some(Component {
                id: u32_at(entry, 0)?,
                flags: u32_at(entry, 4)?,
                start: u64_at(entry, 8)?,
                end: Some(end).filter(|end| *end != u64::MAX),
                ..Component::decode(bytes, place)?
            })
        };
        let components: Option<Vec<_>> = entries.iter().map(component).collect();
        let mut components = components?;
        for component in components.iter_mut().filter(|component| component.is_extension()) {
            // These are in KiB.
            component.stripe_size *= 1024;
        }
        Some(Layout { is_composite: true, components })
    }

    /// Returns the component that says what the whole file is like, as Lustre's tools have it: the
    /// last one that has storage.
    pub fn main(&self) -> Option<&Component<'a>> {
        let has_storage = |component: &&Component<'_>| {
            component.is_instantiated() && !component.is_extension() && !component.is_foreign()
        };
        self.components.iter().rev().find(has_storage)
    }

    /// Returns the components that have storage.
    pub fn instantiated(&self) -> impl Iterator<Item = &Component<'a>> {
        self.components.iter().filter(|component| component.is_instantiated())
    }

    /// Calls `each` with every stripe that is on an OST of a file of a size, and with its component.
    pub fn each_stripe(&self, file_bytes: u64, mut each: impl FnMut(&Component<'a>, StripeOnOst)) {
        for component in self.instantiated() {
            let end = component.end.unwrap_or(u64::MAX).min(file_bytes);
            let of_one_round = component.stripe_size.saturating_mul(component.objects.len() as u64);
            for (number, ost) in component.osts() {
                // Stripes are counted from the beginning of the file, not of the component.
                let until = |end: u64| match of_one_round {
                    0 => 0,
                    round => {
                        let before = component.stripe_size * number as u64;
                        let rest = (end % round).saturating_sub(before).min(component.stripe_size);
                        end / round * component.stripe_size + rest
                    }
                };
                let bytes = until(end).saturating_sub(until(component.start.min(end)));
                each(component, StripeOnOst { number, ost, bytes });
            }
        }
    }
}

/// Puts zeros in place of the ids of the inode and of its objects in a value of [`LAYOUT_KEYS`].
/// Nothing is answered by them, and they make the value of each file another.
pub fn forget_ids(value: &mut [u8]) {
    let Some(layout) = Layout::decode(value) else { return };
    let parts = layout.components.iter().filter(|part| !part.is_foreign());
    let parts: Vec<_> = parts.map(|part| (part.place, part.objects.len())).collect();
    for (place, objects) in parts {
        value[place + 8..place + 24].fill(0);
        let header = if u32_at(value, place) == Some(MAGIC_V1) { V1_BYTES } else { V3_BYTES };
        let objects = &mut value[place + header..][..objects * OBJECT_BYTES];
        for object in objects.as_chunks_mut::<OBJECT_BYTES>().0 {
            object[..20].fill(0);
        }
    }
}

impl<'a> Component<'a> {
    /// Decodes the layout of all of a file that is in a part of an attribute.
    fn decode(bytes: &'a [u8], place: Range<usize>) -> Option<Self> {
        let (start, bytes) = (place.start, bytes.get(place)?);
        let mut component = Component {
            id: 0,
            flags: INSTANTIATED,
            start: 0,
            end: None,
            pattern: FOREIGN,
            stripe_size: 0,
            stripe_count: Some(0),
            pool: b"",
            objects: &[],
            place: start,
        };
        let (pool, objects) = match u32_at(bytes, 0)? {
            MAGIC_FOREIGN => return Some(component),
            MAGIC_V1 => (&[][..], bytes.get(V1_BYTES..)?),
            MAGIC_V3 => bytes.get(V1_BYTES..)?.split_at_checked(POOL_BYTES)?,
            MAGIC_SPECIFIC => (bytes.get(V1_BYTES..V3_BYTES)?, &[][..]),
            _ => return None,
        };
        let count = u16_at(bytes, 28)?;
        component.pattern = u32_at(bytes, 4)?;
        component.stripe_size = u32_at(bytes, 24)?.into();
        component.stripe_count = Some(count).filter(|count| *count < ALL_STRIPES);
        component.pool = text(pool);
        // Released parts, unwritten parts and directories have none.
        if let Some(count) = component.stripe_count.filter(|_| !objects.is_empty()) {
            component.objects = objects.as_chunks().0.get(..count.into())?;
        }
        Some(component)
    }

    /// Returns the number of the mirror that it belongs to, 0 in files without mirrors.
    pub fn mirror(&self) -> u32 {
        self.id >> 16 & 0x7FFF
    }

    /// Returns whether it has storage.
    pub fn is_instantiated(&self) -> bool {
        self.flags & INSTANTIATED != 0
    }

    /// Returns whether it is there for others to grow, and never has storage.
    pub fn is_extension(&self) -> bool {
        self.flags & EXTENSION != 0
    }

    /// Returns whether the layout does not describe the contents.
    pub fn is_foreign(&self) -> bool {
        self.pattern == FOREIGN
    }

    /// Returns the stripes that are on an OST, by number, each with the index of that.
    pub fn osts(&self) -> impl Iterator<Item = (usize, u32)> + use<'a> {
        let objects = if self.is_instantiated() { self.objects } else { &[] };
        let osts = objects.iter().map(|object| u32_at(object, 20).unwrap_or(NO_OST));
        osts.enumerate().filter(|(_, ost)| *ost != NO_OST)
    }

    /// Returns the words for how its bytes are kept, such as `raid0` and `released`.
    pub fn pattern_words(&self) -> impl Iterator<Item = &'static str> {
        words(&PATTERNS, self.pattern)
    }

    /// Returns the words for what holds of it, such as `init`.
    pub fn flag_words(&self) -> impl Iterator<Item = &'static str> {
        words(&FLAGS, self.flags)
    }
}

/// On which MDTs the entries of a directory are, or those of directories that are made in it shall
/// be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripes<'a> {
    /// The MDT of the directory itself, if it is known.
    pub mdt: Option<u32>,
    /// How many stripes there are; `None` for as many as MDTs, or more.
    pub count: Option<u32>,
    hash: u32,
    /// Name of the pool of MDTs, empty if there is none.
    pub pool: &'a [u8],
}

impl<'a> Stripes<'a> {
    /// Decodes the value of an attribute of [`STRIPES_KEYS`]. Returns `None` if it is none.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        const MAGIC_STORED: u32 = 0x0CD2_0CD0;
        const MAGIC_USER: u32 = 0x0CD3_0CD0;
        const MAGIC_FOREIGN: u32 = 0x0CD5_0CD0;
        let pool = match u32_at(bytes, 0)? {
            MAGIC_STORED => bytes.get(40..40 + POOL_BYTES)?,
            MAGIC_USER => bytes.get(32..32 + POOL_BYTES)?,
            // Whatever another system means by it.
            MAGIC_FOREIGN => return Some(Stripes { mdt: None, count: None, hash: 0, pool: b"" }),
            _ => return None,
        };
        // Less than 0 is any MDT, and all of them or several times so many.
        let known = |number: u32| (number <= i32::MAX as u32).then_some(number);
        let (count, mdt) = (known(u32_at(bytes, 4)?), known(u32_at(bytes, 8)?));
        Some(Stripes { mdt, count, hash: u32_at(bytes, 12)?, pool: text(pool) })
    }

    /// Returns the word for the function that says which stripe has a name.
    pub fn hash_word(&self) -> &'static str {
        match self.hash & 0xFFFF {
            0 => "none",
            1 => "all_char",
            2 => "fnv_1a_64",
            3 => "crush",
            4 => "crush2",
            _ => "unknown",
        }
    }
}

/// The state of a file in hierarchical storage management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HsmState {
    /// A bit for each word of [`HsmState::bit`].
    pub flags: u32,
    /// Number of the archive.
    pub archive: u64,
    /// Version of the file's contents that is in it.
    pub version: u64,
}

const HSM_FLAGS: [(u32, &str); 9] = [
    (0x1, "exists"),
    (0x2, "dirty"),
    (0x4, "released"),
    (0x8, "archived"),
    (0x10, "norelease"),
    (0x20, "noarchive"),
    (0x40, "lost"),
    (0x80, "pccrw"),
    (0x100, "pccro"),
];

impl HsmState {
    /// Decodes the value of an attribute of [`HSM_KEYS`]. Returns `None` if it is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (flags, archive) = (u32_at(bytes, 4)?, u64_at(bytes, 8)?);
        Some(HsmState { flags, archive, version: u64_at(bytes, 16)? })
    }

    /// Returns the bit that a word of Lustre's stands for.
    pub fn bit(word: &str) -> Option<u32> {
        HSM_FLAGS.iter().find(|(_, known)| *known == word).map(|(bit, _)| *bit)
    }

    /// Returns the words for what holds of the file.
    pub fn words(&self) -> impl Iterator<Item = &'static str> {
        words(&HSM_FLAGS, self.flags)
    }
}

fn words(known: &'static [(u32, &str)], bits: u32) -> impl Iterator<Item = &'static str> {
    known.iter().filter(move |(bit, _)| bits & bit != 0).map(|(_, word)| *word)
}

/// Returns a text without the NULs behind it.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
