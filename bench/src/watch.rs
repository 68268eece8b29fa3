//! `canopy watch` while files are created at a steady rate: how late they are in the index, and what
//! memory the daemon takes.

use crate::measure::{median, seconds};
use crate::process::OfTree;
use crate::update::BindMounts;
use anyhow::{Context, ensure};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    of_tree: OfTree,
    /// Files of a tree that is followed and does not change, ten a directory
    #[arg(long, default_value_t = 1_000_000)]
    files: usize,
    /// Index and follow that tree so many times, by bind mounts, each as a source of its own
    #[arg(long, default_value_t = 1)]
    copies: usize,
    /// Files to create a second
    #[arg(long, default_value_t = 20_000)]
    rate: usize,
    /// For how many seconds
    #[arg(long, default_value_t = 30)]
    seconds: usize,
    /// Directories that they are created in
    #[arg(long, default_value_t = 100)]
    directories: usize,
    /// A change is to be in the index after so many seconds, as `canopy watch --interval` takes it
    #[arg(long, default_value_t = 5.0)]
    interval: f64,
}

/// Files of a directory of the tree.
const FILES: usize = 10;

/// How long what was created last may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes the tree, measures, removes the tree, and prints a table in Markdown.
#[expect(clippy::too_many_lines, reason = "one course of steps")]
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { of_tree, files, copies, rate, directories, .. } = arguments;
    let OfTree { scratch, canopy } = of_tree;
    let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (tree, live) = (scratch.join("tree"), scratch.join("live"));
    for number in 0..files / FILES {
        let directory = tree.join(format!("{}/{number}", number / 100));
        fs::create_dir_all(&directory)?;
        for file in 0..FILES {
            File::create(directory.join(format!("file-{file}.data")))?;
        }
    }
    let created: Vec<PathBuf> =
        (0..*directories).map(|number| live.join(format!("new/{number}"))).collect();
    let marked = live.join("marked");
    for directory in created.iter().chain([&marked]) {
        fs::create_dir_all(directory)?;
    }
    let canopy = text(canopy)?;
    let (root, changing) = (text(&tree)?, text(&live)?);
    let index = text(&scratch.join("index"))?;
    let mounts = BindMounts::new(scratch, &tree, copies - 1)?;
    let places: Vec<&str> =
        [&*root, &changing].into_iter().chain(mounts.0.iter().map(String::as_str)).collect();
    let begun = [&*canopy, "--index", &index];
    seconds(&[&begun[..], &["index"], &places[..]].concat())?;

    let interval = arguments.interval.to_string();
    let daemon = Daemon::start(
        &[&begun[..], &["watch", "--trust-index", "--interval", &interval], &places[..]].concat(),
    )?;
    let marker = text(&marked)?;
    let is_found = |name: &str| -> anyhow::Result<bool> {
        let line = [&begun[1..], &["find", &marker, "-name", name]].concat();
        let output = Command::new(&canopy).args(line).stderr(Stdio::null()).output()?;
        Ok(!output.stdout.is_empty())
    };
    // Changes before the daemon listens do not come into the index.
    let mut attempt = 0;
    wait_for(|| {
        attempt += 1;
        File::create(marked.join(format!("first-{attempt}")))?;
        is_found("first-*")
    })?;

    let mut lags = Vec::new();
    let begun_at = Instant::now();
    let mut serial = 0;
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut searches = Vec::new();
        for second in 0..=arguments.seconds {
            let name = format!("at-{second}");
            File::create(marked.join(&name))?;
            let made = Instant::now();
            let is_found = &is_found;
            searches.push(scope.spawn(move || -> anyhow::Result<f64> {
                wait_for(|| is_found(&name))?;
                Ok(made.elapsed().as_secs_f64())
            }));
            if second == arguments.seconds {
                break;
            }
            let portion = rate.div_ceil(100);
            for part in 1..=100 {
                for _ in 0..portion {
                    File::create(created[serial % created.len()].join(format!("f-{serial}")))?;
                    serial += 1;
                }
                let until = Duration::from_secs(second as u64) + Duration::from_millis(10) * part;
                std::thread::sleep(until.saturating_sub(begun_at.elapsed()));
            }
        }
        for search in searches {
            lags.push(search.join().expect("a search does not panic")?);
        }
        Ok(())
    })?;
    let took = begun_at.elapsed().as_secs_f64();
    let status = Command::new(&canopy)
        .args([&begun[1..], &["watch", "--status"]].concat())
        .output()
        .context("cannot ask the daemon")?;
    let peak = daemon.peak_memory_bytes()?;
    daemon.stop()?;
    let count = Command::new(&canopy)
        .args([&begun[1..], &["find", &text(&live.join("new"))?, "-type", "f", "--count"]].concat())
        .output()?;
    let count: usize = String::from_utf8_lossy(&count.stdout).trim().parse()?;
    ensure!(count == serial, "{serial} files were created and {count} are in the index");

    let row = |what: &str, value: String| println!("| {what} | {value} |");
    println!("| {copies} times {files} files, an interval of {interval} s | |\n| --- | ---: |");
    row("files created", format!("{serial} in {took:.1} s, until the last was in the index"));
    let latest = lags.iter().copied().fold(0.0, f64::max);
    row("a change is in the index after, median", format!("{:.1} s", median(lags)));
    row("the latest", format!("{latest:.1} s"));
    row("peak memory of the daemon", format!("{:.0} MB", peak as f64 / 1e6));
    println!("\n{}", String::from_utf8_lossy(&status.stdout));
    drop(mounts);
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&live)?;
    fs::remove_dir_all(scratch.join("index"))?;
    Ok(())
}

fn wait_for(mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < PATIENCE, "a file is not in the index after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A daemon that runs; killed when it is dropped.
struct Daemon(Child);

impl Daemon {
    fn start(words: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        Ok(Daemon(command.spawn().with_context(|| format!("cannot run {}", words[0]))?))
    }

    /// Most memory that the daemon has had, in bytes.
    fn peak_memory_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        crate::measure::peak_memory_in(&status).context("the daemon has ended")
    }

    fn stop(mut self) -> anyhow::Result<()> {
        let id = nix::unistd::Pid::from_raw(self.0.id().try_into()?);
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the daemon ended with {status}");
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
