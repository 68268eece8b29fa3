//! The suite on a mount of a namespace: what differs from other file systems is in `mounted.known`
//! and in docs/SEMANTICS.md, and the namespace has no fault afterwards.

use canopy_mount::{Mount, Options};
use canopy_namespace::{
    Contents, Namespace, Ownership, Settings, Upkeep, create_namespace, system_clock,
};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Fewer cases than pass there.
const PASSED_MIN: u64 = 14_600;

fn namespace(directory: &Path, chunk_bytes: u64) -> Arc<Namespace> {
    let storage = LocalStorage::new(directory).unwrap();
    let environment = Environment::system(Arc::new(storage));
    let settings = Settings { chunk_bytes, ..Settings::default() };
    create_namespace(&environment, &settings, Ownership::ROOT, &system_clock()).unwrap();
    let contents = Contents::new(&directory.join("contents")).unwrap();
    Arc::new(Namespace::open(&environment, contents, system_clock()).unwrap())
}

fn run_suite(directory: &Path, known: &str) -> Value {
    let known = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(known);
    let output = Command::new(env!("CARGO_BIN_EXE_canopy-conformance"))
        .arg(directory)
        .arg("--json")
        .arg("--known")
        .arg(known)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).expect(&stderr)
}

#[test]
fn a_mount_conforms() {
    conforms(0, "mounted.known");
}

#[test]
fn a_mount_whose_contents_are_chunks_conforms() {
    conforms(64 << 10, "chunked.known");
}

/// Stays on one processor, with all threads and processes from now on. The calls of the suite wait
/// for each other, and a call that wakes another processor takes a third more of their time.
fn stay_on_one_processor() {
    let this_thread = Pid::from_raw(0);
    let allowed = sched_getaffinity(this_thread).unwrap();
    let first = (0..CpuSet::count()).find(|&at| allowed.is_set(at).unwrap()).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(this_thread, &one).unwrap();
}

fn conforms(chunk_bytes: u64, known: &str) {
    stay_on_one_processor();
    let place = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = TempDir::new_in("/dev/shm").unwrap();
    let namespace = namespace(place.path(), chunk_bytes);
    let upkeep = Upkeep::start(&namespace);
    let options = Options {
        is_for_all: true,
        is_read_only: false,
        snapshot: None,
        threads: 2,
        name: "conformance".into(),
        passes_through: true,
        cache_times: None,
        names_users: false,
    };
    let mut mount = Mount::new(namespace.clone(), target.path(), &options).unwrap();
    let mut unmounter = mount.unmounter();
    let serving = std::thread::spawn(move || mount.run());
    let report = run_suite(target.path(), known);
    unmounter.unmount().unwrap();
    serving.join().unwrap().unwrap();
    drop(upkeep);
    assert_eq!(report["failed"], 0, "{report:#}");
    assert!(report["passed"].as_u64().unwrap() >= PASSED_MIN, "{report:#}");
    assert_eq!(namespace.check_contents(|_| {}).unwrap(), []);
}
