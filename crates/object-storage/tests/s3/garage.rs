//! A Garage server of one node.

use super::server::{BUCKET, Process, Server, free_port, wait_for_port, wait_until};
use canopy_object_storage::BucketStorage;
use canopy_store::storage::Storage;
use object_store::aws::AmazonS3Builder;
use std::fs::{self, File};
use tempfile::TempDir;

pub const ACCESS_KEY: &str = "GK31c2f218a2e44f485b94239e";
pub const SECRET_KEY: &str = "b892c0665f0ada8a4755dae98baa3b133590e11dae3bcc1f9d769d67f16c3835";
pub const REGION: &str = "garage";

pub struct Garage {
    directory: TempDir,
    port: u16,
    process: Option<Process>,
}

impl Garage {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (at, port, rpc) = (directory.path().display(), free_port(), free_port());
        let config = format!(
            "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
             replication_factor = 1\nrpc_bind_addr = \"127.0.0.1:{rpc}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc}\"\nrpc_secret = \"{SECRET_KEY}\"\n\
             [s3_api]\ns3_region = \"{REGION}\"\napi_bind_addr = \"127.0.0.1:{port}\"\n"
        );
        fs::write(directory.path().join("garage.toml"), config).unwrap();
        let mut garage = Garage { directory, port, process: None };
        garage.go_on();
        garage
    }

    /// Returns where the server is.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Stops the server; what it stores stays.
    pub fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the server, again.
    pub fn go_on(&mut self) {
        let log = File::create(self.directory.path().join("log")).unwrap();
        self.process = Some(Process::start("garage", "cargo install garage", |command| {
            command
                .arg("-c")
                .arg(self.directory.path().join("garage.toml"))
                .args(["server", "--single-node", "--default-bucket"])
                .env("GARAGE_DEFAULT_ACCESS_KEY", ACCESS_KEY)
                .env("GARAGE_DEFAULT_SECRET_KEY", SECRET_KEY)
                .env("GARAGE_DEFAULT_BUCKET", BUCKET)
                .stdout(log.try_clone().unwrap())
                .stderr(log);
        }));
        wait_for_port(self.port);
        let storage = BucketStorage::new(self.builder(), "").unwrap();
        wait_until("garage", || storage.list("", "").is_ok());
    }
}

impl Server for Garage {
    fn builder(&self) -> AmazonS3Builder {
        AmazonS3Builder::new()
            .with_endpoint(self.endpoint())
            .with_region(REGION)
            .with_bucket_name(BUCKET)
            .with_access_key_id(ACCESS_KEY)
            .with_secret_access_key(SECRET_KEY)
    }
}
