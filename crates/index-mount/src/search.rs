//! Queries in the index: finds the matching rows below a directory.
//!
//! 1. Units of rows whose bounds rule a query out are not read.
//! 2. For other rows, the columns of attribute tests are read, and rows that fail for sure are left
//!    out.
//! 3. For the remaining rows, all columns, names and paths are read, and the whole query decides.

use crate::protocol::Failure;
use crate::view::{Result, is_under};
use crate::xattrs::{Pairs, add};
use canopy_fuse::results::{
    About, BYTES_MAX, DEPTH_MAX, Findings, FoundFile, Hits, RESULTS_MAX, meaning,
};
use canopy_index::column::TARGET;
use canopy_index::{FileKind, Index, SourceId};
use canopy_model::{
    AbsolutePath, Attributes, SourcePath, SourcePathBuf, base_name, escape, unescape,
};
use canopy_query::{AttributeTest, Expression, Field, Test, shown};
use canopy_read::conditions::{NamedRow, may_pass, select};
use canopy_read::inode::{ENTRY, InodeColumns, text_or_empty};
use canopy_read::locate::{look_up, source_of};
use canopy_read::plan::{Unit, below};
use canopy_read::work::in_parallel;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Most threads that search.
const THREADS_MAX: usize = 4;

/// One search.
pub(crate) struct Search<'a> {
    view: &'a Index,
    /// The directory that is searched, with a slash at its end; absolute and escaped.
    prefix: String,
    expression: Expression,
    found: Mutex<Findings>,
    is_too_much: AtomicBool,
}

impl Search<'_> {
    /// Fails unless names are queries that the index can answer; the log gets the reason.
    pub(crate) fn check(above: &[Vec<u8>], name: Option<&[u8]>) -> Result<()> {
        let names = above.iter().cloned().chain(name.map(<[u8]>::to_vec));
        Self::meaning(&Vec::from_iter(names)).map(drop)
    }

    fn meaning(queries: &[Vec<u8>]) -> Result<(Expression, usize)> {
        let refused = |name: &[u8], why: &str| Failure {
            errno: Errno::ENOENT as i32,
            log: Some(format!("the query {}: {why}", shown(name))),
        };
        let last = queries.last().map_or(&b""[..], Vec::as_slice);
        if queries.len() > DEPTH_MAX {
            return Err(refused(last, &format!("at most {DEPTH_MAX} queries can be nested")));
        }
        let meaning = meaning(queries, now_ns());
        let (expression, limit) =
            meaning.map_err(|refusal| refused(refusal.component, &refusal.why))?;
        match asks_for_project(&expression) {
            true => Err(refused(last, "an index does not know projects")),
            false => Ok((expression, limit)),
        }
    }

    /// Searches below a directory, absolute and escaped, in the rows that are seen from it.
    pub(crate) fn run(view: &Index, absolute: &str, queries: &[Vec<u8>]) -> Result<Hits> {
        let (expression, limit) = Self::meaning(queries)?;
        let prefix = format!("{}/", absolute.trim_end_matches('/'));
        let found = Mutex::new(Findings::new(limit));
        let is_too_much = AtomicBool::new(false);
        let search = Search { view, prefix, expression, found, is_too_much };
        match source_of(view, AbsolutePath::new(absolute)) {
            Some((source, path)) => search.search(source.id, &source.root, path)?,
            None => {
                let below = |root: &str| is_under(root, absolute);
                for source in view.sources().iter().filter(|source| below(&source.root)) {
                    search.search_root(source)?;
                    search.search(source.id, &source.root, SourcePath::ROOT)?;
                }
            }
        }
        if search.is_too_much.into_inner() {
            let name = shown(queries.last().map_or(&b""[..], Vec::as_slice));
            let log = format!(
                "the query {name}: more than {RESULTS_MAX} files, or {} MiB of their names; ask for \
                 fewer",
                BYTES_MAX >> 20
            );
            return Err(Failure { errno: Errno::E2BIG as i32, log: Some(log) });
        }
        Ok(search.found.into_inner().into_hits(queries.len()))
    }

    /// Tests the root directory of a source.
    fn search_root(&self, source: &canopy_index::SourceRecord) -> Result<()> {
        let Some(inode) = look_up(self.view, source, SourcePath::ROOT)? else { return Ok(()) };
        let values = self.values(source.id, SourcePath::ROOT)?;
        let (name, values) = (base_name(&source.root), values.get(""));
        let found = self.take(&inode.attributes, &inode.target, name, &source.root, values)?;
        self.add(found.as_slice());
        Ok(())
    }

    fn search(&self, source: SourceId, root: &str, path: SourcePath<'_>) -> Result<()> {
        let mut units = Vec::new();
        for range in below(self.view, source, path)? {
            for kind in [FileKind::Entries, FileKind::Dirs] {
                for unit in range.units(kind, &range.rows(kind)?) {
                    if may_pass(&self.expression, &unit)? {
                        units.push(unit);
                    }
                }
            }
        }
        let values = self.values(source, path)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        in_parallel(threads.min(THREADS_MAX), &units, |unit| self.read(unit, root, &values))
    }

    /// Returns the values of extended attributes that the query asks for, by path.
    fn values(
        &self,
        source: SourceId,
        path: SourcePath<'_>,
    ) -> Result<HashMap<SourcePathBuf, Pairs>> {
        let mut values = HashMap::new();
        if !self.expression.needs().xattrs.is_empty() {
            for shard in self.view.shards_with_values(source, path)? {
                add(shard, &mut values, |at| at.is_below(path))?;
            }
        }
        Ok(values)
    }

    fn read(&self, unit: &Unit, root: &str, values: &HashMap<SourcePathBuf, Pairs>) -> Result<()> {
        if self.is_too_much.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rows = select(&self.expression, unit)?;
        if !rows.is_empty() {
            for placed in unit.read_placed(ENTRY, &rows, false)? {
                let placed = placed?;
                let inodes = InodeColumns::of(&placed.batch);
                let targets = TARGET.find(&placed.batch);
                let mut found = Vec::new();
                for at in 0..placed.batch.num_rows() {
                    let attributes = inodes.row(at);
                    let target = text_or_empty(targets, at);
                    let path = placed.path(at)?;
                    let absolute = path.as_path().absolute(root);
                    let name = path.as_path().base_name();
                    let values = values.get(&path);
                    found.extend(self.take(&attributes, target, name, &absolute, values)?);
                }
                if !self.add(&found) {
                    break;
                }
            }
        }
        unit.close();
        Ok(())
    }

    /// Adds results; returns whether more are wanted.
    fn add(&self, found: &[FoundFile]) -> bool {
        let mut all = self.found.lock();
        for one in found {
            if self.is_too_much.load(Ordering::Relaxed) {
                return false;
            }
            all.add(one);
            if all.count() > RESULTS_MAX || all.bytes() > BYTES_MAX {
                self.is_too_much.store(true, Ordering::Relaxed);
            }
        }
        true
    }

    /// Returns an entry, of which the target comes with the attributes, if the whole query is true
    /// of it.
    fn take(
        &self,
        attributes: &Attributes,
        target: &str,
        name: &str,
        absolute: &str,
        values: Option<&Pairs>,
    ) -> Result<Option<FoundFile>> {
        let Some(path) = absolute.strip_prefix(&self.prefix) else { return Ok(None) };
        let (name, path, target) = (unescape(name), unescape(path).into_owned(), unescape(target));
        let xattr = |wanted: &[u8]| {
            let wanted = escape(wanted);
            let value = values?.iter().find(|(key, _)| *key == wanted)?;
            Some(unescape(&value.1).into_owned())
        };
        let row = NamedRow { attributes, name: &name, path: &path, target: &target, xattr: &xattr };
        let (id, about) = (attributes.ino, about(attributes));
        let matches = self.expression.matches(&row);
        Ok(matches.then_some(FoundFile { path, is_beyond: false, id, about }))
    }
}

/// Returns the time, in nanoseconds since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn about(attributes: &Attributes) -> About {
    let Attributes { uid, gid, mtime_ns, ctime_ns, atime_ns, btime_ns, .. } = *attributes;
    About { uid, gid, mtime_ns, ctime_ns, atime_ns, btime_ns }
}

fn asks_for_project(expression: &Expression) -> bool {
    let mut asks = false;
    expression.each_test(&mut |test| {
        asks |= matches!(test, Test::Attribute(AttributeTest::Span(Field::Project, _)));
    });
    asks
}
