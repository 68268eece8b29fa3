//! Random changes by several users, beside one table that makes all of them alone: errors, names and
//! attributes are the same. Directories split meanwhile, and partitions move.

use crate::net::{Net, list};
use canopy_cluster::{Client, Error};
use canopy_model::Credentials;
use canopy_namespace::inode::{TYPE_MASK, file_type};
use canopy_namespace::operation::{Caller, Change, Changer, Moment, Operation, Page, Read};
use canopy_namespace::{
    EntryName, FileId, Inode, New, NoOpenFiles, Ownership, ROOT, RenameMode, Reply, SetAttributes,
    SetXattr, Settings, Tablet, TabletRange, create_table, open_table, system_clock,
};
use canopy_partition::SplitPolicy;
use canopy_store::storage::MemoryStorage;
use canopy_store::{Environment, SstableCache};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::borrow::Cow;
use std::sync::Arc;

/// One table with all names.
fn single() -> Tablet {
    let environment = Environment::system(Arc::new(MemoryStorage::default()));
    let (settings, clock) = (Settings::default(), system_clock());
    let table = create_table(&environment, &settings, Ownership::ROOT, &clock, true).unwrap();
    let cache = SstableCache::new(&environment, 1 << 24);
    let table = open_table(&environment, table, cache).unwrap();
    Tablet::new(table, TabletRange::All, clock, Arc::new(NoOpenFiles)).unwrap()
}

/// Servers, and the one table.
struct Both {
    client: Client,
    single: Tablet,
    /// Directories: their ids in the one and in the other.
    directories: Vec<[FileId; 2]>,
    names: Vec<String>,
}

/// A name: which directory, and which name.
type Place = (usize, usize);

impl Both {
    fn name(&self, (directory, name): Place, at: usize) -> EntryName<'_> {
        EntryName::new(self.directories[directory][at], self.names[name].as_bytes())
    }

    /// Executes a change on both, and compares. It may depend on the ids, which differ.
    fn execute<'a>(
        &'a self,
        caller: Caller<'_>,
        change: impl Fn(usize) -> Option<Change<'a>>,
    ) -> Option<[Inode; 2]> {
        let [Some(here), Some(there)] = [change(0), change(1)] else { return None };
        let said = format!("{caller:?} {here:?}");
        let one = match self.client.execute_for(caller, &Operation::Change(here)) {
            Err(Error::NotYet(_)) => return None,
            Err(Error::Namespace(error)) => Err(error.errno()),
            Err(error) => panic!("{said}: {error:?}"),
            Ok(reply) => Ok(reply),
        };
        let other = self.single.execute_for(caller, &Operation::Change(there));
        match (one, other.map_err(|error| error.errno())) {
            (Err(one), Err(other)) => assert_eq!(one, other, "{said}"),
            (Ok(Reply::Inode(one)), Ok(Reply::Inode(other))) => {
                compare(&one, &other, &said);
                return Some([one, other]);
            }
            (Ok(_), Ok(_)) => {}
            different => panic!("{said}: {different:?}"),
        }
        None
    }

    fn lookup(&self, place: Place) -> Option<[Inode; 2]> {
        let lookup = |at| Operation::Read(Moment::Now, Read::Lookup(self.name(place, at)));
        let one = self.client.execute_for(Caller::Trusted, &lookup(0));
        let other = self.single.execute_for(Caller::Trusted, &lookup(1));
        match (one, other) {
            (Ok(Reply::Inode(one)), Ok(Reply::Inode(other))) => {
                compare(&one, &other, &format!("{place:?}"));
                Some([one, other])
            }
            (Err(Error::Namespace(one)), Err(other)) if one.errno() == other.errno() => None,
            different => panic!("{place:?}: {different:?}"),
        }
    }

    /// Compares all names and attributes.
    fn check(&self) {
        for (number, [here, there]) in self.directories.iter().enumerate() {
            let Some([found, _]) = self.stat([*here, *there]) else { continue };
            assert_eq!(found.id, *here);
            let page = Page { directory: *there, after: 0, name: None, count_max: 1 << 16 };
            let all = self.single.execute(&Operation::Read(Moment::Now, Read::List(page)));
            let Ok(Reply::Entries(entries)) = all else { panic!("{all:?}") };
            let listed = list(&self.client, *here);
            assert_eq!(listed.len(), entries.count(), "directory {number}");
            for ((name, inode), entry) in listed.iter().zip(entries.iter()) {
                assert_eq!(name.as_bytes(), entry.name);
                compare(inode, entry.inode, name);
                let stats = [inode.id, entry.inode.id];
                let read = |at: usize| Operation::Read(Moment::Now, Read::Inode(stats[at]));
                let one = self.client.execute_for(Caller::Trusted, &read(0)).unwrap();
                let (Reply::Inode(one), Ok(Reply::Inode(other))) =
                    (one, self.single.execute(&read(1)))
                else {
                    panic!()
                };
                compare(&one, &other, name);
                assert_eq!(self.xattr(stats[0], 0), self.xattr(stats[1], 1), "{name}");
            }
        }
    }

    /// Returns both inodes of a directory; none if it was removed.
    fn stat(&self, ids: [FileId; 2]) -> Option<[Inode; 2]> {
        let read = |at: usize| Operation::Read(Moment::Now, Read::Inode(ids[at]));
        let one = self.client.execute_for(Caller::Trusted, &read(0));
        match (one, self.single.execute(&read(1))) {
            (Ok(Reply::Inode(one)), Ok(Reply::Inode(other))) => {
                compare(&one, &other, "a directory");
                Some([one, other])
            }
            // A server that has just started may keep it without a name.
            (Ok(Reply::Inode(one)), Err(_)) if one.nlink == 0 => None,
            (Err(_), Err(_)) => None,
            different => panic!("{ids:?}: {different:?}"),
        }
    }

    fn xattr(&self, id: FileId, at: usize) -> Option<Vec<u8>> {
        let read = Operation::Read(Moment::Now, Read::Xattr { id, name: b"user.x" });
        let reply = match at {
            0 => self.client.execute_for(Caller::Trusted, &read).unwrap(),
            _ => self.single.execute(&read).unwrap(),
        };
        let Reply::Bytes(value) = reply else { panic!("{reply:?}") };
        value
    }
}

fn compare(one: &Inode, other: &Inode, said: &str) {
    let words = |inode: &Inode| {
        (inode.mode, inode.uid, inode.gid, inode.nlink, inode.size, inode.target.clone())
    };
    assert_eq!(words(one), words(other), "{said}");
    assert_eq!(one.flags & !flags_of_places(), other.flags & !flags_of_places(), "{said}");
}

/// Flags that depend on where records lie.
fn flags_of_places() -> u32 {
    canopy_namespace::inode::flag::ACCESS_HALF | canopy_namespace::inode::flag::FURTHER
}

fn make_directories(net: &Net, both: &mut Both, servers: u32) {
    for number in 0..4 {
        let mode = [0o777, 0o1777, 0o755, 0o2777][number];
        let here = net.directory_at(number as u32 % servers, mode, 7);
        let name = format!("directory{number}");
        let new = New { mode: file_type::DIRECTORY | mode, uid: 7, gid: 7, ..New::default() };
        let there = both.single.create(ROOT, name.as_bytes(), &new, false).unwrap().id;
        both.directories.push([here, there]);
    }
    // Some in others, so that they may get into each other.
    for number in 0..6 {
        let place = ([0, 4, 5, 1, 2, 7][number], number);
        let new = New { mode: file_type::DIRECTORY | 0o777, uid: 7, gid: 7, ..New::default() };
        let made = both.execute(Caller::Trusted, |at| {
            let (name, new) = (both.name(place, at), Cow::Owned(new.clone()));
            Some(Change::Create { name, new, holds: false })
        });
        both.directories.push(made.unwrap().map(|inode| inode.id));
    }
}

/// Makes one random change.
fn step(both: &Both, random: &mut StdRng, users: &[Credentials]) {
    let user = random.random_range(0..=users.len());
    let caller = users.get(user).map_or(Caller::Trusted, Caller::User);
    let (uid, gid) = users.get(user).map_or((7, 7), |who| (who.uid, who.uid));
    let mut place = || {
        (random.random_range(0..both.directories.len()), random.random_range(0..both.names.len()))
    };
    let (one, other) = (place(), place());
    match random.random_range(0..20) {
        0..5 => {
            let kinds = [file_type::REGULAR, file_type::SYMLINK, file_type::DIRECTORY];
            let kind = kinds[[0, 0, 0, 0, 1, 2][random.random_range(0..6)]];
            let mode = kind | [0o644, 0o666, 0o4755][random.random_range(0..3)];
            let target = if kind == file_type::SYMLINK { b"x".to_vec() } else { Vec::new() };
            let new = New { mode, uid, gid, target, ..New::default() };
            both.execute(caller, |at| {
                let new = Cow::Owned(new.clone());
                Some(Change::Create { name: both.name(one, at), new, holds: false })
            });
        }
        5..7 => {
            both.execute(caller, |at| Some(Change::Unlink(both.name(one, at))));
        }
        7 => {
            both.execute(caller, |at| Some(Change::Rmdir(both.name(one, at))));
        }
        8..11 => {
            let Some(inodes) = both.lookup(one) else { return };
            both.execute(caller, |at| {
                Some(Change::Link { id: inodes[at].id, name: both.name(other, at) })
            });
        }
        11..18 => {
            let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            let mode = modes[[0, 0, 0, 1, 2, 2][random.random_range(0..6)]];
            let leaves = random.random_range(0..8) == 0;
            let whiteout = leaves.then_some(Ownership { uid, gid });
            both.execute(caller, |at| {
                let (from, to) = (both.name(one, at), both.name(other, at));
                Some(Change::Rename { from, to, mode, whiteout })
            });
        }
        18 => {
            let Some(inodes) = both.lookup(one) else { return };
            if !inodes[0].is_directory() {
                let set =
                    SetAttributes { uid: Some([7, 8][one.1 % 2]), ..SetAttributes::default() };
                both.execute(Caller::Trusted, |at| {
                    let (id, set) = (inodes[at].id, set.clone());
                    Some(Change::SetAttributes { id, set, changer: Changer::Privileged })
                });
            }
        }
        _ => {
            let Some(inodes) = both.lookup(one) else { return };
            if inodes[0].mode & TYPE_MASK == file_type::REGULAR {
                let value = both.names[other.1].as_bytes();
                both.execute(caller, |at| {
                    let (id, how, changer) = (inodes[at].id, SetXattr::Any, Changer::Privileged);
                    Some(Change::SetXattr { id, name: b"user.x", value, how, changer })
                });
            }
        }
    }
}

fn run(servers: u32, policy: SplitPolicy, names: usize, steps: usize, seed: u64) {
    let net = Net::new(servers, policy);
    let mut both = Both {
        client: net.client(),
        single: single(),
        directories: Vec::new(),
        names: (0..names).map(|number| format!("name{number}")).collect(),
    };
    make_directories(&net, &mut both, servers);
    let users = [
        Credentials::new(0, [0]),
        Credentials::new(7, [7]),
        Credentials::new(8, [8]),
        Credentials::new(9, [9, 7]),
    ];
    let mut random = StdRng::seed_from_u64(seed);
    for number in 0..steps {
        step(&both, &mut random, &users);
        if number % 500 == 0 {
            both.check();
        }
    }
    both.check();
    net.settle();
    // Processes that have died leave the same.
    net.sync();
    net.servers().for_each(|server| net.restart(server));
    net.settle();
    both.check();
}

#[test]
fn servers_do_what_one_table_does() {
    let policy = SplitPolicy { entries_max: 1 << 20, ..crate::net::POLICY };
    for seed in 0..4 {
        run(2 + (seed as u32 % 2), policy, 12, 1500, seed);
    }
    if std::env::var_os("CANOPY_LONG").is_some() {
        (4..100).for_each(|seed| run(2 + (seed as u32 % 3), policy, 12, 3000, seed));
    }
}

#[test]
fn directories_split_meanwhile() {
    let policy = SplitPolicy { entries_max: 24, ..crate::net::POLICY };
    for seed in 0..2 {
        run(3, policy, 150, 3000, 100 + seed);
    }
    if std::env::var_os("CANOPY_LONG").is_some() {
        (2..40).for_each(|seed| run(3, policy, 150, 6000, 100 + seed));
    }
}
