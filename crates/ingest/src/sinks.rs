//! Sinks of listings: an index takes them in.

use crate::Cancel;
use crate::update::costs::Costs;
use canopy_index::ShardWriter;
use canopy_model::{Listing, Sink, SourcePath, SourcePathBuf};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Puts listings into an index until the run is cancelled.
pub struct Shards<'a> {
    /// Receives the listings.
    pub shards: ShardWriter<'a>,
    cancel: Cancel,
}

impl<'a> Shards<'a> {
    /// Returns one for each writer.
    pub fn of(writers: Vec<ShardWriter<'a>>, cancel: &Cancel) -> Vec<Self> {
        let sink = |shards| Shards { shards, cancel: cancel.clone() };
        writers.into_iter().map(sink).collect()
    }

    /// Returns the writers again.
    pub fn writers(sinks: Vec<Self>) -> Vec<ShardWriter<'a>> {
        sinks.into_iter().map(|sink| sink.shards).collect()
    }
}

/// Why no more listings are taken in.
#[derive(Debug, thiserror::Error)]
pub enum Stopped {
    /// The index cannot be written.
    #[error(transparent)]
    Index(#[from] canopy_index::Error),
    /// The run was cancelled.
    #[error("interrupted")]
    Interrupted,
}

/// Returns the file of the index that is damaged or missing, if that is what went wrong.
pub(crate) fn damaged_file(error: &anyhow::Error) -> Option<PathBuf> {
    let own = error.chain().find_map(|cause| cause.downcast_ref::<canopy_index::Error>());
    let of_scan = error.downcast_ref::<Stopped>().and_then(|stopped| match stopped {
        Stopped::Index(error) => Some(error),
        Stopped::Interrupted => None,
    });
    own.or(of_scan)?.damaged_file().map(Path::to_owned)
}

impl Sink for Shards<'_> {
    type Error = Stopped;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Stopped> {
        match self.cancel.is_requested() {
            true => Err(Stopped::Interrupted),
            false => Ok(self.shards.push(listing)?),
        }
    }
}

/// Like [`Shards`], for a walk that asks by itself whether it was cancelled and is resumed later.
pub(crate) struct Listings<'a> {
    /// Receives the listings.
    pub shards: ShardWriter<'a>,
    /// Learns the place of the scan.
    whereabouts: Arc<Whereabouts>,
    costs: Option<Arc<Costs>>,
}

impl<'a> Listings<'a> {
    /// Returns one for each writer.
    pub(crate) fn of(
        writers: Vec<ShardWriter<'a>>,
        whereabouts: &Arc<Whereabouts>,
        costs: &Option<Arc<Costs>>,
    ) -> Vec<Self> {
        let sink = |shards| Listings {
            shards,
            whereabouts: Arc::clone(whereabouts),
            costs: costs.clone(),
        };
        writers.into_iter().map(sink).collect()
    }
}

impl Sink for Listings<'_> {
    type Error = Stopped;

    fn listing(&mut self, listing: &Listing<'_>) -> Result<(), Stopped> {
        self.whereabouts.offer(listing.path);
        if let Some(costs) = &self.costs {
            costs.listed(listing.path, listing.rows.len() as u64);
        }
        Ok(self.shards.push(listing)?)
    }
}

/// The path of a directory that was just listed, kept when somebody wants to know it.
#[derive(Default)]
pub(crate) struct Whereabouts {
    is_wanted: AtomicBool,
    path: Mutex<SourcePathBuf>,
}

impl Whereabouts {
    fn offer(&self, path: SourcePath<'_>) {
        if self.is_wanted.load(Ordering::Relaxed) && self.is_wanted.swap(false, Ordering::Relaxed) {
            self.path.lock().set(path);
        }
    }

    /// Returns the path of a directory that was listed since it was asked for last, or before.
    pub fn path(&self) -> SourcePathBuf {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.path.lock().clone()
    }

    /// Forgets it, since another source begins.
    pub fn forget(&self) {
        self.path.lock().set(SourcePath::ROOT);
    }
}
