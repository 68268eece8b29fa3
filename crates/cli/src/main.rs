//! The `canopy` command; see the library beside it.

use std::process::ExitCode;

/// Queries allocate and free large buffers all the time. The allocator of the C library gives each
/// back to the kernel, which then clears its pages anew: half of the time of a scan.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    canopy::main(None)
}
