//! What can be reached without knowing a name, and what each known name adds.
//!
//! The classes of an index are a forest: the catalog names those in front of all gates, and the
//! directory of each way through a gate has a file that names those behind it, up to the next
//! gates. So nobody learns of a way from a file outside of it.

use crate::manifest::{ClassRecord, GateRecord, Level, LocalClass, LocalGate, Way};
use crate::names::Names;
use canopy_model::{ClassPath, GateStep, GrantId};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The level of the catalog, and what lies behind each way, by the way's directory.
pub(crate) fn levels(classes: &[ClassRecord], names: &Names) -> (Level, BTreeMap<PathBuf, Way>) {
    let mut first = Level::default();
    let mut ways: BTreeMap<PathBuf, Way> = BTreeMap::new();
    for class in classes {
        let path = class.path();
        for (depth, step) in path.gates.iter().enumerate() {
            let gate =
                LocalGate { grants: numbers(&step.grants), gate: GateRecord::new(step.gate) };
            let level = level_at(&mut first, &mut ways, &path.gates[..depth], names);
            if !level.gates.contains(&gate) {
                level.gates.push(gate);
            }
        }
        let local = LocalClass { grants: class.grants.clone(), manifest: class.manifest };
        level_at(&mut first, &mut ways, &path.gates, names).classes.push(local);
    }
    (first, ways)
}

fn level_at<'a>(
    first: &'a mut Level,
    ways: &'a mut BTreeMap<PathBuf, Way>,
    gates: &[GateStep],
    names: &Names,
) -> &'a mut Level {
    if gates.is_empty() {
        return first;
    }
    let directory = names.class(&ClassPath { gates: gates.to_vec(), grants: Vec::new() });
    &mut ways.entry(directory).or_default().level
}

fn numbers(ids: &[GrantId]) -> Vec<u32> {
    ids.iter().map(|id| id.0).collect()
}
