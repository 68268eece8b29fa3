//! Limits of a listener, and clients that try to use more.

use crate::common::*;
use canopy_cluster::wire::{Grant, Limits, Refusal, Terms, WireError};
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Lets this process open as many files as it may, which must be enough.
fn allow_files(count: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let known = getrlimit(Resource::Nofile);
    let enough = known.maximum.is_none_or(|maximum| maximum >= count);
    assert!(enough, "this test needs {count} open files: {known:?}");
    setrlimit(Resource::Nofile, Rlimit { current: known.maximum, ..known }).unwrap();
}

#[test]
fn ten_thousand_silent_connections_do_not_stop_a_new_client() {
    allow_files(12_000);
    let listener = listen(Arc::new(Each(echo)));
    let old = connections();
    let address = address(&listener);
    old.call(&address, b"before", terms()).unwrap();
    let silent: Vec<_> = (0..10_000).map(|_| socket(&listener)).collect();
    let new = connections();
    assert_eq!(new.call(&address, b"after", terms()).unwrap()[..], b"after"[..]);
    assert_eq!(old.call(&address, b"after", terms()).unwrap()[..], b"after"[..]);
    wait_until(|| listener.connections().1 <= Limits::default().silent);
    // Those that were evicted read the end; the newest ones still wait.
    let mut first = &silent[0];
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(listener.connections().0, 2);
}

#[test]
fn a_silent_connection_ends_after_the_time_for_a_handshake() {
    let limits = Limits { handshake: Duration::from_millis(50), ..Limits::default() };
    let listener = listen_with(Arc::new(Each(echo)), limits);
    let mut silent = socket(&listener);
    let mut half = socket(&listener);
    half.write_all(b"canopy").unwrap();
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(half.read(&mut [0]).unwrap_or(0), 0);
    wait_until(|| listener.connections() == (0, 0));
}

#[test]
fn connections_beyond_a_limit_are_refused_with_the_reason() {
    let grant = Grant { connections: 2, ..Grant::default() };
    let of_peer = listen(Arc::new(Kept { grant, ..Kept::default() }));
    let limits = Limits { connections: 2, ..Limits::default() };
    let in_all = listen_with(Arc::new(Each(echo)), limits);
    for (listener, expected) in [(of_peer, "2 connections of local user"), (in_all, "has 2")] {
        let (first, second) = (greeted(&listener), greeted(&listener));
        let connections = connections();
        let error = connections.call(&address(&listener), b"", terms()).unwrap_err();
        assert!(error.is_surely_not_executed());
        let WireError::Refused { refusal: Refusal::Connections(text), .. } = error else {
            panic!("{error}")
        };
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
        drop(second);
        wait_until(|| listener.connections().0 == 1);
        drop((first, greeted(&listener)));
    }
}

#[test]
fn exempt_peers_are_admitted_beyond_the_limit_of_all() {
    let grant = Grant { is_exempt: true, connections: 3, ..Grant::default() };
    let service = Arc::new(Kept { grant, ..Kept::default() });
    let listener = listen_with(service, Limits { connections: 1, ..Limits::default() });
    let three = [(); 3].map(|()| greeted(&listener));
    let error = connections().call(&address(&listener), b"", terms()).unwrap_err();
    assert!(matches!(error, WireError::Refused { refusal: Refusal::Connections(_), .. }));
    drop(three);
}

#[test]
fn memory_of_a_peer_bounds_what_all_its_connections_hold() {
    let grant = Grant { memory: 0, ..Grant::default() };
    let service = Arc::new(Kept { grant, ..Kept::default() });
    let listener = listen(service.clone());
    let mut clients = Vec::new();
    // Each client may have 32 MiB under way, and so may all together.
    let pending = Vec::from_iter((0..4).flat_map(|_| {
        let connections = connections();
        let destination = connections.to(&address(&listener));
        clients.push(connections);
        (0..20).map(move |_| destination.start(b"large", terms().with_room(1 << 20)))
    }));
    for _ in 0..pending.len() {
        service.wait_for(1);
        let mut calls = service.calls.lock().unwrap();
        assert!(calls.len() <= 32, "{}", calls.len());
        calls.remove(0).answer(b"done");
    }
    pending.into_iter().for_each(|pending| assert_eq!(pending.wait().unwrap()[..], b"done"[..]));
}

#[test]
fn memory_returns_when_connections_end_in_any_state() {
    let grant = Grant { memory: 0, ..Grant::default() };
    let service = Arc::new(Kept { grant, ..Kept::default() });
    let listener = listen(service.clone());
    for round in 0..100 {
        let mut socket = greeted(&listener);
        socket.write_all(&frame(&[(1, 1 << 20, &[0; 100_000][..]); 9])).unwrap();
        service.wait_for(9);
        let mut calls = std::mem::take(&mut *service.calls.lock().unwrap());
        // Some are answered and never read, some after the end, some not at all.
        calls.drain(..3).for_each(|call| call.answer(&[0; 1 << 20]));
        if round % 2 == 0 {
            drop(socket);
            calls.drain(..3).for_each(|call| call.answer(b"late"));
        } else {
            calls.drain(..3).for_each(|call| call.answer(b"in time"));
            drop(socket);
        }
        drop(calls);
    }
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let pending = Vec::from_iter(
        (0..31).map(|_| destination.start(b"all", terms().with_room((1 << 20) - 3))),
    );
    service.wait_for(31);
    service.calls.lock().unwrap().drain(..).for_each(echo);
    pending.into_iter().for_each(|pending| assert_eq!(pending.wait().unwrap()[..], b"all"[..]));
}

#[test]
fn a_client_that_reads_nothing_is_closed_in_the_end() {
    let limits = Limits { stalled: Duration::from_millis(200), ..Limits::default() };
    let service = Arc::new(Kept::default());
    let listener = listen_with(service.clone(), limits);
    let mut deaf = greeted(&listener);
    let calls = [(1, 1 << 20, &b""[..]); 30];
    deaf.write_all(&frame(&calls)).unwrap();
    service.wait_for(30);
    service.calls.lock().unwrap().drain(..).for_each(|call| call.answer(&[0; 1 << 20]));
    wait_until(|| listener.connections() == (0, 0));
}

#[test]
fn a_service_that_panics_ends_the_connection_alone() {
    let listener = listen(Arc::new(Each(|call: canopy_cluster::wire::Call| {
        assert_ne!(call.body(), b"panic", "a service that fails");
        echo(call);
    })));
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let error = destination.call(b"panic", terms()).unwrap_err();
    assert!(!error.is_surely_not_executed(), "{error}");
    assert_eq!(destination.call(b"more", terms()).unwrap()[..], b"more"[..]);
}

#[test]
fn many_calls_that_time_out_leave_room_for_others() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let short = Terms::within(Duration::from_millis(20));
    // More than may wait at once, in several rounds.
    let body = [0; 8];
    for _ in 0..3 {
        let all = destination.start_all((0..40_000).map(|_| &body[..]), short);
        for pending in all {
            pending.wait().unwrap_err();
        }
    }
    let pending = destination.start(b"late", terms());
    let done = std::thread::spawn(move || pending.wait());
    wait_until(|| {
        service.calls.lock().unwrap().drain(..).for_each(|call| call.answer(b"done"));
        done.is_finished()
    });
    assert_eq!(done.join().unwrap().unwrap()[..], b"done"[..]);
}
