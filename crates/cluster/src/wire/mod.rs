//! The edge of a cluster: calls and their answers as opaque bytes, over TCP, TLS and sockets in
//! directories. It knows nothing of operations.
//!
//! | to change | read |
//! | --- | --- |
//! | bytes on a connection | `frame` |
//! | reading and writing on one connection | `duplex` |
//! | who the other end is | `security`, `loopback`, `peer` |
//! | listening, limits, silent connections | `listener`, `registry`, `limits` |
//! | calls at the server | `calls`, `served` |
//! | calls at the client | `destination`, `link`, `under_way`, `pending` |
//!
//! Invariants:
//!
//! - No queue is unbounded. A client has calls under way within a window that the server grants. A
//!   server reads a frame only once its peer has memory for it, and for the answers to its calls.
//! - A task reads a connection. The thread that has an answer or a call writes it at once but never
//!   waits: the task writes the rest when the peer takes it. So a peer that does not read stops only
//!   itself.
//! - An identity comes from the kernel or a certificate. Without TLS, only loopback is possible.
//! - A call that ends with an error states whether the server may have executed it.
//!
//! ```
//! use canopy_cluster::wire::{
//!     Batch, ClientSecurity, Connections, Limits, Listener, ServerSecurity, Service, Terms,
//! };
//! use std::{sync::Arc, time::Duration};
//!
//! struct Echo;
//! impl Service for Echo {
//!     fn take(&self, batch: Batch) {
//!         for call in batch {
//!             let body = call.body().to_vec();
//!             call.answer(&body);
//!         }
//!     }
//! }
//!
//! let addresses = ["127.0.0.1:0".parse()?];
//! let security = ServerSecurity::default();
//! let listener = Listener::start(&addresses, security, Limits::default(), Arc::new(Echo))?;
//! let connections = Connections::new(ClientSecurity::default())?;
//! let terms = Terms::within(Duration::from_secs(10));
//! let answer = connections.call(&listener.addresses()[0], b"hello", terms)?;
//! assert_eq!(&answer[..], b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod address;
mod calls;
mod destination;
mod duplex;
mod error;
pub(crate) mod frame;
mod limits;
mod link;
mod listener;
mod loopback;
mod peer;
mod pending;
mod registry;
mod security;
mod served;
mod under_way;
mod worker;

pub use address::{Address, AddressError};
pub use calls::{Batch, Call, Replies, Service};
pub use destination::{Connections, Destination};
pub use error::{ListenError, Refusal, WireError};
pub use frame::{BODY_MAX, CALLS_MAX, FrameError, SHARED_MAX, VERSION, Window};
pub use limits::{Grant, Limits};
pub use listener::Listener;
pub use peer::Peer;
pub use pending::{Pending, Terms};
pub use security::{ClientSecurity, Identify, ServerSecurity, Tls};
