//! Makes again what the writer of an index goes by, where it is damaged: the root's document and the
//! bundles. All of it but a little is in what readers go by.
//!
//! The catalog and the lists name the classes that anybody may read, and which manifest of each
//! counts; the others are found in the directory of classes, but for those that are leaving. Each
//! class is what its manifest says. Its grants are what the kernel makes of the permissions of its
//! directories. They must let in the users and groups whose lists name the class: directories that
//! were copied without their ACLs would let in others.
//!
//! Lost are the options of scans and queries of derived tables, as far as no older generation has
//! them, and what the writer knows of names behind gates. So sources that have such names are to be
//! scanned anew.
//!
//! Where rows are damaged, the whole source is scanned anew, not only the directories of the
//! damaged file. A page has shards from anywhere in its class, and a scan of the whole source
//! need not read the rows that it replaces.

use crate::bundles::{self, BundleId, BundleRecord, Bundled};
use crate::class_dirs;
use crate::class_lists::{ClassList, ListedClass, is_for_everybody, listed_for, sort_chain};
use crate::error::{Error, Result};
use crate::journal::{self, Intent};
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, ClassRecord, GrantRecord, Manifest, ShardSet,
};
use crate::names::{self, ClassPlace, Names};
use crate::own_tables::TableRecord;
use crate::packed::PackedList;
use crate::source_id::SourceId;
use canopy_model::{GRANTS_MAX, Generation, Grant, Principal};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A document that the writer goes by and that cannot be read.
pub(super) struct LostDocument {
    pub(super) error: Error,
    /// The entry of the root's document, if it is a bundle.
    pub(super) record: Option<BundleRecord>,
}

/// The contents of a generation, as its writer knows them.
#[derive(Default)]
pub(super) struct GenerationDocuments {
    pub(super) state: AllManifests,
    pub(super) bundles: Vec<Bundled>,
    pub(super) manifests: Vec<ClassManifest>,
    /// Sources of which something is lost that only a scan brings back.
    pub(super) to_scan: BTreeSet<SourceId>,
    /// Whether the options of scans are those of an older generation, or lost.
    pub(super) lost_state: bool,
    /// Derived tables whose queries are lost.
    pub(super) lost_tables: Vec<String>,
}

impl GenerationDocuments {
    /// Reads a generation; fails if anything is damaged.
    pub(super) fn read(index: &Path, generation: Generation) -> Result<Self> {
        let state: AllManifests = manifest::read(&names::all_manifests(index, generation))?;
        let (bundles, manifests) = bundles::read_all(index, &state.bundles)?;
        Ok(GenerationDocuments { state, bundles, manifests, ..GenerationDocuments::default() })
    }

    /// Reads a generation, rebuilds its damaged parts, and adds these to `lost`.
    pub(super) fn read_or_rebuild(
        index: &Path,
        generation: Generation,
        lost: &mut Vec<LostDocument>,
    ) -> Result<Self> {
        let path = names::all_manifests(index, generation);
        let state = match manifest::read::<AllManifests>(&path) {
            Ok(state) => Some(state),
            Err(error) if error.damaged_file().is_some() => {
                lost.push(LostDocument { error, record: None });
                None
            }
            Err(error) => return Err(error),
        };
        let mut whole = Vec::new();
        for record in state.iter().flat_map(|state| &state.bundles) {
            match bundles::read_all(index, std::slice::from_ref(record)) {
                Ok((bundled, manifests)) => whole.extend(bundled.into_iter().zip([manifests])),
                Err(error) if error.damaged_file().is_some() => {
                    lost.push(LostDocument { error, record: Some(record.clone()) });
                }
                Err(error) => return Err(error),
            }
        }
        match state {
            Some(state) if lost.is_empty() => {
                let (bundles, manifests): (Vec<_>, Vec<_>) = whole.into_iter().unzip();
                let manifests = manifests.into_iter().flatten().collect();
                Ok(GenerationDocuments {
                    state,
                    bundles,
                    manifests,
                    ..GenerationDocuments::default()
                })
            }
            Some(state) => Rebuild::new(index, generation)?.missing_of(state, whole),
            None => Rebuild::new(index, generation)?.all(),
        }
    }
}

/// A class that readers know.
struct FoundClass {
    listed: ListedClass,
    /// Principals whose list contains it; `None` for everybody.
    readers: Option<BTreeSet<Principal>>,
}

struct Rebuild {
    names: Names,
    generation: Generation,
    catalog: Catalog,
    classes: FxHashMap<ClassPlace, FoundClass>,
    to_scan: BTreeSet<SourceId>,
    /// Whether it is lost which sources a class has sealed.
    lost_hidden: bool,
}

impl Rebuild {
    fn new(index: &Path, generation: Generation) -> Result<Self> {
        let catalog: Catalog = manifest::read(&names::catalog(index, generation))?;
        let names = Names::new(index, catalog.key);
        let mut classes = FxHashMap::default();
        for &listed in &catalog.classes {
            classes.insert(listed.place, FoundClass { listed, readers: None });
        }
        for list in &catalog.lists {
            let path = names.list(list.principal, list.generation);
            for listed in manifest::read::<ClassList>(&path)?.classes {
                let new = || FoundClass { listed, readers: Some(BTreeSet::new()) };
                let found = classes.entry(listed.place).or_insert_with(new);
                found.readers.get_or_insert_default().insert(list.principal);
            }
        }
        let (to_scan, lost_hidden) = (BTreeSet::new(), false);
        let mut rebuild = Rebuild { names, generation, catalog, classes, to_scan, lost_hidden };
        rebuild.find_unlisted()?;
        Ok(rebuild)
    }

    /// Adds the classes that nobody has in a list: those of root alone, and others that let nobody in.
    fn find_unlisted(&mut self) -> Result<()> {
        let gone = self.gone()?;
        let directory = self.names.classes();
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            entries => entries.map_err(Error::io("list", &directory))?,
        };
        for entry in entries {
            let name = entry.map_err(Error::io("list", &directory))?.file_name();
            let Some(tag) = name.to_str().and_then(|name| hex::decode(name).ok()) else { continue };
            let Ok(tag) = <[u8; 16]>::try_from(tag) else { continue };
            for depth in 1..=GRANTS_MAX as u32 {
                let place = ClassPlace { tag, depth };
                let newest = self.newest_manifest(place, &gone);
                let Some(manifest) = newest.filter(|_| !self.classes.contains_key(&place)) else {
                    continue;
                };
                let listed = ListedClass { place, manifest };
                let readers = Some(BTreeSet::new());
                self.classes.insert(place, FoundClass { listed, readers });
            }
        }
        Ok(())
    }

    /// Returns the files that are about to be removed, or that only older generations need.
    fn gone(&self) -> Result<BTreeSet<PathBuf>> {
        let index = self.names.index();
        let entries = std::fs::read_dir(index).map_err(Error::io("list", index))?;
        let mut gone = BTreeSet::new();
        for entry in entries {
            let name = entry.map_err(Error::io("list", index))?.file_name();
            let is_list = |name: &str| name.starts_with("leaving-") || name == "journal";
            if !name.to_str().is_some_and(is_list) {
                continue;
            }
            let intents = journal::read_at(&index.join(&name))?.intents;
            let goes = intents.into_iter().filter(|(intent, _)| *intent != Intent::Make);
            gone.extend(goes.map(|(_, path)| index.join(path)));
        }
        Ok(gone)
    }

    fn newest_manifest(&self, place: ClassPlace, gone: &BTreeSet<PathBuf>) -> Option<Generation> {
        let directory = self.names.class(place);
        let entries = std::fs::read_dir(&directory).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let number = |name: String| -> Option<Generation> {
            name.strip_prefix("manifest-")?.strip_suffix(".bin")?.parse().ok()
        };
        let newest = names.filter_map(number).filter(|it| *it <= self.generation).max()?;
        (!gone.contains(&names::manifest(&directory, newest))).then_some(newest)
    }

    /// Makes the bundles again that are missing of a generation.
    fn missing_of(
        mut self,
        state: AllManifests,
        whole: Vec<(Bundled, Vec<ClassManifest>)>,
    ) -> Result<GenerationDocuments> {
        for (bundled, _) in &whole {
            bundled.classes.iter().for_each(|class| drop(self.classes.remove(&class.place)));
        }
        let path = names::all_manifests(self.names.index(), self.generation);
        let corrupt = |error| Error::corrupt(&path, error);
        let known = state.grants.get().map_err(corrupt)?;
        let ids: BTreeMap<Grant, u32> = known.iter().map(|(id, it)| (it.grant(), *id)).collect();
        let expected: usize = state.bundles.iter().map(|bundle| bundle.classes as usize).sum();
        let found = whole.iter().map(|(bundled, _)| bundled.classes.len()).sum::<usize>();
        if found + self.classes.len() != expected {
            return Err(self.inconsistent("some classes are missing"));
        }
        let lost = std::mem::take(&mut self.classes);
        let mut rebuilt = Vec::with_capacity(lost.len());
        for class in lost.values() {
            let grants = self.grants_of(class)?;
            let own = self.ids_of(&grants, &ids)?;
            rebuilt.push(self.manifest_of(class, own, None)?);
        }
        let (bundles, manifests): (Vec<_>, Vec<_>) = whole.into_iter().unzip();
        let manifests: Vec<_> = manifests.into_iter().flatten().chain(rebuilt).collect();
        self.check_distinct(&manifests)?;
        let to_scan = self.sources_to_scan(&manifests);
        Ok(GenerationDocuments {
            state,
            bundles,
            manifests,
            to_scan,
            ..GenerationDocuments::default()
        })
    }

    /// Makes the root's document again, and the bundles as far as they are missing.
    fn all(mut self) -> Result<GenerationDocuments> {
        let on_disk = self.bundles_on_disk()?;
        let mut manifests = Vec::with_capacity(self.classes.len());
        let classes = std::mem::take(&mut self.classes);
        let with_grants = |class| Ok((self.grants_of(class)?, class));
        let classes: Vec<(Vec<Grant>, &FoundClass)> =
            classes.values().map(with_grants).collect::<Result<_>>()?;
        let ids = numbered(classes.iter().map(|(grants, _)| grants.as_slice()));
        for (grants, class) in classes {
            let own = self.ids_of(&grants, &ids)?;
            let known = on_disk.iter().flat_map(|(_, classes)| classes).find(|known| {
                known.class.place == class.listed.place
                    && known.class.manifest == class.listed.manifest
            });
            manifests.push(self.manifest_of(class, own, known)?);
        }
        self.check_distinct(&manifests)?;
        let index = self.names.index();
        let path = names::all_manifests(index, self.generation);
        let failed = Error::encode::<postcard::Error>(&path);
        let grants = ids.iter().map(|(grant, id)| (*id, GrantRecord::new(grant))).collect();
        let older = older_state(index, self.generation);
        let sources: Vec<_> =
            manifests.iter().flat_map(|it| &it.manifest.sources).cloned().collect();
        let (mut tables, mut lost_tables) = (self.catalog.tables.clone(), Vec::new());
        let is_known = |name: &str| older.queries.contains_key(name);
        let is_lost = |it: &mut TableRecord| it.is_derived() && !is_known(&it.name);
        lost_tables.extend(tables.extract_if(.., is_lost).map(|it| it.name));
        let is_source = |id: SourceId| {
            let known = older.sources.iter().find(|known| known.id == id);
            sources.iter().any(|it| it.id == id && known.is_some_and(|old| old.root == it.root))
        };
        let place = |it: &ClassManifest| (it.class.place, it.class.manifest);
        let places: BTreeSet<_> =
            manifests.iter().map(|it| (place(it).0.tag, place(it).1)).collect();
        let is_ours = |classes: &[ClassManifest]| {
            classes.iter().all(|it| places.contains(&(it.class.place.tag, it.class.manifest)))
        };
        let bundles = on_disk.iter().filter(|(_, classes)| is_ours(classes));
        let state = AllManifests {
            key: self.names.key(),
            grants: PackedList::new(grants).map_err(&failed)?,
            next_grant: ids.len() as u32,
            limits: older.limits,
            sources: sources.clone(),
            bundles: bundles.map(|(id, _)| BundleRecord::named(*id)).collect(),
            lists: PackedList::new(self.catalog.lists.clone()).map_err(&failed)?,
            queries: older
                .queries
                .into_iter()
                .filter(|(name, _)| tables.iter().any(|it| it.name == *name))
                .collect(),
            scans: older.scans.into_iter().filter(|(id, _)| is_source(*id)).collect(),
            tables,
        };
        let to_scan = self.sources_to_scan(&manifests);
        let lost_state = true;
        Ok(GenerationDocuments {
            state,
            manifests,
            to_scan,
            lost_state,
            lost_tables,
            ..GenerationDocuments::default()
        })
    }

    /// Reads the bundles that are there and whole, of any generation up to this one; the newest
    /// first.
    fn bundles_on_disk(&self) -> Result<Vec<(BundleId, Vec<ClassManifest>)>> {
        let index = self.names.index();
        let entries = std::fs::read_dir(index).map_err(Error::io("list", index))?;
        let id = |name: String| -> Option<BundleId> {
            let (generation, number) = name.strip_suffix("-bundle.bin")?.split_once('-')?;
            Some(BundleId { generation: generation.parse().ok()?, number: number.parse().ok()? })
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut ids: Vec<BundleId> = names.filter_map(id).collect();
        ids.retain(|id| id.generation <= self.generation);
        ids.sort_unstable_by(|a, b| b.cmp(a));
        let read = |id: BundleId| Some((id, bundles::read_unrecorded(index, id).ok()?));
        Ok(ids.into_iter().filter_map(read).collect())
    }

    /// Returns the grants of a class, in the order of its directories, as their permissions say.
    fn grants_of(&self, class: &FoundClass) -> Result<Vec<Grant>> {
        let chain = match class.listed.place.depth {
            0 => Vec::new(),
            _ => self.names.class_chain(class.listed.place),
        };
        let grants: Vec<Grant> =
            chain.iter().map(|path| class_dirs::grant_of(path)).collect::<Result<_>>()?;
        let refs: Vec<&Grant> = grants.iter().collect();
        let told: BTreeSet<Principal> = listed_for(&refs).into_iter().collect();
        let is_expected = match &class.readers {
            None => is_for_everybody(&refs),
            Some(readers) => !is_for_everybody(&refs) && *readers == told,
        };
        match is_expected && !grants.iter().any(Grant::is_everyone) {
            true => Ok(grants),
            false => Err(self.inconsistent("the permissions of a class differ")),
        }
    }

    /// Returns the ids of the grants of a class, sorted; its directories must be in the order that
    /// these ids give them.
    fn ids_of(&self, chain: &[Grant], ids: &BTreeMap<Grant, u32>) -> Result<Vec<u32>> {
        let by_id: BTreeMap<u32, &Grant> =
            chain.iter().filter_map(|grant| Some((*ids.get(grant)?, grant))).collect();
        let mut sorted: Vec<&Grant> = by_id.values().copied().collect();
        sort_chain(&mut sorted);
        match sorted.iter().copied().eq(chain) {
            true => Ok(by_id.into_keys().collect()),
            false => Err(self.inconsistent("the permissions of a class differ")),
        }
    }

    /// Returns the contents of a class, given the ids of its grants and the record of a bundle.
    fn manifest_of(
        &mut self,
        class: &FoundClass,
        grants: Vec<u32>,
        known: Option<&ClassManifest>,
    ) -> Result<ClassManifest> {
        let ListedClass { place, manifest: written } = class.listed;
        let path = names::manifest(&self.names.class(place), written);
        let manifest: Manifest = manifest::read(&path)?;
        let class = ClassRecord {
            grants,
            place,
            manifest: written,
            charged: known.and_then(|known| known.class.charged),
        };
        if let Some(ClassManifest { gated, hidden, .. }) = known {
            let (gated, hidden) = (gated.clone(), hidden.clone());
            return Ok(ClassManifest { class, manifest, gated, hidden });
        }
        self.to_scan.extend(manifest.sealed.iter().map(|file| file.source));
        self.lost_hidden |= !manifest.hidden.is_empty();
        Ok(ClassManifest { class, manifest, gated: ShardSet::default(), hidden: Vec::new() })
    }

    /// Returns the sources that are to be scanned: all where it is lost which ones classes have sealed.
    fn sources_to_scan(self, manifests: &[ClassManifest]) -> BTreeSet<SourceId> {
        match self.lost_hidden {
            true => manifests.iter().flat_map(|it| &it.manifest.sources).map(|it| it.id).collect(),
            false => self.to_scan,
        }
    }

    /// Fails if two classes have the same grants.
    fn check_distinct(&self, manifests: &[ClassManifest]) -> Result<()> {
        let mut seen = BTreeSet::new();
        match manifests.iter().all(|it| seen.insert(&it.class.grants)) {
            true => Ok(()),
            false => Err(self.inconsistent("two classes have the same permissions")),
        }
    }

    fn inconsistent(&self, detail: &str) -> Error {
        Error::corrupt(&names::all_manifests(self.names.index(), self.generation), detail)
    }
}

/// Numbers grants such that those of each class ascend in the order of its directories.
fn numbered<'a>(chains: impl Iterator<Item = &'a [Grant]>) -> BTreeMap<Grant, u32> {
    let chains: Vec<&[Grant]> = chains.collect();
    let mut levels: BTreeMap<&Grant, usize> =
        chains.iter().flat_map(|chain| chain.iter()).map(|grant| (grant, 0)).collect();
    // In each round another one is right; directories in no order at all are found out later.
    for _ in 0..levels.len() {
        let mut is_settled = true;
        for pair in chains.iter().flat_map(|chain| chain.windows(2)) {
            let least = levels[&pair[0]] + 1;
            let level = levels.entry(&pair[1]).or_default();
            is_settled &= *level >= least;
            *level = least.max(*level);
        }
        if is_settled {
            break;
        }
    }
    let mut order: Vec<(usize, &Grant)> =
        levels.into_iter().map(|(it, level)| (level, it)).collect();
    order.sort_unstable();
    order.into_iter().zip(0..).map(|((_, grant), id)| (grant.clone(), id)).collect()
}

/// Returns scans, limits and queries from the newest older generation that can be read.
fn older_state(index: &Path, generation: Generation) -> AllManifests {
    let entries = std::fs::read_dir(index).into_iter().flatten();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: String| -> Option<Generation> {
        name.strip_prefix("manifests-")?.strip_suffix(".bin")?.parse().ok()
    };
    let mut older: Vec<Generation> =
        names.filter_map(number).filter(|it| *it < generation).collect();
    older.sort_unstable();
    let read = |it: Generation| manifest::read(&names::all_manifests(index, it)).ok();
    older.into_iter().rev().find_map(read).unwrap_or_default()
}
