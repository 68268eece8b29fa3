//! `canopy export`

use crate::invocation::Invocation;
use crate::new_files::{Directory, NewFiles, Old};
use crate::outcome::{Outcome, message};
use crate::output_name;
use crate::read_options::ReadOptions;
use anyhow::{bail, ensure};
use canopy_ingest::now_ns;
use canopy_text::counted;
use canopy_text::safe::TerminalWriter;
use canopy_tools::export::{self, Format, Output};
use std::ffi::OsString;
use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// Write everything that you see at and below PATHs as one data set with full paths
///
/// Example: canopy export -o home.parquet /home
#[derive(clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    read: ReadOptions,
    /// Format [default: that of the name of FILE: .parquet, .csv, .ndjson, .arrow, .trace]
    #[arg(long, value_enum)]
    format: Option<FormatName>,
    /// Write to this file, or with --parts to files in this directory [default: standard output]
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// Write N files at once, in any order (gufi-trace)
    #[arg(long, value_name = "N", requires = "output")]
    parts: Option<usize>,
    /// Byte between fields, or 'x' for 0x1E (gufi-trace)
    #[arg(long, value_name = "CHARACTER", default_value = "x", value_parser = parse_delim)]
    delim: u8,
    /// Write ACLs and other extended attributes that GUFI cannot read, for 'canopy import'
    /// (gufi-trace)
    #[arg(long)]
    all_xattrs: bool,
    /// In CSV, put an apostrophe before values that a spreadsheet would compute, such as =1+1
    #[arg(long)]
    csv_safe: bool,
    /// Trees to write [default: all sources]
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum FormatName {
    /// Lines as gufi_dir2trace writes them, for gufi_trace2index
    GufiTrace,
    /// JSON for 'ncdu -f', of one PATH
    Ncdu,
    /// A Parquet file
    Parquet,
    /// Arrow's file format, or its stream on standard output
    Arrow,
    /// Comma-separated values with a header
    Csv,
    /// A JSON object a line
    Ndjson,
}

impl FormatName {
    /// Returns the form that was asked for, or that the name of the file promises.
    fn of(arguments: &Arguments) -> anyhow::Result<Self> {
        let output = arguments.output.as_deref().filter(|_| arguments.parts.is_none());
        let ending = output.map_or(Ok(String::new()), output_name::ending)?;
        if let Some(format) = arguments.format {
            return Ok(format);
        }
        Ok(match ending.as_str() {
            _ if arguments.parts.is_some() => FormatName::GufiTrace,
            "parquet" => FormatName::Parquet,
            "csv" => FormatName::Csv,
            "ndjson" | "jsonl" => FormatName::Ndjson,
            "arrow" | "feather" | "ipc" => FormatName::Arrow,
            "trace" => FormatName::GufiTrace,
            "json" => bail!(
                "say which JSON: --format ndjson has an object a line, --format ncdu is for ncdu -f"
            ),
            _ => bail!(
                "say the form: --format parquet, csv, ndjson, arrow, ncdu or gufi-trace, or -o \
                 with a name that ends in .parquet, .csv, .ndjson, .arrow or .trace"
            ),
        })
    }
}

/// Reads a delimiter by GUFI's own rule for its option of this name.
fn parse_delim(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"x" => Ok(0x1E),
        &[byte] => Ok(byte),
        _ => Err("not a single byte".to_owned()),
    }
}

/// Carries the command out.
///
/// # Errors
///
/// If no index answers, a name of a file is refused, or output cannot be written.
pub fn run(invocation: &Invocation, arguments: Arguments) -> anyhow::Result<Outcome> {
    let format = match FormatName::of(&arguments)? {
        FormatName::GufiTrace => {
            Format::GufiTrace { delim: arguments.delim, all_xattrs: arguments.all_xattrs }
        }
        FormatName::Ncdu => Format::Ncdu(now_ns() / 1_000_000_000),
        FormatName::Parquet => Format::Parquet,
        FormatName::Arrow if arguments.output.is_some() => Format::ArrowFile,
        FormatName::Arrow => Format::ArrowStream,
        FormatName::Csv => Format::Csv { safe: arguments.csv_safe },
        FormatName::Ndjson => Format::NdJson,
    };
    if arguments.parts.is_some() && !matches!(format, Format::GufiTrace { .. }) {
        bail!("only gufi-trace has parts");
    }
    ensure!(
        !arguments.csv_safe || matches!(format, Format::Csv { .. }),
        "--csv-safe is for --format csv"
    );
    let files = arguments.output.as_ref().map(|_| NewFiles::new()).transpose()?;
    let index = arguments.read.open(invocation)?;
    let to = arguments.output.as_deref().zip(files.as_ref());
    let open = || outputs(format, to, arguments.parts);
    let exported =
        export::run(&index, &arguments.paths, format, arguments.read.threads(invocation), open)?;
    if let Some(files) = &files {
        files.publish()?;
    }
    exported.failed.iter().for_each(message);
    if exported.broken_lines > 0 {
        let count = exported.broken_lines;
        message(format_args!(
            "{} with an end of line in a name or target, at which GUFI's readers stop",
            counted(count, "record")
        ));
    }
    if exported.left_out > 0 {
        let count = exported.left_out;
        message(format_args!(
            "{} left out that GUFI cannot read; --all-xattrs writes them",
            counted(count, "extended attribute")
        ));
    }
    Ok(Outcome::of_errors(&exported.failed))
}

/// Opens the output, unless it is a terminal and the format is not for people to read.
fn outputs(
    format: Format,
    to: Option<(&Path, &NewFiles)>,
    parts: Option<usize>,
) -> anyhow::Result<Vec<Output>> {
    let safe = |output: Output, terminal: bool| -> anyhow::Result<Output> {
        ensure!(
            !(terminal && format.is_binary()),
            "this format is nothing for a terminal: name a file with -o, or redirect the output"
        );
        Ok(if terminal { Box::new(TerminalWriter::new(output)) } else { output })
    };
    let opened = |file: File| {
        let terminal = file.is_terminal();
        safe(Box::new(file), terminal)
    };
    match (to, parts) {
        (None, _) => {
            let stdout = std::io::stdout();
            let terminal = stdout.is_terminal();
            Ok(vec![safe(Box::new(stdout), terminal)?])
        }
        (Some((path, files)), None) => {
            let (directory, name) = Directory::of(path)?;
            Ok(vec![opened(files.create(&directory, name, Old::Kept)?)?])
        }
        (Some((path, files)), Some(parts)) => {
            let directory = Directory::make(path)?;
            (0..parts.max(1))
                .map(|part| format!("part-{part:04}.trace"))
                .map(|name| opened(files.create(&directory, name.as_ref(), Old::Kept)?))
                .collect()
        }
    }
}
