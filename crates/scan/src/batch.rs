//! Listings that were read and wait until the directories above them have been looked at again.
//! Many wait together, since most of them have the same directories above.
//!
//! Up to 64 listings of a thread wait, and a round looks at each directory above once. That costs
//! three system calls a directory: 6 % of a scan's CPU time at two entries a directory, too little
//! to measure at nine.

use crate::directory::{Directory, Found, Moves, Narrowing, Round};
use crate::faults::Fault;
use crate::moment::Moment;
use crate::walk::Checked;
use canopy_model::{Access, ClassTable, DOUBTFUL_PART, Listing, Rows, Sink, SourcePath};
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
    /// A moment before it was read, at which all on the way was as noted.
    since: Moment,
    /// None of a directory that was not read, whose listing is to stay.
    rows: Option<Rows>,
}

impl Batch {
    /// Takes a listing in that was read since a moment, and leaves empty rows in place of its own.
    pub(crate) fn put(
        &mut self,
        directory: &Arc<Directory>,
        part: u32,
        since: Moment,
        rows: &mut Rows,
    ) {
        let rows = std::mem::replace(rows, self.spare.pop().unwrap_or_default());
        self.rows += rows.len();
        self.bytes += rows.bytes();
        self.waiting.push(Waiting { directory: directory.clone(), part, since, rows: Some(rows) });
    }

    /// Takes in a directory that was not read, whose listing is to stay.
    pub(crate) fn put_unread(&mut self, directory: &Arc<Directory>) {
        let (directory, since) = (directory.clone(), Moment::NEVER);
        self.waiting.push(Waiting { directory, part: 0, since, rows: None });
    }

    /// Returns whether it is time to hand the listings over.
    pub(crate) fn is_full(&self) -> bool {
        let depth = self.waiting.last().map_or(0, |last| last.directory.depth as usize);
        self.rows >= ROWS_MAX
            || self.bytes >= BYTES_MAX
            || self.waiting.len() >= LISTINGS_MAX + depth
    }

    /// Hands all listings over, which were read before `round` began (`None`: nothing is looked at
    /// again), but for those of directories that are gone. `changed` gets these, and each that
    /// fewer see than its class says. `unread` gets the directories that were not read, and whether
    /// the listing of each can stay: if not, it must be read. `check` looks again at doubtful ones.
    pub(crate) fn hand_over<S: Sink>(
        &mut self,
        sink: &mut S,
        classes: &ClassTable,
        round: Option<(Round, &Moves)>,
        mut changed: impl FnMut(SourcePath<'_>, Fault),
        mut unread: impl FnMut(Arc<Directory>, bool),
        mut check: impl FnMut(&Directory, Moment, Rows, Option<Narrowing>) -> Checked,
    ) -> Result<(), S::Error> {
        (self.rows, self.bytes) = (0, 0);
        for Waiting { directory, part, since, rows } in self.waiting.drain(..) {
            let found = round.map(|(round, moves)| directory.narrowing(round, moves));
            let narrowing = found.as_ref().and_then(|found| found.narrowing.clone());
            if let Some(Narrowing::Gone(fault)) = narrowing {
                changed(directory.path().as_path(), fault);
                continue;
            }
            let Some(rows) = rows else {
                unread(directory, narrowing.is_none());
                continue;
            };
            let is_doubtful =
                found.is_some_and(|found| is_doubtful(&directory, since, &rows, &found));
            let checked = match is_doubtful {
                true => check(&directory, since, rows, narrowing),
                false => Checked::of(&directory, rows, narrowing),
            };
            if let Some(rows) = checked.hand_over(&directory, part, sink, classes, &mut changed)?
                && self.spare.len() < LISTINGS_MAX
            {
                self.spare.push(rows);
            }
        }
        Ok(())
    }
}

/// Returns whether some of what was read since a moment was perhaps never to be seen: if it has
/// changed since, and a directory on the way, too.
fn is_doubtful(directory: &Directory, since: Moment, rows: &Rows, found: &Found) -> bool {
    let is_old = |attributes| since.is_after(directory.change_of(attributes));
    !directory.is_proven() || !since.is_after(found.change) && !rows.attributes().iter().all(is_old)
}

impl Checked {
    /// Returns a listing of which nothing is in doubt.
    fn of(directory: &Directory, rows: Rows, narrowing: Option<Narrowing>) -> Self {
        Checked { rows, doubtful: Rows::default(), directory: directory.attributes, narrowing }
    }

    /// Hands it over as a part of the directory's listing. Returns rows without entries, if their
    /// memory is to be used again.
    fn hand_over<S: Sink>(
        self,
        directory: &Directory,
        part: u32,
        sink: &mut S,
        classes: &ClassTable,
        changed: &mut impl FnMut(SourcePath<'_>, Fault),
    ) -> Result<Option<Rows>, S::Error> {
        let Checked { mut rows, mut doubtful, directory: attributes, narrowing } = self;
        let path = directory.path();
        let path = path.as_path();
        let is_narrowed = narrowing.is_some() || !doubtful.is_empty();
        let mut give = |rows: &mut Rows, part, narrowing: Option<Narrowing>| {
            let mut access = Cow::Borrowed(&directory.access);
            if let Some(Narrowing::ToThose(grants)) = narrowing {
                access = Cow::Owned(classes.narrowed_access(&directory.access, &grants));
                rows.map_audiences(|audience| classes.narrowed_audience(audience, &grants));
            }
            let access: &Access = &access;
            let listing = directory.listing(path, rows);
            sink.listing(&Listing { part, access, directory: &attributes, ..listing })
        };
        give(&mut rows, part, narrowing)?;
        if !doubtful.is_empty() {
            give(&mut doubtful, part | DOUBTFUL_PART, Some(Narrowing::to_root()))?;
        }
        if is_narrowed {
            changed(path, Fault::Narrowed);
        }
        let is_small = rows.capacity_bytes() <= SPARE_BYTES;
        rows.clear();
        Ok(is_small.then_some(rows))
    }
}
