//! Results of `canopy check` for people, and as JSON.

use crate::outcome::without_numbers;
use canopy_index::{CheckReport, Damage, Remedy};
use canopy_model::{Generation, unescape};
use canopy_text::safe::message_line;
use canopy_text::{counted, human_size};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Most directories that the line of a damaged file names; `--json` names all that are known.
const NAMED_MAX: usize = 3;

/// Returns the damage and a summary of it, without remedies.
pub(super) fn damage_lines(location: &Path, report: &CheckReport) -> Vec<String> {
    let read =
        format!("{}, {} read", counted(report.files, "file"), human_size(report.bytes as i64));
    let part = if report.is_whole { "" } else { ", as far as you may read it" };
    let generations = match report.kept.len() {
        0 => format!("generation {}", report.generation),
        kept => format!("generation {} and {}", report.generation, counted(kept, "older one")),
    };
    let mut lines: Vec<String> = report.damages.iter().map(line_of).collect();
    match report.damages.len() {
        0 => lines.push(format!("{} is sound{part}: {generations}, {read}", location.display())),
        count => {
            let are = if count == 1 { "is" } else { "are" };
            let files = counted(count, "file");
            lines.push(format!("{files} {are} damaged{part}: {generations}, {read}"));
        }
    }
    lines
}

/// Formats a damaged file with its contents and the directories that they describe.
fn line_of(damage: &Damage) -> String {
    let Damage { file, contents, detail, affected, .. } = damage;
    let detail = without_numbers(detail);
    let file = message_line(&file.to_string_lossy()).into_owned();
    let mut directories: Vec<&String> = Vec::new();
    for (root, own) in affected {
        directories.extend(if own.is_empty() { std::slice::from_ref(root) } else { own });
    }
    let named: Vec<String> = directories.iter().take(NAMED_MAX).map(|path| shown(path)).collect();
    let more = match directories.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    match named.is_empty() {
        true => format!("{file} ({contents}): {detail}"),
        false => format!("{file} ({contents} of {}{more}): {detail}", named.join(", ")),
    }
}

/// Returns the remedies, a sentence for each kind of damage.
pub(super) fn remedies(report: &CheckReport) -> Vec<String> {
    let with = |remedy: Remedy| report.damages.iter().filter(move |it| it.remedy == remedy);
    let list =
        |roots: &BTreeSet<&String>| Vec::from_iter(roots.iter().map(|root| shown(root))).join(", ");
    let mut told = Vec::new();
    if !report.is_whole && with(Remedy::Anew).next().is_none() {
        return vec!["whoever writes the index can repair it with 'canopy check --repair'".into()];
    }
    if with(Remedy::Anew).next().is_some() {
        let roots: BTreeSet<&String> =
            with(Remedy::Anew).flat_map(|damage| damage.affected.keys()).collect();
        let sources = if roots.is_empty() { "its sources".to_owned() } else { list(&roots) };
        return vec![format!(
            "the rest does not suffice to repair the index: remove it, and index {sources} again"
        )];
    }
    if with(Remedy::Protect).next().is_some() {
        told.push(
            "until only its owner can write to it, nothing writes the index, and no repair does; \
             others may have changed what is in it"
                .into(),
        );
    }
    if with(Remedy::Rewrite).next().is_some() {
        told.push(
            "'canopy check --repair' rewrites files that can be derived from the rest".into(),
        );
    }
    let roots: BTreeSet<&String> =
        with(Remedy::Scan).flat_map(|damage| damage.affected.keys()).collect();
    let (imported, scanned): (BTreeSet<_>, BTreeSet<_>) =
        roots.into_iter().partition(|root| report.unscanned.contains(*root));
    if !scanned.is_empty() {
        told.push(format!("'canopy check --repair' scans {} anew", list(&scanned)));
    }
    if !imported.is_empty() {
        told.push(format!("{} was not scanned: import or read it again", list(&imported)));
    }
    if with(Remedy::Compute).next().is_some() {
        told.push("'canopy check --repair' computes derived tables anew".to_owned());
    }
    let lost = |damage: &Damage| match damage.remedy {
        Remedy::Lost(generation) => Some(generation),
        _ => None,
    };
    let past: BTreeSet<Generation> = report.damages.iter().filter_map(lost).collect();
    for generation in past {
        told.push(format!(
            "nothing brings back what only generation {generation} has; other generations do not \
             need it"
        ));
    }
    if report.damages.iter().all(|damage| lost(damage).is_some()) && !report.damages.is_empty() {
        told.push(
            "'canopy compact --keep none' ends this: it gives up all older generations".to_owned(),
        );
    }
    told
}

/// Returns the report as one object.
pub(super) fn json_of(location: &Path, report: &CheckReport) -> Value {
    let damage = |damage: &Damage| {
        let (remedy, generation) = match damage.remedy {
            Remedy::Rewrite => ("rewrite", None),
            Remedy::Protect => ("protect", None),
            Remedy::Scan => ("scan", None),
            Remedy::Compute => ("compute", None),
            Remedy::Lost(generation) => ("none", Some(generation)),
            Remedy::Anew => ("index again", None),
        };
        json!({
            "file": damage.file.to_string_lossy(),
            "contents": damage.contents,
            "detail": without_numbers(&damage.detail),
            "remedy": remedy,
            "generation": generation.unwrap_or(report.generation),
            "sources": damage.affected.iter().map(|(root, directories)| json!({
                "root": root, "directories": directories,
            })).collect::<Vec<_>>(),
        })
    };
    json!({
        "index": location.to_string_lossy(),
        "generation": report.generation,
        "kept": report.kept,
        "sound": report.damages.is_empty(),
        "whole": report.is_whole,
        "files": report.files,
        "bytes": report.bytes,
        "damages": report.damages.iter().map(damage).collect::<Vec<_>>(),
        "remedies": remedies(report),
    })
}

/// Returns a path for people.
fn shown(escaped: &str) -> String {
    message_line(&String::from_utf8_lossy(&unescape(escaped))).into_owned()
}
