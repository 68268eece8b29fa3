//! The table of all grants and classes of an index.

use super::restricting::Inner;
use super::{Access, Approach, Audience, ClassId, GrantId, OwnerLimits};
use crate::{Credentials, Grant, Permissions, Wanted, XattrAccess};
use parking_lot::RwLock;
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// All grants and classes of an index, each kept once. Can be shared between threads.
///
/// The grants of a class are without any that another one of them implies, and there are at most
/// [`GRANTS_MAX`](super::GRANTS_MAX) of them.
#[derive(Debug)]
pub struct ClassTable {
    pub(super) inner: RwLock<Inner>,
    limits: OwnerLimits,
    /// The holder of each range of uids.
    holders: Vec<(Range<u32>, u32)>,
}

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
        // The next user who asks is charged.
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

    /// Returns how often a class got fewer members than the kernel would let pass, since it had too
    /// many grants.
    pub fn folded(&self) -> u64 {
        self.inner.read().folded
    }

    /// Returns whether these credentials belong to the class.
    pub fn admits(&self, class: ClassId, who: &Credentials) -> bool {
        let inner = self.inner.read();
        inner.classes[class.0 as usize].iter().all(|id| inner.grants[id].passes(who))
    }
}
