//! Reads metadata that other scanners have written, and yields it as the listings of one source.
//!
//! 1. [`Import::open`] makes a first pass over the input and gathers its directories, since who may
//!    see a listing depends on all directories above it.
//! 2. [`Import::run`] hands the listings over, one sink a thread.
//!
//! Not its job: what an index looks like on disk. An import knows formats of metadata; it hands
//! over the same listings as a scan does, of the same access classes.
//!
//! Its invariant: entries that the input leaves uncertain are for root alone; bad input is an error
//! with its place or, in a lenient import, counted and left out.
//!
//! `form` names the formats, `flat`, `trace` and `gufi_index` read them, `tree` decides who may see
//! a listing. `tempfile` holds entries that come in any order while they are grouped. SQLite is
//! built in.

mod above;
mod emitter;
mod error;
mod fault;
mod first_pass;
mod flat;
mod foreign_parquet;
mod foreign_sqlite;
mod form;
#[doc(hidden)]
pub mod fuzzing;
mod gufi_index;
mod input;
mod number;
mod parquet_pages;
mod path;
mod trace;
mod tree;

pub use above::Above;
pub use emitter::Counts;
pub use error::{Error, Position, Problems, Result, RunError};
pub use fault::Fault;
pub use foreign_parquet::{BoundedFile, BoundedReader, open_foreign_parquet};
pub use foreign_sqlite::{open_foreign_sqlite, plain_sqlite_tables};
pub use parquet_pages::bounded_batch_rows;
pub use trace::Form;

use canopy_model::{Approach, Attributes, Audience, ClassTable, Device, Sink, unescape};
use emitter::Emitter;
use first_pass::RootRule;
use flat::{Collector, Flat, ncdu, parquet, readers};
use gufi_index::GufiIndex;
use input::Input;
use std::path::PathBuf;
use trace::{Trace, TraceOptions};
use tree::Tree;

/// Format of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Traces of gufi_dir2trace.
    GufiTrace,
    /// The directory of an index of gufi_dir2index or gufi_trace2index.
    GufiIndex,
    /// An object a line.
    Ndjson,
    /// Values between commas, the first line names the columns.
    Csv,
    /// The output of find(1) with a certain `-printf`.
    Find,
    /// Parquet, with the columns of CSV.
    Parquet,
    /// File lists of IBM Storage Scale's mmapplypolicy with a certain rule.
    GpfsPolicy,
    /// Output of Lester, the Lustre lister, with its action fslist.
    Lester,
    /// Exports of ncdu with extended information (`ncdu -e -o`).
    Ncdu,
}

/// Settings of an import.
#[derive(Clone, Debug)]
pub struct Request {
    /// Format of the files.
    pub format: Format,
    /// The files; all of them are parts of one source. `-` is standard input.
    pub files: Vec<PathBuf>,
    /// Absolute path of the root of the source, bytes of a Linux path. By default, the input's
    /// root. Where the input's own paths are absolute, the directory of the input at this path
    /// becomes the root, if it is above all others.
    pub root: Option<Vec<u8>>,
    /// Attributes of directories above the root; others count as open to all.
    pub above: Vec<Above>,
    /// Whether unusable records are left out and counted.
    pub lenient: bool,
    /// Threads that read.
    pub threads: usize,
    /// Memory for grouping entries by directory, in bytes.
    pub memory_bytes: usize,
    /// Delimiter of traces, 0x1E by default, or of CSV, a comma by default.
    pub delimiter: Option<u8>,
    /// Form of traces; by default detected from their first records.
    pub trace_form: Option<Form>,
}

impl Request {
    /// Returns a request with the defaults, without any file yet.
    pub fn new(format: Format) -> Self {
        Request {
            format,
            files: Vec::new(),
            root: None,
            above: Vec::new(),
            lenient: false,
            threads: 1,
            memory_bytes: 256 << 20,
            delimiter: None,
            trace_form: None,
        }
    }
}

/// An input after the first pass.
#[derive(Debug)]
pub struct Import {
    tree: Tree,
    reader: Reader,
    problems: Problems,
    root_dir: u32,
    above: Vec<Above>,
}

/// Reader of the second pass.
#[derive(Debug)]
enum Reader {
    Trace(Trace),
    GufiIndex(GufiIndex),
    Flat(Flat),
}

/// An extended attribute, and its value with those who may see it.
pub type FoundXattr = (String, Option<(Vec<u8>, Audience)>);

impl Import {
    /// Makes the first pass. Blocks.
    pub fn open(request: &Request) -> Result<Self> {
        Self::first_pass(request).map_err(|error| form::explained(error, request))
    }

    fn first_pass(request: &Request) -> Result<Self> {
        let problems = Problems::new(request.lenient);
        let root = request.root.as_deref().map(absolute).transpose()?;
        let options = TraceOptions {
            form: request.trace_form,
            delimiter: request.delimiter.unwrap_or(trace::DELIMITER),
            root,
            threads: request.threads,
        };
        let flat = |read: &dyn Fn(&Input, &mut Collector<'_>) -> Result<()>, rule| {
            let (files, memory_bytes) = (&request.files, request.memory_bytes);
            let (flat, tree) = Flat::open(read, files, root, rule, memory_bytes, &problems)?;
            Ok::<_, Error>((Reader::Flat(flat), tree))
        };
        let (reader, tree) = match (request.format, &request.files[..]) {
            (Format::GufiTrace, files) => {
                let (trace, tree) = Trace::open(files, &options, &problems)?;
                (Reader::Trace(trace), tree)
            }
            (Format::GufiIndex, [directory]) => {
                let (index, tree) = GufiIndex::open(directory, root, &problems)?;
                (Reader::GufiIndex(index), tree)
            }
            (Format::Ndjson, _) => flat(&readers::ndjson, RootRule::Below)?,
            (Format::Csv, _) => {
                let delimiter = request.delimiter.unwrap_or(b',');
                let read = |input: &Input, collector: &mut Collector<'_>| {
                    readers::csv(input, delimiter, collector)
                };
                flat(&read, RootRule::Below)?
            }
            (Format::Find, _) => flat(&readers::find, RootRule::Below)?,
            (Format::Parquet, _) => flat(&parquet::read, RootRule::Below)?,
            (Format::GpfsPolicy, _) => flat(&readers::gpfs_policy, RootRule::Below)?,
            (Format::Lester, _) => flat(&readers::lester, RootRule::Top)?,
            (Format::Ncdu, [_]) => flat(&ncdu::ncdu, RootRule::Below)?,
            (Format::Ncdu, _) => {
                return Err(Error::Input("give one export, since each has a root".to_owned()));
            }
            (Format::GufiIndex, _) => {
                return Err(Error::Input("give one directory, the index of the root".to_owned()));
            }
        };
        problems.end_pass(false)?;
        let root_dir =
            tree.root_dir().ok_or_else(|| Error::Input("the input has no directory".to_owned()))?;
        let above = request.above.clone();
        above::checked(&above, &unescape(&tree.root))?;
        Ok(Import { tree, reader, problems, root_dir, above })
    }

    /// Returns the absolute path of the root, escaped.
    pub fn root(&self) -> &str {
        &self.tree.root
    }

    /// Returns the attributes of the root.
    pub fn attributes(&self) -> Attributes {
        self.tree.dirs[self.root_dir as usize].attributes
    }

    /// Returns the users who may look up the root: everybody, except users whom the described
    /// directories above it keep out.
    pub fn root_approach(&self, classes: &ClassTable) -> Approach {
        above::root_approach(&self.above, &unescape(&self.tree.root), classes)
    }

    /// Returns the number of directories above the root, besides `/`, that count as open to all
    /// since nothing describes them.
    pub fn untold_above(&self) -> usize {
        above::untold(&self.above, &unescape(&self.tree.root))
    }

    /// Returns the extended attributes of the root.
    pub fn xattrs(&self, classes: &ClassTable) -> Vec<FoundXattr> {
        let found =
            self.tree.xattr_audiences(self.root_dir, self.root_approach(classes).audience, classes);
        found
            .into_iter()
            .map(|(key, value, audience)| (key.to_owned(), Some((value.to_vec(), audience))))
            .collect()
    }

    /// Returns the device that the source is said to be on. No input states it for certain; this
    /// one is a hash of the path, so that inodes of two sources are not taken for equal.
    pub fn dev(&self) -> Device {
        // Linux has device numbers of 32 bits.
        const NEVER_A_REAL_DEVICE: u64 = 1 << 40;
        let hash = blake3::hash(&unescape(&self.tree.root));
        let [a, b, c, d, e, f, g, h, ..] = *hash.as_bytes();
        // One bit less, so that it is a number of 64 bits with a sign too.
        Device(NEVER_A_REAL_DEVICE | u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 1)
    }

    /// Makes the second pass: hands all listings over, one thread a sink, and gives the sinks back.
    /// Blocks.
    pub fn run<S: Sink<Error: std::error::Error>>(
        &mut self,
        classes: &ClassTable,
        counts: &Counts,
        sinks: Vec<S>,
    ) -> std::result::Result<Vec<S>, RunError<S::Error>> {
        let approach = self.root_approach(classes);
        self.tree.classify(classes, &approach);
        let (tree, dev, problems) = (&self.tree, self.dev(), &self.problems);
        let emitter = |sink| Emitter::new(tree, classes, counts, dev, sink);
        let mut emitters: Vec<_> = sinks.into_iter().map(emitter).collect();
        match &mut self.reader {
            Reader::Trace(trace) => trace.run(&mut emitters, problems)?,
            Reader::GufiIndex(index) => index.run(&mut emitters, problems)?,
            Reader::Flat(flat) => flat.run(&mut emitters, problems)?,
        }
        problems.end_pass(true)?;
        Ok(emitters.into_iter().map(|emitter| emitter.sink).collect())
    }

    /// Returns what was left out so far.
    pub fn problems(&self) -> &Problems {
        &self.problems
    }
}

/// Checks the path of a root, and takes away slashes at its end.
fn absolute(root: &[u8]) -> Result<&[u8]> {
    let trimmed = path::trimmed(root);
    let valid =
        root.starts_with(b"/") && path::check(trimmed.strip_prefix(b"/").unwrap_or(b"")).is_ok();
    if valid {
        return Ok(trimmed);
    }
    let reason = "expected an absolute path without '.', '..' and empty components";
    Err(Error::Input(format!("--root {}: {reason}", path::shown(root))))
}
