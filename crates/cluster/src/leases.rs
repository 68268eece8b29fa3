//! Leases of directories: how long clients may remember the access half of a directory, and its name.
//!
//! The home of a directory grants a lease to a session with its attributes
//! ([`Request::LeaseDirectory`]), for [`TERM`]. A change of these attributes, or of the directory's name, first *recalls* the leases
//! of all other sessions: the home grants them no more, and the change waits until those end that it
//! has granted. The server of a name asks the home for this ([`ServerRequest::Recall`]), and waits
//! itself, since servers do not wait for each other.
//!
//! **No client uses an old access half or an old name once a change of it was acknowledged**, as long as
//! clocks run at the same speed within a tenth, and the home has one owner meanwhile:
//!
//! 1. A client uses a lease for four fifths of its term, from before it asked for it. The change waits
//!    for the whole term, from when it was granted. So the lease ends before the change begins. A
//!    kernel that caches what the client replies has a tenth of the term to take the reply.
//! 2. A lease that is asked for after the recall is refused until the change has ended, or for [`BLOCK`]
//!    if nobody says so. That is longer than a change runs: one that is tried again recalls again. A
//!    home that has a part of the change refuses leases as long as it has it. After a change of the name
//!    it refuses them for a term more.
//! 3. A client first looks a name up, and then asks the home for the lease. It does not remember a name
//!    if that took [`TERM`] or longer. So it has no lease for a name that it has looked up before a change
//!    of that name ended: it would have been granted within a term after that.
//! 4. The session that changes something keeps its lease: its client forgets what it changes.
//!
//! Leases are in memory alone. In the first term of a server that was started, changes wait for leases
//! that its predecessor may have granted. The home of a directory whose name changes takes part in that
//! change. If it gets another owner between the recall and that part, a client may use the old name for
//! up to a term.
//!
//! Clocks decide only how old cached permissions and names can be. Servers check and execute each
//! operation by their own records, whatever a client remembers: a stale name leads to the directory
//! that had it, or to one that is gone.
//!
//! Times and counts of a directory change with each name in it. Leases do not cover them: clients see
//! changes of others once their lease has ended.
//!
//! [`Request::LeaseDirectory`]: crate::message::Request::LeaseDirectory
//! [`ServerRequest::Recall`]: crate::message::ServerRequest::Recall

use crate::brief;
use crate::error::{Error, Result};
use crate::intents::LockKey;
use crate::message::{Request, Response, Sender, ServerRequest, SessionId};
use crate::peers::Peers;
use crate::server::Server;
use canopy_namespace::inode::flag;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, FileId, Inode, OwnedName, RenameMode, acl};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// Time for which a lease is granted.
pub(crate) const TERM: Duration = Duration::from_secs(1);

/// Time for which a client uses a lease.
pub(crate) const USED: Duration = Duration::from_millis(800);

/// Time after a recall in which no leases are granted: longer than a change waits for others.
const BLOCK: Duration = Duration::from_secs(12);

/// Directories with leases at a server, and leases of one of them.
const DIRECTORIES: usize = 1 << 16;
const SESSIONS: usize = 1 << 12;

/// Leases that a server has granted.
#[derive(Default)]
pub(crate) struct Leases(Mutex<State>);

#[derive(Default)]
struct State {
    directories: HashMap<FileId, Leased>,
    /// The end of the last lease that another owner of the table may have granted.
    former: Duration,
}

/// Leases of one directory.
#[derive(Default)]
struct Leased {
    /// Ends of leases by session.
    granted: HashMap<SessionId, Duration>,
    /// Sessions that change the directory, and when others may have leases again.
    recalls: Vec<(SessionId, Duration)>,
    /// Sessions that have changed its name, and when others may have leases again.
    renamed: Vec<(SessionId, Duration)>,
}

impl Leased {
    fn expire(&mut self, now: Duration) {
        self.granted.retain(|_, end| *end > now);
        self.recalls.retain(|(_, end)| *end > now);
        self.renamed.retain(|(_, end)| *end > now);
    }

    fn is_over(&self) -> bool {
        self.granted.is_empty() && self.recalls.is_empty() && self.renamed.is_empty()
    }
}

impl Leases {
    /// Grants a lease, unless somebody else changes the directory or there are too many leases.
    fn grant(&self, id: FileId, session: SessionId, now: Duration) -> bool {
        let mut state = self.0.lock();
        let all = &mut state.directories;
        if all.len() >= DIRECTORIES && !all.contains_key(&id) {
            all.values_mut().for_each(|leased| leased.expire(now));
            all.retain(|_, leased| !leased.is_over());
            if all.len() >= DIRECTORIES {
                return false;
            }
        }
        let leased = all.entry(id).or_default();
        leased.expire(now);
        let mut changers = leased.recalls.iter().chain(&leased.renamed);
        let is_own = changers.all(|(by, _)| *by == session);
        let grants = is_own && leased.granted.len() < SESSIONS;
        if grants {
            leased.granted.insert(session, now + TERM);
        }
        grants
    }

    /// Has no other session get a lease for some time. Returns the end of the last lease of another one.
    fn recall(&self, id: FileId, session: SessionId, now: Duration) -> Duration {
        let mut state = self.0.lock();
        let former = state.former;
        let leased = state.directories.entry(id).or_default();
        leased.expire(now);
        leased.recalls.push((session, now + BLOCK));
        let others = leased.granted.iter().filter(|(other, _)| **other != session);
        others.map(|(_, end)| *end).fold(former.max(now), Duration::max)
    }

    /// Has changes wait for leases that another owner of the table may have granted up to now.
    pub(crate) fn wait_for_predecessor(&self, now: Duration) {
        self.0.lock().former = now + TERM;
    }

    /// Lets other sessions have leases again after a change of one; a term after a change of the name, which
    /// has ended at a moment.
    pub(crate) fn release(&self, id: FileId, session: SessionId, renamed: Option<Duration>) {
        let mut state = self.0.lock();
        let Some(leased) = state.directories.get_mut(&id) else { return };
        if let Some(last) = leased.recalls.iter().rposition(|(by, _)| *by == session) {
            leased.recalls.remove(last);
        }
        if let Some(now) = renamed {
            leased.renamed.retain(|(by, end)| *by != session && *end > now);
            leased.renamed.push((session, now + TERM));
        }
        if leased.is_over() {
            state.directories.remove(&id);
        }
    }
}

/// Leases that a change has recalled. They can be granted again once this is dropped: then the change
/// has ended, or the homes have parts of it.
pub(crate) struct Recalled<'a> {
    server: &'a Server,
    peers: &'a dyn Peers,
    sender: Sender<'a>,
    /// The moment of the last recall.
    at: Option<Duration>,
    /// Directories, with their homes.
    directories: Vec<(FileId, ServerId)>,
    /// Whether their names change.
    renames: bool,
}

impl Drop for Recalled<'_> {
    fn drop(&mut self) {
        let session = self.sender.session;
        for (id, home) in &self.directories {
            if *home == self.server.id {
                let renamed = self.renames.then(|| self.server.now());
                self.server.leases.release(*id, session, renamed);
                continue;
            }
            // A thread that panics asks nobody.
            if std::thread::panicking() {
                continue;
            }
            let end = Request::OfServer(ServerRequest::EndRecall(*id, session));
            // If this fails, it ends by itself.
            let _ = self.peers.ask_briefly(*home, Sender::SERVER, &end);
        }
    }
}

impl<'a> Recalled<'a> {
    pub(crate) fn new(server: &'a Server, peers: &'a dyn Peers, sender: Sender<'a>) -> Self {
        Recalled { server, peers, sender, at: None, directories: Vec::new(), renames: false }
    }

    /// Recalls the leases of directories whose access half or name a request changes, and waits until
    /// they have ended. To be called before each try: a change that runs for long recalls them again.
    pub(crate) fn recall(&mut self, request: &Request<'_>) -> Result<()> {
        let Request::Execute(Operation::Change(change)) = request else { return Ok(()) };
        let Recalled { server, peers, sender: Sender { session, caller, .. }, .. } = *self;
        if self.at.is_some_and(|at| server.now().saturating_sub(at) < TERM) {
            return Ok(());
        }
        self.renames = changed_half(change).is_none();
        let mut end = None;
        for id in server.changed_directories(peers, caller, change)? {
            brief::check()?;
            let home = server.layout.home(id)?;
            self.directories.push((id, home));
            let ends = match home == server.id {
                true => server.leases.recall(id, session, server.now()),
                false => {
                    let recall = ServerRequest::Recall(id, session);
                    let left = peers.ask(home, Sender::SERVER, &Request::OfServer(recall))?;
                    let Response::Count(left_ms) = left else { return Err(Error::Unfit) };
                    server.now() + Duration::from_millis(left_ms)
                }
            };
            end = end.max(Some(ends));
        }
        let Some(end) = end else { return Ok(()) };
        if server.now() < end {
            server.metrics.lease_waits.add(1);
        }
        while let Some(left) = end.checked_sub(server.now()).filter(|left| !left.is_zero()) {
            server.pause(left);
        }
        self.at = Some(server.now());
        Ok(())
    }
}

impl Server {
    /// Answers a client that remembers a directory while it has a lease: like `part`.
    pub(crate) fn lease_part(&self, session: SessionId, id: FileId) -> Result<Response> {
        let is_home = self.layout.home(id)? == self.id;
        // First, so that a change that begins now waits for the lease.
        let is_granted = is_home
            && session != SessionId::SERVER
            && self.leases.grant(id, session, self.now())
            && !self.is_under_change(id);
        match self.part(id)? {
            Response::DirectoryAtServer(inode, partitions) => {
                Ok(Response::LeasedDirectory(inode, partitions, is_granted))
            }
            _ => Err(Error::Unfit),
        }
    }

    /// Returns whether a change of several servers has a part here of a directory.
    fn is_under_change(&self, id: FileId) -> bool {
        let state = self.state.read();
        state.is_closed(id) || state.intents.holder(&[LockKey::File(id)]).is_some()
    }

    /// Answers another server that changes the name of a directory: returns the time in milliseconds
    /// until leases of others have ended.
    pub(crate) fn answer_recall(&self, id: FileId, session: SessionId) -> Response {
        let now = self.now();
        let left = self.leases.recall(id, session, now).saturating_sub(now);
        Response::Count(left.as_micros().div_ceil(1000) as u64)
    }

    /// Returns the directories whose access half or name a change of a caller concerns. A caller who may
    /// not make the change costs nobody a lease.
    fn changed_directories(
        &self,
        peers: &dyn Peers,
        caller: Caller<'_>,
        change: &Change<'_>,
    ) -> Result<Vec<FileId>> {
        Ok(match change {
            Change::Rmdir(name) => self.leaving_directory(caller, *name).into_iter().collect(),
            Change::Rename { from, to, mode, .. } => {
                let moved = self.leaving_directory(caller, *from);
                // A file takes the place of a directory only in an exchange.
                let other = match moved.is_some() || *mode == RenameMode::Exchange {
                    true => self.directory_at(peers, *to)?,
                    false => None,
                };
                moved.into_iter().chain(other).collect()
            }
            _ => {
                let changed = changed_half(change).filter(|id| self.may_change(caller, *id));
                changed.into_iter().collect()
            }
        })
    }

    /// Returns the directory of a name here that a caller may take away.
    fn leaving_directory(&self, caller: Caller<'_>, name: EntryName<'_>) -> Option<FileId> {
        let (_, found) = self.tablet.find_leaving(caller, name).ok()?;
        let found = found.filter(|found| found.has(flag::ACCESS_HALF))?;
        // The home knows the owner, on whom this depends in a sticky directory.
        let uid = caller.user().map_or(found.uid, |who| who.uid);
        let own = Inode { uid, ..found };
        self.tablet.check_leaving(caller, name.directory, &own).ok().map(|()| own.id)
    }

    /// Returns whether a file is a directory whose home is here and which a caller may change.
    fn may_change(&self, caller: Caller<'_>, id: FileId) -> bool {
        self.tablet.inode(id).is_ok_and(|inode| {
            let owns = caller.user().is_none_or(|who| who.is_root() || who.uid == inode.uid);
            inode.is_directory() && owns && self.layout.home(id).is_ok_and(|home| home == self.id)
        })
    }

    /// Returns the directory that a name stands for, on any server.
    fn directory_at(&self, peers: &dyn Peers, name: EntryName<'_>) -> Result<Option<FileId>> {
        let (directory, hash) = (name.directory, name.hash());
        if self.tablet.holds(directory, hash)? {
            return Ok(self.tablet.directory_under(name)?);
        }
        let (_, server) = self.find(directory, hash)?;
        let ask = Request::OfServer(ServerRequest::DirectoryAt(OwnedName::from(name)));
        match peers.ask(server, Sender::SERVER, &ask)? {
            Response::Files(ids) => Ok(ids.first().copied()),
            _ => Err(Error::Unfit),
        }
    }
}

/// Returns the file whose mode, owner, group or ACL a change sets.
fn changed_half(change: &Change<'_>) -> Option<FileId> {
    let is_acl = |name: &[u8]| [acl::ACCESS, acl::DEFAULT].iter().any(|one| one.as_bytes() == name);
    match change {
        Change::SetAttributes { id, set, .. } => {
            let sets = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
            sets.then_some(*id)
        }
        Change::SetXattr { id, name, .. } | Change::RemoveXattr { id, name } => {
            is_acl(name).then_some(*id)
        }
        _ => None,
    }
}
