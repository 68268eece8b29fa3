//! `canopy info`

use crate::counted;
use crate::options::{ReadOptions, age, now_ns, stdout_for_json};
use crate::outcome::Outcome;
use canopy_index::{Failure, Index, KeptGeneration, SourceRecord, Unfinished};
use canopy_read::to_path;
use canopy_text::human_size;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Tell what the index holds, and what of it you can see
///
/// Example: canopy info --json
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// So many kept generations are told by name; --json has them all.
const KEPT_NAMED_MAX: usize = 6;

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let opened = arguments.read.open_each(index)?;
    if arguments.json {
        let mut all = opened.iter().map(as_json).collect::<anyhow::Result<Vec<Value>>>()?;
        let mut info = all.remove(0);
        // Of users who have one.
        if let Some(own) = all.pop() {
            info["own"] = own;
        }
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(info))?;
        output.flush()?;
        return Ok(Outcome::Complete);
    }
    let mut output = std::io::stdout().lock();
    for (number, index) in opened.iter().enumerate() {
        if number > 0 {
            writeln!(output)?;
        }
        print(index, &mut output)?;
    }
    Ok(Outcome::Complete)
}

/// Counts entries, roots among them, bytes and shards of a source or of all.
pub(super) fn count(index: &Index, source: Option<u32>) -> anyhow::Result<(i64, u64, usize)> {
    let is_asked = |id: u32| source.is_none_or(|asked| asked == id);
    let roots = index.sources().iter().filter(|source| is_asked(source.id)).count();
    let (shards, bytes, totals) = index.extent(source)?;
    Ok((roots as i64 + totals.entries + totals.dirs, bytes, shards))
}

fn as_json(index: &Index) -> anyhow::Result<Value> {
    let (entries, bytes, shards) = count(index, None)?;
    let checked = index.checked()?;
    let checked_ns = |source: &SourceRecord| {
        let own = checked.iter().find(|checked| checked.root == source.root);
        own.map(|checked| checked.scanned_ns)
    };
    let source = |source: &SourceRecord| -> anyhow::Result<Value> {
        let (entries, bytes, _) = count(index, Some(source.id))?;
        Ok(json!({
            "name": source.name,
            "root": source.root,
            "scanned_ns": source.scanned_ns,
            "updated_ns": source.updated_ns,
            "checked_ns": checked_ns(source),
            "visible_entries": entries,
            "visible_bytes": bytes,
        }))
    };
    let failure = |failure: &Failure| {
        json!({
            "root": failure.root,
            "since_ns": failure.since_ns,
            "last_ns": failure.last_ns,
            "reason": failure.reason,
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
        "failures": index.failures()?.iter().map(failure).collect::<Vec<_>>(),
        "classes": index.classes().all,
        "visible_classes": index.classes().visible,
        "visible_shards": shards,
        "visible_entries": entries,
        "visible_bytes": bytes,
        "bytes_per_entry": bytes as f64 / (entries.max(1) as f64),
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

fn print(index: &Index, output: &mut dyn Write) -> anyhow::Result<()> {
    let now_ns = now_ns();
    let classes = index.classes();
    let (entries, bytes, shards) = count(index, None)?;
    let per_entry = bytes as f64 / (entries.max(1) as f64);
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
    match classes.all {
        Some(all) => {
            writeln!(output, "classes     {all}, of which you can read {}", classes.visible)?
        }
        None => writeln!(output, "classes     you can read {}", classes.visible)?,
    }
    writeln!(output, "shards      {shards}")?;
    writeln!(
        output,
        "entries     {entries} visible to you, {per_entry:.1} bytes each, {} in all",
        human_size(bytes as i64)
    )?;
    let checked = index.checked()?;
    for source in index.sources() {
        let (entries, bytes, _) = count(index, Some(source.id))?;
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
            counted(entries, "entry"),
            human_size(bytes as i64)
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
        let reason = one_line(&failure.reason);
        let what = if failure.published { "incomplete" } else { "failed" };
        writeln!(output, "{what:<11} {root} since {since} ago, last {last} ago: {reason}")?;
    }
    Ok(())
}
