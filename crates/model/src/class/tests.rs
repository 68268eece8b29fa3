//! Tests of access classes.

use super::restricting::RESTRICTED_NAMES_MAX;
use super::*;
use crate::{Acl, AclEntry, AclTag, Credentials, Grant, Permissions, Wanted};
use std::collections::BTreeSet;

fn grant(mode: u32, uid: u32, gid: u32) -> Grant {
    Grant::new(mode, uid, gid, None, Wanted::READ_SEARCH)
}

#[test]
fn implied_grants_leave_no_trace() {
    let table = ClassTable::default();
    let restricted = |class, grant: Grant| table.restricted(class, &grant, 1);
    let group = restricted(ClassTable::EVERYONE, grant(0o750, 1, 10));
    let owner = restricted(group, grant(0o700, 1, 10));
    // Users who pass 0700 pass 0750 of the same owner: the class is that of 0700 alone.
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
fn entries_behind_a_gate_are_for_its_listers_and_knowers() {
    let table = ClassTable::default();
    let home = table.access(&Approach::EVERYONE, permissions(0o711, 0, 0));
    assert_eq!(home.lookup, Some(ClassTable::EVERYONE));
    assert_eq!((home.listing.knowers, home.passage.clone()), (None, None));
    let [ann, bob] = ["/home/ann", "/home/bob"].map(|path| table.below(&home, || path.to_owned()));
    assert_eq!(ann.audience, bob.audience);
    assert_eq!(ann.passage.as_deref(), Some("/home/ann"));
    // Users who know the name get in; only root lists the gate itself.
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
    // A directory of root alone has no knowers.
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
fn a_directory_that_all_who_reach_it_may_list_is_not_a_gate() {
    let table = ClassTable::default();
    let private = table.access(&Approach::EVERYONE, permissions(0o700, 1, 1));
    let below = table.below(&private, || unreachable!("it is not a gate"));
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
    let shared =
        |group, owner| table.restricted(ClassTable::EVERYONE, &grant(0o750, owner, group), owner);
    for group in 0..100 {
        shared(group, 1);
    }
    assert_eq!(table.beyond_limits(), BTreeSet::from([1]));
    let (beyond, other) = (shared(70, 1), shared(70, 2));
    assert!(table.admits(beyond, &Credentials::new(1, [])));
    assert!(!table.admits(beyond, &Credentials::new(3, [70])));
    assert!(table.admits(other, &Credentials::new(3, [70])));
    // A directory that the owner may not read is not shown to the owner either.
    let closed = table.restricted(ClassTable::EVERYONE, &grant(0o050, 1, 99), 1);
    assert!(!table.admits(closed, &Credentials::new(1, [])));
    // Root's directories have no limits.
    (0..100)
        .for_each(|group| assert!(table.admits(shared(group, 0), &Credentials::new(4, [group]))));
}

#[test]
fn repeated_changes_of_directories_make_few_classes() {
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
fn earlier_charges_count_until_they_are_released() {
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
