//! Directories that a walk has open, each with the one above it, up to `/`.
//!
//! Who may see a listing depends on the permissions of every directory above it, which may change
//! while the walk is below. So permissions are noted when a directory is opened, and looked at
//! again after a listing below it was read and before it is handed over; the same for the place,
//! since a directory may be moved into another. Whoever was let in both times sees the listing: at
//! the moment when it was read the kernel would have let them in, or would when it was looked at.

use crate::faults::{Fault, Step};
use crate::ids::Unmapped;
use crate::inode::{Stat, access_acl, stat_open};
use crate::rules::Rules;
use canopy_model::{
    Access, Acl, Approach, Attributes, ClassTable, Grant, Listing, Permissions, Rows, Wanted,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What has changed on the way to a listing since it was read.
#[derive(Clone, Debug)]
pub(crate) enum Narrowing {
    /// Those who are to see it must pass these, besides what makes its class; each with the owner
    /// of the directory that asks for it.
    ToThose(Arc<Vec<(Grant, u32)>>),
    /// It is no longer where it was, or not at all.
    Gone(Fault),
}

/// How often a directory may be found moved and still be entered where it is next: whoever moves
/// one ahead of the walk again and again has it read that often, and no more.
const MOVES_MAX: u32 = 2;

/// Directories that were moved under a walk, by device and inode number, and how often.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    any: AtomicBool,
    counts: Mutex<HashMap<(u64, u64), u32>>,
}

impl Moves {
    fn add(&self, directory: &Directory) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((directory.dev, directory.attributes.ino)).or_default() += 1;
        self.any.store(true, Ordering::Release);
    }

    /// Returns whether any directory was moved.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Returns whether a directory was moved too often to be entered again.
    pub(crate) fn are_too_many(&self, dev: u64, ino: u64) -> bool {
        let counts = || self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.any() && counts().get(&(dev, ino)).is_some_and(|&count| count >= MOVES_MAX)
    }
}

/// Most grants of a narrowing: where more directories have changed, root alone sees the listing.
const NARROWING_MAX: usize = 8;

/// A directory that is open.
#[derive(Debug)]
pub(crate) struct Directory {
    /// The directory that it is in; `/` has none.
    above: Option<Arc<Directory>>,
    /// Its name there, escaped.
    name: Box<str>,
    /// How many components its path below the root of the source has; 0 above the root too.
    pub(crate) depth: u32,
    /// Length of that path, escaped.
    pub(crate) path_bytes: usize,
    pub(crate) fd: OwnedFd,
    pub(crate) attributes: Attributes,
    pub(crate) dev: u64,
    pub(crate) mount: Option<u64>,
    pub(crate) access: Access,
    noted: Noted,
    again: Mutex<Again>,
    /// Whether it was found elsewhere, or removed.
    gone: AtomicBool,
}

/// What was seen when the directory was looked at again.
#[derive(Debug, Default)]
struct Again {
    /// The round in which it and all above it were, 0 for never.
    round: u64,
    narrowing: Option<Narrowing>,
}

/// Where a directory that is to be opened is.
pub(crate) enum Place {
    /// `/`, or what stands for it.
    Top,
    /// Above the root of a source or that root, in a directory above it.
    Above(Arc<Directory>),
    /// Below the root, with its name, escaped.
    Below(Arc<Directory>, Box<str>),
}

/// The permissions of a directory at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    mode: u32,
    uid: u32,
    gid: u32,
    /// An error if it cannot be read.
    acl: Result<Option<Acl>, Errno>,
    rules: Rules,
}

impl Noted {
    /// Reads the ACL of a directory that has just been looked at.
    fn of(fd: &OwnedFd, stat: &Stat, rules: Rules) -> Self {
        let Attributes { mode, uid, gid, .. } = stat.attributes;
        Noted { mode, uid, gid, acl: access_acl(fd), rules }
    }

    fn permissions(&self) -> Permissions<'_> {
        let Noted { mode, uid, gid, ref acl, rules } = *self;
        let known_acl = acl.as_ref().ok().and_then(Option::as_ref);
        let closed = !rules.tell(uid, gid, known_acl);
        Permissions { mode, uid, gid, acl: known_acl, unknown: closed || acl.is_err() }
    }

    /// Returns whether both let the same in, as far as names are looked up and listed.
    fn lets_in_the_same(&self, other: &Noted) -> bool {
        let (own, others) = (self.permissions(), other.permissions());
        self == other
            || own.to_list() == others.to_list()
                && own.grant(Wanted::SEARCH) == others.grant(Wanted::SEARCH)
    }
}

impl Directory {
    /// Takes in a directory that was just opened. `approach` says who may look it up.
    pub(crate) fn new(
        place: Place,
        fd: OwnedFd,
        stat: &Stat,
        rules: Rules,
        classes: &ClassTable,
        approach: &Approach,
    ) -> Arc<Self> {
        let noted = Noted::of(&fd, stat, rules);
        let access = classes.access(approach, noted.permissions());
        let (above, name) = match place {
            Place::Top => (None, None),
            Place::Above(above) => (Some(above), None),
            Place::Below(above, name) => (Some(above), Some(name)),
        };
        let (depth, path_bytes) = match (&above, &name) {
            (Some(above), Some(name)) => (above.depth + 1, above.path_bytes_of(name)),
            _ => (0, 0),
        };
        Arc::new(Directory {
            above,
            name: name.unwrap_or_default(),
            depth,
            path_bytes,
            fd,
            attributes: stat.attributes,
            dev: stat.dev,
            mount: stat.mount,
            access,
            noted,
            again: Mutex::default(),
            gone: AtomicBool::default(),
        })
    }

    /// Returns the rules of its mount.
    pub(crate) fn rules(&self) -> Rules {
        self.noted.rules
    }

    /// Returns whether its permissions are of users or groups that the user namespace of the
    /// process does not know, so that it is for root alone.
    pub(crate) fn is_of_unmapped(&self) -> bool {
        let Noted { uid, gid, ref acl, .. } = self.noted;
        Unmapped::here().hides(uid, gid, acl.as_ref().ok().and_then(Option::as_ref))
    }

    /// Returns the path below the root of the source, escaped.
    pub(crate) fn path(&self) -> String {
        let mut names = Vec::with_capacity(self.depth as usize);
        let mut at = self;
        while at.depth > 0 {
            names.push(&*at.name);
            let Some(above) = &at.above else { break };
            at = above;
        }
        names.reverse();
        names.join("/")
    }

    /// Returns its listing, with these rows.
    pub(crate) fn listing<'a>(&'a self, path: &'a str, rows: &'a Rows) -> Listing<'a> {
        Listing {
            path,
            depth: self.depth,
            part: 0,
            dev: self.dev,
            directory: &self.attributes,
            access: &self.access,
            rows,
        }
    }

    /// Returns the length of the path of an entry.
    pub(crate) fn path_bytes_of(&self, name: &str) -> usize {
        self.path_bytes + usize::from(self.depth > 0) + name.len()
    }

    /// Returns whether it, or a directory above it, was found elsewhere, or removed.
    pub(crate) fn is_gone(&self) -> bool {
        std::iter::successors(Some(self), |directory| directory.above.as_deref())
            .any(|directory| directory.gone.load(Ordering::Relaxed))
    }

    /// Returns what has changed on the way to what was read in the directory before this round
    /// began. Looks again at it and at all directories above it that nobody has looked at since.
    pub(crate) fn narrowing(&self, round: u64, moves: &Moves) -> Option<Narrowing> {
        let mut to_look_at = Vec::new();
        let mut narrowing = None;
        let mut next = Some(self);
        while let Some(directory) = next {
            let again = directory.again.lock().unwrap_or_else(PoisonError::into_inner);
            if again.round >= round {
                narrowing = again.narrowing.clone();
                break;
            }
            drop(again);
            to_look_at.push(directory);
            next = directory.above.as_deref();
        }
        for directory in to_look_at.into_iter().rev() {
            narrowing = match (directory.changed(), narrowing) {
                (None, narrowing) => narrowing,
                (_, Some(Narrowing::Gone(fault))) => Some(Narrowing::Gone(fault)),
                (Some(Change::Gone(fault)), _) => {
                    if !directory.gone.swap(true, Ordering::Relaxed) && fault == Fault::Moved {
                        moves.add(directory);
                    }
                    Some(Narrowing::Gone(fault))
                }
                (Some(Change::To(grants)), narrowing) => {
                    let mut all = match narrowing {
                        Some(Narrowing::ToThose(grants)) => Vec::clone(&grants),
                        _ => Vec::new(),
                    };
                    let owner = directory.noted.uid;
                    all.extend(grants.into_iter().map(|grant| (grant, owner)));
                    all.sort_unstable();
                    all.dedup();
                    if all.len() > NARROWING_MAX {
                        all = vec![(Grant::nobody(), 0)];
                    }
                    Some(Narrowing::ToThose(Arc::new(all)))
                }
            };
            let mut again = directory.again.lock().unwrap_or_else(PoisonError::into_inner);
            if again.round < round {
                *again = Again { round, narrowing: narrowing.clone() };
            }
        }
        narrowing
    }

    /// Looks at the directory again.
    fn changed(&self) -> Option<Change> {
        let Ok(stat) = stat_open(&self.fd) else { return Some(Change::To(vec![Grant::nobody()])) };
        let now = Noted::of(&self.fd, &stat, self.noted.rules);
        if stat.attributes.nlink == 0 {
            return Some(Change::Gone(Fault::Failed(Step::List, Errno::NOENT)));
        }
        if self.above.as_ref().is_some_and(|above| !is_in(&self.fd, above)) {
            return Some(Change::Gone(Fault::Moved));
        }
        (!now.lets_in_the_same(&self.noted)).then(|| Change::To(now.permissions().to_list()))
    }
}

/// What is different about a directory.
enum Change {
    /// Its permissions: who is let in now.
    To(Vec<Grant>),
    /// The directory that it is in, or it was removed.
    Gone(Fault),
}

/// Returns whether an open directory is in another one.
fn is_in(directory: impl AsFd, above: &Directory) -> bool {
    let flags = AtFlags::NO_AUTOMOUNT;
    rustix::fs::statx(directory, c"..", flags, StatxFlags::INO).is_ok_and(|stat| {
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        (dev, stat.stx_ino) == (above.dev, above.attributes.ino)
    })
}

/// One that was nested deeply lets those above it go one by one, without a call for each.
impl Drop for Directory {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut directory) = above.and_then(Arc::into_inner) {
            above = directory.above.take();
        }
    }
}
