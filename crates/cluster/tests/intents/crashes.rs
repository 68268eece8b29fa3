//! Messages that get lost, and servers that die before or after any of them: a change has happened
//! everywhere or nowhere, and has happened if it was acknowledged.

use crate::net::{Fate, Net, POLICY, change, create, file, link, list, rename, rmdir, unlink};
use canopy_cluster::{Client, Error};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::Change;
use canopy_namespace::{EntryName, FileId, Ownership, RenameMode, Reply};
use canopy_partition::ServerId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;

/// A change of files in three directories, each on a server of its own.
struct Case {
    name: &'static str,
    prepare: fn(&Client, [FileId; 3]),
    change: fn(&Client, [FileId; 3]) -> Result<Reply, Error>,
}

fn lookup(client: &Client, directory: FileId, name: &str) -> FileId {
    crate::net::lookup(client, directory, name).unwrap().id
}

/// Makes a file whose home is the server of the third directory, under a name in another one.
fn far_file(client: &Client, [_, _, home]: [FileId; 3], to: (FileId, &str)) -> FileId {
    let name = to.1;
    let id = create(client, home, name, file_type::REGULAR | 0o644, name.len() as u32).unwrap().id;
    rename(client, (home, name), to, RenameMode::NoReplace).unwrap();
    id
}

/// Returns the name of a directory whose home is not the server of the first directory.
fn far_name(directory: FileId) -> String {
    let mut names = (0..).map(|number| format!("d{number}"));
    let hash = |name: &String| EntryName::new(directory, name.as_bytes()).hash();
    let is_far = |name: &String| !hash(name).is_multiple_of(3);
    names.find(is_far).unwrap()
}

/// Cases of one change each. The owner of a file is the length of its first name.
const CASES: [Case; 13] = [
    Case {
        name: "a rename",
        prepare: |client, at| _ = file(client, at[0], "a"),
        change: |client, at| rename(client, (at[0], "a"), (at[1], "b"), RenameMode::Replace),
    },
    Case {
        name: "a rename onto another file",
        prepare: |client, at| {
            file(client, at[0], "a");
            far_file(client, at, (at[1], "bb"));
        },
        change: |client, at| rename(client, (at[0], "a"), (at[1], "bb"), RenameMode::Replace),
    },
    Case {
        name: "an exchange",
        prepare: |client, at| {
            file(client, at[0], "a");
            far_file(client, at, (at[1], "bb"));
        },
        change: |client, at| rename(client, (at[0], "a"), (at[1], "bb"), RenameMode::Exchange),
    },
    Case {
        name: "a rename that leaves a whiteout",
        prepare: |client, at| _ = file(client, at[0], "a"),
        change: |client, at| {
            let from = EntryName::new(at[0], b"a");
            let to = EntryName::new(at[1], b"b");
            let whiteout = Some(Ownership { uid: 3, gid: 3 });
            let mode = RenameMode::Replace;
            change(client, Change::Rename { from, to, mode, whiteout })
        },
    },
    Case {
        name: "a rename of one of several names onto one of several",
        prepare: |client, at| {
            let one = far_file(client, at, (at[0], "a"));
            link(client, one, (at[1], "one")).unwrap();
            let other = far_file(client, at, (at[1], "bb"));
            link(client, other, (at[0], "other")).unwrap();
        },
        change: |client, at| rename(client, (at[0], "a"), (at[1], "bb"), RenameMode::Replace),
    },
    Case {
        name: "an exchange of one of several names",
        prepare: |client, at| {
            let one = far_file(client, at, (at[0], "a"));
            link(client, one, (at[1], "one")).unwrap();
            file(client, at[1], "b");
        },
        change: |client, at| rename(client, (at[0], "a"), (at[1], "b"), RenameMode::Exchange),
    },
    Case {
        name: "a second name",
        prepare: |client, at| _ = far_file(client, at, (at[0], "a")),
        change: |client, at| {
            let id = lookup(client, at[0], "a");
            link(client, id, (at[1], "b"))
        },
    },
    Case {
        name: "a third name",
        prepare: |client, at| {
            let id = far_file(client, at, (at[0], "a"));
            link(client, id, (at[0], "b")).unwrap();
        },
        change: |client, at| {
            let id = lookup(client, at[0], "a");
            link(client, id, (at[1], "c"))
        },
    },
    Case {
        name: "the removal of a name, and of the last",
        prepare: |client, at| {
            let id = far_file(client, at, (at[0], "a"));
            link(client, id, (at[1], "b")).unwrap();
            unlink(client, (at[1], "b")).unwrap();
        },
        change: |client, at| unlink(client, (at[0], "a")),
    },
    Case {
        name: "a rename of a directory",
        prepare: |client, at| {
            create(client, at[0], &far_name(at[0]), file_type::DIRECTORY | 0o755, 7).unwrap();
        },
        change: |client, at| {
            rename(client, (at[0], &far_name(at[0])), (at[0], "e"), RenameMode::Replace)
        },
    },
    Case {
        name: "the move of a directory",
        prepare: |client, at| {
            create(client, at[2], &far_name(at[2]), file_type::DIRECTORY | 0o755, 7).unwrap();
        },
        change: |client, at| {
            rename(client, (at[2], &far_name(at[2])), (at[1], "e"), RenameMode::Replace)
        },
    },
    Case {
        name: "the move of a directory onto another one",
        prepare: |client, at| {
            create(client, at[2], &far_name(at[2]), file_type::DIRECTORY | 0o755, 7).unwrap();
            create(client, at[1], &far_name(at[1]), file_type::DIRECTORY | 0o755, 8).unwrap();
        },
        change: |client, at| {
            let (from, to) = ((at[2], far_name(at[2])), (at[1], far_name(at[1])));
            rename(client, (from.0, &from.1), (to.0, &to.1), RenameMode::Replace)
        },
    },
    Case {
        name: "the removal of a directory",
        prepare: |client, at| {
            create(client, at[0], &far_name(at[0]), file_type::DIRECTORY | 0o755, 7).unwrap();
        },
        change: |client, at| rmdir(client, (at[0], &far_name(at[0]))),
    },
];

/// All names: directory, name, owner and number of links of each.
type Tree = Vec<(usize, String, u32, u32)>;

fn tree(client: &Client, directories: [FileId; 3]) -> Tree {
    let mut tree = Vec::new();
    for (number, directory) in directories.into_iter().enumerate() {
        for (name, inode) in list(client, directory) {
            tree.push((number, name, inode.uid, inode.nlink));
        }
    }
    tree.sort();
    tree
}

fn setup(net: &Net, case: &Case) -> [FileId; 3] {
    let directories = [0, 1, 2].map(|server| net.directory_at(server, 0o755, 7));
    (case.prepare)(&net.client(), directories);
    net.settle();
    net.sync();
    directories
}

/// Makes the change while one message has a fate. Returns how many messages there were.
fn run(net: &Net, case: &Case, at: usize, fate: Fate, after: Option<&Tree>) -> (usize, Tree) {
    let said = format!("{}: message {at}: {fate:?}", case.name);
    let directories = setup(net, case);
    let before = tree(&net.client(), directories);
    let count = Arc::new(Mutex::new(0));
    let counted = count.clone();
    net.set_faults(Some(Box::new(move |_, _| {
        let mut count = counted.lock();
        *count += 1;
        if *count == at + 1 { fate } else { Fate::Arrives }
    })));
    let outcome = (case.change)(&net.client(), directories);
    let messages = *count.lock();
    net.set_faults(None);
    let is_alive = matches!(fate, Fate::Arrives | Fate::Lost | Fate::ReplyLost);
    let after = after.cloned().unwrap_or_else(|| tree(&net.client(), directories));
    assert_ne!(before, after, "{said}");
    let mut has_happened = outcome.is_ok();
    match &outcome {
        Err(Error::Namespace(error @ canopy_namespace::Error::Posix(_))) => {
            panic!("{said}: {error}")
        }
        // Readers agree at once, whatever servers have learned so far.
        _ if is_alive => {
            let seen = tree(&net.client(), directories);
            assert!(seen == after || !has_happened && seen == before, "{said}: {seen:?}");
            has_happened = seen == after;
        }
        _ => {}
    }
    match fate {
        Fate::KillBefore(victim) | Fate::KillAfter(victim) => net.restart(victim),
        _ => {}
    }
    net.settle();
    let seen = tree(&net.client(), directories);
    assert!(seen == after || !has_happened && seen == before, "{said}: {seen:?}");
    // It outlasts the death of everybody.
    if at.is_multiple_of(2) {
        net.servers().for_each(|server| net.restart(server));
        net.settle();
        assert_eq!(tree(&net.client(), directories), seen, "{said}");
    }
    (messages, after)
}

/// Gives each message of each case each fate. Cases wait for leases most of the time, so all messages
/// have their turn at once.
fn explore(cases: std::ops::Range<usize>) {
    thread::scope(|scope| {
        for case in &CASES[cases] {
            let net = Net::new(3, POLICY);
            let (messages, after) = run(&net, case, usize::MAX - 1, Fate::Arrives, None);
            assert!(messages > 0, "{}", case.name);
            for at in 0..messages {
                let after = after.clone();
                scope.spawn(move || explore_message(case, at, &after));
            }
        }
    });
}

fn explore_message(case: &Case, at: usize, after: &Tree) {
    let net = Net::new(3, POLICY);
    let victims = net
        .servers()
        .flat_map(|server: ServerId| [Fate::KillBefore(server), Fate::KillAfter(server)]);
    for fate in [Fate::Lost, Fate::ReplyLost].into_iter().chain(victims) {
        run(&net, case, at, fate, Some(after));
    }
    net.assert_sound();
}

#[test]
fn renames_happen_everywhere_or_nowhere() {
    explore(0..4);
}

#[test]
fn changes_of_several_names_happen_everywhere_or_nowhere() {
    explore(4..10);
}

#[test]
fn changes_of_directories_happen_everywhere_or_nowhere() {
    explore(10..13);
}
