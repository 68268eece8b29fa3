//! The account behind a uid: users own ranges of subordinate uids (subuid(5)) and can run programs
//! as each of them. Limits of a user therefore count accounts, not uids.
//!
//! Only `/etc/subuid` is read. Ranges that a name service hands out are unknown here.

use nix::unistd::User;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The file with the ranges of all users.
const SUBUID: &str = "/etc/subuid";

/// How often to look for a new version of it.
const RENEWAL: Duration = Duration::from_secs(5);

/// Returns the ranges of subordinate uids, each with the uid that answers for it, as `/etc/subuid`
/// has them; none where there is no such file.
pub fn subordinate_uids() -> Vec<(Range<u32>, u32)> {
    read(Path::new(SUBUID))
}

fn read(path: &Path) -> Vec<(Range<u32>, u32)> {
    let uid_of = |name: &str| match name.parse() {
        Ok(uid) => Some(uid),
        Err(_) => Some(User::from_name(name).ok()??.uid.as_raw()),
    };
    parse(&std::fs::read_to_string(path).unwrap_or_default(), uid_of)
}

fn parse(text: &str, uid_of: impl Fn(&str) -> Option<u32>) -> Vec<(Range<u32>, u32)> {
    let range = |line: &str| {
        let mut fields = line.split(':');
        let (name, start, count) = (fields.next()?, fields.next()?, fields.next()?);
        let start: u32 = start.trim().parse().ok()?;
        let count: u32 = count.trim().parse().ok()?;
        // Root's are for containers, whose users are not root.
        let holder = uid_of(name).filter(|&holder| holder != 0).unwrap_or(start);
        Some((start..start.saturating_add(count), holder))
    };
    text.lines().filter_map(range).collect()
}

/// Ranges by their beginnings.
#[derive(Debug, Default)]
struct Ranges {
    sorted: Vec<(Range<u32>, u32)>,
    /// For each range, the largest end of it and of all before it.
    ends: Vec<u32>,
}

impl Ranges {
    fn new(mut sorted: Vec<(Range<u32>, u32)>) -> Self {
        sorted.sort_by_key(|(range, _)| range.start);
        let largest = |most: &mut u32, (range, _): &(Range<u32>, u32)| {
            *most = range.end.max(*most);
            Some(*most)
        };
        let ends = sorted.iter().scan(0, largest).collect();
        Ranges { sorted, ends }
    }

    /// Returns the holder of the last range that begins at or below a uid and contains it.
    fn holder_of(&self, uid: u32) -> Option<u32> {
        let end = self.sorted.partition_point(|(range, _)| range.start <= uid);
        let reach = (0..end).rev().take_while(|&at| self.ends[at] > uid);
        reach.map(|at| &self.sorted[at]).find(|(range, _)| range.contains(&uid)).map(|one| one.1)
    }
}

/// Device, inode, size and time of the file; `None` where there is none.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

fn stamp_of(path: &Path) -> Stamp {
    let about = path.metadata().ok()?;
    Some((about.dev(), about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    ranges: RwLock<Arc<Ranges>>,
    /// When the file was looked at, and the version that was read.
    looked: Mutex<(Instant, Stamp)>,
    is_reading: AtomicBool,
}

/// The accounts of this machine. Changes of `/etc/subuid` are picked up within seconds.
#[derive(Clone, Debug)]
pub struct Accounts(Arc<Shared>);

impl Accounts {
    /// Reads the ranges of this machine.
    pub fn system() -> Self {
        Self::of_file(Path::new(SUBUID))
    }

    /// Returns accounts with these ranges, which stay as they are.
    pub fn of_ranges(ranges: Vec<(Range<u32>, u32)>) -> Self {
        let ranges = RwLock::new(Arc::new(Ranges::new(ranges)));
        // There is no such file, now and later.
        let (looked, path) = (Mutex::new((Instant::now(), None)), PathBuf::new());
        Accounts(Arc::new(Shared { path, ranges, looked, is_reading: AtomicBool::new(false) }))
    }

    fn of_file(path: &Path) -> Self {
        let stamp = stamp_of(path);
        let ranges = RwLock::new(Arc::new(Ranges::new(read(path))));
        let looked = Mutex::new((Instant::now(), stamp));
        let (path, is_reading) = (path.to_owned(), AtomicBool::new(false));
        Accounts(Arc::new(Shared { path, ranges, looked, is_reading }))
    }

    /// Returns the account behind a uid: the holder of the range that contains it, or the uid itself.
    pub fn of(&self, uid: u32) -> u32 {
        self.renew(RENEWAL);
        let ranges = self.0.ranges.read().unwrap_or_else(PoisonError::into_inner).clone();
        ranges.holder_of(uid).unwrap_or(uid)
    }

    /// Reads the file again in another thread if it is a new one: names of users may take long to
    /// resolve.
    fn renew(&self, age: Duration) {
        let Ok(mut looked) = self.0.looked.try_lock() else { return };
        if looked.0.elapsed() < age {
            return;
        }
        looked.0 = Instant::now();
        let stamp = stamp_of(&self.0.path);
        if looked.1 == stamp || self.0.is_reading.swap(true, Ordering::SeqCst) {
            return;
        }
        let shared = self.0.clone();
        let thread = std::thread::Builder::new().name("subuid".to_owned());
        let started = thread.spawn(move || shared.read(stamp));
        if started.is_err() {
            self.0.is_reading.store(false, Ordering::SeqCst);
        }
    }
}

impl Shared {
    fn read(&self, stamp: Stamp) {
        let ranges = Arc::new(Ranges::new(read(&self.path)));
        *self.ranges.write().unwrap_or_else(PoisonError::into_inner) = ranges;
        self.looked.lock().unwrap_or_else(PoisonError::into_inner).1 = stamp;
        self.is_reading.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_uids_have_holders() {
        let text = "ann:100000:65536\nroot:165536:10\n1007:200000:1\nwrong\ngone:300000:5\n";
        let uid_of = |name: &str| match name {
            "ann" => Some(1000),
            "root" => Some(0),
            name => name.parse().ok(),
        };
        let expected = [
            (100_000..165_536, 1000),
            (165_536..165_546, 165_536),
            (200_000..200_001, 1007),
            (300_000..300_005, 300_000),
        ];
        let holders = parse(text, uid_of);
        assert_eq!(holders, expected);
        let ranges = Ranges::new(holders);
        let holders = [100_007, 1000, 300_005, 200_000, 165_545].map(|uid| ranges.holder_of(uid));
        assert_eq!(holders, [Some(1000), None, None, Some(1007), Some(165_536)]);
    }

    #[test]
    fn ranges_may_lie_within_each_other() {
        let ranges = Ranges::new(vec![(10..100, 1), (20..30, 2), (40..41, 3), (200..300, 4)]);
        let holders = [10, 19, 20, 29, 30, 40, 99, 100, 199, 200, 300];
        let holders = holders.map(|uid| ranges.holder_of(uid).unwrap_or(0));
        assert_eq!(holders, [1, 1, 2, 2, 1, 3, 1, 0, 0, 4, 0]);
    }

    #[test]
    fn a_new_file_is_read() {
        let path = std::env::temp_dir().join(format!("canopy-subuid-{}", std::process::id()));
        std::fs::write(&path, "7:1000:5\n").expect("a file");
        let accounts = Accounts::of_file(&path);
        assert_eq!([accounts.of(1004), accounts.of(1005)], [7, 1005]);
        std::fs::write(&path, "8:1000:50\n").expect("a file");
        while accounts.of(1005) != 8 {
            accounts.renew(Duration::ZERO);
            std::thread::yield_now();
        }
        std::fs::remove_file(&path).expect("the file");
    }
}
