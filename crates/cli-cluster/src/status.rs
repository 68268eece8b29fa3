//! `canopy cluster status` and `drain`, which look at the cluster map in storage. `status` asks the
//! processes for numbers of partitions and entries, too.

use crate::grow::wait_for;
use crate::numbers::ranges;
use crate::place::Place;
use crate::reach::{check_certificate, connect, connect_quickly};
use anyhow::{Context, bail};
use canopy::commands::cluster::{Drain, Status};
use canopy::{Outcome, with_progress};
use canopy_cluster::membership::{self, MapProcess, ProcessId, ProcessState, ProcessStatus};
use canopy_cluster::wire::Address;
use canopy_cluster::{
    Peers, Remote, Request, Response, Sender, ServerRequest, Tally, check_restored,
};
use canopy_store::Environment;
use canopy_text::shell_word;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// Time in which processes have to carry a new map out.
const DRAIN_TIME: Duration = Duration::from_secs(120);

/// Pause between two looks at the map.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A process, as `status` shows it.
struct Row<'a> {
    process: &'a ProcessStatus,
    /// Numbers of its servers; none if it does not answer.
    tally: Option<Tally>,
    state: &'static str,
}

/// Prints the processes of a cluster.
pub fn run(arguments: &Status) -> anyhow::Result<Outcome> {
    let namespace = &arguments.namespace;
    let place = Place::open(namespace)?;
    let environment = Environment::system(place.storage.clone());
    check_restored(&*place.storage)?;
    let Some((map, mut processes)) = membership::survey(&environment)? else {
        bail!(
            "no process of this cluster was started: canopy cluster start {} --listen ADDRESS",
            shell_word(namespace)
        );
    };
    processes.sort_by(|one, other| one.address.cmp(&other.address));
    let living = membership::living(&environment, &map)?;
    let certificate = arguments.certificate.as_deref();
    check_certificate(&place, certificate)?;
    // Without an answer, the rest is shown.
    let addresses = processes.iter().filter(|one| living.contains(&one.process));
    let addresses = Vec::from_iter(addresses.filter_map(|one| one.address.parse().ok()));
    let peers = match addresses.is_empty() {
        true => None,
        false => unless_failed(connect_quickly(&place, &addresses, certificate)),
    };
    let asked = Vec::from_iter(processes.iter().map(|one| living.contains(&one.process)));
    let tallies = tallies(peers.as_ref(), processes.iter().zip(asked));
    let states = processes.iter().map(|one| match living.contains(&one.process) {
        true => state(one, map.version),
        false => "dead",
    });
    let rows = processes.iter().zip(tallies).zip(states);
    let rows = Vec::from_iter(rows.map(|((process, tally), state)| Row { process, tally, state }));
    if arguments.json {
        for row in &rows {
            canopy::answer_json(&as_json(row, map.version))?;
        }
    } else {
        print(&rows)?;
    }
    let is_run = |process: &ProcessId| living.contains(process);
    let idle = (0..).zip(&map.servers);
    let idle = idle.filter(|(_, server)| !server.process.as_ref().is_some_and(is_run));
    let idle = Vec::from_iter(idle.map(|(number, _): (u32, _)| number));
    if idle.is_empty() {
        return Ok(Outcome::Complete);
    }
    canopy::message(format_args!("no process runs servers {}", ranges(&idle)));
    Ok(Outcome::Partial)
}

/// Returns the numbers of each process that lives, which are asked for at once; none of one that does
/// not answer.
fn tallies<'a>(
    peers: Option<&Arc<Remote>>,
    processes: impl Iterator<Item = (&'a ProcessStatus, bool)>,
) -> Vec<Option<Tally>> {
    std::thread::scope(|scope| {
        let ask = |process| peers.map(|peers| scope.spawn(move || tally(peers, process)));
        let asked = processes.map(|(process, lives)| lives.then(|| ask(process)).flatten());
        let asked = Vec::from_iter(asked);
        let answer = |one: ScopedJoinHandle<'_, _>| one.join().ok().and_then(unless_failed);
        asked.into_iter().map(|one| one.and_then(answer)).collect()
    })
}

/// Says why numbers are missing.
fn unless_failed<T>(asked: anyhow::Result<T>) -> Option<T> {
    asked.map_err(|error| canopy::message(format_args!("numbers are missing: {error:#}"))).ok()
}

fn tally(peers: &Remote, process: &ProcessStatus) -> anyhow::Result<Tally> {
    let mut sum = Tally::default();
    for server in &process.servers {
        let request = Request::OfServer(ServerRequest::Tally);
        let answer = peers.ask(*server, Sender::SERVER, &request);
        let answer = answer.with_context(|| process.address.clone())?;
        let Response::Tally(Some(tally)) = answer else {
            bail!("{}: server {server} is still counting", process.address);
        };
        sum.partitions += tally.partitions;
        sum.entries += tally.entries;
    }
    Ok(sum)
}

fn print(processes: &[Row<'_>]) -> anyhow::Result<()> {
    let heads = ["PROCESS", "SERVERS", "PARTITIONS", "ENTRIES", "LEASE", "STATE"];
    let mut rows = vec![heads.map(str::to_owned)];
    for Row { process: one, tally, state } in processes {
        let lease = one.renewed.map(|age| format!("{:.1} s", age.as_secs_f64()));
        let lease = lease.unwrap_or_else(|| "none".to_owned());
        let number = |of: fn(&Tally) -> u64| {
            tally.as_ref().map_or_else(|| "-".to_owned(), |tally| of(tally).to_string())
        };
        let numbers = [number(|tally| tally.partitions), number(|tally| tally.entries)];
        let [partitions, entries] = numbers;
        let (address, state) = (one.address.clone(), (*state).to_owned());
        rows.push([address, servers(one), partitions, entries, lease, state]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [process, servers, partitions, entries, lease] = [0, 1, 2, 3, 4].map(width);
    for [one, two, three, four, five, six] in &rows {
        canopy::answer(format!(
            "{one:process$}  {two:>servers$}  {three:>partitions$}  {four:>entries$}  \
             {five:>lease$}  {six}"
        ))?;
    }
    Ok(())
}

fn servers(process: &ProcessStatus) -> String {
    ranges(&Vec::from_iter(process.servers.iter().map(|server| server.0)))
}

fn state(process: &ProcessStatus, version: u64) -> &'static str {
    match process.state {
        ProcessState::Joining => "joining",
        ProcessState::Serving => "serving",
        ProcessState::Draining if is_drained(process, version) => "drained",
        ProcessState::Draining => "draining",
    }
}

/// Returns whether a process runs no servers any more.
fn is_drained(process: &ProcessStatus, version: u64) -> bool {
    process.servers.is_empty() && process.carried_out >= version
}

fn as_json(row: &Row<'_>, version: u64) -> serde_json::Value {
    let Row { process, tally, state } = row;
    json!({
        "process": process.address, "id": process.process.to_string(),
        "servers": Vec::from_iter(process.servers.iter().map(|server| server.0)),
        "partitions": tally.as_ref().map(|tally| tally.partitions),
        "entries": tally.as_ref().map(|tally| tally.entries),
        "lease_age": process.renewed.map(|age| age.as_secs_f64()),
        "state": state, "map": version,
    })
}

/// Has the processes of a machine give their servers away, and waits until they have.
pub fn drain(arguments: &Drain) -> anyhow::Result<Outcome> {
    let (host, namespace) = (&arguments.host, &arguments.namespace);
    let place = Place::open(namespace)?;
    check_certificate(&place, arguments.certificate.as_deref())?;
    let environment = Environment::system(place.storage.clone());
    let is_meant = |process: &MapProcess| is_on(&process.address, host);
    let (map, processes) = membership::survey(&environment)?
        .with_context(|| format!("no process of {} was started", namespace.display()))?;
    let meant = Vec::from_iter(processes.iter().filter(|one| is_on(&one.address, host)));
    if meant.is_empty() {
        let known = Vec::from_iter(processes.iter().map(|one| one.address.as_str())).join(", ");
        match known.as_str() {
            "" => bail!("no process of {} runs", namespace.display()),
            known => bail!("no process listens on {host}; there are: {known}"),
        }
    }
    let living = membership::living(&environment, &map)?;
    let takes = |one: &ProcessStatus| living.contains(&one.process) && !is_on(&one.address, host);
    if !processes.iter().any(takes) {
        bail!("no other process runs that could take the servers of {host}: start one first");
    }
    let moved = meant.iter().flat_map(|one| &one.servers).map(|server| server.0);
    let mut moved = Vec::from_iter(moved);
    moved.sort_unstable();
    let map = membership::drain(&environment, |_, process| is_meant(process))?;
    // Servers of those that are dead go to others by themselves.
    let drained = meant.iter().map(|one| one.process).filter(|one| living.contains(one));
    let drained = BTreeSet::from_iter(drained);
    wait_until_drained(&environment, &drained, map.version)?;
    if let Ok(connection) = connect(&place, namespace, arguments.certificate.as_deref()) {
        wait_for(connection.remote(), &moved)?;
    }
    if arguments.json {
        let processes = Vec::from_iter(meant.iter().map(|one| one.address.as_str()));
        canopy::say_json(&json!({ "processes": processes, "moved": moved, "map": map.version }))?;
        return Ok(Outcome::Complete);
    }
    canopy::say(match moved.is_empty() {
        true => format!("{host} runs no servers, and gets none"),
        false => format!("{host} gave servers {} to other processes", ranges(&moved)),
    })?;
    Ok(Outcome::Complete)
}

/// Waits until processes have stopped all servers that a version of the map takes from them, or have
/// ended.
fn wait_until_drained(
    environment: &Environment,
    drained: &BTreeSet<ProcessId>,
    version: u64,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + DRAIN_TIME;
    let show = |_: Duration| "waiting until the servers have stopped".to_owned();
    with_progress(&show, || {
        loop {
            let processes = membership::survey(environment)?.map(|(_, processes)| processes);
            let mut left = processes.into_iter().flatten();
            let left = left.find(|one| drained.contains(&one.process) && one.carried_out < version);
            let Some(left) = left else { return Ok(()) };
            if Instant::now() > deadline {
                bail!("{} has not stopped its servers: is it alive?", left.address);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    })
}

/// Returns whether an address is that of a machine or of one process.
fn is_on(address: &str, host: &str) -> bool {
    if address == host {
        return true;
    }
    match address.parse() {
        Ok(Address::Tcp { host: of, .. }) => of == host,
        _ => false,
    }
}
