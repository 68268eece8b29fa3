//! Answers the sections of a report.

use super::best::Place;
use super::breakdown::{self, Sums};
use super::details::{self, Depth, Entry};
use super::directories;
use super::document::*;
use super::parts::{self, Part};
use super::scan::{self, List};
use super::sections::Section;
use super::{ReportOptions, duplicates, links, symlinks, trees};
use crate::error::Result;
use canopy_index::FileKind;
use canopy_model::Totals as RawTotals;
use canopy_read::locate::Start;
use canopy_read::totals::{Seen, Subtree};
use rustc_hash::FxHashMap;

/// Answers the sections that are asked for.
pub(super) fn gather(starts: &[Start], options: &ReportOptions) -> Result<Answers> {
    use Section::*;
    let sections = options.sections;
    let mut answers = Answers::default();
    let in_sums = sections.any(&[Totals, Users, Groups, Types, Extensions, Sizes, Ages, Owners]);
    let trees = sections.any(&[Trees, Outliers]);
    let owned_totals = options.owner.is_some() && sections.any(&[Totals, Types]);
    let in_scan = owned_totals
        || trees
        || sections
            .any(&[Sizes, Largest, Newest, Oldest, Used, Unused, Duplicates, Links, Symlinks])
        || sections.any(&[Sparse, Permissions, Names, Future]);
    let kinds = match owned_totals || sections.any(&[Permissions, Names]) {
        true => &[FileKind::Dirs, FileKind::Entries][..],
        false => &[FileKind::Entries][..],
    };
    let parts = match in_scan || (in_sums && options.owner.is_some()) {
        true => parts::parts(starts, kinds, options.owner)?,
        false => Vec::new(),
    };
    let mut sums = Sums::default();
    if in_sums {
        sums = breakdown::sums(starts, &parts, sections, options.owner, options.threads)?;
        answers.users = sections.has(Users).then(|| sums.users(options.top));
        answers.groups = sections.has(Groups).then(|| sums.groups(options.top));
        answers.extensions = sections.has(Extensions).then(|| sums.extensions(options.top));
        answers.ages = sections.has(Ages).then(|| sums.ages());
        answers.owners = sections.has(Owners).then(|| sums.owners());
        sums.whole.extensions = Default::default();
    }
    let mut names: Vec<(&Start, Entry)> = Vec::new();
    let mut owned_dirs = RawTotals::default();
    if in_scan {
        let found = scan_parts(&parts, options, &sums, trees || owned_totals)?;
        owned_dirs = found.dirs;
        names = finish_scan(starts, &parts, found, options, &sums, &mut answers)?;
    }
    if sections.any(&[Totals, Types]) {
        let directories = match options.owner {
            None => totals(starts, options, &sums, &mut answers)?,
            Some(owner) => owned(starts, owner, owned_dirs, &names, &sums, &mut answers),
        };
        answers.types = sections.has(Types).then(|| sums.types(directories));
        answers.totals = answers.totals.filter(|_| sections.has(Totals));
    }
    if trees || sections.any(&[Directories, Deepest, Empty]) {
        let parts = parts::parts(starts, &[FileKind::Listings], options.owner)?;
        in_directories(&parts, options, &names, &mut answers)?;
    }
    Ok(answers)
}

fn scan_parts(
    parts: &[Part<'_>],
    options: &ReportOptions,
    sums: &Sums,
    links: bool,
) -> Result<scan::Found> {
    let units = parts::units(parts, options.owner)?;
    let median = options.sections.has(Section::Sizes).then(|| sums.median_classes()).flatten();
    let wanted = scan::Wanted {
        sections: options.sections,
        top: options.top,
        owner: options.owner,
        median: median.map(|(classes, _)| classes),
        links: links || options.sections.has(Section::Links),
    };
    scan::scan(parts, &units, &wanted, options.threads)
}

/// Answers what the scan has found. Gives the names of inodes with several, in the order of paths.
fn finish_scan<'a>(
    starts: &'a [Start],
    parts: &[Part<'a>],
    mut found: scan::Found,
    options: &ReportOptions,
    sums: &Sums,
    answers: &mut Answers,
) -> Result<Vec<(&'a Start, Entry)>> {
    let (sections, top) = (options.sections, options.top);
    if sections.has(Section::Sizes) {
        answers.sizes = Some(sizes(sums, &found.squares, std::mem::take(&mut found.medians)));
    }
    let lists = details::best(parts, std::mem::take(&mut found.lists), top, options.threads)?;
    answer_lists(lists, &found, options, answers);
    if sections.has(Section::Duplicates) {
        answers.duplicates = duplicates::find(parts, found.keys, top, options.threads)?;
    }
    if sections.has(Section::Symlinks) {
        let links = in_order(
            parts,
            details::read(parts, &found.symlinks, Depth::Targets, options.threads)?,
        );
        let mut answer = Symlinks::default();
        for start in starts {
            let here = links.iter().filter(|(of, _)| std::ptr::eq(*of, start));
            let links: Vec<&Entry> = here.map(|(_, link)| link).collect();
            symlinks::follow(start, &links, options.threads, top, &mut answer)?;
        }
        answers.symlinks = Some(answer);
    }
    // Of an owner, only some of the rows that the index has of links were looked at; those are read
    // all.
    let (places, single) = match options.owner {
        None => links::sharing(parts, found.links)?,
        Some(_) => (found.links, 0),
    };
    let names = in_order(parts, details::read(parts, &places, Depth::Links, options.threads)?);
    if sections.has(Section::Links) {
        let mut links = links::links(names.iter().map(|(_, name)| name), top);
        links.names_elsewhere += single;
        answers.links = Some(links);
    }
    Ok(names)
}

/// Entries in the order of their paths, each with the start that it is below.
fn in_order<'a>(parts: &[Part<'a>], entries: FxHashMap<Place, Entry>) -> Vec<(&'a Start, Entry)> {
    let start = |place: Place| parts[place.0 as usize].start;
    let mut entries: Vec<_> =
        entries.into_iter().map(|(place, entry)| (start(place), entry)).collect();
    entries.sort_by(|a, b| a.1.cmp_path(&b.1));
    entries
}

fn answer_lists(
    mut lists: Vec<Vec<Item>>,
    found: &scan::Found,
    options: &ReportOptions,
    answers: &mut Answers,
) {
    let sections = options.sections;
    let mut take = |list: List| std::mem::take(&mut lists[list as usize]);
    let mut simple = |section: Section, list: List| sections.has(section).then(|| take(list));
    answers.largest = simple(Section::Largest, List::Largest);
    answers.newest = simple(Section::Newest, List::Newest);
    answers.oldest = simple(Section::Oldest, List::Oldest);
    answers.used = simple(Section::Used, List::Used);
    answers.unused = simple(Section::Unused, List::Unused);
    let mut flagged = |list: List| Flagged { count: found.count(list), first: take(list) };
    if sections.has(Section::Sparse) {
        let Flagged { count, first } = flagged(List::Sparse);
        answers.sparse = Some(Sparse { count, saved_bytes: found.saved_bytes, largest: first });
    }
    if sections.has(Section::Permissions) {
        answers.permissions = Some(Permissions {
            world_writable_files: flagged(List::WritableFiles),
            world_writable_directories: flagged(List::WritableDirs),
            world_writable_sticky: found.sticky,
            setuid: flagged(List::Setuid),
            setgid: flagged(List::Setgid),
        });
    }
    if sections.has(Section::Names) {
        answers.names = Some(Names {
            control: flagged(List::Control),
            not_utf8: flagged(List::NotUtf8),
            direction: flagged(List::Direction),
        });
    }
    answers.future = sections.has(Section::Future).then(|| flagged(List::Future));
}

fn sizes(sums: &Sums, squares: &u128, mut medians: Vec<i64>) -> Sizes {
    let whole = &sums.whole;
    let entries = whole.entries();
    let mut middle = |at: i64| -> f64 {
        let Some((_, smaller)) = sums.median_classes() else { return 0.0 };
        let at = usize::try_from(at - smaller).unwrap_or(0);
        if at < medians.len() { *medians.select_nth_unstable(at).1 as f64 } else { 0.0 }
    };
    let (mean_bytes, stdev_bytes) = mean_and_deviation(entries, i128::from(whole.bytes), *squares);
    Sizes {
        entries,
        mean_bytes,
        median_bytes: if entries == 0 {
            0.0
        } else {
            (middle((entries - 1) / 2) + middle(entries / 2)) / 2.0
        },
        stdev_bytes,
        max_bytes: if entries == 0 { 0 } else { whole.size.max },
        classes: sums.size_classes(),
    }
}

/// Mean and standard deviation of so many values, from their sum and that of their squares.
pub(super) fn mean_and_deviation(count: i64, sum: i128, squares: u128) -> (f64, f64) {
    if count == 0 {
        return (0.0, 0.0);
    }
    let n = count as f64;
    let mean = sum as f64 / n;
    // In integers as far as they reach: differences of large squares lose what floating point has
    // left of them.
    let variance = match (squares.checked_mul(count as u128), sum.unsigned_abs().checked_pow(2)) {
        (Some(scaled), Some(square)) => scaled.saturating_sub(square) as f64 / (n * n),
        _ => (squares as f64 / n - mean * mean).max(0.0),
    };
    (mean, variance.sqrt())
}

/// Answers the totals of everybody's entries, as du(1) has them. Gives the number of directories.
fn totals(
    starts: &[Start],
    options: &ReportOptions,
    sums: &Sums,
    answers: &mut Answers,
) -> Result<i64> {
    let mut seen = Seen::default();
    let mut once = RawTotals::default();
    for start in starts {
        let own = &start.inode.attributes;
        once += RawTotals {
            dirs: 1,
            dir_bytes: own.size_bytes,
            blocks: own.blocks,
            ..RawTotals::default()
        };
        let subtree = Subtree::of(start, options.threads);
        once += if starts.len() == 1 { subtree.sum_alone()? } else { subtree.sum(&mut seen)? };
    }
    answers.totals = Some(totals_of(&once, sums));
    Ok(once.dirs)
}

/// Answers the totals of an owner's entries. Gives the number of directories.
fn owned(
    starts: &[Start],
    owner: u32,
    mut once: RawTotals,
    names: &[(&Start, Entry)],
    sums: &Sums,
    answers: &mut Answers,
) -> i64 {
    for own in starts.iter().map(|start| &start.inode.attributes).filter(|own| own.uid == owner) {
        once += RawTotals {
            dirs: 1,
            dir_bytes: own.size_bytes,
            blocks: own.blocks,
            ..RawTotals::default()
        };
    }
    let whole = &sums.whole;
    let (entries, bytes, blocks) = (whole.entries(), whole.bytes, whole.blocks);
    once += RawTotals { entries, bytes, blocks, ..RawTotals::default() };
    once -= links::surplus(names.iter().map(|(_, name)| name));
    answers.totals = Some(totals_of(&once, sums));
    once.dirs
}

fn totals_of(once: &RawTotals, sums: &Sums) -> Totals {
    let whole = &sums.whole;
    Totals {
        entries: whole.entries() + once.dirs,
        directories: once.dirs,
        files: whole.types[0],
        symlinks: whole.types[1],
        others: whole.types[2..].iter().sum(),
        zero_byte_files: whole.zero_files,
        with_xattrs: whole.with_xattrs,
        inodes: once.entries + once.dirs,
        bytes: once.bytes.wrapping_add(once.dir_bytes),
        disk_bytes: once.blocks.wrapping_mul(512),
    }
}

/// Answers what the pass over listings tells.
fn in_directories(
    parts: &[Part<'_>],
    options: &ReportOptions,
    names: &[(&Start, Entry)],
    answers: &mut Answers,
) -> Result<()> {
    let (sections, top) = (options.sections, options.top);
    let in_trees = sections.any(&[Section::Trees, Section::Outliers]);
    let wanted = directories::Wanted { top, owner: options.owner, trees: in_trees };
    let mut found = directories::scan(parts, &wanted, options.threads)?;
    trees::count_once(&mut found.trees, names);
    if sections.has(Section::Trees) {
        answers.trees = Some(trees::largest(parts, &found.trees, top)?);
    }
    if sections.has(Section::Outliers) {
        answers.outliers = Some(trees::outliers(parts, &found.trees, top)?);
    }
    if sections.has(Section::Directories) {
        let (mean_entries, stdev_entries) =
            mean_and_deviation(found.listed, i128::from(found.entries), found.squares);
        let entries = trees::best(parts, found.most_entries, top)?.into_iter();
        let bytes = trees::best(parts, found.most_bytes, top)?.into_iter();
        answers.directories = Some(Directories {
            listed: found.listed,
            mean_entries,
            stdev_entries,
            most_entries: entries.map(|(path, entries)| FullDirectory { path, entries }).collect(),
            most_bytes: bytes.map(|(path, bytes)| LargeDirectory { path, bytes }).collect(),
        });
    }
    if sections.has(Section::Deepest) {
        let deepest = trees::best(parts, found.deepest, top)?.into_iter();
        answers.deepest = Some(deepest.map(|(path, depth)| Deep { path, depth }).collect());
    }
    if sections.has(Section::Empty) {
        let first = trees::best(parts, found.empty_first, top)?.into_iter();
        answers.empty =
            Some(Empty { count: found.empty, first: first.map(|(path, _)| path).collect() });
    }
    Ok(())
}
