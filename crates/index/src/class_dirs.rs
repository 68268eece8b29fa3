//! The directories of the classes: where a grant becomes an access control list that the kernel
//! enforces.
//!
//! A class is a chain of directories, one a grant. Each belongs to root, has no write bit for
//! anybody else and lets through exactly those who pass its grant. The owning group is the grant's
//! first group, or root's with the outcome of everybody else, so that it never decides anything by
//! itself. Nobody can guess the name of the first, which `class_lists` tells those who pass it.

use crate::class_lists;
use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::names::{self, ClassPlace, Key, Names};
use canopy_model::{Acl, AclEntry, AclTag, ClassId, ClassTable, Grant, Ownership, Wanted};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use rustix::io::Errno;
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes class directories, each once.
pub(crate) struct ClassDirs {
    disk: Disk,
    names: Names,
    /// Whether new directories stay the writer's own: it is not root, and there is one class, or it
    /// is a worker, and who publishes opens them.
    are_private: bool,
    /// Makes the names of new directories differ from all others.
    salt: Key,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    places: FxHashMap<ClassId, ClassPlace>,
    made: HashSet<PathBuf>,
    /// Grants that the file system cannot express.
    closed: HashSet<Arc<Grant>>,
}

impl ClassDirs {
    /// Makes those of new classes in directories that `salt` names; `places` has the others.
    pub(crate) fn new(
        disk: Disk,
        names: Names,
        are_private: bool,
        salt: Key,
        places: FxHashMap<ClassId, ClassPlace>,
    ) -> Self {
        let state = Mutex::new(State { places, ..State::default() });
        ClassDirs { disk, names, are_private, salt, state }
    }

    /// Returns where a class is, or will be.
    pub(crate) fn place(&self, table: &ClassTable, class: ClassId) -> ClassPlace {
        let depth = table.grants_of(class).len() as u32;
        if depth == 0 {
            return ClassPlace::EVERYONE;
        }
        *self.state.lock().places.entry(class).or_insert_with(|| {
            // By its grants, so that workers with the same salt agree.
            let mut tag = [0; 16];
            let mut hasher = blake3::Hasher::new_keyed(&self.salt);
            hasher.update(b"class");
            let mut grants = grants_of(table, class);
            grants.sort_unstable();
            for grant in grants {
                for outcomes in [grant.users(), grant.groups()] {
                    hasher.update(&outcomes.len().to_le_bytes());
                    for (&id, &passes) in outcomes {
                        hasher.update(&(u64::from(id) << 1 | u64::from(passes)).to_le_bytes());
                    }
                }
                hasher.update(&[grant.other().into()]);
            }
            hasher.finalize_xof().fill(&mut tag);
            ClassPlace { tag, depth }
        })
    }

    /// Returns the directory of a class, which may not have been made.
    pub(crate) fn directory(&self, table: &ClassTable, class: ClassId) -> PathBuf {
        self.names.class(self.place(table, class))
    }

    /// Returns the directory of a class, made if there is none.
    pub(crate) fn ensure(&self, table: &ClassTable, class: ClassId) -> Result<PathBuf> {
        let place = self.place(table, class);
        let path = self.names.class(place);
        let mut state = self.state.lock();
        if state.made.contains(&path) {
            return Ok(path);
        }
        let mut grants = grants_of(table, class);
        class_lists::sort_chain(&mut grants);
        match grants.is_empty() {
            true => self.make_once(&mut state, &path, &Guard::everyone())?,
            false => self.make_once(&mut state, &self.names.classes(), &Guard::by_name())?,
        };
        for (path, grant) in self.names.class_chain(place).iter().zip(grants) {
            if !self.make_once(&mut state, path, &Guard::new(&grant))? {
                state.closed.insert(grant);
            }
        }
        Ok(path)
    }

    /// Returns the directory, in that of a class, whose files are found by name alone.
    pub(crate) fn ensure_gated(&self, table: &ClassTable, class: ClassId) -> Result<PathBuf> {
        let path = self.ensure(table, class)?.join(names::GATED);
        let mut state = self.state.lock();
        if !state.made.contains(&path) {
            let dir = self.disk.private_dir(&path)?;
            if !self.are_private {
                // A user who comes this far has passed the class.
                self.disk.set_mode(&path, &dir, Ownership::ROOT, 0o711)?;
            }
            state.made.insert(path.clone());
        }
        Ok(path)
    }

    /// Returns the faulty directories of a class, with the fault of each. Directories that all
    /// classes share are checked, too. Changes nothing. `has_gated` says whether the class has
    /// files that are found by name alone.
    pub(crate) fn faults(
        &self,
        table: &ClassTable,
        class: ClassId,
        has_gated: bool,
    ) -> Vec<(PathBuf, String)> {
        let place = self.place(table, class);
        let mut grants = grants_of(table, class);
        class_lists::sort_chain(&mut grants);
        let mut expected = match grants.is_empty() {
            true => vec![(self.names.class(place), Guard::everyone())],
            false => vec![(self.names.classes(), Guard::by_name())],
        };
        let chain = if grants.is_empty() { Vec::new() } else { self.names.class_chain(place) };
        expected.extend(chain.into_iter().zip(grants.iter().map(|grant| Guard::new(grant))));
        let gated = self.names.class(place).join(names::GATED);
        expected.extend(has_gated.then_some((gated, Guard::by_name())));
        let mut state = self.state.lock();
        let fault = |(path, guard): (PathBuf, Guard)| {
            // Those that classes have in common are looked at once.
            if !state.made.insert(path.clone()) {
                return None;
            }
            let acl = guard.mode().is_none().then(|| guard.acl());
            let mode = guard.mode().filter(|_| !self.are_private);
            let acl = acl.filter(|_| !self.are_private);
            let owner = (!self.are_private).then_some(Ownership { uid: 0, gid: guard.gid });
            Disk::directory_fault(&path, owner, mode, acl.as_ref()).map(|what| (path, what))
        };
        expected.into_iter().filter_map(fault).collect()
    }

    /// Returns how many grants could not be expressed, so that only root sees what they guard.
    pub(crate) fn closed_grants(&self) -> usize {
        self.state.lock().closed.len()
    }

    /// Makes a directory; returns false if the file system cannot express who may enter it, so that
    /// nobody but root may.
    fn make_once(&self, state: &mut State, path: &Path, guard: &Guard) -> Result<bool> {
        if state.made.contains(path) {
            return Ok(true);
        }
        let dir = self.disk.private_dir(path)?;
        let owner = Ownership { uid: 0, gid: guard.gid };
        let expressed = match guard.mode() {
            _ if self.are_private => true,
            Some(mode) => self.disk.set_mode(path, &dir, owner, mode).map(|()| true)?,
            None => self.disk.set_acl(path, &dir, owner, &guard.acl())?,
        };
        state.made.insert(path.to_owned());
        Ok(expressed)
    }
}

/// Returns the grant that the permissions of a directory express.
pub(crate) fn grant_of(directory: &Path) -> Result<Grant> {
    let about = directory.symlink_metadata().map_err(Error::io("look at", directory))?;
    if !about.is_dir() || about.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::corrupt(directory, "it is not a directory that belongs to the writer"));
    }
    let mut value = vec![0; 64 * 1024];
    let acl = match rustix::fs::lgetxattr(directory, Acl::XATTR_NAME, &mut value[..]) {
        Ok(length) => Some(Acl::decode(&value[..length])),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
        Err(errno) => return Err(Error::io("look at", directory)(errno.into())),
    };
    let acl = acl.transpose().map_err(|error| Error::corrupt(directory, error))?;
    Ok(Grant::new(about.mode(), about.uid(), about.gid(), acl.as_ref(), Wanted::SEARCH))
}

/// Returns the grants of a class.
pub(crate) fn grants_of(table: &ClassTable, class: ClassId) -> Vec<Arc<Grant>> {
    table.grants_of(class).into_iter().map(|id| table.grant(id)).collect()
}

/// The permissions of a class directory, each r 4 and x 1.
struct Guard {
    users: Vec<(u32, u16)>,
    /// The owning group, and what it may.
    gid: u32,
    group: u16,
    groups: Vec<(u32, u16)>,
    other: u16,
}

impl Guard {
    /// Lets everybody in.
    fn everyone() -> Self {
        Guard { users: Vec::new(), gid: 0, group: 5, groups: Vec::new(), other: 5 }
    }

    /// Lets everybody through who knows a name.
    fn by_name() -> Self {
        Guard { group: 1, other: 1, ..Self::everyone() }
    }

    /// Lets those in who pass a grant.
    fn new(grant: &Grant) -> Self {
        let bits = |granted: bool| if granted { 5 } else { 0 };
        let users = grant.users().iter().map(|(&uid, &granted)| (uid, bits(granted)));
        let mut groups = grant.groups().iter().map(|(&gid, &granted)| (gid, bits(granted)));
        let other = bits(grant.other());
        let (gid, group) = groups.next().unwrap_or((0, other));
        Guard { users: users.collect(), gid, group, groups: groups.collect(), other }
    }

    /// Returns the mode that expresses it without an ACL, if one can.
    fn mode(&self) -> Option<u32> {
        let plain = self.users.is_empty() && self.groups.is_empty();
        plain.then(|| 0o700 | u32::from(self.group) << 3 | u32::from(self.other))
    }

    /// Returns the ACL that expresses it.
    fn acl(&self) -> Acl {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let mut entries = vec![entry(AclTag::Owner, 0o7)];
        entries.extend(self.users.iter().map(|&(uid, bits)| entry(AclTag::User(uid), bits)));
        entries.push(entry(AclTag::OwningGroup, self.group));
        entries.extend(self.groups.iter().map(|&(gid, bits)| entry(AclTag::Group(gid), bits)));
        entries.extend([entry(AclTag::Mask, 0o5), entry(AclTag::Other, self.other)]);
        Acl { entries }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ACL of a directory must equal the grant that it was made from.
    #[test]
    fn directories_say_what_their_grants_say() {
        let group = |gid, granted| (gid, granted);
        for grant in [
            Grant::from_parts([], [], false),
            Grant::from_parts([], [group(5, true)], false),
            Grant::from_parts([], [group(5, false)], true),
            Grant::from_parts([(1000, true)], [], false),
            Grant::from_parts([(1000, false)], [], true),
            Grant::from_parts([(1000, false)], [group(5, true), group(6, true)], false),
            Grant::from_parts([(7, false), (8, true)], [group(5, false), group(6, true)], true),
        ] {
            let guard = Guard::new(&grant);
            let acl = guard.acl();
            for wanted in [Wanted::SEARCH, Wanted::READ] {
                let said = |mode, acl| Grant::new(mode, 0, guard.gid, acl, wanted);
                assert_eq!(said(0o750, Some(&acl)), grant);
                if let Some(mode) = guard.mode() {
                    assert_eq!(mode & 0o022, 0);
                    assert_eq!(said(mode, None), grant);
                }
            }
        }
    }
}
