//! Resources of this process: memory, time of processors, bytes written, bytes on disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

fn number_of(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    let number = line.trim_start_matches(':').split_whitespace().next();
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Returns the memory that is not a part of files, in bytes.
fn memory_bytes() -> u64 {
    number_of("/proc/self/status", "RssAnon") << 10
}

/// Returns the bytes that were given to the system to be written: unlike `write_bytes` of the same
/// file, a part of a page that is written twice does not count as two pages.
pub fn written_bytes() -> u64 {
    number_of("/proc/self/io", "wchar")
}

/// Returns the time that all threads have run, in seconds.
pub fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Returns the bytes that the files below a directory take.
pub fn disk_bytes(directory: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        };
    }
    bytes
}

/// Looks at memory and disk all the time.
pub struct Watch {
    most: Arc<Most>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Most {
    memory_bytes: AtomicU64,
    disk_bytes: AtomicU64,
    is_over: AtomicBool,
}

impl Watch {
    pub fn start(directory: &Path) -> Self {
        let (most, directory) = (Arc::new(Most::default()), PathBuf::from(directory));
        let seen = most.clone();
        let thread = std::thread::spawn(move || {
            for round in 0u64.. {
                if seen.is_over.load(Ordering::Relaxed) {
                    break;
                }
                seen.memory_bytes.fetch_max(memory_bytes(), Ordering::Relaxed);
                if round.is_multiple_of(20) {
                    seen.disk_bytes.fetch_max(disk_bytes(&directory), Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(25));
            }
        });
        Watch { most, thread: Some(thread) }
    }

    /// Returns the most memory that was taken since the last call, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.most.memory_bytes.swap(0, Ordering::Relaxed).max(memory_bytes())
    }

    /// Returns the most bytes on disk that were ever seen.
    pub fn disk_bytes(&self) -> u64 {
        self.most.disk_bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.most.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
