//! Draws Figures 7 and 9 of the GIGA+ paper, from the code of `canopy-partition`, and Figures 4, 5, 6,
//! 8 and 10 from the tables of `bench/RESULTS.md`: `partition-figures [DIRECTORY]`. Without a directory,
//! it replaces the plots of the documentation.
//!
//! Seeds are constant, so each run draws the same plots.

mod addressing;
#[path = "../../../crates/partition/tests/figures/balance.rs"]
mod balance;
mod chart;
mod clusters;
#[path = "../../../crates/partition/tests/figures/growth.rs"]
mod growth;
mod load;

use std::path::{Path, PathBuf};

fn main() -> anyhow::Result<()> {
    let pictures = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/pictures");
    let directory = std::env::args_os().nth(1).map_or_else(pictures, PathBuf::from);
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("RESULTS.md");
    clusters::draw(&results, &directory)?;
    load::draw(&directory.join("gigaplus-figure-7.svg"))?;
    addressing::draw(&directory.join("gigaplus-figure-9.svg"))
}
