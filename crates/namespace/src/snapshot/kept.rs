//! Objects as snapshots have them: beside `ID`, a file `ID.N` has what the object had when snapshot
//! N was made. It counts for that snapshot and those before it, as far as no `ID` with a lesser
//! number does; where there is none, the object has not changed since. `ID.next` is on its way to be
//! such a file.

use crate::contents::Contents;
use crate::error::{Error, Result};
use crate::records::keys::FileId;
use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

const NEXT: &str = "next";

/// A file that snapshots need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeptFile {
    /// The file.
    pub(crate) id: FileId,
    /// The snapshot; none if it was on its way.
    pub(crate) number: Option<u64>,
    /// Space on the disk.
    pub(crate) bytes: u64,
}

impl Contents {
    fn aside(&self, id: FileId, suffix: &str) -> PathBuf {
        let mut path = self.path(id).into_os_string();
        path.push(".");
        path.push(suffix);
        path.into()
    }

    fn kept_path(&self, id: FileId, number: u64) -> PathBuf {
        self.aside(id, &number.to_string())
    }

    /// Returns whether the object of a file is kept as a snapshot had it.
    pub(crate) fn is_kept(&self, id: FileId, number: u64) -> Result<bool> {
        let path = self.kept_path(id, number);
        path.try_exists().map_err(Error::io(path.display().to_string()))
    }

    /// Opens the first of the files that are kept of an object for one of these snapshots, in
    /// ascending order; none if there is none.
    pub(crate) fn open_kept(
        &self,
        id: FileId,
        numbers: impl Iterator<Item = u64>,
    ) -> Result<Option<File>> {
        let _names = self.kept_names.read();
        for path in numbers.map(|number| self.kept_path(id, number)) {
            match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                opened => return opened.map(Some).map_err(Error::io(path.display().to_string())),
            }
        }
        Ok(None)
    }

    /// Opens the object of a file to be read; none if there is none.
    pub(crate) fn open_live(&self, id: FileId) -> Result<Option<File>> {
        let path = self.path(id);
        match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some).map_err(Error::io(path.display().to_string())),
        }
    }

    /// Copies an object to where [`Contents::keep_copy`] takes it from. What the file system can
    /// share is not copied.
    pub(crate) fn copy_aside(&self, id: FileId, object: &File) -> Result<()> {
        let path = self.aside(id, NEXT);
        let failed = || Error::io(path.display().to_string());
        let mut options = File::options();
        options.write(true).create(true).truncate(true).mode(0o600);
        let copy = options.open(&path).map_err(failed())?;
        let copied = match ioctl_ficlone(&copy, object) {
            Ok(()) => Ok(()),
            Err(_) => copy_data(object, &copy),
        };
        let synced = copied.and_then(|()| copy.sync_all().map_err(failed()));
        synced.inspect_err(|_| {
            // The first failure is told; the file is removed after the next crash at the latest.
            let _ = fs::remove_file(&path);
        })
    }

    /// Keeps what was copied for a snapshot, so that it outlasts a crash.
    pub(crate) fn keep_copy(&self, id: FileId, number: u64) -> Result<()> {
        self.rename_aside(self.aside(id, NEXT), id, number)
    }

    /// Keeps the object itself for a snapshot: the file needs it no more.
    pub(crate) fn keep_object(&self, id: FileId, number: u64) -> Result<()> {
        self.rename_aside(self.path(id), id, number)
    }

    /// Makes a copy of what is kept of an object the object, which there is none of. It outlasts a
    /// crash.
    pub(crate) fn restore_object(&self, id: FileId, kept: &File) -> Result<()> {
        self.copy_aside(id, kept)?;
        let (from, to) = (self.aside(id, NEXT), self.path(id));
        fs::rename(&from, &to).map_err(Error::io(from.display().to_string()))?;
        self.sync_name(id)
    }

    /// Gives what is kept for a snapshot to another one.
    pub(crate) fn hand_on(&self, id: FileId, from: u64, to: u64) -> Result<()> {
        self.rename_aside(self.kept_path(id, from), id, to)
    }

    fn rename_aside(&self, from: PathBuf, id: FileId, number: u64) -> Result<()> {
        let renamed = {
            let _names = self.kept_names.write();
            fs::rename(&from, self.kept_path(id, number))
        };
        renamed.map_err(Error::io(from.display().to_string()))?;
        self.sync_name(id)
    }

    /// Removes what is kept for a snapshot, or was on its way to be.
    pub(crate) fn remove_kept(&self, id: FileId, number: Option<u64>) -> Result<()> {
        let path = match number {
            Some(number) => self.kept_path(id, number),
            None => self.aside(id, NEXT),
        };
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(Error::io(path.display().to_string())(error))
            }
            _ => Ok(()),
        }
    }

    /// Returns all that is kept. Looks at the names of all objects.
    pub(crate) fn kept(&self) -> Result<Vec<KeptFile>> {
        if self.chunks().is_some() {
            // Chunks never change, and stay as long as a checkpoint needs them.
            return Ok(Vec::new());
        }
        let failed = || Error::io(self.directory().display().to_string());
        let mut kept = Vec::new();
        for part in fs::read_dir(self.directory()).map_err(failed())? {
            for object in fs::read_dir(part.map_err(failed())?.path()).map_err(failed())? {
                let object = object.map_err(failed())?;
                let name = object.file_name();
                let split = name.to_str().and_then(|name| name.split_once('.'));
                let Some((id, suffix)) = split else { continue };
                let Ok(id) = u64::from_str_radix(id, 16).map(FileId) else { continue };
                let number = suffix.parse().ok();
                if number.is_some() || suffix == NEXT {
                    // It may have gone meanwhile.
                    let bytes = object.metadata().map_or(0, |metadata| metadata.blocks() * 512);
                    kept.push(KeptFile { id, number, bytes });
                }
            }
        }
        Ok(kept)
    }
}

/// Copies what an object has, and its holes.
fn copy_data(object: &File, copy: &File) -> Result<()> {
    let size = object.metadata().map_err(Error::io("an object"))?.len();
    copy.set_len(size).map_err(Error::io("a copy of an object"))?;
    let mut at = 0;
    while at < size {
        let (start, end) = match seek(object, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            start => {
                let start = start?;
                (start, seek(object, SeekFrom::Hole(start))?)
            }
        };
        let (mut from, mut to) = (start, start);
        while from < end {
            let length = usize::try_from(end - from).unwrap_or(usize::MAX);
            if copy_file_range(object, Some(&mut from), copy, Some(&mut to), length)? == 0 {
                // It became shorter; whoever copies looks whether it changed.
                return Ok(());
            }
        }
        at = end;
    }
    Ok(())
}
