//! A site as a value: where its indexes are, what is configured, and how much of the machine the
//! queries of a user may use.
//!
//! | to change | read |
//! | --- | --- |
//! | keys of the configuration | `settings` |
//! | which index is read, written or updated | `indexes` |
//! | limits as text: sizes, times, ages | `limits` |
//! | limits of users' queries | `query_limits` |
//!
//! [`Site::load`] reads files and environment once. There is no global state: a process may use
//! several sites at once.

mod indexes;
mod limits;
mod query_limits;
mod settings;

pub use indexes::{Opened, Updater, check_links, is_own_or_roots};
pub use limits::{
    MemoryLimit, StaleAfter, TimeLimit, age_ns, half_of_memory, max_age, memory_size,
};
pub use query_limits::{Allowed, QueryLimits};
pub use settings::{
    KEYS, Pruned, SITE_FILE, Settings, Source, namespace_of, prune_reasons, pruned_paths,
};

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Configuration of one command, daemon or request.
#[derive(Debug, Default)]
pub struct Site {
    /// The configured values.
    pub settings: Settings,
    /// The directory of the index that the caller named, which goes before all that is configured.
    named: Option<PathBuf>,
    /// Limits for queries of the asking user, once they were looked up.
    allowed: OnceLock<Allowed>,
}

impl Site {
    /// Returns a site with these settings. `named` is the directory of the index that the caller
    /// named.
    pub fn new(settings: Settings, named: Option<PathBuf>) -> Self {
        Site { settings, named, allowed: OnceLock::new() }
    }

    /// Returns the index that the caller named.
    pub fn named(&self) -> Option<&Path> {
        self.named.as_deref()
    }
}
