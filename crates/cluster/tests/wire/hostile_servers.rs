//! Servers that break the rules: each call ends with the right error, and the client goes on.

use crate::common::*;
use canopy_cluster::wire::{Address, Refusal, Terms, WireError};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

/// A greeting that grants 10 calls and 1 MiB.
const GREETING: &[u8] = b"canopy\xf0\n\x01\0\0\0\x0a\0\0\0\0\0\x10\0\0\0\x10\0\0\0";

/// Calls a server that greets with some bytes, answers the first frame with others, and closes.
fn call(greeting: &'static [u8], answer: Vec<u8>) -> WireError {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
    let server = std::thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.read_exact(&mut [0; 12]).unwrap();
        socket.write_all(greeting).unwrap();
        if greeting == GREETING {
            read_frame(&mut socket).unwrap();
            socket.write_all(&answer).unwrap();
        }
    });
    let error = connections().call(&address, b"body", terms()).unwrap_err();
    server.join().unwrap();
    error
}

/// Returns a frame of some kind.
fn any_frame(kind: u8, rest: &[u8]) -> Vec<u8> {
    [&(1 + rest.len() as u32).to_le_bytes()[..], &[kind], rest].concat()
}

/// Returns a reply.
fn reply(id: u32, status: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [&id.to_le_bytes()[..], &[status], &length, body].concat()
}

#[test]
fn answers_against_the_rules_lose_the_calls_under_way() {
    let cases = [
        (vec![], "closed"),
        (vec![1, 2], "closed"),
        (any_frame(2, &reply(0, 0, b"whole"))[..9].to_vec(), "closed"),
        (any_frame(2, &reply(77, 0, b"")), "unknown call"),
        (any_frame(2, &reply(1 << 16, 0, b"")), "unknown call"),
        (any_frame(2, &reply(0, 99, b"")), "status 99"),
        (any_frame(2, &[]), "0 calls"),
        (any_frame(1, &[0; 20]), "kind 1"),
        (any_frame(3, &[0; 7]), "ends within"),
        (u32::MAX.to_le_bytes().to_vec(), "4294967295 bytes"),
        (any_frame(4, b"out of paper"), "out of paper"),
    ];
    for (answer, expected) in cases {
        let error = call(GREETING, answer);
        assert!(matches!(error, WireError::Lost { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error} lacks {expected:?}");
    }
}

#[test]
fn a_server_that_stops_at_once_has_not_taken_the_call() {
    let error = call(GREETING, any_frame(3, &0_u64.to_le_bytes()));
    assert!(matches!(error, WireError::NotSent { .. }), "{error:?}");
}

#[test]
fn greetings_against_the_rules_are_errors_of_calls_that_were_not_sent() {
    let cases: [(&[u8], &str); 6] = [
        (b"", "without a greeting"),
        (b"canopy", "without a greeting"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak"),
        (b"canopy\xf0\n\x09\0\0\0\x0a\0\0\0\0\0\x10\0\0\0\x10\0\0\0", "versions 9 to 9"),
        (b"canopy\xf0\n\x01\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0no", "no"),
        (b"canopy\xf0\n\x01\0\x77\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0no", "no"),
    ];
    for (greeting, expected) in cases {
        let error = call(greeting, vec![]);
        assert!(error.is_surely_not_executed(), "{error:?}");
        assert!(error.to_string().contains(expected), "{error} lacks {expected:?}");
    }
}

#[test]
fn a_call_beyond_a_small_window_is_refused() {
    let none = b"canopy\xf0\n\x01\0\0\0\0\0\0\0\0\0\x10\0\0\0\x10\0\0\0";
    let small = b"canopy\xf0\n\x01\0\0\0\x0a\0\0\0\x03\0\0\0\0\0\x10\0\0\0";
    for (greeting, is_refused) in [(none, false), (small, true)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: Address = listener.local_addr().unwrap().to_string().parse().unwrap();
        let server = std::thread::spawn(move || {
            let mut socket = listener.accept().unwrap().0;
            socket.read_exact(&mut [0; 12]).unwrap();
            socket.write_all(greeting).unwrap();
            assert_eq!(socket.read(&mut [0]).unwrap_or(0), 0);
        });
        let connections = connections();
        let short = Terms::within(Duration::from_millis(300));
        let error = connections.call(&address, b"body", short).unwrap_err();
        let too_large =
            matches!(&error, WireError::Refused { refusal: Refusal::TooLarge { .. }, .. });
        assert!(error.is_surely_not_executed() && too_large == is_refused, "{error:?}");
        drop(connections);
        server.join().unwrap();
    }
}
