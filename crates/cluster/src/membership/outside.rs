//! Reading and changing the map without being a member: for commands.

use super::leases::{PREFIX, Renewal};
use super::map::{Applied, ClusterMap, MapProcess, ProcessId, ProcessState};
use super::maps::{commit, newest_map};
use super::{MembershipError, ProcessStatus, SERVERS_MAX};
use canopy_store::Environment;
use canopy_store::storage::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Changes that others precede so many times are given up.
const ATTEMPTS: u32 = 100;

/// The longest lease that a process may have.
const LEASE_MAX: Duration = Duration::from_secs(60);

/// A process that has not renewed for the time of so many renewals, two leases, has ended.
const QUIET_RENEWALS: u32 = 6;

/// A process that has renewed within this time may live, however short its lease.
const QUIET_MIN: Duration = Duration::from_secs(2);

/// Pause after an attempt that failed.
const PAUSE: Duration = Duration::from_millis(50);

/// Returns the newest map and the state of all its processes. Ages of leases are by the clocks of
/// this machine and of the processes' machines. Returns nothing if no process ever joined.
///
/// # Errors
///
/// Fails as storage does.
pub fn survey(
    environment: &Environment,
) -> Result<Option<(ClusterMap, Vec<ProcessStatus>)>, MembershipError> {
    let storage = &*environment.storage;
    let Some(map) = newest_map(storage, 0)? else { return Ok(None) };
    let mut newest = BTreeMap::<ProcessId, Renewal>::new();
    for renewal in storage.list(PREFIX, "")?.iter().filter_map(|one| Renewal::parse(&one.name)) {
        let known = newest.entry(renewal.process).or_insert(renewal);
        *known = (*known).max(renewal);
    }
    let now_ms = environment.clock.now_ms();
    let status = |(process, one): (&ProcessId, &MapProcess)| ProcessStatus {
        process: *process,
        address: one.address.clone(),
        state: one.state,
        servers: map.servers_of(*process).collect(),
        carried_out: newest.get(process).map_or(0, |renewal| renewal.applied),
        renewed: newest.get(process).and_then(|renewal| age(storage, *renewal, now_ms)),
    };
    let statuses = map.processes.iter().map(status).collect();
    Ok(Some((map, statuses)))
}

/// Returns whether no process of a cluster lives, as far as that can be known from outside: a process
/// renews its lease in time, and its last renewals show in which. By the clocks of this machine and
/// of the processes' machines.
///
/// # Errors
///
/// Fails as storage does.
pub fn is_stopped(environment: &Environment) -> Result<bool, MembershipError> {
    let storage = &*environment.storage;
    let Some(map) = newest_map(storage, 0)? else { return Ok(true) };
    let mut renewals = BTreeMap::<ProcessId, Vec<Renewal>>::new();
    for renewal in storage.list(PREFIX, "")?.iter().filter_map(|one| Renewal::parse(&one.name)) {
        renewals.entry(renewal.process).or_default().push(renewal);
    }
    let now_ms = environment.clock.now_ms();
    let lives = |process: &ProcessId| {
        let all = renewals.get(process).into_iter().flatten();
        let mut ages = Vec::from_iter(all.filter_map(|one| age(storage, *one, now_ms)));
        ages.sort_unstable();
        let between = ages.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max();
        let longest = between.map_or(LEASE_MAX, |between| between * QUIET_RENEWALS);
        ages.first().is_some_and(|age| *age < longest.clamp(QUIET_MIN, 2 * LEASE_MAX))
    };
    Ok(!map.processes.keys().any(lives))
}

/// Returns the age of a renewal, which may be removed meanwhile.
fn age(storage: &dyn Storage, renewal: Renewal, now_ms: u64) -> Option<Duration> {
    let text = storage.read_range(&renewal.name(), 0..storage.size(&renewal.name()).ok()?.min(20));
    let time_ms = std::str::from_utf8(&text.ok()?).ok()?.parse().ok()?;
    Some(Duration::from_millis(now_ms.saturating_sub(time_ms)))
}

/// Has the processes that `chosen` returns true for give their servers to others. They stay in the map
/// and get no servers until they are started again. Returns the map after that: its processes stop
/// and start servers soon.
///
/// # Errors
///
/// Fails with `Limit` if no process would serve, and as storage does.
pub fn drain(
    environment: &Environment,
    chosen: impl Fn(&ProcessId, &MapProcess) -> bool,
) -> Result<ClusterMap, MembershipError> {
    change(environment, |map| {
        let drained = map.processes.iter();
        let drained =
            drained.filter(|(id, one)| one.state != ProcessState::Draining && chosen(id, one));
        let drained = BTreeSet::from_iter(drained.map(|(id, _)| *id));
        if drained.is_empty() {
            return Ok(None);
        }
        let next = map.draining(&drained, &Applied::new());
        match next.serving().is_empty() {
            true => Err(MembershipError::Limit("no other process serves: start one first".into())),
            false => Ok(Some(next)),
        }
    })
}

/// Has the map contain at least so many logical servers, whose tables exist. Returns the map after
/// that.
///
/// # Errors
///
/// Fails with `Limit` beyond 4,096 servers, and as storage does.
pub fn add_servers(environment: &Environment, total: u32) -> Result<ClusterMap, MembershipError> {
    let total = total as usize;
    if total > SERVERS_MAX {
        let text = format!("{total} logical servers: at most {SERVERS_MAX} are possible");
        return Err(MembershipError::Limit(text));
    }
    change(environment, |map| {
        Ok((map.servers.len() < total).then(|| map.with_servers(total, &Applied::new())))
    })
}

/// Changes the newest map until `next` has nothing to change in it.
fn change(
    environment: &Environment,
    next: impl Fn(&ClusterMap) -> Result<Option<ClusterMap>, MembershipError>,
) -> Result<ClusterMap, MembershipError> {
    let storage = &*environment.storage;
    let mut failure = None;
    for _ in 0..ATTEMPTS {
        let Some(map) = newest_map(storage, 0)? else {
            return Err(MembershipError::Limit("no process of this cluster was started".into()));
        };
        let Some(next) = next(&map)? else { return Ok(map) };
        // Whatever this returns, the newest map shows what has come of it.
        failure = commit(storage, &next).err();
        if failure.is_some() {
            environment.clock.sleep(PAUSE);
        }
    }
    Err(match failure {
        Some(error) => error.into(),
        None => MembershipError::TimedOut {
            what: "change the cluster map",
            limit: PAUSE * ATTEMPTS,
            cause: Some("other processes kept changing it".into()),
        },
    })
}
