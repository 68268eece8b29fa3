//! Queries that the kernel knows, and links to their results.

use crate::node::{Node, QueryId, Shown};
use canopy_fuse::results::{About, Hits};
use canopy_namespace::inode::file_type;
use canopy_namespace::{Error, Inode};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

type Answer<T> = Result<T, Error>;

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

struct QueryNode {
    parent: Node,
    name: Arc<[u8]>,
    /// None if it is a query.
    link: Option<Link>,
    lookups: u64,
}

#[derive(Default)]
struct All {
    next: u64,
    by_id: HashMap<QueryId, QueryNode>,
    /// By the query above, the name, and where it leads: who asks and when decides which file has a
    /// name among results, and the kernel remembers where a link leads by its id.
    by_name: HashMap<(Node, Arc<[u8]>, Option<Mark>), QueryId>,
}

#[derive(Default)]
pub(crate) struct QueryNodes(Mutex<All>);

/// Where a link leads.
pub(crate) enum Target {
    Here(Vec<u8>),
    /// The results of the query above are gone: it must run again to find a name whose target has
    /// this hash.
    Gone(QueryId, Arc<[u8]>, Mark),
}

impl QueryNodes {
    /// Returns the node of a query below a directory or another query, and holds it.
    pub(crate) fn hold_query(&self, parent: Node, name: &[u8]) -> (QueryId, Inode) {
        self.0.lock().hold(parent, name, None)
    }

    /// Returns the link to a result of a query, and holds it.
    pub(crate) fn hold_hit(
        &self,
        query: QueryId,
        hits: &Arc<Hits>,
        number: usize,
    ) -> (QueryId, Inode) {
        let target = hits.target(number);
        let link = Link {
            mark: mark_of(&target),
            target_bytes: target.len() as u64,
            about: *hits.about(number),
            found: (Arc::downgrade(hits), number as u32),
        };
        self.0.lock().hold(Node::Query(query), hits.name(number), Some(link))
    }

    /// Drops `times` lookups of a node.
    pub(crate) fn release(&self, id: QueryId, times: u64) {
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

    /// Returns a query or a link with its attributes.
    pub(crate) fn shown(&self, id: QueryId) -> Answer<Shown> {
        let all = self.0.lock();
        let node = all.by_id.get(&id).ok_or(Errno::NOENT)?;
        Ok(Shown { node: Node::Query(id), inode: attributes_of(node) })
    }

    /// Returns where a link leads.
    pub(crate) fn target(&self, id: QueryId) -> Answer<Target> {
        let all = self.0.lock();
        let node = all.by_id.get(&id).ok_or(Errno::NOENT)?;
        let Link { mark, found: (hits, number), .. } = node.link.as_ref().ok_or(Errno::INVAL)?;
        Ok(match hits.upgrade() {
            Some(hits) => Target::Here(hits.target(*number as usize)),
            None => match node.parent {
                Node::Query(query) => Target::Gone(query, node.name.clone(), *mark),
                _ => return Err(Errno::INVAL.into()),
            },
        })
    }

    /// Returns the parent of a query or a link.
    pub(crate) fn parent(&self, id: QueryId) -> Option<Node> {
        self.0.lock().by_id.get(&id).map(|node| node.parent)
    }

    /// Returns the directory below which a node hangs, and the queries on the way. The directory is
    /// not a query.
    pub(crate) fn chain(&self, mut at: Node) -> Answer<(Node, Vec<Vec<u8>>)> {
        let all = self.0.lock();
        let mut components = Vec::new();
        while let Node::Query(id) = at {
            let node = all.by_id.get(&id).ok_or(Errno::NOENT)?;
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
    fn hold(&mut self, parent: Node, name: &[u8], link: Option<Link>) -> (QueryId, Inode) {
        let name: Arc<[u8]> = name.into();
        let key = (parent, name.clone(), link.as_ref().map(|link| link.mark));
        let known = self.by_name.get(&key).copied();
        let id = known.unwrap_or_else(|| {
            self.next += 1;
            QueryId(self.next)
        });
        self.by_name.entry(key).or_insert(id);
        let new = || QueryNode { parent, name, link: None, lookups: 0 };
        let node = self.by_id.entry(id).or_insert_with(new);
        node.lookups += 1;
        node.link = link;
        (id, attributes_of(node))
    }
}

fn attributes_of(node: &QueryNode) -> Inode {
    let Some(Link { target_bytes, about, .. }) = &node.link else {
        return Inode { mode: file_type::DIRECTORY | 0o555, nlink: 2, ..Inode::default() };
    };
    Inode {
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
    use canopy_fuse::results::{Findings, FoundFile, RESULTS_MAX};
    use canopy_namespace::FileId;

    #[test]
    fn links_know_where_they_lead_while_that_is_kept() {
        let nodes = QueryNodes::default();
        let directory = Node::File(FileId(7));
        let (query, _) = nodes.hold_query(directory, b"[true]");
        let hits = |path: &str| {
            let mut findings = Findings::new(RESULTS_MAX);
            let path = path.as_bytes().to_vec();
            findings.add(&FoundFile { path, ..FoundFile::default() });
            Arc::new(findings.into_hits(1))
        };
        let (one, other) = (hits("a/x"), hits("b/x"));
        let (link, inode) = nodes.hold_hit(query, &one, 0);
        assert_eq!((inode.size, nodes.hold_hit(query, &one, 0).0), (6, link));
        // Another file has the name now: the kernel may remember the first one.
        assert_ne!(nodes.hold_hit(query, &other, 0).0, link);
        assert!(matches!(nodes.target(link), Ok(Target::Here(path)) if path == b"../a/x"));
        drop(one);
        let Ok(Target::Gone(parent, name, mark)) = nodes.target(link) else {
            panic!("nobody keeps it")
        };
        assert_eq!((parent, &*name), (query, &b"x"[..]));
        assert!(target_with(&other, 0, &mark).is_none());
        assert_eq!(target_with(&hits("a/x"), 0, &mark), Some(b"../a/x".to_vec()));
        nodes.release(link, 2);
        assert!(nodes.shown(link).is_err());
        assert_eq!(
            nodes.chain(Node::Query(query)).expect("the query"),
            (directory, vec![b"[true]".to_vec()])
        );
    }
}
