//! Processes of a cluster as threads, which share a storage in memory or in a directory. Each server is
//! a real table. Processes are killed, paused and cut off; storage fails before or after it has done
//! its work. In the end each server runs on one living process, and every write that was
//! acknowledged is there.

mod stage;

use canopy_cluster::membership::{
    Hosting, Membership, MembershipError, MembershipSettings, ProcessState, add_servers, drain,
    is_stopped, living, newest_map, survey,
};
use canopy_store::Clock;
use canopy_store::storage::{MemoryStorage, SharedDirectory, Storage};
use stage::{Cluster, Pace};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);

fn in_memory(servers: u32, lease_ms: u64) -> Cluster {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::default());
    Cluster::new(servers, Duration::from_millis(lease_ms), Box::new(move || storage.clone()))
}

#[test]
fn servers_move_to_processes_that_join_and_from_those_that_leave() {
    let mut cluster = in_memory(7, 1000);
    for address in ["a", "b", "c"] {
        let before = cluster.map();
        cluster.start(address);
        cluster.wait_for_rest();
        let Some(before) = before else { continue };
        let after = cluster.map().unwrap();
        let pairs = before.servers.iter().zip(&after.servers);
        let moves = pairs.filter(|(one, other)| one.process != other.process).count();
        let most = 7usize.div_ceil(after.processes.len());
        // A machine that is very slow may lose a lease on the way.
        if after.processes.len() == before.processes.len() + 1 && cluster.takeovers() == 0 {
            assert!(moves <= most, "{moves} servers moved to {address}");
        }
    }
    cluster.leave("b");
    cluster.wait_for_rest();
    assert_eq!(cluster.map().unwrap().processes.len(), 2);
    cluster.leave("a");
    cluster.leave("c");
    let map = cluster.map().unwrap();
    assert!(map.processes.is_empty() && map.servers.iter().all(|one| one.process.is_none()));
    assert_eq!(cluster.objects("cluster/lease/"), 0, "leases are removed");
    cluster.check_writes();
}

#[test]
fn servers_of_a_process_that_was_killed_run_elsewhere() {
    let mut cluster = in_memory(5, 200);
    for address in ["a", "b", "c"] {
        cluster.start(address);
    }
    cluster.wait_for_rest();
    cluster.kill("b");
    cluster.wait_for_rest();
    assert_eq!(cluster.addresses(), ["a", "c"]);
    cluster.kill("a");
    cluster.kill("c");
    // Nobody is left to notice.
    cluster.start("d");
    cluster.wait_for_rest();
    assert_eq!(cluster.addresses(), ["d"]);
    cluster.check_writes();
}

#[test]
fn a_process_that_was_paused_finds_itself_replaced_and_joins_again() {
    let mut cluster = in_memory(4, 200);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    let before = cluster.process("a");
    cluster.pace("a", Pace::Paused);
    cluster.wait_until("b has all servers", |cluster| cluster.addresses() == ["b"]);
    cluster.pace("a", Pace::Normal);
    cluster.wait_for_rest();
    assert_eq!(cluster.addresses(), ["a", "b"]);
    assert_ne!(cluster.process("a"), before);
    cluster.check_writes();
}

#[test]
fn a_process_that_is_cut_off_takes_nothing_from_others() {
    let mut cluster = in_memory(4, 200);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    cluster.pace("a", Pace::CutOff);
    cluster.wait_until("b has all servers", |cluster| cluster.addresses() == ["b"]);
    let servers = (0..4).map(canopy_partition::ServerId);
    cluster.wait_until("a answers for nothing", |cluster| {
        servers.clone().all(|server| !cluster.membership("a").may_answer(server))
    });
    assert!(!cluster.membership("a").failures().is_empty());
    cluster.pace("a", Pace::Normal);
    cluster.wait_for_rest();
    assert_eq!(cluster.addresses(), ["a", "b"]);
    cluster.check_writes();
}

#[test]
fn an_address_belongs_to_one_living_process() {
    let mut cluster = in_memory(2, 200);
    cluster.start("a");
    cluster.wait_for_rest();
    match cluster.try_start("a") {
        Err(MembershipError::AddressTaken { address, .. }) => assert_eq!(address, "a"),
        other => panic!("{:?}", other.map(drop)),
    }
    assert_eq!(cluster.addresses(), ["a"]);
    cluster.kill("a");
    // The one before is dead now, and is replaced.
    cluster.start("a");
    cluster.wait_for_rest();
    cluster.check_writes();
}

#[test]
fn a_process_joins_only_with_the_lease_of_those_that_live() {
    let mut cluster = in_memory(2, 200);
    cluster.start("a");
    cluster.wait_for_rest();
    let before = cluster.map();
    for lease_ms in [100, 1000] {
        cluster.set_lease(Duration::from_millis(lease_ms));
        match cluster.try_start("b") {
            Err(MembershipError::OtherLease { address, lease }) => {
                assert_eq!((address.as_str(), lease), ("a", Duration::from_millis(200)));
            }
            other => panic!("{:?}", other.map(drop)),
        }
    }
    assert_eq!(cluster.map(), before);
    cluster.kill("a");
    let environment = cluster.environment();
    cluster.wait_until("a is dead", |_| is_stopped(&environment).unwrap());
    cluster.start("b");
    cluster.wait_for_rest();
    assert_eq!(cluster.addresses(), ["b"]);
}

#[test]
fn processes_that_renew_live_whatever_clocks_say() {
    let mut cluster = in_memory(2, 1000);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    cluster.kill("b");
    cluster.wait_for_rest();
    let a = BTreeSet::from([cluster.process("a")]);
    // This clock is an hour late, or early.
    for shift_ms in [-3_600_000, 0, 3_600_000] {
        let mut environment = cluster.environment();
        environment.clock = Arc::new(Shifted(environment.clock, shift_ms));
        let map = cluster.map().unwrap();
        assert_eq!(living(&environment, &map).unwrap(), a, "{shift_ms}");
    }
    cluster.kill("a");
    for shift_ms in [-3_600_000, 3_600_000] {
        let mut environment = cluster.environment();
        environment.clock = Arc::new(Shifted(environment.clock, shift_ms));
        assert!(is_stopped(&environment).unwrap(), "{shift_ms}");
    }
}

/// A clock that differs by so many milliseconds.
struct Shifted(Arc<dyn Clock>, i64);

impl Clock for Shifted {
    fn now_ms(&self) -> u64 {
        self.0.now_ms().saturating_add_signed(self.1)
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[test]
fn draining_moves_all_servers_of_a_process() {
    let mut cluster = in_memory(5, 500);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    let environment = cluster.environment();
    let map = drain(&environment, |_, process| process.address == "a").unwrap();
    assert!(map.servers_of(cluster.process("a")).next().is_none());
    cluster.wait_until("a runs nothing", |cluster| cluster.running("a").is_empty());
    cluster.wait_for_rest();
    assert_eq!(cluster.running("b").len(), 5);
    let error = drain(&environment, |_, _| true).unwrap_err();
    assert_eq!(error.to_string(), "no other process serves: start one first");
    // A process drains itself, and it is no mistake that nobody serves then.
    cluster.membership("b").drain(LIMIT).unwrap();
    assert!(cluster.map().unwrap().servers.iter().all(|one| one.process.is_none()));
    let (_, statuses) = survey(&environment).unwrap().unwrap();
    assert!(statuses.iter().all(|one| one.state == ProcessState::Draining));
    assert!(statuses.iter().all(|one| one.renewed.is_some_and(|age| age < LIMIT)));
    // It serves once it is started again.
    cluster.leave("b");
    cluster.start("b");
    cluster.wait_until("b serves", |cluster| cluster.running("b").len() == 5);
    cluster.check_writes();
}

#[test]
fn servers_that_are_added_get_a_process() {
    let mut cluster = in_memory(3, 500);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    cluster.add_tables(2);
    let map = add_servers(&cluster.environment(), 5).unwrap();
    assert!(map.servers.len() == 5 && map.servers.iter().all(|one| one.process.is_some()));
    assert_eq!(add_servers(&cluster.environment(), 4).unwrap().servers.len(), 5);
    cluster.wait_for_rest();
    let error = add_servers(&cluster.environment(), 4097).unwrap_err().to_string();
    assert_eq!(error, "4097 logical servers: at most 4096 are possible");
    cluster.check_writes();
}

#[test]
fn a_server_that_somebody_else_opens_starts_again() {
    let mut cluster = in_memory(2, 200);
    cluster.start("a");
    cluster.wait_for_rest();
    cluster.open_from_outside(1);
    cluster.wait_until("it was fenced", |cluster| cluster.starts() > 2);
    cluster.wait_for_rest();
    cluster.check_writes();
}

#[test]
fn a_server_that_does_not_start_is_tried_again() {
    let mut cluster = in_memory(2, 200);
    cluster.refuse_starts(5);
    cluster.start("a");
    cluster.wait_for_rest();
    assert!(cluster.membership("a").failures().is_empty());
    cluster.check_writes();
}

#[test]
fn what_is_beyond_a_limit_is_refused() {
    struct Nothing;
    impl Hosting for Nothing {
        fn start(&self, _: canopy_partition::ServerId) -> canopy_cluster::Result<()> {
            Ok(())
        }
        fn stop(&self, _: canopy_partition::ServerId) {}
        fn map_changed(&self, _: Arc<canopy_cluster::membership::ClusterMap>) {}
    }
    let cluster = in_memory(1, 1000);
    let environment = cluster.environment();
    let join = |address: &str, servers, lease| {
        let settings = MembershipSettings { servers, lease, has_certificate: false };
        let joined = Membership::join(&environment, address, settings, Arc::new(Nothing));
        joined.map(drop).unwrap_err().to_string()
    };
    let second = Duration::from_secs(1);
    assert_eq!(join("a", 0, second), "a cluster has at least one logical server");
    assert_eq!(join("a", 5000, second), "5000 logical servers: at most 4096 are possible");
    assert_eq!(join("", 1, second), "an address of 0 bytes: 1 to 256 are possible");
    assert_eq!(join(&"a".repeat(257), 1, second), "an address of 257 bytes: 1 to 256 are possible");
    assert_eq!(join("a", 1, Duration::ZERO), "a lease lasts 10 ms to an hour");
    assert!(newest_map(&*environment.storage, 0).unwrap().is_none());
}

#[test]
fn a_damaged_map_is_reported_when_a_process_joins() {
    let mut cluster = in_memory(1, 200);
    let name = "cluster/map/00000000000000000001";
    cluster.environment().storage.create(name, b"nonsense".to_vec().into()).unwrap();
    let error = cluster.try_start("a").map(drop).unwrap_err().to_string();
    assert_eq!(error, format!("{name}: too short for a cluster map"));
}

#[test]
fn storage_is_asked_no_more_often_than_documented() {
    let mut cluster = in_memory(2, 300);
    cluster.start("a");
    cluster.start("b");
    cluster.wait_for_rest();
    let (before, begin) = (cluster.calls("a"), std::time::Instant::now());
    std::thread::sleep(Duration::from_secs(3));
    let (after, leases) = (cluster.calls("a"), begin.elapsed().as_secs_f64() / 0.3);
    let [creates, lists, sizes, removes] =
        std::array::from_fn(|at| (after[at] - before[at]) as f64);
    println!("{leases} leases: {creates} creates, {lists} lists, {sizes} sizes, {removes} removes");
    assert!(creates <= leases * 3.0 + 3.0 && creates >= 1.0);
    assert!(removes <= leases * 3.0 + 6.0);
    assert!(lists <= leases * 5.0 + 3.0);
    // The version is below 16.
    assert!(sizes <= lists * 4.0 + 4.0);
}

#[test]
fn random_faults_end_in_rest_in_memory() {
    let seeds = std::env::var("CANOPY_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    for seed in 1..=seeds {
        random_faults(in_memory(5, 100), seed, 30);
    }
}

#[test]
fn random_faults_end_in_rest_in_a_shared_directory() {
    let directory = tempfile::tempdir().unwrap();
    SharedDirectory::make(directory.path()).unwrap();
    let path = directory.path().to_owned();
    let open = move || -> Arc<dyn Storage> { Arc::new(SharedDirectory::open(&path).unwrap()) };
    let cluster = Cluster::new(4, Duration::from_millis(400), Box::new(open));
    random_faults(cluster, 7, 12);
}

/// Kills, pauses, cuts off and starts processes at random, while storage fails now and then.
fn random_faults(mut cluster: Cluster, seed: u64, steps: u32) {
    println!("seed {seed}");
    cluster.fail_randomly(seed);
    let mut state = seed;
    let mut choose = move |count: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % count
    };
    let all = ["a", "b", "c", "d"];
    for _ in 0..steps {
        let address = all[choose(4) as usize];
        match (cluster.is_started(address), choose(8)) {
            (false, _) => {
                // It may be slow to join, or be taken for the one before, which was just killed.
                let _ = cluster.try_start(address);
            }
            (true, 0) => cluster.kill(address),
            (true, 1) => cluster.try_leave(address),
            (true, 2 | 3) => cluster.pace(address, Pace::Paused),
            (true, 4) => cluster.pace(address, Pace::CutOff),
            (true, _) => cluster.pace(address, Pace::Normal),
        }
        std::thread::sleep(Duration::from_millis(choose(cluster.lease_ms() * 2)));
    }
    cluster.stop_failing();
    for address in all {
        if cluster.is_started(address) {
            cluster.pace(address, Pace::Normal);
        }
    }
    if !all.iter().any(|address| cluster.is_started(address)) {
        cluster.start("e");
    }
    cluster.wait_for_rest();
    cluster.check_writes();
    assert!(cluster.objects("cluster/map/") < 40);
}
