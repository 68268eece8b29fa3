//! Measures canopy-store beside other engines on the same records, in turns; see README.md.

mod engines;
mod latency;
mod measure;
mod process;
mod records;
mod report;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use records::Records;
use report::Report;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// That of Canopy's commands, for all engines but the parts of RocksDB, which are C++.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Measure canopy-store beside other engines")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Measure engines in turns, each in processes of its own, and print medians
    Run(Run),
    /// Make the files of the records (`run` does so)
    #[command(hide = true)]
    Prepare { count: usize, data: PathBuf },
    /// Measure one engine in this process
    #[command(hide = true)]
    Measure { engine: String, data: PathBuf, directory: PathBuf, updates: usize },
    /// Fill a log and wait to be killed
    #[command(hide = true)]
    Fill { engine: String, data: PathBuf, directory: PathBuf, log_bytes: usize },
    /// Open what a process that was killed left
    #[command(hide = true)]
    Recover { engine: String, data: PathBuf, directory: PathBuf },
}

#[derive(Args)]
struct Run {
    /// An existing directory for all files, which are removed at the end
    directory: PathBuf,
    /// How many records
    #[arg(long, default_value_t = 2_000_000)]
    records: usize,
    /// How many random updates
    #[arg(long, default_value_t = 3_000_000)]
    updates: usize,
    /// How often each engine is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many MiB of log are recovered; 0 to leave that out
    #[arg(long, default_value_t = 1024)]
    log_mib: usize,
    /// Engines to measure, in their order; all, if none is named
    #[arg(long, value_delimiter = ',')]
    engines: Vec<String>,
    /// A file for every figure of every round
    #[arg(long)]
    csv: Option<PathBuf>,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Task::Run(run) => run_all(&run),
        Task::Prepare { count, data } => records::prepare(count, &data),
        Task::Measure { engine, data, directory, updates } => {
            measure::measure(&engine, &directory, &Records::open(&data)?, updates)
        }
        Task::Fill { engine, data, directory, log_bytes } => {
            measure::fill(&engine, &directory, &Records::open(&data)?, log_bytes)
        }
        Task::Recover { engine, data, directory } => {
            measure::recover(&engine, &directory, &Records::open(&data)?)
        }
    }
}

fn run_all(run: &Run) -> Result<()> {
    let all = || engines::NAMES.iter().map(|name| name.to_string()).collect();
    let names = if run.engines.is_empty() { all() } else { run.engines.clone() };
    if let Some(name) = names.iter().find(|name| !engines::NAMES.contains(&name.as_str())) {
        bail!("there is no engine {name:?} in this build; there are {:?}", engines::NAMES);
    }
    let place = tempfile::tempdir_in(&run.directory).context("no directory for the files")?;
    let data = place.path().join("records");
    std::fs::create_dir(&data)?;
    child(&["prepare", &run.records.to_string()], &[&data], &[], |_, _| false)?;
    let mut report = Report::default();
    for round in 0..run.rounds {
        for name in &names {
            eprintln!("round {} of {}, {name}", round + 1, run.rounds);
            let begin = Instant::now();
            let mut add = |figure: &str, value| {
                report.add(name, figure, value);
                eprintln!("  {figure} {value:.3}");
                figure == "log_is_full"
            };
            let directory = tempfile::tempdir_in(place.path())?;
            let paths = [&data, directory.path()];
            child(&["measure", name], &paths, &[&run.updates.to_string()], &mut add)?;
            drop(directory);
            if run.log_mib > 0 {
                let directory = tempfile::tempdir_in(place.path())?;
                let paths = [&data, directory.path()];
                let log_bytes = (run.log_mib << 20).to_string();
                child(&["fill", name], &paths, &[&log_bytes], &mut add)?;
                child(&["recover", name], &paths, &[], &mut add)?;
            }
            report.add(name, "seconds", begin.elapsed().as_secs_f64());
            if let Some(csv) = &run.csv {
                report.write_csv(csv)?;
            }
        }
    }
    println!("{}", engines::SETTINGS);
    println!(
        "{} records of {:.1} bytes, {} updates, medians of {} rounds",
        run.records,
        Records::open(&data)?.bytes() as f64 / run.records as f64,
        run.updates,
        run.rounds,
    );
    print!("{}", report.table(&names));
    Ok(())
}

/// Runs a task of this program in a process of its own. `add` gets its figures, and says whether
/// to kill it.
fn child(
    task: &[&str],
    paths: &[&Path],
    more: &[&str],
    mut add: impl FnMut(&str, f64) -> bool,
) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(task).args(paths).args(more).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let lines = BufReader::new(child.stdout.take().context("no pipe")?).lines();
    for line in lines {
        let line = line?;
        let (figure, value) = line.split_once('\t').context("not a figure")?;
        if add(figure, value.parse()?) {
            child.kill()?;
            child.wait()?;
            return Ok(());
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "{task:?}: {status}");
    Ok(())
}
