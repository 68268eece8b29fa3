//! `canopy cluster status` and `drain`, which look at the cluster map in storage.

use crate::numbers::ranges;
use crate::place::Place;
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy_cluster::membership::{self, MapProcess, ProcessState, ProcessStatus};
use canopy_cluster::wire::Address;
use canopy_store::Environment;
use serde_json::json;
use std::path::Path;

/// Prints the processes of a cluster.
pub fn run(namespace: &Path, is_json: bool) -> anyhow::Result<Outcome> {
    let place = Place::open(namespace)?;
    let environment = Environment::system(place.storage);
    let Some((map, mut processes)) = membership::survey(&environment)? else {
        bail!(
            "no process of this cluster was started: canopy cluster start {} --listen ADDRESS",
            namespace.display()
        );
    };
    processes.sort_by(|one, other| one.address.cmp(&other.address));
    if is_json {
        for process in &processes {
            canopy::say_json(&as_json(process))?;
        }
    } else {
        print(&processes)?;
    }
    let idle = (0..).zip(&map.servers).filter(|(_, server)| server.process.is_none());
    let idle = Vec::from_iter(idle.map(|(number, _): (u32, _)| number));
    if idle.is_empty() {
        return Ok(Outcome::Complete);
    }
    canopy::message(format_args!("no process runs servers {}", ranges(&idle)));
    Ok(Outcome::Partial)
}

fn print(processes: &[ProcessStatus]) -> anyhow::Result<()> {
    let mut rows = vec![["PROCESS", "SERVERS", "LEASE", "STATE"].map(str::to_owned)];
    for one in processes {
        let lease = one.renewed.map(|age| format!("{:.1} s", age.as_secs_f64()));
        let lease = lease.unwrap_or_else(|| "none".to_owned());
        rows.push([one.address.clone(), servers(one), lease, state(one.state).to_owned()]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let [process, servers, lease] = [0, 1, 2].map(width);
    for [one, two, three, four] in &rows {
        let row = format!("{one:process$}  {two:>servers$}  {three:>lease$}  {four}");
        canopy::say(row)?;
    }
    Ok(())
}

fn servers(process: &ProcessStatus) -> String {
    ranges(&Vec::from_iter(process.servers.iter().map(|server| server.0)))
}

fn state(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Joining => "joining",
        ProcessState::Serving => "serving",
        ProcessState::Draining => "draining",
    }
}

fn as_json(process: &ProcessStatus) -> serde_json::Value {
    json!({
        "process": process.address, "id": process.process.to_string(),
        "servers": Vec::from_iter(process.servers.iter().map(|server| server.0)),
        "lease_age": process.renewed.map(|age| age.as_secs_f64()),
        "state": state(process.state),
    })
}

/// Has the processes of a machine give their servers away.
pub fn drain(host: &str, namespace: &Path) -> anyhow::Result<Outcome> {
    let place = Place::open(namespace)?;
    let environment = Environment::system(place.storage);
    let is_meant = |process: &MapProcess| is_on(&process.address, host);
    let (_, processes) = membership::survey(&environment)?
        .with_context(|| format!("no process of {} was started", namespace.display()))?;
    let meant = Vec::from_iter(processes.iter().filter(|one| is_on(&one.address, host)));
    if meant.is_empty() {
        let known = Vec::from_iter(processes.iter().map(|one| one.address.as_str())).join(", ");
        bail!("no process listens on {host}; there are: {known}");
    }
    let moved = meant.iter().flat_map(|one| &one.servers).map(|server| server.0);
    let mut moved = Vec::from_iter(moved);
    moved.sort_unstable();
    membership::drain(&environment, |_, process| is_meant(process))?;
    canopy::say(match moved.is_empty() {
        true => format!("{host} runs no servers, and gets none"),
        false => format!("{host} gives servers {} to other processes", ranges(&moved)),
    })?;
    Ok(Outcome::Complete)
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
