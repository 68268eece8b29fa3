//! Numbers of the sources of an index.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a source within its index, never given out twice.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u32);

/// The bit that sources of the user's own index have where two are joined: writers count from 0 up.
const OWN: u32 = 1 << 31;

impl SourceId {
    /// Returns the number in an index that the user's own one was joined to.
    pub(crate) fn in_own_index(self) -> Self {
        SourceId(self.0 | OWN)
    }

    /// Returns whether the source is one of the user's own index, which was joined to another.
    pub(crate) fn is_in_own_index(self) -> bool {
        self.0 & OWN != 0
    }

    /// Returns the number after this one.
    pub(crate) fn next(self) -> Self {
        SourceId(self.0 + 1)
    }
}

impl fmt::Debug for SourceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
