//! Changes from fanotify(7): events of whole file systems, with handles of directories and names.
//!
//! Needs the right to administer the system. Each file system that a root holds, and each that is
//! mounted below it, gets one mark, however many roots see it. Besides, each directory above a root
//! gets one, for the way to it. Events elsewhere on these file systems are dropped as soon as the
//! path of their directory is known.
//!
//! Events of one queue are in order, even those of different directories. The kernel joins an event
//! to an earlier one of the same entry that still waits, so one may have several kinds.

use crate::error::{Error, Result};
use crate::handles::{Handles, TerritoryMount, Unresolved, as_path};
use crate::intake::{EventCounts, Intake};
use crate::mounts::{MountTable, entered_mounts};
use crate::suspects::Suspect;
use crate::sys::{self, FileSystemId};
use crate::territory::{ChangeEvent, What};
use libc::{
    FAN_ATTRIB, FAN_CLASS_NOTIF, FAN_CLOEXEC, FAN_CLOSE_WRITE, FAN_CREATE, FAN_DELETE,
    FAN_EVENT_INFO_TYPE_DFID, FAN_EVENT_INFO_TYPE_DFID_NAME, FAN_EVENT_INFO_TYPE_FID, FAN_MARK_ADD,
    FAN_MARK_FILESYSTEM, FAN_MARK_ONLYDIR, FAN_MODIFY, FAN_MOVED_FROM, FAN_MOVED_TO, FAN_NONBLOCK,
    FAN_ONDIR, FAN_Q_OVERFLOW, FAN_REPORT_DFID_NAME, FAN_REPORT_FID, FAN_REPORT_TARGET_FID,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustc_hash::FxHashSet;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CString;
use std::path::Path;

/// Events of a file system.
const EVENTS: u64 = FAN_CREATE
    | FAN_DELETE
    | FAN_MOVED_FROM
    | FAN_MOVED_TO
    | FAN_MODIFY
    | FAN_CLOSE_WRITE
    | FAN_ATTRIB
    | FAN_ONDIR;

/// Events of a directory above a root.
const EVENTS_ABOVE: u64 =
    FAN_CREATE | FAN_DELETE | FAN_MOVED_FROM | FAN_MOVED_TO | FAN_ATTRIB | FAN_ONDIR;

/// Bytes read at a time: some thousand events.
const BUFFER_BYTES: usize = 256 << 10;

/// How many handles are remembered. One takes some 300 bytes with a path of a hundred.
const HANDLES_MAX: usize = 65_536;

/// A group of events, with marks that follow what is mounted.
pub struct Fanotify {
    group: OwnedFd,
    handles: Handles,
    mounts: MountTable,
    /// Told of a file system that cannot be followed, once each.
    unfollowed: Vec<Vec<u8>>,
}

/// A file system below a root of which the kernel tells no changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfollowed {
    /// Where it is mounted.
    pub point: Vec<u8>,
    /// Why, in words.
    pub why: String,
}

impl Fanotify {
    /// Begins to follow the territory of an intake: what happens from now on will be told. Returns
    /// `None` where the privilege for it is missing.
    pub fn begin(intake: &Intake) -> Result<Option<(Self, Vec<Unfollowed>)>> {
        let flags = FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME;
        let flags = flags | FAN_REPORT_FID;
        // Before Linux 5.17, the entries of directories are told without handles of their own.
        let group = match sys::fanotify_init(flags | FAN_REPORT_TARGET_FID) {
            Err(Errno::INVAL) => sys::fanotify_init(flags),
            other => other,
        };
        let group = match group {
            Ok(group) => group,
            Err(Errno::PERM | Errno::NOSYS | Errno::INVAL) => return Ok(None),
            Err(errno) => return Err(Error::errno("follow with fanotify", Path::new("/"))(errno)),
        };
        let mounts = MountTable::open()?;
        let handles = Handles::new(HANDLES_MAX, intake.levels_max());
        let mut follower = Fanotify { group, handles, mounts, unfollowed: Vec::new() };
        let roots = Vec::from_iter(intake.territory().roots().iter().map(|root| as_path(root)));
        match follower.mark_all(intake) {
            Ok(unfollowed) => {
                // A root that is not followed is followed by nothing.
                let failed = unfollowed.iter().find(|one| roots.contains(&as_path(&one.point)));
                match failed {
                    Some(_) => Ok(None),
                    None => Ok(Some((follower, unfollowed))),
                }
            }
            Err(Error::Io { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sets marks for what is mounted now; those that are there stay. Returns what newly cannot be
    /// followed.
    fn mark_all(&mut self, intake: &Intake) -> Result<Vec<Unfollowed>> {
        let mut views = Vec::new();
        let mut failed = Vec::new();
        let territory = intake.territory();
        let (rules, one_file_system) = intake.mount_rules();
        let mut anchors = territory.roots().to_vec();
        for root in territory.roots() {
            anchors.extend(entered_mounts(&self.mounts.mounts, root, rules, one_file_system));
            for above in as_path(root).ancestors().skip(1) {
                match self.mark(FAN_MARK_ONLYDIR, EVENTS_ABOVE, above) {
                    Ok(()) => views.extend(view_of(above).ok()),
                    // A root in a place that is not there is told of when it is indexed.
                    Err(Errno::NOENT | Errno::NOTDIR) => {}
                    Err(errno) => return Err(Error::errno("follow", above)(errno)),
                }
            }
        }
        for anchor in anchors {
            let path = as_path(&anchor);
            let marked = self.mark(FAN_MARK_FILESYSTEM, EVENTS, path);
            let view = marked.and_then(|()| view_of(path));
            match view {
                Ok(view) => views.push(view),
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) if !self.unfollowed.contains(&anchor) => {
                    self.unfollowed.push(anchor.clone());
                    failed.push(Unfollowed { point: anchor, why: reason(errno) });
                }
                Err(_) => {}
            }
        }
        self.handles.set_views(views);
        Ok(failed)
    }

    fn mark(&self, flags: u32, mask: u64, path: &Path) -> std::result::Result<(), Errno> {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|_| Errno::INVAL)?;
        sys::fanotify_mark(&self.group, FAN_MARK_ADD | flags, mask, &path)
    }

    /// Tells the intake of changes until it is stopped. Whatever is not told for sure makes roots
    /// suspect. `on_unfollowed` is told of file systems that came and cannot be followed.
    pub fn run(mut self, intake: &Intake, on_unfollowed: &dyn Fn(Unfollowed)) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let (told, mounted) = self.wait(intake.stopped())?;
            if intake.is_stopped() {
                return Ok(());
            }
            if mounted {
                self.remount(intake, on_unfollowed)?;
            }
            if told {
                self.read(intake, &mut buffer, on_unfollowed)?;
            }
        }
    }

    /// Waits for events, another table of mounts, or the end.
    fn wait(&self, stopped: BorrowedFd<'_>) -> Result<(bool, bool)> {
        let mut waited = [
            PollFd::new(self.group.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.mounts.as_fd(), PollFlags::POLLPRI),
            PollFd::new(stopped, PollFlags::POLLIN),
        ];
        match poll(&mut waited, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => {
                return Err(Error::io("wait for", Path::new("fanotify"))(errno.into()));
            }
        }
        let [group, mounts, _] = waited.map(|one| one.any().unwrap_or(false));
        Ok((group, mounts))
    }

    fn remount(&mut self, intake: &Intake, on_unfollowed: &dyn Fn(Unfollowed)) -> Result<()> {
        let changed = self.mounts.refresh()?;
        // The marks first: what happens before the walk that follows is seen by that.
        self.mark_all(intake)?.into_iter().for_each(on_unfollowed);
        let mut suspects = Vec::new();
        for point in changed {
            intake.territory().suspects_in(&point, &mut suspects);
        }
        intake.take_in(&suspects, EventCounts::default());
        Ok(())
    }

    /// Reads what waits, up to a buffer full.
    fn read(
        &mut self,
        intake: &Intake,
        buffer: &mut [u8],
        on_unfollowed: &dyn Fn(Unfollowed),
    ) -> Result<()> {
        let length = match rustix::io::read(&self.group, &mut *buffer) {
            Ok(length) => length,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(errno) => return Err(Error::errno("read from", Path::new("fanotify"))(errno)),
        };
        let mut batch = Batch::default();
        let (hits, misses) = (self.handles.hits, self.handles.misses);
        let mut rest = &buffer[..length];
        while let Some((event, after)) = Event::parse(rest) {
            rest = after;
            self.event(&event, intake, &mut batch);
        }
        if !rest.is_empty() {
            // No kernel does that; what it meant is not known.
            batch.all_suspect = true;
        }
        self.handles.close();
        batch.heard.cache_hits = self.handles.hits - hits;
        batch.heard.cache_misses = self.handles.misses - misses;
        if batch.way_changed {
            self.mark_all(intake)?.into_iter().for_each(on_unfollowed);
        }
        if batch.all_suspect {
            intake.suspect_all();
        }
        intake.take_in_links(&batch.links);
        intake.take_in(&batch.suspects, batch.heard);
        Ok(())
    }

    fn event(&mut self, event: &Event<'_>, intake: &Intake, batch: &mut Batch) {
        batch.heard.events += 1;
        if event.has(FAN_Q_OVERFLOW) {
            batch.heard.overflows += 1;
            batch.all_suspect = true;
            self.handles.forget_all();
            return;
        }
        let is_dir = event.has(FAN_ONDIR);
        if is_dir && event.has(FAN_MOVED_FROM | FAN_MOVED_TO) {
            self.handles.forget_all();
        }
        if is_dir
            && event.has(FAN_DELETE)
            && let Some((file_system, handle)) = event.target
        {
            self.handles.forget(file_system, handle);
        }
        let Some((file_system, handle, name)) = event.entry else {
            // The number of links of a file changed, which is told of no name.
            self.note_links(event, intake, batch);
            return;
        };
        let places = match self.handles.places(file_system, handle, intake.territory()) {
            Ok(places) => places,
            Err(Unresolved::Gone) => {
                batch.heard.gone += 1;
                return;
            }
            Err(Unresolved::Failed(errno)) => {
                batch.heard.unresolved += 1;
                intake.note_unresolved(&errno.into());
                batch.all_suspect = true;
                return;
            }
        };
        if places.is_empty() {
            batch.heard.elsewhere += 1;
        }
        // Also of what is elsewhere: it may have another name here.
        self.note_links(event, intake, batch);
        for place in places.iter() {
            if place.recursive {
                batch.suspects.push(place.clone());
                continue;
            }
            let before = batch.suspects.len();
            for what in event.kinds() {
                let change = ChangeEvent { directory: &place.path, name, is_dir, what };
                intake.territory().suspects_of(&change, &mut batch.suspects);
            }
            let is_above = intake.territory().root_of(&place.path).is_none();
            batch.way_changed |= is_above && batch.suspects.len() > before;
        }
    }

    /// Notes a file that has other names than the one that was told. One whose number of links
    /// changed may have had.
    fn note_links(&mut self, event: &Event<'_>, intake: &Intake, batch: &mut Batch) {
        let Some((file_system, handle)) = event.target.filter(|_| !event.has(FAN_ONDIR)) else {
            return;
        };
        let names_min = if event.entry.is_some() { 2 } else { 1 };
        if !batch.looked_at.insert((names_min, file_system, handle.into())) {
            return;
        }
        match self.handles.links_of(file_system, handle) {
            Ok((inode, names)) if names >= names_min => batch.links.push(inode),
            Ok(_) | Err(Unresolved::Gone) => {}
            Err(Unresolved::Failed(errno)) => {
                batch.heard.unresolved += 1;
                intake.note_unresolved(&errno.into());
                batch.all_suspect = true;
            }
        }
    }
}

/// Results of one buffer of events.
#[derive(Default)]
struct Batch {
    /// Inodes with several names.
    links: Vec<u64>,
    /// Files whose number of names was looked up, each with the least number that matters.
    looked_at: FxHashSet<(u64, FileSystemId, Box<[u8]>)>,
    suspects: Vec<Suspect>,
    heard: EventCounts,
    all_suspect: bool,
    /// Whether there may be other directories above a root now, or another root.
    way_changed: bool,
}

fn view_of(anchor: &Path) -> std::result::Result<TerritoryMount, Errno> {
    use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::open(anchor, flags, Mode::empty())?;
    let file_system = sys::file_system_of(&open)?;
    // Some file systems give handles away that they take no more.
    sys::open_by_handle(&open, &sys::handle_of(&open)?)?;
    let about = rustix::fs::statx(&open, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    Ok(TerritoryMount { file_system, mount: about.stx_mnt_id, anchor: anchor.to_owned() })
}

fn reason(errno: Errno) -> String {
    match errno {
        Errno::OPNOTSUPP | Errno::NODEV | Errno::XDEV | Errno::NOSYS => {
            "its file system tells of no changes".to_owned()
        }
        errno => std::io::Error::from(errno).to_string(),
    }
}

/// One event, as fanotify(7) describes it.
#[derive(Debug, PartialEq, Eq)]
struct Event<'a> {
    mask: u64,
    /// The directory's file system and handle, and the name of the entry.
    entry: Option<(FileSystemId, &'a [u8], &'a [u8])>,
    /// File system and handle of the object itself, where the event has them.
    target: Option<(FileSystemId, &'a [u8])>,
}

impl<'a> Event<'a> {
    /// Reads the first event of a buffer, and returns it with what follows; `None` if there is none,
    /// or nothing that is one.
    fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let length = u32_at(bytes, 0)? as usize;
        let head = u16_at(bytes, 6)? as usize;
        let (event, rest) = bytes.split_at_checked(length).filter(|_| length >= 24)?;
        let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
        let mut parsed = Event { mask, entry: None, target: None };
        let mut records = event.get(head..)?;
        while !records.is_empty() {
            let length = u16_at(records, 2)? as usize;
            let (record, after) = records.split_at_checked(length).filter(|_| length >= 4)?;
            records = after;
            let kind = record[0];
            if !matches!(
                kind,
                FAN_EVENT_INFO_TYPE_FID | FAN_EVENT_INFO_TYPE_DFID | FAN_EVENT_INFO_TYPE_DFID_NAME
            ) {
                continue;
            }
            let number = |at| Some(u32_at(record, at)? as i32);
            let file_system = [number(4)?, number(8)?];
            let handle_end = 20 + u32_at(record, 12)? as usize;
            let handle = record.get(12..handle_end)?;
            if kind == FAN_EVENT_INFO_TYPE_FID {
                parsed.target = Some((file_system, handle));
                continue;
            }
            let name = &record[handle_end..];
            let name = name.iter().position(|&byte| byte == 0).map_or(name, |end| &name[..end]);
            let name = if kind == FAN_EVENT_INFO_TYPE_DFID { b"" } else { name };
            parsed.entry = Some((file_system, handle, name));
        }
        Some((parsed, rest))
    }

    fn has(&self, any: u64) -> bool {
        self.mask & any != 0
    }

    /// Returns what happened: several things, where the kernel has joined events.
    fn kinds(&self) -> impl Iterator<Item = What> {
        let kinds = [
            (FAN_CREATE | FAN_MOVED_TO, What::Appeared),
            (FAN_DELETE | FAN_MOVED_FROM, What::Vanished),
            (FAN_ATTRIB, What::Attributes),
            (FAN_MODIFY | FAN_CLOSE_WRITE, What::Contents),
        ];
        kinds.into_iter().filter(|(bits, _)| self.has(*bits)).map(|(_, what)| what)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An event as the kernel writes it.
    fn event(mask: u64, kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut record = vec![kind, 0, 0, 0];
        record.extend([7_i32, 8].map(i32::to_ne_bytes).as_flattened());
        record.extend(handle);
        record.extend(name);
        record.resize(record.len().next_multiple_of(4), 0);
        let length = record.len() as u16;
        record[2..4].copy_from_slice(&length.to_ne_bytes());
        let mut event = Vec::new();
        event.extend((24 + record.len() as u32).to_ne_bytes());
        event.extend([3, 0, 24, 0]);
        event.extend(mask.to_ne_bytes());
        event.extend([0; 8]);
        event.extend(record);
        event
    }

    const HANDLE: [u8; 12] = [4, 0, 0, 0, 1, 0, 0, 0, 9, 9, 9, 9];

    #[test]
    fn events_are_parsed() {
        let first = event(FAN_CREATE | FAN_ONDIR, 2, &HANDLE, b"name\0");
        let second = event(FAN_ATTRIB, 1, &HANDLE, b"");
        let bytes = [first, second].concat();
        let (parsed, rest) = Event::parse(&bytes).unwrap();
        assert_eq!(parsed.entry, Some(([7, 8], &HANDLE[..], &b"name"[..])));
        assert_eq!(parsed.target, None);
        assert_eq!(Vec::from_iter(parsed.kinds()), [What::Appeared]);
        let (parsed, rest) = Event::parse(rest).unwrap();
        assert_eq!((parsed.entry, parsed.target), (None, Some(([7, 8], &HANDLE[..]))));
        assert_eq!(Event::parse(rest), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed(
            bytes: Vec<u8>,
            kind: u8,
            cut in 0_usize..80,
            at in 0_usize..80,
            byte: u8,
        ) {
            Event::parse(&bytes);
            let mut bytes = event(FAN_CREATE, kind, &HANDLE, b"name\0");
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(cut);
            Event::parse(&bytes);
        }
    }
}
