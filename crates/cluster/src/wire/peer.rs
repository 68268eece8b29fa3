//! Identity of the other end of a connection.

use std::sync::Arc;

/// The identity of the other end, as the kernel or a certificate states it; never as it claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A process on this machine, of this user.
    Local {
        /// The user, as the kernel reports.
        uid: u32,
    },
    /// A process with the certificate of a user.
    User {
        /// The user.
        uid: u32,
    },
    /// A process with the certificate of a machine, which speaks for its users.
    Node {
        /// Name of the machine.
        name: Arc<str>,
        /// Whether it speaks for root, too.
        speaks_for_root: bool,
    },
    /// A process with the certificate of a server of the cluster.
    Server {
        /// Name in the certificate.
        name: Arc<str>,
    },
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Peer::Local { uid } => write!(f, "local user {uid}"),
            Peer::User { uid } => write!(f, "user {uid}"),
            Peer::Node { name, .. } => write!(f, "node {name}"),
            Peer::Server { name } => write!(f, "server {name}"),
        }
    }
}
