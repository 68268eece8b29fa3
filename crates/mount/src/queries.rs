//! Directories that are queries: names in brackets below any directory, with symbolic links to what
//! is found (Loris, section III-B-2). They exist while the kernel knows them.
//!
//! Queries run in threads of their own (`pool`), so that nobody's questions keep those busy that
//! everybody needs.

use crate::duplicates::{Duplicate, Refused, duplicates};
use crate::past::{Pasts, is_past};
use crate::pool::{Pool, QUERIES};
use crate::results::{self, DEPTH_MAX, Hit, Hits, RESULTS_MAX, keep_recent, target_of};
use canopy_model::Credentials;
use canopy_namespace::inode::file_type;
use canopy_namespace::query::{Component, Expression};
use canopy_namespace::{Error, FileId, Found, Inode, Namespace, Present};
use parking_lot::Mutex;
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Ids from here on are of what no record has.
pub(crate) const FIRST: u64 = 1 << 63;

/// The directory that lists the snapshots.
const SNAPSHOTS: &[u8] = b"[@]";

/// So many refused queries a minute are told of.
const REFUSALS_MAX: u32 = 100;

/// Names are looked up in what was found so long ago at most.
const FRESH: Duration = Duration::from_secs(10);

/// Those in what took long to find, in what was found so long ago.
const FRESH_DUPLICATES: Duration = Duration::from_secs(300);

/// What so many queries found last is kept, and no more results than this together.
const KEPT_MAX: usize = 64;

type Answer<T> = Result<T, Error>;

/// Tells why a query was refused.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

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

/// What queries ask for together.
struct Meaning {
    expression: Expression,
    /// How many results the last of them wants.
    limit: usize,
    /// Whether those are wanted whose contents another one has.
    reads: bool,
}

/// Who asked what, and what was found.
struct Kept {
    node: u64,
    who: Credentials,
    /// Until when names are looked up in it.
    until: Instant,
    hits: Arc<Hits>,
}

pub(crate) struct Queries {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) pasts: Pasts,
    log: Log,
    nodes: Mutex<Nodes>,
    kept: Mutex<Vec<Kept>>,
    pool: Pool,
    /// For what reads files, which takes longer.
    readers: Pool,
    /// When refusals were counted from, and how many there were.
    refusals: Mutex<(Instant, u32)>,
}

/// Returns whether a component asks for files with the same contents. Reads no other component:
/// regular expressions take long to compile.
fn is_duplicates(component: &[u8]) -> bool {
    let inner = component.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    inner.is_some_and(|inner| inner.trim_ascii().eq_ignore_ascii_case(b"duplicates"))
}

/// Returns whether an id is one of ours.
pub(crate) fn is_virtual(id: u64) -> bool {
    id >= FIRST
}

impl Queries {
    pub(crate) fn new(namespace: Arc<Namespace>, log: Log) -> Self {
        Queries {
            pasts: Pasts::new(namespace.clone()),
            namespace,
            log,
            nodes: Mutex::default(),
            kept: Mutex::default(),
            pool: Pool::new(QUERIES),
            readers: Pool::new(QUERIES),
            refusals: Mutex::new((Instant::now(), 0)),
        }
    }

    /// Does something that may take long for a user in another thread.
    pub(crate) fn run(self: &Arc<Self>, uid: u32, work: impl FnOnce(&Queries) + Send + 'static) {
        let queries = self.clone();
        self.pool.run(uid, move || work(&queries));
    }

    /// Does the same for what reads many files.
    pub(crate) fn run_reader(
        self: &Arc<Self>,
        uid: u32,
        work: impl FnOnce(&Queries) + Send + 'static,
    ) {
        let queries = self.clone();
        self.readers.run(uid, move || work(&queries));
    }

    /// Does something with what a query finds for a user in a thread that nobody waits for who need
    /// not: in another one if files are read.
    pub(crate) fn run_query(
        self: &Arc<Self>,
        uid: u32,
        query: u64,
        work: impl FnOnce(&Queries) + Send + 'static,
    ) {
        let reads = self
            .chain(query)
            .is_ok_and(|(_, names)| names.last().is_some_and(|name| is_duplicates(name)));
        if reads { self.run_reader(uid, work) } else { self.run(uid, work) }
    }

    /// Tells whoever looks after the mount.
    pub(crate) fn tell(&self, what: &str) {
        (self.log)(what);
    }

    /// Returns what a component that names a snapshot stands for below a directory; none if it names
    /// none.
    pub(crate) fn snapshot(
        &self,
        parent: u64,
        name: &[u8],
        who: impl FnOnce() -> Answer<Credentials>,
    ) -> Option<Answer<Inode>> {
        if !name.starts_with(b"[@") || name == SNAPSHOTS {
            return None;
        }
        let snapshot = match self.parsed(name) {
            Ok(Some(Component::Snapshot(snapshot))) => snapshot,
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        };
        if is_virtual(parent) || is_past(parent) {
            let why = "a snapshot stands below a directory of now, and queries below it";
            return Some(Err(self.refuse(name, why)));
        }
        let entered = who().and_then(|who| self.pasts.enter(parent, &snapshot, &who));
        Some(entered.map_err(|error| match error.errno() {
            Errno::NOENT => self.refuse(name, "no such snapshot has this directory"),
            _ => error,
        }))
    }

    /// Returns the node of a query below a directory or another query, and holds it.
    pub(crate) fn query(&self, parent: u64, name: &[u8]) -> Answer<Inode> {
        let (base, above) = self.chain(parent)?;
        if above.len() >= DEPTH_MAX {
            return Err(self.refuse(name, &format!("{DEPTH_MAX} queries below each other at most")));
        }
        if name == SNAPSHOTS && (is_virtual(parent) || is_past(base)) {
            return Err(self.refuse(name, "snapshots are listed below directories of now"));
        }
        // Those above were looked up before.
        match above.last() {
            Some(last) if is_duplicates(last) || last == SNAPSHOTS => {
                return Err(self.refuse(last, results::NO_QUERY));
            }
            _ if name == SNAPSHOTS => {}
            _ => drop(self.meaning(&[name.to_vec()])?),
        }
        let base = match is_past(base) {
            true => self.pasts.inode(base)?,
            false => self.namespace.inode(base)?,
        };
        if !base.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        Ok(self.hold(parent, name, None))
    }

    /// Returns the link of a result of a query, and holds it.
    pub(crate) fn result(&self, query: u64, name: &[u8], who: &Credentials) -> Answer<Inode> {
        let kept = self.kept(query, who).filter(|hits| hits.get(name).is_some());
        let hits = match kept {
            Some(hits) => hits,
            // It may have come since.
            None => self.find(query, who)?,
        };
        let hit = hits.get(name).ok_or(Errno::NOENT)?;
        Ok(self.hold_hit(query, hit))
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

    pub(crate) fn refuse(&self, name: &[u8], why: &str) -> Error {
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

    /// Reads a component in brackets.
    fn parsed(&self, name: &[u8]) -> Answer<Option<Component>> {
        let parsed = results::parsed(name, self.namespace.now_ns());
        parsed.map_err(|refusal| self.refuse(refusal.component, &refusal.why))
    }

    /// Returns what queries ask for together.
    fn meaning(&self, components: &[Vec<u8>]) -> Answer<Meaning> {
        let (last, others) = components.split_last().ok_or(Errno::NOENT)?;
        let reads = is_duplicates(last);
        let searches = if reads { others } else { components };
        let meaning = results::meaning(searches, self.namespace.now_ns());
        let (expression, limit) =
            meaning.map_err(|refusal| self.refuse(refusal.component, &refusal.why))?;
        Ok(Meaning { expression, limit, reads })
    }

    /// Runs a query for who asks, and keeps what it finds.
    pub(crate) fn find(&self, query: u64, who: &Credentials) -> Answer<Arc<Hits>> {
        let (base, components) = self.chain(query)?;
        if components == [SNAPSHOTS] {
            return Ok(Arc::new(links_to_snapshots(&self.namespace)));
        }
        let Meaning { expression, limit, reads } = self.meaning(&components)?;
        let last = components.last().map_or(&b""[..], Vec::as_slice);
        let too_much = |why: &str| {
            self.refuse(last, why);
            Error::from(Errno::TOOBIG)
        };
        let hits = if reads {
            let found = duplicates(self, base, &expression, who, RESULTS_MAX);
            let found = found.map_err(|refused| match refused {
                Refused::Because(why) => too_much(&why),
                Refused::Failed(error) => error,
            })?;
            links_to_duplicates(found, components.len())
        } else {
            let mut found = Vec::new();
            let mut is_too_much = false;
            self.search(base, &expression, who, |one| {
                found.push(one);
                if limit < RESULTS_MAX && found.len() > 4 * limit {
                    keep_recent(&mut found, limit);
                }
                is_too_much = found.len() > RESULTS_MAX;
                !is_too_much
            })?;
            if is_too_much {
                return Err(too_much(&format!("more than {RESULTS_MAX} files; ask for fewer")));
            }
            keep_recent(&mut found, limit);
            Hits::new(found, components.len())
        };
        let hits = Arc::new(hits);
        let until = Instant::now() + if reads { FRESH_DUPLICATES } else { FRESH };
        let mut kept = self.kept.lock();
        kept.retain(|one| one.until > Instant::now() && (one.node, &one.who) != (query, who));
        let results = |kept: &[Kept]| kept.iter().map(|one| one.hits.hits.len()).sum::<usize>();
        while !kept.is_empty()
            && (kept.len() >= KEPT_MAX || results(&kept) + hits.hits.len() > RESULTS_MAX)
        {
            kept.remove(0);
        }
        kept.push(Kept { node: query, who: who.clone(), until, hits: hits.clone() });
        Ok(hits)
    }

    /// Tells the files below a directory of now or then that a user may see.
    pub(crate) fn search(
        &self,
        base: u64,
        expression: &Expression,
        who: &Credentials,
        tell: impl FnMut(Found) -> bool,
    ) -> Answer<()> {
        if !is_past(base) {
            return self.namespace.search(base, expression, who, tell);
        }
        let (past, _, base) = self.pasts.locate(base)?;
        past.search(base, expression, Present::new(&self.namespace, who), tell)
    }

    fn kept(&self, query: u64, who: &Credentials) -> Option<Arc<Hits>> {
        let kept = self.kept.lock();
        let mut fresh = kept.iter().filter(|one| one.until > Instant::now());
        fresh.find(|one| one.node == query && one.who == *who).map(|one| one.hits.clone())
    }
}

/// Links to files whose contents another one has.
fn links_to_duplicates(found: Vec<Duplicate>, depth: usize) -> Hits {
    let hits = found.into_iter().map(|Duplicate { name, found }| {
        let target = target_of(&found, depth);
        Hit { name, target, inode: found.inode }
    });
    Hits::of(hits.collect())
}

/// Links to all snapshots by their names.
fn links_to_snapshots(namespace: &Namespace) -> Hits {
    let hits = namespace.snapshots().into_iter().map(|snapshot| {
        let time_ns = snapshot.created_ns;
        let inode = Inode { mtime_ns: time_ns, ctime_ns: time_ns, ..Inode::default() };
        let target = format!("../[@{}]", snapshot.name).into_bytes();
        Hit { name: snapshot.name.into_bytes(), target, inode }
    });
    Hits::of(hits.collect())
}

fn attributes_of(id: u64, node: &Node) -> Inode {
    match &node.link {
        Some(link) => Inode { id, ..link.clone() },
        None => Inode { id, mode: file_type::DIRECTORY | 0o555, nlink: 2, ..Inode::default() },
    }
}
