//! Attributes of directories, as a client knows them: those of the home, and the times and counts of
//! all servers with partitions.
//!
//! A client that may cache them ([`Client::cache_directories`]) remembers what each server has said,
//! until the home's lease ends (`leases`). Its own changes keep that up to date: a file that it makes
//! gives the partition the file's time, and after other changes the server of the partition is asked
//! again. Times and counts that other clients change are seen once the lease has ended.
//!
//! A server that dies may lose the time that a file gave its directory, and the client has shown it. So
//! for [`MADE`] a directory has no time of change before that of a file that this client has made in it.
//!
//! A change that ends while servers are asked may be newer than their answers. Own changes are counted, so
//! such answers do not count as known. Those of others end the lease: an answer without a lease, or with
//! one that ends before another that is known by now, is not remembered.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::layout::KnownDirectory;
use crate::leases::{TERM, USED};
use crate::message::{Partitions, Request, Response};
use crate::tries::undecided;
use canopy_namespace::inode::{TYPE_MASK, file_type, flag};
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, FileId, Inode, Reply};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

/// Directories that a client remembers.
const REMEMBERED: usize = 1 << 14;

/// Time after which servers have written the times of directories, as they do every 5 s.
const MADE: Duration = Duration::from_secs(10);

/// Directories that a client knows.
#[derive(Default)]
pub(crate) struct Directories(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Longest time for which attributes are remembered; 0 if they are not.
    longest: Duration,
    /// Number of own changes so far.
    changes: u64,
    directories: HashMap<FileId, Directory>,
    /// Directories by their names: directory and hash.
    names: HashMap<(FileId, u64), FileId>,
}

/// A directory that servers were asked for.
#[derive(Default)]
struct Directory {
    /// The end of the lease.
    until: Duration,
    /// The number of the last own change of it as a whole.
    changed: u64,
    /// The number of the last own change of it.
    last: u64,
    /// The latest time of a file that this client has made in it, and how long that counts.
    made_ns: i64,
    made_until: Duration,
    parts: BTreeMap<ServerId, Part>,
}

/// A server's part of a directory.
#[derive(Default)]
struct Part {
    /// The server's answer; none if the server has to be asked.
    answer: Option<Option<Inode>>,
    /// The number of the last own change there whose effect is not known.
    changed: u64,
}

/// Servers that are asked for a directory.
struct Asking {
    /// The number of own changes before.
    changes: u64,
    /// Servers whose answers are known to be missing.
    missing: Vec<ServerId>,
    /// Answers, and whether they are new.
    answers: BTreeMap<ServerId, (Option<Inode>, bool)>,
    /// The end of the lease that was known before.
    known_until: Duration,
    /// The home's answer to a request for a lease: its end, or none if it was refused.
    lease: Option<Option<Duration>>,
}

impl Directory {
    /// Returns the answers of all servers; none if one has to be asked.
    fn whole(&self, home: ServerId, now: Duration) -> Option<Inode> {
        let answers = self.parts.iter().map(|(server, part)| Some((*server, part.answer.clone()?)));
        Some(self.touched(merged(home, answers.collect::<Option<_>>()?)?, now))
    }

    /// Returns the inode with times of own changes that servers have not reported.
    fn touched(&self, mut inode: Inode, now: Duration) -> Inode {
        // Nobody can set the time of change, but others may have set the other times since.
        if now < self.made_until && inode.ctime_ns < self.made_ns {
            inode.mtime_ns = inode.mtime_ns.max(self.made_ns);
            inode.ctime_ns = self.made_ns;
        }
        inode
    }

    /// Forgets all answers. Those that are under way may lack changes up to a number.
    fn forget(&mut self, changed: u64) {
        (self.changed, self.until) = (changed, Duration::ZERO);
        self.parts.clear();
    }
}

impl Known {
    /// Forgets everything if that is too much.
    fn limit(&mut self) {
        if self.directories.len().max(self.names.len()) >= REMEMBERED {
            self.directories.clear();
            self.names.clear();
        }
    }

    fn change(&mut self, id: FileId) -> Option<(u64, &mut Directory)> {
        self.changes += 1;
        let directory = self.directories.get_mut(&id)?;
        directory.last = self.changes;
        Some((self.changes, directory))
    }

    /// Has all servers be asked for a directory again.
    fn forget(&mut self, id: FileId) {
        if let Some((changed, directory)) = self.change(id) {
            directory.forget(changed);
        }
    }

    /// Has a server be asked for a directory again.
    fn forget_part(&mut self, id: FileId, server: ServerId) {
        if let Some((changed, directory)) = self.change(id) {
            directory.parts.insert(server, Part { changed, ..Part::default() });
        }
    }

    /// Notes that a server has made a file in a directory at this time.
    fn touch(&mut self, id: FileId, server: ServerId, time_ns: i64, now: Duration) {
        if let Some((_, directory)) = self.change(id) {
            directory.made_ns = directory.made_ns.max(time_ns);
            directory.made_until = now + MADE;
            let part = directory.parts.entry(server).or_default();
            // A server that had no part of it has one by now.
            part.answer.take_if(|answer| answer.is_none());
        }
    }

    /// Forgets a directory that has a name, or had.
    fn forget_named(&mut self, name: EntryName<'_>) {
        if let Some(id) = self.names.remove(&(name.directory, name.hash())) {
            self.forget(id);
        }
    }
}

impl Directories {
    /// Has all servers be asked again for a directory whose names have moved between them: answers of
    /// different moments would count a directory in it twice, or not at all.
    pub(crate) fn forget_moved(&self, id: FileId) {
        self.0.lock().forget(id);
    }

    fn is_used(&self) -> bool {
        !self.0.lock().longest.is_zero()
    }

    /// Returns whether a file was seen to be a directory.
    pub(crate) fn has(&self, id: FileId) -> bool {
        self.0.lock().directories.contains_key(&id)
    }

    fn begin(&self, id: FileId, now: Duration) -> Asking {
        let mut known = self.0.lock();
        let changes = known.changes;
        let (mut answers, mut missing) = (BTreeMap::new(), Vec::new());
        let mut known_until = Duration::ZERO;
        if !known.longest.is_zero() {
            known.limit();
            let directory = known.directories.entry(id).or_default();
            let is_over = directory.until <= now;
            if is_over && directory.parts.values().any(|part| part.answer.is_some()) {
                // Answers that are under way may lack own changes.
                directory.forget(directory.last);
            }
            known_until = directory.until;
            for (server, part) in &directory.parts {
                match &part.answer {
                    Some(answer) => _ = answers.insert(*server, (answer.clone(), false)),
                    None => missing.push(*server),
                }
            }
        }
        Asking { changes, missing, answers, known_until, lease: None }
    }

    /// Remembers new answers, and returns what all answers say together; none if the home has no such
    /// directory.
    fn end(&self, id: FileId, home: ServerId, asking: Asking, now: Duration) -> Option<Inode> {
        let all = asking.answers.iter().map(|(server, (answer, _))| (*server, answer.clone()));
        let whole = merged(home, all.collect());
        let mut known = self.0.lock();
        let Some(directory) = known.directories.get_mut(&id) else { return whole };
        let until = match asking.lease {
            Some(Some(until)) => Some(until).filter(|until| *until >= directory.until),
            Some(None) => None,
            None => Some(directory.until).filter(|until| *until == asking.known_until),
        };
        if let Some(until) = until
            && directory.changed <= asking.changes
        {
            directory.until = until;
            for (server, (answer, is_new)) in asking.answers {
                let part = directory.parts.entry(server).or_default();
                if is_new && part.changed <= asking.changes {
                    part.answer = Some(answer);
                }
            }
        }
        whole.map(|whole| directory.touched(whole, now))
    }

    /// Returns the attributes of a directory if they are remembered.
    fn remembered(&self, id: FileId, home: ServerId, now: Duration) -> Option<Inode> {
        let known = self.0.lock();
        let directory = known.directories.get(&id)?;
        (now < directory.until).then(|| directory.whole(home, now))?
    }

    /// Returns how long a directory and its name may be remembered from now on.
    fn left(&self, inode: &Inode, home: ServerId, now: Duration) -> Duration {
        let known = self.0.lock();
        let Some(directory) = known.directories.get(&inode.id) else { return Duration::ZERO };
        let at_home = directory.parts.get(&home).and_then(|part| part.answer.as_ref()?.as_ref());
        // The lease may be later than the inode, of another thread.
        let half = |inode: &Inode| (inode.mode, inode.uid, inode.gid);
        match at_home.is_some_and(|at_home| half(at_home) == half(inode)) {
            true => directory.until.saturating_sub(now),
            false => Duration::ZERO,
        }
    }
}

impl Client {
    /// Has the client remember attributes of directories while it has leases of them, and not longer
    /// than this. Without this call, it asks servers each time.
    pub fn cache_directories(&self, longest: Duration) {
        self.directories.0.lock().longest = longest;
    }

    /// Returns how long a directory that was just looked up may be cached.
    pub fn cached_for(&self, inode: &Inode) -> Duration {
        let home = self.home(inode.id);
        home.map_or(Duration::ZERO, |home| self.directories.left(inode, home, self.now()))
    }

    /// Notes the name of a directory that was looked up, since a moment. A name that it took long to look
    /// up may be an old one.
    pub(crate) fn note_name(&self, id: FileId, name: EntryName<'_>, since: Duration) {
        let is_late = self.now().saturating_sub(since) >= TERM;
        let mut known = self.directories.0.lock();
        if known.longest.is_zero() {
            return;
        }
        if is_late {
            known.forget(id);
        }
        known.names.insert((name.directory, name.hash()), id);
    }

    /// Returns the inode of a file; of a directory, what its partitions say together.
    pub(crate) fn whole(&self, caller: Caller<'_>, inode: Inode) -> Result<Inode> {
        match inode.is_directory() {
            true => self.directory(caller, inode.id),
            false => Ok(inode),
        }
    }

    /// Returns the attributes of a directory.
    pub(crate) fn directory(&self, caller: Caller<'_>, id: FileId) -> Result<Inode> {
        let home = self.home(id)?;
        let now = self.now();
        if let Some(inode) = self.directories.remembered(id, home, now) {
            return Ok(inode);
        }
        let mut asking = self.directories.begin(id, now);
        // Each partition knows its own splits, so asking goes on until no new one is found.
        let mut known = KnownDirectory::default();
        let next = |asking: &Asking, known: &KnownDirectory| {
            let missing = asking.missing.iter().copied();
            let mut all = [home].into_iter().chain(missing).chain(known.servers(home));
            all.find(|server| !asking.answers.contains_key(server))
        };
        let (mut held, mut tries) = (BTreeMap::new(), self.tries());
        loop {
            while let Some(server) = next(&asking, &known) {
                let (part, partitions) = match server == home {
                    true => self.leased_part(caller, home, id, &mut asking)?,
                    false => self.part(caller, server, id)?,
                };
                held.insert(server, partitions.histories.clone());
                known.learn(partitions);
                asking.answers.insert(server, (part, true));
            }
            // The partitions of a directory that was removed go one after the other.
            let (at_home, _) = asking.answers.get(&home).cloned().unwrap_or_default();
            if at_home.is_none_or(|inode| inode.nlink == 0) {
                break;
            }
            // Entries that move meanwhile would be counted by both servers, or by neither.
            let Some(server) = known.outdated(home, &held) else { break };
            if !tries.wait() {
                return Err(undecided(server));
            }
            asking.answers.remove(&server);
        }
        if !known.is_unsplit() {
            self.maps.lock().entry(id).or_default().merge(known);
        }
        let whole = self.directories.end(id, home, asking, now);
        whole.ok_or(canopy_namespace::Error::from(Errno::NOENT).into())
    }

    /// Returns the home's part of a directory, with a lease if the client remembers it.
    fn leased_part(
        &self,
        caller: Caller<'_>,
        home: ServerId,
        id: FileId,
        asking: &mut Asking,
    ) -> Result<(Option<Inode>, Partitions)> {
        let longest = self.directories.0.lock().longest;
        if longest.is_zero() {
            return self.part(caller, home, id);
        }
        let now = self.now();
        match self.ask(home, self.reader(caller), &Request::LeaseDirectory(id))? {
            Response::LeasedDirectory(inode, partitions, is_granted) => {
                asking.lease = Some(is_granted.then_some(now + longest.min(USED)));
                Ok((inode, partitions))
            }
            _ => Err(Error::Unfit),
        }
    }

    /// Returns a server's part of a directory.
    fn part(
        &self,
        caller: Caller<'_>,
        server: ServerId,
        id: FileId,
    ) -> Result<(Option<Inode>, Partitions)> {
        match self.ask(server, self.reader(caller), &Request::DirectoryAtServer(id))? {
            Response::DirectoryAtServer(inode, partitions) => Ok((inode, partitions)),
            _ => Err(Error::Unfit),
        }
    }

    /// Notes what a request has done to directories, by the outcome that a server has reported.
    pub(crate) fn note_outcome(
        &self,
        request: &Request<'_>,
        outcome: &Result<(Response, ServerId)>,
    ) {
        let Request::Execute(Operation::Change(change)) = request else { return };
        if !self.directories.is_used() {
            return;
        }
        let now = self.now();
        let mut known = self.directories.0.lock();
        match (change, outcome) {
            (Change::Create { name, new, .. }, Ok((response, server))) => match made(response) {
                Some(inode) if new.mode & TYPE_MASK != file_type::DIRECTORY => {
                    known.touch(name.directory, *server, inode.ctime_ns, now);
                }
                _ => known.forget_part(name.directory, *server),
            },
            (Change::Unlink(name), Ok((_, server))) => known.forget_part(name.directory, *server),
            (Change::Rmdir(name), Ok((_, server))) => {
                known.forget_named(*name);
                known.forget_part(name.directory, *server);
            }
            (Change::TouchAccess(id), Ok((_, server))) => known.forget_part(*id, *server),
            (Change::Create { name, .. } | Change::Unlink(name) | Change::Rmdir(name), Err(_)) => {
                known.forget(name.directory);
            }
            (Change::Link { name, .. }, _) => known.forget(name.directory),
            (Change::Rename { from, to, .. }, _) => {
                for name in [from, to] {
                    known.forget_named(*name);
                    known.forget(name.directory);
                }
            }
            (Change::SetAttributes { id, .. }, _) => {
                known.forget(*id);
                // Times that were set are those that count.
                if let Some(directory) = known.directories.get_mut(id) {
                    directory.made_until = Duration::ZERO;
                }
            }
            (
                Change::SetXattr { id, .. }
                | Change::RemoveXattr { id, .. }
                | Change::TouchAccess(id),
                _,
            ) => known.forget(*id),
            (
                Change::CreateNameless { .. }
                | Change::Sync(_)
                | Change::WriteSmall { .. }
                | Change::PutChunks { .. },
                _,
            ) => {}
        }
    }
}

fn made(response: &Response) -> Option<&Inode> {
    match response {
        Response::Reply(Reply::Inode(inode)) | Response::Held(Reply::Inode(inode), _) => {
            Some(inode)
        }
        _ => None,
    }
}

/// Puts the parts of all servers together; none if the home has none.
fn merged(home: ServerId, mut parts: BTreeMap<ServerId, Option<Inode>>) -> Option<Inode> {
    let mut whole = parts.remove(&home)??;
    whole.flags &= !flag::ACCESS_HALF;
    parts.into_values().flatten().for_each(|part| merge(&mut whole, &part));
    Some(whole)
}

/// Adds the counts and times that another server has of a directory.
pub(crate) fn merge(whole: &mut Inode, part: &Inode) {
    whole.nlink = whole.nlink.saturating_add(part.nlink.saturating_sub(2));
    whole.mtime_ns = whole.mtime_ns.max(part.mtime_ns);
    whole.ctime_ns = whole.ctime_ns.max(part.ctime_ns);
    whole.atime_ns = whole.atime_ns.max(part.atime_ns);
}
