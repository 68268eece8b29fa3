//! Answers of a logical server: it executes what one server can, and asks others where an operation
//! concerns them, too.

use crate::error::{Error, Result};
use crate::handover;
use crate::message::{MoveStep, Request, Response, Sender, ServerRequest};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::operation::{Caller, Change, Hold, Moment, Operation, Page, Read, Target};
use canopy_namespace::{
    DirectoryHalf, EntryName, FileId, HalfState, Inode, New, NewDirectory, Reply, hash_after,
};
use rustix::io::Errno;
use std::borrow::Cow;

/// A request begins again at most this often because of names in doubt, which takes some seconds.
const ROUNDS_MAX: u32 = 20_000;

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
    ) -> Result<Response> {
        let mut rounds = 0;
        loop {
            self.clear(peers, request)?;
            match self.answer_once(peers, sender.caller, request) {
                // The server may have been given the names, and not know it yet.
                Err(Error::Elsewhere { target, .. }) if self.learn_of_offers(peers, target)? => {}
                Err(Error::InDoubt(intent)) if rounds < ROUNDS_MAX => {
                    rounds += 1;
                    self.wait_out(peers, intent)?;
                }
                response => return response,
            }
        }
    }

    fn answer_once(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        request: &Request<'_>,
    ) -> Result<Response> {
        match request {
            Request::OfServer(request) => self.answer_server(caller, request),
            Request::Execute(operation) => {
                self.execute_any(peers, caller, operation).map(Response::Reply)
            }
            Request::List(page) => self.list_partition(caller, *page),
            Request::Part(id) => self.part(*id),
            Request::NameOf(id) => self.name_of(caller, *id),
            Request::HomeOf(id) => self.layout.home(*id).map(Response::HomeOf),
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
                Err(Error::NotYet("holding a file".into()))
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
            Change::Create { holds: true, .. } => Err(Error::NotYet("holding a file".into())),
            Change::Create { name, new, .. } if new.mode & TYPE_MASK == file_type::DIRECTORY => {
                self.create_directory(peers, caller, *name, new)
            }
            Change::Rmdir(_) => Err(Error::NotYet("the removal of a directory".into())),
            Change::Link { id, name } => self.link(peers, caller, *id, *name),
            Change::Unlink(name) => self.unlink(peers, caller, *name),
            Change::Rename { .. } => self.rename(peers, caller, change),
            Change::CreateNameless { .. } => Err(Error::NotYet("a file without a name".into())),
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
        let make = ServerRequest::MakeDirectory(Cow::Borrowed(&plan));
        let made = peers.ask(home, Sender::SERVER, &Request::OfServer(make))?;
        let Response::Made(inode) = made else { return Err(Error::Unfit) };
        let named = self
            .change(name.directory, hash, |tablet| tablet.create_access_half(caller, name, &inode));
        if let Err(error) = named {
            let drop = Request::OfServer(ServerRequest::DropDirectory(inode.id));
            // If this fails, too, nobody ever sees the half.
            let _ = peers.ask(home, Sender::SERVER, &drop);
            return Err(error);
        }
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

    /// Gives all servers that may have partitions of a directory its attributes.
    pub(crate) fn push_attributes(&self, peers: &dyn Peers, id: FileId) -> Result<()> {
        let half = self.tablet.directory_half(id)?;
        let state = HalfState { version: half.version, is_pending: false };
        let set = Request::OfServer(ServerRequest::SetHalf(Cow::Owned(half)));
        for server in self.layout.servers().filter(|server| *server != self.id) {
            peers.ask(server, Sender::SERVER, &set)?.done()?;
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
            ServerRequest::MakeDirectory(new) => self.make_directory(new),
            ServerRequest::DropDirectory(id) => {
                self.tablet.remove_content_half(*id)?;
                Ok(Response::Done(true))
            }
            ServerRequest::SetHalf(half) => self.set_half(half),
            ServerRequest::HandOver(directory, child, attempt, step) => match step {
                MoveStep::Ask => self.answer_of(*directory, *child, *attempt).map(Response::Answer),
                step => handover::receive(self, *directory, *child, *attempt, step),
            },
            ServerRequest::Intent(intent, step) => {
                self.answer_intent(*intent, step).map(Response::Intent)
            }
        }
    }

    fn make_directory(&self, new: &NewDirectory) -> Result<Response> {
        Ok(Response::Made(self.tablet.create_content_half(new)?))
    }

    fn set_half(&self, half: &DirectoryHalf) -> Result<Response> {
        self.tablet.put_content_half(half)?;
        Ok(Response::Done(true))
    }
}
