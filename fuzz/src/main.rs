//! Writes the seeds of all targets: `cargo run` in this directory, once before fuzzing.

use canopy_model::fuzzing::Target;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let crates: [(&str, &[Target]); 3] = [
        ("model", canopy_model::fuzzing::TARGETS),
        ("index", canopy_index::fuzzing::TARGETS),
        ("import", canopy_import::fuzzing::TARGETS),
    ];
    for (name, targets) in crates {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::create_dir_all(&corpus)?;
        for (number, target) in targets.iter().enumerate() {
            for (seed, bytes) in (target.seeds)().iter().enumerate() {
                let bytes = [&[number as u8][..], bytes].concat();
                std::fs::write(corpus.join(format!("{}-{seed}", target.name)), bytes)?;
            }
        }
    }
    Ok(())
}
