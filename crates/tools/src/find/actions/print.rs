//! Carries actions out on the rows that a search has selected.

use super::action::Action;
use super::format::{Found, Rare};
use super::parse::Find;
use super::run::{BATCH_ROWS, RunOptions, Unit, bad_ordinal};
use super::stage::Stage;
use super::visit::Visit;
use crate::error::Result;
use arrow::array::{AsArray, RecordBatch, StringArray};
use arrow::datatypes::UInt32Type;
use canopy_index::RowRange;
use canopy_model::{Attributes, unescape};
use canopy_read::columns::{InodeColumns, numbers, strings, text_or_empty};
use canopy_read::listings::ListingHeads;
use std::borrow::Cow;

/// Bytes after which what has been printed is written out. Lines of different threads mix only
/// between such blocks.
const BLOCK_BYTES: usize = 256 << 10;

/// Rows of a unit, each with a bit for every action that is to be carried out on it.
#[derive(Default)]
pub(super) struct Selected {
    pub(super) ranges: Vec<RowRange>,
    bits: Vec<u64>,
    /// Set where the bits of all rows are the same: then `bits` is empty.
    pub(super) same: Option<u64>,
    /// The names of all rows, where tests have read them.
    pub(super) names: Option<StringArray>,
}

impl Selected {
    /// All rows of some ranges.
    pub(super) fn all(ranges: &[RowRange], bits: u64) -> Self {
        Selected { ranges: ranges.to_vec(), same: Some(bits), ..Selected::default() }
    }

    /// Adds a row, which comes after those that were added before.
    pub(super) fn push(&mut self, row: usize, bits: u64) {
        match self.ranges.last_mut() {
            Some(last) if last.end == row => last.end += 1,
            _ => self.ranges.push(row..row + 1),
        }
        self.bits.push(bits);
    }

    /// How many rows there are with anything to be done.
    pub(super) fn acting_rows(&self) -> u64 {
        match self.same {
            Some(0) => 0,
            _ => self.ranges.iter().map(|range| range.len() as u64).sum(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Prints for one start.
pub(super) struct Printer<'s, 'a> {
    pub(super) find: &'a Find,
    pub(super) visit: &'s Visit,
    pub(super) options: RunOptions,
    pub(super) stage: &'s Stage<'a>,
}

/// What the rows of one listing share.
#[derive(Default)]
struct Shared {
    listing: Option<u32>,
    /// The path to print, with a slash at its end; names are put behind it.
    shown: Vec<u8>,
    directory_length: usize,
    depth: u32,
    dev: u64,
}

impl Printer<'_, '_> {
    /// Carries actions out on rows of a unit.
    pub(super) fn print(&self, unit: &Unit<'_>, selected: &Selected) -> Result<()> {
        if selected.is_empty() || selected.same == Some(0) {
            return Ok(());
        }
        let mut columns: Vec<&str> = self.find.actions.iter().flat_map(Action::columns).collect();
        let reads_inode = !columns.is_empty();
        let needs_listing = self.find.actions.iter().any(Action::needs_listing);
        let needs_device = self.find.actions.iter().any(Action::needs_device);
        if needs_listing {
            columns.push("listing");
        }
        // Something has to be read for the number of rows of a batch.
        let known = selected.names.as_ref().filter(|_| !columns.is_empty());
        let known = known.map(|names| (names, is_raw(names)));
        if known.is_none() {
            columns.push("name");
        }
        let mut before = 0;
        let mut bits = selected.bits.iter().copied();
        let mut shared = Shared::default();
        let mut block = Vec::with_capacity(BLOCK_BYTES + (BLOCK_BYTES >> 3));
        for batch in unit.shard.read(unit.kind, &columns, &selected.ranges, BATCH_ROWS)? {
            let batch = batch?;
            let heads = Heads::of(unit, &batch, needs_listing, needs_device)?;
            let (names, raw) = match known {
                Some((names, raw)) => (&names.slice(before, batch.num_rows()), raw),
                None => (strings(&batch, "name"), is_raw(strings(&batch, "name"))),
            };
            before += batch.num_rows();
            let inodes = InodeColumns::of(&batch);
            let targets: Option<&StringArray> =
                batch.column_by_name("target").map(|column| column.as_string());
            for at in 0..batch.num_rows() {
                let bits = selected.same.or_else(|| bits.next()).unwrap_or(0);
                if let Some(heads) = &heads {
                    self.go_to(&mut shared, heads, at, unit)?;
                }
                let name = match raw {
                    true => Cow::Borrowed(names.value(at).as_bytes()),
                    false => unescape(names.value(at)),
                };
                if needs_listing {
                    shared.shown.truncate(shared.directory_length);
                    shared.shown.extend_from_slice(&name);
                }
                let target = unescape(text_or_empty(targets, at));
                let found = Found {
                    shown: &shared.shown,
                    name: &name,
                    start: &self.visit.given,
                    link: &self.visit.start.given,
                    depth: shared.depth,
                    target: &target,
                    dev: shared.dev,
                    attributes: if reads_inode { inodes.row(at) } else { Attributes::default() },
                    rare: Rare::default(),
                    directory: None,
                };
                for (number, action) in self.find.actions.iter().enumerate() {
                    if bits >> number & 1 == 1 {
                        if let Action::Write(form, _) = action {
                            form.write(
                                &found,
                                self.options.terminal,
                                self.options.now_ns,
                                &mut block,
                            );
                        }
                    }
                }
                if block.len() >= BLOCK_BYTES {
                    self.write(&mut block)?;
                }
            }
        }
        self.write(&mut block)
    }

    /// Makes the path to print that of the listing of a row.
    fn go_to(
        &self,
        shared: &mut Shared,
        heads: &Heads<'_>,
        at: usize,
        unit: &Unit<'_>,
    ) -> Result<()> {
        let listing = heads.listings[at];
        if shared.listing == Some(listing) {
            return Ok(());
        }
        let head = heads.heads.get(listing).ok_or_else(|| bad_ordinal(unit.shard, unit.kind))?;
        shared.listing = Some(listing);
        let start = &self.visit.start;
        shared.shown.clone_from(&start.given);
        start.append_below(&mut shared.shown, head.path);
        if shared.shown.last() != Some(&b'/') {
            shared.shown.push(b'/');
        }
        shared.directory_length = shared.shown.len();
        shared.depth = (head.depth() + 1).saturating_sub(start.depth()) + self.visit.depth;
        shared.dev = head.dev.unwrap_or_default();
        Ok(())
    }

    fn write(&self, block: &mut Vec<u8>) -> Result<()> {
        if !block.is_empty() {
            self.stage.write(block)?;
            block.clear();
        }
        Ok(())
    }
}

/// Whether escaped names have nothing escaped in them.
fn is_raw(names: &StringArray) -> bool {
    // Every character of the range that stands for bytes starts with this one.
    memchr::memchr(0xF4, names.value_data()).is_none()
}

/// The listings of the rows of a batch.
struct Heads<'a> {
    listings: &'a [u32],
    heads: ListingHeads,
}

impl<'a> Heads<'a> {
    fn of(
        unit: &Unit<'_>,
        batch: &'a RecordBatch,
        needed: bool,
        devices: bool,
    ) -> Result<Option<Self>> {
        if !needed {
            return Ok(None);
        }
        let listings = numbers::<UInt32Type>(batch, "listing").values();
        let heads = match devices {
            true => ListingHeads::read_with_devices(unit.shard, listings)?,
            false => ListingHeads::read(unit.shard, listings)?,
        };
        Ok(Some(Heads { listings, heads }))
    }
}
