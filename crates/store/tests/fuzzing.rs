//! The short run of the fuzz targets, for machines without a fuzzer.

use canopy_model::fuzzing::mutate_and_run;
use canopy_store::fuzzing::TARGETS;

#[test]
fn no_bytes_make_a_decoder_panic() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, 3_000));
}
