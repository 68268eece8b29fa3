//! Whole-process times and memory.

use anyhow::{Context, bail};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Most memory that this process has had, in bytes.
pub fn peak_memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    peak_memory_in(&status).unwrap_or(0)
}

/// Most memory that a process has had, in bytes, by the text of its `/proc/PID/status`.
pub fn peak_memory_in(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}

/// Runs a command, its output thrown away, and returns the seconds that it took. Exit codes 0 and 1
/// are fine.
pub fn seconds(command: &[&str]) -> anyhow::Result<f64> {
    let (program, arguments) = command.split_first().context("an empty command")?;
    let begun = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let took = begun.elapsed().as_secs_f64();
    if !matches!(status.code(), Some(0 | 1)) {
        bail!("{command:?} failed: {status}");
    }
    Ok(took)
}

/// Runs commands in turn, after one uncounted round, and returns the median seconds of each.
pub fn interleaved(commands: &[Vec<&str>], rounds: usize) -> anyhow::Result<Vec<f64>> {
    let mut times = vec![Vec::new(); commands.len()];
    for round in 0..=rounds {
        for (command, times) in commands.iter().zip(&mut times) {
            let took = seconds(command)?;
            if round > 0 {
                times.push(took);
            }
        }
    }
    Ok(times.into_iter().map(median).collect())
}

/// The middle value, the upper one of two.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
