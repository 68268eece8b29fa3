//! Membership: which processes a cluster has, and which of them runs each logical server.
//!
//! All agreement goes through storage. The **cluster map** is an object per version, created once.
//! Each process renews a **lease**, an object per renewal. There is no leader: a process that sees a
//! lease end creates the next version of the map, in which others get the servers. A process starts
//! the servers that the newest map gives it, and stops all others. Starting opens the server's table,
//! whose epoch fences the former owner. So a wrong map, a wrong clock or a process that slept costs
//! time, never data.
//!
//! | to change | read |
//! | --- | --- |
//! | the map, and the maps that may follow it | `map`, `assignment` (even shares by few moves) |
//! | versions of the map in storage | `maps`, `codec` (bytes) |
//! | leases, and when one has ended | `leases` |
//! | when a process changes the map, starts or stops a server | `rules`, `member` (with time) |
//! | threads and I/O | `worker`, `jobs` (servers that start and stop) |
//! | status and draining from outside | `outside` |
//!
//! Invariants:
//!
//! - Only the newest map counts, whatever a creation returned (`maps`).
//! - `rules` and `member` do no I/O and read no clock. Clocks decide when something is given up, never
//!   whether it is safe.
//! - Nothing but storage calls can delay the renewal of a lease.
//!
//! Not its job: the servers themselves ([`Hosting`]), and telling clients where a server runs. Leases
//! in etcd and processes listed in a file are left out: any storage that tables can lie in serves.

mod assignment;
mod codec;
mod error;
#[cfg(test)]
mod exploration;
mod jobs;
mod leases;
mod map;
mod maps;
mod member;
mod outside;
mod rules;
mod worker;

pub use error::MembershipError;
pub use map::{
    ADDRESS_BYTES_MAX, Assignment, ClusterMap, MapProcess, PROCESSES_MAX, ProcessId, ProcessState,
    SERVERS_MAX,
};
pub use maps::newest_map;
pub(crate) use outside::remove_all;
pub use outside::{add_servers, drain, is_stopped, living, survey};

use self::leases::Timing;
use self::map::Terms;
use self::member::{End, Member};
use self::rules::Departure;
use self::worker::Shared;
use canopy_partition::ServerId;
use canopy_store::Environment;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Runs the logical servers that the map gives to this process.
pub trait Hosting: Send + Sync {
    /// Opens the table of a server, which fences its former owner, and serves it. It may block for as
    /// long as it takes. After an error it is tried again, with growing pauses.
    ///
    /// # Errors
    ///
    /// Fails if the server does not run here afterwards.
    fn start(&self, server: ServerId) -> crate::Result<()>;

    /// Refuses all further requests to a server, then flushes its table and closes it. Called once for
    /// each start that succeeded, unless the membership is dropped.
    fn stop(&self, server: ServerId);

    /// Takes note of a new map, before servers start and stop by it. Must not block.
    fn map_changed(&self, map: Arc<ClusterMap>);
}

/// Settings of a membership.
#[derive(Clone, Copy, Debug)]
pub struct MembershipSettings {
    /// Number of logical servers of the cluster.
    pub servers: u32,
    /// Length of a lease: 1 s suits a directory, 3 s a bucket. All processes use one length. A process
    /// renews three times, and looks at storage five times, in this time.
    pub lease: Duration,
    /// Whether the process has a certificate. All processes have one, or none.
    pub has_certificate: bool,
}

impl MembershipSettings {
    /// Returns the settings that suit storage of files or of a bucket.
    pub fn new(servers: u32, storage: &dyn canopy_store::storage::Storage) -> Self {
        let lease = Duration::from_secs(if storage.server().is_empty() { 1 } else { 3 });
        MembershipSettings { servers, lease, has_certificate: false }
    }
}

/// A process as its observer sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// The process.
    pub process: ProcessId,
    /// Its address.
    pub address: String,
    /// Its phase.
    pub state: ProcessState,
    /// The servers that it should run, in order.
    pub servers: Vec<ServerId>,
    /// Time since its lease was renewed; nothing if no renewal was found.
    pub renewed: Option<Duration>,
    /// The newest version of the map that it has carried out: it runs no server that the version does not
    /// give it.
    pub carried_out: u64,
}

/// The membership of this process, which two threads keep up. If it is dropped without
/// [`leave`](Self::leave), others find out by the end of its lease.
pub struct Membership {
    shared: Arc<Shared>,
    address: String,
    threads: Vec<JoinHandle<()>>,
}

/// Joining gives up after so many leases, and not before [`JOIN_LIMIT_MIN`].
const JOIN_LEASES: u32 = 30;

const JOIN_LIMIT_MIN: Duration = Duration::from_secs(30);

impl Membership {
    /// Joins the cluster in a storage, as the process with an address. Returns once the process is in
    /// the map; its servers start later. A process that ended and had this address is replaced.
    ///
    /// # Errors
    ///
    /// Fails with `AddressTaken` if a living process has the address, with `OtherLease` or
    /// `OtherCertificates` if a living process differs in that, with `Limit` or `TimedOut`, and as
    /// storage does.
    pub fn join(
        environment: &Environment,
        address: &str,
        settings: MembershipSettings,
        hosting: Arc<dyn Hosting>,
    ) -> Result<Self, MembershipError> {
        check_limits(address, settings)?;
        let MembershipSettings { servers, lease, has_certificate } = settings;
        let (timing, terms) = (Timing { lease }, Terms { lease, has_certificate });
        let me = ProcessId(environment.random.next_u64());
        let member = Member::new(me, address, servers as usize, terms, Duration::ZERO);
        let shared = Arc::new(Shared::new(environment, timing, member, hosting));
        // Errors of storage that do not go away are found before there are threads.
        shared.look()?;
        let map = shared.with(|member, _| member.map().clone());
        outside::check_terms(environment, &map, terms)?;
        match shared.renew() {
            Err(error) if error.forbids_writing() => return Err(error),
            // It is tried again.
            Ok(()) | Err(_) => {}
        }
        let threads = worker::start(&shared);
        let membership = Membership { shared, address: address.into(), threads };
        // Dead processes with other terms are waited for.
        let longest = map.processes.values().map(|one| one.lease()).max().unwrap_or_default();
        let limit = JOIN_LIMIT_MIN.max(settings.lease * JOIN_LEASES).max(longest * 2);
        membership.wait("join the cluster", limit, |member| member.is_inside())?;
        Ok(membership)
    }

    /// Returns the id of this process. It changes if the process is removed from the map and joins
    /// again.
    pub fn process(&self) -> ProcessId {
        self.shared.with(|member, _| member.me())
    }

    /// Waits until all servers that the map gives to this process run, and it has got its share.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut`, `AddressTaken`, `OtherLease` and `OtherCertificates`.
    pub fn wait_until_serving(&self, limit: Duration) -> Result<(), MembershipError> {
        self.wait("start its servers", limit, |member| {
            member.map().is(member.me(), ProcessState::Serving) && member.is_carried_out()
        })
    }

    /// Returns whether this process may answer for a server. It may not while others may have taken
    /// the server over: its lease was not renewed in time, or it has not seen the newest map for as
    /// long. Reads need this where clients must not see an old state. The table's epoch alone
    /// protects changes.
    pub fn may_answer(&self, server: ServerId) -> bool {
        self.shared.with(|member, now| member.may_answer(server, now))
    }

    /// Reports that a version of the map exists, which a client or another process knows of.
    pub fn heard_of(&self, version: u64) {
        self.shared.change(|member, now| member.heard_of(version, now));
    }

    /// Reports that a server which runs here was fenced or has failed. It is stopped. It starts again if
    /// the newest map still gives it to this process.
    pub fn lost(&self, server: ServerId) {
        self.shared.change(|member, now| member.lost(server, now));
    }

    /// Gives all servers of this process to others, and stops them here. The process stays in the map
    /// and gets no servers until it is started again. Without another serving process, nobody runs the
    /// servers.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut`, `AddressTaken`, `OtherLease` and `OtherCertificates`.
    pub fn drain(&self, limit: Duration) -> Result<(), MembershipError> {
        self.shared.change(|member, now| member.depart(Departure::Drain, now));
        self.wait("give its servers away", limit, |member| {
            member.map().is(member.me(), ProcessState::Draining) && member.is_idle()
        })
    }

    /// Gives all servers of this process to others, stops them here, and leaves the map. Until then,
    /// the process may answer.
    ///
    /// # Errors
    ///
    /// Fails with `TimedOut`, and then others take over when the lease ends; with `AddressTaken`,
    /// `OtherLease` and `OtherCertificates`.
    pub fn depart(&self, limit: Duration) -> Result<(), MembershipError> {
        self.shared.change(|member, now| member.depart(Departure::Leave, now));
        self.wait("leave the cluster", limit, |member| member.end() == Some(End::Left))
    }

    /// Departs, and ends.
    ///
    /// # Errors
    ///
    /// Fails as `depart` does.
    pub fn leave(mut self, limit: Duration) -> Result<(), MembershipError> {
        let left = self.depart(limit);
        self.close();
        self.shared.remove_own_renewals();
        match left {
            // Another process has the address already, and this one is not in the map.
            Err(MembershipError::AddressTaken { .. }) => Ok(()),
            left => left,
        }
    }

    /// Returns the state of all processes of the newest map, in the order of their ids.
    pub fn status(&self) -> Vec<ProcessStatus> {
        self.shared.with(|member, now| {
            let map = member.map();
            let statuses = map.processes.iter().map(|(process, one)| ProcessStatus {
                process: *process,
                address: one.address.clone(),
                state: one.state,
                servers: map.servers_of(*process).collect(),
                renewed: member.found(*process).map(|at| now.saturating_sub(at)),
                carried_out: member.carried_out(*process),
            });
            statuses.collect()
        })
    }

    /// Returns the current failures: of storage, and of servers that could not start.
    pub fn failures(&self) -> Vec<String> {
        self.shared.failures()
    }

    /// Returns why this process is not a member any more, if it has ended by itself: `AddressTaken`,
    /// `OtherLease` or `OtherCertificates`.
    pub fn ended(&self) -> Option<MembershipError> {
        self.shared.with(|member, _| self.error_of(member))
    }

    fn error_of(&self, member: &Member) -> Option<MembershipError> {
        match member.end()? {
            End::Left => None,
            End::AddressTaken(process) => {
                let address = self.address.clone();
                Some(MembershipError::AddressTaken { address, process })
            }
            End::OtherTerms(process) => {
                let one = member.map().processes.get(&process)?;
                Some(MembershipError::other_terms(member.terms(), one))
            }
        }
    }

    /// Waits until something holds, or this process has ended.
    fn wait(
        &self,
        what: &'static str,
        limit: Duration,
        holds: impl Fn(&Member) -> bool,
    ) -> Result<(), MembershipError> {
        let deadline = Instant::now() + limit;
        let ended = self.shared.wait_until(deadline, |member| match holds(member) {
            true => Some(Ok(())),
            false => self.error_of(member).map(Err),
        });
        ended.unwrap_or_else(|| {
            let cause = self.failures().pop();
            Err(MembershipError::TimedOut { what, limit, cause })
        })
    }

    fn close(&mut self) {
        self.shared.close();
        for thread in self.threads.drain(..) {
            // A panic was printed where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.close();
    }
}

fn check_limits(address: &str, settings: MembershipSettings) -> Result<(), MembershipError> {
    let limit = |text: String| Err(MembershipError::Limit(text));
    match settings.servers as usize {
        0 => return limit("a cluster has at least one logical server".into()),
        servers if servers > SERVERS_MAX => {
            return limit(format!("{servers} logical servers: at most {SERVERS_MAX} are possible"));
        }
        _ => {}
    }
    if address.is_empty() || address.len() > ADDRESS_BYTES_MAX {
        let bytes = address.len();
        return limit(format!(
            "an address of {bytes} bytes: 1 to {ADDRESS_BYTES_MAX} are possible"
        ));
    }
    if settings.lease < Duration::from_millis(10) || settings.lease > Duration::from_secs(3600) {
        return limit("a lease lasts 10 ms to an hour".into());
    }
    Ok(())
}
