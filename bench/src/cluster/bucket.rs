//! A bucket of Garage on this machine. Garage overwrites objects, so a directory beside the bucket
//! decides who creates one.

use crate::cluster::find_program;
use crate::cluster::peers::daemons::{Daemon, Own, free_port, wait_until};
use crate::cluster::site::Place;
use anyhow::Result;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

const SECRET: &str = "b892c0665f0ada8a4755dae98baa3b133590e11dae3bcc1f9d769d67f16c3835";
const ACCESS_KEY: &str = "GK000000000000000000000001";
const BUCKET: &str = "canopy";

/// A server, which is stopped when this is dropped.
pub struct Garage {
    _server: Daemon,
    _own: Own,
    port: u16,
}

impl Garage {
    /// Starts a server with all its data in a directory, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Self>> {
        let Some(program) = find_program("garage") else { return Ok(None) };
        let own = Own::new(scratch, "garage")?;
        let (at, port, rpc) = (own.path().display(), free_port()?, free_port()?);
        let configuration = own.path().join("garage.toml");
        let text = format!(
            "metadata_dir = \"{at}/meta\"\ndata_dir = \"{at}/data\"\ndb_engine = \"sqlite\"\n\
             replication_factor = 1\nrpc_bind_addr = \"127.0.0.1:{rpc}\"\n\
             rpc_public_addr = \"127.0.0.1:{rpc}\"\nrpc_secret = \"{SECRET}\"\n\
             [s3_api]\ns3_region = \"garage\"\napi_bind_addr = \"127.0.0.1:{port}\"\n"
        );
        std::fs::write(&configuration, text)?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&configuration);
        command.args(["server", "--single-node", "--default-bucket"]);
        command.env("GARAGE_DEFAULT_ACCESS_KEY", ACCESS_KEY);
        command.env("GARAGE_DEFAULT_SECRET_KEY", SECRET).env("GARAGE_DEFAULT_BUCKET", BUCKET);
        let server = Daemon::start(&mut command, &own)?;
        wait_until("garage", || Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
        Ok(Some(Garage { _server: server, _own: own, port }))
    }

    /// Returns a place in the bucket, with a directory beside it.
    pub fn place(&self, scratch: &Path) -> Place {
        let variables = [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port)),
            ("AWS_REGION", "garage".to_owned()),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET.to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        Place { within: format!("{}+s3://{BUCKET}", scratch.display()), variables }
    }
}
