//! What the servers have in common. Tests of other crates have this file, too.

#![allow(dead_code)]

use canopy_object_storage::BucketStorage;
use canopy_store::storage::Storage;
use object_store::aws::AmazonS3Builder;
use std::hash::{BuildHasher, RandomState};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The bucket that each server has.
pub const BUCKET: &str = "canopy";

/// A process that ends with the test, however that ends.
pub struct Process(pub Child);

impl Process {
    /// Starts a program; `package` is where it comes from.
    pub fn start(program: &str, package: &str, configure: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", program]).stdin(Stdio::null());
        configure(&mut command);
        demand(program, package);
        Process(command.spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Fails if a program is not installed.
pub fn demand(program: &str, package: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|part| part.join(program).exists());
    assert!(is_there, "{program} is missing; scripts/test installs it ({package})");
}

/// A server with a bucket.
pub trait Server {
    /// Returns how to reach the bucket.
    fn builder(&self) -> AmazonS3Builder;

    /// Returns storage in the bucket below a prefix.
    fn storage(&self, prefix: &str) -> Arc<dyn Storage> {
        Arc::new(BucketStorage::new(self.builder(), prefix).unwrap())
    }
}

/// Returns a number that nobody can foresee.
pub fn random() -> u64 {
    RandomState::new().hash_one(())
}

/// Returns different ports that nothing listens on. They are below those that Linux gives to
/// outgoing connections (32768 and more), so only who asks for one of them can take it.
pub fn free_ports<const COUNT: usize>() -> [u16; COUNT] {
    let listeners = [(); COUNT].map(|()| {
        loop {
            let port = 10_000 + (random() % 20_000) as u16;
            if let Some(listener) = listen(port) {
                return listener;
            }
        }
    });
    // All were held until the last was found, so no two are the same.
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Takes a port, unless somebody has it.
pub fn listen(port: u16) -> Option<TcpListener> {
    TcpListener::bind(("127.0.0.1", port)).ok()
}

/// Waits until something answers at a port.
pub fn wait_for_port(port: u16) {
    wait_until(&format!("port {port}"), || TcpStream::connect(("127.0.0.1", port)).is_ok());
}

/// Waits until `is_so`, for three minutes at most.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(180), "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
