//! Two indexes read as one: a user's own beside the site's.

use super::{ClassTables, Classes, Index, Tables};
use crate::shard::Shard;
use canopy_model::is_below;
use std::sync::Arc;

/// The bit that numbers of sources of the own index have: writers count from 0 up.
const OWN: u32 = 1 << 31;

impl Index {
    /// Returns both indexes as one, which keeps the path and generation of this one. Of two sources
    /// with the same root, that of `own` counts; so does a table of it where both have one of that
    /// name. `own` must be an index that the caller has written.
    pub fn joined(mut self, own: Index) -> Index {
        for mut source in own.sources {
            source.id |= OWN;
            self.sources.push(source);
        }
        self.sort_sources();
        for shard in &own.shards {
            let mut record = shard.record().clone();
            record.source |= OWN;
            self.shards.push(Arc::new(Shard::new(record, shard.place.clone())));
        }
        self.classes = Classes {
            all: self.classes.all.zip(own.classes.all).map(|(site, own)| site + own),
            visible: self.classes.visible + own.classes.visible,
        };
        let own_tables = &own.tables.records;
        let is_own = |name: &str| own_tables.iter().any(|table| table.name == name);
        let others = self.tables.records.iter().filter(|table| !is_own(&table.name));
        let records = own_tables.iter().chain(others).cloned().collect();
        let others = self.table_files.iter().map(|class| {
            let files = class.files.iter().filter(|file| !is_own(&file.table)).cloned();
            Arc::new(ClassTables { place: class.place.clone(), files: files.collect() })
        });
        self.table_files = own.table_files.iter().cloned().chain(others).collect();
        self.tables = Arc::new(Tables { records, queries: own.tables.queries.clone() });
        self
    }

    /// Returns the index without sources that lie in one of the other index that it was joined of,
    /// so that no path is in it twice.
    pub fn flattened(mut self) -> Index {
        let roots: Vec<(u32, String)> =
            self.sources.iter().map(|source| (source.id, source.root.clone())).collect();
        let is_covered = |id: u32, root: &str| {
            roots.iter().any(|(other, above)| {
                let of_other_index = (other ^ id) & OWN != 0;
                let counts = above != root || other & OWN != 0;
                of_other_index
                    && counts
                    && is_below(root.trim_start_matches('/'), above.trim_start_matches('/'))
            })
        };
        self.sources.retain(|source| !is_covered(source.id, &source.root));
        let kept = &self.sources;
        self.shards.retain(|shard| kept.iter().any(|source| source.id == shard.record().source));
        self
    }
}
