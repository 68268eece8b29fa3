//! Removing the objects of chunks that no record needs any more.
//!
//! **Objects that records have named.** The batch that takes an object out of a record leaves a note
//! in the same table, under the key that named it. The server of that table removes the object, by
//! the argument of `canopy_namespace`, `contents/chunks/collect.rs`. A record can only name an object
//! that was made for its file and chunk, since the object's name says which these are. A file has its
//! records in one table. When it moves to another one, its records are copied first, and no change
//! of them runs meanwhile. A copy that remains behind is seen by nobody, and is removed without a
//! note. So an object that a note is about is named by nobody.
//!
//! **Objects that no record has named**, left by a client that died. To collect a session:
//!
//! 1. The object `contents/ended/<session>` is created.
//! 2. Every logical server notes durably in its table that the session has ended. A process that
//!    lost the table cannot: so each note is in the log that all later owners go on with.
//! 3. The objects of the session are listed. For each, the server of its file is asked whether its
//!    records need it: a record names it, or a note is about it. If not, it is removed.
//!
//! Why that is safe: a table with the note refuses every change that would have a record name an
//! object of the session, with the lock of changes. So after step 2 such an object is named only by
//! records that named it before, or by copies of these that move with their file. The server that
//! answers in step 3 has the file, so its records are all that count; they do not name the object,
//! and never will. If the file is not found, nothing is removed: it may be on its way.
//!
//! It does not matter whether the client is dead. One that lives gets `STALE` for its next chunks,
//! begins another session, and sends them again. Nor does it matter how often, or by how many at
//! once, a session is collected.
//!
//! **Tables that are added** (`tables`). Step 2 ends with a look at the list of tables: if it has
//! become longer, the new servers get the note, too. A new table gets the notes of server 0 before
//! it is used ([`adopt_ended`]). If its list was created before that look, it gets the note by step
//! 2. If it was created later, server 0 has had the note since before that, and passes it on.
//!
//! Objects of files that are gone stay, and are counted (`Collected::left`).
//!
//! Objects that snapshots need stay in both cases (`snapshots`).

use super::Operations;
use super::objects::{self, Objects};
use super::objects::{ended_name, prefix_of};
use crate::answer::SESSIONS;
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::tables::count_tables;
use bytes::Bytes;
use canopy_namespace::operation::{Access, Caller, Operation};
use canopy_namespace::{ChunkId, ObjectId, Reply, Tablet};
use canopy_partition::ServerId;
use canopy_store::storage::Storage;
use canopy_store::{Environment, SstableCache};
use rustix::io::Errno;
use std::sync::Arc;

/// The result of collecting a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Objects that were removed.
    pub removed: u64,
    /// Objects that records need.
    pub needed: u64,
    /// Objects of files that were not found. They stay.
    pub left: u64,
}

/// Returns the sessions of clients that have made objects and did not end in order, in the order of
/// their numbers: of clients that live, and of those that died.
///
/// # Errors
///
/// Fails as storage does.
pub fn sessions(storage: &dyn Storage) -> Result<Vec<u64>> {
    Ok(objects::sessions(storage)?)
}

/// Returns the number and the bytes of the objects of a session, needed or not.
///
/// # Errors
///
/// Fails as storage does.
pub fn session_objects(storage: &dyn Storage, session: u64) -> Result<(u64, u64)> {
    let listed = storage.list(&prefix_of(session), "")?;
    Ok((listed.len() as u64, listed.iter().map(|one| one.size_bytes).sum()))
}

/// Ends a session of a client that has died, and removes the objects that it left and that no record
/// needs. `peers` are asked as a server; `operations` find the servers of files.
///
/// # Errors
///
/// Fails as storage and servers do. Nothing is removed unless all servers know of the end.
pub fn collect_session(
    environment: &Environment,
    peers: &dyn Peers,
    operations: &dyn Operations,
    session: u64,
    pace: &mut dyn FnMut(),
) -> Result<Collected> {
    let storage = &*environment.storage;
    storage.create(&ended_name(session), Bytes::new())?;
    let mut noted = 0;
    loop {
        let servers = count_tables(storage)?;
        if noted == servers {
            break;
        }
        for server in (noted..servers).map(ServerId) {
            let end = Request::OfServer(ServerRequest::EndSession(session));
            match peers.ask(server, Sender::SERVER, &end)? {
                Response::Done(true) => {}
                _ => return Err(Error::Unfit),
            }
        }
        noted = servers;
    }
    let objects = Objects::new(environment.clone());
    let mut collected = Collected::default();
    for one in storage.list(&prefix_of(session), "")? {
        // Others may have put something here.
        let Some((chunk, object)) = objects::parse(&one.name) else { continue };
        pace();
        match is_needed(operations, chunk, object)? {
            Some(true) => collected.needed += 1,
            None => collected.left += 1,
            Some(false) => {
                objects.remove(chunk, object)?;
                collected.removed += 1;
            }
        }
    }
    if collected.left == 0 {
        storage.remove(&objects::session_name(session))?;
    }
    Ok(collected)
}

/// Returns whether records need an object; none if its file is not found.
fn is_needed(
    operations: &dyn Operations,
    chunk: ChunkId,
    object: ObjectId,
) -> Result<Option<bool>> {
    let asked = Operation::Access(Access::NeedsObject(chunk, object));
    match operations.execute_for(Caller::Trusted, &asked) {
        Ok(Reply::Truth(is_needed)) => Ok(Some(is_needed)),
        Ok(_) => Err(Error::Unfit),
        Err(error) if error.errno() == Errno::NOENT => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Gives a table that was added the notes of all sessions that have ended so far, before it is used,
/// and has it count usage if the others do.
pub(crate) fn adopt_ended(tablet: &Tablet, peers: &dyn Peers) -> Result<()> {
    let mut after = None;
    loop {
        let request = Request::OfServer(ServerRequest::EndedSessions(after));
        let answer = peers.ask(ServerId(0), Sender::SERVER, &request)?;
        let Response::Sessions(sessions, counts) = answer else { return Err(Error::Unfit) };
        let is_last = sessions.len() < SESSIONS;
        // A first limit that is set later finds this server in the list of tables (`quotas`).
        if is_last && counts {
            tablet.start_counting()?;
        }
        tablet.adopt_ended(&sessions, is_last)?;
        if is_last {
            return Ok(());
        }
        after = sessions.last().copied();
    }
}

/// Removes the objects that the notes of a table are about, unless one `is_needed` by a snapshot of
/// other tables. Returns how many.
pub(crate) fn collect_garbage(
    tablet: &Tablet,
    environment: &Environment,
    cache: &Arc<SstableCache>,
    is_needed: &dyn Fn(ChunkId, ObjectId) -> canopy_namespace::Result<bool>,
) -> Result<u64> {
    let objects = Objects::new(environment.clone());
    let remove = |chunk, object| objects.remove(chunk, object);
    Ok(tablet.collect_chunks(environment, cache, is_needed, &remove)?)
}
