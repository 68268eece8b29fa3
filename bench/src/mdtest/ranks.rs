//! Processes that take part, and how they meet: each writes a file, and waits for those of all others.
//! All ranks come to all meetings, in one order.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for the others: they may have more to do.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Pause between two looks for the others.
const PAUSE: Duration = Duration::from_micros(500);

/// Variables with rank and number of processes, and one that differs between jobs: those of `--ranks`,
/// Open MPI, MPICH and Slurm.
const VARIABLES: [[&str; 3]; 4] = [
    ["CANOPY_BENCH_RANK", "CANOPY_BENCH_RANKS", "CANOPY_BENCH_JOB"],
    ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE"],
    ["PMI_RANK", "PMI_SIZE", "PMI_JOBID"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID"],
];

/// This process among all.
pub struct Ranks {
    rank: u64,
    size: u64,
    directory: PathBuf,
    meetings: u64,
}

impl Ranks {
    /// Returns the rank that the environment says; without one, this process is alone.
    pub fn from_environment(meet: Option<&Path>) -> Result<Self> {
        let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
        let found = VARIABLES.iter().find_map(|[rank, size, job]| {
            let job = std::env::var(job).ok();
            Some((number(rank)?, number(size)?, job))
        });
        let (rank, size, job) = found.unwrap_or((0, 1, None));
        ensure!(rank < size, "process {rank} of {size}: the environment contradicts itself");
        // mpirun starts all processes of a machine.
        let job = job.unwrap_or_else(|| std::os::unix::process::parent_id().to_string());
        let job = job.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        let place = meet.map_or_else(std::env::temp_dir, Path::to_owned);
        let directory = place.join(format!("canopy-mdtest-{job}"));
        fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
        Ok(Ranks { rank, size, directory, meetings: 0 })
    }

    pub fn rank(&self) -> u64 {
        self.rank
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    fn file(&self, meeting: u64, rank: u64) -> PathBuf {
        self.directory.join(format!("{meeting}.{rank}"))
    }

    /// Waits until all processes are here, and returns what each says, in the order of their ranks.
    pub fn meet(&mut self, text: &str) -> Result<Vec<String>> {
        self.meetings += 1;
        let (meeting, begin) = (self.meetings, Instant::now());
        let written = self.directory.join(format!("new.{}", self.rank));
        fs::write(&written, text)?;
        fs::rename(&written, self.file(meeting, self.rank))?;
        let mut all = Vec::new();
        for rank in 0..self.size {
            loop {
                match fs::read_to_string(self.file(meeting, rank)) {
                    Ok(text) => break all.push(text),
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(error.into());
                    }
                    Err(_) if begin.elapsed() > PATIENCE => {
                        bail!("process {rank} has not come to meeting {meeting}")
                    }
                    Err(_) => std::thread::sleep(PAUSE),
                }
            }
        }
        // A rank that is here has read the messages of the meeting before.
        if meeting > 1 {
            let _ = fs::remove_file(self.file(meeting - 1, self.rank));
        }
        Ok(all)
    }

    /// Meets for the last time.
    pub fn end(mut self) -> Result<()> {
        self.meet("")?;
        if self.rank > 0 {
            // Others may have yet to read the message of the meeting, so it stays.
            return Ok(fs::write(self.directory.join(format!("gone.{}", self.rank)), "")?);
        }
        let begin = Instant::now();
        for rank in 1..self.size {
            while !self.directory.join(format!("gone.{rank}")).exists() {
                ensure!(begin.elapsed() < PATIENCE, "process {rank} has not ended");
                std::thread::sleep(PAUSE);
            }
        }
        Ok(fs::remove_dir_all(&self.directory)?)
    }
}

/// Runs this program with the same arguments as several processes.
pub fn start(count: u32) -> Result<()> {
    let mut arguments = Vec::from_iter(std::env::args_os().skip(1));
    let at = arguments.iter().position(|word| word.to_string_lossy().starts_with("--ranks"));
    let at = at.context("--ranks is an argument")?;
    let words = if arguments[at] == "--ranks" { 2 } else { 1 };
    arguments.drain(at..at + words);
    let job = format!("own-{}", std::process::id());
    let mut children = Vec::new();
    for rank in 0..count {
        let mut command = Command::new(std::env::current_exe()?);
        let [of_rank, of_size, of_job] = VARIABLES[0];
        command.args(&arguments).env(of_rank, rank.to_string()).env(of_size, count.to_string());
        children.push(command.env(of_job, &job).spawn()?);
    }
    // Others would wait for one that has failed.
    while !children.is_empty() {
        let mut running = Vec::new();
        for mut child in children {
            match child.try_wait()? {
                None => running.push(child),
                Some(status) if status.success() => {}
                Some(status) => {
                    running.iter_mut().for_each(|child| _ = child.kill());
                    bail!("a process failed: {status}");
                }
            }
        }
        children = running;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
