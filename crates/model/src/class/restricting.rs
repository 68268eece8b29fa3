//! Restricts classes by grants, within the limits of owners.

use super::{ClassId, GrantId, OwnerLimits};
use crate::Grant;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Most names that are kept of grants that restricted classes: some tens of megabytes, whatever
/// grants a tree asks for.
pub(super) const RESTRICTED_NAMES_MAX: usize = 1 << 20;

/// Most grants that a class has: each is a directory on the way to its files.
pub const GRANTS_MAX: usize = 8;

/// The contents of a `ClassTable`, which its lock guards.
#[derive(Debug, Default)]
pub(super) struct Inner {
    pub(super) grants: FxHashMap<GrantId, Arc<Grant>>,
    pub(super) grant_ids: HashMap<Arc<Grant>, GrantId>,
    pub(super) next_grant: u32,
    /// Sorted grants of each class.
    pub(super) classes: Vec<Vec<GrantId>>,
    pub(super) class_ids: HashMap<Vec<GrantId>, ClassId>,
    /// Classes by the class that is restricted and by the grant.
    pub(super) restricted: HashMap<ClassId, HashMap<Arc<Grant>, ClassId>>,
    /// How many users and groups the grants among them name, each grant one more.
    pub(super) restricted_names: usize,
    /// The part of its limits that each owner has used.
    pub(super) used: HashMap<u32, OwnerLimits>,
    /// Classes that were charged, to whom, and grants that were.
    pub(super) charged: (FxHashMap<ClassId, u32>, FxHashSet<GrantId>),
    /// Owners who asked for more than the limits.
    pub(super) beyond_limits: BTreeSet<u32>,
    /// How often a class had too many grants, and was folded.
    pub(super) folded: u64,
}

impl Inner {
    /// Returns whether all members of a class pass a grant, as far as single grants show.
    pub(super) fn implies(&self, class: ClassId, grant: &Grant) -> bool {
        self.classes[class.0 as usize].iter().any(|id| self.grants[id].implies(grant))
    }

    /// Returns the class of those who belong to a class and pass a grant, which `charged` has the
    /// limits for; as an error, where that is too much, the class of the owner alone.
    pub(super) fn restrict(
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
    pub(super) fn charge(
        &mut self,
        grants: &[Arc<Grant>],
        owner: u32,
        limits: &OwnerLimits,
    ) -> bool {
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
    pub(super) fn charge_class(&mut self, class: ClassId, owner: u32) {
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

    pub(super) fn grant_id(&mut self, grant: Arc<Grant>) -> GrantId {
        if let Some(&id) = self.grant_ids.get(&grant) {
            return id;
        }
        let id = GrantId(self.next_grant);
        self.next_grant += 1;
        self.grants.insert(id, grant.clone());
        self.grant_ids.insert(grant, id);
        id
    }

    pub(super) fn class(&mut self, mut grants: Vec<GrantId>) -> ClassId {
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
