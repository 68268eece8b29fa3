//! What can be reached without knowing a name, and what each known name adds.
//!
//! The classes of an index are a forest: the catalog names those in front of all gates, and the
//! directory of each passage through a gate has a file that names those behind it, up to the next
//! gates. So nobody learns of a passage from a file outside of it.

use crate::manifest::{ClassRecord, GateRecord, Level, LocalClass, LocalGate, Passage, numbers};
use canopy_model::GateStep;
use std::collections::BTreeMap;

/// What lies behind each passage, by the gates that lead there.
pub(crate) type Passages = BTreeMap<Vec<GateStep>, Passage>;

/// Returns the level of the catalog, and the passages.
pub(crate) fn levels(classes: &[ClassRecord]) -> (Level, Passages) {
    let mut first = Level::default();
    let mut passages = Passages::new();
    for class in classes {
        let path = class.path();
        for (depth, step) in path.gates.iter().enumerate() {
            let gate =
                LocalGate { grants: numbers(&step.grants), gate: GateRecord::new(step.gate) };
            let level = level_at(&mut first, &mut passages, &path.gates[..depth]);
            if !level.gates.contains(&gate) {
                level.gates.push(gate);
            }
        }
        let local = LocalClass { grants: class.grants.clone(), manifest: class.manifest };
        level_at(&mut first, &mut passages, &path.gates).classes.push(local);
    }
    (first, passages)
}

fn level_at<'a>(
    first: &'a mut Level,
    passages: &'a mut Passages,
    gates: &[GateStep],
) -> &'a mut Level {
    match gates {
        [] => first,
        gates => &mut passages.entry(gates.to_vec()).or_default().level,
    }
}
