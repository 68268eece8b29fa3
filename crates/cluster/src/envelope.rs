//! Messages between processes, as bytes: a request with its sender and the server that it is for, or a
//! question about the cluster.

use crate::error::{Error, Result};
use crate::message::{Life, Refusal, Request, Response, Sender, SessionId};
use canopy_model::Credentials;
use canopy_namespace::operation::Caller;
use canopy_partition::{ServerId, SplitPolicy};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A message of a client or a server to a process.
#[expect(clippy::large_enum_variant, reason = "nearly all messages are requests")]
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Envelope<'a> {
    /// A request to a logical server.
    Request {
        /// Number of restores of the namespace that the sender knows of (`restoring`).
        generation: u64,
        server: ServerId,
        claim: Claim<'a>,
        session: SessionId,
        number: u64,
        life: Option<Life>,
        /// Marks of the ids that a user's request names (`handles`).
        marks: Vec<u64>,
        #[serde(borrow)]
        request: Request<'a>,
    },
    /// Returns where the servers run, by the word of the process that is asked.
    Route,
    /// Returns the number of a new session of the sender.
    Session,
}

/// The caller that a sender claims. The process that is asked decides whether it may.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Claim<'a> {
    /// Nobody has to be checked: the sender is a server.
    Trusted,
    /// A user.
    User(Cow<'a, Credentials>),
}

impl<'a> Claim<'a> {
    pub(crate) fn of(caller: Caller<'a>) -> Self {
        match caller {
            Caller::Trusted => Claim::Trusted,
            Caller::User(who) => Claim::User(Cow::Borrowed(who)),
        }
    }
}

impl fmt::Display for Claim<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Claim::Trusted => f.write_str("a server of the cluster"),
            Claim::User(who) => write!(f, "user {}", who.uid),
        }
    }
}

/// An answer to a message.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The answer of a server.
    Of(std::result::Result<Response, Refusal>),
    /// Where the servers run.
    Route(Route),
    /// A new session.
    Session(SessionId),
    /// A response to a user, with the marks of the ids in it.
    Marked(Response, Vec<u64>),
}

/// Where servers run: what a client needs to know of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Version of the cluster map.
    pub version: u64,
    /// Addresses of processes.
    pub processes: Vec<String>,
    /// The process of each server, by its place in the list; none if nobody runs it.
    pub servers: Vec<Option<u32>>,
    /// The rules by which servers share directories.
    pub policy: SplitPolicy,
    /// The id of the cluster.
    pub cluster: String,
    /// The name of the storage, as the process that was asked has it.
    pub place: String,
    /// Number of times that the namespace was restored to a snapshot.
    pub generation: u64,
}

impl Route {
    /// Returns the address of the process that runs a server.
    pub fn address(&self, server: ServerId) -> Option<&str> {
        let process = (*self.servers.get(server.0 as usize)?)?;
        Some(self.processes.get(process as usize)?)
    }
}

/// Like `Envelope`, for the sender: it does not copy the request.
#[derive(Serialize)]
enum Sending<'a> {
    Request {
        generation: u64,
        server: ServerId,
        claim: Claim<'a>,
        session: SessionId,
        number: u64,
        life: Option<Life>,
        marks: Vec<u64>,
        request: &'a Request<'a>,
    },
}

/// Returns a message as bytes.
pub(crate) fn request(
    generation: u64,
    server: ServerId,
    sender: Sender<'_>,
    request: &Request<'_>,
    marks: Vec<u64>,
) -> Vec<u8> {
    let Sender { caller, session, number, life } = sender;
    let claim = Claim::of(caller);
    encode(&Sending::Request { generation, server, claim, session, number, life, marks, request })
}

/// Variants of `Envelope`, `Claim` and `Request`, as they are encoded. A test compares them.
const REQUEST: u32 = 0;
const ROUTE: u32 = 1;
const SESSION: u32 = 2;
const TRUSTED: u32 = 0;
const OF_SERVER: u32 = 10;

/// The class of a request decides which threads execute it. Those of one class wait for requests of
/// later ones alone. So no two processes wait for each other, however few threads they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestClass {
    /// A client, whose request may have the server ask as a client itself.
    Client,
    /// A server, which asks as a client on behalf of another one.
    Nested,
    /// A server, by a request that never waits for others.
    Server,
}

/// Returns the class of a request, if its sender may be a server. Looks at its head alone: all requests
/// pass here.
pub(crate) fn class_of(bytes: &[u8]) -> RequestClass {
    let Ok((kind, rest)) = postcard::take_from_bytes::<u32>(bytes) else {
        return RequestClass::Client;
    };
    if [ROUTE, SESSION].contains(&kind) {
        return RequestClass::Server;
    }
    // Servers send no marks.
    type Head = (u64, ServerId, u32, SessionId, u64, Option<Life>, u32, u32);
    match postcard::take_from_bytes::<Head>(rest) {
        Ok(((_, _, TRUSTED, _, _, _, 0, OF_SERVER), _)) => RequestClass::Server,
        Ok(((_, _, TRUSTED, SessionId::SERVER, _, _, 0, _), _)) if kind == REQUEST => {
            RequestClass::Nested
        }
        _ => RequestClass::Client,
    }
}

/// Returns a value as bytes.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    // Bytes in memory cannot fail to be written.
    postcard::to_extend(value, Vec::new()).unwrap_or_default()
}

/// Reads the answer of a server, and the marks of the ids in it.
///
/// # Errors
///
/// Fails as the server did, and with `Unfit`.
pub(crate) fn answer(bytes: &[u8]) -> Result<(Response, Option<Vec<u64>>)> {
    match postcard::from_bytes(bytes) {
        Ok(Answer::Of(Ok(response))) => Ok((response, None)),
        Ok(Answer::Marked(response, marks)) => Ok((response, Some(marks))),
        Ok(Answer::Of(Err(refusal))) => Err(refusal.into()),
        Ok(Answer::Route(_) | Answer::Session(_)) | Err(_) => Err(Error::Unfit),
    }
}

/// Reads the number of a new session.
pub(crate) fn session(bytes: &[u8]) -> Option<SessionId> {
    match postcard::from_bytes(bytes) {
        Ok(Answer::Session(session)) => Some(session),
        _ => None,
    }
}

/// Reads where servers run.
pub(crate) fn route(bytes: &[u8]) -> Option<Route> {
    match postcard::from_bytes(bytes) {
        Ok(Answer::Route(route)) => Some(route),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ServerRequest;
    use canopy_namespace::ROOT;

    #[test]
    fn what_is_sent_is_an_envelope() {
        let sender = Sender { session: SessionId(5), number: 6, ..Sender::SERVER };
        let sent =
            super::request(7, ServerId(3), sender, &Request::DirectoryAtServer(ROOT), Vec::new());
        let envelope = Envelope::Request {
            generation: 7,
            server: ServerId(3),
            claim: Claim::Trusted,
            session: SessionId(5),
            number: 6,
            life: None,
            marks: Vec::new(),
            request: Request::DirectoryAtServer(ROOT),
        };
        assert_eq!(sent, encode(&envelope));
        assert_eq!(class_of(&sent), RequestClass::Client);
        let nested = super::request(
            7,
            ServerId(3),
            Sender::SERVER,
            &Request::DirectoryAtServer(ROOT),
            Vec::new(),
        );
        assert_eq!(class_of(&nested), RequestClass::Nested);
        let of_server = Request::OfServer(ServerRequest::Named(Vec::new()));
        let sent = super::request(7, ServerId(300), sender, &of_server, Vec::new());
        assert_eq!(class_of(&sent), RequestClass::Server);
        assert_eq!(class_of(&encode(&Envelope::Route)), RequestClass::Server);
        let user = Credentials { uid: 0, gids: vec![0, 1, 10] };
        let user = Sender { caller: Caller::User(&user), ..sender };
        let sent = super::request(7, ServerId(3), user, &of_server, Vec::new());
        assert_eq!(class_of(&sent), RequestClass::Client);
        assert_eq!([class_of(&[]), class_of(&[0, 7, 3, 0])], [RequestClass::Client; 2]);
        assert!(matches!(
            postcard::from_bytes(&sent),
            Ok(Envelope::Request { server: ServerId(3), .. })
        ));
    }
}
