//! The targets of `canopy_store::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_store::fuzzing::TARGETS);
