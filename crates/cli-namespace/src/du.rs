//! `canopy ns du`: space of trees of a namespace, in the form of du(1).

use crate::faults::Faults;
use crate::moment::{Moment, Source};
use crate::names::Names;
use crate::paths;
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Du as Arguments;
use canopy_model::escape;
use canopy_namespace::{FileId, Inode};
use canopy_text::SizeForm;
use canopy_text::safe::terminal_name;
use serde_json::json;
use std::collections::HashSet;
use std::ffi::CString;
use std::io::{BufWriter, IsTerminal, Write};

/// The unit of blocks.
const BLOCK_BYTES: u128 = 512;

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let depth_max = match (arguments.summarize, arguments.max_depth) {
        (true, Some(depth)) if depth > 0 => {
            bail!("summarizing conflicts with --max-depth={depth}");
        }
        (true, _) => 0,
        (false, depth) => depth.unwrap_or(usize::MAX),
    };
    if arguments.summarize && arguments.all {
        bail!("cannot both summarize and show all entries");
    }
    let (place, path) = paths::split(&arguments.place);
    let snapshot = arguments.snapshot.as_deref();
    let source = Source::open(&place, snapshot)?;
    let tree = source.moment(&place, snapshot)?;
    let inode = paths::existing(&tree, &path)?;
    let names = paths::names(&path)?;
    let form = match arguments.human_readable {
        true => SizeForm::HUMAN,
        false => SizeForm::from_environment("DU_BLOCK_SIZE"),
    };
    let out = match arguments.json {
        true => canopy::terminal::stdout_for_json(),
        false => BufWriter::with_capacity(1 << 16, Box::new(std::io::stdout()) as _),
    };
    let mut sums = Sums {
        tree: &tree,
        arguments,
        form,
        depth_max,
        is_terminal: std::io::stdout().is_terminal(),
        path: names.iter().flat_map(|name| [b"/", *name]).flatten().copied().collect(),
        levels: Vec::new(),
        linked: HashSet::new(),
        lines: 0,
        faults: Faults::default(),
        out,
    };
    sums.run(inode)?;
    Ok(sums.faults.finish("counted"))
}

struct Sums<'a> {
    tree: &'a Moment<'a>,
    arguments: &'a Arguments,
    form: SizeForm,
    depth_max: usize,
    is_terminal: bool,
    /// Path of the directory where the walk is, without a slash at its end.
    path: Vec<u8>,
    levels: Vec<Level>,
    /// Files with several names that were counted.
    linked: HashSet<FileId>,
    lines: u64,
    faults: Faults,
    out: BufWriter<Box<dyn Write>>,
}

struct Level {
    id: FileId,
    bytes: u128,
    /// How long the path of the directory above is.
    above: usize,
    /// Directories in it that are still to be added up.
    left: Names,
}

impl Sums<'_> {
    fn run(&mut self, inode: Inode) -> anyhow::Result<()> {
        if inode.is_directory() {
            let (bytes, above) = (self.usage(&inode), self.path.len());
            self.enter(Level { id: inode.id, bytes, above, left: Names::default() })?;
        } else {
            let bytes = self.usage(&inode);
            self.print(bytes, b"")?;
        }
        while let Some(level) = self.levels.last_mut() {
            match level.left.pop() {
                Some(name) => self.descend(name)?,
                None => self.ascend()?,
            }
        }
        if self.arguments.json {
            self.out.write_all(if self.lines > 0 { b"\n]\n" } else { b"[]\n" })?;
        }
        Ok(self.out.flush()?)
    }

    /// Returns the usage of a file: 0 if it was counted under another name.
    fn usage(&mut self, inode: &Inode) -> u128 {
        if !inode.is_directory() && inode.nlink > 1 && !self.linked.insert(inode.id) {
            return 0;
        }
        match self.arguments.apparent_size {
            true => inode.size.into(),
            false => u128::from(inode.blocks) * BLOCK_BYTES,
        }
    }

    fn enter(&mut self, mut level: Level) -> anyhow::Result<()> {
        let tells = self.arguments.all && self.levels.len() < self.depth_max;
        let tree = self.tree;
        let mut told = Ok(());
        let listed = tree.list(level.id, |name, inode| {
            if inode.is_directory() {
                match CString::new(name) {
                    Ok(name) => level.left.push(&name),
                    Err(error) => told = Err(error.into()),
                }
                return told.is_ok();
            }
            let is_new = inode.nlink <= 1 || !self.linked.contains(&inode.id);
            let bytes = self.usage(inode);
            level.bytes += bytes;
            if tells && is_new {
                told = self.print(bytes, name);
            }
            told.is_ok()
        });
        if let Err(error) = listed {
            self.fault(b"", format_args!("some of its entries cannot be read: {error}"));
        }
        self.levels.push(level);
        told
    }

    /// Reports a name in the directory where the walk is, or that itself, that cannot be read.
    fn fault(&mut self, name: &[u8], what: impl std::fmt::Display) {
        let path = [&self.path[..], if name.is_empty() { b"" } else { b"/" }, name].concat();
        self.faults.add(String::from_utf8_lossy(&path), what);
    }

    fn descend(&mut self, name: CString) -> anyhow::Result<()> {
        let Some(above) = self.levels.last() else { return Ok(()) };
        let inode = match self.tree.lookup(above.id, name.to_bytes()) {
            Ok(inode) => inode,
            Err(error) => {
                self.fault(name.to_bytes(), error);
                return Ok(());
            }
        };
        let above = self.path.len();
        self.path.push(b'/');
        self.path.extend_from_slice(name.to_bytes());
        let bytes = self.usage(&inode);
        self.enter(Level { id: inode.id, bytes, above, left: Names::default() })
    }

    fn ascend(&mut self) -> anyhow::Result<()> {
        let level = self.levels.pop().context("the walk has lost its way")?;
        if self.levels.len() <= self.depth_max {
            self.print(level.bytes, b"")?;
        }
        self.path.truncate(level.above);
        if let Some(above) = self.levels.last_mut() {
            above.bytes += level.bytes;
        }
        Ok(())
    }

    /// Prints the line of a name in the directory where the walk is, or of that itself.
    fn print(&mut self, bytes: u128, name: &[u8]) -> anyhow::Result<()> {
        let is_first = self.lines == 0;
        self.lines += 1;
        let length = self.path.len();
        if !name.is_empty() || length == 0 {
            self.path.push(b'/');
            self.path.extend_from_slice(name);
        }
        if self.arguments.json {
            self.out.write_all(if is_first { b"[\n" } else { b",\n" })?;
            // A value of serde_json has no number of more than 64 bits.
            write!(self.out, "{{\"bytes\":{bytes},\"path\":{}}}", json!(escape(&self.path)))?;
        } else {
            let size = self.form.show(i128::try_from(bytes).unwrap_or(i128::MAX));
            write!(self.out, "{size}\t")?;
            self.out.write_all(&terminal_name(&self.path, self.is_terminal))?;
            self.out.write_all(b"\n")?;
        }
        self.path.truncate(length);
        Ok(())
    }
}
