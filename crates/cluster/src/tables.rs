//! The tables of a cluster, one for each logical server, in one storage, and the rules by which they
//! share directories. Both are in an object that is created once, and never changed.

use crate::error::Result;
use canopy_namespace::{Clock, Error, Ownership, Settings, create_table};
use canopy_partition::{PARTITIONS_MAX, SplitPolicy};
use canopy_store::storage::{Created, Storage};
use canopy_store::{Environment, TableId};
use serde::{Deserialize, Serialize};

/// The name of the object.
const OBJECT: &str = "cluster/tables";

/// Contents of the object, in JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Contents {
    /// Version of this format.
    format: u32,
    /// Ids of the tables, in the order of servers.
    tables: Vec<String>,
    /// The server of a partition follows from this.
    policy: SplitPolicy,
}

const FORMAT: u32 = 1;

/// Logical servers that a cluster can have.
pub const SERVERS_MAX: u32 = 4096;

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
    if !(1..=SERVERS_MAX).contains(&servers) {
        let text = format!("a cluster has 1 to {SERVERS_MAX} logical servers, not {servers}");
        return Err(Error::Invalid(text).into());
    }
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
    match environment.storage.read(OBJECT) {
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error.into()),
        Ok(_) => return Err(taken()),
    }
    let mut tables = Vec::new();
    for number in 0..servers {
        let table = create_table(environment, settings, owner, clock, number == 0)?;
        tables.push(table.to_string());
    }
    let contents = Contents { format: FORMAT, tables, policy };
    let contents = serde_json::to_vec_pretty(&contents);
    let contents = contents.map_err(|error| Error::Invalid(error.to_string()))?;
    match environment.storage.create(OBJECT, contents.into()) {
        Ok(Created::Now) => Ok(()),
        Ok(Created::ThereWasOne) => Err(taken()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a storage has a cluster.
///
/// # Errors
///
/// Fails as storage does.
pub fn has_cluster(storage: &dyn Storage) -> Result<bool> {
    match storage.size(OBJECT) {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Returns the tables of the cluster in a storage, in the order of its logical servers, and the rules
/// by which they share directories.
///
/// # Errors
///
/// Fails with `Invalid` if there is no cluster or its format is another one, with `Corrupt` if the
/// object is damaged, and as storage does.
pub(crate) fn tables_of(storage: &dyn Storage) -> Result<(Vec<TableId>, SplitPolicy)> {
    let contents = match storage.read(OBJECT) {
        Ok(contents) => contents,
        Err(error) if error.is_not_found() => {
            let text = "there is no cluster here; 'canopy ns create --servers N' makes one";
            return Err(Error::Invalid(text.into()).into());
        }
        Err(error) => return Err(error.into()),
    };
    let damaged = || Error::Corrupt("the list of a cluster's tables".into());
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
    Ok((tables, contents.policy))
}
