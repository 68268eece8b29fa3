//! Files that a client holds: counts, tickets, and holding them again where a server has lost that.
//!
//! A server knows whether the session holds a file; the count is here. The last release of a file is
//! sent once all holds have ended that began before: one of them may be of this file.
//!
//! Where a thread renews the session, releases wait for it, or until there are [`RELEASES`]. So forgetting
//! many files costs few messages, and nobody waits for them.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::holds::APART;
use crate::message::{Life, Request, Response};
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::operation::{Caller, Change, Hold, Operation, Target, program};
use canopy_namespace::{EntryName, FileId, Inode, Reply};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Time between two renewals, which is well below the time that servers wait for them.
const RENEWAL: Duration = Duration::from_secs(1);

/// Time after which files that were removed are released: their room may be used then.
const REMOVALS: Duration = Duration::from_millis(50);

/// Time without an answer of a server after which it may have forgotten the session: nine tenths of
/// its lease.
const HEARD: Duration = Duration::from_secs(9);
/// Servers at which a session is renewed at once.
const RENEWERS: usize = 16;

/// Files that are held again by one request.
const RECLAIMED: usize = 8192;

/// Time within which a kernel forgets a file that it has removed and that no program has open.
const FORGETTING: Duration = Duration::from_millis(50);

/// Number of releases that are sent at once if they may wait.
const RELEASES: usize = 1024;

/// Files that a client holds.
#[derive(Default)]
pub(crate) struct ClientHolds(Mutex<State>);

#[derive(Default)]
struct State {
    /// The last ticket.
    ticket: u64,
    /// Tickets of holds that have not ended.
    pending: BTreeSet<u64>,
    files: HashMap<FileId, HeldFile>,
    /// How many of them this client has taken a name of away.
    removed: usize,
    /// Files to be released.
    leaving: Vec<Leaving>,
    /// Whether one of them was removed: others wait for its room.
    leaves_removed: bool,
    /// Whether releases may wait, since a thread sends them.
    gathers: bool,
    /// Lives of the session at servers, by which its holds there count.
    lives: HashMap<ServerId, Life>,
    /// Moments at which requests were sent that servers have answered.
    heard: HashMap<ServerId, Instant>,
    /// Files that were handed over, as a server has said, until it knows that this is known.
    moved: HashMap<ServerId, Vec<FileId>>,
    /// Returns whether a program has a file open. All held files are in use if this is none.
    is_open: Option<IsOpen>,
}

impl State {
    fn forget(&mut self, id: FileId) {
        let forgotten = self.files.remove(&id);
        self.removed -= usize::from(forgotten.is_some_and(|file| file.is_removed));
    }
}

/// Returns whether a program has a file open.
pub(crate) type IsOpen = Box<dyn Fn(FileId) -> bool + Send + Sync>;

/// A file that is held no more.
struct Leaving {
    id: FileId,
    /// The last ticket of that moment.
    ticket: u64,
    /// The server that has the hold, as far as it is known.
    server: ServerId,
}

struct HeldFile {
    count: u64,
    server: ServerId,
    /// Whether this client has taken a name of it away.
    is_removed: bool,
}

/// A hold that is under way. It has ended when this is dropped.
struct Pending<'a> {
    held: &'a ClientHolds,
    ticket: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.held.0.lock().pending.remove(&self.ticket);
    }
}

impl ClientHolds {
    fn begin(&self) -> Pending<'_> {
        let mut state = self.0.lock();
        state.ticket += 1;
        let ticket = state.ticket;
        state.pending.insert(ticket);
        Pending { held: self, ticket }
    }

    /// Counts a hold. Returns whether the server has lost earlier ones.
    fn count(&self, id: FileId, server: ServerId, life: Life) -> bool {
        let mut state = self.0.lock();
        let file =
            state.files.entry(id).or_insert(HeldFile { count: 0, server, is_removed: false });
        file.count += 1;
        file.server = server;
        *state.lives.entry(server).or_insert(life) != life
    }

    /// Counts one more hold of a file that is held. Returns whether it is.
    fn hold_again(&self, id: FileId) -> bool {
        let mut state = self.0.lock();
        let file = state.files.get_mut(&id);
        file.map(|file| file.count += 1).is_some()
    }

    /// Takes holds back.
    fn uncount(&self, id: FileId, times: u64) {
        let mut state = self.0.lock();
        let Some(file) = state.files.get_mut(&id) else { return };
        file.count = file.count.saturating_sub(times);
        if file.count == 0 {
            let (server, is_removed) = (file.server, file.is_removed);
            state.leaves_removed |= is_removed;
            state.forget(id);
            let ticket = state.ticket;
            state.leaving.push(Leaving { id, ticket, server });
        }
    }

    /// Sets how the client knows that a file is in use.
    pub(crate) fn use_while_open(&self, is_open: IsOpen) {
        self.0.lock().is_open = Some(is_open);
    }

    /// Lets files without a name go that no program has open. They may still be counted.
    fn leave_unused(&self, nameless: &[FileId]) {
        let mut state = self.0.lock();
        let State { files, leaving, is_open, ticket, .. } = &mut *state;
        let Some(is_open) = is_open else { return };
        // A kernel forgets a file that it has removed itself once no program has it open, and only it
        // knows of open pipes and devices.
        let is_removed = |id| files.get(&id).is_some_and(|file: &HeldFile| file.is_removed);
        let unused = nameless.iter().copied().filter(|id| !is_removed(*id) && !is_open(*id));
        for id in Vec::from_iter(unused) {
            if let Some(HeldFile { server, .. }) = files.remove(&id) {
                leaving.push(Leaving { id, ticket: *ticket, server });
            }
        }
    }

    /// Notes that this client has taken a name of a file away.
    pub(crate) fn note_removal(&self, id: FileId) {
        let mut state = self.0.lock();
        if let Some(file) = state.files.get_mut(&id)
            && !std::mem::replace(&mut file.is_removed, true)
        {
            state.removed += 1;
        }
    }

    /// Returns files that can be released now, with the tickets. Those that are held again stay.
    fn take_leaving(&self) -> Vec<Leaving> {
        let mut state = self.0.lock();
        state.leaves_removed = false;
        let State { pending, files, leaving, .. } = &mut *state;
        let oldest = pending.first().copied().unwrap_or(u64::MAX);
        let due = leaving.extract_if(.., |one| one.ticket < oldest);
        due.filter(|one| !files.contains_key(&one.id)).collect()
    }

    /// Returns whether a file that was removed is to be released.
    fn leaves_removed(&self) -> bool {
        self.0.lock().leaves_removed
    }

    /// Returns whether releases have to be sent now.
    fn is_release_due(&self) -> bool {
        let state = self.0.lock();
        !state.gathers || state.leaving.len() >= RELEASES
    }

    /// Returns the number of a request about locks.
    pub(crate) fn next_ticket(&self) -> u64 {
        let mut state = self.0.lock();
        state.ticket += 1;
        state.ticket
    }

    /// Notes that a server has answered a request that was sent at a moment.
    pub(crate) fn note_heard(&self, server: ServerId, sent: Instant) {
        let mut state = self.0.lock();
        let heard = state.heard.entry(server).or_insert(sent);
        *heard = (*heard).max(sent);
    }

    /// Returns whether a server may have given locks of this session to others, for want of requests.
    pub(crate) fn is_late(&self, server: ServerId) -> bool {
        self.0.lock().heard.get(&server).is_some_and(|heard| heard.elapsed() >= HEARD)
    }

    /// Returns the life of the session at a server, if it is known.
    pub(crate) fn life_at(&self, server: ServerId) -> Option<Life> {
        self.0.lock().lives.get(&server).copied()
    }

    /// Returns the server at which a file is held.
    pub(crate) fn server_of(&self, id: FileId) -> Option<ServerId> {
        self.0.lock().files.get(&id).map(|file| file.server)
    }

    fn of_server(&self, server: ServerId) -> Vec<FileId> {
        let state = self.0.lock();
        let here = state.files.iter().filter(|(_, file)| file.server == server);
        here.map(|(id, _)| *id).collect()
    }
}

impl Client {
    /// Executes an operation that holds a file, or lets it go.
    pub(crate) fn hold(&self, caller: Caller<'_>, hold: &Hold<'_>) -> Result<Reply> {
        let reply = match hold {
            Hold::Name(name) => self.hold_name(caller, *name).map(Reply::Inode),
            Hold::File(id) => {
                let pending = self.held.begin();
                self.hold_file(caller, *id, &pending).map(|()| Reply::Done)
            }
            Hold::Release(id, times) => {
                self.held.uncount(*id, *times);
                if self.held.server_of(*id).is_none() {
                    self.locks.forget(*id);
                }
                Ok(Reply::Done)
            }
        };
        if self.held.is_release_due() {
            self.release_all(caller);
        }
        reply
    }

    fn hold_name(&self, caller: Caller<'_>, name: EntryName<'_>) -> Result<Inode> {
        let hash = name.hash();
        loop {
            let since = self.now();
            let pending = self.held.begin();
            let request = Request::Hold(Hold::Name(name), pending.ticket);
            let (response, server) = self.at_server(caller, name.directory, hash, &request)?;
            let Response::Held(Reply::Inode(inode), life) = response else {
                return Err(Error::Unfit);
            };
            if !inode.has(APART) {
                self.remember(inode.id, name.directory, hash);
                self.count(caller, inode.id, server, life);
                return Ok(inode);
            }
            match self.hold_apart(caller, inode, &pending) {
                // It has gone, or another file has the name.
                Err(error) if error.is_missing() => {}
                Ok(inode) => {
                    if inode.is_directory() {
                        self.note_name(inode.id, name, since);
                    }
                    return Ok(inode);
                }
                failed => return failed,
            }
        }
    }

    /// Holds a file whose inode lies apart from its name, and returns it. A directory that is held does
    /// not have to be held at its home again.
    fn hold_apart(&self, caller: Caller<'_>, inode: Inode, pending: &Pending<'_>) -> Result<Inode> {
        let id = inode.id;
        if !inode.is_directory() || !self.held.hold_again(id) {
            self.hold_file(caller, id, pending)?;
        }
        let found = match inode.has(flag::LINKED) {
            true => self.linked(caller, id),
            false => self.whole(caller, inode).map(Some),
        };
        let found = found.and_then(|found| {
            found.ok_or_else(|| canopy_namespace::Error::from(Errno::NOENT).into())
        });
        found.inspect_err(|_| self.held.uncount(id, 1))
    }

    fn hold_file(&self, caller: Caller<'_>, id: FileId, pending: &Pending<'_>) -> Result<()> {
        let request = Request::Hold(Hold::File(id), pending.ticket);
        let (response, server) = self.ask_for_id_with_server(caller, id, &request)?;
        let Response::Held(_, life) = response else { return Err(Error::Unfit) };
        self.count(caller, id, server, life);
        Ok(())
    }

    fn count(&self, caller: Caller<'_>, id: FileId, server: ServerId, life: Life) {
        if self.held.count(id, server, life) {
            // The next renewal tries again where this fails.
            let _ = self.reclaim(caller, server);
        }
    }

    /// Makes a file that is held.
    pub(crate) fn make_held(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        change: &Change<'_>,
    ) -> Result<Reply> {
        let pending = self.held.begin();
        let reply = self.make_pending(caller, operation, change, &pending);
        drop(pending);
        if self.held.is_release_due() {
            self.release_all(caller);
        }
        reply
    }

    fn make_pending(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        change: &Change<'_>,
        pending: &Pending<'_>,
    ) -> Result<Reply> {
        if let Change::Create { name, new, .. } = change
            && new.mode & TYPE_MASK == file_type::DIRECTORY
        {
            // A directory is held at its home.
            let new = Cow::Borrowed(&**new);
            let create = Operation::Change(Change::Create { name: *name, new, holds: false });
            let reply = self.execute_for(caller, &create)?;
            let Reply::Inode(inode) = &reply else { return Err(Error::Unfit) };
            self.hold_file(caller, inode.id, pending)?;
            return Ok(reply);
        }
        let request = Request::Execute(operation.clone());
        let target = operation.target();
        let (response, server) = match target {
            Target::Name { directory, hash } => {
                self.at_server(caller, directory, hash, &request)?
            }
            Target::File(id) => self.ask_for_id_with_server(caller, id, &request)?,
            Target::Anywhere => return Err(Error::Unfit),
        };
        let Response::Held(Reply::Inode(inode), life) = response else { return Err(Error::Unfit) };
        if let Target::Name { directory, hash } = target {
            self.remember(inode.id, directory, hash);
        }
        self.count(caller, inode.id, server, life);
        Ok(Reply::Inode(inode))
    }

    /// Sends the releases that wait for others, and waits for a moment for those of files whose names
    /// this client has removed: a kernel lets them go a little later. Returns whether any were sent.
    /// `until` is the end of that moment, if it has begun.
    pub(crate) fn frees_removed(&self, caller: Caller<'_>, until: &mut Option<Duration>) -> bool {
        let until = *until.get_or_insert_with(|| self.now() + FORGETTING);
        loop {
            let (is_due, may_come) = {
                let state = self.held.0.lock();
                (!state.leaving.is_empty(), state.removed > 0)
            };
            if is_due {
                self.release_all(caller);
            }
            if is_due || !may_come || self.now() >= until {
                return is_due && self.now() < until;
            }
            self.pause(FORGETTING / 16);
        }
    }

    /// Sends the releases that wait for no hold any more.
    fn release_all(&self, caller: Caller<'_>) {
        // They are of all programs.
        let _work = program::work_for_nobody();
        let mut servers: BTreeMap<ServerId, Vec<Leaving>> = BTreeMap::new();
        for one in self.held.take_leaving() {
            servers.entry(one.server).or_default().push(one);
        }
        for (server, mut left) in servers {
            while !left.is_empty() {
                let rest = left.split_off(left.len().min(RECLAIMED));
                self.release_at(caller, server, left);
                left = rest;
            }
        }
    }

    /// Lets files go that a server is believed to have.
    fn release_at(&self, caller: Caller<'_>, server: ServerId, files: Vec<Leaving>) {
        let request = Request::Release(files.iter().map(|one| (one.id, one.ticket)).collect());
        let absent = match self.ask_briefly(caller, server, &request) {
            Ok(Response::Reclaimed(absent, _)) => absent,
            // The next renewal tries it again.
            Err(error) if error.is_passing() => {
                return self.held.0.lock().leaving.extend(files);
            }
            Ok(_) | Err(_) => return,
        };
        for one in files.into_iter().filter(|one| absent.contains(&one.id)) {
            let request = Request::Hold(Hold::Release(one.id, 1), one.ticket);
            match self.ask_for_id_with_server(caller, one.id, &request) {
                Err(error) if error.is_passing() => self.held.0.lock().leaving.push(one),
                // A file that has gone is held no longer.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Renews the session where it holds files, and holds those again that servers have lost. A
    /// server that does not answer is asked by the next call.
    pub fn renew(&self, caller: Caller<'_>) {
        let servers: BTreeSet<ServerId> =
            self.held.0.lock().files.values().map(|file| file.server).collect();
        // A server that does not answer must not cost the session what it holds at others.
        let next = Mutex::new(servers.iter().copied());
        let renew = || {
            loop {
                let Some(server) = next.lock().next() else { return };
                let _ = self.renew_at(caller, server);
                self.restore_locks();
            }
        };
        match servers.len() {
            0 | 1 => renew(),
            _ if !self.has_threads() => renew(),
            count => thread::scope(|scope| {
                (0..count.min(RENEWERS)).for_each(|_| _ = scope.spawn(renew));
            }),
        }
        self.release_all(caller);
    }

    /// Renews the session at a server.
    pub(crate) fn renew_at(&self, caller: Caller<'_>, server: ServerId) -> Result<()> {
        let known = self.held.0.lock().moved.remove(&server).unwrap_or_default();
        let sent = Instant::now();
        let renewed = self.ask_briefly(caller, server, &Request::Renew(known))?;
        let Response::Renewed(life, moved, nameless) = renewed else { return Err(Error::Unfit) };
        self.held.leave_unused(&nameless);
        if *self.held.0.lock().lives.entry(server).or_insert(life) != life {
            self.reclaim(caller, server)?;
        }
        self.held.note_heard(server, sent);
        for id in &moved {
            self.find_held(caller, *id);
        }
        if !moved.is_empty() {
            self.held.0.lock().moved.insert(server, moved);
        }
        Ok(())
    }

    /// Returns whether files are held at a server.
    pub(crate) fn holds_at(&self, server: ServerId) -> bool {
        self.held.0.lock().files.values().any(|file| file.server == server)
    }

    /// Holds a file again at a server that does not know that it is held, or where it is now.
    pub(crate) fn hold_again(&self, server: ServerId, id: FileId) -> Result<()> {
        if self.held.server_of(id).is_none() {
            return Err(canopy_namespace::Error::from(Errno::BADF).into());
        }
        self.renew_at(Caller::Trusted, server)?;
        self.find_held(Caller::Trusted, id);
        Ok(())
    }

    /// Holds again what was held at a server that has lost it.
    fn reclaim(&self, caller: Caller<'_>, server: ServerId) -> Result<()> {
        let pending = self.held.begin();
        let files = self.held.of_server(server);
        if self.held.is_late(server) {
            self.locks.lose(&files);
        }
        self.locks.doubt(&files);
        for files in files.chunks(RECLAIMED) {
            let request = Request::Reclaim(files.to_vec(), pending.ticket);
            let reclaimed = self.ask_once(caller, server, &request)?;
            let Response::Reclaimed(absent, life) = reclaimed else { return Err(Error::Unfit) };
            self.held.0.lock().lives.insert(server, life);
            for id in absent {
                self.find_held(caller, id);
            }
        }
        Ok(())
    }

    /// Holds a file where it is now. One that has gone is held no longer.
    fn find_held(&self, caller: Caller<'_>, id: FileId) {
        let pending = self.held.begin();
        if !self.held.0.lock().files.contains_key(&id) {
            return;
        }
        self.locks.doubt(&[id]);
        let request = Request::Hold(Hold::File(id), pending.ticket);
        let found = self.ask_for_id_with_server(caller, id, &request);
        let mut state = self.held.0.lock();
        match found {
            Ok((Response::Held(_, life), server)) => {
                state.lives.entry(server).or_insert(life);
                match state.files.get_mut(&id) {
                    Some(file) => file.server = server,
                    // It was released meanwhile.
                    None => state.leaving.push(Leaving { id, ticket: pending.ticket, server }),
                }
            }
            Err(error) if error.is_missing() => state.forget(id),
            _ => {}
        }
    }

    /// Has a thread renew the session from now on, until the client is dropped.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no thread.
    pub fn keep_renewed(self: &Arc<Self>) -> Result<()> {
        self.held.0.lock().gathers = true;
        self.locks.start(self);
        let client = Arc::downgrade(self);
        let run = move || {
            let mut renewed = Instant::now();
            loop {
                thread::sleep(REMOVALS);
                let Some(client) = client.upgrade() else { return };
                if renewed.elapsed() >= RENEWAL {
                    client.renew(Caller::Trusted);
                    renewed = Instant::now();
                } else if client.held.leaves_removed() {
                    client.release_all(Caller::Trusted);
                }
            }
        };
        let spawned = thread::Builder::new().name("cluster-renewal".into()).spawn(run);
        let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
        Ok(spawned.map(|_| ()).map_err(io)?)
    }
}

impl Error {
    fn is_missing(&self) -> bool {
        matches!(self, Error::Namespace(error) if error.errno() == Errno::NOENT)
    }
}
