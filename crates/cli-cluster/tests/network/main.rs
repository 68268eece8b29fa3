//! Processes of a cluster on machines of their own (network namespaces), with certificates. They are
//! killed, stopped, cut off and started again at random. Meanwhile clients change names and files, and
//! check all that they read, as in the simulation (`canopy-cluster`, `tests/simulation`). Needs root.

#[path = "../../../cluster/tests/simulation/check.rs"]
mod check;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../cli/tests/common/length.rs"]
mod length;
mod machines;
#[path = "../../../cluster/tests/simulation/model.rs"]
mod model;
mod pauses;
#[path = "../../../cluster/tests/simulation/user.rs"]
mod user;

use canopy_cluster::wire::ClientSecurity;
use canopy_cluster::{Client, Patience, Peers, Remote, Security, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::{FileId, ROOT, Reply};
use common::{Place, Process, success};
use length::rounds;
use machines::{Machines, address};
use model::{Model, ModelDirectory};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use user::{Machine, Outcome, User};

const PORT: u16 = 7040;

/// Machines with a process of the cluster; those after them are clients'.
const PROCESSES: usize = 3;
const CLIENTS: usize = 3;

/// Servers of the cluster.
const SERVERS: u32 = 6;

/// A cluster on machines.
pub struct Site {
    place: Place,
    machines: Machines,
}

impl Site {
    fn new(test: &str, machines: usize) -> Self {
        let options = ["--split-entries", "16", "--partitions-per-server", "2"];
        let place = Place::with(SERVERS, &options);
        success(&place.run(&["certificate", "--server", "@"]));
        Site { place, machines: Machines::new(test, machines) }
    }

    /// Starts the process of a machine, and waits until it serves.
    fn start(&self, machine: usize) -> Process {
        let listen = format!("{}:{PORT}", address(machine));
        let start = self.place.command(&["start", "@", "--listen", &listen, "--lease", "1"]);
        Process::start(self.machines.command(machine, &start)).0
    }

    /// Returns the way to all processes from a machine. Only this thread is on it.
    fn connect(&self, machine: usize, processes: usize) -> Arc<Remote> {
        self.machines.enter(machine);
        let addresses = (0..processes).map(|one| format!("{}:{PORT}", address(one)));
        let addresses = Vec::from_iter(addresses.map(|one| one.parse().expect("an address")));
        let security = security(&self.place.namespace.join("server.pem"));
        Remote::connect(&addresses, security, Patience::CLIENT).expect("a cluster")
    }
}

fn security(file: &Path) -> ClientSecurity {
    let security = Security::of_client(None, Some(file)).expect("a certificate");
    security.for_servers().expect("a configuration")
}

/// A machine of a client, whose cut may last longer than servers keep what it holds.
struct Remembers;

impl Machine for Remembers {
    fn rest(&self, time: Duration) {
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    fn trace(&self, _: &dyn Fn() -> String) {}

    fn keeps_holds(&self) -> bool {
        false
    }
}

fn user(peers: Arc<Remote>, model: &Arc<Mutex<Model>>, number: u64, shared: &[FileId]) -> User {
    let client = Arc::new(Client::new(peers.clone(), SessionId(number)));
    client.keep_renewed().expect("a thread");
    let random = StdRng::seed_from_u64(number);
    let peers: Arc<dyn Peers> = peers;
    User::new(Arc::new(Remembers), peers, client, model.clone(), (number, random), shared)
}

fn make_shared(by: &User, model: &Mutex<Model>) -> Vec<FileId> {
    let names = (0..3).map(|number| format!("shared{number}"));
    let made = names.map(|name| {
        let outcome = by.create(&(ROOT, name), file_type::DIRECTORY | 0o755);
        let Outcome::Done(Reply::Inode(inode)) = outcome else { panic!("{}", outcome.said()) };
        model.lock().directories.insert(inode.id, ModelDirectory::new());
        inode.id
    });
    made.collect()
}

/// Makes faults for a time, and heals them.
fn make_faults(site: &Site, processes: &mut [Option<Process>], random: &mut StdRng, end: Instant) {
    let wait = |random: &mut StdRng, most: u64| {
        std::thread::sleep(Duration::from_millis(random.random_range(50..most)));
    };
    while Instant::now() < end {
        wait(random, 600);
        let machine = random.random_range(0..PROCESSES);
        match random.random_range(0..5) {
            0 | 1 => {
                drop(processes[machine].take());
                wait(random, 1500);
                processes[machine] = Some(site.start(machine));
            }
            2 => {
                let process = processes[machine].as_ref().expect("a process");
                process.signal(Signal::SIGSTOP);
                wait(random, 2500);
                process.signal(Signal::SIGCONT);
            }
            3 => {
                site.machines.cut(machine, true);
                wait(random, 2500);
                site.machines.cut(machine, false);
            }
            _ => {
                let client = PROCESSES + random.random_range(0..CLIENTS);
                site.machines.cut(client, true);
                wait(random, 2000);
                site.machines.cut(client, false);
            }
        }
    }
}

#[test]
fn clients_find_what_they_were_answered_while_processes_die() {
    let site = Site::new("faults", PROCESSES + CLIENTS + 1);
    let mut processes: Vec<_> = (0..PROCESSES).map(|one| Some(site.start(one))).collect();
    let model = Arc::new(Mutex::new(Model::default()));
    let is_over = AtomicBool::new(false);
    let seconds = rounds(6, 120);
    // On a machine of its own, which is never cut off.
    let (checker, shared) = std::thread::scope(|scope| {
        let (site, model) = (&site, &model);
        let checker = scope.spawn(move || {
            let peers = site.connect(PROCESSES + CLIENTS, PROCESSES);
            let checker = user(peers, model, 1000, &[]);
            let shared = make_shared(&checker, model);
            (checker, shared)
        });
        checker.join().expect("a client")
    });
    std::thread::scope(|scope| {
        let (site, model, shared) = (&site, &model, &shared);
        let workers = Vec::from_iter((0..CLIENTS).map(|client| {
            let is_over = &is_over;
            scope.spawn(move || {
                let peers = site.connect(PROCESSES + client, PROCESSES);
                let mut user = user(peers, model, client as u64 + 1, shared);
                let mut steps = 0u64;
                while !is_over.load(Ordering::Relaxed) {
                    user.step();
                    steps += 1;
                }
                steps
            })
        }));
        let over = Over(&is_over);
        let seed = std::env::var("CANOPY_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or_else(|| u64::from(std::process::id()));
        println!("CANOPY_SEED={seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let end = Instant::now() + Duration::from_secs(seconds);
        make_faults(site, &mut processes, &mut random, end);
        drop(over);
        let steps: u64 = workers.into_iter().map(|worker| worker.join().expect("a client")).sum();
        println!("{steps} steps in {seconds} s");
        assert!(steps > 100, "clients came to do {steps} steps");
        let checks = scope.spawn(move || {
            site.machines.enter(PROCESSES + CLIENTS);
            check::check(&checker, model)
        });
        checks.join().expect("a check");
    });
}

/// Ends the clients, also if something fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
