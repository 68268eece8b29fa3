//! A Garage server of one node. Tests of other crates have this file, too.

#![allow(dead_code)]

use super::server::{BUCKET, Process, Server, free_ports, listen, random, wait_until};
use canopy_object_storage::BucketStorage;
use canopy_store::storage::Storage;
use object_store::aws::AmazonS3Builder;
use std::fs::{self, File};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SECRET_KEY: &str = "b892c0665f0ada8a4755dae98baa3b133590e11dae3bcc1f9d769d67f16c3835";
const REGION: &str = "garage";

/// Somebody else may take a port before the server does: then it is started again, so often.
const ATTEMPTS: usize = 5;

/// How long it may take until a server answers.
const PATIENCE: Duration = Duration::from_secs(180);

pub struct Garage {
    directory: TempDir,
    port: u16,
    rpc_port: u16,
    /// No other server knows it, so none is taken for this one.
    access_key: String,
    process: Option<Process>,
}

impl Garage {
    pub fn start() -> Self {
        let mut attempt = 1;
        loop {
            let mut garage = Self::configured();
            match garage.try_start() {
                Ok(()) => return garage,
                Err(log) if attempt == ATTEMPTS => panic!("garage has ended:\n{log}"),
                Err(_) => attempt += 1,
            }
        }
    }

    /// Returns a server that has ports and is not started yet.
    fn configured() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (at, [port, rpc_port]) = (directory.path().display(), free_ports());
        let config = format!(
            "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
             replication_factor = 1\nrpc_bind_addr = \"127.0.0.1:{rpc_port}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc_port}\"\nrpc_secret = \"{SECRET_KEY}\"\n\
             [s3_api]\ns3_region = \"{REGION}\"\napi_bind_addr = \"127.0.0.1:{port}\"\n"
        );
        fs::write(directory.path().join("garage.toml"), config).unwrap();
        let access_key = format!("GK{:024x}", random());
        Garage { directory, port, rpc_port, access_key, process: None }
    }

    /// Returns where the server is.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the variables by which a program finds the server.
    pub fn set_variables(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", self.endpoint())
            .env("AWS_REGION", REGION)
            .env("AWS_ACCESS_KEY_ID", &self.access_key)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// Stops the server; what it stores stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Waits until somebody connects to the port of the server, which is stopped, and hangs up.
    pub fn hang_up(&self) {
        let mut listener = None;
        wait_until("the port of garage", || {
            listener = listener.take().or_else(|| listen(self.port));
            listener.is_some()
        });
        let listener = listener.unwrap();
        listener.set_nonblocking(true).unwrap();
        wait_until("a connection", || listener.accept().is_ok());
    }

    /// Starts the server again, where it was.
    pub fn go_on(&mut self) {
        let mut attempt = 1;
        loop {
            wait_until("the ports of garage", || {
                [self.port, self.rpc_port].map(listen).iter().all(Option::is_some)
            });
            match self.try_start() {
                Ok(()) => return,
                Err(log) if attempt == ATTEMPTS => panic!("garage has ended:\n{log}"),
                Err(_) => attempt += 1,
            }
        }
    }

    /// Starts the server and waits until it answers. If it ends instead, as it does without its
    /// ports, returns what it logged.
    fn try_start(&mut self) -> Result<(), String> {
        let path = self.directory.path().join("log");
        let log = File::create(&path).unwrap();
        let mut process = Process::start("garage", "cargo install garage", |command| {
            command
                .arg("-c")
                .arg(self.directory.path().join("garage.toml"))
                .args(["server", "--single-node", "--default-bucket"])
                .env("GARAGE_DEFAULT_ACCESS_KEY", &self.access_key)
                .env("GARAGE_DEFAULT_SECRET_KEY", SECRET_KEY)
                .env("GARAGE_DEFAULT_BUCKET", BUCKET)
                .stdout(log.try_clone().unwrap())
                .stderr(log);
        });
        let storage = BucketStorage::new(self.builder(), "").unwrap();
        let begun = Instant::now();
        loop {
            // A request is tried again for long, so none is made before somebody listens.
            let is_there = TcpStream::connect(("127.0.0.1", self.port)).is_ok();
            if is_there && storage.list("", "").is_ok() {
                self.process = Some(process);
                return Ok(());
            }
            let log = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
            // Without the port of S3 alone, the process stays.
            if process.0.try_wait().unwrap().is_some() || log.contains("exited with error") {
                return Err(log);
            }
            assert!(begun.elapsed() < PATIENCE, "garage does not answer:\n{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Server for Garage {
    fn builder(&self) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(self.endpoint())
            .with_region(REGION)
            .with_bucket_name(BUCKET)
            .with_access_key_id(&self.access_key)
            .with_secret_access_key(SECRET_KEY)
    }
}
