//! The short run of the fuzz targets, for machines without a fuzzer.

use canopy_import::fuzzing::TARGETS;
use canopy_model::fuzzing::mutate_and_run;

#[test]
fn no_bytes_make_an_import_panic() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, 1500));
}
