//! `canopy import`

use super::building::{Shards, end_if_asked, publish, with_progress};
use crate::limits::{OwnerLimitOptions, memory_size};
use crate::options::{now_ns, threads};
use crate::outcome::{Outcome, message, say, warn_of};
use crate::places;
use crate::{Engine, companion, interrupt};
use anyhow::Context;
use canopy_import::{Above, Counts, Form, Format, Import, Problems, Request};
use canopy_index::{NewSource, Published, Writer, WriterOptions};
use canopy_text::human_size;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Import metadata that other scanners have written and publish it as a new generation of the index
///
/// All FILEs are parts of one source. Modes, owners and ACLs in them say who sees what, as in a
/// scan; directories above the root count as open to all, unless --above tells. Exit code 0: complete; 1: with --lenient,
/// something was left out; 2: nothing was published.
///
/// Example: canopy import --format gufi-trace --root /home trace.0 trace.1
#[derive(clap::Args)]
pub struct Arguments {
    /// What the files are
    #[arg(long, value_enum)]
    format: FormatName,
    /// Files to read; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Absolute path of the tree's root [default: what the files say]
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
    /// What a directory above the root is, such as /home=0711:0:0 (can be repeated)
    #[arg(long, value_name = "DIR=MODE:UID:GID", value_parser = above)]
    above: Vec<Above>,
    /// Name of the source [default: the path of its root]
    #[arg(long)]
    name: Option<String>,
    /// Threads that read [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Memory for grouping and building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    #[command(flatten)]
    limits: OwnerLimitOptions,
    /// Leave out records that cannot be used, and count them
    #[arg(long)]
    lenient: bool,
    /// Delimiter, one character [default: the byte 0x1E for GUFI traces, a comma for csv]
    #[arg(long, value_name = "C", value_parser = one_byte)]
    delim: Option<u8>,
    /// Form of a GUFI trace [default: what its first record tells]
    #[arg(long, value_name = "FORM", value_enum)]
    trace_form: Option<FormName>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatName {
    /// Traces of gufi_dir2trace
    GufiTrace,
    /// The directory of a GUFI index, rolled up or not
    GufiIndex,
    /// An object a line; columns as for csv
    Ndjson,
    /// Columns path, type, mode, uid, gid, size, mtime and others
    Csv,
    /// Output of find -printf '%y %m %U %G %s %n %i %b %T@ %A@ %C@ %B@ %p\0%l\0'
    Find,
    /// Parquet; columns as for csv
    Parquet,
    /// File lists of IBM Storage Scale's mmapplypolicy, with the rule in docs/import.md
    GpfsPolicy,
    /// Output of Lester, the Lustre lister, with -A fslist -a show_dirs
    Lester,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormName {
    /// Texts have their lengths in front
    Prefixed,
    /// Texts end at the next delimiter
    Plain,
}

/// A delimiter, as GUFI takes it: 'x' stands for 0x1E.
fn one_byte(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"x" => Ok(0x1E),
        &[byte] => Ok(byte),
        _ => Err("give one character of one byte".to_owned()),
    }
}

/// The permissions of a directory above the root.
fn above(text: &str) -> Result<Above, String> {
    let parse = || {
        let (path, facts) = text.rsplit_once('=')?;
        let mut facts = facts.split(':');
        let mode = u32::from_str_radix(facts.next()?, 8).ok().filter(|&mode| mode <= 0o7777)?;
        let [uid, gid] = [facts.next()?.parse().ok()?, facts.next()?.parse().ok()?];
        facts.next().is_none().then(|| Above { path: path.into(), mode, uid, gid })
    };
    parse().ok_or_else(|| "give a path, its mode in octal digits, its owner and group".to_owned())
}

/// Carries the command out.
pub fn run(
    index: Option<PathBuf>,
    arguments: Arguments,
    engine: Option<&Engine>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let threads = threads(arguments.threads);
    let request = Request {
        format: match arguments.format {
            FormatName::GufiTrace => Format::GufiTrace,
            FormatName::GufiIndex => Format::GufiIndex,
            FormatName::Ndjson => Format::Ndjson,
            FormatName::Csv => Format::Csv,
            FormatName::Find => Format::Find,
            FormatName::Parquet => Format::Parquet,
            FormatName::GpfsPolicy => Format::GpfsPolicy,
            FormatName::Lester => Format::Lester,
        },
        files: arguments.files,
        root: arguments.root.map(|root| root.as_os_str().as_bytes().to_vec()),
        above: arguments.above,
        lenient: arguments.lenient,
        threads,
        memory_bytes: arguments.memory,
        delimiter: arguments.delim,
        trace_form: arguments.trace_form.map(|form| match form {
            FormName::Prefixed => Form::Prefixed,
            FormName::Plain => Form::Plain,
        }),
    };
    let options = WriterOptions {
        memory_bytes: arguments.memory,
        threads,
        limits: arguments.limits.into(),
        ..WriterOptions::default()
    };
    let location = places::to_write(index)?;
    places::check_links(&location)?;
    let mut writer = Writer::open(&location, options)?;
    if companion::must_refresh(&writer, engine) {
        drop(writer);
        return companion::Companion::Sql.run();
    }
    interrupt::watch()?;
    let counts = Counts::default();
    let progress = |_| match counts.entries.load(Ordering::Relaxed) {
        0 => "reading directories".to_owned(),
        entries => format!("{entries} entries"),
    };
    let import =
        with_progress(progress, || add_source(&mut writer, &request, arguments.name, &counts));
    let mut writer = end_if_asked(writer);
    let import = import?;
    let derived = match engine {
        Some(engine) => (engine.refresh)(&mut writer, threads)?,
        None => Outcome::Complete,
    };
    let published = publish(writer)?;
    if import.untold_above() > 0 && nix::unistd::geteuid().is_root() {
        message(format_args!(
            "the directories above {} count as open to all; --above says what they are",
            canopy_read::to_path(import.root()).display()
        ));
    }
    let shown = report(&published, &counts, import.problems(), begun)?;
    let complete = import.problems().count() == 0 && shown == Outcome::Complete;
    Ok(if complete { derived } else { Outcome::Partial })
}

fn add_source(
    writer: &mut Writer,
    request: &Request,
    name: Option<String>,
    counts: &Counts,
) -> anyhow::Result<Import> {
    let mut import = Import::open(request).context("nothing was published")?;
    let source = writer.add_source(NewSource {
        name,
        root: import.root().to_owned(),
        dev: import.dev(),
        scanned_ns: now_ns(),
        attributes: import.attributes(),
        approach: import.root_approach(writer.classes()),
        xattrs: import.xattrs(writer.classes()),
        scan: None,
    })?;
    let sinks = writer.shard_writers(source).into_iter().map(Shards).collect();
    let sinks = import.run(writer.classes(), counts, sinks).context("nothing was published")?;
    writer.finish_shards(sinks.into_iter().map(|sink| sink.0).collect())?;
    Ok(import)
}

fn report(
    published: &Published,
    counts: &Counts,
    problems: &Problems,
    begun: Instant,
) -> anyhow::Result<Outcome> {
    let shown = warn_of(published);
    for problem in problems.first() {
        message(problem);
    }
    let skipped = problems.count();
    if skipped > 0 {
        message(format_args!("{skipped} records were left out or are for root alone"));
    }
    let seconds = begun.elapsed().as_secs_f64();
    say(format_args!(
        "generation {}: {} entries in {} directories, {:.1} s ({:.0} entries/s), {} in {} shards, \
         {skipped} skipped",
        published.generation,
        published.entries,
        counts.directories.load(Ordering::Relaxed),
        seconds,
        published.entries as f64 / seconds,
        human_size(published.bytes as i64),
        published.shards,
    ))?;
    Ok(shown)
}
