//! The suspects on disk, so that they outlive the process.
//!
//! A file `suspects` in the daemon's directory: the line [`HEADER`], then records, each
//!
//! | bytes | |
//! | --- | --- |
//! | 4 | length of the body, little-endian |
//! | n | body: a letter, and what belongs to it |
//! | 4 | CRC-32 of the body, little-endian |
//!
//! where the letter is `d` (a directory: its path follows), `r` (the same, with all below it), `i`
//! (an inode with several names: its number, 8 bytes, little-endian), `p` (how far a file of events
//! was read: device, inode, offset, 8 bytes each, little-endian; whatever that part of the file told
//! stands before this record) or `l` (up to which record the index has a change log: its number, 8
//! bytes, little-endian, and the name of the log).
//!
//! Records are appended with one write for each batch of events, and the file is replaced as a whole
//! once suspects were dealt with. It is not synced: after a crash of the process it is complete,
//! after one of the machine it may end early, and whoever reads it goes on from the last position in
//! it. A file that cannot be read means that all is suspect, which is always right.

use crate::error::{Error, Result};
use crate::suspects::Suspect;
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const HEADER: &[u8] = b"canopy suspects 1\n";

/// Name of the file.
const NAME: &str = "suspects";

/// A body is no longer than this: a path of the longest that a scan can be told to read, and more.
const BODY_BYTES_MAX: usize = 2 << 20;

/// How often, and in what distance, the lock is tried.
const LOCK_ATTEMPTS: u32 = 10;
const LOCK_TRIED_EVERY: Duration = Duration::from_millis(100);

/// A file this long is replaced by what still counts of it, if that is a quarter at most.
const COMPACTED_FROM_BYTES: u64 = 64 << 20;

/// How far a file of events was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Device of the file.
    pub dev: u64,
    /// Its inode.
    pub ino: u64,
    /// All before this byte is dealt with, or is among the suspects.
    pub offset: u64,
}

/// Contents of a journal.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Suspects in order of arrival, with duplicates.
    pub suspects: Vec<Suspect>,
    /// Inodes with other names, whose directories are suspect; also in order, with duplicates.
    pub links: Vec<u64>,
    /// The last position.
    pub position: Option<Position>,
    /// Record up to which the index has each change log, by the log's name.
    pub logs: BTreeMap<Vec<u8>, u64>,
}

/// The open file, which no other process writes.
pub struct Journal {
    directory: PathBuf,
    file: File,
    bytes: u64,
    /// Its size when it was last written as a whole.
    bytes_whole: u64,
    /// Set once a write failed: records after it would be read as if nothing were missing.
    is_broken: bool,
    /// Held as long as the journal is open.
    _lock: File,
}

impl Journal {
    /// Opens the journal in a directory, which is made if it is missing, and returns what it had.
    /// Fails if another process has it open, or if the directory is not the caller's alone.
    pub fn open(directory: &Path) -> Result<(Self, Recovered)> {
        let lock = claim(directory)?;
        let path = directory.join(NAME);
        let recovered = match read(&path) {
            Ok(bytes) => decode(&bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Recovered::default(),
            Err(error) => return Err(Error::io("read", &path)(error)),
        };
        let mut whole = Vec::new();
        encode(&recovered.suspects, &recovered.links, recovered.position, &mut whole);
        recovered.logs.iter().for_each(|(name, index)| log_record(name, *index, &mut whole));
        let (file, bytes) = replace(directory, &whole)?;
        let directory = directory.to_owned();
        let journal =
            Journal { directory, file, bytes, bytes_whole: bytes, is_broken: false, _lock: lock };
        Ok((journal, recovered))
    }

    /// Adds suspects and inodes, and behind them how far the events were read that told of them.
    pub fn append(
        &mut self,
        suspects: &[Suspect],
        links: &[u64],
        position: Option<Position>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        encode(suspects, links, position, &mut bytes);
        self.append_bytes(&bytes)
    }

    /// Adds up to which record the index has a change log.
    pub fn append_log(&mut self, name: &[u8], index: u64) -> Result<()> {
        let mut bytes = Vec::new();
        log_record(name, index, &mut bytes);
        self.append_bytes(&bytes)
    }

    fn append_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_broken || bytes.is_empty() {
            return Ok(());
        }
        self.file.write_all(bytes).map_err(|error| {
            self.is_broken = true;
            Error::io("write", &self.directory.join(NAME))(error)
        })?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Returns whether most of the file no longer counts.
    pub fn is_long(&self) -> bool {
        self.bytes > COMPACTED_FROM_BYTES && self.bytes > 4 * self.bytes_whole
    }

    /// Replaces everything.
    pub fn rewrite(
        &mut self,
        suspects: &[Suspect],
        links: &[u64],
        position: Option<Position>,
        logs: &[(Vec<u8>, u64)],
    ) -> Result<()> {
        let mut whole = Vec::new();
        encode(suspects, links, position, &mut whole);
        logs.iter().for_each(|(name, index)| log_record(name, *index, &mut whole));
        (self.file, self.bytes) = replace(&self.directory, &whole)?;
        self.bytes_whole = self.bytes;
        self.is_broken = false;
        Ok(())
    }
}

/// Makes the directory, locks it and returns what holds the lock.
fn claim(directory: &Path) -> Result<File> {
    match std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700)
        .create(directory)
    {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(Error::io("make", directory)(error));
        }
        _ => {}
    }
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = rustix::fs::open(directory, flags, Mode::empty())
        .map_err(Error::errno("open", directory))?;
    let about = File::from(open).metadata().map_err(Error::io("look at", directory))?;
    let owner = rustix::process::geteuid().as_raw();
    if about.uid() != owner || about.mode() & 0o077 != 0 {
        return Err(Error::NotPrivate { path: directory.to_owned(), owner });
    }
    let path = directory.join("lock");
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = rustix::fs::open(&path, flags, Mode::from_raw_mode(0o600))
        .map_err(Error::errno("open", &path))?;
    // A process just started by a daemon that was killed inherits the lock, and holds it until it
    // has begun.
    for attempt in 0.. {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(rustix::io::Errno::WOULDBLOCK) if attempt < LOCK_ATTEMPTS => {
                std::thread::sleep(LOCK_TRIED_EVERY);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Locked(directory.to_owned())),
            Err(errno) => return Err(Error::errno("lock", &path)(errno)),
        }
    }
    Ok(lock.into())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut bytes = Vec::new();
    File::from(rustix::fs::open(path, flags, Mode::empty())?).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a new file of these records and has it take the old one's place; returns it with its
/// length.
fn replace(directory: &Path, records: &[u8]) -> Result<(File, u64)> {
    let written = directory.join("suspects.new");
    let bytes = [HEADER, records].concat();
    let flags =
        OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::open(&written, flags, Mode::from_raw_mode(0o600));
    let mut file = File::from(file.map_err(Error::errno("create", &written))?);
    let place = directory.join(NAME);
    let done = file.write_all(&bytes).and_then(|()| std::fs::rename(&written, &place));
    done.map_err(|error| {
        let _ = rustix::fs::unlinkat(rustix::fs::CWD, &written, AtFlags::empty());
        Error::io("replace", &place)(error)
    })?;
    Ok((file, bytes.len() as u64))
}

fn encode(suspects: &[Suspect], links: &[u64], position: Option<Position>, bytes: &mut Vec<u8>) {
    for suspect in suspects {
        record(if suspect.recursive { b'r' } else { b'd' }, &suspect.path, bytes);
    }
    for inode in links {
        record(b'i', &inode.to_le_bytes(), bytes);
    }
    if let Some(Position { dev, ino, offset }) = position {
        record(b'p', [dev, ino, offset].map(u64::to_le_bytes).as_flattened(), bytes);
    }
}

fn log_record(name: &[u8], index: u64, bytes: &mut Vec<u8>) {
    record(b'l', &[&index.to_le_bytes(), name].concat(), bytes);
}

fn record(letter: u8, rest: &[u8], bytes: &mut Vec<u8>) {
    bytes.extend((rest.len() as u32 + 1).to_le_bytes());
    let start = bytes.len();
    bytes.push(letter);
    bytes.extend(rest);
    let checksum = crc32fast::hash(&bytes[start..]);
    bytes.extend(checksum.to_le_bytes());
}

/// Reads records up to the first that is not whole. Nothing at all of a file of another version.
fn decode(bytes: &[u8]) -> Recovered {
    let mut recovered = Recovered::default();
    let Some(mut rest) = bytes.strip_prefix(HEADER) else { return recovered };
    while let Some((body, after)) = next_body(rest) {
        rest = after;
        let Some((&letter, payload)) = body.split_first() else { break };
        match letter {
            b'd' | b'r' if payload.first() == Some(&b'/') && !payload.contains(&0) => {
                let suspect = Suspect { path: payload.to_vec(), recursive: letter == b'r' };
                recovered.suspects.push(suspect);
            }
            b'l' => {
                let Some((index, name)) = payload.split_first_chunk() else { break };
                recovered.logs.insert(name.to_vec(), u64::from_le_bytes(*index));
            }
            b'i' | b'p' => match (letter, numbers(payload)[..].as_ref()) {
                (b'i', &[inode]) => recovered.links.push(inode),
                (b'p', &[dev, ino, offset]) => {
                    recovered.position = Some(Position { dev, ino, offset });
                }
                _ => break,
            },
            _ => break,
        }
    }
    recovered
}

/// Returns the numbers that some bytes are, none at all if they are not whole numbers.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    match bytes.as_chunks() {
        (numbers, []) => numbers.iter().map(|&number| u64::from_le_bytes(number)).collect(),
        _ => Vec::new(),
    }
}

fn next_body(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    let (body, rest) = rest.split_at_checked(length).filter(|_| length <= BODY_BYTES_MAX)?;
    let (checksum, rest) = rest.split_first_chunk::<4>()?;
    (u32::from_le_bytes(*checksum) == crc32fast::hash(body)).then_some((body, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::PermissionsExt;

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes: Vec<u8>) {
            decode(&[HEADER, &bytes].concat());
            decode(&bytes);
        }
    }

    fn suspects() -> Vec<Suspect> {
        vec![
            Suspect { path: b"/data/a".to_vec(), recursive: false },
            Suspect { path: b"/data/\xff\n".to_vec(), recursive: true },
        ]
    }

    const POSITION: Position = Position { dev: 1, ino: 2, offset: 3 };

    #[test]
    fn appended_entries_are_there_again() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("watch");
        let (mut journal, recovered) = Journal::open(&place).unwrap();
        assert_eq!(recovered, Recovered::default());
        assert!(matches!(Journal::open(&place), Err(Error::Locked(_))));
        journal.append(&suspects()[..1], &[7], None).unwrap();
        journal.append(&suspects()[1..], &[u64::MAX], Some(POSITION)).unwrap();
        journal.append_log(b"log", 5).unwrap();
        journal.append_log(b"log", 6).unwrap();
        // As after SIGKILL: nothing is closed in order.
        drop(journal);
        let (mut journal, recovered) = Journal::open(&place).unwrap();
        let expected = Recovered {
            suspects: suspects(),
            links: vec![7, u64::MAX],
            position: Some(POSITION),
            logs: BTreeMap::from([(b"log".to_vec(), 6)]),
        };
        assert_eq!(recovered, expected);
        journal.rewrite(&suspects()[1..], &[8], None, &[(b"log".to_vec(), 7)]).unwrap();
        journal.append_log(b"other", 1).unwrap();
        journal.append(&suspects()[..1], &[7], None).unwrap();
        drop(journal);
        let (_, recovered) = Journal::open(&place).unwrap();
        assert_eq!(recovered.suspects, [suspects()[1].clone(), suspects()[0].clone()]);
        assert_eq!((recovered.links, recovered.position), (vec![8, 7], None));
        let logs = [(b"log".to_vec(), 7), (b"other".to_vec(), 1)];
        assert_eq!(recovered.logs, BTreeMap::from(logs));
        let mode = place.join(NAME).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_torn_or_damaged_end_is_left_out_and_nothing_before_it() {
        let mut bytes = HEADER.to_vec();
        let mut ends = vec![bytes.len()];
        for suspect in suspects() {
            encode(&[suspect], &[], None, &mut bytes);
            ends.push(bytes.len());
        }
        encode(&[], &[], Some(POSITION), &mut bytes);
        for end in 0..bytes.len() {
            let whole = ends.iter().filter(|&&whole| whole <= end).count().saturating_sub(1);
            let recovered = decode(&bytes[..end]);
            assert_eq!(recovered.suspects, suspects()[..whole]);
            assert_eq!(recovered.position, None);
        }
        for at in HEADER.len()..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let recovered = decode(&damaged);
            assert!(suspects().starts_with(&recovered.suspects));
            assert_eq!(recovered.position, None, "byte {at}");
        }
    }

    #[test]
    fn a_directory_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("watch");
        std::fs::create_dir(&place).unwrap();
        std::fs::set_permissions(&place, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(matches!(Journal::open(&place), Err(Error::NotPrivate { .. })));
        std::os::unix::fs::symlink(dir.path(), dir.path().join("link")).unwrap();
        assert!(Journal::open(&dir.path().join("link")).is_err());
    }
}
