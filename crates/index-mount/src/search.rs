//! What queries find in the index: the rows below a directory that they are true of.
//!
//! 1. Units of rows whose bounds rule a query out are not read.
//! 2. Of the others, the columns that tests of attributes look at are read, and rows that fail for
//!    sure are left out.
//! 3. Of what is left, all columns, names and paths are read, and the whole query decides.

use crate::protocol::Failure;
use crate::view::{Result, is_under};
use crate::xattrs::{Pairs, add};
use arrow::array::RecordBatch;
use canopy_index::column::{
    ATIME, BLOCKS, BTIME, CTIME, GID, INO, MODE, MTIME, NLINK, SIZE, TARGET, UID,
};
use canopy_index::{ColumnId, Columns, FileKind, Index, RowRange, SourceId};
use canopy_model::{Attributes, base_name, escape, unescape};
use canopy_mount::results::{BYTES_MAX, DEPTH_MAX, Findings, Hits, RESULTS_MAX, meaning};
use canopy_namespace::query::{Candidate, Expression, Field, Test, TextField, Types, shown};
use canopy_namespace::{FileId, Found, Inode};
use canopy_read::inode::{ENTRY, InodeColumns, text_or_empty};
use canopy_read::locate::{look_up, source_of};
use canopy_read::plan::{Unit, below, push_row};
use canopy_read::work::in_parallel;
use nix::errno::Errno;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// So many threads search at most.
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

/// What is known of a row before all of it is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    No,
    Maybe,
    Yes,
}

impl Search<'_> {
    /// Fails unless names are queries that the index can answer; the log is told why not.
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

    /// Searches below a directory, absolute and escaped, in what is seen from it.
    pub(crate) fn run(view: &Index, absolute: &str, queries: &[Vec<u8>]) -> Result<Hits> {
        let (expression, limit) = Self::meaning(queries)?;
        let prefix = format!("{}/", absolute.trim_end_matches('/'));
        let found = Mutex::new(Findings::new(limit));
        let is_too_much = AtomicBool::new(false);
        let search = Search { view, prefix, expression, found, is_too_much };
        match source_of(view, absolute) {
            Some((source, path)) => search.search(source.id, &source.root, &path)?,
            None => {
                let below = |root: &str| is_under(root, absolute);
                for source in view.sources().iter().filter(|source| below(&source.root)) {
                    search.search_root(source)?;
                    search.search(source.id, &source.root, "")?;
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
        let Some(inode) = look_up(self.view, source, "")? else { return Ok(()) };
        let values = self.values(source.id, "")?;
        let inode = inode_of(&inode.attributes, &inode.target);
        let found = self.take(inode, base_name(&source.root), &source.root, values.get(""))?;
        self.add(found.as_slice());
        Ok(())
    }

    fn search(&self, source: SourceId, root: &str, path: &str) -> Result<()> {
        let mut units = Vec::new();
        for range in below(self.view, source, path)? {
            for kind in [FileKind::Entries, FileKind::Dirs] {
                for unit in range.units(kind, &range.rows(kind)?) {
                    if self.may_have(&self.expression, &unit)? {
                        units.push(unit);
                    }
                }
            }
        }
        let values = self.values(source, path)?;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        in_parallel(threads.min(THREADS_MAX), &units, |unit| self.read(unit, root, &values))
    }

    /// Returns the values of extended attributes that the query asks for, by path in the source.
    fn values(&self, source: SourceId, path: &str) -> Result<HashMap<String, Pairs>> {
        let mut values = HashMap::new();
        if !self.expression.needs().xattrs.is_empty() {
            for shard in self.view.shards_with_values(source, path)? {
                add(shard, &mut values, |at| canopy_model::is_below(at, path))?;
            }
        }
        Ok(values)
    }

    /// Returns whether bounds leave a row of a unit that passes.
    fn may_have(&self, expression: &Expression, unit: &Unit) -> Result<bool> {
        Ok(match expression {
            Expression::And(all) => {
                let mut all = all.iter();
                all.try_fold(true, |may, one| Ok::<_, Failure>(may && self.may_have(one, unit)?))?
            }
            Expression::Or(any) => {
                let mut any = any.iter();
                any.try_fold(false, |may, one| Ok::<_, Failure>(may || self.may_have(one, unit)?))?
            }
            Expression::Test(Test::Always(passes)) => *passes,
            Expression::Test(Test::Span(field, span)) => {
                match column_of(*field).map(|column| unit.bounds(column)).transpose()?.flatten() {
                    Some((least, most)) => {
                        i128::from(least) <= span.most && span.least <= i128::from(most)
                    }
                    None => true,
                }
            }
            Expression::Test(Test::Type(types)) => {
                let directories = Types::of('d').unwrap_or_default();
                match unit.kind {
                    FileKind::Dirs => types.contains(0o040_000),
                    _ => *types != directories,
                }
            }
            Expression::Test(_) | Expression::Not(_) => true,
        })
    }

    fn read(&self, unit: &Unit, root: &str, values: &HashMap<String, Pairs>) -> Result<()> {
        if self.is_too_much.load(Ordering::Relaxed) {
            return Ok(());
        }
        let rows = self.select(unit)?;
        if !rows.is_empty() {
            for placed in unit.read_placed(ENTRY, &rows, false)? {
                let placed = placed?;
                let inodes = InodeColumns::of(&placed.batch);
                let targets = TARGET.find(&placed.batch);
                let mut found = Vec::new();
                for at in 0..placed.batch.num_rows() {
                    let inode = inode_of(&inodes.row(at), text_or_empty(targets, at));
                    let path = placed.path(at)?;
                    let absolute = canopy_model::join_absolute(root, &path);
                    found.extend(self.take(
                        inode,
                        base_name(&path),
                        &absolute,
                        values.get(&path),
                    )?);
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
    fn add(&self, found: &[Found]) -> bool {
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

    /// Returns the rows of a unit that do not fail for sure.
    fn select(&self, unit: &Unit) -> Result<Vec<RowRange>> {
        let mut columns = Columns::NONE;
        add_columns(&self.expression, &mut columns);
        if columns.is_empty() {
            return Ok(unit.rows.clone());
        }
        let mut rows = unit.rows.iter().flat_map(|range| range.clone());
        let mut selected: Vec<RowRange> = Vec::new();
        for batch in unit.read(columns)? {
            let batch: RecordBatch = batch?;
            let inodes = InodeColumns::of(&batch);
            for (at, row) in (0..batch.num_rows()).zip(&mut rows) {
                if verdict(&self.expression, &inode_of(&inodes.row(at), "")) == Verdict::No {
                    continue;
                }
                push_row(&mut selected, row);
            }
        }
        Ok(selected)
    }

    /// Returns what is found if the whole query is true of an entry.
    fn take(
        &self,
        inode: Inode,
        name: &str,
        absolute: &str,
        values: Option<&Pairs>,
    ) -> Result<Option<Found>> {
        let Some(path) = absolute.strip_prefix(&self.prefix) else { return Ok(None) };
        let (name, path) = (unescape(name), unescape(path).into_owned());
        let xattr = |wanted: &[u8]| {
            let wanted = escape(wanted);
            let value = values?.iter().find(|(key, _)| *key == wanted)?;
            Some(unescape(&value.1).into_owned())
        };
        let candidate = Candidate { inode: &inode, name: &name, path: &path, xattr: &xattr };
        let matches = self.expression.matches(&candidate);
        Ok(matches.then_some(Found { path, is_beyond: false, inode }))
    }
}

/// Returns the time, in nanoseconds since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn inode_of(a: &Attributes, target: &str) -> Inode {
    Inode {
        mode: a.mode,
        uid: a.uid,
        gid: a.gid,
        nlink: a.nlink,
        size: a.size_bytes.try_into().unwrap_or(0),
        blocks: a.blocks.try_into().unwrap_or(0),
        mtime_ns: a.mtime_ns,
        ctime_ns: a.ctime_ns,
        atime_ns: a.atime_ns,
        btime_ns: a.btime_ns,
        id: FileId(a.ino),
        target: unescape(target).into_owned(),
        ..Inode::default()
    }
}

fn column_of(field: Field) -> Option<ColumnId> {
    Some(match field {
        Field::Size => SIZE.id(),
        Field::Blocks => BLOCKS.id(),
        Field::Uid => UID.id(),
        Field::Gid => GID.id(),
        Field::Links => NLINK.id(),
        Field::Inode => INO.id(),
        Field::Mtime => MTIME.id(),
        Field::Ctime => CTIME.id(),
        Field::Atime => ATIME.id(),
        Field::Btime => BTIME.id(),
        Field::Project => return None,
    })
}

fn asks_for_project(expression: &Expression) -> bool {
    match expression {
        Expression::And(parts) | Expression::Or(parts) => parts.iter().any(asks_for_project),
        Expression::Not(test) | Expression::Test(test) => {
            matches!(test, Test::Span(Field::Project, _))
        }
    }
}

/// Adds the columns that tests of attributes look at.
fn add_columns(expression: &Expression, columns: &mut Columns) {
    match expression {
        Expression::And(parts) | Expression::Or(parts) => {
            parts.iter().for_each(|part| add_columns(part, columns));
        }
        Expression::Not(test) | Expression::Test(test) => match test {
            Test::Span(field, _) => {
                columns.add(column_of(*field).map_or(Columns::NONE, Columns::from));
            }
            Test::Type(_) | Test::Permissions(..) | Test::Text(TextField::Target, _) => {
                columns.add(MODE);
            }
            _ => {}
        },
    }
}

/// Returns what an inode without its names, target and extended attributes tells.
fn verdict(expression: &Expression, inode: &Inode) -> Verdict {
    let of = |test: &Test| match test {
        Test::Text(TextField::Target, _) if inode.mode & 0o170_000 != 0o120_000 => Verdict::No,
        Test::Text(..) | Test::Xattr(..) => Verdict::Maybe,
        test => {
            let xattr = |_: &[u8]| None;
            match test.passes(&Candidate { inode, name: b"", path: b"", xattr: &xattr }) {
                true => Verdict::Yes,
                false => Verdict::No,
            }
        }
    };
    match expression {
        Expression::And(all) => {
            let verdicts = all.iter().map(|one| verdict(one, inode));
            verdicts.fold(Verdict::Yes, |all, one| match (all, one) {
                (Verdict::No, _) | (_, Verdict::No) => Verdict::No,
                (Verdict::Maybe, _) | (_, Verdict::Maybe) => Verdict::Maybe,
                _ => Verdict::Yes,
            })
        }
        Expression::Or(any) => {
            let verdicts = any.iter().map(|one| verdict(one, inode));
            verdicts.fold(Verdict::No, |any, one| match (any, one) {
                (Verdict::Yes, _) | (_, Verdict::Yes) => Verdict::Yes,
                (Verdict::Maybe, _) | (_, Verdict::Maybe) => Verdict::Maybe,
                _ => Verdict::No,
            })
        }
        Expression::Not(test) => match of(test) {
            Verdict::No => Verdict::Yes,
            Verdict::Maybe => Verdict::Maybe,
            Verdict::Yes => Verdict::No,
        },
        Expression::Test(test) => of(test),
    }
}
