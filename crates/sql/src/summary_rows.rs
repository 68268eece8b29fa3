//! Makes the rows of the tables of statistics.

use super::reader::repeated;
use super::summaries::{By, SummaryColumn, Work};
use super::tables::{batch_of, external};
use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray, UInt32Array};
use arrow::datatypes::SchemaRef;
use canopy_index::column::{PATH, SUBDIRS};
use canopy_index::{FileKind, Index, ListingOrdinal, SourceRecord};
use canopy_model::{FileType, SourcePath, SourcePathBuf, Summary, Totals};
use canopy_read::Inode;
use canopy_read::listings::depth;
use canopy_read::locate::{Start, absolute_path, look_up};
use canopy_read::plan::{BATCH_ROWS, ShardRange};
use canopy_read::summaries::{self, ByOwner, StatisticsRequest};
use canopy_read::totals::{DirectoryTotals, SeenInodes, VisibleTree};
use canopy_read::tree_totals::tree_totals;
use datafusion::error::Result;
use std::sync::Arc;

/// Reads the statistics of some columns of a table.
pub(super) struct Reader {
    /// The attribute by which entries are grouped into rows.
    pub(super) by: By,
    /// The columns.
    pub(super) columns: Vec<SummaryColumn>,
    /// The schema of these columns in the engine.
    pub(super) schema: SchemaRef,
    /// Statistics that the columns need.
    pub(super) wanted: StatisticsRequest,
    /// Threads that add up several shards.
    pub(super) threads: usize,
}

/// A row of the answer.
struct Row {
    path: SourcePathBuf,
    key: u32,
    subdirs: i64,
    /// Sums that count hard links once; only in `trees`.
    totals: Option<Totals>,
    summary: Summary,
}

impl Reader {
    /// Gives the rows of a piece of work, in batches.
    pub(super) fn batches(&self, work: Work) -> Result<Vec<Result<RecordBatch>>> {
        let (source, rows) = match work {
            Work::Listings(source, range) => (source, self.listings(&range)),
            Work::Parts(source, parts) => (source, self.parts(&parts)),
            Work::Subtree { view, source, path, below: true } => {
                return self.subtrees(&view, &source, path.as_path()).map_err(external);
            }
            Work::Subtree { view, source, path, below: false } => {
                let rows = self.subtree(&view, &source, path.as_path());
                (source, rows)
            }
        };
        let rows = rows.map_err(external)?;
        Ok(rows.chunks(BATCH_ROWS).map(|rows| self.batch(&source, rows)).collect())
    }

    fn reads_entries(&self) -> bool {
        let is_count = |column: &SummaryColumn| matches!(column, SummaryColumn::Entries);
        !self.wanted.columns.is_empty() || self.columns.iter().any(is_count)
    }

    /// Makes the rows of listings of a shard, in their order.
    fn listings(&self, range: &ShardRange) -> canopy_read::Result<Vec<Row>> {
        let ShardRange { shard, listings } = range;
        let key = |owner| self.by.key(owner);
        let found = match self.reads_entries() {
            true => summaries::of_listings(shard, listings, &self.wanted, key)?,
            false => Vec::new(),
        };
        let mut found = found.into_iter().peekable();
        let mut rows = Vec::with_capacity(ListingOrdinal::count(listings));
        let mut ordinals = ListingOrdinal::each(listings);
        for unit in range.units(FileKind::Listings, &range.rows(FileKind::Listings)?) {
            for batch in unit.read(PATH | SUBDIRS)? {
                let batch = batch?;
                let columns = PATH.of(&batch)?.iter().zip(SUBDIRS.of(&batch)?);
                for ((path, subdirs), ordinal) in columns.zip(&mut ordinals) {
                    let row = |key, summary| {
                        let path = SourcePath::escaped(path.unwrap_or_default()).to_buf();
                        Row { path, key, subdirs: *subdirs, totals: None, summary }
                    };
                    let first = rows.len();
                    while let Some((_, key, summary)) =
                        found.next_if(|(listing, ..)| *listing == ordinal)
                    {
                        rows.push(row(key, summary));
                    }
                    if self.by == By::All && rows.len() == first {
                        rows.push(row(0, Summary::default()));
                    }
                }
            }
        }
        range.close(FileKind::Entries);
        Ok(rows)
    }

    /// Makes the rows of a directory whose listing comes in parts, which are added up.
    fn parts(&self, parts: &[ShardRange]) -> canopy_read::Result<Vec<Row>> {
        let mut rows = Vec::new();
        for range in parts {
            rows.extend(self.listings(range)?);
        }
        rows.sort_by_key(|row| row.key);
        rows.dedup_by(|later, first| {
            let same = later.key == first.key;
            if same {
                first.subdirs += later.subdirs;
                first.summary.merge(&later.summary);
            }
            same
        });
        Ok(rows)
    }

    /// Makes the rows of one subtree.
    fn subtree(
        &self,
        view: &Index,
        source: &SourceRecord,
        path: SourcePath<'_>,
    ) -> canopy_read::Result<Vec<Row>> {
        let Some(inode) = look_up(view, source, path)?.filter(is_directory) else {
            return Ok(Vec::new());
        };
        let subtree = self.subtree_of(view, source, path);
        let found = match self.by == By::All && self.wanted.columns.is_empty() {
            true => ByOwner::default(),
            false => summaries::of_subtree(&subtree, &self.wanted)?,
        };
        let mut keys: Vec<(u32, Summary)> = Vec::new();
        for (owner, summary) in found {
            let key = self.by.key(owner);
            match keys.iter_mut().find(|(known, _)| *known == key) {
                Some((_, sum)) => sum.merge(&summary),
                None => keys.push((key, summary)),
            }
        }
        let mut totals = None;
        if self.by == By::All {
            let mut sum = own_totals(&inode);
            sum += subtree.sum(&mut SeenInodes::default())?;
            totals = Some(sum);
            if keys.is_empty() {
                keys.push((0, Summary::default()));
            }
        }
        let row = |(key, summary)| Row { path: path.to_buf(), key, subdirs: 0, totals, summary };
        Ok(keys.into_iter().map(row).collect())
    }

    /// Makes the rows of all subtrees at and below a directory.
    fn subtrees(
        &self,
        view: &Arc<Index>,
        source: &SourceRecord,
        path: SourcePath<'_>,
    ) -> canopy_read::Result<Vec<Result<RecordBatch>>> {
        let Some(inode) = look_up(view, source, path)?.filter(is_directory) else {
            return Ok(Vec::new());
        };
        let nodes = match self.by {
            By::All => tree_totals(&self.subtree_of(view, source, path), own_totals(&inode))?,
            By::User | By::Group => Vec::new(),
        };
        let start = Start {
            given: Vec::new(),
            source: source.clone(),
            path: path.to_buf(),
            inode,
            view: view.clone(),
            links: 0,
        };
        let mut trees = Trees {
            reader: self,
            source,
            given: vec![false; nodes.len()],
            nodes,
            rows: Vec::new(),
            batches: Vec::new(),
        };
        if self.by != By::All || !self.wanted.columns.is_empty() {
            let key = |owner| self.by.key(owner);
            summaries::of_each_subtree(&start, &self.wanted, key, |path, summaries| {
                trees.add(path, summaries);
                Ok::<_, canopy_read::Error>(())
            })?;
        }
        Ok(trees.finish())
    }

    fn subtree_of<'a>(
        &self,
        view: &'a Index,
        source: &SourceRecord,
        path: SourcePath<'a>,
    ) -> VisibleTree<'a> {
        VisibleTree { index: view, source: source.id, path, threads: self.threads }
    }

    fn batch(&self, source: &SourceRecord, rows: &[Row]) -> Result<RecordBatch> {
        let summaries: Vec<&Summary> = rows.iter().map(|row| &row.summary).collect();
        let columns = self.columns.iter().map(|column| array(column, source, rows, &summaries));
        Ok(batch_of(&self.schema, columns.collect(), rows.len())?)
    }
}

/// Rows of subtrees in the making.
struct Trees<'a> {
    reader: &'a Reader,
    source: &'a SourceRecord,
    /// Sums of each directory that count hard links once; empty for tables by owner or group.
    nodes: Vec<DirectoryTotals>,
    /// Whether the row of a node has been made.
    given: Vec<bool>,
    rows: Vec<Row>,
    batches: Vec<Result<RecordBatch>>,
}

impl Trees<'_> {
    /// Makes the rows of a directory of its summaries by key.
    fn add(&mut self, path: SourcePath<'_>, mut summaries: Vec<(u32, Summary)>) {
        let mut totals = None;
        if self.reader.by == By::All {
            let node = self.nodes.binary_search_by(|node| node.path.as_path().cmp(&path));
            let Ok(node) = node else { return };
            totals = Some(self.nodes[node].own);
            self.given[node] = true;
            if summaries.is_empty() {
                summaries.push((0, Summary::default()));
            }
        }
        self.rows.extend(summaries.into_iter().map(|(key, summary)| {
            let path = path.to_buf();
            Row { path, key, subdirs: 0, totals, summary }
        }));
        if self.rows.len() >= BATCH_ROWS {
            self.batches.push(self.reader.batch(self.source, &self.rows));
            self.rows.clear();
        }
    }

    /// Makes the rows of directories without a listing, or of all where totals are all that is
    /// asked for.
    fn finish(mut self) -> Vec<Result<RecordBatch>> {
        let nodes = self.nodes.into_iter().zip(self.given);
        self.rows.extend(nodes.filter(|(_, given)| !given).map(|(node, _)| Row {
            path: node.path,
            key: 0,
            subdirs: 0,
            totals: Some(node.own),
            summary: Summary::default(),
        }));
        let rest = self.rows.chunks(BATCH_ROWS);
        self.batches.extend(rest.map(|rows| self.reader.batch(self.source, rows)));
        self.batches
    }
}

fn is_directory(inode: &Inode) -> bool {
    inode.attributes.file_type() == FileType::Directory
}

fn own_totals(inode: &Inode) -> Totals {
    let attributes = &inode.attributes;
    Totals::of_directory(attributes.size_bytes, attributes.blocks)
}

/// Makes a column of rows, whose summaries are given too.
fn array(
    column: &SummaryColumn,
    source: &SourceRecord,
    rows: &[Row],
    summaries: &[&Summary],
) -> ArrayRef {
    let numbers = |value: &dyn Fn(&Row) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(value)))
    };
    match column {
        SummaryColumn::Path => {
            let paths = rows.iter().map(|row| absolute_path(source, row.path.as_path()));
            Arc::new(StringArray::from_iter_values(paths))
        }
        SummaryColumn::Source => repeated(&source.name, rows.len()),
        SummaryColumn::Depth => {
            let depths = rows.iter().map(|row| depth(row.path.as_path()));
            Arc::new(UInt32Array::from_iter_values(depths))
        }
        SummaryColumn::Key(_) => {
            Arc::new(UInt32Array::from_iter_values(rows.iter().map(|row| row.key)))
        }
        SummaryColumn::Entries => numbers(&|row| row.summary.entries()),
        SummaryColumn::Subdirs => numbers(&|row| row.subdirs),
        SummaryColumn::Total(_, value) => numbers(&|row| row.totals.as_ref().map_or(0, value)),
        SummaryColumn::Statistic(statistic) => statistic.array(summaries),
    }
}
