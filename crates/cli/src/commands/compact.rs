//! `canopy compact`

use super::building::{end_if_asked, publish, with_progress};
use super::scanning::scan_threads;
use crate::limits::memory_size;
use crate::outcome::{Outcome, say, say_json};
use crate::{counted, interrupt, places};
use canopy_index::{Compacted, Due, Index, Retention, Writer, WriterOptions};
use canopy_model::Generation;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Rows that are written anew at a time, for a second or a few: meanwhile, nothing else can be
/// written.
const ROWS_MAX: usize = 2 << 20;

/// Write anew what updates have left of the index: fewer files, without what no longer counts
///
/// No answer changes, and whoever reads meanwhile is not disturbed. 'canopy watch' does what is due
/// by itself; without it, run this once a day where the index is updated often.
///
/// Example: canopy compact --due
#[derive(clap::Args)]
pub struct Arguments {
    /// Only what is due: what has been waiting for a day, is a third of a shard, or many small
    /// shards
    #[arg(long)]
    due: bool,
    /// Which older generations to keep from now on, as for 'canopy index'
    #[arg(long, value_name = "N|Nh|Nd|Nw,...|none")]
    keep: Option<Retention>,
    /// Remove at once the files that are replaced: what no longer counts is in none then, but of
    /// generations that are kept, and whoever reads now may not come to the end
    #[arg(long)]
    replace: bool,
    /// One portion only, of a second or a few
    #[arg(long, hide = true)]
    once: bool,
    /// Threads that write [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Memory for building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    let known = Index::open(&location)?.retention().clone();
    let options = WriterOptions {
        memory_bytes: arguments.memory,
        threads: scan_threads(arguments.threads),
        keep_replaced: !arguments.replace,
        retention: arguments.keep.clone(),
        ..WriterOptions::default()
    };
    let mut tells_policy = arguments.keep.as_ref().filter(|keep| **keep != known);
    let due = if arguments.due { Due::Now } else { Due::Any };
    interrupt::watch()?;
    let started = Instant::now();
    let mut sum = Sum::default();
    loop {
        let begun = Instant::now();
        let mut writer = Writer::open(&location, options.clone())?;
        let compact = || writer.compact(due, ROWS_MAX, interrupt::asked);
        let compacted = with_progress(|_| "shards are written anew".to_owned(), compact)?;
        let writer = end_if_asked(writer);
        let is_something = |it: &Compacted| it.shards + it.sealed > 0;
        let Some(compacted) = compacted.filter(is_something) else {
            if let Some(keep) = tells_policy.take() {
                let published = publish(writer)?;
                sum.generation = Some(published.generation);
                if !arguments.json {
                    let generation = published.generation;
                    say(format_args!("generation {generation}: older ones are kept: {keep}"))?;
                }
            } else if sum.generation.is_none() && !arguments.json {
                say("there is nothing to write anew")?;
            }
            break;
        };
        let published = publish(writer)?;
        tells_policy = None;
        let sealed = match compacted.sealed {
            0 => String::new(),
            1 => ", 1 file of names behind gates is written anew".to_owned(),
            count => format!(", {count} files of names behind gates are written anew"),
        };
        if !arguments.json {
            say(format_args!(
                "generation {}: {} became {} without {} that did not count{sealed}, {:.1} s",
                published.generation,
                counted(compacted.shards, "shard"),
                compacted.became,
                counted(compacted.dead, "row"),
                begun.elapsed().as_secs_f64()
            ))?;
        }
        sum.generation = Some(published.generation);
        sum.replaced_shards += compacted.shards;
        sum.shards += compacted.became;
        sum.dropped_rows += compacted.dead;
        sum.sealed_files += compacted.sealed;
        if arguments.once || !compacted.is_partial {
            break;
        }
    }
    if arguments.json {
        sum.print_json(&location, started.elapsed().as_secs_f64())?;
    }
    Ok(Outcome::Complete)
}

/// What all portions have come to.
#[derive(Default)]
struct Sum {
    /// The last one that was published.
    generation: Option<Generation>,
    /// Shards that were written anew, and those that have taken their place.
    replaced_shards: usize,
    shards: usize,
    /// Rows that were left out.
    dropped_rows: usize,
    /// Files of names behind gates that were written anew.
    sealed_files: usize,
}

impl Sum {
    /// Prints it as JSON, with the generation that is current.
    fn print_json(&self, location: &Path, seconds: f64) -> anyhow::Result<()> {
        let current = || Ok(Index::open(location)?.generation());
        let generation: anyhow::Result<Generation> = self.generation.map_or_else(current, Ok);
        say_json(&json!({
            "generation": generation?,
            "unchanged": self.generation.is_none(),
            "complete": true,
            "seconds": seconds,
            "shards": self.shards,
            "replaced_shards": self.replaced_shards,
            "dropped_rows": self.dropped_rows,
            "sealed_files": self.sealed_files,
        }))
    }
}
