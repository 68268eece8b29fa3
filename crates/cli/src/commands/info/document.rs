//! `canopy info --json`: the state of an index as one object.

use crate::outcome::without_numbers;
use canopy_index::{Failure, Index, KeptGeneration, SharedProgress, SourceRecord, Unfinished};
use canopy_ingest::count;
use serde_json::{Value, json};

/// Returns the state of an index.
pub(super) fn document(index: &Index) -> anyhow::Result<Value> {
    let held = count(index, None)?;
    let checked = index.checked()?;
    let checked_ns = |source: &SourceRecord| {
        let own = checked.iter().find(|checked| checked.root == source.root);
        own.map(|checked| checked.scanned_ns)
    };
    let source = |source: &SourceRecord| -> anyhow::Result<Value> {
        let held = count(index, Some(source.id))?;
        Ok(json!({
            "name": source.name,
            "root": source.root,
            "scanned_ns": source.scanned_ns,
            "updated_ns": source.updated_ns,
            "checked_ns": checked_ns(source),
            "visible_entries": held.entries(),
            "visible_files": held.files,
            "visible_directories": held.directories,
            "visible_bytes": held.bytes,
        }))
    };
    let failure = |failure: &Failure| {
        json!({
            "root": failure.root,
            "since_ns": failure.since_ns,
            "last_ns": failure.last_ns,
            "reason": without_numbers(&failure.reason),
            "published": failure.published,
        })
    };
    let unfinished = |scan: &Unfinished| {
        json!({
            "begun_ns": scan.begun_ns,
            "noted_ns": scan.noted_ns,
            "entries": scan.entries,
            "done": scan.done,
            "root": scan.source.as_ref().map(|source| &source.root),
        })
    };
    let shared = |scan: &SharedProgress| {
        json!({
            "begun_ns": scan.begun_ns,
            "entries": scan.entries,
            "root": scan.root,
            "parts_left": scan.parts_left,
            "parts_done": scan.parts_done,
        })
    };
    let generation = |kept: &KeptGeneration| {
        let KeptGeneration { generation, published_ns } = kept;
        json!({ "generation": generation, "published_ns": published_ns })
    };
    Ok(json!({
        "index": index.path(),
        "generation": index.generation(),
        "published_ns": index.published_ns(),
        "retention": index.retention().to_string(),
        "kept": index.kept().iter().map(generation).collect::<Vec<_>>(),
        "sources": index.sources().iter().map(source).collect::<anyhow::Result<Vec<_>>>()?,
        "unfinished": index.unfinished().as_ref().map(unfinished),
        "shared": index.shared_scan().as_ref().map(shared),
        "failures": index.failures()?.iter().map(failure).collect::<Vec<_>>(),
        "classes": index.classes().all,
        "visible_classes": index.classes().visible,
        "visible_shards": held.shards,
        "visible_entries": held.entries(),
        "visible_files": held.files,
        "visible_directories": held.directories,
        "visible_bytes": held.bytes,
        "bytes_per_entry": held.bytes as f64 / (held.entries().max(1) as f64),
    }))
}
