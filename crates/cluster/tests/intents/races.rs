//! Changes that meet: of the same names at once, in opposite directions, while others read, while
//! messages get lost and servers die.

use crate::net::{
    Fate, Faults, Net, POLICY, create, file, link, list, lookup, rename, rmdir, unlink,
};
use canopy_cluster::{Client, Error, IntentMessage};
use canopy_model::ErrorKind;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Access, Operation};
use canopy_namespace::{FileId, RenameMode, Reply};
use canopy_partition::SplitPolicy;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Loses every other message that a change has happened, so that whoever needs to know has to ask.
fn lose_decisions() -> Option<Faults> {
    let mut count = 0;
    Some(Box::new(move |_, step| {
        count += 1;
        match step {
            IntentMessage::Commit(_) if count % 2 == 0 => Fate::Lost,
            _ => Fate::Arrives,
        }
    }))
}

/// Holds parts up on their way, so that changes meet that have locked something: for some turns of
/// other threads, of which a busy machine has long ones.
fn hold_up_parts() -> Option<Faults> {
    Some(Box::new(|_, step| {
        let since = Instant::now();
        let mut turns = 0..50;
        while matches!(step, IntentMessage::Prepare { .. })
            && turns.next().is_some()
            && since.elapsed() < Duration::from_millis(1)
        {
            thread::yield_now();
        }
        Fate::Arrives
    }))
}

/// Runs readers until a change that goes on and on has ended.
fn while_it_reads(
    net: &Arc<Net>,
    read: impl Fn(&Client) + Send + Sync,
    change: impl FnOnce(&Client),
) {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = net.client();
                while !has_ended.load(Ordering::Acquire) {
                    read(&client);
                }
            });
        }
        let _ends = SetAtEnd(&has_ended);
        change(&net.client());
    });
}

#[test]
fn a_name_that_is_replaced_always_exists() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let [one, other, third] = [0, 1, 2].map(|server| net.directory_at(server, 0o755, 7));
    file(&client, other, "b");
    net.set_faults(lose_decisions());
    let read = |client: &Client| {
        assert!(lookup(client, other, "b").is_some());
        let listed = list(client, other);
        assert_eq!(listed.iter().filter(|(name, _)| name == "b").count(), 1, "{listed:?}");
    };
    while_it_reads(&net, read, |client| {
        for number in 0..200 {
            let id = file(client, one, "a");
            if number % 3 > 0 {
                link(client, id, (third, "link")).unwrap();
            }
            rename(client, (one, "a"), (other, "b"), RenameMode::Replace).unwrap();
            assert_eq!(lookup(client, other, "b").unwrap().id, id);
            if number % 3 > 0 {
                unlink(client, (third, "link")).unwrap();
            }
        }
    });
    net.settle();
    net.assert_sound();
}

#[test]
fn a_file_that_moves_is_never_nowhere() {
    let net = Net::new(2, POLICY);
    let client = net.client();
    let at = [0, 1].map(|server| net.directory_at(server, 0o755, 7));
    net.set_faults(lose_decisions());
    for number in 0..150 {
        let (from, to) = (format!("from{number}"), format!("to{number}"));
        let id = file(&client, at[0], &from);
        if number % 2 == 0 {
            link(&client, id, (at[1], &format!("more{number}"))).unwrap();
        }
        let read = |client: &Client| {
            // Once the old name is gone, the new one is there; once that is, the old one is gone.
            let is_gone = lookup(client, at[0], &from).is_none();
            let is_there = lookup(client, at[1], &to).is_some();
            assert!(is_there || !is_gone);
            if is_there {
                assert!(lookup(client, at[0], &from).is_none());
            }
            assert_eq!(found(client, id), id);
        };
        while_it_reads(&net, read, |client| {
            rename(client, (at[0], &from), (at[1], &to), RenameMode::Replace).unwrap();
        });
    }
    net.settle();
    net.assert_sound();
}

fn found(client: &Client, id: FileId) -> FileId {
    use canopy_namespace::operation::{Moment, Read};
    match crate::net::execute(client, &Operation::Read(Moment::Now, Read::Inode(id))) {
        Ok(Reply::Inode(inode)) => inode.id,
        other => panic!("{other:?}"),
    }
}

/// Names of a file in three directories, counted.
fn names_of(net: &Net, directories: &[FileId]) -> BTreeMap<FileId, (u32, u32)> {
    let client = net.client();
    let mut found = BTreeMap::new();
    for directory in directories {
        for (_, inode) in list(&client, *directory) {
            let (count, links): &mut (u32, u32) = found.entry(inode.id).or_default();
            *count += 1;
            *links = inode.nlink;
        }
    }
    found
}

/// Returns whether an operation was refused by a rule. Panics if it failed for anything but that a
/// server was dead.
fn was_refused(outcome: &Result<Reply, Error>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(Error::Namespace(error @ canopy_namespace::Error::Posix(_))) => {
            let expected = [Errno::NOENT, Errno::EXIST];
            assert!(expected.contains(&error.errno()), "{error}");
            true
        }
        Err(Error::Namespace(error)) => {
            let dead = [ErrorKind::Unavailable, ErrorKind::Taken];
            assert!(dead.contains(&error.kind()), "{error}");
            false
        }
        Err(Error::Unreachable { .. } | Error::NotRunning(_)) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Sets a flag once it is dropped, by a panic, too.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Moves files to and fro without losing any, by several threads, and links and unlinks one.
fn shuffle(net: &Arc<Net>, directories: &[FileId], rounds: u32, seed: u64) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let client = net.client();
                let mut random = StdRng::seed_from_u64(seed * 16 + thread);
                for round in 0..rounds {
                    let mut place = || {
                        let directory = directories[random.random_range(0..directories.len())];
                        (directory, format!("name{}", random.random_range(0..8)))
                    };
                    let ((one, from), (other, to)) = (place(), place());
                    let (from, to) = ((one, from.as_str()), (other, to.as_str()));
                    let outcome = match random.random_range(0..4) {
                        0 | 1 => rename(&client, from, to, RenameMode::NoReplace),
                        2 => rename(&client, from, to, RenameMode::Exchange),
                        // A further name of a file.
                        _ => {
                            let Some(inode) = lookup(&client, one, from.1) else { continue };
                            let own = format!("own{thread}-{round}");
                            link(&client, inode.id, (other, &own))
                        }
                    };
                    was_refused(&outcome);
                }
            });
        }
    });
}

fn prepare(net: &Net) -> (Vec<FileId>, Vec<FileId>) {
    let client = net.client();
    let directories = Vec::from_iter((0..3).map(|at| net.directory_at(at, 0o755, 7)));
    let files = directories.iter().flat_map(|directory| {
        [0, 2, 5].map(|number| file(&client, *directory, &format!("name{number}")))
    });
    let files = Vec::from_iter(files);
    net.settle();
    net.sync();
    (directories, files)
}

fn check(net: &Net, directories: &[FileId], files: &[FileId]) {
    net.settle();
    let names = names_of(net, directories);
    let mut expected = Vec::from(files);
    expected.sort();
    assert_eq!(Vec::from_iter(names.keys().copied()), expected);
    for (id, (count, links)) in names {
        assert_eq!(count, links, "{id}");
    }
}

#[test]
fn changes_of_the_same_names_end() {
    for seed in 0..3 {
        let net = Net::new(3, POLICY);
        let (directories, files) = prepare(&net);
        net.set_faults(if seed == 0 { lose_decisions() } else { hold_up_parts() });
        shuffle(&net, &directories, 300, seed);
        net.set_faults(None);
        check(&net, &directories, &files);
    }
}

#[test]
fn opposite_renames_end() {
    let net = Net::new(2, POLICY);
    let client = net.client();
    let at = [0, 1].map(|server| net.directory_at(server, 0o755, 7));
    let files = [file(&client, at[0], "a"), file(&client, at[1], "b")];
    net.set_faults(hold_up_parts());
    thread::scope(|scope| {
        for (from, to) in [((at[0], "a"), (at[1], "b")), ((at[1], "b"), (at[0], "a"))] {
            let net = &net;
            scope.spawn(move || {
                let client = net.client();
                for _ in 0..300 {
                    rename(&client, from, to, RenameMode::Exchange).unwrap();
                }
            });
        }
    });
    check(&net, &at, &files);
    assert_eq!(lookup(&client, at[0], "a").unwrap().id, files[0]);
}

#[test]
fn names_move_while_their_directories_split() {
    let net = Net::new(3, SplitPolicy { entries_max: 16, ..POLICY });
    // A server that may get a name asks to be asked again.
    let client = net.client().with_patience(Duration::from_secs(60));
    let (directories, mut files) = prepare(&net);
    thread::scope(|scope| {
        scope.spawn(|| shuffle(&net, &directories, 150, 77));
        for number in 0..400 {
            let at = directories[number % 3];
            files.push(file(&client, at, &format!("{number}")));
        }
    });
    check(&net, &directories, &files);
}

#[test]
fn servers_die_while_names_move() {
    let rounds = if std::env::var_os("CANOPY_LONG").is_some() { 40 } else { 2 };
    for seed in 0..rounds {
        let net = Net::new(3, POLICY);
        let (directories, files) = prepare(&net);
        let has_ended = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = StdRng::seed_from_u64(seed);
                while !has_ended.load(Ordering::Acquire) {
                    let victim = random.random_range(0..3);
                    net.restart(canopy_partition::ServerId(victim));
                    (0..random.random_range(0..2000)).for_each(|_| thread::yield_now());
                }
            });
            let _ends = SetAtEnd(&has_ended);
            shuffle(&net, &directories, 200, 100 + seed);
        });
        check(&net, &directories, &files);
    }
}

#[test]
fn directories_never_get_into_each_other() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let parents = [0, 1].map(|server| net.directory_at(server, 0o755, 7));
    net.set_faults(hold_up_parts());
    for round in 0..60 {
        let names = [format!("x{round}"), format!("y{round}")];
        let made = [0, 1].map(|at| {
            create(&client, parents[at], &names[at], file_type::DIRECTORY | 0o755, 7).unwrap().id
        });
        let moved = thread::scope(|scope| {
            let (net, names) = (&net, &names);
            let moves = [0, 1].map(|at| {
                scope.spawn(move || {
                    let name = names[at].as_str();
                    let (from, to) = ((parents[at], name), (made[1 - at], name));
                    match rename(&net.client(), from, to, RenameMode::Replace) {
                        Ok(_) => true,
                        Err(Error::Namespace(error)) => {
                            assert_eq!(error.errno(), Errno::INVAL);
                            false
                        }
                        Err(error) => panic!("{error}"),
                    }
                })
            });
            moves.map(|one| one.join().unwrap())
        });
        // One of them is in the other, and both can be reached.
        assert_eq!(moved.iter().filter(|moved| **moved).count(), 1, "{moved:?}");
        for id in made {
            let path = Operation::Access(Access::Path(id));
            let path = crate::net::execute(&client, &path);
            assert!(matches!(path, Ok(Reply::Bytes(Some(_)))), "{path:?}");
        }
    }
    net.settle();
    net.assert_sound();
}

#[test]
fn nothing_is_created_in_what_was_removed() {
    let net = Net::new(3, POLICY);
    let client = net.client();
    let parent = net.directory_at(0, 0o755, 7);
    net.set_faults(hold_up_parts());
    for round in 0..100 {
        let name = format!("{round}");
        let made = create(&client, parent, &name, file_type::DIRECTORY | 0o755, 7).unwrap().id;
        file(&client, parent, "moved");
        let results = thread::scope(|scope| {
            let net = &net;
            let create = scope.spawn(move || {
                let kind = [file_type::REGULAR, file_type::DIRECTORY][round % 2];
                match round % 4 {
                    0 | 1 => create(&net.client(), made, "new", kind | 0o755, 7).is_ok(),
                    _ => {
                        let (from, to) = ((parent, "moved"), (made, "new"));
                        rename(&net.client(), from, to, RenameMode::Replace).is_ok()
                    }
                }
            });
            let removed = rmdir(&client, (parent, &name)).is_ok();
            [create.join().unwrap(), removed]
        });
        assert_eq!(results.iter().filter(|has| **has).count(), 1, "{results:?}");
        assert_eq!(lookup(&client, made, "new").is_some(), results[0]);
        assert_eq!(lookup(&client, parent, &name).is_some(), results[0]);
        if lookup(&client, parent, "moved").is_some() {
            unlink(&client, (parent, "moved")).unwrap();
        }
    }
    net.settle();
    net.assert_sound();
}
