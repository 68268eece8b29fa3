//! Calls that check times of files.

use super::refusal::Refusal;
use super::words::Words;
use super::{Answer, Calls, Worker};
use rustix::fs::Stat;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The times of access, modification and change.
pub type Times = [(i64, u64); 3];

/// Their names.
const NAMES: [&str; 3] = ["atime", "mtime", "ctime"];

/// Longer than a tick of the kernel's clock, which most file systems use. A later change always
/// sets a time to a different value.
const TICK: Duration = Duration::from_millis(12);

/// How far the clock of a file system may be from the machine's.
const SKEW_SECONDS: u64 = 60;

/// `snap PATH...` remembers times, `changed PATH [TIME...]` returns those (of some) that differ now
/// (`-` for none), `recent PATH` those that are about now, `sleep MILLISECONDS` waits. No path is
/// followed to its target.
pub const CALLS: Calls = &[
    ("snap", |worker, words| {
        for path in words.rest() {
            let times = times(&mut Words::new(path))?;
            worker.times.insert(path.to_owned(), times);
        }
        std::thread::sleep(TICK);
        Ok(String::new())
    }),
    ("changed", changed),
    ("recent", recent),
    ("sleep", |_, words| {
        std::thread::sleep(Duration::from_millis(words.number()? as u64));
        Ok(String::new())
    }),
];

fn times(words: &mut Words) -> Result<Times, Refusal> {
    let stat: Stat = rustix::fs::lstat(words.path()?)?;
    Ok([
        (stat.st_atime, stat.st_atime_nsec),
        (stat.st_mtime, stat.st_mtime_nsec),
        (stat.st_ctime, stat.st_ctime_nsec),
    ])
}

fn named(is_told: impl Fn(usize) -> bool) -> Answer {
    let told = Vec::from_iter((0..NAMES.len()).filter(|at| is_told(*at)).map(|at| NAMES[at]));
    Ok(if told.is_empty() { "-".to_owned() } else { told.join(" ") })
}

fn changed(worker: &mut Worker, words: &mut Words) -> Answer {
    let path = words.word()?;
    let before = worker.times.get(path).copied();
    let before = before.ok_or_else(|| Refusal::broken(format!("{path} is not remembered")))?;
    let after = times(&mut Words::new(path))?;
    let asked = words.rest();
    named(|at| before[at] != after[at] && (asked.is_empty() || asked.contains(&NAMES[at])))
}

fn recent(_: &mut Worker, words: &mut Words) -> Answer {
    let times = times(words)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    named(|at| times[at].0.abs_diff(now as i64) <= SKEW_SECONDS)
}
