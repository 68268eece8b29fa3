//! Entries that `ls` shows: arguments, contents of directories, targets of symbolic links.

use super::ahead::ReadAhead;
use super::entry::{LsEntry, Target, children, parent_of};
use super::order::{measure, sort};
use super::print::Printer;
use super::{Dereference, Hidden, LsOptions, SortBy, Unlisted, hyperlink, json};
use crate::error::{Error, Result, found_or_failed};
use crate::find::Outside;
use canopy_index::Index;
use canopy_model::{FileType, SourcePathBuf, escape};
use canopy_read::Lost;
use canopy_read::contexts::{context_of, contexts_in, has_context};
use canopy_read::follow::{followed, inode_followed};
use canopy_read::links::Links;
use canopy_read::locate::{Start, why_unlisted, with_one_slash};
use canopy_read::resolve::{in_removed_directory, locate_all};
use rustc_hash::FxHashMap;
use std::ffi::OsString;
use std::io::Write;

pub(super) struct Walk<'a> {
    index: &'a Index,
    options: &'a LsOptions,
    printer: Printer<'a>,
    failed: Unlisted,
    /// Whether directories have a heading.
    headed: bool,
    /// Security contexts by path in the source that is listed.
    contexts: FxHashMap<SourcePathBuf, Vec<u8>>,
    /// Follows links of the view that was listed last.
    links: Option<Links>,
    /// Follows links that no index can follow.
    outside: Outside,
    /// The directories on the way to the one that is listed, which is a loop if it is one of them.
    open: Vec<Start>,
}

/// An argument.
struct Argument {
    entry: LsEntry,
    /// The directory to list, if it is one.
    directory: Option<Start>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(index: &'a Index, options: &'a LsOptions, output: &'a mut dyn Write) -> Self {
        Walk {
            index,
            options,
            printer: Printer::new(options, output),
            failed: Unlisted::default(),
            headed: false,
            contexts: FxHashMap::default(),
            links: None,
            outside: Outside::default(),
            open: Vec::new(),
        }
    }

    /// Lists arguments: entries that are not directories first, then each directory.
    pub(super) fn arguments(mut self, paths: &[OsString]) -> Result<Unlisted> {
        if paths == ["."] && !self.options.directory && in_removed_directory() {
            self.removed_directory()?;
            return Ok(self.failed);
        }
        let mut arguments = Vec::new();
        let mut several = paths.len() > 1;
        for given in paths {
            let found = locate_all(self.index, given);
            let said = |error| Error::cannot("access", error);
            let Some(starts) = found_or_failed(found, &mut self.failed.errors, said)? else {
                self.failed.arguments = true;
                continue;
            };
            // Starts that stand for a path above sources must not look like the contents of that
            // path.
            several |= starts.iter().any(|start| start.given != given.as_encoded_bytes());
            for start in starts {
                match self.argument(start) {
                    Ok(argument) => arguments.push(argument),
                    Err(error) => self.failed.add(error, true),
                }
            }
        }
        measure(self.options, &self.printer.names, arguments.iter_mut().map(|one| &mut one.entry));
        sort(self.options, &mut arguments, |argument| &argument.entry);
        self.headed = self.options.recursive || several;
        let (directories, single): (Vec<Argument>, Vec<Argument>) =
            arguments.into_iter().partition(|argument| argument.directory.is_some());
        let single: Vec<LsEntry> = single.into_iter().map(|argument| argument.entry).collect();
        if !single.is_empty() {
            self.show(None, &single, directories.iter().map(|argument| &argument.entry))?;
        }
        if !single.is_empty() && !directories.is_empty() {
            self.printer.blank()?;
        }
        for directory in directories.into_iter().filter_map(|argument| argument.directory) {
            self.tree(directory)?;
        }
        self.printer.finish()?;
        Ok(self.failed)
    }

    /// Lists a working directory that was removed: nothing is in it, whatever the index knows.
    fn removed_directory(&mut self) -> Result<()> {
        if !self.options.json {
            if self.options.recursive {
                self.printer.heading(b".", b"")?;
            }
            self.printer.total(&[])?;
        }
        self.printer.finish()
    }

    /// Returns what is shown of an argument: of a symbolic link, what it leads to if links among
    /// the arguments are looked through.
    fn argument(&mut self, start: Start) -> Result<Argument> {
        let start = self.led_to(start)?;
        let listed = start.is_dir() && !self.options.directory;
        let mut entry = LsEntry::new(start.given.clone(), start.inode.clone());
        if start.inode.attributes.file_type() == FileType::Symlink {
            entry.target = self.target(&start);
        }
        if self.options.context {
            entry.context = context_of(&start)?.unwrap_or_default();
        }
        if self.options.hyperlink {
            entry.absolute = hyperlink::absolute(Links::of(&mut self.links, &start.view), &start);
        }
        Ok(Argument { entry, directory: listed.then_some(start) })
    }

    fn led_to(&mut self, start: Start) -> Result<Start> {
        let wanted = self.options.dereference;
        if wanted == Dereference::Never || start.inode.attributes.file_type() != FileType::Symlink {
            return Ok(start);
        }
        let links = Links::of(&mut self.links, &start.view);
        let found = match followed(self.index, links, start.clone()) {
            Err(Lost::Outside) => {
                self.outside.file(&start).map(|inode| Start { inode, ..start.clone() })
            }
            found => found,
        };
        let found = found.map(|found| Start { given: start.given.clone(), ..found });
        match (wanted, found) {
            (Dereference::ToDirectories, Ok(found)) if found.is_dir() => Ok(found),
            // As ls does, which looks at the link itself only where it leads to nothing.
            (
                Dereference::ToDirectories,
                Ok(_) | Err(Lost::Missing | Lost::Unseen | Lost::Unindexed | Lost::Outside),
            ) => Ok(start),
            (_, Ok(found)) => Ok(found),
            (_, Err(lost)) => Err(Error::of_link(&start.given, lost)),
        }
    }

    fn target(&mut self, start: &Start) -> Target {
        if !self.options.needs_targets() {
            return Target::Unknown;
        }
        let links = Links::of(&mut self.links, &start.view);
        let found = match inode_followed(self.index, links, start) {
            Err(Lost::Outside) => self.outside.reached(start),
            found => found,
        };
        match found {
            Ok(inode) => Target::Mode(inode.attributes.mode),
            Err(Lost::Outside) => Target::Unknown,
            Err(_) => Target::Missing,
        }
    }

    /// Lists a directory, and those in it if asked.
    fn tree(&mut self, start: Start) -> Result<()> {
        let root = start.clone();
        let by = self.options.sort;
        let path_order = by == SortBy::None || (by == SortBy::Name && !self.options.reverse);
        // Where links are looked through, directories are anywhere.
        let looks_through = self.options.dereference == Dereference::Always;
        let mut ahead = match self.options.recursive && !looks_through {
            true => ReadAhead::new(&root, path_order)?,
            false => None,
        };
        let recursive = self.options.recursive;
        if self.options.context && recursive {
            self.contexts = contexts_in(&root, true)?;
        }
        // Directories to list; none where all of the innermost one was listed.
        let mut left = vec![Some(Box::new(start))];
        while let Some(next) = left.pop() {
            let Some(start) = next else {
                self.open.pop();
                continue;
            };
            if self.is_open(&start)? {
                self.failed.add(Error::AlreadyListed(shown(&start.given)), true);
                continue;
            }
            let listed = match &mut ahead {
                Some(ahead) => ahead.take(start.path.as_path())?,
                None => None,
            };
            // Names that are not UTF-8 come in another order.
            let Some(listed) =
                listed.map_or_else(|| children(&start), |listed| Ok(Some(listed)))?
            else {
                let argument = self.open.is_empty();
                let why = why_unlisted(&start)?.unwrap_or(Lost::Unseen);
                let (what, path) = ("open directory", start.given.clone());
                self.failed.add(Error::Cannot { what, path, why }, argument);
                continue;
            };
            let mut entries = self.entries(&start, listed)?;
            measure(self.options, &self.printer.names, entries.iter_mut());
            sort(self.options, &mut entries, |entry| entry);
            self.directory(&start, &entries)?;
            if self.options.recursive {
                left.push(None);
                let dirs = entries.iter().rev().filter(|entry| {
                    entry.file_type() == FileType::Directory
                        && entry.name != b"."
                        && entry.name != b".."
                });
                left.extend(dirs.map(|entry| Some(Box::new(child(&start, entry)))));
                self.open.push(*start);
            }
        }
        Ok(())
    }

    /// Returns whether a directory is one of those that it lies in.
    fn is_open(&self, start: &Start) -> Result<bool> {
        let same = |other: &&Start| other.inode.attributes.ino == start.inode.attributes.ino;
        for other in self.open.iter().filter(same) {
            if other.device()? == start.device()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Shows a directory that has these entries.
    fn directory(&mut self, start: &Start, entries: &[LsEntry]) -> Result<()> {
        if !self.options.json {
            if self.headed {
                let absolute = match self.options.hyperlink {
                    true => hyperlink::absolute(Links::of(&mut self.links, &start.view), start),
                    false => Vec::new(),
                };
                self.printer.heading(&start.given, &absolute)?;
            }
            self.printer.total(entries)?;
        }
        self.show(Some(start), entries, std::iter::empty())
    }

    fn show<'e>(
        &mut self,
        directory: Option<&Start>,
        entries: &'e [LsEntry],
        beside: impl Iterator<Item = &'e LsEntry>,
    ) -> Result<()> {
        if !self.options.json {
            return self.printer.print(entries, beside);
        }
        let depth = directory.map_or(0, |_| self.open.len() + 1);
        for entry in entries {
            let path = match directory {
                Some(start) => child(start, entry).given,
                None => entry.name.clone(),
            };
            let inode = &entry.inode;
            self.printer.json(|output| json::print(inode, inode.dev, &path, depth, output))?;
        }
        Ok(())
    }

    /// Returns what is shown of a directory that has these entries.
    fn entries(&mut self, start: &Start, mut entries: Vec<LsEntry>) -> Result<Vec<LsEntry>> {
        if self.options.hidden == Hidden::All {
            let dot = LsEntry::new(b".".to_vec(), start.inode.clone());
            let above = LsEntry::new(b"..".to_vec(), parent_of(self.index, start)?);
            entries.splice(0..0, [dot, above]);
        }
        entries.retain(|entry| self.options.shows(&entry.name));
        self.find_contexts(start, &mut entries)?;
        for entry in &mut entries {
            if self.options.hyperlink {
                let place = match entry.name.as_slice() {
                    b"." | b".." => start,
                    _ => &child(start, entry),
                };
                let links = Links::of(&mut self.links, &place.view);
                entry.absolute = hyperlink::absolute(links, place);
                if entry.name == b".." {
                    let end = entry.absolute.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                    entry.absolute.truncate(end.max(1));
                }
            }
            if entry.file_type() == FileType::Symlink {
                let link = child(start, entry);
                match self.options.dereference {
                    Dereference::Always => self.look_through(start, entry, link),
                    _ => entry.target = self.target(&link),
                }
            }
        }
        Ok(entries)
    }

    /// Finds the contexts of entries of a directory, if they are shown.
    fn find_contexts(&mut self, start: &Start, entries: &mut [LsEntry]) -> Result<()> {
        if !self.options.context || !entries.iter().any(|entry| has_context(&entry.inode)) {
            return Ok(());
        }
        if !self.options.recursive {
            self.contexts = contexts_in(start, false)?;
        }
        for entry in entries.iter_mut().filter(|entry| has_context(&entry.inode)) {
            let path = start.path.as_path().child(&escape(&entry.name));
            entry.context = match self.contexts.get(&path) {
                Some(context) => context.clone(),
                None if entry.name == b"." => context_of(start)?.unwrap_or_default(),
                None => Vec::new(),
            };
        }
        Ok(())
    }

    /// Makes a symbolic link of a directory what it leads to, where more than its name is shown.
    fn look_through(&mut self, start: &Start, entry: &mut LsEntry, link: Start) {
        if !self.options.needs_more_than_names() {
            entry.target = Target::Unknown;
            return;
        }
        let given = match link.given.strip_prefix(b"./") {
            // ls leaves the working directory out.
            Some(name) if start.given == b"." => name.to_vec(),
            _ => link.given.clone(),
        };
        let links = Links::of(&mut self.links, &link.view);
        let found = match followed(self.index, links, link.clone()) {
            Err(Lost::Outside) => self.outside.file(&link).map(|inode| Start { inode, ..link }),
            found => found,
        };
        match found {
            Ok(found) => {
                entry.inode = found.inode.clone();
                if self.options.context {
                    entry.context = context_of(&found).ok().flatten().unwrap_or_default();
                }
                entry.followed = Some(Box::new(found));
            }
            Err(lost) => {
                self.failed.add(Error::of_link(&given, lost), false);
                match lost {
                    // It counts as itself.
                    Lost::Outside => entry.target = Target::Unknown,
                    _ if self.options.json => entry.target = Target::Unknown,
                    _ => entry.forget(),
                }
            }
        }
    }
}

/// Returns an entry of a directory, or what it leads to, as the start of a further listing.
fn child(start: &Start, entry: &LsEntry) -> Start {
    let path = start.path.as_path().child(&escape(&entry.name));
    let mut given = with_one_slash(&start.given).to_vec();
    start.append_below(&mut given, path.as_path());
    match &entry.followed {
        Some(found) => Start { given, ..(**found).clone() },
        None => Start { given, path, inode: entry.inode.clone(), ..start.clone() },
    }
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
