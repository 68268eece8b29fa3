//! Queries. Each server searches its own table by its own indexes; the client puts
//! the results together (`client`).
//!
//! A file is found by the server that has its inode. For files with several names and for directories
//! that is their home, which knows all their names. The server checks that the user could list each
//! entry from the searched directory on, so it asks the homes of the directories above. It remembers
//! them for one request: then a changed permission counts.
//!
//! A request looks at [`NAMES_MAX`] names at most and returns a [`Cursor`], so no query keeps a thread
//! for long, and a server remembers nothing of a query between two requests.
//!
//! Entries that move while the servers are searched:
//!
//! 1. A server notes the ranges of names that arrive, and numbers them ([`Arrivals`]). The number and the
//!    moment from which such names are visible change under one lock.
//! 2. The first reply of a server has the number from before it looked at its records.
//! 3. When all servers were searched, the client asks each for what arrived since, and searches that.
//!    It repeats this until no server names anything. It drops results that it has already.
//!
//! So an entry that exists all the time, and is not renamed, is found exactly once. Suppose it was not,
//! and look at the last round, when its server Z was asked. If it came to Z after Z's first request, Z
//! named its range, in that round or before; the search after that found it, as it was still there, or
//! the round was not the last. If it came before, the search of Z found it. Between the questions of one
//! round it cannot slip through: it would leave a server that is asked later for one that was asked
//! before. It came to the former before Z's search, which has found it, or after, and then that server
//! names its range in this round.
//!
//! A query of a snapshot is one for servers as they were (`snapshots/past`), where nothing moves. A user
//! needs the permissions of then, and those of now.

pub(crate) mod client;

use crate::directories::merge;
use crate::error::{Error, Result};
use crate::layout::KnownDirectory;
use crate::message::{Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::operation::{Caller, Moment, Plan, Query};
use canopy_namespace::{Ancestor, Cursor, Elsewhere, FileId, FileTree, Found, Inode};
use canopy_partition::{Holdings, PartitionId, ServerId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, VecDeque};
use std::ops::RangeInclusive;

/// Names that a request looks at.
const NAMES_MAX: u64 = 1 << 15;

/// Files that a request finds, and their bytes.
const FOUND_MAX: usize = 2048;
const FOUND_BYTES_MAX: usize = 256 << 10;

/// Bytes of a file that is found, besides its path.
const FOUND_BYTES: usize = 160;

/// Arrivals that a server remembers.
const ARRIVALS_MAX: usize = 1 << 12;

/// Names of a directory with hashes of a range.
pub type NameRange = (FileId, RangeInclusive<u64>);

/// A part of a query for one server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchPart<'a> {
    /// The query.
    pub query: Query<'a>,
    /// Where it goes on.
    pub after: Option<Cursor>,
    /// The names that are searched; all that the server has if there are none.
    pub within: Option<NameRange>,
}

/// Moment in the life of a server up to which it has noted arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalMark {
    epoch: u64,
    number: u64,
}

/// Ranges of names that a server came to hold.
#[derive(Default)]
pub(crate) struct Arrivals {
    number: u64,
    latest: VecDeque<NameRange>,
}

impl Arrivals {
    /// Notes the ranges of a directory that were not held before.
    pub(crate) fn note(
        &mut self,
        directory: FileId,
        before: &[RangeInclusive<u64>],
        after: &[RangeInclusive<u64>],
    ) {
        let is_new = |range: &RangeInclusive<u64>| {
            !before.iter().any(|old| old.contains(range.start()) && old.contains(range.end()))
        };
        for range in after.iter().filter(|range| is_new(range)) {
            self.number += 1;
            if self.latest.len() == ARRIVALS_MAX {
                self.latest.pop_front();
            }
            self.latest.push_back((directory, range.clone()));
        }
    }

    /// Returns what arrived since; none if that is not known any more.
    fn since(&self, number: u64) -> Option<Vec<NameRange>> {
        let count = usize::try_from(self.number.checked_sub(number)?).ok()?;
        let begin = self.latest.len().checked_sub(count)?;
        Some(self.latest.range(begin..).cloned().collect())
    }
}

impl Server {
    /// Searches what is here, for a user who could list each entry; if this is a server as it was, also
    /// in the tree of now.
    pub(crate) fn search(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        part: &SearchPart<'_>,
        now: Option<&dyn FileTree>,
    ) -> Result<Response> {
        let SearchPart { query, after, within } = part;
        check(caller, query)?;
        let mark = self.arrival_mark();
        let elsewhere = OtherServers { server: self, peers };
        let view = self.tablet.part_view(&elsewhere, within.clone(), after.is_none())?;
        let (mut all, mut bytes) = (Vec::new(), 0);
        let mut take = |found: Found| {
            bytes += FOUND_BYTES + found.path.len() + found.inode.target.len();
            all.push(found);
            all.len() < FOUND_MAX && bytes < FOUND_BYTES_MAX
        };
        let limits = (after.as_ref(), NAMES_MAX);
        let viewer = (&*query.who, now);
        let next = view.search(query.base, &query.expression, viewer, limits, &mut take)?;
        Ok(Response::Found(all, next, mark))
    }

    /// Returns what has arrived since a moment; none if that is not known.
    pub(crate) fn arrivals(&self, since: ArrivalMark) -> Response {
        let state = self.state.read();
        let mark = ArrivalMark { epoch: self.epoch(), number: state.arrivals.number };
        let arrived = match since.epoch == mark.epoch {
            true => state.arrivals.since(since.number),
            false => None,
        };
        Response::Arrived(arrived, mark)
    }

    fn arrival_mark(&self) -> ArrivalMark {
        let state = self.state.read();
        ArrivalMark { epoch: self.epoch(), number: state.arrivals.number }
    }

    /// Returns how this server searches, and the number of its candidates if it `counts` them.
    pub(crate) fn explain(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        query: &Query<'_>,
        counts: bool,
    ) -> Result<Plan> {
        check(caller, query)?;
        if counts && caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        let elsewhere = OtherServers { server: self, peers };
        let view = self.tablet.part_view(&elsewhere, None, true)?;
        let looks_in = view.explain(&query.expression);
        let candidates = match counts {
            true => view.count_candidates(query.base, &query.expression, &|_| ())?,
            false => None,
        };
        Ok(Plan { looks_in, candidates: candidates.map(|count| count as u64) })
    }

    /// Returns what a search on another server has to know of a directory at home here.
    pub(crate) fn ancestor(&self, id: FileId) -> Result<Response> {
        Ok(Response::Ancestor(self.tablet.ancestor(id)?.map(Box::new)))
    }
}

/// Returns an error for a query that a caller may not ask. Clients of snapshots ask servers as they were
/// for what is "now" there.
fn check(caller: Caller<'_>, query: &Query<'_>) -> Result<()> {
    let is_other = |who: &canopy_model::Credentials| !who.is_root() && *who != *query.who;
    if caller.user().is_some_and(is_other) {
        return Err(canopy_namespace::Error::from(Errno::PERM).into());
    }
    match query.at {
        Moment::Now => Ok(()),
        Moment::Snapshot(_) => Err(Error::Unfit),
    }
}

/// The other servers, as a search on one of them asks them.
struct OtherServers<'a> {
    server: &'a Server,
    peers: &'a dyn Peers,
}

impl OtherServers<'_> {
    fn ask_ancestor(&self, id: FileId) -> Result<Option<Ancestor>> {
        let home = match self.server.layout.home(id) {
            Err(Error::Namespace(error)) if error.errno() == Errno::NOENT => return Ok(None),
            home => home?,
        };
        if home == self.server.id {
            return Ok(self.server.tablet.ancestor(id)?);
        }
        let ask = Request::OfServer(ServerRequest::Ancestor(id));
        match self.peers.ask(home, Sender::SERVER, &ask)? {
            Response::Ancestor(found) => Ok(found.map(|found| *found)),
            _ => Err(Error::Unfit),
        }
    }

    /// Joins a directory with its parts on other servers, as clients do.
    fn join(&self, mut whole: Inode) -> Result<Inode> {
        let mut known = KnownDirectory::default();
        known.learn(self.server.partitions(whole.id)?);
        if known.is_unsplit() {
            return Ok(whole);
        }
        let home = self.server.layout.home(whole.id)?;
        let mut asked = BTreeSet::from([self.server.id]);
        let next = |known: &KnownDirectory, asked: &BTreeSet<ServerId>| {
            known.servers(home).find(|server| !asked.contains(server))
        };
        while let Some(server) = next(&known, &asked) {
            asked.insert(server);
            let ask = Request::OfServer(ServerRequest::DirectoryAtServer(whole.id));
            let part = self.peers.ask(server, Sender::SERVER, &ask)?;
            let Response::DirectoryAtServer(part, partitions) = part else {
                return Err(Error::Unfit);
            };
            known.learn(partitions);
            part.iter().for_each(|part| merge(&mut whole, part));
        }
        Ok(whole)
    }
}

impl Elsewhere for OtherServers<'_> {
    fn ancestor(&self, id: FileId) -> canopy_namespace::Result<Option<Ancestor>> {
        Ok(self.ask_ancestor(id)?)
    }

    fn whole(&self, half: Inode) -> canopy_namespace::Result<Option<Inode>> {
        Ok(Some(self.join(half)?))
    }

    fn split(&self) -> Vec<FileId> {
        let is_split = |holdings: &Holdings| {
            holdings.history(PartitionId::ZERO).is_some_and(|history| history.depth() > 0)
        };
        self.server.directories_that(is_split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_known_for_a_while() {
        let (whole, directory) = ([0..=u64::MAX], FileId(7));
        let halves = [0..=u64::MAX >> 1, 1 << 63..=u64::MAX];
        let mut arrivals = Arrivals::default();
        // A split on this server is not an arrival.
        arrivals.note(directory, &whole, &halves);
        assert_eq!(arrivals.since(0), Some(Vec::new()));
        arrivals.note(directory, &halves[..1], &halves);
        assert_eq!(arrivals.since(0), Some(vec![(directory, halves[1].clone())]));
        assert_eq!(arrivals.since(1), Some(Vec::new()));
        // A mark of the future is that of another life.
        assert_eq!(arrivals.since(2), None);
        for _ in 0..ARRIVALS_MAX {
            arrivals.note(directory, &[], &whole);
        }
        assert_eq!(arrivals.since(0), None);
        assert_eq!(arrivals.since(1).map(|all| all.len()), Some(ARRIVALS_MAX));
    }
}
