//! A namespace on several servers, each in a process of its own: the real programs, on loopback.

use anyhow::{Context, Result, bail, ensure};
use canopy_cluster::wire::{Address, ClientSecurity};
use canopy_cluster::{Client, Patience, Remote, SessionId};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Time until servers run where they should.
const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace that is made for a measurement.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Servers, each in a process.
    pub servers: u32,
    /// Partitions of a directory that each may have.
    pub partitions: u32,
    /// Entries of a partition that splits.
    pub split_entries: u64,
    /// Where to make the namespace.
    pub place: Place,
}

/// A place in which namespaces are made.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Directory, or a directory and a bucket with a plus sign between them. Both get names of
    /// their own in it.
    pub within: String,
    /// Variables by which programs find the bucket.
    pub variables: Vec<(String, String)>,
}

/// A process of the cluster. It is killed when this is dropped.
pub struct Server {
    child: Child,
    pub address: Address,
    /// Address of its numbers.
    metrics: String,
}

/// Running processes. Directories of the namespace are removed when this is dropped.
pub struct Site {
    pub servers: Vec<Server>,
    programs: PathBuf,
    place: Place,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.servers.clear();
        for part in self.place.within.split('+').filter(|part| !part.contains("://")) {
            let _ = std::fs::remove_dir_all(part);
        }
    }
}

impl Site {
    /// Makes a namespace and starts its processes, one after the other.
    pub fn start(programs: &Path, setup: &Setup) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let own = |part| format!("{part}/canopy-bench-{}-{number}", std::process::id());
        let within = Vec::from_iter(setup.place.within.split('+').map(own)).join("+");
        let place = Place { within, ..setup.place.clone() };
        let mut site = Site { servers: Vec::new(), programs: programs.into(), place };
        let numbers = [setup.servers.into(), setup.partitions.into(), setup.split_entries];
        let [servers, partitions, entries] = numbers.map(|number: u64| number.to_string());
        site.command("canopy-ns", &["ns", "create"], |command| {
            command.args(["--servers", &servers, "--partitions-per-server", &partitions]);
            command.args(["--split-entries", &entries]);
        })?;
        for _ in 0..setup.servers {
            let server = site.start_server()?;
            site.servers.push(server);
        }
        site.wait_until_even()?;
        Ok(site)
    }

    /// Runs a command on the namespace, whose place is the last argument, and returns its output.
    pub fn command(
        &self,
        program: &str,
        words: &[&str],
        with: impl FnOnce(&mut Command),
    ) -> Result<String> {
        let mut command = Command::new(self.programs.join(program));
        command.args(words).envs(self.place.variables.clone());
        with(&mut command);
        output_of(command.arg(&self.place.within))
    }

    /// Starts one more process, which takes its share.
    pub fn start_server(&self) -> Result<Server> {
        let mut command = Command::new(self.programs.join("canopy-cluster"));
        command.args(["cluster", "start", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]);
        command.arg(&self.place.within).envs(self.place.variables.clone());
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = child.context("cannot run canopy-cluster")?;
        let output = child.stdout.take().context("a server prints")?;
        let mut lines = BufReader::new(output).lines();
        let mut next = || lines.next().context("a server ended").and_then(|line| Ok(line?));
        let (listening, metrics) = (next()?, next()?);
        let address = listening.split(' ').nth(2).context("an address")?.trim_end_matches(',');
        let metrics = metrics.split('/').nth(2).context("an address of numbers")?.to_owned();
        Ok(Server { child, address: address.parse()?, metrics })
    }

    /// Mounts the namespace until the result is dropped.
    pub fn mount(&self) -> Result<Mounted> {
        let addresses = Vec::from_iter(self.servers.iter().map(|one| one.address.to_string()));
        let mounted = Mounted::prepared()?;
        let mut command = Command::new(self.programs.join("canopy-ns"));
        command.args(["ns", "mount", &format!("canopy://{}", addresses.join(","))]);
        output_of(command.arg(&mounted.directory).envs(self.place.variables.clone()))?;
        Ok(mounted)
    }

    /// Waits until each process runs one server.
    pub fn wait_until_even(&self) -> Result<()> {
        let begin = Instant::now();
        for server in &self.servers {
            while server.metrics()?.get("servers") != Some(&1) {
                ensure!(begin.elapsed() < PATIENCE, "the servers are not shared");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Connects a client, by a connection of its own to each server.
    pub fn connect(&self) -> Result<Client> {
        let addresses = Vec::from_iter(self.servers.iter().map(|one| one.address.clone()));
        let remote = Remote::connect(&addresses, ClientSecurity::default(), Patience::CLIENT)?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(Client::new(remote, SessionId(NEXT.fetch_add(1, Ordering::Relaxed))))
    }

    /// Returns the CPU seconds of all processes, and the sums of their numbers.
    pub fn totals(&self) -> Result<(f64, BTreeMap<String, u64>)> {
        let (mut seconds, mut sums) = (0.0, BTreeMap::new());
        for server in &self.servers {
            seconds += cpu_seconds(server.child.id())?;
            for (name, value) in server.metrics()? {
                *sums.entry(name).or_insert(0) += value;
            }
        }
        Ok((seconds, sums))
    }
}

/// A mounted directory. It is unmounted when this is dropped.
pub struct Mounted {
    pub directory: PathBuf,
}

impl Mounted {
    /// Makes the directory, for the caller to mount something on it.
    pub fn prepared() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("canopy-bench-mount-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory)?;
        Ok(Mounted { directory })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmount = Command::new("umount").arg(&self.directory).output();
        if !unmount.is_ok_and(|done| done.status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.directory).output();
        }
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Runs a command to its end and returns what it printed.
pub fn output_of(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let made = command.stdin(Stdio::null()).output();
    let made = made.with_context(|| format!("cannot run {name}: see --programs"))?;
    ensure!(made.status.success(), "{name}: {}", String::from_utf8_lossy(&made.stderr));
    Ok(String::from_utf8_lossy(&made.stdout).into_owned())
}

impl Server {
    /// Ends the process without notice.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Has the process hand its servers over, and waits for its end.
    pub fn end(mut self) -> Result<()> {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns the numbers without labels, by their names without the first two words.
    pub fn metrics(&self) -> Result<BTreeMap<String, u64>> {
        let mut stream = TcpStream::connect(&self.metrics)?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let Some((_, text)) = text.split_once("\r\n\r\n") else { bail!("no numbers: {text}") };
        let lines = text.lines().filter_map(|line| line.strip_prefix("canopy_cluster_"));
        let numbers = lines.filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Ok(numbers.collect())
    }
}

/// Returns the CPU time of a process: that of its threads.
pub fn cpu_seconds(process: u32) -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread may have ended.
        let file = thread?.path().join("schedstat");
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let time_ns = text.split_whitespace().next().context("schedstat has numbers")?;
        sum += time_ns.parse::<f64>()? / 1e9;
    }
    Ok(sum)
}
