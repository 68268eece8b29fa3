//! GUFI's traces: stanzas, each a directory's record and those of what is in it but is not a
//! directory.
//!
//! 1. The first pass goes through every file from the beginning, record by record, and gathers the
//!    directories. It notes where stanzas begin, some megabytes apart.
//! 2. The second pass reads these ranges in parallel and hands a listing over for each stanza.
//!
//! Ranges are not found by looking for a stanza from the middle of a file: names and values may
//! hold a newline and what looks like a record, and whoever made such a file would have directories
//! of their own making in the index.

mod record;
#[cfg(test)]
pub(crate) mod tests;

use crate::emitter::{Emitter, NewEntry};
use crate::error::{Error, Position, Problems, Result, RunError};
use crate::fault::{Checked, Fault};
use crate::first_pass::{FirstPass, RootRule};
use crate::input::{Blocks, Input};
use crate::path::{check_name, shown};
use crate::tree::{MADE_UP, NO_DIR, Tree, Xattrs};
use canopy_model::{Sink, escape, parallel};
use record::{Layout, Pairs, RECORD_BYTES_MAX, Record, SplitError, detect};
use std::path::PathBuf;

/// How the records of a trace are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Texts have their lengths in front.
    Prefixed,
    /// Texts end at the next delimiter: what GUFI wrote before.
    Plain,
}

/// The default delimiter of GUFI.
pub(crate) const DELIMITER: u8 = 0x1E;

/// Bytes of a range of the second pass, at least.
const RANGE_BYTES: u64 = 4 << 20;

/// A trace after the first pass.
#[derive(Debug)]
pub(crate) struct Trace {
    inputs: Vec<Input>,
    ranges: Vec<Range>,
    /// Numbers of the directories by input, in the order of their stanzas.
    dirs: Vec<Vec<u32>>,
}

/// Whole stanzas of a file.
#[derive(Clone, Debug)]
struct Range {
    input: usize,
    layout: Layout,
    start: u64,
    end: u64,
    /// Number of its first directory in the file.
    first_dir: usize,
}

/// Results of the first pass over a file.
#[derive(Default)]
struct ScannedFile {
    gathered: FirstPass,
    ranges: Vec<Range>,
}

/// How to read a trace.
pub(crate) struct TraceOptions<'a> {
    pub form: Option<Form>,
    pub delimiter: u8,
    pub root: Option<&'a [u8]>,
    pub threads: usize,
}

impl Trace {
    /// Makes the first pass.
    pub(crate) fn open(
        files: &[PathBuf],
        options: &TraceOptions<'_>,
        problems: &Problems,
    ) -> Result<(Trace, Tree)> {
        let inputs: Vec<Input> =
            files.iter().map(|path| Input::open(path)).collect::<Result<_>>()?;
        let numbers: Vec<usize> = (0..inputs.len()).collect();
        let mut workers = vec![(); options.threads.clamp(1, inputs.len().max(1))];
        let scouted = parallel(&mut workers, numbers, |(), number| {
            let input: &Input = &inputs[number];
            scout(number, input, options, problems)
        })?;
        problems.end_pass(false)?;
        let (mut gathered, mut ranges) = (Vec::new(), Vec::new());
        for found in scouted {
            gathered.push(found.gathered);
            ranges.extend(found.ranges);
        }
        let (tree, dirs) = Tree::build(gathered, options.root, RootRule::Named, files, problems)?;
        Ok((Trace { inputs, ranges, dirs }, tree))
    }

    /// Makes the second pass.
    pub(crate) fn run<S: Sink<Error: std::error::Error>>(
        &self,
        emitters: &mut [Emitter<'_, S>],
        problems: &Problems,
    ) -> std::result::Result<(), RunError<S::Error>> {
        parallel(emitters, self.ranges.clone(), |emitter, range| {
            self.read(range, emitter, problems)
        })?;
        emitters.first_mut().map_or(Ok(()), Emitter::made_up)
    }

    /// Reads the stanzas of a range.
    fn read<S: Sink<Error: std::error::Error>>(
        &self,
        range: Range,
        emitter: &mut Emitter<'_, S>,
        problems: &Problems,
    ) -> std::result::Result<(), RunError<S::Error>> {
        let input = &self.inputs[range.input];
        let mut records = Records::new(input, &range);
        let mut numbers = self.dirs[range.input][range.first_dir..].iter().copied();
        let mut stanza = Stanza { dir: NO_DIR, path: Vec::new() };
        while records.prepare()? {
            let offset = records.offset();
            let Ok((record, length)) = records.split() else {
                // The first pass has reported it, and went on likewise.
                records.resynchronize()?;
                continue;
            };
            match record.kind {
                b'd' => {
                    let next = numbers.next().ok_or_else(|| changed(input))?;
                    if stanza.dir != NO_DIR {
                        emitter.finish()?;
                    }
                    stanza.begin(next, record.path, emitter.tree).map_err(|()| changed(input))?;
                    if stanza.dir != NO_DIR {
                        emitter.begin(stanza.dir)?;
                    }
                }
                b'e' => {}
                _ => {
                    let added = stanza.add(&record, emitter)?;
                    for reason in [added.err(), record.xattrs().err()].into_iter().flatten() {
                        let (at, reason) =
                            (Position::Offset(offset), reason.within(shown(record.path)));
                        problems.report(Error::record(&input.path, at, reason))?;
                    }
                }
            }
            records.advance(length);
        }
        if stanza.dir != NO_DIR {
            emitter.finish()?;
        }
        Ok(())
    }
}

/// The directory whose entries follow.
struct Stanza {
    dir: u32,
    /// As the input has it.
    path: Vec<u8>,
}

impl Stanza {
    fn begin(&mut self, dir: u32, path: &[u8], tree: &Tree) -> std::result::Result<(), ()> {
        if dir != NO_DIR {
            let below = tree.below_root(path).map_err(|_| ())?;
            if escape(below) != tree.path(dir) {
                return Err(());
            }
        }
        self.dir = dir;
        self.path.clear();
        self.path.extend_from_slice(path);
        Ok(())
    }

    /// Adds an entry to the listing of the directory, or says why not.
    fn add<S: Sink<Error: std::error::Error>>(
        &self,
        record: &Record<'_>,
        emitter: &mut Emitter<'_, S>,
    ) -> std::result::Result<Checked<()>, RunError<S::Error>> {
        if self.dir == NO_DIR {
            return Ok(Err(Fault::name("its directory was left out")));
        }
        let rest = record.path.strip_prefix(&self.path[..]);
        let name = match rest {
            // The root may end with a slash already.
            Some([b'/', b'/', name @ ..] | [b'/', name @ ..]) => name,
            Some(name) if self.path.ends_with(b"/") => name,
            _ => {
                let stanza = shown(&self.path);
                let reason = format!("not in the directory of its stanza, {stanza}");
                return Ok(Err(Fault::name(reason)));
            }
        };
        if let Err(reason) = check_name(name) {
            return Ok(Err(reason));
        }
        let attributes = match record.attributes() {
            Ok(attributes) => attributes,
            Err(reason) => return Ok(Err(reason)),
        };
        let xattrs = record.xattrs().unwrap_or(Pairs::EMPTY);
        let added = emitter.push(NewEntry { name, attributes, target: record.target, xattrs })?;
        Ok(if added { Ok(()) } else { Err(Fault::contradiction("a second entry of this name")) })
    }
}

fn changed(input: &Input) -> Error {
    Error::file(&input.path, Fault::form("was changed while it was read"))
}

/// Makes the first pass over one file.
fn scout(
    number: usize,
    input: &Input,
    options: &TraceOptions<'_>,
    problems: &Problems,
) -> Result<ScannedFile> {
    let mut found = ScannedFile::default();
    if input.length == 0 {
        return Ok(found);
    }
    let layout = layout(input, options)?;
    let mut range = Range { input: number, layout, start: 0, end: input.length, first_dir: 0 };
    let mut records = Records::new(input, &range);
    // A run of bytes without a record is one problem.
    let mut lost = false;
    while records.prepare()? {
        let offset = records.offset();
        let at = Position::Offset(offset);
        let (record, length) = match records.split() {
            Ok(split) => split,
            Err(reason) => {
                if !lost {
                    problems.report(Error::record(&input.path, at, reason))?;
                }
                lost = true;
                records.resynchronize()?;
                continue;
            }
        };
        lost = false;
        if record.kind == b'd' {
            if offset - range.start >= RANGE_BYTES {
                found.ranges.push(Range { end: offset, ..range.clone() });
                (range.start, range.first_dir) = (offset, found.gathered.len());
            }
            if let Err(reason) = gather(&record, &mut found.gathered, (number as u32, at.clone())) {
                let reason = reason.within(shown(record.path));
                problems.report(Error::record(&input.path, at, reason))?;
            }
        }
        records.advance(length);
    }
    found.ranges.push(range);
    Ok(found)
}

/// Adds a directory. One whose record is wrong in part is added with its readable fields, for root
/// alone.
fn gather(record: &Record<'_>, gathered: &mut FirstPass, at: (u32, Position)) -> Checked<()> {
    let (attributes, pairs) = (record.attributes(), record.xattrs());
    let unknown = attributes.is_err() || pairs.is_err();
    let fault = attributes.as_ref().err().or(pairs.as_ref().err()).cloned();
    let owned = |(key, value): (&[u8], &[u8])| (escape(key).into_owned(), value.to_vec());
    let xattrs: Xattrs = pairs.unwrap_or(Pairs::EMPTY).map(owned).collect();
    gathered.push(record.path, attributes.unwrap_or(MADE_UP), unknown, xattrs, at);
    fault.map_or(Ok(()), Err)
}

/// Finds the form of a file.
fn layout(input: &Input, options: &TraceOptions<'_>) -> Result<Layout> {
    let delimiter = options.delimiter;
    if let Some(form) = options.form {
        return Ok(Layout { form, delimiter });
    }
    let mut blocks = input.blocks(0, input.length);
    while blocks.bytes().len() < RECORD_BYTES_MAX && blocks.more()? {}
    let form = detect(blocks.bytes(), delimiter);
    let form = form.map_err(|reason| Error::record(&input.path, Position::Offset(0), reason))?;
    Ok(Layout { form, delimiter })
}

/// Goes from record to record.
struct Records<'a> {
    blocks: Blocks<'a>,
    layout: Layout,
}

impl<'a> Records<'a> {
    fn new(input: &'a Input, range: &Range) -> Self {
        Records { blocks: input.blocks(range.start, range.end), layout: range.layout }
    }

    /// Has a whole record in the window, if there is one. Returns false at the end.
    fn prepare(&mut self) -> Result<bool> {
        loop {
            if self.blocks.bytes().len() < RECORD_BYTES_MAX && !self.blocks.is_last() {
                self.blocks.more()?;
            } else if self.blocks.bytes().first() == Some(&b'\n') {
                // GUFI skips empty lines too.
                self.blocks.advance(1);
            } else {
                return Ok(!self.blocks.bytes().is_empty());
            }
        }
    }

    fn offset(&self) -> u64 {
        self.blocks.offset()
    }

    fn split(&self) -> Checked<(Record<'_>, usize)> {
        Record::split(self.blocks.bytes(), self.layout).map_err(|error| match error {
            SplitError::Bad(fault) => fault,
            SplitError::Incomplete if self.blocks.is_last() => {
                Fault::form("the file ends within a record")
            }
            SplitError::Incomplete => {
                Fault::form(format!("a record of more than {RECORD_BYTES_MAX} bytes"))
            }
        })
    }

    fn advance(&mut self, bytes: usize) {
        self.blocks.advance(bytes);
    }

    /// Moves on to what may be the next record: behind the next end of a line.
    fn resynchronize(&mut self) -> Result<()> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', self.blocks.bytes()) {
                self.blocks.advance(end + 1);
                return Ok(());
            }
            self.blocks.advance(self.blocks.bytes().len());
            if !self.blocks.more()? {
                return Ok(());
            }
        }
    }
}
