//! `canopy source`

use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, say};
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use canopy_index::Index;
use canopy_ingest::edit::{EditedSource, remove_source, rename_source};
use canopy_ingest::{Context, now_ns};
use canopy_read::to_path;
use canopy_text::clock::age;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use clap::Subcommand;
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// List, remove and rename the trees that the index holds
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the sources that you may know of
    ///
    /// Example: canopy source list --json
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        read: ReadOptions,
    },
    /// Take a source out of the index; the tree itself is not touched
    ///
    /// Example: canopy source remove /scratch
    Remove {
        /// Its name or path
        source: String,
    },
    /// Give a source another name
    ///
    /// Example: canopy source rename /home homes
    Rename {
        /// Its name or path
        source: String,
        /// The new name
        #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
        name: String,
    },
}

/// Carries the command out.
///
/// # Errors
///
/// If there is no such source, the index cannot be read or written, or it needs an engine.
pub fn run(
    invocation: &Invocation,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::List { json, read } => list(&read.open(invocation)?, json),
        Command::Remove { source } => change(invocation, engine, &|cx, location, threads| {
            let edited = remove_source(cx, location, &source, threads)?;
            let done = format!("source {} removed", shown(&edited.root));
            Ok((edited, done))
        }),
        Command::Rename { source, name } => change(invocation, engine, &|cx, location, threads| {
            let edited = rename_source(cx, location, &source, &name, threads)?;
            let done = format!("source {} is called {}", shown(&edited.root), one_line(&name));
            Ok((edited, done))
        }),
    }
}

/// A change of a source, which is made with a number of threads, and its description.
type Change<'a> = &'a dyn Fn(&Context<'_>, &Path, usize) -> anyhow::Result<(EditedSource, String)>;

/// Prints the result of a change of a source, which `make` describes.
fn change(
    invocation: &Invocation,
    engine: Option<&Engine>,
    make: Change<'_>,
) -> anyhow::Result<Outcome> {
    let location = invocation.site.index_to_write()?;
    let cx = invocation.ingest(engine.map(|engine| engine.derived));
    cx.check_derived_tables(&location)?;
    let (edited, done) = make(&cx, &location, invocation.threads(None))?;
    match edited.generation {
        Some(generation) => say(format_args!("generation {generation}: {done}"))?,
        None => {
            let done = "was never indexed; 'canopy info' no longer tells that it failed";
            say(format_args!("{} {done}", shown(&edited.root)))?;
        }
    }
    Ok(Outcome::of(edited.is_complete))
}

fn shown(root: &str) -> String {
    one_line(&to_path(root).display().to_string())
}

fn list(index: &Index, as_json: bool) -> anyhow::Result<Outcome> {
    let now_ns = now_ns();
    if as_json {
        let sources = index.sources().iter().map(|source| {
            json!({ "name": source.name, "root": source.root, "scanned_ns": source.scanned_ns })
        });
        let mut output = stdout_for_json();
        writeln!(output, "{:#}", exact(json!(sources.collect::<Vec<_>>())))?;
        output.flush()?;
        return Ok(Outcome::Complete);
    }
    let mut output = std::io::stdout().lock();
    for source in index.sources() {
        let age = age(now_ns - source.scanned_ns);
        let name = match source.name == source.root {
            true => String::new(),
            false => format!(" ({})", one_line(&source.name)),
        };
        writeln!(output, "{}{name}: scanned {age} ago", shown(&source.root))?;
    }
    Ok(Outcome::Complete)
}
