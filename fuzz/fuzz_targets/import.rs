//! The targets of `canopy_import::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_import::fuzzing::TARGETS);
