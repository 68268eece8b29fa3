//! How long many short things took, in a few kilobytes.

use std::time::Duration;

/// Each power of two nanoseconds has so many parts: a figure is right to 1.6 %.
const PARTS: u32 = 64;

/// A longer operation counts as a stall.
const STALL: Duration = Duration::from_millis(100);

pub struct Latencies {
    counts: Vec<u64>,
    count: u64,
    most: Duration,
    pub stalls: u64,
}

fn bucket(ns: u64) -> usize {
    let power = ns.max(u64::from(PARTS)).ilog2() - PARTS.ilog2();
    (power * PARTS + (ns >> power) as u32) as usize
}

/// Returns the least time of a bucket.
fn start_ns(bucket: usize) -> u64 {
    let power = (bucket as u32 / PARTS).saturating_sub(1);
    u64::from(bucket as u32 - power * PARTS) << power
}

impl Latencies {
    pub fn new() -> Self {
        let counts = vec![0; bucket(u64::MAX) + 1];
        Latencies { counts, count: 0, most: Duration::ZERO, stalls: 0 }
    }

    pub fn add(&mut self, took: Duration) {
        self.counts[bucket(took.as_nanos() as u64)] += 1;
        self.count += 1;
        self.most = self.most.max(took);
        self.stalls += u64::from(took > STALL);
    }

    /// Returns the time that such a share took at most, in microseconds.
    pub fn at_us(&self, share: f64) -> f64 {
        let mut left = (share * self.count as f64) as u64;
        for (bucket, count) in self.counts.iter().enumerate() {
            if left < *count {
                return start_ns(bucket) as f64 / 1e3;
            }
            left -= count;
        }
        self.most_us()
    }

    pub fn most_us(&self) -> f64 {
        self.most.as_nanos() as f64 / 1e3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_within_two_percent_of_what_is_in_it() {
        for ns in (0..100_000).chain([1 << 40, u64::MAX]) {
            let start = start_ns(bucket(ns));
            assert!(start <= ns && (ns - start) as f64 <= ns as f64 * 0.02, "{ns}: {start}");
        }
    }
}
