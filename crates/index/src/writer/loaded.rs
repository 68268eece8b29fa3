//! State that a writer takes over from a generation, or from an interrupted scan.

use super::{Held, WriterOptions};
use crate::error::{Error, Result};
use crate::manifest::{ClassManifest, GrantRecord};
use crate::names::ClassPlace;
use crate::source_id::SourceId;
use canopy_model::{ClassId, ClassTable, GrantId, OwnerLimits};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use std::path::Path;

/// Contents of manifests, in the form that a writer keeps.
pub(super) struct Loaded {
    pub(super) table: ClassTable,
    pub(super) classes: BTreeMap<ClassId, Held>,
    /// The classes, in the order of the manifests.
    pub(super) order: Vec<ClassId>,
    pub(super) places: FxHashMap<ClassId, ClassPlace>,
    pub(super) next_source: SourceId,
}

impl Loaded {
    pub(super) fn new(
        all_path: &Path,
        manifests: Vec<ClassManifest>,
        grants: &[(u32, GrantRecord)],
        next_grant: u32,
        limits: Option<OwnerLimits>,
        options: &WriterOptions,
    ) -> Result<Self> {
        let known: FxHashSet<u32> = grants.iter().map(|(id, _)| *id).collect();
        let table = ClassTable::with_grants(
            grants.iter().map(|(id, grant)| (GrantId(*id), grant.grant())),
            next_grant,
            limits.unwrap_or_default(),
        )
        .charging(options.holders.clone());
        let mut next_source = SourceId(0);
        let (mut classes, mut places) = (Vec::new(), Vec::new());
        for ClassManifest { class, manifest, gated, hidden } in manifests {
            if class.grants.iter().any(|id| !known.contains(id)) {
                return Err(Error::corrupt(all_path, "it names a grant that it does not have"));
            }
            let ids = manifest.sources.iter().map(|source| source.id.next());
            next_source = ids.max().unwrap_or(SourceId(0)).max(next_source);
            let id = table.class_of(&class.grants().collect::<Vec<_>>());
            if class.place.depth as usize != table.grants_of(id).len() {
                return Err(Error::corrupt(all_path, "a class has another number of grants"));
            }
            if let Some(owner) = class.charged {
                table.charge_again(id, owner);
            }
            places.push((id, class.place));
            classes.push((id, Held { written: class.manifest, manifest, gated, hidden }));
        }
        let order = places.iter().map(|(id, _)| *id).collect();
        let (classes, places) = (classes.into_iter().collect(), places.into_iter().collect());
        Ok(Loaded { table, classes, order, places, next_source })
    }
}
