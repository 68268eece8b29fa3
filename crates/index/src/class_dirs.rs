//! The directories of the classes: where a grant becomes an access control list that the kernel
//! enforces.
//!
//! A class is a chain of directories, one a grant. Each belongs to root, has no write bit for
//! anybody else and lets through exactly those who pass its grant. A gate's directory lets those
//! list it who may list the gate, and those through who may search it; in it, each child of the
//! gate has a directory whose name only those can compute who know the child's (see `names`). The
//! owning group is the grant's first group, or root's with the outcome of everybody else, so that
//! it never decides anything by itself.

use crate::disk::Disk;
use crate::error::Result;
use crate::names::{DirName, Names};
use canopy_model::{Acl, AclEntry, AclTag, ClassId, ClassTable, Grant, GrantId};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

/// Makes class directories, each once.
pub(crate) struct ClassDirs {
    disk: Disk,
    names: Names,
    /// Whether the writer is not root: then the directories are its own and there is one class.
    unprivileged: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: HashSet<PathBuf>,
    /// Directories that the file system cannot guard as they should be.
    closed: HashSet<DirName>,
}

impl ClassDirs {
    pub(crate) fn new(disk: Disk, names: Names, unprivileged: bool) -> Self {
        ClassDirs { disk, names, unprivileged, state: Mutex::default() }
    }

    /// Returns the directory of a class, made if there is none.
    pub(crate) fn ensure(&self, table: &ClassTable, class: ClassId) -> Result<PathBuf> {
        let class = table.path_of(class);
        let path = self.names.class(&class);
        let mut state = self.state.lock();
        if !state.made.contains(&path) {
            let mut path = self.names.classes();
            self.make_once(&mut state, &path, None, table)?;
            for name in self.names.steps(&class) {
                path.push(name.to_string());
                self.make_once(&mut state, &path, Some(name), table)?;
            }
        }
        Ok(path)
    }

    /// Returns how many grants could not be expressed, so that only root sees what they guard.
    pub(crate) fn closed_grants(&self) -> usize {
        self.state.lock().closed.len()
    }

    fn make_once(
        &self,
        state: &mut State,
        path: &Path,
        name: Option<DirName>,
        table: &ClassTable,
    ) -> Result<()> {
        if state.made.contains(path) {
            return Ok(());
        }
        let dir = self.disk.private_dir(path)?;
        if !self.unprivileged {
            let grant = |id: GrantId| table.grant(id);
            let guard = match &name {
                None | Some(DirName::Passage(_)) => Guard::everyone(),
                Some(DirName::Grant(id)) => Guard::new(&grant(*id), &grant(*id)),
                Some(DirName::Gate(gate)) => Guard::new(&grant(gate.search), &grant(gate.read)),
            };
            let mode = guard.mode();
            if self.disk.is_guarded(&dir, guard.gid, mode, &guard.acl()) {
                state.made.insert(path.to_owned());
                return Ok(());
            }
            match mode {
                Some(mode) => self.disk.set_mode(path, &dir, (0, guard.gid), mode)?,
                None => {
                    self.disk.set_mode(path, &dir, (0, guard.gid), 0o700)?;
                    if !self.disk.set_acl(path, &dir, &guard.acl())? {
                        state.closed.extend(name);
                    }
                }
            }
        }
        state.made.insert(path.to_owned());
        Ok(())
    }
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
    fn everyone() -> Self {
        Guard { users: Vec::new(), gid: 0, group: 5, groups: Vec::new(), other: 5 }
    }

    /// Lets those look names up who pass `search`, and those list them who pass `read`. Both are
    /// grants of one inode, so a user or group that only one of them names is judged like
    /// everybody else by the other.
    fn new(search: &Grant, read: &Grant) -> Self {
        let bits = |search: bool, read: bool| u16::from(search) | u16::from(read) << 2;
        let user = |grant: &Grant, uid: u32| match grant.users().get(&uid) {
            Some(&granted) => granted,
            None => grant.other() && grant.groups().is_empty(),
        };
        let group =
            |grant: &Grant, gid: u32| grant.groups().get(&gid).copied().unwrap_or(grant.other());
        let other = bits(search.other(), read.other());
        let uids: BTreeSet<u32> =
            search.users().keys().chain(read.users().keys()).copied().collect();
        let gids: BTreeSet<u32> =
            search.groups().keys().chain(read.groups().keys()).copied().collect();
        let users =
            uids.into_iter().map(|uid| (uid, bits(user(search, uid), user(read, uid)))).collect();
        let mut groups =
            gids.into_iter().map(|gid| (gid, bits(group(search, gid), group(read, gid))));
        let (gid, owning) = groups.next().unwrap_or((0, other));
        Guard { users, gid, group: owning, groups: groups.collect(), other }
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
    use canopy_model::Wanted;

    fn says(guard: &Guard, search: &Grant, read: &Grant) {
        let acl = guard.acl();
        let grant = |mode, acl, wanted| Grant::new(mode, 0, guard.gid, acl, wanted);
        assert_eq!(&grant(0o750, Some(&acl), Wanted::SEARCH), search);
        assert_eq!(&grant(0o750, Some(&acl), Wanted::READ), read);
        if let Some(mode) = guard.mode() {
            assert_eq!(mode & 0o022, 0);
            assert_eq!(&grant(mode, None, Wanted::SEARCH), search);
            assert_eq!(&grant(mode, None, Wanted::READ), read);
        }
    }

    /// What a directory expresses must be the grant that it was made from.
    #[test]
    fn directories_say_what_their_grants_say() {
        let group = |gid, granted| (gid, granted);
        for grant in [
            Grant::from_parts([], [], false),
            Grant::from_parts([], [group(5, true)], false),
            Grant::from_parts([], [group(5, false)], true),
            Grant::from_parts([(1000, true)], [], false),
            Grant::from_parts([(1000, false)], [group(5, true), group(6, true)], false),
            Grant::from_parts([(7, false), (8, true)], [group(5, false), group(6, true)], true),
        ] {
            says(&Guard::new(&grant, &grant), &grant, &grant);
        }
    }

    /// A gate's directory has the gate's own outcomes for search and read, whatever its
    /// mode and ACL.
    #[test]
    fn gates_say_what_the_gate_says() {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        for mode in 0..0o1000 {
            for named in 0..8 {
                let acl = Acl {
                    entries: vec![
                        entry(AclTag::Owner, (mode >> 6) as u16),
                        entry(AclTag::User(7), named),
                        entry(AclTag::User(8), 5),
                        entry(AclTag::OwningGroup, named ^ 4),
                        entry(AclTag::Group(9), (mode & 7) as u16),
                        entry(AclTag::Mask, (mode >> 3 & 7) as u16),
                        entry(AclTag::Other, (mode & 7) as u16),
                    ],
                };
                for acl in [None, Some(&acl)] {
                    let [search, read] = [Wanted::SEARCH, Wanted::READ]
                        .map(|wanted| Grant::new(mode, 1, 2, acl, wanted));
                    says(&Guard::new(&search, &read), &search, &read);
                }
            }
        }
    }
}
