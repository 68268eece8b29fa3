//! Finds the servers of operations, and answers those that concern several.

use crate::error::{Error, Result};
use crate::handover::{HandOver, Step, Steps, ask, is_at_rest, recover};
use crate::server::Server;
use crate::tables::tables_of;
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::operation::{Change, Moment, Operation, Page, Read, Target};
use canopy_namespace::{
    Clock, EntryName, FileId, Inode, New, NoOpenFiles, ROOT, Reply, Tablet, TabletRange,
    cookie_before, hash_after, open_table, table_of_block,
};
use canopy_partition::{
    Attempt, DirectoryMap, PartitionId, Placement, ServerId, Split, SplitHistory, SplitPolicy,
};
use canopy_store::{Environment, SstableCache, TableId};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of SSTables' blocks that stay in memory, of all servers together.
const CACHE_BYTES: u64 = 256 << 20;

/// The logical servers of a namespace, all in this process.
pub struct Cluster {
    environment: Environment,
    servers: Vec<Server>,
    tables: Vec<TableId>,
    policy: SplitPolicy,
    attempts: AtomicU64,
    /// The last failure of a split that an entry has caused.
    failure: Mutex<Option<Error>>,
    /// Servers by the blocks of ids that their tables have reserved.
    homes: Mutex<HashMap<u64, ServerId>>,
}

/// A client's knowledge of the partitions of directories. It may be stale.
#[derive(Default)]
pub struct Client {
    maps: HashMap<FileId, DirectoryMap>,
    /// Requests that a server could not execute, since it does not hold the name.
    pub addressing_errors: u64,
}

impl Cluster {
    /// Opens all servers of the namespace in a storage, and does what a crash has left undone.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn open(environment: &Environment, clock: &Clock, policy: SplitPolicy) -> Result<Self> {
        let tables = tables_of(&*environment.storage)?;
        let cache = SstableCache::new(environment, CACHE_BYTES);
        let mut servers = Vec::new();
        for (number, table) in (0..).zip(&tables) {
            let table = open_table(environment, *table, cache.clone())?;
            let range = TabletRange::Part([].into_iter().collect());
            let tablet = Tablet::new(table, range, clock.clone(), Arc::new(NoOpenFiles))?;
            tablet.remove_orphans()?;
            servers.push(Server::new(ServerId(number), tablet)?);
        }
        let cluster = Cluster {
            environment: environment.clone(),
            servers,
            tables,
            policy,
            attempts: AtomicU64::new(1),
            failure: Mutex::default(),
            homes: Mutex::default(),
        };
        recover(&cluster.servers, |directory, partition| cluster.place(directory, partition))?;
        Ok(cluster)
    }

    /// Executes an operation for a client, on the server where it belongs.
    ///
    /// # Errors
    ///
    /// Fails as the operation does, and with `NotYet` if several servers would have to execute it.
    pub fn execute(&self, client: &mut Client, operation: &Operation<'_>) -> Result<Reply> {
        match operation {
            Operation::Change(Change::Create { name, new, holds: false })
                if new.mode & canopy_namespace::inode::TYPE_MASK == file_type::DIRECTORY =>
            {
                self.create_directory(client, *name, new)
            }
            Operation::Read(Moment::Now, Read::List(page)) => self.list(client, *page),
            Operation::Hold(_) | Operation::Change(Change::Create { holds: true, .. }) => {
                Err(Error::NotYet("holding a file"))
            }
            Operation::Change(Change::Rmdir(_)) => Err(Error::NotYet("the removal of a directory")),
            Operation::Change(Change::Link { .. }) => Err(Error::NotYet("another name")),
            Operation::Change(Change::Rename { .. }) => Err(Error::NotYet("a rename")),
            Operation::Change(
                Change::SetAttributes { id, .. }
                | Change::SetXattr { id, .. }
                | Change::RemoveXattr { id, .. },
            ) => {
                let inode = self.of_file(*id, &Operation::Read(Moment::Now, Read::Inode(*id)))?;
                match inode {
                    Reply::Inode(inode) if inode.is_directory() => {
                        Err(Error::NotYet("a change of a directory"))
                    }
                    _ => self.of_file(*id, operation),
                }
            }
            Operation::Change(Change::CreateNameless { .. }) => {
                Err(Error::NotYet("a file without a name"))
            }
            _ => match operation.target() {
                Target::Name { directory, hash } => {
                    self.of_name(client, directory, hash, operation)
                }
                Target::File(id) => self.of_file(id, operation),
                Target::Anywhere => Err(Error::NotYet("a request about the namespace")),
            },
        }
    }

    /// Executes an operation on a name. A client whose map is stale learns of splits, and asks the
    /// next server.
    fn of_name(
        &self,
        client: &mut Client,
        directory: FileId,
        hash: u64,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        let reply = self.at(client, directory, hash, |server| server.execute(operation))?;
        match (operation, reply) {
            (Operation::Read(_, Read::Lookup(_)), Reply::Inode(inode)) => {
                self.whole(inode).map(Reply::Inode)
            }
            (Operation::Change(change), reply) => {
                let by = match change {
                    Change::Create { .. } => 1,
                    Change::Unlink(_) => -1,
                    _ => 0,
                };
                self.note(client, directory, hash, by)?;
                Ok(reply)
            }
            (_, reply) => Ok(reply),
        }
    }

    /// Asks the server of a name, and those that its replies lead to.
    fn at<T>(
        &self,
        client: &mut Client,
        directory: FileId,
        hash: u64,
        ask: impl Fn(&Server) -> Result<T>,
    ) -> Result<T> {
        let placement = self.placement(directory)?;
        loop {
            let map = client.maps.entry(directory).or_default();
            let server = self.server(placement.server(map.find(hash)));
            let histories = match ask(server) {
                Err(Error::Elsewhere { histories, .. }) => histories,
                reply => return reply,
            };
            client.addressing_errors += 1;
            let before = map.clone();
            histories.into_iter().for_each(|history| map.learn(history));
            // The server may have been given the names, and not know it yet.
            if *map == before && !self.ask(server, directory)? && !server.holds(directory, hash)? {
                return Err(canopy_namespace::Error::from(Errno::NOENT).into());
            }
        }
    }

    /// Has a server ask about what it was offered of a directory.
    fn ask(&self, server: &Server, directory: FileId) -> Result<bool> {
        ask(&self.servers, server, directory, |directory, partition| {
            self.place(directory, partition)
        })
    }

    /// Returns the place of a partition's server in the list.
    fn place(&self, directory: FileId, partition: PartitionId) -> Result<usize> {
        Ok(self.placement(directory)?.server(partition).0 as usize)
    }

    /// Executes an operation on a file or a directory of which only the id is known: on the server of
    /// its block, else on the one that has it.
    fn of_file(&self, id: FileId, operation: &Operation<'_>) -> Result<Reply> {
        let home = self.home(id)?;
        loop {
            let moves = self.moves();
            let others = (0..self.servers.len() as u32).map(ServerId);
            for server in std::iter::once(home).chain(others.filter(|server| *server != home)) {
                match self.server(server).execute(operation) {
                    Err(Error::Elsewhere { .. }) => {}
                    Ok(Reply::Inode(inode)) => return self.whole(inode).map(Reply::Inode),
                    reply => return reply,
                }
            }
            // It may have moved meanwhile, or lie with a server that does not know what it was given.
            let mut holds_more = false;
            for server in &self.servers {
                for directory in server.directories() {
                    holds_more |= self.ask(server, directory)?;
                }
            }
            if !holds_more && self.moves() == moves {
                return Err(canopy_namespace::Error::from(Errno::NOENT).into());
            }
        }
    }

    /// Counts the changes of partitions so far.
    fn moves(&self) -> u64 {
        self.servers.iter().map(Server::changes).sum()
    }

    /// Returns the inode of a file; of a directory, what its partitions say together.
    fn whole(&self, inode: Inode) -> Result<Inode> {
        if !inode.is_directory() {
            return Ok(inode);
        }
        let home = self.home(inode.id)?;
        let mut whole = self.server(home).tablet.inode(inode.id)?;
        whole.flags &= !flag::ACCESS_HALF;
        for server in self.servers.iter().filter(|server| server.id != home) {
            if server.histories(inode.id)?.is_empty() {
                continue;
            }
            let part = server.tablet.inode(inode.id)?;
            whole.nlink = whole.nlink.saturating_add(part.nlink.saturating_sub(2));
            whole.mtime_ns = whole.mtime_ns.max(part.mtime_ns);
            whole.ctime_ns = whole.ctime_ns.max(part.ctime_ns);
            whole.atime_ns = whole.atime_ns.max(part.atime_ns);
        }
        Ok(whole)
    }

    /// Makes a directory: first the content half on a server that is chosen by the name, then the
    /// access half where the name belongs.
    fn create_directory(
        &self,
        client: &mut Client,
        name: EntryName<'_>,
        new: &New,
    ) -> Result<Reply> {
        let chosen = name.hash() % self.servers.len() as u64;
        let home = self.server(ServerId(chosen as u32));
        let parent = self.server(self.home(name.directory)?).tablet.inode(name.directory)?;
        let inode = home.tablet.create_content_half(&parent, new)?;
        let hash = name.hash();
        let made = self.at(client, name.directory, hash, |server| {
            server.change(name.directory, hash, |tablet| tablet.create_access_half(name, &inode))
        });
        if let Err(error) = made {
            home.tablet.remove_content_half(inode.id)?;
            return Err(error);
        }
        self.note(client, name.directory, hash, 1)?;
        Ok(Reply::Inode(inode))
    }

    /// Returns entries of one partition behind a cookie, at least one unless there are none in all
    /// that follow.
    fn list(&self, client: &mut Client, mut page: Page<'_>) -> Result<Reply> {
        loop {
            let (directory, hash) = (page.directory, hash_after(page.after));
            let list = Operation::Read(Moment::Now, Read::List(page));
            let (reply, end) = self.at(client, directory, hash, |server| {
                loop {
                    let before = server.tablet.range().around(directory, hash);
                    let reply = server.execute(&list)?;
                    if let Some(range) = before.clone()
                        && server.tablet.range().around(directory, hash) == before
                    {
                        return Ok((reply, *range.end()));
                    }
                }
            })?;
            let Reply::Entries(entries) = reply else { return Ok(reply) };
            match end.checked_add(1) {
                Some(next) if entries.count() == 0 => {
                    page = Page { after: cookie_before(next), name: None, ..page };
                }
                _ => return Ok(Reply::Entries(entries)),
            }
        }
    }

    /// Counts an entry, and splits its partition if it has too many.
    fn note(&self, client: &mut Client, directory: FileId, hash: u64, by: i64) -> Result<()> {
        let counted =
            self.at(client, directory, hash, |server| server.count(directory, hash, by))?;
        let Some((history, count)) = counted else { return Ok(()) };
        if by > 0 && count > self.policy.threshold(directory.0, history.partition()) {
            // The entry is there, whatever becomes of the split. The next entry tries again.
            match self.split(directory, history.partition(), &mut |_: Step| true) {
                Ok(_) | Err(Error::Stopped(_)) => {}
                Err(error) => *self.failure.lock() = Some(error),
            }
        }
        Ok(())
    }

    /// Splits a partition of a directory, if there is a server for its upper half. Returns whether it
    /// did.
    ///
    /// # Errors
    ///
    /// Fails with `Stopped` if the hand-over did not come to its end, and as the tablets do.
    pub fn split(
        &self,
        directory: FileId,
        partition: PartitionId,
        steps: &mut dyn Steps,
    ) -> Result<bool> {
        let placement = self.placement(directory)?;
        let giver = self.server(placement.server(partition));
        let history = giver.holdings(directory)?.history(partition);
        let Some(history) = history else { return Ok(false) };
        let split = self.policy.child(&placement, history, self.servers.len() as u32);
        let Some(Split { child, moves }) = split else { return Ok(false) };
        if !moves {
            return giver.record(directory, |holdings| holdings.split(partition).is_some());
        }
        let receiver = self.server(placement.server(child));
        let epoch = giver.epoch();
        let number = self.attempts.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt { epoch, number };
        HandOver { giver, receiver, directory, child, attempt }.run(steps)?;
        Ok(true)
    }

    /// Returns the partitions of a directory, by the word of all servers.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn partitions(&self, directory: FileId) -> Result<Vec<(ServerId, SplitHistory)>> {
        let mut found = Vec::new();
        for server in &self.servers {
            let histories = server.histories(directory)?;
            found.extend(histories.into_iter().map(|history| (server.id, history)));
        }
        Ok(found)
    }

    /// Makes everything so far outlast a crash.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn sync(&self) -> Result<()> {
        for server in &self.servers {
            server.tablet.flush_pending()?;
            server.tablet.table().sync()?;
        }
        Ok(())
    }

    /// Returns the last failure of a split that an entry has caused, once.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Returns whether no hand-over is unfinished.
    ///
    /// # Errors
    ///
    /// Fails as the tables do.
    pub fn is_at_rest(&self) -> Result<bool> {
        for server in &self.servers {
            if !is_at_rest(server)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn server(&self, id: ServerId) -> &Server {
        &self.servers[id.0 as usize % self.servers.len()]
    }

    /// Returns where the partitions of a directory are.
    fn placement(&self, directory: FileId) -> Result<Placement> {
        let first = self.home(directory)?;
        let each = self.policy.partitions_per_server.max(1);
        let placement = Placement::new(first, self.servers.len() as u32, each);
        placement.ok_or_else(|| {
            canopy_namespace::Error::Corrupt("the server of a directory".into()).into()
        })
    }

    /// Returns the server whose table has given out an id.
    fn home(&self, id: FileId) -> Result<ServerId> {
        if id == ROOT {
            return Ok(ServerId(0));
        }
        let block = id.block();
        if let Some(home) = self.homes.lock().get(&block.0) {
            return Ok(*home);
        }
        let table = table_of_block(&*self.environment.storage, block)?;
        let number = table.and_then(|table| self.tables.iter().position(|one| *one == table));
        let Some(number) = number else {
            return Err(canopy_namespace::Error::from(Errno::NOENT).into());
        };
        let home = ServerId(number as u32);
        self.homes.lock().insert(block.0, home);
        Ok(home)
    }
}
