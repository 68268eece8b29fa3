//! Objects of chunks: their names, and the sessions that make them.
//!
//! ```text
//! contents/session/<session>                          nothing: a client of this session made objects
//! contents/ended/<session>                            nothing: its objects may be collected
//! contents/chunk/<session>/<number>-<file>-<chunk>    the bytes of a chunk
//! ```
//!
//! A session is a random number whose object its client has created: nobody else has it. Its upper bits
//! are those of the client's session at servers, which accept new objects of no other sessions from that
//! client. The client counts its objects. So no name is used twice, and no two clients write one object. A name also
//! says which chunk of which file the object is for. A record of another chunk cannot name it, so
//! nobody can have an object removed that belongs to a file of others.

use crate::handles::session_of_owner;
use crate::message::SessionId;
use bytes::Bytes;
use canopy_namespace::{ChunkId, Error, FileId, Gate, ObjectId, Result, Stored};
use canopy_store::storage::{Created, Reserve, Storage};
use canopy_store::{Environment, hash_of};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SESSIONS: &str = "contents/session/";
const ENDED: &str = "contents/ended/";
/// Prefix of the names of all objects of chunks.
pub(crate) const CHUNKS: &str = "contents/chunk/";

/// Chunks that are sent or fetched at once.
const TRANSFERS: usize = 8;

/// The name of the object that says that there is a session.
pub(super) fn session_name(session: u64) -> String {
    format!("{SESSIONS}{session:020}")
}

/// The name of the object that says that a session has ended.
pub(super) fn ended_name(session: u64) -> String {
    format!("{ENDED}{session:020}")
}

/// Prefix of the names of all objects of a session.
pub(super) fn prefix_of(session: u64) -> String {
    format!("{CHUNKS}{session:020}/")
}

/// Returns the sessions that there are objects of, in order.
pub(super) fn sessions(storage: &dyn Storage) -> Result<Vec<u64>> {
    let listed = storage.list(SESSIONS, "")?;
    let numbers = listed.iter().map(|one| one.name[SESSIONS.len()..].parse());
    Ok(numbers.flatten().collect())
}

/// Has the objects of all sessions looked at later, as if no client had ended its session.
pub(crate) fn reopen_sessions(storage: &dyn Storage) -> Result<()> {
    let mut last = None;
    for listed in storage.list(CHUNKS, "")? {
        let Some((_, ObjectId { epoch: session, .. })) = parse(&listed.name) else { continue };
        // All objects of a session follow each other.
        if last.replace(session) != Some(session) {
            storage.create(&session_name(session), Bytes::new())?;
        }
    }
    Ok(())
}

/// Returns the sessions that have ended, whose objects may be collected.
pub(crate) fn ended(storage: &dyn Storage) -> Result<Vec<u64>> {
    let listed = storage.list(ENDED, "")?;
    let numbers = listed.iter().map(|one| one.name[ENDED.len()..].parse());
    Ok(numbers.flatten().collect())
}

/// Returns whether a session has ended.
pub(crate) fn has_ended(storage: &dyn Storage, session: u64) -> Result<bool> {
    match storage.size(&ended_name(session)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the name of an object.
pub(crate) fn name(chunk: ChunkId, object: ObjectId) -> String {
    let ChunkId { file, number } = chunk;
    format!("{}{:020}-{:020}-{number:020}", prefix_of(object.epoch), object.number, file.0)
}

/// Reads the name of an object.
pub(crate) fn parse(name: &str) -> Option<(ChunkId, ObjectId)> {
    let (session, rest) = name.strip_prefix(CHUNKS)?.split_once('/')?;
    let mut numbers = rest.split('-').map(|number| number.parse::<u64>().ok());
    let object = ObjectId { epoch: session.parse().ok()?, number: numbers.next()?? };
    let file = FileId(numbers.next()??);
    let chunk = ChunkId::new(file, numbers.next()??);
    (numbers.next().is_none() && self::name(chunk, object) == name).then_some((chunk, object))
}

/// Reads the object of a chunk, and proves that it has the length and the checksum of its record.
pub(crate) fn read(
    storage: &dyn Storage,
    chunk: ChunkId,
    object: ObjectId,
    (length, checksum): (u32, u64),
) -> Result<Bytes> {
    let name = name(chunk, object);
    let ChunkId { file, number } = chunk;
    let corrupt =
        |what: &str| Error::Corrupt(format!("file {file}, chunk {number}: {name}: {what}"));
    let bytes = match storage.read(&name) {
        Err(error) if error.is_not_found() => return Err(corrupt("the object is missing")),
        read => read?,
    };
    match bytes.len() == length as usize && hash_of(&bytes) == checksum {
        true => Ok(bytes),
        false => Err(corrupt("the object is damaged")),
    }
}

/// The storage of chunks.
pub(super) struct Objects {
    pub(super) environment: Environment,
    transfers: Gate,
}

impl Objects {
    pub(super) fn new(environment: Environment) -> Self {
        Objects { environment, transfers: Gate::new(TRANSFERS) }
    }

    pub(super) fn storage(&self) -> &dyn Storage {
        &*self.environment.storage
    }

    /// Reads the object of a chunk, and proves that it is the one of the record.
    pub(super) fn fetch(&self, chunk: ChunkId, stored: &Stored) -> Result<Bytes> {
        let ChunkId { file, number } = chunk;
        let what = |what: &str| Error::Corrupt(format!("file {file}, chunk {number}: {what}"));
        if stored.is_lost() {
            return Err(what("lost, as a repair has found"));
        }
        let _one = self.transfers.enter();
        read(self.storage(), chunk, stored.object, (stored.object_bytes, stored.checksum))
    }

    /// Removes an object that no record names, nor ever will.
    pub(super) fn remove(&self, chunk: ChunkId, object: ObjectId) -> Result<()> {
        Ok(self.storage().remove(&name(chunk, object))?)
    }
}

/// A session of a client, which makes objects.
pub(super) struct Session {
    pub(super) id: u64,
    objects: Arc<Objects>,
    next: AtomicU64,
    /// Whether there may be objects that no record names, and that nobody will remove.
    is_uncertain: AtomicBool,
}

impl Session {
    /// Begins a session that nobody had before, of a client with a session at servers.
    pub(super) fn begin(objects: &Arc<Objects>, of: SessionId) -> Result<Self> {
        loop {
            let id = session_of_owner(of, objects.environment.random.next_u64());
            // A record of no object has 0.
            if id == 0 {
                continue;
            }
            if objects.storage().create(&session_name(id), Bytes::new())? == Created::Now {
                return Ok(Session {
                    id,
                    objects: objects.clone(),
                    next: AtomicU64::new(0),
                    is_uncertain: AtomicBool::new(false),
                });
            }
        }
    }

    /// Makes an object for a chunk. After an error there may be one.
    pub(super) fn upload(&self, chunk: ChunkId, bytes: Bytes) -> Result<Stored> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let object = ObjectId { epoch: self.id, number };
        let (length, checksum) = (bytes.len() as u32, hash_of(&bytes));
        let _one = self.objects.transfers.enter();
        let name = name(chunk, object);
        self.objects.storage().check_reserve(&name, length.into(), Reserve::Whole)?;
        match self.objects.storage().create(&name, bytes) {
            Ok(Created::Now) => {}
            Ok(Created::ThereWasOne) => {
                return Err(Error::Corrupt(format!("{name}: another process made this object")));
            }
            Err(error) => {
                self.doubt();
                return Err(error.into());
            }
        }
        Ok(Stored { object, object_bytes: length, used: length, checksum })
    }

    /// Notes that objects may stay that no record names.
    pub(super) fn doubt(&self) {
        self.is_uncertain.store(true, Ordering::Release);
    }

    /// Ends the session. If records name all objects of it that there are, nobody has to look.
    pub(super) fn end(&self) -> Result<()> {
        match self.is_uncertain.load(Ordering::Acquire) {
            true => Ok(()),
            false => Ok(self.objects.storage().remove(&session_name(self.id))?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let (chunk, object) =
            (ChunkId::new(FileId(7), u64::MAX), ObjectId { epoch: u64::MAX, number: 3 });
        let whole = name(chunk, object);
        assert_eq!(parse(&whole), Some((chunk, object)));
        for wrong in [&whole[1..], &whole[..whole.len() - 1], &format!("{whole}-1"), CHUNKS, ""] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
