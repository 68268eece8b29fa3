//! The edge of a cluster over real sockets.

mod calls;
mod common;
mod frames;
mod hostile_servers;
mod limits;
mod tls;
