//! The targets of `canopy_model::fuzzing`; see README.md.
#![no_main]

canopy_fuzz::targets!(canopy_model::fuzzing::TARGETS);
