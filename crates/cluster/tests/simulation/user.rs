//! A client with a program that changes its own names and files, reads those of others, and checks
//! every answer.

use crate::model::{Model, ModelDirectory, ModelFile, NameKey, Register, Removal, UNKNOWN};
use canopy_cluster::{Client, Error, Peers, Request, Sender, SessionId};
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::{Caller, Change, Changer, Hold, Moment, Operation, Page, Read};
use canopy_namespace::{EntryName, FileId, Inode, New, RenameMode, Reply, SetAttributes, SetTime};
use canopy_partition::{PartitionId, ServerId};
use parking_lot::Mutex;
use rand::RngExt;
use rand::rngs::StdRng;
use rustix::io::Errno;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The machine of a client.
pub trait Machine: Send + Sync {
    /// Lets others run, for this long.
    fn rest(&self, time: Duration);

    /// Notes something that happens.
    fn trace(&self, text: &dyn Fn() -> String);

    /// Returns whether the client reaches servers soon enough to keep what it holds.
    fn keeps_holds(&self) -> bool;
}

/// Outcome of an operation.
pub enum Outcome {
    Done(Reply),
    Refused(Errno),
    /// The client has given up.
    Unknown,
}

pub struct User {
    machine: Arc<dyn Machine>,
    peers: Arc<dyn Peers>,
    number: u64,
    model: Arc<Mutex<Model>>,
    client: Arc<Client>,
    random: StdRng,
    /// Directories that all know, and its own.
    shared: Vec<FileId>,
    own: BTreeMap<FileId, NameKey>,
    /// Names and files that it has left alone since something is unknown.
    lost: BTreeSet<NameKey>,
    /// The numbers of the versions that it has read.
    seen_names: HashMap<NameKey, usize>,
    seen_times: HashMap<FileId, usize>,
    time: i64,
}

impl User {
    /// Returns a client of this number. All know the directories `shared`.
    pub fn new(
        machine: Arc<dyn Machine>,
        peers: Arc<dyn Peers>,
        client: Arc<Client>,
        model: Arc<Mutex<Model>>,
        (number, random): (u64, StdRng),
        shared: &[FileId],
    ) -> Self {
        User {
            machine,
            peers,
            number,
            model,
            client,
            random,
            shared: shared.to_vec(),
            own: BTreeMap::new(),
            lost: BTreeSet::new(),
            seen_names: HashMap::new(),
            seen_times: HashMap::new(),
            time: 1,
        }
    }

    pub fn execute(&self, operation: &Operation<'_>) -> Outcome {
        let outcome = match self.client.execute_for(Caller::Trusted, operation) {
            Ok(reply) => Outcome::Done(reply),
            Err(Error::Namespace(canopy_namespace::Error::Posix(errno))) => Outcome::Refused(errno),
            Err(Error::NotYet(what)) => panic!("{what}: {operation:?}"),
            Err(error) => {
                self.machine.trace(&|| format!("given up: {error} {operation:?}"));
                Outcome::Unknown
            }
        };
        self.machine.rest(Duration::ZERO);
        outcome
    }

    fn change(&self, change: Change<'_>) -> Outcome {
        self.execute(&Operation::Change(change))
    }

    pub fn create(&self, key: &NameKey, mode: u32) -> Outcome {
        let new = New { mode, uid: 7, gid: 8, ..New::default() };
        self.change(Change::Create { name: entry(key), new: Cow::Owned(new), holds: false })
    }

    pub fn lookup(&self, key: &NameKey) -> Outcome {
        self.execute(&Operation::Read(Moment::Now, Read::Lookup(entry(key))))
    }

    pub fn stat(&self, id: FileId) -> Outcome {
        self.execute(&Operation::Read(Moment::Now, Read::Inode(id)))
    }

    /// Lists a directory. None if that is not possible now, or it is not there.
    pub fn list(&self, directory: FileId) -> Result<Vec<(String, Inode)>, Option<Errno>> {
        let (mut names, mut after) = (Vec::new(), 0);
        loop {
            let page = Page { directory, after, name: None, count_max: 7 };
            let entries = match self.execute(&Operation::Read(Moment::Now, Read::List(page))) {
                Outcome::Done(Reply::Entries(entries)) => entries,
                Outcome::Done(other) => panic!("{other:?}"),
                Outcome::Refused(errno) => return Err(Some(errno)),
                Outcome::Unknown => return Err(None),
            };
            if entries.count() == 0 {
                return Ok(names);
            }
            for entry in entries.iter() {
                let name = String::from_utf8(entry.name.to_vec()).expect("a name of ours");
                names.push((name, entry.inode.clone()));
                after = entry.cookie;
            }
        }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.random.random_range(0..of.len())].clone()
    }

    /// Returns a directory: one of its own, one that all know, or any.
    fn directory(&mut self) -> FileId {
        let all = match self.random.random_range(0..4) {
            0 => Vec::from_iter(self.own.keys().copied()),
            1 => Vec::from_iter(self.model.lock().directories.keys().copied()),
            _ => self.shared.clone(),
        };
        if all.is_empty() { self.shared[0] } else { self.pick(&all) }
    }

    /// Returns a name of its own.
    fn own_name(&mut self) -> NameKey {
        loop {
            let name = format!("c{}-{}", self.number, self.random.random_range(0..12));
            let key = (self.directory(), name);
            if !self.lost.contains(&key) {
                return key;
            }
        }
    }

    /// Returns a name of its own that a file or a directory has, mostly.
    fn own_entry(&mut self, wants_directory: bool) -> NameKey {
        let mine = format!("c{}-", self.number);
        let keys = {
            let model = self.model.lock();
            let has = |register: &Register<Option<FileId>>| {
                let id = register.value().copied().flatten();
                id.is_some_and(|id| self.own.contains_key(&id) == wants_directory)
            };
            let names = model.names.iter().filter(|(key, register)| {
                key.1.starts_with(&mine) && has(register) && !self.lost.contains(*key)
            });
            Vec::from_iter(names.map(|(key, _)| key.clone()))
        };
        if keys.is_empty() || self.random.random_ratio(1, 12) {
            return self.own_name();
        }
        self.pick(&keys)
    }

    /// Returns the value of a name of its own.
    fn value(&self, key: &NameKey) -> Option<FileId> {
        let mut model = self.model.lock();
        model.register(key).value().copied().flatten()
    }

    fn has_directory(&self, directory: FileId) -> bool {
        self.model.lock().has_directory(directory)
    }

    /// Takes a step.
    pub fn step(&mut self) {
        match self.random.random_range(0..40) {
            0..9 => self.make(false),
            9..11 => self.make(true),
            11..14 => self.unlink(),
            14..16 => self.rmdir(),
            16..22 => self.rename(false),
            22..24 => self.rename(true),
            24..27 => self.link(),
            27..29 => self.set_time(),
            29..32 => self.read_name(),
            32..34 => self.read_file(),
            34 => self.read_directory(),
            35 => self.hold(),
            36 => self.split(),
            _ => self.use_common(),
        }
    }

    /// Notes that names may have changed or not: they are left alone.
    fn lose(&mut self, keys: &[&NameKey]) {
        self.lost.extend(keys.iter().map(|key| (*key).clone()));
    }

    fn make(&mut self, is_directory: bool) {
        let key = self.own_name();
        let before = self.value(&key);
        if before.is_none() {
            self.model.lock().register(&key).issue(Some(UNKNOWN));
        }
        let kind = if is_directory { file_type::DIRECTORY } else { file_type::REGULAR };
        let outcome = self.create(&key, kind | 0o755);
        let mut model = self.model.lock();
        match outcome {
            Outcome::Done(Reply::Inode(inode)) => {
                assert_eq!(before, None, "{key:?} was created twice");
                model.register(&key).acknowledge(Some(Some(inode.id)));
                if is_directory {
                    model.directories.insert(inode.id, ModelDirectory::new());
                    self.own.insert(inode.id, key);
                } else {
                    let mtime = Register::new(Some(inode.mtime_ns));
                    let file = ModelFile { mtime, removal: Removal::No, is_certain: true };
                    model.files.insert(inode.id, file);
                }
            }
            Outcome::Done(other) => panic!("{other:?}"),
            Outcome::Refused(Errno::EXIST) if before.is_some() => {}
            Outcome::Refused(Errno::NOENT) if !model.has_directory(key.0) => {
                if before.is_none() {
                    model.register(&key).refuse();
                }
            }
            Outcome::Refused(errno) => panic!("creation of {key:?}: {errno}, {before:?}"),
            Outcome::Unknown => {
                drop(model);
                self.lose(&[&key]);
            }
        }
    }

    fn unlink(&mut self) {
        let key = self.own_entry(false);
        let Some(id) = self.value(&key) else { return self.unlink_nothing(&key) };
        let is_directory = self.own.contains_key(&id);
        {
            let mut model = self.model.lock();
            if !is_directory {
                model.register(&key).issue(None);
                if model.links(id)[0] == 0 {
                    model.files.get_mut(&id).expect("a file").removal = Removal::Maybe;
                }
            }
        }
        let outcome = self.change(Change::Unlink(entry(&key)));
        let mut model = self.model.lock();
        match outcome {
            Outcome::Done(Reply::File(removed)) => {
                assert_eq!(removed, id, "{key:?}");
                model.register(&key).acknowledge(None);
                if model.links(id)[1] == 0 {
                    model.files.get_mut(&id).expect("a file").removal = Removal::Yes;
                }
            }
            Outcome::Refused(Errno::ISDIR) if is_directory => {}
            Outcome::Unknown if is_directory => {}
            Outcome::Unknown => {
                model.files.get_mut(&id).expect("a file").is_certain = false;
                drop(model);
                self.lose(&[&key]);
            }
            other => panic!("unlink of {key:?}: {}", other.said()),
        }
    }

    fn unlink_nothing(&mut self, key: &NameKey) {
        match self.change(Change::Unlink(entry(key))) {
            Outcome::Refused(Errno::NOENT) | Outcome::Unknown => {}
            other => panic!("unlink of {key:?}, which is not there: {}", other.said()),
        }
    }

    fn rmdir(&mut self) {
        let key = self.own_entry(true);
        let id = self.value(&key).filter(|id| self.own.contains_key(id));
        let Some(id) = id else { return };
        {
            let mut model = self.model.lock();
            model.register(&key).issue(None);
            model.directories.get_mut(&id).expect("a directory").removal = Removal::Maybe;
        }
        let outcome = self.change(Change::Rmdir(entry(&key)));
        let mut model = self.model.lock();
        match outcome {
            Outcome::Done(_) => {
                assert_eq!(model.certain_name(id), None, "{key:?} was removed with a name in it");
                model.register(&key).acknowledge(None);
                model.directories.get_mut(&id).expect("a directory").removal = Removal::Yes;
                self.own.remove(&id);
            }
            Outcome::Refused(Errno::NOTEMPTY) => {
                // Somebody may have taken the last name away meanwhile.
                model.register(&key).refuse();
                model.directories.get_mut(&id).expect("a directory").removal = Removal::No;
            }
            Outcome::Refused(errno) => panic!("rmdir of {key:?}: {errno}"),
            Outcome::Unknown => {
                drop(model);
                self.own.remove(&id);
                self.lose(&[&key]);
            }
        }
    }

    fn rename(&mut self, of_directory: bool) {
        let from = self.own_entry(of_directory);
        let to = if self.random.random_ratio(1, 2) {
            self.own_name()
        } else {
            self.own_entry(of_directory)
        };
        let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
        let mode = self.pick(&modes);
        let (moved, other) = (self.value(&from), self.value(&to));
        let is_directory = |id: Option<FileId>| id.is_some_and(|id| self.own.contains_key(&id));
        // A directory is replaced by nothing here, and errors of mixed kinds are for other tests.
        let (moves, replaces) = (is_directory(moved), is_directory(other));
        if moved.is_none() || from == to || moves != replaces && other.is_some() {
            return;
        }
        if moves && other.is_some() && mode == RenameMode::Replace {
            return;
        }
        let is_one = moved == other;
        let back = if mode == RenameMode::Exchange { other } else { None };
        let may_happen = match mode {
            RenameMode::Replace => !is_one,
            RenameMode::NoReplace => other.is_none(),
            RenameMode::Exchange => other.is_some() && !is_one,
        };
        let mut renaming = Renaming { from, to, mode, moved, other, back, leaving: None };
        if may_happen {
            renaming.leaving = self.issue_rename(&renaming);
        }
        let Renaming { from, to, .. } = &renaming;
        let rename = Change::Rename { from: entry(from), to: entry(to), mode, whiteout: None };
        let outcome = self.change(rename);
        self.renamed(&renaming, may_happen, &outcome);
    }

    /// Notes that a rename may happen. Returns the file that may go then.
    fn issue_rename(&self, renaming: &Renaming) -> Option<FileId> {
        let mut model = self.model.lock();
        model.register(&renaming.from).issue(renaming.back);
        model.register(&renaming.to).issue(renaming.moved);
        let id = renaming.other.filter(|id| model.links(*id)[0] == 0 && renaming.back.is_none())?;
        let file = model.files.get_mut(&id)?;
        let is_new = file.removal == Removal::No;
        file.removal = Removal::Maybe;
        is_new.then_some(id)
    }

    fn renamed(&mut self, renaming: &Renaming, may_happen: bool, outcome: &Outcome) {
        let Renaming { ref from, ref to, mode, moved, other, back, leaving } = *renaming;
        let is_directory = moved.is_some_and(|id| self.own.contains_key(&id));
        let target_is_there = self.has_directory(to.0);
        let mut model = self.model.lock();
        match outcome {
            Outcome::Done(_) if may_happen => {
                model.register(from).acknowledge(None);
                model.register(to).acknowledge(None);
                if let Some(id) = leaving.filter(|id| model.links(*id)[1] == 0) {
                    model.files.get_mut(&id).expect("a file").removal = Removal::Yes;
                }
                if is_directory {
                    let ids = moved.map(|id| (id, to)).into_iter();
                    for (id, key) in ids.chain(back.map(|id| (id, from))) {
                        self.own.insert(id, key.clone());
                    }
                }
            }
            // Two names of one file.
            Outcome::Done(_) => assert_eq!(moved, other, "{from:?} to {to:?}, {mode:?}"),
            Outcome::Refused(errno) => {
                let is_right = match *errno {
                    Errno::NOENT => {
                        !target_is_there || mode == RenameMode::Exchange && other.is_none()
                    }
                    Errno::EXIST => mode == RenameMode::NoReplace && other.is_some(),
                    // Other directories move, too.
                    Errno::INVAL | Errno::NOTEMPTY => is_directory,
                    _ => false,
                };
                assert!(is_right, "rename of {from:?} to {to:?}, {mode:?}: {errno}");
                if may_happen {
                    model.register(to).refuse();
                    model.register(from).refuse();
                    if let Some(file) = leaving.and_then(|id| model.files.get_mut(&id)) {
                        file.removal = Removal::No;
                    }
                }
            }
            Outcome::Unknown if may_happen => {
                let files = [moved, other];
                for id in files.into_iter().flatten() {
                    if let Some(file) = model.files.get_mut(&id) {
                        file.is_certain = false;
                    }
                    self.own.remove(&id);
                }
                drop(model);
                self.lose(&[from, to]);
            }
            Outcome::Unknown => {}
        }
    }

    fn link(&mut self) {
        let (from, to) = (self.own_entry(false), self.own_name());
        let Some(id) = self.value(&from).filter(|id| !self.own.contains_key(id)) else { return };
        let before = self.value(&to);
        if before.is_none() {
            self.model.lock().register(&to).issue(Some(id));
        }
        let outcome = self.change(Change::Link { id, name: entry(&to) });
        let mut model = self.model.lock();
        match outcome {
            Outcome::Done(Reply::Inode(inode)) => {
                assert_eq!((inode.id, before), (id, None), "{to:?}");
                model.register(&to).acknowledge(None);
            }
            Outcome::Refused(Errno::EXIST) if before.is_some() => {}
            Outcome::Refused(Errno::NOENT) if !model.has_directory(to.0) => {
                if before.is_none() {
                    model.register(&to).refuse();
                }
            }
            Outcome::Unknown => {
                model.files.get_mut(&id).expect("a file").is_certain = false;
                drop(model);
                self.lose(&[&to]);
            }
            other => panic!("link of {from:?} to {to:?}: {}", other.said()),
        }
    }

    fn set_time(&mut self) {
        let key = self.own_entry(false);
        let Some(id) = self.value(&key).filter(|id| !self.own.contains_key(id)) else { return };
        self.time += 1;
        let time = self.time * 1_000_000_000 + self.number as i64;
        self.model.lock().files.get_mut(&id).expect("a file").mtime.issue(Some(time));
        let set = SetAttributes { mtime: Some(SetTime::To(time)), ..SetAttributes::default() };
        let changer = Changer::Privileged;
        match self.change(Change::SetAttributes { id, set, changer }) {
            Outcome::Done(Reply::Inode(inode)) => {
                assert_eq!(inode.mtime_ns, time, "{key:?}");
                let mut model = self.model.lock();
                model.files.get_mut(&id).expect("a file").mtime.acknowledge(None);
            }
            Outcome::Unknown => self.lose(&[&key]),
            other => panic!("attributes of {key:?}: {}", other.said()),
        }
    }

    /// Reads a name of anybody.
    fn read_name(&mut self) {
        let keys = Vec::from_iter(self.model.lock().names.keys().cloned());
        if keys.is_empty() {
            return;
        }
        let key = self.pick(&keys);
        let floor = self.floor_of(&key);
        let value = match self.lookup(&key) {
            Outcome::Done(Reply::Inode(inode)) => Some(inode.id),
            Outcome::Refused(Errno::NOENT) => None,
            Outcome::Unknown => return,
            other => panic!("lookup of {key:?}: {}", other.said()),
        };
        self.has_read(&key, floor, value, "lookup");
    }

    fn floor_of(&self, key: &NameKey) -> usize {
        let seen = self.seen_names.get(key).copied().unwrap_or(0);
        self.model.lock().register(key).floor().max(seen)
    }

    fn has_read(&mut self, key: &NameKey, floor: usize, value: Option<FileId>, how: &str) {
        let mut model = self.model.lock();
        let register = model.register(key);
        let Some(number) = register.read(floor, &value) else {
            panic!("{how} of {key:?}: {value:?} is not one of {floor}.. {}", register.history());
        };
        self.seen_names.insert(key.clone(), number);
    }

    /// Reads the attributes of a file of anybody.
    fn read_file(&mut self) {
        let ids = Vec::from_iter(self.model.lock().files.keys().copied());
        if ids.is_empty() {
            return;
        }
        let id = self.pick(&ids);
        let seen = self.seen_times.get(&id).copied().unwrap_or(0);
        let (floor, removal) = {
            let model = self.model.lock();
            let file = &model.files[&id];
            (file.mtime.floor().max(seen), file.removal)
        };
        let outcome = self.stat(id);
        let mut model = self.model.lock();
        let file = model.files.get_mut(&id).expect("a file");
        match outcome {
            Outcome::Done(Reply::Inode(inode)) => {
                // A file without a name may stay for a while.
                let is_gone = removal == Removal::Yes && inode.nlink > 0;
                assert!(!is_gone, "{id:?} was removed, and has {} names", inode.nlink);
                let Some(number) = file.mtime.read(floor, &Some(inode.mtime_ns)) else {
                    let (mtime_ns, history) = (inode.mtime_ns, file.mtime.history());
                    panic!("time of {id:?}: {mtime_ns} is not one of {floor}.. {history}");
                };
                self.seen_times.insert(id, number);
            }
            Outcome::Refused(Errno::NOENT) => {
                let is_certain = file.is_certain && file.removal == Removal::No;
                assert!(!is_certain, "{id:?} is not found");
            }
            Outcome::Unknown => {}
            other => panic!("stat of {id:?}: {}", other.said()),
        }
    }

    fn read_directory(&mut self) {
        let directory = self.directory();
        let keys = {
            let model = self.model.lock();
            let names = model.names.keys().filter(|key| key.0 == directory);
            Vec::from_iter(names.cloned())
        };
        let floors = Vec::from_iter(keys.iter().map(|key| self.floor_of(key)));
        let listed = match self.list(directory) {
            Ok(listed) => listed,
            Err(Some(Errno::NOENT)) => {
                return assert!(!self.has_directory(directory), "no listing of {directory:?}");
            }
            Err(None) => return,
            Err(Some(errno)) => panic!("listing of {directory:?}: {errno}"),
        };
        let count = listed.len();
        let found: BTreeMap<String, FileId> =
            listed.into_iter().map(|(name, inode)| (name, inode.id)).collect();
        assert_eq!(found.len(), count, "a name is listed twice in {directory:?}");
        for (key, floor) in keys.iter().zip(floors) {
            self.has_read(key, floor, found.get(&key.1).copied(), "listing");
        }
    }

    /// Holds a file, takes its only name away, and uses it.
    fn hold(&mut self) {
        let key = self.own_entry(false);
        let Some(id) = self.value(&key).filter(|id| !self.own.contains_key(id)) else { return };
        if self.model.lock().links(id) != [1, 1] {
            return;
        }
        match self.execute(&Operation::Hold(Hold::Name(entry(&key)))) {
            Outcome::Done(Reply::Inode(inode)) => assert_eq!(inode.id, id, "{key:?}"),
            Outcome::Unknown => return,
            other => panic!("hold of {key:?}: {}", other.said()),
        }
        {
            let mut model = self.model.lock();
            model.register(&key).issue(None);
            model.files.get_mut(&id).expect("a file").removal = Removal::Maybe;
        }
        match self.change(Change::Unlink(entry(&key))) {
            Outcome::Done(_) => {}
            Outcome::Unknown => {
                self.model.lock().files.get_mut(&id).expect("a file").is_certain = false;
                return self.lose(&[&key]);
            }
            other => panic!("unlink of {key:?}, which is held: {}", other.said()),
        }
        self.model.lock().register(&key).acknowledge(None);
        for _ in 0..3 {
            self.machine.rest(Duration::from_millis(300));
            match self.stat(id) {
                Outcome::Done(Reply::Inode(inode)) => assert_eq!(inode.nlink, 0, "{id:?}"),
                Outcome::Unknown => {}
                Outcome::Refused(Errno::NOENT) if !self.machine.keeps_holds() => {}
                other => panic!("stat of {id:?}, which is held: {}", other.said()),
            }
        }
        let _ = self.execute(&Operation::Hold(Hold::Release(id, 1)));
        self.model.lock().files.get_mut(&id).expect("a file").is_certain = false;
    }

    /// Has a directory spread.
    fn split(&mut self) {
        let directory = self.directory();
        let any = self.random.random_range(0..self.peers.server_count());
        let sender =
            Sender { caller: Caller::Trusted, session: SessionId(0), number: 0, life: None };
        let request = Request::Split(directory, PartitionId::ZERO);
        // Only the server that holds the partition does it.
        let _ = self.peers.ask(ServerId(any), sender, &request);
    }

    /// Changes names that all clients change.
    fn use_common(&mut self) {
        let at = self.random.random_range(0..2).min(self.shared.len() - 1);
        let name = |random: &mut StdRng| format!("x{}", random.random_range(0..4));
        let key = (self.shared[at], name(&mut self.random));
        match self.random.random_range(0..4) {
            0 | 1 => match self.create(&key, file_type::REGULAR | 0o644) {
                Outcome::Done(Reply::Inode(inode)) => {
                    let is_new = self.model.lock().common.created.insert(inode.id);
                    assert!(is_new, "{:?} was created twice", inode.id);
                }
                Outcome::Refused(Errno::EXIST) => {}
                Outcome::Unknown => self.model.lock().common.unknown_creations += 1,
                other => panic!("creation of {key:?}: {}", other.said()),
            },
            2 => match self.change(Change::Unlink(entry(&key))) {
                Outcome::Done(Reply::File(id)) => {
                    let is_new = self.model.lock().common.removed.insert(id);
                    assert!(is_new, "{id:?} was removed twice");
                }
                Outcome::Refused(Errno::NOENT) => {}
                Outcome::Unknown => self.model.lock().common.unknown_removals += 1,
                other => panic!("unlink of {key:?}: {}", other.said()),
            },
            _ => {
                let to = (self.shared[1 - at.min(1)], name(&mut self.random));
                let modes = [RenameMode::NoReplace, RenameMode::Exchange];
                let (from, mode) = (entry(&key), self.pick(&modes));
                let rename = Change::Rename { from, to: entry(&to), mode, whiteout: None };
                match self.change(rename) {
                    Outcome::Done(_) | Outcome::Unknown => {}
                    Outcome::Refused(Errno::NOENT | Errno::EXIST) => {}
                    other => panic!("rename of {key:?} to {to:?}: {}", other.said()),
                }
            }
        }
    }
}

/// A rename, and what its names had before.
struct Renaming {
    from: NameKey,
    to: NameKey,
    mode: RenameMode,
    moved: Option<FileId>,
    other: Option<FileId>,
    /// The file that the old name gets.
    back: Option<FileId>,
    /// The file that may go.
    leaving: Option<FileId>,
}

impl Outcome {
    pub fn said(&self) -> String {
        match self {
            Outcome::Done(reply) => format!("{reply:?}"),
            Outcome::Refused(errno) => errno.to_string(),
            Outcome::Unknown => "unknown".into(),
        }
    }
}

fn entry(key: &NameKey) -> EntryName<'_> {
    EntryName::new(key.0, key.1.as_bytes())
}
