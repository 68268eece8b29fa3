//! The short run of the fuzz targets, for machines without a fuzzer.

use canopy_index::fuzzing::TARGETS;
use canopy_model::fuzzing::mutate_and_run;

#[test]
fn no_bytes_make_a_decoder_panic() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, 10_000));
}
