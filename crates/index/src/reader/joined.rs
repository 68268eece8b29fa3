//! Two indexes read as one: a user's own beside the site's.

use super::bundle::of_source;
use super::{Classes, Index, Tables};
use crate::source_id::SourceId;
use canopy_model::is_below;
use std::sync::Arc;

impl Index {
    /// Returns both indexes as one, which keeps the path and generation of this one. If both have a
    /// source with one root, or a table with one name, that of `own` counts. `own` must be an index
    /// that the caller has written.
    pub fn joined(mut self, own: Index) -> Index {
        self.own_published = Some((own.generation, own.published_ns));
        for mut source in own.sources {
            source.id = source.id.in_own_index();
            self.sources.push(source);
        }
        self.sort_sources();
        let loose = own.loose.into_iter();
        self.loose.extend(loose.map(|shard| {
            let source = shard.record().source.in_own_index();
            of_source(shard, source)
        }));
        let bundles = own.bundles.iter().map(|bundle| Arc::new(bundle.of_own_index()));
        Arc::make_mut(&mut self.bundles).extend(bundles);
        self.classes = Classes {
            all: self.classes.all.zip(own.classes.all).map(|(site, own)| site + own),
            visible: self.classes.visible + own.classes.visible,
        };
        let own_tables = &own.tables.records;
        let is_own = |name: &str| own_tables.iter().any(|table| table.name == name);
        let others = self.tables.records.iter().filter(|table| !is_own(&table.name));
        let records = own_tables.iter().chain(others).cloned().collect();
        self.own_tables = Arc::new(own_tables.iter().map(|table| table.name.clone()).collect());
        self.tables = Arc::new(Tables { records, queries: own.tables.queries.clone() });
        self
    }

    /// Returns the index without sources that lie in one of the other index that it was joined of,
    /// so that no path is in it twice.
    pub fn flattened(mut self) -> Index {
        let roots: Vec<(SourceId, String)> =
            self.sources.iter().map(|source| (source.id, source.root.clone())).collect();
        let is_covered = |id: SourceId, root: &str| {
            roots.iter().any(|(other, above)| {
                let of_other_index = other.is_in_own_index() != id.is_in_own_index();
                let counts = above != root || other.is_in_own_index();
                of_other_index
                    && counts
                    && is_below(root.trim_start_matches('/'), above.trim_start_matches('/'))
            })
        };
        let covered = self.sources.iter().filter(|source| is_covered(source.id, &source.root));
        self.covered = Arc::new(covered.map(|source| source.id).collect());
        self.sources.retain(|source| !self.covered.contains(&source.id));
        let kept = &self.sources;
        let is_kept = |id: SourceId| kept.iter().any(|source| source.id == id);
        self.loose.retain(|shard| is_kept(shard.record().source));
        self
    }
}
