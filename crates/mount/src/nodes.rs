//! Nodes that the kernel knows by an id of ours: queries, and links to their results.

use crate::results::{About, Hits};
use canopy_namespace::inode::file_type;
use canopy_namespace::{Error, FileId, Inode};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// Ids from here on belong to nodes without records.
pub(crate) const FIRST: u64 = 1 << 63;

type Answer<T> = Result<T, Error>;

/// Returns whether an id is one of ours.
pub(crate) fn is_virtual(id: u64) -> bool {
    id >= FIRST
}

/// A hash of a link's target, which distinguishes links with one name. The path itself is not kept,
/// since the kernel may remember very many links.
pub(crate) type Mark = [u8; 16];

fn mark_of(target: &[u8]) -> Mark {
    let mut mark = Mark::default();
    mark.copy_from_slice(&blake3::hash(target).as_bytes()[..16]);
    mark
}

struct Link {
    mark: Mark,
    target_bytes: u64,
    about: About,
    /// Where it was found, as long as something else keeps that, and its number there.
    found: (Weak<Hits>, u32),
}

struct Node {
    parent: u64,
    name: Arc<[u8]>,
    /// None if it is a query.
    link: Option<Link>,
    lookups: u64,
}

#[derive(Default)]
struct All {
    next: u64,
    by_id: HashMap<u64, Node>,
    /// By the query above, the name, and where it leads: who asks and when decides which file has a
    /// name among results, and the kernel remembers where a link leads by its id.
    by_name: HashMap<(u64, Arc<[u8]>, Option<Mark>), u64>,
}

#[derive(Default)]
pub(crate) struct Nodes(Mutex<All>);

/// Where a link leads.
pub(crate) enum Target {
    Here(Vec<u8>),
    /// The results of the query above are gone: it must run again to find a name whose target has
    /// this hash.
    Gone(u64, Arc<[u8]>, Mark),
}

impl Nodes {
    /// Returns the node of a query below a directory or another query, and holds it.
    pub(crate) fn hold_query(&self, parent: u64, name: &[u8]) -> Inode {
        self.0.lock().hold(parent, name, None)
    }

    /// Returns the link to a result of a query, and holds it.
    pub(crate) fn hold_hit(&self, query: u64, hits: &Arc<Hits>, number: usize) -> Inode {
        let target = hits.target(number);
        let link = Link {
            mark: mark_of(&target),
            target_bytes: target.len() as u64,
            about: *hits.about(number),
            found: (Arc::downgrade(hits), number as u32),
        };
        self.0.lock().hold(query, hits.name(number), Some(link))
    }

    /// Drops `times` lookups of a node.
    pub(crate) fn release(&self, id: u64, times: u64) {
        let mut all = self.0.lock();
        let Some(node) = all.by_id.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups == 0
            && let Some(node) = all.by_id.remove(&id)
        {
            let mark = node.link.map(|link| link.mark);
            all.by_name.remove(&(node.parent, node.name, mark));
        }
    }

    /// Returns the attributes of a node with an id of ours.
    pub(crate) fn inode(&self, id: u64) -> Answer<Inode> {
        let all = self.0.lock();
        let node = all.by_id.get(&id).ok_or(Errno::NOENT)?;
        Ok(attributes_of(id, node))
    }

    /// Returns where a link leads.
    pub(crate) fn target(&self, id: u64) -> Answer<Target> {
        let all = self.0.lock();
        let node = all.by_id.get(&id).ok_or(Errno::NOENT)?;
        let Link { mark, found: (hits, number), .. } = node.link.as_ref().ok_or(Errno::INVAL)?;
        Ok(match hits.upgrade() {
            Some(hits) => Target::Here(hits.target(*number as usize)),
            None => Target::Gone(node.parent, node.name.clone(), *mark),
        })
    }

    /// Returns the parent of one of our nodes.
    pub(crate) fn parent(&self, id: u64) -> Option<u64> {
        self.0.lock().by_id.get(&id).map(|node| node.parent)
    }

    /// Returns the directory below which a query hangs, and the queries on the way.
    pub(crate) fn chain(&self, mut at: u64) -> Answer<(FileId, Vec<Vec<u8>>)> {
        let all = self.0.lock();
        let mut components = Vec::new();
        while is_virtual(at) {
            let node = all.by_id.get(&at).ok_or(Errno::NOENT)?;
            if node.link.is_some() {
                return Err(Errno::NOTDIR.into());
            }
            components.push(node.name.to_vec());
            at = node.parent;
        }
        components.reverse();
        Ok((at, components))
    }
}

/// Returns the target of a result if its link was made for that target.
pub(crate) fn target_with(hits: &Hits, number: usize, mark: &Mark) -> Option<Vec<u8>> {
    Some(hits.target(number)).filter(|target| mark_of(target) == *mark)
}

impl All {
    fn hold(&mut self, parent: u64, name: &[u8], link: Option<Link>) -> Inode {
        let name: Arc<[u8]> = name.into();
        let key = (parent, name.clone(), link.as_ref().map(|link| link.mark));
        let known = self.by_name.get(&key).copied();
        let id = known.unwrap_or_else(|| {
            self.next += 1;
            FIRST + self.next
        });
        self.by_name.entry(key).or_insert(id);
        let new = || Node { parent, name, link: None, lookups: 0 };
        let node = self.by_id.entry(id).or_insert_with(new);
        node.lookups += 1;
        node.link = link;
        attributes_of(id, node)
    }
}

fn attributes_of(id: u64, node: &Node) -> Inode {
    let Some(Link { target_bytes, about, .. }) = &node.link else {
        return Inode { id, mode: file_type::DIRECTORY | 0o555, nlink: 2, ..Inode::default() };
    };
    Inode {
        id,
        mode: file_type::SYMLINK | 0o777,
        nlink: 1,
        size: *target_bytes,
        uid: about.uid,
        gid: about.gid,
        mtime_ns: about.mtime_ns,
        ctime_ns: about.ctime_ns,
        atime_ns: about.atime_ns,
        btime_ns: about.btime_ns,
        ..Inode::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Findings, RESULTS_MAX};
    use canopy_namespace::Found;

    #[test]
    fn links_know_where_they_lead_while_that_is_kept() {
        let nodes = Nodes::default();
        let query = nodes.hold_query(7, b"[true]").id;
        let hits = |path: &str| {
            let mut findings = Findings::new(RESULTS_MAX);
            let (path, is_beyond) = (path.as_bytes().to_vec(), false);
            findings.add(&Found { path, is_beyond, inode: Inode::default() });
            Arc::new(findings.into_hits(1))
        };
        let (one, other) = (hits("a/x"), hits("b/x"));
        let link = nodes.hold_hit(query, &one, 0);
        assert_eq!((link.size, nodes.hold_hit(query, &one, 0).id), (6, link.id));
        // Another file has the name now: the kernel may remember the first one.
        assert_ne!(nodes.hold_hit(query, &other, 0).id, link.id);
        assert!(matches!(nodes.target(link.id), Ok(Target::Here(path)) if path == b"../a/x"));
        drop(one);
        let Ok(Target::Gone(parent, name, mark)) = nodes.target(link.id) else {
            panic!("nobody keeps it")
        };
        assert_eq!((parent, &*name), (query, &b"x"[..]));
        assert!(target_with(&other, 0, &mark).is_none());
        assert_eq!(target_with(&hits("a/x"), 0, &mark), Some(b"../a/x".to_vec()));
        nodes.release(link.id, 2);
        assert!(nodes.inode(link.id).is_err());
        assert_eq!(nodes.chain(query).expect("the query"), (7, vec![b"[true]".to_vec()]));
    }
}
