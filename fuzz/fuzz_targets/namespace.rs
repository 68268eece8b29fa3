//! The targets of `canopy_namespace::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_namespace::fuzzing::TARGETS);
