//! All cases there are.

use crate::case::Case;
use crate::matrix;
use crate::script::Reader;
use anyhow::Context;

/// Makes a table of the scripts in `cases`.
macro_rules! scripts {
    ($($name:literal)*) => {
        const SCRIPTS: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../cases/", $name, ".cases")))),*];
    };
}

// Lists that several scripts use come first.
scripts! {
    "lists"
    "path"
    "open"
    "making"
    "linking"
    "rename"
    "times"
    "contents"
    "xattrs"
    "acls"
    "locks"
    "listing"
    "inodes"
}

/// The cases that find out whether a file system has a feature; their names are the features'.
pub fn features() -> anyhow::Result<Vec<Case>> {
    Reader::default().read(include_str!("../cases/features.cases"), "feature")
}

/// The cases of another script, which may use the suite's lists.
pub fn cases_of(script: &str) -> anyhow::Result<Vec<Case>> {
    let mut reader = Reader::default();
    reader.read(include_str!("../cases/lists.cases"), "case")?;
    reader.read(script, "case")
}

/// The cases of all scripts and those that are computed.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let mut reader = Reader::default();
    let mut cases = Vec::new();
    for (name, script) in SCRIPTS {
        cases.extend(reader.read(script, "case").with_context(|| format!("{name}.cases"))?);
    }
    cases.extend(matrix::cases()?);
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_and_features_exist() {
        let known = BTreeSet::from_iter(features().unwrap().into_iter().map(|case| case.name));
        let mut names = BTreeSet::new();
        for case in cases().unwrap() {
            for feature in case.needs.iter().chain(&case.lacks) {
                assert!(known.contains(feature), "{}: no feature {feature}", case.name);
            }
            assert!(!case.steps.is_empty(), "{}: nothing to do", case.name);
            assert!(names.insert(case.name.clone()), "{}: twice", case.name);
        }
    }
}
