//! The table of rates: each figure beside its goal.

use crate::cluster::load::{
    Cost, Load, create_all, create_files, look_up, make_directory, run as run_load,
};
use crate::cluster::site::{Setup, Site};
use crate::cluster::{Arguments, availability, mounts, scale};
use anyhow::{Result, anyhow};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Operation};
use canopy_namespace::{EntryName, FileId, RenameMode};

/// Clients where the goal does not state another number.
pub const CLIENTS: u32 = 8;

/// Clients that rename, each one file at a time.
const RENAMING: u32 = 32;

/// A row of the table.
pub struct Row {
    pub measure: String,
    pub goal: &'static str,
    pub figure: String,
}

impl Row {
    pub fn new(measure: impl Into<String>, goal: &'static str, figure: String) -> Self {
        Row { measure: measure.into(), goal, figure }
    }
}

/// Prints the table. A row that fails does not keep others from being measured.
pub fn run(arguments: &Arguments) -> Result<()> {
    println!("| measure | goal | figure |\n| --- | --- | --- |");
    type Measure = fn(&Arguments) -> Result<Vec<Row>>;
    let all: [(&str, Measure); 10] = [
        ("creates", creates),
        ("CPU time by servers", even),
        ("stats", stats),
        ("listing", scale::listing),
        ("splits", splitting),
        ("kill -9 and drain", availability::kill_and_drain),
        ("a server that is added", scale::added),
        ("renames", renames),
        ("mount", mounts::beside_bindfs),
        ("one machine", mounts::one_machine),
    ];
    let is_wanted = |name: &str| arguments.only.as_ref().is_none_or(|only| name.contains(only));
    let mut failed = Vec::new();
    for (name, measure) in all.into_iter().filter(|(name, _)| is_wanted(name)) {
        match measure(arguments) {
            Ok(rows) => rows
                .iter()
                .for_each(|row| println!("| {} | {} | {} |", row.measure, row.goal, row.figure)),
            Err(error) => {
                println!("| {name} | | failed: {error:#} |");
                failed.push(name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(anyhow!("not measured: {}", failed.join(", "))) }
}

/// Returns the usual settings of namespaces.
pub fn setup(arguments: &Arguments, servers: u32) -> Setup {
    Setup { servers, partitions: 4, split_entries: 8000, place: arguments.place() }
}

fn created(arguments: &Arguments, servers: u32, at_once: usize) -> Result<Cost> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, servers))?;
    let directory = make_directory(&site.connect()?)?;
    let files = servers.saturating_mul(arguments.files);
    create_files(&site, directory, Load { clients: CLIENTS, files, at_once, shift: 0 })
}

fn creates(arguments: &Arguments) -> Result<Vec<Row>> {
    let rows = [(1, "60,000 /s"), (8, ""), (64, "250,000 /s")].map(|(at_once, goal)| {
        let cost = created(arguments, 1, at_once)?;
        let figure = format!(
            "{:.0} /s ({:.2} us; {:.2} us in the clients; {:.0} /s in all; {:.3} frames each)",
            cost.per_core(),
            cost.server_us(),
            1e6 * cost.client / cost.operations,
            cost.operations / cost.seconds,
            cost.frames / cost.operations,
        );
        let measure =
            format!("creates in one directory per server core, {at_once} operations a frame");
        Ok(Row::new(measure, goal, figure))
    });
    rows.into_iter().collect()
}

fn even(arguments: &Arguments) -> Result<Vec<Row>> {
    let (mut figures, mut times) = (Vec::new(), Vec::new());
    for servers in [1, 2, 4, 8] {
        // A call sends 256 operations at most, 32 to each of 8 servers.
        let cost = created(arguments, servers, 32 * servers as usize)?;
        let (time, moved) = (cost.server_us(), cost.moved);
        let frames = cost.frames / cost.operations;
        times.push(time);
        figures.push(format!("{servers}: {time:.2} us, {frames:.3} frames, {moved:.0} moved"));
    }
    let most = times.iter().copied().fold(f64::MIN, f64::max);
    let least = times.iter().copied().fold(f64::MAX, f64::min);
    let measure = format!(
        "CPU time of servers per create, 1 to 8 servers, {} files for each, 32 operations a frame",
        arguments.files
    );
    let figure = format!("{:.0} % ({})", 100.0 * (most / least - 1.0), figures.join("; "));
    Ok(vec![Row::new(measure, "within 10 %", figure)])
}

fn stats(arguments: &Arguments) -> Result<Vec<Row>> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 1))?;
    let directory = make_directory(&site.connect()?)?;
    let load = Load { clients: CLIENTS, files: arguments.looked_up, at_once: 64, shift: 0 };
    create_files(&site, directory, load)?;
    let cost = look_up(&site, directory, load)?;
    let measure = format!("random stats, {} files, per core", load.files);
    let figure = format!("{:.0} /s ({:.2} us)", cost.per_core(), cost.server_us());
    Ok(vec![Row::new(measure, "170,000 /s", figure)])
}

fn splitting(arguments: &Arguments) -> Result<Vec<Row>> {
    let cost = created(arguments, 4, 8)?;
    let figure = format!(
        "{} ms; {:.2} of the mean ({:.0} entries moved)",
        cost.longest.as_millis(),
        cost.worst_share(),
        cost.moved
    );
    let measure = "creates while 4 servers split: longest wait; worst 100 ms";
    Ok(vec![Row::new(measure, "100 ms; 0.5 of the mean", figure)])
}

fn renames(arguments: &Arguments) -> Result<Vec<Row>> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 2))?;
    let count = (arguments.files / 5).clamp(640, 20_000);
    // A move of a directory takes ten times as long.
    let counts = [count, count / 10];
    let rows = [
        ("renames of files between two directories on two servers, per core", "20,000 /s"),
        ("renames of directories, per core", "2,000 /s"),
    ];
    let kinds = [file_type::REGULAR, file_type::DIRECTORY];
    let rows = rows.into_iter().zip(kinds.into_iter().zip(counts));
    let rows = rows.map(|((measure, goal), (kind, files))| {
        let client = site.connect()?;
        let (from, to) = (make_directory(&client)?, make_directory(&client)?);
        let load = Load { clients: RENAMING, files, at_once: 64, shift: 0 };
        create_all(&site, from, load, kind)?;
        let cost = rename_all(&site, (from, to), Load { at_once: 1, ..load })?;
        let figure = format!(
            "{:.0} /s ({:.0} us, {:.1} calls each; {:.0} /s of {RENAMING} clients)",
            cost.per_core(),
            cost.server_us(),
            cost.calls / cost.operations,
            cost.operations / cost.seconds,
        );
        Ok(Row::new(measure, goal, figure))
    });
    rows.collect()
}

fn rename_all(site: &Site, (from, to): (FileId, FileId), load: Load) -> Result<Cost> {
    run_load(site, load, &|client, names| {
        names.iter().try_for_each(|name| {
            let rename = Change::Rename {
                from: EntryName::new(from, name.as_bytes()),
                to: EntryName::new(to, name.as_bytes()),
                mode: RenameMode::Replace,
                whiteout: None,
            };
            client.execute_for(Caller::Trusted, &Operation::Change(rename))?;
            Ok(())
        })
    })
}
