//! The two layouts of an index side by side, as the paper on Brindexer measures its own: how long
//! it takes to make one, and to ask (Figures 7 and 9), for flat trees and for deep ones (Tables V
//! and VI). `find` on the tree itself stands beside them.

use crate::measure::{interleaved, median, seconds};
use crate::process::OfTree;
use anyhow::Context;
use nix::fcntl::AT_FDCWD;
use nix::sys::stat::{UtimensatFlags, utimensat};
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, chown};
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Directories of a flat tree.
const FLAT_DIRECTORIES: u64 = 1000;
/// Files of a directory of a deep tree, on average; the paper's have 9.27.
const DEEP_FILES: u64 = 9;
/// Users who own the directories at the top, each with all below.
const USERS: u32 = 100;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    of_tree: OfTree,
    /// Files of each tree
    #[arg(long, value_delimiter = ',', default_value = "400000,1200000")]
    files: Vec<u64>,
    /// Counted runs of each command
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// Prints a table in Markdown, of medians in seconds.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = |path: PathBuf| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let OfTree { scratch, canopy } = &arguments.of_tree;
    let canopy = text(canopy.clone())?;
    println!(
        "| tree | files | what | by access | leveled | find |\n| --- | --- | --- | --- | --- | --- |"
    );
    for (shape, name) in [(Shape::Flat, "flat"), (Shape::Deep, "deep")] {
        for &files in &arguments.files {
            let tree = scratch.join(format!("{name}-{files}"));
            let directory = make(&tree, shape, files)?;
            let (tree, directory) = (text(tree)?, text(directory)?);
            let indexes =
                ["access", "leveled"].map(|layout| scratch.join(format!("index-{layout}")));
            let [access, leveled] = indexes.clone().map(text);
            let (access, leveled) = (access?, leveled?);
            let print = |what: &str, times: &[f64]| {
                let times: Vec<String> = times.iter().map(|time| format!("{time:.4}")).collect();
                println!("| {name} | {files} | {what} | {} |", times.join(" | "));
            };
            let mut made = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..arguments.rounds {
                for (at, (index, layout)) in
                    [(&access, "access"), (&leveled, "leveled")].into_iter().enumerate()
                {
                    let _ = std::fs::remove_dir_all(index);
                    let words = ["--index", index, "index", "--quiet", "--layout", layout, &tree];
                    made[at].push(seconds(&[&[&*canopy], &words[..]].concat())?);
                }
                made[2].push(seconds(&["find", &tree, "-printf", "%s"])?);
            }
            print("index (find: `-printf %s`)", &made.map(median));
            for (what, question) in [
                (
                    "to be migrated: `-size +100M -atime +365`",
                    &["-size", "+100M", "-atime", "+365"][..],
                ),
                ("expired: `-type f -mtime +3650`", &["-type", "f", "-mtime", "+3650"]),
                ("names: `-name '*7.dat'`", &["-name", "*7.dat"]),
            ] {
                let asked =
                    |index| [&[&*canopy, "--index", index, "find", &tree], question].concat();
                let theirs = [&["find", &tree], question].concat();
                let lines = [asked(&access), asked(&leveled), theirs];
                print(what, &interleaved(&lines, arguments.rounds)?);
            }
            let by_user = |index| vec![&*canopy, "--index", index, "top", "users", &tree];
            let below = |index| vec![&*canopy, "--index", index, "find", &*directory, "-ls"];
            let sum = |index| vec![&*canopy, "--index", index, "du", "-s", &*directory];
            print(
                "bytes by user",
                &interleaved(&[by_user(&access), by_user(&leveled)], arguments.rounds)?,
            );
            let lines = [below(&access), below(&leveled), vec!["find", &directory, "-ls"]];
            print("one directory: `-ls`", &interleaved(&lines, arguments.rounds)?);
            let lines = [sum(&access), sum(&leveled), vec!["du", "-s", &directory]];
            print("one directory: `du -s` (du)", &interleaved(&lines, arguments.rounds)?);
            for index in &indexes {
                std::fs::remove_dir_all(index)?;
            }
        }
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Shape {
    Flat,
    Deep,
}

/// Makes a tree unless it is there, and returns a directory in its midst. Files are empty or
/// sparse, and have times of ten years and more.
fn make(tree: &Path, shape: Shape, files: u64) -> anyhow::Result<PathBuf> {
    let directories = match shape {
        Shape::Flat => FLAT_DIRECTORIES,
        Shape::Deep => (files / DEEP_FILES).max(1),
    };
    let middle = tree.join(path_of(shape, directories / 2));
    let done = tree.with_extension("done");
    if done.exists() {
        return Ok(middle);
    }
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().cast_signed();
    DirBuilder::new().recursive(true).mode(0o755).create(tree)?;
    for number in 0..directories {
        let directory = tree.join(path_of(shape, number));
        std::fs::create_dir_all(&directory)?;
        let user = owner(&path_of(shape, number));
        let first = files * number / directories;
        for file in first..files * (number + 1) / directories {
            let path = directory.join(format!("file{file}.dat"));
            let made = File::create(&path)?;
            if file % 50 == 0 {
                made.set_len((file % 4096) << 20)?;
            }
            let age_s = (file.wrapping_mul(2_654_435_761) % (12 * 365 * 86_400)).cast_signed();
            let time = TimeSpec::new(now_s - age_s, 0);
            utimensat(AT_FDCWD, &path, &time, &time, UtimensatFlags::NoFollowSymlink)?;
            chown(&path, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
        }
        let modes = [0o755, 0o750, 0o700];
        std::fs::set_permissions(
            &directory,
            Permissions::from_mode(modes[number as usize % modes.len()]),
        )?;
        chown(&directory, Some(Uid::from_raw(user)), Some(Gid::from_raw(user)))?;
    }
    File::create(done)?;
    Ok(middle)
}

/// Returns the path of a directory of a tree below its root. In a deep one, each has one or two below
/// itself, so that 640,000 of them are up to 17 levels deep, as the paper's.
fn path_of(shape: Shape, number: u64) -> PathBuf {
    let mut names = vec![format!("d{number}")];
    if matches!(shape, Shape::Deep) {
        let mut at = number;
        while at >= u64::from(USERS) {
            at = (at - u64::from(USERS)) * 10 / 17;
            names.push(format!("d{at}"));
        }
    }
    names.into_iter().rev().collect()
}

/// Returns who owns a directory: the same user all below one at the top.
fn owner(path: &Path) -> u32 {
    let top = path.iter().next().map(|name| name.as_encoded_bytes());
    let number = top.and_then(|name| std::str::from_utf8(&name[1..]).ok()?.parse::<u32>().ok());
    2000 + number.unwrap_or_default() % USERS
}
