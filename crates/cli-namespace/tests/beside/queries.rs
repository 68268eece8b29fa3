//! Query directories of a mount, which the servers answer.

use crate::common::{shell, success};
use crate::trial::{Trial, assert_same, lines};

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
