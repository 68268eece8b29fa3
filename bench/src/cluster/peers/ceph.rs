//! CephFS: a monitor, a storage daemon that keeps everything in memory, and metadata servers.

use crate::cluster::find_program;
use crate::cluster::mounts::Rates;
use crate::cluster::peers::daemons::{Daemon, Own, free_port, wait_until};
use crate::cluster::site::{Mounted, output_of};
use anyhow::{Context, Result, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

/// Programs without which nothing is measured.
const PROGRAMS: [&str; 5] = ["ceph", "ceph-mon", "ceph-osd", "ceph-mds", "monmaptool"];

const FSID: &str = "4f2a1f0e-5a3c-4d0d-9c55-0d6a3a1b7c11";
const OSD: &str = "0d3b6d5e-8f2f-4a3e-a6a8-0c2b1f7d9e11";

/// A file system, which is stopped when this is dropped.
pub struct Ceph {
    /// Stopped first to last: metadata servers, storage, monitor.
    daemons: Vec<Daemon>,
    own: Own,
}

impl Drop for Ceph {
    fn drop(&mut self) {
        while !self.daemons.is_empty() {
            drop(self.daemons.pop());
        }
    }
}

impl Ceph {
    /// Starts a file system, unless programs are missing.
    pub fn start(scratch: &Path, servers: u32) -> Result<Option<Self>> {
        if PROGRAMS.iter().any(|name| find_program(name).is_none()) {
            return Ok(None);
        }
        let own = Own::new(scratch, "ceph")?;
        let monitor = free_port()?;
        for part in ["mon", "osd"] {
            std::fs::create_dir(own.path().join(part))?;
        }
        std::fs::write(own.path().join("ceph.conf"), configuration(own.path(), monitor))?;
        let mut ceph = Ceph { daemons: Vec::new(), own };
        let map = format!("--create --fsid {FSID} --addv a [v2:127.0.0.1:{monitor}] monmap");
        ceph.run("monmaptool", &map)?;
        ceph.run("ceph-mon", "--mkfs -i a --monmap monmap")?;
        ceph.daemon("ceph-mon", "a")?;
        wait_until("ceph-mon", || Ok(ceph.ask(&format!("osd new {OSD}")).is_ok()))?;
        ceph.run("ceph-osd", &format!("--mkfs -i 0 --osd-uuid {OSD}"))?;
        ceph.daemon("ceph-osd", "0")?;
        wait_until("ceph-osd", || {
            Ok(ceph.ask("osd stat").is_ok_and(|said| said.contains("1 up")))
        })?;
        for command in [
            "osd set noscrub",
            "osd set nodeep-scrub",
            "osd pool create data 8",
            "osd pool create meta 8",
            "fs new fs meta data",
        ] {
            ceph.ask(command)?;
        }
        for server in 0..servers {
            ceph.daemon("ceph-mds", &format!("m{server}"))?;
        }
        ceph.ask(&format!("fs set fs max_mds {servers}"))?;
        wait_until("ceph-mds", || {
            let active = ceph.ask("mds stat")?.matches("up:active").count();
            Ok(active == servers as usize)
        })?;
        Ok(Some(ceph))
    }

    fn command(&self, program: &str) -> Command {
        let path = find_program(program).unwrap_or_else(|| PathBuf::from(program));
        let mut command = Command::new(path);
        command.current_dir(self.own.path()).env("CEPH_CONF", self.configuration());
        command
    }

    fn configuration(&self) -> PathBuf {
        self.own.path().join("ceph.conf")
    }

    fn run(&self, program: &str, words: &str) -> Result<String> {
        output_of(self.command(program).args(words.split(' ')))
    }

    fn ask(&self, words: &str) -> Result<String> {
        self.run("ceph", &format!("--connect-timeout 20 {words}"))
    }

    fn daemon(&mut self, program: &str, name: &str) -> Result<()> {
        let mut command = self.command(program);
        let daemon = Daemon::start(command.args(["-f", "-i", name]), &self.own)?;
        self.daemons.push(daemon);
        Ok(())
    }

    /// Measures creates and stats of clients of the library in one directory. Each client looks up the
    /// files of another.
    pub fn library(&self, clients: u32, files: u32) -> Result<Rates> {
        let each = files / clients;
        let clients = (0..clients).map(|number| {
            let shifted = (number + 1) % clients;
            Client::start(&self.configuration(), [number, shifted, each])
        });
        let mut clients = clients.collect::<Result<Vec<_>>>()?;
        let count = f64::from(each * clients.len() as u32);
        let first = clients.first_mut().context("a client")?;
        first.ask("mkdir")?;
        first.answer()?;
        let mut rate = |operation: &str| -> Result<f64> {
            let begin = Instant::now();
            clients.iter_mut().try_for_each(|client| client.ask(operation))?;
            clients.iter_mut().try_for_each(Client::answer)?;
            Ok(count / begin.elapsed().as_secs_f64())
        };
        Ok(Rates { creates: rate("create")?, stats: rate("stat")? })
    }

    /// Mounts the file system by ceph-fuse, if that is there.
    pub fn mount(&self) -> Result<Option<Mounted>> {
        if find_program("ceph-fuse").is_none() {
            return Ok(None);
        }
        let mounted = Mounted::prepared()?;
        output_of(self.command("ceph-fuse").arg(&mounted.directory))?;
        Ok(Some(mounted))
    }
}

/// A process that uses the library.
struct Client {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    fn start(configuration: &Path, numbers: [u32; 3]) -> Result<Self> {
        let python = find_program("python3").context("there is no python3")?;
        let mut command = Command::new(python);
        command.args(["-c", include_str!("cephfs.py")]).arg(configuration).arg("/bench");
        command.args(numbers.map(|number| number.to_string()));
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let input = child.stdin.take().context("an input")?;
        let output = BufReader::new(child.stdout.take().context("an output")?);
        let mut client = Client { child, input, output };
        client.answer().context(
            "python3-cephfs is missing: install it, or name a python that has it by PYTHON3",
        )?;
        Ok(client)
    }

    fn ask(&mut self, operation: &str) -> Result<()> {
        writeln!(self.input, "{operation}")?;
        Ok(self.input.flush()?)
    }

    fn answer(&mut self) -> Result<()> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "a client of CephFS has ended");
        match line.trim() {
            "ready" | "done" => Ok(()),
            other => bail!("an odd answer of a client of CephFS: {other}"),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn configuration(at: &Path, monitor: u16) -> String {
    let at = at.display();
    let quiet = ["ms", "mds", "osd", "mon", "monc", "client", "objecter", "auth", "journaler"];
    let quiet = quiet.map(|part| format!("debug {part} = 0/0\n")).concat();
    format!(
        "[global]
fsid = {FSID}
mon host = [v2:127.0.0.1:{monitor}]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
ms bind msgr1 = false
auth cluster required = none
auth service required = none
auth client required = none
run dir = {at}
admin socket = {at}/$name.$pid.asok
log file = {at}/$name.log
mon data = {at}/mon
osd data = {at}/osd
osd objectstore = memstore
memstore device bytes = 8589934592
osd pool default size = 1
osd pool default min size = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
osd max scrubs = 0
mon allow pool size one = true
mon max pg per osd = 1000
mon data avail crit = 1
mon data avail warn = 1
mds cache memory limit = 4294967296
{quiet}"
    )
}
