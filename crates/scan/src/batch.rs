//! Listings that were read and wait until the directories above them have been looked at again.
//! Many wait together, since most of them have the same directories above.

use crate::directory::{Directory, Moves, Narrowing};
use crate::faults::Fault;
use canopy_model::{ClassTable, Listing, Rows, Sink};
use std::borrow::Cow;
use std::sync::Arc;

/// Entries in waiting listings after which they are handed over: few enough to stay in the cache.
const ROWS_MAX: usize = 2048;

/// Bytes of their names and extended attributes after which they are.
const BYTES_MAX: usize = 1 << 20;

/// Listings after which they are, besides one for each directory above.
const LISTINGS_MAX: usize = 64;

/// Most memory that is kept of rows that were handed over.
const SPARE_BYTES: usize = 1 << 18;

/// Listings that wait, in one thread.
#[derive(Default)]
pub(crate) struct Batch {
    waiting: Vec<Waiting>,
    rows: usize,
    bytes: usize,
    /// Rows without entries, whose memory is used again.
    spare: Vec<Rows>,
}

struct Waiting {
    directory: Arc<Directory>,
    part: u32,
    /// None of a directory that was not read, whose listing is to stay.
    rows: Option<Rows>,
}

impl Batch {
    /// Returns how many descriptors a thread has open for waiting listings at most, where
    /// directories are nested so deeply.
    pub(crate) fn descriptors_max(depth: usize) -> usize {
        LISTINGS_MAX + depth
    }

    /// Takes a listing in, and leaves empty rows in place of its own.
    pub(crate) fn put(&mut self, directory: &Arc<Directory>, part: u32, rows: &mut Rows) {
        let rows = std::mem::replace(rows, self.spare.pop().unwrap_or_default());
        self.rows += rows.len();
        self.bytes += rows.bytes();
        self.waiting.push(Waiting { directory: directory.clone(), part, rows: Some(rows) });
    }

    /// Takes in a directory that was not read, whose listing is to stay.
    pub(crate) fn put_unread(&mut self, directory: &Arc<Directory>) {
        self.waiting.push(Waiting { directory: directory.clone(), part: 0, rows: None });
    }

    /// Returns whether it is time to hand the listings over.
    pub(crate) fn is_full(&self) -> bool {
        let depth = self.waiting.last().map_or(0, |last| last.directory.depth as usize);
        self.rows >= ROWS_MAX
            || self.bytes >= BYTES_MAX
            || self.waiting.len() >= Self::descriptors_max(depth)
    }

    /// Hands all listings over, which were read before `round` began (`None`: nothing is looked at
    /// again), but for those of directories that are gone. `changed` is told of these, and of each
    /// that fewer see than its class says. `unread` is given the directories that were not read, and
    /// whether the listing of each can stay: if not, it must be read.
    pub(crate) fn hand_over<S: Sink>(
        &mut self,
        sink: &mut S,
        classes: &ClassTable,
        round: Option<(u64, &Moves)>,
        mut changed: impl FnMut(&str, Fault),
        mut unread: impl FnMut(Arc<Directory>, bool),
    ) -> Result<(), S::Error> {
        (self.rows, self.bytes) = (0, 0);
        for Waiting { directory, part, rows } in self.waiting.drain(..) {
            let narrowing = round.and_then(|(round, moves)| directory.narrowing(round, moves));
            let Some(mut rows) = rows else {
                match narrowing {
                    Some(Narrowing::Gone(fault)) => changed(&directory.path(), fault),
                    narrowing => unread(directory, narrowing.is_none()),
                }
                continue;
            };
            let path = directory.path();
            let mut access = Cow::Borrowed(&directory.access);
            match narrowing {
                None => {}
                Some(Narrowing::ToThose(grants)) => {
                    access = Cow::Owned(classes.narrowed_access(&directory.access, &grants));
                    rows.map_audiences(|audience| classes.narrowed_audience(audience, &grants));
                    changed(&path, Fault::Narrowed);
                }
                Some(Narrowing::Gone(fault)) => {
                    changed(&path, fault);
                    continue;
                }
            }
            let listing = directory.listing(&path, &rows);
            sink.listing(&Listing { part, access: &access, ..listing })?;
            if rows.capacity_bytes() <= SPARE_BYTES && self.spare.len() < LISTINGS_MAX {
                rows.clear();
                self.spare.push(rows);
            }
        }
        Ok(())
    }
}
