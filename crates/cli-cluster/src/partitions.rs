//! `canopy cluster partitions` and `spread`, which ask the servers.

use crate::place::Place;
use crate::reach::{connect, find};
use canopy::Outcome;
use canopy::commands::cluster::{Partitions as Arguments, Spread};
use canopy_cluster::{partitions, spread as spread_directory};
use canopy_partition::SplitHistory;
use canopy_text::counted;
use serde_json::json;
use std::collections::BTreeSet;

/// Prints the partitions of a directory and the servers that hold them.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let connection = connect(&place, &arguments.namespace, arguments.certificate.as_deref())?;
    let directory = find(connection.client(), &arguments.directory)?;
    let peers = connection.remote();
    let route = peers.route();
    if !arguments.json {
        canopy::answer(format_args!(
            "{:>9}  {:>10}  {:>10}  {:>6}  PROCESS",
            "PARTITION", "SHARE", "ENTRIES", "SERVER"
        ))?;
    }
    for held in partitions(&**peers, directory)? {
        let (history, server) = (held.history, held.server);
        let (partition, process) = (history.partition().number(), route.address(server));
        if arguments.json {
            canopy::answer_json(&json!({
                "partition": partition, "depth": history.depth(), "entries": held.entries,
                "server": server.0, "process": process,
            }))?;
            continue;
        }
        let process = process.unwrap_or("none");
        canopy::answer(format_args!(
            "{partition:>9}  {:>10}  {:>10}  {:>6}  {process}",
            share(history),
            held.entries,
            server.0
        ))?;
    }
    Ok(Outcome::Complete)
}

/// Splits the partitions of a directory until each server has as many as it may have.
pub fn spread(arguments: &Spread) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let connection = connect(&place, &arguments.namespace, arguments.certificate.as_deref())?;
    let directory = find(connection.client(), &arguments.directory)?;
    let held = spread_directory(&**connection.remote(), directory)?;
    let servers = BTreeSet::from_iter(held.iter().map(|one| one.server)).len();
    canopy::say(format_args!(
        "{} has {} on {}",
        arguments.directory.display(),
        counted(held.len(), "partition"),
        counted(servers, "server")
    ))?;
    Ok(Outcome::Complete)
}

/// Returns the share of all names that a partition is for.
fn share(history: SplitHistory) -> String {
    match history.depth() {
        0 => "all".to_owned(),
        depth => format!("1/{}", 1_u64 << depth),
    }
}
