//! The meaning of the kernel's inode numbers, decoded once for each request.

use crate::packed::{PACKED_BITS, PackedId};
use canopy_namespace::{FileId, Inode};
use fuser::INodeNo;

/// Numbers with this bit are of queries. Ids of files have 62 bits.
const QUERY_BIT: u64 = 1 << 63;

/// Numbers with this bit, and without that of queries, are of files of snapshots.
const SNAPSHOT_BIT: u64 = 1 << 62;

/// Number of snapshots that can be open through one mount.
pub(crate) const SLOTS_MAX: usize = 1 << (62 - PACKED_BITS);

/// An inode number of the kernel, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Node {
    /// A file or directory of the namespace.
    File(FileId),
    /// A file or directory as a snapshot has it.
    Snapshot(SnapshotFile),
    /// A query, or a link to one of its results. It exists while the kernel knows it.
    Query(QueryId),
}

/// The number of a query or of a link to a result. Never used again by this mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QueryId(pub(crate) u64);

/// A file of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SnapshotFile {
    /// The snapshot, in the order in which this mount opened them.
    pub(crate) slot: usize,
    pub(crate) id: PackedId,
}

/// A node with its attributes. Those of queries have no file id.
#[derive(Clone, Debug)]
pub(crate) struct Shown {
    pub(crate) node: Node,
    pub(crate) inode: Inode,
}

impl Shown {
    /// Returns a file of the namespace with its attributes.
    pub(crate) fn file(inode: Inode) -> Self {
        Shown { node: Node::File(inode.id), inode }
    }
}

impl Node {
    /// Returns whether the node is a file of the namespace as it is now.
    pub(crate) fn is_current(self) -> bool {
        matches!(self, Node::File(_))
    }
}

impl From<INodeNo> for Node {
    fn from(INodeNo(number): INodeNo) -> Self {
        if number & QUERY_BIT != 0 {
            return Node::Query(QueryId(number & !QUERY_BIT));
        }
        if number & SNAPSHOT_BIT == 0 {
            return Node::File(FileId(number));
        }
        let rest = number & !SNAPSHOT_BIT;
        let slot = (rest >> PACKED_BITS) as usize;
        let id = PackedId(rest & ((1 << PACKED_BITS) - 1));
        Node::Snapshot(SnapshotFile { slot, id })
    }
}

impl From<Node> for INodeNo {
    fn from(node: Node) -> Self {
        INodeNo(match node {
            Node::File(id) => id.0,
            Node::Query(id) => QUERY_BIT | id.0,
            Node::Snapshot(SnapshotFile { slot, id }) => {
                SNAPSHOT_BIT | (slot as u64) << PACKED_BITS | id.0
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decoded_to_the_nodes_they_were_made_of() {
        let last = PackedId((1 << PACKED_BITS) - 1);
        let snapshot = |slot, id| Node::Snapshot(SnapshotFile { slot, id });
        for node in [
            Node::File(FileId(1)),
            Node::File(FileId(FileId::MAX.0 - 1)),
            Node::Query(QueryId(1)),
            Node::Query(QueryId(QUERY_BIT - 1)),
            snapshot(0, PackedId(1)),
            snapshot(7, last),
            snapshot(SLOTS_MAX - 1, PackedId(1)),
            snapshot(SLOTS_MAX - 1, last),
        ] {
            assert_eq!(Node::from(INodeNo::from(node)), node);
        }
    }
}
