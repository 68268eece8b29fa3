//! Requests of users to `canopy watch`: what they can list themselves is listed again, nothing else,
//! and nobody keeps others from it. Needs root.
//!
//! The daemons of these tests are told of no changes, so that what is new in the index was asked for.

use crate::common::{Fixture, User};
use crate::watch::{Daemon, status, wait_until};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::Pid;
use std::ffi::OsStr;
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const ANN: u32 = 2001;
const BOB: u32 = 2002;

fn user(uid: u32) -> User {
    User { uid, gid: 3001, groups: vec![3002] }
}

/// A tree that several users have a part of, indexed, and the daemon that follows it.
struct Site {
    place: Fixture,
    daemon: Option<Daemon>,
}

impl Site {
    fn new() -> Self {
        let mut site = Site { place: Fixture::new(), daemon: None };
        for (directory, uid, gid, mode) in [
            ("", 0, 0, 0o755),
            ("open", 0, 0, 0o755),
            ("of-ann", ANN, 0, 0o700),
            ("of-bob", BOB, 0, 0o700),
            ("of-group", 0, 3002, 0o750),
            ("gate", 0, 0, 0o711),
            ("gate/in", 0, 0, 0o755),
        ] {
            let path = site.at(directory);
            fs::create_dir_all(&path).unwrap();
            chown(&path, Some(uid), Some(gid)).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }
        site.place.index(&site.index(), &site.place.path("tree"));
        site.start(&[]);
        site
    }

    fn start(&mut self, more: &[&str]) {
        let (tree, events) = (self.place.path("tree"), self.place.path("events"));
        fs::write(&events, "").unwrap();
        let mut words = vec![tree.as_os_str(), "--events".as_ref(), events.as_os_str()];
        words.push("--trust-index".as_ref());
        words.extend(more.iter().map(OsStr::new));
        self.daemon = Some(Daemon::start(&self.place, &self.index(), &words));
    }

    fn index(&self) -> PathBuf {
        self.place.path("index")
    }

    fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.place.path("tree").join(name)
    }

    fn command(&self, uid: u32, paths: &[PathBuf]) -> Command {
        let mut command = user(uid).command();
        command.arg(&self.place.canopy).arg("--index").arg(self.index()).arg("update");
        command.args(paths).current_dir("/");
        command
    }

    /// Has a user ask for directories in the tree; returns the exit code and what was said.
    fn ask(&self, uid: u32, names: &[&str]) -> (i32, String) {
        let paths = Vec::from_iter(names.iter().map(|name| self.at(name)));
        ended(self.command(uid, &paths).output().unwrap())
    }

    /// Expects that a user is served.
    fn serve(&self, uid: u32, names: &[&str]) {
        let (code, said) = self.ask(uid, names);
        assert_eq!(code, 0, "{said}");
        assert_eq!(said.lines().count(), names.len(), "{said}");
        assert!(said.lines().all(|line| line.starts_with("generation ")), "{said}");
    }

    /// Whether the index shows root something in the tree.
    fn has(&self, name: impl AsRef<Path>) -> bool {
        let path = self.at(name);
        let words = ["find".as_ref(), path.as_os_str(), "-maxdepth".as_ref(), "0".as_ref()];
        self.place.canopy(&self.index(), &words).status.success()
    }

    fn generation(&self) -> String {
        fs::read_to_string(self.index().join("CURRENT")).unwrap()
    }

    /// Starts a client of its own make as a user; see `hostile_client`.
    fn hostile(&self, uid: u32, doing: &str) -> Child {
        let program = self.place.path("hostile");
        if !program.exists() {
            fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        }
        let mut command = user(uid).command();
        command.arg(program).args(["--exact", "requests::hostile_client", "--nocapture"]);
        command.env("HOSTILE", doing).env("SOCKET", self.index().join("requests"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).current_dir("/").spawn().unwrap()
    }

    /// Sends bytes as a user, and returns what is answered.
    fn send(&self, uid: u32, bytes: &[u8]) -> String {
        let mut client = self.hostile(uid, "send");
        client.stdin.take().unwrap().write_all(bytes).unwrap();
        reply_to(client)
    }
}

fn ended(output: Output) -> (i32, String) {
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

/// Returns the reply that a hostile client got.
fn reply_to(client: Child) -> String {
    let output = client.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let told = text.split_once("told <").and_then(|(_, rest)| rest.split_once('>'));
    told.unwrap_or_else(|| panic!("{text}")).0.to_owned()
}

fn greeting(paths: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"canopy requests 1\0".to_vec();
    paths.iter().for_each(|path| bytes.extend([path, &b"\0"[..]].concat()));
    bytes.push(0);
    bytes
}

/// No test of its own: what other tests run as a user. The environment says what it does.
#[test]
fn hostile_client() {
    let Ok(doing) = std::env::var("HOSTILE") else { return };
    let connect = || UnixStream::connect(std::env::var_os("SOCKET").unwrap()).unwrap();
    let mut input = Vec::new();
    let mut told = String::new();
    match doing.as_str() {
        "send" => {
            std::io::stdin().read_to_end(&mut input).unwrap();
            let mut socket = connect();
            let _ = socket.write_all(&input);
            let _ = socket.read_to_string(&mut told);
        }
        "descriptor" => {
            std::io::stdin().read_to_end(&mut input).unwrap();
            let socket = connect();
            let root = fs::File::open("/").unwrap();
            let descriptors = [root.as_raw_fd()];
            let message = [ControlMessage::ScmRights(&descriptors)];
            let parts = [IoSlice::new(&input)];
            let sent = sendmsg::<()>(socket.as_raw_fd(), &parts, &message, MsgFlags::empty(), None);
            if sent.is_ok() {
                let _ = (&socket).read_to_string(&mut told);
            }
            told = format!("{} {told}", sent.is_ok());
        }
        // So many that say nothing, until standard input ends.
        number => {
            let sockets = Vec::from_iter((0..number.parse().unwrap()).map(|_| connect()));
            println!("told <{}>", sockets.len());
            std::io::stdin().read_to_end(&mut input).unwrap();
            return;
        }
    }
    println!("told <{told}>");
}

#[test]
fn a_user_who_can_list_a_directory_has_it_listed_again() {
    let site = Site::new();
    let odd = ["open/a b\n\"\\", "open/-rf", "open/\u{fe}\u{3b1}"];
    odd.iter().for_each(|name| fs::create_dir(site.at(name)).unwrap());
    let bytes = Path::new("open").join(OsStr::from_bytes(b"\xff\xfe"));
    fs::create_dir(site.at(&bytes)).unwrap();
    site.serve(ANN, &["open"]);
    fs::write(site.at("of-ann/new"), "").unwrap();
    fs::write(site.at("of-group/new"), "").unwrap();
    odd.iter().for_each(|name| fs::write(site.at(name).join("new"), "").unwrap());
    fs::write(site.at(&bytes).join("new"), "").unwrap();
    assert!(!site.has("of-ann/new") && !site.has("open/-rf/new"));
    site.serve(ANN, &[&["of-ann", "of-group"], &odd[..]].concat());
    assert!(site.has("of-ann/new") && site.has("of-group/new"));
    assert!(odd.iter().all(|name| site.has(Path::new(name).join("new"))));
    let (code, said) = ended(site.command(BOB, &[site.at(&bytes)]).output().unwrap());
    assert_eq!(code, 0, "{said}");
    assert!(site.has(bytes.join("new")));
    // Of a file the directory that it is in, and of a link what it leads to.
    symlink(site.at("of-bob"), site.at("open/link")).unwrap();
    fs::write(site.at("of-bob/new"), "").unwrap();
    site.serve(BOB, &["open/link"]);
    assert!(site.has("of-bob/new"));
    fs::write(site.at("of-bob/file"), "").unwrap();
    let (_, said) = site.ask(BOB, &["of-bob/file"]);
    assert!(said.ends_with("/tree/of-bob\n"), "{said}");
    assert!(site.has("of-bob/file"));
    let mut command = site.command(BOB, &[site.at("of-bob")]);
    let told = command.arg("--json").output().unwrap().stdout;
    let object: serde_json::Value = serde_json::from_slice(&told).unwrap();
    assert_eq!(object["path"], site.at("of-bob").to_str().unwrap());
    assert!(object["generation"].as_u64() > Some(1), "{object}");
    // What somebody finds there is at most what is there.
    fs::remove_file(site.at("of-bob/file")).unwrap();
    site.serve(BOB, &["of-bob"]);
    assert!(!site.has("of-bob/file"));
    // More than one connection can ask for.
    let many = Vec::from_iter((0..150).map(|at| format!("open/{at}")));
    many.iter().for_each(|name| fs::create_dir(site.at(name)).unwrap());
    site.serve(BOB, &Vec::from_iter(many.iter().map(String::as_str)));
    wait_until("all that was served is told", || {
        status(&site.place, &site.index())["requests_served"].as_u64() >= Some(160)
    });
    let output = site.place.canopy(&site.index(), &["watch".as_ref(), "--status".as_ref()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(" served, 0 refused\n"), "{text}");
}

#[test]
fn directories_that_a_user_cannot_list_are_not_listed() {
    let site = Site::new();
    for name in ["of-bob/new", "gate/new", "gate/in/new", "open/new"] {
        fs::write(site.at(name), "").unwrap();
    }
    let before = site.generation();
    let denied = |uid, name| {
        let (code, said) = site.ask(uid, &[name]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains("you cannot list it: Permission denied"), "{said}");
    };
    denied(ANN, "of-bob");
    denied(ANN, "gate");
    fs::set_permissions(site.at("open"), PermissionsExt::from_mode(0o700)).unwrap();
    denied(ANN, "open");
    fs::set_permissions(site.at("open"), PermissionsExt::from_mode(0o755)).unwrap();
    assert_eq!(site.generation(), before);
    // One that can be listed by who knows its name, in one that cannot.
    site.serve(ANN, &["gate/in"]);
    assert!(site.has("gate/in/new") && !site.has("gate/new"));
    // Some are served.
    let (code, said) = site.ask(ANN, &["of-bob", "open"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("/of-bob: you cannot list it") && said.contains("/tree/open\n"),
        "{said}"
    );
    assert!(site.has("open/new") && !site.has("of-bob/new"));
    wait_until("what was refused is told", || {
        status(&site.place, &site.index())["requests_refused"].as_u64() == Some(4)
    });
}

#[test]
fn only_real_paths_that_are_followed_are_listed() {
    let site = Site::new();
    let tree = site.place.path("tree");
    symlink(site.at("of-ann"), site.at("open/link")).unwrap();
    fs::create_dir(site.at("of-ann/deep")).unwrap();
    chown(site.at("of-ann/deep"), Some(ANN), None).unwrap();
    let proc = site.at("open/proc");
    fs::create_dir(&proc).unwrap();
    let mounted = Command::new("mount").args(["-t", "proc", "proc"]).arg(&proc).status();
    assert!(mounted.unwrap().success());
    let proc = crate::common::SmallDisk(proc);
    let said = |path: &str| {
        let path = path.replace("TREE", tree.to_str().unwrap());
        site.send(ANN, &greeting(&[path.as_bytes()]))
    };
    let denied = |errno: Errno| format!("d{}\n", errno as i32);
    for (path, answer) in [
        ("TREE/of-ann", "u"),
        ("TREE/open/link", &denied(Errno::ELOOP)),
        ("TREE/open/link/deep", &denied(Errno::ELOOP)),
        ("TREE/of-ann/../of-ann", &denied(Errno::EINVAL)),
        ("TREE/of-ann/.", &denied(Errno::EINVAL)),
        ("TREE//of-ann", &denied(Errno::EINVAL)),
        ("of-ann", &denied(Errno::EINVAL)),
        ("TREE/gone", &denied(Errno::ENOENT)),
        ("/proc/self/cwd", &denied(Errno::ELOOP)),
        ("/usr", "e0\n"),
        ("/", "e0\n"),
        ("TREE/open/proc", "e0\n"),
        ("TREE/open/proc/1", "e0\n"),
    ] {
        let told = said(path);
        assert!(told == answer || answer == "u" && told.starts_with('u'), "{path}: {told}");
    }
    drop(proc);
    let (code, text) = ended(site.command(ANN, &["/usr".into()]).output().unwrap());
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("/usr: it is in nothing that the daemon of "), "{text}");
    // Bytes that are not a request get no answer.
    let long = vec![b'x'; 5000];
    let many = vec![&b"/usr"[..]; 65];
    for bytes in [
        &b"canopy requests 2\0/usr\0\0"[..],
        b"GET / HTTP/1.1\r\n\r\n\0",
        &[0; 100],
        &[0xff; 100_000],
        &greeting(&[&long]),
        &greeting(&many),
        &[greeting(&[b"/usr"]), greeting(&[b"/usr"])].concat(),
    ] {
        assert_eq!(site.send(ANN, bytes), "", "{:?}", &bytes[..10]);
    }
    site.serve(ANN, &["open"]);
}

#[test]
fn descriptors_of_users_reach_nobody() {
    let site = Site::new();
    let mut client = site.hostile(ANN, "descriptor");
    let path = site.at("of-ann");
    let bytes = greeting(&[path.as_os_str().as_bytes()]);
    client.stdin.take().unwrap().write_all(&bytes).unwrap();
    let told = reply_to(client);
    // Where the kernel does not refuse them (before Linux 6.16), they are left alone.
    assert!(told == "false " || told.starts_with("true u"), "{told}");
    site.serve(ANN, &["open"]);
}

#[test]
fn many_requests_of_one_user_do_not_delay_others() {
    let site = Site::new();
    // One user's connections are refused beyond the first few, which may be silent for ten seconds.
    let mut silent = site.hostile(ANN, "40");
    let mut line = [0; 1];
    let mut output = silent.stdout.take().unwrap();
    let mut text = String::new();
    while !text.contains("told <40>") {
        output.read_exact(&mut line).unwrap();
        text.push(line[0] as char);
    }
    let tree = site.place.path("tree");
    let floods = Vec::from_iter((0..3).map(|_| {
        let paths = vec![tree.join("open"); 60];
        let mut command = site.command(ANN, &paths);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }));
    for round in 0..3 {
        fs::write(site.at(format!("of-bob/{round}")), "").unwrap();
        site.serve(BOB, &["of-bob"]);
        assert!(site.has(format!("of-bob/{round}")));
    }
    for mut flood in floods {
        flood.wait().unwrap();
    }
    // They are given up.
    wait_until("the user is served again", || site.ask(ANN, &["open"]).0 == 0);
    drop(silent.stdin.take());
    silent.wait().unwrap();
    wait_until("refusals are told", || {
        status(&site.place, &site.index())["requests_refused"].as_u64() >= Some(36)
    });
}

#[test]
fn a_daemon_that_is_not_there_is_one_clear_error() {
    let mut site = Site::new();
    let socket = site.index().join("requests");
    let about = socket.symlink_metadata().unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o666);
    let no_daemon = "written by uid 0 alone, and no daemon of this machine takes requests for it";
    // Killed while somebody waits.
    let pid = Pid::from_raw(site.daemon.as_ref().unwrap().child.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    let mut client = site.command(ANN, &[site.at("open")]);
    let mut client = client.stderr(Stdio::piped()).spawn().unwrap();
    let queued = || {
        let sockets = fs::read_to_string("/proc/net/unix").unwrap();
        let connected = |line: &&str| line.ends_with("/requests") && line.contains(" 00000000 ");
        sockets.lines().filter(connected).count() > 0
    };
    wait_until("the client has connected", || queued() || client.try_wait().unwrap().is_some());
    drop(site.daemon.take());
    let (code, said) = ended(client.wait_with_output().unwrap());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("ended before it had answered") || said.contains(no_daemon), "{said}");
    let (code, said) = site.ask(ANN, &["open"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(no_daemon), "{said}");
    // Its leftovers do not hinder the next one.
    site.start(&[]);
    site.serve(ANN, &["open"]);
    site.daemon.take().unwrap().stop();
    assert!(!socket.exists());
    site.start(&["--no-requests"]);
    assert!(!socket.exists());
    assert!(site.ask(ANN, &["open"]).1.contains(no_daemon));
    // Others than who may write it list no trees.
    let (code, said) =
        ended(site.command(ANN, &["--recursive".into(), site.at("open")]).output().unwrap());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("without --recursive"), "{said}");
}

#[test]
fn a_user_with_an_own_index_of_a_directory_updates_that() {
    let site = Site::new();
    let home = site.place.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(ANN), None).unwrap();
    fs::write(site.place.path("site.toml"), format!("index = {:?}\n", site.index())).unwrap();
    let run = |words: &[&str]| {
        let mut command = user(ANN).command();
        command.arg(&site.place.canopy).args(words).current_dir(site.place.path("tree"));
        command.env("HOME", &home).env_remove("XDG_DATA_HOME").env_remove("CANOPY_INDEX");
        command.env("CANOPY_SITE_CONFIG", site.place.path("site.toml"));
        let (code, said) = ended(command.output().unwrap());
        assert_eq!(code, 0, "{said}");
        said
    };
    fs::write(site.at("of-ann/new"), "").unwrap();
    fs::write(site.at("open/new"), "").unwrap();
    assert!(run(&["update", "of-ann"]).starts_with("generation 2 has "));
    assert!(run(&["index", "of-ann"]).starts_with("generation 1: "));
    assert!(run(&["update", "of-ann"]).starts_with("nothing has changed since generation 1: "));
    fs::write(site.at("of-ann/newer"), "").unwrap();
    let both = run(&["update", "of-ann", "open"]);
    assert!(both.starts_with("generation 3 has ") && both.contains("\ngeneration 2: "), "{both}");
    assert!(site.has("open/new"));
}

#[test]
fn indexes_have_daemons_of_their_own() {
    let site = Site::new();
    // Longer than the address of a socket.
    let long = site.place.path(&"long".repeat(30)).join("and/longer");
    let other = site.place.path("other");
    fs::create_dir_all(long.parent().unwrap()).unwrap();
    fs::create_dir_all(other.join("open")).unwrap();
    site.place.index(&long, &other);
    let events = site.place.path("other-events");
    fs::write(&events, "").unwrap();
    let words = [other.as_os_str(), "--events".as_ref(), events.as_os_str()];
    let daemon = Daemon::start(&site.place, &long, &words);
    fs::write(other.join("open/new"), "").unwrap();
    fs::write(site.at("open/new"), "").unwrap();
    let mut command = user(ANN).command();
    command.arg(&site.place.canopy).arg("--index").arg(&long).arg("update").current_dir("/");
    let (code, said) = ended(command.args([other.join("open"), site.at("open")]).output().unwrap());
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("/tree/open: it is in nothing that the daemon of "), "{said}");
    assert!(!site.has("open/new"));
    site.serve(ANN, &["open"]);
    assert!(site.has("open/new"));
    daemon.stop();
}

#[test]
fn requests_for_what_is_as_it_was_write_nothing() {
    let site = Site::new();
    let before = (site.generation(), files(&site.index()));
    for _ in 0..3 {
        site.serve(ANN, &["open", "of-group"]);
    }
    assert_eq!((site.generation(), files(&site.index())), before);
    fs::write(site.at("open/new"), "").unwrap();
    site.serve(ANN, &["open", "of-group"]);
    assert_ne!(site.generation(), before.0);
    assert!(site.has("open/new"));
}

/// Requests that were listed together shared all costs by their number.
#[test]
fn each_request_is_charged_for_its_own_directories() {
    let site = Site::new();
    for number in 0..300 {
        fs::write(site.at(format!("open/{number}")), "").unwrap();
    }
    fs::create_dir(site.at("open/new")).unwrap();
    fs::write(site.at("open/new/file"), "").unwrap();
    fs::write(site.at("of-bob/file"), "").unwrap();
    let mut command = Command::new(&site.place.canopy);
    command.arg("--index").arg(site.index()).args(["update", "--suspects"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = b"c/\0".to_vec();
    for (kind, name) in [(b'd', "open"), (b'd', "of-bob"), (b'o', "of-ann"), (b'o', "of-ann")] {
        lines.push(kind);
        lines.extend_from_slice(site.at(name).as_os_str().as_bytes());
        lines.push(0);
    }
    child.stdin.take().unwrap().write_all(&lines).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    // Listings and entries: of open, what is new in it, and of the root with 5 entries the half.
    let costs = said.lines().last().unwrap();
    assert_eq!(costs, "costs 3:305 2:4 1:0 1:0", "{said}");
}

/// All files of an index but what tells how the daemon does.
fn files(index: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![index.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if !path.ends_with("watch") => left.push(path),
                true => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

#[test]
fn an_index_that_is_written_is_waited_for() {
    let site = Site::new();
    fs::write(site.at("open/new"), "").unwrap();
    let lock = fs::File::open(site.index().join("lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut client = site.command(ANN, &[site.at("open")]);
    let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
    let said = || site.daemon.as_ref().map(Daemon::said).unwrap();
    wait_until("a round has failed", || said().contains("requests of users: "));
    assert!(client.try_wait().unwrap().is_none());
    drop(lock);
    let (code, text) = ended(client.wait_with_output().unwrap());
    assert_eq!(code, 0, "{text}");
    assert!(site.has("open/new"));
}
