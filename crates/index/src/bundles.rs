//! Bundles: the manifests of some classes, in a file for root that never changes.
//!
//! The root's document says of a bundle where the listings of its classes are and what their entries
//! add up to, by source. So root's commands read the bundles of the part of the tree that they are
//! asked for, and a new generation shares with the one before the bundles whose classes it does not
//! change. Users read the manifests of their classes, each in its own directory, which say the same.
//!
//! A bundle holds the manifests of at most 64 classes near each other. So a command of root reads
//! few bundles, and an update writes one.

use crate::covers::common_directory;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, ClassManifest, ClassRecord, Document};
use crate::names::ClassPlace;
use crate::pages::Extent;
use crate::shard::missing;
use crate::source_id::SourceId;
use canopy_model::{Generation, compare_paths};
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Most classes of a bundle, by default.
pub(crate) const BUNDLE_CLASSES_MAX: usize = 64;

/// The manifests of some classes: `ID-bundle.bin` in the index.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Bundle {
    pub(crate) classes: Vec<ClassManifest>,
}

impl Document for Bundle {
    const KIND: &'static str = "bundle";

    fn is_sound(&self) -> bool {
        self.classes.iter().all(ClassManifest::is_sound)
    }
}

/// Record of a bundle in the root's document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BundleRecord {
    pub(crate) id: BundleId,
    /// Number of its classes.
    pub(crate) classes: u32,
    /// Contents of their shards, by source, in ascending order.
    pub(crate) extents: Vec<Extent>,
    /// Whether they have rows of derived tables.
    pub(crate) has_tables: bool,
}

/// How the name of the file of a bundle begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct BundleId {
    /// The generation in which it was written.
    pub(crate) generation: Generation,
    pub(crate) number: u64,
}

impl BundleId {
    /// Returns the path of the file.
    pub(crate) fn path(self, index: &Path) -> PathBuf {
        index.join(format!("{}-{}-bundle.bin", self.generation, self.number))
    }
}

/// A bundle of a generation, and what its classes are.
#[derive(Clone, Debug)]
pub(crate) struct Bundled {
    pub(crate) record: BundleRecord,
    pub(crate) classes: Vec<ClassRecord>,
}

/// Reads the manifests in a bundle.
pub(crate) fn read(index: &Path, record: &BundleRecord) -> Result<Vec<ClassManifest>> {
    let path = record.id.path(index);
    let Bundle { classes } = manifest::read(&path).map_err(missing)?;
    if classes.len() != record.classes as usize {
        return Err(Error::corrupt(
            &path,
            "it has another number of classes than the manifests say",
        ));
    }
    Ok(classes)
}

/// Reads the manifests in a bundle of which nothing else is known.
pub(crate) fn read_unrecorded(index: &Path, id: BundleId) -> Result<Vec<ClassManifest>> {
    manifest::read::<Bundle>(&id.path(index)).map(|bundle| bundle.classes)
}

/// Reads all bundles of a generation, for the writer, whose generation does not go away meanwhile;
/// returns also the manifests in them.
pub(crate) fn read_all(
    index: &Path,
    records: &[BundleRecord],
) -> Result<(Vec<Bundled>, Vec<ClassManifest>)> {
    let (mut bundles, mut manifests) = (Vec::with_capacity(records.len()), Vec::new());
    for record in records {
        let own = read(index, record).map_err(|error| match error {
            Error::ShardFile { ref path, .. } => Error::corrupt(path, error.damage()),
            other => other,
        })?;
        let classes = own.iter().map(|manifest| manifest.class.clone()).collect();
        bundles.push(Bundled { record: record.clone(), classes });
        manifests.extend(own);
    }
    Ok((bundles, manifests))
}

/// Puts the manifests of all classes into bundles of at most so many: those of which no class has
/// changed stay, the others are written with ids that `new_id` gives. Not durable before a sync.
pub(crate) fn write(
    disk: &Disk,
    index: &Path,
    known: &[Bundled],
    manifests: Vec<ClassManifest>,
    max: usize,
    new_id: impl Fn() -> BundleId,
) -> Result<Vec<Bundled>> {
    let manifests = in_path_order(manifests);
    let stays = staying(known, &manifests, max);
    let mut bundles: Vec<Bundled> =
        known.iter().zip(&stays).filter(|(_, stays)| **stays).map(|(it, _)| it.clone()).collect();
    let stay: FxHashSet<ClassPlace> = places(&bundles).map(|(_, place)| place).collect();
    let mut others: Vec<ClassManifest> =
        manifests.into_iter().filter(|it| !stay.contains(&it.class.place)).collect();
    let count = others.len().div_ceil(max.max(1)).max(1);
    let size = others.len().div_ceil(count).max(1);
    while !others.is_empty() {
        let rest = others.split_off(size.min(others.len()));
        let bundle = Bundle { classes: std::mem::replace(&mut others, rest) };
        let id = new_id();
        let path = id.path(index);
        let record = BundleRecord::of(id, &bundle).map_err(Error::encode(&path))?;
        manifest::write(disk, &path, &bundle, 0o600, false)?;
        let classes = bundle.classes.into_iter().map(|manifest| manifest.class).collect();
        bundles.push(Bundled { record, classes });
    }
    Ok(bundles)
}

impl BundleRecord {
    /// Returns the record of a bundle of which the name alone matters.
    pub(crate) fn named(id: BundleId) -> Self {
        BundleRecord { id, classes: 0, extents: Vec::new(), has_tables: false }
    }

    fn of(id: BundleId, bundle: &Bundle) -> postcard::Result<Self> {
        let mut by_source: BTreeMap<SourceId, Vec<&Extent>> = BTreeMap::new();
        for page in bundle.classes.iter().flat_map(|class| &class.manifest.shards.pages) {
            by_source.entry(page.extent.source).or_default().push(&page.extent);
        }
        Ok(BundleRecord {
            id,
            classes: bundle.classes.len() as u32,
            extents: by_source
                .into_values()
                .map(|extents| Extent::joined(&extents))
                .collect::<postcard::Result<_>>()?,
            has_tables: bundle.classes.iter().any(|class| !class.manifest.tables.is_empty()),
        })
    }
}

/// Sorts manifests by what their listings have in common: their first source, and of this the
/// deepest directory that is or is above all of them.
fn in_path_order(manifests: Vec<ClassManifest>) -> Vec<ClassManifest> {
    let place = |ClassManifest { manifest, .. }: &ClassManifest| {
        let pages = || manifest.shards.pages.iter().map(|page| &page.extent);
        let source = pages().map(|extent| extent.source).min()?;
        let own = pages().filter(|extent| extent.source == source);
        let common = own.filter_map(|extent| extent.ranges.common_directory());
        let directory = common.reduce(|a, b| common_directory(a, b).0)?;
        Some((source, directory.to_owned()))
    };
    let mut placed: Vec<_> = manifests.into_iter().map(|it| (place(&it), it)).collect();
    placed.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some((a, at)), Some((b, bt))) => a.cmp(b).then_with(|| compare_paths(at, bt)),
        _ => a.is_some().cmp(&b.is_some()),
    });
    placed.into_iter().map(|(_, manifest)| manifest).collect()
}

/// Returns of each bundle whether it stays, given the manifests of all classes in path order. A class
/// that is new takes the bundle of the one before it along, and few classes that of a neighbour.
fn staying(known: &[Bundled], manifests: &[ClassManifest], max: usize) -> Vec<bool> {
    let now: FxHashMap<ClassPlace, &ClassRecord> =
        manifests.iter().map(|it| (it.class.place, &it.class)).collect();
    let is_as_it_was = |class: &ClassRecord| now.get(&class.place) == Some(&class);
    let mut stays: Vec<bool> = known.iter().map(|it| it.classes.iter().all(is_as_it_was)).collect();
    let bundle_of: FxHashMap<ClassPlace, usize> =
        places(known).map(|(at, place)| (place, at)).collect();
    let bundles: Vec<Option<usize>> =
        manifests.iter().map(|it| bundle_of.get(&it.class.place).copied()).collect();
    let first = bundles.iter().flatten().next().copied();
    let mut last = first;
    for bundle in &bundles {
        match bundle {
            Some(_) => last = *bundle,
            None => last.into_iter().for_each(|last| stays[last] = false),
        }
    }
    let is_written = |stays: &[bool], bundle: Option<usize>| bundle.is_none_or(|at| !stays[at]);
    loop {
        let written = bundles.iter().filter(|bundle| is_written(&stays, **bundle)).count();
        if written == 0 || written >= max / 2 {
            return stays;
        }
        let neighbour = bundles.windows(2).find_map(|pair| {
            match (is_written(&stays, pair[0]), is_written(&stays, pair[1])) {
                (true, false) => pair[1],
                (false, true) => pair[0],
                _ => None,
            }
        });
        match neighbour {
            Some(at) => stays[at] = false,
            None => return stays,
        }
    }
}

fn places(bundles: &[Bundled]) -> impl Iterator<Item = (usize, ClassPlace)> {
    let places = |bundle: &Bundled| bundle.classes.iter().map(|class| class.place).collect();
    let each = bundles.iter().map(places).enumerate();
    each.flat_map(|(at, places): (usize, Vec<ClassPlace>)| {
        places.into_iter().map(move |place| (at, place))
    })
}
