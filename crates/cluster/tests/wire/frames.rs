//! Bytes that no client of ours would send.

use crate::common::*;
use canopy_cluster::wire::{Batch, Grant, Peer, Service, Window};
use std::io::{Read, Write};
use std::sync::Arc;

/// Sends bytes after a greeting, and returns the text with which the server closes the connection.
fn violation(bytes: &[u8]) -> String {
    let listener = listen(Arc::new(Each(echo)));
    let mut socket = greeted(&listener);
    socket.write_all(bytes).unwrap();
    loop {
        let (kind, text) = read_frame(&mut socket).unwrap();
        if kind == 4 {
            assert_eq!(socket.read(&mut [0]).unwrap(), 0);
            return String::from_utf8(text).unwrap();
        }
    }
}

#[test]
fn wrong_frames_close_the_connection_with_the_reason() {
    let length = |length: u32| length.to_le_bytes().to_vec();
    let many: Vec<(u32, u32, &[u8])> = (0..257).map(|id| (id, 0, &b""[..])).collect();
    let torn = [&length(10)[..], &[1; 10]].concat();
    let mut beyond = frame(&[(1, 0, b"body")]);
    beyond[17] = 9;
    let cases = [
        (length(0), "ends within"),
        (length(u32::MAX), "4294967295 bytes"),
        (length((1 << 20) + 65), "1048641 bytes"),
        ([&length(1)[..], &[1]].concat(), "0 calls"),
        ([&length(1)[..], &[2]].concat(), "kind 2"),
        ([&length(9)[..], &[3; 9]].concat(), "kind 3"),
        ([&length(1)[..], &[200]].concat(), "kind 200"),
        (torn, "ends within"),
        (beyond, "ends within"),
        (frame(&many), "257 calls"),
        (frame(&[(1, (1 << 20) + 1, b"")]), "reply of 1048577 bytes"),
        (frame(&[(1, 0, &vec![0; (1 << 20) + 1])]), "body has 1048577 bytes"),
    ];
    for (bytes, expected) in cases {
        let text = violation(&bytes);
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
    }
}

#[test]
fn a_frame_is_taken_whole_or_not_at_all() {
    let service = Arc::new(Kept::default());
    let listener = listen(service.clone());
    let mut socket = greeted(&listener);
    let mut bytes = frame(&[(1, 0, b"right"), (2, 0, b"wrong")]);
    let end = bytes.len() - 9;
    bytes[end] = 6;
    socket.write_all(&bytes).unwrap();
    assert_eq!(read_frame(&mut socket).unwrap().0, 4);
    assert!(service.frames.lock().unwrap().is_empty());
}

#[test]
fn other_versions_and_other_protocols_get_one_clear_error() {
    let listener = listen(Arc::new(Each(echo)));
    let cases: [(&[u8], &str); 3] = [
        (b"canopy\xf0\n\x02\0\x03\0", "versions 2 to 3"),
        (b"canopy\xf0\n\x00\0\x00\0", "versions 0 to 0"),
        (b"GET / HTTP/1.1\r\nHost: canopy\r\n\r\n", "does not speak"),
    ];
    for (bytes, expected) in cases {
        let mut socket = socket(&listener);
        socket.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).unwrap();
        assert_eq!(answer[10], 1);
        let text = String::from_utf8_lossy(&answer[26..]);
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
    }
    // A client that speaks more versions than the server does is welcome.
    let mut socket = socket(&listener);
    socket.write_all(b"canopy\xf0\n\x01\0\x09\0").unwrap();
    let mut greeting = [0; 26];
    socket.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[8..11], [1, 0, 0]);
}

#[test]
fn frames_arrive_in_pieces() {
    let listener = listen(Arc::new(Each(echo)));
    let mut socket = greeted(&listener);
    let all = [frame(&[(1, 9, b"first")]), frame(&[(2, 9, b"second"), (3, 9, b"")])].concat();
    for byte in &all {
        socket.write_all(std::slice::from_ref(byte)).unwrap();
        socket.flush().unwrap();
    }
    let mut found = Vec::new();
    while found.len() < 3 {
        let (kind, mut bytes) = read_frame(&mut socket).unwrap();
        assert_eq!(kind, 2);
        while !bytes.is_empty() {
            let length = u32::from_le_bytes(bytes[5..9].try_into().unwrap()) as usize;
            found.push((bytes[0], bytes[4], bytes[9..9 + length].to_vec()));
            bytes.drain(..9 + length);
        }
    }
    let expected = [(1, 0, b"first".to_vec()), (2, 0, b"second".to_vec()), (3, 0, vec![])];
    assert_eq!(found, expected);
}

#[test]
fn a_connection_that_ends_within_a_frame_harms_nobody() {
    let listener = listen(Arc::new(Each(echo)));
    let whole = frame(&[(1, 9, b"first")]);
    for end in 0..whole.len() {
        greeted(&listener).write_all(&whole[..end]).unwrap();
    }
    wait_until(|| listener.connections() == (0, 0));
    let answer = connections().call(&address(&listener), b"still here", terms()).unwrap();
    assert_eq!(answer[..], b"still here"[..]);
}

/// Answers each call with as much as it has room for.
struct Generous(Window);

impl Service for Generous {
    fn take(&self, batch: Batch) {
        for call in batch {
            let answer = vec![9; call.room()];
            call.answer(&answer);
        }
    }

    fn grant(&self, _peer: &Peer) -> Result<Grant, String> {
        Ok(Grant { window: self.0, ..Grant::default() })
    }
}

#[test]
fn a_client_that_exceeds_its_window_is_closed() {
    let window = Window { calls: 2, bytes: 4 << 20 };
    let kept = Arc::new(Kept { grant: Grant { window, ..Grant::default() }, ..Kept::default() });
    let listener = listen(kept);
    for calls in [vec![(1, 0, &b""[..]); 3], vec![(1, 1 << 20, &[0; 1 << 20]); 1]] {
        let mut socket = greeted(&listener);
        let count = if calls.len() == 3 { 1 } else { 3 };
        for _ in 0..count {
            let _ = socket.write_all(&frame(&calls));
        }
        let (kind, text) = read_frame(&mut socket).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(kind == 4 && text.contains("window of 2 calls"), "{text}");
    }
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let listener = listen(Arc::new(Generous(Window { calls: 1_000, bytes: 8 << 20 })));
    let mut deaf = greeted(&listener);
    deaf.set_write_timeout(Some(std::time::Duration::from_secs(1))).unwrap();
    let request = frame(&[(1, 1 << 20, b"")]);
    let mut written = 0;
    // As it never reads, it would exceed the window, or its writes block: before 100 MiB of answers.
    while written < 200_000 {
        match deaf.write(&request) {
            Ok(count) => written += count / request.len(),
            Err(_) => break,
        }
    }
    assert!(written < 200_000);
    // Others are served meanwhile.
    let connections = connections();
    for _ in 0..10 {
        let terms = terms().with_room(1 << 20);
        let answer = connections.call(&address(&listener), b"", terms).unwrap();
        assert_eq!(answer.len(), 1 << 20);
    }
}
