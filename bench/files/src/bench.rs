//! Tools of a job: clocks, caches, random numbers and threads.

use crate::place::Fixture;
use crate::report::{Report, Unit};
use anyhow::{Context, Result};
use rand::SeedableRng;
use rand::rngs::StdRng;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

pub struct Settings {
    pub scale: f64,
    pub seed: u64,
    pub source: Option<PathBuf>,
    /// The file by which the system's caches are dropped.
    pub cold: Option<File>,
}

impl Settings {
    /// Returns the same random numbers for every directory and round. `stream` tells apart what
    /// needs numbers of its own.
    pub fn random(&self, stream: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_mul(1 << 32).wrapping_add(stream))
    }
}

/// Returns what drops the system's caches, if this process may do that.
pub fn caches() -> Option<File> {
    OpenOptions::new().write(true).open("/proc/sys/vm/drop_caches").ok()
}

pub struct Bench<'a> {
    pub place: &'a Fixture,
    pub settings: &'a Settings,
    pub report: &'a mut Report,
}

impl Bench<'_> {
    /// Returns a number of the paper at the scale of this run.
    pub fn count(&self, of_paper: usize) -> usize {
        ((of_paper as f64 * self.settings.scale).round() as usize).max(1)
    }

    /// Reports how many seconds something takes.
    pub fn time<T>(&mut self, figure: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let begin = Instant::now();
        let result = work().with_context(|| figure.to_string())?;
        self.report.add(figure, Unit::Seconds, begin.elapsed().as_secs_f64());
        Ok(result)
    }

    /// Does that, and reports the sync that follows in a line of its own.
    pub fn phase<T>(&mut self, figure: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let result = self.time(figure, work)?;
        let place = self.place;
        self.time(&format!("{figure}: sync"), || place.sync())?;
        Ok(result)
    }

    /// Reports how many of something are done in a second.
    pub fn rate(
        &mut self,
        figure: &str,
        unit: Unit,
        count: usize,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let begin = Instant::now();
        work().with_context(|| figure.to_string())?;
        self.report.add(figure, unit, unit.of(count) / begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Reports how many seconds something takes with the caches dropped, where that is possible,
    /// and then once more.
    pub fn cold_and_hot<T>(&mut self, figure: &str, work: impl Fn() -> Result<T>) -> Result<T> {
        if self.drop_caches()? {
            self.time(&format!("{figure}, cold"), &work)?;
        }
        self.time(figure, &work)
    }

    /// Makes what was done before a job matter less. An ext4 without a journal takes no inode that
    /// its cache says was removed in the last minutes, and looks through these at each create;
    /// with its cache dropped there are fewer, though not none (figures in README.md).
    pub fn settle(&self) -> Result<()> {
        self.place.sync()?;
        self.drop_caches()?;
        Ok(())
    }

    /// Empties the system's caches after a sync, or returns false.
    pub fn drop_caches(&self) -> Result<bool> {
        let Some(mut caches) = self.settings.cold.as_ref() else { return Ok(false) };
        self.place.sync()?;
        caches.write_all(b"3").context("dropping caches")?;
        Ok(true)
    }
}

/// Does something on so many threads at once, which get their numbers from 0.
pub fn on_threads(threads: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    if threads == 1 {
        return work(0);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let started = Vec::from_iter((0..threads).map(|thread| scope.spawn(move || work(thread))));
        let mut results = started.into_iter().map(|thread| thread.join().expect("no panic"));
        results.by_ref().collect::<Result<()>>()
    })
}

/// Returns what follows the name of a figure that was measured on so many threads.
pub fn threads_suffix(threads: usize) -> &'static str {
    if threads == 1 { "" } else { ", 2 threads" }
}
