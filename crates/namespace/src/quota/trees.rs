//! Trees of directories that are counted by themselves: every inode in one has its project number,
//! which what is made in a directory inherits. Nothing gets into a tree from elsewhere but by being
//! made there, so who gives a directory its number before listing it misses nothing.

use super::{Account, Limits};
use crate::error::{Error, Result};
use crate::namespace::Namespace;
use crate::records::inode::{Inode, flag};
use crate::records::keys::{self, FileId, Space};
use crate::records::listing::Listing;
use crate::records::tablet::Tablet;
use canopy_store::Direction;
use rustix::io::Errno;
use std::collections::HashSet;

/// Names that are read at a time.
const STEP: usize = 1024;

impl Namespace {
    /// Sets what a directory and all below it may use, and returns its account. What is there is
    /// counted to it, but for directories in it that are trees of their own. If that is
    /// interrupted, doing it again completes it.
    ///
    /// # Errors
    ///
    /// Fails with `NOTDIR` if it is not a directory, and with `NOENT` if it is gone. Fails with
    /// `NOSPC` if there are no numbers left, and as the table does.
    pub fn set_tree_limits(&self, directory: FileId, limits: Limits) -> Result<Account> {
        let _setting = self.setting.lock();
        if !self.tablet.inode(directory)?.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        self.forget_empty_trees()?;
        let project = match self.project_of(directory) {
            Some(project) => project,
            None => self.free_project()?,
        };
        self.put_limits(Account::Tree(project), Limits { directory, ..limits })?;
        self.mark(directory, project)?;
        Ok(Account::Tree(project))
    }

    /// Makes a directory no tree of its own any more. Returns whether it was one.
    ///
    /// # Errors
    ///
    /// Fails with `NOENT` if there is no such file, and as the table does.
    pub fn remove_tree(&self, directory: FileId) -> Result<bool> {
        let _setting = self.setting.lock();
        let Some(project) = self.project_of(directory) else { return Ok(false) };
        let above = self.tablet.parent(directory)?;
        let outer = if above == directory { 0 } else { self.tablet.inode(above)?.project };
        self.mark(directory, outer)?;
        self.put_limits(Account::Tree(project), Limits::default())?;
        Ok(true)
    }

    /// Ends the tree of a number. If its directory is gone, what was moved out of it is counted to the
    /// trees where it is now. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// Fails as the table does.
    pub fn remove_tree_of_number(&self, project: u32) -> Result<bool> {
        let account = Account::Tree(project);
        let directory = self.quota(account).map_or(FileId::NONE, |quota| quota.limits.directory);
        match self.tablet.inode(directory) {
            Err(Error::Posix(Errno::NOENT)) => {}
            found => {
                found?;
                return self.remove_tree(directory);
            }
        }
        let _setting = self.setting.lock();
        let left = self.tablet.files_of(project)?;
        for id in &left {
            let outer = match self.tablet.first_name(*id)? {
                Some((parent, _)) => self.tablet.inode(parent)?.project,
                None => 0,
            };
            self.tablet.set_project(*id, if outer == project { 0 } else { outer })?;
        }
        self.put_limits(account, Limits::default())?;
        Ok(directory != FileId::NONE || !left.is_empty())
    }

    /// Returns the number of the tree that a directory is the top of.
    fn project_of(&self, directory: FileId) -> Option<u32> {
        let state = self.tablet.accounts.state.lock();
        state.limits.iter().find_map(|(account, limits)| match account {
            Account::Tree(project) if limits.directory == directory => Some(*project),
            _ => None,
        })
    }

    /// Returns a number that no tree and no file has.
    fn free_project(&self) -> Result<u32> {
        let is_taken = |quota: &super::Quota| match quota.account {
            Account::Tree(project) => Some(project),
            _ => None,
        };
        let last = self.quotas()?.iter().filter_map(is_taken).max().unwrap_or(0);
        Ok(last.checked_add(1).ok_or(Errno::NOSPC)?)
    }

    /// Forgets trees whose directories have gone, and that nothing is left of.
    fn forget_empty_trees(&self) -> Result<()> {
        let trees = {
            let state = self.tablet.accounts.state.lock();
            let is_empty =
                |account: &Account| state.usage.get(account).is_none_or(|usage| usage.inodes == 0);
            let trees = state.limits.iter().filter(|(account, _)| is_empty(account));
            Vec::from_iter(trees.map(|(account, limits)| (*account, limits.directory)))
        };
        for (account, directory) in
            trees.into_iter().filter(|(_, directory)| *directory != FileId::NONE)
        {
            if matches!(self.tablet.inode(directory), Err(Error::Posix(Errno::NOENT))) {
                self.put_limits(account, Limits::default())?;
            }
        }
        Ok(())
    }

    /// Gives a directory and all below it a number, but for other trees.
    fn mark(&self, top: FileId, project: u32) -> Result<()> {
        let others: HashSet<FileId> = {
            let state = self.tablet.accounts.state.lock();
            state.limits.values().map(|limits| limits.directory).collect()
        };
        let mut directories = vec![top];
        while let Some(directory) = directories.pop() {
            self.tablet.set_project(directory, project)?;
            let (mut listing, mut after) = (Listing::new(directory), 0);
            loop {
                let mut some = Vec::with_capacity(STEP);
                self.tablet.list(&mut listing, after, |entry| {
                    let is_full = some.len() == STEP;
                    if !is_full {
                        after = entry.cookie;
                        let inode = entry.inode;
                        some.push((inode.id, inode.is_directory(), inode.project != project));
                    }
                    !is_full
                })?;
                if some.is_empty() {
                    break;
                }
                for (id, is_directory, is_other) in some {
                    match is_directory {
                        true if !others.contains(&id) => directories.push(id),
                        false if is_other => self.tablet.set_project(id, project)?,
                        _ => {}
                    }
                }
            }
        }
        Ok(())
    }
}

impl Tablet {
    /// Returns all files that are counted to a tree, directories before their contents as far as
    /// their numbers show.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `Corrupt` if a record is damaged.
    pub fn files_of(&self, project: u32) -> Result<Vec<FileId>> {
        let mut found = Vec::new();
        let apart = [Space::Links, Space::Orphans, Space::Directories].map(Space::range);
        for range in [keys::all_names()].into_iter().chain(apart) {
            let mut scan = self.table.scan(&range, Direction::Forward)?;
            while let Some(record) = scan.next()? {
                let inode = Inode::decode(record.value)?;
                let is_elsewhere = inode.is_pointer() || inode.has(flag::FURTHER);
                if !is_elsewhere && inode.project == project {
                    found.push(inode.id);
                }
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Counts a file that is here to a tree, or to none (0).
    ///
    /// # Errors
    ///
    /// Fails as the table does. A file that is gone is not an error.
    pub fn set_project(&self, id: FileId, project: u32) -> Result<()> {
        let set = self.change_inode(id, |inode, _| {
            // No time changes: the kernel may remember those that there were.
            inode.project = project;
            Ok(())
        });
        match set {
            // It was removed meanwhile.
            Err(Error::Posix(Errno::NOENT)) => Ok(()),
            set => set.map(drop),
        }
    }
}
