//! The end of a run: all faults end, and the cluster comes to rest.

use crate::world::{Faults, World};
use canopy_partition::ServerId;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Simulated time in which the cluster comes to rest.
const REST: Duration = Duration::from_secs(300);

/// Ends all faults.
pub fn heal(world: &World) {
    world.disk.faults.store(0, Ordering::Relaxed);
    world.disk.perform_all();
    let mut state = world.state.lock();
    state.faults = Faults::default();
    state.cuts.clear();
    for (id, host) in state.hosts.iter().enumerate() {
        host.machine.is_cut_off.store(false, Ordering::Relaxed);
        world.scheduler.pause(id, false);
    }
}

/// Waits until nothing is left to be done.
pub fn rest(world: &World) {
    let end_us = world.scheduler.now_us() + REST.as_micros() as u64;
    loop {
        let reason = unrest(world);
        let Some(reason) = reason else { return };
        assert!(world.scheduler.now_us() < end_us, "no rest: {reason}");
        world.scheduler.sleep(Duration::from_millis(50));
    }
}

/// Returns what is left to be done.
fn unrest(world: &World) -> Option<String> {
    let (map, late) = {
        let state = world.state.lock();
        (state.map.clone(), state.late)
    };
    if late > 0 {
        return Some(format!("{late} messages are late"));
    }
    for (server, place) in map.iter().enumerate() {
        let process = place.and_then(|place| world.process(place));
        let runs = |server| process.as_ref().is_some_and(|one| one.running().contains(&server));
        if !runs(ServerId(server as u32)) {
            return Some(format!("server {server} does not run"));
        }
    }
    for host in world.living() {
        let process = world.process(host)?;
        let running = process.running();
        if running.iter().any(|server| map[server.0 as usize] != Some(host)) {
            return Some(format!("{host} runs servers of others: {running:?}"));
        }
        if let Some(unfinished) = process.unfinished().expect("records") {
            let failure = process.take_failure();
            return Some(format!("{host} is at work: {unfinished}: {failure:?}"));
        }
    }
    None
}
