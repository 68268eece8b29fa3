//! A scan that several workers share ends in the index that one process makes, whichever of them are
//! killed or stand still, and whenever. Needs root.

use crate::common;
use crate::resuming::{assert_equal, assert_sound, finish, many_trees};

use common::requirements::has;
use common::{Fixture, all_paths, random_tree, seeded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A worker that is taken for dead after 0.6 s.
fn worker(place: &Fixture, location: &Path, arguments: &[&OsStr]) -> Command {
    let mut command = Command::new(&place.canopy);
    command.arg("--index").arg(location).args(["index", "--threads", "2", "--beat", "10"]);
    command.args(arguments).env("LC_ALL", "C.UTF-8");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn further(place: &Fixture, location: &Path, slowly: &str) -> Child {
    let arguments = ["--worker", "--max-rate", slowly];
    worker(place, location, &arguments.map(OsStr::new)).spawn().unwrap()
}

fn first(place: &Fixture, location: &Path, tree: &Path, more: &[&str]) -> Child {
    let mut command = worker(place, location, &[tree.as_os_str()]);
    command.args(more).spawn().unwrap()
}

fn send(signal: Signal, to: &Child) {
    let _ = kill(Pid::from_raw(i32::try_from(to.id()).unwrap()), signal);
}

fn ends_well(run: Child) -> Output {
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    output
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn is_over(location: &Path) -> bool {
    let is_there = |name: &str| location.join(name).exists();
    is_there("CURRENT") && !["workers", "workers.over", "journal"].into_iter().any(is_there)
}

/// Returns how many workers take part in a scan: each shows in a file that it lives.
fn joined(location: &Path) -> usize {
    let files = std::fs::read_dir(location.join("workers")).into_iter().flatten().flatten();
    let is_worker = |name: &str| name.starts_with('w') && !name.ends_with(".over");
    let workers = files.filter(|file| file.file_name().to_str().is_some_and(is_worker));
    workers.filter(|worker| worker.path().join("alive").exists()).count()
}

/// Asserts that nothing is left of workers: once all is scanned anew, both have as many files.
fn assert_tidy(place: &Fixture, location: &Path, fresh: &Path, tree: &Path) {
    let names = ["workers", "workers.new", "workers.over", "journal"];
    assert!(!names.iter().any(|name| location.join(name).exists()));
    for index in [location, fresh] {
        finish(place, index, &[tree.as_os_str(), "--replace".as_ref()]);
    }
    // By what they are called but for numbers.
    let files = |location: &Path| {
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for path in all_paths(location).iter().filter(|path| path.is_file()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            *kinds.entry(name.replace(|c: char| c.is_ascii_digit(), "")).or_default() += 1;
        }
        kinds
    };
    assert_eq!(files(location), files(fresh));
}

#[test]
fn workers_that_are_killed_anywhere_make_the_index_that_one_process_makes() {
    let mut killed = 0;
    for (seed, count) in [1, 2, 4].into_iter().enumerate() {
        let mut random = seeded(700 + seed as u64);
        let place = Fixture::new();
        let (tree, location, fresh) =
            (place.path("tree"), place.path("index"), place.path("fresh"));
        many_trees(&tree, &mut random);
        if seed % 2 == 1 {
            finish(&place, &location, &[tree.as_os_str()]);
            for number in 0..3 {
                random_tree(&tree.join(format!("new{number}")), &mut random, true);
            }
        }
        // Times of access change when links and directories are read first, by a scan or by find(1),
        // once they are older than the tick of the clock in which they were made.
        std::thread::sleep(Duration::from_millis(50));
        all_paths(&tree);
        finish(&place, &fresh, &[tree.as_os_str()]);
        let level = (1 + seed % 2).to_string();
        let mut all =
            vec![first(&place, &location, &tree, &["--level", &level, "--max-rate", "400"])];
        wait_until("begun", || location.join("workers").exists());
        let (begun, mut kills) = (Instant::now(), 0);
        while location.join("workers").exists() {
            assert!(begun.elapsed() < Duration::from_secs(120), "seed {seed}");
            for run in all.extract_if(.., |run| run.try_wait().unwrap().is_some()) {
                ends_well(run);
            }
            // Some of those who are killed have just begun, some publish.
            if kills < 6 && random.random_bool(0.3) && !all.is_empty() {
                let mut run = all.swap_remove(random.random_range(0..all.len()));
                send(Signal::SIGKILL, &run);
                kills += usize::from(!run.wait().unwrap().success());
            }
            while all.len() < count {
                all.push(further(&place, &location, "400"));
            }
            std::thread::sleep(Duration::from_millis(random.random_range(1..400)));
        }
        all.into_iter().for_each(|run| drop(ends_well(run)));
        let failures = std::fs::read(location.join("failures")).unwrap_or_default();
        assert!(failures.is_empty(), "seed {seed}: {}", failures.escape_ascii());
        assert_equal(&place, &location, &fresh, &tree, &mut random);
        assert_sound(&place, &location, &tree);
        // The digests of the listings are those of one process: nothing has changed.
        for index in [&location, &fresh] {
            let (said, _) = finish(&place, index, &[tree.as_os_str(), "--incremental".as_ref()]);
            assert!(said.contains("nothing has changed"), "{said}");
        }
        assert_tidy(&place, &location, &fresh, &tree);
        killed += kills;
    }
    // The test tests something, also where a scan is soon over.
    assert!(killed >= 3, "{killed}");
}

#[test]
fn a_worker_that_stands_still_and_comes_back_does_no_harm() {
    // All users see these trees as the source shows them; others would be scanned in part.
    for seed in [700, 701, 702, 780] {
        let mut random = seeded(seed);
        let place = Fixture::new();
        let (tree, location, fresh) =
            (place.path("tree"), place.path("index"), place.path("fresh"));
        many_trees(&tree, &mut random);
        let slow = first(&place, &location, &tree, &["--level", "1", "--max-rate", "1500"]);
        wait_until("begun", || location.join("workers").exists() || is_over(&location));
        std::thread::sleep(Duration::from_millis(random.random_range(0..900)));
        send(Signal::SIGSTOP, &slow);
        let others: Vec<Child> = (0..2).map(|_| further(&place, &location, "4000")).collect();
        // As long as it holds the lock, nobody else can publish.
        let waits = Instant::now();
        while !is_over(&location) && waits.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let was_over = is_over(&location);
        send(Signal::SIGCONT, &slow);
        ends_well(slow);
        others.into_iter().for_each(|run| drop(ends_well(run)));
        assert!(was_over || is_over(&location), "seed {seed}");
        finish(&place, &fresh, &[tree.as_os_str()]);
        assert_equal(&place, &location, &fresh, &tree, &mut random);
        assert_sound(&place, &location, &tree);
        assert_tidy(&place, &location, &fresh, &tree);
    }
}

#[test]
fn nobody_else_writes_until_it_is_published_or_given_up() {
    let mut random = seeded(780);
    let place = Fixture::new();
    let (tree, other, location, fresh) =
        (place.path("tree"), place.path("other"), place.path("index"), place.path("fresh"));
    many_trees(&tree, &mut random);
    random_tree(&other, &mut random, false);
    finish(&place, &location, &[tree.as_os_str()]);
    let slow = first(&place, &location, &tree, &["--level", "1", "--max-rate", "50"]);
    // The first claim comes after the lock of who began the scan is let go.
    wait_until("begun", || location.join("workers/claim-0-0").exists());
    for arguments in [
        &["index".as_ref(), other.as_os_str()][..],
        &["update".as_ref(), tree.as_os_str()],
        &["index".as_ref(), "--level".as_ref(), "2".as_ref(), tree.as_os_str()],
    ] {
        let refused = place.canopy(&location, arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{said}");
        assert!(said.contains("workers share a scan"), "{said}");
        assert!(said.contains("--restart"), "{said}");
    }
    // Who asks for the same joins.
    let same = first(&place, &location, &tree, &["--level", "1", "--max-rate", "50"]);
    wait_until("it has joined", || joined(&location) == 2);
    finish(&place, &location, &[other.as_os_str(), "--restart".as_ref()]);
    for run in [slow, same] {
        let output = run.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("published") || said.contains("given up"), "{said}");
    }
    let both = [tree.as_os_str(), other.as_os_str()];
    finish(&place, &fresh, &both);
    for tree in [&tree, &other] {
        assert_equal(&place, &location, &fresh, tree, &mut random);
    }
    // Without a scan, there is nothing to do.
    ends_well(further(&place, &location, "100"));
    assert_tidy(&place, &location, &fresh, &tree);
}

#[test]
fn damage_and_others_directories_stop_no_scan_and_lead_nobody_astray() {
    let (place, mut random) = (Fixture::new(), seeded(73));
    let (tree, location, fresh) = (place.path("tree"), place.path("index"), place.path("fresh"));
    many_trees(&tree, &mut random);
    finish(&place, &fresh, &[tree.as_os_str()]);
    let begin = |more: &[&str]| {
        let all = ["--level", "1", "--workers", "0"].iter().chain(more).map(OsStr::new);
        let all: Vec<&OsStr> = all.chain([tree.as_os_str()]).collect();
        let output = worker(&place, &location, &all).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let workers = location.join("workers");
    let cut = |file: &Path| {
        let bytes = file.metadata().unwrap().len() / 2;
        std::fs::File::options().write(true).open(file).unwrap().set_len(bytes).unwrap();
    };
    // What is scanned cannot be read any more.
    assert_eq!(begin(&[]).0, Some(0));
    cut(&workers.join("scan-0"));
    for (code, said) in [begin(&[]), {
        let output = worker(&place, &location, &["--worker".as_ref()]).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }] {
        assert_eq!(code, Some(2));
        assert!(said.contains("'canopy index --restart'"), "{said}");
    }
    let (code, said) = begin(&["--restart"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the scan is begun, with 1 part left; "), "{said}");
    // A part that is done cannot.
    let mut run = further(&place, &location, "150");
    wait_until("the first part is done", || workers.join("done-0").exists());
    send(Signal::SIGKILL, &run);
    run.wait().unwrap();
    cut(&workers.join("done-0"));
    ends_well(further(&place, &location, "100000"));
    assert_equal(&place, &location, &fresh, &tree, &mut random);
    assert_tidy(&place, &location, &fresh, &tree);
    // In an index that somebody else could change, or have lead elsewhere, nothing is made.
    assert_eq!(begin(&[]).0, Some(0));
    let link = place.path("link");
    std::os::unix::fs::symlink(&location, &link).unwrap();
    lchown(&link, Some(2001), None).unwrap();
    let output = worker(&place, &link, &["--worker".as_ref()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is a symbolic link of uid 2001"));
    chown(&location, Some(2001), None).unwrap();
    let before = std::fs::read_dir(&workers).unwrap().count();
    let output = worker(&place, &location, &["--worker".as_ref()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is not a safe place"));
    assert_eq!(std::fs::read_dir(&workers).unwrap().count(), before);
}

#[test]
fn the_publishing_worker_reports_unreadable_entries() {
    let place = Fixture::new();
    let (tree, location, list) =
        (place.path("tree"), place.path("own/index"), place.path("own/list"));
    for dir in 0..50 {
        let closed = tree.join(dir.to_string()).join("closed");
        std::fs::create_dir_all(&closed).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    }
    std::fs::create_dir(place.path("own")).unwrap();
    chown(place.path("own"), Some(4321), Some(4321)).unwrap();
    let mut run = worker(&place, &location, &[tree.as_os_str(), "--errors".as_ref()]);
    run.arg(&list).args(["--level", "1", "--workers", "3"]);
    let output = run.uid(4321).gid(4321).env("HOME", "/nonexistent").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let text = std::fs::read_to_string(&list).unwrap();
    let lines: HashSet<&str> = text.lines().collect();
    assert_eq!((lines.len(), text.lines().count()), (50, 50), "{text}");
    assert!(said.contains("50 entries could not be read"), "{said}");
}

#[test]
fn workers_of_one_command_say_once_how_it_ended() {
    let place = Fixture::new();
    let (tree, location) = (place.path("tree"), place.path("index"));
    for directory in 0..20 {
        std::fs::create_dir_all(tree.join(directory.to_string())).unwrap();
    }
    for round in 0..3 {
        let run = first(&place, &location, &tree, &["--level", "1", "--workers", "4"]);
        let Output { stdout, stderr, .. } = ends_well(run);
        let [printed, told] = [stdout, stderr].map(|text| String::from_utf8(text).unwrap());
        assert_eq!(printed.matches("generation").count(), 1, "{round}: {printed}");
        let ended = |line: &&str| line.contains("is published");
        assert!(told.lines().filter(ended).count() <= 1, "{round}: {told}");
    }
    // Who joins by hand is told.
    for (started, expected) in [(&["--worker"][..], 1), (&["--worker", "--started"], 0)] {
        let started: Vec<&OsStr> = started.iter().map(OsStr::new).collect();
        let late = ends_well(worker(&place, &location, &started).spawn().unwrap());
        let told = String::from_utf8(late.stderr).unwrap();
        assert_eq!(told.matches("there is no scan to join").count(), expected, "{told}");
    }
}

/// As many directories of an owner are for others as the limit says, in whatever parts they are.
#[test]
fn limits_of_owners_hold_for_all_workers_together() {
    let place = Fixture::new();
    let (tree, location) = (place.path("tree"), place.path("index"));
    for gid in 1..=6 {
        let dir = tree.join(format!("part{gid}/shared"));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("file"), "").unwrap();
        chown(&dir, Some(1000), Some(7000 + gid)).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o750)).unwrap();
    }
    let limited = ["--level", "1", "--workers", "3", "--owner-classes", "4"];
    let output = first(&place, &location, &tree, &limited).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("1000"), "{said}");
    let sees = |gid: u32| {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&location).arg("find").arg(&tree).args(["-name", "file"]);
        !command.uid(1001).gid(7000 + gid).output().unwrap().stdout.is_empty()
    };
    assert_eq!((1..=6).filter(|&gid| sees(gid)).count(), 4, "{said}");
    let all = place.canopy(&location, &["find".as_ref(), tree.as_os_str()]);
    assert_eq!(String::from_utf8_lossy(&all.stdout).lines().count(), 19);
}

#[test]
fn sources_in_others_are_what_they_are_to_one_process() {
    let mut random = seeded(790);
    let place = Fixture::new();
    let (tree, inner) = (place.path("tree"), place.path("tree/t3"));
    many_trees(&tree, &mut random);
    let index = |location: &Path, shared: bool, tree: &Path| {
        let more: &[&str] = if shared { &["--level", "1", "--workers", "2"] } else { &[] };
        ends_well(first(&place, location, tree, more));
    };
    for (name, order) in [("absorbed", [&inner, &tree]), ("subtree", [&tree, &inner])] {
        let (shared, fresh) =
            (place.path(&format!("{name} shared")), place.path(&format!("{name} fresh")));
        index(&shared, false, order[0]);
        index(&fresh, false, order[0]);
        change(&tree, &mut random);
        index(&shared, true, order[1]);
        index(&fresh, false, order[1]);
        assert_equal(&place, &shared, &fresh, &tree, &mut random);
        assert_sound(&place, &shared, &tree);
    }
}

fn change(tree: &Path, random: &mut StdRng) {
    let new = tree.join(format!("t3/new{}", random.random_range(0..1_000_000)));
    random_tree(&new, random, false);
}

/// A cluster of Slurm on this machine, with three nodes; `None` where Slurm is not installed.
struct Cluster {
    dir: PathBuf,
}

impl Cluster {
    fn begin(dir: PathBuf) -> Option<Self> {
        if !["munged", "slurmctld", "slurmd", "sbatch", "sinfo"].into_iter().all(has) {
            return None;
        }
        std::fs::create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        for name in ["state", "n1", "n2", "n3"] {
            std::fs::create_dir(dir.join(name)).unwrap();
        }
        std::fs::write(dir.join("key"), [7; 1024]).unwrap();
        std::fs::set_permissions(dir.join("key"), PermissionsExt::from_mode(0o600)).unwrap();
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let (host, at) = (host.trim(), dir.display());
        // Other tests do not use these ports, and another cluster of this test is another process.
        let port = 20_000 + std::process::id() % 10_000;
        let [first, last] = [port + 1, port + 3];
        let text = format!(
            "ClusterName=canopy\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={at}/munge.sock\nCredType=cred/munge\n\
             MpiDefault=none\nProctrackType=proctrack/pgid\nTaskPlugin=task/none\n\
             ReturnToService=2\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\n\
             SlurmdParameters=config_overrides\nSlurmctldPort={port}\n\
             SlurmctldPidFile={at}/slurmctld.pid\nSlurmctldLogFile={at}/slurmctld.log\n\
             SlurmdPidFile={at}/%n.pid\nSlurmdLogFile={at}/%n.log\nSlurmdSpoolDir={at}/%n\n\
             StateSaveLocation={at}/state\nNodeName=n[1-3] NodeHostname={host} \
             NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 State=UNKNOWN\n\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        );
        std::fs::write(dir.join("slurm.conf"), text).unwrap();
        let cluster = Cluster { dir };
        let path = |name: &str| cluster.dir.join(name);
        let mut munged = Command::new("/usr/sbin/munged");
        for (option, name) in [
            ("--key-file", "key"),
            ("--socket", "munge.sock"),
            ("--pid-file", "munged.pid"),
            ("--log-file", "munged.log"),
            ("--seed-file", "seed"),
        ] {
            munged.arg(format!("{option}={}", path(name).display()));
        }
        assert!(munged.arg("--force").status().unwrap().success());
        assert!(cluster.command("slurmctld").status().unwrap().success());
        for node in ["n1", "n2", "n3"] {
            assert!(cluster.command("slurmd").args(["-N", node]).status().unwrap().success());
        }
        wait_until("three nodes are idle", || {
            let said = cluster.command("sinfo").args(["-h", "-o", "%t %D"]).output().unwrap();
            String::from_utf8_lossy(&said.stdout).trim() == "idle 3"
        });
        Some(cluster)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.dir.join("slurm.conf"));
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for name in ["n1", "n2", "n3", "slurmctld", "munged"] {
            let Ok(pid) = std::fs::read_to_string(self.dir.join(name).with_extension("pid")) else {
                continue;
            };
            let _ = kill(Pid::from_raw(pid.trim().parse().unwrap()), Signal::SIGKILL);
        }
    }
}

/// The workers of a job, by what they were started with.
fn workers_of(location: &Path) -> Vec<Pid> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let is_one = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        words.first().is_some_and(|name| name.ends_with(b"canopy"))
            && words.contains(&location.as_os_str().as_bytes())
            && words.contains(&&b"--worker"[..])
    };
    pids.filter(is_one).map(Pid::from_raw).collect()
}

#[test]
fn a_job_of_slurm_has_a_worker_on_each_node_and_may_lose_one() {
    let mut random = seeded(795);
    let place = Fixture::new();
    let Some(cluster) = Cluster::begin(place.path("slurm")) else { return };
    let (tree, location, fresh) = (place.path("tree"), place.path("index"), place.path("fresh"));
    many_trees(&tree, &mut random);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/canopy-index.sbatch");
    let path =
        format!("{}:{}", place.canopy.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut job = cluster.command("sbatch");
    job.args(["--wait", "--nodes=3", "--output"]).arg(place.path("said")).arg(script);
    job.env("TREE", &tree).env("INDEX", &location).env("LEVEL", "1").env("PATH", path);
    // Slowly, and a worker that is lost is taken for dead soon.
    job.env("WORKER", "--max-rate=100 --beat=10 --threads=1");
    let mut job = job.stdout(Stdio::null()).spawn().unwrap();
    wait_until("three workers have joined", || joined(&location) == 3);
    let all = workers_of(&location);
    assert_eq!(all.len(), 3);
    kill(all[1], Signal::SIGKILL).unwrap();
    job.wait().unwrap();
    let said = std::fs::read_to_string(place.path("said")).unwrap();
    assert!(said.contains("generation 1: "), "{said}");
    assert!(is_over(&location), "{said}");
    finish(&place, &fresh, &[tree.as_os_str()]);
    assert_equal(&place, &location, &fresh, &tree, &mut random);
    assert_tidy(&place, &location, &fresh, &tree);
}
