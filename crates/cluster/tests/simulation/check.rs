//! The check at the end: everything is what clients were answered.

use crate::model::{Model, Removal};
use crate::user::{Outcome, User};
use canopy_namespace::{FileId, Inode, ROOT, Reply};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// A tree: entries of each directory.
pub type Tree = BTreeMap<FileId, BTreeMap<String, Inode>>;

/// Checks everything, and returns the tree.
pub fn check(user: &User, model: &Mutex<Model>) -> Tree {
    let tree = walk(user);
    let mut model = model.lock();
    check_directories(&model, &tree);
    check_names(&mut model, &tree);
    check_common(&model, &tree);
    drop(model);
    check_links(user, &tree);
    tree
}

/// Reads the whole tree from the root on.
fn walk(user: &User) -> Tree {
    let mut tree = Tree::new();
    let mut left = vec![ROOT];
    while let Some(directory) = left.pop() {
        let listed = match user.list(directory) {
            Ok(listed) => listed,
            Err(errno) => panic!("{directory:?} cannot be listed: {errno:?}"),
        };
        let count = listed.len();
        left.extend(
            listed
                .iter()
                .map(|(_, inode)| inode)
                .filter_map(|inode| inode.is_directory().then_some(inode.id)),
        );
        let names: BTreeMap<String, Inode> = listed.into_iter().collect();
        assert_eq!(names.len(), count, "a name is listed twice in {directory:?}");
        assert!(tree.insert(directory, names).is_none(), "{directory:?} has two names");
    }
    tree
}

fn check_directories(model: &Model, tree: &Tree) {
    for (id, directory) in &model.directories {
        match (tree.contains_key(id), directory.removal) {
            (false, Removal::No) => panic!("directory {id:?} is lost"),
            (true, Removal::Yes) => panic!("directory {id:?} was removed, and is there"),
            _ => {}
        }
    }
}

fn check_names(model: &mut Model, tree: &Tree) {
    for (key, register) in &mut model.names {
        let found = tree.get(&key.0).and_then(|names| names.get(&key.1));
        let found = found.map(|inode| inode.id);
        let floor = register.floor();
        if register.read(floor, &found).is_none() {
            panic!("{key:?} is {found:?}, which is not one of {}", register.history());
        }
    }
    let is_known = |name: &str| name.starts_with('x') || name.starts_with("shared");
    for (directory, names) in tree {
        for name in names.keys().filter(|name| !is_known(name)) {
            let key = (*directory, name.clone());
            assert!(model.names.contains_key(&key), "nobody has made {key:?}");
        }
    }
    let found = tree.values().flat_map(|names| names.values());
    let found: BTreeMap<FileId, &Inode> = found.map(|inode| (inode.id, inode)).collect();
    for (id, file) in &mut model.files {
        let Some(inode) = found.get(id) else {
            let is_certain = file.is_certain && file.removal == Removal::No;
            assert!(!is_certain, "file {id:?} is lost");
            continue;
        };
        assert_ne!(file.removal, Removal::Yes, "file {id:?} was removed, and is there");
        let (floor, history) = (file.mtime.floor(), file.mtime.history());
        let read = file.mtime.read(floor, &Some(inode.mtime_ns));
        assert!(read.is_some(), "time of {id:?}: {} is not one of {history}", inode.mtime_ns);
    }
}

fn check_common(model: &Model, tree: &Tree) {
    let common = &model.common;
    let names = tree.values().flatten().filter(|(name, _)| name.starts_with('x'));
    let found = Vec::from_iter(names.map(|(_, inode)| inode.id));
    let ids = BTreeSet::from_iter(found.iter().copied());
    assert_eq!(ids.len(), found.len(), "a file of one name has two");
    let expected: BTreeSet<FileId> = common.created.difference(&common.removed).copied().collect();
    let lost = expected.difference(&ids).count();
    assert!(lost <= common.unknown_removals, "{lost} files are lost of {expected:?}: {ids:?}");
    let new = ids.difference(&expected).count();
    assert!(new <= common.unknown_creations, "{new} files are new beside {expected:?}: {ids:?}");
}

/// Counts names and directories, and finds everything by name and by id.
fn check_links(user: &User, tree: &Tree) {
    let mut links: BTreeMap<FileId, u32> = BTreeMap::new();
    for inode in tree.values().flat_map(|names| names.values()) {
        *links.entry(inode.id).or_default() += 1;
    }
    for (directory, names) in tree {
        let below = names.values().filter(|inode| inode.is_directory()).count() as u32;
        match user.stat(*directory) {
            Outcome::Done(Reply::Inode(inode)) => {
                assert_eq!(inode.nlink, below + 2, "links of directory {directory:?}");
            }
            other => panic!("stat of {directory:?}: {}", other.said()),
        }
        for (name, inode) in names {
            let key = (*directory, name.clone());
            let (by_name, by_id) = (user.lookup(&key), user.stat(inode.id));
            let ids = [&by_name, &by_id].map(|outcome| match outcome {
                Outcome::Done(Reply::Inode(found)) => found.id,
                other => panic!("{key:?}: {}", other.said()),
            });
            assert_eq!(ids, [inode.id; 2], "{key:?}");
            if !inode.is_directory() {
                assert_eq!(inode.nlink, links[&inode.id], "links of {key:?}");
            }
        }
    }
}
