//! Answers of a logical server: it executes what one server can, and asks others where an operation
//! concerns them, too.

use crate::brief;
use crate::error::{Error, Result};
use crate::handover;
use crate::holds::makes_held;
use crate::intents::Backoff;
use crate::leases::Recalled;
use crate::message::{HandOverMessage, Partitions, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::quotas::Obtaining;
use crate::server::Server;
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::operation::{
    Administration, Caller, Change, Hold, Moment, Operation, Page, Read, Target,
};
use canopy_namespace::{
    ChangeId, DirectoryHalf, EntryName, FileId, HalfState, Inode, New, Reply, hash_after,
};
use canopy_partition::{DirectoryMap, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Sessions that have ended in one answer.
pub(crate) const SESSIONS: usize = 8192;
/// A directory is planned anew so often while its parent gets other attributes.
const INHERIT_MAX: usize = 16;

/// An answer to a request that succeeded.
pub(crate) struct Answered {
    pub(crate) response: Response,
    /// Whether it was executed now, and not before.
    pub(crate) is_first: bool,
}

impl Server {
    /// Answers a request.
    ///
    /// # Errors
    ///
    /// Fails with `WrongServer` if another server has to answer, and as the operation does. Unless it
    /// `may_wait`, fails with `WouldWait` if it has to.
    pub(crate) fn answer(
        &self,
        peers: &dyn Peers,
        sender: Sender<'_>,
        request: &Request<'_>,
        may_wait: bool,
    ) -> Result<Answered> {
        // A request between servers is not a change of the session.
        let _running = ChangeId::begin(None);
        let _executing = brief::execute(may_wait);
        self.sessions.note(sender.session);
        // Before the change begins: it may take a second, which snapshots do not wait for.
        let mut recalled = Recalled::new(self, peers, sender);
        recalled.recall(request)?;
        let is_change = matches!(request, Request::Execute(Operation::Change(_)));
        let _change = match (is_change, may_wait) {
            (false, _) => None,
            (true, true) => Some(self.cuts.begin_change(|| self.sessions.now())),
            (true, false) => Some(self.cuts.try_begin_change().ok_or(Error::WouldWait)?),
        };
        let (mut waits, mut obtaining) = (Backoff::new(), Obtaining::new());
        loop {
            self.clear(peers, request)?;
            recalled.recall(request)?;
            match self.dispatch(peers, sender, request) {
                // The server may have been given the names, and not know it yet.
                Err(Error::WrongServer { target, .. })
                    if self.learn_of_offers(peers, target)? => {}
                Err(Error::InDoubt(intent)) => self.wait_out(peers, intent, &mut waits)?,
                Err(error) => {
                    let (at, short) = self.shortage_of(error)?;
                    brief::check()?;
                    self.obtain(peers, at, &short, &mut obtaining)?;
                }
                answered => return answered,
            }
        }
    }

    pub(crate) fn dispatch(
        &self,
        peers: &dyn Peers,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Answered> {
        let Sender { caller, session, .. } = sender;
        let response = match request {
            Request::OfServer(request) => self.answer_server(caller, request),
            Request::Execute(operation) => {
                let is_held = makes_held(operation);
                let execute = || match is_held {
                    true => self.make_held(sender, operation),
                    false => self.execute_operation(peers, caller, operation),
                };
                match self.execute_once(sender, operation, execute) {
                    Ok((reply, is_first)) => {
                        self.finish_repeated(peers, sender, operation, &reply, is_first)?;
                        let response = match is_held {
                            true => Response::Held(reply, self.life(session)),
                            false => Response::Reply(reply),
                        };
                        return Ok(Answered { response, is_first });
                    }
                    Err(error) => Err(error),
                }
            }
            Request::Hold(hold, ticket) => self.answer_hold(sender, hold, *ticket),
            Request::Reclaim(ids, ticket) => self.reclaim(session, ids, *ticket),
            Request::Release(files) => self.release(session, files),
            Request::Renew(known) => self.renew(session, known),
            Request::EndSession => self.end_session(session).map(|()| Response::Done(true)),
            Request::List(page) => self.list_partition(caller, *page),
            Request::DirectoryAtServer(id) => self.part(*id),
            Request::LeaseDirectory(id) => self.lease_part(session, *id),
            Request::NameOf(id) => self.name_of(caller, *id),
            Request::Search(part) => self.search(peers, caller, part, None),
            Request::Arrivals(since) => Ok(self.arrivals(*since)),
            Request::Parents(id) => self.parents_of(caller, *id),
            // The process does this.
            Request::Split(..) | Request::Cut(_) | Request::Past(..) | Request::AwaitLocks => {
                Err(Error::Unfit)
            }
            Request::Servers => self.layout.refresh().map(Response::Servers),
            Request::PushAttributes(id) => self.push_again(peers, caller, *id),
            Request::HomeOf(id) => self.layout.home(*id).map(Response::HomeOf),
            Request::Share(request) => self.on_shares(peers, caller, request),
            Request::Lock(request) => self.answer_lock(sender, request),
        };
        response.map(|response| Answered { response, is_first: true })
    }

    /// Does what belongs to a change that was executed before, and that its record does not contain:
    /// holding what it made, and waiting until all that need it know attributes of a directory.
    fn finish_repeated(
        &self,
        peers: &dyn Peers,
        sender: Sender<'_>,
        operation: &Operation<'_>,
        reply: &Reply,
        is_first: bool,
    ) -> Result<()> {
        if is_first {
            return Ok(());
        }
        if makes_held(operation) {
            return self.hold_made(sender.session, reply);
        }
        let Target::File(id) = operation.target() else { return Ok(()) };
        brief::check()?;
        let _one = self.lock_attributes();
        match self.tablet.half_state(id)?.is_pending {
            true => self.push_attributes(peers, id),
            false => Ok(()),
        }
    }

    /// Asks givers about offers that concern a target. Returns whether the server holds more now.
    fn learn_of_offers(&self, peers: &dyn Peers, target: Target) -> Result<bool> {
        let directory = match target {
            Target::Name { directory, .. } => Some(directory),
            Target::File(_) => None,
            Target::Anywhere => return Ok(false),
        };
        if !self.has_offers(directory) {
            return Ok(false);
        }
        brief::check()?;
        let directories = directory.map_or_else(|| self.directories(), |directory| vec![directory]);
        let mut holds_more = false;
        for directory in directories {
            holds_more |= handover::ask(self, peers, directory)?;
        }
        Ok(holds_more)
    }

    fn execute_operation(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        match operation {
            Operation::Change(change) => self.execute_change(peers, caller, operation, change),
            Operation::Hold(Hold::Name(_) | Hold::File(_) | Hold::Release(..)) => {
                Err(Error::NotYet("holding a file without a session".into()))
            }
            Operation::Administration(
                one @ (Administration::Flush | Administration::SetIndexes(_)),
            ) => self.administer(caller, one),
            Operation::Explain(query, counts) => {
                self.explain(peers, caller, query, *counts).map(Reply::Plan)
            }
            Operation::Quotas(quotas) => self.on_quotas(peers, caller, quotas),
            Operation::Administration(Administration::Settings) => {
                Ok(Reply::Settings(self.tablet.settings()))
            }
            // Clients ask the server as it was.
            Operation::Read(Moment::Snapshot(_), _) => Err(Error::Unfit),
            _ => self.execute(caller, operation),
        }
    }

    fn execute_change(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        change: &Change<'_>,
    ) -> Result<Reply> {
        match change {
            Change::Create { name, new, .. } if new.mode & TYPE_MASK == file_type::DIRECTORY => {
                self.create_directory(peers, caller, *name, new)
            }
            Change::Rmdir(name) => self.rmdir(peers, caller, *name),
            Change::Link { id, name } => self.link(peers, caller, *id, *name),
            Change::Unlink(name) => self.unlink(peers, caller, *name),
            Change::Rename { .. } => self.rename(peers, caller, change),
            Change::SetAttributes { id, .. }
            | Change::SetXattr { id, .. }
            | Change::RemoveXattr { id, .. } => match self.has_directory(*id)? {
                true => {
                    brief::check()?;
                    self.change_directory(peers, caller, *id, operation)
                }
                false => self.execute(caller, operation),
            },
            _ => self.execute(caller, operation),
        }
    }

    /// Returns whether a file is a directory of which something is here.
    pub(crate) fn has_directory(&self, id: FileId) -> Result<bool> {
        match self.tablet.inode(id) {
            Ok(inode) => Ok(inode.is_directory()),
            Err(error) if error.errno() == Errno::NOENT => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes a directory under a name that this server holds: first the content half on a server
    /// that is chosen by the name, then the name.
    fn create_directory(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        name: EntryName<'_>,
        new: &New,
    ) -> Result<Reply> {
        for _ in 0..INHERIT_MAX {
            match self.try_to_create_directory(peers, caller, name, new) {
                // The directory above was counted to another tree meanwhile.
                Err(Error::Namespace(error)) if error.errno() == Errno::AGAIN => {}
                created => return created,
            }
        }
        Err(canopy_namespace::Error::from(Errno::AGAIN).into())
    }

    fn try_to_create_directory(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        name: EntryName<'_>,
        new: &New,
    ) -> Result<Reply> {
        let hash = name.hash();
        let plan =
            self.change(name.directory, hash, |tablet| tablet.plan_directory(caller, name, new))?;
        let home = self.layout.home_for_new(name);
        let running = self.making.begin(self.next_attempt());
        let make = ServerRequest::MakeDirectory(Cow::Borrowed(&plan), self.id, running.attempt);
        let made = peers.ask(home, Sender::SERVER, &Request::OfServer(make))?;
        let inode = match made {
            Response::Made(inode) => inode,
            Response::Short(short) => return Err(Error::Short(home, short)),
            _ => return Err(Error::Unfit),
        };
        let named = self
            .change(name.directory, hash, |tablet| tablet.create_access_half(caller, name, &inode));
        if let Err(error) = named {
            let drop = Request::OfServer(ServerRequest::DropDirectory(inode.id));
            // If this fails, too, the home asks later.
            let _ = peers.ask(home, Sender::SERVER, &drop);
            return Err(error);
        }
        self.making.name(inode.id);
        Ok(Reply::Inode(inode))
    }

    /// Changes attributes of a directory, on its home. All servers with partitions of it have them
    /// once this returns.
    fn change_directory(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        id: FileId,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        if self.layout.home(id)? != self.id {
            return Err(Error::WrongServer {
                target: Target::File(id),
                partitions: Partitions::default(),
                changes: 0,
                servers: self.layout.server_count(),
            });
        }
        let change = || self.tablet.execute_for(caller, operation);
        self.change_half(peers, id, sets_times(operation), change)
    }

    /// Changes attributes of a directory whose home is here: also its times, or others alone.
    pub(crate) fn change_half<T>(
        &self,
        peers: &dyn Peers,
        id: FileId,
        sets_times: bool,
        change: impl FnOnce() -> canopy_namespace::Result<T>,
    ) -> Result<T> {
        let _one = self.lock_attributes();
        let (is_split, changed) = self.with_directory(id, |is_split| {
            let before = self.tablet.half_state(id)?;
            let version = before.version + 1;
            let times = if sets_times { version } else { before.times };
            let state = HalfState { version, is_pending: is_split, times };
            self.tablet.put_half_state(id, state)?;
            let changed = change();
            if changed.is_err() {
                self.tablet.put_half_state(id, HalfState { times: before.times, ..state })?;
            }
            Ok((is_split, changed))
        })?;
        if is_split {
            self.push_attributes(peers, id)?;
        }
        Ok(changed?)
    }

    /// Gives all servers the attributes of a directory whose home is here, as a newer version.
    fn push_again(&self, peers: &dyn Peers, caller: Caller<'_>, id: FileId) -> Result<Response> {
        if caller.user().is_some() {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        let _one = self.lock_attributes();
        let before = self.tablet.half_state(id)?;
        let version = before.version + 1;
        self.tablet.put_half_state(id, HalfState { version, is_pending: true, ..before })?;
        self.push_attributes(peers, id)?;
        Ok(Response::Done(true))
    }

    /// Gives all servers with partitions of a directory its attributes. Each replies with the
    /// partitions that it knows, and with the one that it is giving away, as the receiver may have got
    /// older attributes. So all of them are found, whatever splits meanwhile: a partition that begins
    /// to move after the reply takes the new attributes along.
    pub(crate) fn push_attributes(&self, peers: &dyn Peers, id: FileId) -> Result<()> {
        let half = self.tablet.directory_half(id)?;
        let DirectoryHalf { version, times, .. } = half;
        let state = HalfState { version, is_pending: false, times };
        let set = Request::OfServer(ServerRequest::SetHalf(Cow::Owned(half)));
        let (mut map, mut asked) = (DirectoryMap::default(), BTreeSet::from([self.id]));
        self.known_partitions(id)?.into_iter().for_each(|history| map.learn(history));
        // Without a placement, no other server has got a partition so far.
        let placement = self.placement(id);
        while let Some(placement) = placement {
            let unasked = |server: &ServerId| !asked.contains(server);
            let next = map.partitions().map(|partition| placement.server(partition)).find(unasked);
            let Some(server) = next else { break };
            asked.insert(server);
            match peers.ask(server, Sender::SERVER, &set)? {
                Response::DirectoryAtServer(_, known) => {
                    known.histories.into_iter().for_each(|one| map.learn(one));
                }
                _ => return Err(Error::Unfit),
            }
        }
        Ok(self.tablet.put_half_state(id, state)?)
    }

    /// Lists entries of the partition that holds a cookie's hash.
    fn list_partition(&self, caller: Caller<'_>, page: Page<'_>) -> Result<Response> {
        let (directory, hash) = (page.directory, hash_after(page.after));
        let list = Operation::Read(Moment::Now, Read::List(page));
        loop {
            let before = self.tablet.range().around(directory, hash);
            let reply = self.execute(caller, &list)?;
            if let Some(range) = before.clone()
                && self.tablet.range().around(directory, hash) == before
            {
                let Reply::Entries(entries) = reply else { return Err(Error::Unfit) };
                return Ok(Response::Listed(entries, *range.end()));
            }
        }
    }

    pub(crate) fn part(&self, id: FileId) -> Result<Response> {
        let is_home = self.layout.home(id)? == self.id;
        // A crash must not take back times that somebody has read.
        match self.tablet.flush_inode(id) {
            Err(error) if ![Errno::NOSPC, Errno::DQUOT].contains(&error.errno()) => {
                return Err(error.into());
            }
            _ => {}
        }
        // With the lock: a partition that goes to another server takes its count of directories along,
        // and the answer has to name that server.
        let state = self.state.read();
        let inode = match self.tablet.inode(id) {
            Ok(inode) => Some(inode),
            Err(error) if error.errno() == Errno::NOENT => None,
            Err(error) => return Err(error.into()),
        };
        let partitions = self.partitions_in(&state, id)?;
        drop(state);
        let is_further = |inode: &Inode| !partitions.histories.is_empty() && inode.is_directory();
        let inode = inode.filter(|inode| is_home || is_further(inode));
        let whole = inode.map(|inode| Inode { flags: inode.flags & !flag::ACCESS_HALF, ..inode });
        Ok(Response::DirectoryAtServer(whole, partitions))
    }

    fn name_of(&self, caller: Caller<'_>, id: FileId) -> Result<Response> {
        if caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        self.execute(Caller::Trusted, &Operation::Read(Moment::Now, Read::Inode(id)))?;
        Ok(Response::NameOf(self.tablet.names(id)?.into_iter().next()))
    }

    fn parents_of(&self, caller: Caller<'_>, id: FileId) -> Result<Response> {
        if caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        self.execute(Caller::Trusted, &Operation::Read(Moment::Now, Read::Inode(id)))?;
        let parents = self.tablet.names(id)?.into_iter().map(|(parent, _)| parent);
        Ok(Response::Files(parents.collect()))
    }

    fn answer_server(&self, caller: Caller<'_>, request: &ServerRequest<'_>) -> Result<Response> {
        if caller.user().is_some() {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        match request {
            ServerRequest::MakeDirectory(new, server, attempt) => {
                match self.make_directory(new, *server, *attempt) {
                    Err(Error::Namespace(canopy_namespace::Error::Short(short))) => {
                        Ok(Response::Short(short))
                    }
                    made => made,
                }
            }
            ServerRequest::DropDirectory(id) => self.drop_directory(*id).map(done),
            ServerRequest::Named(ids) => self.finish_making(ids).map(done),
            ServerRequest::Ancestor(id) => self.ancestor(*id),
            ServerRequest::DirectoryAtServer(id) => self.part(*id),
            ServerRequest::FateOf(id, attempt) => {
                self.fate_of(*id, *attempt).map(Response::MkdirVerdict)
            }
            ServerRequest::SetHalf(half) => self.set_half(half),
            ServerRequest::EndSession(session) => {
                self.tablet.end_session(*session)?;
                Ok(Response::Done(true))
            }
            ServerRequest::HandOver(directory, child, attempt, step) => match step {
                HandOverMessage::Ask => {
                    self.answer_of(*directory, *child, *attempt).map(Response::Answer)
                }
                step => handover::receive(self, *directory, *child, *attempt, step),
            },
            ServerRequest::EndedSessions(after) => {
                let sessions = self.tablet.ended_sessions(*after, SESSIONS)?;
                Ok(Response::Sessions(sessions, self.tablet.counts_usage()))
            }
            ServerRequest::Counts(directory) => self.counts_of(*directory).map(Response::Counts),
            // The process does these.
            ServerRequest::Tally | ServerRequest::Then(..) => Err(Error::Unfit),
            ServerRequest::BeginCheck
            | ServerRequest::Facts(..)
            | ServerRequest::Directories(_)
            | ServerRequest::FactsOf(..)
            | ServerRequest::Unfinished
            | ServerRequest::Mend(_)
            | ServerRequest::Adopt(..) => self.answer_check(request),
            ServerRequest::Intent(intent, step) => {
                self.answer_intent(*intent, step).map(Response::Intent)
            }
            ServerRequest::Cut(id, step) => self.answer_cut(*id, *step).map(Response::Cut),
            ServerRequest::Snapshots => {
                let (all, is_making) = self.snapshots.list();
                Ok(Response::Snapshots(all, is_making))
            }
            ServerRequest::Share(step) => self.answer_share(step).map(Response::Share),
            ServerRequest::SnapshotTables(number) => {
                Ok(Response::SnapshotTables(self.snapshots.tables(*number)))
            }
            ServerRequest::Recall(id, session) => Ok(self.answer_recall(*id, *session)),
            // Servers ask each other for names alone.
            ServerRequest::EndRecall(id, session) => {
                self.leases.release(*id, *session, Some(self.now()));
                Ok(Response::Done(true))
            }
            ServerRequest::DirectoryAt(name) => {
                let found = self.tablet.directory_under(name.borrowed())?;
                Ok(Response::Files(found.into_iter().collect()))
            }
        }
    }

    fn set_half(&self, half: &DirectoryHalf) -> Result<Response> {
        self.tablet.put_content_half(half)?;
        let histories = self.known_partitions(half.inode.id)?;
        Ok(Response::DirectoryAtServer(None, Partitions { histories, ..Partitions::default() }))
    }
}

/// Returns whether an operation sets times.
fn sets_times(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Change(Change::SetAttributes { set, .. }) => {
            set.mtime.is_some() || set.atime.is_some()
        }
        _ => false,
    }
}

fn done(_: ()) -> Response {
    Response::Done(true)
}
