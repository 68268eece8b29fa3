//! Checks find what is wrong in any table, and repairs mend it.

use crate::place::*;
use canopy_cluster::check::{check as check_all, repair};
use canopy_cluster::{Client, HandOverStage, Peers, SessionId};
use canopy_namespace::inode::{file_type, flag};
use canopy_namespace::keys::{self, Space};
use canopy_namespace::operation::{Change, Changer, Operation, QuotasRequest};
use canopy_namespace::quota::{Account, Limits};
use canopy_namespace::{
    EntryName, FileId, Inode, ObjectId, ROOT, RenameMode, Reply, SetXattr, open_table,
};
use canopy_partition::{PartitionId, ServerId};
use canopy_store::{Batch, Direction, Durability, Key, SstableCache, Table, TableId};
use std::sync::Arc;

/// A cluster of three servers with files of all kinds, and a directory that is split.
struct Site {
    cluster: Arc<Cluster>,
    big: FileId,
    linked: FileId,
    directory: FileId,
}

const LINKS: [&str; 3] = ["one", "two", "three"];

impl Site {
    fn new() -> Self {
        let cluster = open(&environment_of_large(3));
        let client = &new_client(&cluster);
        let big = create(client, ROOT, "big", file_type::DIRECTORY).unwrap().id;
        for number in 0..60 {
            let kind = if number % 6 == 0 { file_type::DIRECTORY } else { file_type::REGULAR };
            let made = create(client, big, &format!("file{number}"), kind).unwrap();
            let (name, value, how) = (&b"user.a"[..], &b"value"[..], SetXattr::Any);
            let changer = Changer::Privileged;
            let set = Change::SetXattr { id: made.id, name, value, how, changer };
            let _: Reply = execute(client, &Operation::Change(set)).unwrap();
        }
        let linked = create(client, ROOT, LINKS[0], file_type::REGULAR).unwrap().id;
        for name in &LINKS[1..] {
            let name = EntryName::new(big, name.as_bytes());
            let link = Change::Link { id: linked, name };
            let _: Reply = execute(client, &Operation::Change(link)).unwrap();
        }
        let from = EntryName::new(big, b"file1");
        let rename = Change::Rename {
            from,
            to: EntryName::new(ROOT, b"moved"),
            mode: RenameMode::Replace,
            whiteout: None,
        };
        let _: Reply = execute(client, &Operation::Change(rename)).unwrap();
        unlink(client, big, "file2");
        let process = cluster.process();
        for _ in 0..2 {
            for (_, history) in process.partitions(big).unwrap() {
                process.split(big, history.partition(), &mut |_: HandOverStage| true).unwrap();
            }
        }
        process.settle();
        process.sync().unwrap();
        let directory = lookup(client, big, "file6").unwrap().id;
        Site { cluster, big, linked, directory }
    }

    fn faults(&self) -> Vec<String> {
        let storage = &*self.cluster.environment().storage;
        let faults = check_all(&*self.cluster, storage, &|_| {}).unwrap();
        faults.iter().map(ToString::to_string).collect()
    }

    /// Repairs everything. Returns what could not be mended.
    fn repair(&self) -> Vec<String> {
        let peers: Arc<dyn Peers> = self.cluster.clone();
        let client = Client::new(peers.clone(), SessionId(next_session()));
        let storage = &*self.cluster.environment().storage;
        let repaired = repair(&peers, &client, storage, &|_| {}).unwrap();
        assert!(!repaired.done.is_empty());
        repaired.left.iter().map(ToString::to_string).collect()
    }

    /// Changes records of a table behind the servers' backs.
    fn corrupt(&self, server: ServerId, change: impl FnOnce(&Table, &mut Batch)) {
        self.cluster.process().sync().unwrap();
        self.cluster.kill();
        let environment = self.cluster.environment();
        let list = environment.storage.read("cluster/tables").unwrap();
        let list: serde_json::Value = serde_json::from_slice(&list).unwrap();
        let id = list["tables"][server.0 as usize].as_str().unwrap();
        let cache = SstableCache::new(environment, 1 << 20);
        let table = open_table(environment, TableId::parse(id).unwrap(), cache).unwrap();
        let mut batch = Batch::new();
        change(&table, &mut batch);
        table.write(&batch, Durability::Durable).unwrap();
        drop(table);
        self.cluster.restart();
    }

    /// Corrupts one thing, and has it found and mended.
    #[track_caller]
    fn mends(&self, server: ServerId, expected: &str, change: impl FnOnce(&Table, &mut Batch)) {
        self.corrupt(server, change);
        let faults = self.faults();
        assert!(faults.iter().any(|fault| fault.contains(expected)), "{expected}: {faults:?}");
        assert_eq!(self.repair(), Vec::<String>::new(), "{expected}");
        assert_eq!(self.faults(), Vec::<String>::new(), "{expected}");
    }

    fn home(&self, id: FileId) -> ServerId {
        use canopy_cluster::{Request, Response, Sender};
        let asked = self.cluster.ask(ServerId(0), Sender::SERVER, &Request::HomeOf(id)).unwrap();
        let Response::HomeOf(home) = asked else { panic!("{asked:?}") };
        home
    }

    /// Returns the server that holds a name.
    fn server_of(&self, directory: FileId, name: &str) -> ServerId {
        let hash = EntryName::new(directory, name.as_bytes()).hash();
        let held = self.cluster.process().partitions(directory).unwrap();
        held.iter().find(|(_, history)| history.holds(hash)).unwrap().0
    }
}

fn key(directory: FileId, name: &str) -> Key {
    keys::name_in(directory, name.as_bytes())
}

fn rewrite(table: &Table, batch: &mut Batch, key: &Key, change: impl FnOnce(&mut Inode)) {
    let mut inode = Inode::decode(&table.get(key.as_ref()).unwrap().unwrap()).unwrap();
    change(&mut inode);
    batch.put(key.as_ref(), &inode.encode()).unwrap();
}

#[test]
fn a_sound_namespace_has_no_faults() {
    let site = Site::new();
    assert_eq!(site.faults(), Vec::<String>::new());
    assert!(site.cluster.process().partitions(site.big).unwrap().len() >= 3);
    site.cluster.restart();
    assert_eq!(site.faults(), Vec::<String>::new());
}

#[test]
fn names_and_their_index_are_mended() {
    let site = Site::new();
    let server = site.server_of(site.big, "file7");
    let id = lookup(&new_client(&site.cluster), site.big, "file7").unwrap().id;
    let found = EntryName::new(site.big, b"file7").found_key(id);
    site.mends(server, "lacks its name file7", |_, batch| batch.delete(found.as_ref()).unwrap());
    let stray = EntryName::new(ROOT, b"nothing").found_key(id);
    site.mends(server, "has its name nothing", |_, batch| batch.put(stray.as_ref(), b"").unwrap());
    let home = site.home(site.directory);
    let found = EntryName::new(site.big, b"file6").found_key(site.directory);
    site.mends(home, "lacks its name file6", |_, batch| batch.delete(found.as_ref()).unwrap());
    // A name of another server's partition.
    let mut numbers = (0..).map(|number| format!("copy{number}"));
    let name = numbers.find(|name| site.server_of(site.big, name) != server).unwrap();
    site.mends(server, "copies of its names are left", |_, batch| {
        let copy = Inode { mode: file_type::FIFO, nlink: 1, id, ..Inode::default() };
        batch.put(key(site.big, &name).as_ref(), &copy.encode()).unwrap();
    });
}

#[test]
fn links_are_mended() {
    let site = Site::new();
    let home = site.home(site.linked);
    let place = Space::Links.of(site.linked, b"");
    site.mends(home, "it counts 9 links and has 3", |table, batch| {
        rewrite(table, batch, &place, |inode| inode.nlink = 9);
    });
    let server = site.server_of(site.big, LINKS[1]);
    site.mends(server, "it counts 3 links and has 2", |_, batch| {
        batch.delete(key(site.big, LINKS[1]).as_ref()).unwrap();
    });
    // All names are lost: the file gets another one.
    let server = site.server_of(ROOT, LINKS[0]);
    site.corrupt(server, |_, batch| batch.delete(key(ROOT, LINKS[0]).as_ref()).unwrap());
    let server = site.server_of(site.big, LINKS[2]);
    site.mends(server, "no name leads to it", |_, batch| {
        batch.delete(key(site.big, LINKS[2]).as_ref()).unwrap();
    });
    let client = &new_client(&site.cluster);
    let lost = lookup(client, ROOT, "lost+found").unwrap().id;
    let found = lookup(client, lost, &format!("#{}", site.linked)).unwrap();
    assert_eq!((found.id, found.nlink), (site.linked, 1));
    // The inode is lost: names that lead to it go.
    site.mends(home, "leads to a file that has no inode", |_, batch| {
        batch.delete(place.as_ref()).unwrap();
    });
    assert!(list(client, lost).is_empty());
}

#[test]
fn directories_are_mended() {
    let site = Site::new();
    let home = site.home(site.directory);
    let half = Space::Directories.of(site.directory, b"");
    site.mends(home, "counts 7 links, not 2", |table, batch| {
        rewrite(table, batch, &half, |inode| inode.nlink = 7);
    });
    let client = &new_client(&site.cluster);
    let file = create(client, site.directory, "file", file_type::REGULAR).unwrap().id;
    // One that others can enter is not for lost files.
    let open = create(client, ROOT, "lost+found", file_type::DIRECTORY).unwrap();
    assert_ne!(open.mode & 0o077, 0);
    let server = site.server_of(site.big, "file6");
    site.mends(server, "no name leads to this directory", |_, batch| {
        batch.delete(key(site.big, "file6").as_ref()).unwrap();
    });
    let client = &new_client(&site.cluster);
    let lost = lookup(client, ROOT, "lost+found~").unwrap();
    assert_eq!((lost.uid, lost.mode & 0o777), (0, 0o700));
    let found = lookup(client, lost.id, &format!("#{}", site.directory)).unwrap();
    assert!(list(client, open.id).is_empty());
    assert_eq!(found.id, site.directory);
    assert_eq!(lookup(client, site.directory, "file").unwrap().id, file);
    // A half that is not the first one has attributes of its own.
    let further = (0..3).map(ServerId).find(|server| *server != site.home(site.big)).unwrap();
    let half = Space::Directories.of(site.big, b"");
    site.mends(further, "has other attributes of it than its home", |table, batch| {
        rewrite(table, batch, &half, |inode| {
            assert!(inode.has(flag::FURTHER));
            inode.mode ^= 0o700;
        });
    });
}

#[test]
fn indexes_are_made_anew() {
    let site = Site::new();
    let server = site.server_of(site.big, "file7");
    let first = |table: &Table| {
        let range = canopy_store::KeyRange { start: keys::index(0).start, end: None };
        let mut scan = table.scan(&range, Direction::Forward).unwrap();
        scan.next().unwrap().unwrap().key.to_key()
    };
    site.mends(server, "the index of attribute", |table, batch| {
        batch.delete(first(table).as_ref()).unwrap();
    });
    site.mends(server, "the index of attribute", |table, batch| {
        let mut stray = first(table);
        stray.name.push(7);
        batch.put(stray.as_ref(), b"").unwrap();
    });
}

#[test]
fn usage_is_counted_again() {
    let site = Site::new();
    let limits = Limits { inodes_hard: 1000, ..Limits::default() };
    let set = Operation::Quotas(QuotasRequest::Set(Account::User(7), limits));
    let _: Reply = execute(&new_client(&site.cluster), &set).unwrap();
    site.cluster.process().settle();
    assert_eq!(site.faults(), Vec::<String>::new());
    let server = site.server_of(site.big, "file7");
    site.mends(server, "less on server", |table, batch| {
        let mut scan = table.scan(&Space::Usage.range(), Direction::Forward).unwrap();
        let record = scan.next().unwrap().unwrap();
        batch.delete(record.key).unwrap();
    });
}

#[test]
fn lost_objects_are_found() {
    let site = Site::new();
    let server = site.server_of(site.big, "file7");
    let id = lookup(&new_client(&site.cluster), site.big, "file7").unwrap().id;
    let object = ObjectId { epoch: 77, number: 1 };
    let mut record = Vec::new();
    record.extend_from_slice(&object.epoch.to_be_bytes());
    record.extend_from_slice(&object.number.to_be_bytes());
    record.extend_from_slice(&5_u32.to_be_bytes());
    record.extend_from_slice(&5_u32.to_be_bytes());
    record.extend_from_slice(&0_u64.to_be_bytes());
    site.mends(server, "the object of chunk 0, of 5 bytes, is missing", |table, batch| {
        rewrite(table, batch, &key(site.big, "file7"), |inode| {
            (inode.size, inode.blocks) = (5, 1);
            inode.flags |= flag::OBJECT;
        });
        batch.put(Space::Chunks.of(id, &0_u64.to_be_bytes()).as_ref(), &record).unwrap();
    });
}

#[test]
fn faults_that_cannot_be_mended_are_left() {
    let site = Site::new();
    let server = (0..3).map(ServerId).find(|server| *server != site.home(site.big)).unwrap();
    let held = site.cluster.process().partitions(site.big).unwrap();
    let partition = held.iter().find(|(of, _)| *of == server).unwrap().1.partition();
    assert_ne!(partition, PartitionId::ZERO);
    site.corrupt(server, |_, batch| {
        let record = Space::Partitions.of(site.big, &partition.number().to_be_bytes());
        batch.delete(record.as_ref()).unwrap();
    });
    let faults = site.faults();
    assert!(
        faults.iter().any(|one| one.contains("no server holds names with hashes")),
        "{faults:?}"
    );
}
