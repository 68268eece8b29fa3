//! Nodes that the kernel knows by an id: entries by the paths that led to them, queries and their
//! results.
//!
//! An id gives no rights: each caller is answered by the entry at its path, as that caller sees it.

use crate::protocol::{Entry, Folder, KnownEntry};
use canopy_model::{Credentials, Device};
use parking_lot::Mutex;
use std::collections::HashMap;

/// The root of the mount.
pub(crate) const ROOT: u64 = 1;

/// Ids from here on are of nodes that have no inode number of their own, or one that is taken.
const FIRST: u64 = 1 << 62;

/// Most paths of a file with several names that are remembered, the latest ones first.
const PATHS_MAX: usize = 4;

/// A node that the kernel knows.
#[derive(Clone)]
pub(crate) enum Node {
    /// An entry of the index, or a directory above sources.
    Entry(KnownEntry),
    Query(Folder),
    /// A link to a result of a query, for a user.
    Hit(Box<Hit>),
}

/// A link to a result of a query.
#[derive(Clone)]
pub(crate) struct Hit {
    pub(crate) who: Credentials,
    pub(crate) entry: Entry,
}

/// Identity of a node.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Identity {
    Inode(Device, u64),
    Path(Vec<u8>),
    Query(Folder),
    /// By query, name, where it leads, and who asked.
    Hit(Folder, Vec<u8>, Vec<u8>, u32, Vec<u32>),
}

struct Known {
    node: Node,
    identity: Identity,
    lookups: u64,
}

#[derive(Default)]
struct All {
    next: u64,
    by_id: HashMap<u64, Known>,
    by_identity: HashMap<Identity, u64>,
}

pub(crate) struct Nodes(Mutex<All>);

impl Nodes {
    pub(crate) fn new() -> Self {
        let place = KnownEntry { paths: vec![Vec::new()], inode: None };
        let identity = Identity::Path(Vec::new());
        let root = Known { node: Node::Entry(place), identity: identity.clone(), lookups: 1 };
        let by_id = HashMap::from([(ROOT, root)]);
        Nodes(Mutex::new(All { next: 0, by_id, by_identity: HashMap::from([(identity, ROOT)]) }))
    }

    pub(crate) fn get(&self, id: u64) -> Option<Node> {
        self.0.lock().by_id.get(&id).map(|known| known.node.clone())
    }

    /// Holds an entry that was found at a path, and returns its id.
    pub(crate) fn hold_entry(&self, entry: &Entry, path: Vec<u8>) -> u64 {
        let identity = identity_of(entry, &path);
        let mut all = self.0.lock();
        let inode = (entry.ino != 0).then_some((entry.dev, entry.ino));
        let id =
            all.hold(identity, entry.ino, || Node::Entry(KnownEntry { paths: Vec::new(), inode }));
        if let Some(Known { node: Node::Entry(place), .. }) = all.by_id.get_mut(&id)
            && place.paths.first() != Some(&path)
        {
            place.paths.retain(|known| *known != path);
            place.paths.truncate(PATHS_MAX - 1);
            place.paths.insert(0, path);
        }
        id
    }

    /// Holds a query, and returns its id.
    pub(crate) fn hold_query(&self, folder: Folder) -> u64 {
        self.0.lock().hold(Identity::Query(folder.clone()), 0, || Node::Query(folder))
    }

    /// Holds a result of a query, and returns its id.
    pub(crate) fn hold_hit(&self, query: &Folder, name: &[u8], hit: Hit) -> u64 {
        let (uid, gids, target) = (hit.who.uid, hit.who.gids.clone(), hit.entry.target.clone());
        let identity = Identity::Hit(query.clone(), name.to_vec(), target, uid, gids);
        let mut all = self.0.lock();
        let id = all.hold(identity, 0, || Node::Hit(Box::new(hit.clone())));
        if let Some(known) = all.by_id.get_mut(&id) {
            known.node = Node::Hit(Box::new(hit));
        }
        id
    }

    /// Returns the number that a directory shows for an entry: its id, as far as it is known.
    pub(crate) fn number(&self, entry: &Entry, path: &[u8]) -> u64 {
        let known = self.0.lock().by_identity.get(&identity_of(entry, path)).copied();
        known.unwrap_or(if entry.ino == 0 { FIRST } else { entry.ino })
    }

    /// Takes back what lookups did so many times.
    pub(crate) fn release(&self, id: u64, times: u64) {
        let mut all = self.0.lock();
        let Some(known) = all.by_id.get_mut(&id) else { return };
        known.lookups = known.lookups.saturating_sub(times);
        if known.lookups == 0
            && id != ROOT
            && let Some(known) = all.by_id.remove(&id)
        {
            all.by_identity.remove(&known.identity);
        }
    }
}

fn identity_of(entry: &Entry, path: &[u8]) -> Identity {
    match entry.ino {
        0 => Identity::Path(path.to_vec()),
        ino => Identity::Inode(entry.dev, ino),
    }
}

impl All {
    fn hold(&mut self, identity: Identity, ino: u64, node: impl FnOnce() -> Node) -> u64 {
        let known = self.by_identity.get(&identity).copied();
        let id = known.unwrap_or_else(|| {
            if (ROOT + 1..FIRST).contains(&ino) && !self.by_id.contains_key(&ino) {
                return ino;
            }
            self.next += 1;
            FIRST + self.next
        });
        let lookups = 0;
        if known.is_none() {
            self.by_identity.insert(identity.clone(), id);
            self.by_id.insert(id, Known { node: node(), identity, lookups });
        }
        if let Some(known) = self.by_id.get_mut(&id) {
            known.lookups += 1;
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(dev: Device, ino: u64) -> Entry {
        Entry { dev, ino, ..Entry::default() }
    }

    #[test]
    fn ids_are_inode_numbers_where_they_can_be() {
        let nodes = Nodes::new();
        let first = nodes.hold_entry(&entry(Device(7), 100), b"a".to_vec());
        assert_eq!(first, 100);
        assert_eq!(nodes.hold_entry(&entry(Device(7), 100), b"b".to_vec()), 100);
        let other = nodes.hold_entry(&entry(Device(8), 100), b"c".to_vec());
        assert!(other > FIRST);
        for ino in [0, ROOT, FIRST, u64::MAX] {
            assert!(nodes.hold_entry(&entry(Device(7), ino), b"d".to_vec()) > FIRST, "{ino}");
        }
        let Some(Node::Entry(place)) = nodes.get(100) else { panic!("an entry") };
        assert_eq!(place.paths, [b"b".to_vec(), b"a".to_vec()]);
        nodes.release(100, 1);
        assert!(nodes.get(100).is_some());
        nodes.release(100, 1);
        assert!(nodes.get(100).is_none());
        nodes.release(ROOT, 5);
        assert!(nodes.get(ROOT).is_some());
    }

    #[test]
    fn results_belong_to_who_asked() {
        let nodes = Nodes::new();
        let hit = |uid| Hit { who: Credentials::new(uid, [1]), entry: entry(Device(0), 0) };
        let query = Folder { place: KnownEntry::default(), queries: vec![b"[true]".to_vec()] };
        let (one, other) =
            (nodes.hold_hit(&query, b"x", hit(1)), nodes.hold_hit(&query, b"x", hit(2)));
        assert_ne!(one, other);
        assert_eq!(nodes.hold_hit(&query, b"x", hit(1)), one);
    }
}
