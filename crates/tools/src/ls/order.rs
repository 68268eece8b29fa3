//! The order of listings.

use super::entry::LsEntry;
use super::{LsOptions, SortBy};
use std::cmp::Ordering;

/// Sorts what has entries.
pub(super) fn sort<T>(options: &LsOptions, items: &mut [T], entry: impl Fn(&T) -> &LsEntry) {
    let time = |entry: &LsEntry| entry.time_ns(options.time);
    let size = |entry: &LsEntry| entry.inode.attributes.size_bytes;
    let compare = |a: &LsEntry, b: &LsEntry| {
        let first = match options.sort {
            SortBy::Name | SortBy::None => Ordering::Equal,
            SortBy::Time => time(b).cmp(&time(a)),
            SortBy::Size => size(b).cmp(&size(a)),
            SortBy::Extension => ending(&a.name).cmp(ending(&b.name)),
        };
        let order = first.then_with(|| a.name.cmp(&b.name));
        if options.reverse && options.sort != SortBy::None { order.reverse() } else { order }
    };
    items.sort_by(|a, b| {
        let (a, b) = (entry(a), entry(b));
        let dirs = match options.directories_first && options.sort != SortBy::None {
            true => b.leads_to_directory().cmp(&a.leads_to_directory()),
            false => Ordering::Equal,
        };
        dirs.then_with(|| compare(a, b))
    });
}

/// Returns the last dot of a name and what follows.
fn ending(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(b"", |at| &name[at..])
}
