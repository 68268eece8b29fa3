//! Connections of a listener: those of each peer, and those that have not authenticated themselves.

use crate::wire::frame::Sizes;
use crate::wire::limits::Grant;
use crate::wire::peer::Peer;
use crate::wire::security::Origin;
use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Instant;
use tokio::sync::{Semaphore, oneshot};

/// Memory of one peer, which its connections share. It lives until the last of its calls is done.
pub(crate) struct Share {
    /// Granted to the first connection, and so to all.
    pub(crate) sizes: Sizes,
    /// Bytes of frames with calls.
    pub(crate) calls: Arc<Semaphore>,
    /// Bytes that answers of calls under way can have.
    pub(crate) answers: Arc<Semaphore>,
    connections: AtomicUsize,
}

/// All connections of a listener.
pub(crate) struct Registry {
    connections_max: usize,
    silent_max: usize,
    state: Mutex<State>,
    is_empty: Condvar,
}

#[derive(Default)]
struct State {
    connections: usize,
    peers: HashMap<Peer, Weak<Share>>,
    silent: VecDeque<Unauthenticated>,
    next_silent: u64,
}

struct Unauthenticated {
    number: u64,
    origin: Origin,
    /// The connection ends once this is dropped.
    _ends: oneshot::Sender<()>,
}

/// A connection that has not authenticated itself, until this is dropped.
pub(crate) struct UnauthenticatedGuard {
    registry: Arc<Registry>,
    number: u64,
}

/// A connection that has, until this is dropped.
pub(crate) struct ConnectionGuard {
    registry: Arc<Registry>,
    pub(crate) share: Arc<Share>,
}

impl Registry {
    pub(crate) fn new(connections_max: usize, silent_max: usize) -> Arc<Self> {
        Arc::new(Registry {
            connections_max,
            silent_max,
            state: Mutex::default(),
            is_empty: Condvar::new(),
        })
    }

    /// Adds a connection that was just accepted. The other half of the result ends once another
    /// connection needs its place.
    pub(crate) fn add_silent(
        self: &Arc<Self>,
        origin: Origin,
    ) -> (UnauthenticatedGuard, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state.lock();
        if state.silent.len() >= self.silent_max.max(1) {
            state.close_silent();
        }
        let number = state.next_silent;
        state.next_silent += 1;
        state.silent.push_back(Unauthenticated { number, origin, _ends: sender });
        (UnauthenticatedGuard { registry: self.clone(), number }, receiver)
    }

    /// Closes one connection that has not authenticated itself, if there is one.
    pub(crate) fn close_silent(&self) {
        self.state.lock().close_silent();
    }

    /// Admits a connection of a peer.
    ///
    /// # Errors
    ///
    /// Fails with the reason, if there are enough already.
    pub(crate) fn admit(
        self: &Arc<Self>,
        peer: &Peer,
        grant: &Grant,
    ) -> Result<ConnectionGuard, String> {
        let mut state = self.state.lock();
        if state.connections >= self.connections_max && !grant.is_exempt {
            let limit = self.connections_max;
            return Err(format!("the server has {limit} connections, the limit"));
        }
        let share = state.peers.get(peer).and_then(Weak::upgrade);
        let share = share.unwrap_or_else(|| {
            let (calls, answers) = grant.memory();
            Arc::new(Share {
                sizes: grant.sizes(),
                calls: Arc::new(Semaphore::new(calls)),
                answers: Arc::new(Semaphore::new(answers)),
                connections: AtomicUsize::new(0),
            })
        });
        if share.connections.load(Ordering::Relaxed) >= grant.connections {
            let limit = grant.connections;
            return Err(format!("the server has {limit} connections of {peer}, the limit"));
        }
        share.connections.fetch_add(1, Ordering::Relaxed);
        state.connections += 1;
        state.peers.insert(peer.clone(), Arc::downgrade(&share));
        Ok(ConnectionGuard { registry: self.clone(), share })
    }

    /// Waits until no peer has a connection, or the time has passed.
    pub(crate) fn wait_until_empty(&self, deadline: Instant) {
        let mut state = self.state.lock();
        while state.connections > 0 {
            if self.is_empty.wait_until(&mut state, deadline).timed_out() {
                return;
            }
        }
    }

    /// Returns the numbers of connections: all of peers, and those that have not authenticated
    /// themselves.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.connections, state.silent.len())
    }
}

impl State {
    fn close_silent(&mut self) {
        let mut counts: HashMap<&Origin, usize> = HashMap::new();
        self.silent.iter().for_each(|silent| *counts.entry(&silent.origin).or_default() += 1);
        let most = counts.values().max().copied().unwrap_or(0);
        let oldest = self.silent.iter().position(|silent| counts[&silent.origin] == most);
        if let Some(at) = oldest {
            self.silent.remove(at);
        }
    }
}

impl Drop for UnauthenticatedGuard {
    fn drop(&mut self) {
        let mut state = self.registry.state.lock();
        let number = self.number;
        if let Ok(at) = state.silent.binary_search_by_key(&number, |silent| silent.number) {
            state.silent.remove(at);
        }
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut state = self.registry.state.lock();
        state.connections -= 1;
        self.share.connections.fetch_sub(1, Ordering::Relaxed);
        if state.connections == 0 {
            self.registry.is_empty.notify_all();
        }
        // A share lives as long as calls of it are under way, so another connection finds it.
        if state.peers.len() > 2 * state.connections + 64 {
            state.peers.retain(|_, share| share.strong_count() > 0);
        }
    }
}
