//! One process as the engine sees it: its storage, clock and randomness. Each call of storage lets
//! others run, and may fail.

use crate::disk::Disk;
use crate::world::{ActorReport, Delayed, World};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Growing, Listed, Storage};
use canopy_store::{Clock, Environment, Error, Random, Result, hash_of};
use rand::RngExt;
use rand::rngs::StdRng;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub struct Process {
    pub world: Arc<World>,
    disk: Disk,
    said: Sender<ActorReport>,
    go: Mutex<Receiver<()>>,
    state: Mutex<ProcessState>,
    /// How often the power had been cut when it was started.
    boot: u64,
}

struct ProcessState {
    is_dead: bool,
    /// Files find no room so many times more.
    full: u64,
    random: StdRng,
    clock_off_ms: i64,
}

impl Process {
    pub fn new(
        world: Arc<World>,
        disk: Disk,
        random: StdRng,
        boot: u64,
        said: Sender<ActorReport>,
        go: Receiver<()>,
    ) -> Arc<Self> {
        let state = Mutex::new(ProcessState { is_dead: false, full: 0, random, clock_off_ms: 0 });
        Arc::new(Process { world, disk, said, go: Mutex::new(go), state, boot })
    }

    pub fn environment(self: &Arc<Self>) -> Environment {
        let storage = Arc::new(Stored(self.clone()));
        Environment { storage, clock: self.clone(), random: self.clone() }
    }

    pub fn is_dead(&self) -> bool {
        self.state.lock().unwrap().is_dead || self.boot != self.world.shared.lock().unwrap().boots
    }

    /// A random number of this process' own decisions.
    pub fn below(&self, end: u64) -> u64 {
        self.state.lock().unwrap().random.random_range(0..end)
    }

    /// Returns whether the scheduler lets this process go on; not if the simulation has failed
    /// elsewhere.
    pub fn waits_for_go(&self) -> bool {
        self.go.lock().unwrap().recv().is_ok()
    }

    fn dead(name: &str) -> Error {
        Error::storage(name, io::Error::other("the process has died"))
    }

    fn die(&self) {
        self.state.lock().unwrap().is_dead = true;
        self.disk.end_process();
    }

    /// Lets others run, and decides what becomes of the call.
    fn call<T>(
        &self,
        name: &str,
        perform: impl FnOnce(&Disk) -> Result<T>,
        delayed: Option<Delayed>,
    ) -> Result<T> {
        if self.is_dead() {
            return Err(Self::dead(name));
        }
        if self.said.send(ActorReport::Calls).is_err() || !self.waits_for_go() {
            self.die();
        }
        if self.is_dead() {
            return Err(Self::dead(name));
        }
        let mut shared = self.world.shared.lock().unwrap();
        shared.calls += 1;
        shared.now_ms += 1;
        self.world.perform_some(&mut shared);
        let faults = shared.faults;
        if shared.random.random_ratio(faults.jump.max(1), 10_000) && faults.jump > 0 {
            let jump = shared.random.random_range(-2_000_000..2_000_000);
            self.state.lock().unwrap().clock_off_ms = jump;
        }
        let chance = shared.random.random_range(0..10_000);
        let power = if self.disk.grows() { faults.power } else { 0 };
        let kinds = [faults.crash, faults.failed, faults.done, faults.delayed, power];
        let mut up_to = 0;
        let kind = kinds.iter().position(|of| {
            up_to += of;
            chance < up_to
        });
        let is_done = shared.random.random_bool(0.5);
        let error = || Error::storage(name, io::Error::other("storage failed"));
        match (kind, delayed) {
            (None, _) => perform(&self.disk),
            (Some(0), delayed) => {
                // A process that dies in the middle of a call does not know what became of it.
                match delayed {
                    Some(delayed) if is_done => shared.delayed.push(delayed),
                    _ => drop(perform(&self.disk)),
                }
                self.die();
                Err(Self::dead(name))
            }
            (Some(4), _) => {
                if is_done {
                    drop(perform(&self.disk));
                }
                shared.boots += 1;
                self.disk.cut_power(&mut shared.random);
                Err(Self::dead(name))
            }
            (Some(3), Some(delayed)) => {
                shared.delayed.push(delayed);
                Err(error())
            }
            (Some(2), _) => {
                drop(perform(&self.disk));
                Err(error())
            }
            (Some(_), _) => Err(error()),
        }
    }
}

/// The storage of a process.
struct Stored(Arc<Process>);

impl Storage for Stored {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.call(name, |disk| disk.read_range(name, range), None)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.0.call(name, |disk| disk.read(name), None)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let delayed = Delayed::Create(name.into(), bytes.clone());
        self.0.call(name, |disk| disk.create(name, bytes), Some(delayed))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let list = || self.0.call(prefix, |disk| disk.list(prefix, after), None);
        if self.has_ordered_listings() {
            return list();
        }
        // A directory is read in any order: some names as they are now, the others as they are later.
        let (salt, now, later) = (self.0.below(u64::MAX), list()?, list()?);
        let is_first =
            |one: &Listed| hash_of(&[one.name.as_bytes(), &salt.to_le_bytes()].concat()) & 1 == 0;
        let first = now.into_iter().filter(is_first);
        let mut found = Vec::from_iter(first.chain(later.into_iter().filter(|one| !is_first(one))));
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(found)
    }

    fn has_ordered_listings(&self) -> bool {
        self.0.disk.has_ordered_listings()
    }

    fn remove(&self, name: &str) -> Result<()> {
        let delayed = Delayed::Remove(name.into());
        self.0.call(name, |disk| disk.remove(name), Some(delayed))
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        if !self.0.disk.grows() {
            return Ok(None);
        }
        let file = self.0.call(name, |disk| disk.append_to(name), None)?;
        let process = self.0.clone();
        Ok(file.map(|file| -> Box<dyn Append> {
            Box::new(Grown { process, name: name.into(), file })
        }))
    }

    fn has_growing(&self) -> bool {
        self.0.disk.has_growing()
    }

    fn create_growing(&self, name: &str, head: &[u8], room: u64) -> Result<Growing> {
        let mut bytes = head.to_vec();
        bytes.resize(room as usize, 0);
        let delayed = Delayed::Create(name.into(), bytes.into());
        let created =
            self.0.call(name, |disk| disk.create_growing(name, head, room), Some(delayed))?;
        let Growing::New(inner) = created else { return Ok(Growing::ThereWasOne) };
        // A file that a collector has removed already is only open.
        let file = self.0.disk.file_of(name).unwrap_or(u64::MAX);
        let (process, name, at) = (self.0.clone(), name.to_owned(), head.len());
        Ok(Growing::New(Box::new(Roomy { process, name, file, at, inner, unsynced: Vec::new() })))
    }

    fn sync(&self, name: &str) -> Result<()> {
        match self.0.disk.grows() {
            true => self.0.call(name, |disk| disk.sync(name), None),
            false => Ok(()),
        }
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        match self.0.disk.grows() {
            true => self.0.call(name, |disk| disk.lock(name), None),
            false => Ok(None),
        }
    }
}

/// An object that grows while others read it. Its machine may store what was not synced, in parts, after
/// the process is dead.
struct Roomy {
    process: Arc<Process>,
    name: String,
    file: u64,
    at: usize,
    inner: Box<dyn Append>,
    unsynced: Vec<u8>,
}

impl Append for Roomy {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsynced.extend_from_slice(bytes);
        self.inner.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        let length = self.unsynced.len();
        let part = match self.process.below(3) {
            0 => 0..self.process.below(length as u64 + 1) as usize,
            1 => self.process.below(length as u64 + 1) as usize..length,
            _ => 0..length,
        };
        let bytes = Bytes::copy_from_slice(&self.unsynced[part.clone()]);
        let late = Delayed::Put(self.name.clone(), self.file, self.at + part.start, bytes);
        self.process.call(&self.name, |_| self.inner.sync(), Some(late))?;
        self.at += length;
        self.unsynced.clear();
        Ok(())
    }
}

struct Grown {
    process: Arc<Process>,
    name: String,
    file: Box<dyn Append>,
}

impl Append for Grown {
    fn reserve(&mut self, _bytes: u64) -> Result<()> {
        let fails = self.process.world.shared.lock().unwrap().faults.failed > 0;
        let mut state = self.process.state.lock().unwrap();
        if fails && state.full == 0 && state.random.random_ratio(1, 30) {
            state.full = state.random.random_range(1..20);
        }
        if state.full == 0 {
            return Ok(());
        }
        state.full -= 1;
        Err(Error::storage(&*self.name, rustix::io::Errno::NOSPC))
    }

    /// Appends in two calls, so that a process may die, or storage fail, in the middle.
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let middle = self.process.below(bytes.len() as u64 + 1) as usize;
        let (first, second) = bytes.split_at(middle);
        self.process.call(&self.name, |_| self.file.append(first), None)?;
        self.process.call(&self.name, |_| self.file.append(second), None)
    }

    fn sync(&mut self) -> Result<()> {
        self.process.call(&self.name, |_| self.file.sync(), None)
    }
}

impl Clock for Process {
    fn now_ms(&self) -> u64 {
        let off_ms = self.state.lock().unwrap().clock_off_ms;
        self.world.shared.lock().unwrap().now_ms.saturating_add_signed(off_ms)
    }

    fn sleep(&self, duration: Duration) {
        self.world.pass_time(duration.as_millis() as u64);
    }
}

impl Random for Process {
    fn next_u64(&self) -> u64 {
        self.state.lock().unwrap().random.random()
    }
}
