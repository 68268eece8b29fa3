//! The subdirectory that a job works in. It has this program's name, is made by it and removed when
//! the job is over, whether it failed or not; nothing beside it is ever touched.

use anyhow::{Context, Result, bail, ensure};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const NAME: &str = "canopy-bench-files";

/// So often is a removal tried. A FUSE server that still has a file open hides it for a moment
/// under another name.
const TRIES: usize = 50;

/// A directory that is measured.
pub struct Target {
    pub name: String,
    pub directory: PathBuf,
    /// A directory of the file system that keeps its data.
    pub backing: Option<PathBuf>,
}

impl Target {
    /// Refuses directories that are not empty or whose file system has too little room. A file
    /// system that says nothing of its room is taken to have enough.
    pub fn check(&self, needed_bytes: u64) -> Result<()> {
        let path = self.directory.display();
        let entries = fs::read_dir(&self.directory).with_context(|| format!("{path}"))?;
        for entry in entries {
            let name = entry?.file_name();
            if name == NAME {
                bail!("{path}: {NAME} is there, of a run that goes on or was stopped: remove it");
            }
            // A new ext4 has it.
            ensure!(name == "lost+found", "{path}: not empty, has {name:?}");
        }
        if let Some(backing) = &self.backing {
            open(backing)?;
        }
        let room = rustix::fs::statvfs(&self.directory).with_context(|| format!("{path}"))?;
        let (free_bytes, is_known) = (room.f_bavail * room.f_frsize, room.f_blocks > 0);
        if is_known && free_bytes < needed_bytes {
            bail!("{path}: {} MB are free, needs {}", free_bytes >> 20, needed_bytes >> 20);
        }
        Ok(())
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, path, flags, Mode::empty());
    opened.with_context(|| format!("{}", path.display()))
}

pub struct Fixture {
    path: PathBuf,
    backing: Option<OwnedFd>,
    /// The directory that all paths of a job are relative to.
    pub root: OwnedFd,
}

impl Fixture {
    pub fn create(target: &Target) -> Result<Self> {
        let directory = &target.directory;
        let directory =
            directory.canonicalize().with_context(|| format!("{}", directory.display()))?;
        let backing = target.backing.as_deref().map(open).transpose()?;
        let path = directory.join(NAME);
        fs::create_dir(&path).with_context(|| format!("{}", path.display()))?;
        match open(&path) {
            Ok(root) => Ok(Fixture { path, backing, root }),
            Err(error) => {
                let _ = fs::remove_dir(&path);
                Err(error)
            }
        }
    }

    /// Returns an absolute path, for other programs.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes all that was done durable: syncfs, then a byte that is appended to a file and synced,
    /// since FUSE passes fsync on to its server but not syncfs; then syncfs of the backing file
    /// system.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::syncfs(&self.root).context("syncfs")?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.root, "synced", flags, Mode::from(0o600))?;
        rustix::io::write(&file, b".")?;
        rustix::fs::fsync(&file).context("fsync")?;
        drop(file);
        if let Some(backing) = &self.backing {
            rustix::fs::syncfs(backing).context("syncfs of --backing")?;
        }
        Ok(())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        for left in (0..TRIES).rev() {
            match fs::remove_dir_all(&self.path) {
                Ok(()) => break,
                Err(error) if left == 0 => eprintln!("{}: {error}", self.path.display()),
                Err(_) => std::thread::sleep(Duration::from_millis(100)),
            }
        }
        // Late writes must not disturb the next measurement.
        if let Some(parent) = self.path.parent().and_then(|parent| open(parent).ok()) {
            let _ = rustix::fs::syncfs(parent);
        }
        if let Some(backing) = &self.backing {
            let _ = rustix::fs::syncfs(backing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_its_own_is_removed_and_a_full_directory_refused() {
        let directory = std::env::temp_dir().join(format!("{NAME}-{}", std::process::id()));
        fs::create_dir(&directory).expect("the directory is new");
        let target = Target { name: "it".into(), directory: directory.clone(), backing: None };
        target.check(1).expect("an empty directory is taken");
        let place = Fixture::create(&target).expect("a place is made");
        fs::create_dir(place.path("tree")).expect("a directory is made");
        place.sync().expect("all is synced");
        assert!(Fixture::create(&target).is_err());
        assert!(target.check(1).is_err());
        fs::write(directory.join("other"), "kept").expect("a file is made");
        drop(place);
        assert_eq!(fs::read(directory.join("other")).expect("the file is there"), b"kept");
        assert!(!directory.join(NAME).exists());
        assert!(target.check(1).is_err());
        fs::remove_dir_all(&directory).expect("the directory is removed");
    }
}
