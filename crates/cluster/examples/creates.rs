//! Measures creates and look-ups in one directory that is spread over servers of this process:
//! `cargo run --release -p canopy-cluster --example creates [FILES [SESSION]]`. Prints thousands of operations
//! per second of CPU time, partitions, and addressing errors of the client. Session 0 is that of
//! servers: its changes have no record of their replies.

use canopy_cluster::{Client, Process, SessionId, create_cluster};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Moment, Operation, Read};
use canopy_namespace::{EntryName, New, Ownership, ROOT, Settings, system_clock};
use canopy_partition::SplitPolicy;
use canopy_store::Environment;
use canopy_store::storage::MemoryStorage;
use std::borrow::Cow;
use std::error::Error;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let files = std::env::args().nth(1).map_or(Ok(200_000), |count| count.parse())?;
    let session = std::env::args().nth(2).map_or(Ok(1), |session| session.parse())?;
    println!("servers  creates k/s  look-ups k/s  partitions  addressing errors");
    for servers in [1, 2, 4, 8] {
        measure(servers, files, SessionId(session))?;
    }
    Ok(())
}

fn measure(servers: u32, files: u32, session: SessionId) -> Result<(), Box<dyn Error>> {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let clock = system_clock();
    create_cluster(
        &environment,
        &Settings::default(),
        Ownership::ROOT,
        servers,
        SplitPolicy::default(),
        &clock,
    )?;
    let process = Process::with_all_servers(&environment, &clock)?;
    process.look_after()?;
    let client = Client::new(process.clone(), session);
    let names: Vec<String> = (0..files).map(|number| format!("file{number}")).collect();
    let started = cpu_seconds();
    for name in &names {
        let new = New { mode: file_type::REGULAR | 0o644, ..New::default() };
        let name = EntryName::new(ROOT, name.as_bytes());
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        client.execute_for(Caller::Trusted, &Operation::Change(create))?;
    }
    process.settle();
    let created = cpu_seconds();
    for name in &names {
        let lookup = Read::Lookup(EntryName::new(ROOT, name.as_bytes()));
        client.execute_for(Caller::Trusted, &Operation::Read(Moment::Now, lookup))?;
    }
    let rate = |seconds: f64| f64::from(files) / seconds / 1000.0;
    println!(
        "{servers:7}  {:11.0}  {:12.0}  {:10}  {:17}",
        rate(created - started),
        rate(cpu_seconds() - created),
        process.partitions(ROOT)?.len(),
        client.addressing_errors(),
    );
    Ok(())
}

/// Returns the CPU time of all threads of this process in seconds.
fn cpu_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanoseconds = tasks.filter_map(|task| {
        let schedstat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        schedstat.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 / 1e9
}
