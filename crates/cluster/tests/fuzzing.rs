//! The short run of the fuzz targets, for machines without a fuzzer.

#[path = "../../cli/tests/common/length.rs"]
mod length;

use canopy_cluster::fuzzing::TARGETS;
use canopy_model::fuzzing::{Target, mutate_and_run};
use length::rounds;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

#[test]
fn no_bytes_make_a_decoder_panic() {
    TARGETS.iter().for_each(|target| mutate_and_run(target, rounds(20_000, 200_000)));
}

#[test]
fn no_random_bytes_make_a_decoder_panic() {
    let mut random = StdRng::seed_from_u64(38);
    for Target { run, .. } in TARGETS {
        for _ in 0..rounds(20_000, 200_000) {
            let mut bytes = vec![0; random.random_range(0..400)];
            random.fill(&mut bytes[..]);
            // Mostly a right length and kind, since nothing behind wrong ones is looked at.
            if bytes.len() > 5 && random.random_bool(0.9) {
                let length = random.random_range(1..bytes.len() as u32);
                bytes[..4].copy_from_slice(&length.to_le_bytes());
                bytes[4] = random.random_range(0..6);
            }
            run(&bytes);
        }
    }
}
