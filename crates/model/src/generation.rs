//! Numbers of the published states of an index.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A generation of an index: 1 for the first that was published, and one more for each later one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Generation(pub u64);

impl Generation {
    /// The state before the first generation.
    pub const NONE: Generation = Generation(0);

    /// Returns the generation after this one.
    pub fn next(self) -> Self {
        Generation(self.0 + 1)
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::str::FromStr for Generation {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Generation)
    }
}
