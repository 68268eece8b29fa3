//! The storage that all processes share, as one of them sees it. Calls fail, happen later, or do not
//! reach it. A call is one step: nothing else happens meanwhile.

use crate::scheduler::{HostId, Scheduler};
use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, MemoryStorage, Storage};
use canopy_store::{Clock, Environment, Error, Random, Result};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Storage, and faults of it.
pub struct Disk {
    pub objects: Arc<MemoryStorage>,
    /// How often calls fail, of 10,000.
    pub faults: AtomicU64,
    /// Calls that happen later.
    delayed: Mutex<Vec<Delayed>>,
    has_ordered_listings: bool,
}

enum Delayed {
    Create(String, Bytes),
    Remove(String),
}

/// A machine, as its programs see it: storage, time and chance.
pub struct Machine {
    pub scheduler: Arc<Scheduler>,
    pub disk: Arc<Disk>,
    /// The process; none for a part of the test itself, to which nothing happens.
    pub host: Option<HostId>,
    pub is_cut_off: AtomicBool,
    /// Time of day, less that of the simulation.
    pub off_ms: AtomicI64,
}

impl Disk {
    pub fn new(has_ordered_listings: bool) -> Arc<Self> {
        Arc::new(Disk {
            objects: Arc::default(),
            faults: AtomicU64::new(0),
            delayed: Mutex::default(),
            has_ordered_listings,
        })
    }

    /// Does some of what was delayed.
    fn perform_some(&self, scheduler: &Scheduler) {
        let mut delayed = self.delayed.lock();
        if !delayed.is_empty() && scheduler.chance(2000) {
            let at = scheduler.below(delayed.len() as u64) as usize;
            let one = delayed.swap_remove(at);
            self.perform(one);
        }
    }

    /// Does all that was delayed.
    pub fn perform_all(&self) {
        let delayed = std::mem::take(&mut *self.delayed.lock());
        delayed.into_iter().for_each(|one| self.perform(one));
    }

    fn perform(&self, delayed: Delayed) {
        // Nobody waits for the outcome.
        match delayed {
            Delayed::Create(name, bytes) => drop(self.objects.create(&name, bytes)),
            Delayed::Remove(name) => drop(self.objects.remove(&name)),
        }
    }
}

impl Machine {
    pub fn environment(self: &Arc<Self>) -> Environment {
        let storage = Arc::new(Stored(self.clone()));
        Environment { storage, clock: self.clone(), random: self.clone() }
    }

    fn call<T>(
        &self,
        name: &str,
        perform: impl FnOnce(&MemoryStorage) -> Result<T>,
        delayed: Option<Delayed>,
    ) -> Result<T> {
        let failed = |why| Err(Error::storage(name, io::Error::other(why)));
        let Some(host) = self.host else { return perform(&self.disk.objects) };
        if self.scheduler.is_dead(host) {
            return failed("the process has died");
        }
        self.disk.perform_some(&self.scheduler);
        if self.is_cut_off.load(Ordering::Relaxed) {
            return failed("storage cannot be reached");
        }
        let faults = self.disk.faults.load(Ordering::Relaxed);
        let is_fault = self.scheduler.chance(faults);
        match (is_fault, delayed) {
            (false, _) => perform(&self.disk.objects),
            (true, None) => failed("storage failed"),
            (true, Some(delayed)) => {
                match self.scheduler.below(3) {
                    0 => {}
                    1 => drop(perform(&self.disk.objects)),
                    _ => self.disk.delayed.lock().push(delayed),
                }
                failed("storage did not answer")
            }
        }
    }
}

struct Stored(Arc<Machine>);

impl Storage for Stored {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.call(name, |objects| objects.read_range(name, range), None)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        self.0.call(name, |objects| objects.read(name), None)
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let delayed = Delayed::Create(name.into(), bytes.clone());
        self.0.call(name, |objects| objects.create(name, bytes), Some(delayed))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        self.0.call(prefix, |objects| objects.list(prefix, after), None)
    }

    fn has_ordered_listings(&self) -> bool {
        self.0.disk.has_ordered_listings
    }

    fn remove(&self, name: &str) -> Result<()> {
        let delayed = Delayed::Remove(name.into());
        self.0.call(name, |objects| objects.remove(name), Some(delayed))
    }

    fn append_to(&self, _name: &str) -> Result<Option<Box<dyn Append>>> {
        Ok(None)
    }

    fn lock(&self, _name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        Ok(None)
    }
}

impl Clock for Machine {
    fn now_ms(&self) -> u64 {
        let now_ms = self.scheduler.now_us() / 1000 + 1_000_000_000_000;
        now_ms.saturating_add_signed(self.off_ms.load(Ordering::Relaxed))
    }

    /// Returns at once: the caller may have locked something that others need.
    fn sleep(&self, _: Duration) {}
}

impl Random for Machine {
    fn next_u64(&self) -> u64 {
        self.scheduler.bits()
    }
}
