//! Access classes: who may see a listing.
//!
//! A class is a set of grants, all of which its members pass. Whoever may list every directory on
//! the way to a listing sees it: its *listers*. Below a *gate*, a directory that some may enter but
//! not list, there are also those who pass as many checks as it takes to get there by name: its
//! *knowers*. They must know the path of the *passage*, the child of the last gate on the way that
//! leads on, which holds the names of all passages before it.
//!
//! Classes stay short:
//!
//! - a grant is dropped if another one of the class implies it;
//! - two grants that one can express are joined (lists of denied users);
//! - beyond [`GRANTS_MAX`], the class is folded into the users who certainly pass all grants.
//!
//! [`OwnerLimits`] bound how many classes, and names in their grants, one user can cause.
//! Directories of root have no such limits.
//!
//! A directory is a gate only if somebody who reaches it may search it but not read it.
//! [`Grant::implies`] is exact, so a directory of mode 0711 below one of mode 0700 with that owner
//! is not a gate.

use crate::{Credentials, Grant, Permissions, Wanted, XattrAccess};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Number of a grant within an index. Stays the same over generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u32);

/// Number of an access class within a [`ClassTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// Those who may see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Audience {
    /// Those who may list every directory on the way.
    pub listers: ClassId,
    /// Those who may get there by name, the listers among them, where they are more.
    pub knowers: Option<ClassId>,
}

/// The users who may look a directory up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approach {
    /// Those who may.
    pub audience: Audience,
    /// The path that knowers must know: that of the child of the last gate on the way, absolute
    /// and escaped.
    pub passage: Option<Arc<str>>,
}

impl Approach {
    /// A directory that everybody may look up.
    pub const EVERYONE: Approach = Approach {
        audience: Audience { listers: ClassTable::EVERYONE, knowers: None },
        passage: None,
    };
}

/// The access to a directory, computed from the users who may look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Those who may list it and look at what is in it.
    pub listing: Audience,
    /// The path that knowers of the listing must know.
    pub passage: Option<Arc<str>>,
    /// If the directory is a gate, those who may look names up in it.
    pub lookup: Option<ClassId>,
    /// Whether the owner asks for more than [`OwnerLimits`], so that fewer see it than should.
    pub beyond_limits: bool,
}

impl Access {
    /// A directory that everybody may list.
    pub const EVERYONE: Access = Access {
        listing: Approach::EVERYONE.audience,
        passage: None,
        lookup: None,
        beyond_limits: false,
    };
}

/// How many classes and ACL entries the directories of one owner may ask for, so that nobody can
/// make an index slow or large for others. What goes beyond is for that owner and root alone. uid 0
/// has no limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Access classes.
    pub classes: usize,
    /// Users and groups that the grants of these classes name, all together.
    pub names: usize,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        OwnerLimits { classes: 1024, names: 16 * 1024 }
    }
}

/// All grants and classes of an index, each kept once. Can be shared between threads.
///
/// The grants of a class are without any that another one of them implies, and there are at most
/// [`GRANTS_MAX`] of them.
#[derive(Debug)]
pub struct ClassTable {
    inner: RwLock<Inner>,
    limits: OwnerLimits,
    /// The holder of each range of uids.
    holders: Vec<(Range<u32>, u32)>,
}

#[derive(Debug, Default)]
struct Inner {
    grants: FxHashMap<GrantId, Arc<Grant>>,
    grant_ids: HashMap<Arc<Grant>, GrantId>,
    next_grant: u32,
    /// Sorted grants of each class.
    classes: Vec<Vec<GrantId>>,
    class_ids: HashMap<Vec<GrantId>, ClassId>,
    /// Classes by the class that is restricted and by the grant.
    restricted: HashMap<ClassId, HashMap<Arc<Grant>, ClassId>>,
    /// How many users and groups the grants among them name, each grant one more.
    restricted_names: usize,
    /// The part of its limits that each owner has used.
    used: HashMap<u32, OwnerLimits>,
    /// Classes that were charged, to whom, and grants that were.
    charged: (FxHashMap<ClassId, u32>, FxHashSet<GrantId>),
    /// Owners who asked for more than the limits.
    beyond_limits: BTreeSet<u32>,
    /// How often grants were too many to be told apart.
    folded: u64,
}

/// Most names that are kept of grants that restricted classes: some tens of megabytes, whatever
/// grants a tree asks for.
const RESTRICTED_NAMES_MAX: usize = 1 << 20;

/// Most grants that a class has: each is a directory on the way to its files.
pub const GRANTS_MAX: usize = 8;

impl Default for ClassTable {
    fn default() -> Self {
        Self::with_grants([], 0, OwnerLimits::default())
    }
}

impl ClassTable {
    /// The class that everybody belongs to.
    pub const EVERYONE: ClassId = ClassId(0);

    /// Returns a table that knows these grants already and gives numbers from `next_grant` on.
    pub fn with_grants(
        grants: impl IntoIterator<Item = (GrantId, Grant)>,
        next_grant: u32,
        limits: OwnerLimits,
    ) -> Self {
        let grants = grants.into_iter();
        let mut inner = Inner { next_grant, ..Inner::default() };
        let count = grants.size_hint().0;
        inner.grants.reserve(count);
        inner.grant_ids.reserve(count);
        inner.class_ids.reserve(count);
        inner.charged.0.reserve(count);
        inner.charged.1.reserve(count);
        for (id, grant) in grants {
            let grant = Arc::new(grant);
            inner.grant_ids.entry(grant.clone()).or_insert(id);
            inner.grants.insert(id, grant);
            inner.next_grant = inner.next_grant.max(id.0.saturating_add(1));
        }
        inner.class(Vec::new());
        ClassTable { inner: RwLock::new(inner), limits, holders: Vec::new() }
    }

    /// Charges what uids in these ranges ask for to whoever holds the range: users may make
    /// directories of the uids that are subordinate to theirs.
    pub fn charging(self, holders: Vec<(Range<u32>, u32)>) -> Self {
        ClassTable { holders, ..self }
    }

    /// Returns the class of those who belong to `class` and pass `grant`, which an inode of `owner`
    /// asks for. Where that goes beyond what the owner may ask for, or a class can say, it is a
    /// class of fewer.
    pub fn restricted(&self, class: ClassId, grant: &Grant, owner: u32) -> ClassId {
        self.restricted_within(class, grant, owner, &mut false)
    }

    /// Does as [`ClassTable::restricted`], and notes whether the owner asks for too much.
    fn restricted_within(
        &self,
        class: ClassId,
        grant: &Grant,
        owner: u32,
        beyond_limits: &mut bool,
    ) -> ClassId {
        if grant.is_everyone() {
            return class;
        }
        let known = |inner: &Inner| inner.restricted.get(&class)?.get(grant).copied();
        if let Some(id) = known(&self.inner.read()) {
            return id;
        }
        let held = self.holders.iter().find(|(uids, _)| uids.contains(&owner));
        let charged = held.map_or(owner, |(_, holder)| *holder);
        let mut inner = self.inner.write();
        let restricted =
            inner.restrict(class, Arc::new(grant.clone()), owner, charged, &self.limits);
        restricted.unwrap_or_else(|left| {
            *beyond_limits = true;
            left
        })
    }

    fn restricted_audience(
        &self,
        audience: Audience,
        grant: &Grant,
        owner: u32,
        beyond_limits: &mut bool,
    ) -> Audience {
        let mut restricted = |class| self.restricted_within(class, grant, owner, beyond_limits);
        let listers = restricted(audience.listers);
        // Where all who know may list, nobody needs to know.
        let knowers = audience.knowers.map(restricted).filter(|&knowers| knowers != listers);
        Audience { listers, knowers }
    }

    /// Returns who may see the listing of a directory with these permissions, and who may look
    /// names up in it.
    pub fn access(&self, approach: &Approach, directory: Permissions<'_>) -> Access {
        let Approach { audience, passage } = approach;
        let owner = directory.uid;
        let mut beyond_limits = false;
        let listing = directory.to_list().iter().fold(*audience, |audience, grant| {
            self.restricted_audience(audience, grant, owner, &mut beyond_limits)
        });
        let passage = passage.clone().filter(|_| listing.knowers.is_some());
        let open = Access { listing, passage, lookup: None, beyond_limits };
        if directory.surely_no_gate() {
            return open;
        }
        let (search, read) = (directory.grant(Wanted::SEARCH), directory.grant(Wanted::READ));
        let arrivals = audience.knowers.unwrap_or(audience.listers);
        let lookup = self.restricted_within(arrivals, &search, owner, &mut beyond_limits);
        if search.implies(&read)
            || self.inner.read().implies(lookup, &read)
            || lookup == listing.listers
        {
            return open;
        }
        Access { lookup: Some(lookup), beyond_limits, ..open }
    }

    /// Returns who may look up a directory in another one. `child` is its absolute path, escaped,
    /// and is asked only where the other one is a gate.
    pub fn below(&self, access: &Access, child: impl FnOnce() -> String) -> Approach {
        match access.lookup {
            Some(lookup) => Approach {
                audience: Audience { knowers: Some(lookup), ..access.listing },
                passage: Some(Arc::from(child())),
            },
            None => Approach { audience: access.listing, passage: access.passage.clone() },
        }
    }

    /// Returns who of those who may look an entry up may see the value of an extended attribute of
    /// it.
    pub fn value_audience(
        &self,
        entry: Audience,
        key: &str,
        permissions: Permissions<'_>,
    ) -> Audience {
        match XattrAccess::of(key) {
            XattrAccess::Lookup => entry,
            XattrAccess::Read => {
                let grant = permissions.grant(Wanted::READ);
                self.restricted_audience(entry, &grant, permissions.uid, &mut false)
            }
            XattrAccess::Privilege => {
                self.restricted_audience(entry, &Grant::nobody(), 0, &mut false)
            }
        }
    }

    /// Returns those of an audience who pass all of these grants, which directories have that changed
    /// under a scan, each with the owner of its directory.
    pub fn narrowed_audience(&self, audience: Audience, grants: &[(Grant, u32)]) -> Audience {
        grants.iter().fold(audience, |audience, (grant, owner)| {
            self.restricted_audience(audience, grant, *owner, &mut false)
        })
    }

    /// Returns what is left of an access for those who pass all of these grants.
    pub fn narrowed_access(&self, access: &Access, grants: &[(Grant, u32)]) -> Access {
        let within = |class| {
            let restricted =
                |class, (grant, owner): &(Grant, u32)| self.restricted(class, grant, *owner);
            grants.iter().fold(class, restricted)
        };
        Access {
            listing: self.narrowed_audience(access.listing, grants),
            lookup: access.lookup.map(within),
            ..access.clone()
        }
    }

    /// Returns the class with these grants, which must be known to the table.
    pub fn class_of(&self, grants: &[GrantId]) -> ClassId {
        self.inner.write().class(grants.to_vec())
    }

    /// Returns the class of root alone.
    pub fn root_alone(&self) -> ClassId {
        let mut inner = self.inner.write();
        let nobody = inner.grant_id(Arc::new(Grant::nobody()));
        inner.class(vec![nobody])
    }

    /// Returns the class with these grants as another table has it, and charges it to whom that one
    /// did. `None` where this goes beyond what the owner may ask for.
    pub fn adopt(
        &self,
        grants: impl IntoIterator<Item = Grant>,
        charged: Option<u32>,
    ) -> Option<ClassId> {
        let grants: Vec<Arc<Grant>> = grants.into_iter().map(Arc::new).collect();
        let mut inner = self.inner.write();
        if charged.is_some_and(|owner| !inner.charge(&grants, owner, &self.limits)) {
            return None;
        }
        let ids = grants.into_iter().map(|grant| inner.grant_id(grant)).collect();
        Some(inner.class(ids))
    }

    /// Returns the grants of a class, sorted.
    pub fn grants_of(&self, class: ClassId) -> Vec<GrantId> {
        self.inner.read().classes[class.0 as usize].clone()
    }

    /// Returns a grant of the table. Panics if it has none with this id.
    pub fn grant(&self, id: GrantId) -> Arc<Grant> {
        self.inner.read().grants[&id].clone()
    }

    /// Returns whom a class was charged to: the owner who asked for it, or holds the owner's uid.
    pub fn charged_to(&self, class: ClassId) -> Option<u32> {
        self.inner.read().charged.0.get(&class).copied()
    }

    /// Charges a class of the table that was charged before, whatever the limits are.
    pub fn charge_again(&self, class: ClassId, owner: u32) {
        self.inner.write().charge_class(class, owner);
    }

    /// Charges some classes to nobody: nothing asks for them any more, unless it does so again.
    pub fn release(&self, classes: &HashSet<ClassId>) {
        let mut inner = self.inner.write();
        inner.used.clear();
        let (charged, _) = std::mem::take(&mut inner.charged);
        let mut rest: Vec<(ClassId, u32)> =
            charged.into_iter().filter(|(class, _)| !classes.contains(class)).collect();
        rest.sort_unstable();
        rest.into_iter().for_each(|(class, owner)| inner.charge_class(class, owner));
        // Who asks again is to be charged.
        inner.restricted.clear();
        inner.restricted_names = 0;
    }

    /// Returns the number that the next grant gets.
    pub fn next_grant(&self) -> u32 {
        self.inner.read().next_grant
    }

    /// Returns how many classes there are.
    pub fn len(&self) -> usize {
        self.inner.read().classes.len()
    }

    /// Returns whether there is no class; never true, as there is always [`ClassTable::EVERYONE`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the owners who asked for more than they may: what went beyond is for the owner, if
    /// all that guards it surely lets the owner pass, and for root.
    pub fn beyond_limits(&self) -> BTreeSet<u32> {
        self.inner.read().beyond_limits.clone()
    }

    /// Returns how often a class got fewer members than the kernel would let pass, since its
    /// grants were too many to be told apart.
    pub fn folded(&self) -> u64 {
        self.inner.read().folded
    }

    /// Returns whether these credentials belong to the class.
    pub fn admits(&self, class: ClassId, who: &Credentials) -> bool {
        let inner = self.inner.read();
        inner.classes[class.0 as usize].iter().all(|id| inner.grants[id].passes(who))
    }
}

impl Inner {
    /// Returns whether all members of a class pass a grant, as far as single grants tell.
    fn implies(&self, class: ClassId, grant: &Grant) -> bool {
        self.classes[class.0 as usize].iter().any(|id| self.grants[id].implies(grant))
    }

    /// Returns the class of those who belong to a class and pass a grant, which `charged` has the
    /// limits for; as an error, where that is too much, the class of the owner alone.
    fn restrict(
        &mut self,
        class: ClassId,
        grant: Arc<Grant>,
        owner: u32,
        charged: u32,
        limits: &OwnerLimits,
    ) -> Result<ClassId, ClassId> {
        let restricted = match self.implies(class, &grant) {
            true => class,
            false => {
                let grants = self.restricted_grants(class, &grant);
                if !self.charge(&grants, charged, limits) {
                    self.beyond_limits.insert(owner);
                    // Not kept: another owner may ask for the same, and has limits of its own.
                    return Err(self.left_to(owner, class, &grant));
                }
                let ids = grants.into_iter().map(|grant| self.grant_id(grant)).collect();
                self.class(ids)
            }
        };
        if self.restricted_names > RESTRICTED_NAMES_MAX {
            self.restricted.clear();
            self.restricted_names = 0;
        }
        self.restricted_names += 1 + grant.names();
        self.restricted.entry(class).or_default().insert(grant, restricted);
        Ok(restricted)
    }

    /// Returns the grants that the members of a class pass who pass one more, as few as they can
    /// be.
    fn restricted_grants(&mut self, class: ClassId, grant: &Grant) -> Vec<Arc<Grant>> {
        let mut grant = Arc::new(grant.clone());
        let members = self.classes[class.0 as usize].iter().map(|id| self.grants[id].clone());
        let mut grants: Vec<Arc<Grant>> = members.filter(|member| !grant.implies(member)).collect();
        // By what they say: which are joined must not depend on what was asked for before.
        grants.sort_unstable();
        while let Some((at, both)) =
            grants.iter().enumerate().find_map(|(at, member)| Some((at, member.and(&grant)?)))
        {
            grants.swap_remove(at);
            grants.retain(|member| !both.implies(member));
            grant = Arc::new(both);
        }
        grants.push(grant);
        if grants.len() > GRANTS_MAX {
            self.folded += 1;
            grants = vec![Arc::new(Grant::users_of_all(&grants))];
        }
        grants
    }

    /// Charges the class with these grants to an owner, if it was not charged to anybody. Returns
    /// false if that goes beyond the limits.
    fn charge(&mut self, grants: &[Arc<Grant>], owner: u32, limits: &OwnerLimits) -> bool {
        if owner == 0 {
            return true;
        }
        let ids: Option<Vec<GrantId>> =
            grants.iter().map(|grant| self.grant_ids.get(grant).copied()).collect();
        let known = ids.and_then(|mut ids| {
            ids.sort_unstable();
            self.class_ids.get(&ids).copied()
        });
        if known.is_some_and(|class| self.charged.0.contains_key(&class)) {
            return true;
        }
        let is_new = |grant: &&Arc<Grant>| {
            self.grant_ids.get(*grant).is_none_or(|id| !self.charged.1.contains(id))
        };
        let names: usize = grants.iter().filter(is_new).map(|grant| grant.names()).sum();
        let used = self.used.entry(owner).or_insert(OwnerLimits { classes: 0, names: 0 });
        if used.classes + 1 > limits.classes || used.names + names > limits.names {
            return false;
        }
        let ids = grants.iter().map(|grant| self.grant_id(grant.clone())).collect();
        let class = self.class(ids);
        self.charge_class(class, owner);
        true
    }

    /// Charges a class to an owner.
    fn charge_class(&mut self, class: ClassId, owner: u32) {
        if self.charged.0.insert(class, owner).is_some() {
            return;
        }
        let used = self.used.entry(owner).or_insert(OwnerLimits { classes: 0, names: 0 });
        used.classes += 1;
        for id in &self.classes[class.0 as usize] {
            if self.charged.1.insert(*id) {
                used.names += self.grants[id].names();
            }
        }
    }

    /// Returns the class of an owner alone, if all that is asked lets the owner pass for sure.
    fn left_to(&mut self, owner: u32, class: ClassId, grant: &Arc<Grant>) -> ClassId {
        let members = self.classes[class.0 as usize].iter().map(|id| self.grants[id].clone());
        let all: Vec<Arc<Grant>> = members.chain([grant.clone()]).collect();
        let passes = all.iter().all(|grant| grant.surely_passes(owner));
        let alone = Grant::from_parts(passes.then_some((owner, true)), [], false);
        let id = self.grant_id(Arc::new(alone));
        self.class(vec![id])
    }

    fn grant_id(&mut self, grant: Arc<Grant>) -> GrantId {
        if let Some(&id) = self.grant_ids.get(&grant) {
            return id;
        }
        let id = GrantId(self.next_grant);
        self.next_grant += 1;
        self.grants.insert(id, grant.clone());
        self.grant_ids.insert(grant, id);
        id
    }

    fn class(&mut self, mut grants: Vec<GrantId>) -> ClassId {
        grants.sort_unstable();
        grants.dedup();
        let next = ClassId(self.classes.len() as u32);
        let id = *self.class_ids.entry(grants.clone()).or_insert(next);
        if id == next {
            self.classes.push(grants);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acl, AclEntry, AclTag};

    fn grant(mode: u32, uid: u32, gid: u32) -> Grant {
        Grant::new(mode, uid, gid, None, Wanted::READ_SEARCH)
    }

    #[test]
    fn implied_grants_leave_no_trace() {
        let table = ClassTable::default();
        let restricted = |class, grant: Grant| table.restricted(class, &grant, 1);
        let group = restricted(ClassTable::EVERYONE, grant(0o750, 1, 10));
        let owner = restricted(group, grant(0o700, 1, 10));
        // Whoever passes 0700 passes 0750 of the same owner: the class is that of 0700 alone.
        assert_eq!(owner, restricted(ClassTable::EVERYONE, grant(0o700, 1, 99)));
        assert_eq!(owner, restricted(owner, grant(0o750, 1, 10)));
        assert_eq!(restricted(owner, grant(0o755, 5, 5)), owner);
        // Two groups: two grants, which no single one can say.
        let both = restricted(group, grant(0o750, 2, 20));
        assert_eq!(table.grants_of(both).len(), 2);
        assert!(table.admits(both, &Credentials::new(7, [10, 20])));
        assert!(table.admits(both, &Credentials::new(1, [20])));
        assert!(!table.admits(both, &Credentials::new(1, [10])));
        // Two private directories of different owners: root only.
        let nobody = restricted(owner, grant(0o700, 2, 10));
        assert_eq!(nobody, restricted(ClassTable::EVERYONE, Grant::nobody()));
    }

    /// Processes that share a scan say the same of the same directory.
    #[test]
    fn a_class_does_not_depend_on_what_was_asked_for_before() {
        // Every way to let two users and two groups in, or not, or not to name them.
        let way = |number: usize, at: u32| match number / 3_usize.pow(at) % 3 {
            0 => None,
            way => Some(way == 1),
        };
        let grants: Vec<Grant> = (0..162)
            .map(|number| {
                let users = (1..3).filter_map(|uid| Some((uid, way(number, uid - 1)?)));
                let groups = (1..3).filter_map(|gid| Some((gid, way(number, gid + 1)?)));
                Grant::from_parts(users, groups, number >= 81)
            })
            .collect();
        let (one, other) = (ClassTable::default(), ClassTable::default());
        for grant in grants.iter().rev() {
            other.restricted(ClassTable::EVERYONE, grant, 0);
        }
        for at in 0..grants.len() * 40 {
            let chain = [at * 7 + 3, at * 11 + 5, at * 13 + at / 162, at];
            let said = |table: &ClassTable| {
                let class = chain.iter().fold(ClassTable::EVERYONE, |class, at| {
                    table.restricted(class, &grants[at % grants.len()], 0)
                });
                let grants = table.grants_of(class).into_iter().map(|id| table.grant(id));
                let mut grants: Vec<Arc<Grant>> = grants.collect();
                grants.sort_unstable();
                grants
            };
            assert_eq!(said(&one), said(&other), "{at}");
        }
    }

    fn permissions(mode: u32, uid: u32, gid: u32) -> Permissions<'static> {
        Permissions { mode, uid, gid, acl: None, unknown: false }
    }

    #[test]
    fn what_is_behind_a_gate_is_for_those_who_list_it_or_know_a_name() {
        let table = ClassTable::default();
        let home = table.access(&Approach::EVERYONE, permissions(0o711, 0, 0));
        assert_eq!(home.lookup, Some(ClassTable::EVERYONE));
        assert_eq!((home.listing.knowers, home.passage.clone()), (None, None));
        let [ann, bob] =
            ["/home/ann", "/home/bob"].map(|path| table.below(&home, || path.to_owned()));
        assert_eq!(ann.audience, bob.audience);
        assert_eq!(ann.passage.as_deref(), Some("/home/ann"));
        // Whoever knows the name gets in; nobody but root lists the gate itself.
        let user = Credentials::new(7, []);
        let in_ann = table.access(&ann, permissions(0o755, 1, 1));
        assert!(table.admits(in_ann.listing.knowers.unwrap(), &user));
        assert!(!table.admits(in_ann.listing.listers, &user));
        assert_eq!(in_ann.passage, ann.passage);
        // A private directory behind it.
        let private = table.access(&ann, permissions(0o700, 1, 1));
        assert_eq!(private.lookup, None);
        assert!(!table.admits(private.listing.knowers.unwrap(), &user));
        assert!(table.admits(private.listing.knowers.unwrap(), &Credentials::new(1, [])));
        // What is root's alone needs no knowing.
        let root = table.access(&ann, permissions(0o700, 0, 0));
        assert_eq!((root.listing.knowers, root.passage), (None, None));
        // A gate in a gate: the inner passage holds the name of the outer one.
        let inner = table.access(&ann, permissions(0o711, 1, 1));
        let child = table.below(&inner, || "/home/ann/pub".to_owned());
        assert_eq!(child.passage.as_deref(), Some("/home/ann/pub"));
        assert_eq!(child.audience.knowers, Some(ClassTable::EVERYONE));
        assert_eq!(inner.passage, ann.passage);
    }

    #[test]
    fn what_all_who_come_so_far_may_list_is_no_gate() {
        let table = ClassTable::default();
        let private = table.access(&Approach::EVERYONE, permissions(0o700, 1, 1));
        let below = table.below(&private, || unreachable!("it is no gate"));
        let inner = table.access(&below, permissions(0o711, 1, 1));
        assert_eq!((inner.lookup, inner.listing), (None, private.listing));
        assert_eq!(table.access(&Approach::EVERYONE, permissions(0o755, 1, 1)).lookup, None);
        // Nobody enters who may not list: 0710 is a gate for the group alone.
        let group = table.access(&Approach::EVERYONE, permissions(0o710, 1, 5));
        assert!(table.admits(group.lookup.unwrap(), &Credentials::new(2, [5])));
        assert!(!table.admits(group.listing.listers, &Credentials::new(2, [5])));
    }

    fn denying(uid: u32, gid: u32) -> Acl {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let entries = vec![
            entry(AclTag::Owner, 7),
            entry(AclTag::User(uid), 0),
            entry(AclTag::OwningGroup, 5),
            entry(AclTag::Group(gid), 5),
            entry(AclTag::Mask, 5),
            entry(AclTag::Other, 5),
        ];
        Acl { entries }
    }

    #[test]
    fn long_chains_fold_into_few_grants_and_never_let_more_in() {
        let table = ClassTable::with_grants([], 0, OwnerLimits { classes: 9000, names: 1 << 30 });
        let mut class = ClassTable::EVERYONE;
        for denied in 100..1000 {
            let acl = denying(denied, 50);
            let grant = Grant::new(0o755, 1, 1, Some(&acl), Wanted::READ_SEARCH);
            class = table.restricted(class, &grant, 1);
        }
        assert_eq!(table.grants_of(class).len(), 1);
        assert_eq!(table.folded(), 0);
        assert!(!table.admits(class, &Credentials::new(500, [])));
        assert!(table.admits(class, &Credentials::new(50, [])));
        // Membership of many groups cannot be said in one: nobody but the owner of all is left.
        let mut class = ClassTable::EVERYONE;
        for group in 1..20 {
            class = table.restricted(class, &grant(0o750, 1, group), 1);
            assert!(table.grants_of(class).len() <= GRANTS_MAX);
            assert!(table.admits(class, &Credentials::new(1, [])));
            assert!(!table.admits(class, &Credentials::new(2, 1..group)));
        }
        assert!(table.folded() > 0);
    }

    #[test]
    fn one_owner_cannot_use_up_what_another_may_ask_for() {
        let table = ClassTable::with_grants([], 0, OwnerLimits { classes: 10, names: 100 });
        let shared = |group, owner| {
            table.restricted(ClassTable::EVERYONE, &grant(0o750, owner, group), owner)
        };
        for group in 0..100 {
            shared(group, 1);
        }
        assert_eq!(table.beyond_limits(), BTreeSet::from([1]));
        let (beyond, other) = (shared(70, 1), shared(70, 2));
        assert!(table.admits(beyond, &Credentials::new(1, [])));
        assert!(!table.admits(beyond, &Credentials::new(3, [70])));
        assert!(table.admits(other, &Credentials::new(3, [70])));
        // What the owner itself may not read is not shown to the owner either.
        let closed = table.restricted(ClassTable::EVERYONE, &grant(0o050, 1, 99), 1);
        assert!(!table.admits(closed, &Credentials::new(1, [])));
        // Root's directories have no limits.
        (0..100).for_each(|group| {
            assert!(table.admits(shared(group, 0), &Credentials::new(4, [group])))
        });
    }

    #[test]
    fn who_changes_directories_again_and_again_makes_few_classes() {
        let everyone = Approach::EVERYONE.audience;
        for with_acls in [false, true] {
            let table = ClassTable::with_grants([], 0, OwnerLimits { classes: 10, names: 100 });
            // uid 1 is the owner, whom no entry denies.
            for number in 2..1000 {
                let acl = with_acls.then(|| denying(number, 50));
                let mode = if with_acls { 0o755 } else { 0o750 };
                let grant = Grant::new(mode, 1, number, acl.as_ref(), Wanted::READ_SEARCH);
                let passes = grant.passes(&Credentials::new(5, [number]));
                let listers = table.narrowed_audience(everyone, &[(grant, 1)]).listers;
                for who in [0, 1] {
                    assert!(table.admits(listers, &Credentials::new(who, [])), "{number}");
                }
                let member = Credentials::new(5, [number]);
                assert_eq!(table.admits(listers, &member), passes && number <= 11, "{number}");
            }
            assert!(table.len() < 20, "{}", table.len());
            assert_eq!(table.beyond_limits(), BTreeSet::from([1]));
            // Changes of others count for themselves.
            let other = [(grant(0o750, 2, 77), 2)];
            let listers = table.narrowed_audience(everyone, &other).listers;
            assert!(table.admits(listers, &Credentials::new(5, [77])));
        }
    }

    #[test]
    fn subordinate_uids_are_charged_to_their_holder() {
        let limits = OwnerLimits { classes: 10, names: 100 };
        let table = ClassTable::with_grants([], 0, limits).charging(vec![(1000..2000, 1)]);
        for owner in 1000..1100 {
            let group = grant(0o750, owner, owner);
            let class = table.restricted(ClassTable::EVERYONE, &group, owner);
            let member = Credentials::new(5, [owner]);
            assert_eq!(table.admits(class, &member), owner < 1010, "{owner}");
            assert!(table.admits(class, &Credentials::new(owner, [])));
        }
        let other = table.restricted(ClassTable::EVERYONE, &grant(0o750, 2000, 7), 2000);
        assert!(table.admits(other, &Credentials::new(5, [7])));
    }

    #[test]
    fn what_was_charged_before_counts_until_it_is_released() {
        let limits = OwnerLimits { classes: 10, names: 100 };
        let before = ClassTable::with_grants([], 0, limits);
        let ask = |table: &ClassTable, group| {
            table.restricted(ClassTable::EVERYONE, &grant(0o750, 1, group), 1)
        };
        let classes: Vec<ClassId> = (2..12).map(|group| ask(&before, group)).collect();
        assert!(classes.iter().all(|class| before.charged_to(*class) == Some(1)));
        // As another writer finds it.
        let ids = classes.iter().flat_map(|class| before.grants_of(*class));
        let grants = ids.map(|id| (id, (*before.grant(id)).clone()));
        let table = ClassTable::with_grants(grants, before.next_grant(), limits);
        let known: Vec<ClassId> =
            classes.iter().map(|class| table.class_of(&before.grants_of(*class))).collect();
        known.iter().for_each(|class| table.charge_again(*class, 1));
        assert_eq!(ask(&table, 5), known[3]);
        assert!(table.beyond_limits().is_empty());
        let member = Credentials::new(7, [50]);
        assert!(!table.admits(ask(&table, 50), &member));
        table.release(&known[..2].iter().copied().collect());
        assert!(table.admits(ask(&table, 50), &member));
        assert!(table.admits(ask(&table, 51), &Credentials::new(7, [51])));
        assert!(!table.admits(ask(&table, 52), &Credentials::new(7, [52])));
    }

    #[test]
    fn nobody_has_the_number_that_stands_for_none() {
        let grant = Grant::from_parts([(u32::MAX, true)], [(u32::MAX, true)], false);
        assert_eq!(grant, Grant::nobody());
    }

    #[test]
    fn grants_without_end_take_bounded_memory() {
        let table = ClassTable::default();
        let owner = table.restricted(ClassTable::EVERYONE, &grant(0o700, 1, 1), 1);
        for number in 0..4000 {
            let users = (0..1000).map(|uid| (2 + number * 1000 + uid, false));
            let open = Grant::from_parts(users, [], true);
            assert_eq!(table.restricted(owner, &open, 1), owner);
            assert!(table.inner.read().restricted_names <= RESTRICTED_NAMES_MAX + 1001);
        }
    }

    #[test]
    fn grants_keep_their_numbers_and_give_none_out_twice() {
        let table =
            ClassTable::with_grants([(GrantId(4), grant(0o700, 1, 1))], 9, OwnerLimits::default());
        let class = table.restricted(ClassTable::EVERYONE, &grant(0o700, 1, 1), 1);
        assert_eq!(table.grants_of(class), [GrantId(4)]);
        let class = table.restricted(ClassTable::EVERYONE, &grant(0o700, 2, 1), 2);
        assert_eq!((table.grants_of(class), table.next_grant()), (vec![GrantId(9)], 10));
    }
}
