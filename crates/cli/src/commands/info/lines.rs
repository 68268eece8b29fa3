//! The state of an index, for people.

use crate::outcome::without_numbers;
use canopy_index::{Index, KeptGeneration, SharedProgress, Unfinished};
use canopy_ingest::{count, now_ns};
use canopy_read::to_path;
use canopy_text::clock::age;
use canopy_text::safe::one_line;
use canopy_text::{counted, human_size};
use std::io::Write;

/// Most kept generations that are listed by number; `--json` lists them all.
const KEPT_NAMED_MAX: usize = 6;

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

/// Prints the state of an index.
pub(super) fn print(index: &Index, verbose: bool, output: &mut dyn Write) -> anyhow::Result<()> {
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
