//! `canopy watch`: while trees change, the index becomes what a scan of them would make, for every
//! user; what is missed is looked at again. Needs root.

use crate::common;

use common::{Fixture, User};
use rand::RngExt;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const FORMAT: &str = "%p|%y|%s|%b|%m|%u|%g|%n|%i|%l|%T@|%C@\\0";

/// A daemon, which is killed when it goes away.
pub struct Daemon {
    pub child: Child,
    /// The file with its messages.
    said: PathBuf,
}

impl Daemon {
    pub fn start(place: &Fixture, index: &Path, arguments: &[&OsStr]) -> Self {
        Daemon::start_with(place, index, arguments, Stdio::null())
    }

    pub fn start_with(place: &Fixture, index: &Path, arguments: &[&OsStr], input: Stdio) -> Self {
        let command = Command::new(&place.canopy);
        Daemon::run(place, index, command, arguments, input)
    }

    fn run(
        place: &Fixture,
        index: &Path,
        mut command: Command,
        arguments: &[&OsStr],
        input: Stdio,
    ) -> Self {
        let said = place.path("said");
        let errors = fs::File::options().create(true).append(true).open(&said).unwrap();
        command.arg("--index").arg(index).args(["watch", "--interval", "1"]).args(arguments);
        let child = command.stdin(input).stderr(errors).spawn().unwrap();
        let mut daemon = Daemon { child, said };
        wait_until("the daemon runs", || {
            let ended = daemon.child.try_wait().unwrap();
            assert!(ended.is_none(), "{ended:?}: {}", daemon.said());
            let status = status(place, index);
            status["running"] == true && status["pid"] == daemon.child.id()
        });
        daemon
    }

    /// Ends it by SIGTERM, and expects that to go well.
    pub fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        assert!(self.child.wait().unwrap().success(), "{}", self.said());
    }

    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn status(place: &Fixture, index: &Path) -> Value {
    let words = ["watch", "--status", "--json"].map(OsStr::new);
    serde_json::from_slice(&place.canopy(index, &words).stdout).unwrap_or_default()
}

/// The entries of a tree that an index shows to a user.
fn shown(place: &Fixture, index: &Path, tree: &Path, user: Option<&User>) -> Vec<String> {
    let words = [
        OsStr::new("--index"),
        index.as_os_str(),
        "find".as_ref(),
        tree.as_os_str(),
        "-printf".as_ref(),
        FORMAT.as_ref(),
    ];
    let output: Output = match user {
        Some(user) => user.run(place.canopy.as_os_str(), &words),
        None => Command::new(&place.canopy).args(words).output().unwrap(),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = Vec::from_iter(text.split('\0').map(str::to_owned));
    lines.sort();
    lines
}

/// Waits until an index shows root and two others what one that is made now shows them.
pub fn wait_for_equality(place: &Fixture, index: &Path, trees: &[&Path]) {
    let fresh = tempfile::tempdir_in(place.dir.path()).unwrap();
    let fresh = fresh.path().join("index");
    for tree in trees {
        place.index(&fresh, tree);
    }
    let users = [
        None,
        Some(User { uid: 2001, gid: 3001, groups: vec![3002] }),
        Some(User { uid: 2002, gid: 3003, groups: Vec::new() }),
    ];
    for (tree, user) in trees.iter().flat_map(|tree| users.iter().map(move |user| (tree, user))) {
        let expected = shown(place, &fresh, tree, user.as_ref());
        let mut found = Vec::new();
        let begun = Instant::now();
        while found != expected {
            found = shown(place, index, tree, user.as_ref());
            if begun.elapsed() > Duration::from_secs(30) {
                let differs = |a: &[String], b: &[String]| {
                    Vec::from_iter(a.iter().filter(|line| !b.contains(line)).cloned())
                };
                panic!(
                    "{user:?} does not see {:#?}\nand sees {:#?}",
                    differs(&expected, &found),
                    differs(&found, &expected)
                );
            }
        }
    }
}

/// A tree that several users have a part of.
pub fn make_tree(root: &Path) {
    for (directory, uid, mode) in [
        ("open", 0, 0o755),
        ("open/of-ann", 2001, 0o700),
        ("gate", 2002, 0o711),
        ("gate/in", 2002, 0o755),
    ] {
        let path = root.join(directory);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("file"), directory).unwrap();
        chown(&path, Some(uid), Some(3001)).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
}

#[test]
fn an_index_follows_its_source() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    let metrics = place.path("canopy.prom");
    let words = [tree.as_os_str(), "--prometheus".as_ref(), metrics.as_os_str()];
    let daemon = Daemon::start(&place, &index, &words);
    let equal = || wait_for_equality(&place, &index, &[&tree]);
    let at = |path: &str| tree.join(path);
    equal();
    fs::write(at("open/new"), "new").unwrap();
    fs::create_dir_all(at("open/1/2/3")).unwrap();
    fs::write(at("open/1/2/3/file"), "deep").unwrap();
    equal();
    fs::File::options()
        .append(true)
        .open(at("open/new"))
        .unwrap()
        .write_all(b" and longer")
        .unwrap();
    fs::remove_file(at("gate/in/file")).unwrap();
    equal();
    // Who may see what is below changes with a directory.
    fs::set_permissions(at("open"), PermissionsExt::from_mode(0o700)).unwrap();
    equal();
    chown(at("open"), Some(2002), None).unwrap();
    equal();
    fs::rename(at("open/1"), at("gate/in/moved")).unwrap();
    fs::write(at("gate/in/moved/2/3/later"), "later").unwrap();
    equal();
    fs::remove_dir_all(at("gate")).unwrap();
    equal();
    let text = fs::read_to_string(&metrics).unwrap();
    assert!(text.contains("canopy_watch_events_total "), "{text}");
    let begun = format!("canopy: following {} (fanotify) for the index ", tree.display());
    assert!(daemon.said().starts_with(&begun), "{}", daemon.said());
    let user = User { uid: 4321, gid: 4321, groups: Vec::new() };
    let words = ["--index".as_ref(), index.as_os_str(), "watch".as_ref(), "--status".as_ref()];
    let denied = String::from_utf8(user.run(place.canopy.as_os_str(), &words).stderr).unwrap();
    assert!(denied.contains("only who may write the index sees how its daemon does"), "{denied}");
    assert_eq!(status(&place, &index)["method"], "fanotify");
    wait_until("what was done is told", || {
        let now = status(&place, &index);
        now["events"].as_u64() > Some(5) && now["generation"].as_u64() > Some(3)
    });
    let output = place.canopy(&index, &["watch".as_ref(), "--status".as_ref()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("state       running, by fanotify, pid "), "{text}");
    assert_eq!(output.status.code(), Some(0));
    daemon.stop();
    let output = place.canopy(&index, &["watch".as_ref(), "--status".as_ref()]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("state       stopped"));
    assert_eq!(output.status.code(), Some(1));
}

/// A daemon that had stopped but still listened made an index look up to date.
#[test]
fn followed_sources_are_as_old_as_the_last_status() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
    let is_new = || {
        let words = ["info", "--max-age=5s"].map(OsStr::new);
        place.canopy(&index, &words).status.success()
    };
    // Nothing changes, and the scan grows older than that.
    std::thread::sleep(Duration::from_secs(6));
    wait_until("what is followed is new", is_new);
    let pid = nix::unistd::Pid::from_raw(daemon.child.id() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).unwrap();
    wait_until("what stands still grows old", || !is_new());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT).unwrap();
    wait_until("what goes on is new again", is_new);
    // Others do not learn how the daemon does.
    let user = User { uid: 4321, gid: 4321, groups: Vec::new() };
    let words = ["--index".as_ref(), index.as_os_str(), "info".as_ref(), "--max-age=5s".as_ref()];
    assert_eq!(user.run(place.canopy.as_os_str(), &words).status.code(), Some(1));
    daemon.stop();
}

#[test]
fn changes_after_the_daemon_was_killed_are_found() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    for round in 0..4 {
        let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
        if round % 2 == 0 {
            wait_for_equality(&place, &index, &[&tree]);
        }
        fs::write(tree.join(format!("open/{round}")), "x").unwrap();
        std::thread::sleep(Duration::from_millis(100 * round));
        // SIGKILL.
        drop(daemon);
        fs::create_dir(tree.join(format!("open/dir{round}"))).unwrap();
        fs::write(tree.join(format!("open/dir{round}/file")), "x").unwrap();
    }
    let words = [tree.as_os_str(), "--one-file-system".as_ref(), "--max-rate=50000".as_ref()];
    let daemon = Daemon::start(&place, &index, &words);
    wait_for_equality(&place, &index, &[&tree]);
    // Only one at a time.
    let second = place.canopy(&index, &["watch".as_ref(), tree.as_os_str()]);
    let text = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(2));
    assert!(text.contains("in use by another 'canopy watch'"), "{text}");
    daemon.stop();
}

#[test]
fn several_sources_do_not_hold_each_other_up() {
    let place = Fixture::new();
    let disk = place.small_disk("disk", "4M");
    let (one, two, index) = (place.path("one"), disk.0.join("two"), place.path("index"));
    make_tree(&one);
    make_tree(&two);
    let daemon = Daemon::start(&place, &index, &[one.as_os_str(), two.as_os_str()]);
    wait_for_equality(&place, &index, &[&one, &two]);
    fs::write(one.join("open/new"), "x").unwrap();
    fs::write(two.join("open/new"), "x").unwrap();
    wait_for_equality(&place, &index, &[&one, &two]);
    // One that is gone fails; the other is followed.
    fs::rename(&two, disk.0.join("elsewhere")).unwrap();
    fs::write(one.join("open/more"), "x").unwrap();
    wait_for_equality(&place, &index, &[&one]);
    wait_until("the failure is told", || {
        status(&place, &index)["sources"].as_array().unwrap().iter().any(|source| {
            source["root"] == two.to_str().unwrap() && source["last_error"].is_string()
        })
    });
    fs::write(one.join("open/and-more"), "x").unwrap();
    wait_for_equality(&place, &index, &[&one]);
    // It comes back.
    fs::rename(disk.0.join("elsewhere"), &two).unwrap();
    fs::write(two.join("open/again"), "x").unwrap();
    wait_for_equality(&place, &index, &[&one, &two]);
    daemon.stop();
}

/// With a limit of entries a second, sources take turns.
#[test]
fn a_slow_source_does_not_hold_another_up() {
    let place = Fixture::new();
    let (large, small, index) = (place.path("large"), place.path("small"), place.path("index"));
    for dir in (0..10).flat_map(|one| (0..10).map(move |other| format!("{one}/{other}"))) {
        fs::create_dir_all(large.join(&dir)).unwrap();
        (0..30).for_each(|file| fs::write(large.join(&dir).join(file.to_string()), "").unwrap());
    }
    make_tree(&small);
    place.index(&index, &large);
    place.index(&index, &small);
    // Looking at all of it again takes fifteen seconds.
    let words = [large.as_os_str(), small.as_os_str(), "--max-rate".as_ref(), "200".as_ref()];
    let daemon = Daemon::start(&place, &index, &words);
    let waiting = |root: &Path| {
        let status = status(&place, &index);
        let sources = status["sources"].as_array().unwrap().iter();
        let own = sources.filter(|source| source["root"] == root.to_str().unwrap());
        own.map(|source| source["suspects"].as_u64().unwrap()).sum::<u64>()
    };
    for number in 0..2 {
        fs::write(small.join(format!("open/{number}")), "").unwrap();
        fs::write(large.join(format!("9/9/new{number}")), "").unwrap();
        wait_for_equality(&place, &index, &[&small]);
        assert!(waiting(&large) > 0, "{}", daemon.said());
    }
    wait_for_equality(&place, &index, &[&large, &small]);
    wait_until("all is done", || waiting(&large) == 0);
    daemon.stop();
}

#[test]
fn events_that_the_kernel_lost_are_no_loss() {
    use nix::sys::signal::{Signal, kill};
    let place = Fixture::new();
    let disk = place.small_disk("disk", "64M");
    let (tree, index) = (disk.0.join("tree"), place.path("index"));
    make_tree(&tree);
    let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
    wait_for_equality(&place, &index, &[&tree]);
    let limit = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events").unwrap();
    let pid = nix::unistd::Pid::from_raw(daemon.child.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    wait_until("the daemon stands still", || state().contains(") T "));
    fs::create_dir(tree.join("many")).unwrap();
    for number in 0..2 * limit.trim().parse::<u32>().unwrap() {
        fs::write(tree.join(format!("many/{number}")), "").unwrap();
    }
    fs::write(tree.join("open/last"), "x").unwrap();
    kill(pid, Signal::SIGCONT).unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    wait_until("the overflow is told", || status(&place, &index)["overflows"].as_u64() >= Some(1));
    daemon.stop();
}

#[test]
fn users_follow_trees_of_their_own() {
    let place = Fixture::new();
    let own = place.path("own");
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let (tree, index) = (own.join("tree"), own.join("index"));
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for path in ["", "tree", "tree/a", "tree/a/b"] {
        chown(own.join(path), Some(user.uid), Some(user.gid)).unwrap();
    }
    let mut command = user.command();
    command.arg(&place.canopy);
    let words = [tree.as_os_str()];
    let daemon = Daemon::run(&place, &index, command, &words, Stdio::null());
    let listed = || {
        let words = ["--index".as_ref(), index.as_os_str(), "find".as_ref(), tree.as_os_str()];
        let output = user.run(place.canopy.as_os_str(), &words);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let prefix = tree.to_str().unwrap().to_owned();
        let mut below = Vec::from_iter(text.lines().map(|line| line.replacen(&prefix, "", 1)));
        below.sort();
        below
    };
    wait_until("all is indexed", || listed() == ["", "/a", "/a/b"]);
    let run = |program: &str, words: &[&str]| {
        let words = Vec::from_iter(words.iter().map(|word| tree.join(word)));
        let words = Vec::from_iter(words.iter().map(|word| word.as_os_str()));
        assert!(user.run(program.as_ref(), &words).status.success());
    };
    run("mkdir", &["c"]);
    run("touch", &["c/file"]);
    wait_until("a directory is new", || listed() == ["", "/a", "/a/b", "/c", "/c/file"]);
    run("mv", &["c", "a/b"]);
    run("touch", &["a/b/c/more"]);
    wait_until("a directory has moved", || {
        listed() == ["", "/a", "/a/b", "/a/b/c", "/a/b/c/file", "/a/b/c/more"]
    });
    assert!(daemon.said().contains("following by inotify"), "{}", daemon.said());
    let words = ["--index".as_ref(), index.as_os_str(), "watch".as_ref(), "--status".as_ref()];
    let output = user.run(place.canopy.as_os_str(), &words);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.starts_with("state       running, by inotify, pid "), "{text}");
}

#[test]
fn events_of_others_are_followed() {
    let place = Fixture::new();
    let (tree, index, events) = (place.path("tree"), place.path("index"), place.path("events"));
    make_tree(&tree);
    fs::write(&events, "whatever was told before\n").unwrap();
    place.index(&index, &tree);
    let words =
        [tree.as_os_str(), "--trust-index".as_ref(), "--events".as_ref(), events.as_os_str()];
    let tell = |line: String| {
        let mut file = fs::File::options().append(true).open(&events).unwrap();
        file.write_all(line.as_bytes()).unwrap();
    };
    let at = |path: &str| tree.join(path).to_str().unwrap().to_owned();
    let daemon = Daemon::start(&place, &index, &words);
    fs::write(at("open/told"), "x").unwrap();
    fs::rename(at("gate/in"), at("open/in")).unwrap();
    tell(format!("{{\"op\":\"create\",\"path\":\"{}\"}}\n", at("open/told")));
    tell(format!(
        "{{\"op\":\"rename\",\"path\":\"{}\",\"to\":\"{}\"}}\n",
        at("gate/in"),
        at("open/in")
    ));
    wait_for_equality(&place, &index, &[&tree]);
    // Nothing tells of this, which shows that nothing else is looked at.
    fs::write(at("gate/untold"), "x").unwrap();
    drop(daemon);
    fs::write(at("open/of-ann/later"), "x").unwrap();
    tell(format!("{{\"op\":\"create\",\"path\":\"{}\"}}\n", at("open/of-ann/later")));
    let daemon = Daemon::start(
        &place,
        &index,
        &words[..1].iter().chain(&words[2..]).copied().collect::<Vec<_>>(),
    );
    let has =
        |name: &str| shown(&place, &index, &tree, None).iter().any(|line| line.contains(name));
    wait_until("the daemon goes on where it was killed", || has("/of-ann/later"));
    assert!(!has("/gate/untold"));
    // A line that nobody understands.
    tell("{\"op\":\"create\"}\n".to_owned());
    wait_for_equality(&place, &index, &[&tree]);
    wait_until("the line is told", || status(&place, &index)["bad_lines"] == 1);
    assert!(daemon.said().contains("it has no text 'path'"), "{}", daemon.said());
    // The file is replaced by another.
    fs::rename(&events, place.path("events.1")).unwrap();
    fs::write(at("gate/last"), "x").unwrap();
    fs::write(&events, format!("{{\"op\":\"directory\",\"path\":\"{}\"}}\n", at("gate"))).unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    daemon.stop();
}

#[test]
fn events_that_cannot_be_read_are_waited_for() {
    let place = Fixture::new();
    let (tree, index, events) = (place.path("tree"), place.path("index"), place.path("events"));
    make_tree(&tree);
    place.index(&index, &tree);
    // A file that can be opened and not read.
    std::os::unix::fs::symlink("/proc/self/mem", &events).unwrap();
    let words = [tree.as_os_str(), "--events".as_ref(), events.as_os_str()];
    let daemon = Daemon::start(&place, &index, &words);
    let error = || status(&place, &index)["deaf"].as_str().unwrap_or_default().to_owned();
    wait_until("the error is told", || error().contains("Input/output error"));
    fs::remove_file(&events).unwrap();
    wait_until("that it is gone is told", || error().contains("No such file"));
    fs::write(tree.join("open/untold"), "x").unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    fs::write(&events, "").unwrap();
    wait_until("it is read again", || status(&place, &index)["deaf"].is_null());
    wait_for_equality(&place, &index, &[&tree]);
    let idle = || status(&place, &index)["suspects"] == 0;
    wait_until("all is looked at again", idle);
    // It is the file that tells, and nothing else.
    fs::write(tree.join("gate/untold"), "x").unwrap();
    fs::write(tree.join("open/told"), "x").unwrap();
    let told = tree.join("open/told");
    fs::write(&events, format!("{{\"op\":\"create\",\"path\":\"{}\"}}\n", told.display())).unwrap();
    let has =
        |name: &str| shown(&place, &index, &tree, None).iter().any(|line| line.contains(name));
    wait_until("an event is told", || has("/open/told"));
    assert!(!has("/gate/untold"));
    daemon.stop();
}

#[test]
fn write_errors_are_reported_once() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    // Each time before it writes, it also reports its status to the service manager.
    let socket = place.path("manager");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let reports = Arc::new(AtomicUsize::new(0));
    let counted = reports.clone();
    std::thread::spawn(move || {
        let mut message = [0; 4096];
        while let Ok(length) = manager.recv(&mut message) {
            let is_status = message[..length].starts_with(b"STATUS=");
            counted.fetch_add(usize::from(is_status), Ordering::Relaxed);
        }
    });
    let mut command = Command::new(&place.canopy);
    command.env("NOTIFY_SOCKET", &socket);
    let daemon = Daemon::run(&place, &index, command, &[tree.as_os_str()], Stdio::null());
    wait_for_equality(&place, &index, &[&tree]);
    fs::remove_dir_all(index.join("watch")).unwrap();
    wait_until("it is said", || daemon.said().contains("status.json"));
    let before = reports.load(Ordering::Relaxed);
    wait_until("it was tried again", || reports.load(Ordering::Relaxed) >= before + 3);
    assert_eq!(daemon.said().matches("status.json").count(), 1, "{}", daemon.said());
}

#[test]
fn a_damaged_index_is_mended_and_followed() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
    wait_for_equality(&place, &index, &[&tree]);
    let is_page = |path: &PathBuf| path.to_string_lossy().ends_with("-page.bin");
    for page in common::all_paths(&index).into_iter().filter(is_page) {
        fs::write(page, "damaged").unwrap();
    }
    fs::write(tree.join("open/new"), "new").unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    daemon.stop();
}

#[test]
fn an_index_with_derived_tables_follows() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    place.index(&index, &tree);
    let query = "SELECT name FROM entries WHERE size > 5000";
    let words = ["table", "derive", "large", query].map(OsStr::new);
    let output = place.canopy(&index, &words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
    fs::write(tree.join("open/new"), vec![b'x'; 6000]).unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    let words = ["sql", "--format", "csv", "SELECT name FROM large"].map(OsStr::new);
    let output = String::from_utf8(place.canopy(&index, &words).stdout).unwrap();
    assert!(output.contains("new"), "{output}");
    daemon.stop();
}

#[test]
fn events_come_through_a_pipe_to_its_end() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    make_tree(&tree);
    place.index(&index, &tree);
    fs::write(tree.join("open/new"), "x").unwrap();
    let words = [tree.as_os_str(), "--trust-index".as_ref(), "--events".as_ref(), "-".as_ref()];
    let mut daemon = Daemon::start_with(&place, &index, &words, Stdio::piped());
    let path = tree.join("open/new");
    let line = format!("{{\"op\":\"create\",\"path\":\"{}\"}}", path.display());
    // The end of the line is that of the input.
    daemon.child.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert!(daemon.child.wait().unwrap().success(), "{}", daemon.said());
    wait_for_equality(&place, &index, &[&tree]);
}

/// A source that was not mounted when the system began kept all from being followed.
#[test]
fn a_configured_source_that_is_missing_holds_no_other_up() {
    let place = Fixture::new();
    let (tree, index, none) = (place.path("tree"), place.path("index"), place.path("none"));
    make_tree(&tree);
    let config = place.path("site.toml");
    fs::write(&config, format!("sources = [{none:?}, {tree:?}]\n")).unwrap();
    let mut command = Command::new(&place.canopy);
    command.env("CANOPY_SITE_CONFIG", &config);
    let daemon = Daemon::run(&place, &index, command, &[], Stdio::null());
    let said = format!("changes are not told of {}: cannot open ", none.display());
    assert!(daemon.said().contains(&said), "{}", daemon.said());
    fs::write(tree.join("open/new"), "new").unwrap();
    wait_for_equality(&place, &index, &[&tree]);
    assert!(status(&place, &index)["unfollowed"][0].as_str().unwrap().contains("cannot open"));
    daemon.stop();
}

#[test]
fn trees_that_cannot_be_followed_are_reported() {
    let place = Fixture::new();
    let index = place.path("index");
    let fails = |words: &[&OsStr], expected: &str| {
        let output = place.canopy(&index, words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    };
    let none = place.path("none");
    fails(&["watch".as_ref(), none.as_os_str()], "cannot open");
    fails(&["watch".as_ref(), "ns:/x".as_ref()], "cannot open /x");
    fails(&["watch".as_ref(), "--interval".as_ref(), "0".as_ref()], "between 0.1 and 86400");
    let tree = place.path("tree");
    make_tree(&tree);
    let words = ["watch".as_ref(), "--prometheus".as_ref(), tree.as_os_str(), tree.as_os_str()];
    fails(&words, "--prometheus names a file");
    assert!(!place.path("tree.new").exists());
    let help = place.canopy(&index, &["watch".as_ref(), "--help".as_ref()]);
    assert!(String::from_utf8(help.stdout).unwrap().starts_with("Follow changes in sources"));
    // What the daemon runs.
    fails(&["update".as_ref(), "--suspects".as_ref()], "no index at");
    fails(&["watch".as_ref(), "--status".as_ref()], "no 'canopy watch' has run for this index");
}

/// A tree that changes at random.
pub struct Changes {
    tree: PathBuf,
    outside: PathBuf,
    random: rand::rngs::StdRng,
}

impl Changes {
    pub fn new(tree: &Path, outside: PathBuf, seed: u64) -> Self {
        Changes { tree: tree.to_owned(), outside, random: common::seeded(seed) }
    }

    /// A path of few names, in the tree or now and then beside it.
    fn path(&mut self) -> PathBuf {
        let mut path = match self.random.random_range(0..10) {
            0 => self.outside.clone(),
            _ => self.tree.clone(),
        };
        for _ in 0..self.random.random_range(1..5) {
            path.push(["a", "b", "c", "d\u{fe}"][self.random.random_range(0..4)]);
        }
        path
    }

    /// Does one thing, if it can be done.
    pub fn change(&mut self) {
        let (path, other) = (self.path(), self.path());
        let number: u32 = self.random.random_range(0..1 << 20);
        let (uid, gid) = (2001 + number % 3, 3001 + number / 3 % 3);
        let _ = match self.random.random_range(0..20) {
            0..=3 => fs::create_dir(&path),
            4 => fs::create_dir_all(&path),
            5..=7 => fs::write(&path, vec![b'x'; number as usize % 9000]),
            8 => fs::remove_file(&path),
            9 => fs::remove_dir_all(&path),
            10..=12 => fs::rename(&path, &other),
            13 => fs::hard_link(&path, &other),
            14 => std::os::unix::fs::symlink(&other, &path),
            15 => chown(&path, Some(uid), Some(gid)),
            16 => {
                let value = number.to_string();
                let flags = rustix::fs::XattrFlags::empty();
                let set = rustix::fs::setxattr(&path, "user.number", value.as_bytes(), flags);
                set.map_err(Into::into)
            }
            17 => {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let cwd = rustix::fs::CWD;
                rustix::fs::renameat_with(cwd, &path, cwd, &other, flags).map_err(Into::into)
            }
            _ => {
                let mode = [0o755, 0o700, 0o711, 0o750, 0o775][number as usize % 5];
                match path.symlink_metadata() {
                    // Others' files behind a symbolic link are left alone.
                    Ok(about) if !about.is_symlink() => {
                        fs::set_permissions(&path, PermissionsExt::from_mode(mode))
                    }
                    _ => Ok(()),
                }
            }
        };
    }
}

#[test]
fn random_changes_are_followed() {
    let place = Fixture::new();
    for seed in 0..3 {
        let [tree, outside, index] =
            ["tree", "outside", "index"].map(|name| place.path(&format!("{name}{seed}")));
        fs::create_dir(&tree).unwrap();
        fs::create_dir(&outside).unwrap();
        let mut changes = Changes::new(&tree, outside, 7000 + seed);
        for round in 0..4 {
            let daemon = Daemon::start(&place, &index, &[tree.as_os_str()]);
            for _ in 0..400 {
                changes.change();
                if changes.random.random_bool(0.02) {
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
            // Now and then it is killed in the middle of it.
            if round % 2 == 1 {
                drop(daemon);
                continue;
            }
            wait_for_equality(&place, &index, &[&tree]);
            daemon.stop();
        }
    }
}
