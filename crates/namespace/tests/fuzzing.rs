//! The short run of the fuzz targets, for machines without a fuzzer.

use canopy_model::fuzzing::mutate_and_run;
use canopy_namespace::fuzzing::TARGETS;

#[test]
fn no_messages_break_a_namespace() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, 300));
}
