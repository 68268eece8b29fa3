//! Needs of changes of directories beside their parts: a directory that is removed or replaced is
//! empty, and stays so; and no directory gets into itself.
//!
//! A directory is *closed* on all servers that may have names of it: each prepares that what it has of
//! the directory goes. From then on names of it wait for the end of the change.
//!
//! A move to another directory needs that no other one happens while the directories above are looked
//! at. So it has a part on server 0, which only one change at a time can have. It ends as every part
//! does, whoever dies. Directories above are asked for at their homes. A home that has not yet made
//! its part of an earlier move has the asker wait.

use crate::error::{Error, Result};
use crate::intents::attempt::{AttemptError, ChangeAttempt, Outcome, run};
use crate::intents::{IntentPart, LockKey, PartOutcome};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::Caller;
use canopy_namespace::{Effect, EntryName, FileId, Inode, OwnedName, ROOT, Reply};
use canopy_partition::ServerId;
use rustix::io::Errno;

type AttemptResult<T> = std::result::Result<T, AttemptError>;

/// The server that lets one change at a time move directories to others.
const MOVES: ServerId = ServerId(0);

/// Directories above one, the nearest first, at most as many as a path can have.
const DEPTH_MAX: usize = 1 << 16;

impl Server {
    /// Removes an empty directory. This server has to hold its name.
    pub(crate) fn rmdir(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        name: EntryName<'_>,
    ) -> Result<Reply> {
        match name.name {
            b"." => return Err(refused(Errno::INVAL)),
            b".." => return Err(refused(Errno::NOTEMPTY)),
            _ => {}
        }
        let name = OwnedName::from(name);
        let id = run(self, peers, caller, |attempt| rmdir(attempt, &name))?;
        Ok(Reply::File(id))
    }
}

fn rmdir(attempt: &mut ChangeAttempt<'_>, name: &OwnedName) -> AttemptResult<Outcome<FileId>> {
    let (server, caller) = (attempt.server, attempt.caller);
    attempt.lock(&[LockKey::of(name)])?;
    let (_, found) = server.tablet.find_leaving(caller, name.borrowed())?;
    let found = found.ok_or(refused(Errno::NOENT))?;
    let id = found.id;
    let inode = if found.is_pointer() { attempt.peek(id)? } else { found.clone() };
    server.tablet.check_leaving(caller, name.directory, &inode)?;
    if !found.has(flag::ACCESS_HALF) {
        return Err(refused(Errno::NOTDIR).into());
    }
    close(attempt, id)?;
    attempt.effects.insert(0, Effect::Take(name.clone(), id));
    attempt.reply = Some(Reply::File(id));
    Ok(Outcome::Decide(id))
}

/// Has all servers that may have names of a directory close it. Fails unless it is empty.
pub(crate) fn close(attempt: &mut ChangeAttempt<'_>, id: FileId) -> AttemptResult<()> {
    let layout = attempt.server.layout.clone();
    let home = layout.home(id)?;
    let closed = attempt.part(home, &IntentPart::Close(id))?;
    let PartOutcome::DirectoryClosed { is_split, servers: known } = closed else {
        return Err(Error::Unfit.into());
    };
    if !is_split {
        return Ok(());
    }
    let (mut server, mut servers) = (0, known.max(layout.server_count()));
    while server < servers {
        if ServerId(server) != home {
            let closed = attempt.part(ServerId(server), &IntentPart::Close(id))?;
            let PartOutcome::DirectoryClosed { servers: known, .. } = closed else {
                return Err(Error::Unfit.into());
            };
            // It may have handed names to a server that was added.
            servers = servers.max(known);
        }
        server += 1;
    }
    Ok(())
}

/// Has no other change move directories until this one ends.
pub(crate) fn begin_move(attempt: &mut ChangeAttempt<'_>) -> AttemptResult<()> {
    attempt.part(MOVES, &IntentPart::Moves).map(drop)
}

/// Returns a directory and those above it, while no other change moves directories.
pub(crate) fn above(attempt: &ChangeAttempt<'_>, directory: FileId) -> AttemptResult<Vec<FileId>> {
    let mut found = vec![directory];
    let mut at = directory;
    while at != ROOT {
        let next = attempt.above(at)?;
        if next == at {
            return Err(refused(Errno::NOENT).into());
        }
        if found.len() >= DEPTH_MAX {
            let text = format!("directory {directory} lies in itself");
            return Err(Error::from(canopy_namespace::Error::Corrupt(text)).into());
        }
        found.push(next);
        at = next;
    }
    Ok(found)
}

/// Returns whether a record of a name is of a directory.
pub(crate) fn is_directory(found: &Inode) -> bool {
    found.has(flag::ACCESS_HALF)
}

fn refused(errno: Errno) -> Error {
    canopy_namespace::Error::from(errno).into()
}
