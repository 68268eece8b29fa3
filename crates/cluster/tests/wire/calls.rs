//! Calls and answers between our own client and server.

use crate::common::*;
use canopy_cluster::wire::{
    Address, Call, Grant, Limits, Listener, Refusal, ServerSecurity, Terms, Window, WireError,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn answers_reach_their_calls_from_many_threads() {
    let listener = listen(Arc::new(Each(echo)));
    let connections = connections();
    let address = address(&listener);
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (connections, address) = (&connections, &address);
            scope.spawn(move || {
                for call in 0..500 {
                    let body = format!("{thread} {call}").repeat(1 + call % 40);
                    let answer = connections.call(address, body.as_bytes(), terms()).unwrap();
                    assert_eq!(&answer[..], body.as_bytes());
                }
            });
        }
    });
    assert_eq!(listener.connections(), (1, 0));
}

#[test]
fn answers_come_in_any_order() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let bodies: Vec<[u8; 2]> = (0..1_000_u16).map(u16::to_le_bytes).collect();
    let pending = destination.start_all(bodies.iter().map(|body| &body[..]), terms());
    service.wait_for(bodies.len());
    let mut calls = std::mem::take(&mut *service.calls.lock().unwrap());
    // Neither the first first, nor the last.
    calls.sort_by_key(|call| call.body().iter().map(|byte| u32::from(*byte) * 7 % 31).sum::<u32>());
    for call in calls {
        echo(call);
    }
    for (pending, body) in pending.into_iter().zip(&bodies) {
        assert_eq!(pending.wait().unwrap()[..], body[..]);
    }
}

#[test]
fn calls_share_frames() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let body = [7; 60];
    let pending = destination.start_all((0..600).map(|_| &body[..]), terms());
    service.wait_for(600);
    assert_eq!(*service.frames.lock().unwrap(), [256, 256, 88]);
    // Large ones share a frame up to 1 MiB.
    let large = vec![7; 400 << 10];
    let more = destination.start_all((0..5).map(|_| &large[..]), terms());
    service.wait_for(605);
    assert_eq!(service.frames.lock().unwrap()[3..], [2, 2, 1]);
    let calls = std::mem::take(&mut *service.calls.lock().unwrap());
    calls.into_iter().for_each(|call| call.answer(b""));
    pending.into_iter().chain(more).for_each(|pending| assert!(pending.wait().unwrap().is_empty()));
}

#[test]
fn the_largest_bodies_pass_and_larger_ones_are_refused() {
    let listener = listen(Arc::new(Each(echo)));
    let connections = connections();
    let address = address(&listener);
    for bytes in [0, 1, (1 << 20) - 1, 1 << 20] {
        let body = vec![5; bytes];
        let answer = connections.call(&address, &body, terms().with_room(1 << 20)).unwrap();
        assert_eq!(answer.len(), bytes);
    }
    let refused = |body: usize, room: u32| {
        let error = connections.call(&address, &vec![5; body], terms().with_room(room));
        let error = error.unwrap_err();
        assert!(error.is_surely_not_executed());
        let WireError::Refused { refusal, .. } = error else { panic!("{error}") };
        refusal
    };
    let limit = 1 << 20;
    assert_eq!(refused(limit + 1, 0), Refusal::TooLarge { bytes: limit + 1, limit });
    assert_eq!(refused(0, 1 + limit as u32), Refusal::TooLarge { bytes: limit + 1, limit });
    // Before there is a connection, only what no server accepts is refused at once.
    let other = crate::common::connections();
    let error = other.call(&address, &vec![5; limit + 1], terms()).unwrap_err();
    assert!(matches!(error, WireError::Refused { refusal: Refusal::TooLarge { .. }, .. }));
}

#[test]
fn a_server_can_grant_large_bodies() {
    let grant = Grant { body_max: 64 << 20, ..Grant::default() };
    let service = Arc::new(Kept { grant, ..Kept::default() });
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let body: Vec<u8> = (0..64 << 20).map(|at: u32| (at % 251) as u8).collect();
    let pending = destination.start(&body, terms().with_room(64 << 20));
    service.wait_for(1);
    service.calls.lock().unwrap().drain(..).for_each(echo);
    assert!(pending.wait().unwrap()[..] == body[..]);
    let error = destination.call(&vec![0; (64 << 20) + 1], terms()).unwrap_err();
    assert!(matches!(error, WireError::Refused { refusal: Refusal::TooLarge { .. }, .. }));
}

#[test]
fn an_answer_beyond_the_room_is_an_error_of_that_call_alone() {
    let listener = listen(Arc::new(Each(|call: Call| {
        let bytes = call.body().len() * 100;
        call.answer(&vec![1; bytes]);
    })));
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let terms = terms().with_room(1_000);
    let outcomes = [10, 11, 9].map(|bytes| destination.call(&vec![0; bytes], terms));
    let lengths = outcomes.map(|outcome| outcome.map(|answer| answer.len()));
    let error = WireError::Refused {
        address: destination.address().clone(),
        refusal: Refusal::ReplyTooLarge,
    };
    assert!(!error.is_surely_not_executed());
    assert_eq!(lengths, [Ok(1_000), Err(error), Ok(900)]);
}

#[test]
fn dropped_and_refused_calls_end() {
    let listener = listen(Arc::new(Each(|call: Call| match call.body() {
        b"drop" => drop(call),
        b"refuse" => call.refuse("busy"),
        b"panic" => std::thread::spawn(move || {
            let _call = call;
            panic!("a service that fails");
        })
        .join()
        .unwrap_err()
        .downcast_ref::<&str>()
        .map_or((), |_| ()),
        _ => echo(call),
    })));
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let refusal = |body: &[u8]| match destination.call(body, terms()).unwrap_err() {
        WireError::Refused { refusal, .. } => refusal,
        other => panic!("{other}"),
    };
    assert_eq!(refusal(b"drop"), Refusal::Failed);
    assert_eq!(refusal(b"panic"), Refusal::Failed);
    assert_eq!(refusal(b"refuse"), Refusal::Service("busy".into()));
    assert_eq!(destination.call(b"more", terms()).unwrap()[..], b"more"[..]);
}

#[test]
fn a_deadline_ends_the_wait_and_reaches_the_server() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let begin = Instant::now();
    let terms = Terms::within(Duration::from_millis(50));
    let error = destination.call(b"late", terms).unwrap_err();
    assert!(begin.elapsed() >= terms.time);
    assert!(matches!(error, WireError::TimedOut { is_sent: true, .. }), "{error}");
    assert!(!error.is_surely_not_executed());
    service.wait_for(1);
    let call = service.calls.lock().unwrap().pop().unwrap();
    let deadline = call.deadline().unwrap();
    // It was sent some time before now, with no more time left than this.
    assert!(deadline <= Instant::now() + terms.time);
    // The answer that is too late harms nobody.
    call.answer(b"too late");
    let pending = destination.start(b"next", crate::common::terms());
    service.wait_for(1);
    service.calls.lock().unwrap().drain(..).for_each(echo);
    assert_eq!(pending.wait().unwrap()[..], b"next"[..]);
}

#[test]
fn calls_wait_for_the_window() {
    for window in [Window { calls: 3, bytes: 32 << 20 }, Window { calls: 100, bytes: 3 << 20 }] {
        let grant = Grant { window, ..Grant::default() };
        let service = Arc::new(Kept { grant, ..Kept::default() });
        let listener = listen(service.clone());
        let connections = connections();
        let destination = connections.to(&address(&listener));
        let terms = terms().with_room(1 << 19);
        let body = vec![3; 1 << 19];
        let pending = destination.start_all((0..20).map(|_| &body[..]), terms);
        for left in (0..20_usize).rev() {
            service.wait_for((left + 1).min(3));
            let mut calls = service.calls.lock().unwrap();
            assert!(calls.len() <= 3);
            calls.pop().unwrap().answer(b"one");
        }
        pending.into_iter().for_each(|pending| assert_eq!(pending.wait().unwrap()[..], b"one"[..]));
        // A call that has waited until its deadline was never sent.
        let three = destination.start_all((0..3).map(|_| &body[..]), terms);
        service.wait_for(3);
        let short = Terms { time: Duration::from_millis(30), ..terms };
        let error = destination.call(&body, short).unwrap_err();
        assert!(matches!(error, WireError::TimedOut { is_sent: false, .. }), "{error}");
        service.calls.lock().unwrap().drain(..).for_each(|call| call.answer(b""));
        three.into_iter().for_each(|pending| drop(pending.wait().unwrap()));
        assert_eq!(service.calls.lock().unwrap().len(), 0);
    }
}

#[test]
fn futures_work_in_any_runtime() {
    let listener = listen(Arc::new(Each(echo)));
    let connections = connections();
    let destination = connections.to(&address(&listener));
    // This one has no timers.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let answer = runtime.block_on(destination.start(b"async", terms())).unwrap();
    assert_eq!(answer[..], b"async"[..]);
    let silent = listen(Arc::new(Kept::default()));
    let destination = connections.to(&address(&silent));
    let terms = Terms::within(Duration::from_millis(50));
    let error = runtime.block_on(destination.start(b"async", terms)).unwrap_err();
    assert!(matches!(error, WireError::TimedOut { .. }), "{error}");
}

#[test]
fn without_a_server_calls_are_not_sent_until_there_is_one() {
    let listener = listen(Arc::new(Each(echo)));
    let address = address(&listener);
    listener.stop(Duration::from_secs(60));
    let connections = connections();
    let error = connections.call(&address, b"early", terms()).unwrap_err();
    assert!(matches!(error, WireError::NotSent { .. }), "{error}");
    // The system can take a moment to free the port.
    let listener = loop {
        let (security, addresses) = (ServerSecurity::default(), [address.clone()]);
        match Listener::start(&addresses, security, Limits::default(), Arc::new(Each(echo))) {
            Ok(listener) => break listener,
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    for _ in 0..3 {
        assert_eq!(connections.call(&address, b"again", terms()).unwrap()[..], b"again"[..]);
    }
    drop(listener);
}

#[test]
fn a_server_that_stops_answers_what_it_has_taken() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let address = address(&listener);
    let connections = connections();
    let destination = connections.to(&address);
    let taken = destination.start(b"taken", terms());
    service.wait_for(1);
    let stopping = std::thread::spawn(move || listener.stop(Duration::from_secs(60)));
    // Once the client knows, a new call finds nobody.
    wait_until(|| {
        destination.start(b"more", Terms::within(Duration::from_secs(1))).wait().is_err()
    });
    assert!(!stopping.is_finished());
    let executed = service.calls.lock().unwrap().drain(..).map(echo).count();
    assert!(executed >= 1);
    assert_eq!(taken.wait().unwrap()[..], b"taken"[..]);
    stopping.join().unwrap();
}

#[test]
fn every_call_of_a_server_that_dies_ends_with_the_right_error() {
    let executed = Arc::new(Mutex::new(Vec::new()));
    let count = Arc::new(AtomicUsize::new(0));
    let (dies, death) = mpsc::channel();
    let (known, counted) = (executed.clone(), count.clone());
    let listener = listen(Arc::new(Each(move |call: Call| {
        known.lock().unwrap().push(call.body().to_vec());
        if counted.fetch_add(1, Ordering::Relaxed) == 2_000 {
            dies.send(()).unwrap();
        }
        echo(call);
    })));
    let address = address(&listener);
    let connections = connections();
    let outcomes = std::thread::scope(|scope| {
        let thread = |thread: u32| {
            let destination = connections.to(&address);
            move || {
                let mut outcomes = Vec::new();
                for call in 0.. {
                    let body = format!("{thread}/{call}").into_bytes();
                    let outcome = destination.call(&body, terms());
                    let is_end = matches!(&outcome, Err(WireError::NotSent { .. }));
                    outcomes.push((body, outcome));
                    if is_end {
                        break;
                    }
                }
                outcomes
            }
        };
        let threads: Vec<_> = (0..8).map(|number| scope.spawn(thread(number))).collect();
        death.recv().unwrap();
        drop(listener);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let executed = executed.lock().unwrap();
    let executed: std::collections::HashSet<&Vec<u8>> = executed.iter().collect();
    for (body, outcome) in &outcomes {
        match outcome {
            Ok(answer) => assert!(answer[..] == body[..] && executed.contains(body)),
            Err(error) if error.is_surely_not_executed() => assert!(!executed.contains(body)),
            Err(WireError::Lost { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_client_that_closes_ends_its_calls() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let connections = connections();
    let destination = connections.to(&address(&listener));
    let pending = destination.start(b"sent", terms());
    service.wait_for(1);
    drop(connections);
    assert!(matches!(pending.wait().unwrap_err(), WireError::Lost { .. }));
    assert!(matches!(destination.call(b"", terms()).unwrap_err(), WireError::NotSent { .. }));
    wait_until(|| listener.connections() == (0, 0));
    // An answer that nobody can get harms nobody.
    service.calls.lock().unwrap().drain(..).for_each(echo);
}

#[test]
fn a_socket_in_a_directory_works_and_is_taken_over() {
    let directory = std::env::temp_dir().join(format!("canopy-wire-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("socket");
    let addresses = [Address::Unix(path.clone())];
    let start = || {
        let security = ServerSecurity::default();
        Listener::start(&addresses, security, Limits::default(), Arc::new(Each(echo)))
    };
    // A socket that a dead process has left.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = start().unwrap();
    assert!(start().is_err(), "one that is in use is not taken over");
    let connections = connections();
    assert_eq!(connections.call(&addresses[0], b"unix", terms()).unwrap()[..], b"unix"[..]);
    listener.stop(Duration::from_secs(60));
    assert!(!path.exists());
    // A file that is not a socket stays.
    std::fs::write(&path, b"precious").unwrap();
    assert!(start().is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_dir_all(&directory).unwrap();
}
