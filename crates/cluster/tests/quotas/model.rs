//! Random changes under limits, beside a namespace of one table: refusals and usage are equal.

use crate::place::{ADA, BOB, POLICY, Place, check, quotas};
use canopy_cluster::{Client, Error};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{
    Caller, Change, Changer, Execute, Moment, Operation, Piece, QuotasRequest, Read, WriteSmall,
    Writer,
};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    Contents, EntryName, FileId, Inode, Namespace, New, Ownership, Privileges, ROOT, RenameMode,
    Reply, SetAttributes, Settings, create_namespace,
};
use canopy_partition::{ServerId, SplitPolicy};
use canopy_store::Environment;
use canopy_store::storage::LocalStorage;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tempfile::TempDir;

/// Servers, and one table with all names.
struct Both {
    place: Arc<Place>,
    client: Client,
    single: Namespace,
    /// Directories: their ids in the one and in the other.
    directories: Vec<[FileId; 2]>,
    names: Vec<String>,
    _directory: TempDir,
}

impl Both {
    fn new(servers: u32, policy: SplitPolicy) -> Self {
        let place = Place::with_policy(servers, policy);
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(LocalStorage::new(directory.path()).unwrap());
        let environment = Environment::system(storage);
        let clock = place.clock.clone();
        create_namespace(&environment, &Settings::default(), Ownership::ROOT, &clock).unwrap();
        let contents = Contents::new(&directory.path().join("contents")).unwrap();
        let single = Namespace::open(&environment, contents, clock).unwrap();
        let client = place.client();
        let mut both = Both {
            place,
            client,
            single,
            directories: Vec::new(),
            names: (0..16).map(|number| format!("name{number}")).collect(),
            _directory: directory,
        };
        for server in 0..servers {
            let here = both.place.directory_at(server);
            let new = New { mode: file_type::DIRECTORY | 0o777, ..New::default() };
            let name = format!("at{server}");
            let there = both.single.create(ROOT, name.as_bytes(), &new, false).unwrap().id;
            both.directories.push([here, there]);
        }
        both
    }

    fn name(&self, place: (usize, usize), at: usize) -> EntryName<'_> {
        EntryName::new(self.directories[place.0][at], self.names[place.1].as_bytes())
    }

    /// Executes an operation on both, and compares outcomes.
    fn execute<'a>(&'a self, operation: impl Fn(usize) -> Operation<'a>) -> Result<(), Errno> {
        let said = format!("{:?}", operation(0));
        let one = match self.client.execute_for(Caller::Trusted, &operation(0)) {
            Ok(_) => Ok(()),
            Err(Error::Namespace(error)) => Err(error.errno()),
            Err(error) => panic!("{said}: {error:?}"),
        };
        let other = self.single.execute_for(Caller::Trusted, &operation(1));
        let other = other.map(drop).map_err(|error| error.errno());
        assert_eq!(one, other, "{said}");
        one
    }

    /// Writes a small file on both.
    fn write(&self, ids: [FileId; 2], bytes: &[u8], is_bound: bool) -> Result<(), Errno> {
        let write = WriteSmall { pieces: vec![Piece { offset: 0, bytes }], size_min: 0 };
        let (writer, privileges) = match is_bound {
            true => (Writer::Unknown, Privileges::KeepBound),
            false => (Writer::Privileged, Privileges::Keep),
        };
        let change = Operation::Change(Change::WriteSmall { id: ids[0], write, writer });
        let one = match self.client.execute_for(Caller::Trusted, &change) {
            Ok(_) => Ok(()),
            Err(Error::Namespace(error)) => Err(error.errno()),
            Err(error) => panic!("{error:?}"),
        };
        let opened = self.single.open_file(ids[1]).unwrap();
        let other = self.single.write(&opened, Some(0), bytes, privileges);
        self.single.close_file(&opened).unwrap();
        assert_eq!(one, other.map(drop).map_err(|error| error.errno()), "{} bytes", bytes.len());
        one
    }

    fn lookup(&self, place: (usize, usize)) -> Option<[Inode; 2]> {
        let lookup = |at| Operation::Read(Moment::Now, Read::Lookup(self.name(place, at)));
        let one = self.client.execute_for(Caller::Trusted, &lookup(0));
        let other = self.single.execute_for(Caller::Trusted, &lookup(1));
        match (one, other) {
            (Ok(Reply::Inode(one)), Ok(Reply::Inode(other))) => Some([one, other]),
            (Err(_), Err(_)) => None,
            different => panic!("{place:?}: {different:?}"),
        }
    }

    /// Compares usage of all limited accounts.
    fn check(&self) {
        check(&self.client);
        let accounts = [Account::User(ADA), Account::User(BOB), Account::Group(ADA)];
        let of = |quotas: Vec<canopy_namespace::quota::Quota>| {
            let all = quotas.into_iter().map(|quota| (quota.account, quota));
            let all = BTreeMap::from_iter(all);
            accounts.map(|account| {
                let quota = all.get(&account);
                quota.map(|quota| {
                    let usage = quota.usage;
                    let is_passed = [usage.bytes_since_ns != 0, usage.inodes_since_ns != 0];
                    (usage.bytes, usage.inodes, is_passed, quota.limits)
                })
            })
        };
        let (here, there) = (of(quotas(&self.client)), of(self.single.quotas().unwrap()));
        assert_eq!(here, there);
    }

    fn set(&self, account: Account, limits: Limits) {
        self.execute(|_| Operation::Quotas(QuotasRequest::Set(account, limits))).unwrap();
    }
}

/// Makes one random change.
fn step(both: &Both, random: &mut StdRng) -> Result<(), Errno> {
    let mut place = || {
        (random.random_range(0..both.directories.len()), random.random_range(0..both.names.len()))
    };
    let (one, other) = (place(), place());
    let uid = [ADA, ADA, BOB, 0][random.random_range(0..4)];
    match random.random_range(0..20) {
        0..9 => {
            let kinds = [file_type::REGULAR, file_type::DIRECTORY, file_type::SYMLINK];
            let kind = kinds[[0, 0, 0, 1, 2][random.random_range(0..5)]];
            let target = if kind == file_type::SYMLINK { b"x".to_vec() } else { Vec::new() };
            let gid = [ADA, BOB][random.random_range(0..2)];
            let new = New { mode: kind | 0o777, uid, gid, target, ..New::default() };
            both.execute(|at| {
                let (name, new) = (both.name(one, at), Cow::Owned(new.clone()));
                Operation::Change(Change::Create { name, new, holds: false })
            })
        }
        9..11 => both.execute(|at| Operation::Change(Change::Unlink(both.name(one, at)))),
        11 => both.execute(|at| Operation::Change(Change::Rmdir(both.name(one, at)))),
        12..15 => {
            let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
            let mode = modes[random.random_range(0..3)];
            both.execute(|at| {
                let (from, to) = (both.name(one, at), both.name(other, at));
                Operation::Change(Change::Rename { from, to, mode, whiteout: None })
            })
        }
        15 => {
            let Some(ids) = both.lookup(one) else { return Ok(()) };
            both.execute(|at| {
                Operation::Change(Change::Link { id: ids[at].id, name: both.name(other, at) })
            })
        }
        16 => {
            let Some(ids) = both.lookup(one) else { return Ok(()) };
            let changers = [Changer::Privileged, Changer::Member(Cow::Owned(vec![]))];
            let changer = changers[random.random_range(0..2)].clone();
            let set = SetAttributes { uid: Some(uid), ..SetAttributes::default() };
            both.execute(|at| {
                let (id, set, changer) = (ids[at].id, set.clone(), changer.clone());
                Operation::Change(Change::SetAttributes { id, set, changer })
            })
        }
        17..19 => {
            let Some(ids) = both.lookup(one) else { return Ok(()) };
            if !ids[0].is_regular() {
                return Ok(());
            }
            let bytes = vec![b'x'; random.random_range(1..4096)];
            let is_bound = random.random_range(0..5) > 0;
            both.write([ids[0].id, ids[1].id], &bytes, is_bound)
        }
        _ => {
            let minutes = random.random_range(1..30i64);
            both.place.now_ns.fetch_add(minutes * 60_000_000_000, Ordering::Relaxed);
            Ok(())
        }
    }
}

fn run(servers: u32, policy: SplitPolicy, steps: usize, seed: u64) {
    let both = Both::new(servers, policy);
    let mut random = StdRng::seed_from_u64(seed);
    let hard = Limits { inodes_hard: 12, bytes_hard: 12 << 10, ..Limits::default() };
    let soft = Limits { inodes_soft: 4, inodes_hard: 9, grace_s: 3600, ..Limits::default() };
    both.set(Account::User(ADA), hard);
    both.set(Account::User(BOB), soft);
    both.set(Account::Group(ADA), Limits { inodes_hard: 14, ..Limits::default() });
    let mut refusals = 0;
    for number in 0..steps {
        let done = step(&both, &mut random);
        refusals += u64::from(done == Err(Errno::DQUOT));
        // The authority knows all freed room and overdrafts.
        both.place.review();
        if number % 100 == 0 {
            both.check();
        }
        if number % 150 == 149 {
            let limit = random.random_range(3..20);
            both.set(Account::User(ADA), Limits { inodes_hard: limit, ..hard });
        }
        if number % 200 == 199 {
            both.place.replace(ServerId(random.random_range(0..servers)));
        }
    }
    both.check();
    both.place.settle();
    both.place.assert_sound();
    assert!(refusals > steps as u64 / 50, "{refusals} refusals");
}

#[test]
fn servers_refuse_what_one_table_refuses() {
    (0..3).for_each(|seed| run(2 + (seed as u32 % 2), POLICY, 600, seed));
    if std::env::var_os("CANOPY_LONG").is_some() {
        (3..60).for_each(|seed| run(1 + (seed as u32 % 4), POLICY, 2000, seed));
    }
}

#[test]
fn directories_split_meanwhile() {
    let policy = SplitPolicy { entries_max: 6, ..POLICY };
    run(3, policy, 600, 100);
    if std::env::var_os("CANOPY_LONG").is_some() {
        (101..130).for_each(|seed| run(3, policy, 2000, seed));
    }
}
