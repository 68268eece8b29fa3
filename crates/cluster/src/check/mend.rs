//! Mending what a check finds. It goes in rounds: each checks, and mends what can be mended, until
//! nothing more can. No contents are removed: what no name leads to gets one in `lost+found`.

use super::contents::{Chunks, Reads};
use super::{Fault, Progress, Repair, run};
use crate::client::Client;
use crate::contents::objects;
use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, Inode, LOST_AND_FOUND, New, OwnedName, ROOT, Reply};
use canopy_partition::ServerId;
use canopy_store::storage::Storage;
use rustix::io::Errno;
use std::borrow::Cow;
use std::sync::Arc;

/// Repairs give rise to others: more rounds are not made.
const ROUNDS_MAX: usize = 8;

/// Permissions of the directory for what was lost.
const MODE: u32 = 0o700;

/// Result of repairing a namespace.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// Repairs, a line each, in order.
    pub done: Vec<String>,
    /// Faults that could not be repaired.
    pub left: Vec<Fault>,
}

/// Checks a namespace and mends what can be mended safely. `client` is one of the same servers.
///
/// # Errors
///
/// Fails as [`check`](super::check) does.
pub fn repair(
    peers: &Arc<dyn Peers>,
    client: &Client,
    storage: &dyn Storage,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Repaired> {
    repair_reading(peers, client, storage, Reads::Some(Chunks::new()), progress)
}

/// Like [`repair`], and reads all objects of contents. Chunks whose objects are damaged are lost: reading
/// them fails until they are written again.
///
/// # Errors
///
/// Fails as `repair` does.
pub fn repair_contents(
    peers: &Arc<dyn Peers>,
    client: &Client,
    storage: &dyn Storage,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Repaired> {
    repair_reading(peers, client, storage, Reads::All, progress)
}

fn repair_reading(
    peers: &Arc<dyn Peers>,
    client: &Client,
    storage: &dyn Storage,
    mut reads: Reads,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Repaired> {
    let mut repaired = Repaired::default();
    for _ in 0..ROUNDS_MAX {
        let (faults, unsound) = run(&**peers, storage, &reads, progress)?;
        // Further rounds read these alone.
        reads = Reads::Some(unsound);
        let (mut left, before) = (Vec::new(), repaired.done.len());
        for fault in faults {
            match mend(&**peers, client, storage, &fault) {
                Ok(true) => repaired.done.push(format!("mended: {fault}")),
                Ok(false) => left.push(fault),
                Err(error) => {
                    left.push(Fault { what: format!("{}: {error}", fault.what), ..fault })
                }
            }
        }
        repaired.left = left;
        if repaired.done.len() == before {
            break;
        }
    }
    Ok(repaired)
}

/// Mends a fault. Returns whether it could.
fn mend(peers: &dyn Peers, client: &Client, storage: &dyn Storage, fault: &Fault) -> Result<bool> {
    let Some(repair) = &fault.repair else { return Ok(false) };
    match repair {
        Repair::At(server, mend) => ask(peers, *server, ServerRequest::Mend(mend.clone())),
        Repair::Push => {
            let home = home(peers, fault.id)?;
            let push = Request::PushAttributes(fault.id);
            peers.ask(home, Sender::SERVER, &push)?.done()
        }
        Repair::Lost { is_directory } => {
            adopt(peers, client, fault.id, *is_directory)?;
            Ok(true)
        }
        Repair::Remove(chunk, object) => {
            storage.remove(&objects::name(*chunk, *object))?;
            Ok(true)
        }
    }
}

fn ask(peers: &dyn Peers, server: ServerId, request: ServerRequest<'_>) -> Result<bool> {
    peers.ask(server, Sender::SERVER, &Request::OfServer(request))?.done()
}

fn home(peers: &dyn Peers, id: FileId) -> Result<ServerId> {
    match peers.ask(ServerId(0), Sender::SERVER, &Request::HomeOf(id))? {
        Response::HomeOf(home) => Ok(home),
        _ => Err(Error::Unfit),
    }
}

/// Gives a file that has no name one in `lost+found`. The next round mends its count of links and the
/// name index.
fn adopt(peers: &dyn Peers, client: &Client, id: FileId, is_directory: bool) -> Result<()> {
    let directory = lost_and_found(client)?;
    let name = OwnedName { directory, name: format!("#{id}").into_bytes() };
    let inode = match is_directory {
        true => {
            let home = home(peers, id)?;
            match peers.ask(home, Sender::SERVER, &Request::Part(id))? {
                Response::Part(Some(inode), _) => inode,
                _ => return Err(canopy_namespace::Error::from(Errno::NOENT).into()),
            }
        }
        false => Inode::pointer(id),
    };
    let hash = name.borrowed().hash();
    let adopt = ServerRequest::Adopt(name, Box::new(inode));
    let request = Request::OfServer(adopt);
    match client.at_server(Caller::Trusted, directory, hash, &request)? {
        (Response::Done(true), _) => Ok(()),
        _ => Err(Error::Unfit),
    }
}

/// Returns the directory for lost files, which is made if it is not there. One of that name that
/// others than root get into is somebody's, and lost files may be from closed directories.
fn lost_and_found(client: &Client) -> Result<FileId> {
    let mut name = LOST_AND_FOUND.to_owned();
    loop {
        let entry = EntryName::new(ROOT, name.as_bytes());
        let lookup = Operation::Read(Moment::Now, Read::Lookup(entry));
        let found = match client.execute_for(Caller::Trusted, &lookup) {
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => {
                let new = New { mode: file_type::DIRECTORY | MODE, ..New::default() };
                let create = Change::Create { name: entry, new: Cow::Owned(new), holds: false };
                client.execute_for(Caller::Trusted, &Operation::Change(create))?
            }
            found => found?,
        };
        let Reply::Inode(inode) = found else { return Err(Error::Unfit) };
        if inode.is_directory() && inode.uid == 0 && inode.mode & 0o077 == 0 {
            return Ok(inode.id);
        }
        name.push('~');
    }
}
