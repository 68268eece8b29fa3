//! Costs of following a real tree: updates of single directories, an incremental scan beside the
//! bare walk, and searches before and after many updates.

use crate::measure::{interleaved, median, seconds};
use crate::process::{OfTree, space};
use anyhow::Context;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    of_tree: OfTree,
    /// Files of the tree, ten a directory
    #[arg(long, default_value_t = 1_000_000)]
    files: usize,
    /// Index the tree so many times, by bind mounts (needs root), each as a source of its own
    #[arg(long, default_value_t = 1)]
    copies: usize,
    /// Updates between the first searches and the last ones
    #[arg(long, default_value_t = 1000)]
    updates: usize,
    /// Counted runs of each command
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// Files of a directory.
const FILES: usize = 10;

/// Directories of one above them.
const DIRECTORIES: usize = 100;

/// Makes the tree, measures, removes the tree, and prints a table in Markdown.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Arguments { of_tree: OfTree { scratch, canopy }, files, copies, updates, rounds } =
        arguments;
    let (tree, index) = (scratch.join("tree"), scratch.join("index"));
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (canopy, index, root) = (text(canopy)?, text(&index)?, text(&tree)?);
    let directories = files / FILES;
    let directory = |number: usize| tree.join(format!("{}/{number}", number / DIRECTORIES));
    for number in 0..directories {
        fs::create_dir_all(directory(number))?;
        for file in 0..FILES {
            fs::write(directory(number).join(format!("file-{file}.data")), "")?;
        }
    }
    let ours = |words: &[&str]| {
        let words = words.iter().map(|&word| word.to_owned());
        [canopy.clone(), "--index".to_owned(), index.clone()].into_iter().chain(words).collect()
    };
    let time = |words: &[&str]| -> anyhow::Result<f64> {
        let words: Vec<String> = ours(words);
        seconds(&words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mounts = BindMounts::new(scratch, &tree, copies - 1)?;
    println!("| {copies} times {files} files in {directories} directories | |\n| --- | ---: |");
    let row = |what: &str, value: String| println!("| {what} | {value} |");
    let all: Vec<&str> = [&*root].into_iter().chain(mounts.0.iter().map(String::as_str)).collect();
    row("first scan", format!("{:.2} s", time(&[&["index"], &all[..]].concat())?));
    let itself = std::env::current_exe()?.to_str().context("a path is not UTF-8")?.to_owned();
    let incremental: Vec<String> = ours(&["index", "--incremental", &root]);
    let commands = [
        vec![itself.as_str(), "walk", &root],
        vec![itself.as_str(), "walk", "--of-scan", &root],
        incremental.iter().map(String::as_str).collect(),
    ];
    let times = interleaved(&commands, *rounds)?;
    row("bare walk", format!("{:.3} s", times[0]));
    row("bare walk with the system calls of a scan", format!("{:.3} s", times[1]));
    row("incremental scan, nothing changed", format!("{:.3} s", times[2]));
    row("", format!("{:.2} times the latter walk", times[2] / times[1]));

    let middle = text(&directory(directories / 2))?;
    let search = |when: &str| -> anyhow::Result<()> {
        let questions = [
            ("`du -s` of a tree", ours(&["du", "-s", &root])),
            ("`find` of a small directory", ours(&["find", &middle])),
        ];
        for (what, line) in questions {
            let line: Vec<String> = line;
            let line = line.iter().map(String::as_str).collect::<Vec<_>>();
            let took = interleaved(&[line], *rounds)?[0];
            row(&format!("{what}, {when}"), format!("{:.1} ms", took * 1000.0));
        }
        row(&format!("files of the index, {when}"), space(index.as_ref())?.1.to_string());
        Ok(())
    };
    search("after a scan")?;
    let mut took = Vec::with_capacity(*updates);
    for update in 0..*updates {
        let changed = directory(update * 7919 % directories);
        fs::write(changed.join(format!("new-{update}")), "")?;
        took.push(time(&["update", &text(&changed)?])?);
    }
    let slowest = took.iter().copied().fold(0.0, f64::max);
    let median = median(took);
    row("update of a small directory, median", format!("{:.1} ms", median * 1000.0));
    row("the slowest", format!("{:.1} ms", slowest * 1000.0));
    search(&format!("after {updates} updates"))?;
    drop(mounts);
    fs::remove_dir_all(&tree)?;
    fs::remove_dir_all(&index)?;
    Ok(())
}

/// The same tree at several places; unmounted when it is dropped.
pub struct BindMounts(pub Vec<String>);

impl BindMounts {
    pub fn new(scratch: &Path, tree: &Path, count: usize) -> anyhow::Result<Self> {
        let mut mounts = BindMounts(Vec::new());
        for number in 0..count {
            let place = scratch.join(format!("copy-{number}"));
            fs::create_dir_all(&place)?;
            let mounted = Command::new("mount").arg("--bind").args([tree, &place]).status()?;
            anyhow::ensure!(mounted.success(), "cannot mount the tree at {}", place.display());
            mounts.0.push(place.to_str().context("a path is not UTF-8")?.to_owned());
        }
        Ok(mounts)
    }
}

impl Drop for BindMounts {
    fn drop(&mut self) {
        for place in &self.0 {
            if Command::new("umount").arg(place).status().is_ok_and(|status| status.success()) {
                drop(fs::remove_dir(place));
            }
        }
    }
}
