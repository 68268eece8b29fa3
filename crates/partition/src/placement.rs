//! The server of each partition.

use crate::partition::PartitionId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Number of a logical server: its place in a list that only grows.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ServerId(pub u32);

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Numbers that decide, for good, which server holds which partition of a directory. They are set
/// when the directory splits for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32, u32)", into = "(u32, u32, u32)")]
pub struct Placement {
    first: u32,
    servers: u32,
    partitions_per_server: u32,
}

impl Placement {
    /// Returns the placement of a directory whose partition 0 is on the server `first`, of `servers`
    /// that are known. `None` if `first` is not one of them, or if a server gets no partition.
    pub fn new(first: ServerId, servers: u32, partitions_per_server: u32) -> Option<Self> {
        let is_placement = first.0 < servers && partitions_per_server > 0;
        is_placement.then_some(Placement { first: first.0, servers, partitions_per_server })
    }

    /// Returns the server that holds a partition. Partitions go to the known servers in turn, and
    /// later ones to the servers that were added, one server after another (section 3.4).
    pub fn server(&self, partition: PartitionId) -> ServerId {
        let number = u64::from(partition.number());
        let (servers, each) = (u64::from(self.servers), u64::from(self.partitions_per_server));
        // The paper's text says "exceeds"; its Figure 2 shows that N * M itself is sequential.
        let server = match number < servers * each {
            true => (u64::from(self.first) + number) % servers,
            false => number / each,
        };
        ServerId(server as u32)
    }

    /// Returns whether there is a server for a partition, of `servers` that exist now. Those that
    /// were known at the first split never go.
    pub fn has_server(&self, partition: PartitionId, servers: u32) -> bool {
        let servers = u64::from(servers.max(self.servers));
        u64::from(partition.number()) < servers * u64::from(self.partitions_per_server)
    }
}

impl From<Placement> for (u32, u32, u32) {
    fn from(placement: Placement) -> Self {
        (placement.first, placement.servers, placement.partitions_per_server)
    }
}

impl TryFrom<(u32, u32, u32)> for Placement {
    type Error = &'static str;

    fn try_from((first, servers, each): (u32, u32, u32)) -> Result<Self, Self::Error> {
        Placement::new(ServerId(first), servers, each).ok_or("no directory has this placement")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the servers of partitions in the order of their numbers.
    fn servers(placement: Placement, partitions: u32) -> Vec<u32> {
        let partitions = (0..partitions).filter_map(PartitionId::new);
        partitions.map(|partition| placement.server(partition).0).collect()
    }

    #[test]
    fn added_servers_are_filled_one_after_another() {
        // Figure 2 of the paper: five servers with three partitions each, and two that are added.
        let placement = Placement::new(ServerId(0), 5, 3).unwrap();
        let expected = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 5, 5, 6, 6, 6];
        assert_eq!(servers(placement, 21), expected);
        let has =
            |number, servers| placement.has_server(PartitionId::new(number).unwrap(), servers);
        assert!(has(14, 5) && !has(15, 5) && has(20, 7) && !has(21, 7));
        // Servers of the first split stay, even if a client does not know them yet.
        assert!(has(14, 1));
    }

    #[test]
    fn each_server_gets_its_partitions_whichever_is_first() {
        for first in 0..7 {
            let placement = Placement::new(ServerId(first), 7, 4).unwrap();
            let mut all = servers(placement, 40);
            assert_eq!(all[0], first);
            all.sort_unstable();
            assert_eq!(all, (0..40).map(|place| place / 4).collect::<Vec<_>>());
        }
        assert_eq!(Placement::new(ServerId(7), 7, 4), None);
        assert_eq!(Placement::new(ServerId(0), 1, 0), None);
    }
}
