//! `canopy cluster add`, `balance` and `check`: real processes on loopback. Needs root.

mod common;

use canopy_cluster::wire::ClientSecurity;
use canopy_cluster::{Client, Patience, Remote, SessionId, add_tables};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, New, ROOT, Reply, system_clock};
use canopy_store::Environment;
use canopy_store::storage::SharedDirectory;
use common::{Place, Process, failure, success, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::borrow::Cow;
use std::net::TcpListener;
use std::sync::Arc;

fn start(place: &Place) -> (Process, String, String) {
    Process::start(place.command(&["start", "@", "--listen", "127.0.0.1:0"]))
}

fn client(address: &str) -> Client {
    let address = address.parse().unwrap();
    let peers = Remote::connect(&[address], ClientSecurity::default(), Patience::CLIENT).unwrap();
    Client::new(peers, SessionId(std::process::id().into()))
}

fn create(client: &Client, name: &str) {
    let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
    let name = EntryName::new(ROOT, name.as_bytes());
    let create = Change::Create { name, new: Cow::Owned(new), holds: false };
    client.execute_for(Caller::Trusted, &Operation::Change(create)).unwrap();
}

fn json(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Both reported the same server once, and only one was added.
#[test]
fn each_of_two_administrators_adds_servers() {
    let place = Place::new(2);
    let _process = start(&place);
    let add =
        |count: &str| place.command(&["add", "--servers", count, "--json", "@"]).output().unwrap();
    let mut added = std::thread::scope(|scope| {
        let all = ["1", "2", "1"].map(|count| scope.spawn(move || add(count)));
        let told = all.map(|one| json(&success(&one.join().unwrap())).remove(0));
        let numbers = told.iter().flat_map(|told| told["added"].as_array().unwrap().clone());
        Vec::from_iter(numbers.map(|number| number.as_u64().unwrap()))
    });
    added.sort_unstable();
    added.dedup();
    assert_eq!(added, [2, 3, 4, 5]);
    let told = success(&place.run(&["add", "--servers", "1", "@"]));
    assert_eq!(told, "added server 6, which runs: there are 7\n");
}

#[test]
fn servers_are_added_and_large_directories_use_them() {
    let place = Place::with(2, &["--split-entries", "32"]);
    let (_one, first, _) = start(&place);
    let (other, ..) = start(&place);
    let old = client(&first);
    (0..1200).for_each(|number| create(&old, &format!("file{number}")));
    let status = |column: &str| {
        let rows = json(&success(&place.run(&["status", "--json", "@"])));
        rows.iter().map(|row| row[column].as_u64()).sum::<Option<u64>>()
    };
    wait_until("entries are counted", || status("entries") == Some(1200));
    assert_eq!(status("partitions"), Some(8));
    let told = success(&place.run(&["add", "--servers", "2", "@"]));
    assert_eq!(told, "added servers 2-3, which run: there are 4\n");
    wait_until("all processes have their shares", || {
        let rows = json(&success(&place.run(&["status", "--json", "@"])));
        rows.iter().all(|row| row["servers"].as_array().unwrap().len() == 2)
    });
    // Clients that knew the old list go on.
    create(&old, "another");
    let told = json(&success(&place.run(&["balance", "/", "@", "--json"])));
    let moved = told[0]["moved"].as_u64().unwrap();
    assert_eq!(told[0]["servers"], 4, "{told:?}");
    assert!((200..=600).contains(&moved), "{told:?}");
    let rows = json(&success(&place.run(&["partitions", "/", "--json", "@"])));
    assert_eq!(rows.len(), 16);
    assert_eq!(rows.iter().map(|row| row["entries"].as_u64().unwrap()).sum::<u64>(), 1201);
    let again = json(&success(&place.run(&["balance", "/", "@", "--json"])));
    assert_eq!((&again[0]["moved"], &again[0]["splits"]), (&0.into(), &0.into()));
    for number in 0..1200 {
        let name = format!("file{number}");
        let lookup = Read::Lookup(EntryName::new(ROOT, name.as_bytes()));
        let found = old.execute_for(Caller::Trusted, &Operation::Read(Moment::Now, lookup));
        assert!(matches!(found, Ok(Reply::Inode(_))), "{name}: {found:?}");
    }
    assert_eq!(success(&place.run(&["check", "@"])), "no faults\n");
    assert_eq!(success(&place.run(&["check", "--repair", "@"])), "no faults\n");
    other.signal(Signal::SIGTERM);
    assert_eq!(other.end().0, Some(0));
}

#[test]
fn an_interrupted_addition_is_completed() {
    let place = Place::new(2);
    // Nobody runs, and nobody ever did.
    let told = success(&place.run(&["add", "--servers", "1", "@"]));
    assert_eq!(told, "added server 2: there are 3; no process runs\n");
    let (process, _, running) = start(&place);
    assert_eq!(running, "0-2 of 3");
    // An addition that died before it changed the map.
    let storage = SharedDirectory::open(&place.namespace).unwrap();
    let environment = Environment::system(Arc::new(storage));
    assert_eq!(add_tables(&environment, 2, &system_clock()).unwrap(), 5);
    let told = json(&success(&place.run(&["add", "--servers", "2", "--json", "@"])));
    assert_eq!(told[0]["servers"], 5);
    assert_eq!(told[0]["added"], serde_json::json!([3, 4]));
    assert_eq!(told[0]["running"], true);
    let told = failure(&place.run(&["add", "--servers", "4095", "@"]));
    assert!(told.contains("the cluster has 5, and 4096 are possible"), "{told}");
    process.signal(Signal::SIGTERM);
    assert_eq!(process.end().0, Some(0));
    // A stopped cluster is checked, too.
    assert_eq!(success(&place.run(&["check", "@"])), "no faults\n");
}

#[test]
fn a_process_is_found_at_the_address_that_it_advertises() {
    let place = Place::new(1);
    let told = failure(&place.run(&["start", "@", "--listen", "127.0.0.1:0", "--advertise", "x"]));
    assert!(told.contains("--advertise x"), "{told}");
    let none = ["start", "@", "--listen", "127.0.0.1:0", "--advertise", "0.0.0.0:7040"];
    let told = failure(&place.run(&none));
    assert!(told.contains("others must reach this machine by it"), "{told}");
    let words = ["start", "@", "--listen", "127.0.0.1:0", "--advertise", "localhost:9"];
    let told = failure(&place.run(&words));
    assert!(told.contains("others need a port that stays"), "{told}");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let listen = format!("127.0.0.1:{port}");
    // Nobody listens at one, and another program at the other.
    let program = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = format!("localhost:{}", program.local_addr().unwrap().port());
    for (advertise, expected) in [("127.0.0.1:1", "refused"), (&other, "another program")] {
        let words = ["start", "@", "--listen", &listen, "--advertise", advertise];
        let told = failure(&place.run(&words));
        assert!(told.contains(&format!("--advertise {advertise}: it does not lead")), "{told}");
        assert!(told.contains(expected), "{told}");
    }
    let none = failure(&place.run(&["status", "@"]));
    assert!(none.contains("no process of this cluster was started"), "{none}");
    let advertise = format!("localhost:{port}");
    let words = ["start", "@", "--listen", &listen, "--advertise", &advertise];
    let (_process, ..) = Process::start(place.command(&words));
    let rows = json(&success(&place.run(&["status", "--json", "@"])));
    assert_eq!(rows[0]["process"], advertise);
}
