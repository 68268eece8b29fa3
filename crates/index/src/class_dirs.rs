//! The directories of the classes: where a grant becomes an access control list that the kernel enforces.
//!
//! A class is a chain of directories, one a grant. Each belongs to root, has no write bit for anybody else and
//! lets through exactly those who pass its grant. The owning group is the grant's first group, or root's with the
//! outcome of everybody else, so that it never decides anything by itself.

use crate::disk::Disk;
use crate::error::Result;
use crate::manifest::class_path;
use canopy_model::{Acl, AclEntry, AclTag, ClassId, ClassTable, Grant};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Makes class directories, each once.
pub(crate) struct ClassDirs {
    disk: Disk,
    index: PathBuf,
    /// Whether the writer is not root: then the directories are its own and there is one class.
    unprivileged: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    made: HashSet<Vec<u32>>,
    /// Grants that the file system cannot express.
    closed: HashSet<u32>,
}

impl ClassDirs {
    pub(crate) fn new(disk: Disk, index: &Path, unprivileged: bool) -> Self {
        ClassDirs { disk, index: index.to_owned(), unprivileged, state: Mutex::default() }
    }

    /// The directory of a class, made if there is none.
    pub(crate) fn ensure(&self, table: &ClassTable, class: ClassId) -> Result<PathBuf> {
        let grants: Vec<u32> = table.grants_of(class).iter().map(|id| id.0).collect();
        let mut state = self.state.lock().expect("no thread panics while it holds the lock");
        if !state.made.contains(&grants) {
            let known = table.grants();
            for length in 0..=grants.len() {
                let chain = &grants[..length];
                if state.made.contains(chain) {
                    continue;
                }
                let grant = chain.last().map(|&id| (id, known[id as usize].as_ref()));
                self.make(&mut state, &class_path(&self.index, chain), grant)?;
                state.made.insert(chain.to_vec());
            }
        }
        Ok(class_path(&self.index, &grants))
    }

    /// How many grants could not be expressed, so that only root sees what they guard.
    pub(crate) fn closed_grants(&self) -> usize {
        self.state.lock().expect("no thread panics while it holds the lock").closed.len()
    }

    fn make(&self, state: &mut State, path: &Path, grant: Option<(u32, &Grant)>) -> Result<()> {
        let dir = self.disk.private_dir(path)?;
        if self.unprivileged {
            return Ok(());
        }
        let Some((id, grant)) = grant else {
            return self.disk.set_mode(path, &dir, (0, 0), 0o755);
        };
        if let Some((gid, mode)) = plain_mode(grant) {
            return self.disk.set_mode(path, &dir, (0, gid), mode);
        }
        let (gid, acl) = spelled_out(grant);
        self.disk.set_mode(path, &dir, (0, gid), 0o700)?;
        if !self.disk.set_acl(path, &dir, &acl)? {
            state.closed.insert(id);
        }
        Ok(())
    }
}

const READ_SEARCH: u16 = 0o5;

fn bits(granted: bool) -> u16 {
    if granted { READ_SEARCH } else { 0 }
}

/// The owning group and mode that express a grant without an ACL, if they can.
fn plain_mode(grant: &Grant) -> Option<(u32, u32)> {
    if !grant.users().is_empty() || grant.groups().len() > 1 {
        return None;
    }
    let other = bits(grant.other());
    let (gid, group) = grant.groups().iter().next().map_or((0, other), |(&gid, &g)| (gid, bits(g)));
    Some((gid, 0o700 | u32::from(group) << 3 | u32::from(other)))
}

/// The owning group and ACL that express any grant.
fn spelled_out(grant: &Grant) -> (u32, Acl) {
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let mut groups = grant.groups().iter();
    let other = bits(grant.other());
    let (gid, owning) = groups.next().map_or((0, other), |(&gid, &granted)| (gid, bits(granted)));
    let mut entries = vec![entry(AclTag::Owner, 0o7)];
    entries.extend(grant.users().iter().map(|(&uid, &granted)| entry(AclTag::User(uid), bits(granted))));
    entries.push(entry(AclTag::OwningGroup, owning));
    entries.extend(groups.map(|(&gid, &granted)| entry(AclTag::Group(gid), bits(granted))));
    entries.extend([entry(AclTag::Mask, READ_SEARCH), entry(AclTag::Other, other)]);
    (gid, Acl { entries })
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::Wanted;

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
            let (gid, acl) = spelled_out(&grant);
            assert_eq!(Grant::new(0o750, 0, gid, Some(&acl), Wanted::READ_SEARCH), grant);
            if let Some((gid, mode)) = plain_mode(&grant) {
                assert_eq!(mode & 0o022, 0);
                assert_eq!(Grant::new(mode, 0, gid, None, Wanted::READ_SEARCH), grant);
            }
        }
    }
}
