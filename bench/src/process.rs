//! Commands of both sides run alike: as a user, timed with the output thrown away, read for their
//! answers, or watched for memory and opened files.

use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A real tree that a measurement made, and facts about it.
#[derive(clap::Args)]
pub struct OfTree {
    /// Where to make the tree and what is made of it: a file system with room for so many inodes
    #[arg(long)]
    pub scratch: PathBuf,
    /// The canopy command
    #[arg(long)]
    pub canopy: PathBuf,
}

/// The user who runs a command.
#[derive(Clone, Debug, PartialEq)]
pub struct User {
    pub name: String,
    /// `None` for root.
    pub ids: Option<(u32, u32)>,
}

/// A command line and who runs it.
#[derive(Clone, Debug)]
pub struct Line {
    pub words: Vec<String>,
    pub user: User,
}

impl Line {
    /// The command line with what switches users before it. Both sides pay for that.
    fn full(&self) -> Vec<String> {
        let mut full = Vec::new();
        if let Some((uid, gid)) = self.user.ids {
            let (uid, gid) = (format!("--reuid={uid}"), format!("--regid={gid}"));
            full.extend(["setpriv".to_owned(), uid, gid, "--clear-groups".to_owned()]);
        }
        full.extend(self.words.iter().cloned());
        full
    }

    fn command(&self) -> anyhow::Result<Command> {
        let full = self.full();
        let (program, arguments) = full.split_first().context("an empty command")?;
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).current_dir("/").env("TZ", "UTC");
        Ok(command)
    }

    /// Seconds that the command takes, its output thrown away. Exit codes but 0 are errors, but for
    /// users, whom programs tell by code 1 that they may not go everywhere.
    pub fn seconds(&self) -> anyhow::Result<f64> {
        let (took, code) = self.timed()?;
        self.check(code)?;
        Ok(took)
    }

    /// As [`Line::seconds`], but code 1 is fine for root too: so end programs that find nothing.
    pub fn seconds_of_search(&self) -> anyhow::Result<f64> {
        match self.timed()? {
            (took, Some(0 | 1)) => Ok(took),
            (_, code) => bail!("{:?} as {} ended with {code:?}", self.words, self.user.name),
        }
    }

    /// How many lines a search prints.
    pub fn lines_of_search(&self) -> anyhow::Result<usize> {
        let output =
            self.command()?.output().with_context(|| format!("cannot run {:?}", self.words))?;
        Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count())
    }

    fn timed(&self) -> anyhow::Result<(f64, Option<i32>)> {
        let mut command = self.command()?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        let status = command.status().with_context(|| format!("cannot run {:?}", self.words))?;
        Ok((begun.elapsed().as_secs_f64(), status.code()))
    }

    /// Returns the output of the command.
    pub fn answer(&self) -> anyhow::Result<String> {
        let output =
            self.command()?.output().with_context(|| format!("cannot run {:?}", self.words))?;
        self.check(output.status.code()).with_context(|| {
            String::from_utf8_lossy(&output.stderr).chars().take(500).collect::<String>()
        })?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn check(&self, code: Option<i32>) -> anyhow::Result<()> {
        match (code, &self.user.ids) {
            (Some(0), _) | (Some(1), Some(_)) => Ok(()),
            _ => bail!("{:?} as {} ended with {code:?}", self.words, self.user.name),
        }
    }

    /// Returns the cost of one run of the command.
    pub fn cost(&self) -> anyhow::Result<Cost> {
        let mut words = vec![
            std::env::current_exe()?.display().to_string(),
            "cost".to_owned(),
            "--".to_owned(),
        ];
        words.extend(self.full());
        let line = Line { words, user: User { name: "root".to_owned(), ids: None } };
        let output = line.command()?.stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        self.check(output.status.code()).with_context(|| errors.clone())?;
        let cost = errors.lines().rev().find_map(|line| {
            let (seconds, peak_bytes) = line.strip_prefix("cost ")?.split_once(' ')?;
            Some(Cost { seconds: seconds.parse().ok()?, peak_bytes: peak_bytes.parse().ok()? })
        });
        cost.with_context(|| format!("no cost of {:?}: {errors}", self.words))
    }

    /// How many files the command opens, by strace(1).
    pub fn opens(&self) -> anyhow::Result<usize> {
        let text = self.traced("open,openat,openat2")?;
        Ok(text.lines().filter(|line| !line.contains("= -1") && !line.contains("resumed")).count())
    }

    /// When the threads end that the command has started, in seconds from its start, and when it
    /// ends itself, by strace(1).
    pub fn thread_ends(&self) -> anyhow::Result<(Vec<f64>, f64)> {
        let text = self.traced("execve,exit,exit_group")?;
        // Lines are: thread, seconds, call.
        let times = |call: &str| -> Vec<f64> {
            let calls = text.lines().filter_map(|line| {
                let mut words = line.split_whitespace().skip(1);
                let time = words.next()?.parse().ok()?;
                words.next()?.starts_with(call).then_some(time)
            });
            calls.collect()
        };
        let (begun, ended) = (times("execve("), times("exit_group("));
        let begun = begun.last().context("the trace has no start")?;
        let ended = ended.first().context("the trace has no end")?;
        Ok((times("exit(").iter().map(|time| time - begun).collect(), ended - begun))
    }

    /// Returns the report of strace(1) about calls of the command and their times.
    fn traced(&self, calls: &str) -> anyhow::Result<String> {
        let trace =
            std::env::temp_dir().join(format!("canopy-bench-{}.strace", std::process::id()));
        let mut words: Vec<String> =
            ["strace", "-f", "--seccomp-bpf", "-qq", "-ttt", "-e"].map(str::to_owned).into();
        words.extend([format!("trace={calls}"), "-o".to_owned(), trace.display().to_string()]);
        words.extend(self.full());
        let line = Line { words, user: User { name: "root".to_owned(), ids: None } };
        line.command()?
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot run strace")?;
        let text = std::fs::read(&trace)?;
        std::fs::remove_file(&trace)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

/// Cost of a run of a command.
pub struct Cost {
    /// From its start to its end.
    pub seconds: f64,
    /// Most memory that it had.
    pub peak_bytes: u64,
}

/// Runs a command and prints what it took on standard error.
pub fn print_cost(command: &[String]) -> anyhow::Result<()> {
    let (program, arguments) = command.split_first().context("an empty command")?;
    let begun = Instant::now();
    let status = Command::new(program).args(arguments).status()?;
    let seconds = begun.elapsed().as_secs_f64();
    // Kilobytes, of the largest child; there is but one.
    let peak_bytes = getrusage(UsageWho::RUSAGE_CHILDREN)?.max_rss() * 1024;
    eprintln!("cost {seconds} {peak_bytes}");
    std::process::exit(status.code().unwrap_or(2));
}

/// Forgets what the kernel keeps of files.
pub fn drop_caches() -> anyhow::Result<()> {
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches: this needs root")
}

/// Space on disk and number of files below a directory.
pub fn space(directory: &Path) -> anyhow::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::symlink_metadata(directory)?;
    let mut sum = (metadata.blocks() * 512, u64::from(!metadata.is_dir()));
    if metadata.is_dir() {
        for entry in std::fs::read_dir(directory)? {
            let (bytes, files) = space(&entry?.path())?;
            sum = (sum.0 + bytes, sum.1 + files);
        }
    }
    Ok(sum)
}
