//! The verbs that a daemon calls, as values, and how a host carries them out.
//!
//! [`InProcess`](super::InProcess) calls the library in a thread. That suits a host that trusts the
//! file systems of its sources: a thread that hangs in one of them cannot be killed. After 600 s without
//! progress, the daemon gives no more signs of life. The host raises its limit of open files itself.
//!
//! `canopy watch` runs a process for each verb instead (`cli/src/verb_processes.rs`), which
//!
//! - can be killed where a file system, such as one of FUSE, does not answer: other sources go on;
//! - may be another program, for derived tables and namespaces, that only some indexes need;
//! - gives its memory back: with 100,000 files, the daemon stays at 24 MB. With verbs in threads, it
//!   had up to 93 MB, and 30 to 70 MB between them. A small batch took 12 ms of CPU time instead of 23.

use crate::Context;
use crate::update::Suspects;
use canopy_model::Generation;
use canopy_watch::requests::Share;
use std::num::NonZeroU32;
use std::path::Path;

/// A verb that a daemon calls for its index.
#[derive(Clone, Copy)]
pub enum Verb<'a> {
    /// Scans a tree that the index lacks.
    Scan {
        /// Its root.
        tree: &'a Path,
        /// Whether the scan stays on the file system of the root.
        one_file_system: bool,
    },
    /// Lists directories again.
    Update {
        /// The directories, in sources of the index.
        suspects: &'a Suspects,
        /// Whether all of a source is listed where the index has damaged data of it.
        repairs: bool,
    },
    /// Reads what has changed in a namespace, which has `ns:` in front.
    Follow(&'a Path),
    /// Rewrites a portion of the index, if that is due.
    Compact,
}

/// One call of a verb.
pub struct VerbCall<'a> {
    /// The verb.
    pub verb: Verb<'a>,
    /// The index, which no other verb of this daemon writes meanwhile.
    pub index: &'a Path,
    /// Entries that are looked at per second at most.
    pub rate_max: Option<NonZeroU32>,
    /// Returns whether the verb is to end early. Each call shows that the daemon lives, so a runner
    /// calls it about two hundred times a second.
    pub stop: &'a dyn Fn() -> bool,
}

/// The result of a verb.
#[derive(Debug, Default)]
pub struct VerbResult {
    /// The generation that contains the result. `None` if there was nothing to do.
    pub generation: Option<Generation>,
    /// Share of each request in the costs, in their order, if the suspects were requests.
    pub shares: Option<Vec<Share>>,
}

/// Carries verbs out, one at a time, for the thread that calls it.
pub trait VerbRunner: Sync {
    /// Carries a verb out. Entries that vanished or could not be read are not an error. Blocks.
    ///
    /// # Errors
    ///
    /// If the verb has published nothing, or was ended early.
    fn run(&self, cx: &Context<'_>, call: &VerbCall<'_>) -> anyhow::Result<VerbResult>;
}
