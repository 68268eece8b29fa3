//! Directories that a walk is in or above, each with the one above it, up to `/`.
//!
//! Visibility of a listing depends on the permissions of every directory above it, which may change
//! while the walk is below. So permissions are noted when a directory is opened. They are checked
//! again after a listing below it was read and before it is handed over (`looks`). The place is
//! checked, too, since a directory may be moved into another. Only users let in both times see the
//! listing. They do not see entries that may have come in between and are gone again: see `Proof`.

use crate::faults::{Fault, Step};
use crate::handle::{Handle, Shared, reopen};
use crate::ids::Unmapped;
use crate::inode::{Stat, access_acl, stat_at, stat_open};
use crate::moment::{ChangeTime, Moment, SECOND_NS};
use crate::rules::{self, Rules};
use canopy_model::{
    Access, Acl, Approach, Attributes, ClassTable, Device, Grant, Listing, Permissions, Rows,
    SourcePath, SourcePathBuf, Wanted, unescape,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

mod looks;

pub(crate) use looks::{Found, Narrowing, Proof, Round};

/// How often a directory may be found moved and still be entered where it is next: whoever moves
/// one ahead of the walk again and again has it read that often, and no more.
const MOVES_MAX: u32 = 2;

/// Directories that were moved under a walk, by device and inode number, and how often.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    any: AtomicBool,
    counts: Mutex<HashMap<(Device, u64), u32>>,
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
    pub(crate) fn are_too_many(&self, dev: Device, ino: u64) -> bool {
        let counts = || self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        self.any() && counts().get(&(dev, ino)).is_some_and(|&count| count >= MOVES_MAX)
    }
}

/// A directory that was opened.
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
    pub(crate) handle: Handle,
    pub(crate) attributes: Attributes,
    pub(crate) dev: Device,
    pub(crate) mount: Option<u64>,
    pub(crate) access: Access,
    /// How far the clock of its file system may be behind.
    lag_ns: i64,
    noted: Noted,
    /// The latest moment at which it and all above were known to be as noted.
    moment: AtomicI64,
    /// Whether there was such a moment when it was opened, and its attributes are of then.
    is_proven: bool,
    again: Mutex<looks::Again>,
    /// Whether it was found elsewhere, or removed.
    gone: AtomicBool,
}

/// The position of a directory that is about to be opened.
pub(crate) enum OpenAt {
    /// `/`, or what stands for it.
    Top,
    /// Above the root of a source or that root, in a directory above it, with its name, escaped.
    Above(Arc<Directory>, Box<str>),
    /// Below the root, with its name, escaped.
    Below(Arc<Directory>, Box<str>),
}

/// The state of a directory when it is opened. The ACL is read first: if the change time is old,
/// the state was the same all the time.
pub(crate) struct Seen {
    acl: Result<Option<Acl>, Errno>,
    pub(crate) stat: Stat,
}

impl Seen {
    pub(crate) fn of(fd: &OwnedFd) -> Result<Self, Errno> {
        Ok(Seen { acl: access_acl(fd), stat: stat_open(fd)? })
    }
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
    fn of(Seen { acl, stat }: Seen, rules: Rules) -> Self {
        let Attributes { mode, uid, gid, .. } = stat.attributes;
        Noted { mode, uid, gid, acl, rules }
    }

    fn permissions(&self) -> Permissions<'_> {
        let Noted { mode, uid, gid, ref acl, rules } = *self;
        let known_acl = acl.as_ref().ok().and_then(Option::as_ref);
        let closed = !rules.decide_access(uid, gid, known_acl);
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

/// How a directory that is opened is known.
pub(crate) struct Known<'a> {
    /// The rules of its mount.
    pub(crate) rules: Rules,
    pub(crate) lag_ns: i64,
    /// Readers who may look it up.
    pub(crate) approach: &'a Approach,
    /// A moment before it was opened, at which all above was as noted.
    pub(crate) since: Moment,
    /// Whether its audience matters.
    pub(crate) is_shown: bool,
}

impl Directory {
    /// Takes in a directory that was just opened.
    pub(crate) fn new(
        place: OpenAt,
        fd: OwnedFd,
        seen: Seen,
        known: &Known<'_>,
        classes: &ClassTable,
        shared: &Arc<Shared>,
    ) -> Arc<Self> {
        let Known { rules, lag_ns, approach, since, is_shown } = *known;
        let stat = seen.stat;
        let noted = Noted::of(seen, rules);
        let access = classes.access(approach, noted.permissions());
        let (above, name, is_below) = match place {
            OpenAt::Top => (None, None, false),
            OpenAt::Above(above, name) => (Some(above), Some(name), false),
            OpenAt::Below(above, name) => (Some(above), Some(name), true),
        };
        let (depth, path_bytes) = match (&above, &name) {
            (Some(above), Some(name)) if is_below => (above.depth + 1, above.path_bytes_of(name)),
            _ => (0, 0),
        };
        let mut directory = Directory {
            above,
            name: name.unwrap_or_default(),
            depth,
            path_bytes,
            handle: Handle::new(fd, shared.clone()),
            attributes: stat.attributes,
            dev: stat.dev,
            mount: stat.mount,
            access,
            lag_ns,
            noted,
            moment: AtomicI64::new(Moment::NEVER.0),
            is_proven: false,
            again: Mutex::default(),
            gone: AtomicBool::default(),
        };
        let proven = match since.is_after(directory.change_of(&stat.attributes)) {
            true => Some((since, stat.attributes)),
            // Entries that have changed since then may not have been as they are now.
            false => is_shown.then(|| directory.prove()).flatten().and_then(Proof::of_all),
        };
        if let Some((moment, attributes)) = proven {
            (directory.moment, directory.is_proven) = (AtomicI64::new(moment.0), true);
            directory.attributes = attributes;
        }
        Arc::new(directory)
    }

    /// Returns the descriptor, which is opened again if it was closed. Fails with `STALE`, or as
    /// opening does, if it is not where it was.
    pub(crate) fn fd(&self) -> Result<Arc<OwnedFd>, Errno> {
        if let Some(fd) = self.handle.get() {
            return Ok(fd);
        }
        let mut closed = vec![self];
        let mut at = self;
        let mut fd = loop {
            let Some(above) = at.above.as_deref() else { return Err(Errno::STALE) };
            if let Some(fd) = above.handle.get() {
                break fd;
            }
            closed.push(above);
            at = above;
        };
        while let Some(directory) = closed.pop() {
            let name = directory.name_in_above().ok_or(Errno::STALE)?;
            let is_same = |stat: &Stat| directory.is_inode(stat);
            let opened = reopen(&fd, &name, directory.depth == 0, is_same)?;
            fd = directory.handle.put(opened);
            if self.handle.shared().has_too_many_open() {
                directory.close_above();
            }
        }
        Ok(fd)
    }

    /// Closes directories above, the furthest first, until no more are open than should be.
    pub(crate) fn close_above(&self) {
        let shared = self.handle.shared();
        let mut above: Vec<&Directory> =
            std::iter::successors(self.above.as_deref(), |at| at.above.as_deref()).collect();
        // The top has nothing above by which it could be found again.
        above.pop();
        while shared.has_too_many_open()
            && let Some(directory) = above.pop()
        {
            directory.handle.close();
        }
    }

    fn name_in_above(&self) -> Option<CString> {
        CString::new(unescape(&self.name)).ok()
    }

    /// Returns whether the file that was looked at is this inode, and not a later one with its
    /// number.
    fn is_inode(&self, stat: &Stat) -> bool {
        let of = |attributes: &Attributes| (attributes.ino, attributes.btime_ns);
        stat.dev == self.dev && of(&stat.attributes) == of(&self.attributes)
    }

    /// Returns when an inode in it, or it itself, may have changed last.
    pub(crate) fn change_of(&self, attributes: &Attributes) -> ChangeTime {
        ChangeTime::at(attributes.ctime_ns, self.lag_ns)
    }

    /// Returns the latest moment at which it and all above were known to be as noted.
    pub(crate) fn moment(&self) -> Moment {
        Moment(self.moment.load(Ordering::Acquire))
    }

    /// Returns whether its attributes are of such a moment.
    pub(crate) fn is_proven(&self) -> bool {
        self.is_proven
    }

    /// Returns how far the clock of its file system may be behind.
    pub(crate) fn lag_ns(&self) -> i64 {
        self.lag_ns
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

    /// Returns its path.
    pub(crate) fn path(&self) -> SourcePathBuf {
        let mut names = Vec::with_capacity(self.depth as usize);
        let mut at = self;
        while at.depth > 0 {
            names.push(&*at.name);
            let Some(above) = &at.above else { break };
            at = above;
        }
        names.reverse();
        SourcePathBuf::escaped(names.join("/"))
    }

    /// Returns the path of an entry, by its name, escaped.
    pub(crate) fn path_of(&self, name: &str) -> SourcePathBuf {
        self.path().as_path().child(name)
    }

    /// Returns its listing, with these rows.
    pub(crate) fn listing<'a>(&'a self, path: SourcePath<'a>, rows: &'a Rows) -> Listing<'a> {
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
