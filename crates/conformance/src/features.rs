//! Features in which correct file systems may differ. Each feature is a case of `features.cases`,
//! and a file system that passes it has the feature.

use crate::case::Case;
use crate::runner::{Base, Outcome, one};
use std::collections::BTreeMap;

/// Features of a file system.
pub struct Features(BTreeMap<String, bool>);

impl Features {
    /// Finds out about each feature.
    pub fn probe(base: &Base, probes: &[Case]) -> Self {
        let mut actors = base.actors();
        let mut features = BTreeMap::new();
        for (at, probe) in probes.iter().enumerate() {
            let outcome = one(base, &mut actors, &format!("feature-{at}"), probe);
            features.insert(probe.name.clone(), outcome == Outcome::Passed);
        }
        Self(features)
    }

    /// Why a case is not for this file system, if so.
    pub fn missing(&self, case: &Case) -> Option<String> {
        let has = |feature: &&String| self.0.get(*feature).copied().unwrap_or(false);
        let needed = case.needs.iter().find(|feature| !has(feature));
        let unwanted = case.lacks.iter().find(has);
        let needed = needed.map(|feature| format!("needs {feature}"));
        needed.or_else(|| unwanted.map(|feature| format!("only without {feature}")))
    }

    /// Each feature and whether the file system has it, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, bool)> {
        self.0.iter().map(|(name, has)| (name.as_str(), *has))
    }
}
