//! Reading and changing the map without being a member: for commands.

use super::leases::{PREFIX, Renewal, Timing};
use super::map::{Applied, ClusterMap, MapProcess, ProcessId, ProcessState, Terms};
use super::maps::{commit, newest_map};
use super::{MembershipError, ProcessStatus, SERVERS_MAX};
use canopy_store::Environment;
use canopy_store::storage::Storage;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Changes that others precede so many times are given up.
const ATTEMPTS: u32 = 100;

/// Looks in the length of a lease at processes that may have ended.
const LOOKS: u32 = 10;

/// Shortest pause between two of these looks.
const PAUSE_MIN: Duration = Duration::from_millis(10);

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
    let newest = newest_renewals(storage)?;
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

/// Returns whether no process of a cluster lives ([`living`]).
///
/// # Errors
///
/// Fails as storage does.
pub fn is_stopped(environment: &Environment) -> Result<bool, MembershipError> {
    let Some(map) = newest_map(&*environment.storage, 0)? else { return Ok(true) };
    Ok(living(environment, &map)?.is_empty())
}

/// Returns the processes of a map that live. A process whose last renewal is younger than its lease, by
/// the clocks of this machine and of its own, is taken to live. All others are watched until they renew,
/// or their leases have ended: so a clock that is wrong costs that time and no more.
///
/// # Errors
///
/// Fails as storage does.
pub fn living(
    environment: &Environment,
    map: &ClusterMap,
) -> Result<BTreeSet<ProcessId>, MembershipError> {
    living_of(environment, map, true)
}

/// Returns the processes of a map that live: those that renew while they are watched, and with
/// `trusts_clocks` those that renewed just now.
fn living_of(
    environment: &Environment,
    map: &ClusterMap,
    trusts_clocks: bool,
) -> Result<BTreeSet<ProcessId>, MembershipError> {
    let storage = &*environment.storage;
    let first = newest_renewals(storage)?;
    let now_ms = environment.clock.now_ms();
    let is_young = |(process, one): &(&ProcessId, &MapProcess)| {
        let renewed_ms = first.get(process).and_then(|renewal| time_ms(storage, *renewal));
        renewed_ms.is_some_and(|at| now_ms.checked_sub(at).is_some_and(|age| age < one.lease_ms))
    };
    let young = map.processes.iter().filter(|one| trusts_clocks && is_young(one));
    let mut living = BTreeSet::from_iter(young.map(|(process, _)| *process));
    let mut watched = Vec::from_iter(map.processes.iter());
    watched.retain(|(process, _)| !living.contains(process));
    let begun = Instant::now();
    while let Some(pause) = watched.iter().map(|(_, one)| one.lease() / LOOKS).min() {
        environment.clock.sleep(pause.max(PAUSE_MIN));
        let looked = begun.elapsed();
        let newest = newest_renewals(storage)?;
        let number = |of: &BTreeMap<ProcessId, Renewal>, process: &ProcessId| {
            of.get(process).map(|renewal| renewal.number)
        };
        let renewed = |process: &ProcessId| number(&newest, process) > number(&first, process);
        living.extend(watched.iter().map(|(process, _)| **process).filter(renewed));
        watched.retain(|(process, one)| {
            let timing = Timing { lease: one.lease() };
            !living.contains(process) && looked < timing.ended_after()
        });
    }
    Ok(living)
}

/// Fails if a living process of the map has other terms.
pub(super) fn check_terms(
    environment: &Environment,
    map: &ClusterMap,
    terms: Terms,
) -> Result<(), MembershipError> {
    if map.with_other_terms(terms, |_, _| true).is_none() {
        return Ok(());
    }
    // One that was killed just now is waited for.
    let living = living_of(environment, map, false)?;
    let other = map.with_other_terms(terms, |process, _| living.contains(&process));
    match other.and_then(|process| map.processes.get(&process)) {
        None => Ok(()),
        Some(one) => Err(MembershipError::other_terms(terms, one)),
    }
}

/// Returns the newest renewal of each process.
fn newest_renewals(storage: &dyn Storage) -> canopy_store::Result<BTreeMap<ProcessId, Renewal>> {
    let mut newest = BTreeMap::<ProcessId, Renewal>::new();
    for renewal in storage.list(PREFIX, "")?.iter().filter_map(|one| Renewal::parse(&one.name)) {
        let known = newest.entry(renewal.process).or_insert(renewal);
        *known = (*known).max(renewal);
    }
    Ok(newest)
}

/// Returns the time of day of a renewal, which may be removed meanwhile.
fn time_ms(storage: &dyn Storage, renewal: Renewal) -> Option<u64> {
    let text = storage.read_range(&renewal.name(), 0..storage.size(&renewal.name()).ok()?.min(20));
    std::str::from_utf8(&text.ok()?).ok()?.parse().ok()
}

/// Returns the age of a renewal.
fn age(storage: &dyn Storage, renewal: Renewal, now_ms: u64) -> Option<Duration> {
    Some(Duration::from_millis(now_ms.saturating_sub(time_ms(storage, renewal)?)))
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

/// Removes all processes from the map. Those that live stop their servers, and join again.
///
/// # Errors
///
/// Fails as storage does.
pub(crate) fn remove_all(environment: &Environment) -> Result<(), MembershipError> {
    if newest_map(&*environment.storage, 0)?.is_none() {
        return Ok(());
    }
    let removed = change(environment, |map| {
        let all = BTreeSet::from_iter(map.processes.keys().copied());
        Ok((!all.is_empty()).then(|| map.without(&all, &Applied::new())))
    });
    removed.map(drop)
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
