//! Flat formats: one record an entry, in any order, each with its whole path.
//!
//! 1. The first pass reads all records: directories go into the tree, other entries into a
//!    [`Spool`], which groups them by directory in bounded memory.
//! 2. The second pass hands over one listing after the other, in the order of their paths.

mod fields;
mod gpfs;
mod lester;
pub(crate) mod ncdu;
pub(crate) mod parquet;
pub(crate) mod readers;
mod spool;
#[cfg(test)]
mod tests;

use crate::emitter::{Emitter, NewEntry};
use crate::error::{Error, Position, Problems, Result, RunError};
use crate::fault::{Checked, Fault};
use crate::first_pass::{FirstPass, RootRule};
use crate::input::Input;
use crate::path::{check, check_name, shown, trimmed};
use crate::tree::Tree;
use canopy_model::{FileType, Sink, escape};
use fields::Fields;
use spool::{Item, Spool, split};
use std::path::PathBuf;

/// A flat input after the first pass.
#[derive(Debug)]
pub(crate) struct Flat {
    spool: Spool,
    names: Vec<PathBuf>,
}

/// Takes in records.
pub(crate) struct Collector<'a> {
    gathered: FirstPass,
    spool: Spool,
    problems: &'a Problems,
    names: &'a [PathBuf],
    input: u32,
}

impl Collector<'_> {
    /// Takes in a record, or what is wrong with it.
    fn take(&mut self, place: Position, fields: Checked<Fields>) -> Result<()> {
        match fields.and_then(checked) {
            Ok((path, item)) if item.attributes.file_type() == FileType::Directory => {
                let text = |(key, value): (Vec<u8>, Vec<u8>)| (escape(&key).into_owned(), value);
                let xattrs = item.xattrs.into_iter().map(text).collect();
                // '/' is an absolute path, and nothing would be left of it.
                let path = match trimmed(&path) {
                    b"" if !path.is_empty() => b"/",
                    path => path,
                };
                self.gathered.push(path, item.attributes, false, xattrs, (self.input, place));
                Ok(())
            }
            Ok((_, item)) => self.spool.push(Item { input: self.input, place, ..item }),
            Err(reason) => self.problem(place, reason),
        }
    }

    fn problem(&self, place: Position, reason: Fault) -> Result<()> {
        self.problems.report(Error::record(&self.names[self.input as usize], place, reason))
    }
}

/// Returns the path of a record and its entry, which is not placed yet.
fn checked(fields: Fields) -> Checked<(Vec<u8>, Item)> {
    let path = fields.path.clone().ok_or_else(|| Fault::missing("path"))?;
    let named = |fault: Fault| fault.within(shown(&path));
    let attributes = fields.attributes().map_err(named)?;
    if memchr::memchr(0, &fields.target).is_some() {
        return Err(named(Fault::contradiction("a link's target with a NUL")));
    }
    if fields.xattrs.iter().any(|(key, _)| key.is_empty() || key.len() > 255 || key.contains(&0)) {
        return Err(named(Fault::name(
            "an extended attribute with an empty name, a NUL in it, or more than 255 bytes",
        )));
    }
    let (mut parent, mut name) = (&b""[..], &b""[..]);
    if attributes.file_type() != FileType::Directory {
        (parent, name) = split(&path);
        check_name(name).map_err(named)?;
        if parent.len() > usize::from(u16::MAX) {
            check(parent).map_err(named)?;
        }
    }
    let item = Item {
        parent: parent.to_vec(),
        name: name.to_vec(),
        input: 0,
        place: Position::Offset(0),
        attributes,
        target: fields.target,
        xattrs: fields.xattrs,
    };
    Ok((path, item))
}

impl Flat {
    /// Makes the first pass. `read` hands the records of one file over to the collector.
    pub(crate) fn open(
        read: impl Fn(&Input, &mut Collector<'_>) -> Result<()>,
        files: &[PathBuf],
        root: Option<&[u8]>,
        rule: RootRule,
        memory_bytes: usize,
        problems: &Problems,
    ) -> Result<(Flat, Tree)> {
        let spool = Spool::new(memory_bytes);
        let mut collector =
            Collector { gathered: FirstPass::default(), spool, problems, names: files, input: 0 };
        for (number, file) in files.iter().enumerate() {
            collector.input = number as u32;
            read(&Input::open(file)?, &mut collector)?;
        }
        problems.end_pass(false)?;
        let Collector { gathered, spool, .. } = collector;
        let (tree, _) = Tree::build(vec![gathered], root, rule, files, problems)?;
        Ok((Flat { spool, names: files.to_vec() }, tree))
    }

    /// Makes the second pass. Entries come from one merge, so one thread hands them over.
    pub(crate) fn run<S: Sink<Error: std::error::Error>>(
        &mut self,
        emitters: &mut [Emitter<'_, S>],
        problems: &Problems,
    ) -> std::result::Result<(), RunError<S::Error>> {
        let Some(emitter) = emitters.first_mut() else { return Ok(()) };
        let tree = emitter.tree;
        let ids = tree.ids();
        let mut done = vec![false; tree.dirs.len()];
        // The directory of the entry before, as the input has it, and its number if it can be used.
        let mut current: Option<(Vec<u8>, Option<u32>)> = None;
        let mut merge = self.spool.sorted()?;
        while let Some(item) = merge.next()? {
            if current.as_ref().is_none_or(|(parent, _)| *parent != item.parent) {
                if let Some((_, Some(_))) = current {
                    emitter.finish()?;
                }
                let found = tree.below_root(&item.parent).ok();
                let found = found.and_then(|path| ids.get(&*escape(path)).copied());
                let found = found.filter(|&dir| !done[dir as usize]);
                if let Some(dir) = found {
                    done[dir as usize] = true;
                    emitter.begin(dir)?;
                }
                current = Some((item.parent.clone(), found));
            }
            let added = match current {
                Some((_, Some(_))) => {
                    let xattrs = item.xattrs.iter().map(|(key, value)| (&key[..], &value[..]));
                    let (name, attributes, target) =
                        (&item.name[..], item.attributes, &item.target[..]);
                    let added = emitter.push(NewEntry { name, attributes, target, xattrs })?;
                    if added {
                        Ok(())
                    } else {
                        Err(Fault::contradiction("a second entry of this name"))
                    }
                }
                _ => Err(Fault::name("its directory is missing in the input")),
            };
            if let Err(reason) = added {
                let path = [&item.parent[..], b"/", &item.name].concat();
                let reason = reason.within(shown(&path));
                problems.report(Error::record(
                    &self.names[item.input as usize],
                    item.place,
                    reason,
                ))?;
            }
        }
        if let Some((_, Some(_))) = current {
            emitter.finish()?;
        }
        let left =
            (0..tree.dirs.len() as u32).filter(|&dir| !done[dir as usize] && tree.is_used(dir));
        for dir in left {
            emitter.begin(dir)?;
            emitter.finish()?;
        }
        Ok(())
    }
}
