//! Handles of users, and sessions of their clients: what a server believes only with its own mark.
//!
//! **Handles.** An id of a file proves nothing: a user may guess one behind a closed directory. So a
//! server marks each id that it gives a user with a checksum of the id and the user, by a key that the
//! servers alone have. A request of a user has to show the marks of all ids that it names; without
//! one, it gets EACCES. The mark says that the user could get at the file once, like a descriptor. It
//! says nothing about permissions, which are checked each time. A listing without the right to search
//! its directory gives no marks.
//!
//! The namespace and each snapshot have marks of their own. A user who gets at a file now cannot read
//! it in a snapshot by its id, since the directories above it may have been closed to the user then.
//!
//! A machine that speaks for its users has marks of its own: it keeps its users apart itself. Whoever
//! speaks for root shows no marks and gets none: this costs a mount of root nothing.
//!
//! **Sessions.** The upper bits of a session's number are such a checksum of the identity that it was
//! made for ([`Owner`]). Every server, also a successor, can refuse it to others without knowing the
//! session. Processes that may be servers can use any number. The sessions of objects (`contents`)
//! have the same upper bits: no client can have its objects counted among those of another one.
//!
//! The key is an object of the storage, made once. Whoever can read the storage can read all records,
//! so the key need not be more secret than these.

use crate::error::{Error, Result};
use crate::message::{PastRequest, Request, Response, SessionId};
use crate::wire::Peer;
use canopy_namespace::operation::{
    Access, Change, Hold, Moment, Operation, QuotasRequest, Read, SnapshotsRequest,
};
use canopy_namespace::{Entry, FileId, Inode, ROOT, Reply};
use canopy_store::Environment;
use canopy_store::storage::Created;
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;

/// The object with the key.
const OBJECT: &str = "cluster/handles";

const KEY_BYTES: usize = 32;

/// Bits of a session's number that are random.
const RANDOM_BITS: u32 = 40;

/// Marks that a client remembers: these, and as many older ones.
const REMEMBERED: usize = 1 << 19;

/// The key of a cluster.
pub(crate) struct HandleKey([u8; KEY_BYTES]);

/// The identity that a session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// A user, on whatever machine.
    User(u32),
    /// A machine.
    Node(&'a str),
    /// A server.
    Server,
}

impl<'a> Owner<'a> {
    /// Returns the identity of the other end of a connection.
    pub(crate) fn of(peer: &'a Peer) -> Self {
        match peer {
            Peer::Local { uid } | Peer::User { uid } => Owner::User(*uid),
            Peer::Node { name, .. } => Owner::Node(name),
            Peer::Server { .. } => Owner::Server,
        }
    }
}

impl HandleKey {
    /// Returns the key of the cluster in a storage, which is made if there is none.
    ///
    /// # Errors
    ///
    /// Fails with `Corrupt` if the object is damaged, and as storage does.
    pub(crate) fn open(environment: &Environment) -> Result<Self> {
        let storage = &environment.storage;
        loop {
            match storage.read(OBJECT) {
                Ok(bytes) => {
                    let damaged = |_| canopy_namespace::Error::Corrupt("the key of handles".into());
                    let key = <[u8; KEY_BYTES]>::try_from(&bytes[..]).map_err(damaged)?;
                    return Ok(HandleKey(key));
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
            let words = [(); KEY_BYTES / 8].map(|()| environment.random.next_u64().to_be_bytes());
            match storage.create(OBJECT, words.concat().into())? {
                Created::Now | Created::ThereWasOne => {}
            }
        }
    }

    fn checksum(&self, parts: &[&[u8]]) -> u64 {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        u64::from_be_bytes(first)
    }

    /// Returns a checksum of something, for an identity. Things of one kind have one length.
    fn of_owner(&self, what: &[u8], owner: Owner<'_>) -> u64 {
        match owner {
            Owner::User(uid) => self.checksum(&[what, b"user", &uid.to_be_bytes()]),
            Owner::Node(name) => self.checksum(&[what, b"node", name.as_bytes()]),
            Owner::Server => self.checksum(&[what, b"server"]),
        }
    }

    /// Returns the mark of a file for an identity.
    fn mark(&self, (moment, id): Place, owner: Owner<'_>) -> u64 {
        let id = id.0.to_be_bytes();
        match moment {
            Moment::Now => self.of_owner(&[b"handle-", &id[..]].concat(), owner),
            Moment::Snapshot(number) => {
                let number = number.to_be_bytes();
                self.of_owner(&[b"handle@", &number[..], &id[..]].concat(), owner)
            }
        }
    }

    /// Returns the upper bits of the sessions of an identity: never 0.
    fn session_tag(&self, owner: Owner<'_>) -> u64 {
        (self.of_owner(b"session", owner) >> RANDOM_BITS).max(1)
    }

    /// Returns a number for a session of an identity, of random bits.
    pub(crate) fn session(&self, owner: Owner<'_>, random: u64) -> SessionId {
        SessionId(of_tag(self.session_tag(owner), random))
    }

    /// Fails unless a session is of an identity.
    ///
    /// # Errors
    ///
    /// Fails with `PERM`.
    pub(crate) fn check_session(&self, session: SessionId, owner: Owner<'_>) -> Result<()> {
        match session == SessionId::SERVER || tag_of(session) == self.session_tag(owner) {
            true => Ok(()),
            false => Err(canopy_namespace::Error::from(Errno::PERM).into()),
        }
    }

    /// Fails unless the marks of the ids that a request names are shown.
    ///
    /// # Errors
    ///
    /// Fails with `ACCESS`.
    pub(crate) fn check(
        &self,
        owner: Owner<'_>,
        request: &Request<'_>,
        marks: &[u64],
    ) -> Result<()> {
        let mut marks = marks.iter();
        for place in named(request) {
            if marks.next().copied() != Some(self.mark(place, owner)) {
                return Err(canopy_namespace::Error::from(Errno::ACCESS).into());
            }
        }
        Ok(())
    }

    /// Returns the marks of the ids in a response to a request.
    pub(crate) fn marks(
        &self,
        owner: Owner<'_>,
        request: &Request<'_>,
        response: &Response,
    ) -> Vec<u64> {
        given(request, response).into_iter().map(|place| self.mark(place, owner)).collect()
    }
}

/// A file of the namespace as it is, or of a snapshot.
type Place = (Moment, FileId);

/// Returns the moment, now or a snapshot, that the ids of a request belong to.
fn moment_of(request: &Request<'_>) -> Moment {
    match request {
        Request::Past(number, _)
        | Request::Execute(Operation::Access(Access::IsShown(number, ..))) => {
            Moment::Snapshot(*number)
        }
        _ => Moment::Now,
    }
}

/// Returns a number, of random bits, for a session of the same owner; any number if no server has made
/// that session.
pub(crate) fn session_of_owner(session: SessionId, random: u64) -> u64 {
    match tag_of(session) {
        0 => random,
        tag => of_tag(tag, random),
    }
}

fn of_tag(tag: u64, random: u64) -> u64 {
    tag << RANDOM_BITS | random & ((1 << RANDOM_BITS) - 1)
}

/// Returns the session that new objects of a request are of, if it has any.
pub(crate) fn maker_of(request: &Request<'_>) -> Option<SessionId> {
    match request {
        Request::Execute(Operation::Change(Change::PutChunks { put, .. })) => {
            Some(SessionId(put.session))
        }
        _ => None,
    }
}

/// Returns the part of a session's number by which its owner is known; 0 for one that no server has
/// made.
pub(crate) fn tag_of(session: SessionId) -> u64 {
    session.0 >> RANDOM_BITS
}

/// Returns the files that a request names, without the root, which everybody knows.
fn named(request: &Request<'_>) -> Vec<Place> {
    let ids = match request {
        Request::Execute(operation) => named_by(operation),
        Request::List(page) => vec![page.directory],
        Request::DirectoryAtServer(id) | Request::NameOf(id) | Request::Split(id, _) => vec![*id],
        Request::LeaseDirectory(id) => vec![*id],
        Request::Hold(hold, _) => named_by_hold(hold),
        Request::Reclaim(ids, _) => ids.clone(),
        Request::Lock(request) => vec![request.id],
        Request::Past(_, request) => named_in_past(request),
        Request::Search(part) => vec![part.query.base],
        Request::Parents(id) | Request::PushAttributes(id) => vec![*id],
        // They lead to no file.
        Request::HomeOf(_)
        | Request::Renew(_)
        | Request::EndSession
        | Request::AwaitLocks
        | Request::Release(_)
        | Request::Arrivals(_)
        | Request::Cut(_)
        | Request::Share(_)
        | Request::Servers
        | Request::OfServer(_) => Vec::new(),
    };
    let moment = moment_of(request);
    ids.into_iter().filter(|id| *id != ROOT).map(|id| (moment, id)).collect()
}

fn named_in_past(request: &PastRequest<'_>) -> Vec<FileId> {
    match request {
        PastRequest::Execute(operation) => named_by(operation),
        PastRequest::List(page) => vec![page.directory],
        PastRequest::DirectoryAtServer(id) | PastRequest::NameOf(id) | PastRequest::Parents(id) => {
            vec![*id]
        }
        PastRequest::Search(part) => vec![part.query.base],
        PastRequest::Servers => Vec::new(),
    }
}

fn named_by_hold(hold: &Hold<'_>) -> Vec<FileId> {
    match hold {
        Hold::Name(name) => vec![name.directory],
        Hold::File(id) => vec![*id],
        // A session lets only those files go that it holds.
        Hold::Release(..) => Vec::new(),
    }
}

fn named_by(operation: &Operation<'_>) -> Vec<FileId> {
    match operation {
        Operation::Read(_, read) => vec![match read {
            Read::Lookup(name) => name.directory,
            Read::List(page) => page.directory,
            Read::Inode(id) | Read::Parent(id) | Read::Readlink(id) | Read::Xattrs(id) => *id,
            Read::Xattr { id, .. } => *id,
            Read::Contents(part) => part.id,
        }],
        Operation::Access(access) => vec![match access {
            Access::Path(id)
            | Access::IsDue(id)
            | Access::MayRead(_, id, _)
            | Access::MayChange(id, _)
            | Access::IsShown(_, id, ..)
            | Access::Open(id, _) => *id,
            Access::NeedsObject(chunk, _) => chunk.file,
        }],
        Operation::Hold(hold) => named_by_hold(hold),
        Operation::Change(change) => named_by_change(change),
        Operation::Quotas(quotas) => match quotas {
            QuotasRequest::OfTree(id)
            | QuotasRequest::SetTree(id, _)
            | QuotasRequest::RemoveTree(id) => vec![*id],
            QuotasRequest::All
            | QuotasRequest::Of(_)
            | QuotasRequest::Set(..)
            | QuotasRequest::RemoveTreeOfNumber(_) => Vec::new(),
        },
        Operation::Snapshots(SnapshotsRequest::Enter(_, directory, _)) => vec![*directory],
        Operation::Snapshots(_) | Operation::Administration(_) => Vec::new(),
        Operation::Search(query, _) | Operation::Explain(query, _) => vec![query.base],
    }
}

fn named_by_change(change: &Change<'_>) -> Vec<FileId> {
    match change {
        Change::Create { name, .. } | Change::Unlink(name) | Change::Rmdir(name) => {
            vec![name.directory]
        }
        Change::Link { id, name } => vec![*id, name.directory],
        Change::Rename { from, to, .. } => vec![from.directory, to.directory],
        Change::CreateNameless { directory: id, .. }
        | Change::SetAttributes { id, .. }
        | Change::SetXattr { id, .. }
        | Change::RemoveXattr { id, .. }
        | Change::TouchAccess(id)
        | Change::WriteSmall { id, .. }
        | Change::PutChunks { id, .. }
        | Change::Sync(id) => vec![*id],
    }
}

/// Returns the files that a response to a request leads to.
fn given(request: &Request<'_>, response: &Response) -> Vec<Place> {
    let moment = match response {
        Response::Reply(Reply::Entered(number, _)) => Moment::Snapshot(*number),
        _ => moment_of(request),
    };
    let ids = match response {
        Response::Reply(reply) | Response::Held(reply, _) => given_by(reply),
        Response::Listed(entries, _) => entries.iter().filter_map(|entry| shown(&entry)).collect(),
        Response::Found(found, ..) => found.iter().map(|found| found.inode.id).collect(),
        Response::DirectoryAtServer(inode, _) | Response::LeasedDirectory(inode, ..) => {
            inode.iter().map(|inode| inode.id).collect()
        }
        _ => Vec::new(),
    };
    ids.into_iter().map(|id| (moment, id)).collect()
}

fn given_by(reply: &Reply) -> Vec<FileId> {
    match reply {
        Reply::Inode(inode) | Reply::Written(Some(inode)) | Reply::Entered(_, inode) => {
            vec![inode.id]
        }
        Reply::File(id) => vec![*id],
        Reply::Contents(stored) => vec![stored.inode.id],
        Reply::Entries(entries) => entries.iter().filter_map(|entry| shown(&entry)).collect(),
        Reply::Found(found) => found.iter().map(|found| found.inode.id).collect(),
        _ => Vec::new(),
    }
}

/// Returns the file of an entry, unless its directory was listed without the right to search it.
fn shown(entry: &Entry<'_>) -> Option<FileId> {
    let Inode { mode, id, .. } = *entry.inode;
    let bare = Inode { mode, id, ..Inode::default() };
    let is_bare = *entry.inode == bare && mode & 0o7777 == 0;
    (!is_bare).then_some(id)
}

/// Marks that servers have given a client, if they gave any. The oldest are forgotten: their files have
/// to be looked up again.
#[derive(Default)]
pub(crate) struct Marks(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    newer: HashMap<Place, u64>,
    older: HashMap<Place, u64>,
}

impl Generations {
    fn put(&mut self, place: Place, mark: u64) {
        if self.newer.len() >= REMEMBERED {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(place, mark);
    }

    fn get(&mut self, place: Place) -> Option<u64> {
        if let Some(mark) = self.newer.get(&place) {
            return Some(*mark);
        }
        let mark = self.older.remove(&place)?;
        self.put(place, mark);
        Some(mark)
    }
}

impl Marks {
    /// Returns the marks of the ids that a request names.
    pub(crate) fn of(&self, request: &Request<'_>) -> Vec<u64> {
        let mut marks = self.0.lock();
        if marks.newer.is_empty() {
            return Vec::new();
        }
        named(request).into_iter().map(|place| marks.get(place).unwrap_or_default()).collect()
    }

    /// Remembers the marks of the ids in a response to a request.
    ///
    /// # Errors
    ///
    /// Fails with `Unfit` if there are not as many.
    pub(crate) fn learn(
        &self,
        request: &Request<'_>,
        response: &Response,
        given: &[u64],
    ) -> Result<()> {
        let places = self::given(request, response);
        if places.len() != given.len() {
            return Err(Error::Unfit);
        }
        let mut marks = self.0.lock();
        for (place, mark) in places.into_iter().zip(given) {
            marks.put(place, *mark);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_namespace::EntryName;
    use canopy_namespace::operation::Entries;

    fn lookup(directory: FileId) -> Request<'static> {
        let read = Read::Lookup(EntryName::new(directory, b"name"));
        Request::Execute(Operation::Read(Moment::Now, read))
    }

    fn is_denied(checked: Result<()>) -> bool {
        matches!(checked, Err(Error::Namespace(error)) if error.errno() == Errno::ACCESS)
    }

    #[test]
    fn a_mark_is_for_one_id_and_one_user() {
        let (key, other) = (HandleKey([7; KEY_BYTES]), HandleKey([8; KEY_BYTES]));
        let [one, two] = [1000, 1001].map(Owner::User);
        let response = Response::Reply(Reply::File(FileId(70)));
        let marks = key.marks(one, &lookup(ROOT), &response);
        assert!(key.check(one, &lookup(FileId(70)), &marks).is_ok());
        for (key, who, id, marks) in [
            (&key, two, 70, &marks[..]),
            (&key, Owner::Node("1000"), 70, &marks),
            (&key, one, 71, &marks),
            (&other, one, 70, &marks),
            (&key, one, 70, &[]),
            (&key, one, 70, &[0]),
        ] {
            assert!(is_denied(key.check(who, &lookup(FileId(id)), marks)));
        }
        assert!(key.check(two, &lookup(ROOT), &[]).is_ok());
        // All ids of a request count.
        let from = EntryName::new(FileId(70), b"name");
        let link = Request::Execute(Operation::Change(Change::Link { id: FileId(71), name: from }));
        assert!(is_denied(key.check(one, &link, &[0, marks[0]])));
    }

    #[test]
    fn a_client_shows_the_marks_that_it_was_given() {
        let key = HandleKey([7; KEY_BYTES]);
        let who = Owner::Node("n17");
        let marks = Marks::default();
        let mut entries = Entries::with_capacity(2);
        let searched = Inode { id: FileId(70), mode: 0o100_644, nlink: 1, ..Inode::default() };
        let bare = Inode { id: FileId(71), mode: 0o040_000, ..Inode::default() };
        for inode in [&searched, &bare] {
            entries.push(Entry { name: b"name", inode, cookie: inode.id.0 });
        }
        let response = Response::Listed(entries, 9);
        let request = lookup(ROOT);
        let given = key.marks(who, &request, &response);
        assert!(marks.of(&lookup(FileId(70))).is_empty());
        marks.learn(&request, &response, &given).unwrap();
        assert!(marks.learn(&request, &response, &[]).is_err());
        for (id, is_known) in [(70, true), (71, false), (72, false)] {
            let request = lookup(FileId(id));
            let shown = marks.of(&request);
            assert_eq!(key.check(who, &request, &shown).is_ok(), is_known, "{id}");
        }
    }

    #[test]
    fn a_mark_is_for_the_namespace_or_one_snapshot() {
        let key = HandleKey([7; KEY_BYTES]);
        let who = Owner::User(1000);
        let read = |number| {
            let read = Operation::Read(Moment::Now, Read::Inode(FileId(70)));
            Request::Past(number, PastRequest::Execute(read))
        };
        let response = Response::Reply(Reply::Inode(Inode { id: FileId(70), ..Inode::default() }));
        let now = key.marks(who, &lookup(ROOT), &response);
        let zero = key.marks(who, &read(0), &response);
        let entered = Reply::Entered(0, Inode { id: FileId(70), ..Inode::default() });
        assert_eq!(key.marks(who, &lookup(ROOT), &Response::Reply(entered)), zero);
        assert!(key.check(who, &read(0), &zero).is_ok());
        let denied = [(read(0), &now), (read(1), &zero), (lookup(FileId(70)), &zero)];
        for (request, marks) in denied {
            assert!(is_denied(key.check(who, &request, marks)), "{request:?}");
        }
    }

    #[test]
    fn a_session_is_of_one_identity() {
        let key = HandleKey([7; KEY_BYTES]);
        let owners = [Owner::User(0), Owner::User(1000), Owner::Node("n17"), Owner::Node("n18")];
        for owner in owners {
            let session = key.session(owner, u64::MAX);
            for other in owners {
                assert_eq!(key.check_session(session, other).is_ok(), owner == other);
            }
            assert!(key.check_session(SessionId::SERVER, owner).is_ok());
            assert!(key.check_session(SessionId(7), owner).is_err());
        }
        let peer = Peer::Node { name: "n17".into(), speaks_for_root: true };
        assert_eq!(Owner::of(&peer), Owner::Node("n17"));
        assert_eq!(Owner::of(&Peer::Local { uid: 7 }), Owner::of(&Peer::User { uid: 7 }));
    }
}
