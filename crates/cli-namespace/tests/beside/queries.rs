//! Query directories of a mount, which the servers answer.

use crate::common::{CANOPY, as_user, failure, shell, success};
use crate::trial::{Trial, assert_same, lines};
use std::path::Path;

/// Queries, and find(1) with the same meaning.
const QUERIES: [(&str, &str); 6] = [
    ("[type=f and size>100]", "-type f -size +100c"),
    ("[name~file1*]", "-name 'file1*'"),
    ("[type=d and name~d1*]", "-type d -name 'd1*'"),
    ("[links>1 and type=f]", "-type f -links +1"),
    ("[uid=2002]", "-uid 2002"),
    ("[type=l]", "-type l"),
];

fn check(trial: &Trial, what: &str) {
    for base in [".", "a", "big"] {
        for (query, words) in QUERIES {
            let at = trial.on.join(base).join(query);
            let found = success(&crate::common::ns("query").arg(&at).output().unwrap());
            let mut found = Vec::from_iter(found.lines().map(str::to_owned));
            found.sort();
            let find = format!("find . -mindepth 1 {words} -printf '%P\\n' | sort");
            let expected = shell(&trial.on.join(base), &find);
            let mut expected = Vec::from_iter(expected.lines().map(str::to_owned));
            expected.sort();
            if !(expected.is_empty() && found.is_empty()) {
                assert_same(&found, &expected, &format!("{what}: {base}/{query}"));
            }
        }
    }
}

#[test]
fn query_directories_of_a_mount_ask_all_servers() {
    let mut trial = Trial::new();
    check(&trial, "running");
    let at = trial.on.join("[size>100]");
    let plan = success(&crate::common::ns("query").arg("--explain").arg(&at).output().unwrap());
    assert!(plan.contains("the index of size"), "{plan}");
    // A user finds what find(1) shows to the user.
    for uid in [2001, 2002] {
        let words = ["find", ".", "-mindepth", "1", "-type", "f", "-printf", "%P\\n"];
        let expected = trial.program(uid, &words);
        let at = trial.on.join("[type=f]");
        let mut list = crate::common::as_user(uid, crate::common::CANOPY);
        let found = list.args(["ns", "query"]).arg(&at).output().unwrap();
        assert_same(&lines(&found), &expected, &format!("uid {uid}"));
    }
    success(&trial.site.cluster(&["spread", "/", "@"]));
    trial.site.processes.remove(1).kill();
    shell(&trial.on, ": > another; ln another a/another");
    // Results are kept for some seconds, so other queries are asked.
    for (query, words) in [("[name=another]", "-name another"), ("[size<4]", "-size -4c")] {
        let found =
            success(&crate::common::ns("query").arg(trial.on.join(query)).output().unwrap());
        let mut found = Vec::from_iter(found.lines().map(str::to_owned));
        found.sort();
        let find = format!("find . -mindepth 1 {words} -printf '%P\\n' | sort");
        let mut expected = Vec::from_iter(shell(&trial.on, &find).lines().map(str::to_owned));
        expected.sort();
        assert_same(&found, &expected, query);
    }
}

/// Returns the files that a query of a directory finds for a user.
fn found(uid: u32, at: &Path) -> Vec<String> {
    let mut query = as_user(uid, CANOPY);
    lines(&query.args(["ns", "query"]).arg(at).output().unwrap())
}

#[test]
fn queries_of_snapshots_find_what_was() {
    let mut trial = Trial::new();
    let find = |uid: u32, base: &str, words: &str| {
        let line = format!("find {base} -mindepth 1 {words} -printf '%P\\n'");
        trial.program(uid, &["sh", "-c", &line])
    };
    let uids = [0, 2001, 2002];
    let mut expected = Vec::new();
    for (query, words) in QUERIES {
        for base in [".", "a"] {
            for uid in uids {
                expected.push((query, base, uid, find(uid, base, words)));
            }
        }
    }
    let create = |name: &str| {
        let made = crate::common::ns("snapshot").arg("create").arg(&trial.on).arg(name).output();
        success(&made.unwrap());
    };
    create("then");
    // Everything moves, to other servers too; one directory is closed since.
    shell(&trial.on, "mkdir later; mv big later/big; rm -r a/b; : > new.txt; chmod 700 a/big");
    success(&trial.site.cluster(&["spread", "/", "@"]));
    success(&trial.site.cluster(&["spread", "/later", "@"]));
    trial.site.processes.remove(1).kill();
    let past = trial.site.mount("past", &["--snapshot", "then", "-o", "allow_other"]);
    for (query, base, uid, files) in expected {
        // A directory that is closed now is closed in the past.
        let is_shown = |file: &String| {
            uid == 0 || !(file.starts_with("a/big/") || base == "a" && file.starts_with("big/"))
        };
        let files = Vec::from_iter(files.into_iter().filter(is_shown));
        for at in [trial.on.join("[@then]").join(base).join(query), past.join(base).join(query)] {
            let found = found(uid, &at);
            assert_eq!(found, files, "{} for {uid}", at.display());
        }
    }
    let at = trial.on.join("[@then]/[size>100]");
    let plan = success(&crate::common::ns("query").arg("--explain").arg(&at).output().unwrap());
    assert!(plan.contains("the index of size"), "{plan}");
    success(&trial.site.unmount("past"));
}

#[test]
fn views_are_of_all_servers() {
    let trial = Trial::new();
    let view = |words: &[&str]| crate::common::ns("view").args(words).output().unwrap();
    let on = trial.on.to_str().unwrap();
    success(&view(&["add", on, "large", "a/[size>1M]"]));
    let listed = success(&view(&["list", on]));
    assert!(listed.contains("large") && listed.contains("query"), "{listed}");
    let shown = shell(&trial.on, "ls .canopy/views/large/");
    assert!(shown.contains("large") && shown.contains("sparse"), "{shown}");
    success(&view(&["remove", on, "large"]));
    let place = trial.site.namespace.to_str().unwrap();
    let told = failure(&view(&["list", place]));
    assert!(told.contains("mount it"), "{told}");
}
