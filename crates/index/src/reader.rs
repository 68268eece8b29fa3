//! Opening an index for reading: one generation, and of it what the kernel lets the caller see.

use crate::error::{Error, Result};
use crate::manifest::{
    self, AllManifests, Catalog, ClassManifest, Current, GrantRecord, Manifest, SourceRecord,
};
use crate::shard::Shard;
use canopy_model::Credentials;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One generation of an index, as far as the caller may see it. Never changes while it is open.
pub struct Index {
    path: PathBuf,
    generation: u64,
    published_ns: i64,
    sources: Vec<SourceRecord>,
    shards: Vec<Arc<Shard>>,
    classes: Classes,
}

/// How many classes an index has, and how many of them the caller sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct Classes {
    /// Classes that hold anything.
    pub all: usize,
    /// Those that the caller may read.
    pub visible: usize,
}

impl Index {
    /// Opens the current generation. Takes no lock.
    pub fn open(path: &Path) -> Result<Self> {
        // Files of a generation go away when two newer ones were published since CURRENT was read.
        for _ in 0..3 {
            match Self::open_current(path) {
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
        Self::open_current(path)
    }

    fn open_current(path: &Path) -> Result<Self> {
        let current: Current = match manifest::read(&manifest::current_path(path)) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoIndex(path.to_owned()));
            }
            other => other?,
        };
        let mut index = Index {
            path: path.to_owned(),
            generation: current.generation,
            published_ns: current.published_ns,
            sources: Vec::new(),
            shards: Vec::new(),
            classes: Classes::default(),
        };
        let all = manifest::all_manifests_path(path, current.generation);
        match manifest::read::<AllManifests>(&all) {
            Ok(all) => index.add_all(all),
            Err(error) if denied(&error) => index.add_permitted(&credentials(&all)?)?,
            Err(error) => return Err(error),
        }
        index.sources.sort_by(|a, b| a.root.cmp(&b.root));
        Ok(index)
    }

    fn add_all(&mut self, all: AllManifests) {
        self.classes = Classes { all: all.classes.len(), visible: all.classes.len() };
        for ClassManifest { class, manifest } in all.classes {
            self.add(&manifest::class_path(&self.path, &class.grants), manifest);
        }
    }

    /// Tries the classes whose grants these credentials pass. The catalog only saves attempts: it is the kernel
    /// that lets the caller into a class directory or not.
    fn add_permitted(&mut self, who: &Credentials) -> Result<()> {
        let path = manifest::catalog_path(&self.path, self.generation);
        let catalog: Catalog = manifest::read(&path)?;
        let grants: Vec<_> = catalog.grants.iter().map(GrantRecord::grant).collect();
        self.classes.all = catalog.classes.len();
        for class in &catalog.classes {
            let passes = |id: &u32| grants.get(*id as usize).is_some_and(|grant| grant.passes(who));
            if !class.grants.iter().all(passes) {
                continue;
            }
            let directory = manifest::class_path(&self.path, &class.grants);
            match manifest::read::<Manifest>(&manifest::manifest_path(&directory, class.manifest)) {
                Ok(manifest) => {
                    self.classes.visible += 1;
                    self.add(&directory, manifest);
                }
                Err(error) if denied(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn add(&mut self, directory: &Path, manifest: Manifest) {
        self.sources.extend(manifest.sources);
        self.shards.extend(manifest.shards.into_iter().map(|shard| Arc::new(Shard::new(shard, directory))));
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Number of the generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// When the generation was published, in nanoseconds since 1970.
    pub fn published_ns(&self) -> i64 {
        self.published_ns
    }

    /// The sources that the caller may know of, by root.
    pub fn sources(&self) -> &[SourceRecord] {
        &self.sources
    }

    /// The shards that the caller may read, of all sources.
    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// The shards of one source.
    pub fn shards_of(&self, source: u32) -> impl Iterator<Item = &Arc<Shard>> {
        self.shards.iter().filter(move |shard| shard.record().source == source)
    }

    /// How many classes there are.
    pub fn classes(&self) -> Classes {
        self.classes
    }
}

fn denied(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
}

/// The credentials by which the kernel judges the caller's access to files.
fn credentials(path: &Path) -> Result<Credentials> {
    let groups = rustix::process::getgroups().map_err(|errno| Error::io("read", path)(errno.into()))?;
    let gids = groups.into_iter().chain([rustix::process::getegid()]).map(|gid| gid.as_raw());
    Ok(Credentials::new(rustix::process::geteuid().as_raw(), gids))
}
