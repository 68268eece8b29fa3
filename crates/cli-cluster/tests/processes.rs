//! `canopy cluster start`, `status` and `drain`: real processes on loopback. Needs root.

mod common;

use canopy_cluster::certificates::{Credentials as Certificate, Trust, client_config};
use canopy_cluster::wire::ClientSecurity;
use canopy_cluster::{Client, Patience, Peers, Remote, Request, Sender, SessionId};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{self, Caller, Change, Moment, Operation};
use canopy_namespace::{EntryName, New, ROOT};
use canopy_partition::{PartitionId, ServerId};
use common::{CANOPY, NOBODY, Place, Process, canopy_ns, failure, success, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use serde_json::Value;
use std::borrow::Cow;
use std::fs;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::unix::fs::chown;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn start(place: &Place) -> (Process, String, String) {
    Process::start(place.command(&["start", "@", "--listen", "127.0.0.1:0"]))
}

/// The servers of each process that `status` prints, by address.
fn status(place: &Place) -> (Vec<(String, String, String)>, Output) {
    let output = place.run(&["status", "@"]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let rows = text.lines().skip(1).map(|line| {
        let words = Vec::from_iter(line.split_whitespace().map(str::to_owned));
        (words[0].clone(), words[1].clone(), words.last().unwrap().clone())
    });
    (rows.collect(), output)
}

#[test]
fn processes_share_the_servers_and_take_over() {
    let place = Place::new(4);
    let none = failure(&place.run(&["status", "@"]));
    assert!(
        none.contains("no process of this cluster was started: canopy cluster start"),
        "{none}"
    );
    let (one, first, running) = start(&place);
    assert_eq!(running, "0-3 of 4");
    let (other, second, running) = start(&place);
    assert!(running.ends_with(" of 4") && running.len() == "0-1 of 4".len(), "{running}");
    wait_until("the servers are shared", || {
        let (rows, output) = status(&place);
        let shares = Vec::from_iter(rows.iter().map(|(_, servers, _)| servers.len()));
        output.status.success() && shares == [3, 3]
    });
    let (rows, _) = status(&place);
    let mut addresses = [first.as_str(), second.as_str()];
    addresses.sort_unstable();
    assert_eq!(Vec::from_iter(rows.iter().map(|(address, ..)| address.as_str())), addresses);
    assert!(rows.iter().all(|(.., state)| state == "serving"), "{rows:?}");
    let json = success(&place.run(&["status", "--json", "@"]));
    for line in json.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["servers"].as_array().unwrap().len(), 2, "{json}");
        assert!(line["lease_age"].as_f64().unwrap() < 60.0, "{json}");
    }
    // It dies, and the other one takes over.
    other.signal(Signal::SIGKILL);
    assert_eq!(other.end().0, None);
    wait_until("the other process takes over", || {
        status(&place).0 == [(first.clone(), "0-3".to_owned(), "serving".to_owned())]
    });
    // It ends, and nobody is left.
    one.signal(Signal::SIGTERM);
    let (code, log) = one.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(
        log.contains(&format!("{second} has died: this process takes over 2 servers")),
        "{log}"
    );
    let (rows, output) = status(&place);
    assert_eq!((rows, output.status.code()), (Vec::new(), Some(1)));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("no process runs servers 0-3"), "{told}");
    // The next process finds all of them.
    assert_eq!(start(&place).2, "0-3 of 4");
}

/// Returns the numbers that a process serves.
fn metrics_at(line: &str) -> (String, String) {
    let address = line.strip_prefix("metrics at http://").unwrap();
    let address = address.strip_suffix("/metrics").unwrap().to_owned();
    (get(&address, "/metrics"), address)
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn numbers_of_a_process_are_served_and_written() {
    let place = Place::with(2, &["--split-entries", "16"]);
    let file = place.path("canopy.prom");
    let mut start = place.command(&["start", "@", "--listen", "127.0.0.1:0", "--prometheus"]);
    start.arg(&file).args(["--metrics", "127.0.0.1:0", "--memory", "64M"]);
    let (mut process, address, _) = Process::start(start);
    let (text, metrics) = metrics_at(&process.line());
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
    assert!(text.contains("\r\nContent-Type: text/plain; version=0.0.4"), "{text}");
    assert!(text.contains("\ncanopy_cluster_servers 2\n"), "{text}");
    create_files(&address, (0..100).map(|number| format!("file{number}")));
    let value = |text: &str, name: &str| {
        let line =
            text.lines().find_map(|line| line.strip_prefix(&format!("canopy_cluster_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse::<f64>().unwrap()
    };
    let mut text = String::new();
    wait_until("the directory has split", || {
        text = get(&metrics, "/metrics");
        value(&text, "handovers_total") > 0.0
    });
    // Some were sent to a server that had just given the partition.
    assert!(value(&text, "request_seconds_count{kind=\"create\"}") >= 100.0);
    assert!(value(&text, "moved_entries_total") >= 4.0, "{text}");
    assert!(value(&text, "calls_total") >= 100.0, "{text}");
    assert_eq!(value(&text, "sessions"), 2.0);
    let namespace = place.namespace.display().to_string();
    assert!(!text.contains("file1") && !text.contains(&namespace) && !text.contains(&address));
    // A connection that is silent, or no HTTP, keeps no other waiting.
    let _silent = TcpStream::connect(&metrics).unwrap();
    let mut other = TcpStream::connect(&metrics).unwrap();
    io::Write::write_all(&mut other, &[0x16, 3, 1, 2]).unwrap();
    let mut answer = String::new();
    other.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(get(&metrics, "/").starts_with("HTTP/1.1 404 "));
    // Nor do very many, of which 16 were enough to have all others closed.
    let _many = Vec::from_iter((0..500).map(|_| TcpStream::connect(&metrics).unwrap()));
    for _ in 0..20 {
        assert!(get(&metrics, "/metrics").starts_with("HTTP/1.1 200 OK"));
    }
    // The file has these numbers some seconds later.
    wait_until("the file is written", || {
        let text = fs::read_to_string(&file).unwrap();
        value(&text, "request_seconds_count{kind=\"create\"}") >= 100.0
    });
    process.signal(Signal::SIGTERM);
    let (code, log) = process.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("of the directory with inode number 1 to server 1: split, "), "{log}");
    for (words, expected) in [
        (&["--memory", "1M"][..], "memory: at least 16M is needed"),
        (&["--metrics", "nowhere"], "--metrics nowhere"),
        (&["--prometheus", "."], "--prometheus names a file"),
    ] {
        let words = [&["start", "@", "--listen", "127.0.0.1:0"], words].concat();
        let told = place.run(&words);
        let told = String::from_utf8_lossy(&told.stderr).into_owned();
        assert!(told.contains(expected), "{told}");
    }
}

/// A disk that is full: what is there can be read, and nothing else breaks.
#[test]
fn a_full_disk_refuses_creates_alone() {
    let place = Place::on_disk_of("24m");
    let (_one, address, _) = start(&place);
    create_files(&address, (0..50).map(|number| format!("file{number}")));
    let ballast = place.path("ballast");
    let mut bytes = vec![1; 1 << 20];
    let mut file = fs::File::create(&ballast).unwrap();
    while let Ok(written @ 1..) = io::Write::write(&mut file, &bytes) {
        bytes.truncate(written.max(4096));
    }
    let client = client(&address);
    let create = |name: &str| {
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let name = EntryName::new(ROOT, name.as_bytes());
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        client.execute_for(Caller::Trusted, &Operation::Change(create))
    };
    let find = |name: &str| {
        let lookup = operation::Read::Lookup(EntryName::new(ROOT, name.as_bytes()));
        client.execute_for(Caller::Trusted, &Operation::Read(Moment::Now, lookup))
    };
    let mut made = Vec::new();
    let mut uncertain = Vec::new();
    for number in 0.. {
        let name = format!("more-{number:0>200}");
        match create(&name) {
            Ok(_) => made.push(name),
            Err(canopy_cluster::Error::Namespace(error)) if error.errno().raw_os_error() == 28 => {
                break;
            }
            // The first one was executed, and its client waits for a while until it is durable.
            Err(error) => {
                assert!(error.to_string().contains("no space is left"), "{error}");
                uncertain.push(name);
            }
        }
    }
    assert!(uncertain.len() <= 2, "one for each server: {uncertain:?}");
    // For longer than a lease.
    let begin = std::time::Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        find("file7").unwrap();
        made.iter().rev().take(5).for_each(|name| drop(find(name).unwrap()));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(create("none").is_err());
    // A read also notes the time of access. That waited for the disk.
    let begin = std::time::Instant::now();
    let touch = Operation::Change(Change::TouchAccess(ROOT));
    client.execute_for(Caller::Trusted, &touch).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(4));
    // Changes that free space have room of their own, even after memtables were flushed.
    let remove = |name: &str| {
        let unlink = Change::Unlink(EntryName::new(ROOT, name.as_bytes()));
        client.execute_for(Caller::Trusted, &Operation::Change(unlink)).unwrap();
    };
    for number in 0..25 {
        remove(&format!("file{number}"));
    }
    assert!(find("file7").is_err());
    file.set_len(0).unwrap();
    // One that was executed while storage was still short waits until it is durable.
    wait_until("creates succeed again", || create("again").is_ok() || find("again").is_ok());
    create("last").unwrap();
    for name in made.iter().chain(&uncertain).chain([&"again".to_owned(), &"last".to_owned()]) {
        find(name).unwrap();
    }
}

fn client(address: &str) -> Client {
    let address = address.parse().unwrap();
    let peers = Remote::connect(&[address], ClientSecurity::default(), Patience::CLIENT).unwrap();
    Client::new(peers, SessionId(8)).with_patience(Duration::from_secs(5))
}

/// Creates files in the root, by the servers.
fn create_files(address: &str, names: impl Iterator<Item = String>) {
    let address = address.parse().unwrap();
    let peers = Remote::connect(&[address], ClientSecurity::default(), Patience::CLIENT).unwrap();
    let client = Client::new(peers, SessionId(7));
    for name in names {
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let name = EntryName::new(ROOT, name.as_bytes());
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        client.execute_for(Caller::Trusted, &Operation::Change(create)).unwrap();
    }
}

#[test]
fn partitions_of_a_directory_are_shown() {
    let place = Place::with(4, &["--split-entries", "16"]);
    let told = failure(&place.run(&["partitions", "/", "@"]));
    assert!(told.contains("start some: canopy cluster start "), "{told}");
    let (_one, first, _) = start(&place);
    let (other, ..) = start(&place);
    let told = success(&place.run(&["partitions", "/", "@"]));
    let lines = Vec::from_iter(told.lines());
    let words = Vec::from_iter(lines[1].split_whitespace());
    assert_eq!((lines.len(), &words[..3]), (2, &["0", "all", "0"][..]), "{told}");
    create_files(&first, (0..400).map(|number| format!("file{number}")));
    let numbers = |told: &str| {
        let lines = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of =
            |line: Value| (line["partition"].as_u64().unwrap(), line["depth"].as_u64().unwrap());
        Vec::from_iter(lines.map(of))
    };
    let json = ["partitions", "/", "--json", "@"];
    let mut told = String::new();
    wait_until("all servers have partitions", || {
        told = success(&place.run(&json));
        numbers(&told).len() >= 4
    });
    // Together, they are for all names once.
    let sum = |told: &str| {
        numbers(told).iter().map(|(_, depth)| 0.5_f64.powi(*depth as i32)).sum::<f64>()
    };
    assert_eq!(sum(&told), 1.0, "{told}");
    let processes = |told: &str| told.matches(&format!("\"process\":\"{first}\"")).count();
    assert!((1..numbers(&told).len()).contains(&processes(&told)), "{told}");
    // When a process dies, they are on the other one, and nothing is lost.
    other.signal(Signal::SIGKILL);
    wait_until("the other process takes over", || status(&place).0.len() == 1);
    let told = success(&place.run(&json));
    assert_eq!((sum(&told), processes(&told)), (1.0, numbers(&told).len()), "{told}");
    for (path, expected) in [
        ("/none", "/none: No such file or directory"),
        ("/file1", "/file1: not a directory"),
        ("../x", "give the path of a directory in the namespace"),
    ] {
        let told = failure(&place.run(&["partitions", path, "@"]));
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn an_empty_directory_is_spread_at_once() {
    let place = Place::new(3);
    let (_one, address, _) = start(&place);
    let (_other, ..) = start(&place);
    let spread = ["spread", "/", "@"];
    assert_eq!(success(&place.run(&spread)), "/ has 12 partitions on 3 servers\n");
    assert_eq!(success(&place.run(&spread)), "/ has 12 partitions on 3 servers\n");
    create_files(&address, (0..100).map(|number| format!("file{number}")));
    let told = success(&place.run(&["partitions", "/", "@"]));
    assert_eq!(told.lines().count(), 13, "{told}");
    for server in ["0", "1", "2"] {
        let of = told.lines().skip(1).filter(|line| line.split_whitespace().nth(3) == Some(server));
        assert_eq!(of.count(), 4, "{told}");
    }
    let told = failure(&place.run(&["spread", "/file1", "@"]));
    assert!(told.contains("/file1: not a directory"), "{told}");
    // Users may not split, however large a directory is to become.
    let address = address.parse().unwrap();
    let peers = Remote::connect(&[address], ClientSecurity::default(), Patience::CLIENT).unwrap();
    let user = Credentials { uid: 1000, gids: vec![1000] };
    let sender = Sender { caller: Caller::User(&user), session: SessionId(9), ..Sender::SERVER };
    let split = Request::Split(ROOT, PartitionId::ZERO);
    let refused = peers.ask(ServerId(0), sender, &split).unwrap_err();
    assert!(refused.to_string().contains("not permitted"), "{refused}");
}

#[test]
fn a_process_that_ends_hands_its_servers_over() {
    let place = Place::new(3);
    let (one, ..) = start(&place);
    let (_other, second, _) = start(&place);
    one.signal(Signal::SIGINT);
    assert_eq!(one.end().0, Some(0));
    wait_until("the other process has all", || {
        status(&place).0 == [(second.clone(), "0-2".to_owned(), "serving".to_owned())]
    });
}

/// The servers went to a process that was dead, too, and the command waited for two minutes.
#[test]
fn servers_of_dead_processes_are_not_moved_to_dead_ones() {
    let place = Place::new(2);
    let (one, first, _) = start(&place);
    let (other, ..) = start(&place);
    for process in [one, other] {
        process.signal(Signal::SIGKILL);
        process.end();
    }
    wait_until("both are dead", || status(&place).0.iter().all(|(.., state)| state == "dead"));
    let before = status(&place).0;
    let begin = Instant::now();
    let told = failure(&place.run(&["drain", &first, "@"]));
    let expected = format!("no other process runs that could take the servers of {first}");
    assert!(told.contains(&expected), "{told}");
    assert!(begin.elapsed() < Duration::from_secs(60));
    assert_eq!(status(&place).0, before);
    // The answer of these is their work.
    for command in ["status", "check"] {
        let _running = start(&place);
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let output = place.command(&[command, "@"]).stdout(full).output().unwrap();
        assert!(failure(&output).contains("cannot write the answer"), "{output:?}");
    }
}

#[test]
fn a_machine_is_drained() {
    let place = Place::new(4);
    let told = failure(&place.run(&["drain", "127.0.0.1", "@"]));
    assert!(told.contains("was started"), "{told}");
    let (one, first, _) = start(&place);
    let told = failure(&place.run(&["drain", "127.0.0.1", "@"]));
    let expected =
        "no other process runs that could take the servers of 127.0.0.1: start one first";
    assert!(told.contains(expected), "{told}");
    let listen = ["start", "@", "--listen", "127.0.0.2:0"];
    let (_other, second, _) = Process::start(place.command(&listen));
    let told = failure(&place.run(&["drain", "10.1.0.5", "@"]));
    assert!(told.contains("no process listens on 10.1.0.5; there are: "), "{told}");
    let told = success(&place.run(&["drain", "127.0.0.1", "@"]));
    assert!(told.starts_with("127.0.0.1 gave servers "), "{told}");
    wait_until("the servers have moved", || {
        let (rows, output) = status(&place);
        output.status.success()
            && rows.contains(&(first.clone(), "none".to_owned(), "drained".to_owned()))
            && rows.contains(&(second.clone(), "0-3".to_owned(), "serving".to_owned()))
    });
    let again = success(&place.run(&["drain", &first, "@"]));
    assert_eq!(again, format!("{first} runs no servers, and gets none\n"));
    one.signal(Signal::SIGTERM);
    assert_eq!(one.end().0, Some(0));
}

#[test]
fn addresses_of_other_machines_need_a_certificate() {
    let place = Place::new(1);
    let namespace = place.namespace.display();
    for address in ["10.1.0.5:7040", "0.0.0.0:0", "[::]:0", "n17.example.org:7040"] {
        let told = failure(&place.run(&["start", "@", "--listen", address]));
        let expected = format!("'canopy cluster certificate --server {namespace}'");
        assert!(told.contains(&expected) && told.contains(address), "{told}");
    }
    for (words, expected) in [
        (&["--listen", "10.1.0.5"][..], "is not an address: expected HOST:PORT"),
        (&["--listen", "unix:socket"], "is not an address"),
        (&["--listen", "127.0.0.1:0", "--lease", "0"], "lease: it lasts from 0.1 to 60 seconds"),
        (&["--listen", "127.0.0.1:0", "--certificate", "/nowhere"], "/nowhere: No such file"),
        (&["--listen", "127.0.0.1:0", "--settings", "/nowhere"], "cannot read /nowhere"),
        (&[], "missing --listen <ADDRESS>"),
    ] {
        let words = [&["start", "@"], words].concat();
        let told = failure(&place.run(&words));
        assert!(told.contains(expected), "{words:?}: {told}");
    }
    // Certificates of others do not help.
    let other = Place::new(1);
    success(&other.run(&["certificate", "--server", "@"]));
    success(&place.run(&["certificate", "--node", "n1", "@"]));
    for (file, expected) in [
        (other.namespace.join("server.pem"), "it is of another cluster"),
        (place.path("n1.pem"), "it is not a server's"),
    ] {
        let words = ["start", "@", "--listen", "127.0.0.1:0", "--certificate"];
        let told = failure(&place.command(&words).arg(&file).output().unwrap());
        assert!(told.contains(expected), "{told}");
    }
}

#[test]
fn settings_are_read_beside_the_namespace() {
    let place = Place::new(1);
    let file = place.namespace.join("cluster.toml");
    fs::write(&file, "leases = 1\n").unwrap();
    let told = failure(&place.run(&["start", "@", "--listen", "127.0.0.1:0"]));
    let expected =
        format!("{}: line 1: unknown key 'leases'; known are certificate, lease", file.display());
    assert!(told.contains(&expected), "{told}");
    fs::write(&file, "lease = 0.5\ncertificate = 'none.pem'\n").unwrap();
    let told = failure(&place.run(&["start", "@", "--listen", "127.0.0.1:0"]));
    let expected = format!("{}: No such file", place.namespace.join("none.pem").display());
    assert!(told.contains(&expected), "{told}");
    fs::write(&file, "lease = 0.5\n").unwrap();
    let (process, ..) = start(&place);
    process.signal(Signal::SIGHUP);
    assert_eq!(process.end().0, Some(0));
}

/// Shakes hands with a server, and reads what it says then: nothing, if it accepts the certificate.
fn shake(address: &str, config: &Arc<ClientConfig>) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_millis(500)))?;
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
    let mut stream = rustls::Stream::new(&mut client, &mut stream);
    match stream.read(&mut [0; 100]) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(()),
    }
}

#[test]
fn servers_with_certificates_accept_certificates_alone() {
    let place = Place::new(2);
    success(&place.run(&["certificate", "--server", "@"]));
    for name in ["n1", "n2"] {
        success(&place.run(&["certificate", "--node", name, "@"]));
    }
    for address in ["0.0.0.0:0", "[::]:0"] {
        let told = failure(&place.run(&["start", "@", "--listen", address]));
        assert!(told.contains("other processes find this one at its first address"), "{told}");
    }
    let (_one, address, _) = start(&place);
    // Processes accept each other, and the command that asks them.
    let (_other, ..) = start(&place);
    let told = success(&place.run(&["partitions", "/", "@"]));
    assert_eq!(told.lines().count(), 2, "{told}");
    let config = |name: &str| {
        let own = Certificate::open(&place.path(name)).unwrap();
        let config = client_config(&Trust::of_client(&own).unwrap(), &own).unwrap();
        (own.certified().serial.to_string(), config)
    };
    let (serial, first) = config("n1.pem");
    let (_, second) = config("n2.pem");
    shake(&address, &first).unwrap();
    // Another cluster's.
    let other = Place::new(1);
    success(&other.run(&["certificate", "--node", "n1", "--output", "other.pem", "@"]));
    let stranger = Certificate::open(&other.path("other.pem")).unwrap();
    let mut forged = (*first).clone();
    forged.client_auth_cert_resolver = stranger;
    shake(&address, &Arc::new(forged)).unwrap_err();
    // A program that speaks no TLS.
    let mut plain = TcpStream::connect(&address).unwrap();
    io::Write::write_all(&mut plain, &[0; 64]).unwrap();
    let mut answer = Vec::new();
    plain.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.len() < 64, "{answer:?}");
    // One that is revoked while the server runs.
    success(&place.run(&["certificate", "--revoke", &serial, "@"]));
    wait_until("the certificate is refused", || shake(&address, &first).is_err());
    shake(&address, &second).unwrap();
}

#[test]
fn users_run_clusters_of_their_own() {
    let place = Place::new(1);
    let dir = place.path("of-nobody");
    fs::create_dir(&dir).unwrap();
    chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let namespace = dir.join("ns");
    let as_nobody = |program: &std::path::Path| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
        command.current_dir(&dir);
        command
    };
    let programs = place.path("programs");
    fs::create_dir(&programs).unwrap();
    // The directory of the build may be closed to others.
    for program in [canopy_ns(), CANOPY.into()] {
        fs::copy(&program, programs.join(program.file_name().unwrap())).unwrap();
    }
    let (ns, cluster) = (programs.join("canopy-ns"), programs.join("canopy-cluster"));
    let made = as_nobody(&ns).args(["ns", "create", "--servers", "2"]).arg(&namespace).output();
    success(&made.unwrap());
    let socket = format!("unix:{}", dir.join("socket").display());
    let mut start = as_nobody(&cluster);
    start.args(["cluster", "start", "--listen", "127.0.0.1:0", "--listen", &socket]);
    start.arg(&namespace);
    let (mut process, _, running) = Process::start(start);
    assert_eq!(running, "0-1 of 2");
    assert_eq!(process.line(), format!("listening on {socket}, running servers 0-1 of 2"));
    // Root does not run what belongs to a user.
    let mut of_root = place.command(&["start", "--listen", "127.0.0.1:0"]);
    let told = failure(&of_root.arg(&namespace).output().unwrap());
    assert!(told.contains("belongs to uid 65534"), "{told}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().0, Some(0));
}

#[test]
fn commands_are_explained_and_need_no_index() {
    let place = Place::new(1);
    for (command, words, about) in [
        ("certificate", &["--list", "@"][..], "Make, list and revoke the certificates"),
        ("start", &["@", "--listen", "10.1.0.5:1"], "Run a share of a namespace's servers"),
        ("status", &["@"], "Show which process runs which servers"),
        ("partitions", &["/", "@"], "Show which servers hold the partitions"),
        ("spread", &["/", "@"], "Spread a directory over all servers at once"),
        ("drain", &["n17", "@"], "Move all servers of a machine"),
        ("add", &["--servers", "0", "@"], "Add logical servers"),
        ("balance", &["/", "@"], "Split a large directory onto servers"),
        ("check", &["@"], "Check"),
    ] {
        let help = success(&place.run(&[command, "--help"]));
        assert!(help.starts_with(about), "{help}");
        let words = [&[command][..], words].concat();
        let plain = place.run(&words);
        let with_index = place.run(&[&words[..], &["--index", "/no/such/index"]].concat());
        assert_eq!(plain, with_index, "{command}");
    }
}

/// Killed processes are not shown as if they served, and do not keep commands waiting.
#[test]
fn processes_that_were_killed_are_dead() {
    let place = Place::new(2);
    let (one, ..) = start(&place);
    let (other, ..) = start(&place);
    wait_until("both serve", || status(&place).0.iter().all(|(.., state)| state == "serving"));
    for process in [one, other] {
        process.signal(Signal::SIGKILL);
        process.end();
    }
    wait_until("they are dead", || {
        let (rows, output) = status(&place);
        rows.iter().all(|(.., state)| state == "dead") && output.status.code() == Some(1)
    });
    let told = String::from_utf8(place.run(&["status", "@"]).stderr).unwrap();
    assert!(told.contains("no process runs servers 0-1"), "{told}");
    assert_eq!(success(&place.run(&["check", "@"])), "no faults\n");
    let told = failure(&place.run(&["partitions", "/", "@"]));
    assert!(told.contains("no process of this cluster runs"), "{told}");
}

#[test]
fn all_leases_have_one_length() {
    let place = Place::new(2);
    let (one, address, _) = start(&place);
    let another = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "5"];
    let told = failure(&place.run(&another));
    let expected = format!(
        "the lease of {address}, which is running, lasts 1 s, and all processes need one length: start \
         this one with --lease 1, or end all others first"
    );
    assert!(told.contains(&expected), "{told}");
    let rows = status(&place).0;
    assert_eq!(rows, [(address, "0-1".to_owned(), "serving".to_owned())]);
    // Once the others are dead, it may be another one.
    one.signal(Signal::SIGKILL);
    one.end();
    wait_until("it is dead", || status(&place).0.iter().all(|(.., state)| state == "dead"));
    let (_process, _, running) = Process::start(place.command(&another));
    assert_eq!(running, "0-1 of 2");
}

/// It once tried for 30 s.
#[test]
fn a_process_does_not_start_where_it_cannot_write() {
    let place = Place::new(1);
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,bind,ro \"$1\" && exec \"$2\" cluster start \
                  \"$1\" --listen 127.0.0.1:0";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    let output = command.arg(&place.namespace).arg(CANOPY).output().unwrap();
    let told = failure(&output);
    assert!(told.contains("Read-only file system") && !told.contains("still waits"), "{told}");
}

#[test]
fn a_process_that_starts_ends_by_a_signal() {
    let place = Place::new(1);
    // It gets servers after a fifth of its lease.
    let mut command = place.command(&["start", "@", "--listen", "127.0.0.1:0", "--lease", "60"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it joins", || status(&place).0.iter().any(|(.., state)| state == "joining"));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{told}");
    assert!(told.contains("ended before it served"), "{told}");
}

#[test]
fn messages_name_options_once_and_places() {
    let place = Place::new(1);
    let told = failure(&place.run(&["status", "canopy://127.0.0.1:7040"]));
    assert!(told.contains("name the directory or bucket of the namespace"), "{told}");
    let start = ["start", "@", "--listen", "127.0.0.1:0"];
    let told = failure(&place.run(&[&start[..], &["--lease", "100"]].concat()));
    assert!(told.starts_with("canopy: --lease: it lasts from"), "{told}");
    let told = failure(&place.run(&[&start[..], &["--certificate", "/nosuch"]].concat()));
    assert!(told.contains("cannot use the certificate of this server: /nosuch"), "{told}");
    // A damaged object of storage is named with the place.
    let objects = place.namespace.join("objects/cluster");
    fs::create_dir_all(objects.join("map")).unwrap();
    fs::write(objects.join("map/00000000000000000001"), "nonsense").unwrap();
    for words in [&start[..], &["status", "@"], &["check", "@"]] {
        let told = failure(&place.run(words));
        let place = place.namespace.display();
        assert!(told.contains(&format!("cannot use {place}: cluster/map/")), "{told}");
    }
}
