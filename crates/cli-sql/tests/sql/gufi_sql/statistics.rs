//! The statistics of gufi_stats, computed from the tree.

use super::cases::{Answer, by, extension, rows, user};
use super::tree::{Row, Tree};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;

/// Groups of a histogram in GUFI's form.
pub(crate) fn powers(values: impl Iterator<Item = u64>, base: u32, buckets: usize) -> String {
    let (mut below, mut above, mut counts) = (0, 0, vec![0; buckets]);
    for value in values {
        match value.checked_ilog(u64::from(base)) {
            None => below += 1,
            Some(exponent) => match counts.get_mut(exponent as usize) {
                Some(count) => *count += 1,
                None => above += 1,
            },
        }
    }
    let counts = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let counts: String = counts.map(|(exponent, count)| format!("{exponent}:{count};")).collect();
    format!("{base};{buckets};{below};{above};{counts}")
}

pub(crate) fn bins(values: impl Iterator<Item = u64>, base: u64) -> Answer {
    by(values, |value| value.checked_ilog(base).map_or(-1, i64::from), |_| 1)
}

/// When the tests say that it is.
pub(crate) const NOW_S: i64 = 1_800_000_000;

pub(crate) fn ages<'a>(rows: impl Iterator<Item = &'a Row>, time: fn(&Row) -> i64) -> Answer {
    let year = 365 * 86_400;
    let ends = [
        0,
        1,
        60,
        3600,
        86_400,
        7 * 86_400,
        28 * 86_400,
        year,
        2 * year,
        5 * year,
        10 * year,
        20 * year,
    ];
    let end = |row: &&Row| {
        let age = NOW_S - time(row);
        ends.into_iter().find(|end| age < *end).unwrap_or(20 * year + 1)
    };
    let counts = by(rows, end, |_| 1);
    let counts: String = counts.iter().map(|row| format!("{}:{};", row[0], row[1])).collect();
    vec![row![format!("{NOW_S};{counts}")]]
}

pub(crate) fn distinct<'a>(rows: impl Iterator<Item = &'a Row>, id: fn(&Row) -> u32) -> Answer {
    vec![row![rows.map(id).collect::<BTreeSet<u32>>().len()]]
}

pub(crate) fn real(value: f64) -> Answer {
    vec![row![format!("{value:?}")]]
}

pub(crate) fn average(values: Vec<u64>) -> Answer {
    real(values.iter().sum::<u64>() as f64 / values.len() as f64)
}

pub(crate) fn median(mut values: Vec<u64>) -> Answer {
    values.sort_unstable();
    let middle = values.len() / 2;
    real(match values.len() % 2 {
        0 => (values[middle - 1] + values[middle]) as f64 / 2.0,
        _ => values[middle] as f64,
    })
}

/// The expected result of the SQL of a statistic in docs/coming-from-gufi.md.
#[expect(clippy::too_many_lines, reason = "a list of words")]
pub(crate) fn statistic(tree: &Tree, name: &str) -> Option<Answer> {
    let per_dir =
        |value: &dyn Fn(&Row) -> String| rows(&tree.dirs, |dir| row![dir.path, value(dir)]);
    let per_leaf =
        |value: &dyn Fn(&Row) -> String| rows(tree.leaves(), |dir| row![dir.path, value(dir)]);
    let links = || tree.entries.iter().filter(|row| row.kind == 'l');
    let files_in = |dir: &&Row| tree.count(dir, 'f') as u64;
    let links_in = |dir: &&Row| tree.count(dir, 'l') as u64;
    let owner = |row: &&Row| user(row);
    let level = |value: &dyn Fn(&&Row) -> u64| -> Answer {
        let mut sums: BTreeMap<(String, usize), u64> = BTreeMap::new();
        for dir in &tree.dirs {
            *sums.entry((user(dir), dir.level)).or_default() += value(&dir);
        }
        let some = sums.into_iter().filter(|(_, sum)| *sum > 0);
        some.map(|((user, level), sum)| row![user, level, sum]).collect()
    };
    let sizes = || tree.files().map(Row::size);
    let counts = || tree.dirs.iter().map(|dir| tree.count(dir, 'f') as u64);
    let leaf = |value: &dyn Fn(&&Row) -> u64| -> Vec<u64> {
        tree.leaves().map(|dir| value(&dir)).collect()
    };
    let time = |name: &str| -> fn(&Row) -> i64 {
        match name.split('-').nth(2) {
            Some("atime") => |row| row.meta.atime(),
            Some("mtime") => |row| row.meta.mtime(),
            _ => |row| row.meta.ctime(),
        }
    };
    let by_owner =
        |id: fn(&Row) -> u32| rows(tree.files(), |row| row![id(row), row.size(), row.path]);
    Some(match name {
        "depth" => per_dir(&|dir| dir.level.to_string()),
        "filesize" => per_dir(&|dir| tree.totsize(dir).to_string()),
        "filecount" => per_dir(&|dir| tree.count(dir, 'f').to_string()),
        "linkcount" => per_dir(&|dir| tree.count(dir, 'l').to_string()),
        "dircount" => per_dir(&|dir| tree.subdirs(dir).to_string()),
        "leaf-dirs" => rows(tree.leaves(), |dir| row![dir.path]),
        "leaf-depth" => per_leaf(&|dir| dir.level.to_string()),
        "leaf-files" => per_leaf(&|dir| tree.count(dir, 'f').to_string()),
        "leaf-links" => per_leaf(&|dir| tree.count(dir, 'l').to_string()),
        "total-filesize" => by(tree.files(), owner, |row| row.size()),
        "total-filecount" => by(tree.files(), owner, |_| 1),
        "total-linkcount" => by(links(), owner, |_| 1),
        "total-dircount" => by(&tree.dirs, owner, |_| 1),
        "total-leaf-files" => by(tree.leaves(), owner, files_in),
        "total-leaf-links" => by(tree.leaves(), owner, links_in),
        "files-per-level" => level(&files_in),
        "links-per-level" => level(&links_in),
        "dirs-per-level" => level(&|_| 1),
        "extensions" => by(&tree.entries, |row| extension(row), |_| 1),
        "extensions-hist" => {
            let named = |row: &&Row| match extension(row) {
                none if none.is_empty() => "no-ext".to_owned(),
                extension => extension,
            };
            let counts = by(&tree.entries, named, |_| 1);
            let text: String = counts
                .iter()
                .map(|row| format!("{}:{}:{};", row[0].len(), row[0], row[1]))
                .collect();
            vec![row![format!("{};{text}", counts.len())]]
        }
        "filesize-log2-bins" => bins(sizes(), 2),
        "filesize-log1024-bins" => bins(sizes(), 1024),
        "filesize-log2-bins-hist" => vec![row![powers(sizes(), 2, 60)]],
        "filesize-log1024-bins-hist" => vec![row![powers(sizes(), 1024, 6)]],
        "dirfilecount-log2-bins" => bins(counts(), 2),
        "dirfilecount-log1024-bins" => bins(counts(), 1024),
        "dirfilecount-log2-bins-hist" => vec![row![powers(counts(), 2, 60)]],
        "dirfilecount-log1024-bins-hist" => vec![row![powers(counts(), 1024, 6)]],
        "unique-file-uid-count" => distinct(tree.files(), |row| row.meta.uid()),
        "unique-file-gid-count" => distinct(tree.files(), |row| row.meta.gid()),
        "unique-link-uid-count" => distinct(links(), |row| row.meta.uid()),
        "unique-link-gid-count" => distinct(links(), |row| row.meta.gid()),
        "unique-dir-uid-count" => distinct(tree.dirs.iter(), |row| row.meta.uid()),
        "unique-dir-gid-count" => distinct(tree.dirs.iter(), |row| row.meta.gid()),
        "average-leaf-files" => average(leaf(&files_in)),
        "average-leaf-links" => average(leaf(&links_in)),
        "average-leaf-size" => average(leaf(&|dir| tree.totsize(dir))),
        "median-leaf-files" => median(leaf(&files_in)),
        "median-leaf-links" => median(leaf(&links_in)),
        "median-leaf-size" => median(leaf(&|dir| tree.totsize(dir))),
        "duplicate-names" => {
            let all = || tree.dirs.iter().chain(&tree.entries);
            let alike =
                |a: &Row, b: &Row| (&a.name, a.kind, a.size()) == (&b.name, b.kind, b.size());
            let several = all().filter(|row| all().filter(|other| alike(row, other)).count() > 1);
            rows(several, |row| row![row.name, row.dir])
        }
        "uid-size" => by_owner(|row| row.meta.uid()),
        "gid-size" => by_owner(|row| row.meta.gid()),
        _ if name.starts_with("file-age-") => ages(tree.files(), time(name)),
        _ if name.starts_with("dir-age-") => ages(tree.dirs.iter(), time(name)),
        _ => return None,
    })
}
