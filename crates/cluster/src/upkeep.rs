//! Periodic work of a process: threads flush and compact the tables of its servers,
//! within one budget of memory; changes in memory are written; objects that no record needs are removed.
//!
//! A process starts with it once [`Process::look_after`] is called, as a process that listens does.
//! Tests of single steps leave it out.
//!
//! Objects that clients have left are collected by `contents/collect.rs`, whose argument does not
//! depend on when, how often, or by how many processes that is done. So the rules here are about costs
//! alone: the process that runs server 0 looks at the sessions of contents, and ends one whose number
//! of objects has not changed for [`ProcessSettings::abandoned`]. If its client lives, it begins another
//! one. What was collected is looked at again only if there is something new.
//!
//! [`ProcessSettings::abandoned`]: crate::ProcessSettings::abandoned

use crate::client::Client;
use crate::contents::{collect_session, session_objects, sessions};
use crate::error::Result;
use crate::message::SessionId;
use crate::metrics::{Gauge, Metrics};
use crate::process::Process;
use canopy_partition::ServerId;
use canopy_store::{Table, Upkeep, UpkeepThreads};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two looks at what is due.
const LOOK: Duration = Duration::from_secs(1);

/// Time after which changes in memory, such as times of access, are written.
const FLUSH: Duration = Duration::from_secs(5);

/// Time after which the objects of a server are collected again, and the shortest time until those of
/// the next server are.
const COLLECT: Duration = Duration::from_secs(10);
const COLLECT_MIN: Duration = Duration::from_secs(1);

/// Storage is short if less than this part of it is free for contents, and less than so many bytes.
const SHORT_DIVISOR: u64 = 8;
const SHORT_BYTES: u64 = 4 << 30;

/// Looks at the sessions of contents within the time after which one counts as abandoned.
const SESSION_LOOKS: u32 = 4;

/// Objects of a session that are looked at before a pause, and its length.
const OBJECTS: u64 = 64;
const PAUSE: Duration = Duration::from_millis(20);

/// The care for the tables of the servers that run.
#[derive(Default)]
pub(crate) struct TableMaintenance {
    /// None before tables are looked after.
    threads: OnceLock<Arc<UpkeepThreads>>,
    tables: Mutex<BTreeMap<ServerId, MaintainedTable>>,
}

struct MaintainedTable {
    upkeep: Upkeep,
    /// The last failure that the log has.
    failure: Option<String>,
}

impl TableMaintenance {
    /// Has the table of a server looked after, if tables are.
    pub(crate) fn begin(&self, server: ServerId, table: &Arc<Table>) {
        if let Some(threads) = self.threads.get() {
            let cared = MaintainedTable { upkeep: threads.look_after(table), failure: None };
            self.tables.lock().insert(server, cared);
        }
    }

    /// Ends that. Compactions under way are not waited for: another process needs the server.
    pub(crate) fn end(&self, server: ServerId) {
        let ended = self.tables.lock().remove(&server);
        if let Some(ended) = ended {
            let end = move || drop(ended);
            // Without a thread, it ends here.
            let _ = thread::Builder::new().name("cluster-close".into()).spawn(end);
        }
    }

    /// Writes failures to the log that it does not have.
    fn report(&self) {
        for (server, cared) in &mut *self.tables.lock() {
            let failure = cared.upkeep.failure();
            if failure != cared.failure {
                let text = failure.as_deref().unwrap_or_default();
                tracing::warn!("server {server}: its table cannot be looked after: {text}");
                cared.failure = failure;
            }
        }
    }
}

/// When things were done last.
struct Schedule {
    flushed: Instant,
    collected: Instant,
    /// The server whose objects were collected last.
    server: Option<ServerId>,
    looked: Instant,
    /// Sessions of contents by their numbers.
    sessions: HashMap<u64, Seen>,
}

/// A session of contents.
struct Seen {
    objects: u64,
    /// Since when it has had that number of objects.
    since: Instant,
    /// Whether they were collected.
    is_done: bool,
}

impl Process {
    /// Has threads look after the tables and the objects of all servers from now on, until the process
    /// is dropped.
    ///
    /// # Errors
    ///
    /// Fails if there is no thread.
    pub fn look_after(self: &Arc<Self>) -> Result<()> {
        if self.care.threads.set(UpkeepThreads::start()).is_err() {
            return Ok(());
        }
        for id in self.running() {
            let server = self.server(id)?;
            self.care.begin(id, server.tablet.table());
        }
        let process = Arc::downgrade(self);
        let now = Instant::now();
        let schedule = Schedule {
            flushed: now,
            collected: now,
            server: None,
            looked: now,
            sessions: HashMap::new(),
        };
        let run = move || keep_up(&process, schedule);
        let spawned = thread::Builder::new().name("cluster-upkeep".into()).spawn(run);
        let io = |source| canopy_namespace::Error::Io { what: "start a thread".into(), source };
        Ok(spawned.map(|_| ()).map_err(io)?)
    }

    /// Returns numbers about this process, in the text format of Prometheus.
    pub fn metrics_text(&self) -> String {
        let (mut partitions, mut sessions, mut holds) = (0, 0, 0);
        let running = self.running();
        for server in running.iter().filter_map(|id| self.server(*id).ok()) {
            partitions += server.partition_count();
            server.sessions.each(|_, files| {
                sessions += 1;
                holds += files.len() as u64;
            });
        }
        let memory = self.memory.memtables().used_bytes();
        let gauge = |name, help, value| Gauge { name, help, value };
        self.metrics.text(&[
            gauge("servers", "Servers that run here.", running.len() as u64),
            gauge("partitions", "Partitions of split directories here.", partitions),
            gauge("sessions", "Sessions of clients, counted at each server.", sessions),
            gauge("held_files", "Files that sessions hold.", holds),
            gauge("memtable_bytes", "Memory of changes that are only in logs.", memory),
        ])
    }

    /// Returns the counters of this process.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn flush_all(&self) -> Result<()> {
        for server in self.running().into_iter().filter_map(|id| self.server(id).ok()) {
            server.tablet.flush_pending()?;
        }
        Ok(())
    }
}

fn keep_up(process: &Weak<Process>, mut schedule: Schedule) {
    loop {
        let Some(alive) = process.upgrade() else { return };
        let pause = LOOK.min(alive.settings.abandoned / SESSION_LOOKS);
        alive.care.report();
        for outcome in [flush(&alive, &mut schedule), collect(&alive, &mut schedule)] {
            if let Err(error) = outcome {
                alive.note_failure("upkeep", error);
            }
        }
        if let Err(error) = collect_abandoned(&alive, &mut schedule) {
            alive.note_failure("sessions of contents", error);
        }
        drop(alive);
        thread::sleep(pause);
    }
}

fn flush(process: &Process, schedule: &mut Schedule) -> Result<()> {
    if schedule.flushed.elapsed() < FLUSH {
        return Ok(());
    }
    schedule.flushed = Instant::now();
    process.flush_all()
}

/// Collects the objects of one server, if that is due; of all where storage is short.
fn collect(process: &Process, schedule: &mut Schedule) -> Result<()> {
    if is_short(process) {
        return process.collect().map(drop);
    }
    let running = process.running();
    let share = COLLECT / u32::try_from(running.len().max(1)).unwrap_or(u32::MAX);
    if schedule.collected.elapsed() < share.max(COLLECT_MIN) {
        return Ok(());
    }
    schedule.collected = Instant::now();
    let next = running.iter().find(|id| Some(**id) > schedule.server).or(running.first());
    schedule.server = next.copied();
    match schedule.server {
        Some(server) => process.collect_at(server).map(drop),
        None => Ok(()),
    }
}

/// Returns whether little space is left for contents.
fn is_short(process: &Process) -> bool {
    let space = process.environment.storage.space().ok().flatten();
    space.is_some_and(|space| {
        space.available_bytes < SHORT_BYTES.min(space.total_bytes / SHORT_DIVISOR)
    })
}

/// Ends sessions of contents that were abandoned, and removes what they left.
fn collect_abandoned(process: &Arc<Process>, schedule: &mut Schedule) -> Result<()> {
    let limit = process.settings.abandoned;
    if schedule.looked.elapsed() < limit / SESSION_LOOKS {
        return Ok(());
    }
    schedule.looked = Instant::now();
    if process.server(ServerId(0)).is_err() {
        schedule.sessions.clear();
        return Ok(());
    }
    let storage = process.environment.storage.clone();
    let there = sessions(&*storage)?;
    schedule.sessions.retain(|session, _| there.binary_search(session).is_ok());
    for session in there {
        let (objects, _) = session_objects(&*storage, session)?;
        let new = || Seen { objects, since: Instant::now(), is_done: false };
        let seen = schedule.sessions.entry(session).or_insert_with(new);
        if seen.objects != objects {
            *seen = new();
        }
        if !seen.is_done && seen.since.elapsed() >= limit {
            collect_one(process, session)?;
            seen.is_done = true;
        }
    }
    Ok(())
}

fn collect_one(process: &Arc<Process>, session: u64) -> Result<()> {
    let client = Client::new(process.clone(), SessionId::SERVER);
    let mut count = 0;
    let mut pace = || {
        count += 1;
        if count % OBJECTS == 0 {
            thread::sleep(PAUSE);
        }
    };
    let collected = collect_session(&process.environment, &**process, &client, session, &mut pace)?;
    process.metrics.removed_objects.add(collected.removed);
    tracing::info!(
        "an abandoned session of contents has ended: {} objects removed, {} needed, {} left",
        collected.removed,
        collected.needed,
        collected.left,
    );
    Ok(())
}
