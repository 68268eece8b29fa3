//! A day of changes in the mix of Brindexer's Table IV, made to a real tree and taken in batch by
//! batch: what an update costs, and how much larger than a fresh index the index is in the end.

use crate::generate::Random;
use crate::measure::{interleaved, median, seconds};
use crate::process::{OfTree, space};
use anyhow::Context;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    of_tree: OfTree,
    /// Files of the tree, a hundred a directory; the day is scaled to them, a hundred million being
    /// the paper's file system
    #[arg(long, default_value_t = 1_000_000)]
    files: usize,
    /// How many updates take the day in
    #[arg(long, default_value_t = 1000)]
    updates: usize,
    /// Directories that change in the time of an update
    #[arg(long, default_value_t = 8)]
    directories: usize,
    /// Generations that the index keeps, as `canopy index --keep` takes them
    #[arg(long, default_value = "none")]
    keep: String,
    /// Counted runs of each search
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// Files of a directory.
const FILES: usize = 100;

/// Files of the file system whose day is scaled.
const WHOLE: usize = 100_000_000;

/// Directories of the whole that change on that day.
const CHANGING: usize = 110_000;

/// Share of each event in a day (Table IV). Events without a name in POSIX have that of `lfs`.
const MIX: [(Event, usize); 10] = [
    (Event::Create, 1_322_010),
    (Event::MakeDirectory, 67_791),
    (Event::Link, 8_841),
    (Event::Symlink, 94_711),
    (Event::Write, 10_098_485),
    (Event::Unlink, 750_480),
    (Event::RemoveDirectory, 59_841),
    (Event::Rename, 97_227),
    (Event::SetMode, 3_432_589),
    (Event::SetXattr, 164),
];

#[derive(Clone, Copy)]
enum Event {
    Create,
    MakeDirectory,
    Link,
    Symlink,
    Write,
    Unlink,
    RemoveDirectory,
    Rename,
    SetMode,
    SetXattr,
}

/// A directory that changes: the names in it that the day knows of.
struct Directory {
    path: PathBuf,
    files: Vec<String>,
    directories: Vec<String>,
}

/// Makes the tree and the day, removes both, and prints a table in Markdown.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { of_tree: OfTree { scratch, canopy }, files, updates, .. } = arguments;
    let tree = scratch.join("tree");
    let count = files / FILES;
    let mut random = Random(1);
    for number in 0..count {
        let directory = path_of(&tree, number);
        fs::create_dir_all(&directory)?;
        for file in 0..FILES {
            make(&directory.join(format!("file-{file}.data")), &mut random)?;
        }
    }
    let canopy = canopy.to_str().context("a path is not UTF-8")?;
    let root = tree.to_str().context("a path is not UTF-8")?;
    let [index, fresh] = &["index", "fresh"].map(|name| scratch.join(name));
    let [index_text, fresh_text] = [index, fresh].map(|path| path.to_string_lossy().into_owned());
    let at = |index: &str, words: &[&str]| -> anyhow::Result<f64> {
        seconds(&[&[canopy, "--index", index], words].concat())
    };
    at(&index_text, &["index", "--keep", &arguments.keep, root])?;
    let before = space(index)?;

    let mut changing = changing(&tree, *files);
    let day = shuffled_events(*files, &mut random);
    let events = day.len();
    let mut took = Vec::with_capacity(*updates);
    for (number, part) in day.chunks(events.div_ceil(*updates)).enumerate() {
        let some: Vec<usize> = (0..arguments.directories)
            .map(|_| random.below(changing.len() as u64) as usize)
            .collect();
        for (serial, event) in part.iter().enumerate() {
            let directory = some[serial % some.len()];
            carry_out(*event, &mut changing[directory], &format!("{number}-{serial}"), &mut random)
                .with_context(|| format!("in {}", changing[directory].path.display()))?;
        }
        let paths: Vec<String> =
            some.iter().map(|one| changing[*one].path.to_string_lossy().into_owned()).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        took.push(at(&index_text, &[&["update"], &paths[..]].concat())?);
    }
    let slowest = took.iter().copied().fold(0.0, f64::max);
    let sum: f64 = took.iter().sum();
    let after = space(index)?;
    at(&fresh_text, &["index", root])?;
    let whole = space(fresh)?;
    // As a daemon keeps it, without what stays a while for who reads.
    at(&index_text, &["compact", "--due", "--replace"])?;
    let compacted = space(index)?;
    let lines: Vec<Vec<&str>> = [&index_text, &fresh_text]
        .iter()
        .map(|index| vec![canopy, "--index", index, "du", "-s", root])
        .collect();
    let searches = interleaved(&lines, arguments.rounds)?;

    let row = |what: &str, value: String| println!("| {what} | {value} |");
    println!("| {files} files, {events} events in {updates} updates, keep {} | |", arguments.keep);
    println!("| --- | ---: |");
    row("update, median", format!("{:.1} ms", median(took) * 1000.0));
    row("the slowest", format!("{:.1} ms", slowest * 1000.0));
    row("all updates", format!("{sum:.1} s"));
    let described = |(bytes, files): (u64, u64)| {
        let times = bytes as f64 / whole.0 as f64;
        format!("{:.1} MB in {files} files, {times:.2} times a fresh index", bytes as f64 / 1e6)
    };
    row("the index before", described(before));
    row("after the day", described(after));
    row("after `compact --due --replace`", described(compacted));
    row("a fresh index", described(whole));
    let text = format!("{:.1} ms, {:.1} ms", searches[0] * 1000.0, searches[1] * 1000.0);
    row("`du -s`: after the day, of a fresh index", text);
    for directory in [&tree, index, fresh] {
        fs::remove_dir_all(directory)?;
    }
    Ok(())
}

/// Returns the directories that change in a day of a tree with so many files.
fn changing(tree: &Path, files: usize) -> Vec<Directory> {
    let directory = |number| Directory {
        path: path_of(tree, number * 7919 % (files / FILES)),
        files: (0..FILES).map(|file| format!("file-{file}.data")).collect(),
        directories: Vec::new(),
    };
    (0..(CHANGING * files / WHOLE).max(1)).map(directory).collect()
}

/// Returns the events of a day in a tree of this many files, in a random order.
fn shuffled_events(files: usize, random: &mut Random) -> Vec<Event> {
    let mut day: Vec<Event> = MIX
        .iter()
        .flat_map(|(event, times)| std::iter::repeat_n(*event, times * files / WHOLE))
        .collect();
    for place in (1..day.len()).rev() {
        day.swap(place, random.below(place as u64 + 1) as usize);
    }
    day
}

fn path_of(tree: &Path, number: usize) -> PathBuf {
    tree.join(format!("{}/{number}", number / FILES))
}

/// Makes a file with a hole, smaller than a gibibyte, of a time in the last three years.
fn make(path: &Path, random: &mut Random) -> anyhow::Result<()> {
    let file = File::create(path)?;
    let magnitude = random.below(31);
    file.set_len(random.below(1 << magnitude))?;
    let age = Duration::from_millis(random.below(1000 * 86_400 * 365 * 3));
    file.set_modified(SystemTime::now() - age)?;
    Ok(())
}

/// Does to a directory what an event tells of. Where there is nothing to do it to, another file is
/// made first.
fn carry_out(
    event: Event,
    directory: &mut Directory,
    serial: &str,
    random: &mut Random,
) -> anyhow::Result<()> {
    let Directory { path, files, directories } = directory;
    if files.is_empty() {
        make(&path.join(serial), random)?;
        files.push(serial.to_owned());
    }
    let chosen = random.below(files.len() as u64) as usize;
    let file = path.join(&files[chosen]);
    match event {
        Event::Create => {
            let name = format!("new-{serial}.data");
            make(&path.join(&name), random)?;
            files.push(name);
        }
        Event::MakeDirectory => {
            fs::create_dir(path.join(serial))?;
            directories.push(serial.to_owned());
        }
        Event::Link => {
            let name = format!("link-{serial}");
            fs::hard_link(&file, path.join(&name))?;
            files.push(name);
        }
        Event::Symlink => symlink("file-0.data", path.join(format!("symlink-{serial}")))?,
        Event::Write => OpenOptions::new().append(true).open(&file)?.write_all(b"more")?,
        Event::Unlink => {
            fs::remove_file(&file)?;
            files.swap_remove(chosen);
        }
        Event::RemoveDirectory => {
            if let Some(name) = directories.pop() {
                fs::remove_dir(path.join(name))?;
            }
        }
        Event::Rename => {
            let name = format!("moved-{serial}.data");
            fs::rename(&file, path.join(&name))?;
            files[chosen] = name;
        }
        Event::SetMode => {
            let mode = [0o644, 0o600, 0o640][random.below(3) as usize];
            fs::set_permissions(&file, Permissions::from_mode(mode))?;
        }
        Event::SetXattr => rustix::fs::setxattr(
            &file,
            "user.note",
            serial.as_bytes(),
            rustix::fs::XattrFlags::empty(),
        )?,
    }
    Ok(())
}
