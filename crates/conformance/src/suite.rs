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
}

/// The cases that tell whether a file system has a feature; their names are the features'.
pub fn features() -> anyhow::Result<Vec<Case>> {
    Reader::default().read(include_str!("../cases/features.cases"), "feature")
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
