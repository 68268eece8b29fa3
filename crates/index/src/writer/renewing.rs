//! Checking and renewing the files for readers: as long as nothing changes in a source, nothing
//! else would notice damage. The writer's own files are read whenever an index is opened.

use super::cleaning::shard_files;
use super::publishing::class_lists;
use super::{Held, Writer};
use crate::class_dirs::{ClassDirs, grants_of};
use crate::class_lists::{self, ClassList, ListRecord, ListedClass, listed_for};
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, Catalog, Document, Manifest};
use crate::names::{self, Names};
use crate::own_tables::TableRecord;
use crate::pages::PageRecord;
use crate::schema::FileKind;
use crate::sealed::Sealed;
use crate::shard::{ClassDir, Shard};
use crate::source_id::SourceId;
use canopy_model::{ClassId, ClassTable, Generation, Principal, parallel};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::Metadata;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Permissions of everybody on a file in a class that is not for the writer alone.
pub(super) const READABLE: u32 = 0o444;

impl Writer {
    /// Has the next generation write files anew that are damaged, missing, or closed to their
    /// readers, as in an index that was copied without permissions: the catalog, and the lists and
    /// manifests of classes. Returns these files. Directories are made right at once.
    ///
    /// Does nothing in a user namespace that does not know all users and groups: there, right
    /// permissions look wrong.
    pub fn renew_damaged(&mut self) -> Result<Vec<PathBuf>> {
        let Some(current) = self.current.as_ref().filter(|_| knows_all_ids()) else {
            return Ok(Vec::new());
        };
        for (&class, Held { gated, .. }) in &self.classes {
            self.dirs.ensure(&self.table, class)?;
            if !gated.is_empty() {
                self.dirs.ensure_gated(&self.table, class)?;
            }
        }
        if !self.lists.is_empty() {
            class_lists::make_directory(&self.options.disk, &self.names)?;
        }
        let readers = ForReaders {
            names: &self.names,
            generation: current.generation,
            public_mode: self.public_mode(),
            table: &self.table,
            dirs: &self.dirs,
            classes: &self.classes,
            lists: &self.lists,
            tables: &self.tables,
        };
        let (mut renewed, mut changed) = (Vec::new(), HashSet::new());
        let mut relisted = BTreeSet::new();
        readers.each_wrong(|wrong, path| {
            match wrong {
                NotRight::Catalog | NotRight::Current => {}
                NotRight::Manifest(class) => drop(changed.insert(class)),
                NotRight::List(principal) => drop(relisted.insert(principal)),
            }
            renewed.push(path);
        })?;
        // If a manifest is written anew, the lists must name the new one.
        let listed = changed.iter().flat_map(|&class| listed_for(&grants_of(&self.table, class)));
        relisted.extend(listed);
        self.changed.extend(changed);
        self.relisted.append(&mut relisted);
        self.renews |= !renewed.is_empty();
        Ok(renewed)
    }

    /// Fails if a file that readers need of a source is missing, closed to them, or damaged as far
    /// as its length shows; sealed files are read whole. With `whole`, every block of every file is
    /// read, too.
    pub fn check_files(&self, source: SourceId, whole: bool) -> Result<()> {
        let checks_modes = knows_all_ids();
        let check = |path: &Path, bytes: Option<u64>| -> Result<()> {
            let about = path.symlink_metadata().map_err(Error::io("look at", path))?;
            if let Some(bytes) = bytes.filter(|bytes| about.len() != *bytes) {
                let is = about.len();
                return Err(Error::corrupt(path, format!("it has {is} bytes, expected {bytes}")));
            }
            match checks_modes && !has_mode(&about, READABLE) {
                true => Err(Error::corrupt(path, "some of its readers may not read it")),
                false => Ok(()),
            }
        };
        let mut to_read = Vec::new();
        for (&class, Held { manifest, gated, .. }) in &self.classes {
            let directory = self.dirs.directory(&self.table, class);
            for file in manifest.sealed.iter().filter(|file| file.source == source) {
                check(&directory.join(names::sealed_file(&file.id)), Some(file.bytes))?;
                Sealed::new(file.clone(), directory.clone()).check()?;
            }
            let in_gated = directory.join(names::GATED);
            for (directory, set) in [(&directory, &manifest.shards), (&in_gated, gated)] {
                let at = directory.clone();
                let place = Arc::new(ClassDir::new(|| at));
                let own = |page: &&Arc<PageRecord>| page.extent.source == source;
                for page in set.pages.iter().filter(own) {
                    if page.id.secret.is_none() {
                        check(&directory.join(page.id.file_name()), None)?;
                    }
                    for shard in self.read_pages.of(&place, page)?.iter() {
                        shard_files(directory, shard.record())
                            .try_for_each(|(path, bytes)| check(&path, Some(bytes)))?;
                        if whole {
                            to_read.push(shard.clone());
                        }
                    }
                }
            }
        }
        let mut threads = vec![(); self.options.threads.max(1)];
        parallel(&mut threads, to_read, |(), shard: Arc<Shard>| {
            let kinds = FileKind::ALL.into_iter();
            kinds.filter(|&kind| shard.rows(kind) > 0).try_for_each(|kind| shard.check(kind))
        })?;
        Ok(())
    }
}

/// A document that readers go by and that is damaged, missing, or not for those whom it is for.
pub(super) enum NotRight {
    Catalog,
    Current,
    Manifest(ClassId),
    List(Principal),
}

/// Documents that readers use, as the writer knows them.
pub(super) struct ForReaders<'a> {
    pub(super) names: &'a Names,
    pub(super) generation: Generation,
    /// Mode of files for everybody.
    pub(super) public_mode: u32,
    pub(super) table: &'a ClassTable,
    pub(super) dirs: &'a ClassDirs,
    pub(super) classes: &'a BTreeMap<ClassId, Held>,
    pub(super) lists: &'a [ListRecord],
    pub(super) tables: &'a [TableRecord],
}

impl ForReaders<'_> {
    /// Reads all of them, and calls `tell` with each wrong one and its path.
    pub(super) fn each_wrong(&self, mut tell: impl FnMut(NotRight, PathBuf)) -> Result<()> {
        let index = self.names.index();
        let expected = class_lists(self.table, self.dirs, self.classes);
        let path = names::catalog(index, self.generation);
        let is_right = |catalog: &Catalog| {
            catalog.lists == self.lists
                && catalog.tables == self.tables
                && known(&catalog.classes) == known(&expected.everybody)
        };
        if !has_mode_at(&path, self.public_mode) || !read_as(&path, is_right)? {
            tell(NotRight::Catalog, path);
        }
        let path = names::current(index);
        if !has_mode_at(&path, self.public_mode) {
            tell(NotRight::Current, path);
        }
        for (&class, Held { manifest, written, .. }) in self.classes {
            let path = names::manifest(&self.dirs.directory(self.table, class), *written);
            let is_right = |known: &Manifest| known == manifest;
            if !has_mode_at(&path, 0o644) || !read_as(&path, is_right)? {
                tell(NotRight::Manifest(class), path);
            }
        }
        for list in self.lists {
            let path = self.names.list(list.principal, list.generation);
            let own = expected.own.get(&list.principal);
            let own = own.map(|own| known(&own.classes)).unwrap_or_default();
            let is_right = read_as(&path, |list: &ClassList| known(&list.classes) == own)?;
            if !is_right || !Disk::is_shared_with(&path, list.principal) {
                tell(NotRight::List(list.principal), path);
            }
        }
        Ok(())
    }
}

/// Returns whether a file is the caller's and lets those read it that `mode` does.
fn has_mode_at(path: &Path, mode: u32) -> bool {
    path.symlink_metadata().is_ok_and(|about| has_mode(&about, mode & READABLE))
}

/// Returns whether a file is the caller's and has these permission bits, maybe among others.
pub(super) fn has_mode(about: &Metadata, bits: u32) -> bool {
    about.uid() == rustix::process::geteuid().as_raw() && about.permissions().mode() & bits == bits
}

/// Returns whether the caller's user namespace knows all users and groups by their own numbers.
pub(super) fn knows_all_ids() -> bool {
    ["/proc/self/uid_map", "/proc/self/gid_map"].iter().all(|path| {
        let map = std::fs::read_to_string(path).unwrap_or_default();
        map.split_whitespace().eq(["0", "0", "4294967295"])
    })
}

/// Returns whether a document is whole and as expected.
fn read_as<D: Document>(path: &Path, is_expected: impl Fn(&D) -> bool) -> Result<bool> {
    match manifest::read(path) {
        Ok(document) => Ok(is_expected(&document)),
        Err(error) if error.damaged_file().is_some() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns what readers know of classes, in any order.
fn known(classes: &[ListedClass]) -> BTreeSet<([u8; 16], Generation)> {
    classes.iter().map(|class| (class.place.tag, class.manifest)).collect()
}
