//! Carries actions out on the rows that a search has selected, in all threads.

use super::action::Action;
use super::entry::EntryView;
use super::sink::ActionSink;
use super::sum::Sum;
use crate::error::Result;
use crate::find::evaluation::{RunOptions, Selected, Visit};
use crate::find::path::push_component;
use arrow::array::StringArray;
use canopy_index::column::{LISTING, NAME, TARGET};
use canopy_index::{Columns, ListingOrdinal};
use canopy_model::{Attributes, Device, unescape};
use canopy_read::inode::{InodeColumns, text_or_empty};
use canopy_read::plan::{Placed, Unit};
use std::borrow::Cow;

/// Bytes after which what has been printed is written out. Lines of different threads mix only
/// between such blocks.
const BLOCK_BYTES: usize = 256 << 10;

/// Prints for one start.
pub(crate) struct Printer<'s, 'a> {
    visit: &'s Visit,
    sink: &'s ActionSink<'a>,
    /// Columns that the actions read.
    columns: Columns,
    /// Whether they use anything that the listing of a row tells, and its device.
    needs_listing: bool,
    needs_device: bool,
}

/// Facts that the rows of one listing share.
#[derive(Default)]
struct Directory {
    listing: Option<ListingOrdinal>,
    /// The path to print, with a slash at its end; names are put behind it.
    shown: Vec<u8>,
    shown_bytes: usize,
    depth: u32,
    dev: Device,
}

impl<'s, 'a> Printer<'s, 'a> {
    /// Makes one that prints the rows of a visit.
    pub(crate) fn new(visit: &'s Visit, sink: &'s ActionSink<'a>) -> Self {
        let actions = sink.find.actions.iter();
        Printer {
            visit,
            sink,
            columns: actions.clone().fold(Columns::NONE, |all, action| all | action.columns()),
            needs_listing: actions.clone().any(Action::needs_listing),
            needs_device: actions.clone().any(Action::needs_device),
        }
    }

    /// Carries actions out on rows of a unit.
    pub(crate) fn print(&self, unit: &Unit, selected: &Selected) -> Result<()> {
        if selected.acting_rows() == 0 {
            return Ok(());
        }
        let mut columns = self.columns | Columns::from(LISTING).when(self.needs_listing);
        // Something has to be read for the number of rows of a batch.
        let known = selected.names.as_ref().filter(|_| !columns.is_empty());
        let known = known.map(|names| (names, is_raw(names)));
        if known.is_none() {
            columns.add(NAME);
        }
        let mut before = 0;
        let mut actions = selected.actions();
        let mut directory = Directory::default();
        let mut block = Vec::with_capacity(BLOCK_BYTES + (BLOCK_BYTES >> 3));
        let mut sum = Sum::default();
        for batch in unit.read_rows(columns, &selected.ranges)? {
            let batch = batch?;
            let (names, raw) = match known {
                Some((names, raw)) => (&names.slice(before, batch.num_rows()), raw),
                None => (NAME.of(&batch)?, is_raw(NAME.of(&batch)?)),
            };
            before += batch.num_rows();
            let inodes = InodeColumns::of(&batch);
            let targets = TARGET.find(&batch);
            let placed = match self.needs_listing {
                true => {
                    Some(Placed::new(&unit.shard, unit.kind, batch.clone(), self.needs_device)?)
                }
                false => None,
            };
            let listings = placed.as_ref().map(Placed::ordinals).transpose()?;
            for at in 0..batch.num_rows() {
                if let (Some(placed), Some(listings)) = (&placed, listings) {
                    directory.enter(placed, listings.value(at), self.visit)?;
                }
                let name = match raw {
                    true => Cow::Borrowed(names.value(at).as_bytes()),
                    false => unescape(names.value(at)),
                };
                if self.needs_listing {
                    directory.shown.truncate(directory.shown_bytes);
                    directory.shown.extend_from_slice(&name);
                }
                let target = unescape(text_or_empty(targets, at));
                let entry = EntryView {
                    shown: &directory.shown,
                    name: &name,
                    start: &self.visit.given,
                    link: &self.visit.start.given,
                    depth: directory.depth,
                    target: &target,
                    dev: directory.dev,
                    attributes: match self.columns.is_empty() {
                        true => Attributes::default(),
                        false => inodes.row(at),
                    },
                    ..EntryView::default()
                };
                self.act(&entry, actions.next().unwrap_or(0), &mut block, &mut sum);
                if block.len() >= BLOCK_BYTES {
                    self.write(&mut block)?;
                }
            }
        }
        self.sink.add_sum(sum);
        self.write(&mut block)
    }

    /// Carries the actions out whose bits are set.
    fn act(&self, entry: &EntryView<'_>, actions: u64, block: &mut Vec<u8>, sum: &mut Sum) {
        let RunOptions { terminal, now_ns, .. } = self.sink.options;
        for (number, action) in self.sink.find.actions.iter().enumerate() {
            match action {
                _ if actions >> number & 1 == 0 => {}
                Action::Write(format, _) => format.write(entry, terminal, now_ns, block),
                Action::Sum => sum.add(&entry.attributes, entry.dev),
                _ => {}
            }
        }
    }

    fn write(&self, block: &mut Vec<u8>) -> Result<()> {
        if !block.is_empty() {
            self.sink.write(block)?;
            block.clear();
        }
        Ok(())
    }
}

impl Directory {
    /// Makes it that of a listing of a batch.
    fn enter(&mut self, placed: &Placed, listing: ListingOrdinal, visit: &Visit) -> Result<()> {
        if self.listing == Some(listing) {
            return Ok(());
        }
        let head = placed.head(listing)?;
        self.listing = Some(listing);
        self.shown.clone_from(&visit.start.given);
        visit.start.append_below(&mut self.shown, head.path);
        push_component(&mut self.shown, b"");
        self.shown_bytes = self.shown.len();
        self.depth = visit.depth_of_entries(&head);
        self.dev = head.dev.unwrap_or_default();
        Ok(())
    }
}

/// Returns whether escaped names have nothing escaped in them.
fn is_raw(names: &StringArray) -> bool {
    // Every character of the range that stands for bytes starts with this one.
    memchr::memchr(0xF4, names.value_data()).is_none()
}
