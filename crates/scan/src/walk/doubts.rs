//! Entries that were perhaps never to be seen by those who may see their directory: a directory may
//! be closed, filled, emptied and opened again between two looks at its permissions.
//!
//! 1. An entry is beyond doubt if it has not changed since a moment at which its directory and all
//!    above were as they were noted ([`Moment`]), or if none of these has changed since then.
//! 2. All others are read once more after such a moment has been found again. One that is gone is
//!    left out; one that has not changed since that moment was there then.
//! 3. By clocks of other machines, a change counts for seconds as one that was perhaps later. There,
//!    entries are read between two looks at all directories on the way, a tick after the first: where
//!    no change time differs, all was as it was seen meanwhile.
//! 4. If an entry changes all the time, and a directory on the way too, root alone sees it.

use super::Walk;
use crate::directory::{Directory, Narrowing};
use crate::entry::look_closer;
use crate::faults::{Fault, Step};
use crate::inode::{Stat, stat_at};
use crate::moment::Moment;
use crate::xattrs::XattrReader;
use canopy_model::{Attributes, Rows, escape, unescape};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// How many entries are read after one moment, in each of several attempts: the fewer, the sooner
/// each is read after it.
const AT_ONCE: [usize; 8] = [usize::MAX, 256, 16, 16, 1, 1, 1, 1];

/// Ticks from the first look to the reading: clocks of other machines may tick more slowly.
const TICKS_BETWEEN: u32 = 2;

/// How many entries are read between two looks, in each of several attempts.
const AT_ONCE_BETWEEN: [usize; 3] = [usize::MAX, 1024, 64];

/// Attempts that are made without waiting for the next tick of the clock.
const WITHOUT_WAITING: usize = 2;

/// A listing for readers who passed before and pass the narrowing.
pub(crate) struct Checked {
    pub(crate) rows: Rows,
    /// Entries for root alone.
    pub(crate) doubtful: Rows,
    pub(crate) directory: Attributes,
    pub(crate) narrowing: Option<Narrowing>,
}

/// The row that describes an entry now.
#[derive(Clone, Copy)]
enum FoundRow {
    First,
    /// In a row that was read again.
    Again(usize),
    Gone,
}

struct Doubts<'w, 's> {
    walk: &'w Walk<'s>,
    directory: &'w Directory,
    /// As they were read first, and again.
    first: Rows,
    again: Rows,
    places: Vec<FoundRow>,
    /// Attributes of the directory, at a moment when they were visible.
    attributes: Option<Attributes>,
    narrowing: Option<Narrowing>,
}

/// A directory and its descriptor.
#[derive(Clone, Copy)]
pub(super) struct OpenDirectory<'a> {
    pub(super) directory: &'a Directory,
    pub(super) fd: &'a OwnedFd,
}

/// The name of an entry, as it is and escaped.
#[derive(Clone, Copy)]
pub(super) struct ReadName<'a> {
    pub(super) name: &'a CStr,
    pub(super) escaped: &'a str,
}

/// Checks entries that were read of a directory since a moment.
pub(super) fn check(
    walk: &Walk<'_>,
    xattrs: &mut XattrReader,
    directory: &Directory,
    since: Moment,
    rows: Rows,
    narrowing: Option<Narrowing>,
) -> Checked {
    let in_doubt = |at: &usize| !since.is_after(directory.change_of(&rows.attributes()[*at]));
    let mut left: Vec<usize> = (0..rows.len()).filter(in_doubt).collect();
    let mut doubts = Doubts {
        walk,
        directory,
        places: vec![FoundRow::First; rows.len()],
        first: rows,
        again: Rows::default(),
        attributes: directory.is_proven().then_some(directory.attributes),
        narrowing,
    };
    let is_of_others = directory.has_clock_of_others();
    for at_once in AT_ONCE_BETWEEN.into_iter().filter(|_| is_of_others) {
        if left.is_empty() && doubts.attributes.is_some() {
            break;
        }
        left = doubts.look_between(&left, at_once, xattrs);
    }
    for (attempt, at_once) in AT_ONCE.into_iter().enumerate().filter(|_| !is_of_others) {
        if left.is_empty() && doubts.attributes.is_some() {
            break;
        }
        if attempt >= WITHOUT_WAITING && !walk.waits_a_tick() {
            break;
        }
        left = doubts.look(&left, at_once, xattrs);
    }
    doubts.into_checked(&left)
}

impl Doubts<'_, '_> {
    /// Reads entries again, `at_once` of them after one moment. Returns those that are still in doubt.
    fn look(&mut self, entries: &[usize], at_once: usize, xattrs: &mut XattrReader) -> Vec<usize> {
        self.in_batches(entries, at_once, |doubts, batch| {
            let (proof, fd) = doubts.directory.prove().zip(doubts.directory.fd().ok())?;
            doubts.take(proof.attributes, proof.narrowing);
            let mut xattrs = enter(doubts.walk, doubts.directory, &fd, xattrs);
            let mut is_proven =
                |at| doubts.is_proven_again(at, &fd, xattrs.as_deref_mut(), proof.moment);
            Some(batch.iter().copied().filter(|&at| !is_proven(at)).collect())
        })
    }

    /// Reads entries again, `at_once` of them between two looks at the directories on the way. Returns
    /// those that are still in doubt.
    fn look_between(
        &mut self,
        entries: &[usize],
        at_once: usize,
        xattrs: &mut XattrReader,
    ) -> Vec<usize> {
        self.in_batches(entries, at_once, |doubts, batch| {
            let (way, fd) = doubts.directory.way().zip(doubts.directory.fd().ok())?;
            if !(0..TICKS_BETWEEN).all(|_| doubts.walk.waits_a_tick()) {
                return None;
            }
            let mut xattrs = enter(doubts.walk, doubts.directory, &fd, xattrs);
            for &at in batch {
                doubts.is_proven_again(at, &fd, xattrs.as_deref_mut(), Moment::NEVER);
            }
            Some(match doubts.directory.way_since(&way) {
                Some((attributes, narrowing)) => {
                    doubts.take(attributes, narrowing);
                    Vec::new()
                }
                None => batch.to_vec(),
            })
        })
    }

    /// Calls `read` with batches of entries, or once with none, until it returns `None`. It returns the
    /// entries of a batch that are still in doubt. Returns those of all batches, read or not.
    fn in_batches(
        &mut self,
        entries: &[usize],
        at_once: usize,
        mut read: impl FnMut(&mut Self, &[usize]) -> Option<Vec<usize>>,
    ) -> Vec<usize> {
        let (mut left, mut rest) = (Vec::new(), entries);
        loop {
            let (batch, after) = rest.split_at(at_once.min(rest.len()));
            let Some(in_doubt) = read(self, batch) else { return [&left, rest].concat() };
            left.extend(in_doubt);
            if after.is_empty() {
                return left;
            }
            rest = after;
        }
    }

    /// Takes attributes of the directory that are known to be visible to those that a narrowing
    /// leaves.
    fn take(&mut self, attributes: Attributes, narrowing: Option<Narrowing>) {
        self.attributes.get_or_insert(attributes);
        let before = self.narrowing.take();
        self.narrowing = match narrowing {
            Some(more) => Some(more.and(before)),
            None => before,
        };
    }

    /// Reads an entry again. Returns whether it is gone, or was there at the moment.
    fn is_proven_again(
        &mut self,
        at: usize,
        fd: &OwnedFd,
        xattrs: Option<&mut XattrReader>,
        moment: Moment,
    ) -> bool {
        let name = CString::new(unescape(self.first.name(at)));
        self.walk.wait_for_rate();
        let read = name.is_ok_and(|name| {
            let place = OpenDirectory { directory: self.directory, fd };
            let name = ReadName { name: &name, escaped: self.first.name(at) };
            read_entry(self.walk, place, name, xattrs, &mut self.again).is_some()
        });
        self.places[at] = FoundRow::Gone;
        let Some(attributes) = self.again.attributes().last().filter(|_| read) else { return true };
        self.places[at] = FoundRow::Again(self.again.len() - 1);
        moment.is_after(self.directory.change_of(attributes))
    }

    fn into_checked(self, left: &[usize]) -> Checked {
        let Some(attributes) = self.attributes else {
            let (rows, doubtful) = (self.first, Rows::default());
            let (directory, narrowing) = (self.directory.attributes, Some(Narrowing::to_root()));
            return Checked { rows, doubtful, directory, narrowing };
        };
        let (mut rows, mut doubtful) = (Rows::default(), Rows::default());
        let mut left = left.iter().copied().peekable();
        for (at, place) in self.places.into_iter().enumerate() {
            let to = if left.next_if_eq(&at).is_some() { &mut doubtful } else { &mut rows };
            match place {
                FoundRow::First => to.push_row_of(&self.first, at),
                FoundRow::Again(row) => to.push_row_of(&self.again, row),
                FoundRow::Gone => {}
            }
        }
        Checked { rows, doubtful, directory: attributes, narrowing: self.narrowing }
    }
}

/// Goes to a directory for the extended attributes of entries, unless these are left out.
pub(super) fn enter<'x>(
    walk: &Walk<'_>,
    directory: &Directory,
    fd: &OwnedFd,
    xattrs: &'x mut XattrReader,
) -> Option<&'x mut XattrReader> {
    if walk.options.no_xattrs {
        return None;
    }
    match xattrs.enter(fd) {
        Ok(()) => return Some(xattrs),
        // It has no listing, which is said.
        Err(Errno::ACCESS) if is_closed(fd) => {}
        Err(errno) => walk.report(directory.path().as_path(), Fault::Failed(Step::Xattrs, errno)),
    }
    None
}

/// Returns whether a directory that is open may not be searched.
pub(super) fn is_closed(directory: &OwnedFd) -> bool {
    stat_at(directory, c".").is_err_and(|errno| errno == Errno::ACCESS)
}

/// Reads an entry of a directory and adds it to `rows`. Returns its attributes; `None` if it cannot
/// be looked at, which is reported.
pub(super) fn read_entry(
    walk: &Walk<'_>,
    place: OpenDirectory<'_>,
    name: ReadName<'_>,
    xattrs: Option<&mut XattrReader>,
    rows: &mut Rows,
) -> Option<Stat> {
    match stat_at(place.fd, name.name) {
        Ok(stat) => read_more(walk, place, name, stat, xattrs, rows),
        Err(errno) => {
            fail(walk, place.directory, name.escaped, Step::Look, errno);
            None
        }
    }
}

/// Reads the other attributes of an entry that was looked at, and adds it to `rows`.
pub(super) fn read_more(
    walk: &Walk<'_>,
    place: OpenDirectory<'_>,
    name: ReadName<'_>,
    stat: Stat,
    mut xattrs: Option<&mut XattrReader>,
    rows: &mut Rows,
) -> Option<Stat> {
    let (OpenDirectory { directory, fd }, ReadName { name, escaped }) = (place, name);
    let fail = |step, errno| fail(walk, directory, escaped, step, errno);
    let entry = look_closer(fd, name, stat, xattrs.as_deref_mut(), fail)?;
    let attributes = entry.stat.attributes;
    let target = entry.target.as_ref().map_or("".into(), |target| escape(target.to_bytes()));
    rows.push(escaped, attributes, &target);
    if let Some(xattrs) = xattrs.filter(|_| entry.has_xattrs) {
        let listing = directory.access.listing;
        let rules = walk.rules_of_values(directory, &entry.stat);
        xattrs.found(&attributes, rules, listing, walk.classes, |xattr| rows.push_xattr(xattr));
    }
    Some(entry.stat)
}

/// Reports an entry of a directory that failed.
pub(super) fn fail(walk: &Walk<'_>, directory: &Directory, name: &str, step: Step, errno: Errno) {
    walk.report(directory.path_of(name).as_path(), Fault::Failed(step, errno));
}
