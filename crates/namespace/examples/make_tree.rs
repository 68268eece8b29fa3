//! Makes a tree of many files to measure `canopy ns import` with: directories of 100 files each,
//! 100 of them in each directory above.
//!
//! `cargo run --release -p canopy-namespace --example make_tree DIRECTORY ENTRIES`

use std::fs::{self, File};
use std::path::PathBuf;

const NAMES: u64 = 100;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), Some(entries)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: make_tree DIRECTORY ENTRIES");
        std::process::exit(2);
    };
    let directory = PathBuf::from(directory);
    let entries: u64 = entries.to_string_lossy().parse().map_err(std::io::Error::other)?;
    let (mut made, mut at) = (0, 0);
    while made < entries {
        let above = directory.join(format!("group-{:05}", at / NAMES));
        let below = above.join(format!("run-{:03}", at % NAMES));
        fs::create_dir_all(&below)?;
        made += 1 + u64::from(at % NAMES == 0);
        for file in 0..NAMES.min(entries.saturating_sub(made)) {
            File::create(below.join(format!("result-{at:06}-{file:03}.dat")))?;
            made += 1;
        }
        at += 1;
    }
    Ok(())
}
