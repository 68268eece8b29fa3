//! The targets of `canopy_index::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_index::fuzzing::TARGETS);
