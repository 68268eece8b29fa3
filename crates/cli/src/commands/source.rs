//! `canopy source`

use crate::engine::Engine;
use crate::invocation::Invocation;
use crate::outcome::{Outcome, say};
use crate::read_options::ReadOptions;
use crate::terminal::stdout_for_json;
use anyhow::Context;
use canopy_index::{Index, Writer, WriterOptions};
use canopy_ingest::now_ns;
use canopy_model::escape;
use canopy_read::to_path;
use canopy_text::clock::age;
use canopy_text::safe::one_line;
use canopy_tools::json::exact;
use clap::Subcommand;
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

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
pub fn run(
    invocation: &Invocation,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    match arguments.command {
        Command::List { json, read } => list(&read.open(invocation)?, json),
        Command::Remove { source } => {
            change(invocation, engine, (&source, true), |writer, source| {
                let root = writer.remove_source(source);
                Ok(root.map(|root| format!("source {} removed", shown(&root))))
            })
        }
        Command::Rename { source, name } => {
            change(invocation, engine, (&source, false), |writer, source| {
                let root = writer.rename_source(source, &name)?;
                Ok(root
                    .map(|root| format!("source {} is called {}", shown(&root), one_line(&name))))
            })
        }
    }
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

/// Publishes a change of a source, which `make` makes and describes unless there is no such source.
/// One that was never indexed has perhaps a failure, which is forgotten if the source `is_removed`.
fn change(
    invocation: &Invocation,
    engine: Option<&Engine>,
    (source, is_removed): (&str, bool),
    make: impl Fn(&mut Writer, &str) -> canopy_index::Result<Option<String>>,
) -> anyhow::Result<Outcome> {
    let location = invocation.site.index_to_write()?;
    drop(Index::open(&location)?);
    let cx = invocation.ingest(engine.map(|engine| engine.derived));
    let mut writer = cx.open_writer(&location, WriterOptions::default())?;
    // A name as it is, else a path: as the index has it, since the tree may be gone.
    let made = match make(&mut writer, source)? {
        Some(made) => Some(made),
        None => make(&mut writer, &root(source)?)?,
    };
    if made.is_none() && is_removed && writer.forget_failure(&root(source)?) {
        writer.save_failures()?;
        let told = "was never indexed; 'canopy info' no longer tells that it failed";
        say(format_args!("{} {told}", shown(&root(source)?)))?;
        return Ok(Outcome::Complete);
    }
    let made = made.with_context(|| {
        format!("no source is called '{source}'; 'canopy source list' names all")
    })?;
    let is_complete = match cx.derived {
        Some(derived) => derived.refresh(&mut writer, invocation.threads(None))?,
        None => true,
    };
    say(format_args!("generation {}: {made}", writer.publish()?.generation))?;
    Ok(Outcome::of(is_complete))
}

/// Returns a path as sources have it: absolute, without links, escaped.
fn root(path: &str) -> anyhow::Result<String> {
    let path = Path::new(path);
    // A path that is gone may have a slash at its end, too.
    let absolute = || std::path::absolute(path).map(|path| path.components().collect::<PathBuf>());
    let real = path.canonicalize().or_else(|_| absolute());
    Ok(escape(real.context("no path")?.as_os_str().as_bytes()).into_owned())
}
