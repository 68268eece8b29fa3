//! Listing directories. Entries come in the order of hashes of their names, so what is there all
//! the time comes exactly once, whatever is added and removed meanwhile.
//!
//! A cookie says behind which entry to go on: the upper bits of its hash, and its number among the
//! names that share these. Only names that somebody made to have one hash exceed that number; then
//! whoever goes on from anywhere but the last entry sees some again.

use crate::error::Result;
use crate::operation::{Entries, Page};
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId};
use crate::records::range::names_with;
use crate::records::tablet::Tablet;
use crate::records::view::ViewScan;
use canopy_store::{Direction, Key, KeyRange, Scan};

/// Bits of a hash that are not in cookies.
const HASH_SHIFT: u32 = 10;
const NUMBER_BITS: u32 = 8;
const NUMBER_MAX: u64 = (1 << NUMBER_BITS) - 1;

/// The least cookie of an entry; 1 and 2 are free for what every directory has.
pub const COOKIE_MIN: u64 = 3;

/// Cookies from here on are of no entry: each leads to the first entry of a group.
const GROUPS: u64 = 3 << 61;

/// Numbers of entries that are asked for at a time, the least and the most.
const PAGE_MIN: u32 = 16;
pub(crate) const PAGE_MAX: u32 = 512;

/// A name of a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The file's attributes.
    pub inode: &'a Inode,
    /// Cookie to continue with behind this entry; below 2^63.
    pub cookie: u64,
}

/// A directory that is being listed.
#[derive(Debug)]
pub struct Listing {
    directory: FileId,
    /// The entry that was returned last, and its cookie.
    last: Option<(u64, Key)>,
    /// How many entries are asked for at first; 0 if nothing is known.
    fitting: u32,
}

impl Listing {
    /// Begins to list a directory.
    pub fn new(directory: FileId) -> Self {
        Listing { directory, last: None, fitting: 0 }
    }

    /// Returns which directory it is.
    pub fn directory(&self) -> FileId {
        self.directory
    }

    /// Returns a listing that goes on behind a part that somebody else has.
    pub(crate) fn behind(page: &Page<'_>) -> Self {
        let key = page.name.map(|name| (page.after, keys::name_in(page.directory, name)));
        Listing { last: key, ..Listing::new(page.directory) }
    }

    /// Lists the entries behind a cookie by parts, which `read` returns, until `tell` returns that
    /// it does not take one. An answer of the kernel has room for about as many entries as the one
    /// before.
    pub(crate) fn go_on_by_pages(
        &mut self,
        mut after: u64,
        read: impl Fn(Page<'_>) -> Result<Entries>,
        mut tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let mut count_max = if self.fitting == 0 { PAGE_MIN } else { self.fitting };
        let mut taken = 0;
        loop {
            let last = self.last.as_ref().filter(|(cookie, _)| *cookie == after);
            let name = last.map(|(_, key)| &key.name[..]);
            let entries = read(Page { directory: self.directory, after, name, count_max })?;
            let mut last = None;
            for entry in entries.iter() {
                if !tell(entry) {
                    self.note(last);
                    // The kernel asks for no more once one did not fit.
                    self.fitting = (taken + 1).clamp(PAGE_MIN, PAGE_MAX);
                    return Ok(());
                }
                taken += 1;
                last = Some(entry);
            }
            after = last.map_or(after, |entry| entry.cookie);
            self.note(last);
            if entries.count() < count_max as usize {
                return Ok(());
            }
            count_max = (2 * count_max).min(PAGE_MAX);
        }
    }

    fn note(&mut self, last: Option<Entry<'_>>) {
        if let Some(Entry { name, cookie, .. }) = last {
            self.last = Some((cookie, keys::name_in(self.directory, name)));
        }
    }

    /// Returns where to go on behind a cookie, and how many entries there to leave out.
    fn resume(&self, after: u64) -> (Key, u64) {
        match &self.last {
            Some((cookie, key)) if *cookie == after => (key.clone().successor(), 0),
            _ => {
                let hash = hash_after(after);
                let skipped = match group_of(after).1 {
                    _ if !(COOKIE_MIN..GROUPS).contains(&after) => 0,
                    NUMBER_MAX => NUMBER_MAX,
                    number => number + 1,
                };
                (Key { directory: self.directory.0, hash, name: Vec::new() }, skipped)
            }
        }
    }

    /// Calls `tell` with the entries behind a cookie, which `scan` reads and `newest` knows the
    /// inodes of, until it returns that it does not take one.
    pub(crate) fn go_on<'a>(
        &mut self,
        after: u64,
        scan: impl FnOnce(&KeyRange) -> Result<ViewScan<'a>>,
        newest: impl Fn(Inode) -> Result<Option<Inode>>,
        mut tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let (start, mut skipped) = self.resume(after);
        // The group of the entry before, and the number of the next entry in it.
        let (mut group, mut number) = (start.hash >> HASH_SHIFT, 0);
        if let Some((cookie, _)) = self.last.as_ref().filter(|(cookie, _)| *cookie == after) {
            let (of, last) = group_of(*cookie);
            (group, number) = (of, (last + 1).min(NUMBER_MAX));
        }
        let range = KeyRange { start, ..keys::names_in(self.directory) };
        let mut scan = scan(&range)?;
        let mut told = None;
        while let Some(record) = scan.next()? {
            let of = record.key.hash >> HASH_SHIFT;
            if of != group {
                (group, number, skipped) = (of, 0, 0);
            }
            let cookie = (group << NUMBER_BITS | number) + COOKIE_MIN;
            number = (number + 1).min(NUMBER_MAX);
            if skipped > 0 {
                skipped -= 1;
                continue;
            }
            let Some(inode) = newest(Inode::decode(record.value)?)? else { continue };
            if !tell(Entry { name: record.key.name, inode: &inode, cookie }) {
                break;
            }
            told = Some((cookie, record.key.to_key()));
        }
        if told.is_some() {
            self.last = told;
        }
        Ok(())
    }
}

/// Returns the hash from which on entries behind a cookie are looked for.
pub fn hash_after(after: u64) -> u64 {
    let group = if after < GROUPS { group_of(after).0 } else { after - GROUPS };
    group << HASH_SHIFT
}

/// Returns a cookie behind which the names with this hash and greater ones are listed, where the
/// range of a tablet begins. Names that share the upper 54 bits of the hash are listed, too.
pub fn cookie_before(hash: u64) -> u64 {
    GROUPS + (hash >> HASH_SHIFT)
}

fn group_of(cookie: u64) -> (u64, u64) {
    let cookie = cookie.saturating_sub(COOKIE_MIN);
    (cookie >> NUMBER_BITS, cookie & NUMBER_MAX)
}

impl Tablet {
    /// Passes the entries of a directory behind a cookie, 0 for all, to `tell`, until it returns
    /// that it does not take one. Names that the tablet does not hold are left out.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn list(
        &self,
        listing: &mut Listing,
        after: u64,
        tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        self.list_by(listing, after, |id| self.inode(id), tell)
    }

    /// Scans those of some names that the tablet holds in one range with the first of them: none if it
    /// does not hold that one. While names leave, either all of this range are seen or none.
    fn scan_held(&self, directory: FileId, range: &KeyRange) -> Result<Scan> {
        if !self.range.is_split(directory) {
            return Ok(self.table.scan(range, Direction::Forward)?);
        }
        let hash = range.start.hash;
        loop {
            let Some(held) = self.range.around(directory, hash) else {
                let none = KeyRange { end: Some(range.start.clone()), start: range.start.clone() };
                return Ok(self.table.scan(&none, Direction::Forward)?);
            };
            let names = range.intersection(&names_with(directory, &held));
            let scan = self.table.scan(&names, Direction::Forward)?;
            // Names that left before the scan began may be removed already.
            if self.range.around(directory, hash) == Some(held) {
                return Ok(scan);
            }
        }
    }

    /// Like `list`. `read` reads an inode again that changed meanwhile.
    pub(crate) fn list_by(
        &self,
        listing: &mut Listing,
        after: u64,
        read: impl Fn(FileId) -> Result<Inode>,
        tell: impl FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let before = self.settlements();
        let directory = listing.directory;
        let scan = |range: &KeyRange| Ok(ViewScan::One(self.scan_held(directory, range)?));
        let newest = |mut inode: Inode| {
            if inode.has(flag::LINKED) {
                // Its last name may have gone meanwhile.
                match self.linked(inode)? {
                    Some(linked) => inode = linked,
                    None => return Ok(None),
                }
            }
            if inode.has(flag::LINKED) {
                return Ok(Some(inode));
            }
            self.overlay(&mut inode);
            if self.settlements() != before
                && let Ok(newer) = read(inode.id)
            {
                inode = newer;
            }
            Ok(Some(inode))
        };
        listing.go_on(after, scan, newest, tell)
    }
}
