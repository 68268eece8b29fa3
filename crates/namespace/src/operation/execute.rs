//! Execution of operations: the trait, and its implementation by a namespace of this process.

use super::reply::{Capacity, Reply, State};
use super::tablet::{done, target};
use super::{
    Access, Administration, Caller, Change, FOUND_MAX, FileContents, FileLocks, Moment, Operation,
    Plan, Query, QuotasRequest, Read, SnapshotsRequest,
};
use crate::error::{Error, Result};
use crate::maintenance::check::Fault;
use crate::maintenance::repair::Repaired;
use crate::namespace::Namespace;
use crate::records::inode::Inode;
use crate::records::keys::FileId;
use crate::records::listing::{Entry, Listing};
use crate::search::{Found, Pace};
use crate::snapshot::past::Past;
use crate::snapshot::present::Present;
use canopy_model::Credentials;
use rustix::io::Errno;
use std::time::Duration;

/// Executes operations: a namespace of this process, or a client of servers. Calls come from any
/// number of threads. Whoever asks uses the methods of `dyn Execute`, one for each operation.
///
/// The kind of an error decides what to do next: by
/// [`ErrorKind::retry`](canopy_model::ErrorKind::retry), the same operation may succeed here,
/// elsewhere or nowhere.
pub trait Execute: FileContents {
    /// Executes an operation of somebody who is trusted: of a mount, whose kernel has checked it.
    /// An operation that fails has changed nothing, but for a length: a file keeps its length then,
    /// but contents that were cut off may be zeros. A user's file may have lost its
    /// `security.capability`, which goes before its contents change, as in Linux.
    ///
    /// # Errors
    ///
    /// Fails as the methods of [`Namespace`] do that it stands for.
    fn execute(&self, operation: &Operation<'_>) -> Result<Reply> {
        self.execute_for(Caller::Trusted, operation)
    }

    /// Executes an operation of a caller. A user's is checked first, in the view and with the lock
    /// in which it is executed; lengths, times of access and usage of trees just before. Whoever
    /// executes what others send uses this alone.
    ///
    /// # Errors
    ///
    /// Fails as `execute` does; with `ACCESS` or `PERM` where Linux does; with `PERM`, too, where an
    /// operation is not for users.
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply>;

    /// Returns who keeps locks of programs, if it is not the kernel.
    fn locks(&self) -> Option<&dyn FileLocks> {
        None
    }

    /// Returns how long a directory that was just looked up may be cached, if others change the
    /// namespace, too; none if that is for the caller to know.
    fn cached_for(&self, _directory: &Inode) -> Option<Duration> {
        None
    }

    /// Passes the entries of a directory behind a cookie, 0 for all, to `tell`, until it returns
    /// false. A client of servers asks for them by parts, as `list_by_parts` does.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `STALE` if the snapshot was deleted.
    fn list_entries(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        tell: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()>;

    /// Passes the files that a query finds to `tell`, in no order, until it returns false. Calls
    /// `pace` for each record that is looked at here.
    ///
    /// # Errors
    ///
    /// Fails as the table does, with `NOENT` if the base is gone, and with `STALE` if the snapshot
    /// was deleted.
    fn run_query(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()>;

    /// Returns how a query is answered, with the number of candidates if it `counts` them.
    ///
    /// # Errors
    ///
    /// Fails as the table does, and with `STALE` if the snapshot was deleted.
    fn explain_query(&self, query: &Query<'_>, counts: bool, pace: Pace<'_>) -> Result<Plan>;
}

impl Execute for Namespace {
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        operation.check_caller(caller)?;
        match operation {
            Operation::Read(_, Read::Contents(_)) => written_here(),
            Operation::Read(Moment::Now, _) | Operation::Hold(_) => {
                self.tablet.execute_for(caller, operation)
            }
            Operation::Read(Moment::Snapshot(number), read) => {
                let past = self.numbered(*number)?;
                match caller {
                    Caller::Trusted => past.execute(read),
                    Caller::User(who) => past.read_for(Present::new(self, who), read),
                }
            }
            Operation::Access(access) => self.answer(caller, operation, access),
            Operation::Change(change) => self.execute_change(caller, operation, change),
            Operation::Quotas(quotas) => {
                if let QuotasRequest::OfTree(id) = quotas {
                    self.tablet.check_reading(caller, *id)?;
                }
                self.execute_on_quotas(quotas)
            }
            Operation::Snapshots(snapshots) => self.execute_on_snapshots(snapshots),
            Operation::Administration(administration) => self.administer(administration),
            Operation::Search(query, count_max) => {
                let count_max = match caller {
                    Caller::Trusted => *count_max,
                    Caller::User(_) => (*count_max).min(FOUND_MAX),
                };
                self.find(query, count_max).map(Reply::Found)
            }
            Operation::Explain(query, counts) => {
                self.explain_query(query, *counts, &|_| ()).map(Reply::Plan)
            }
        }
    }

    fn list_entries(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        tell: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        match at {
            Moment::Now => self.list(listing, after, tell),
            Moment::Snapshot(number) => self.numbered(number)?.list(listing, after, tell),
        }
    }

    fn run_query(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        let Query { at, base, expression, who } = query;
        match at {
            Moment::Now => self.search_paced(*base, expression, who, pace, tell),
            Moment::Snapshot(number) => {
                let present = Present::new(self, who);
                self.numbered(*number)?.search(*base, expression, present, pace, tell)
            }
        }
    }

    fn explain_query(&self, query: &Query<'_>, counts: bool, pace: Pace<'_>) -> Result<Plan> {
        let Query { at, base, expression, .. } = query;
        let (now, past);
        let view = match at {
            Moment::Now => {
                now = self.view()?;
                &now
            }
            Moment::Snapshot(number) => {
                past = self.numbered(*number)?;
                past.view()
            }
        };
        let looks_in = view.explain(expression);
        let candidates = match counts {
            true => view.count_candidates(*base, expression, pace)?,
            false => None,
        };
        Ok(Plan { looks_in, candidates: candidates.map(|count| count as u64) })
    }
}

impl Past {
    pub(super) fn execute(&self, read: &Read<'_>) -> Result<Reply> {
        match read {
            Read::Lookup(name) => self.lookup(name.directory, name.name).map(Reply::Inode),
            Read::Inode(id) => self.inode(*id).map(Reply::Inode),
            Read::Parent(id) => self.view().parent(*id).map(Reply::File),
            Read::Readlink(id) => self.inode(*id)?.into_target().map(target),
            Read::List(page) => {
                page.read(|listing, tell| self.list(listing, page.after, tell)).map(Reply::Entries)
            }
            Read::Xattr { id, name } => self.view().xattr(*id, name).map(Reply::Bytes),
            Read::Xattrs(id) => {
                let mut names = Vec::new();
                self.view().xattrs(*id, |name, _| names.push(name.to_vec()))?;
                Ok(Reply::Names(names))
            }
            Read::Contents(_) => written_here(),
        }
    }
}

/// Returns the error of an operation on records of contents, which files that are open here may
/// differ from. [`FileContents`] is how contents of a namespace of this process are used.
fn written_here<T>() -> Result<T> {
    Err(Error::Invalid("contents of a namespace of one process are not used by operations".into()))
}

impl Namespace {
    /// Answers a question. Those about the present are the tablet's, but for one that needs all
    /// directories above a file.
    fn answer(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        access: &Access<'_>,
    ) -> Result<Reply> {
        let truth = match access {
            Access::MayRead(Moment::Snapshot(number), id, who) => {
                let past = self.numbered(*number)?;
                past.lets_read(&past.inode(*id)?, who)
            }
            Access::IsShown(_, id, wanted, who) => Present::new(self, who).lets(*id, *wanted),
            _ => return self.tablet.execute_for(caller, operation),
        };
        truth.map(Reply::Truth)
    }

    /// Makes a change: one of contents here, and every other one in the tablet.
    fn execute_change(
        &self,
        caller: Caller<'_>,
        operation: &Operation<'_>,
        change: &Change<'_>,
    ) -> Result<Reply> {
        let execute = || self.tablet.execute_for(caller, operation);
        match change {
            Change::SetAttributes { id, set, changer } if set.size.is_some() => {
                let changer = caller.changer(changer);
                let is_in = |gid| changer.is_in(gid);
                let privileges = changer.privileges(&is_in);
                self.set_attributes_for(caller, *id, set, privileges).map(Reply::Inode)
            }
            Change::WriteSmall { .. } | Change::PutChunks { .. } => written_here(),
            _ if change.takes_space() => self.with_room(execute),
            _ => execute(),
        }
    }

    /// Returns the files that a query finds, and no more of them than `count_max`.
    fn find(&self, query: &Query<'_>, count_max: u64) -> Result<Vec<Found>> {
        let mut all = Vec::new();
        if count_max > 0 {
            self.run_query(query, &|_| (), &mut |found| {
                all.push(found);
                (all.len() as u64) < count_max
            })?;
        }
        Ok(all)
    }

    fn execute_on_quotas(&self, quotas: &QuotasRequest) -> Result<Reply> {
        let some = |quota: Option<_>| Reply::Quotas(quota.into_iter().collect());
        match quotas {
            QuotasRequest::All => self.quotas().map(Reply::Quotas),
            QuotasRequest::Of(account) => Ok(some(self.quota(*account))),
            QuotasRequest::OfTree(id) => self.quota_of_tree(*id).map(some),
            QuotasRequest::Set(account, limits) => self.set_limits(*account, *limits).map(done),
            QuotasRequest::SetTree(id, limits) => {
                self.set_tree_limits(*id, *limits).map(Reply::Account)
            }
            QuotasRequest::RemoveTree(id) => self.remove_tree(*id).map(Reply::Truth),
            QuotasRequest::RemoveTreeOfNumber(number) => {
                self.remove_tree_of_number(*number).map(Reply::Truth)
            }
        }
    }

    fn execute_on_snapshots(&self, snapshots: &SnapshotsRequest<'_>) -> Result<Reply> {
        match snapshots {
            SnapshotsRequest::All => Ok(Reply::Snapshots(self.snapshots())),
            SnapshotsRequest::Described => self.snapshots_as_json().map(Reply::Text),
            SnapshotsRequest::Has(number) => Ok(Reply::Truth(self.has_snapshot(*number))),
            SnapshotsRequest::Enter(name, directory, who) => {
                let (number, inode) = self.enter_snapshot(name, *directory, who)?;
                Ok(Reply::Entered(number, inode))
            }
            SnapshotsRequest::Create(name) => {
                self.create_snapshot(name).map(|info| Reply::Snapshots(vec![info]))
            }
            SnapshotsRequest::Delete(name) => self.delete_snapshot(name).map(done),
        }
    }

    /// Returns a directory as a snapshot has it, with the snapshot's number, for a user who could
    /// get there then and can now.
    fn enter_snapshot(
        &self,
        name: &[u8],
        directory: FileId,
        who: &Credentials,
    ) -> Result<(u64, Inode)> {
        let past = self.past(name)?;
        let inode = past.inode(directory)?;
        match past.lets_in(directory, who)? && Present::new(self, who).reaches(directory)? {
            true => Ok((past.number(), inode)),
            false => Err(Errno::ACCESS.into()),
        }
    }

    fn administer(&self, administration: &Administration<'_>) -> Result<Reply> {
        match administration {
            Administration::State => Ok(Reply::State(State {
                is_read_only: self.is_read_only(),
                has_strays: self.has_strays(),
                lacks_labels: self.tablet.lacks_labels(),
            })),
            Administration::Time => Ok(Reply::Time(self.now_ns())),
            Administration::Capacity => self.capacity().map(Reply::Capacity),
            Administration::Settings => Ok(Reply::Settings(self.settings())),
            Administration::SetIndexes(names) => self.set_indexes(names).map(done),
            Administration::Flush => self.flush_records().map(done),
            Administration::Check { snapshot, reads_contents } => {
                let faults = self.check_moment(*snapshot, *reads_contents)?;
                Ok(Reply::Lines(faults.iter().map(Fault::to_string).collect()))
            }
            Administration::Repair { reads_contents } => {
                let Repaired { done, left } = match reads_contents {
                    true => self.repair_contents()?,
                    false => self.repair()?,
                };
                let left = left.iter().map(Fault::to_string).collect();
                Ok(Reply::Repaired { done, left })
            }
        }
    }

    fn capacity(&self) -> Result<Capacity> {
        if let Some(chunks) = self.contents.chunks() {
            return Ok(Capacity::of(chunks.space()));
        }
        let space = self.space()?;
        Ok(Capacity {
            block_bytes: space.f_bsize,
            unit_bytes: space.f_frsize,
            units: space.f_blocks,
            units_free: space.f_bfree,
            units_available: space.f_bavail,
            files: space.f_files,
            files_free: space.f_ffree,
        })
    }

    /// Has SSTables take all records that are in memory. Where nothing on the disk may be changed,
    /// records that are only in the log stay there, and it fails with `ROFS` if there are any.
    fn flush_records(&self) -> Result<()> {
        if self.is_read_only() {
            return match self.table().is_flushed()? {
                true => Ok(()),
                false => Err(Errno::ROFS.into()),
            };
        }
        self.flush_pending()?;
        Ok(self.table().flush()?)
    }

    fn check_moment(&self, snapshot: Option<&[u8]>, reads_contents: bool) -> Result<Vec<Fault>> {
        let Some(name) = snapshot else {
            return match reads_contents {
                true => self.check_contents(|_| {}),
                false => self.check(|_| {}),
            };
        };
        let past = self.past(name).map_err(|error| match error.errno() {
            Errno::NOENT => Errno::STALE.into(),
            _ => error,
        })?;
        self.check_past(&past, reads_contents)
    }
}
