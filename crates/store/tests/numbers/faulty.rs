//! Storage whose creations fail and happen, or happen later, or never; whose reads fail; and whose
//! listings are those of earlier.

use bytes::Bytes;
use canopy_store::storage::{Append, Created, Listed, Storage};
use canopy_store::{Clock, Error, Result};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often calls fail, in percent, and whether listings are late.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub of_creates: u32,
    pub of_reads: u32,
    pub late_listings: bool,
}

struct State {
    random: StdRng,
    faults: Faults,
    /// Creations that failed, and may happen yet.
    late: Vec<(String, Bytes)>,
    listed: Vec<Listed>,
}

pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    state: Mutex<State>,
}

/// A clock that waits for nothing.
pub struct NoWaiting;

impl Clock for NoWaiting {
    fn now_ms(&self) -> u64 {
        0
    }

    fn sleep(&self, _: Duration) {}
}

fn failed(name: &str) -> Error {
    Error::storage(name, io::Error::other("a fault"))
}

impl FaultyStorage {
    pub fn new(inner: Arc<dyn Storage>, seed: u64) -> Self {
        let random = StdRng::seed_from_u64(seed ^ 0xFA17);
        let (faults, late, listed) = (Faults::default(), Vec::new(), Vec::new());
        FaultyStorage { inner, state: Mutex::new(State { random, faults, late, listed }) }
    }

    pub fn set(&self, faults: Faults) {
        self.state.lock().unwrap().faults = faults;
    }

    /// Has some of the creations happen that failed.
    pub fn happen(&self) {
        let mut state = self.state.lock().unwrap();
        let late = std::mem::take(&mut state.late);
        for (name, bytes) in late {
            match state.random.random() {
                true => drop(self.inner.create(&name, bytes)),
                false => state.late.push((name, bytes)),
            }
        }
    }
}

impl Storage for FaultyStorage {
    fn read_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        self.inner.read_range(name, range)
    }

    fn read(&self, name: &str) -> Result<Bytes> {
        let mut state = self.state.lock().unwrap();
        let share = state.faults.of_reads;
        match state.random.random_range(0..100) < share {
            true => Err(failed(name)),
            false => self.inner.read(name),
        }
    }

    fn create(&self, name: &str, bytes: Bytes) -> Result<Created> {
        let mut state = self.state.lock().unwrap();
        let share = state.faults.of_creates;
        if state.random.random_range(0..100) >= share {
            return self.inner.create(name, bytes);
        }
        match state.random.random_range(0..3) {
            0 => drop(self.inner.create(name, bytes)),
            1 => state.late.push((name.into(), bytes)),
            _ => {}
        }
        Err(failed(name))
    }

    fn list(&self, prefix: &str, after: &str) -> Result<Vec<Listed>> {
        let mut state = self.state.lock().unwrap();
        if !state.faults.late_listings {
            state.listed = self.inner.list(prefix, "")?;
        }
        Ok(state.listed.iter().filter(|one| one.name.as_str() > after).cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn append_to(&self, name: &str) -> Result<Option<Box<dyn Append>>> {
        self.inner.append_to(name)
    }

    fn lock(&self, name: &str) -> Result<Option<Box<dyn Send + Sync>>> {
        self.inner.lock(name)
    }
}
