//! Restoring a namespace on several servers to a snapshot, while no process runs.
//!
//! Restore N, counted from 1, is two objects, each created once and never removed:
//!
//! ```text
//! cluster/restore/N        its plan: the name of the snapshot, JSON. The restore has begun
//! cluster/restore/N-done   nothing: every table is what it was
//! ```
//!
//! A restore that was killed has a plan and is not done. The same command finishes it: it makes all
//! steps again. Until then nobody serves, reads or changes the tables.
//!
//! **The steps.** A *restorer*
//!
//! 1. creates the plan;
//! 2. removes all processes from the cluster map, so that those that live find out soon;
//! 3. opens each table, which fences its former owner. If the restore is done by then, it stops.
//!    Otherwise it restores the table in one commit ([`restore_table`], [`empty_table`]);
//! 4. has all objects of contents looked at later that nobody may need any more;
//! 5. creates the second object.
//!
//! **The rule of servers.** A process notes at its start how many restores there were, all done: its
//! *generation*. After it has opened the table of a server, and before the server answers, it looks
//! for the plan of the next one. If there is a plan, the server does not run, nor does any other that
//! this process opens later. No clock and no lease decides this. That living processes are refused at
//! the beginning is a courtesy.
//!
//! **Why no table is restored halfway, and nothing that was served is lost.**
//!
//! - *Between plan and end, tables change by restorers alone.* A server that opened its table before
//!   the restorer did cannot write any more. One that opened it after the restorer did so after the
//!   plan was created, sees it, and writes nothing.
//! - *All restorers make the same of a table.* They take along the records of now that outlast a
//!   restore. A table that has been restored has these, and nobody else has changed it.
//! - *After the end no restorer writes.* One that sees the end after its opening stops. If it looked
//!   before the end, and a server has opened the table since, its commit fails: it is fenced. If none
//!   has, it makes of the table what it is.
//! - *The snapshot is there.* Server 0 alone deletes snapshots. The restorer reads the record of the
//!   snapshot in the table of server 0, which it has opened after the plan: none is deleted before the
//!   end. If it is missing, nothing is changed, and the restore ends.
//!
//! The tables of a snapshot are one moment, at rest (`cuts`): no hand-over and no intent is half done
//! in it. Attempts and intents of later are of other epochs.
//!
//! **Servers that were added since** have no records that any other table of then knows: no directory
//! of then has a placement with them, and no file of then has an id of theirs. They become empty, as
//! if they had just been added (`tables`).
//!
//! **Processes and clients of before.** They know partitions, attributes and chunks that do not exist
//! any more. Each request carries the generation of its sender, and a process refuses every other one
//! than its own ([`Error::Restored`]). A client also compares it when it asks where servers run. It
//! takes over no other generation: every operation fails with `ESTALE` from then on. No record of a
//! session's change is left, so none is taken for one of a new client.
//!
//! **Objects of contents.** Those that the snapshot needs are there, since it existed all the time
//! (`snapshots`). Notes about garbage are those of then, about objects that its records do not name;
//! records get no object back. Objects that were made since are named by nobody, or by snapshots: each
//! session that made some becomes one that may have left objects. It is collected as if its client had
//! died (`contents/collect`), which asks all snapshots.
//!
//! [`restore_table`]: canopy_namespace::restore_table
//! [`empty_table`]: canopy_namespace::empty_table

use crate::contents::reopen_sessions;
use crate::error::{Error, Result};
use crate::membership::{MembershipError, living, newest_map, remove_all};
use crate::snapshots::checkpoints_by_name;
use crate::tables::newest_list;
use canopy_model::ErrorKind;
use canopy_namespace::{Clock, empty_table, open_table, restore_table};
use canopy_store::storage::{Created, Storage};
use canopy_store::{Environment, SstableCache, Table, TableId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

const PREFIX: &str = "cluster/restore/";

/// Bytes of SSTables' blocks that stay in memory.
const CACHE_BYTES: u64 = 64 << 20;

/// Contents of the first object.
#[derive(Serialize, Deserialize)]
struct Plan {
    snapshot: String,
}

/// An error of restoring a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// Processes of the cluster live, at these addresses.
    #[error("processes of this namespace run: {}", .0.join(", "))]
    Running(Vec<String>),
    /// No snapshot has this name. These are there.
    #[error("none of the {} snapshots has this name", .0.len())]
    NoSnapshot(Vec<String>),
    /// Another restore has not ended.
    #[error("the restore of snapshot {0} has not ended")]
    Unfinished(String),
    /// Processes could not be looked at.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// A table could not be restored.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl From<canopy_store::Error> for RestoreError {
    fn from(error: canopy_store::Error) -> Self {
        RestoreError::Cluster(error.into())
    }
}

impl From<canopy_namespace::Error> for RestoreError {
    fn from(error: canopy_namespace::Error) -> Self {
        RestoreError::Cluster(error.into())
    }
}

/// Returns the snapshot of a restore that was begun and is not done, if there is one.
///
/// # Errors
///
/// Fails with `Corrupt` if a plan is damaged, and as storage does.
pub fn unfinished_restore(storage: &dyn Storage) -> Result<Option<String>> {
    unfinished(storage, newest(storage)?)
}

/// Fails unless all restores that have begun are done.
///
/// # Errors
///
/// Fails with `Unrestored`, and as storage does.
pub fn check_restored(storage: &dyn Storage) -> Result<()> {
    generation(storage).map(drop)
}

/// Returns the number of restores of a namespace.
///
/// # Errors
///
/// Fails with `Unrestored` unless all are done, and as storage does.
pub(crate) fn generation(storage: &dyn Storage) -> Result<u64> {
    let number = newest(storage)?;
    match unfinished(storage, number)? {
        Some(snapshot) => Err(Error::Unrestored(snapshot)),
        None => Ok(number),
    }
}

/// Returns whether a restore has begun after those of a generation.
pub(crate) fn is_outdated(storage: &dyn Storage, generation: u64) -> Result<bool> {
    exists(storage, &plan_of(generation + 1))
}

/// Makes a namespace on several servers what it was in a snapshot, or finishes what was begun. Calls
/// `progress` with the numbers of tables that are done, and of all. Snapshots stay, also later ones.
/// Clients of before can do nothing any more.
///
/// # Errors
///
/// Fails with `Running` if a process lives, with `NoSnapshot`, with `Unfinished` if another snapshot
/// has to be restored first, and as storage does. If it has begun, it has to be called again.
pub fn restore_cluster(
    environment: &Environment,
    clock: &Clock,
    snapshot: &str,
    progress: &dyn Fn(usize, usize),
) -> std::result::Result<(), RestoreError> {
    let storage = &*environment.storage;
    check_stopped(environment)?;
    let cache = SstableCache::new(environment, CACHE_BYTES);
    let number = match newest(storage)? {
        number if unfinished(storage, number)?.is_some() => number,
        number => {
            let first = first_table(environment, &cache)?;
            checkpoints_of(&first, snapshot)?;
            create_plan(storage, number + 1, snapshot)?;
            number + 1
        }
    };
    match unfinished(storage, number)? {
        Some(begun) if begun == snapshot => {}
        Some(begun) => return Err(RestoreError::Unfinished(begun)),
        // Another restorer has done it just now.
        None => return Ok(()),
    }
    remove_all(environment)?;
    let restored = restore_tables(environment, &cache, clock, (number, snapshot), progress);
    if let Ok(()) | Err(RestoreError::NoSnapshot(_)) = restored {
        storage.create(&end_of(number), bytes::Bytes::new())?;
    }
    restored
}

/// Restores all tables, and notes sessions that may have left objects.
fn restore_tables(
    environment: &Environment,
    cache: &Arc<SstableCache>,
    clock: &Clock,
    (number, snapshot): (u64, &str),
    progress: &dyn Fn(usize, usize),
) -> std::result::Result<(), RestoreError> {
    let storage = &*environment.storage;
    let list = newest_list(storage)?;
    let checkpoints = checkpoints_of(&*first_table(environment, cache)?, snapshot)?;
    for (at, table) in list.tables.iter().enumerate() {
        progress(at, list.tables.len());
        let table = open_table(environment, *table, cache.clone())?;
        if exists(storage, &end_of(number))? {
            return Ok(());
        }
        match checkpoints.get(at) {
            Some(checkpoint) => restore_table(&table, *checkpoint)?,
            None => {
                let (settings, owner) = list.made_with();
                empty_table(&table, settings, owner, clock)?;
                table.flush()?;
            }
        }
    }
    progress(list.tables.len(), list.tables.len());
    Ok(reopen_sessions(storage)?)
}

/// Opens the table of server 0, which ends the writes of any other process that has it.
fn first_table(
    environment: &Environment,
    cache: &Arc<SstableCache>,
) -> std::result::Result<Arc<Table>, RestoreError> {
    let list = newest_list(&*environment.storage)?;
    // A list has a table.
    let first = list.tables.first().copied().unwrap_or(TableId(0));
    Ok(open_table(environment, first, cache.clone())?)
}

fn checkpoints_of(first: &Table, snapshot: &str) -> std::result::Result<Vec<u64>, RestoreError> {
    let mut named = checkpoints_by_name(first)?;
    match named.remove(snapshot) {
        Some(checkpoints) => Ok(checkpoints),
        None => Err(RestoreError::NoSnapshot(named.into_keys().collect())),
    }
}

fn create_plan(
    storage: &dyn Storage,
    number: u64,
    snapshot: &str,
) -> std::result::Result<(), RestoreError> {
    let plan = serde_json::to_vec(&Plan { snapshot: snapshot.to_owned() });
    let plan = plan.map_err(|error| canopy_namespace::Error::Invalid(error.to_string()))?;
    // If another restorer was faster, its plan counts.
    match storage.create(&plan_of(number), plan.into())? {
        Created::Now | Created::ThereWasOne => Ok(()),
    }
}

/// Fails if a process of the cluster lives.
fn check_stopped(environment: &Environment) -> std::result::Result<(), RestoreError> {
    let map = newest_map(&*environment.storage, 0).map_err(MembershipError::from)?;
    let Some(map) = map else { return Ok(()) };
    let living = living(environment, &map)?;
    let addresses = map.processes.iter().filter(|(process, _)| living.contains(process));
    let addresses = Vec::from_iter(addresses.map(|(_, one)| one.address.clone()));
    match addresses.is_empty() {
        true => Ok(()),
        false => Err(RestoreError::Running(addresses)),
    }
}

/// Returns the number of the newest restore; 0 if there was none.
fn newest(storage: &dyn Storage) -> Result<u64> {
    let mut number = 0;
    while exists(storage, &plan_of(number + 1))? {
        number += 1;
    }
    Ok(number)
}

fn unfinished(storage: &dyn Storage, number: u64) -> Result<Option<String>> {
    if number == 0 || exists(storage, &end_of(number))? {
        return Ok(None);
    }
    let name = plan_of(number);
    let plan: Plan = serde_json::from_slice(&storage.read(&name)?)
        .map_err(|_| canopy_namespace::Error::Corrupt(format!("{name}, a plan of a restore")))?;
    Ok(Some(plan.snapshot))
}

fn exists(storage: &dyn Storage, name: &str) -> Result<bool> {
    match storage.size(name) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn plan_of(number: u64) -> String {
    format!("{PREFIX}{number}")
}

fn end_of(number: u64) -> String {
    format!("{PREFIX}{number}-done")
}

impl RestoreError {
    /// Returns the kind, by which a caller reacts to the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RestoreError::Running(_) => ErrorKind::Busy,
            RestoreError::NoSnapshot(_) => ErrorKind::NotFound,
            RestoreError::Unfinished(_) => ErrorKind::Invalid,
            RestoreError::Membership(error) => error.kind(),
            RestoreError::Cluster(Error::Namespace(error)) => error.kind(),
            RestoreError::Cluster(_) => ErrorKind::Unavailable,
        }
    }
}
