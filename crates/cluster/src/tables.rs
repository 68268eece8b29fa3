//! The tables of a cluster, one for each logical server, in one storage. The list of them is an
//! object that is created once, and never changed.

use crate::error::Result;
use canopy_namespace::{Clock, Error, Ownership, Settings, create_table};
use canopy_store::storage::{Created, Storage};
use canopy_store::{Environment, TableId};

/// The name of the list.
const OBJECT: &str = "cluster/tables";

/// Makes an empty namespace with a table for each of `servers` logical servers, in a storage that
/// has none. Its root belongs to `owner`.
///
/// # Errors
///
/// Fails with `Invalid` if there is one already or no server, and as storage does.
pub fn create_cluster(
    environment: &Environment,
    settings: &Settings,
    owner: Ownership,
    servers: u32,
    clock: &Clock,
) -> Result<()> {
    if servers == 0 {
        return Err(Error::Invalid("a cluster has at least one server".into()).into());
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
    let list = tables.join("\n");
    match environment.storage.create(OBJECT, list.into()) {
        Ok(Created::Now) => Ok(()),
        Ok(Created::ThereWasOne) => Err(taken()),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a storage has a namespace on several servers.
///
/// # Errors
///
/// Fails as storage does.
pub fn is_cluster(storage: &dyn Storage) -> canopy_store::Result<bool> {
    match storage.read(OBJECT) {
        Err(error) if error.is_not_found() => Ok(false),
        read => read.map(|_| true),
    }
}

/// Returns the tables of the cluster in a storage, in the order of its logical servers.
///
/// # Errors
///
/// Fails with `Corrupt` if the list is damaged, and as storage does.
pub(crate) fn tables_of(storage: &dyn Storage) -> Result<Vec<TableId>> {
    let list = storage.read(OBJECT)?;
    let damaged = || Error::Corrupt("the list of a cluster's tables".into());
    let list = std::str::from_utf8(&list).map_err(|_| damaged())?;
    let tables = list.lines().map(|line| TableId::parse(line).ok_or_else(damaged));
    Ok(tables.collect::<std::result::Result<_, _>>()?)
}
