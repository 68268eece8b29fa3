//! `canopy store list`

use crate::manifest::phase;
use crate::show::stdout;
use crate::storage::{open_storage, tables};
use canopy::{Outcome, message};
use canopy_store::manifest::{Manifest, Phase};
use canopy_store::{TableId, inspect};
use serde_json::json;
use std::io::Write;

const HEADS: [&str; 10] = [
    "TABLE",
    "PHASE",
    "EPOCH",
    "VERSION",
    "RUNS",
    "SSTABLES",
    "BYTES",
    "RECORDS",
    "CHECKPOINTS",
    "PARENTS",
];

/// Carries the subcommand out.
pub fn run(location: &str, is_json: bool) -> anyhow::Result<Outcome> {
    let environment = open_storage(location)?;
    let (mut manifests, mut errors) = (Vec::new(), Vec::new());
    for id in tables(&environment)? {
        match inspect(&environment, id) {
            Ok(manifest) => manifests.push((id, manifest)),
            Err(error) => errors.push(error),
        }
    }
    if manifests.is_empty() && errors.is_empty() {
        message(format_args!("there are no tables in {location}"));
    }
    let mut output = stdout(is_json);
    if is_json {
        for (id, manifest) in &manifests {
            writeln!(output, "{}", as_json(*id, manifest))?;
        }
    } else if !manifests.is_empty() {
        print(&manifests, &mut output)?;
    }
    output.flush()?;
    errors.iter().for_each(message);
    Ok(Outcome::of_errors(&errors))
}

/// Returns SSTables, bytes and records that a manifest refers to.
fn sums(manifest: &Manifest) -> (usize, u64, u64) {
    manifest.state.sstables().fold((0, 0, 0), |(count, bytes, records), one| {
        (
            count + 1,
            one.info.size_bytes.saturating_add(bytes),
            one.info.records.saturating_add(records),
        )
    })
}

fn as_json(id: TableId, manifest: &Manifest) -> serde_json::Value {
    let (sstables, bytes, records) = sums(manifest);
    let state = &manifest.state;
    let parents = Vec::from_iter(state.parents.iter().map(|parent| parent.table.to_string()));
    json!({
        "table": id.to_string(),
        "phase": phase(state.phase),
        "epoch": state.epoch,
        "version": manifest.version.number,
        "runs": state.runs.len(),
        "sstables": sstables,
        "bytes": bytes,
        "records": records,
        "checkpoints": state.checkpoints.len(),
        "parents": parents,
    })
}

fn row(id: TableId, manifest: &Manifest) -> [String; 10] {
    let (sstables, bytes, records) = sums(manifest);
    let state = &manifest.state;
    // A deleted table stores nothing any more, whatever the last manifest says.
    let is_there = state.phase != Phase::Deleted;
    let known = |number: u64| if is_there { number.to_string() } else { "-".into() };
    [
        id.to_string(),
        phase(state.phase).into(),
        state.epoch.to_string(),
        manifest.version.number.to_string(),
        known(state.runs.len() as u64),
        known(sstables as u64),
        known(bytes),
        known(records),
        state.checkpoints.len().to_string(),
        state.parents.len().to_string(),
    ]
}

fn print(manifests: &[(TableId, Manifest)], output: &mut dyn Write) -> std::io::Result<()> {
    let mut rows = vec![HEADS.map(str::to_owned)];
    rows.extend(manifests.iter().map(|(id, manifest)| row(*id, manifest)));
    crate::manifest::print_aligned(&rows, 2, "", output)
}
