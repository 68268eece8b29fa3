//! Machines of a network: network namespaces with one address each, which a bridge connects.

use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::process::{Command, Output};

/// Network namespaces of this test, which end with it.
pub struct Machines {
    prefix: String,
    count: usize,
}

#[track_caller]
fn ip(words: &[&str]) -> Output {
    let output = Command::new("ip").args(words).output().expect("the program ip");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {errors}", words.join(" "));
    output
}

impl Machines {
    /// Makes machines that reach each other.
    pub fn new(test: &str, count: usize) -> Self {
        let prefix = format!("canopy-{test}-{}", std::process::id());
        let machines = Machines { prefix, count };
        let hub = machines.hub();
        ip(&["netns", "add", &hub]);
        ip(&["-n", &hub, "link", "add", "bridge", "type", "bridge"]);
        ip(&["-n", &hub, "link", "set", "bridge", "up"]);
        for machine in 0..count {
            machines.add(machine);
        }
        machines
    }

    fn add(&self, machine: usize) {
        let (name, hub) = (self.name(machine), self.hub());
        let (port, address) = (port(machine), format!("{}/24", address(machine)));
        ip(&["netns", "add", &name]);
        let pair = ["type", "veth", "peer", "name", "eth0", "netns", &name];
        ip(&[&["link", "add", &port, "netns", &hub], &pair[..]].concat());
        ip(&["-n", &hub, "link", "set", &port, "master", "bridge", "up"]);
        ip(&["-n", &name, "address", "add", &address, "dev", "eth0"]);
        ip(&["-n", &name, "link", "set", "eth0", "up"]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    fn name(&self, machine: usize) -> String {
        format!("{}-{machine}", self.prefix)
    }

    /// Cuts a machine off from all others, or connects it again.
    pub fn cut(&self, machine: usize, is_cut: bool) {
        let state = if is_cut { "down" } else { "up" };
        ip(&["-n", &self.hub(), "link", "set", &port(machine), state]);
    }

    /// Returns a command that runs another one on a machine.
    pub fn command(&self, machine: usize, run: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(machine)]);
        command.arg(run.get_program()).args(run.get_args());
        if let Some(directory) = run.get_current_dir() {
            command.current_dir(directory);
        }
        command
    }

    /// Has this thread, and threads that it starts, be on a machine.
    pub fn enter(&self, machine: usize) {
        let file = File::open(format!("/run/netns/{}", self.name(machine))).expect("a namespace");
        setns(file, CloneFlags::CLONE_NEWNET).expect("another namespace");
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        for name in (0..self.count).map(|machine| self.name(machine)).chain([self.hub()]) {
            // One that was not made yet.
            let _ = Command::new("ip").args(["netns", "delete", &name]).output();
        }
    }
}

fn port(machine: usize) -> String {
    format!("port{machine}")
}

/// Returns the address of a machine.
pub fn address(machine: usize) -> String {
    format!("10.77.0.{}", machine + 1)
}
