//! Directories that have changed between two moments, for followers of a namespace.
//!
//! It compares two checkpoints and not the log: segments of the log go as soon as they are flushed,
//! and another process cannot keep them. Runs that both checkpoints contain are not read, so the
//! cost grows with the data written and merged since. A checkpoint outlasts the daemon that made it.

use crate::error::Result;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, ROOT, Space};
use crate::records::view::ReadView;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

impl ReadView {
    /// Returns the paths of directories that may differ from an older checkpoint: in their names,
    /// or in attributes of the entries. The parents of removed directories are among them. None if
    /// there are more than `most`, or if it cannot be known.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn changed_directories(
        &self,
        before: &ReadView,
        most: usize,
    ) -> Result<Option<Vec<Vec<u8>>>> {
        let mut changed = HashSet::new();
        let mut failed = None;
        let mut is_known = self.differences(before, &keys::all_names(), |key, value| {
            if key.directory == 0 {
                changed.insert(ROOT);
                return true;
            }
            changed.insert(FileId(key.directory));
            let inode = match value {
                Some(value) => Inode::decode(value).map(Some),
                None => {
                    self.get(key).and_then(|value| value.map(|it| Inode::decode(&it)).transpose())
                }
            };
            match inode {
                Ok(Some(inode)) if inode.is_directory() && !inode.has(flag::LINKED) => {
                    changed.insert(inode.id);
                }
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            failed.is_none() && changed.len() <= most
        })?;
        // Names of directories in several tables say little: the rest lies apart.
        let mut halves = Vec::new();
        is_known &= self.differences(before, &Space::Directories.range(), |key, _| {
            halves.push(FileId(key.hash));
            halves.len() <= most
        })?;
        let mut linked = Vec::new();
        is_known &= self.differences(before, &Space::Links.range(), |key, _| {
            linked.push(FileId(key.hash));
            linked.len() <= most
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        if !is_known || changed.len() > most || linked.len() > most || halves.len() > most {
            return Ok(None);
        }
        for id in halves {
            changed.insert(id);
            changed.extend(self.first_name(id)?.map(|(directory, _)| directory));
        }
        for id in linked {
            changed.extend(self.names(id)?.into_iter().map(|(directory, _)| directory));
        }
        let mut paths = Paths::default();
        let mut found = Vec::new();
        for id in changed {
            found.extend(paths.of(self, id)?);
        }
        found.sort_unstable();
        Ok(Some(found))
    }
}

/// Directories whose names were looked up.
#[derive(Default)]
struct Paths(HashMap<FileId, Option<(FileId, Vec<u8>)>>);

impl Paths {
    /// Returns the path of a directory below the root; none if it is not there.
    fn of(&mut self, view: &ReadView, id: FileId) -> Result<Option<Vec<u8>>> {
        let (mut names, mut at) = (Vec::new(), id);
        while at != ROOT {
            let known = match self.0.entry(at) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(unknown) => unknown.insert(view.first_name(at)?),
            };
            let Some((above, name)) = known.clone() else { return Ok(None) };
            names.push(name);
            // Damaged records may lead in a circle.
            if names.len() > self.0.len() {
                return Ok(None);
            }
            at = above;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }
}
