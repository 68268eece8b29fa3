//! A tree that random changes make, and its entries as clients list them.

use crate::place::{Cluster, execute, new_client};
use canopy_cluster::{Client, ClusterView, Error, HandOverStage, checkpoint_all};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Change, Changer, Moment, Operation, Page, Read};
use canopy_namespace::{
    EntryName, FileId, Inode, New, ROOT, ReadView, RenameMode, Reply, SetAttributes, SetXattr,
};
use canopy_store::Environment;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Paths with inodes.
pub type Paths = BTreeMap<Vec<u8>, Inode>;

/// Returns all entries, as a client that knows nothing lists them.
pub fn listed(cluster: &Arc<Cluster>) -> Paths {
    let client = new_client(cluster);
    let mut paths = Paths::new();
    let mut waiting = vec![(ROOT, Vec::new())];
    while let Some((directory, path)) = waiting.pop() {
        let mut after = 0;
        loop {
            let page = Page { directory, after, name: None, count_max: 100 };
            let list = Operation::Read(Moment::Now, Read::List(page));
            let Ok(Reply::Entries(entries)) = execute(&client, &list) else { panic!() };
            if entries.count() == 0 {
                break;
            }
            for entry in entries.iter() {
                after = entry.cookie;
                let path = below(&path, entry.name);
                if entry.inode.is_directory() {
                    waiting.push((entry.inode.id, path.clone()));
                }
                assert_eq!(paths.insert(path, entry.inode.clone()), None, "listed twice");
            }
        }
    }
    paths
}

/// Returns all entries that a view has.
pub fn viewed(view: &ReadView) -> Paths {
    let mut paths = Paths::new();
    let mut waiting = vec![(ROOT, Vec::new())];
    while let Some((directory, path)) = waiting.pop() {
        view.list(directory, None, |name, inode| {
            let path = below(&path, name);
            if inode.is_directory() {
                waiting.push((inode.id, path.clone()));
            }
            assert_eq!(paths.insert(path, inode), None, "listed twice");
            true
        })
        .unwrap();
    }
    paths
}

pub fn below(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}

/// Reads all tables at checkpoints.
pub fn open_view(cluster: &Arc<Cluster>, environment: &Environment) -> ClusterView {
    let make = || {
        cluster.process().flush()?;
        checkpoint_all(environment, 60_000)
    };
    ClusterView::open(environment, make).unwrap()
}

/// Splits a partition of a directory as far as a step; with none, to the end.
pub fn split(
    cluster: &Arc<Cluster>,
    directory: FileId,
    random: &mut StdRng,
    until: Option<HandOverStage>,
) {
    let process = cluster.process();
    let partitions = process.partitions(directory).unwrap();
    let (_, history) = partitions.choose(random).unwrap();
    let steps = &mut |step: HandOverStage| Some(step) != until;
    match process.split(directory, history.partition(), steps) {
        Ok(_) | Err(Error::Stopped(_)) => {}
        Err(error) => panic!("{error}"),
    }
}

pub const STEPS: [HandOverStage; 7] = [
    HandOverStage::Begin,
    HandOverStage::Entries,
    HandOverStage::Complete,
    HandOverStage::Give,
    HandOverStage::Hold,
    HandOverStage::Confirm,
    HandOverStage::Remove,
];

/// Makes random changes, of which some fail.
pub struct Changes<'a> {
    cluster: &'a Arc<Cluster>,
    client: Client,
    pub random: StdRng,
    pub directories: Vec<FileId>,
    files: Vec<FileId>,
}

impl<'a> Changes<'a> {
    pub fn new(cluster: &'a Arc<Cluster>, seed: u64) -> Self {
        Changes {
            cluster,
            client: new_client(cluster),
            random: StdRng::seed_from_u64(seed),
            directories: vec![ROOT],
            files: Vec::new(),
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let extension = ["c", "rs", "txt"][self.random.random_range(0..3)];
        format!("n{}.{extension}", self.random.random_range(0..200)).into_bytes()
    }

    fn directory(&mut self) -> FileId {
        // Some directories have many entries.
        match self.random.random_range(0..3) {
            0 => self.directories[0],
            1 => self.directories[self.directories.len() / 2],
            _ => *self.directories.choose(&mut self.random).unwrap(),
        }
    }

    fn change(&self, change: Change<'_>) -> Option<Reply> {
        execute(&self.client, &Operation::Change(change)).ok()
    }

    pub fn make(&mut self, count: usize) {
        for _ in 0..count {
            self.one();
        }
    }

    fn one(&mut self) {
        let (parent, name) = (self.directory(), self.name());
        let name = EntryName::new(parent, &name);
        match self.random.random_range(0..20) {
            0..9 => self.create(name, file_type::REGULAR),
            9..12 => self.create(name, file_type::DIRECTORY),
            12 => self.create(name, file_type::SYMLINK),
            13 => drop(self.change(Change::Unlink(name))),
            14 => drop(self.change(Change::Rmdir(name))),
            15 | 16 => {
                let Some(id) = self.files.choose(&mut self.random).copied() else { return };
                self.change(Change::Link { id, name });
            }
            17 => {
                let (parent, other) = (self.directory(), self.name());
                let to = EntryName::new(parent, &other);
                let mode = RenameMode::Replace;
                self.change(Change::Rename { from: name, to, mode, whiteout: None });
            }
            18 => {
                let ids = if self.random.random() { &self.files } else { &self.directories };
                let Some(id) = ids.choose(&mut self.random).copied() else { return };
                let (name, value) = (b"user.run", [b'0' + self.random.random_range(0..3)]);
                let (how, changer) = (SetXattr::Any, Changer::Privileged);
                self.change(Change::SetXattr { id, name, value: &value, how, changer });
            }
            _ => {
                let ids = if self.random.random() { &self.files } else { &self.directories };
                let Some(id) = ids.choose(&mut self.random).copied() else { return };
                let modes = [0o700, 0o755, 0o711, 0o644, 0o750];
                let mode = modes[self.random.random_range(0..modes.len())];
                let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
                self.change(Change::SetAttributes { id, set, changer: Changer::Privileged });
            }
        }
    }

    fn create(&mut self, name: EntryName<'_>, kind: u32) {
        let target = if kind == file_type::SYMLINK { b"elsewhere".to_vec() } else { Vec::new() };
        let (uid, gid) = (self.random.random_range(7..9), 8);
        let new = New { mode: kind | 0o755, uid, gid, target, ..New::default() };
        let create = Change::Create { name, new: Cow::Owned(new), holds: false };
        if let Some(Reply::Inode(inode)) = self.change(create) {
            let all = match kind {
                file_type::DIRECTORY => &mut self.directories,
                _ => &mut self.files,
            };
            all.push(inode.id);
        }
    }

    /// Splits a partition of a directory that there is.
    pub fn split(&mut self, until: Option<HandOverStage>) {
        let directory = self.directory();
        if self.cluster.process().partitions(directory).is_ok_and(|all| !all.is_empty()) {
            split(self.cluster, directory, &mut self.random, until);
        }
    }
}
