//! Access classes: the sets of grants that readers of listings must pass.

use crate::{Credentials, Grant};
use std::collections::HashMap;
use std::sync::{Arc, RwLock};

/// Number of a grant within an index. Stays the same over generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u32);

/// Number of an access class within a [`ClassTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// All grants and classes of an index, each kept once. Can be shared between threads.
///
/// A class is a set of grants without any that another one of the set implies, sorted by id.
#[derive(Debug)]
pub struct ClassTable {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    grants: Vec<Arc<Grant>>,
    grant_ids: HashMap<Arc<Grant>, GrantId>,
    classes: Vec<Vec<GrantId>>,
    class_ids: HashMap<Vec<GrantId>, ClassId>,
    /// The class of a directory, by its parent's class and its own grant.
    restricted: HashMap<ClassId, HashMap<Arc<Grant>, ClassId>>,
}

impl Default for ClassTable {
    fn default() -> Self {
        Self::with_grants([])
    }
}

impl ClassTable {
    /// The class that everybody belongs to.
    pub const EVERYONE: ClassId = ClassId(0);

    /// A table that knows these grants already, numbered in order.
    pub fn with_grants(grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut inner = Inner::default();
        for grant in grants {
            // A repeated grant keeps its first number; the later number is never given out again.
            let grant = Arc::new(grant);
            let id = GrantId(inner.grants.len() as u32);
            inner.grant_ids.entry(grant.clone()).or_insert(id);
            inner.grants.push(grant);
        }
        inner.class(Vec::new());
        ClassTable { inner: RwLock::new(inner) }
    }

    /// The class of those who belong to `class` and pass `grant`.
    pub fn restricted(&self, class: ClassId, grant: Grant) -> ClassId {
        if grant.is_everyone() {
            return class;
        }
        let known = |inner: &Inner| inner.restricted.get(&class)?.get(&grant).copied();
        if let Some(id) = known(&self.inner.read().expect("no thread panics while it holds the lock")) {
            return id;
        }
        self.inner.write().expect("no thread panics while it holds the lock").restrict(class, grant)
    }

    /// The class that is made of these grants. The ids must be known to the table.
    pub fn class_of(&self, grants: Vec<GrantId>) -> ClassId {
        self.inner.write().expect("no thread panics while it holds the lock").class(grants)
    }

    /// The ids of the grants that make up a class, sorted.
    pub fn grants_of(&self, class: ClassId) -> Vec<GrantId> {
        self.inner.read().expect("no thread panics while it holds the lock").classes[class.0 as usize].clone()
    }

    /// All grants, by id.
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        self.inner.read().expect("no thread panics while it holds the lock").grants.clone()
    }

    /// How many classes there are.
    pub fn len(&self) -> usize {
        self.inner.read().expect("no thread panics while it holds the lock").classes.len()
    }

    /// Whether there is no class; never true, as there is always [`ClassTable::EVERYONE`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether these credentials belong to the class.
    pub fn admits(&self, class: ClassId, who: &Credentials) -> bool {
        let inner = self.inner.read().expect("no thread panics while it holds the lock");
        inner.classes[class.0 as usize].iter().all(|id| inner.grants[id.0 as usize].passes(who))
    }
}

impl Inner {
    fn restrict(&mut self, class: ClassId, grant: Grant) -> ClassId {
        let grant = Arc::new(grant);
        let members = &self.classes[class.0 as usize];
        let implied = members.iter().any(|id| self.grants[id.0 as usize].implies(&grant));
        let restricted = if implied {
            class
        } else {
            let id = self.grant_id(grant.clone());
            let kept = |member: &&GrantId| !grant.implies(&self.grants[member.0 as usize]);
            let mut members: Vec<GrantId> =
                self.classes[class.0 as usize].iter().filter(kept).copied().collect();
            members.push(id);
            self.class(members)
        };
        self.restricted.entry(class).or_default().insert(grant, restricted);
        restricted
    }

    fn grant_id(&mut self, grant: Arc<Grant>) -> GrantId {
        let next = GrantId(self.grants.len() as u32);
        let id = *self.grant_ids.entry(grant.clone()).or_insert(next);
        if id == next {
            self.grants.push(grant);
        }
        id
    }

    fn class(&mut self, mut members: Vec<GrantId>) -> ClassId {
        members.sort_unstable();
        members.dedup();
        let next = ClassId(self.classes.len() as u32);
        let id = *self.class_ids.entry(members.clone()).or_insert(next);
        if id == next {
            self.classes.push(members);
        }
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wanted;

    fn grant(mode: u32, uid: u32, gid: u32) -> Grant {
        Grant::new(mode, uid, gid, None, Wanted::READ_SEARCH)
    }

    #[test]
    fn implied_grants_leave_no_trace() {
        let table = ClassTable::default();
        let group = table.restricted(ClassTable::EVERYONE, grant(0o750, 1, 10));
        let owner = table.restricted(group, grant(0o700, 1, 10));
        // Whoever passes 0700 passes 0750 of the same owner: the class is that of 0700 alone.
        assert_eq!(owner, table.restricted(ClassTable::EVERYONE, grant(0o700, 1, 99)));
        assert_eq!(owner, table.restricted(owner, grant(0o750, 1, 10)));
        assert_eq!(table.restricted(owner, grant(0o755, 5, 5)), owner);
        // Two private directories of different owners: root only, and two grants that nobody else combines.
        let both = table.restricted(owner, grant(0o700, 2, 10));
        assert_eq!(table.grants_of(both).len(), 2);
        assert!(!table.admits(both, &Credentials::new(1, [10])));
        assert!(table.admits(both, &Credentials::new(0, [])));
    }
}
