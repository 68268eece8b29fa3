//! `canopy info`

use super::info_metrics;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, answered, message, without_numbers};
use crate::read_options::ReadOptions;
use crate::staleness::{listed, old_sources};
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_index::{Failure, Index, KeptGeneration, SharedProgress, SourceRecord, Unfinished};
use canopy_ingest::count;
use canopy_ingest::now_ns;
use canopy_read::to_path;
use canopy_site::max_age;
use canopy_text::clock::age;
use canopy_text::counted;
use canopy_text::human_size;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Tell what the index holds, and what of it you can see
///
/// Entries are as many as find(1) prints: directories, including the root of each source, and files,
/// which are all entries that are not directories. --verbose adds the access classes and shards that
/// the index is divided into.
///
/// Example: canopy info --max-age 26h
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only whether every source is newer than AGE, such as 26h or 7d, with exit code 1 if one
    /// is older. The age is the time since a scan, an update or a check that found no change; of
    /// what 'canopy watch' follows, the time that it is behind
    #[arg(long, value_name = "AGE", value_parser = max_age, conflicts_with = "json")]
    max_age: Option<i64>,
    /// Write numbers for node_exporter's textfile collector to FILE, and print nothing
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    prometheus: Option<PathBuf>,
}

/// Most kept generations that are listed by number; `--json` lists them all.
const KEPT_NAMED_MAX: usize = 6;

/// Carries the command out.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let opened = arguments.read.open_each(invocation)?;
    if let Some(file) = &arguments.prometheus {
        info_metrics::write(opened.iter().last().context("there is no index")?, file)?;
    }
    if let Some(age_ns) = arguments.max_age {
        return say_age(opened.iter(), age_ns);
    }
    if arguments.json {
        let mut all = opened.iter().map(as_json).collect::<anyhow::Result<Vec<Value>>>()?;
        let mut info = all.remove(0);
        // The user's own index, if there is one.
        if let Some(own) = all.pop() {
            info["own"] = own;
        }
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(info))?;
        output.flush()?;
        return Ok(Outcome::Complete);
    }
    if arguments.prometheus.is_some() {
        return Ok(Outcome::Complete);
    }
    let mut output = std::io::stdout().lock();
    for (number, index) in opened.iter().enumerate() {
        if number > 0 {
            writeln!(output)?;
        }
        print(index, arguments.read.verbose, &mut output)?;
    }
    Ok(Outcome::Complete)
}

/// Says whether all sources are younger than that.
fn say_age<'a>(indexes: impl Iterator<Item = &'a Index>, age_ns: i64) -> anyhow::Result<Outcome> {
    let (mut old, mut never, mut sources) = (Vec::new(), Vec::new(), 0);
    for index in indexes {
        sources += index.sources().len();
        old.extend(old_sources(index, age_ns, false));
        let is_source = |root: &str| index.sources().iter().any(|source| source.root == root);
        let failed = index.failures()?.into_iter().map(|failure| failure.root);
        never.extend(failed.filter(|root| !is_source(root)));
    }
    for root in &never {
        let root = one_line(&to_path(root).display().to_string());
        message(format_args!("{root} was never indexed"));
    }
    let limit = age(age_ns);
    match (sources, old.len()) {
        (0, _) => {
            message("the index has no sources");
            Ok(Outcome::Partial)
        }
        (_, 0) if !never.is_empty() => Ok(Outcome::Partial),
        (_, 0) => {
            let all = counted(sources, "source");
            answered(writeln!(std::io::stdout(), "{all} indexed within {limit}"))?;
            Ok(Outcome::Complete)
        }
        _ => {
            message(format_args!("older than {limit}: {}", listed(&old)));
            Ok(Outcome::Partial)
        }
    }
}

fn as_json(index: &Index) -> anyhow::Result<Value> {
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

/// Returns which generations are kept besides the last: all by name if they are few.
fn kept(kept: &[KeptGeneration], now_ns: i64) -> String {
    let one = |kept: &KeptGeneration| {
        format!("{} ({} ago)", kept.generation, age(now_ns - kept.published_ns))
    };
    match kept {
        [] => "none yet".to_owned(),
        [last, .., first] if kept.len() > KEPT_NAMED_MAX => {
            format!("{} generations, from {} to {}", kept.len(), one(first), one(last))
        }
        _ => Vec::from_iter(kept.iter().map(one)).join(", "),
    }
}

fn print(index: &Index, verbose: bool, output: &mut dyn Write) -> anyhow::Result<()> {
    let now_ns = now_ns();
    let held = count(index, None)?;
    let per_entry = held.bytes as f64 / (held.entries().max(1) as f64);
    writeln!(output, "index       {}", index.path().display())?;
    writeln!(
        output,
        "generation  {}, published {} ago",
        index.generation(),
        age(now_ns - index.published_ns())
    )?;
    if !(index.retention().is_none() && index.kept().is_empty()) {
        let old = kept(index.kept(), now_ns);
        writeln!(output, "kept        {}: {old}", index.retention())?;
    }
    if verbose {
        let classes = index.classes();
        match classes.all {
            Some(all) => {
                writeln!(output, "classes     {all}, of which you can read {}", classes.visible)?
            }
            None => writeln!(output, "classes     you can read {}", classes.visible)?,
        }
        writeln!(output, "shards      {}", held.shards)?;
    }
    writeln!(
        output,
        "entries     {} visible to you: {}, {per_entry:.1} bytes each, {} in all",
        held.entries(),
        held.shown(),
        human_size(held.bytes as i64)
    )?;
    let checked = index.checked()?;
    for source in index.sources() {
        let held = count(index, Some(source.id))?;
        let (root, scanned) = (to_path(&source.root), age(now_ns - source.scanned_ns));
        let updated = match source.updated_ns > source.scanned_ns {
            true => format!(", updated {} ago", age(now_ns - source.updated_ns)),
            false => String::new(),
        };
        let checked = checked.iter().find(|checked| checked.root == source.root);
        let unchanged = checked
            .filter(|checked| checked.scanned_ns > source.updated_ns.max(source.scanned_ns))
            .map_or_else(String::new, |checked| {
                format!(", found as it was {} ago", age(now_ns - checked.scanned_ns))
            });
        let root = one_line(&root.display().to_string());
        let name = if source.name == source.root {
            String::new()
        } else {
            format!(" ({})", one_line(&source.name))
        };
        writeln!(
            output,
            "source      {root}{name}: {}, {}, scanned {scanned} \
             ago{updated}{unchanged}",
            held.shown(),
            human_size(held.bytes as i64)
        )?;
    }
    print_unfinished(index, now_ns, output)
}

/// Prints scans that are under way, and those that failed.
fn print_unfinished(index: &Index, now_ns: i64, output: &mut dyn Write) -> anyhow::Result<()> {
    if let Some(shared) = index.shared_scan() {
        let SharedProgress { root, begun_ns, parts_left, entries, .. } = shared;
        writeln!(
            output,
            "unfinished  a scan of {} that workers share, which began {} ago and has {}: {} left; \
             'canopy index --worker' works on it",
            one_line(&to_path(&root).display().to_string()),
            age(now_ns - begun_ns),
            counted(entries, "entry"),
            counted(parts_left, "part")
        )?;
    }
    if let Some(Unfinished { begun_ns, noted_ns, entries, .. }) = index.unfinished() {
        let (begun, noted) = (age(now_ns - begun_ns), age(now_ns - noted_ns));
        writeln!(
            output,
            "unfinished  a scan that began {begun} ago and had {} {noted} ago: at work, or \
             interrupted; the same 'canopy index' goes on with it",
            counted(entries, "entry")
        )?;
    }
    for failure in index.failures()? {
        let root = one_line(&to_path(&failure.root).display().to_string());
        let (since, last) = (age(now_ns - failure.since_ns), age(now_ns - failure.last_ns));
        let reason = one_line(&without_numbers(&failure.reason));
        let what = if failure.published { "incomplete" } else { "failed" };
        writeln!(output, "{what:<11} {root} since {since} ago, last {last} ago: {reason}")?;
    }
    Ok(())
}
