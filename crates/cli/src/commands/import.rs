//! `canopy import`: its arguments. `canopy-sql` carries it out, which reads SQLite and any Parquet
//! anyway.

use crate::invocation::Invocation;
use crate::limits::{OwnerLimitOptions, memory_size};
use canopy_import::{Above, Form, Format, Request};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Import metadata that other scanners have written and publish it as a new generation of the index
///
/// All FILEs are parts of one source. Their modes, owners and ACLs decide who sees an entry, as in
/// a scan. Directories above the root count as open to all, except those given with --above. Exit
/// code 0: complete; 1: with --lenient, something was left out; 2: nothing was published.
///
/// Example: canopy import --format gufi-trace --root /home trace.0 trace.1
#[derive(clap::Args)]
pub struct Arguments {
    /// Format of the files
    #[arg(long, value_enum)]
    format: FormatName,
    /// Files to read; '-' is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Absolute path of the tree's root [default: as in the files]
    #[arg(long, value_name = "PATH")]
    root: Option<PathBuf>,
    /// Permissions of a directory above the root, such as /home=0711:0:0 (can be repeated)
    #[arg(long, value_name = "DIR=MODE:UID:GID", value_parser = above)]
    above: Vec<Above>,
    /// Name of the source [default: the path of its root]
    #[arg(long)]
    pub name: Option<String>,
    /// Threads that read [default: one per core]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Memory for grouping and building, such as 512M or 2G
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = memory_size)]
    memory: usize,
    #[command(flatten)]
    pub limits: OwnerLimitOptions,
    /// Leave out records that cannot be used, and count them
    #[arg(long)]
    lenient: bool,
    /// Delimiter, one character [default: the byte 0x1E for GUFI traces, a comma for csv]
    #[arg(long, value_name = "C", value_parser = one_byte)]
    delim: Option<u8>,
    /// Form of a GUFI trace [default: that of its first record]
    #[arg(long, value_name = "FORM", value_enum)]
    trace_form: Option<FormName>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

impl Arguments {
    /// Returns the files to read, and how to read them.
    pub fn request(&self, invocation: &Invocation) -> Request {
        Request {
            format: match self.format {
                FormatName::GufiTrace => Format::GufiTrace,
                FormatName::GufiIndex => Format::GufiIndex,
                FormatName::Ndjson => Format::Ndjson,
                FormatName::Csv => Format::Csv,
                FormatName::Find => Format::Find,
                FormatName::Parquet => Format::Parquet,
                FormatName::GpfsPolicy => Format::GpfsPolicy,
                FormatName::Lester => Format::Lester,
                FormatName::Ncdu => Format::Ncdu,
            },
            files: self.files.clone(),
            root: self.root.as_ref().map(|root| root.as_os_str().as_bytes().to_vec()),
            above: self.above.clone(),
            lenient: self.lenient,
            threads: invocation.threads(self.threads),
            memory_bytes: self.memory,
            delimiter: self.delim,
            trace_form: self.trace_form.map(|form| match form {
                FormName::Prefixed => Form::Prefixed,
                FormName::Plain => Form::Plain,
            }),
        }
    }
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
    /// Output of ncdu -e -o
    Ncdu,
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
