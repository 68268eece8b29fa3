//! Namespaces on several servers: they are made here, and most commands of 'canopy ns' open none. Mounts
//! are in `served`. Needs root.

mod common;

use canopy_cluster::has_cluster;
use canopy_store::storage::SharedDirectory;
use common::{failure, ns, success};
use std::fs;

#[test]
fn namespaces_are_made_for_several_servers() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let namespace = place.path().join("demo");
    let shown = namespace.display();
    let told = success(&ns("create").args(["--servers", "4"]).arg(&namespace).output().unwrap());
    assert_eq!(
        told,
        format!(
            "made {shown}: 4 logical servers; start them with: canopy cluster start {shown} --listen \
             127.0.0.1:7040\n"
        )
    );
    let storage = SharedDirectory::open(&namespace).unwrap();
    assert!(has_cluster(&storage).unwrap());
    // The rules by which servers share directories never change.
    let options = ["--servers", "1", "--split-entries", "100", "--partitions-per-server", "8"];
    let small = place.path().join("small");
    success(&ns("create").args(options).arg(&small).output().unwrap());
    let tables = fs::read_to_string(small.join("objects/cluster/tables")).unwrap();
    for rule in ["\"entries_max\": 100", "\"partitions_per_server\": 8"] {
        assert!(tables.contains(rule), "{tables}");
    }
    for (words, expected) in [
        (&["--split-entries", "100"][..], "--servers <N>"),
        (&["--partitions-per-server", "8"], "--servers <N>"),
        (&["--servers", "2", "--split-entries", "1"], "1 is not in 16..="),
        (&["--servers", "2", "--partitions-per-server", "0"], "0 is not in 1..=64"),
        (&["--servers", "2"], "is not empty"),
        (&["--shared"], "is not empty"),
        (&["--servers", "0"], "0 is not in 1..=4096"),
        (&["--servers", "4097"], "4097 is not in 1..=4096"),
        (&["--servers", "x"], "invalid value 'x'"),
        (&["--servers", "2", "--chunk-size", "1K"], "--chunk-size: from 4K to 64M"),
    ] {
        let output = ns("create").args(words).arg(&namespace).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {told}");
        assert!(told.starts_with("canopy: ") && told.contains(expected), "{words:?}: {told}");
    }
}

#[test]
fn commands_for_one_table_name_those_for_servers() {
    let place = tempfile::tempdir_in("/tmp").unwrap();
    let namespace = place.path().join("demo");
    success(&ns("create").args(["--servers", "2"]).arg(&namespace).output().unwrap());
    let tree = place.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let [shown, tree] = [&namespace, &tree].map(|path| path.to_str().unwrap().to_owned());
    for words in [&["check"][..], &["check", "--repair"]] {
        let mut command = ns(words[0]);
        let told = success(&command.args(&words[1..]).arg(&shown).output().unwrap());
        assert_eq!(told, "no faults\n");
    }
    let start = format!("'canopy cluster start {shown} --listen ADDRESS'");
    let mount = format!("mount it (canopy ns mount {shown} DIRECTORY)");
    let words: &[(&[&str], &str)] = &[
        (&["check", "--snapshot", "monday", &shown], "has no snapshot monday"),
        (&["quota", &shown], &start),
        (&["quota", &shown, "--user", "nobody", "--bytes", "1G"], &start),
        (&["import", &tree, &shown], &start),
        (&["snapshot", "create", &shown, "monday"], &start),
        (&["snapshot", "list", &shown], &start),
        (&["snapshot", "delete", &shown, "monday"], &start),
        (&["view", "list", &shown], &mount),
        (&["view", "add", &shown, "big", "[size>1G]"], &mount),
    ];
    for (words, expected) in words {
        let mut command = ns(words[0]);
        let told = failure(&command.args(&words[1..]).output().unwrap());
        assert!(told.contains(expected), "{words:?}: {told}");
    }
    // Nothing has changed.
    let storage = SharedDirectory::open(&namespace).unwrap();
    assert!(has_cluster(&storage).unwrap());
}
