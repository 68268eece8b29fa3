//! `canopy cluster check`.

use crate::place::Place;
use crate::reach::connect;
use anyhow::bail;
use canopy::commands::cluster::Check as Arguments;
use canopy::{Outcome, with_progress};
use canopy_cluster::check::{Fault, check, repair};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{Client, Peers, Process, SessionId};
use canopy_namespace::system_clock;
use canopy_store::Environment;
use canopy_text::counted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Checks a namespace; exit code 1 means that there were faults.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let environment = Environment::system(place.storage.clone());
    let peers = servers(arguments, &place, &environment)?;
    let records = AtomicU64::new(0);
    let show = |elapsed: Duration| {
        let read = records.load(Ordering::Relaxed);
        let rate = read as f64 / elapsed.as_secs_f64().max(0.001);
        format!("{read} records read, {rate:.0}/s")
    };
    let note = |read| records.store(read, Ordering::Relaxed);
    let storage = &*place.storage;
    if !arguments.repair {
        let faults = with_progress(&show, || check(&*peers, storage, &note))?;
        print_faults(&faults)?;
        return Ok(if faults.is_empty() { Outcome::Complete } else { Outcome::Partial });
    }
    let client = Client::new(peers.clone(), SessionId(environment.random.next_u64()));
    let repaired = with_progress(&show, || repair(&peers, &client, storage, &note));
    client.end();
    let repaired = repaired?;
    for line in &repaired.done {
        canopy::say(line)?;
    }
    for fault in &repaired.left {
        canopy::say(format_args!("left: {fault}"))?;
    }
    match (repaired.left.len(), repaired.done.is_empty()) {
        (0, true) => canopy::say("no faults")?,
        (0, false) => canopy::say("all faults are mended")?,
        (count, _) => bail!("{} could not be mended", counted(count, "fault")),
    }
    Ok(if repaired.done.is_empty() { Outcome::Complete } else { Outcome::Partial })
}

fn print_faults(faults: &[Fault]) -> anyhow::Result<()> {
    for fault in faults {
        canopy::say(fault)?;
    }
    match faults.len() {
        0 => canopy::say("no faults"),
        count => canopy::say(counted(count, "fault")),
    }?;
    Ok(())
}

/// Returns the servers: those that run, or of this process if no process of the cluster lives.
fn servers(
    arguments: &Arguments,
    place: &Place,
    environment: &Environment,
) -> anyhow::Result<Arc<dyn Peers>> {
    if is_stopped(environment)? {
        return Ok(Process::with_all_servers(environment, &system_clock())?);
    }
    let certificate = arguments.certificate.as_deref();
    Ok(connect(place, &arguments.namespace, certificate)?.remote().clone())
}
