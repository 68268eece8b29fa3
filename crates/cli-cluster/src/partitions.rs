//! `canopy cluster partitions`.

use crate::place::Place;
use crate::security::Security;
use anyhow::{Context, bail, ensure};
use canopy::Outcome;
use canopy::commands::cluster::Partitions as Arguments;
use canopy_cluster::membership::survey;
use canopy_cluster::wire::Address;
use canopy_cluster::{Client, Patience, Peers, Remote, Request, Response, Sender, SessionId};
use canopy_namespace::operation::{Caller, Moment, Operation, Read};
use canopy_namespace::{EntryName, FileId, ROOT, Reply};
use canopy_partition::{ServerId, SplitHistory};
use canopy_store::Environment;
use serde_json::json;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::Arc;
use std::time::Duration;

/// Time for the answer of a server, which may just move to another process.
const PATIENCE: Patience =
    Patience { attempt: Duration::from_secs(5), whole: Duration::from_secs(20) };

/// Prints the partitions of a directory and the servers that hold them.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let peers = connect(arguments, &place)?;
    let directory = find(&peers, &place, &arguments.directory)?;
    let mut partitions = Vec::new();
    for server in (0..peers.server_count()).map(ServerId) {
        let asked = peers.ask(server, Sender::SERVER, &Request::Part(directory));
        match asked.with_context(|| format!("cannot ask server {server}"))? {
            Response::Part(_, histories) => {
                partitions.extend(histories.into_iter().map(|history| (history, server)));
            }
            _ => bail!("server {server} has sent a reply that does not fit"),
        }
    }
    partitions.sort_by_key(|(history, _)| history.partition().number());
    let route = peers.route();
    if !arguments.json {
        canopy::say(format_args!("{:>9}  {:>10}  {:>6}  PROCESS", "PARTITION", "SHARE", "SERVER"))?;
    }
    for (history, server) in partitions {
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

/// Returns the share of all names that a partition is for.
fn share(history: SplitHistory) -> String {
    match history.depth() {
        0 => "all".to_owned(),
        depth => format!("1/{}", 1_u64 << depth),
    }
}

/// Connects to the processes of the newest map.
fn connect(arguments: &Arguments, place: &Place) -> anyhow::Result<Arc<Remote>> {
    let environment = Environment::system(place.storage.clone());
    let map = survey(&environment)?.map(|(map, _)| map);
    let addresses = map.iter().flat_map(|map| map.processes.values());
    let addresses = addresses.filter_map(|one| one.address.parse::<Address>().ok());
    let addresses = Vec::from_iter(addresses);
    ensure!(
        !addresses.is_empty(),
        "no process of this cluster runs: canopy cluster start {} --listen ADDRESS",
        arguments.namespace.display()
    );
    let beside = place.certificate();
    let security = Security::new(place, arguments.certificate.as_deref().or(beside.as_deref()))?;
    Ok(Remote::connect(&addresses, security.of_client()?, PATIENCE)?)
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
