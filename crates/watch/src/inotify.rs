//! Changes as inotify(7) tells them, for those who may not use fanotify: a watch for each directory.
//!
//! Meant for trees of a user's own. The kernel limits how many directories each user may watch
//! (`fs.inotify.max_user_watches`), and a watch takes it some hundred bytes.
//!
//! A watch is set before its directory is listed, here and by whoever deals with the suspects. So
//! what comes before the watch is seen by the walk, and what comes later is told.

use crate::error::{Error, Result};
use crate::handles::as_path;
use crate::intake::{EventCounts, Intake};
use crate::mounts::{MountTable, mount_of};
use crate::suspects::{Suspect, is_at_or_below};
use crate::territory::{ChangeEvent, What, join};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustc_hash::FxHashMap;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Events of a directory in a tree.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::DONT_FOLLOW)
    .union(WatchFlags::EXCL_UNLINK);

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The watches of a territory.
pub struct Inotify {
    queue: OwnedFd,
    mounts: MountTable,
    /// The paths of each watched directory: several where it is mounted more than once.
    by_watch: FxHashMap<i32, Vec<Vec<u8>>>,
    /// These paths in order, with a byte for each slash that sorts first, so that the subtree of a
    /// directory follows it.
    by_path: BTreeSet<(Vec<u8>, i32)>,
}

impl Inotify {
    /// Begins to follow the territory of an intake: what happens from now on will be told. Fails if
    /// more directories are in it than may be watched.
    pub fn begin(intake: &Intake) -> Result<Self> {
        let queue = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let queue = queue.map_err(Error::errno("follow with inotify", Path::new("/")))?;
        let mut follower = Inotify {
            queue,
            mounts: MountTable::open()?,
            by_watch: FxHashMap::default(),
            by_path: BTreeSet::new(),
        };
        follower.watch_all(intake)?;
        Ok(follower)
    }

    /// Returns how many directories are watched.
    pub fn directories(&self) -> usize {
        self.by_watch.len()
    }

    /// Tells the intake of changes until it is stopped. Whatever is not told for sure makes roots
    /// suspect.
    pub fn run(mut self, intake: &Intake) -> Result<()> {
        loop {
            let (told, mounted) = self.wait(intake.stopped())?;
            if intake.is_stopped() {
                return Ok(());
            }
            if mounted {
                self.remount(intake)?;
            }
            if told {
                self.read(intake)?;
            }
        }
    }

    fn wait(&self, stopped: BorrowedFd<'_>) -> Result<(bool, bool)> {
        let mut waited = [
            PollFd::new(self.queue.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.mounts.as_fd(), PollFlags::POLLPRI),
            PollFd::new(stopped, PollFlags::POLLIN),
        ];
        match poll(&mut waited, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(Error::io("wait for", Path::new("inotify"))(errno.into())),
        }
        let [queue, mounts, _] = waited.map(|one| one.any().unwrap_or(false));
        Ok((queue, mounts))
    }

    /// Watches all that is there; what was watched and is elsewhere now no longer.
    fn watch_all(&mut self, intake: &Intake) -> Result<()> {
        let before = std::mem::take(&mut self.by_watch);
        self.by_path.clear();
        for root in intake.territory().roots() {
            for above in as_path(root).ancestors().skip(1) {
                // Not every user may see these directories. Changes there are found when all is
                // scanned.
                match inotify::add_watch(&self.queue, above, EVENTS) {
                    Ok(watch) => self.note(watch, above.as_os_str().as_bytes()),
                    Err(Errno::NOSPC) => return Err(Error::WatchLimit(above.to_owned())),
                    Err(_) => {}
                }
            }
            self.watch_tree(root, intake)?;
        }
        for watch in before.into_keys().filter(|watch| !self.by_watch.contains_key(watch)) {
            // It may be gone with its directory.
            let _ = inotify::remove_watch(&self.queue, watch);
        }
        Ok(())
    }

    fn note(&mut self, watch: i32, path: &[u8]) {
        let paths = self.by_watch.entry(watch).or_default();
        if !paths.iter().any(|known| known == path) {
            paths.push(path.to_vec());
        }
        self.by_path.insert((sorted(path), watch));
    }

    /// Watches a directory of a root and all below it, as far as that can be read: what cannot be
    /// is not in an index of the same user either.
    fn watch_tree(&mut self, top: &[u8], intake: &Intake) -> Result<()> {
        let territory = intake.territory();
        let (rules, one_file_system) = intake.mount_rules();
        let dev = match one_file_system {
            true => territory.root_of(top).and_then(|number| {
                Some(as_path(&territory.roots()[number]).symlink_metadata().ok()?.dev())
            }),
            false => None,
        };
        let mut waiting = vec![top.to_vec()];
        while let Some(path) = waiting.pop() {
            let mount = self.mounts.mounts.iter().rfind(|mount| mount.point == path);
            let root = territory.root_of(&path).map(|number| &territory.roots()[number]);
            let around = root.and_then(|root| mount_of(&self.mounts.mounts, root));
            let is_entered = mount.is_none_or(|mount| rules.enters(mount, around));
            let is_root = territory.roots().contains(&path);
            if territory.root_of(&path).is_none() || !(is_entered || is_root) {
                continue;
            }
            let about = as_path(&path).symlink_metadata();
            if dev.is_some() && about.is_ok_and(|about| Some(about.dev()) != dev) {
                continue;
            }
            let watch = match inotify::add_watch(&self.queue, as_path(&path), EVENTS) {
                Ok(watch) => watch,
                Err(Errno::NOSPC) => return Err(Error::WatchLimit(as_path(&path).to_owned())),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => continue,
                Err(Errno::NAMETOOLONG) => continue,
                Err(errno) => return Err(Error::errno("watch", as_path(&path))(errno)),
            };
            self.note(watch, &path);
            let Ok(entries) = std::fs::read_dir(as_path(&path)) else { continue };
            for entry in entries.flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(join(&path, entry.file_name().as_bytes()));
                }
            }
        }
        Ok(())
    }

    /// Watches a tree no longer at this place.
    fn forget_tree(&mut self, top: &[u8]) {
        let key = sorted(top);
        let from = self.by_path.range((key.clone(), i32::MIN)..);
        let below = from.take_while(|(path, _)| {
            path.strip_prefix(&key[..]).is_some_and(|rest| rest.is_empty() || rest[0] == 0)
        });
        for (path, watch) in Vec::from_iter(below.cloned()) {
            self.by_path.remove(&(path, watch));
            let Some(paths) = self.by_watch.get_mut(&watch) else { continue };
            paths.retain(|path| !is_at_or_below(path, top));
            if paths.is_empty() {
                self.by_watch.remove(&watch);
                let _ = inotify::remove_watch(&self.queue, watch);
            }
        }
    }

    fn remount(&mut self, intake: &Intake) -> Result<()> {
        let mut suspects = Vec::new();
        for point in self.mounts.refresh()? {
            intake.territory().suspects_in(&point, &mut suspects);
        }
        if !suspects.is_empty() {
            self.watch_all(intake)?;
            intake.take_in(&suspects, EventCounts::default());
        }
        Ok(())
    }

    fn read(&mut self, intake: &Intake) -> Result<()> {
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let queue = self.queue.try_clone();
        let queue = queue.map_err(Error::io("read from", Path::new("inotify")))?;
        let mut reader = inotify::Reader::new(queue, &mut buffer);
        let mut suspects = Vec::new();
        let mut links = Vec::new();
        let mut heard = EventCounts::default();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN | Errno::INTR) => break,
                Err(errno) => return Err(Error::errno("read from", Path::new("inotify"))(errno)),
            };
            heard.events += 1;
            let kinds = event.events();
            if kinds.contains(ReadFlags::QUEUE_OVERFLOW) {
                heard.overflows += 1;
                // Directories may have come of which nothing was told.
                self.watch_all(intake)?;
                suspects.extend(intake.territory().all_suspect());
                continue;
            }
            let name = event.file_name().map_or(&b""[..], |name| name.to_bytes());
            self.event(event.wd(), kinds, name, intake, &mut suspects)?;
            links.extend(self.linked(event.wd(), kinds, name));
            if reader.is_buffer_empty() {
                break;
            }
        }
        intake.take_in_links(&links);
        intake.take_in(&suspects, heard);
        Ok(())
    }

    /// Returns the inode of an entry that changed, if it has other names.
    fn linked(&self, watch: i32, kinds: ReadFlags, name: &[u8]) -> Option<u64> {
        if name.is_empty() || kinds.contains(ReadFlags::ISDIR) {
            return None;
        }
        let directory = self.by_watch.get(&watch)?.first()?;
        let about = as_path(&join(directory, name)).symlink_metadata().ok()?;
        (about.nlink() > 1).then(|| about.ino())
    }

    fn event(
        &mut self,
        watch: i32,
        kinds: ReadFlags,
        name: &[u8],
        intake: &Intake,
        suspects: &mut Vec<Suspect>,
    ) -> Result<()> {
        if kinds.contains(ReadFlags::IGNORED) {
            for path in self.by_watch.remove(&watch).unwrap_or_default() {
                self.by_path.remove(&(sorted(&path), watch));
            }
            return Ok(());
        }
        let is_dir = kinds.contains(ReadFlags::ISDIR);
        // If the directory is no longer watched here, the one above has reported it.
        for directory in self.by_watch.get(&watch).cloned().unwrap_or_default() {
            let before = suspects.len();
            for (kind, what) in [
                (ReadFlags::CREATE | ReadFlags::MOVED_TO, What::Appeared),
                (ReadFlags::DELETE | ReadFlags::MOVED_FROM, What::Vanished),
                (ReadFlags::ATTRIB, What::Attributes),
                (ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE, What::Contents),
            ] {
                if kinds.intersects(kind) {
                    let change = ChangeEvent { directory: &directory, name, is_dir, what };
                    intake.territory().suspects_of(&change, suspects);
                }
            }
            if intake.territory().root_of(&directory).is_none() {
                // The way to a root has changed, or what is there.
                if suspects.len() > before {
                    self.watch_all(intake)?;
                }
                continue;
            }
            if !is_dir || name.is_empty() {
                continue;
            }
            let child = join(&directory, name);
            if kinds.contains(ReadFlags::MOVED_FROM) {
                self.forget_tree(&child);
                // Something else has its place by now, and may have had before it was forgotten.
                if as_path(&child).symlink_metadata().is_ok_and(|about| about.is_dir()) {
                    self.watch_tree(&child, intake)?;
                    suspects.push(Suspect { path: child.clone(), recursive: true });
                }
            }
            if kinds.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO | ReadFlags::ATTRIB) {
                self.watch_tree(&child, intake)?;
            }
        }
        Ok(())
    }
}

fn sorted(path: &[u8]) -> Vec<u8> {
    path.iter().map(|&byte| if byte == b'/' { 0 } else { byte }).collect()
}
