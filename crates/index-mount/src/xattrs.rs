//! Values of extended attributes, as far as the user may see them.

use crate::view::Result;
use canopy_index::column::{KEY, NAME, VALUE, VALUE_PATH};
use canopy_index::{Index, Shard, SourceId, SourceRecord};
use canopy_model::{AbsolutePath, SourcePath, SourcePathBuf};
use canopy_read::locate::{absolute_path, read_xattrs, xattrs_of};
use canopy_read::plan::row_count;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// If a source has more values, they are read anew for each entry.
const KEPT_MAX: usize = 500_000;

/// Names and values, escaped.
pub(crate) type Pairs = Vec<(String, String)>;

/// The values of a source by path.
type ByPath = Arc<HashMap<SourcePathBuf, Pairs>>;

/// The values of the sources that were asked for, by number of the source.
#[derive(Default)]
pub(crate) struct Values(Mutex<HashMap<SourceId, ByPath>>);

impl Values {
    /// Returns the values of an entry of a source that are seen from it. `index` is the index as it
    /// is seen from everywhere.
    pub(crate) fn of(
        &self,
        index: &Index,
        view: &Index,
        source: &SourceRecord,
        path: SourcePath<'_>,
    ) -> Result<Pairs> {
        let mut count = 0;
        for shard in index.shards_with_values(source.id, SourcePath::ROOT)? {
            count += row_count(&shard.live_values()?);
        }
        if count > KEPT_MAX {
            return Ok(xattrs_of(view, source, path)?);
        }
        let known = self.0.lock().get(&source.id).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                let mut all = HashMap::new();
                for shard in index.shards_with_values(source.id, SourcePath::ROOT)? {
                    add(shard, &mut all, |_| true)?;
                }
                let all = Arc::new(all);
                self.0.lock().insert(source.id, all.clone());
                all
            }
        };
        let mut found = HashMap::new();
        for shard in
            view.shards_behind_gates().iter().filter(|shard| shard.record().source == source.id)
        {
            add(shard, &mut found, |at| at == path)?;
        }
        let mut pairs = found.remove(path.as_str()).unwrap_or_default();
        pairs.extend(known.get(path.as_str()).into_iter().flatten().cloned());
        let sealed = view.unseal(source.id, AbsolutePath::new(&absolute_path(source, path)))?;
        pairs.extend(sealed.into_iter().flat_map(|record| record.xattrs));
        pairs.sort();
        pairs.dedup();
        Ok(pairs)
    }
}

/// Adds the values of a shard at the paths that are wanted.
pub(crate) fn add(
    shard: &Shard,
    to: &mut HashMap<SourcePathBuf, Pairs>,
    is_wanted: impl Fn(SourcePath<'_>) -> bool,
) -> Result<()> {
    for batch in read_xattrs(shard)? {
        let batch = batch?;
        let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
        let (keys, values) = (KEY.of(&batch)?, VALUE.of(&batch)?);
        for at in 0..batch.num_rows() {
            let path = SourcePath::escaped(paths.value(at)).child(names.value(at));
            if is_wanted(path.as_path()) {
                let pair = (keys.value(at).to_owned(), values.value(at).to_owned());
                to.entry(path).or_default().push(pair);
            }
        }
    }
    Ok(())
}
