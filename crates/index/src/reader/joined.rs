//! Two indexes read as one: a user's own beside the site's.

use super::{ClassTables, Classes, Index, IndexPage, Tables, of_source};
use canopy_model::is_below;
use std::sync::{Arc, OnceLock};

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
        let loose = own.loose.into_iter();
        self.loose.extend(loose.map(|shard| {
            let source = shard.record().source | OWN;
            of_source(shard, source)
        }));
        Arc::make_mut(&mut self.pages).extend(own.pages.iter().map(|page| {
            let (record, place) = (page.record.clone(), page.place.clone());
            let source = page.source | OWN;
            Arc::new(IndexPage { record, place, source, shards: OnceLock::new() })
        }));
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
        let is_kept = |id: u32| kept.iter().any(|source| source.id == id);
        self.loose.retain(|shard| is_kept(shard.record().source));
        if self.pages.iter().any(|page| !is_kept(page.source)) {
            Arc::make_mut(&mut self.pages).retain(|page| is_kept(page.source));
        }
        self
    }
}
