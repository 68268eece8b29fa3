//! Entry points for fuzzing: bytes that other ends of connections send. No part of the interface of
//! this crate.

use crate::wire::frame::fuzzing as frame;
use canopy_model::fuzzing::Target;

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    Target { name: "wire_to_server", run: frame::to_server, seeds: frame::seeds_to_server },
    Target { name: "wire_to_client", run: frame::to_client, seeds: frame::seeds_to_client },
];
