//! Files that a command writes as a whole: each is written beside its place and renamed at the end,
//! so that a run that fails or is interrupted leaves what was there.
//!
//! What is no regular file (a device, a pipe, a symbolic link), has other names, or lies where no
//! file can be made is written directly.

use crate::interrupt::{block, end_by};
use anyhow::Context;
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The extended attribute that is an ACL.
const ACL: &str = "system.posix_acl_access";

/// Files under way. Those that were not published are removed when it is dropped, and before a
/// signal ends the process.
pub struct Replacements(Arc<Mutex<Vec<Replacement>>>);

struct Replacement {
    written: PathBuf,
    place: PathBuf,
}

impl Replacements {
    /// Begins without files. To be called before other threads are there.
    pub fn new() -> anyhow::Result<Self> {
        let replacements = Replacements(Arc::default());
        let files = replacements.0.clone();
        end_by(block(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP])?, move || {
            let mut files = files.lock();
            remove(&mut files);
            // None is made any more until the process has ended.
            std::mem::forget(files);
        })?;
        Ok(replacements)
    }

    /// Creates a file that takes its place when it is published, with the owner and the permissions
    /// of the one that is there; or opens the one that is there where that cannot be replaced.
    pub fn create(&self, path: &Path) -> io::Result<File> {
        let mut files = self.0.lock();
        match beside(path)? {
            Some((file, written)) => {
                files.push(Replacement { written, place: path.to_owned() });
                Ok(file)
            }
            None => File::create(path),
        }
    }

    /// Has the files take their places, once they are whole.
    pub fn publish(&self) -> anyhow::Result<()> {
        let mut files = self.0.lock();
        while let Some(Replacement { written, place }) = files.last() {
            fs::rename(written, place)
                .with_context(|| format!("cannot replace {}", place.display()))?;
            files.pop();
        }
        Ok(())
    }

    /// Has one of the files take its place, or removes it if it is not whole.
    pub fn settle(&self, place: &Path, is_whole: bool) -> io::Result<()> {
        let mut files = self.0.lock();
        if let Some(at) = files.iter().position(|file| file.place == place) {
            let written = &files[at].written;
            match is_whole {
                true => fs::rename(written, place)?,
                false => fs::remove_file(written)?,
            }
            files.swap_remove(at);
        }
        Ok(())
    }
}

impl Drop for Replacements {
    fn drop(&mut self) {
        remove(&mut self.0.lock());
    }
}

fn remove(files: &mut Vec<Replacement>) {
    for file in files.drain(..) {
        // Nothing more can be done about one that stays.
        let _ = fs::remove_file(file.written);
    }
}

/// Creates a file beside a path; `None` if what is there is to be written directly.
fn beside(path: &Path) -> io::Result<Option<(File, PathBuf)>> {
    let old = match path.symlink_metadata() {
        Ok(old) if old.is_file() && old.nlink() == 1 => {
            // Who may not write to a file may not replace it.
            OpenOptions::new().write(true).open(path)?;
            Some(old)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        _ => return Ok(None),
    };
    let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else { return Ok(None) };
    let mode = if old.is_some() { 0o600 } else { 0o666 };
    for number in 0..100 {
        let written = directory.join(format!(".canopy-{}-{number}", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&written) {
            Ok(file) => {
                if let Some(old) = &old
                    && take_over(&file, path, old).is_err()
                {
                    fs::remove_file(&written)?;
                    return Ok(None);
                }
                return Ok(Some((file, written)));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}

/// Gives a new file the owner and the permissions of an old one.
fn take_over(file: &File, path: &Path, old: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    file.set_permissions(Permissions::from_mode(old.mode() & 0o7777))?;
    let mut acl = [0; 65_536];
    if let Ok(length) = rustix::fs::getxattr(path, ACL, &mut acl) {
        rustix::fs::fsetxattr(file, ACL, &acl[..length], rustix::fs::XattrFlags::empty())?;
    }
    Ok(())
}
