//! The table of rates: each figure beside its goal.

use crate::cluster::load::{
    Cost, Load, create, create_files, list, look_up, lookup, make_directory, name_of,
};
use crate::cluster::site::{Setup, Site};
use crate::cluster::{Arguments, heading};
use crate::measure::peak_memory_bytes;
use anyhow::{Result, anyhow};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, RenameMode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients where the goal does not state another number.
const CLIENTS: u32 = 8;

/// Prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    println!("| measure | goal | figure |\n| --- | --- | --- |");
    for at_once in [1, 8, 64] {
        creates(arguments, at_once)?;
    }
    heading("CPU time of servers per create, 1 to 8 servers", "within 10 %", &even(arguments)?);
    stats(arguments)?;
    listing(arguments)?;
    splitting(arguments)?;
    kill_and_drain(arguments)?;
    renames(arguments)?;
    for (measure, goal) in [
        ("entries moved when server N + 1 is added", "1 / (N + 1)"),
        ("mount, 8 processes, creates and stats", ">= bindfs"),
        ("one machine without servers", "within 2 %"),
    ] {
        heading(measure, goal, "not measured here: see CONTRIBUTING.md");
    }
    Ok(())
}

fn setup(arguments: &Arguments, servers: u32) -> Setup {
    Setup { servers, partitions: 4, split_entries: 8000, place: arguments.place() }
}

fn created(arguments: &Arguments, servers: u32, at_once: usize) -> Result<Cost> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, servers))?;
    let directory = make_directory(&site.connect()?)?;
    let load = Load { clients: CLIENTS, files: arguments.files, at_once };
    create_files(&site, directory, load)
}

fn creates(arguments: &Arguments, at_once: usize) -> Result<()> {
    let goal = match at_once {
        1 => "60,000 /s",
        64 => "250,000 /s",
        _ => "",
    };
    let cost = created(arguments, 1, at_once)?;
    let figure = format!(
        "{:.0} /s ({:.2} us; {:.2} us in the clients; {:.0} /s in all; {:.3} frames each)",
        cost.per_core(),
        cost.server_us(),
        1e6 * cost.client / cost.operations,
        cost.operations / cost.seconds,
        cost.frames / cost.operations,
    );
    let measure = format!("creates in one directory per server core, {at_once} operations a frame");
    heading(&measure, goal, &figure);
    Ok(())
}

fn even(arguments: &Arguments) -> Result<String> {
    let mut figures = Vec::new();
    for servers in [1, 2, 4, 8] {
        let cost = created(arguments, servers, 64)?;
        let (calls, moved) = (cost.calls / cost.operations, cost.moved);
        let time = cost.server_us();
        figures.push(format!("{servers}: {time:.2} us, {calls:.3} calls, {moved:.0} moved"));
    }
    Ok(figures.join("; "))
}

fn stats(arguments: &Arguments) -> Result<()> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 1))?;
    let directory = make_directory(&site.connect()?)?;
    let load = Load { clients: CLIENTS, files: arguments.files, at_once: 64 };
    create_files(&site, directory, load)?;
    let cost = look_up(&site, directory, load)?;
    let measure = format!("random stats, {} files, per core", load.files);
    let figure = format!("{:.0} /s ({:.2} us)", cost.per_core(), cost.server_us());
    heading(&measure, "170,000 /s", &figure);
    Ok(())
}

fn listing(arguments: &Arguments) -> Result<()> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 8))?;
    let client = site.connect()?;
    let directory = make_directory(&client)?;
    let load = Load { clients: CLIENTS, files: arguments.files, at_once: 64 };
    create_files(&site, directory, load)?;
    let (is_over, memory) = (AtomicBool::new(false), peak_memory_bytes());
    std::thread::scope(|scope| -> Result<()> {
        let creating = scope.spawn(|| -> Result<()> {
            let client = site.connect()?;
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let names = Vec::from_iter((0..64).map(|one| name_of(100 + one, number)));
                let all = names.iter().map(|one| create(directory, one, file_type::REGULAR));
                for reply in client.execute_all(Caller::Trusted, &Vec::from_iter(all)) {
                    reply?;
                }
            }
            Ok(())
        });
        let begin = Instant::now();
        let listed = list(&client, directory);
        let seconds = begin.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let created = creating.join().map_err(|_| anyhow!("a client panicked"))?;
        created?;
        let count = listed?;
        let rate = count as f64 / seconds;
        let more = peak_memory_bytes().saturating_sub(memory) >> 20;
        let figure = format!("{seconds:.2} s ({rate:.0} entries/s); {more} MB more in the client");
        let measure = format!("listing {count} entries on 8 servers during creates");
        heading(&measure, "20 M in 10 s; 64 MB", &figure);
        Ok(())
    })
}

fn splitting(arguments: &Arguments) -> Result<()> {
    let cost = created(arguments, 4, 8)?;
    let figure = format!(
        "{} ms; {:.2} of the mean ({:.0} entries moved)",
        cost.longest.as_millis(),
        cost.worst_share(),
        cost.moved
    );
    heading("creates while 4 servers split: longest wait; worst 100 ms", "100 ms; 0.5", &figure);
    Ok(())
}

fn kill_and_drain(arguments: &Arguments) -> Result<()> {
    let mut site = Site::start(&arguments.programs()?, &setup(arguments, 2))?;
    let client = site.connect()?;
    let directory = make_directory(&client)?;
    let load = Load { clients: 1, files: 20_000.min(arguments.files), at_once: 64 };
    create_files(&site, directory, load)?;
    // Names of all servers.
    let first_answer = |client: &canopy_cluster::Client| -> Result<Duration> {
        let begin = Instant::now();
        for number in 0..256 {
            let name = name_of(0, number);
            client.execute_for(Caller::Trusted, &lookup(directory, &name))?;
        }
        Ok(begin.elapsed())
    };
    first_answer(&client)?;
    site.servers.remove(1).kill();
    let killed = first_answer(&client)?;
    let figure = format!("{:.2} s", killed.as_secs_f64());
    heading("kill -9 of a server to the first answers of all", "lease (1 s) + 1 s", &figure);
    let server = site.start_server()?;
    site.servers.push(server);
    std::thread::sleep(Duration::from_secs(2));
    let draining = site.servers.remove(0);
    let waits = std::thread::scope(|scope| -> Result<Duration> {
        let ended = scope.spawn(|| draining.end());
        let mut longest = Duration::ZERO;
        while !ended.is_finished() {
            longest = longest.max(first_answer(&client)?);
        }
        ended.join().map_err(|_| anyhow!("a thread panicked"))??;
        Ok(longest.max(first_answer(&client)?))
    })?;
    heading("drain: longest wait of 256 look-ups", "200 ms", &format!("{} ms", waits.as_millis()));
    Ok(())
}

fn renames(arguments: &Arguments) -> Result<()> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 2))?;
    let client = site.connect()?;
    let count = (arguments.files / 20).clamp(100, 20_000);
    for (measure, goal, kind) in [
        ("renames of files between two directories, per core", "20,000 /s", file_type::REGULAR),
        ("renames of directories, per core", "2,000 /s", file_type::DIRECTORY),
    ] {
        let (from, to) = (make_directory(&client)?, make_directory(&client)?);
        for number in 0..count {
            client.execute_for(Caller::Trusted, &create(from, &name_of(0, number), kind))?;
        }
        let (before, begin) = (site.totals()?.0, Instant::now());
        for number in 0..count {
            let name = name_of(0, number);
            let rename = Change::Rename {
                from: EntryName::new(from, name.as_bytes()),
                to: EntryName::new(to, name.as_bytes()),
                mode: RenameMode::Replace,
                whiteout: None,
            };
            client.execute_for(Caller::Trusted, &Operation::Change(rename))?;
        }
        let per_core = f64::from(count) / (site.totals()?.0 - before);
        let per_second = f64::from(count) / begin.elapsed().as_secs_f64();
        heading(measure, goal, &format!("{per_core:.0} /s ({per_second:.0} /s of one client)"));
    }
    Ok(())
}
