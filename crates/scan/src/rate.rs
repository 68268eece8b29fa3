//! How fast a walk may go: a token bucket that its threads share. Each entry takes a token, tokens
//! come at an even rate, and those that nobody takes are kept for a tenth of a second.

use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For how long tokens are kept.
const KEPT: Duration = Duration::from_millis(100);

/// The shortest time that is slept: until then, tokens are taken ahead of their time.
const SLEEP_MIN: Duration = Duration::from_millis(1);

/// How often whoever sleeps asks whether to stop.
const ASKED_EVERY: Duration = Duration::from_millis(100);

/// A limit of entries per second.
#[derive(Debug)]
pub struct RateLimit {
    begun: Instant,
    /// Time in which a token comes.
    interval: Duration,
    /// When, after the beginning, all tokens that were taken have come.
    paid_at: Mutex<Duration>,
}

impl RateLimit {
    /// Returns one whose first token comes after an interval.
    pub fn new(per_second: NonZeroU32) -> Self {
        let interval = 1_000_000_000_u64.div_ceil(u64::from(per_second.get()));
        RateLimit {
            begun: Instant::now(),
            interval: Duration::from_nanos(interval),
            paid_at: Mutex::default(),
        }
    }

    /// Takes a token. Blocks until it has come, or `stops` says that nobody waits for it any more.
    pub(crate) fn take(&self, stops: &dyn Fn() -> bool) {
        let now = self.begun.elapsed();
        let until = now + self.take_at(now);
        let mut left = until - now;
        while left >= SLEEP_MIN && !stops() {
            std::thread::sleep(left.min(ASKED_EVERY));
            left = until.saturating_sub(self.begun.elapsed());
        }
    }

    /// Takes a token so long after the beginning; returns in what time it will have come.
    fn take_at(&self, now: Duration) -> Duration {
        let mut paid_at = self.paid_at.lock().unwrap_or_else(PoisonError::into_inner);
        *paid_at = (*paid_at).max(now.saturating_sub(KEPT)) + self.interval;
        paid_at.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_come_evenly_and_few_are_kept() {
        let limit = RateLimit::new(NonZeroU32::new(1000).unwrap());
        let at = Duration::from_millis;
        assert_eq!(limit.take_at(at(0)), at(1));
        assert_eq!(limit.take_at(at(0)), at(2));
        // The third, which comes after 3 ms, has come.
        assert_eq!(limit.take_at(at(5)), at(0));
        // After a long time, those of the last 100 ms are there.
        let waits: Vec<Duration> = (0..103).map(|_| limit.take_at(at(9000))).collect();
        assert!(waits[..100].iter().all(Duration::is_zero));
        assert_eq!(waits[100..], [at(1), at(2), at(3)]);
    }
}
