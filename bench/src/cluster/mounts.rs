//! Mounts: their rates beside bindfs, and messages for each operation.

use crate::cluster::load::{Load, create_files, look_up, make_directory};
use crate::cluster::peers::daemons::Own;
use crate::cluster::rates::{Row, setup};
use crate::cluster::site::{Mounted, Site, output_of};
use crate::cluster::{Arguments, find_program};
use crate::measure::median;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

/// Processes that use a mount at once.
pub const PROCESSES: u32 = 8;

/// Rates of all processes together.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    pub creates: f64,
    pub stats: f64,
}

/// Runs `canopy-bench mdtest` in a directory. Processes look up what others have created.
pub fn rates_in(directory: &Path, files: u32) -> Result<Rates> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let directory = directory.join(format!("mdtest-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["mdtest", "-F", "-N", "1", "--ranks", &PROCESSES.to_string()]);
    let table = output_of(command.args(["-n", &files.to_string(), "-d"]).arg(directory))?;
    let rate = |name: &str| {
        let line = table.lines().find_map(|line| line.trim().strip_prefix(name));
        let number = line.and_then(|line| line.split_whitespace().nth(2));
        number.context("a table of rates")?.parse::<f64>().context("a rate")
    };
    Ok(Rates { creates: rate("File creation")?, stats: rate("File stat")? })
}

/// Measures some directories in turns, several times, and returns medians.
pub fn medians(arguments: &Arguments, directories: &[&Path]) -> Result<Vec<Rates>> {
    let mut all = vec![(Vec::new(), Vec::new()); directories.len()];
    for _ in 0..arguments.repeats.max(1) {
        for (directory, (creates, stats)) in directories.iter().zip(&mut all) {
            let rates = rates_in(directory, arguments.mounted)?;
            creates.push(rates.creates);
            stats.push(rates.stats);
        }
    }
    let medians = all.into_iter().map(|(creates, stats)| (median(creates), median(stats)));
    Ok(medians.map(|(creates, stats)| Rates { creates, stats }).collect())
}

/// A directory of bindfs on one in memory.
pub struct Bindfs {
    pub mounted: Mounted,
    _below: Own,
}

impl Bindfs {
    /// Mounts a new directory by bindfs, if it is installed.
    pub fn start(scratch: &Path) -> Result<Option<Self>> {
        let Some(program) = find_program("bindfs") else { return Ok(None) };
        let (below, mounted) = (Own::new(scratch, "bindfs")?, Mounted::prepared()?);
        let mut command = Command::new(program);
        command.arg("--multithreaded").arg(below.path()).arg(&mounted.directory);
        output_of(&mut command)?;
        Ok(Some(Bindfs { mounted, _below: below }))
    }
}

/// Compares a mount of one server with bindfs.
pub fn beside_bindfs(arguments: &Arguments) -> Result<Vec<Row>> {
    let (measure, goal) = ("mount, 8 processes, creates and stats", ">= bindfs");
    let Some(bindfs) = Bindfs::start(&arguments.scratch)? else {
        return Ok(vec![Row::new(measure, goal, "skipped: bindfs is not installed".to_owned())]);
    };
    let site = Site::start(&arguments.programs()?, &setup(arguments, 1))?;
    let mounted = site.mount()?;
    let rates = medians(arguments, &[&mounted.directory, &bindfs.mounted.directory])?;
    let [own, other] = rates[..] else { return Ok(Vec::new()) };
    let figure = format!(
        "creates {:.0} /s, {:.2} times bindfs' {:.0}; stats {:.0} /s, {:.2} times bindfs' {:.0}",
        own.creates,
        own.creates / other.creates,
        other.creates,
        own.stats,
        own.stats / other.stats,
        other.stats
    );
    Ok(vec![Row::new(measure, goal, figure)])
}

/// Compares mounts of a namespace without servers by two programs.
pub fn one_machine(arguments: &Arguments) -> Result<Vec<Row>> {
    let (measure, goal) = ("one machine without servers, mount", "within 2 % of before");
    let Some(before) = &arguments.before else {
        let figure = "skipped: --before is not given".to_owned();
        return Ok(vec![Row::new(measure, goal, figure)]);
    };
    let own = Own::new(&arguments.scratch, "one")?;
    let mount = |programs: &Path, name: &str| -> Result<Mounted> {
        let (program, namespace) = (programs.join("canopy-ns"), own.path().join(name));
        output_of(Command::new(&program).args(["ns", "create"]).arg(&namespace))?;
        let mounted = Mounted::prepared()?;
        let mut command = Command::new(&program);
        output_of(command.args(["ns", "mount"]).arg(&namespace).arg(&mounted.directory))?;
        Ok(mounted)
    };
    let (now, then) = (mount(&arguments.programs()?, "now")?, mount(before, "before")?);
    let rates = medians(arguments, &[&now.directory, &then.directory])?;
    let [now, then] = rates[..] else { return Ok(Vec::new()) };
    let (creates, stats) = (now.creates / then.creates, now.stats / then.stats);
    let figure = format!("creates {creates:.3}, stats {stats:.3} times those of before");
    Ok(vec![Row::new(measure, goal, figure)])
}

/// Prints Table 1: the messages that operations cost.
pub fn messages(arguments: &Arguments) -> Result<()> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 4))?;
    let files = arguments.mounted;
    println!("| operation | library | mount | the paper's library and mount |");
    println!("| --- | ---: | ---: | --- |");
    let directory = make_directory(&site.connect()?)?;
    let load = Load { clients: 1, files, at_once: 1, shift: 0 };
    let created = create_files(&site, directory, load)?;
    let found = look_up(&site, directory, load)?;
    let library = [created, found].map(|cost| format!("{:.2}", cost.calls / cost.operations));
    let mounted = site.mount()?;
    let directory = mounted.directory.join("messages");
    fs::create_dir(&directory)?;
    let path = |number: u32| directory.join(format!("file-{number}"));
    let calls = || -> Result<f64> {
        Ok(site.totals()?.1.get("calls_total").copied().context("servers count calls")? as f64)
    };
    let cost = |work: &dyn Fn(u32) -> std::io::Result<()>| -> Result<String> {
        let before = calls()?;
        (0..files).try_for_each(work)?;
        Ok(format!("{:.2}", (calls()? - before) / f64::from(files.max(1))))
    };
    let create = cost(&|number| File::create(path(number)).map(drop))?;
    let stat = cost(&|number| path(number).symlink_metadata().map(drop))?;
    let open = cost(&|number| File::open(path(number)).map(drop))?;
    let remove = cost(&|number| fs::remove_file(path(number)))?;
    println!("| create | {} | {create} | 1, 3 |", library[0]);
    println!("| stat | {} | {stat} | |", library[1]);
    println!("| open | | {open} | |\n| remove | | {remove} | |");
    println!("\n4 servers, {files} files; calls of servers to each other are counted, too.");
    Ok(())
}
