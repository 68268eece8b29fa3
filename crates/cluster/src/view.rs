//! The records of all tables of a cluster, for those who read beside its servers.
//!
//! Each table is read at a checkpoint, and belongs to its server as before. Records of partitions
//! decide which table holds which names: from partition 0 on, the splits of a partition name the
//! ones that exist. A partition that was given belongs to the table that was offered it in this
//! attempt, whether or not that table knows so. So a hand-over that is under way shows each entry once.
//!
//! Checkpoints of different moments may not fit: a table has given a partition, and the checkpoint
//! of the receiver is older. Then there is no view, and the caller makes new checkpoints.

use crate::error::Result;
use crate::restoring::generation;
use crate::tables::newest;
use canopy_namespace::{Error, FileId, PartitionRecord, ReadView, SplitParts};
use canopy_partition::{Holding, Holdings, OfferState, PartitionId, SplitHistory};
use canopy_store::storage::Storage;
use canopy_store::{Environment, TableId};
use std::collections::{BTreeMap, HashMap};
use std::ops::RangeInclusive;

/// Checkpoints that do not fit are made anew so often.
const ATTEMPTS: usize = 10;

/// Checkpoints of all tables of a cluster, in the order of servers, and the records at these.
pub struct ClusterView {
    /// The records.
    pub view: ReadView,
    /// Each table with the id of its checkpoint.
    pub checkpoints: Vec<(TableId, u64)>,
}

impl ClusterView {
    /// Returns the records at checkpoints of all tables, which `make` makes, and makes again if they do
    /// not fit.
    ///
    /// # Errors
    ///
    /// Fails with `Invalid` if partitions move faster than checkpoints are made, as `make` does, and as
    /// the tables do.
    pub fn open<E: From<crate::Error>>(
        environment: &Environment,
        mut make: impl FnMut() -> std::result::Result<Vec<(TableId, u64)>, E>,
    ) -> std::result::Result<Self, E> {
        for _ in 0..ATTEMPTS {
            let checkpoints = make()?;
            match Self::at(environment, &checkpoints) {
                Ok(Some(view)) => return Ok(ClusterView { view, checkpoints }),
                Ok(None) => release_all(environment, &checkpoints),
                Err(error) => {
                    release_all(environment, &checkpoints);
                    return Err(error.into());
                }
            }
        }
        let text = "partitions of directories move all the time: try again later";
        Err(crate::Error::from(Error::Invalid(text.into())).into())
    }

    /// Returns the records at checkpoints of all tables; none if these do not fit.
    ///
    /// # Errors
    ///
    /// Fails with `Store` if a checkpoint is gone, with `Corrupt` if a record is damaged, and as the
    /// tables do.
    pub fn at(
        environment: &Environment,
        checkpoints: &[(TableId, u64)],
    ) -> Result<Option<ReadView>> {
        let interpret = |records: &[Vec<PartitionRecord>]| {
            split_parts(records).map_err(Unsettled::Failed)?.ok_or(Unsettled::Moving)
        };
        match ReadView::of_tables(environment, checkpoints, interpret) {
            Ok(view) => Ok(Some(view)),
            Err(Unsettled::Moving) => Ok(None),
            Err(Unsettled::Failed(error)) => Err(error.into()),
        }
    }
}

/// Reason for a missing view.
enum Unsettled {
    /// A partition is in no table.
    Moving,
    Failed(Error),
}

impl From<Error> for Unsettled {
    fn from(error: Error) -> Self {
        Unsettled::Failed(error)
    }
}

/// Returns the tables of a cluster, in the order of its logical servers.
///
/// # Errors
///
/// Fails with `Invalid` if there is no cluster, with `Unrestored` if a restore has not ended, and as
/// storage does.
pub fn cluster_tables(storage: &dyn Storage) -> Result<Vec<TableId>> {
    generation(storage)?;
    Ok(newest(storage, 1)?.tables)
}

/// Makes a checkpoint of what the files of each table have, one after the other, which is kept for
/// `lifetime_ms`.
///
/// # Errors
///
/// Fails with `Invalid` if there is no cluster, and as the tables do.
pub fn checkpoint_all(environment: &Environment, lifetime_ms: u64) -> Result<Vec<(TableId, u64)>> {
    let mut made = Vec::new();
    for table in cluster_tables(&*environment.storage)? {
        match canopy_store::checkpoint(environment, table, Some(lifetime_ms)) {
            Ok((id, _)) => made.push((table, id)),
            Err(error) => {
                release_all(environment, &made);
                return Err(error.into());
            }
        }
    }
    Ok(made)
}

/// Lets checkpoints go. Those that stay go by themselves later.
pub fn release_all(environment: &Environment, checkpoints: &[(TableId, u64)]) {
    for (table, checkpoint) in checkpoints {
        let _ = canopy_store::release(environment, *table, *checkpoint);
    }
}

/// Returns which parts of directories each table holds, by the records of partitions in each; none if
/// a part is in no table.
fn split_parts(records: &[Vec<PartitionRecord>]) -> canopy_namespace::Result<Option<SplitParts>> {
    let mut directories: HashMap<FileId, BTreeMap<usize, Vec<(PartitionId, Holding)>>> =
        HashMap::new();
    for (table, records) in records.iter().enumerate() {
        for record in records {
            let Some(partition) = PartitionId::new(record.partition) else { continue };
            let value = record.value.as_deref().unwrap_or_default();
            let damaged = |_| Error::Corrupt("the record of a partition".into());
            let holding = postcard::from_bytes(value).map_err(damaged)?;
            let tables = directories.entry(record.directory).or_default();
            tables.entry(table).or_default().push((partition, holding));
        }
    }
    let mut parts = SplitParts::new();
    for (directory, tables) in directories {
        let tables = tables
            .into_iter()
            .map(|(table, records)| (table, records.into_iter().collect::<Holdings>()));
        let tables = Vec::from_iter(tables);
        // A directory without a record of partition 0 was never split.
        let is_split = tables.iter().any(|(_, one)| one.history(PartitionId::ZERO).is_some());
        if !is_split {
            continue;
        }
        match parts_of(&tables) {
            Some(of_directory) => drop(parts.insert(directory, of_directory)),
            None => return Ok(None),
        }
    }
    Ok(Some(parts))
}

/// Returns the parts of one directory in ascending order; none if one is in no table.
fn parts_of(tables: &[(usize, Holdings)]) -> Option<Vec<(RangeInclusive<u64>, usize)>> {
    let mut parts = Vec::new();
    let mut waiting = vec![PartitionId::ZERO];
    while let Some(partition) = waiting.pop() {
        let held = tables.iter().find_map(|(table, one)| Some((*table, one.history(partition)?)));
        match held.or_else(|| given(tables, partition)) {
            Some((table, history)) => {
                waiting.extend(history.children());
                parts.push((partition.hashes(history.depth()), table));
            }
            None => return None,
        }
    }
    parts.sort_unstable_by_key(|(hashes, _)| *hashes.start());
    Some(parts)
}

/// Returns the table to which a partition was given that does not know so, with the splits of that
/// partition.
fn given(tables: &[(usize, Holdings)], partition: PartitionId) -> Option<(usize, SplitHistory)> {
    let attempt = tables.iter().find_map(|(_, one)| match one.record(partition)? {
        Holding::Given { attempt, .. } => Some(attempt),
        _ => None,
    })?;
    let offered = Holding::Offered { attempt, state: OfferState::Complete };
    let (table, _) = tables.iter().find(|(_, one)| one.record(partition) == Some(offered))?;
    Some((*table, SplitHistory::new(partition, partition.first_depth())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_partition::Attempt;

    fn attempt(number: u64) -> Attempt {
        Attempt { epoch: 1, number }
    }

    /// Returns the numbers of the tables that hold the lower and the upper half of the hashes.
    fn halves(tables: &[Holdings]) -> Option<Vec<usize>> {
        let tables = Vec::from_iter(tables.iter().cloned().enumerate());
        let parts = parts_of(&tables)?;
        let all = [0, u64::MAX].map(|hash| {
            let holding = parts.iter().filter(|(hashes, _)| hashes.contains(&hash));
            let holding = Vec::from_iter(holding.map(|(_, table)| *table));
            assert_eq!(holding.len(), 1, "{parts:?}");
            holding[0]
        });
        Some(all.to_vec())
    }

    #[test]
    fn each_hash_has_one_table_in_each_state_of_a_hand_over() {
        let (mut giver, mut receiver) = (Holdings::new_directory(), Holdings::default());
        let child = giver.child(PartitionId::ZERO).unwrap();
        let mut states = vec![(giver.clone(), receiver.clone())];
        let mut note = |giver: &Holdings, receiver: &Holdings| {
            states.push((giver.clone(), receiver.clone()));
        };
        receiver.begin(child, attempt(1));
        note(&giver, &receiver);
        assert!(receiver.complete(child, attempt(1)));
        note(&giver, &receiver);
        assert!(giver.give(child, attempt(1)));
        note(&giver, &receiver);
        assert!(receiver.hold(child, attempt(1)));
        note(&giver, &receiver);
        assert!(giver.confirm(child, attempt(1)));
        note(&giver, &receiver);
        giver.removed(child);
        note(&giver, &receiver);
        for (at, (giver, receiver)) in states.iter().enumerate() {
            let expected = if at < 3 { vec![0, 0] } else { vec![0, 1] };
            assert_eq!(halves(&[giver.clone(), receiver.clone()]), Some(expected), "{at}");
        }
        // A checkpoint of the receiver that is older than that of the giver.
        for (at, (_, receiver)) in states.iter().enumerate() {
            for (later, (giver, _)) in states.iter().enumerate().skip(at) {
                let found = halves(&[giver.clone(), receiver.clone()]);
                let fits = later < 3 || at >= 4 || at >= 2 && later < 6;
                assert_eq!(found.is_some(), fits, "{at} {later}");
            }
        }
        // One that is newer: the giver decides.
        for (at, (giver, _)) in states.iter().enumerate() {
            for (_, receiver) in &states[at..] {
                let found = halves(&[giver.clone(), receiver.clone()]);
                let expected = if at < 3 { vec![0, 0] } else { vec![0, 1] };
                assert_eq!(found, Some(expected), "{at}");
            }
        }
    }

    #[test]
    fn an_offer_of_another_attempt_is_not_the_partition() {
        let (mut giver, mut receiver) = (Holdings::new_directory(), Holdings::default());
        let child = giver.child(PartitionId::ZERO).unwrap();
        receiver.begin(child, attempt(1));
        assert!(receiver.complete(child, attempt(1)));
        assert!(giver.give(child, attempt(2)));
        assert_eq!(halves(&[giver, receiver]), None);
    }
}
