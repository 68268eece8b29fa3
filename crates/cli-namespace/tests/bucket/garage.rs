//! A Garage server of one node, with one bucket.

use super::wait_until;
use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

const ACCESS_KEY: &str = "GK31c2f218a2e44f485b94239e";
const SECRET_KEY: &str = "b892c0665f0ada8a4755dae98baa3b133590e11dae3bcc1f9d769d67f16c3835";

pub struct Garage {
    directory: TempDir,
    port: u16,
    process: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Garage {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (at, port, rpc) = (directory.path().display(), free_port(), free_port());
        let config = format!(
            "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
             replication_factor = 1\nrpc_bind_addr = \"127.0.0.1:{rpc}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc}\"\nrpc_secret = \"{SECRET_KEY}\"\n\
             [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"127.0.0.1:{port}\"\n"
        );
        fs::write(directory.path().join("garage.toml"), config).unwrap();
        let mut garage = Garage { directory, port, process: None };
        garage.go_on();
        garage
    }

    /// Has a program know the server.
    pub fn tell(&self, command: &mut Command) {
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_REGION", "garage")
            .env("AWS_ACCESS_KEY_ID", ACCESS_KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    }

    /// Stops the server; what it stores stays.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts the server, again.
    pub fn go_on(&mut self) {
        let log = self.directory.path().join("log");
        let said = File::create(&log).unwrap();
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "garage", "-c"])
            .arg(self.directory.path().join("garage.toml"))
            .args(["server", "--single-node", "--default-bucket"])
            .env("GARAGE_DEFAULT_ACCESS_KEY", ACCESS_KEY)
            .env("GARAGE_DEFAULT_SECRET_KEY", SECRET_KEY)
            .env("GARAGE_DEFAULT_BUCKET", "canopy")
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said);
        let spawned = command.spawn().expect("setpriv");
        self.process = Some(spawned);
        let port = self.port;
        wait_until("Garage answers (cargo install garage)", || {
            let said = fs::read_to_string(&log).unwrap();
            said.contains("S3 API server listening")
                && TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }
}

impl Drop for Garage {
    fn drop(&mut self) {
        self.stop();
    }
}
