//! Numbers of devices.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of the device that a file system is on, as `st_dev` has it. Inode numbers are unique
/// within one. The device that a special file stands for is [`crate::Attributes::rdev`].
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Device(pub u64);

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
