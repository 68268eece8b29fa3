//! Lists of the classes that a reader may try, shown to as few readers as possible.
//!
//! The members of a class are not public: they show how a user has shared something. So the
//! directories of classes have names that nobody can guess. A name is in the list of each user and
//! each group that a grant of the class lets in. The kernel shows that list, a file, to that user
//! or group alone. Classes that grant by exception (everybody but some), or to more than
//! [`PRINCIPALS_MAX`], are in the catalog, which everybody reads.
//!
//! A list only saves attempts: the kernel decides at the directory of the class.
//!
//! A single catalog of all grants, as there was once, showed everybody who shares with whom, and
//! every command read all of it. With lists, a command reads only the classes that may concern its
//! user.

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::manifest::{self, Catalog, Document};
use crate::names::{ClassPlace, Names};
use canopy_model::{Generation, Grant, Ownership, Principal};
use rustc_hash::FxHashSet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Deref;
use std::path::PathBuf;

/// Most users and groups who have a class in lists of their own: each is a file.
const PRINCIPALS_MAX: usize = 8;

/// A class that the reader of a list may try to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedClass {
    pub(crate) place: ClassPlace,
    /// Generation of the manifest that counts.
    pub(crate) manifest: Generation,
}

/// The classes of a user or a group: `PRINCIPAL-GENERATION.bin` in `lists`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClassList {
    pub(crate) classes: Vec<ListedClass>,
}

/// A list's owner, and the generation in which it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct ListRecord {
    #[serde(with = "PrincipalRecord")]
    pub(crate) principal: Principal,
    pub(crate) generation: Generation,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Principal")]
enum PrincipalRecord {
    User(u32),
    Group(u32),
}

impl Document for ClassList {
    const KIND: &'static str = "list";
    const PADDED: bool = true;

    fn is_sound(&self) -> bool {
        self.classes.iter().all(|class| class.place.is_sound())
    }
}

/// Readers whose lists contain a class.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Readers {
    Everybody,
    Only(Vec<Principal>),
}

impl Readers {
    /// Returns the readers whose lists contain the class with these grants. The grant that names
    /// the fewest users and groups decides; those that another grant surely stops are left out.
    fn of<G: Deref<Target = Grant>>(grants: &[G]) -> Self {
        let few = grants.iter().filter_map(|grant| grant.principals());
        let few = few.filter(|principals| principals.len() <= PRINCIPALS_MAX);
        match few.min_by_key(Vec::len) {
            None => Readers::Everybody,
            Some(mut principals) => {
                principals
                    .retain(|&principal| grants.iter().all(|grant| grant.may_let_pass(principal)));
                Readers::Only(principals)
            }
        }
    }
}

/// Returns the users and groups whose lists have the class with these grants.
pub(crate) fn listed_for<G: Deref<Target = Grant>>(grants: &[G]) -> Vec<Principal> {
    match Readers::of(grants) {
        Readers::Everybody => Vec::new(),
        Readers::Only(principals) => principals,
    }
}

/// Returns whether the class with these grants is in the list for everybody.
pub(crate) fn is_for_everybody<G: Deref<Target = Grant>>(grants: &[G]) -> bool {
    Readers::of(grants) == Readers::Everybody
}

/// Sorts the grants of a class into the order of the directories that lead to its files: those that
/// let the fewest in come first, so that others learn nothing of the rest.
pub(crate) fn sort_chain<G: Deref<Target = Grant>>(grants: &mut [G]) {
    grants.sort_by_cached_key(|grant| grant.principals().map_or(usize::MAX, |few| few.len()));
}

/// The lists of one generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClassLists {
    pub(crate) everybody: Vec<ListedClass>,
    pub(crate) own: BTreeMap<Principal, ClassList>,
}

impl ClassLists {
    /// Adds a class to the lists of those whom its grants may let in.
    pub(crate) fn add<G: Deref<Target = Grant>>(&mut self, class: ListedClass, grants: &[G]) {
        match Readers::of(grants) {
            Readers::Everybody => self.everybody.push(class),
            Readers::Only(principals) => principals
                .into_iter()
                .for_each(|principal| self.own.entry(principal).or_default().classes.push(class)),
        }
    }

    /// Writes the lists of these users and groups; those of others are as they were, in the files that
    /// were written. Returns which files count.
    pub(crate) fn write(
        &self,
        disk: &Disk,
        names: &Names,
        generation: Generation,
        changed: &BTreeSet<Principal>,
        written: &[ListRecord],
    ) -> Result<Vec<ListRecord>> {
        let known: BTreeMap<Principal, Generation> =
            written.iter().map(|list| (list.principal, list.generation)).collect();
        let mut lists = Vec::with_capacity(self.own.len());
        if !self.own.is_empty() {
            make_directory(disk, names)?;
        }
        for (&principal, list) in &self.own {
            let kept = known.get(&principal).copied();
            let kept = kept.filter(|_| !changed.contains(&principal));
            if kept.is_none() {
                let path = names.list(principal, generation);
                manifest::write_for(disk, &path, list, principal)?;
            }
            lists.push(ListRecord { principal, generation: kept.unwrap_or(generation) });
        }
        Ok(lists)
    }
}

/// Makes the directory of the lists, which everybody may search.
pub(crate) fn make_directory(disk: &Disk, names: &Names) -> Result<()> {
    let path = names.lists();
    disk.set_mode(&path, &disk.private_dir(&path)?, Ownership::ROOT, 0o711)
}

/// Returns the classes that the lists for these users and groups name, each once, and a list that
/// the kernel denies one of them though it is theirs.
pub(crate) fn classes_for(
    names: &Names,
    catalog: &Catalog,
    principals: &[Principal],
) -> Result<(Vec<ListedClass>, Option<PathBuf>)> {
    let (mut classes, mut denied) = (catalog.classes.clone(), None);
    for &principal in principals {
        let at = catalog.lists.binary_search_by_key(&principal, |list| list.principal);
        let Ok(at) = at else { continue };
        let path = names.list(principal, catalog.lists[at].generation);
        match manifest::read::<ClassList>(&path) {
            Ok(list) => classes.extend(list.classes),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
                denied = Some(path);
            }
            Err(error) => return Err(error),
        }
    }
    let mut seen = FxHashSet::default();
    classes.retain(|class| seen.insert(class.place));
    Ok((classes, denied))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Principal::{Group, User};

    fn readers(grants: &[&Grant]) -> Readers {
        Readers::of(grants)
    }

    #[test]
    fn a_class_is_told_to_those_whom_it_may_let_in() {
        let owner = Grant::from_parts([(7, true)], [], false);
        let shared = Grant::from_parts([(7, true)], [(50, true), (51, false)], false);
        let exception = Grant::from_parts([(9, false)], [], true);
        let only = |principals: &[Principal]| Readers::Only(principals.to_vec());
        assert_eq!(readers(&[]), Readers::Everybody);
        assert_eq!(readers(&[&exception]), Readers::Everybody);
        assert_eq!(readers(&[&shared]), only(&[User(7), Group(50)]));
        assert_eq!(readers(&[&exception, &shared]), only(&[User(7), Group(50)]));
        assert_eq!(readers(&[&shared, &owner]), only(&[User(7)]));
        assert_eq!(readers(&[&Grant::nobody()]), only(&[]));
        // The user of the shorter grant is stopped by the longer one.
        let others = Grant::from_parts([(7, false)], [(50, true)], false);
        assert_eq!(readers(&[&owner, &others]), only(&[]));
        let many = (1..=PRINCIPALS_MAX as u32 + 1).map(|uid| (uid, true));
        assert_eq!(readers(&[&Grant::from_parts(many, [], false)]), Readers::Everybody);
    }

    #[test]
    fn those_who_let_few_in_come_first_in_a_chain() {
        let owner = Grant::from_parts([(7, true)], [], false);
        let shared = Grant::from_parts([(8, true)], [(50, true)], false);
        let exception = Grant::from_parts([(9, false)], [], true);
        let mut chain = [&exception, &shared, &owner];
        sort_chain(&mut chain);
        assert_eq!(chain, [&owner, &shared, &exception]);
    }
}
