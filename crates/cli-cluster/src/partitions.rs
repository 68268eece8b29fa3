//! `canopy cluster partitions` and `spread`, which ask the servers.

use crate::place::Place;
use crate::security::Security;
use anyhow::{Context, bail, ensure};
use canopy::Outcome;
use canopy::commands::cluster::{Partitions as Arguments, Spread};
use canopy_cluster::membership::survey;
use canopy_cluster::wire::Address;
use canopy_cluster::{Client, Patience, Peers, Remote, Request, Response, Sender, SessionId, Wait};
use canopy_namespace::operation::{Caller, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, Reply};
use canopy_partition::{ServerId, SplitHistory};
use canopy_store::Environment;
use canopy_text::counted;
use serde_json::json;
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// Time for the answer of a server, which may just move to another process.
const PATIENCE: Patience =
    Patience { attempt: Duration::from_secs(5), whole: Duration::from_secs(20) };

/// A partition and the server that holds it.
type Held = (SplitHistory, ServerId);

/// Splits of one partition that are stopped by others are given up after so many attempts.
const ATTEMPTS: u32 = 50;

/// Pause after a split that others have stopped.
const PAUSE: Duration = Duration::from_millis(100);

/// Prints the partitions of a directory and the servers that hold them.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let peers = connect(&place, &arguments.namespace, arguments.certificate.as_deref())?;
    let directory = find(&peers, &place, &arguments.directory)?;
    let route = peers.route();
    if !arguments.json {
        canopy::say(format_args!("{:>9}  {:>10}  {:>6}  PROCESS", "PARTITION", "SHARE", "SERVER"))?;
    }
    for (history, server) in partitions(&peers, directory)? {
        let (partition, process) = (history.partition().number(), route.address(server));
        if arguments.json {
            canopy::say_json(&json!({
                "partition": partition, "depth": history.depth(), "server": server.0,
                "process": process,
            }))?;
            continue;
        }
        let process = process.unwrap_or("none");
        canopy::say(format_args!(
            "{partition:>9}  {:>10}  {:>6}  {process}",
            share(history),
            server.0
        ))?;
    }
    Ok(Outcome::Complete)
}

/// Splits the partitions of a directory until each server has as many as it may have.
pub fn spread(arguments: &Spread) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let peers = connect(&place, &arguments.namespace, arguments.certificate.as_deref())?;
    let directory = find(&peers, &place, &arguments.directory)?;
    loop {
        let held = partitions(&peers, directory)?;
        let mut has_split = false;
        for (history, server) in &held {
            has_split |= split(&peers, directory, *history, *server)?;
        }
        if !has_split {
            let servers = BTreeSet::from_iter(held.iter().map(|(_, server)| server.0)).len();
            canopy::say(format_args!(
                "{} has {} on {}",
                arguments.directory.display(),
                counted(held.len(), "partition"),
                counted(servers, "server")
            ))?;
            return Ok(Outcome::Complete);
        }
    }
}

/// Splits a partition once, if there is a server for its upper half. Returns whether it did.
fn split(
    peers: &Arc<Remote>,
    directory: FileId,
    history: SplitHistory,
    server: ServerId,
) -> anyhow::Result<bool> {
    let request = Request::Split(directory, history.partition());
    let mut attempts = 0;
    loop {
        let failed = match peers.ask(server, Sender::SERVER, &request) {
            Ok(Response::Done(has_split)) => return Ok(has_split),
            Ok(_) => bail!("server {server} has sent a reply that does not fit"),
            Err(error) => error,
        };
        attempts += 1;
        if attempts == ATTEMPTS || !matches!(failed, canopy_cluster::Error::Stopped(_)) {
            let partition = history.partition().number();
            let failed = anyhow::Error::from(failed);
            return Err(
                failed.context(format!("cannot split partition {partition} on server {server}"))
            );
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the partitions of a directory, in the order of their numbers.
fn partitions(peers: &Arc<Remote>, directory: FileId) -> anyhow::Result<Vec<Held>> {
    let mut held = Vec::new();
    for server in (0..peers.server_count()).map(ServerId) {
        let asked = peers.ask(server, Sender::SERVER, &Request::Part(directory));
        match asked.with_context(|| format!("cannot ask server {server}"))? {
            Response::Part(_, histories) => {
                held.extend(histories.into_iter().map(|history| (history, server)));
            }
            _ => bail!("server {server} has sent a reply that does not fit"),
        }
    }
    held.sort_by_key(|(history, _)| history.partition().number());
    Ok(held)
}

/// Returns the share of all names that a partition is for.
fn share(history: SplitHistory) -> String {
    match history.depth() {
        0 => "all".to_owned(),
        depth => format!("1/{}", 1_u64 << depth),
    }
}

/// Connects to the processes of the newest map.
fn connect(
    place: &Place,
    namespace: &Path,
    certificate: Option<&Path>,
) -> anyhow::Result<Arc<Remote>> {
    let environment = Environment::system(place.storage.clone());
    let map = survey(&environment)?.map(|(map, _)| map);
    let addresses = map.iter().flat_map(|map| map.processes.values());
    let addresses = addresses.filter_map(|one| one.address.parse::<Address>().ok());
    let addresses = Vec::from_iter(addresses);
    ensure!(
        !addresses.is_empty(),
        "no process of this cluster runs: canopy cluster start {} --listen ADDRESS",
        namespace.display()
    );
    let beside = place.certificate();
    let security = Security::new(place, certificate.or(beside.as_deref()))?;
    // The user gets to know why the command takes long.
    let observer = Arc::new(|wait: &Wait| canopy::message(wait));
    Ok(Remote::connect_with(&addresses, security.of_client()?, PATIENCE, observer)?)
}

/// Finds a directory by its path in the namespace.
fn find(peers: &Arc<Remote>, place: &Place, path: &Path) -> anyhow::Result<FileId> {
    let shown = path.display();
    let random = Environment::system(place.storage.clone()).random;
    let client = Client::new(peers.clone(), SessionId(random.next_u64()));
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
