//! The targets of `canopy_cluster::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_cluster::fuzzing::TARGETS);
