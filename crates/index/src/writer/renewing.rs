//! What readers go by, checked and made good: as long as nothing changes in a source, nothing else
//! would notice. What the writer itself goes by is read whenever an index is opened.

use super::{Held, Writer, class_lists, grants_of};
use crate::class_lists::{ClassList, ListedClass, listed_for};
use crate::disk::Disk;
use crate::error::Result;
use crate::manifest::{self, Catalog, Document, Manifest};
use crate::names;
use crate::sealed::Sealed;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

impl Writer {
    /// Has the next generation write anew what is damaged, missing, or not for those whom it is for,
    /// as in an index that was copied without permissions: the catalog, and the lists and manifests
    /// of classes. Returns these files. Directories of classes are made right at once.
    pub fn renew_damaged(&mut self) -> Result<Vec<PathBuf>> {
        let Some(current) = &self.current else { return Ok(Vec::new()) };
        let mut renewed = Vec::new();
        let path = names::catalog(&self.path, current.generation);
        let is_right = |catalog: &Catalog| catalog.lists == self.lists;
        renewed.extend(read_as(&path, is_right)?.is_none().then_some(path));
        let mut changed = HashSet::new();
        for (&class, Held { manifest, written, .. }) in &self.classes {
            let path = names::manifest(&self.dirs.ensure(&self.table, class)?, *written);
            if read_as(&path, |known: &Manifest| known == manifest)?.is_none() {
                changed.insert(class);
                renewed.push(path);
            }
        }
        let mut relisted = BTreeSet::new();
        let own = class_lists(&self.table, &self.dirs, &self.classes).own;
        for list in &self.lists {
            let path = self.names.list(list.principal, list.generation);
            let expected = own.get(&list.principal).map(classes_of).unwrap_or_default();
            let known = read_as(&path, |list: &ClassList| classes_of(list) == expected)?;
            if known.is_none() || !Disk::is_shared_with(&path, list.principal) {
                relisted.insert(list.principal);
                renewed.push(path);
            }
        }
        // Of a class whose manifest is written anew, the lists name another one.
        let listed = changed.iter().flat_map(|&class| listed_for(&grants_of(&self.table, class)));
        relisted.extend(listed);
        self.changed.extend(changed);
        self.relisted.append(&mut relisted);
        self.renews |= !renewed.is_empty();
        Ok(renewed)
    }

    /// Fails if anything that is sealed of a source is damaged or missing.
    pub fn check_sealed(&self, source: u32) -> Result<()> {
        for (&class, Held { manifest, .. }) in &self.classes {
            for file in manifest.sealed.iter().filter(|file| file.source == source) {
                let directory = self.dirs.directory(&self.table, class);
                Sealed::new(file.clone(), directory).check()?;
            }
        }
        Ok(())
    }
}

/// Reads a document; nothing if it is damaged, missing or another than expected.
fn read_as<D: Document>(path: &Path, is_expected: impl Fn(&D) -> bool) -> Result<Option<D>> {
    match manifest::read(path) {
        Ok(document) => Ok(Some(document).filter(is_expected)),
        Err(error) if error.damaged_file().is_some() => Ok(None),
        Err(error) => Err(error),
    }
}

fn classes_of(list: &ClassList) -> BTreeSet<([u8; 16], u64)> {
    let of = |class: &ListedClass| (class.place.tag, class.manifest);
    list.classes.iter().map(of).collect()
}
