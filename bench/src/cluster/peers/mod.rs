//! Peers in the same test: creates and look-ups in one directory, by libraries and by mounts. Each part
//! whose programs are not there is skipped.

mod ceph;
pub mod daemons;
mod moosefs;
mod redis;

use crate::cluster::load::{Load, create_files, look_up, make_directory};
use crate::cluster::mounts::{Bindfs, Rates, rates_in};
use crate::cluster::rates::{CLIENTS, setup};
use crate::cluster::site::Site;
use crate::cluster::{Arguments, mounts};
use crate::measure::median;
use anyhow::Result;
use ceph::Ceph;
use moosefs::MooseFs;
use redis::Redis;
use std::path::Path;

/// Share of the files that CephFS' library creates: it takes longer.
const OF_CEPH: u32 = 5;

/// Numbers of metadata servers.
const SERVERS: [u32; 2] = [1, 2];

/// Prints the rates of libraries, then those of mounts.
pub fn run(arguments: &Arguments) -> Result<()> {
    println!("| library, {CLIENTS} clients | creates/s | stats/s |\n| --- | ---: | ---: |");
    let best = own_libraries(arguments)?;
    redis(arguments)?;
    let ceph = ceph_libraries(arguments)?;
    if let Some(ceph) = ceph {
        println!(
            "\nCanopy's library creates {:.1} times as many as CephFS' (goal: 20).",
            best / ceph
        );
    }
    println!("\n| mount, {} processes | creates/s | stats/s |", mounts::PROCESSES);
    println!("| --- | ---: | ---: |");
    let (own, peers) = (own_mounts(arguments)?, peers_mounts(arguments)?);
    if let Some(best) = peers.into_iter().reduce(f64::max) {
        println!(
            "\nCanopy's mount creates {:.2} times as many as the best peer's (goal: 1.5).",
            own / best
        );
    }
    println!("\n{}", tuning());
    Ok(())
}

fn tuning() -> String {
    "Everything lies in memory. CephFS: one monitor, one storage daemon with memstore, pools of one copy \
     and 8 groups, no scrubbing, logs off, 4 GiB of cache; its library is called by mknod, which is \
     faster than open and close. MooseFS: the master alone, since files are empty. Redis: no snapshots \
     and no log. bindfs: many threads, over tmpfs."
        .to_owned()
}

fn print(name: &str, rates: Rates) {
    println!("| {name} | {:.0} | {:.0} |", rates.creates, rates.stats);
}

fn own_libraries(arguments: &Arguments) -> Result<f64> {
    let mut best = f64::NAN;
    for servers in SERVERS {
        let site = Site::start(&arguments.programs()?, &setup(arguments, servers))?;
        for at_once in [1, 64] {
            let directory = make_directory(&site.connect()?)?;
            let load = Load { clients: CLIENTS, files: arguments.files, at_once, shift: 1 };
            let created = create_files(&site, directory, load)?;
            let found = look_up(&site, directory, load)?;
            let [creates, stats] = [created, found].map(|cost| cost.operations / cost.seconds);
            best = best.max(creates);
            let name = format!("Canopy, {servers} servers, {at_once} operations at once");
            print(&name, Rates { creates, stats });
        }
    }
    Ok(best)
}

fn redis(arguments: &Arguments) -> Result<()> {
    let Some(redis) = Redis::start(&arguments.scratch)? else {
        println!("| Redis | skipped: redis-server is not installed | |");
        return Ok(());
    };
    for at_once in [1, 64] {
        let before = redis.cpu_seconds()?;
        let rates = redis.rates(CLIENTS, arguments.files, at_once)?;
        let each = (redis.cpu_seconds()? - before) / f64::from(2 * arguments.files) * 1e6;
        print(&format!("Redis, {at_once} operations at once ({each:.2} us of the server)"), rates);
    }
    Ok(())
}

fn ceph_libraries(arguments: &Arguments) -> Result<Option<f64>> {
    let mut best = None;
    for servers in SERVERS {
        let Some(ceph) = Ceph::start(&arguments.scratch, servers)? else {
            println!("| CephFS | skipped: its programs are not installed | |");
            return Ok(None);
        };
        let rates = ceph.library(CLIENTS, arguments.files / OF_CEPH)?;
        best = Some(rates.creates.max(best.unwrap_or(0.0)));
        print(&format!("CephFS, {servers} MDS"), rates);
    }
    Ok(best)
}

/// Measures a mount several times, prints medians, and returns that of creates.
fn mount(arguments: &Arguments, name: &str, directory: &Path) -> Result<f64> {
    let (mut creates, mut stats) = (Vec::new(), Vec::new());
    for _ in 0..arguments.repeats.max(1) {
        let rates = rates_in(directory, arguments.mounted)?;
        creates.push(rates.creates);
        stats.push(rates.stats);
    }
    let rates = Rates { creates: median(creates), stats: median(stats) };
    print(name, rates);
    Ok(rates.creates)
}

fn own_mounts(arguments: &Arguments) -> Result<f64> {
    let mut best = f64::NAN;
    for servers in SERVERS {
        let site = Site::start(&arguments.programs()?, &setup(arguments, servers))?;
        let mounted = site.mount()?;
        let name = format!("Canopy, {servers} servers");
        best = best.max(mount(arguments, &name, &mounted.directory)?);
    }
    Ok(best)
}

/// Returns the rates of mounts of file systems on several machines: bindfs is none.
fn peers_mounts(arguments: &Arguments) -> Result<Vec<f64>> {
    let mut rates = Vec::new();
    for servers in SERVERS {
        let mounted = match Ceph::start(&arguments.scratch, servers)? {
            Some(ceph) => ceph.mount()?.map(|mounted| (mounted, ceph)),
            None => None,
        };
        let Some((mounted, ceph)) = mounted else {
            println!("| ceph-fuse | skipped: it is not installed | |");
            break;
        };
        let name = format!("ceph-fuse, {servers} MDS");
        rates.push(mount(arguments, &name, &mounted.directory)?);
        drop(mounted);
        drop(ceph);
    }
    match MooseFs::start(&arguments.scratch)? {
        Some(moose) => rates.push(mount(arguments, "MooseFS", &moose.mounted.directory)?),
        None => println!("| MooseFS | skipped: it is not installed | |"),
    }
    match Bindfs::start(&arguments.scratch)? {
        Some(bindfs) => _ = mount(arguments, "bindfs", &bindfs.mounted.directory)?,
        None => println!("| bindfs | skipped: it is not installed | |"),
    }
    Ok(rates)
}
