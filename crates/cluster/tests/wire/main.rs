//! The edge of a cluster over real sockets.

mod calls;
mod common;
mod frames;
mod limits;
mod tls;
