//! Users and groups that a user namespace has no numbers for: the kernel shows them all as one
//! number, so that permissions of theirs cannot be known.

use canopy_model::{Acl, AclTag};
use std::sync::OnceLock;

/// The number that stands in an ACL for whom the namespace has none.
const NONE: u32 = u32::MAX;

/// Numbers that stand for users and groups which the user namespace of the process does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unmapped {
    uid: Option<u32>,
    gid: Option<u32>,
}

impl Unmapped {
    /// Returns those of this process.
    pub(crate) fn here() -> Self {
        static HERE: OnceLock<Unmapped> = OnceLock::new();
        *HERE.get_or_init(|| {
            // A kernel without user namespaces has no such file; without /proc there is no telling.
            let maps_all = |map: &str| match std::fs::read_to_string(map) {
                Ok(map) => maps_all(&map),
                Err(_) => std::path::Path::new("/proc/self").exists(),
            };
            let Unmapped { uid, gid } = Unmapped::by_a_map();
            Unmapped {
                uid: uid.filter(|_| !maps_all("/proc/self/uid_map")),
                gid: gid.filter(|_| !maps_all("/proc/self/gid_map")),
            }
        })
    }

    /// Returns those of whoever is in a map that does not have every number, such as that of a
    /// mount.
    pub(crate) fn by_a_map() -> Self {
        static OVERFLOW: OnceLock<Unmapped> = OnceLock::new();
        *OVERFLOW.get_or_init(|| {
            let number = |path: &str| {
                let text = std::fs::read_to_string(path).ok();
                Some(text.and_then(|text| text.trim().parse().ok()).unwrap_or(65534))
            };
            Unmapped {
                uid: number("/proc/sys/kernel/overflowuid"),
                gid: number("/proc/sys/kernel/overflowgid"),
            }
        })
    }

    /// Returns whether permissions of this owner and group with this ACL may be of somebody else.
    pub(crate) fn hides(&self, uid: u32, gid: u32, acl: Option<&Acl>) -> bool {
        let (user, group) = (|uid| self.uid == Some(uid), |gid| self.gid == Some(gid));
        user(uid)
            || group(gid)
            || acl.is_some_and(|acl| {
                acl.entries.iter().any(|entry| match entry.tag {
                    AclTag::User(uid) => uid == NONE || user(uid),
                    AclTag::Group(gid) => gid == NONE || group(gid),
                    _ => false,
                })
            })
    }
}

/// Returns whether a map of a user namespace, as in user_namespaces(7), has every number.
fn maps_all(map: &str) -> bool {
    let length = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    map.lines().filter_map(length).sum::<u64>() >= u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::AclEntry;

    #[test]
    fn unmapped_ids_are_recognized() {
        assert!(maps_all("         0          0 4294967295\n"));
        assert!(!maps_all("0 100000 65536\n") && !maps_all(""));
        let here = Unmapped { uid: None, gid: Some(65534) };
        assert!(here.hides(0, 65534, None) && !here.hides(65534, 0, None));
        let acl = |tag| Acl { entries: vec![AclEntry { tag, permissions: 5 }] };
        assert!(here.hides(0, 0, Some(&acl(AclTag::User(NONE)))));
        assert!(here.hides(0, 0, Some(&acl(AclTag::Group(65534)))));
        assert!(!here.hides(0, 0, Some(&acl(AclTag::User(65534)))));
    }
}
