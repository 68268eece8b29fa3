//! Directories that are queries: names in brackets below any directory, with symbolic links to what
//! is found (Loris, section III-B-2). They exist while the kernel knows them.
//!
//! Queries run in threads of their own (`pool`), so that nobody's questions keep those busy that
//! everybody needs.

use crate::duplicates::{Refused, duplicates};
use crate::kept::ResultCache;
use crate::node::{Node, QueryId, Shown};
use crate::nodes::{QueryNodes, Target, target_with};
use crate::past::Pasts;
use crate::pool::{Pool, QUERIES, Turn};
use crate::refusals::{Asking, Refusals};
use canopy_as_user::Accounts;
use canopy_fuse::budget::Budget;
use canopy_fuse::results::{
    self, About, BYTES_MAX, DEPTH_MAX, Findings, FoundFile, Hits, RESULTS_MAX,
};
use canopy_model::Credentials;
use canopy_namespace::operation::{Moment, Query};
use canopy_namespace::{Error, Execute, FileId, Found, Inode, SnapshotInfo};
use canopy_query::{Component, Expression};
use rustix::io::Errno;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The directory that lists the snapshots.
const SNAPSHOTS: &[u8] = b"[@]";

/// Names are looked up in what was found so long ago at most.
const FRESH: Duration = Duration::from_secs(10);

/// Those in what took long to find, in what was found so long ago.
const FRESH_DUPLICATES: Duration = Duration::from_secs(300);

/// Memory that the results of all queries take, and queries while they run. Those of one account take
/// [`BYTES_MAX`].
const ALL_BYTES_MAX: usize = 1 << 30;

type Answer<T> = Result<T, Error>;

/// Facts on which the meaning of all queries depends.
pub(crate) struct Meaning {
    pub(crate) expression: Expression,
    /// How many results the last of them wants.
    pub(crate) limit: usize,
    /// Whether those are wanted whose contents another one has.
    pub(crate) reads: bool,
}

pub(crate) struct Queries {
    pub(crate) namespace: Arc<dyn Execute>,
    pub(crate) pasts: Pasts,
    pub(crate) nodes: QueryNodes,
    pub(crate) refusals: Refusals,
    accounts: Accounts,
    kept: ResultCache,
    pool: Pool,
    /// For what reads files, which takes longer.
    readers: Pool,
}

/// Returns whether a component asks for files with the same contents. Reads no other component:
/// regular expressions take long to compile.
fn is_duplicates(component: &[u8]) -> bool {
    let inner = component.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    inner.is_some_and(|inner| inner.trim_ascii().eq_ignore_ascii_case(b"duplicates"))
}

impl Queries {
    pub(crate) fn new(namespace: Arc<dyn Execute>, accounts: Accounts, names_users: bool) -> Self {
        Queries {
            pasts: Pasts::new(namespace.clone(), names_users),
            namespace,
            nodes: QueryNodes::default(),
            refusals: Refusals::default(),
            kept: ResultCache::new(Budget::new(ALL_BYTES_MAX, BYTES_MAX)),
            pool: Pool::new(QUERIES, accounts.clone()),
            readers: Pool::new(QUERIES, accounts.clone()),
            accounts,
        }
    }

    /// Does something that may take long for a user in another thread.
    pub(crate) fn run(
        self: &Arc<Self>,
        uid: u32,
        work: impl FnOnce(&Queries, &Turn<'_>) + Send + 'static,
    ) {
        let queries = self.clone();
        self.pool.run(uid, move |turn| work(&queries, turn));
    }

    /// Does the same for what reads many files.
    pub(crate) fn run_reader(
        self: &Arc<Self>,
        uid: u32,
        work: impl FnOnce(&Queries, &Turn<'_>) + Send + 'static,
    ) {
        let queries = self.clone();
        self.readers.run(uid, move |turn| work(&queries, turn));
    }

    /// Does something with what a query finds for a user in a thread that nobody waits for who need
    /// not: in another one if files are read.
    pub(crate) fn run_query(
        self: &Arc<Self>,
        uid: u32,
        node: Node,
        work: impl FnOnce(&Queries, &Turn<'_>) + Send + 'static,
    ) {
        let chain = self.nodes.chain(node);
        let reads =
            chain.is_ok_and(|(_, names)| names.last().is_some_and(|name| is_duplicates(name)));
        if reads { self.run_reader(uid, work) } else { self.run(uid, work) }
    }

    /// Returns what a component that names a snapshot stands for below a directory; none if it names
    /// none.
    pub(crate) fn snapshot(
        &self,
        uid: u32,
        parent: Node,
        name: &[u8],
        who: impl FnOnce() -> Answer<Credentials>,
    ) -> Option<Answer<Shown>> {
        if !name.starts_with(b"[@") || name == SNAPSHOTS {
            return None;
        }
        let asking = self.asking(uid, parent);
        let snapshot = match self.parsed(&asking, name) {
            Ok(Some(Component::Snapshot(snapshot))) => snapshot,
            Ok(_) => return None,
            Err(error) => return Some(Err(error)),
        };
        let Node::File(directory) = parent else {
            let why = "a snapshot stands below a directory of now, and queries below it";
            return Some(Err(self.refuse(&asking, name, why)));
        };
        let entered = who().and_then(|who| self.pasts.enter(directory, &snapshot, &who));
        Some(entered.map_err(|error| match error.errno() {
            Errno::NOENT => self.refuse(&asking, name, "no such snapshot has this directory"),
            _ => error,
        }))
    }

    /// Returns the user who asks for something below a directory or a query.
    pub(crate) fn asking(&self, uid: u32, parent: Node) -> Asking {
        let (base, above) = self.nodes.chain(parent).unwrap_or((parent, Vec::new()));
        Asking { uid, account: self.accounts.of(uid), base, above }
    }

    /// Returns why the last query of a user below a directory or a query was refused.
    pub(crate) fn refusal(&self, uid: u32, below: Node) -> Option<String> {
        let (base, above) = self.nodes.chain(below).ok()?;
        self.refusals.of(uid, base, &above)
    }

    /// Returns the node of a query below a directory or another query, and holds it.
    pub(crate) fn query(&self, uid: u32, parent: Node, name: &[u8]) -> Answer<Shown> {
        let asking = self.asking(uid, parent);
        let (base, above) = self.nodes.chain(parent)?;
        if above.len() >= DEPTH_MAX {
            let why = format!("at most {DEPTH_MAX} queries can be nested");
            return Err(self.refuse(&asking, name, &why));
        }
        if name == SNAPSHOTS && !parent.is_current() {
            let why = "snapshots are listed only below current directories";
            return Err(self.refuse(&asking, name, why));
        }
        // Those above were looked up before.
        match above.last() {
            Some(last) if is_duplicates(last) || last == SNAPSHOTS => {
                return Err(self.refuse(&asking, last, results::NO_QUERY));
            }
            _ if name == SNAPSHOTS => {}
            _ => drop(self.meaning(&asking, &[name.to_vec()])?),
        }
        let (at, id) = self.place(base)?;
        if !self.namespace.inode(at, id)?.is_directory() {
            return Err(Errno::NOTDIR.into());
        }
        let (id, inode) = self.nodes.hold_query(parent, name);
        Ok(Shown { node: Node::Query(id), inode })
    }

    /// Returns the link of a result of a query, and holds it.
    pub(crate) fn result(
        &self,
        query: QueryId,
        name: &[u8],
        who: &Credentials,
        turn: &Turn<'_>,
    ) -> Answer<Shown> {
        let kept = self.kept.get(query, who).filter(|hits| hits.find(name).is_some());
        let hits = match kept {
            Some(hits) => hits,
            // It may have come since.
            None => self.find(query, who, turn)?,
        };
        let number = hits.find(name).ok_or(Errno::NOENT)?;
        let (id, inode) = self.nodes.hold_hit(query, &hits, number);
        Ok(Shown { node: Node::Query(id), inode })
    }

    /// Returns where a link leads, if that is known without a search: empty if that is too long.
    pub(crate) fn target(&self, id: QueryId) -> Answer<Option<Vec<u8>>> {
        match self.nodes.target(id)? {
            Target::Here(target) => Ok(Some(target)),
            Target::Gone(..) => Ok(None),
        }
    }

    /// Returns the target of a link in the current results of a query. `STALE` if the file has
    /// moved.
    pub(crate) fn find_target(
        &self,
        id: QueryId,
        who: &Credentials,
        turn: &Turn<'_>,
    ) -> Answer<Vec<u8>> {
        let (query, name, mark) = match self.nodes.target(id)? {
            Target::Here(target) => return Ok(target),
            Target::Gone(query, name, mark) => (query, name, mark),
        };
        let hits = self.find(query, who, turn)?;
        let found = hits.find(&name).and_then(|number| target_with(&hits, number, &mark));
        Ok(found.ok_or(Errno::STALE)?)
    }

    /// Returns whether queries one below the other are the list of snapshots.
    pub(crate) fn lists_snapshots(&self, components: &[Vec<u8>]) -> bool {
        components == [SNAPSHOTS]
    }

    /// Refuses a query; the user who asked can read why.
    fn refuse(&self, asking: &Asking, name: &[u8], why: &str) -> Error {
        self.refusals.note(asking, name, why);
        Errno::NOENT.into()
    }

    /// Reads a component in brackets.
    fn parsed(&self, asking: &Asking, name: &[u8]) -> Answer<Option<Component>> {
        let parsed = results::parsed(name, self.namespace.now_ns()?);
        parsed.map_err(|refusal| self.refuse(asking, refusal.component, &refusal.why))
    }

    /// Returns what queries ask for together.
    pub(crate) fn meaning(&self, asking: &Asking, components: &[Vec<u8>]) -> Answer<Meaning> {
        let (last, others) = components.split_last().ok_or(Errno::NOENT)?;
        let reads = is_duplicates(last);
        let searches = if reads { others } else { components };
        let meaning = results::meaning(searches, self.namespace.now_ns()?);
        let (expression, limit) =
            meaning.map_err(|refusal| self.refuse(asking, refusal.component, &refusal.why))?;
        Ok(Meaning { expression, limit, reads })
    }

    /// Runs a query for who asks, and keeps what it finds.
    pub(crate) fn find(
        &self,
        query: QueryId,
        who: &Credentials,
        turn: &Turn<'_>,
    ) -> Answer<Arc<Hits>> {
        let (base, components) = self.nodes.chain(Node::Query(query))?;
        if self.lists_snapshots(&components) {
            return Ok(Arc::new(links_to_snapshots(self.namespace.snapshots()?)));
        }
        let asking = self.asking(who.uid, self.nodes.parent(query).unwrap_or(base));
        let Meaning { expression, limit, reads } = self.meaning(&asking, &components)?;
        let last = components.last().map_or(&b""[..], Vec::as_slice);
        let refuse = |why: String, errno| {
            self.refuse(&asking, last, &why);
            Error::from(errno)
        };
        let mut charge = self.kept.charge(asking.account);
        let mut has_room = |bytes| match self.kept.cover(&mut charge, asking.account, bytes) {
            true => Ok(()),
            false => Err(self.too_large(bytes)),
        };
        let hits = if reads {
            let found = duplicates(self, turn, base, &expression, who, &mut has_room);
            let found = found.map_err(|refused| match refused {
                Refused::Because(why, errno) => refuse(why, errno),
                Refused::Failed(error) => error,
            })?;
            Hits::of(found, components.len())
        } else {
            let mut found = Findings::new(limit);
            let mut room = Ok(());
            self.search(base, &expression, who, turn, |one| {
                found.add(&found_file(one));
                room = match found.count() > RESULTS_MAX {
                    true => Err((
                        format!("more than {RESULTS_MAX} files; ask for fewer"),
                        Errno::TOOBIG,
                    )),
                    false => has_room(found.bytes()),
                };
                room.is_ok()
            })?;
            room.map_err(|(why, errno)| refuse(why, errno))?;
            found.into_hits(components.len())
        };
        let hits = Arc::new(hits.charged(charge));
        let until = Instant::now() + if reads { FRESH_DUPLICATES } else { FRESH };
        self.kept.add(query, asking.account, who, &hits, until);
        Ok(hits)
    }

    /// Returns why there is no room for results that take so much memory.
    fn too_large(&self, bytes: usize) -> (String, Errno) {
        let most = self.kept.of_account();
        match bytes > most {
            true => {
                let why = format!("its results take more than {} MiB; ask for fewer", most >> 20);
                (why, Errno::TOOBIG)
            }
            false => {
                let why = "the results of open queries take too much memory; close some, or ask for \
                           fewer files";
                (why.to_owned(), Errno::NOMEM)
            }
        }
    }

    /// Lets go of results that nobody needs any more.
    pub(crate) fn forget_old(&self) {
        self.kept.forget();
    }

    /// Passes the files below a directory that a user may see to `tell`, until it returns false. The
    /// directory is of now or of a snapshot.
    pub(crate) fn search(
        &self,
        base: Node,
        expression: &Expression,
        who: &Credentials,
        turn: &Turn<'_>,
        mut tell: impl FnMut(Found) -> bool,
    ) -> Answer<()> {
        let (at, id) = self.place(base)?;
        let query = Query::new(at, id, expression, who);
        self.namespace.run_query(&query, &|bytes| turn.pause(bytes), &mut tell)
    }

    /// Returns the tree that a file is in, and which file of it that is.
    pub(crate) fn place(&self, node: Node) -> Answer<(Moment, FileId)> {
        match node {
            Node::File(id) => Ok((Moment::Now, id)),
            Node::Snapshot(file) => Ok((self.pasts.of(file)?, self.pasts.id(file)?)),
            Node::Query(_) => Err(Errno::NOTDIR.into()),
        }
    }
}

fn found_file(found: Found) -> FoundFile {
    let Found { path, is_beyond, inode } = found;
    FoundFile { path, is_beyond, id: inode.id.0, about: about(&inode) }
}

/// Returns what a link shows of the file that it leads to.
pub(crate) fn about(inode: &Inode) -> About {
    let Inode { uid, gid, mtime_ns, ctime_ns, atime_ns, btime_ns, .. } = *inode;
    About { uid, gid, mtime_ns, ctime_ns, atime_ns, btime_ns }
}

/// Links to all snapshots by their names.
fn links_to_snapshots(snapshots: Vec<SnapshotInfo>) -> Hits {
    let mut links = Findings::new(RESULTS_MAX);
    for snapshot in snapshots {
        let time_ns = snapshot.created_ns;
        let about = About { mtime_ns: time_ns, ctime_ns: time_ns, ..About::default() };
        let path = format!("[@{}]", snapshot.name).into_bytes();
        let found = FoundFile { path, about, ..FoundFile::default() };
        links.add_named(&found, Some(snapshot.name.into_bytes()));
    }
    Hits::of(links, 1)
}
