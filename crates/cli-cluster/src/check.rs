//! `canopy cluster check`.

use crate::place::Place;
use crate::reach::connect;
use anyhow::bail;
use canopy::commands::cluster::Check as Arguments;
use canopy::{Outcome, with_progress};
use canopy_cluster::check::{
    Fault, Progress, check, check_contents, check_snapshot, repair, repair_contents,
};
use canopy_cluster::membership::is_stopped;
use canopy_cluster::{Client, Peers, Process, SessionId, SnapshotTables};
use canopy_namespace::system_clock;
use canopy_store::Environment;
use canopy_text::{counted, human_size};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Checks a namespace; exit code 1 means that there were faults.
pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = Place::open(&arguments.namespace)?;
    let environment = Environment::system(place.storage.clone());
    let peers = servers(arguments, &place, &environment)?;
    let shown = Shown::default();
    let show = |elapsed: Duration| shown.line(elapsed);
    let note = |progress| shown.note(progress);
    let storage = &*place.storage;
    if let Some(name) = &arguments.snapshot {
        let Some(tables) = tables_of(&peers, &environment, name)? else {
            bail!("{} has no snapshot {name}", arguments.namespace.display());
        };
        let faults = with_progress(&show, || {
            check_snapshot(&environment, &system_clock(), &tables, arguments.data, &note)
        });
        return report(&faults?);
    }
    if !arguments.repair {
        let faults = with_progress(&show, || match arguments.data {
            true => check_contents(&*peers, storage, &note),
            false => check(&*peers, storage, &note),
        });
        return report(&faults?);
    }
    let client = Client::new(peers.clone(), SessionId(environment.random.next_u64()));
    let repaired = with_progress(&show, || match arguments.data {
        true => repair_contents(&peers, &client, storage, &note),
        false => repair(&peers, &client, storage, &note),
    });
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

/// Returns the checkpoints of a snapshot; none if there is no such one.
fn tables_of(
    peers: &Arc<dyn Peers>,
    environment: &Environment,
    name: &str,
) -> anyhow::Result<Option<SnapshotTables>> {
    let client = Client::new(peers.clone(), SessionId(environment.random.next_u64()));
    let (all, _) = client.snapshots()?;
    let found = all.iter().find(|one| one.name.as_deref() == Some(name));
    Ok(found.map(|found| client.snapshot_tables(found.number)).transpose()?)
}

/// The progress of a check, for a terminal.
#[derive(Default)]
struct Shown {
    records: AtomicU64,
    bytes: AtomicU64,
    all_bytes: AtomicU64,
}

impl Shown {
    fn note(&self, progress: Progress) {
        match progress {
            Progress::Records(records) => self.records.store(records, Ordering::Relaxed),
            Progress::Contents { bytes, all } => {
                self.bytes.store(bytes, Ordering::Relaxed);
                self.all_bytes.store(all, Ordering::Relaxed);
            }
        }
    }

    fn line(&self, elapsed: Duration) -> String {
        let [records, bytes, all] = [&self.records, &self.bytes, &self.all_bytes]
            .map(|number| number.load(Ordering::Relaxed));
        let rate = |of: u64| of as f64 / elapsed.as_secs_f64().max(0.001);
        match all {
            0 => format!("{records} records read, {:.0}/s", rate(records)),
            all => {
                let [read, all] = [bytes, all].map(human_size);
                format!("{read} of {all} of contents read, {}/s", human_size(rate(bytes) as u64))
            }
        }
    }
}

fn report(faults: &[Fault]) -> anyhow::Result<Outcome> {
    print_faults(faults)?;
    Ok(if faults.is_empty() { Outcome::Complete } else { Outcome::Partial })
}

fn print_faults(faults: &[Fault]) -> anyhow::Result<()> {
    for fault in faults {
        canopy::answer(fault)?;
    }
    match faults.len() {
        0 => canopy::answer("no faults"),
        count => canopy::answer(counted(count, "fault")),
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
