//! By OST and by pool: where Lustre and IBM Storage Scale keep files, as extended attributes tell
//! whose values the caller may see.

use super::extensions::{largest, usage};
use super::owners::Breakdown;
use super::*;
use arrow::array::RecordBatch;
use canopy_index::Shard;
use canopy_index::column::{KEY, MODE, NAME, SIZE, UID, VALUE, VALUE_PATH};
use canopy_model::lustre::{LAYOUT_KEYS, Layout};
use canopy_model::{Count, FileType, SourcePath, escape, storage_scale, unescape};
use canopy_read::locate::read_xattr_columns;
use canopy_read::work::merged;
use std::collections::HashMap;
use std::sync::Arc;

/// Usage of places; those with most bytes come first. Covers regular files whose layout can be
/// seen.
#[derive(Clone, Debug, Serialize)]
pub(in crate::report) struct Storage {
    /// On each OST of Lustre, by its index.
    osts: Breakdown<PlaceUsage>,
    /// In each pool; those of Lustre that are in none have an empty name.
    pools: Breakdown<PlaceUsage>,
    /// Files whose layouts could not be understood.
    unknown: i64,
}

/// Usage of a place.
#[derive(Clone, Debug, Serialize)]
struct PlaceUsage {
    name: String,
    /// Files, and their bytes, if they have no holes.
    #[serde(flatten)]
    count: Count,
}

/// Usage by place.
type Places = HashMap<Box<str>, Count>;

/// Usage found so far.
#[derive(Default)]
struct Found {
    osts: Places,
    pools: Places,
    unknown: i64,
}

impl ReportSection for Storage {
    const TITLE: &'static str = "By OST and pool";
    const NOTE: Option<&'static str> = Some(
        "Regular files whose layout you may see, each name; sizes are those of files without holes.",
    );
    const NEEDS: &'static [Need] = &[Need::Statistics];
    type Entries = ();

    fn answer(facts: &mut Facts<'_>, (): ()) -> Result<Option<Self>> {
        let found = read(facts)?;
        if found.osts.is_empty() && found.pools.is_empty() && found.unknown == 0 {
            return Ok(None);
        }
        let place = |name, count| PlaceUsage { name, count };
        let [osts, pools] =
            [found.osts, found.pools].map(|of| largest(&of, facts.options.top, place));
        Ok(Some(Storage { osts, pools, unknown: found.unknown }))
    }

    fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for (of, what) in [(&self.osts, "OST"), (&self.pools, "pool")] {
            let name =
                |name: &str| if name.is_empty() { "(none)".into() } else { report_name(name) };
            blocks.push(of.block(
                &[("sizes", true), ("files", true), (what, false)],
                |row| (usage(&row.count), name(&row.name)),
                |usage| usage.bytes,
                |usage| vec![size(usage.bytes), count(usage.entries)],
            ));
        }
        if self.unknown > 0 {
            let what = "files with layouts that cannot be understood";
            blocks.push(Block::Facts(vec![(count(self.unknown), what)]));
        }
        blocks.retain(|block| !matches!(block, Block::Table(table) if table.rows.is_empty()));
        blocks
    }
}

/// Reads all layouts at and below the directories of a report.
fn read(facts: &Facts<'_>) -> Result<Found> {
    let mut pieces: Vec<(SourcePath<'_>, &Arc<Shard>)> = Vec::new();
    for start in facts.starts {
        let shards = start.view.shards_with_values(start.source.id, start.path.as_path())?;
        pieces.extend(shards.into_iter().map(|shard| (start.path.as_path(), shard)));
    }
    let columns = VALUE_PATH | NAME | KEY | VALUE | SIZE | MODE | UID;
    let work = |found: &mut Found, (start, shard): &(SourcePath<'_>, &Arc<Shard>)| -> Result<()> {
        for batch in read_xattr_columns(shard, columns)? {
            found.add_batch(&batch?, *start, facts.options.owner)?;
        }
        Ok(())
    };
    let merge = |all: &mut Found, more: Found| {
        add_all(&mut all.osts, &more.osts);
        add_all(&mut all.pools, &more.pools);
        all.unknown += more.unknown;
    };
    merged(facts.options.threads, &pieces, Found::default, work, merge)
}

impl Found {
    fn add_batch(
        &mut self,
        batch: &RecordBatch,
        start: SourcePath<'_>,
        owner: Option<u32>,
    ) -> Result<()> {
        let (paths, names) = (VALUE_PATH.of(batch)?, NAME.of(batch)?);
        let (keys, values) = (KEY.of(batch)?, VALUE.of(batch)?);
        let (sizes, modes, uids) = (SIZE.of(batch)?, MODE.of(batch)?, UID.of(batch)?);
        for at in 0..batch.num_rows() {
            let key = keys.value(at);
            let is_layout = LAYOUT_KEYS.contains(&key);
            let is_asked = (is_layout || key == storage_scale::POOL)
                && FileType::of_mode(modes[at]) == FileType::Regular
                && owner.is_none_or(|owner| uids[at] == owner)
                && SourcePath::escaped(paths.value(at))
                    .child(names.value(at))
                    .as_path()
                    .is_below(start);
            if is_asked && is_layout {
                self.add_layout(&unescape(values.value(at)), sizes[at]);
            } else if is_asked {
                add(&mut self.pools, values.value(at), 1, sizes[at].into());
            }
        }
        Ok(())
    }

    fn add_layout(&mut self, value: &[u8], file_bytes: i64) {
        let Some(layout) = Layout::decode(value) else {
            self.unknown += 1;
            return;
        };
        let (mut osts, mut pools) = (Places::default(), Places::default());
        layout.each_stripe(file_bytes as u64, |part, stripe| {
            add(&mut osts, &stripe.ost.to_string(), 0, stripe.bytes.into());
            add(&mut pools, &escape(part.pool), 0, stripe.bytes.into());
        });
        // The file counts once, however many of its stripes are there.
        for usage in osts.values_mut().chain(pools.values_mut()) {
            usage.entries = 1;
        }
        add_all(&mut self.osts, &osts);
        add_all(&mut self.pools, &pools);
    }
}

fn add(to: &mut Places, name: &str, entries: i64, bytes: i128) {
    let count = Count { entries, bytes };
    match to.get_mut(name) {
        Some(place) => *place += count,
        None => drop(to.insert(name.into(), count)),
    }
}

fn add_all(to: &mut Places, from: &Places) {
    from.iter().for_each(|(name, count)| add(to, name, count.entries, count.bytes));
}
