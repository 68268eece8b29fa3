//! Entries that a command could not copy: it prints the first ones, and counts all.

use canopy::Outcome;
use canopy_text::safe::message_line;
use rustix::io::Errno;
use std::fmt::Display;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most entries that are printed. More are only counted.
const TOLD_MAX: u64 = 100;

/// Entries that were left out so far.
#[derive(Default)]
pub struct Faults {
    count: AtomicU64,
}

impl Faults {
    /// Notes that something of a file was left out, and prints it.
    pub fn add(&self, path: impl Display, what: impl Display) {
        if self.count.fetch_add(1, Ordering::Relaxed) < TOLD_MAX {
            // A name with an end of a line in it would make two messages of one.
            let told = format!("{path}: {what}");
            canopy::message(message_line(&told));
        }
    }

    /// Notes that an extended attribute of a file was left out, and prints it.
    pub fn attribute(&self, path: impl Display, name: &[u8], errno: Errno) {
        let (name, error) = (String::from_utf8_lossy(name), io::Error::from(errno));
        self.add(path, format_args!("its attribute {name}: {error}"));
    }

    /// Returns how many there are.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Sums up; the outcome of the command.
    pub fn finish(&self, done: &str) -> Outcome {
        match self.count() {
            0 => return Outcome::Complete,
            1 => canopy::message(format_args!("one thing was not {done}")),
            count if count <= TOLD_MAX => {
                canopy::message(format_args!("{count} things were not {done}"));
            }
            count => canopy::message(format_args!(
                "{count} things were not {done}, of which the first {TOLD_MAX} are told above"
            )),
        }
        Outcome::Partial
    }
}
