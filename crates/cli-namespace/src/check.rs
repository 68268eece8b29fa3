//! `canopy ns check`.

use crate::place;
use canopy::Outcome;
use canopy_mount::CHECK;
use std::io::Write;
use std::path::Path;

pub fn run(namespace: &Path) -> anyhow::Result<Outcome> {
    let faults = match place::control(namespace, CHECK)? {
        Some(told) => told.lines().map(str::to_owned).collect(),
        None => {
            let faults = place::open(namespace)?.check(|_| {})?;
            Vec::from_iter(faults.iter().map(|fault| format!("file {}: {}", fault.id, fault.what)))
        }
    };
    let mut out = std::io::stdout().lock();
    for fault in &faults {
        writeln!(out, "{fault}")?;
    }
    match faults.len() {
        0 => writeln!(out, "no faults")?,
        1 => writeln!(out, "1 fault")?,
        count => writeln!(out, "{count} faults")?,
    }
    Ok(if faults.is_empty() { Outcome::Complete } else { Outcome::Partial })
}
