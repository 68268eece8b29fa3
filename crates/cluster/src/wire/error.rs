//! Errors of calls, and of starting to listen.

use crate::wire::address::Address;

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The call was not sent.
    #[error("{address}: {reason}")]
    NotSent {
        /// The server.
        address: Address,
        /// Why not.
        reason: String,
    },
    /// The connection broke before the answer arrived.
    #[error("{address}: the connection was lost before the answer: {reason}")]
    Lost {
        /// The server.
        address: Address,
        /// How it broke.
        reason: String,
    },
    /// The deadline passed before the answer arrived.
    #[error("{address}: no answer in time")]
    TimedOut {
        /// The server.
        address: Address,
        /// Whether the call may have reached the server.
        is_sent: bool,
    },
    /// The server, or this end, refused the call.
    #[error("{address}: {refusal}")]
    Refused {
        /// The server.
        address: Address,
        /// Why.
        refusal: Refusal,
    },
}

impl WireError {
    /// Returns whether the server has surely not executed the call, so that it may be sent again,
    /// to any server.
    pub fn is_surely_not_executed(&self) -> bool {
        match self {
            WireError::NotSent { .. } => true,
            WireError::Lost { .. } => false,
            WireError::TimedOut { is_sent, .. } => !is_sent,
            WireError::Refused { refusal, .. } => {
                !matches!(refusal, Refusal::Failed | Refusal::ReplyTooLarge)
            }
        }
    }

    /// Returns the server that the call was for.
    pub fn address(&self) -> &Address {
        match self {
            WireError::NotSent { address, .. }
            | WireError::Lost { address, .. }
            | WireError::TimedOut { address, .. }
            | WireError::Refused { address, .. } => address,
        }
    }
}

/// Reasons to refuse a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The body, or the room for its answer, is larger than any can be, or than the server's window.
    #[error("a call of {bytes} bytes with its answer is too large, the limit is {limit}")]
    TooLarge {
        /// Bytes of the body, or of the body and the room.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The server executed the call; the answer was longer than the caller has allowed.
    #[error("the answer is longer than the caller allows")]
    ReplyTooLarge,
    /// The server dropped the call, and may have executed it.
    #[error("the server failed to answer")]
    Failed,
    /// The deadline had passed before the server began.
    #[error("the server got the call too late")]
    Expired,
    /// The service refused it.
    #[error("{0}")]
    Service(String),
    /// The server speaks other versions of the protocol.
    #[error("{0}")]
    Version(String),
    /// The server has enough connections, in all or with this peer.
    #[error("{0}")]
    Connections(String),
    /// The server does not accept this peer, or this end not the server.
    #[error("{0}")]
    Denied(String),
}

/// Why listening could not start.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// An address that others can reach needs certificates.
    #[error(
        "{0} can be reached from other machines, so it needs a certificate: without one, only \
         loopback addresses and unix:/PATH are possible"
    )]
    Plain(Address),
    /// The system refused.
    #[error("listening on {address} failed: {error}")]
    Io {
        /// The address.
        address: Address,
        /// The system's error.
        error: std::io::Error,
    },
}
