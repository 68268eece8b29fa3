//! Partitions of a directory as their servers report them, and splits of them by hand.

use crate::error::{Error, Result};
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use canopy_namespace::FileId;
use canopy_partition::{Placement, ServerId, SplitHistory};
use std::thread;
use std::time::Duration;

/// Splits of one partition that others have stopped are given up after this many attempts.
const ATTEMPTS: u32 = 50;

/// Pause after a split that others have stopped.
const PAUSE: Duration = Duration::from_millis(100);

/// A partition of a directory, as its server reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldPartition {
    /// The splits that it comes from.
    pub history: SplitHistory,
    /// The server that holds it.
    pub server: ServerId,
    /// The number of its entries.
    pub entries: u64,
}

/// Returns the partitions of a directory, in the order of their numbers. Asks every server.
///
/// # Errors
///
/// Fails if a server does not answer.
pub fn partitions(peers: &dyn Peers, directory: FileId) -> Result<Vec<HeldPartition>> {
    let mut held = Vec::new();
    for server in (0..peers.server_count()).map(ServerId) {
        held.extend(partitions_of(peers, directory, server)?);
    }
    held.sort_by_key(|one| one.history.partition().number());
    Ok(held)
}

/// Returns the partitions of a directory that a server holds.
///
/// # Errors
///
/// Fails if the server does not answer.
pub fn partitions_of(
    peers: &dyn Peers,
    directory: FileId,
    server: ServerId,
) -> Result<Vec<HeldPartition>> {
    let request = Request::OfServer(ServerRequest::Counts(directory));
    let Response::Counts(counts) = peers.ask(server, Sender::SERVER, &request)? else {
        return Err(Error::Unfit);
    };
    let held =
        counts.into_iter().map(|(history, entries)| HeldPartition { history, server, entries });
    Ok(held.collect())
}

/// Returns the servers of the partitions of a directory; none if it was never split.
///
/// # Errors
///
/// Fails if the server of the first of these partitions does not answer.
pub fn placement(
    peers: &dyn Peers,
    directory: FileId,
    held: &[HeldPartition],
) -> Result<Option<Placement>> {
    let Some(first) = held.first() else { return Ok(None) };
    match peers.ask(first.server, Sender::SERVER, &Request::DirectoryAtServer(directory))? {
        Response::DirectoryAtServer(_, partitions) => Ok(partitions.placement),
        _ => Err(Error::Unfit),
    }
}

/// Splits a partition once, if there is a server for its upper half. Returns whether it did.
///
/// # Errors
///
/// Fails if a server does not answer, and if others stop the split again and again.
pub fn split(peers: &dyn Peers, directory: FileId, held: &HeldPartition) -> Result<bool> {
    let request = Request::Split(directory, held.history.partition());
    let mut attempts = 0;
    loop {
        match peers.ask(held.server, Sender::SERVER, &request) {
            Ok(Response::Done(has_split)) => return Ok(has_split),
            Ok(_) => return Err(Error::Unfit),
            Err(Error::Stopped(_)) if attempts < ATTEMPTS => attempts += 1,
            Err(error) => return Err(error),
        }
        thread::sleep(PAUSE);
    }
}

/// Splits the partitions of a directory until each server has as many as it may have. Returns the
/// partitions.
///
/// # Errors
///
/// Fails as `split` does. The splits that were made stay.
pub fn spread(peers: &dyn Peers, directory: FileId) -> Result<Vec<HeldPartition>> {
    loop {
        let held = partitions(peers, directory)?;
        let mut has_split = false;
        for one in &held {
            has_split |= split(peers, directory, one)?;
        }
        if !has_split {
            return Ok(held);
        }
    }
}
