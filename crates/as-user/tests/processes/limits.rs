//! How many processes there are, and for how long.

use crate::subject::{Asked, Fixture, Said, patient, wait};
use crate::{is_running, wait_until};
use canopy_as_user::{Class, PoolLimits};
use nix::errno::Errno;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

pub fn the_idle_make_room() {
    let place = Fixture::new(patient(3, 3, 3));
    let pids = [2001, 2002, 2003].map(|uid| place.describe(uid).pid);
    assert_eq!(place.describe(2001).pid, pids[0], "it is used last now");
    place.describe(2004);
    wait_until("the one that was idle for longest has ended", || !is_running(pids[1]));
    assert_eq!([2001, 2003].map(|uid| place.describe(uid).pid), [pids[0], pids[2]]);
    assert_eq!(place.log(), "");
}

/// A user owned 65,536 subordinate uids, and had all processes.
pub fn the_busy_keep_their_share() {
    let ranges = vec![(100_000..200_000, 2001)];
    let place = Fixture::with_ranges(patient(4, 3, 3), ranges);
    let hang = |uid| place.begin(uid, Class::Long, &Asked::Hang);
    let mut busy: Vec<_> = [2001, 100_000, 100_001].map(hang).into();
    assert_eq!(place.ask(100_002, &Asked::Describe), Err(Errno::EAGAIN), "its share");
    busy.push(hang(2002));
    // All places are taken. One of the account with most of them is ended for another's.
    assert!(matches!(place.ask(2003, &Asked::Describe), Ok(Said::Description(_))));
    wait_until("the oldest is ended", || busy[0].try_recv() == Ok(Err(Errno::EAGAIN)));
    assert!(busy[1..].iter().all(|one| one.try_recv().is_err()), "and no other");
    // The account of that gets the place of one who is idle, and then none.
    busy.push(hang(2001));
    busy.push(hang(2004));
    wait_until("nobody has more than two", || busy[1].try_recv() == Ok(Err(Errno::EAGAIN)));
    assert_eq!(place.ask(100_005, &Asked::Describe), Err(Errno::EAGAIN));
}

pub fn a_process_that_nobody_asks_ends() {
    let idle = Duration::from_secs(2);
    let place = Fixture::new(PoolLimits { idle, ..patient(8, 8, 8) });
    let pids = [2001, 2002].map(|uid| place.describe(uid).pid);
    // One that is asked for something is not idle, however long that takes.
    let _busy = place.begin(2002, Class::Long, &Asked::Hang);
    wait_until("it ends", || !is_running(pids[0]));
    assert!(is_running(pids[1]));
    assert_ne!(place.describe(2001).pid, pids[0]);
    assert_eq!(place.log(), "");
}

/// Returns how many have come to a meeting.
fn count(directory: &Path) -> usize {
    fs::read_dir(directory).expect("a directory").count()
}

pub fn an_account_has_few_heavy_requests_at_a_time() {
    let ranges = vec![(100_000..200_000, 2001)];
    let place = Fixture::with_ranges(patient(8, 8, 8), ranges);
    let meeting = || {
        let directory = tempfile::tempdir().expect("a directory");
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(directory.path(), open).expect("its permissions");
        directory
    };
    let (own, others) = (meeting(), meeting());
    let come = |uid, to: &Path| place.begin(uid, Class::Heavy, &Asked::Meet(to.to_owned()));
    // Two of a user, of which one process answers one at a time, and two of others of the account.
    let waiting = [2001, 2001, 100_000, 100_001].map(|uid| come(uid, own.path()));
    wait_until("two have come", || count(own.path()) == 2);
    // Others, and what is not heavy, do not wait for them.
    let other = come(2002, others.path());
    wait_until("another account's has come", || count(others.path()) == 1);
    for uid in [2001, 100_001] {
        place.describe(uid);
    }
    assert_eq!(count(own.path()), 2);
    for directory in [&own, &others] {
        fs::write(directory.path().join("go"), "").expect("a file");
    }
    for answers in waiting.iter().chain([&other]) {
        assert_eq!(wait(answers), Ok(Said::Done));
    }
    // Three processes, and the file that let them go on.
    assert_eq!(count(own.path()), 4);
}
