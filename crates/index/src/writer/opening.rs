//! Opening an index for writing: the current generation is read, and what is left of others goes.

use super::cleaning::{self, Tree};
use super::loaded::Loaded;
use super::pages::ReadPages;
use super::rebuild::GenerationDocuments;
use super::salvage;
use super::{Held, Published, Writer, WriterOptions, now_ns};
use crate::bundles::Bundled;
use crate::class_dirs::ClassDirs;
use crate::class_lists::ListRecord;
use crate::digest::DigestKey;
use crate::error::{Error, Result};
use crate::failures::Failures;
use crate::journal::{self, Journal, Leftover};
use crate::manifest::{AllManifests, Current};
use crate::marker::{self, Marker};
use crate::names::{self, Names};
use crate::retention::Leaving;
use crate::safety;
use crate::unfinished::{self, Found};
use crate::workers::{self, SharedScan, Worker};
use canopy_model::{Generation, OwnerLimits};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// For whom an index is opened.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// For one process that does all.
    Alone,
    /// For a worker that lists parts.
    Worker(&'a Worker),
    /// For the worker that publishes.
    Publisher(&'a Worker),
}

impl Role<'_> {
    /// Returns the worker that it is opened for, if the scan is shared.
    fn worker(&self) -> Option<&Worker> {
        match self {
            Role::Alone => None,
            Role::Worker(worker) | Role::Publisher(worker) => Some(worker),
        }
    }

    /// Returns what workers share, if the scan is shared.
    fn scan(&self) -> Option<&SharedScan> {
        self.worker().map(Worker::scan)
    }

    /// Returns whether others write the index meanwhile, and only one of them publishes.
    fn is_one_of_many(&self) -> bool {
        matches!(self, Role::Worker(_))
    }

    /// Reads the marker of the index, and locks it unless others write it, too.
    fn claim(&self, path: &Path, salvages: bool) -> Result<(Option<File>, Marker)> {
        let claimed = match (self.is_one_of_many(), salvages) {
            (true, _) => marker::read(path).map(|marker| (None, marker)),
            (false, true) => salvage::claim(path).map(|(lock, marker)| (Some(lock), marker)),
            (false, false) => marker::claim(path).map(|(lock, marker)| (Some(lock), marker)),
        };
        claimed.map_err(|error| salvage::lock_error(path, error))
    }

    /// Returns the journal of a generation, and the number of the first file.
    fn journal(&self, path: &Path, generation: Generation) -> (Journal, u64) {
        match self {
            Role::Worker(worker) => {
                let journal = worker.directory().join("journal");
                let next = worker.next_file.load(Ordering::Relaxed);
                (Journal::of_worker(path, journal, generation), next)
            }
            Role::Alone | Role::Publisher(_) => (Journal::new(path, generation), 0),
        }
    }
}

impl Writer {
    #[expect(clippy::too_many_lines, reason = "most of it is one struct")]
    pub(super) fn open_for(role: Role<'_>, path: &Path, options: WriterOptions) -> Result<Self> {
        let uid = rustix::process::geteuid().as_raw();
        let mode = if uid == 0 { 0o755 } else { 0o700 };
        safety::check_way(path, uid)?; // Before anything is made.
        options.disk.directories(path, mode)?;
        let path = safety::check(path, uid)?;
        let (lock, Marker { key, secret }) = role.claim(&path, options.salvages)?;
        let names = Names::new(&path, key);
        let public_mode = if uid == 0 { 0o644 } else { 0o600 };
        let restored = match options.salvages {
            true => salvage::restore_current(&path, public_mode)?,
            false => None,
        };
        let mut committed = Committed::read(&names, &options)?;
        if let Some(guesses_retention) = restored {
            let salvaged = committed.salvaged.get_or_insert_default();
            salvaged.guesses_retention = guesses_retention;
        }
        if role.scan().is_some_and(|scan| scan.base != committed.generation) {
            return Err(Error::WorkerLost);
        }
        let (interrupted, left) = match role.is_one_of_many() {
            true => (Found::Nothing, Leftover::default()),
            false => committed.clean_up(role, &names, &options)?,
        };
        let generation = match role {
            Role::Worker(worker) => worker.scan().generation,
            _ => next_generation(&path, committed.generation, &left, &interrupted),
        };
        let (journal, first_file) = role.journal(&path, generation);
        let salt = match role.scan() {
            Some(scan) => scan.salt,
            None => marker::random_key(&path)?,
        };
        let disk = options.disk.journaled(journal);
        let options = WriterOptions { disk, ..options };
        let Committed { current, state, lists, bundles, tree, limits, loaded, .. } = committed;
        let (salvaged, lost) = (committed.salvaged, committed.lost);
        let Loaded { table, classes, places, next_source, .. } = loaded;
        let are_private = uid != 0 || role.is_one_of_many();
        let dirs = ClassDirs::new(options.disk.clone(), names.clone(), are_private, salt, places);
        let known = current.as_ref().map(|current| current.retention.clone());
        let retention = options.retention.clone().or(known).unwrap_or_default();
        Ok(Writer {
            lists,
            relisted: BTreeSet::new(),
            renews: salvaged.is_some() || !lost.is_empty(),
            salvaged,
            lost,
            dirs,
            digest_key: DigestKey::new(secret),
            salt,
            names,
            begun: BTreeMap::new(),
            unfinished: Mutex::default(),
            failures: match Failures::read(&path) {
                Err(error) if options.salvages && error.damaged_file().is_some() => {
                    Failures::default()
                }
                failures => failures?,
            },
            incomplete: Vec::new(),
            has_changed: false,
            scans: state.scans,
            tables: state.tables,
            derived_is_stale: false,
            queries: state.queries,
            published: Published::default(),
            interrupted,
            has_noted: AtomicBool::new(false),
            unprivileged: uid != 0,
            current,
            current_tree: tree,
            retention,
            generation,
            path,
            options,
            limits,
            table,
            bundles,
            classes,
            changed: HashSet::new(),
            read_pages: ReadPages::default(),
            shards: Mutex::default(),
            next_shard: AtomicU64::new(first_file),
            beyond_limits: Mutex::default(),
            next_source,
            is_workers: role.is_one_of_many(),
            publisher: role.worker().map(Worker::directory),
            _lock: lock,
        })
    }
}

/// The committed state of an index.
struct Committed {
    /// Content of `CURRENT`; `None` where nothing is committed yet.
    current: Option<Current>,
    /// The number of the generation; 0 for none.
    generation: Generation,
    state: AllManifests,
    lists: Vec<ListRecord>,
    bundles: Vec<Bundled>,
    tree: Tree,
    /// Limits for the directories of one owner from now on.
    limits: Option<OwnerLimits>,
    loaded: Loaded,
    /// Rebuilt parts, if any.
    salvaged: Option<Salvaged>,
    /// Generations that cannot be read any more.
    lost: HashSet<Generation>,
}

/// Parts that were rebuilt when a damaged index was opened.
#[derive(Clone, Debug, Default)]
pub struct Salvaged {
    /// Roots of sources of which something was lost that a scan brings back, escaped.
    pub to_scan: Vec<String>,
    /// Whether it is not known any more which older generations are to be kept.
    pub guesses_retention: bool,
    /// Whether it may be lost how sources were scanned.
    pub lost_options: bool,
    /// Derived tables that are gone, since their queries are lost.
    pub lost_tables: Vec<String>,
    /// The older generation that stands for the current one, if that could not be made again.
    pub from_generation: Option<Generation>,
}

impl Committed {
    fn read(names: &Names, options: &WriterOptions) -> Result<Self> {
        let index = names.index();
        let current = cleaning::current(index)?;
        let generation = current.as_ref().map_or(Generation::NONE, |current| current.generation);
        let path = names::all_manifests(index, generation);
        let mut lost = HashSet::new();
        let (found, salvaged) = match &current {
            // To begin anew would lose all that is there.
            None if salvage::was_published(index) => {
                return Err(Error::corrupt(&names::current(index), "it is missing"));
            }
            None => {
                let state = AllManifests { key: names.key(), ..AllManifests::default() };
                (GenerationDocuments { state, ..GenerationDocuments::default() }, None)
            }
            Some(_) if !options.salvages => (GenerationDocuments::read(index, generation)?, None),
            Some(current) => salvaged(index, current, &mut lost)?,
        };
        let GenerationDocuments { state, bundles, manifests, .. } = found;
        if state.key != names.key() {
            return Err(Error::corrupt(&path, "it is of another index than the file 'lock'"));
        }
        let corrupt = |error| Error::corrupt(&path, error);
        let lists = state.lists.get().map_err(corrupt)?.to_vec();
        let tree = Tree::of(generation, &lists, &manifests).with_bundles(&state.bundles);
        let grants = state.grants.get().map_err(corrupt)?;
        let known = state.limits.map(|(classes, names)| OwnerLimits {
            classes: classes as usize,
            names: names as usize,
        });
        let limits = options.limits.or(known);
        let loaded = Loaded::new(&path, manifests, grants, state.next_grant, limits, options)?;
        Ok(Committed {
            current,
            generation,
            state,
            lists,
            bundles,
            tree,
            limits,
            loaded,
            salvaged,
            lost,
        })
    }

    /// Removes what earlier writers left, and what readers of older generations had time for.
    /// Returns the scan that was interrupted, and what was in the journal.
    fn clean_up(
        &mut self,
        role: Role<'_>,
        names: &Names,
        options: &WriterOptions,
    ) -> Result<(Found, Leftover)> {
        let (index, disk) = (names.index(), &options.disk);
        let interrupted = unfinished::read(index, self.generation, now_ns(), names.key());
        let left = journal::read(index)?;
        match self.salvaged.as_ref().and_then(|salvaged| salvaged.from_generation) {
            // The files of the current generation are not known.
            Some(_) => disk.remove(&names::journal(index))?,
            None => cleaning::clean(disk, names, &left, &self.tree)?,
        }
        if matches!(interrupted, Found::Useless(_)) {
            cleaning::forget_unfinished(disk, names, &self.tree)?;
        }
        if let Role::Alone = role {
            match workers::state(index, self.generation) {
                Some(true) if !options.gives_up_shared => {
                    return Err(Error::Shared(index.to_owned()));
                }
                Some(_) => cleaning::forget_workers(disk, names, &self.tree)?,
                None => {}
            }
        }
        if let Some(current) = &mut self.current {
            let held = self.loaded.classes.values();
            let pages = held.flat_map(|held: &Held| &held.manifest.shards.pages);
            let bytes = pages.map(|page| page.extent.bytes).sum();
            let staying = match options.keep_replaced {
                true => Leaving::staying(&current.leaving, now_ns(), bytes),
                false => 0,
            };
            cleaning::let_go(disk, names, current, &self.tree, staying)?;
        }
        Ok((interrupted, left))
    }
}

/// Reads the current generation, made again where it is damaged, or the newest older one that can be
/// read in its place. Adds those that cannot be to `lost`.
fn salvaged(
    index: &Path,
    current: &Current,
    lost: &mut HashSet<Generation>,
) -> Result<(GenerationDocuments, Option<Salvaged>)> {
    let is_lost = |error: &Error| error.damaged_file().is_some();
    for kept in &current.kept {
        if GenerationDocuments::read(index, kept.generation).as_ref().is_err_and(is_lost) {
            lost.insert(kept.generation);
        }
    }
    let mut documents = Vec::new();
    match GenerationDocuments::read_or_rebuild(index, current.generation, &mut documents) {
        Ok(found) if documents.is_empty() => Ok((found, None)),
        Ok(found) => {
            // Rebuilt parts are in the next generation.
            lost.insert(current.generation);
            let sources = found.manifests.iter().flat_map(|it| &it.manifest.sources);
            let to_scan = sources.filter(|it| found.to_scan.contains(&it.id));
            let salvaged = Salvaged {
                to_scan: to_scan.map(|source| source.root.clone()).collect(),
                lost_options: found.lost_state,
                lost_tables: found.lost_tables.clone(),
                ..Salvaged::default()
            };
            Ok((found, Some(salvaged)))
        }
        Err(error) if is_lost(&error) => {
            lost.insert(current.generation);
            let mut older = current.kept.iter().filter(|kept| !lost.contains(&kept.generation));
            let Some(older) = older.next() else { return Err(error) };
            let found = GenerationDocuments::read(index, older.generation)?;
            let sources = found.manifests.iter().flat_map(|it| &it.manifest.sources);
            let salvaged = Salvaged {
                to_scan: sources.map(|source| source.root.clone()).collect(),
                from_generation: Some(older.generation),
                ..Salvaged::default()
            };
            Ok((found, Some(salvaged)))
        }
        Err(error) => Err(error),
    }
}

/// Returns the number of the next generation, which no file has yet, whatever a loss of power has
/// left.
fn next_generation(
    index: &Path,
    committed: Generation,
    left: &Leftover,
    interrupted: &Found,
) -> Generation {
    let mut generation = committed.max(left.generation).next();
    if let Found::Record(record) = interrupted {
        generation = generation.max(record.generation.next());
    }
    let listed = unfinished::files(index, committed).unwrap_or_default();
    let is_used = |number| {
        let files = [names::all_manifests(index, number), names::leaving(index, number)];
        files.iter().any(|file| file.symlink_metadata().is_ok())
            || listed.iter().any(|file| names::is_of_generation(file, number))
    };
    while is_used(generation) {
        generation = generation.next();
    }
    generation
}
