//! Listings that the index has already: a walk compares with them.

use crate::listing::Scans;
use crate::update::costs::Costs;
use canopy_index::{ScanRecord, SourceId, Writer};
use canopy_model::{Access, Attributes, Device, Listing, SourcePath};
use canopy_scan::{Known, MountRules, Root, Selection, Subtree};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Scans what is selected of a source that was begun under this number.
pub(crate) fn scan_part(
    writer: &Writer,
    scans: &Scans<'_>,
    begun: SourceId,
    root: Root,
    selection: &Selection,
    rules: &MountRules,
    record: &ScanRecord,
) -> anyhow::Result<()> {
    let scan = |part: Subtree<'_>| scans.scan(writer, begun, root, Some(part), rules, record);
    with_known(writer, begun, scans.costs.as_deref(), selection, scan)
}

/// Has `scan` list what is selected of a source that was begun under this number, knowing what the
/// index has of it.
pub(crate) fn with_known(
    writer: &Writer,
    begun: SourceId,
    costs: Option<&Costs>,
    selection: &Selection,
    scan: impl FnOnce(Subtree<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let known = KnownListings { writer, begun, costs, error: Mutex::new(None) };
    let scanned = scan(Subtree { selection, known: &known, others: None });
    match known.error.into_inner() {
        Some(error) => Err(error.into()),
        None => scanned,
    }
}

/// Answers what the index has.
struct KnownListings<'a> {
    writer: &'a Writer,
    begun: SourceId,
    costs: Option<&'a Costs>,
    error: Mutex<Option<canopy_index::Error>>,
}

impl KnownListings<'_> {
    /// Returns a value, and where there is none, what stands for knowing nothing.
    fn or_unknown<T: Default>(&self, value: canopy_index::Result<T>) -> T {
        value.unwrap_or_else(|error| {
            self.error.lock().get_or_insert(error);
            T::default()
        })
    }
}

impl Known for KnownListings<'_> {
    fn subdirectories(&self, path: SourcePath<'_>) -> HashMap<String, Attributes> {
        self.or_unknown(self.writer.known_subdirectories(self.begun, path))
    }

    fn has(&self, path: SourcePath<'_>, dev: Device, ino: u64, access: &Access) -> bool {
        self.or_unknown(self.writer.has_listing(self.begun, path, dev, ino, access))
    }

    fn replaces(&self, path: SourcePath<'_>) {
        self.writer.replaces(self.begun, path);
    }

    fn has_unread(
        &self,
        listing: &Listing<'_>,
        look: &mut dyn FnMut(&str) -> Option<Attributes>,
    ) -> bool {
        self.writer.has_unread(self.begun, listing, look)
    }

    fn keeps(&self, listing: &Listing<'_>) -> u64 {
        let entries = self.writer.keeps(self.begun, listing);
        if let Some(costs) = self.costs {
            costs.listed(listing.path, entries);
        }
        entries
    }
}
