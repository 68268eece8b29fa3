//! `export`: everything that the caller sees at and below some paths, as one data set with full
//! paths.
//!
//! `rows` makes flat rows, which `csv`, `ndjson`, `parquet` and `arrow` write; `gufi_trace` and
//! `ncdu` go by directories instead, the latter in one depth-first order that `merge` gives.
//! `xattrs` has the values of extended attributes, `blocks` is how workers share an output.
//!
//! Memory is bounded whatever the number of entries, but for directories with very many
//! subdirectories in `ncdu`.

mod arrow;
mod blocks;
mod csv;
mod gufi_trace;
mod ncdu;
mod ndjson;
mod parquet;
mod rows;
mod xattrs;

pub use blocks::Output;

use crate::error::{Error, Result, found_or_failed};
use canopy_index::Index;
use canopy_read::locate::Start;
use canopy_read::resolve::locate_all;
use parking_lot::Mutex;
use std::ffi::OsString;
use std::sync::Arc;

/// The form of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// GUFI's trace, fields separated by this byte. Has one part for each output.
    GufiTrace {
        /// The byte.
        delim: u8,
        /// Whether to write extended attributes too that GUFI cannot read: see
        /// [`Exported::left_out`].
        all_xattrs: bool,
    },
    /// JSON for ncdu, of one directory, exported at this time in seconds since 1970.
    Ncdu(i64),
    /// A Parquet file.
    Parquet,
    /// Arrow's file format.
    ArrowFile,
    /// Arrow's stream.
    ArrowStream,
    /// Comma-separated values with a header.
    Csv {
        /// Whether values get an apostrophe that a spreadsheet would compute.
        safe: bool,
    },
    /// A JSON object a line.
    NdJson,
}

/// Failures and omissions of an export.
#[derive(Debug, Default)]
pub struct Exported {
    /// The paths that could not be answered.
    pub failed: Vec<Error>,
    /// Names and targets that hold an end of line, where the format's readers go by lines.
    pub broken_lines: u64,
    /// Extended attributes that were left out since GUFI cannot read them: those that are not
    /// `user.*`, ACLs among them, and values with a NUL, an end of line or the byte between
    /// values.
    pub left_out: u64,
}

/// Writes everything at and below the paths, or of all sources if there are none. `open` gives the
/// output, or for [`Format::GufiTrace`] one or more. It is called once it is known that there is
/// something to export, so that what lies where it writes is not lost for nothing. Blocks.
pub fn run<E: From<Error>>(
    index: &Index,
    paths: &[OsString],
    format: Format,
    threads: usize,
    open: impl FnOnce() -> Result<Vec<Output>, E>,
) -> Result<Exported, E> {
    let mut exported = Exported::default();
    let mut starts = starts(index, paths, &mut exported.failed)?;
    if matches!(format, Format::GufiTrace { .. } | Format::Ncdu(_)) {
        starts = only_directories(starts, &mut exported.failed);
    }
    format.check(&starts)?;
    if starts.is_empty() && !exported.failed.is_empty() {
        return Ok(exported);
    }
    let outputs: Vec<Mutex<Output>> = open()?.into_iter().map(Mutex::new).collect();
    write(&starts, format, threads, &outputs, &mut exported)?;
    Ok(exported)
}

impl Format {
    /// Returns whether it is nothing for people to read.
    pub fn is_binary(self) -> bool {
        !matches!(self, Format::Ncdu(_) | Format::Csv { .. } | Format::NdJson)
    }

    /// Checks that it can show these starts together.
    fn check(self, starts: &[Start]) -> Result<()> {
        match self {
            Format::Ncdu(_) if starts.len() > 1 => Err(Error::OneDirectory),
            Format::GufiTrace { .. } => gufi_trace::check(starts),
            _ => Ok(()),
        }
    }
}

fn write(
    starts: &[Start],
    format: Format,
    threads: usize,
    outputs: &[Mutex<Output>],
    exported: &mut Exported,
) -> Result<()> {
    match format {
        Format::Parquet => parquet::write(starts, threads, &mut outputs[0].lock())?,
        Format::ArrowFile => arrow::write(starts, threads, true, &mut outputs[0].lock())?,
        Format::ArrowStream => arrow::write(starts, threads, false, &mut outputs[0].lock())?,
        Format::Csv { safe } => csv::write(starts, threads, safe, &outputs[0])?,
        Format::NdJson => ndjson::write(starts, threads, &outputs[0])?,
        Format::Ncdu(now_s) => {
            starts.iter().try_for_each(|start| ncdu::write(start, now_s, &outputs[0]))?;
        }
        Format::GufiTrace { delim, all_xattrs } => {
            let written = gufi_trace::write(starts, delim, all_xattrs, threads, outputs)?;
            (exported.broken_lines, exported.left_out) = written;
        }
    }
    Ok(outputs.iter().try_for_each(|output| output.lock().flush())?)
}

/// Finds the paths, all sources if there are none.
fn starts(index: &Index, paths: &[OsString], failed: &mut Vec<Error>) -> Result<Vec<Start>> {
    if paths.is_empty() {
        let view = Arc::new(index.clone().flattened());
        return Ok(view.sources().iter().map(|source| Start::of_source(&view, source)).collect());
    }
    let mut starts = Vec::new();
    for path in paths {
        let found = found_or_failed(locate_all(index, path), failed, Error::from)?;
        starts.extend(found.into_iter().flatten());
    }
    Ok(starts)
}

/// Leaves out what is not a directory, for formats that go by directories.
fn only_directories(starts: Vec<Start>, failed: &mut Vec<Error>) -> Vec<Start> {
    let (dirs, others): (Vec<Start>, Vec<Start>) = starts.into_iter().partition(Start::is_dir);
    let not =
        |start: Start| Error::NotADirectory(String::from_utf8_lossy(&start.given).into_owned());
    failed.extend(others.into_iter().map(not));
    dirs
}
