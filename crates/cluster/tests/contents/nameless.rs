//! Files that lose their names while clients hold them, as mounts do whose kernels remember them.

use crate::place::Place;
use canopy_namespace::operation::{Caller, Change, Hold, Operation};
use canopy_namespace::{EntryName, FileContents, ROOT};
use canopy_partition::ServerId;
use std::sync::Arc;

/// Returns the number of files that clients hold.
fn holds(place: &Place) -> usize {
    let counts = (0..3).map(|server| place.process.session_counts(ServerId(server)).unwrap());
    counts.map(|counts| counts.holds).sum()
}

#[test]
fn a_file_without_a_name_stays_while_a_program_has_it_open() {
    let place = Place::new();
    let operations = Arc::new(place.operations());
    let (one, other) = (place.client_with(operations.clone()), place.rich_client());
    let renew = || operations.renew(Caller::Trusted);
    let [open, closed] = ["open", "closed"].map(|name| {
        let id = other.create(name).id;
        other.put(id, b"contents");
        let hold = Operation::Hold(Hold::Name(EntryName::new(ROOT, name.as_bytes())));
        one.execute(&hold).unwrap();
        id
    });
    one.0.open(open).unwrap();
    renew();
    assert_eq!(holds(&place), 2);
    for name in ["open", "closed"] {
        let unlink = Change::Unlink(EntryName::new(ROOT, name.as_bytes()));
        other.execute(&Operation::Change(unlink)).unwrap();
    }
    assert_eq!(holds(&place), 2);
    renew();
    assert_eq!(holds(&place), 1);
    assert_eq!(one.read(open, 0, 100), b"contents");
    one.0.close(open).unwrap();
    renew();
    assert_eq!(holds(&place), 0);
    // The kernel forgets both later.
    let forget = |id| _ = one.execute(&Operation::Hold(Hold::Release(id, 1))).unwrap();
    [open, closed].into_iter().for_each(forget);
    renew();
    assert_eq!(holds(&place), 0);
}
