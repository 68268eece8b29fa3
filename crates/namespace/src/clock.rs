//! The time that is written into files, which comes from outside.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns nanoseconds since 1970.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Returns the system's time.
pub fn system_clock() -> Clock {
    Arc::new(|| {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_nanos()).unwrap_or(i64::MAX)
    })
}
