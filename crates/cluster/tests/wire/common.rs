//! Services and sockets for the tests.

use canopy_cluster::wire::{
    Address, Batch, Call, ClientSecurity, Connections, Grant, Limits, Listener, Peer,
    ServerSecurity, Service, Terms,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A service by a function, which gets one call at a time.
pub struct Each<F>(pub F);

impl<F: Fn(Call) + Send + Sync + 'static> Service for Each<F> {
    fn take(&self, batch: Batch) {
        batch.for_each(&self.0);
    }
}

/// Answers with the body.
pub fn echo(call: Call) {
    let body = call.body().to_vec();
    call.answer(&body);
}

/// A service that keeps its calls for the test.
#[derive(Default)]
pub struct Kept {
    /// The calls, and the number of calls of each frame.
    pub calls: Mutex<Vec<Call>>,
    pub frames: Mutex<Vec<usize>>,
    pub grant: Grant,
}

impl Service for Kept {
    fn take(&self, batch: Batch) {
        self.frames.lock().unwrap().push(batch.len());
        self.calls.lock().unwrap().extend(batch);
    }

    fn grant(&self, _peer: &Peer) -> Result<Grant, String> {
        Ok(self.grant)
    }
}

impl Kept {
    /// Waits until there are this many calls.
    pub fn wait_for(&self, count: usize) {
        wait_until(|| self.calls.lock().unwrap().len() >= count);
    }
}

/// Waits until something holds: a limit against hanging, not a measure.
pub fn wait_until(holds: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("this should have happened within a minute");
}

pub fn listen(service: Arc<dyn Service>) -> Listener {
    listen_with(service, Limits::default())
}

pub fn listen_with(service: Arc<dyn Service>, limits: Limits) -> Listener {
    let addresses = ["127.0.0.1:0".parse().unwrap()];
    Listener::start(&addresses, ServerSecurity::default(), limits, service).unwrap()
}

pub fn address(listener: &Listener) -> Address {
    listener.addresses()[0].clone()
}

pub fn connections() -> Connections {
    Connections::new(ClientSecurity::default()).unwrap()
}

pub fn terms() -> Terms {
    Terms::within(Duration::from_secs(60))
}

/// A plain socket to a listener, for bytes that no client of ours would send.
pub fn socket(listener: &Listener) -> TcpStream {
    let socket = TcpStream::connect(address(listener).to_string()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    socket
}

/// A socket that has greeted the server.
pub fn greeted(listener: &Listener) -> TcpStream {
    let mut socket = socket(listener);
    socket.write_all(b"canopy\xf0\n\x01\0\x01\0").unwrap();
    let mut greeting = [0; 26];
    socket.read_exact(&mut greeting).unwrap();
    assert_eq!(greeting[10], 0, "{greeting:?}");
    socket
}

/// A frame of calls with these ids, room and bodies.
pub fn frame(calls: &[(u32, u32, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![1];
    for (id, room, body) in calls {
        for number in [*id, 0, *room, body.len() as u32] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(*body);
    }
    [&(bytes.len() as u32).to_le_bytes()[..], &bytes].concat()
}

/// Reads a frame: its kind and what is behind that.
pub fn read_frame(socket: &mut impl Read) -> std::io::Result<(u8, Vec<u8>)> {
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    socket.read_exact(&mut bytes)?;
    Ok((bytes[0], bytes[1..].to_vec()))
}
