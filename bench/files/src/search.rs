//! Table VI: two searches that match 1 % of a tree of three levels each, by find(1), by reading and
//! looking at everything, and by query directories, where the file system answers them.

use crate::bench::Bench;
use crate::tree::{Tree, create};
use crate::walk;
use anyhow::{Context, Result, ensure};
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Gid, Stat, Timespec, Timestamps, Uid};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

const FILES: usize = 200_000;

/// One file of so many matches each search.
const SHARE: usize = 100;

const UID: u32 = 100;
const HOUR: i64 = 3600;

/// No file has a size between these, so 1 MB may be a million bytes or 2^20, rounded or not.
const SMALL_BYTES_MAX: u64 = 500_000;
const LARGE_BYTES_MIN: u64 = 2 << 20;
const LARGE_BYTES_MAX: u64 = 64 << 20;

struct Attributes {
    uid: u32,
    size_bytes: u64,
    mtime: i64,
}

struct Query {
    name: &'static str,
    /// Arguments of find(1) after the tree.
    find: &'static [&'static str],
    matches: fn(&Stat, i64) -> bool,
    /// Below the tree.
    directory: &'static str,
}

const QUERIES: [Query; 2] = [
    Query {
        name: "uid 100 and larger than 1 MB",
        find: &["-type", "f", "-uid", "100", "-size", "+1M"],
        matches: |stat, _| stat.st_uid == UID && stat.st_size > 1 << 20,
        directory: "tree/[uid=100]/[size>1M]",
    },
    Query {
        name: "modified in the last hour",
        find: &["-type", "f", "-mmin", "-60"],
        matches: |stat, now| stat.st_mtime > now - HOUR,
        directory: "tree/[mtime>-1h]",
    },
];

pub fn run(bench: &mut Bench) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bench.report.note("searches are skipped: only root gives files to others".into());
        return Ok(());
    }
    let root = &bench.place.root;
    let tree = Tree::new(bench.count(FILES).max(SHARE));
    let files = attributes(tree.files, bench.settings.random(40), now()?);
    bench.phase("create, truncate, chown, utimens", || populate(root, &tree, &files))?;
    let answers = rustix::fs::statat(root, "tree/[uid=100]", AtFlags::empty())
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    let has_find = Command::new("find").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !has_find {
        bench.report.note("find(1) is skipped: there is none".into());
    }
    for query in &QUERIES {
        let mut counts = vec![("the walk", walk(bench, query)?)];
        if has_find {
            counts.push(("find(1)", find(bench, query)?));
        }
        if answers {
            counts.push(("the query directory", list(bench, query)?));
        }
        for (who, count) in counts {
            let expected = tree.files / SHARE;
            ensure!(count == expected, "{}: {who} has {count}, not {expected}", query.name);
        }
    }
    Ok(())
}

fn now() -> Result<i64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs() as i64)
}

/// Makes up what files are. Exactly one in a hundred matches each query, however long the rest of
/// the hour that making them takes: times are within the last minutes, or hours to years ago.
fn attributes(files: usize, mut random: StdRng, now: i64) -> Vec<Attributes> {
    let mut order = Vec::from_iter(0..files);
    let mut chosen = |random: &mut StdRng| {
        order.shuffle(random);
        let mut chosen = vec![false; files];
        order[..files / SHARE].iter().for_each(|at| chosen[*at] = true);
        chosen
    };
    let (owned, recent) = (chosen(&mut random), chosen(&mut random));
    let one = |at: usize| {
        let is_large = owned[at] || random.random_bool(0.05);
        let size_bytes = match is_large {
            true => random.random_range(LARGE_BYTES_MIN..LARGE_BYTES_MAX),
            false => random.random_range(0..SMALL_BYTES_MAX),
        };
        let uid = match (owned[at], is_large) {
            (true, _) => UID,
            (false, true) => random.random_range(UID + 1..UID + 100),
            (false, false) => random.random_range(UID..UID + 100),
        };
        let age = match recent[at] {
            true => random.random_range(0..HOUR / 4),
            false => random.random_range(2 * HOUR..3 * 365 * 24 * HOUR),
        };
        Attributes { uid, size_bytes, mtime: now - age }
    };
    (0..files).map(one).collect()
}

/// Makes the files, sparse, and makes directories old, lest they be found.
fn populate(root: &OwnedFd, tree: &Tree, files: &[Attributes]) -> Result<()> {
    tree.make_directories(root)?;
    for (at, attributes) in files.iter().enumerate() {
        let path = tree.file(at);
        let file = create(root, &path)?;
        rustix::fs::ftruncate(&file, attributes.size_bytes)?;
        let (uid, gid) = (Uid::from_raw(attributes.uid), Gid::from_raw(attributes.uid));
        rustix::fs::fchown(&file, Some(uid), Some(gid))?;
        rustix::fs::futimens(&file, &times(attributes.mtime))?;
    }
    for path in tree.directories() {
        rustix::fs::utimensat(root, &path, &times(1_000_000_000), AtFlags::empty())?;
    }
    Ok(())
}

fn times(mtime: i64) -> Timestamps {
    let time = Timespec { tv_sec: mtime, tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

fn walk(bench: &mut Bench, query: &Query) -> Result<usize> {
    let (root, now) = (&bench.place.root, now()?);
    bench.cold_and_hot(&format!("{}: walk", query.name), || {
        let mut count = 0;
        walk::walk(&walk::open(root, "tree")?, &mut |stat| {
            count += usize::from((query.matches)(stat, now));
        })?;
        Ok(count)
    })
}

fn find(bench: &mut Bench, query: &Query) -> Result<usize> {
    let tree = bench.place.path("tree");
    bench.cold_and_hot(&format!("{}: find(1)", query.name), || lines_of_find(&tree, query.find))
}

fn lines_of_find(tree: &Path, arguments: &[&str]) -> Result<usize> {
    let output = Command::new("find").arg(tree).args(arguments).output().context("find")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "find: {}, {message}", output.status);
    Ok(output.stdout.iter().filter(|byte| **byte == b'\n').count())
}

fn list(bench: &mut Bench, query: &Query) -> Result<usize> {
    let root = &bench.place.root;
    let list = |with_stat| walk::list(&walk::open(root, query.directory)?, with_stat);
    let count = bench.cold_and_hot(&format!("{}: query", query.name), || list(false))?;
    let name = format!("{}: query and stat", query.name);
    let looked_at = bench.cold_and_hot(&name, || list(true))?;
    ensure!(count == looked_at, "{}: {count} results, then {looked_at}", query.directory);
    Ok(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn one_of_a_hundred_files_matches_each_query_and_others_match_half() {
        let now = 1_800_000_000;
        let files = attributes(20_000, StdRng::seed_from_u64(1), now);
        let count = |is: fn(&Attributes) -> bool| files.iter().filter(|file| is(file)).count();
        let is_large = |file: &Attributes| file.size_bytes > 1 << 20;
        assert_eq!(files.iter().filter(|file| file.uid == UID && is_large(file)).count(), 200);
        assert_eq!(files.iter().filter(|file| file.mtime > now - HOUR).count(), 200);
        assert!(count(|file| file.uid == UID) > 300);
        assert!(count(|file| file.size_bytes > 1 << 20) > 1000);
    }
}
