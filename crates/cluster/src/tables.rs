//! The tables of a cluster, one for each logical server, in one storage, and the rules by which they
//! share directories. Both are in a list, an object that is created once and never changed. A longer
//! list is another object, of the next version; the newest one counts.
//!
//! Servers are added in this order:
//!
//! 1. The tables are made. Each has a note that it is new ([`Tablet::is_new`]).
//! 2. The next version of the list is created. Creation succeeds once, so two additions at once both
//!    happen, one after the other.
//! 3. The cluster map gets the servers ([`add_servers`](crate::membership::add_servers)), and
//!    processes start them. A process that finds a number beyond its list reads the list again.
//! 4. Before a new server answers anything, it gets the notes of ended sessions from server 0, which
//!    the first list contains, and removes the note that it is new (`contents::collect`).
//!
//! Processes and clients that know a shorter list go on meanwhile. A request that has to reach all
//! servers with a partition of a directory (closing it, `intents`) asks all servers that are known,
//! and each replies with the number that *it* knows; the asker goes on with those. This misses no server: it has its partition from a giver that knew it before it read the
//! directory's attributes. If the giver read them before it was asked, its reply contains the
//! receiver; if later, it has passed the new ones on. A directory that is closed is not handed over.
//! Likewise a client that looks for a file at all servers goes on with those that refusals name. One
//! that asks all servers, as for a query, first asks server 0 for their number, which looks into
//! storage ([`Request::Servers`](crate::Request::Servers)).
//!
//! After a crash in step 1, tables stay behind that nobody uses. After one in step 2 or later, whoever
//! adds servers next finds that the map is shorter than the list, and completes that addition first.
//!
//! [`Tablet::is_new`]: canopy_namespace::Tablet::is_new

use crate::error::Result;
use crate::restoring::generation;
use canopy_namespace::{Clock, Error, Ownership, Settings, create_added_table, create_table};
use canopy_partition::{PARTITIONS_MAX, SplitPolicy};
use canopy_store::storage::{Created, Storage};
use canopy_store::{Environment, TableId};
use serde::{Deserialize, Serialize};

/// The name of the first version's object. Those of others end with `-VERSION`.
const OBJECT: &str = "cluster/tables";

/// Contents of the object, in JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Contents {
    /// Version of this format.
    format: u32,
    /// Ids of the tables, in the order of servers.
    tables: Vec<String>,
    /// The server of a partition follows from this.
    policy: SplitPolicy,
    /// Settings of the namespace when it was made, for tables that are added.
    settings: Settings,
    /// The owner of the root when the namespace was made.
    owner: Ownership,
}

const FORMAT: u32 = 2;

/// Logical servers that a cluster can have.
pub const SERVERS_MAX: u32 = 4096;

/// An addition fails once others have preceded it so many times.
const ADDITION_ATTEMPTS: u32 = 100;

/// A version of the list.
#[derive(Clone, Debug)]
pub(crate) struct TableList {
    /// Counted from 1.
    pub(crate) version: u64,
    /// Tables in the order of servers.
    pub(crate) tables: Vec<TableId>,
    pub(crate) policy: SplitPolicy,
    contents: Contents,
}

/// Makes an empty namespace with a table for each of `servers` logical servers, in a storage that
/// has none. Its root belongs to `owner`.
///
/// # Errors
///
/// Fails with `Invalid` if there is one already, without a server and beyond a limit, and as storage
/// does.
pub fn create_cluster(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    servers: u32,
    policy: SplitPolicy,
    clock: &Clock,
) -> Result<()> {
    check_count(servers)?;
    let partitions = u64::from(servers) * u64::from(policy.partitions_per_server);
    if partitions > u64::from(PARTITIONS_MAX) {
        let text = format!(
            "a directory has at most {PARTITIONS_MAX} partitions, and {servers} logical servers with {} \
             each are more",
            policy.partitions_per_server
        );
        return Err(Error::Invalid(text).into());
    }
    let taken = || Error::Invalid("there is a cluster already".into()).into();
    if has_cluster(&*environment.storage)? {
        return Err(taken());
    }
    let mut tables = Vec::new();
    for number in 0..servers {
        let table = create_table(environment, settings, owner, clock, number == 0)?;
        tables.push(table.to_string());
    }
    let contents = Contents { format: FORMAT, tables, policy, settings: settings.clone(), owner };
    match create(&*environment.storage, 1, &contents)? {
        Created::Now => Ok(()),
        Created::ThereWasOne => Err(taken()),
    }
}

/// Makes tables for further logical servers, and a list that contains them. Returns the number of all
/// servers then. The cluster map does not have them yet.
///
/// # Errors
///
/// Fails with `Invalid` if there is no cluster, or if it would have too many servers, with `Unrestored`
/// if a restore has not ended, and as storage does.
pub fn add_tables(environment: &Environment, count: u32, clock: &Clock) -> Result<u32> {
    let storage = &*environment.storage;
    generation(storage)?;
    let mut list = newest(storage, 1)?;
    check_count((list.tables.len() as u32).saturating_add(count))?;
    let mut added = Vec::new();
    for _ in 0..count {
        let (settings, owner) = list.made_with();
        added.push(create_added_table(environment, settings, owner, clock)?.to_string());
    }
    for _ in 0..ADDITION_ATTEMPTS {
        let mut contents = list.contents.clone();
        contents.tables.extend(added.iter().cloned());
        let servers = contents.tables.len() as u32;
        check_count(servers)?;
        match create(storage, list.version + 1, &contents) {
            Ok(Created::Now) => return Ok(servers),
            Ok(Created::ThereWasOne) | Err(_) => {}
        }
        list = newest(storage, list.version)?;
        // After an error, the object may be there nevertheless.
        if added.iter().all(|table| list.contents.tables.contains(table)) {
            return Ok(list.tables.len() as u32);
        }
    }
    Err(Error::Invalid("the list of tables cannot be changed: try again later".into()).into())
}

/// Returns the number of logical servers of the cluster in a storage, by its newest list.
///
/// # Errors
///
/// Fails with `Invalid` if there is no cluster or its format is another one, with `Corrupt` if the
/// list is damaged, and as storage does.
pub fn count_tables(storage: &dyn Storage) -> Result<u32> {
    Ok(newest(storage, 1)?.tables.len() as u32)
}

/// Returns whether a storage has a cluster.
///
/// # Errors
///
/// Fails as storage does.
pub fn has_cluster(storage: &dyn Storage) -> Result<bool> {
    exists(storage, 1)
}

/// Returns the newest list of the cluster in a storage.
///
/// # Errors
///
/// Fails as `count_tables` does.
pub(crate) fn newest_list(storage: &dyn Storage) -> Result<TableList> {
    newest(storage, 1)
}

impl TableList {
    /// Returns the settings and the owner that added tables are made with.
    pub(crate) fn made_with(&self) -> (&Settings, Ownership) {
        (&self.contents.settings, self.contents.owner)
    }
}

/// Returns the newest list of the cluster in a storage. `known` is a version that exists, or 1.
///
/// # Errors
///
/// Fails as [`count_tables`] does.
pub(crate) fn newest(storage: &dyn Storage, known: u64) -> Result<TableList> {
    let mut version = known.max(1);
    while exists(storage, version + 1)? {
        version += 1;
    }
    read(storage, version)
}

/// Returns whether no list is newer than a version.
pub(crate) fn is_newest(storage: &dyn Storage, version: u64) -> Result<bool> {
    Ok(!exists(storage, version + 1)?)
}

fn read(storage: &dyn Storage, version: u64) -> Result<TableList> {
    let contents = match storage.read(&name_of(version)) {
        Ok(contents) => contents,
        Err(error) if error.is_not_found() => {
            let text = "there is no cluster here; 'canopy ns create --servers N' makes one";
            return Err(Error::Invalid(text.into()).into());
        }
        Err(error) => return Err(error.into()),
    };
    let damaged =
        || Error::Corrupt(format!("the list of a cluster's tables, {}", name_of(version)));
    let contents: Contents = serde_json::from_slice(&contents).map_err(|_| damaged())?;
    if contents.format != FORMAT {
        let format = contents.format;
        let text = format!("the cluster has format {format}, and this program reads {FORMAT}");
        return Err(Error::Invalid(text).into());
    }
    let tables = contents.tables.iter().map(|table| TableId::parse(table).ok_or_else(damaged));
    let tables = tables.collect::<std::result::Result<Vec<_>, _>>()?;
    if tables.is_empty() || tables.len() > SERVERS_MAX as usize {
        return Err(damaged().into());
    }
    Ok(TableList { version, tables, policy: contents.policy, contents })
}

fn create(storage: &dyn Storage, version: u64, contents: &Contents) -> Result<Created> {
    let bytes = serde_json::to_vec_pretty(contents);
    let bytes = bytes.map_err(|error| Error::Invalid(error.to_string()))?;
    Ok(storage.create(&name_of(version), bytes.into())?)
}

fn exists(storage: &dyn Storage, version: u64) -> Result<bool> {
    match storage.size(&name_of(version)) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn name_of(version: u64) -> String {
    match version {
        1 => OBJECT.to_owned(),
        version => format!("{OBJECT}-{version}"),
    }
}

fn check_count(servers: u32) -> Result<()> {
    if (1..=SERVERS_MAX).contains(&servers) {
        return Ok(());
    }
    let text = format!("a cluster has 1 to {SERVERS_MAX} logical servers, not {servers}");
    Err(Error::Invalid(text).into())
}
