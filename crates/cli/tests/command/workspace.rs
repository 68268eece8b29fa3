//! How the workspace is put together: which crate uses which, and that whatever is built gives each
//! dependency the same features, so that nothing is built twice. ARCHITECTURE.md draws the arrows.

use crate::common::requirements::is_met;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Each crate and the crates of the workspace that it may use outside of its tests.
const ARROWS: &[(&str, &[&str])] = &[
    ("canopy-unify", &[]),
    ("canopy-model", &["canopy-unify"]),
    ("canopy-events", &["canopy-unify"]),
    ("canopy-partition", &["canopy-unify"]),
    (
        "canopy-cluster",
        &["canopy-events", "canopy-model", "canopy-namespace", "canopy-partition", "canopy-store"],
    ),
    ("canopy-as-user", &["canopy-events", "canopy-model"]),
    ("canopy-index", &["canopy-model"]),
    ("canopy-scan", &["canopy-model"]),
    ("canopy-import", &["canopy-model"]),
    ("canopy-text", &["canopy-model"]),
    ("canopy-watch", &["canopy-as-user", "canopy-model", "canopy-scan"]),
    ("canopy-query", &["canopy-model", "canopy-text"]),
    ("canopy-read", &["canopy-model", "canopy-index", "canopy-query"]),
    ("canopy-site", &["canopy-index", "canopy-model", "canopy-scan"]),
    (
        "canopy-ingest",
        &[
            "canopy-as-user",
            "canopy-index",
            "canopy-model",
            "canopy-read",
            "canopy-scan",
            "canopy-site",
            "canopy-text",
            "canopy-watch",
        ],
    ),
    (
        "canopy-tools",
        &[
            "canopy-model",
            "canopy-index",
            "canopy-query",
            "canopy-scan",
            "canopy-read",
            "canopy-text",
        ],
    ),
    (
        "canopy-sql",
        &[
            "canopy-model",
            "canopy-index",
            "canopy-import",
            "canopy-query",
            "canopy-read",
            "canopy-text",
        ],
    ),
    (
        "canopy",
        &[
            "canopy-as-user",
            "canopy-events",
            "canopy-model",
            "canopy-index",
            "canopy-ingest",
            "canopy-scan",
            "canopy-site",
            "canopy-import",
            "canopy-read",
            "canopy-text",
            "canopy-tools",
            "canopy-watch",
        ],
    ),
    (
        "canopy-sql-command",
        &[
            "canopy",
            "canopy-sql",
            "canopy-model",
            "canopy-index",
            "canopy-ingest",
            "canopy-site",
            "canopy-import",
            "canopy-read",
            "canopy-text",
            "canopy-tools",
        ],
    ),
    ("canopy-store", &["canopy-model"]),
    ("canopy-object-storage", &["canopy-store"]),
    (
        "canopy-store-command",
        &[
            "canopy",
            "canopy-store",
            "canopy-object-storage",
            "canopy-model",
            "canopy-scan",
            "canopy-text",
        ],
    ),
    (
        "canopy-cluster-command",
        &[
            "canopy",
            "canopy-cluster",
            "canopy-index",
            "canopy-namespace",
            "canopy-object-storage",
            "canopy-partition",
            "canopy-store",
            "canopy-text",
        ],
    ),
    (
        "canopy-c",
        &[
            "canopy-cluster",
            "canopy-model",
            "canopy-namespace",
            "canopy-object-storage",
            "canopy-store",
        ],
    ),
    ("canopy-namespace", &["canopy-model", "canopy-query", "canopy-store"]),
    ("canopy-fuse", &["canopy-model", "canopy-query"]),
    (
        "canopy-mount",
        &[
            "canopy-as-user",
            "canopy-events",
            "canopy-fuse",
            "canopy-model",
            "canopy-namespace",
            "canopy-query",
        ],
    ),
    (
        "canopy-index-mount",
        &[
            "canopy-as-user",
            "canopy-fuse",
            "canopy-index",
            "canopy-model",
            "canopy-query",
            "canopy-read",
        ],
    ),
    (
        "canopy-namespace-command",
        &[
            "canopy",
            "canopy-as-user",
            "canopy-cluster",
            "canopy-fuse",
            "canopy-index",
            "canopy-ingest",
            "canopy-site",
            "canopy-index-mount",
            "canopy-model",
            "canopy-mount",
            "canopy-namespace",
            "canopy-object-storage",
            "canopy-partition",
            "canopy-query",
            "canopy-scan",
            "canopy-store",
            "canopy-text",
            "canopy-tools",
        ],
    ),
    ("canopy-conformance", &["canopy-mount", "canopy-namespace", "canopy-store"]),
    (
        "canopy-bench",
        &[
            "canopy-cluster",
            "canopy-model",
            "canopy-index",
            "canopy-namespace",
            "canopy-scan",
            "canopy-watch",
        ],
    ),
];

/// Dependencies that only some crates may have: the beginning of their names, and those crates.
const HEAVY: &[(&str, &[&str])] = &[
    ("datafusion", &["canopy-sql"]),
    ("clap", &["canopy", "canopy-sql-command", "canopy-bench"]),
    ("tokio", &["canopy-cluster", "canopy-sql", "canopy-object-storage", "canopy-unify"]),
    ("object_store", &["canopy-object-storage"]),
    ("fuser", &["canopy-fuse", "canopy-mount", "canopy-index-mount"]),
];

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The packages of the workspace by name, each with what it uses outside of its tests.
fn packages() -> BTreeMap<String, BTreeSet<String>> {
    let metadata = cargo(&["metadata", "--no-deps", "--format-version", "1"]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    packages
        .map(|package| {
            let dependencies = package["dependencies"].as_array().unwrap().iter();
            let used = dependencies.filter(|dependency| dependency["kind"] != "dev");
            let names = used.map(|dependency| dependency["name"].as_str().unwrap().to_owned());
            (package["name"].as_str().unwrap().to_owned(), names.collect())
        })
        .collect()
}

#[test]
fn crates_use_only_what_they_may() {
    let packages = packages();
    let mut wrong = Vec::new();
    for (package, used) in &packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| name == package) else {
            wrong.push(format!("{package} has no row in ARROWS"));
            continue;
        };
        let ours = used.iter().filter(|name| packages.contains_key(*name));
        let bad = ours.filter(|name| !allowed.contains(&name.as_str()));
        wrong.extend(bad.map(|name| format!("{package} must not use {name}")));
        for (prefix, owners) in HEAVY {
            let heavy = used.iter().filter(|name| name.starts_with(prefix));
            let bad = heavy.filter(|_| !owners.contains(&package.as_str()));
            wrong.extend(bad.map(|name| format!("{package} must not use {name}")));
        }
    }
    let gone = ARROWS.iter().filter(|(name, _)| !packages.contains_key(*name));
    wrong.extend(gone.map(|(name, _)| format!("{name} has a row in ARROWS and is not a package")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The features of each dependency as `cargo tree` tells them for some packages. A dependency of
/// build scripts may differ from the same one of the program, so there can be several sets.
fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<BTreeSet<String>>> {
    let mut all: BTreeMap<String, BTreeSet<BTreeSet<String>>> = BTreeMap::new();
    let format = ["tree", "--prefix", "none", "--format", "{p}|{f}"];
    for line in cargo(&[&format[..], arguments].concat()).lines() {
        // A star says that what is below the package is told elsewhere.
        let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') else {
            continue;
        };
        // A package of the workspace has its path behind its version.
        if !package.contains(" (/") {
            let features = features.split(',').filter(|feature| !feature.is_empty());
            let features = features.map(str::to_owned).collect();
            all.entry(package.to_owned()).or_default().insert(features);
        }
    }
    all
}

/// Names the features that `canopy-unify` would have to ask for, so that a build of `part` has
/// those of the whole.
fn missing(
    part: &BTreeMap<String, BTreeSet<BTreeSet<String>>>,
    whole: &BTreeMap<String, BTreeSet<BTreeSet<String>>>,
) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    for (package, sets) in part {
        for set in sets.difference(&whole[package]) {
            // The nearest of the whole's sets, as that may have one for build scripts too.
            let more = whole[package].iter().map(|whole| whole.difference(set).cloned());
            let more = more.map(Vec::from_iter).min_by_key(Vec::len).unwrap_or_default();
            missing.insert(format!("{package}: {}", more.join(", ")));
        }
    }
    missing
}

#[test]
fn every_build_gives_a_dependency_the_same_features() {
    let whole = features(&["--workspace", "--edges", "normal,build,dev"]);
    let mut wrong = BTreeSet::new();
    for package in packages().keys() {
        let part = features(&["--package", package, "--edges", "normal,build"]);
        let more = missing(&part, &whole).into_iter();
        wrong.extend(more.map(|line| format!("{line} (in builds of {package})")));
    }
    let lines = Vec::from_iter(wrong).join("\n");
    assert!(lines.is_empty(), "features to add to crates/unify/Cargo.toml:\n{lines}");
}

#[test]
fn a_required_program_that_is_missing_fails_a_test() {
    assert!(is_met(true, true, "a program") && !is_met(false, false, "a program"));
    assert!(std::panic::catch_unwind(|| is_met(false, true, "a program")).is_err());
}

/// Files with the names of Rust's below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, found),
            false => found.extend(path.extension().is_some_and(|end| end == "rs").then_some(path)),
        }
    }
}

#[test]
fn no_test_skips_without_the_common_helper() {
    let mut files = Vec::new();
    for package in std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap() {
        let tests = package.unwrap().path().join("tests");
        if tests.is_dir() {
            sources(&tests, &mut files);
        }
    }
    assert!(files.len() > 100, "{files:?}");
    // Divided, so that these words are not found here.
    let words = [concat!("\"skip", "ped: "), concat!("\"GUFI", "_BIN\"")];
    let skips = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        words.iter().any(|word| text.contains(word))
    };
    let skipping = Vec::from_iter(files.into_iter().filter(skips));
    let names = Vec::from_iter(skipping.iter().map(|file| file.file_name().unwrap()));
    assert_eq!(names, ["requirements.rs"], "{skipping:?}");
}
