//! The two threads of a membership: one renews the lease, one looks at storage and acts.

use super::jobs::Jobs;
use super::leases::{PREFIX, Renewal, Timing};
use super::map::{ClusterMap, ProcessId};
use super::maps::{commit, greatest_version, newest_map, remove_old};
use super::member::{Action, Look, Member};
use super::{Hosting, MembershipError};
use bytes::Bytes;
use canopy_model::ErrorKind;
use canopy_partition::ServerId;
use canopy_store::storage::{Created, Storage};
use canopy_store::{Environment, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// State that the threads share.
pub(super) struct Shared {
    environment: Environment,
    timing: Timing,
    begin: Instant,
    hosting: Arc<dyn Hosting>,
    state: Mutex<State>,
    changed: Condvar,
    jobs: Jobs,
}

struct State {
    member: Member,
    is_closed: bool,
    /// A change since the last decision that may lead to actions.
    is_changed: bool,
    /// Last failure of a look or a renewal, until a look succeeds.
    storage_failure: Option<String>,
    /// Last failures of servers, until they start.
    server_failures: BTreeMap<ServerId, String>,
}

/// Starts the threads.
pub(super) fn start(shared: &Arc<Shared>) -> Vec<JoinHandle<()>> {
    let (renewing, looking) = (shared.clone(), shared.clone());
    vec![
        std::thread::spawn(move || renewing.keep_renewing()),
        std::thread::spawn(move || looking.keep_looking()),
    ]
}

impl Shared {
    pub(super) fn new(
        environment: &Environment,
        timing: Timing,
        member: Member,
        hosting: Arc<dyn Hosting>,
    ) -> Self {
        let state = State {
            member,
            is_closed: false,
            is_changed: false,
            storage_failure: None,
            server_failures: BTreeMap::new(),
        };
        Shared {
            environment: environment.clone(),
            timing,
            begin: Instant::now(),
            hosting,
            state: Mutex::new(state),
            changed: Condvar::new(),
            jobs: Jobs::default(),
        }
    }

    fn now(&self) -> Duration {
        self.begin.elapsed()
    }

    fn storage(&self) -> &dyn Storage {
        &*self.environment.storage
    }

    pub(super) fn with<T>(&self, read: impl FnOnce(&Member, Duration) -> T) -> T {
        let state = self.state.lock();
        read(&state.member, self.now())
    }

    /// Changes the state, and has the threads react.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Member, Duration) -> T) -> T {
        let mut state = self.state.lock();
        let changed = change(&mut state.member, self.now());
        state.is_changed = true;
        self.changed.notify_all();
        changed
    }

    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
        self.changed.notify_all();
    }

    pub(super) fn failures(&self) -> Vec<String> {
        let state = self.state.lock();
        let servers = state.server_failures.iter();
        let servers = servers.map(|(server, error)| format!("server {server}: {error}"));
        servers.chain(state.storage_failure.clone()).collect()
    }

    /// Waits until `ready` returns something; returns nothing if the deadline passes first.
    pub(super) fn wait_until<T>(
        &self,
        deadline: Instant,
        ready: impl Fn(&Member) -> Option<T>,
    ) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(found) = ready(&state.member) {
                return Some(found);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return ready(&state.member);
            }
        }
    }

    /// Renews the lease whenever it is due.
    fn keep_renewing(&self) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let now = self.now();
            let due = state.member.next_renewal(now);
            let wait = due.map_or(self.timing.renew_every(), |due| due.saturating_sub(now));
            if due.is_none() || wait > Duration::ZERO {
                self.changed.wait_for(&mut state, wait);
                continue;
            }
            drop(state);
            // It is noted, and tried again.
            let _ = self.renew();
            state = self.state.lock();
        }
    }

    /// Renews the lease once.
    pub(super) fn renew(&self) -> Result<(), MembershipError> {
        let now = self.now();
        let renewal = self.state.lock().member.renew(now);
        let time_ms = self.environment.clock.now_ms().to_string();
        let mut created = self.storage().create(&renewal.name(), time_ms.into());
        if created.as_ref().is_err_and(|error| error.kind() == ErrorKind::Exhausted) {
            // A full disk may still take a name. What has been stored can be read meanwhile.
            created = self.storage().create(&renewal.name(), Bytes::new());
        }
        let mut state = self.state.lock();
        state.member.renewed_by(renewal, now, matches!(created, Ok(Created::Now)));
        let failed = created.inspect_err(|error| state.note_failure(error)).map(drop);
        // The process may be allowed to act again.
        state.is_changed = true;
        self.changed.notify_all();
        Ok(failed?)
    }

    /// Looks at storage whenever it is due, and acts.
    fn keep_looking(self: Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let due = loop {
                if state.is_closed {
                    return;
                }
                let now = self.now();
                let is_due = state.member.next_look() <= now;
                let wait = state.member.next_action().saturating_sub(now);
                if is_due || wait.is_zero() || std::mem::take(&mut state.is_changed) {
                    break is_due;
                }
                self.changed.wait_for(&mut state, wait);
            };
            drop(state);
            if due {
                // It is noted, and tried again.
                let _ = self.look();
            }
            self.act();
        }
    }

    /// Looks at storage once.
    pub(super) fn look(&self) -> Result<(), MembershipError> {
        let known = self.with(|member, _| member.map().version);
        let began = self.now();
        let found = look_at(self.storage(), known);
        let ended = self.now();
        let fresh = ProcessId(self.environment.random.next_u64());
        let mut state = self.state.lock();
        let looked = match found {
            Ok((map, renewals)) => {
                if state.storage_failure.take().is_some() {
                    tracing::info!("storage of the cluster map and the lease answers again");
                }
                let before = state.member.map().version;
                state.member.look(Look { time: (began, ended), map, renewals, fresh });
                let map = state.member.map().clone();
                drop(state);
                if map.version > before {
                    self.hosting.map_changed(map);
                }
                Ok(())
            }
            Err(error) => {
                state.member.look_failed(ended);
                state.note_failure(&error);
                Err(error.into())
            }
        };
        self.changed.notify_all();
        looked
    }

    /// Carries out the next actions.
    fn act(self: &Arc<Self>) {
        let actions = self.state.lock().member.decide(self.now());
        for action in actions {
            match action {
                Action::Commit(map) => self.commit(&map),
                Action::Start(server) => self.start_server(server),
                Action::Stop(server) => self.stop_server(server),
                Action::Remove(renewals) => self.remove(&renewals),
            }
        }
        self.changed.notify_all();
    }

    fn commit(&self, map: &ClusterMap) {
        let created = commit(self.storage(), map);
        let known = match &created {
            Ok(Created::Now) => {
                tracing::info!("cluster map {}: {}", map.version, describe(map));
                if let Err(error) = remove_old(self.storage(), map.version) {
                    tracing::debug!("old cluster maps stay: {error}");
                }
                true
            }
            Ok(Created::ThereWasOne) => true,
            Err(error) => {
                self.state.lock().note_failure(error);
                false
            }
        };
        self.change(|member, now| member.committed(known, now));
    }

    fn remove(&self, renewals: &[Renewal]) {
        for renewal in renewals {
            // Another look finds those that stay.
            if self.storage().remove(&renewal.name()).is_err() {
                return;
            }
        }
    }

    /// Removes all renewals of this process, whose threads have ended.
    pub(super) fn remove_own_renewals(&self) {
        let me = self.with(|member, _| member.me());
        let own = self.storage().list(&format!("{PREFIX}{me}-"), "").unwrap_or_default();
        let own = own.iter().filter_map(|one| Renewal::parse(&one.name));
        self.remove(&Vec::from_iter(own));
    }

    fn start_server(self: &Arc<Self>, server: ServerId) {
        let shared = self.clone();
        self.jobs.push_back(move || {
            let started = std::panic::AssertUnwindSafe(|| shared.hosting.start(server));
            let failure = match std::panic::catch_unwind(started) {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some("its start panicked".to_owned()),
            };
            if let Some(failure) = &failure {
                tracing::warn!("server {server} does not start: {failure}");
            }
            let mut state = shared.state.lock();
            let now = shared.now();
            state.member.started(server, failure.is_none(), now);
            match failure {
                None => state.server_failures.remove(&server),
                Some(failure) => state.server_failures.insert(server, failure),
            };
            state.is_changed = true;
            shared.changed.notify_all();
        });
    }

    fn stop_server(self: &Arc<Self>, server: ServerId) {
        let shared = self.clone();
        // Others wait for it.
        self.jobs.push_front(move || {
            let stopped = std::panic::AssertUnwindSafe(|| shared.hosting.stop(server));
            // A panic was printed where it happened, and the server is gone.
            let _ = std::panic::catch_unwind(stopped);
            shared.change(|member, now| member.stopped(server, now));
        });
    }
}

impl State {
    fn note_failure(&mut self, error: &canopy_store::Error) {
        if self.storage_failure.is_none() {
            tracing::warn!("cannot read the cluster map or renew the lease: {error}");
        }
        self.storage_failure = Some(error.to_string());
    }
}

/// Returns the newest map, if it is newer than `known`, and all renewals.
fn look_at(storage: &dyn Storage, known: u64) -> Result<(Option<ClusterMap>, Vec<Renewal>)> {
    let listed = storage.list(PREFIX, "")?;
    let renewals = listed.iter().filter_map(|one| Renewal::parse(&one.name)).collect();
    let map = match greatest_version(storage, known)? {
        version if version == known => None,
        version => newest_map(storage, version)?,
    };
    Ok((map, renewals))
}

/// Describes a map in a line of the log.
fn describe(map: &ClusterMap) -> String {
    if map.processes.is_empty() {
        return "no process".to_owned();
    }
    let count = |process| map.servers_of(process).count();
    let processes = map.processes.iter();
    let processes = processes.map(|(id, one)| match count(*id) {
        1 => format!("{} (1 server)", one.address),
        servers => format!("{} ({servers} servers)", one.address),
    });
    Vec::from_iter(processes).join(", ")
}
