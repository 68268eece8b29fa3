//! The suite on mounts of a namespace on several servers: on one mount, and with the steps of each
//! case dealt to two mounts. Differences are in `served.known` and `dealt.known`, and in
//! docs/SEMANTICS.md. All cases run with `CANOPY_LONG=1`, also while servers die; some of them
//! otherwise.

use canopy_cluster::contents::Memory;
use canopy_cluster::wire::{Address, ClientSecurity, ServerSecurity};
use canopy_cluster::{
    ClusterNamespace, Connection, ListeningProcess, ListeningSettings, Security, create_cluster,
};
use canopy_mount::{CacheTimes, Mount, Options};
use canopy_namespace::{Ownership, Settings, system_clock};
use canopy_partition::SplitPolicy;
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SERVERS: u32 = 4;

/// Every N-th case is run by default. N is this number.
const EVERY: u32 = 97;

const LEASE: Duration = Duration::from_millis(300);

/// A running cluster of two processes, here threads.
struct Site {
    environment: Environment,
    nodes: Mutex<Vec<ListeningProcess>>,
}

impl Site {
    fn new() -> Self {
        let environment = Environment::system(Arc::new(MemoryStorage::default()));
        let settings = Settings { chunk_bytes: 64 << 10, ..Settings::default() };
        // Directories of the suite with a few hundred entries are split.
        let policy = SplitPolicy { entries_max: 64, ..SplitPolicy::default() };
        let (owner, clock) = (Ownership::ROOT, system_clock());
        create_cluster(&environment, &settings, owner, SERVERS, policy, &clock).unwrap();
        let site = Site { environment, nodes: Mutex::default() };
        for _ in 0..2 {
            site.start("127.0.0.1:0".parse().unwrap());
        }
        site
    }

    fn start(&self, listen: Address) {
        let settings = ListeningSettings {
            listen: vec![listen],
            security: ServerSecurity::default(),
            to_others: ClientSecurity::default(),
            advertise: None,
            lease: Some(LEASE),
            place: String::new(),
        };
        let node = ListeningProcess::start(&self.environment, &system_clock(), &settings).unwrap();
        self.nodes.lock().unwrap().push(node);
    }

    fn addresses(&self) -> Vec<Address> {
        self.nodes.lock().unwrap().iter().flat_map(|node| node.addresses().to_vec()).collect()
    }

    /// Kills the process that runs longest, and starts another one.
    fn replace(&self) {
        drop(self.nodes.lock().unwrap().remove(0));
        self.start("127.0.0.1:0".parse().unwrap());
    }
}

/// A mount of the cluster.
struct Mounted {
    on: TempDir,
    connection: Connection,
    namespace: Arc<ClusterNamespace>,
    serving: Option<JoinHandle<std::io::Result<()>>>,
    unmounter: Box<dyn FnMut() + Send>,
}

impl Mounted {
    fn new(site: &Site) -> Self {
        // Changes of the other mount have to be seen at once.
        Self::believing(site, CacheTimes::NOTHING)
    }

    fn believing(site: &Site, cache_times: CacheTimes) -> Self {
        let security = Security::of_client(None, None).unwrap();
        let connection = Connection::open(&site.addresses(), security, Arc::new(|_| {})).unwrap();
        connection.client().cache_directories(cache_times.directories);
        let namespace = connection.namespace(&site.environment, Memory::default()).unwrap();
        let on = TempDir::new_in("/dev/shm").unwrap();
        let options = Options {
            is_for_all: true,
            is_read_only: false,
            snapshot: None,
            threads: 8,
            name: "conformance".into(),
            passes_through: false,
            cache_times: Some(cache_times),
            names_users: false,
        };
        let mut mount = Mount::new(namespace.clone(), on.path(), &options).unwrap();
        let mut unmounter = mount.unmounter();
        let serving = Some(std::thread::spawn(move || mount.run()));
        let unmounter = Box::new(move || unmounter.unmount().unwrap());
        Mounted { on, connection, namespace, serving, unmounter }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        (self.unmounter)();
        if let Some(serving) = self.serving.take() {
            serving.join().unwrap().unwrap();
        }
        let _ = self.namespace.end();
    }
}

fn run_suite(directory: &Path, also: &[&Path], known: &str, every: u32) -> Value {
    run_cases(directory, also, known, &["--every", &every.to_string()])
}

/// Runs cases of the suite.
fn run_cases(directory: &Path, also: &[&Path], known: &str, which: &[&str]) -> Value {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(known);
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopy-conformance"));
    command.arg(directory).arg("--json").args(which).arg("--known").arg(known);
    for other in also {
        command.arg("--also").arg(other);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&stderr)
}

fn is_long() -> bool {
    std::env::var_os("CANOPY_LONG").is_some()
}

fn every() -> u32 {
    if is_long() { 1 } else { EVERY }
}

#[track_caller]
fn assert_conforms(report: &Value, every: u32) {
    assert_eq!(report["failed"], 0, "{report:#}");
    let passed_min = 13_000 / u64::from(every);
    assert!(report["passed"].as_u64().unwrap() >= passed_min, "{report:#}");
}

#[test]
fn a_mount_conforms() {
    let site = Site::new();
    let mounted = Mounted::new(&site);
    let report = run_suite(mounted.on.path(), &[], "served.known", every());
    assert_conforms(&report, every());
}

/// Locks of processes on two mounts exclude each other as on one machine.
#[test]
fn locks_conform_on_two_mounts() {
    let site = Site::new();
    let (one, other) = (Mounted::new(&site), Mounted::new(&site));
    for also in [&[][..], &[other.on.path()]] {
        for cases in ["flock/", "lock/"] {
            let report = run_cases(one.on.path(), also, "dealt.known", &["--filter", cases]);
            assert_eq!(report["failed"], 0, "{report:#}");
            assert!(report["passed"].as_u64().unwrap() >= 15, "{report:#}");
        }
    }
}

#[test]
fn creates_and_looks_cost_few_messages() {
    const FILES: u64 = 2000;
    // Each second, the session is renewed at all servers, the directory is looked up, and its
    // attributes and the root's are asked for on all of their servers.
    const PER_SECOND: f64 = 12.0;
    // Removed files are let go every 50 ms, on four servers.
    const OF_RELEASES: f64 = 80.0;
    // The directory splits into 16 partitions, which the client finds out by requests that fail.
    const OF_SPLITS: f64 = 100.0;
    let site = Site::new();
    let (files, directories) = (Duration::ZERO, Duration::from_secs(1));
    let mounted = Mounted::believing(&site, CacheTimes { files, directories });
    let directory = mounted.on.path().join("d");
    std::fs::create_dir(&directory).unwrap();
    let path = |number: u64| directory.join(number.to_string());
    let cost = |what: &str, limit: f64, work: &dyn Fn(u64)| {
        let (before, begun) = (mounted.connection.remote().sent(), Instant::now());
        (0..FILES).for_each(work);
        let sent = (mounted.connection.remote().sent() - before) as f64;
        let per_second = PER_SECOND + if what == "remove" { OF_RELEASES } else { 0.0 };
        let of_time = per_second * (begun.elapsed().as_secs_f64() + 1.0);
        let each = (sent - of_time - OF_SPLITS) / FILES as f64;
        eprintln!("{what}: {sent} messages, of which {of_time:.0} may be due to time");
        assert!(each <= limit, "{what}: {each} messages");
    };
    // Each operation looks its name up, and does its work. To check permissions, the kernel asks for
    // attributes of files that it has not just made. After a removal, the times of the directory are
    // asked for where the name was.
    cost("create", 2.0, &|number| _ = std::fs::File::create(path(number)).unwrap());
    cost("stat", 2.0, &|number| _ = path(number).metadata().unwrap());
    cost("open", 3.0, &|number| _ = std::fs::File::open(path(number)).unwrap());
    cost("remove", 3.0, &|number| std::fs::remove_file(path(number)).unwrap());
}

#[test]
fn two_mounts_conform_together() {
    let site = Site::new();
    let (one, other) = (Mounted::new(&site), Mounted::new(&site));
    let report = run_suite(one.on.path(), &[other.on.path()], "dealt.known", every());
    assert_conforms(&report, every());
}

#[test]
fn two_mounts_conform_while_servers_die() {
    let site = Arc::new(Site::new());
    let (one, other) = (Mounted::new(&site), Mounted::new(&site));
    let ends = Arc::new(AtomicBool::new(false));
    let killer = {
        let (site, ends) = (site.clone(), ends.clone());
        std::thread::spawn(move || {
            let mut killed = 0;
            while !ends.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < 4 * LEASE && !ends.load(Ordering::Relaxed) {
                    std::thread::sleep(LEASE / 10);
                }
                site.replace();
                killed += 1;
            }
            killed
        })
    };
    let every = if is_long() { 1 } else { 4 * EVERY };
    let report = run_suite(one.on.path(), &[other.on.path()], "dealt.known", every);
    ends.store(true, Ordering::Relaxed);
    let killed: u32 = killer.join().unwrap();
    assert!(killed > 0);
    assert_conforms(&report, every);
}
