//! `canopy index --dry-run`: prints trees that would be scanned and entries that would be left out, and
//! by which configuration.

use super::summary::shown_time;
use crate::outcome::{Outcome, without_numbers};
use canopy_ingest::plan::{Plan, PlannedSource, PlannedState};
use canopy_site::Settings;
use canopy_text::safe::message_line;
use canopy_text::{counted, human_size};
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;

/// Prints a plan. A tree that cannot be scanned makes the answer partial.
pub(super) fn print(plan: &Plan, settings: &Settings, as_json: bool) -> anyhow::Result<Outcome> {
    let mut output = std::io::stdout().lock();
    if as_json {
        writeln!(output, "{:#}", exact(json_of(plan, settings)))?;
    } else {
        print_text(plan, settings, &mut output)?;
    }
    let is_whole = plan.sources.iter().all(|source| source.state.is_ok());
    Ok(if is_whole { Outcome::Complete } else { Outcome::Partial })
}

fn print_text(plan: &Plan, settings: &Settings, output: &mut impl Write) -> anyhow::Result<()> {
    for source in &plan.sources {
        writeln!(output, "{}", shown(&source.path))?;
        writeln!(output, "  {}", state_of(source))?;
        if let Some(name) = &source.name {
            writeln!(output, "  name: {}", message_line(name))?;
        }
        let flags = [
            (source.one_file_system, "stays on its file system"),
            (source.no_xattrs, "without extended attributes and ACLs"),
        ];
        for (_, flag) in flags.iter().filter(|(is_set, _)| *is_set) {
            writeln!(output, "  {flag}")?;
        }
        for (pattern, why) in &source.left_out {
            writeln!(output, "  without {} ({why})", message_line(pattern))?;
        }
        for (point, file_system, why) in &source.mounts {
            writeln!(output, "  without {} ({file_system}: {why})", shown(point))?;
        }
    }
    let generation = match plan.generation {
        Some(generation) => format!("generation {generation} would be replaced"),
        None => "none yet".to_owned(),
    };
    writeln!(output, "index: {} ({generation})", shown(&plan.index))?;
    let memory = human_size(i64::try_from(plan.memory_bytes).unwrap_or(i64::MAX));
    writeln!(output, "threads: {}, memory: {memory}", plan.threads)?;
    let files: Vec<String> = settings.files.iter().map(|file| shown(file)).collect();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    writeln!(output, "configuration: {files}")?;
    // Sources are printed above.
    for (key, value) in settings.of_scans().into_iter().filter(|(key, _)| *key != "sources") {
        writeln!(output, "  {key} = {}", message_line(&value.to_string()))?;
    }
    writeln!(output, "Nothing was written.")?;
    Ok(())
}

fn json_of(plan: &Plan, settings: &Settings) -> Value {
    let source = |source: &PlannedSource| {
        let (entries, scanned_ns) = match source.state {
            Ok(PlannedState::Indexed { entries, scanned_ns }) => (Some(entries), Some(scanned_ns)),
            _ => (None, None),
        };
        let within = match &source.state {
            Ok(PlannedState::Within(root)) => Some(root.to_string_lossy()),
            _ => None,
        };
        let left_out = source.left_out.iter();
        let mounts = source.mounts.iter();
        json!({
            "path": source.path.to_string_lossy(),
            "name": source.name,
            "error": source.state.as_ref().err().map(error_of),
            "entries": entries,
            "scanned_ns": scanned_ns,
            "within": within,
            "one_file_system": source.one_file_system,
            "no_xattrs": source.no_xattrs,
            "left_out": left_out
                .map(|(pattern, why)| json!({ "pattern": pattern, "by": why }))
                .collect::<Vec<_>>(),
            "mounts": mounts
                .map(|(point, file_system, why)| json!({
                    "path": point.to_string_lossy(),
                    "file_system": file_system,
                    "reason": why,
                }))
                .collect::<Vec<_>>(),
        })
    };
    let configured: serde_json::Map<String, Value> =
        settings.of_scans().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    json!({
        "index": plan.index.to_string_lossy(),
        "generation": plan.generation,
        "threads": plan.threads,
        "memory_bytes": plan.memory_bytes,
        "sources": plan.sources.iter().map(source).collect::<Vec<_>>(),
        "configuration_files":
            settings.files.iter().map(|file| file.to_string_lossy()).collect::<Vec<_>>(),
        "configuration": configured,
    })
}

fn state_of(source: &PlannedSource) -> String {
    match &source.state {
        Err(error) => format!("cannot be scanned: {}", message_line(&error_of(error))),
        Ok(PlannedState::New) => "new".to_owned(),
        Ok(PlannedState::Within(root)) => format!("a part of the source {}", shown(root)),
        Ok(PlannedState::Indexed { entries, scanned_ns }) => {
            format!(
                "in the index: {}, scanned {}",
                counted(entries, "entry"),
                shown_time(*scanned_ns)
            )
        }
    }
}

fn error_of(error: &anyhow::Error) -> String {
    without_numbers(&format!("{error:#}"))
}

fn shown(path: &Path) -> String {
    message_line(&path.to_string_lossy()).into_owned()
}
