//! Output of a run: a line for each failure and each reason to skip, and a summary.

use crate::case::Case;
use crate::features::Features;
use crate::known::Known;
use crate::runner::Outcome;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

/// All results of a run.
pub struct Report<'a> {
    /// The cases and their outcomes.
    pub cases: Vec<(&'a Case, Outcome)>,
    /// Features of the file system.
    pub features: Features,
    /// Cases that may fail.
    pub known: Known,
    /// How long it took.
    pub elapsed: Duration,
}

/// How many cases came out how.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    known: usize,
    known_passed: usize,
    skipped: usize,
}

impl Report<'_> {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (case, outcome) in &self.cases {
            match (outcome, self.known.has(&case.name)) {
                (Outcome::Passed, is_known) => {
                    counts.passed += 1;
                    counts.known_passed += usize::from(is_known);
                }
                (Outcome::Failed(_), false) => counts.failed += 1,
                (Outcome::Failed(_), true) => counts.known += 1,
                (Outcome::Skipped(_), _) => counts.skipped += 1,
            }
        }
        counts
    }

    /// Whether nothing failed but what is known to.
    pub fn is_good(&self) -> bool {
        self.counts().failed == 0
    }

    /// Prints lines for people.
    pub fn print(&self, output: &mut impl Write) -> std::io::Result<()> {
        for (case, outcome) in &self.cases {
            let is_known = self.known.has(&case.name);
            match outcome {
                Outcome::Failed(failure) => writeln!(
                    output,
                    "{} {}: {}: {}: expected {}, got {}",
                    if is_known { "known " } else { "FAILED" },
                    case.name,
                    failure.who,
                    failure.call,
                    failure.expected,
                    failure.got
                )?,
                Outcome::Skipped(reason) => writeln!(output, "skipped {}: {reason}", case.name)?,
                Outcome::Passed if is_known => {
                    writeln!(output, "passed {}: known to fail, but did not", case.name)?;
                }
                Outcome::Passed => {}
            }
        }
        self.print_summary(output)
    }

    fn print_summary(&self, output: &mut impl Write) -> std::io::Result<()> {
        let names = |wanted| {
            let names = self.features.iter().filter(|(_, has)| *has == wanted);
            Vec::from_iter(names.map(|(name, _)| name)).join(" ")
        };
        writeln!(output, "features: {}", names(true))?;
        writeln!(output, "without: {}", names(false))?;
        let counts = self.counts();
        writeln!(
            output,
            "{} cases: {} passed, {} failed, {} failed as known, {} skipped; {:.1} seconds",
            self.cases.len(),
            counts.passed,
            counts.failed,
            counts.known,
            counts.skipped,
            self.elapsed.as_secs_f64()
        )?;
        if counts.known_passed > 0 {
            writeln!(output, "{} that are known to fail passed", counts.known_passed)?;
        }
        Ok(())
    }

    /// Returns the report as JSON, for programs.
    pub fn to_json(&self) -> Value {
        let case = |(case, outcome): &(&Case, Outcome)| match outcome {
            Outcome::Passed => None,
            Outcome::Skipped(reason) => {
                Some(json!({ "case": case.name, "outcome": "skipped", "reason": reason }))
            }
            Outcome::Failed(failure) => Some(json!({
                "case": case.name,
                "outcome": if self.known.has(&case.name) { "known" } else { "failed" },
                "who": failure.who,
                "call": failure.call,
                "expected": failure.expected,
                "got": failure.got,
            })),
        };
        let counts = self.counts();
        json!({
            "cases": self.cases.len(),
            "passed": counts.passed,
            "failed": counts.failed,
            "known": counts.known,
            "known_passed": counts.known_passed,
            "skipped": counts.skipped,
            "seconds": self.elapsed.as_secs_f64(),
            "features": BTreeMap::from_iter(self.features.iter()),
            "not_passed": Vec::from_iter(self.cases.iter().filter_map(case)),
        })
    }
}
