//! Runs servers as processes, calls them, and prints the table.

use crate::{Protocol, certificates, frames, grpc};
use anyhow::{Context, Result};
use clap::ValueEnum;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Connections to the server.
const CLIENTS: usize = 8;
/// Time before a measurement.
const WARM_UP: Duration = Duration::from_millis(300);

struct Case {
    name: &'static str,
    protocol: Protocol,
    /// Operations that each connection has under way.
    operations: usize,
}

const CASES: [Case; 10] = [
    Case { name: "tonic unary, 1 at a time", protocol: Protocol::Unary, operations: 1 },
    Case { name: "tonic unary, 64 at a time", protocol: Protocol::Unary, operations: 64 },
    Case { name: "tonic streamed, 1 at a time", protocol: Protocol::Streamed, operations: 1 },
    Case { name: "tonic streamed, 64 at a time", protocol: Protocol::Streamed, operations: 64 },
    Case { name: "own frames of 1", protocol: Protocol::Frames, operations: 1 },
    Case { name: "own frames of 8", protocol: Protocol::Frames, operations: 8 },
    Case { name: "own frames of 64", protocol: Protocol::Frames, operations: 64 },
    Case { name: "own frames of 256", protocol: Protocol::Frames, operations: 256 },
    Case { name: "own of 1, another thread", protocol: Protocol::Elsewhere, operations: 1 },
    Case { name: "own of 64, another thread", protocol: Protocol::Elsewhere, operations: 64 },
];

/// A round of a case.
#[derive(Clone, Copy)]
struct Measured {
    per_second: f64,
    client_us: f64,
    server_us: f64,
}

/// Measures all cases in turns, and prints medians of their rounds.
pub fn run(seconds: f64, rounds: usize, only: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    certificates::write(directory.path())?;
    let cases = CASES.iter().flat_map(|case| [(case, None), (case, Some(directory.path()))]);
    let cases = Vec::from_iter(cases.filter(|(case, _)| case.name.contains(only)));
    let mut measured = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for ((case, tls), measured) in cases.iter().zip(&mut measured) {
            let round = round(case, *tls, Duration::from_secs_f64(seconds));
            measured.push(round.with_context(|| case.name)?);
        }
    }
    println!("| | TLS | operations/s | client us | server us |");
    println!("| --- | --- | ---: | ---: | ---: |");
    for ((case, tls), measured) in cases.iter().zip(measured) {
        let median = |value: fn(&Measured) -> f64| {
            let mut values = Vec::from_iter(measured.iter().map(value));
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        println!(
            "| {} | {} | {:.0} | {:.2} | {:.2} |",
            case.name,
            if tls.is_some() { "on" } else { "off" },
            median(|round| round.per_second),
            median(|round| round.client_us),
            median(|round| round.server_us),
        );
    }
    Ok(())
}

/// A server in a process of its own, which ends when this is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(protocol: Protocol, tls: Option<&Path>) -> Result<(Server, Vec<String>)> {
    let protocol = protocol.to_possible_value().context("a protocol has a name")?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", protocol.get_name(), &CLIENTS.to_string()]);
    if let Some(directory) = tls {
        command.arg("--tls").arg(directory);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = child.stdout.take().context("a server prints")?;
    let server = Server(child);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    Ok((server, line.split_whitespace().map(str::to_owned).collect()))
}

/// Returns the time of the processor that a process has used, in microseconds: that of its threads.
fn cpu_us(process: u32) -> Result<f64> {
    let mut sum = 0.0;
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        let time_ns = text.split_whitespace().next().context("schedstat has numbers")?;
        sum += time_ns.parse::<f64>()? / 1e3;
    }
    Ok(sum)
}

fn round(case: &Case, tls: Option<&Path>, time: Duration) -> Result<Measured> {
    let (server, addresses) = start(case.protocol, tls)?;
    // The tasks of tonic outlive no scope.
    let count: &'static AtomicU64 = Box::leak(Box::default());
    let stop: &'static AtomicBool = Box::leak(Box::default());
    let server_id = server.0.id();
    let now = || -> Result<(Instant, u64, f64, f64)> {
        let (client, server) = (cpu_us(std::process::id())?, cpu_us(server_id)?);
        Ok((Instant::now(), count.load(Ordering::Relaxed), client, server))
    };
    std::thread::scope(|scope| {
        let calling = scope.spawn(|| match case.protocol {
            Protocol::Frames | Protocol::Elsewhere => {
                frames::call(&addresses, case.operations, tls, count, stop)
            }
            protocol => {
                let is_streamed = protocol == Protocol::Streamed;
                let shape = (CLIENTS, case.operations);
                grpc::call(&addresses[0], is_streamed, shape, tls, count, stop)
            }
        });
        std::thread::sleep(WARM_UP);
        let begin = now()?;
        std::thread::sleep(time);
        let end = now()?;
        stop.store(true, Ordering::Relaxed);
        let called = calling.join().map_err(|_| anyhow::anyhow!("a client panicked"))?;
        called?;
        let operations = (end.1 - begin.1) as f64;
        Ok(Measured {
            per_second: operations / (end.0 - begin.0).as_secs_f64(),
            client_us: (end.2 - begin.2) / operations,
            server_us: (end.3 - begin.3) / operations,
        })
    })
}
