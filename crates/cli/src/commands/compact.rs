//! `canopy compact`

use crate::invocation::Invocation;
use crate::limits::memory_size;
use crate::outcome::{Outcome, say, say_json};
use canopy_index::{Index, Retention};
use canopy_ingest::compact::{CompactRequest, Portion, compact};
use canopy_model::Generation;
use canopy_site::check_links;
use canopy_text::counted;
use serde_json::json;
use std::path::Path;
use std::time::Instant;

/// Merge the files that updates have left in the index, and drop replaced rows
///
/// No answer changes, and readers are not disturbed. 'canopy watch' compacts by itself; without it,
/// run this once a day if the index is updated often.
///
/// Example: canopy compact --due
#[derive(clap::Args)]
pub struct Arguments {
    /// Only files that are due: they have waited for a day, a third of a shard is dead, or many
    /// shards are small
    #[arg(long)]
    due: bool,
    /// Generations to keep from now on, as for 'canopy index'
    #[arg(long, value_name = "N|Nh|Nd|Nw,...|none")]
    keep: Option<Retention>,
    /// Remove replaced files at once. Replaced rows then stay only in generations that are kept,
    /// and readers may fail before their end
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
///
/// # Errors
///
/// If the index cannot be written, the run is interrupted, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let location = invocation.site.index_to_write()?;
    check_links(&location)?;
    let request = CompactRequest {
        only_due: arguments.due,
        once: arguments.once,
        retention: arguments.keep.clone(),
        replaces: arguments.replace,
        threads: invocation.scan_threads(arguments.threads),
        memory_bytes: arguments.memory,
    };
    invocation.watch_signals()?;
    let started = Instant::now();
    let (mut sum, mut begun) = (Sum::default(), started);
    compact(&invocation.ingest(None), &location, &request, |portion| {
        let seconds = std::mem::replace(&mut begun, Instant::now()).elapsed().as_secs_f64();
        if !arguments.json {
            say(line_of(&portion, &request, seconds))?;
        }
        sum.add(&portion);
        Ok(())
    })?;
    match arguments.json {
        true => sum.print_json(&location, started.elapsed().as_secs_f64())?,
        false if sum.generation.is_none() => say("there is nothing to write anew")?,
        false => {}
    }
    Ok(Outcome::Complete)
}

/// Formats a portion for people.
fn line_of(portion: &Portion, request: &CompactRequest, seconds: f64) -> String {
    match portion {
        Portion::Kept(generation) => {
            let kept = request.retention.as_ref().map_or_else(String::new, ToString::to_string);
            format!("generation {generation}: older ones are kept: {kept}")
        }
        Portion::Rewritten(generation, compacted) => {
            let sealed = match compacted.sealed {
                0 => String::new(),
                1 => ", 1 file of names behind gates is written anew".to_owned(),
                count => format!(", {count} files of names behind gates are written anew"),
            };
            format!(
                "generation {generation}: {} became {} without {} that did not count{sealed}, \
                 {seconds:.1} s",
                counted(compacted.shards, "shard"),
                compacted.became,
                counted(compacted.dead, "row"),
            )
        }
    }
}

/// Sums of all portions.
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
    fn add(&mut self, portion: &Portion) {
        let generation = match portion {
            Portion::Kept(generation) => generation,
            Portion::Rewritten(generation, compacted) => {
                self.replaced_shards += compacted.shards;
                self.shards += compacted.became;
                self.dropped_rows += compacted.dead;
                self.sealed_files += compacted.sealed;
                generation
            }
        };
        self.generation = Some(*generation);
    }

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
