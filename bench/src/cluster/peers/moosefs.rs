//! MooseFS: its master alone, since files without contents need no chunk server.

use crate::cluster::find_program;
use crate::cluster::peers::daemons::{Daemon, Own, free_port, wait_until};
use crate::cluster::site::{Mounted, output_of};
use anyhow::Result;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

/// A mounted file system. It is stopped when this is dropped.
pub struct MooseFs {
    pub mounted: Mounted,
    _master: Daemon,
    _own: Own,
}

impl MooseFs {
    /// Starts a master and mounts it, unless programs are missing.
    pub fn start(scratch: &Path) -> Result<Option<Self>> {
        let programs = ["mfsmaster", "mfsmount"];
        let [Some(master), Some(mount)] = programs.map(find_program) else {
            return Ok(None);
        };
        let own = Own::new(scratch, "moosefs")?;
        let (at, ports) = (own.path(), [free_port()?, free_port()?, free_port()?]);
        let [loggers, chunks, clients] = ports;
        let text = format!(
            "WORKING_USER = root\nWORKING_GROUP = root\nDATA_PATH = {0}\n\
             EXPORTS_FILENAME = {0}/exports\nTOPOLOGY_FILENAME = {0}/topology\n\
             MATOML_LISTEN_PORT = {loggers}\nMATOCS_LISTEN_PORT = {chunks}\n\
             MATOCL_LISTEN_PORT = {clients}\n",
            at.display()
        );
        std::fs::write(at.join("master.cfg"), text)?;
        std::fs::write(at.join("exports"), "* / rw,alldirs,maproot=0\n")?;
        std::fs::write(at.join("topology"), "")?;
        // The mark of a file system that is new.
        std::fs::write(at.join("metadata.mfs"), "MFSM NEW")?;
        let mut command = Command::new(master);
        command.arg("-c").arg(at.join("master.cfg")).args(["-f", "start"]);
        let master = Daemon::start(&mut command, &own)?;
        wait_until("mfsmaster", || Ok(TcpStream::connect(("127.0.0.1", clients)).is_ok()))?;
        let mounted = Mounted::prepared()?;
        let mut command = Command::new(mount);
        command.args(["-H", "127.0.0.1", "-P", &clients.to_string()]);
        output_of(command.arg(&mounted.directory))?;
        Ok(Some(MooseFs { mounted, _master: master, _own: own }))
    }
}
