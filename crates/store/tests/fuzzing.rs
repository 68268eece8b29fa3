//! The short run of the fuzz targets, for machines without a fuzzer.

#[path = "../../cli/tests/common/length.rs"]
mod length;

use canopy_model::fuzzing::mutate_and_run;
use canopy_store::fuzzing::TARGETS;
use length::rounds;

#[test]
fn no_bytes_make_a_decoder_panic() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, rounds(1_000, 10_000)));
}
