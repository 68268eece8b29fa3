//! Answers of a logical server: it executes what one server can, and asks others where an operation
//! concerns them, too.

use crate::error::{Error, Result};
use crate::handover;
use crate::holds::makes_held;
use crate::intents::Waits;
use crate::message::{MoveStep, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::operation::{Caller, Change, Hold, Moment, Operation, Page, Read, Target};
use canopy_namespace::{
    ChangeId, DirectoryHalf, EntryName, FileId, HalfState, Inode, New, Reply, hash_after,
};
use canopy_partition::{DirectoryMap, ServerId};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeSet;

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
    /// Fails with `Elsewhere` if another server has to answer, and as the operation does.
    pub(crate) fn answer(
        &self,
        peers: &dyn Peers,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Answered> {
        // A request between servers is not a change of the session.
        let _running = ChangeId::begin(None);
        // A change notes its session when it begins.
        if sender.change().is_none() {
            self.sessions.note(sender.session);
        }
        let mut waits = Waits::new();
        loop {
            self.clear(peers, request)?;
            match self.answer_once(peers, sender, request) {
                // The server may have been given the names, and not know it yet.
                Err(Error::Elsewhere { target, .. }) if self.learn_of_offers(peers, target)? => {}
                Err(Error::InDoubt(intent)) => self.wait_out(peers, intent, &mut waits)?,
                answered => return answered,
            }
        }
    }

    fn answer_once(
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
                    false => self.execute_any(peers, caller, operation),
                };
                match self.execute_once(sender, operation, execute) {
                    Ok((reply, is_first)) => {
                        self.complete_again(peers, sender, operation, &reply, is_first)?;
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
            Request::Renew(known) => self.renew(session, known),
            Request::EndSession => self.end_session(session).map(|()| Response::Done(true)),
            Request::List(page) => self.list_partition(caller, *page),
            Request::Part(id) => self.part(*id),
            Request::NameOf(id) => self.name_of(caller, *id),
            // The process does this.
            Request::Split(..) => Err(Error::Unfit),
            Request::HomeOf(id) => self.layout.home(*id).map(Response::HomeOf),
        };
        response.map(|response| Answered { response, is_first: true })
    }

    /// Does what belongs to a change that was executed before, and that its record does not contain:
    /// holding what it made, and waiting until all that need it know attributes of a directory.
    fn complete_again(
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
        let _one = self.attributes.lock();
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
        let directories = directory.map_or_else(|| self.directories(), |directory| vec![directory]);
        let mut holds_more = false;
        for directory in directories {
            holds_more |= handover::ask(self, peers, directory)?;
        }
        Ok(holds_more)
    }

    fn execute_any(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        operation: &Operation<'_>,
    ) -> Result<Reply> {
        match operation {
            Operation::Change(change) => self.change_any(peers, caller, operation, change),
            Operation::Hold(Hold::Name(_) | Hold::File(_) | Hold::Release(..)) => {
                Err(Error::NotYet("holding a file without a session".into()))
            }
            Operation::Read(Moment::Snapshot(_), _) => Err(Error::NotYet("a snapshot".into())),
            _ => self.execute(caller, operation),
        }
    }

    fn change_any(
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
                true => self.change_directory(peers, caller, *id, operation),
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
        let hash = name.hash();
        let plan =
            self.change(name.directory, hash, |tablet| tablet.plan_directory(caller, name, new))?;
        let home = self.layout.home_for_new(name);
        let running = self.making.begin(self.next_attempt());
        let make = ServerRequest::MakeDirectory(Cow::Borrowed(&plan), self.id, running.attempt);
        let made = peers.ask(home, Sender::SERVER, &Request::OfServer(make))?;
        let Response::Made(inode) = made else { return Err(Error::Unfit) };
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
            let (target, histories) = (Target::File(id), Vec::new());
            return Err(Error::Elsewhere { target, histories, changes: 0 });
        }
        let _one = self.attributes.lock();
        let (is_split, changed) = self.with_directory(id, |is_split| {
            let version = self.tablet.half_state(id)?.version + 1;
            self.tablet.put_half_state(id, HalfState { version, is_pending: is_split })?;
            Ok((is_split, self.tablet.execute_for(caller, operation)))
        })?;
        if is_split {
            self.push_attributes(peers, id)?;
        }
        Ok(changed?)
    }

    /// Gives all servers with partitions of a directory its attributes. Each replies with the
    /// partitions that it knows, and with the one that it is giving away, as the receiver may have got
    /// older attributes. So all of them are found, whatever splits meanwhile: a partition that begins
    /// to move after the reply takes the new attributes along.
    pub(crate) fn push_attributes(&self, peers: &dyn Peers, id: FileId) -> Result<()> {
        let half = self.tablet.directory_half(id)?;
        let state = HalfState { version: half.version, is_pending: false };
        let set = Request::OfServer(ServerRequest::SetHalf(Cow::Owned(half)));
        let placement = self.layout.placement(id)?;
        let (mut map, mut asked) = (DirectoryMap::default(), BTreeSet::from([self.id]));
        self.known_partitions(id)?.into_iter().for_each(|history| map.learn(history));
        loop {
            let unasked = |server: &ServerId| !asked.contains(server);
            let next = map.partitions().map(|partition| placement.server(partition)).find(unasked);
            let Some(server) = next else { break };
            asked.insert(server);
            match peers.ask(server, Sender::SERVER, &set)? {
                Response::Part(_, known) => known.into_iter().for_each(|one| map.learn(one)),
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

    fn part(&self, id: FileId) -> Result<Response> {
        let histories = self.histories(id)?;
        let is_home = self.layout.home(id)? == self.id;
        let inode = match self.tablet.inode(id) {
            Ok(inode) => Some(inode),
            Err(error) if error.errno() == Errno::NOENT => None,
            Err(error) => return Err(error.into()),
        };
        let inode = inode.filter(|inode| is_home || !histories.is_empty() && inode.is_directory());
        let whole = inode.map(|inode| Inode { flags: inode.flags & !flag::ACCESS_HALF, ..inode });
        Ok(Response::Part(whole, histories))
    }

    fn name_of(&self, caller: Caller<'_>, id: FileId) -> Result<Response> {
        if caller.user().is_some_and(|who| !who.is_root()) {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        self.execute(Caller::Trusted, &Operation::Read(Moment::Now, Read::Inode(id)))?;
        Ok(Response::NameOf(self.tablet.names(id)?.into_iter().next()))
    }

    fn answer_server(&self, caller: Caller<'_>, request: &ServerRequest<'_>) -> Result<Response> {
        if caller.user().is_some() {
            return Err(canopy_namespace::Error::from(Errno::PERM).into());
        }
        match request {
            ServerRequest::MakeDirectory(new, server, attempt) => {
                self.make_directory(new, *server, *attempt)
            }
            ServerRequest::DropDirectory(id) => self.drop_directory(*id).map(done),
            ServerRequest::Named(ids) => self.finish_making(ids).map(done),
            ServerRequest::FateOf(id, attempt) => self.fate_of(*id, *attempt).map(Response::Fate),
            ServerRequest::SetHalf(half) => self.set_half(half),
            ServerRequest::EndSession(session) => {
                self.tablet.end_session(*session)?;
                Ok(Response::Done(true))
            }
            ServerRequest::HandOver(directory, child, attempt, step) => match step {
                MoveStep::Ask => self.answer_of(*directory, *child, *attempt).map(Response::Answer),
                step => handover::receive(self, *directory, *child, *attempt, step),
            },
            ServerRequest::Intent(intent, step) => {
                self.answer_intent(*intent, step).map(Response::Intent)
            }
        }
    }

    fn set_half(&self, half: &DirectoryHalf) -> Result<Response> {
        self.tablet.put_content_half(half)?;
        Ok(Response::Part(None, self.known_partitions(half.inode.id)?))
    }
}

fn done(_: ()) -> Response {
    Response::Done(true)
}
