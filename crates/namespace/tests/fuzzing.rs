//! The short run of the fuzz targets, for machines without a fuzzer. `CANOPY_RUNS` makes it longer.

use canopy_model::fuzzing::mutate_and_run;
use canopy_namespace::fuzzing::TARGETS;

#[test]
fn no_messages_break_a_namespace() {
    let runs = std::env::var("CANOPY_RUNS").ok().and_then(|runs| runs.parse().ok());
    TARGETS.iter().for_each(|target| mutate_and_run(target, runs.unwrap_or(300)));
}
