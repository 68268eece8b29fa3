//! A namespace that has servers, for whoever uses it like one of this process: a mount.

use crate::contents::ClusterNamespace;
use canopy_namespace::operation::{
    Administration, Caller, Capacity, FileLocks, Moment, Operation, Plan, Query, State,
};
use canopy_namespace::{Entry, Error, Execute, Found, Inode, Listing, Pace, Reply, Result};
use std::time::Duration;

impl ClusterNamespace {
    /// Answers what every client knows; none if servers have to.
    fn administer(&self, administration: &Administration<'_>) -> Option<Reply> {
        match administration {
            Administration::State => Some(Reply::State(State::default())),
            Administration::Time => Some(Reply::Time(self.now_ns())),
            Administration::Capacity => Some(Reply::Capacity(Capacity::of(self.space()))),
            Administration::Settings
            | Administration::SetIndexes(_)
            | Administration::Flush
            | Administration::Check { .. }
            | Administration::Repair { .. } => None,
        }
    }
}

impl Execute for ClusterNamespace {
    fn execute_for(&self, caller: Caller<'_>, operation: &Operation<'_>) -> Result<Reply> {
        match operation {
            Operation::Administration(Administration::Flush) => self.flush().map(|()| Reply::Done),
            Operation::Administration(administration) => match self.administer(administration) {
                Some(reply) => Ok(reply),
                None => self.execute_written(caller, operation),
            },
            _ => self.execute_written(caller, operation),
        }
    }

    fn locks(&self) -> Option<&dyn FileLocks> {
        self.has_locks().then_some(self as &dyn FileLocks)
    }

    fn cached_for(&self, directory: &Inode) -> Option<Duration> {
        self.directory_cached_for(directory)
    }

    fn list_entries(
        &self,
        at: Moment,
        listing: &mut Listing,
        after: u64,
        tell: &mut dyn FnMut(Entry<'_>) -> bool,
    ) -> Result<()> {
        let namespace: &dyn Execute = self;
        namespace.list_by_parts(at, listing, after, tell)
    }

    fn run_query(
        &self,
        query: &Query<'_>,
        pace: Pace<'_>,
        tell: &mut dyn FnMut(Found) -> bool,
    ) -> Result<()> {
        self.search(query, pace, tell)
    }

    fn explain_query(&self, query: &Query<'_>, counts: bool, _pace: Pace<'_>) -> Result<Plan> {
        match self.execute(&Operation::Explain(query.clone(), counts))? {
            Reply::Plan(plan) => Ok(plan),
            _ => Err(unfit()),
        }
    }
}

fn unfit() -> Error {
    crate::error::Error::Unfit.into()
}
