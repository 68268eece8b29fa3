//! Waits of clients when a server dies, and when one hands its work over.

use crate::cluster::Arguments;
use crate::cluster::load::{Load, create_files, lookup, make_directory, name_of};
use crate::cluster::rates::{Row, setup};
use crate::cluster::site::Site;
use anyhow::{Result, anyhow};
use canopy_cluster::Client;
use canopy_namespace::FileId;
use canopy_namespace::operation::Caller;
use std::time::{Duration, Instant};

/// Files that are looked up in turn: some are on each server.
const FILES: u32 = 256;

/// Entries in the directory, enough for partitions on both servers.
const ENTRIES: u32 = 20_000;

/// Measures both on one site of two servers.
pub fn kill_and_drain(arguments: &Arguments) -> Result<Vec<Row>> {
    let mut site = Site::start(&arguments.programs()?, &setup(arguments, 2))?;
    let client = site.connect()?;
    let directory = make_directory(&client)?;
    let load = Load { clients: 1, files: ENTRIES, at_once: 64, shift: 0 };
    create_files(&site, directory, load)?;
    longest_wait(&client, directory)?;
    site.servers.remove(1).kill();
    let killed = longest_wait(&client, directory)?;
    let added = site.start_server()?;
    site.servers.push(added);
    site.wait_until_even()?;
    // The client finds servers that have moved.
    longest_wait(&client, directory)?;
    let draining = site.servers.remove(0);
    let drained = std::thread::scope(|scope| -> Result<Duration> {
        let ended = scope.spawn(|| draining.end());
        let mut longest = Duration::ZERO;
        while !ended.is_finished() {
            longest = longest.max(longest_wait(&client, directory)?);
        }
        ended.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok(longest.max(longest_wait(&client, directory)?))
    })?;
    Ok(vec![
        Row::new(
            "kill -9 of a server: longest wait of a look-up",
            "lease (1 s) + 1 s",
            format!("{:.2} s", killed.as_secs_f64()),
        ),
        Row::new(
            "drain of a server: longest wait of a look-up",
            "200 ms",
            format!("{} ms", drained.as_millis()),
        ),
    ])
}

fn longest_wait(client: &Client, directory: FileId) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    for number in 0..FILES {
        let (name, begin) = (name_of(0, number), Instant::now());
        client.execute_for(Caller::Trusted, &lookup(directory, &name))?;
        longest = longest.max(begin.elapsed());
    }
    Ok(longest)
}
