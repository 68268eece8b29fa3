//! The server's side of a check. It reads a snapshot that it holds until the next check
//! begins, or a quarter of an hour has passed without a request.

use crate::error::{Error, Result};
use crate::message::{Response, ServerRequest};
use crate::server::Server;
use canopy_namespace::Effect;
use canopy_namespace::operation::Caller;
use canopy_namespace::{CheckedTable, EntryName, FileId, Inode, MovedEntry, OwnedName, Place};
use canopy_partition::{Holding, Holdings, PartitionId, Placement, SplitHistory};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Directories in one answer.
const DIRECTORIES: usize = 1024;

/// Time after which a snapshot goes that nobody asks about.
const KEPT: Duration = Duration::from_secs(900);

/// The partitions of a directory, as a server records them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DirectoryFact {
    /// The directory.
    pub directory: FileId,
    /// The servers of all partitions, if they are recorded: the first one, their number at the first
    /// split, and the partitions of each.
    pub placement: Option<(u32, u32, u32)>,
    /// Partitions that the server holds.
    pub held: Vec<SplitHistory>,
    /// Partitions that it was offered or has given, where something is left to be done.
    pub unfinished: Vec<PartitionId>,
}

impl DirectoryFact {
    /// Returns the servers of all partitions.
    pub(crate) fn placement(&self) -> Option<Placement> {
        Placement::try_from(self.placement?).ok()
    }
}

/// The snapshot of a check.
#[derive(Default)]
pub(crate) struct Checking(Mutex<Option<Snapshot>>);

struct Snapshot {
    token: u64,
    table: CheckedTable,
    used: Instant,
}

impl Checking {
    /// Lets a snapshot go that nobody has asked about for long.
    pub(crate) fn expire(&self) {
        let mut checking = self.0.lock();
        if checking.as_ref().is_some_and(|one| one.used.elapsed() > KEPT) {
            *checking = None;
        }
    }
}

impl Server {
    /// Answers a request of a check.
    pub(crate) fn answer_check(&self, request: &ServerRequest<'_>) -> Result<Response> {
        match request {
            ServerRequest::BeginCheck => self.begin_check().map(Response::CheckBegun),
            ServerRequest::Facts(token, from) => self.facts(*token, from.as_ref()),
            ServerRequest::Directories(after) => {
                Ok(Response::Directories(self.directory_facts(*after)))
            }
            ServerRequest::FactsOf(id, names) => {
                self.tablet.flush_pending()?;
                let facts = self.tablet.facts_of(*id, names)?;
                let directory = self.directory_fact(*id).map(Box::new);
                Ok(Response::FactsOf(facts, directory))
            }
            ServerRequest::Unfinished => Ok(Response::Unfinished(self.state.read().intents.left())),
            ServerRequest::Mend(mend) => Ok(Response::Done(self.tablet.mend(mend)?)),
            ServerRequest::Adopt(name, inode) => {
                self.adopt(name, inode)?;
                Ok(Response::Done(true))
            }
            _ => Err(Error::Unfit),
        }
    }

    fn begin_check(&self) -> Result<u64> {
        self.tablet.flush_pending()?;
        let table = self.tablet.checked();
        let mut checking = self.checking.0.lock();
        let token = checking.as_ref().map_or(1, |before| before.token + 1);
        *checking = Some(Snapshot { token, table, used: Instant::now() });
        Ok(token)
    }

    fn facts(&self, token: u64, from: Option<&Place>) -> Result<Response> {
        let mut checking = self.checking.0.lock();
        let current = checking.as_mut().filter(|one| one.token == token);
        let Some(current) = current else {
            let text = format!("another check of server {} has begun", self.id);
            return Err(canopy_namespace::Error::Invalid(text).into());
        };
        current.used = Instant::now();
        let page = self.tablet.facts(&current.table, from)?;
        current.used = Instant::now();
        Ok(Response::Facts(Box::new(page)))
    }

    /// Returns the directories with records of partitions behind one.
    fn directory_facts(&self, after: Option<FileId>) -> Vec<DirectoryFact> {
        let mut directories = self.directories();
        directories.retain(|directory| after.is_none_or(|after| *directory > after));
        directories.sort_unstable();
        directories.truncate(DIRECTORIES);
        directories.into_iter().filter_map(|directory| self.directory_fact(directory)).collect()
    }

    fn directory_fact(&self, directory: FileId) -> Option<DirectoryFact> {
        let state = self.state.read();
        let holdings: &Holdings = state.holdings_of(directory)?;
        let is_left = |holding: &Holding| !matches!(holding, Holding::Held { .. });
        let unfinished = holdings.records().filter(|(_, holding)| is_left(holding));
        Some(DirectoryFact {
            directory,
            placement: state.placements.get(&directory).map(|placement| (*placement).into()),
            held: holdings.histories().collect(),
            unfinished: unfinished.map(|(partition, _)| partition).collect(),
        })
    }

    /// Gives a file that has no name one that this server holds. Its home gets to know by a repair of
    /// its own.
    fn adopt(&self, name: &OwnedName, inode: &Inode) -> Result<()> {
        let EntryName { directory, .. } = name.borrowed();
        self.change(directory, name.borrowed().hash(), |tablet| match inode.is_directory() {
            true => tablet.create_access_half(Caller::Trusted, name.borrowed(), inode),
            false => {
                let entry = MovedEntry::pointer(name.name.clone(), inode.id);
                tablet.make(&[Effect::Put(directory, entry)], &[], None)
            }
        })?;
        if inode.is_directory() {
            self.making.name(inode.id);
        }
        Ok(())
    }
}
