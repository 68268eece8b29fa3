//! Proof that a directory is an index: its file `lock`, with the key of the index.
//!
//! A writer makes it in a directory that is empty, and writes to no other directory than one that
//! has it. It holds a lock (flock) on it as long as it works.

use crate::error::{Error, Result};
use crate::manifest::{self, Document};
use crate::names::{self, Key};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

/// The content of `lock`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Marker {
    /// The key of the index.
    pub(crate) key: Key,
    /// Key of the digests of listings; known to the writer alone.
    pub(crate) secret: Key,
}

impl Document for Marker {
    const KIND: &'static str = "lock";
}

/// Most bytes of a marker that are read.
const BYTES_MAX: u64 = 4096;

/// Locks the index in a directory and returns its keys. An empty directory becomes an index; any
/// other one without a marker is refused, and nothing in it is touched. The path is a real one.
pub(crate) fn claim(index: &Path) -> Result<(File, Marker)> {
    let path = names::lock(index);
    // Not readable by others: who may open it could hold the lock. Neither a link nor a pipe.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let opened = match rustix::fs::open(&path, flags, mode) {
        Err(Errno::NOENT) => {
            if !holds_nothing_else(index)? {
                return Err(Error::NotAnIndex(index.to_owned()));
            }
            rustix::fs::open(&path, flags | OFlags::CREATE, mode)
        }
        opened => opened,
    };
    let mut file = match opened {
        Ok(file) => File::from(file),
        Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => {
            return Err(Error::NotAnIndex(index.to_owned()));
        }
        Err(errno) => return Err(Error::io("open", &path)(errno.into())),
    };
    let about = file.metadata().map_err(Error::io("look at", &path))?;
    if !about.is_file() {
        return Err(Error::NotAnIndex(index.to_owned()));
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Err(Error::Locked(index.to_owned())),
        Err(errno) => return Err(Error::io("lock", &path)(errno.into())),
    }
    let mut text = Vec::new();
    (&mut file).take(BYTES_MAX).read_to_end(&mut text).map_err(Error::io("read", &path))?;
    if text.is_empty() {
        // New, or of a writer that came no further.
        if !holds_nothing_else(index)? {
            return Err(Error::NotAnIndex(index.to_owned()));
        }
        let marker = Marker { key: random_key(index)?, secret: random_key(index)? };
        let text = manifest::encode(&path, &marker)?;
        let written = file.write_all(&text).and_then(|()| file.sync_all());
        written.map_err(Error::io("write", &path))?;
        return Ok((file, marker));
    }
    match manifest::decode::<Marker>(&text) {
        Ok(marker) => Ok((file, marker)),
        Err(manifest::Fault::Version(found)) => Err(manifest::other_version(&path, found)),
        Err(manifest::Fault::Corrupt(_)) => Err(Error::NotAnIndex(index.to_owned())),
    }
}

/// Writes the marker of an index anew that is damaged or missing, with the key that the index has,
/// and locks it. Fails if another writer holds the one that is there.
pub(crate) fn replace(index: &Path, key: Key) -> Result<(File, Marker)> {
    let (path, new) = (names::lock(index), index.join("lock.new"));
    let locked = |file: &File, path: &Path| match rustix::fs::flock(
        file,
        FlockOperation::NonBlockingLockExclusive,
    ) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::Locked(index.to_owned())),
        Err(errno) => Err(Error::io("lock", path)(errno.into())),
    };
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let old = rustix::fs::open(&path, flags, mode).ok().map(File::from);
    old.iter().try_for_each(|old| locked(old, &path))?;
    let marker = Marker { key, secret: random_key(index)? };
    let text = manifest::encode(&path, &marker)?;
    // An earlier attempt may have left this file.
    drop(std::fs::remove_file(&new));
    let file = rustix::fs::open(&new, flags | OFlags::CREATE | OFlags::EXCL, mode);
    let mut file = File::from(file.map_err(|errno| Error::io("create", &new)(errno.into()))?);
    // Before it has its name, so that nobody else locks it first.
    locked(&file, &new)?;
    let written = file.write_all(&text).and_then(|()| file.sync_all());
    written.map_err(Error::io("write", &new))?;
    rustix::fs::rename(&new, &path).map_err(|errno| Error::io("replace", &path)(errno.into()))?;
    Ok((file, marker))
}

/// Returns the keys of an index that others write, too.
pub(crate) fn read(index: &Path) -> Result<Marker> {
    manifest::read(&names::lock(index))
}

/// Returns whether a directory has nothing in it but, maybe, an empty file for the marker.
fn holds_nothing_else(index: &Path) -> Result<bool> {
    for entry in std::fs::read_dir(index).map_err(Error::io("list", index))? {
        let entry = entry.map_err(Error::io("list", index))?;
        if names::lock(index) != entry.path() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a key that nobody can guess.
pub(crate) fn random_key(index: &Path) -> Result<Key> {
    let mut key = Key::default();
    let read = File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut key));
    read.map_err(Error::io("read random bytes for", index))?;
    Ok(key)
}
