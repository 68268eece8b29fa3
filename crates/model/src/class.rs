//! Access classes: what readers of listings must pass and know.
//!
//! A class is a set of grants. Below a *gate*, a directory that some may enter but not list,
//! readers must also have got through the gate: by listing it, or by knowing the name of the child
//! that leads on. A class behind a gate is therefore the class in front of it, the gate, the path
//! of that child, and a further set of grants.

use crate::{Credentials, Grant, Permissions, Wanted, XattrAccess};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;

/// Number of a grant within an index. Stays the same over generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u32);

/// Number of an access class within a [`ClassTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// A directory that some may enter but not list: who may look names up in it, and who may read
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gate {
    /// Those who may look names up.
    pub search: GrantId,
    /// Those who may list the names.
    pub read: GrantId,
}

/// One step through a gate towards a class.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GateStep {
    /// Grants to pass in front of the gate, sorted.
    pub grants: Vec<GrantId>,
    /// The gate.
    pub gate: Gate,
    /// Absolute path of the directory in the gate that leads on, escaped.
    pub child: Arc<str>,
}

/// All that makes a class: gates in order, then grants, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassPath {
    /// The gates to go through, from the outermost.
    pub gates: Vec<GateStep>,
    /// Grants to pass behind them, sorted.
    pub grants: Vec<GrantId>,
}

/// The classes that a directory makes of the class of those who may look it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Those who may list it and look at what is in it.
    pub listing: ClassId,
    /// Those who may look names up in it, if the directory is a gate.
    pub lookup: Option<ClassId>,
    gate: Option<(ClassId, Gate)>,
}

/// All grants and classes of an index, each kept once. Can be shared between threads.
///
/// The grants of a class are without any that another one of them implies, or one in front of its
/// gates.
#[derive(Debug)]
pub struct ClassTable {
    inner: RwLock<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    grants: Vec<Arc<Grant>>,
    grant_ids: HashMap<Arc<Grant>, GrantId>,
    classes: Vec<Class>,
    class_ids: HashMap<Class, ClassId>,
    /// The class of a directory, by its parent's class and its own grant.
    restricted: HashMap<ClassId, HashMap<Arc<Grant>, ClassId>>,
    /// How many children have a passage of their own, by gate.
    passages: HashMap<(ClassId, Gate), usize>,
    /// Directories in gates that have none.
    without_passage: u64,
}

/// Most children with a passage of their own through gates of the same grants. Each costs some
/// files; the children of a gate with more of them are left to those who may list it.
const PASSAGES_MAX: usize = 1 << 16;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Class {
    /// The class in front of the last gate, the gate, and the child that leads on.
    behind: Option<(ClassId, Gate, Arc<str>)>,
    grants: Vec<GrantId>,
}

impl Default for ClassTable {
    fn default() -> Self {
        Self::with_grants([])
    }
}

impl ClassTable {
    /// The class that everybody belongs to.
    pub const EVERYONE: ClassId = ClassId(0);

    /// Returns a table that knows these grants already, numbered in order.
    pub fn with_grants(grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut inner = Inner::default();
        for grant in grants {
            // A repeated grant keeps its first number; the later number is never given out again.
            let grant = Arc::new(grant);
            let id = GrantId(inner.grants.len() as u32);
            inner.grant_ids.entry(grant.clone()).or_insert(id);
            inner.grants.push(grant);
        }
        inner.class(Class::default());
        ClassTable { inner: RwLock::new(inner) }
    }

    /// Returns the class of those who belong to `class` and pass `grant`.
    pub fn restricted(&self, class: ClassId, grant: Grant) -> ClassId {
        if grant.is_everyone() {
            return class;
        }
        let known = |inner: &Inner| inner.restricted.get(&class)?.get(&grant).copied();
        if let Some(id) = known(&self.inner.read()) {
            return id;
        }
        self.inner.write().restrict(class, grant)
    }

    /// Returns the classes of a directory with these permissions, which those of `class` may look
    /// up.
    pub fn access(&self, class: ClassId, directory: Permissions<'_>) -> Access {
        let listing = directory
            .to_list()
            .into_iter()
            .fold(class, |class, grant| self.restricted(class, grant));
        let open = Access { listing, lookup: None, gate: None };
        if directory.surely_no_gate() {
            return open;
        }
        let (search, read) = (directory.grant(Wanted::SEARCH), directory.grant(Wanted::READ));
        let lookup = self.restricted(class, search.clone());
        let mut inner = self.inner.write();
        if search.implies(&read) || inner.implies(lookup, &read) {
            return open;
        }
        let gate =
            Gate { search: inner.grant_id(Arc::new(search)), read: inner.grant_id(Arc::new(read)) };
        Access { listing, lookup: Some(lookup), gate: Some((class, gate)) }
    }

    /// Returns the class of those who may look up a directory in another one. `child` is its
    /// absolute path, escaped, and is asked only where the other one is a gate.
    pub fn below(&self, access: &Access, child: impl FnOnce() -> String) -> ClassId {
        let Some((class, gate)) = access.gate else { return access.listing };
        let mut inner = self.inner.write();
        let passage = Class { behind: Some((class, gate, Arc::from(child()))), grants: Vec::new() };
        if let Some(&known) = inner.class_ids.get(&passage) {
            return known;
        }
        let passages = inner.passages.entry((class, gate)).or_default();
        if *passages == PASSAGES_MAX {
            inner.without_passage += 1;
            return access.listing;
        }
        *passages += 1;
        inner.class(passage)
    }

    /// Returns how many directories in gates can be found only by those who may list the gate,
    /// since there are too many.
    pub fn without_passage(&self) -> u64 {
        self.inner.read().without_passage
    }

    /// Returns the class of those who may see the value of an extended attribute of an entry whose
    /// listing is for `listing`.
    pub fn value_class(&self, listing: ClassId, key: &str, entry: Permissions<'_>) -> ClassId {
        match XattrAccess::of(key) {
            XattrAccess::Lookup => listing,
            XattrAccess::Read => self.restricted(listing, entry.grant(Wanted::READ)),
            XattrAccess::Privilege => self.restricted(listing, Grant::nobody()),
        }
    }

    /// Returns the class with this path. The grants in it must be known to the table.
    pub fn class_of(&self, path: &ClassPath) -> ClassId {
        let mut inner = self.inner.write();
        let mut behind = None;
        for step in &path.gates {
            let front = inner.class(Class { behind, grants: step.grants.clone() });
            behind = Some((front, step.gate, step.child.clone()));
        }
        inner.class(Class { behind, grants: path.grants.clone() })
    }

    /// Returns what makes a class.
    pub fn path_of(&self, class: ClassId) -> ClassPath {
        let inner = self.inner.read();
        let mut class = &inner.classes[class.0 as usize];
        let mut path = ClassPath { gates: Vec::new(), grants: class.grants.clone() };
        while let Some((front, gate, child)) = &class.behind {
            class = &inner.classes[front.0 as usize];
            path.gates.push(GateStep {
                grants: class.grants.clone(),
                gate: *gate,
                child: child.clone(),
            });
        }
        path.gates.reverse();
        path
    }

    /// Returns a grant of the table. Panics if it has none with this id.
    pub fn grant(&self, id: GrantId) -> Arc<Grant> {
        self.inner.read().grants[id.0 as usize].clone()
    }

    /// Returns all grants, by id.
    pub fn grants(&self) -> Vec<Arc<Grant>> {
        self.inner.read().grants.clone()
    }

    /// Returns how many classes there are.
    pub fn len(&self) -> usize {
        self.inner.read().classes.len()
    }

    /// Returns whether there is no class; never true, as there is always [`ClassTable::EVERYONE`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether these credentials belong to the class, given that they know the names behind
    /// gates.
    pub fn admits(&self, class: ClassId, who: &Credentials) -> bool {
        let inner = self.inner.read();
        inner.needed(class).all(|id| inner.grants[id.0 as usize].passes(who))
    }
}

impl Inner {
    /// Returns all grants that members of a class pass.
    fn needed(&self, class: ClassId) -> impl Iterator<Item = GrantId> {
        let mut next = Some(class);
        std::iter::from_fn(move || {
            let class = &self.classes[next?.0 as usize];
            next = class.behind.as_ref().map(|(front, ..)| *front);
            Some(
                class
                    .grants
                    .iter()
                    .copied()
                    .chain(class.behind.as_ref().map(|(_, gate, _)| gate.search)),
            )
        })
        .flatten()
    }

    /// Returns whether all members of a class pass a grant, as far as single grants tell.
    fn implies(&self, class: ClassId, grant: &Grant) -> bool {
        self.needed(class).any(|id| self.grants[id.0 as usize].implies(grant))
    }

    fn restrict(&mut self, class: ClassId, grant: Grant) -> ClassId {
        let grant = Arc::new(grant);
        let restricted = if self.implies(class, &grant) {
            class
        } else {
            let id = self.grant_id(grant.clone());
            let Class { behind, grants } = self.classes[class.0 as usize].clone();
            let kept = |member: &GrantId| !grant.implies(&self.grants[member.0 as usize]);
            let mut grants: Vec<GrantId> = grants.into_iter().filter(kept).collect();
            grants.push(id);
            self.class(Class { behind, grants })
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

    fn class(&mut self, mut class: Class) -> ClassId {
        class.grants.sort_unstable();
        class.grants.dedup();
        let next = ClassId(self.classes.len() as u32);
        let id = *self.class_ids.entry(class.clone()).or_insert(next);
        if id == next {
            self.classes.push(class);
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
        // Two private directories of different owners: root only, and two grants that nobody else
        // combines.
        let both = table.restricted(owner, grant(0o700, 2, 10));
        assert_eq!(table.path_of(both).grants.len(), 2);
        assert!(!table.admits(both, &Credentials::new(1, [10])));
        assert!(table.admits(both, &Credentials::new(0, [])));
    }

    fn permissions(mode: u32, uid: u32, gid: u32) -> Permissions<'static> {
        Permissions { mode, uid, gid, acl: None, unknown: false }
    }

    #[test]
    fn a_gate_sets_its_children_apart() {
        let table = ClassTable::default();
        let home = table.access(ClassTable::EVERYONE, permissions(0o711, 0, 0));
        assert_eq!(home.lookup, Some(ClassTable::EVERYONE));
        let [ann, bob] =
            ["/home/ann", "/home/bob"].map(|path| table.below(&home, || path.to_owned()));
        assert_ne!(ann, bob);
        assert_eq!(table.class_of(&table.path_of(ann)), ann);
        // Whoever knows the name gets in; nobody but root lists the gate itself.
        let user = Credentials::new(7, []);
        assert!(table.admits(ann, &user) && !table.admits(home.listing, &user));
        // A private directory behind it: one more grant.
        let private = table.access(ann, permissions(0o700, 1, 1));
        assert_eq!(table.path_of(private.listing).grants.len(), 1);
        assert_eq!(private.lookup, None);
        assert!(!table.admits(private.listing, &user));
    }

    #[test]
    fn what_all_who_come_so_far_may_list_is_no_gate() {
        let table = ClassTable::default();
        let private = table.access(ClassTable::EVERYONE, permissions(0o700, 1, 1));
        let inner = table.access(private.listing, permissions(0o711, 1, 1));
        assert_eq!((inner.lookup, inner.listing), (None, private.listing));
        assert_eq!(table.access(ClassTable::EVERYONE, permissions(0o755, 1, 1)).lookup, None);
        // Nobody enters who may not list: 0710 is a gate for the group alone.
        let group = table.access(ClassTable::EVERYONE, permissions(0o710, 1, 5));
        assert!(table.admits(group.lookup.unwrap(), &Credentials::new(2, [5])));
        assert!(!table.admits(group.listing, &Credentials::new(2, [5])));
    }

    #[test]
    fn a_gate_with_too_many_children_leaves_the_rest_to_those_who_list_it() {
        let table = ClassTable::default();
        let gate = table.access(ClassTable::EVERYONE, permissions(0o711, 1, 1));
        for child in 0..PASSAGES_MAX {
            assert_ne!(table.below(&gate, || format!("/gate/{child}")), gate.listing);
        }
        assert_eq!(table.without_passage(), 0);
        assert_eq!(table.below(&gate, || "/gate/one-more".to_owned()), gate.listing);
        assert_ne!(table.below(&gate, || "/gate/0".to_owned()), gate.listing);
        assert_eq!(table.without_passage(), 1);
    }
}
