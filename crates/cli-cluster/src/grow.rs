//! `canopy cluster add` and `balance`: more servers, and large directories that use them.

use crate::numbers::ranges;
use crate::place::Place;
use crate::reach::{check_certificate, connect, find};
use anyhow::{Context, ensure};
use canopy::commands::cluster::{Add, Balance};
use canopy::{Outcome, with_progress};
use canopy_cluster::membership;
use canopy_cluster::{
    HeldPartition, Peers, Remote, Request, SERVERS_MAX, Sender, add_tables, count_tables,
    partitions, partitions_of, placement, split,
};
use canopy_namespace::{FileId, ROOT, system_clock};
use canopy_partition::{PartitionId, Placement, ServerId, SplitHistory};
use canopy_store::Environment;
use canopy_text::counted;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Partitions with at most this share of the entries at which partitions split by themselves (a
/// quarter) are not split to be balanced: more partitions would cost more than they help.
const SHARE: u64 = 4;

/// Time in which another addition changes the cluster map, and pause between two looks.
const ADDITION_TIME: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Adds logical servers.
pub fn add(arguments: &Add) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    check_certificate(&place, arguments.certificate.as_deref())?;
    let environment = Environment::system(place.storage.clone());
    let (listed, known) = counts(&environment)?;
    let has_map = known.is_some();
    let known = known.unwrap_or(listed);
    let mut all = known.saturating_add(arguments.servers).max(listed);
    ensure!(
        all <= SERVERS_MAX,
        "--servers {}: the cluster has {listed}, and {SERVERS_MAX} are possible",
        arguments.servers
    );
    // Nothing is changed if the servers cannot be reached then.
    let connection = match membership::is_stopped(&environment)? {
        true => None,
        false => Some(connect(&place, &arguments.namespace, arguments.certificate.as_deref())?),
    };
    let mut added = Vec::from_iter(known..listed);
    if all > listed {
        let missing = all - listed;
        let show =
            |_: Duration| format!("making tables for {}", counted(missing as usize, "server"));
        // Others may add servers at the same time.
        all = with_progress(&show, || add_tables(&environment, missing, &system_clock()))?;
        added.extend(all - missing..all);
    }
    if has_map {
        membership::add_servers(&environment, all)?;
    }
    let is_started = connection.is_some();
    if let Some(connection) = connection {
        wait_for(connection.remote(), &added)?;
    }
    if arguments.json {
        let servers = all;
        canopy::say_json(&json!({ "added": added, "servers": servers, "running": is_started }))?;
        return Ok(Outcome::Complete);
    }
    let shown = ranges(&added);
    let (what, run) = if added.len() == 1 { ("server", "runs") } else { ("servers", "run") };
    canopy::say(match is_started {
        true => format!("added {what} {shown}, which {run}: there are {all}"),
        false => format!("added {what} {shown}: there are {all}; no process runs"),
    })?;
    Ok(Outcome::Complete)
}

/// Returns the number of tables, and that of servers in the cluster map, if there is one. There are
/// more tables while another addition runs, which is awaited, and if one was interrupted.
fn counts(environment: &Environment) -> anyhow::Result<(u32, Option<u32>)> {
    let deadline = Instant::now() + ADDITION_TIME;
    loop {
        let listed = count_tables(&*environment.storage)?;
        let map = membership::newest_map(&*environment.storage, 0)?;
        let Some(map) = map else { return Ok((listed, None)) };
        let known = (map.servers.len() as u32).min(listed);
        if known == listed || Instant::now() > deadline {
            return Ok((listed, Some(known)));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits until servers answer.
///
/// # Errors
///
/// Fails if one does not for long.
pub fn wait_for(peers: &Remote, servers: &[u32]) -> anyhow::Result<()> {
    let done = AtomicU64::new(0);
    let show =
        |_: Duration| format!("{} of {} servers run", done.load(Ordering::Relaxed), servers.len());
    with_progress(&show, || {
        for server in servers {
            let asked = peers.ask(ServerId(*server), Sender::SERVER, &Request::HomeOf(ROOT));
            asked.with_context(|| format!("server {server} does not run yet"))?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Splits a large directory onto servers that were added.
pub fn balance(arguments: &Balance) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let certificate = arguments.certificate.as_deref();
    let connection = connect(&place, &arguments.namespace, certificate)?;
    let directory = find(connection.client(), &arguments.directory)?;
    let peers = &**connection.remote();
    let held = partitions(peers, directory)?;
    let plan = Plan::new(peers, directory, &held)?;
    let (moved, splits) = (AtomicU64::new(0), AtomicU64::new(0));
    let show = |elapsed: Duration| {
        progress(moved.load(Ordering::Relaxed), plan.moves, elapsed.as_secs_f64())
    };
    with_progress(&show, || plan.carry_out(peers, &moved, &splits))?;
    let (moved, splits) = (moved.into_inner(), splits.into_inner());
    let held = partitions(peers, directory)?;
    let servers = BTreeSet::from_iter(held.iter().map(|one| one.server)).len();
    let entries: u64 = held.iter().map(|one| one.entries).sum();
    if arguments.json {
        canopy::say_json(&json!({
            "splits": splits, "moved": moved, "entries": entries, "partitions": held.len(),
            "servers": servers,
        }))?;
        return Ok(Outcome::Complete);
    }
    canopy::say(format_args!(
        "{} has {entries} entries in {} on {}; {} moved",
        arguments.directory.display(),
        counted(held.len(), "partition"),
        counted(servers, "server"),
        counted(moved, "entry"),
    ))?;
    Ok(Outcome::Complete)
}

/// Returns a line about entries that move.
fn progress(moved: u64, expected: u64, seconds: f64) -> String {
    let rate = moved as f64 / seconds.max(0.001);
    let left = match moved {
        0 => String::new(),
        _ => format!(", {:.0} s left", expected.saturating_sub(moved) as f64 / rate),
    };
    format!("{moved} of about {expected} entries moved, {rate:.0}/s{left}")
}

/// Splits of a directory that is to be balanced.
struct Plan {
    directory: FileId,
    placement: Option<Placement>,
    /// Partitions with more entries are split.
    entries_max: u64,
    held: Vec<HeldPartition>,
    /// Entries that are expected to move.
    moves: u64,
}

impl Plan {
    fn new(peers: &dyn Peers, directory: FileId, held: &[HeldPartition]) -> anyhow::Result<Self> {
        let policy = peers.policy();
        let placement = placement(peers, directory, held)?;
        // A directory that was never split is small, or splits by itself.
        let entries_max = match placement {
            Some(_) => policy.entries_max / SHARE,
            None => policy.threshold(directory.0, PartitionId::ZERO),
        };
        let held = held.to_vec();
        let mut plan = Plan { directory, placement, entries_max, held, moves: 0 };
        plan.moves = plan.held.iter().map(|one| plan.moves(peers, one.history, one.entries)).sum();
        Ok(plan)
    }

    /// Returns how many entries of a partition are expected to move.
    fn moves(&self, peers: &dyn Peers, history: SplitHistory, entries: u64) -> u64 {
        let Some(placement) = self.placement.filter(|_| entries > self.entries_max) else {
            return 0;
        };
        let split = peers.policy().child(&placement, history, peers.server_count());
        let Some(split) = split else { return 0 };
        let (partition, depth) = (history.partition(), history.depth() + 1);
        let upper = entries / 2;
        let halves = [(partition, entries - upper), (split.child, upper)];
        let later = halves.into_iter().filter_map(|(partition, entries)| {
            Some(self.moves(peers, SplitHistory::new(partition, depth)?, entries))
        });
        later.sum::<u64>() + if split.moves { upper } else { 0 }
    }

    /// Splits partitions until none is larger than it has to be, the largest ones first. Counts the
    /// entries that went to other servers, and the splits.
    fn carry_out(
        &self,
        peers: &dyn Peers,
        moved: &AtomicU64,
        splits: &AtomicU64,
    ) -> anyhow::Result<()> {
        let mut held = self.held.clone();
        let mut done = BTreeSet::new();
        loop {
            let is_large = |one: &&HeldPartition| {
                one.entries > self.entries_max && !done.contains(&one.history.partition())
            };
            let next = held.iter().filter(is_large).max_by_key(|one| one.entries);
            let Some(next) = next.copied() else { return Ok(()) };
            if !split(peers, self.directory, &next)? {
                // There is no server for another half of it.
                done.insert(next.history.partition());
                continue;
            }
            splits.fetch_add(1, Ordering::Relaxed);
            let known = BTreeSet::from_iter(held.iter().map(|one| one.history.partition()));
            let child = next.history.partition().child(next.history.depth());
            let placement = placement(peers, self.directory, &[next])?;
            let receiver = child.and_then(|child| Some(placement?.server(child)));
            for server in BTreeSet::from([next.server, receiver.unwrap_or(next.server)]) {
                held.retain(|one| one.server != server);
                held.extend(partitions_of(peers, self.directory, server)?);
            }
            let is_new = |one: &&HeldPartition| !known.contains(&one.history.partition());
            let arrived = held.iter().filter(is_new).filter(|one| one.server != next.server);
            moved.fetch_add(arrived.map(|one| one.entries).sum(), Ordering::Relaxed);
        }
    }
}
