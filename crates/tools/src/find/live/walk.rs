//! The walk of a live search: directories are the pieces of work that threads share.

use super::dir::{Dir, Stat};
use super::entry::LiveEntry;
use super::{Live, Search, Tree};
use crate::error::Result;
use crate::find::actions::Actor;
use crate::find::messages::file_system_loop;
use crate::find::path::push_component;
use canopy_model::{Attributes, FileType};
use canopy_scan::{Stack, look_at, share};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, RawDir};
use rustix::io::Errno;
use std::cell::OnceCell;
use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes asked of one getdents64.
const DIRENT_BYTES: usize = 64 * 1024;

/// Walks the tree of a start. Errors but those of single entries end it.
pub(super) fn walk(search: &Search<'_, '_>, tree: &Tree<'_>) -> Result<()> {
    let mut first = Walker::new(search, tree);
    let start = first.start()?;
    first.actor.finish()?;
    let Some(start) = start else { return Ok(()) };
    let states = vec![(); search.live.options.threads.max(1)];
    let (outcomes, _) =
        share(vec![vec![start]], states, |(), stack| Walker::new(search, tree).run(stack));
    outcomes.into_iter().collect()
}

/// One thread.
struct Walker<'w, 'a> {
    search: &'w Search<'w, 'a>,
    live: &'w Live<'w>,
    tree: &'w Tree<'w>,
    actor: Actor<'w, 'a>,
    buffer: Vec<MaybeUninit<u8>>,
    path: Path,
    subdirs: Vec<Arc<Dir>>,
}

/// The path of the directory that is being read, with room for a name behind it.
#[derive(Default)]
struct Path {
    text: Vec<u8>,
    directory: Option<Arc<Dir>>,
    /// How much of it is the path of the directory, and of the one above.
    length: usize,
    above_length: usize,
}

impl<'w, 'a> Walker<'w, 'a> {
    fn new(search: &'w Search<'w, 'a>, tree: &'w Tree<'w>) -> Self {
        Walker {
            search,
            live: &search.live,
            tree,
            actor: search.actor(),
            buffer: vec![MaybeUninit::uninit(); DIRENT_BYTES],
            path: Path::default(),
            subdirs: Vec::new(),
        }
    }

    fn run(mut self, stack: &Stack<'_, Arc<Dir>>) -> Result<()> {
        let mut outcome = Ok(());
        while let Some(dir) = stack.take(|| {
            if outcome.is_ok() {
                outcome = self.actor.pause();
            }
        }) {
            if outcome.is_ok() {
                outcome = self.read(dir, stack).and_then(|()| self.actor.pause());
            }
            if outcome.is_err() || self.search.sink.is_done() {
                stack.stop();
            }
        }
        let written = self.actor.finish();
        outcome.and(written)
    }

    /// Looks at the start and acts on it. Returns it as a directory if it is to be read.
    fn start(&mut self) -> Result<Option<Arc<Dir>>> {
        let (live, tree) = (self.live, self.tree);
        let globals = &live.find.globals;
        let follow = globals.follows(0);
        let looked = match look_at(CWD, &tree.name, follow) {
            Err(Errno::NOENT) if follow => look_at(CWD, &tree.name, false),
            other => other,
        };
        let stat = match looked {
            Ok(stat) => stat,
            Err(errno) => {
                live.problem(tree.given, errno);
                return Ok(None);
            }
        };
        let _ = tree.dev.set(stat.1);
        let is_dir = stat.0.file_type() == FileType::Directory;
        let below = is_dir && globals.depth_max > 0;
        let linked = globals.follow_all && has_link(tree.given);
        let dir = || Dir::new(None, tree.name.clone(), 0, linked, Some(stat));
        if globals.depth_first && below {
            return Ok(Some(dir()));
        }
        let hint = Some(stat.0.file_type());
        let entry = LiveEntry::new(live, tree, CWD, &tree.name, tree.given, 0, hint);
        let entry = entry.with_stat(Some(stat));
        let pruned = self.search.meet(&mut self.actor, &entry, None)?;
        Ok((below && !pruned && !self.search.sink.is_done()).then(dir))
    }

    /// Reads one directory, acts on what is in it and puts its subdirectories on the stack.
    fn read(&mut self, dir: Arc<Dir>, stack: &Stack<'_, Arc<Dir>>) -> Result<()> {
        self.path.enter(&dir, self.tree);
        let opened = match dir.open(self.live, self.tree) {
            Ok(Some(opened)) => opened,
            Ok(None) => return self.finish(dir),
            Err(errno) => {
                match dir.depth {
                    0 => self.live.problem(self.path.directory(), errno),
                    _ => self.live.problem_below(self.path.directory(), errno),
                }
                return self.finish(dir);
            }
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.read_entries(&dir, &opened, &mut buffer);
        self.buffer = buffer;
        outcome?;
        if self.subdirs.is_empty() {
            dir.close();
        }
        dir.left.fetch_add(self.subdirs.len(), Ordering::AcqRel);
        self.subdirs.drain(..).rev().for_each(|subdir| stack.put(subdir));
        drop(opened);
        self.finish(dir)
    }

    fn read_entries(
        &mut self,
        dir: &Arc<Dir>,
        opened: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<()> {
        let mut entries = RawDir::new(opened, buffer);
        while let Some(read) = entries.next() {
            match read {
                Ok(entry) => {
                    let name = entry.file_name();
                    if matches!(name.to_bytes(), b"." | b"..") {
                        continue;
                    }
                    self.entry(dir, opened.as_fd(), name, file_type(entry.file_type()))?;
                    if self.search.sink.is_done() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                // A directory that was removed meanwhile is empty.
                Err(Errno::NOENT) => break,
                Err(errno) => {
                    self.live.problem(self.path.directory(), errno);
                    break;
                }
            }
        }
        Ok(())
    }

    /// Acts on an entry of a directory, and notes it if it is a directory to be read.
    fn entry(
        &mut self,
        dir: &Arc<Dir>,
        directory: BorrowedFd<'_>,
        name: &CStr,
        hint: Option<FileType>,
    ) -> Result<()> {
        let (live, depth) = (self.live, dir.depth + 1);
        let globals = &live.find.globals;
        let shown = self.path.with_name(name.to_bytes());
        let mut entry = LiveEntry::new(live, self.tree, directory, name, shown, depth, hint);
        let mut linked = dir.linked;
        if globals.follow_all
            && matches!(hint, None | Some(FileType::Symlink | FileType::Directory))
        {
            let is_link = match hint {
                Some(hint) => hint == FileType::Symlink,
                None => entry.look(false).is_ok_and(|(own, _)| is_symlink(&own)),
            };
            linked |= is_link;
            let counted = dir.linked && is_link;
            let Some(stat) = look_through(&entry, counted, dir, self.tree) else { return Ok(()) };
            entry.hint = stat.map(|(attributes, _)| attributes.file_type());
            entry.stat = OnceCell::from(stat);
        }
        let below = depth < globals.depth_max;
        let waits = globals.depth_first && below && entry.file_type() == Some(FileType::Directory);
        let stat = if waits && live.looks_first { entry.stat().copied() } else { None };
        if waits && stat.is_some() == live.looks_first {
            self.subdirs.push(Dir::new(Some(dir.clone()), name.to_owned(), depth, linked, stat));
            return Ok(());
        }
        let pruned = self.search.meet(&mut self.actor, &entry, Some(dir))?;
        let failed = matches!(entry.stat.get(), Some(None));
        if below && !pruned && !failed && entry.file_type() == Some(FileType::Directory) {
            self.subdirs.push(Dir::new(Some(dir.clone()), name.to_owned(), depth, linked, None));
        }
        Ok(())
    }

    /// With `-depth`: acts on a directory in which nothing is left to be done, and on those above
    /// it of which that is then true.
    fn finish(&mut self, mut dir: Arc<Dir>) -> Result<()> {
        while self.live.find.globals.depth_first {
            // Another thread may be the last one and write the directory's line: what is in it
            // comes first.
            if dir.left.load(Ordering::Acquire) > 1 {
                self.actor.write()?;
            }
            if dir.left.fetch_sub(1, Ordering::AcqRel) > 1 {
                break;
            }
            dir.close();
            if self.search.sink.is_done() {
                return Ok(());
            }
            let mut shown = Vec::new();
            dir.append_path(self.tree, &mut shown);
            match dir.above.as_ref().map(|above| above.descriptor(self.live)).transpose() {
                Ok(opened) => {
                    let directory = opened.as_ref().map_or(CWD, |opened| opened.as_fd());
                    let (live, hint) = (self.live, Some(FileType::Directory));
                    let (tree, name, depth) = (self.tree, &dir.name, dir.depth);
                    let entry = LiveEntry::new(live, tree, directory, name, &shown, depth, hint);
                    let entry = entry.with_stat(dir.stat);
                    self.search.meet(&mut self.actor, &entry, dir.above.as_ref())?;
                }
                Err(errno) => self.live.problem_below(&shown, errno),
            }
            let Some(above) = dir.above.clone() else { break };
            dir = above;
        }
        Ok(())
    }
}

fn is_symlink(attributes: &Attributes) -> bool {
    attributes.file_type() == FileType::Symlink
}

/// Returns whether a path of the file system leads through a symbolic link, or is one.
fn has_link(path: &[u8]) -> bool {
    let mut ends = (1..=path.len()).filter(|&end| path.get(end).is_none_or(|&next| next == b'/'));
    ends.any(|end| std::path::Path::new(OsStr::from_bytes(&path[..end])).is_symlink())
}

/// Looks at what an entry leads to, where all links are followed. A directory that is one of those
/// above it is left out. `counted` is whether the entry is a link with another one on its path: of
/// those the kernel follows but so many, and find(1) asks it for the whole path. Returns `None` for
/// what is left out, and no attributes where nothing is known but the name; of both there was a
/// diagnostic.
fn look_through(
    entry: &LiveEntry<'_>,
    counted: bool,
    dir: &Arc<Dir>,
    tree: &Tree<'_>,
) -> Option<Option<Stat>> {
    let is_too_far = || {
        let path = CString::new(entry.shown).expect("a path has no NUL");
        look_at(CWD, &path, true).err() == Some(Errno::LOOP)
    };
    let looked = match entry.look(true) {
        Ok(_) if counted && is_too_far() => Err(Errno::LOOP),
        other => other,
    };
    let stat = match looked {
        Err(Errno::NOENT) => entry.look(false),
        Err(Errno::NOTDIR) => {
            entry.problem(Errno::NOTDIR);
            entry.look(false)
        }
        Err(Errno::LOOP) => {
            entry.problem(Errno::LOOP);
            return None;
        }
        other => other,
    };
    let stat = match stat {
        Ok(stat) => stat,
        Err(errno) => {
            entry.problem(errno);
            return Some(None);
        }
    };
    if stat.0.file_type() == FileType::Directory
        && let Some(above) = dir.same_above((stat.1, stat.0.ino))
    {
        let mut path = Vec::new();
        above.append_path(tree, &mut path);
        entry.live.diagnose(&file_system_loop(entry.shown, &path));
        return None;
    }
    Some(Some(stat))
}

impl Path {
    /// Makes it the path of a directory.
    fn enter(&mut self, dir: &Arc<Dir>, tree: &Tree<'_>) {
        let is = |one: &Option<Arc<Dir>>, other: &Arc<Dir>| {
            one.as_ref().is_some_and(|one| Arc::ptr_eq(one, other))
        };
        match &dir.above {
            Some(above) if is(&self.directory, above) => self.above_length = self.length,
            Some(above) if self.directory.as_ref().is_some_and(|last| is(&last.above, above)) => {}
            above => {
                self.text.clear();
                if let Some(above) = above {
                    above.append_path(tree, &mut self.text);
                }
                self.above_length = self.text.len();
            }
        }
        self.text.truncate(self.above_length);
        match &dir.above {
            Some(_) => push_component(&mut self.text, dir.name.to_bytes()),
            None => self.text.extend_from_slice(tree.given),
        }
        self.length = self.text.len();
        self.directory = Some(dir.clone());
    }

    fn directory(&self) -> &[u8] {
        &self.text[..self.length]
    }

    fn with_name(&mut self, name: &[u8]) -> &[u8] {
        self.text.truncate(self.length);
        push_component(&mut self.text, name);
        &self.text
    }
}

/// Returns the type that a directory tells of an entry, if it tells one.
fn file_type(hint: rustix::fs::FileType) -> Option<FileType> {
    Some(FileType::of_mode(hint.as_raw_mode())).filter(|known| *known != FileType::Unknown)
}
