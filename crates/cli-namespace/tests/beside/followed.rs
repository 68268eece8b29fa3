//! An index that follows the servers, against a new one.

use crate::common::{shell, success};
use crate::trial::{Trial, UIDS, assert_same, lines};

const ALL: &str = "%p|%y|%m|%U|%G|%n|%s|%b|%i|%l|%T@|%C@|%d\\n";

/// Compares the index that follows with a new one.
fn check(trial: &Trial, what: &str) {
    let _ = std::fs::remove_dir_all(trial.site.path("new"));
    trial.index("new", &["index"]);
    let on = trial.on.to_str().unwrap();
    for uid in UIDS {
        for words in [&["find", on, "-printf", ALL][..], &["du", "-a", on]] {
            let [followed, new] = ["followed", "new"]
                .map(|index| lines(&trial.canopy(index, uid, words).output().unwrap()));
            assert_same(&followed, &new, &format!("{what}: uid {uid}, {words:?}"));
        }
    }
}

#[test]
fn an_index_follows_servers() {
    let mut trial = Trial::new();
    trial.index("followed", &["index", "--follow"]);
    check(&trial, "at first");
    for (what, changes) in [
        ("files", "echo x > a/b/one; rm big/file40; mv big/file41 a/b/c; chmod 600 big/file42"),
        ("directories", "mkdir a/b/new; mv a/b/c a/b/new; rmdir a/big/d5; chmod 700 a/big/d6"),
        ("links", "ln big/file60 a/sixty; ln a/sixty a/b/sixty; chown 2001 big/file60"),
        ("a large directory", "for i in $(seq 60); do : > a/b/many$i; done; touch a/b/many1"),
    ] {
        shell(&trial.on, changes);
        trial.index("followed", &["index", "--follow"]);
        check(&trial, what);
    }
    success(&trial.site.cluster(&["spread", "/a/big", "@"]));
    trial.index("followed", &["index", "--follow"]);
    check(&trial, "spread");
    trial.site.processes.remove(0).kill();
    shell(&trial.on, "echo x > a/after; rm a/b/one");
    trial.index("followed", &["index", "--follow"]);
    check(&trial, "after a crash");
}
