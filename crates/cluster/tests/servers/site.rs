//! Servers of one process behind a way that loses requests and replies, with a clock that a test
//! sets.

use crate::place::environment_of_large;
use canopy_cluster::{
    Client, Error, HandOverStage, Peers, Process, ProcessSettings, Request, Response, Sender,
    SessionCounts, SessionId, SessionSettings,
};
use canopy_namespace::{ROOT, system_clock};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// An event on the way of a request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The request is lost.
    Request,
    /// The reply is lost.
    Reply,
    /// The request comes twice.
    Twice,
    /// All servers die before they execute it.
    DiesBefore,
    /// All servers die after they have executed it, and before it is durable.
    DiesAfter,
    /// All servers die once it is durable, and before the reply.
    DiesDurable,
    /// The reply is lost, and then a partition of the root is handed over.
    HandsOver,
}

pub const LOSSES: [Loss; 7] = [
    Loss::Request,
    Loss::Reply,
    Loss::Twice,
    Loss::DiesBefore,
    Loss::DiesAfter,
    Loss::DiesDurable,
    Loss::HandsOver,
];

pub struct Site {
    environment: Environment,
    settings: SessionSettings,
    seconds: Arc<AtomicU64>,
    process: RwLock<Option<Arc<Process>>>,
    /// Losses of the next requests.
    losses: Mutex<VecDeque<Option<Loss>>>,
}

impl Site {
    pub fn open(servers: u32) -> Arc<Self> {
        let seconds = Arc::new(AtomicU64::new(1000));
        let read = seconds.clone();
        let clock = Arc::new(move || Duration::from_secs(read.load(Ordering::Relaxed)));
        let site = Site {
            environment: environment_of_large(servers),
            settings: SessionSettings { clock, ..SessionSettings::default() },
            seconds,
            process: RwLock::default(),
            losses: Mutex::default(),
        };
        site.restart();
        Arc::new(site)
    }

    /// Opens all servers anew. Those before have died.
    pub fn restart(&self) {
        let mut process = self.process.write();
        *process = None;
        let sessions = self.settings.clone();
        let settings = ProcessSettings { sessions, ..ProcessSettings::default() };
        let opened = Process::with_settings(&self.environment, &system_clock(), settings, None);
        let opened = opened.unwrap();
        opened.open_all().unwrap();
        *process = Some(opened);
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    pub fn process(&self) -> Arc<Process> {
        self.process.read().clone().expect("a process")
    }

    pub fn lose(&self, losses: impl IntoIterator<Item = Option<Loss>>) {
        self.losses.lock().extend(losses);
    }

    /// Loses none of the requests to come.
    pub fn lose_nothing_more(&self) {
        self.losses.lock().clear();
    }

    /// Lets time pass.
    pub fn pass(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
        self.process().tick();
        self.process().settle();
    }

    pub fn client(self: &Arc<Self>, session: u64) -> Client {
        Client::new(self.clone(), SessionId(session))
    }

    pub fn servers(&self) -> impl Iterator<Item = ServerId> {
        (0..self.process().server_count()).map(ServerId)
    }

    /// Returns what all servers keep for sessions.
    pub fn counts(&self) -> SessionCounts {
        let mut sum = SessionCounts::default();
        for server in self.servers() {
            let counts = self.process().session_counts(server).unwrap();
            sum.sessions += counts.sessions;
            sum.changes += counts.changes;
            sum.holds += counts.holds;
            sum.locks += counts.locks;
            sum.waiting_locks += counts.waiting_locks;
        }
        sum
    }

    /// Hands the next partition of the root over.
    pub fn hand_over(&self) {
        let process = self.process();
        let partitions = process.partitions(ROOT).unwrap();
        let least = partitions.iter().min_by_key(|(_, history)| history.depth());
        if let Some((_, history)) = least {
            match process.split(ROOT, history.partition(), &mut |_: HandOverStage| true) {
                // Another process has the table by now, or a server is being replaced.
                Err(
                    canopy_cluster::Error::Stopped(_)
                    | canopy_cluster::Error::Namespace(canopy_namespace::Error::Store(_)),
                ) => {}
                split => drop(split.unwrap()),
            }
        }
    }
}

impl Peers for Site {
    fn ask(
        &self,
        server: ServerId,
        sender: Sender<'_>,
        request: &Request<'_>,
    ) -> Result<Response, Error> {
        let loss = self.losses.lock().pop_front().flatten();
        let lost = || Err(Error::Unreachable { server, why: "a test says so".into() });
        let execute = || self.process().ask(server, sender, request);
        // A change is durable before its reply, and nobody answers who has been replaced.
        let ask = || {
            let process = self.process();
            let reply = process.ask(server, sender, request);
            let synced = process.sync_server(server);
            if !Arc::ptr_eq(&process, &self.process()) {
                return lost();
            }
            synced.unwrap();
            reply
        };
        match loss {
            None => ask(),
            Some(Loss::Request) => lost(),
            Some(Loss::Reply) => {
                _ = ask();
                lost()
            }
            Some(Loss::Twice) => {
                _ = ask();
                ask()
            }
            Some(Loss::DiesBefore) => {
                self.restart();
                lost()
            }
            Some(Loss::DiesAfter) => {
                _ = execute();
                self.restart();
                lost()
            }
            Some(Loss::DiesDurable) => {
                _ = ask();
                self.restart();
                lost()
            }
            Some(Loss::HandsOver) => {
                _ = ask();
                self.hand_over();
                lost()
            }
        }
    }

    fn server_count(&self) -> u32 {
        self.process().server_count()
    }

    fn policy(&self) -> SplitPolicy {
        self.process().policy()
    }
}
