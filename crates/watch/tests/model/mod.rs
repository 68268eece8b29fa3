//! A tree that changes at random, and an index of it as simple as one can be.

#![allow(dead_code)]

pub mod lustre;

use canopy_watch::{Suspect, is_at_or_below};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What is kept of an entry: access times are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    ino: u64,
    mode: u32,
    owner: (u32, u32),
    links: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// What is kept of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    own: Entry,
    /// Mode and owner of all directories above: who may see it.
    way: Vec<(u32, u32)>,
    entries: BTreeMap<OsString, Entry>,
}

/// Directories by their paths, each as it was when it was listed last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Model(BTreeMap<PathBuf, Listing>);

impl Model {
    /// Lists suspects again, and nothing else.
    pub fn apply(&mut self, suspects: &[Suspect]) {
        for suspect in suspects {
            let path = Path::new(std::ffi::OsStr::from_bytes(&suspect.path));
            match suspect.recursive {
                true => {
                    self.remove(path);
                    self.walk(path);
                }
                false => self.list(path),
            }
        }
    }

    /// Lists the directories again that have one of these inodes.
    pub fn apply_links(&mut self, inodes: &[u64]) {
        let has =
            |listing: &Listing| listing.entries.values().any(|entry| inodes.contains(&entry.ino));
        let having = self.0.iter().filter(|(_, listing)| has(listing));
        for path in Vec::from_iter(having.map(|(path, _)| path.clone())) {
            self.list(&path);
        }
    }

    /// Whether it has a file.
    pub fn has(&self, path: &Path) -> bool {
        let (directory, name) = (path.parent().unwrap(), path.file_name().unwrap());
        self.0.get(directory).is_some_and(|listing| listing.entries.contains_key(name))
    }

    fn remove(&mut self, path: &Path) {
        let below = path.as_os_str().as_bytes();
        self.0.retain(|known, _| !is_at_or_below(known.as_os_str().as_bytes(), below));
    }

    fn walk(&mut self, path: &Path) {
        let Some(listing) = listing(path) else { return };
        for name in directories(&listing) {
            self.walk(&path.join(name));
        }
        self.0.insert(path.to_owned(), listing);
    }

    /// Lists a directory again, and all below it if it has other permissions; what was below it and
    /// is no longer there goes.
    fn list(&mut self, path: &Path) {
        let Some(listing) = listing(path) else { return self.remove(path) };
        let before = self.0.insert(path.to_owned(), listing.clone());
        let access = |listing: &Listing| (listing.own.mode, listing.own.owner);
        if before.as_ref().is_some_and(|before| access(before) != access(&listing)) {
            self.remove(path);
            return self.walk(path);
        }
        let kept = Vec::from_iter(directories(&listing));
        let gone = before.iter().flat_map(directories).filter(|name| !kept.contains(name));
        for name in Vec::from_iter(gone.cloned()) {
            self.remove(&path.join(name));
        }
    }

    /// Fails if the tree is not as the model says.
    pub fn assert_is(&self, root: &Path) {
        let mut fresh = Model::default();
        fresh.walk(root);
        let bytes = root.as_os_str().as_bytes();
        let own =
            self.0.iter().filter(|(path, _)| is_at_or_below(path.as_os_str().as_bytes(), bytes));
        let own: BTreeMap<_, _> = own.collect();
        for (path, listing) in &fresh.0 {
            assert_eq!(own.get(path), Some(&listing), "{}", path.display());
        }
        let more = own.keys().find(|path| !fresh.0.contains_key(**path));
        assert_eq!(more, None, "it is gone");
    }
}

fn directories(listing: &Listing) -> impl Iterator<Item = &OsString> {
    let is_dir = |entry: &Entry| entry.mode & 0o170_000 == 0o040_000;
    listing.entries.iter().filter(move |(_, entry)| is_dir(entry)).map(|(name, _)| name)
}

/// Reads a directory; `None` if there is none. Its entries are as its parent's readers see them but
/// for directories, of which listings of their own tell.
fn listing(path: &Path) -> Option<Listing> {
    let about = path.symlink_metadata().ok()?;
    let mut entries = BTreeMap::new();
    for name in fs::read_dir(path).ok()? {
        let name = name.ok()?.file_name();
        let Ok(about) = path.join(&name).symlink_metadata() else { continue };
        let mut entry = entry(&about);
        if about.is_dir() {
            let Entry { ino, mode, .. } = entry;
            let none = (0, 0);
            let mode = mode & 0o170_000;
            entry = Entry {
                ino,
                mode,
                owner: (0, 0),
                links: 0,
                size: 0,
                modified: none,
                changed: none,
            };
        }
        entries.insert(name, entry);
    }
    let way = path.ancestors().skip(1).map(|above| {
        let about = above.symlink_metadata().ok()?;
        Some((about.mode(), about.uid()))
    });
    Some(Listing { own: entry(&about), way: way.collect::<Option<_>>()?, entries })
}

fn entry(about: &fs::Metadata) -> Entry {
    Entry {
        ino: about.ino(),
        mode: about.mode(),
        owner: (about.uid(), about.gid()),
        links: about.nlink(),
        size: about.size(),
        modified: (about.mtime(), about.mtime_nsec()),
        changed: (about.ctime(), about.ctime_nsec()),
    }
}

/// A tree that changes at random.
pub struct Tree {
    root: PathBuf,
    outside: PathBuf,
    random: u64,
    hard_links: bool,
}

impl Tree {
    /// A tree at a root, which moves to and from a directory beside it.
    pub fn new(root: &Path, seed: u64, hard_links: bool) -> Self {
        let outside = root.with_extension("outside");
        fs::create_dir_all(&outside).unwrap();
        Tree { root: root.to_owned(), outside, random: seed * 2 + 1, hard_links }
    }

    fn below(&mut self, number: u64) -> u64 {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % number
    }

    /// A path of up to four names, of which there are few.
    fn path(&mut self) -> PathBuf {
        let mut path = match self.below(12) {
            0 => self.outside.clone(),
            _ => self.root.clone(),
        };
        for _ in 0..=self.below(4) {
            path.push(["a", "b", "c", "d"][self.below(4) as usize]);
        }
        path
    }

    /// Does one thing, if it can be done.
    pub fn change(&mut self) {
        let path = self.path();
        let _ = match self.below(17) {
            0..=3 => fs::create_dir(&path),
            4 => fs::create_dir_all(&path),
            5..=7 => fs::write(&path, vec![b'x'; self.below(100) as usize]),
            8 => fs::remove_file(&path),
            9 => fs::remove_dir_all(&path),
            10..=12 => fs::rename(&path, self.path()),
            13 => {
                let mode = 0o700 + self.below(64) as u32;
                fs::set_permissions(&path, PermissionsExt::from_mode(mode))
            }
            14 if self.hard_links => fs::hard_link(&path, self.path()),
            15 => std::os::unix::fs::chown(&path, Some(self.below(5) as u32), None),
            _ => {
                let to = self.path();
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &path, cwd, &to, flags).map_err(Into::into)
            }
        };
    }
}

/// Waits for something, and fails if it does not happen.
pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
