//! A connection to a running cluster, for programs that use its namespace: a mount, and commands.
//!
//! A cluster is found by its storage, whose newest map names the processes, or by addresses that the
//! user gives. Processes report the name of their storage ([`Route::place`](crate::Route::place)); chunks of large files lie
//! there. The client opens it itself, as this machine may know it by another name, and proves that it
//! is the storage of the same cluster.
//!
//! Servers decide for whom a client speaks ([`Speaker`]). A client that they trust names the caller
//! `Trusted`. Another one names the user behind each request, and itself where a request is of nobody:
//! so `Trusted` becomes the client's own user before it is sent ([`Client::speaking_for`]).

use crate::certificates::{CertificateError, ClusterId, Identity};
use crate::client::Client;
use crate::contents::{ClusterNamespace, Memory};
use crate::error::{Error, Result};
use crate::membership::{ClusterMap, MapProcess, MembershipError, living, newest_map};
use crate::message::{Request, Response, Sender};
use crate::peers::Peers;
use crate::remote::{Patience, Remote};
use crate::rights::MACHINE;
use crate::security::Security;
use crate::waits::WaitObserver;
use crate::wire::{Address, AddressError};
use canopy_model::{Credentials, ErrorKind};
use canopy_namespace::operation::{Administration, Caller, Operation};
use canopy_namespace::{Reply, Settings};
use canopy_partition::ServerId;
use canopy_store::Environment;
use canopy_store::storage::Storage;
use rustix::io::Errno;
use std::sync::Arc;
use std::time::Duration;

/// Beginning of the names of clusters by addresses.
const SCHEME: &str = "canopy://";

/// Time for a request until the client notices that a server may have been replaced. The client sends
/// it again ([`Client::with_patience`]).
const PATIENCE: Patience =
    Patience { attempt: Duration::from_secs(10), whole: Duration::from_secs(10) };

/// Time in which a process has to answer the first question.
const CONNECTING: Duration = Duration::from_secs(20);

/// An error of connecting to a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The cluster map cannot be read.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// The servers do not answer, or refuse.
    #[error(transparent)]
    Cluster(#[from] Error),
    /// No process of the map lives.
    #[error("no process of this cluster runs{}", last_seen(.0))]
    NoProcess(Vec<Address>),
    /// The storage is that of another cluster.
    #[error("it has cluster {found}, and the servers run {expected}")]
    OtherCluster {
        /// The cluster in the storage.
        found: String,
        /// The cluster of the servers.
        expected: String,
    },
}

impl ConnectionError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            ConnectionError::Certificate(error) => error.kind(),
            ConnectionError::Membership(error) => error.kind(),
            ConnectionError::Cluster(Error::Namespace(error)) => error.kind(),
            ConnectionError::Cluster(_) | ConnectionError::NoProcess(_) => ErrorKind::Unavailable,
            ConnectionError::OtherCluster { .. } => ErrorKind::Invalid,
        }
    }
}

/// The callers for whom servers let a client speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// A client that servers trust: it has checked its callers.
    Trusted,
    /// A machine: it names the user of each request, and servers check what that user may do.
    Machine {
        /// Whether the user may be root.
        speaks_for_root: bool,
    },
    /// One user.
    User(u32),
}

impl Speaker {
    /// Returns the user of requests that are of nobody; none for a client that is trusted.
    fn own(self) -> Option<Credentials> {
        match self {
            Speaker::Trusted => None,
            Speaker::Machine { speaks_for_root: true } => Some(Credentials::new(0, [0])),
            Speaker::Machine { speaks_for_root: false } => Some(Credentials::new(MACHINE, [])),
            Speaker::User(uid) => Some(Credentials::new(uid, [])),
        }
    }
}

/// Returns the addresses that the name of a cluster has, `canopy://HOST:PORT[,HOST:PORT...]` or
/// `canopy://unix:/PATH`; none if the name is of something else.
///
/// # Errors
///
/// Fails if something behind `canopy://` is not an address.
pub fn addresses_of(name: &str) -> Option<std::result::Result<Vec<Address>, AddressError>> {
    let list = name.strip_prefix(SCHEME)?;
    Some(list.trim_end_matches('/').split(',').map(str::parse).collect())
}

/// Returns the name of a cluster with these addresses.
pub fn name_of(addresses: &[Address]) -> String {
    let addresses = Vec::from_iter(addresses.iter().map(Address::to_string));
    format!("{SCHEME}{}", addresses.join(","))
}

/// A connection to the servers of a running cluster.
pub struct Connection {
    remote: Arc<Remote>,
    client: Arc<Client>,
    security: Security,
    settings: Settings,
    speaker: Speaker,
}

impl Connection {
    /// Connects to the processes in the newest map of a storage.
    ///
    /// # Errors
    ///
    /// Fails with `NoProcess` if none lives, if none answers, and as storage does.
    pub fn of_storage(
        environment: &Environment,
        security: Security,
        observer: WaitObserver,
    ) -> std::result::Result<Self, ConnectionError> {
        let map = newest_map(&*environment.storage, 0).map_err(MembershipError::from)?;
        let map = map.unwrap_or_default();
        // Others run the servers of one that has just died.
        let addresses = addresses_in(&map);
        if living(environment, &map)?.is_empty() {
            return Err(ConnectionError::NoProcess(addresses));
        }
        let lease = map.processes.values().map(MapProcess::lease).max().unwrap_or_default();
        let remote = match connect(&addresses, &security, lease, observer.clone()) {
            Ok(remote) => remote,
            // They had died just now.
            Err(_) if living(environment, &map)?.is_empty() => {
                return Err(ConnectionError::NoProcess(addresses));
            }
            Err(_) => connect(&addresses, &security, CONNECTING, observer)?,
        };
        let connection = Self::begin(remote, security)?;
        connection.check_storage(&*environment.storage)?;
        Ok(connection)
    }

    /// Connects to processes at addresses. One of them has to answer. The observer is notified of
    /// servers that do not answer for long.
    ///
    /// # Errors
    ///
    /// Fails if none answers in time, and if they refuse the client.
    pub fn open(
        addresses: &[Address],
        security: Security,
        observer: WaitObserver,
    ) -> std::result::Result<Self, ConnectionError> {
        Self::begin(connect(addresses, &security, CONNECTING, observer)?, security)
    }

    /// Begins a session.
    fn begin(
        remote: Arc<Remote>,
        security: Security,
    ) -> std::result::Result<Self, ConnectionError> {
        let (speaker, settings) = introduce(&remote, &security)?;
        let peers: Arc<dyn Peers> = remote.clone();
        let client = Client::new(peers, remote.begin_session()?).speaking_for(speaker.own());
        Ok(Connection { remote, client: Arc::new(client), security, settings, speaker })
    }

    /// Returns the way to each server.
    pub fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// Returns a client of the servers.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Returns the certificate and the trust of the connection.
    pub fn security(&self) -> &Security {
        &self.security
    }

    /// Returns the settings of the namespace, as server 0 had them.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns for whom the client may speak.
    pub fn speaker(&self) -> Speaker {
        self.speaker
    }

    /// Returns the name by which the servers know their storage.
    pub fn place(&self) -> String {
        self.remote.route().place.clone()
    }

    /// Checks that a storage is that of the cluster.
    ///
    /// # Errors
    ///
    /// Fails with `OtherCluster` if it is another one's, and as storage does.
    pub fn check_storage(&self, storage: &dyn Storage) -> std::result::Result<(), ConnectionError> {
        let (found, expected) = (ClusterId::of(storage)?.to_string(), self.cluster());
        match found == expected {
            true => Ok(()),
            false => Err(ConnectionError::OtherCluster { found, expected }),
        }
    }

    /// Returns the id of the cluster.
    pub fn cluster(&self) -> String {
        self.remote.route().cluster.clone()
    }

    /// Ends the session at all servers.
    pub fn end(&self) {
        self.client.end();
    }

    /// Returns the namespace, whose chunks lie in the storage of an environment, and keeps the session
    /// alive until the connection is dropped. The storage also names the processes if none of those
    /// answers that are known.
    ///
    /// # Errors
    ///
    /// Fails if the system starts no thread.
    pub fn namespace(
        &self,
        environment: &Environment,
        memory: Memory,
    ) -> canopy_namespace::Result<Arc<ClusterNamespace>> {
        self.client.keep_renewed()?;
        let storage = environment.clone();
        self.remote.look(move || in_map(&storage).unwrap_or_default());
        let client = self.client.clone();
        ClusterNamespace::new(client, environment, &self.settings, memory).map(Arc::new)
    }
}

/// Connects to processes, of which one has to answer within a time.
fn connect(
    addresses: &[Address],
    security: &Security,
    limit: Duration,
    observer: WaitObserver,
) -> std::result::Result<Arc<Remote>, ConnectionError> {
    let to_servers = security.for_servers()?;
    Ok(Remote::connect_within(addresses, to_servers, PATIENCE, limit, observer)?)
}

/// Returns the addresses of processes as the end of a message.
fn last_seen(addresses: &[Address]) -> String {
    let shown = Vec::from_iter(addresses.iter().map(Address::to_string));
    match shown.is_empty() {
        true => String::new(),
        false => format!(": none answers at {}", shown.join(", ")),
    }
}

/// Returns the addresses of the processes in the newest map.
fn in_map(environment: &Environment) -> std::result::Result<Vec<Address>, MembershipError> {
    let map = newest_map(&*environment.storage, 0)?;
    Ok(map.map(|map| addresses_in(&map)).unwrap_or_default())
}

fn addresses_in(map: &ClusterMap) -> Vec<Address> {
    map.processes.values().filter_map(|one| one.address.parse().ok()).collect()
}

/// Finds out for whom the client may speak, and returns the settings of the namespace.
fn introduce(
    remote: &Remote,
    security: &Security,
) -> std::result::Result<(Speaker, Settings), ConnectionError> {
    let own = match security.identity() {
        Some(Identity::Server) => Speaker::Trusted,
        Some(Identity::Node { is_root, .. }) => Speaker::Machine { speaks_for_root: is_root },
        Some(Identity::User { uid }) => Speaker::User(uid),
        // Servers trust their own user, and root.
        None => match settings_for(remote, Speaker::Trusted) {
            Err(Error::Namespace(error)) if error.errno() == Errno::PERM => {
                Speaker::User(rustix::process::geteuid().as_raw())
            }
            settings => return Ok((Speaker::Trusted, settings?)),
        },
    };
    Ok((own, settings_for(remote, own)?))
}

fn settings_for(remote: &Remote, speaker: Speaker) -> Result<Settings> {
    let own = speaker.own();
    let caller = own.as_ref().map_or(Caller::Trusted, Caller::User);
    let ask = Request::Execute(Operation::Administration(Administration::Settings));
    match remote.ask(ServerId(0), Sender { caller, ..Sender::SERVER }, &ask)? {
        Response::Reply(Reply::Settings(settings)) => Ok(settings),
        _ => Err(Error::Unfit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_are_named_by_their_addresses() {
        for name in ["canopy://10.1.0.5:7040,[::1]:7041", "canopy://unix:/run/canopy.sock"] {
            let addresses = addresses_of(name).unwrap().unwrap();
            assert_eq!(name_of(&addresses), name);
        }
        assert_eq!(addresses_of("canopy://a:1/").unwrap().unwrap().len(), 1);
        for wrong in ["canopy://", "canopy://a", "canopy://a:1,", "canopy://a:1/x"] {
            assert!(addresses_of(wrong).unwrap().is_err(), "{wrong}");
        }
        for other in ["/gpfs/ns", "s3://bucket/ns", "canopy:/a:1"] {
            assert!(addresses_of(other).is_none(), "{other}");
        }
    }
}
