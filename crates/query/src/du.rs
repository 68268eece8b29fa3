//! `du`: space and counts of directories, as du(1) adds them up.
//!
//! With `-s` each argument costs two look-ups a shard. Otherwise one pass over the listings gives every directory
//! that is shown; they are printed after what is in them, in path order.

use crate::columns::{numbers, strings};
use crate::error::{Error, Result};
use crate::human::human_size;
use crate::listings::ListingHeads;
use crate::locate::{Start, locate};
use crate::totals::{Node, Seen, Subtree, truncated};
use arrow::datatypes::{Int64Type, UInt32Type, UInt64Type};
use canopy_index::{FileKind, Index};
use canopy_model::{Totals, compare_paths, is_below, join, parent};
use rustc_hash::FxHashMap;
use std::ffi::OsString;
use std::io::Write;

/// What is added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Measure {
    /// Space taken on disk.
    #[default]
    Disk,
    /// Sizes of files and directories.
    Apparent,
    /// How many there are.
    Inodes,
}

/// How to add up and print.
#[derive(Clone, Copy, Debug, Default)]
pub struct DuOptions {
    /// What is added up.
    pub measure: Measure,
    /// Whether to print a line for entries that are not directories too.
    pub all: bool,
    /// How far below an argument lines are printed; 0 for the argument alone.
    pub depth_max: Option<u32>,
    /// Whether to print a grand total.
    pub total: bool,
    /// Whether to print sizes for people.
    pub human: bool,
    /// Whether lines end with NUL.
    pub null: bool,
    /// How many threads read.
    pub threads: usize,
}

/// Prints the space that each path takes. Returns the paths that could not be answered; other errors end it.
/// Blocks.
pub fn run(
    index: &Index,
    paths: &[OsString],
    options: DuOptions,
    output: &mut dyn Write,
) -> Result<Vec<Error>> {
    let mut du = Du { options, seen: Seen::default(), counted: Vec::new(), output, total: 0 };
    let mut failed = Vec::new();
    for given in paths {
        match locate(index, given) {
            Ok(start) => du.argument(start)?,
            Err(error @ (Error::NotCovered { .. } | Error::NotFound(_))) => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    if options.total {
        let total = du.total;
        du.line(total, b"total")?;
    }
    du.output.flush()?;
    Ok(failed)
}

struct Du<'a> {
    options: DuOptions,
    /// Links that were counted already, over all arguments.
    seen: Seen,
    /// Arguments that were counted already, with their sums.
    counted: Vec<(u32, String, i64)>,
    output: &'a mut dyn Write,
    total: i64,
}

impl Du<'_> {
    fn argument(&mut self, start: Start) -> Result<()> {
        let source = start.source.id;
        // What an earlier argument has counted is not counted again.
        let again = |(other, path, _): &&(u32, String, i64)| *other == source && is_below(&start.path, path);
        if self.counted.iter().any(|counted| again(&counted)) {
            return Ok(());
        }
        let size = if !start.is_dir() {
            self.file(&start)?
        } else if self.options.depth_max == Some(0) {
            self.summary(&start)?
        } else {
            self.tree(&start)?
        };
        self.total += size;
        self.counted.push((source, start.path, size));
        Ok(())
    }

    /// Sums of earlier arguments that lie below this one.
    fn counted_below(&self, start: &Start) -> i64 {
        let below = |(source, path, _): &&(u32, String, i64)| {
            *source == start.source.id && is_below(path, &start.path)
        };
        self.counted.iter().filter(below).map(|counted| counted.2).sum()
    }

    fn file(&mut self, start: &Start) -> Result<i64> {
        let attributes = &start.inode.attributes;
        if attributes.nlink > 1 && !self.seen.insert((start.inode.dev, attributes.ino)) {
            return Ok(0);
        }
        let own = Totals {
            entries: 1,
            bytes: attributes.size_bytes,
            blocks: attributes.blocks,
            ..Totals::default()
        };
        let size = self.measured(&own);
        self.line(size, &start.given)?;
        Ok(size)
    }

    fn summary(&mut self, start: &Start) -> Result<i64> {
        let mut totals = own_of(start);
        totals += Subtree::of(start, self.options.threads).sum(&mut self.seen)?;
        let size = self.measured(&totals) - self.counted_below(start);
        self.line(size, &start.given)?;
        Ok(size)
    }

    fn tree(&mut self, start: &Start) -> Result<i64> {
        let subtree = Subtree::of(start, self.options.threads);
        let levels = self.options.depth_max.map_or(usize::MAX, |depth| depth as usize);
        let depth = levels.saturating_add(start.depth() as usize);
        let mut nodes = subtree.nodes(depth)?;
        match nodes.first_mut() {
            Some(first) if first.path == start.path => first.own += own_of(start),
            _ => nodes.insert(0, Node { path: start.path.clone(), own: own_of(start) }),
        }
        for link in subtree.links()? {
            if !self.seen.insert(link.id) {
                let path = truncated(&link.listing, depth);
                if let Ok(at) = nodes.binary_search_by(|node| compare_paths(&node.path, path)) {
                    nodes[at].own -= link.once;
                }
            }
        }
        let files = if self.options.all { self.files(start, depth)? } else { FxHashMap::default() };
        let size = self.print_tree(start, nodes, files)?;
        Ok(size - self.counted_below(start))
    }

    /// Prints nodes in path order, each after those below it.
    fn print_tree(
        &mut self,
        start: &Start,
        nodes: Vec<Node>,
        mut files: FxHashMap<String, Vec<(String, Totals)>>,
    ) -> Result<i64> {
        let mut open: Vec<(String, Totals)> = Vec::new();
        for node in nodes {
            while open.last().is_some_and(|(path, _)| !is_below(&node.path, path)) {
                self.close(start, &mut open)?;
            }
            for (name, own) in files.remove(&node.path).unwrap_or_default() {
                let size = self.measured(&own);
                self.line(size, &start.display(&join(&node.path, &name)))?;
            }
            open.push((node.path, node.own));
        }
        let mut size = 0;
        while !open.is_empty() {
            size = self.close(start, &mut open)?;
        }
        Ok(size)
    }

    /// Prints the innermost open directory and adds it to the one around it.
    fn close(&mut self, start: &Start, open: &mut Vec<(String, Totals)>) -> Result<i64> {
        let Some((path, totals)) = open.pop() else { return Ok(0) };
        let mut size = self.measured(&totals);
        if path == start.path {
            size -= self.counted_below(start);
        }
        self.line(size, &start.display(&path))?;
        if let Some((_, around)) = open.last_mut() {
            *around += totals;
        }
        Ok(size)
    }

    /// Entries that are not directories, by their directory, down to a depth, each link once.
    fn files(&self, start: &Start, depth: usize) -> Result<FxHashMap<String, Vec<(String, Totals)>>> {
        let mut found: Vec<File> = Vec::new();
        for shard in start.view.shards_of(start.source.id) {
            let listings = shard.listings_below(&start.path)?;
            let (entries, _) = shard.rows_of(listings)?;
            if entries.is_empty() {
                continue;
            }
            let columns = ["listing", "name", "size", "blocks", "nlink", "ino"];
            for batch in shard.read(FileKind::Entries, &columns, std::slice::from_ref(&entries), 8192)? {
                let batch = batch?;
                let ordinals = numbers::<UInt32Type>(&batch, "listing").values();
                let heads = ListingHeads::read(shard, ordinals)?;
                let names = strings(&batch, "name");
                let [sizes, blocks] =
                    ["size", "blocks"].map(|name| numbers::<Int64Type>(&batch, name).values());
                let nlinks = numbers::<UInt32Type>(&batch, "nlink").values();
                let inodes = numbers::<UInt64Type>(&batch, "ino").values();
                for at in 0..batch.num_rows() {
                    let bad = || shard.corrupt(FileKind::Entries, "it names a listing that does not exist");
                    let head = heads.get(ordinals[at]).ok_or_else(bad)?;
                    if head.depth as usize >= depth {
                        continue;
                    }
                    found.push(File {
                        listing: head.path.to_owned(),
                        name: names.value(at).to_owned(),
                        link: (nlinks[at] > 1).then_some((head.dev, inodes[at])),
                        own: Totals { entries: 1, bytes: sizes[at], blocks: blocks[at], ..Totals::default() },
                    });
                }
            }
        }
        found.sort_by(|a, b| compare_paths(&a.listing, &b.listing).then_with(|| a.name.cmp(&b.name)));
        let mut seen = Seen::default();
        let mut files: FxHashMap<String, Vec<(String, Totals)>> = FxHashMap::default();
        for file in found {
            if file.link.is_none_or(|id| seen.insert(id)) {
                files.entry(file.listing).or_default().push((file.name, file.own));
            }
        }
        Ok(files)
    }

    fn measured(&self, totals: &Totals) -> i64 {
        match self.options.measure {
            Measure::Disk => totals.blocks.saturating_mul(512),
            Measure::Apparent => totals.bytes.saturating_add(totals.dir_bytes),
            Measure::Inodes => totals.entries + totals.dirs,
        }
    }

    fn line(&mut self, size: i64, path: &[u8]) -> Result<()> {
        let shown = match (self.options.measure, self.options.human) {
            (Measure::Inodes, false) => size.to_string(),
            (_, true) => human_size(size),
            (_, false) => (size / 1024 + i64::from(size % 1024 > 0)).to_string(),
        };
        self.output.write_all(shown.as_bytes())?;
        self.output.write_all(b"\t")?;
        self.output.write_all(path)?;
        self.output.write_all(if self.options.null { b"\0" } else { b"\n" })?;
        Ok(())
    }
}

struct File {
    listing: String,
    name: String,
    link: Option<(u64, u64)>,
    own: Totals,
}

/// What the start itself adds.
fn own_of(start: &Start) -> Totals {
    let attributes = &start.inode.attributes;
    Totals { dirs: 1, dir_bytes: attributes.size_bytes, blocks: attributes.blocks, ..Totals::default() }
}

/// Subtree totals of every directory of a subtree, in path order, each link counted once in every directory above it.
pub(crate) fn tree_totals(subtree: &Subtree<'_>, own: Totals) -> Result<Vec<Node>> {
    let mut nodes = subtree.nodes(usize::MAX)?;
    match nodes.first_mut() {
        Some(first) if first.path == subtree.path => first.own += own,
        _ => nodes.insert(0, Node { path: subtree.path.to_owned(), own }),
    }
    // Neighbouring links of an inode both lie in a directory exactly if their deepest common directory does.
    let mut last: FxHashMap<(u64, u64), String> = FxHashMap::default();
    for link in subtree.links()? {
        if let Some(before) = last.insert(link.id, link.listing.clone()) {
            let mut common = before.as_str();
            while !is_below(&link.listing, common) {
                common = parent(common).unwrap_or("");
            }
            if let Ok(at) = nodes.binary_search_by(|node| compare_paths(&node.path, common)) {
                nodes[at].own -= link.once;
            }
        }
    }
    // From the last to the first, each directory adds itself to the one around it.
    let mut around: Vec<usize> = Vec::new();
    let mut parents = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        while around.last().is_some_and(|&above| !is_below(&node.path, &nodes[above].path)) {
            around.pop();
        }
        parents.push(around.last().copied());
        around.push(at);
    }
    for at in (0..nodes.len()).rev() {
        if let Some(above) = parents[at] {
            let own = nodes[at].own;
            nodes[above].own += own;
        }
    }
    Ok(nodes)
}
