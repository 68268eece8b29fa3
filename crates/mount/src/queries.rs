//! Directories that are queries: names in brackets below any directory, with symbolic links to what
//! is found (Loris, section III-B-2). They exist while the kernel knows them.
//!
//! Queries run in threads of their own (`pool`), so that nobody's questions keep those busy that
//! everybody needs.

use crate::pool::Pool;
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::query::{
    Component, Context, Expression, Field, Span, Types, parse, system_zone,
};
use canopy_namespace::{Error, FileId, Found, Inode, NAME_BYTES_MAX, Namespace};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ids from here on are of what no record has.
const FIRST: u64 = 1 << 63;

/// So many queries one below the other.
const DEPTH_MAX: usize = 16;

/// A query that finds more fails, and so does opening one if a user's open ones have more together:
/// what they found is in memory.
pub(crate) const RESULTS_MAX: usize = 500_000;

/// So many files are recent if nobody says since when.
const RECENT: usize = 1000;

/// So many refused queries a minute are told of.
const REFUSALS_MAX: u32 = 100;

/// Names are looked up in what was found so long ago at most.
const FRESH: Duration = Duration::from_secs(10);

/// What so many queries found last is kept, and no more results than this together.
const KEPT_MAX: usize = 64;

type Answer<T> = Result<T, Error>;

/// Tells why a query was refused.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// One result: a name that no other has, where it leads, and the file that it leads to.
pub(crate) struct Hit {
    pub(crate) name: Vec<u8>,
    target: Vec<u8>,
    inode: Inode,
}

/// What a query found.
pub(crate) struct Hits {
    pub(crate) hits: Vec<Hit>,
    by_name: HashMap<Vec<u8>, usize>,
}

/// What the kernel knows by an id of ours.
struct Node {
    parent: u64,
    name: Vec<u8>,
    /// Where it leads, with the attributes of a symbolic link; none if it is a query.
    link: Option<Inode>,
    lookups: u64,
}

#[derive(Default)]
struct Nodes {
    next: u64,
    by_id: HashMap<u64, Node>,
    /// By the query above, the name, and where it leads: who asks and when decides which file has a
    /// name among results, and the kernel remembers where a link leads by its id.
    by_name: HashMap<(u64, Vec<u8>, Vec<u8>), u64>,
}

/// Who asked what, when, and what was found.
struct Kept {
    node: u64,
    who: Credentials,
    at: Instant,
    hits: Arc<Hits>,
}

pub(crate) struct Queries {
    namespace: Arc<Namespace>,
    log: Log,
    nodes: Mutex<Nodes>,
    kept: Mutex<Vec<Kept>>,
    pool: Pool,
    /// When refusals were counted from, and how many there were.
    refusals: Mutex<(Instant, u32)>,
}

/// Returns whether an id is one of ours.
pub(crate) fn is_virtual(id: u64) -> bool {
    id >= FIRST
}

/// Returns whether a name is in brackets.
pub(crate) fn is_query(name: &[u8]) -> bool {
    name.len() > 2 && name.starts_with(b"[") && name.ends_with(b"]")
}

/// Returns who a process is, with all its groups as far as it can be found.
pub(crate) fn credentials(uid: u32, gid: u32, pid: u32) -> Credentials {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let groups = groups.split_whitespace().filter_map(|group| group.parse().ok());
    Credentials::new(uid, groups.chain([gid]))
}

impl Queries {
    pub(crate) fn new(namespace: Arc<Namespace>, log: Log) -> Self {
        Queries {
            namespace,
            log,
            nodes: Mutex::default(),
            kept: Mutex::default(),
            pool: Pool::new(),
            refusals: Mutex::new((Instant::now(), 0)),
        }
    }

    /// Does something that may take long for a user in another thread.
    pub(crate) fn run(self: &Arc<Self>, uid: u32, work: impl FnOnce(&Queries) + Send + 'static) {
        let queries = self.clone();
        self.pool.run(uid, move || work(&queries));
    }

    /// Returns the node of a query below a directory or another query, and holds it.
    pub(crate) fn query(&self, parent: u64, name: &[u8]) -> Answer<Inode> {
        let (base, mut components) = self.chain(parent)?;
        components.push(name.to_vec());
        if components.len() > DEPTH_MAX {
            return Err(self.refuse(name, &format!("{DEPTH_MAX} queries below each other at most")));
        }
        self.meaning(&components)?;
        if !self.namespace.inode(base)?.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(self.hold(parent, name, None))
    }

    /// Returns the link of a result of a query, and holds it.
    pub(crate) fn result(&self, query: u64, name: &[u8], who: &Credentials) -> Answer<Inode> {
        let kept = self.kept(query, who).filter(|hits| hits.by_name.contains_key(name));
        let hits = match kept {
            Some(hits) => hits,
            // It may have come since.
            None => self.find(query, who)?,
        };
        let at = hits.by_name.get(name).ok_or(Errno::NOENT)?;
        Ok(self.hold_hit(query, &hits.hits[*at]))
    }

    /// Holds the link of a result and returns it.
    pub(crate) fn hold_hit(&self, query: u64, hit: &Hit) -> Inode {
        let link = Inode {
            mode: file_type::SYMLINK | 0o777,
            nlink: 1,
            size: hit.target.len() as u64,
            blocks: 0,
            target: hit.target.clone(),
            ..hit.inode.clone()
        };
        self.hold(query, &hit.name, Some(link))
    }

    fn hold(&self, parent: u64, name: &[u8], link: Option<Inode>) -> Inode {
        let mut nodes = self.nodes.lock();
        let target = link.as_ref().map_or_else(Vec::new, |link| link.target.clone());
        let key = (parent, name.to_vec(), target);
        let known = nodes.by_name.get(&key).copied();
        let id = known.unwrap_or_else(|| {
            nodes.next += 1;
            FIRST + nodes.next
        });
        nodes.by_name.entry(key).or_insert(id);
        let node = nodes.by_id.entry(id).or_insert_with(|| Node {
            parent,
            name: name.to_vec(),
            link: None,
            lookups: 0,
        });
        node.lookups += 1;
        node.link = link;
        attributes_of(id, node)
    }

    /// Takes back what lookups did so many times.
    pub(crate) fn release(&self, id: u64, times: u64) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.by_id.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(times);
        if node.lookups == 0
            && let Some(node) = nodes.by_id.remove(&id)
        {
            let target = node.link.map_or_else(Vec::new, |link| link.target);
            nodes.by_name.remove(&(node.parent, node.name, target));
        }
    }

    /// Returns the attributes of what has an id of ours.
    pub(crate) fn inode(&self, id: u64) -> Answer<Inode> {
        let nodes = self.nodes.lock();
        let node = nodes.by_id.get(&id).ok_or(Errno::NOENT)?;
        Ok(attributes_of(id, node))
    }

    /// Returns the directory below which a query hangs, and the queries on the way.
    fn chain(&self, mut at: u64) -> Answer<(FileId, Vec<Vec<u8>>)> {
        let nodes = self.nodes.lock();
        let mut components = Vec::new();
        while is_virtual(at) {
            let node = nodes.by_id.get(&at).ok_or(Errno::NOENT)?;
            if node.link.is_some() {
                return Err(Errno::NOTDIR.into());
            }
            components.push(node.name.clone());
            at = node.parent;
        }
        components.reverse();
        Ok((at, components))
    }

    fn refuse(&self, name: &[u8], why: &str) -> Error {
        let mut refusals = self.refusals.lock();
        if refusals.0.elapsed() > Duration::from_secs(60) {
            *refusals = (Instant::now(), 0);
        }
        refusals.1 = refusals.1.saturating_add(1);
        let count = refusals.1;
        drop(refusals);
        // Anybody may ask anything, and what is told takes space.
        if count <= REFUSALS_MAX {
            (self.log)(&format!("the query {}: {why}", name.escape_ascii()));
        }
        Errno::NOENT.into()
    }

    /// Returns what queries ask for together, and how many results the last of them wants.
    fn meaning(&self, components: &[Vec<u8>]) -> Answer<(Expression, usize)> {
        let user = |name: &str| {
            let user = nix::unistd::User::from_name(name).ok().flatten();
            user.map(|user| user.uid.as_raw())
        };
        let group = |name: &str| {
            let group = nix::unistd::Group::from_name(name).ok().flatten();
            group.map(|group| group.gid.as_raw())
        };
        let now_ns = self.namespace.now_ns();
        let context = Context { now_ns, zone: system_zone(), user: &user, group: &group };
        let (mut all, mut limit) = (Vec::new(), RESULTS_MAX);
        for name in components {
            let parsed = parse(name, &context);
            match parsed.map_err(|error| self.refuse(name, &error.to_string()))? {
                Some(Component::Search(expression)) => all.push(expression),
                Some(Component::Recent { since_ns }) => {
                    let files = Types::of('f').ok_or(Errno::NOENT)?;
                    all.push(Expression::types(files));
                    match since_ns {
                        Some(since_ns) => {
                            let most = Field::Mtime.domain().most;
                            let span = Span { least: since_ns.into(), most };
                            all.push(Expression::span(Field::Mtime, span));
                        }
                        None => limit = RECENT,
                    }
                }
                _ => return Err(self.refuse(name, "there are no such directories here yet")),
            }
        }
        Ok((Expression::all(all), limit))
    }

    /// Runs a query for who asks, and keeps what it finds.
    pub(crate) fn find(&self, query: u64, who: &Credentials) -> Answer<Arc<Hits>> {
        let (base, components) = self.chain(query)?;
        let (expression, limit) = self.meaning(&components)?;
        let mut found = Vec::new();
        let mut is_too_much = false;
        self.namespace.search(base, &expression, who, |one| {
            found.push(one);
            if limit < RESULTS_MAX && found.len() > 4 * limit {
                keep_recent(&mut found, limit);
            }
            is_too_much = found.len() > RESULTS_MAX;
            !is_too_much
        })?;
        if is_too_much {
            let why = format!("more than {RESULTS_MAX} files; ask for fewer");
            self.refuse(components.last().map_or(b"", Vec::as_slice), &why);
            return Err(Errno::TOOBIG.into());
        }
        keep_recent(&mut found, limit);
        let hits = Arc::new(Hits::new(found, components.len()));
        let mut kept = self.kept.lock();
        kept.retain(|one| one.at.elapsed() < FRESH && (one.node, &one.who) != (query, who));
        let results = |kept: &[Kept]| kept.iter().map(|one| one.hits.hits.len()).sum::<usize>();
        while !kept.is_empty()
            && (kept.len() >= KEPT_MAX || results(&kept) + hits.hits.len() > RESULTS_MAX)
        {
            kept.remove(0);
        }
        kept.push(Kept { node: query, who: who.clone(), at: Instant::now(), hits: hits.clone() });
        Ok(hits)
    }

    fn kept(&self, query: u64, who: &Credentials) -> Option<Arc<Hits>> {
        let kept = self.kept.lock();
        let mut fresh = kept.iter().filter(|one| one.at.elapsed() < FRESH);
        fresh.find(|one| one.node == query && one.who == *who).map(|one| one.hits.clone())
    }
}

/// Leaves the files that were changed last.
fn keep_recent(found: &mut Vec<Found>, limit: usize) {
    if found.len() > limit {
        found.sort_unstable_by_key(|one| std::cmp::Reverse(one.inode.mtime_ns));
        found.truncate(limit);
    }
}

impl Hits {
    /// Gives what was found names, each once: the file's own, or with its id if another file has
    /// it. Links lead up through `depth` queries.
    fn new(mut found: Vec<Found>, depth: usize) -> Self {
        found.sort_by(|one, other| {
            let key = |one: &Found| (one.inode.id, one.path.clone());
            name_of(&one.path).cmp(name_of(&other.path)).then_with(|| key(one).cmp(&key(other)))
        });
        let firsts = found.iter().map(|one| name_of(&one.path).to_vec());
        let mut used: HashSet<Vec<u8>> = firsts.collect();
        let mut hits: Vec<Hit> = Vec::with_capacity(found.len());
        let mut before: Vec<u8> = Vec::new();
        for Found { path, inode } in found {
            let own = name_of(&path).to_vec();
            let mut name = own.clone();
            // A name that is a query would be taken for one.
            if own == before || is_query(&own) {
                name = unused(&own, inode.id, &used);
                used.insert(name.clone());
            }
            before = own;
            let target = [b"../".repeat(depth), path].concat();
            hits.push(Hit { name, target, inode });
        }
        let names = hits.iter().enumerate().map(|(at, hit)| (hit.name.clone(), at));
        Hits { by_name: names.collect(), hits }
    }
}

/// Returns a name that is not used yet, made of one that is.
fn unused(name: &[u8], id: FileId, used: &HashSet<Vec<u8>>) -> Vec<u8> {
    // Somebody may have called a file so, or it has several names.
    let suffixes = (0_u64..).map(|number| match number {
        0 => format!("~{id}"),
        _ => format!("~{id}~{number}"),
    });
    let mut names = suffixes.map(|suffix| {
        let kept = &name[..name.len().min(NAME_BYTES_MAX - suffix.len())];
        [kept, suffix.as_bytes()].concat()
    });
    names.find(|name| !used.contains(name)).unwrap_or_default()
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

fn attributes_of(id: u64, node: &Node) -> Inode {
    match &node.link {
        Some(link) => Inode { id, ..link.clone() },
        None => Inode { id, mode: file_type::DIRECTORY | 0o555, nlink: 2, ..Inode::default() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_result_has_a_name_of_its_own() {
        let long = "x".repeat(NAME_BYTES_MAX);
        let cut = |suffix: &str| format!("{}{suffix}", &long[..NAME_BYTES_MAX - suffix.len()]);
        // Somebody has called files as the second one with the long name would be called.
        let names = [&long, &long, &long, &cut("~7"), &cut("~"), &cut("~7~"), &cut("~7~1")];
        let found = names.iter().enumerate().map(|(at, name)| Found {
            path: format!("{at}/{name}").into_bytes(),
            inode: Inode { id: 7, ..Inode::default() },
        });
        let hits = Hits::new(found.collect(), 1).hits;
        let unique: HashSet<&Vec<u8>> = hits.iter().map(|hit| &hit.name).collect();
        assert_eq!(unique.len(), names.len());
        assert!(hits.iter().all(|hit| hit.name.len() <= NAME_BYTES_MAX));
    }
}
