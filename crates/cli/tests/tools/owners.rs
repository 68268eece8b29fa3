//! `--user` and `--mine` in du, reports and `top`, and directories that several arguments of du
//! lead to. Needs root.

use crate::differences::expect;

/// A tree with files of root and of user 2001, who has one of two directories.
const MAKE: &str = "mkdir -p theirs/sub ours; touch theirs/a theirs/sub/b ours/c; touch ours/theirs
    chown 2001 theirs theirs/a theirs/sub/b ours/theirs; index";

#[test]
fn du_adds_up_what_belongs_to_a_user() {
    for (words, lines) in [
        ("--user 2001 --inodes", &[r"1\t./ours", r"1\t./theirs/sub", r"3\t./theirs", r"4\t."][..]),
        ("--user=2001 -s --inodes", &[r"4\t."]),
        ("--user 2001 -a --inodes ours", &[r"1\tours/theirs", r"1\tours"]),
        ("--user 2001 -S --inodes", &[r"1\t./ours", r"1\t./theirs/sub", r"2\t./theirs", r"0\t."]),
        ("--user 2001 -L -s --inodes", &[r"4\t."]),
        ("--user 2001 --inodes theirs/a ours/c", &[r"1\ttheirs/a"]),
        ("--user 2001 --by user --inodes", &[r"3\t2001\t."]),
        ("--user nobody --inodes -s", &[r"0\t."]),
        ("--mine -s --inodes theirs", &[r"1\ttheirs"]),
        ("--mine --by user --inodes", &[r"1\troot\t."]),
    ] {
        expect(&format!("{MAKE}; canopy du {words}"), lines);
    }
    expect(&format!("{MAKE}; user canopy du --mine -s --inodes"), &[r"4\t."]);
    let unknown = format!("{MAKE}; canopy du --user no-such; echo $?");
    expect(&unknown, &[r"canopy: no such user: \xe2\x80\x98no-such\xe2\x80\x99", "1"]);
}

#[test]
fn reports_and_top_take_the_asking_user() {
    let users = "--json --section users";
    // A report on one user names that user at its head, too.
    let names = "| grep -c '\"id\": 2001,'";
    expect(&format!("{MAKE}; canopy report {users} {names}"), &["1"]);
    expect(&format!("{MAKE}; canopy report --mine {users} {names}"), &["0"]);
    expect(&format!("{MAKE}; canopy report --user 2001 {users} {names}"), &["2"]);
    let both = "canopy report --mine --user 2001 2>&1 | grep -c 'cannot be used with'";
    expect(&format!("{MAKE}; {both}"), &["1"]);
    expect(&format!("{MAKE}; canopy top largest --mine | grep -c ours/c"), &["1"]);
    expect(&format!("{MAKE}; canopy top largest --mine | grep -c theirs"), &["0"]);
}

/// The bug: a directory and what it is bound to counted twice.
#[test]
fn directories_that_are_bound_elsewhere_count_once() {
    let make = "mkdir a b; echo >a/f; mkdir a/sub; mount --bind a b; index";
    for words in ["-c a b", "-sc a b", "-ac b a", "-lsc a b", "-c a a b"] {
        let script = format!(
            "{make}; du {words} | sort >../theirs; canopy du {words} | sort | diff ../theirs - && \
             echo same"
        );
        expect(&script, &["same"]);
    }
}
