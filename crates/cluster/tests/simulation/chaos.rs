//! Faults: who dies, pauses, is cut off or moves, and when.

use crate::scheduler::HostId;
use crate::world::{Faults, World};
use canopy_partition::ServerId;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Servers to which a cluster grows.
const SERVERS_MAX: u32 = 7;

/// Kinds of faults of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Servers only move.
    Calm,
    /// Messages get lost, come twice or late.
    Messages,
    /// Processes die, too.
    Deaths,
    /// Processes and clients pause and are cut off, too, and storage fails.
    All,
}

pub struct Chaos {
    world: Arc<World>,
    level: Level,
    clients: Vec<HostId>,
    kills: AtomicUsize,
}

impl Level {
    pub fn of(seed: u64) -> Self {
        match seed / 8 % 8 {
            0 => Level::Calm,
            1 | 2 => Level::Messages,
            3 | 4 => Level::Deaths,
            _ => Level::All,
        }
    }

    fn faults(self) -> Faults {
        match self {
            Level::Calm => Faults { delayed: 1000, ..Faults::default() },
            Level::Messages => {
                Faults { lost: 200, reply_lost: 300, twice: 300, late: 200, delayed: 3000 }
            }
            Level::Deaths | Level::All => {
                Faults { lost: 60, reply_lost: 100, twice: 100, late: 60, delayed: 2000 }
            }
        }
    }
}

impl Chaos {
    pub fn new(world: &Arc<World>, level: Level, clients: Vec<HostId>) -> Self {
        world.state.lock().faults = level.faults();
        if level == Level::All {
            world.disk.faults.store(20, Ordering::Relaxed);
        }
        Chaos { world: world.clone(), level, clients, kills: AtomicUsize::new(0) }
    }

    pub fn kills(&self) -> usize {
        self.kills.load(Ordering::Relaxed)
    }

    /// Waits, and makes something happen.
    pub fn act(&self) {
        let scheduler = &self.world.scheduler;
        let most = Duration::from_millis([3, 30, 300][scheduler.below(3) as usize]);
        scheduler.sleep_between(Duration::ZERO, most);
        if scheduler.chance(200) && self.world.server_count() < SERVERS_MAX {
            return self.world.add_server();
        }
        let living = self.world.living();
        let Some(host) = pick(self, &living) else {
            self.world.start_process();
            return;
        };
        match (self.level, scheduler.below(10)) {
            (Level::Deaths | Level::All, 0..3) => {
                self.kills.fetch_add(1, Ordering::Relaxed);
                self.world.kill(host);
                if living.len() <= 3 {
                    self.world.start_process();
                }
            }
            (Level::All, 3 | 4) => self.pause(host),
            (Level::All, 5) => self.pause(pick(self, &self.clients).unwrap_or(host)),
            (Level::All, 6) => self.cut(host, pick(self, &living).unwrap_or(host)),
            (Level::All, 7) => self.cut(host, pick(self, &self.clients).unwrap_or(host)),
            (Level::All, 8) => self.cut_off_storage(host),
            _ => {
                let server = ServerId(scheduler.below(u64::from(self.world.server_count())) as u32);
                self.world.move_server(server, host);
            }
        }
    }

    fn time(&self) -> Duration {
        let most = [20, 400, 3000][self.world.scheduler.below(3) as usize];
        Duration::from_millis(1 + self.world.scheduler.below(most))
    }

    fn pause(&self, host: HostId) {
        let (world, time) = (self.world.clone(), self.time());
        world.scheduler.trace(|| format!("pause {host} for {time:?}"));
        world.scheduler.pause(host, true);
        self.world.scheduler.spawn(None, move || {
            world.scheduler.sleep(time);
            world.scheduler.pause(host, false);
        });
    }

    fn cut(&self, one: HostId, other: HostId) {
        let (world, time) = (self.world.clone(), self.time());
        let pair = (one.min(other), one.max(other));
        world.scheduler.trace(|| format!("cut {pair:?} for {time:?}"));
        world.state.lock().cuts.insert(pair);
        self.world.scheduler.spawn(None, move || {
            world.scheduler.sleep(time);
            world.state.lock().cuts.remove(&pair);
        });
    }

    fn cut_off_storage(&self, host: HostId) {
        let (world, time) = (self.world.clone(), self.time());
        let machine = self.world.state.lock().hosts[host].machine.clone();
        world.scheduler.trace(|| format!("cut {host} off storage for {time:?}"));
        machine.is_cut_off.store(true, Ordering::Relaxed);
        let off_ms = world.scheduler.below(4_000_000) as i64 - 2_000_000;
        machine.off_ms.store(off_ms, Ordering::Relaxed);
        self.world.scheduler.spawn(None, move || {
            world.scheduler.sleep(time);
            machine.is_cut_off.store(false, Ordering::Relaxed);
        });
    }
}

fn pick(chaos: &Chaos, hosts: &[HostId]) -> Option<HostId> {
    match hosts.len() as u64 {
        0 => None,
        count => Some(hosts[chaos.world.scheduler.below(count) as usize]),
    }
}
