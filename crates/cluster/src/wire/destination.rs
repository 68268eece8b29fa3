//! All connections of a client.

use crate::wire::address::Address;
use crate::wire::error::WireError;
use crate::wire::link::Link;
use crate::wire::pending::{Pending, Terms};
use crate::wire::security::ClientSecurity;
use crate::wire::worker::Worker;
use bytes::Bytes;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Connections of a client: one to each address, which all threads share. Calls that are made while
/// a frame is written go into the next one together. A lost connection is made again at the next call.
pub struct Connections {
    security: ClientSecurity,
    worker: Worker,
    links: RwLock<HashMap<Address, Arc<Link>>>,
}

impl Connections {
    /// Starts the thread that reads and writes the connections.
    ///
    /// # Errors
    ///
    /// Fails as the system does.
    pub fn new(security: ClientSecurity) -> io::Result<Self> {
        let worker = Worker::start("canopy-calls")?;
        Ok(Connections { security, worker, links: RwLock::default() })
    }

    /// Returns a server. Does not connect yet.
    pub fn to(&self, address: &Address) -> Destination {
        if let Some(link) = self.links.read().get(address) {
            return Destination { link: link.clone() };
        }
        let handle = self.worker.handle().clone();
        let new = || Link::new(address.clone(), self.security.clone(), handle);
        let mut links = self.links.write();
        let link = links.entry(address.clone()).or_insert_with(new).clone();
        Destination { link }
    }

    /// Calls a server and waits for the answer. Must not be called by a service's `take`.
    ///
    /// # Errors
    ///
    /// Fails if there is no answer; the error states whether the server may have executed the call.
    pub fn call(&self, address: &Address, body: &[u8], terms: Terms) -> Result<Bytes, WireError> {
        self.to(address).call(body, terms)
    }

    /// Closes the connection to a server that is not used any more. Calls under way end.
    pub fn close(&self, address: &Address) {
        let link = self.links.write().remove(address);
        if let Some(link) = link {
            link.close();
        }
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        let links = std::mem::take(self.links.get_mut());
        links.values().for_each(|link| link.close());
        self.worker.stop();
    }
}

/// A server, as its callers know it.
#[derive(Clone)]
pub struct Destination {
    link: Arc<Link>,
}

impl Destination {
    /// Returns the address.
    pub fn address(&self) -> &Address {
        &self.link.address
    }

    /// Returns whether calls go to the server at once, as there is a connection.
    pub fn is_connected(&self) -> bool {
        self.link.is_live()
    }

    /// Calls the server and waits for the answer. Must not be called by a service's `take`.
    ///
    /// # Errors
    ///
    /// Fails if there is no answer; the error states whether the server may have executed the call.
    pub fn call(&self, body: &[u8], terms: Terms) -> Result<Bytes, WireError> {
        self.start(body, terms).wait()
    }

    /// Begins a call.
    pub fn start(&self, body: &[u8], terms: Terms) -> Pending {
        self.link.begin(&mut self.link.lock(), body, terms)
    }

    /// Begins several calls, which share frames.
    pub fn start_all<'a>(
        &self,
        bodies: impl IntoIterator<Item = &'a [u8]>,
        terms: Terms,
    ) -> Vec<Pending> {
        let mut state = self.link.lock();
        bodies.into_iter().map(|body| self.link.begin(&mut state, body, terms)).collect()
    }
}
