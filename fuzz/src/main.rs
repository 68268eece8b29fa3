//! Writes the seeds of all targets: `cargo fuzz run seeds`, once before fuzzing.
//!
//! Those of a crate, with the number of their target in front, are in a directory with its name;
//! those of a target, as `CANOPY_TARGET` wants them, in another with the name of that.

use canopy_model::fuzzing::Target;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let crates: [(&str, &[Target]); 6] = [
        ("model", canopy_model::fuzzing::TARGETS),
        ("index", canopy_index::fuzzing::TARGETS),
        ("import", canopy_import::fuzzing::TARGETS),
        ("namespace", canopy_namespace::fuzzing::TARGETS),
        ("cluster", canopy_cluster::fuzzing::TARGETS),
        ("store", canopy_store::fuzzing::TARGETS),
    ];
    for (name, targets) in crates {
        for (number, target) in targets.iter().enumerate() {
            for (seed, bytes) in (target.seeds)().iter().enumerate() {
                let file = format!("{}-{seed}", target.name);
                write(name, &file, &[&[number as u8][..], bytes].concat())?;
                write(target.name, &file, bytes)?;
            }
        }
    }
    Ok(())
}

fn write(directory: &str, file: &str, bytes: &[u8]) -> std::io::Result<()> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(directory);
    std::fs::create_dir_all(&directory)?;
    std::fs::write(directory.join(file), bytes)
}
