//! Quotas, as clients ask for them. A client marks the files of a tree: the authority gives the
//! tree a number, and then each directory gets it before the client lists what is in it. What is
//! created in a directory inherits its number. A rename that was checked before may bring a file
//! that has none, so the client goes through the tree until it finds nothing to mark.

use super::{AUTHORITY, ShareRequest};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::message::{Request, Response};
use canopy_namespace::operation::{Caller, Moment, Operation, Page, QuotasRequest, Read};
use canopy_namespace::quota::{Account, Quota};
use canopy_namespace::{FileId, ROOT, Reply};
use canopy_partition::ServerId;
use rustix::io::Errno;
use std::collections::HashSet;

/// Names that are read at a time.
const STEP: u32 = 1024;

/// Passes through all servers for files of a tree whose directory is gone.
const PASSES: usize = 1 << 10;

impl Client {
    /// Executes an operation on quotas.
    pub(crate) fn quotas(&self, caller: Caller<'_>, quotas: &QuotasRequest) -> Result<Reply> {
        match quotas {
            QuotasRequest::OfTree(id) => {
                let of_tree = Request::Execute(Operation::Quotas(*quotas));
                // `df` shows something else if servers do not answer.
                match self.ask_for_id_briefly(caller, *id, &of_tree)? {
                    Response::Reply(reply) => Ok(reply),
                    _ => Err(Error::Unfit),
                }
            }
            QuotasRequest::SetTree(directory, _) => self.set_tree(caller, *directory, quotas),
            QuotasRequest::RemoveTree(directory) => self.remove_tree(caller, *directory),
            QuotasRequest::RemoveTreeOfNumber(project) => self.remove_number(caller, *project),
            QuotasRequest::All => self.all_quotas(caller).map(Reply::Quotas),
            QuotasRequest::Of(_) | QuotasRequest::Set(..) => self.ask_authority(caller, quotas),
        }
    }

    fn ask_authority(&self, caller: Caller<'_>, quotas: &QuotasRequest) -> Result<Reply> {
        let request = Request::Execute(Operation::Quotas(*quotas));
        match self.ask(AUTHORITY, self.reader(caller), &request)? {
            Response::Reply(reply) => Ok(reply),
            _ => Err(Error::Unfit),
        }
    }

    /// Returns usage and limits of all accounts: more than fit in one message.
    fn all_quotas(&self, caller: Caller<'_>) -> Result<Vec<Quota>> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let request = Request::Share(ShareRequest::Quotas(after));
            match self.ask(AUTHORITY, self.reader(caller), &request)? {
                Response::Quotas(quotas, next) => {
                    all.extend(quotas);
                    after = next;
                }
                _ => return Err(Error::Unfit),
            }
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Returns the trees, by number, with their directories.
    fn trees(&self, caller: Caller<'_>) -> Result<Vec<(u32, FileId)>> {
        let request = Request::Share(ShareRequest::Trees);
        match self.ask(AUTHORITY, self.reader(caller), &request)? {
            Response::Trees(trees) => Ok(trees),
            _ => Err(Error::Unfit),
        }
    }

    fn set_tree(
        &self,
        caller: Caller<'_>,
        directory: FileId,
        quotas: &QuotasRequest,
    ) -> Result<Reply> {
        Operation::Quotas(*quotas).check_caller(caller)?;
        match self.project(caller, directory)? {
            (_, true) => {}
            (_, false) => return Err(refused(Errno::NOTDIR)),
        }
        let reply = self.ask_authority(caller, quotas)?;
        let Reply::Account(Account::Tree(project)) = reply else {
            return Err(Error::Unfit);
        };
        self.mark_all(caller, directory, project)?;
        Ok(reply)
    }

    fn remove_tree(&self, caller: Caller<'_>, directory: FileId) -> Result<Reply> {
        if self.trees(caller)?.iter().all(|(_, top)| *top != directory) {
            return Ok(Reply::Truth(false));
        }
        let outer = match directory {
            ROOT => 0,
            _ => self.project(caller, self.parent(caller, directory)?)?.0,
        };
        self.mark_all(caller, directory, outer)?;
        self.ask_authority(caller, &QuotasRequest::RemoveTree(directory))
    }

    fn remove_number(&self, caller: Caller<'_>, project: u32) -> Result<Reply> {
        let found = self.trees(caller)?.into_iter().find(|(number, _)| *number == project);
        if let Some((_, directory)) = found {
            match self.project(caller, directory) {
                Err(error) if is_gone(&error) => {}
                looked => {
                    looked?;
                    return self.remove_tree(caller, directory);
                }
            }
        }
        let mut is_any = found.is_some();
        for server in (0..self.all_servers()?).map(ServerId) {
            for _ in 0..PASSES {
                let request = Request::Share(ShareRequest::FilesOf(project));
                let reply = self.ask(server, self.reader(caller), &request)?;
                let Response::Files(files) = reply else { return Err(Error::Unfit) };
                let mut is_changed = false;
                for id in files {
                    is_changed |= self.take_from_tree(caller, id, project)?;
                }
                is_any |= is_changed;
                if !is_changed {
                    break;
                }
            }
        }
        self.ask_authority(caller, &QuotasRequest::RemoveTreeOfNumber(project))?;
        Ok(Reply::Truth(is_any))
    }

    /// Counts a file that was moved out of a tree to where it is now. Returns false if it is gone.
    fn take_from_tree(&self, caller: Caller<'_>, id: FileId, project: u32) -> Result<bool> {
        let named = match self.ask_for_id(caller, id, &Request::NameOf(id)) {
            Ok(Response::NameOf(named)) => named,
            Err(error) if is_gone(&error) => return Ok(false),
            Err(error) => return Err(error),
            Ok(_) => return Err(Error::Unfit),
        };
        let outer = match named {
            Some((parent, _)) => self.project(caller, parent)?.0,
            None => 0,
        };
        self.set_project(caller, id, if outer == project { 0 } else { outer })?;
        Ok(true)
    }

    /// Gives a directory and all below it a number, but for other trees.
    fn mark_all(&self, caller: Caller<'_>, top: FileId, project: u32) -> Result<()> {
        let others = self.trees(caller)?.into_iter().map(|(_, directory)| directory).collect();
        while self.mark(caller, top, project, &others)? {}
        Ok(())
    }

    /// Does so once. Returns whether anything did not have the number.
    fn mark(
        &self,
        caller: Caller<'_>,
        top: FileId,
        project: u32,
        others: &HashSet<FileId>,
    ) -> Result<bool> {
        let mut has_marked = self.project(caller, top)?.0 != project;
        let mut directories = vec![(top, has_marked)];
        while let Some((directory, is_other)) = directories.pop() {
            if is_other {
                self.set_project(caller, directory, project)?;
            }
            let mut after = 0;
            loop {
                let page = Page { directory, after, name: None, count_max: STEP };
                let list = Operation::Read(Moment::Now, Read::List(page));
                let entries = match self.execute_for(caller, &list) {
                    Ok(Reply::Entries(entries)) => entries,
                    Err(error) if is_gone(&error) => break,
                    Err(error) => return Err(error),
                    Ok(_) => return Err(Error::Unfit),
                };
                if entries.count() == 0 {
                    break;
                }
                for entry in entries.iter() {
                    after = entry.cookie;
                    let (inode, is_other) = (entry.inode, entry.inode.project != project);
                    match inode.is_directory() {
                        true if others.contains(&inode.id) => continue,
                        true => directories.push((inode.id, is_other)),
                        false if is_other => self.set_project(caller, inode.id, project)?,
                        false => {}
                    }
                    has_marked |= is_other;
                }
            }
        }
        Ok(has_marked)
    }

    fn set_project(&self, caller: Caller<'_>, id: FileId, project: u32) -> Result<()> {
        let request = Request::Share(ShareRequest::SetProject(id, project));
        match self.ask_for_id(caller, id, &request) {
            Ok(Response::Done(_)) => Ok(()),
            // It was removed meanwhile.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(Error::Unfit),
        }
    }

    /// Returns the number of the tree that a file is counted to, and whether it is a directory.
    fn project(&self, caller: Caller<'_>, id: FileId) -> Result<(u32, bool)> {
        let stat = Operation::Read(Moment::Now, Read::Inode(id));
        match self.execute_for(caller, &stat)? {
            Reply::Inode(inode) => Ok((inode.project, inode.is_directory())),
            _ => Err(Error::Unfit),
        }
    }

    fn parent(&self, caller: Caller<'_>, id: FileId) -> Result<FileId> {
        match self.execute_for(caller, &Operation::Read(Moment::Now, Read::Parent(id)))? {
            Reply::File(parent) => Ok(parent),
            _ => Err(Error::Unfit),
        }
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Namespace(error) if error.errno() == Errno::NOENT)
}

fn refused(errno: Errno) -> Error {
    canopy_namespace::Error::from(errno).into()
}
