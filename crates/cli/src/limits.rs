//! Limits as options of commands.

use canopy_model::OwnerLimits;
pub use canopy_site::memory_size;
use std::num::{NonZeroU32, NonZeroUsize};

/// Limits of an index for the directories and files of one owner.
#[derive(clap::Args, Clone, Copy)]
pub struct OwnerLimitOptions {
    /// Access classes that the directories and files of one owner may ask for (root: any number).
    /// Entries beyond are for that owner and root alone [default: as last given, else 1024]
    #[arg(long, value_name = "N")]
    owner_classes: Option<usize>,
    /// Users and groups that the permissions and ACLs of one owner may name, likewise
    /// [default: as it was last given, else 16384]
    #[arg(long, value_name = "N")]
    owner_names: Option<usize>,
}

impl OwnerLimitOptions {
    /// Returns the limits, if any of them is given.
    pub fn given(self) -> Option<OwnerLimits> {
        let OwnerLimitOptions { owner_classes, owner_names } = self;
        let default = OwnerLimits::default();
        (owner_classes.is_some() || owner_names.is_some()).then(|| OwnerLimits {
            classes: owner_classes.unwrap_or(default.classes),
            names: owner_names.unwrap_or(default.names),
        })
    }
}

/// Parses a number of seconds, which need not be whole.
///
/// # Errors
///
/// If the text is not a number.
pub fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| "give a number of seconds, such as 2 or 0.5".to_owned())
}

/// Parses a number of threads.
///
/// # Errors
///
/// If the text is not a number of threads.
pub fn thread_count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "give a whole number of threads, at least 1".to_owned())
}

/// Parses a number of entries per second.
///
/// # Errors
///
/// If the text is not a number of entries.
pub fn rate(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "give a whole number of entries per second, at least 1".to_owned())
}
