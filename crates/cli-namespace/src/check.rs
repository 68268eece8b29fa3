//! `canopy ns check`.

use crate::place;
use canopy::Outcome;
use std::io::Write;
use std::path::Path;

pub fn run(namespace: &Path) -> anyhow::Result<Outcome> {
    let opened = place::open(namespace)?;
    let faults = opened.check(|_| {})?;
    let mut out = std::io::stdout().lock();
    for fault in &faults {
        writeln!(out, "file {}: {}", fault.id, fault.what)?;
    }
    match faults.len() {
        0 => writeln!(out, "no faults")?,
        1 => writeln!(out, "1 fault")?,
        count => writeln!(out, "{count} faults")?,
    }
    Ok(if faults.is_empty() { Outcome::Complete } else { Outcome::Partial })
}
