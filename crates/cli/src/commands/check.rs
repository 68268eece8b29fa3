//! `canopy check`

use super::building::{end_if_asked, publish_changes, with_progress, with_progress_reported};
use super::index_faults::{Faults, warn_of_mounts};
use super::scanning::{Scans, one_reader, scan_threads};
use super::update::{Task, list_anew};
use crate::config::settings;
use crate::limits::{memory_size, rate};
use crate::options::stdout_for_json;
use crate::outcome::{Outcome, answered, message, said, say, warn_of, without_numbers};
use crate::{Engine, companion, counted, interrupt, places};
use canopy_as_user::subordinate_uids;
use canopy_index::{
    CheckReport, Checker, Damage, Published, Remedy, ScanRecord, SourceRecord, Writer,
    WriterOptions,
};
use canopy_model::{Generation, unescape};
use canopy_scan::{MountRules, Selection};
use canopy_text::human_size;
use canopy_text::safe::message_line;
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most directories that the line of a damaged file names; `--json` names all that are known.
const NAMED_MAX: usize = 3;

/// Check every file of the index for damage, and repair it
///
/// Reads every block of every file, including those of older generations, and compares owners and
/// permissions with what they should be. Prints each damaged file with its contents and the
/// directories that they describe. Changes nothing; others may read and write the index meanwhile.
/// Users who do not write the index check the part that they may read. Exit code 0: sound; 1:
/// damaged; 2: the index cannot be checked.
///
/// --repair rewrites files that can be derived from the rest, and scans sources with lost data
/// again with the options of their last scan. Other sources stay as they are. The repair is one new
/// generation; until it is published, queries use the old one. Sources that were imported must be
/// imported again.
///
/// Example: canopy check --repair
#[derive(clap::Args)]
pub struct Arguments {
    /// Repair damaged files, and check again
    #[arg(long)]
    pub repair: bool,
    /// Threads that read and scan [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// With --repair, scan at most N entries per second, to spare a busy server
    #[arg(long, value_name = "N", value_parser = rate, requires = "repair")]
    max_rate: Option<NonZeroU32>,
    /// With --repair, memory for building the index, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Carries the command out.
pub fn run(
    index: Option<PathBuf>,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let location = match arguments.repair {
        true => places::to_write(index)?,
        false => places::to_check(index)?,
    };
    let threads = scan_threads(arguments.threads);
    let report = check(&location, threads)?;
    if !arguments.repair {
        answered(print(&location, &report, arguments.json))?;
        return Ok(outcome_of(&report));
    }
    anyhow::ensure!(
        report.is_whole || report.damages.iter().any(|it| it.remedy == Remedy::Anew),
        "only who writes the index at {} can repair it; 'canopy check' checks the part that you \
         can read",
        location.display()
    );
    if report.damages.is_empty() {
        answered(print(&location, &report, arguments.json))?;
        return Ok(Outcome::Complete);
    }
    if engine.is_none() && report.has_derived_tables {
        return companion::Companion::Sql.run();
    }
    if !arguments.json {
        answered(print_lines(&damage_lines(&location, &report)))?;
    }
    interrupt::watch()?;
    let repaired = Repair { location: &location, arguments: &arguments, threads, engine };
    let is_complete = repaired.run(&report)?;
    let after = check(&location, threads)?;
    said(print(&location, &after, arguments.json))?;
    Ok(if is_complete { outcome_of(&after) } else { Outcome::Partial })
}

fn outcome_of(report: &CheckReport) -> Outcome {
    if report.damages.is_empty() { Outcome::Complete } else { Outcome::Partial }
}

fn check(location: &Path, threads: usize) -> anyhow::Result<CheckReport> {
    let checker = Checker::default();
    let told = |_| {
        let (files, bytes) = checker.progress();
        format!("{} read, {}", counted(files, "file"), human_size(bytes as i64))
    };
    Ok(with_progress(told, || checker.check(location, threads))?)
}

/// Returns a path for people.
fn shown(escaped: &str) -> String {
    message_line(&String::from_utf8_lossy(&unescape(escaped))).into_owned()
}

/// Prints the report, as lines or as JSON.
fn print(location: &Path, report: &CheckReport, as_json: bool) -> io::Result<()> {
    if as_json {
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(json_of(location, report)))?;
        return output.flush();
    }
    let mut lines = damage_lines(location, report);
    if !report.damages.is_empty() {
        lines.extend(remedies(report));
    }
    print_lines(&lines)
}

fn print_lines(lines: &[String]) -> io::Result<()> {
    let mut output = io::stdout().lock();
    lines.iter().try_for_each(|line| writeln!(output, "{}", message_line(line)))
}

/// Returns the damage and a summary of it, without remedies.
fn damage_lines(location: &Path, report: &CheckReport) -> Vec<String> {
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
fn remedies(report: &CheckReport) -> Vec<String> {
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

fn json_of(location: &Path, report: &CheckReport) -> Value {
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

/// Returns the roots of sources whose scan options are lost, if they are trees of this machine.
fn of_unknown_options(writer: &Writer) -> BTreeSet<String> {
    let is_here = |source: &SourceRecord| {
        let about = canopy_read::to_path(&source.root).symlink_metadata();
        about.is_ok_and(|it| (it.dev(), it.ino()) == (source.dev, source.attributes.ino))
    };
    let sources = writer.sources().into_iter();
    let unknown = sources.filter(|(source, record)| record.is_none() && is_here(source));
    unknown.map(|(source, _)| source.root).collect()
}

/// One repair.
struct Repair<'a> {
    location: &'a Path,
    arguments: &'a Arguments,
    threads: usize,
    engine: Option<&'a Engine>,
}

impl Repair<'_> {
    /// Repairs what can be repaired; returns whether every source that needs a scan was scanned.
    fn run(&self, report: &CheckReport) -> anyhow::Result<bool> {
        places::check_links(self.location)?;
        let remedies = |remedy: Remedy| report.damages.iter().filter(move |it| it.remedy == remedy);
        if remedies(Remedy::Anew).next().is_some() {
            let location = self.location.display();
            let advice = self::remedies(report).join("; ");
            anyhow::bail!("the index at {location} cannot be repaired: {advice}");
        }
        let mut writer = Writer::open(self.location, self.options())?;
        let (mut unknown, mut lost_queries) = (BTreeSet::new(), false);
        let mut roots: BTreeSet<String> =
            remedies(Remedy::Scan).flat_map(|damage| damage.affected.keys().cloned()).collect();
        if let Some(salvaged) = writer.salvaged() {
            roots.extend(salvaged.to_scan.iter().cloned());
            if salvaged.guesses_retention && !report.kept.is_empty() {
                message(
                    "the setting of how many older generations to keep is lost: set it again with \
                     'canopy compact --keep'",
                );
            }
            for table in &salvaged.lost_tables {
                message(format_args!("the query of the table {table} is lost: derive it again"));
                lost_queries = true;
            }
            if salvaged.lost_options {
                unknown = of_unknown_options(&writer);
            }
            if let Some(generation) = salvaged.from_generation {
                message(format_args!("the index is rebuilt from generation {generation}"));
            }
        }
        for root in &unknown {
            message(format_args!(
                "the options of the last scan of {} are lost: it is scanned with the configured \
                 ones; index it again if it was indexed with options such as -x or --exclude",
                shown(root)
            ));
        }
        roots.extend(unknown.iter().cloned());
        writer.renew_damaged()?;
        if remedies(Remedy::Rewrite).next().is_some() {
            writer.publish_anyway();
        }
        if remedies(Remedy::Compute).next().is_some() {
            writer.clear_derived();
            writer.publish_anyway();
        }
        let (writer, is_complete) = self.scan(writer, (&roots, &unknown))?;
        let published = self.publish(writer)?;
        if !self.arguments.json && !published.is_unchanged {
            say(format_args!("repaired in generation {}", published.generation))?;
        }
        Ok(is_complete && !lost_queries)
    }

    fn options(&self) -> WriterOptions {
        WriterOptions {
            memory_bytes: self.arguments.memory,
            threads: self.threads,
            holders: subordinate_uids(),
            salvages: true,
            ..WriterOptions::default()
        }
    }

    /// Scans sources again; returns whether all could be scanned. The others stay as they are.
    fn scan(
        &self,
        mut writer: Writer,
        (roots, unknown): (&BTreeSet<String>, &BTreeSet<String>),
    ) -> anyhow::Result<(Writer, bool)> {
        let memory = (self.arguments.memory, self.threads);
        let faults = Faults::new(None, self.location, None)?;
        let scans = Scans::new(&writer, memory, self.arguments.max_rate, faults)?;
        let known = writer.sources();
        let is_asked = |root: &String| roots.contains(root);
        let known = known.into_iter().filter(|(source, _)| is_asked(&source.root));
        let mut is_complete = true;
        with_progress_reported(
            |_| counted(scans.counts.progress(), "entry"),
            || scans.counts.progress(),
            || {
                for (source, record) in known {
                    let root = shown(&source.root);
                    let is_unknown = unknown.contains(&source.root);
                    let Some(record) = record.or_else(|| is_unknown.then(ScanRecord::default))
                    else {
                        message(format_args!("{root} was not scanned: import or read it again"));
                        is_complete = false;
                        continue;
                    };
                    let trusted = settings().trust_fs.clone().unwrap_or_default();
                    let rules = MountRules::new(trusted, record.no_prune);
                    let task = Task { source, record, selection: Selection::default() };
                    if let Err(error) = list_anew(&mut writer, &scans, &rules, &task) {
                        message(format_args!("{error:#}; {root} stays as it is in the index"));
                        is_complete = false;
                    }
                    if !one_reader() {
                        warn_of_mounts(&rules.closed());
                    }
                }
            },
        );
        is_complete &= scans.counts.faults() == 0;
        let Scans { counts, faults, .. } = scans;
        let writer = end_if_asked(writer);
        faults.finish(&counts)?;
        Ok((writer, is_complete))
    }

    fn publish(&self, writer: Writer) -> anyhow::Result<Published> {
        let (published, _) = publish_changes(writer, self.engine, self.threads)?;
        warn_of(&published);
        Ok(published)
    }
}
