//! Shared parts of the fuzz targets: the decoder that the bytes are for, and seeds.

use canopy_model::fuzzing::Target;

/// Has a fuzz target that gives bytes to one of `targets`: to the one that `CANOPY_TARGET` names
/// or, without it, to the one whose number the first byte is.
#[macro_export]
macro_rules! targets {
    ($targets:expr) => {
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::run($targets, bytes));
    };
}

/// Gives bytes to a target.
pub fn run(targets: &[Target], bytes: &[u8]) {
    static ASKED: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    match ASKED.get_or_init(|| std::env::var("CANOPY_TARGET").ok()) {
        Some(name) => {
            let target = targets.iter().find(|target| target.name == name);
            (target.expect("CANOPY_TARGET names a target").run)(bytes);
        }
        None => {
            let Some((number, bytes)) = bytes.split_first() else { return };
            (targets[usize::from(*number) % targets.len()].run)(bytes);
        }
    }
}
