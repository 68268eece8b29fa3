//! The values of extended attributes, for formats that print them.
//!
//! Values are in other shards than entries, those of the classes of those who may see them, so a
//! format that prints values has all of its start in memory.

use crate::error::Result;
use canopy_index::column::{KEY, NAME, VALUE, VALUE_PATH};
use canopy_model::{SourcePath, SourcePathBuf, unescape};
use canopy_read::locate::{Start, read_xattrs};
use rustc_hash::FxHashMap;

/// Names and values that the caller may see, as bytes, by path.
#[derive(Default)]
pub(super) struct Values(FxHashMap<SourcePathBuf, Vec<Pair>>);

/// Name and value of an extended attribute.
pub(super) type Pair = (Vec<u8>, Vec<u8>);

impl Values {
    /// Reads those at and below a start.
    pub(super) fn below(start: &Start) -> Result<Self> {
        let mut values = Values::default();
        let around = start.path.as_path().parent().unwrap_or_default();
        for shard in start.view.shards_with_values(start.source.id, around)? {
            for batch in read_xattrs(shard)? {
                let batch = batch?;
                let (paths, names) = (VALUE_PATH.of(&batch)?, NAME.of(&batch)?);
                let (keys, texts) = (KEY.of(&batch)?, VALUE.of(&batch)?);
                for at in 0..batch.num_rows() {
                    let path = SourcePath::escaped(paths.value(at)).child(names.value(at));
                    if path.as_path().is_below(start.path.as_path()) {
                        let [key, value] =
                            [keys, texts].map(|texts| unescape(texts.value(at)).into_owned());
                        values.0.entry(path).or_default().push((key, value));
                    }
                }
            }
        }
        Ok(values)
    }

    /// Keeps those that pass, and returns how many did not.
    pub(super) fn retain(&mut self, passes: impl Fn(&Pair) -> bool) -> u64 {
        let mut left_out = 0;
        for pairs in self.0.values_mut() {
            let before = pairs.len();
            pairs.retain(&passes);
            left_out += (before - pairs.len()) as u64;
        }
        left_out
    }

    /// Gives those of one entry.
    pub(super) fn of(&self, path: SourcePath<'_>) -> &[Pair] {
        self.0.get(path.as_str()).map_or(&[], Vec::as_slice)
    }

    /// Returns whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
