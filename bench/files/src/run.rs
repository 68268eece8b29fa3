//! All jobs on all directories: rounds, then jobs, then directories, so that what is compared is
//! measured within the same minutes. The first directory of a round is another one each time.

use crate::bench::{Bench, Settings};
use crate::jobs::{self, Job};
use crate::place::{Fixture, Target};
use crate::report::Report;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

/// Space that all jobs need at scale 1. PostMark takes most of it.
const NEEDED_BYTES: f64 = 6e9;

#[derive(Args)]
#[command(after_help = "Example: canopy-bench-files run ext4=/var/tmp/a tmpfs=/dev/shm/a \
    bindfs=/mnt/b --backing bindfs=/var/tmp/b --rounds 3\nA pass-through of ext4: \
    apt-get install bindfs; bindfs /var/tmp/b /mnt/b")]
pub struct Run {
    /// Empty directories, each on the file system that it is to measure; ratios are to the first
    #[arg(required = true, value_name = "NAME=DIRECTORY", value_parser = named)]
    directories: Vec<(String, PathBuf)>,
    /// How often each directory is measured
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Parts to measure: iv (create, update), v (postmark, application), vi (search), rates
    #[arg(long, value_delimiter = ',', value_name = "TABLE")]
    only: Vec<String>,
    /// Multiplies numbers of files, transactions and bytes
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// A file for every figure of every round
    #[arg(long)]
    csv: Option<PathBuf>,
    /// A source tree to copy, and to build if it has a Makefile; made up by default
    #[arg(long, value_name = "DIRECTORY")]
    source: Option<PathBuf>,
    /// Where the file system NAME keeps its data: is synced with it, since FUSE passes no syncfs on
    #[arg(long, value_name = "NAME=DIRECTORY", value_parser = named)]
    backing: Vec<(String, PathBuf)>,
    /// Never drop the system's caches, which slows down all that it runs
    #[arg(long)]
    warm: bool,
    /// The same seed gives the same files
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn named(argument: &str) -> Result<(String, PathBuf)> {
    let (name, path) = argument.split_once('=').context("must be NAME=DIRECTORY")?;
    ensure!(!name.is_empty() && !path.is_empty(), "must be NAME=DIRECTORY");
    Ok((name.into(), path.into()))
}

/// Runs everything. A job that fails on a directory fails there alone, and makes the exit code 1.
pub fn run(run: &Run) -> Result<ExitCode> {
    ensure!((0.0001..=100.0).contains(&run.scale), "--scale must be from 0.0001 to 100");
    ensure!(run.rounds > 0, "--rounds must be at least 1");
    let targets = targets(run)?;
    let jobs = jobs::chosen(&run.only)?;
    let settings = settings(run)?;
    let mut report = Report::new(targets.iter().map(|target| target.name.clone()).collect());
    if settings.cold.is_none() {
        report.note("caches are not dropped: that needs root, and no --warm".into());
    }
    for round in 0..run.rounds {
        eprintln!("round {} of {}", round + 1, run.rounds);
        for job in &jobs {
            report.section(job.section);
            for turn in 0..targets.len() {
                let at = (round + turn) % targets.len();
                measure(job, &targets[at], &settings, &mut report);
            }
            if let Some(csv) = &run.csv {
                report.write_csv(csv).with_context(|| format!("{}", csv.display()))?;
            }
        }
    }
    println!("seed {}, scale {}, medians of {} rounds", run.seed, run.scale, run.rounds);
    print!("{}", report.table());
    Ok(if report.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn measure(job: &Job, target: &Target, settings: &Settings, report: &mut Report) {
    eprintln!("{}: {}", target.name, job.name);
    report.directory(&target.name);
    let mut done = || {
        let place = Fixture::create(target)?;
        let mut bench = Bench { place: &place, settings, report };
        bench.settle()?;
        (job.run)(&mut bench)
    };
    if let Err(error) = done() {
        eprintln!("{}: {}: {error:#}", target.name, job.name);
        report.failure(format!("{}: {}: {error:#}", target.name, job.name));
    }
}

fn targets(run: &Run) -> Result<Vec<Target>> {
    for (name, _) in &run.backing {
        let is_named = run.directories.iter().any(|(other, _)| other == name);
        ensure!(is_named, "--backing {name}: no directory has this name");
    }
    let mut targets: Vec<Target> = Vec::new();
    for (name, path) in &run.directories {
        if targets.iter().any(|target| target.name == *name) {
            bail!("two directories have the name {name}");
        }
        let backing = run.backing.iter().find(|(of, _)| of == name).map(|(_, path)| path.clone());
        let target = Target { name: name.clone(), directory: path.clone(), backing };
        target.check((NEEDED_BYTES * run.scale) as u64)?;
        targets.push(target);
    }
    Ok(targets)
}

fn settings(run: &Run) -> Result<Settings> {
    let source = match &run.source {
        Some(path) => {
            Some(path.canonicalize().with_context(|| format!("--source {}", path.display()))?)
        }
        None => None,
    };
    let cold = if run.warm { None } else { crate::bench::caches() };
    Ok(Settings { scale: run.scale, seed: run.seed, source, cold })
}
