//! Histories of clients, and whether a tree is a consistent prefix of them.
//!
//! Each client changes names of its own, one change after the other. No name is used twice, so each
//! prefix of its history has another tree. A tree of all clients is consistent if it has a prefix of
//! each history, and no change that began after another one was answered that it does not have.

use crate::net::{Net, create, link, list, lookup, rename};
use canopy_cluster::Client;
use canopy_namespace::FileId;
use canopy_namespace::Reply;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Moment, Operation, Read};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Names of a client in directories, with their files.
type Names = BTreeMap<(usize, String), FileId>;

/// A change of a client.
struct Step {
    began: u64,
    answered: u64,
    /// The names afterwards.
    names: Names,
}

/// Clients and the directories that they change.
pub struct History {
    pub directories: Vec<FileId>,
    steps: Vec<Mutex<Vec<Step>>>,
    time: AtomicU64,
}

impl History {
    pub fn new(net: &Net, clients: usize) -> Self {
        let directories = net.servers().chain(net.servers());
        History {
            directories: directories.map(|server| net.directory_at(server.0)).collect(),
            steps: (0..clients).map(|_| Mutex::default()).collect(),
            time: AtomicU64::new(1),
        }
    }

    pub fn now(&self) -> u64 {
        self.time.fetch_add(1, Ordering::SeqCst)
    }

    /// Returns the number of changes so far.
    pub fn count(&self) -> usize {
        self.steps.iter().map(|steps| steps.lock().len()).sum()
    }

    /// Makes a change of a client.
    pub fn step(&self, number: usize, client: &Client, random: &mut StdRng) {
        let (mut names, count) = {
            let steps = self.steps[number].lock();
            (steps.last().map(|step| step.names.clone()).unwrap_or_default(), steps.len())
        };
        let at = random.random_range(0..self.directories.len());
        let old = (!names.is_empty()).then(|| {
            let old = random.random_range(0..names.len());
            names.iter().nth(old).map(|(key, id)| (key.clone(), *id)).unwrap()
        });
        let kind = random.random_range(0..8);
        // Names of directories end so, and directories have one name.
        let is_directory = match &old {
            Some((old, _)) if kind < 4 => old.1.ends_with('d'),
            _ => kind == 4,
        };
        let name = format!("c{number}o{count}{}", if is_directory { "d" } else { "" });
        let to = (self.directories[at], &name[..]);
        let began = self.now();
        match (old, kind) {
            (Some((old, id)), 0..3) => {
                let from = (self.directories[old.0], &old.1[..]);
                rename(client, from, to).unwrap();
                names.remove(&old);
                names.insert((at, name), id);
            }
            (Some((_, id)), 3) if !is_directory => {
                link(client, id, to).unwrap();
                names.insert((at, name), id);
            }
            _ => {
                let kind = if is_directory { file_type::DIRECTORY } else { file_type::REGULAR };
                let made = create(client, to.0, &name, kind | 0o755).unwrap();
                names.insert((at, name), made.id);
            }
        }
        let answered = self.now();
        self.steps[number].lock().push(Step { began, answered, names });
    }

    /// Checks a tree that was made between two times.
    pub fn check(&self, client: &Client, at: Moment, between: (u64, u64)) {
        let mut found: Vec<Names> = self.steps.iter().map(|_| Names::new()).collect();
        let mut links: BTreeMap<FileId, u32> = BTreeMap::new();
        for (number, directory) in self.directories.iter().enumerate() {
            for (name, inode) in list(client, at, *directory) {
                let of = name[1..].split('o').next().and_then(|of| of.parse::<usize>().ok());
                *links.entry(inode.id).or_default() += 1;
                let before = found[of.unwrap()].insert((number, name.clone()), inode.id);
                assert_eq!(before, None, "{name} is listed twice");
            }
        }
        let counts = Vec::from_iter(found.iter().enumerate().map(|(of, names)| {
            let steps = self.steps[of].lock();
            let count = match names.is_empty() {
                true => Some(0),
                false => steps.iter().position(|step| step.names == *names).map(|at| at + 1),
            };
            count.unwrap_or_else(|| panic!("client {of} never had {names:?}"))
        }));
        for (of, count) in counts.iter().enumerate() {
            let steps = self.steps[of].lock();
            let last = count.checked_sub(1).and_then(|last| steps.get(last));
            let next = steps.get(*count);
            assert!(last.is_none_or(|last| last.began < between.1), "it came later");
            assert!(next.is_none_or(|next| next.answered > between.0), "it was answered before");
            let began = last.map_or(0, |last| last.began);
            for (other, count) in counts.iter().enumerate().filter(|(other, _)| *other != of) {
                let others = self.steps[other].lock();
                let missing = others.get(*count).filter(|missing| missing.answered < began);
                assert!(missing.is_none(), "a change of {of} is in, an earlier one of {other} not");
            }
        }
        self.check_files(client, at, &found, &links);
    }

    /// Looks up names and files.
    fn check_files(
        &self,
        client: &Client,
        at: Moment,
        found: &[Names],
        links: &BTreeMap<FileId, u32>,
    ) {
        for ((directory, name), id) in found.iter().flatten() {
            let inode = lookup(client, at, self.directories[*directory], name);
            assert_eq!(inode.map(|inode| inode.id), Some(*id), "{name}");
        }
        for (id, count) in links {
            match crate::net::execute(client, &Operation::Read(at, Read::Inode(*id))) {
                Ok(Reply::Inode(inode)) if inode.is_directory() => {}
                Ok(Reply::Inode(inode)) => assert_eq!(inode.nlink, *count, "names of {id}"),
                other => panic!("{id}: {other:?}"),
            }
        }
    }
}
