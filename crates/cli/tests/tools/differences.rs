//! Differences from GNU's du, ls and stat, as `docs/differences.md` lists them. Needs root.

use crate::common::Fixture;
use std::process::Command;

/// Commands of the scripts: one line for the tool and for ours, as a user, and the index.
const PRELUDE: &str = r#"
exec 2>&1
both() { "$@"; echo "exit code $?"; canopy "$@"; echo "exit code $?"; }
user() { setpriv --reuid 2001 --regid 3001 --clear-groups "$@"; }
index() { canopy index --quiet . "$@"; }
"#;

/// Runs a script of sh in an empty directory, with mounts of its own, and expects what it prints.
pub fn expect(script: &str, expected: &[&str]) {
    let place = Fixture::new();
    let tree = place.path("tree");
    std::fs::create_dir(&tree).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{PRELUDE}{script}")]).current_dir(&tree);
    command.env("PATH", format!("{}:{path}", place.dir.path().display()));
    command.env("CANOPY_INDEX", place.path("index")).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
    let output = command.output().unwrap();
    let shown = output.stdout.escape_ascii().to_string();
    let lines: Vec<&str> = shown.trim_end_matches("\\n").split("\\n").collect();
    assert_eq!(lines, expected, "{script}");
}

#[test]
fn messages_are_not_those_of_gnus_tools() {
    let said = r"cannot access \'missing\': No such file or directory";
    let [theirs, ours] = ["ls", "canopy"].map(|name| format!("{name}: {said}"));
    expect("index; both ls missing", &[&theirs, "exit code 2", &ours, "exit code 2"]);
    let there = r"canopy: cannot access \'new\': it is there now, but not in the index (\'canopy update\' adds what is new)";
    expect("index; touch new; both ls new", &["new", "exit code 0", there, "exit code 2"]);
    let script = "mkdir -m 711 gate; index; user ls gate/missing; user canopy ls gate/missing";
    let path = r"cannot access \'gate/missing\'";
    let theirs = format!("ls: {path}: No such file or directory");
    let ours = format!("canopy: {path}: not in the index, or not for you to see");
    expect(script, &[&theirs, &ours]);
    expect(
        "index; canopy ls /etc/passwd 2>&1 | cut -d '(' -f 1",
        &["canopy: no index covers /etc/passwd "],
    );
}

#[test]
fn du_says_which_directories_below_may_not_be_listed() {
    let make = "mkdir -m 700 closed; touch closed/f; index";
    let [theirs, ours] = ["du", "canopy"].map(|name| {
        let denied = r"cannot read directory \'./closed\': Permission denied";
        format!("{name}: {denied}")
    });
    expect(&format!("{make}; user du -s --inodes; echo $?"), &[&theirs, r"2\t.", "1"]);
    expect(&format!("{make}; user canopy du -s --inodes; echo $?"), &[r"2\t.", &ours, "1"]);
    for (options, lines) in [
        ("--inodes -S", [r"1\t.", r"1\t./closed"]),
        ("-a --inodes", [r"1\t./closed", r"2\t."]),
        ("-L --inodes", [r"1\t./closed", r"2\t."]),
    ] {
        let script = format!(
            "{make}; user canopy du {options} | sort; user canopy du {options} >/dev/null; echo $?"
        );
        expect(&script, &[&ours, lines[0], lines[1], &ours, "1"]);
    }
    let script = format!("{make}; user canopy du -s --inodes closed; echo $?");
    expect(&script, &[r"1\tclosed", &ours.replace("./", ""), "1"]);
}

#[test]
fn ls_has_no_names_without_attributes() {
    let make = "mkdir names; touch names/n; chmod 744 names; index";
    expect(&format!("{make}; user ls names; echo $?"), &["n", "0"]);
    let ours = r"canopy: cannot open directory \'names\': not in the index, or not for you to see";
    expect(&format!("{make}; user canopy ls names; echo $?"), &[ours, "2"]);
}

#[test]
fn locales_need_not_be_installed() {
    let list = "ls -q; LC_ALL=xx_XX.UTF-8";
    let script = format!("touch ümlaut zeta; index; LC_ALL=xx_XX.UTF-8 {list} canopy ls -q");
    expect(&script, &["zeta", "??mlaut", "zeta", r"\xc3\xbcmlaut"]);
    // U+E0E80 has not been given to a character.
    let script = "touch $(printf '\\363\\240\\272\\200'); index; ls -q; canopy ls -q";
    expect(script, &["?", r"\xf3\xa0\xba\x80"]);
}

#[test]
fn du_goes_through_paths_in_their_order() {
    let make = "mkdir -p z a/b; echo >z/x; ln z/x a/y; ln -s ../z a/link; index";
    let paths = ["./a/link", "./a/y", "./a/b", "./a", "./z", "."];
    expect(&format!("{make}; canopy du -a | cut -f 2"), &paths);
    let followed = ["./a/link/x", "./a/link", "./a/b", "./a", "."];
    expect(&format!("{make}; canopy du -aL | cut -f 2"), &followed);
    for total in ["du -s", "du -sL"] {
        let script = format!("{make}; test \"$({total})\" = \"$(canopy {total})\" && echo same");
        expect(&script, &["same"]);
    }
}

#[test]
fn du_may_count_hard_links_at_both_places_of_a_directory() {
    let script = "mkdir -p d private/two; chmod 700 private; echo >d/f; ln d/f d/g
        mount --bind d private/two; index
        du -s --inodes; canopy du -s --inodes; canopy du --inodes | tail -n 1";
    expect(script, &[r"5\t.", r"6\t.", r"5\t."]);
}

#[test]
fn newer_names_of_times_and_orders_are_known() {
    let script = "touch -d 2020-02-02 a; index; canopy ls --time=mtime a
        canopy ls --time=modification a; canopy ls --sort=name a
        canopy du --time=mtime a; canopy du --time=modification a";
    let du = r"0\t2020-02-02 00:00\ta";
    expect(script, &["a", "a", "a", du, du]);
}

#[test]
fn mount_points_that_were_not_indexed_have_no_device() {
    let script = "mkdir mnt; mount -t tmpfs none mnt; index --one-file-system
        du -x | cut -f 2; canopy du -x | cut -f 2";
    expect(script, &[".", "./mnt", "."]);
}

#[test]
fn du_may_count_a_directory_that_is_bound_below_itself_at_both_places() {
    // The later name is listed first on tmpfs, and du(1) counts a file where it sees it first.
    let script = "mkdir -p d/in/self; echo >d/g; ln d/g d/f; mount --bind d d/in/self; index
        for options in --inodes '-a --inodes' '--inodes -d 1' '--inodes -S' '-L --inodes'; do
            du $options | sort >../theirs; canopy du $options | sort | diff ../theirs - && echo same
        done; canopy ls -R 2>/dev/null
        du -s --inodes d; canopy du -s --inodes d";
    let listed = [".:", "d", "", "./d:", "f", "g", "in", "", "./d/in:", "self"];
    let all = [&["same"; 5][..], &listed, &[r"3\td", r"6\td"]].concat();
    expect(script, &all);
}

#[test]
fn extended_attributes_are_told_in_long_form() {
    let make = "touch a b; setfattr -n user.x -v 1 a; index";
    let line = "-o --time-style=+";
    expect(
        &format!("{make}; ls {line}; canopy ls {line}"),
        &[
            "total 0",
            "-rw-r--r-- 1 root 0  a",
            "-rw-r--r-- 1 root 0  b",
            "total 0",
            "-rw-r--r--@ 1 root 0  a",
            "-rw-r--r--  1 root 0  b",
        ],
    );
}

#[test]
fn the_directory_above_a_source_is_the_live_one() {
    let script = "mkdir -p above/tree; cd above/tree; index; inode() { grep ' [.][.]$'; }
        live=$(ls -ai | inode); test \"$live\" = \"$(canopy ls -ai | inode)\" && echo same
        root=$(pwd); mv ../../above ../../moved
        canopy ls -ai $root | tr -d '. ' | uniq | wc -l";
    expect(script, &["same", "1"]);
}

#[test]
fn hyperlinks_of_links_that_lead_nowhere_are_to_themselves() {
    let script = "ln -s loop loop; ln -s /etc out; index; host=$(uname -n)
        show() { \"$@\" | sed \"s|$host||; s|$(pwd)||\"; }
        both ls --hyperlink loop
        show ls -d --hyperlink out; show canopy ls -d --hyperlink out loop";
    let link = |path: &str, name| format!(r"\x1b]8;;file://{path}\x07{name}\x1b]8;;\x07");
    expect(
        script,
        &[
            r"ls: cannot access \'loop\': Too many levels of symbolic links",
            "exit code 2",
            r"canopy: cannot access \'loop\': Too many levels of symbolic links",
            "exit code 2",
            &link("/etc", "out"),
            &link("/loop", "loop"),
            &link("/out", "out"),
        ],
    );
}

#[test]
fn names_with_quotes_are_quoted_as_a_shell_reads_them() {
    let list = "ls --quoting-style=shell-escape";
    let script = format!("touch $(printf \"o'\\\\377\"); index; {list}; canopy {list}");
    expect(&script, &[r"\'\'\'o\'\\\'\'\'$\'\\377\'", r"\'o\'\\\'\'\'$\'\\377\'"]);
}

#[test]
fn flags_without_meaning_add_nothing_to_links() {
    let script = "ln -s a l; index; stat -c %#N l; canopy stat -c %#N l";
    expect(script, &["l -> as", "l -> a"]);
}

#[test]
fn mount_points_of_directories_that_may_not_be_entered_are_known() {
    let make = "mount -t tmpfs -o mode=755 none .; cd .; mkdir -m 700 closed; index; root=$(pwd)";
    let script = format!("{make}; {}", "user stat -c %m closed 2>/dev/null");
    let mount = "test $(user canopy stat -c %m closed) = $root && echo known";
    expect(&format!("{script}; {mount}"), &["?", "known"]);
}

#[test]
fn standard_input_of_stat_is_a_file_of_the_index() {
    let script = "echo >a; ln -s a l; index; stat -c '%n %F' - <l; canopy stat -c '%n %F' - <l
        echo | stat -c %F -; echo | canopy stat -c %F -; echo $?";
    let ours = "canopy: cannot stat standard input: it is not a file that is in an index";
    expect(script, &["- regular file", "- regular file", "fifo", ours, "1"]);
}

#[test]
fn times_far_away_are_the_nearest_that_are_kept() {
    let script = "mount -t tmpfs none .; cd \"$(pwd)\"
        touch -d 1650-06-01 old; touch -d 2300-01-01 new; index
        for tool in '' canopy; do $tool stat -c %y old new; done";
    expect(
        script,
        &[
            "1650-06-01 00:00:00.000000000 +0000",
            "2300-01-01 00:00:00.000000000 +0000",
            "1700-01-01 00:00:00.000000000 +0000",
            "2240-01-01 00:00:00.000000000 +0000",
        ],
    );
}
