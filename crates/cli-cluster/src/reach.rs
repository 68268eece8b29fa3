//! Reaching the servers of a cluster, and directories by their paths.

use crate::place::Place;
use anyhow::{Context, bail, ensure};
use canopy_cluster::wire::Address;
use canopy_cluster::{
    Client, Connection, Patience, Peers, Remote, Request, Response, Security, Sender,
    ServerRequest, Wait,
};
use canopy_namespace::operation::{Caller, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, Reply};
use canopy_partition::{Placement, ServerId, SplitHistory};
use canopy_store::Environment;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// Time for the answer of a server, where a command goes on without it.
const QUICK: Patience = Patience { attempt: Duration::from_secs(2), whole: Duration::from_secs(2) };

/// Splits of one partition that are stopped by others are given up after so many attempts.
const ATTEMPTS: u32 = 50;

/// Pause after a split that others have stopped.
const PAUSE: Duration = Duration::from_millis(100);

/// A partition of a directory, as its server reports it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    pub history: SplitHistory,
    pub server: ServerId,
    pub entries: u64,
}

/// Connects to the processes of the newest map.
pub fn connect(
    place: &Place,
    namespace: &Path,
    certificate: Option<&Path>,
) -> anyhow::Result<Connection> {
    let environment = Environment::system(place.storage.clone());
    // The user gets to know why the command takes long.
    let observer = Arc::new(|wait: &Wait| canopy::message(wait));
    let connected = Connection::of_storage(&environment, security(place, certificate)?, observer);
    connected.with_context(|| {
        let shown = namespace.display();
        format!(
            "no servers can be reached; start some: canopy cluster start {shown} --listen ADDRESS"
        )
    })
}

/// Connects to processes at addresses that answer at once, or not at all.
pub fn connect_quickly(
    place: &Place,
    addresses: &[Address],
    certificate: Option<&Path>,
) -> anyhow::Result<Arc<Remote>> {
    let security = security(place, certificate)?;
    Ok(Remote::connect(addresses, security.for_servers()?, QUICK)?)
}

fn security(place: &Place, certificate: Option<&Path>) -> anyhow::Result<Security> {
    let beside = place.certificate();
    Security::of_client(Some(&place.storage), certificate.or(beside.as_deref()))
        .context("cannot use the certificate")
}

/// Finds a directory by its path in the namespace.
pub fn find(client: &Client, path: &Path) -> anyhow::Result<FileId> {
    let shown = path.display();
    let mut found = ROOT;
    for component in path.components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => EntryName::new(found, name.as_bytes()),
            _ => bail!("{shown}: give the path of a directory in the namespace, from its root on"),
        };
        let lookup = Operation::Read(Moment::Now, Read::Lookup(name));
        let reply = client.execute_for(Caller::Trusted, &lookup);
        let inode = match reply.map_err(canopy_namespace::Error::from) {
            Ok(Reply::Inode(inode)) => inode,
            Ok(_) => bail!("{shown}: a server has sent a reply that does not fit"),
            Err(error) => return Err(error).with_context(|| shown.to_string()),
        };
        ensure!(inode.is_directory(), "{shown}: not a directory");
        found = inode.id;
    }
    Ok(found)
}

/// Returns the partitions of a directory, in the order of their numbers.
pub fn partitions(peers: &Remote, directory: FileId) -> anyhow::Result<Vec<Held>> {
    let mut held = Vec::new();
    for server in (0..peers.server_count()).map(ServerId) {
        held.extend(partitions_of(peers, directory, server)?);
    }
    held.sort_by_key(|one| one.history.partition().number());
    Ok(held)
}

/// Returns the partitions of a directory that a server holds.
pub fn partitions_of(
    peers: &Remote,
    directory: FileId,
    server: ServerId,
) -> anyhow::Result<Vec<Held>> {
    let request = Request::OfServer(ServerRequest::Counts(directory));
    let asked = peers.ask(server, Sender::SERVER, &request);
    let Response::Counts(counts) = asked.with_context(|| format!("cannot ask server {server}"))?
    else {
        bail!("server {server} has sent a reply that does not fit");
    };
    let held = counts.into_iter().map(|(history, entries)| Held { history, server, entries });
    Ok(held.collect())
}

/// Returns the servers of the partitions of a directory; none if it was never split.
pub fn placement(
    peers: &Remote,
    directory: FileId,
    held: &[Held],
) -> anyhow::Result<Option<Placement>> {
    let Some(first) = held.first() else { return Ok(None) };
    let server = first.server;
    match peers.ask(server, Sender::SERVER, &Request::Part(directory)) {
        Ok(Response::Part(_, partitions)) => Ok(partitions.placement),
        Ok(_) => bail!("server {server} has sent a reply that does not fit"),
        Err(error) => Err(error).with_context(|| format!("cannot ask server {server}")),
    }
}

/// Splits a partition once, if there is a server for its upper half. Returns whether it did.
pub fn split(peers: &Remote, directory: FileId, held: &Held) -> anyhow::Result<bool> {
    let (partition, server) = (held.history.partition(), held.server);
    let request = Request::Split(directory, partition);
    let mut attempts = 0;
    loop {
        let failed = match peers.ask(server, Sender::SERVER, &request) {
            Ok(Response::Done(has_split)) => return Ok(has_split),
            Ok(_) => bail!("server {server} has sent a reply that does not fit"),
            Err(error) => error,
        };
        attempts += 1;
        if attempts == ATTEMPTS || !matches!(failed, canopy_cluster::Error::Stopped(_)) {
            let partition = partition.number();
            let failed = anyhow::Error::from(failed);
            return Err(
                failed.context(format!("cannot split partition {partition} on server {server}"))
            );
        }
        std::thread::sleep(PAUSE);
    }
}
