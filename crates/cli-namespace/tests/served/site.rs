//! A namespace on several servers, with real processes on loopback, and mounts of it. Nothing is left
//! mounted or running, whatever happens.

use crate::common::{CANOPY, ns, shell, success};
use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketType, bind, socket};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// The program of `canopy cluster`, which is built beside this one.
pub fn canopy_cluster() -> PathBuf {
    let path = Path::new(CANOPY).with_file_name("canopy-cluster");
    assert!(path.exists(), "build all commands first: {} is missing", path.display());
    path
}

/// A process with a share of the servers. It is killed when it is dropped.
pub struct Process {
    pub child: Child,
    pub address: String,
}

impl Process {
    /// Kills it, as a crash would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Keeps other processes from listening at the address of one that has ended. Nobody answers there.
pub fn reserve(address: &str) -> OwnedFd {
    let address: SocketAddrV4 = address.parse().unwrap();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    set_socket_reuseaddr(&socket, true).unwrap();
    bind(&socket, &address).unwrap();
    socket
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A namespace on several servers, below a directory that every user can search.
pub struct Site {
    pub place: TempDir,
    pub namespace: PathBuf,
    pub processes: Vec<Process>,
    mounts: Vec<PathBuf>,
}

impl Site {
    pub fn new(servers: u32, processes: usize) -> Self {
        Self::with(servers, processes, &[])
    }

    pub fn with(servers: u32, processes: usize, options: &[&str]) -> Self {
        let mut site = Self::created(servers, options);
        for _ in 0..processes {
            site.start();
        }
        site
    }

    pub fn created(servers: u32, options: &[&str]) -> Self {
        let site = Self::empty();
        site.create(servers, options);
        site
    }

    /// Makes a namespace on a file system of its own, of this size in the words of mount(8).
    pub fn on_disk(servers: u32, size: &str) -> Self {
        let mut site = Self::empty();
        let disk = site.adopt("namespace");
        fs::create_dir(&disk).unwrap();
        shell(&disk, &format!("mount -t tmpfs -o mode=755,size={size} tmpfs ."));
        site.create(servers, &[]);
        site.start();
        site
    }

    fn empty() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "mounting needs root");
        let place = tempfile::tempdir_in("/tmp").unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(0o755)).unwrap();
        let namespace = place.path().join("namespace");
        Site { place, namespace, processes: Vec::new(), mounts: Vec::new() }
    }

    fn create(&self, servers: u32, options: &[&str]) {
        let mut create = ns("create");
        create.args(["--servers", &servers.to_string()]).args(options).arg(&self.namespace);
        success(&create.output().unwrap());
    }

    /// Runs `canopy cluster`; `@` is the namespace.
    pub fn cluster(&self, words: &[&str]) -> Output {
        self.cluster_command(words).output().unwrap()
    }

    fn cluster_command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(canopy_cluster());
        command.arg("cluster").current_dir(self.place.path());
        for word in words {
            match *word {
                "@" => command.arg(&self.namespace),
                word => command.arg(word),
            };
        }
        command
    }

    /// Starts a process and waits until it serves.
    pub fn start(&mut self) {
        let words = ["start", "@", "--listen", "127.0.0.1:0", "--lease", "0.5"];
        let mut command = self.cluster_command(&words);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = line.strip_prefix("listening on ").and_then(|said| said.split_once(','));
        let address = said.expect("it listens").0.to_owned();
        self.processes.push(Process { child, address });
    }

    /// Ends all processes in order.
    pub fn stop(&mut self) {
        for process in &self.processes {
            let id = nix::unistd::Pid::from_raw(process.child.id().cast_signed());
            nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        }
        for mut process in self.processes.drain(..) {
            process.child.wait().unwrap();
        }
    }

    /// The name of the cluster by the addresses of its processes.
    pub fn url(&self) -> String {
        let addresses = self.processes.iter().map(|process| process.address.as_str());
        format!("canopy://{}", Vec::from_iter(addresses).join(","))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A command that mounts the namespace on a directory of that name.
    pub fn mount_command(&mut self, source: &str, on: &str, options: &[&str]) -> Command {
        let on = self.path(on);
        if !self.mounts.contains(&on) {
            fs::create_dir(&on).unwrap();
            self.mounts.push(on.clone());
        }
        let mut command = ns("mount");
        command.env("XDG_CACHE_HOME", self.path("cache")).args(options).arg(source).arg(on);
        command
    }

    /// Returns a directory of that name, on which something mounts that is taken away in the end.
    pub fn adopt(&mut self, on: &str) -> PathBuf {
        let on = self.path(on);
        self.mounts.push(on.clone());
        on
    }

    /// Mounts the namespace by addresses, and returns the directory.
    pub fn mount(&mut self, on: &str, options: &[&str]) -> PathBuf {
        let url = self.url();
        success(&self.mount_command(&url, on, options).output().unwrap());
        self.path(on)
    }

    pub fn unmount(&self, on: &str) -> Output {
        ns("unmount").arg(self.path(on)).output().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for on in &self.mounts {
            while is_mounted(on) {
                let _ = Command::new("umount").arg("-l").arg(on).output();
            }
        }
    }
}

pub fn is_mounted(on: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    mounts.lines().any(|line| line.split(' ').nth(1) == on.to_str())
}

/// The fields of the mount on a directory: source, type and options.
pub fn mount_line(on: &Path) -> Option<String> {
    let mounts = fs::read_to_string("/proc/thread-self/mounts").unwrap();
    mounts.lines().find(|line| line.split(' ').nth(1) == on.to_str()).map(str::to_owned)
}
