//! The users who pass one permission check: the only place that decides about access.
//!
//! A [`Grant`] is the outcome of the kernel's check of a directory (mode, owner, group, POSIX ACL)
//! for given permission bits, as a function of credentials. It follows `acl_permission_check` and
//! `posix_acl_permission` of Linux:
//!
//! 1. the owner is judged by the owner's bits alone;
//! 2. the ACL, if there is one, counts only if the mode's group bits (then the mask) are not all
//!    clear;
//! 3. a named user is judged by that entry and the mask alone;
//! 4. if any entry of the owning or a named group matches, one of them must grant all wanted bits
//!    by itself;
//! 5. everybody else is judged by the other bits.
//!
//! uid 0 passes every check and never appears in a grant.

use crate::{Acl, AclTag};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The permission bits that a check asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted(u16);

impl Wanted {
    /// Search: may look up names in the directory.
    pub const SEARCH: Wanted = Wanted(0o1);
    /// Execute: the same bit of a file.
    pub const EXECUTE: Wanted = Wanted(0o1);
    /// Write: may change the contents.
    pub const WRITE: Wanted = Wanted(0o2);
    /// Read: may list the names in the directory.
    pub const READ: Wanted = Wanted(0o4);
    /// Read and search, both by one entry of an ACL. To list a directory and look at what is in it
    /// are two checks: see [`Grant::to_list`].
    pub const READ_SEARCH: Wanted = Wanted(0o5);
    /// Write and search, both by one entry of an ACL: to add and to remove names of a directory.
    pub const WRITE_SEARCH: Wanted = Wanted(0o3);
    /// Read and write, both by one entry of an ACL.
    pub const READ_WRITE: Wanted = Wanted(0o6);

    /// Returns whether the check asks for these bits, among others.
    pub fn includes(self, bits: Wanted) -> bool {
        self.0 & bits.0 == bits.0
    }

    fn granted_by(self, bits: u32) -> bool {
        bits & u32::from(self.0) == u32::from(self.0)
    }
}

/// The asking user, with all groups, the primary one among them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credentials {
    /// Effective user.
    pub uid: u32,
    /// Effective and supplementary groups, sorted.
    pub gids: Vec<u32>,
}

impl Credentials {
    /// Returns the credentials of a user with these groups.
    pub fn new(uid: u32, gids: impl IntoIterator<Item = u32>) -> Self {
        let mut gids: Vec<u32> = gids.into_iter().collect();
        gids.sort_unstable();
        gids.dedup();
        Credentials { uid, gids }
    }

    /// Returns whether these credentials pass every check.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }
}

/// A user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Principal {
    /// A user, by uid.
    User(u32),
    /// The members of a group, by gid.
    Group(u32),
}

/// The users who pass one permission check, in normal form: two grants that everybody passes alike
/// are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Grant {
    users: BTreeMap<u32, bool>,
    groups: BTreeMap<u32, bool>,
    other: bool,
}

impl Grant {
    /// Returns the grant of an inode with this mode, owner, group and access ACL for the wanted
    /// bits.
    pub fn new(mode: u32, uid: u32, gid: u32, acl: Option<&Acl>, wanted: Wanted) -> Self {
        let mut grant = Grant {
            users: BTreeMap::new(),
            groups: BTreeMap::new(),
            other: wanted.granted_by(mode),
        };
        match acl {
            Some(acl) if mode & 0o070 != 0 => grant.add_acl(acl, gid, wanted),
            _ => {
                grant.groups.insert(gid, wanted.granted_by(mode >> 3));
            }
        }
        grant.users.insert(uid, wanted.granted_by(mode >> 6));
        grant.normalized()
    }

    /// Returns the grants that together say who may list a directory and look at what is in it. The
    /// kernel checks for read and for search one after the other, so a member of two groups may
    /// have one from each; only an ACL that allows this needs two grants.
    pub fn to_list(mode: u32, uid: u32, gid: u32, acl: Option<&Acl>) -> Vec<Self> {
        let mask = |acl: &Acl| {
            acl.entries
                .iter()
                .find(|entry| entry.tag == AclTag::Mask)
                .map_or(7, |entry| entry.permissions)
        };
        let some_group_has = |acl: &Acl, wanted: u16| {
            let groups = acl
                .entries
                .iter()
                .filter(|entry| matches!(entry.tag, AclTag::OwningGroup | AclTag::Group(_)));
            groups
                .map(|entry| entry.permissions & mask(acl) & 0o5)
                .any(|permissions| permissions == wanted)
        };
        let apart = acl.is_some_and(|acl| some_group_has(acl, 0o4) && some_group_has(acl, 0o1));
        let wanted: &[Wanted] =
            if apart { &[Wanted::READ, Wanted::SEARCH] } else { &[Wanted::READ_SEARCH] };
        wanted.iter().map(|&wanted| Grant::new(mode, uid, gid, acl, wanted)).collect()
    }

    fn add_acl(&mut self, acl: &Acl, owning_gid: u32, wanted: Wanted) {
        let mask = acl
            .entries
            .iter()
            .find(|entry| entry.tag == AclTag::Mask)
            .map_or(7, |entry| entry.permissions);
        for entry in &acl.entries {
            let granted = wanted.granted_by(u32::from(entry.permissions & mask));
            match entry.tag {
                AclTag::User(uid) => {
                    self.users.entry(uid).or_insert(granted);
                }
                AclTag::OwningGroup => *self.groups.entry(owning_gid).or_default() |= granted,
                AclTag::Group(gid) => *self.groups.entry(gid).or_default() |= granted,
                AclTag::Other => self.other = wanted.granted_by(u32::from(entry.permissions)),
                AclTag::Owner | AclTag::Mask => {}
            }
        }
    }

    /// Returns what [`Grant::new`] does, where an inode has an ACL that is not known: only the
    /// owner, whom no ACL concerns, is granted anything.
    pub fn of_hidden_acl(mode: u32, uid: u32, wanted: Wanted) -> Self {
        let users = BTreeMap::from([(uid, wanted.granted_by(mode >> 6))]);
        Grant { users, groups: BTreeMap::new(), other: false }.normalized()
    }

    /// Returns whether access(2) grants a file of this mode, whose grant for the wanted bits this
    /// is. It differs from [`Grant::passes`] in one thing: root executes a file only if somebody
    /// may.
    pub fn passes_access(&self, who: &Credentials, mode: u32, wanted: Wanted) -> bool {
        let is_dir = mode & 0o170_000 == 0o040_000;
        let root_may = !wanted.includes(Wanted::EXECUTE) || is_dir || mode & 0o111 != 0;
        self.passes(who) && (!who.is_root() || root_may)
    }

    /// Returns the grant that nobody but root passes: what is assumed of a directory whose ACL
    /// cannot be read.
    pub fn nobody() -> Self {
        Grant { users: BTreeMap::new(), groups: BTreeMap::new(), other: false }
    }

    /// Returns a grant from its parts, for decoding one that was stored.
    pub fn from_parts(
        users: impl IntoIterator<Item = (u32, bool)>,
        groups: impl IntoIterator<Item = (u32, bool)>,
        other: bool,
    ) -> Self {
        let (users, groups) = (users.into_iter().collect(), groups.into_iter().collect());
        Grant { users, groups, other }.normalized()
    }

    /// Drops what cannot change any outcome.
    fn normalized(mut self) -> Self {
        self.users.remove(&0);
        // No process has the number that chown(2) takes for "leave it".
        self.users.remove(&u32::MAX);
        self.groups.remove(&u32::MAX);
        if self.other {
            // A group that grants only matters to a member of another group that denies.
            if self.groups.values().all(|&granted| granted) {
                self.groups.clear();
            }
        } else {
            self.groups.retain(|_, granted| *granted);
        }
        if self.groups.is_empty() {
            let other = self.other;
            self.users.retain(|_, granted| *granted != other);
        }
        self
    }

    /// Users who are judged by themselves alone, with the outcome.
    pub fn users(&self) -> &BTreeMap<u32, bool> {
        &self.users
    }

    /// Groups whose members are judged by them, with the outcome.
    pub fn groups(&self) -> &BTreeMap<u32, bool> {
        &self.groups
    }

    /// Returns the outcome for everybody else.
    pub fn other(&self) -> bool {
        self.other
    }

    /// Returns whether everybody passes.
    pub fn is_everyone(&self) -> bool {
        self.other && self.users.is_empty() && self.groups.is_empty()
    }

    /// Returns whether these credentials pass.
    pub fn passes(&self, who: &Credentials) -> bool {
        if who.is_root() {
            return true;
        }
        if let Some(&granted) = self.users.get(&who.uid) {
            return granted;
        }
        let mut matching = who.gids.iter().filter_map(|gid| self.groups.get(gid)).peekable();
        if matching.peek().is_none() {
            return self.other;
        }
        matching.any(|&granted| granted)
    }

    /// Returns the grant of those who pass this one and `other`, where a single one can say it: a
    /// member of two groups may pass each by another one.
    pub(crate) fn and(&self, other: &Grant) -> Option<Grant> {
        let one_by_one = self.groups.is_empty() && other.groups.is_empty();
        let denies_users_alone = |grant: &Grant| grant.groups.is_empty() && grant.other;
        let (denying, kept) = match (denies_users_alone(self), denies_users_alone(other)) {
            (true, _) => (self, other),
            (_, true) => (other, self),
            _ if one_by_one => (self, other),
            _ => return None,
        };
        let mut both = kept.clone();
        if one_by_one {
            let of = |grant: &Grant, uid| grant.users.get(uid).copied().unwrap_or(grant.other);
            let uids = self.users.keys().chain(other.users.keys());
            both.users = uids.map(|uid| (*uid, of(self, uid) && of(other, uid))).collect();
            both.other = self.other && other.other;
        } else {
            let denied = denying.users.iter().filter(|(_, granted)| !**granted);
            both.users.extend(denied);
        }
        Some(both.normalized())
    }

    /// Returns the grant of those users who pass all of these whatever their groups are.
    pub(crate) fn users_of_all<G: AsRef<Grant>>(grants: &[G]) -> Grant {
        let named = grants.iter().flat_map(|grant| grant.as_ref().users.keys());
        let pass = |uid: &&u32| grants.iter().all(|grant| grant.as_ref().surely_passes(**uid));
        Grant::from_parts(named.filter(pass).map(|uid| (*uid, true)), [], false)
    }

    /// Returns whether a user passes whatever the groups are.
    pub(crate) fn surely_passes(&self, uid: u32) -> bool {
        uid == 0 || self.users.get(&uid).copied().unwrap_or_else(|| self.passes_any_group())
    }

    /// Returns the users who may pass, and the groups whose members may; `None` if users whom it
    /// does not name pass too.
    pub fn principals(&self) -> Option<Vec<Principal>> {
        let granted = |(&id, &granted): (&u32, &bool)| granted.then_some(id);
        let users = self.users.iter().filter_map(granted).map(Principal::User);
        let groups = self.groups.iter().filter_map(granted).map(Principal::Group);
        (!self.other).then(|| users.chain(groups).collect())
    }

    /// Returns whether a user passes with some groups, or some member of a group.
    pub fn may_let_pass(&self, principal: Principal) -> bool {
        let unnamed = || self.other || self.groups.values().any(|&granted| granted);
        match principal {
            Principal::User(uid) => self.users.get(&uid).copied().unwrap_or_else(unnamed),
            Principal::Group(_) => unnamed() || self.users.values().any(|&granted| granted),
        }
    }

    /// Returns how many users and groups it names.
    pub(crate) fn names(&self) -> usize {
        self.users.len() + self.groups.len()
    }

    /// Returns whether all who pass this grant pass `other` too, whatever users and groups there
    /// are. Exact.
    pub fn implies(&self, other: &Grant) -> bool {
        if !self.groups_imply(other) {
            return false;
        }
        let (always, never) = (other.passes_any_group(), self.fails_any_group());
        self.users.keys().chain(other.users.keys()).all(|uid| {
            match (self.users.get(uid), other.users.get(uid)) {
                (Some(false), _) | (_, Some(true)) => true,
                (Some(true), Some(false)) => false,
                (Some(true), None) => always,
                (None, Some(false)) => never,
                (None, None) => unreachable!("every key is one of either map"),
            }
        })
    }

    /// Returns whether this grant implies `other` for a user whom neither names. A set of groups
    /// that refutes it needs at most two members: one that passes here without passing there, and
    /// one that is denied there.
    fn groups_imply(&self, other: &Grant) -> bool {
        let denied_there =
            || other.groups.iter().filter(|(_, granted)| !**granted).map(|(gid, _)| gid);
        let refuted_by_member = (!other.other || denied_there().next().is_some())
            && self
                .groups
                .iter()
                .any(|(gid, granted)| *granted && other.groups.get(gid) != Some(&true));
        let refuted_by_stranger = self.other
            && (!other.other || denied_there().any(|gid| !self.groups.contains_key(gid)));
        !refuted_by_member && !refuted_by_stranger
    }

    fn passes_any_group(&self) -> bool {
        self.other && self.groups.values().all(|&granted| granted)
    }

    fn fails_any_group(&self) -> bool {
        !self.other && self.groups.values().all(|&granted| !granted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AclEntry;
    use proptest::prelude::*;
    use std::sync::Arc;

    fn ids() -> impl Strategy<Value = u32> {
        0..5_u32
    }

    fn acls() -> impl Strategy<Value = Acl> {
        let named = prop::collection::vec((any::<bool>(), ids(), 0..8_u16), 0..4);
        (named, [0..8_u16, 0..8, 0..8, 0..8]).prop_map(|(named, [owner, group, mask, other])| {
            let entry = |tag, permissions| AclEntry { tag, permissions };
            let mut entries = vec![entry(AclTag::Owner, owner), entry(AclTag::OwningGroup, group)];
            entries.extend(named.into_iter().map(|(user, id, permissions)| {
                entry(if user { AclTag::User(id) } else { AclTag::Group(id) }, permissions)
            }));
            entries.extend([entry(AclTag::Mask, mask), entry(AclTag::Other, other)]);
            Acl { entries }
        })
    }

    fn grants() -> impl Strategy<Value = Grant> {
        let map = || prop::collection::btree_map(ids(), any::<bool>(), 0..4);
        (map(), map(), any::<bool>()).prop_map(|(users, groups, other)| Grant {
            users,
            groups,
            other,
        })
    }

    /// Every user with every set of groups, over the few ids in use and one that nobody names.
    fn everyone() -> impl Iterator<Item = Credentials> {
        (0..7_u32).flat_map(|uid| {
            (0..64_u32)
                .map(move |set| Credentials::new(uid, (0..6).filter(|gid| set >> gid & 1 == 1)))
        })
    }

    /// The kernel's check, transcribed step by step from fs/namei.c and fs/posix_acl.c.
    fn kernel(
        mode: u32,
        owner: (u32, u32),
        acl: Option<&Acl>,
        want: u16,
        who: &Credentials,
    ) -> bool {
        let has = |bits: u32| bits & u32::from(want) == u32::from(want);
        let member = |gid: &u32| who.gids.contains(gid);
        if who.uid == 0 {
            return true;
        }
        if who.uid == owner.0 {
            return has(mode >> 6);
        }
        if let Some(acl) = acl.filter(|_| mode & 0o070 != 0) {
            let mask = acl.entries.iter().find(|e| e.tag == AclTag::Mask).unwrap().permissions;
            let mut found = false;
            for entry in &acl.entries {
                let all = has(u32::from(entry.permissions));
                let masked = has(u32::from(entry.permissions & mask));
                match entry.tag {
                    AclTag::User(uid) if uid == who.uid => return masked,
                    AclTag::OwningGroup if member(&owner.1) => {
                        found = true;
                        if all {
                            return masked;
                        }
                    }
                    AclTag::Group(gid) if member(&gid) => {
                        found = true;
                        if all {
                            return masked;
                        }
                    }
                    AclTag::Other => return !found && all,
                    _ => {}
                }
            }
        }
        has(if member(&owner.1) { mode >> 3 } else { mode })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_grant_agrees_with_the_kernel(
            mode in 0..0o1000_u32, uid in ids(), gid in ids(),
            acl in prop::option::of(acls()),
        ) {
            // The kernel sorts named users before groups and keeps the mode equal to the ACL.
            let acl = acl.map(|mut acl| {
                acl.entries.sort_by_key(|e| match e.tag {
                    AclTag::Owner => (0, 0),
                    AclTag::User(id) => (1, id),
                    AclTag::OwningGroup => (2, 0),
                    AclTag::Group(id) => (3, id),
                    AclTag::Mask => (4, 0),
                    AclTag::Other => (5, 0),
                });
                acl.entries.dedup_by_key(|e| e.tag);
                acl
            });
            let mode = acl.as_ref().map_or(mode, |acl| {
                let bits = |tag| u32::from(acl.entries.iter().find(|e| e.tag == tag).unwrap().permissions);
                bits(AclTag::Owner) << 6 | bits(AclTag::Mask) << 3 | bits(AclTag::Other)
            });
            let acl = acl.as_ref();
            let search = Grant::new(mode, uid, gid, acl, Wanted::SEARCH);
            let list = Grant::to_list(mode, uid, gid, acl);
            for who in everyone() {
                let [reads, searches] = [4, 1].map(|want| kernel(mode, (uid, gid), acl, want, &who));
                prop_assert_eq!(search.passes(&who), searches);
                prop_assert_eq!(list.iter().all(|grant| grant.passes(&who)), reads && searches);
            }
        }

        #[test]
        fn normal_form_keeps_every_outcome_and_is_unique(a in grants(), b in grants()) {
            let (na, nb) = (a.clone().normalized(), b.clone().normalized());
            for who in everyone() {
                prop_assert_eq!(a.passes(&who), na.passes(&who));
            }
            if everyone().all(|who| a.passes(&who) == b.passes(&who)) {
                prop_assert_eq!(na, nb);
            }
        }

        #[test]
        fn two_grants_in_one_say_the_same(a in grants(), b in grants()) {
            let (a, b) = (a.normalized(), b.normalized());
            let users = Grant::users_of_all(&[Arc::new(a.clone()), Arc::new(b.clone())]);
            for who in everyone() {
                let passes = a.passes(&who) && b.passes(&who);
                if let Some(both) = a.and(&b) {
                    prop_assert_eq!(both.passes(&who), passes);
                }
                prop_assert!(passes || !users.passes(&who));
            }
        }

        #[test]
        fn implication_is_sound_and_complete(a in grants(), b in grants()) {
            let (a, b) = (a.normalized(), b.normalized());
            prop_assert_eq!(a.implies(&b), everyone().all(|who| !a.passes(&who) || b.passes(&who)));
        }
    }

    #[test]
    fn a_hidden_acl_leaves_the_owner_alone_and_root_executes_what_somebody_may() {
        let hidden = Grant::of_hidden_acl(0o755, 1000, Wanted::READ);
        assert!(
            hidden.passes(&Credentials::new(1000, [5]))
                && !hidden.passes(&Credentials::new(1001, [5]))
        );
        let root = Credentials::new(0, [0]);
        let executes = |mode| {
            Grant::new(mode, 7, 7, None, Wanted::EXECUTE).passes_access(
                &root,
                mode,
                Wanted::EXECUTE,
            )
        };
        assert!(executes(0o100_010) && !executes(0o100_666) && executes(0o040_000));
    }

    #[test]
    fn grants_of_different_modes_can_be_one() {
        let grant = |mode, gid| Grant::new(mode, 1000, gid, None, Wanted::READ_SEARCH);
        assert_eq!(grant(0o700, 50), grant(0o700, 100));
        assert!(grant(0o755, 50).is_everyone());
        assert_eq!(Grant::new(0o700, 0, 0, None, Wanted::READ_SEARCH), Grant::nobody());
    }
}
