//! Events that users can cause: at most [`EVENTS_MAX`] a minute.

use parking_lot::Mutex;
use std::time::{Duration, Instant};
use tracing::Dispatch;
use tracing::dispatcher::{get_default, with_default};

/// Most events a minute.
pub const EVENTS_MAX: u32 = 100;

/// Most bytes of the text of an event: a name with escapes has 1,020, and its reason follows.
const TEXT_BYTES_MAX: usize = 2000;

/// Emits events to the subscriber that was the default when this value was made, from any thread.
pub struct LimitedEvents {
    subscriber: Dispatch,
    /// Start of the minute, and the number of events since.
    minute: Mutex<(Instant, u32)>,
}

impl Default for LimitedEvents {
    fn default() -> Self {
        let minute = Mutex::new((Instant::now(), 0));
        LimitedEvents { subscriber: get_default(Dispatch::clone), minute }
    }
}

impl LimitedEvents {
    /// Emits a warning, unless there were too many within the minute. Long texts are cut.
    pub fn warn(&self, text: &str) {
        if self.is_within_limit() {
            let text = &text[..text.floor_char_boundary(TEXT_BYTES_MAX)];
            with_default(&self.subscriber, || tracing::warn!("{text}"));
        }
    }

    fn is_within_limit(&self) -> bool {
        let mut minute = self.minute.lock();
        if minute.0.elapsed() > Duration::from_secs(60) {
            *minute = (Instant::now(), 0);
        }
        minute.1 = minute.1.saturating_add(1);
        minute.1 <= EVENTS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lines;
    use std::sync::Arc;

    #[test]
    fn events_are_limited_and_reach_the_first_subscriber() {
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let own = lines.clone();
        let subscriber = Lines::new(move |_, line| own.lock().push(line.to_owned()));
        let events = tracing::subscriber::with_default(subscriber, LimitedEvents::default);
        std::thread::scope(|scope| {
            scope.spawn(|| events.warn(&"ä".repeat(TEXT_BYTES_MAX)));
        });
        assert_eq!(lines.lock()[..], ["ä".repeat(TEXT_BYTES_MAX / 2)]);
        (0..2 * EVENTS_MAX).for_each(|number| events.warn(&number.to_string()));
        assert_eq!(lines.lock().len(), EVENTS_MAX as usize);
    }
}
