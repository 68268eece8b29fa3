//! The order of listings.

use super::entry::LsEntry;
use super::{LsOptions, SortBy, version};
use canopy_text::Quoting;
use std::cmp::Ordering;

/// Sorts what has entries.
pub(super) fn sort<T>(options: &LsOptions, items: &mut [T], entry: impl Fn(&T) -> &LsEntry) {
    if options.sort == SortBy::None {
        return;
    }
    items.sort_by(|a, b| {
        let (a, b) = (entry(a), entry(b));
        let dirs = match options.directories_first {
            true => b.leads_to_directory().cmp(&a.leads_to_directory()),
            false => Ordering::Equal,
        };
        let order = compare(options, a, b);
        dirs.then(if options.reverse { order.reverse() } else { order })
    });
}

fn compare(options: &LsOptions, a: &LsEntry, b: &LsEntry) -> Ordering {
    let time = |entry: &LsEntry| entry.time_ns(options.time);
    let size = |entry: &LsEntry| entry.inode.attributes.size_bytes;
    let first = match options.sort {
        SortBy::Name | SortBy::None => Ordering::Equal,
        SortBy::Time => time(b).cmp(&time(a)),
        SortBy::Size => size(b).cmp(&size(a)),
        SortBy::Extension => ending(&a.name).cmp(ending(&b.name)),
        SortBy::Version => version::compare(&a.name, &b.name),
        SortBy::Width => a.width.cmp(&b.width),
    };
    first.then_with(|| a.name.cmp(&b.name))
}

/// Finds out how many columns names take, with the space in front of those without quotes where
/// others have some, if entries are to be sorted by that.
pub(super) fn measure<'a>(
    options: &LsOptions,
    names: &Quoting,
    entries: impl Iterator<Item = &'a mut LsEntry>,
) {
    if options.sort != SortBy::Width {
        return;
    }
    let mut entries: Vec<&mut LsEntry> = entries.collect();
    let variable = options.aligns() && names.style.is_variable();
    let quoted = |entry: &LsEntry| variable && names.needs_quotes(&entry.name);
    let any_quoted = entries.iter().any(|entry| quoted(entry));
    for entry in &mut entries {
        let space = any_quoted && !quoted(entry);
        entry.width = names.width(&names.quote(&entry.name)) + usize::from(space);
    }
}

/// Returns the last dot of a name and what follows.
fn ending(name: &[u8]) -> &[u8] {
    name.iter().rposition(|&byte| byte == b'.').map_or(b"", |at| &name[at..])
}
