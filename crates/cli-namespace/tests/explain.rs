//! Users of a mount can find out how a query is answered, or why it fails. Needs root and
//! /dev/fuse.

mod common;

use common::{CANOPY, Mounted, NOBODY, as_user, has, ns, shell, success};
use rustix::io::Errno;
use std::fs;
use std::process::Output;

/// The explanation of a query that a user gets, in the root of the mount.
fn explained(mounted: &Mounted, uid: u32, query: &str) -> Output {
    let mut command = as_user(uid, CANOPY);
    command.args(["ns", "query", "--explain", query]).current_dir(&mounted.on).output().unwrap()
}

#[track_caller]
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Any directory can have a name in brackets, and the attribute with a plan.
#[test]
fn plans_that_others_made_up_command_no_terminal() {
    let place = tempfile::tempdir_in("/var/tmp").unwrap();
    let false_query = place.path().join("[name=x]");
    fs::write(&false_query, "").unwrap();
    let plan = b"finds: \x1b[31m\nfailed last: \x1b]0;x\x07";
    let name = "user.canopy.plan";
    rustix::fs::setxattr(&false_query, name, plan, rustix::fs::XattrFlags::empty()).unwrap();
    let output = ns("query").arg("--explain").arg(&false_query).output().unwrap();
    assert!(!output.stdout.contains(&0x1b) && !output.stdout.contains(&7), "{output:?}");
}

#[test]
fn mistakes_are_shown_where_they_are() {
    let mounted = Mounted::new();
    let said = refused(&explained(&mounted, NOBODY, "[type=f and size>010]"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], "  [type=f and size>010]");
    assert_eq!(lines[1], "                   ^", "{said}");
    assert!(lines[2].starts_with("canopy: ") && lines[2].contains("without a 0"), "{said}");
    assert_eq!(lines.len(), 3);
    assert!(lines[2].contains("write '10' without a 0"), "{said}");
    // Characters that can be printed are printed, and take as many columns as they do.
    let mut command = as_user(NOBODY, CANOPY);
    command.args(["ns", "query", "--explain", "[name=日本 and größe>1]"]).current_dir(&mounted.on);
    let said = refused(&command.env("LC_ALL", "C.UTF-8").output().unwrap());
    let pointer = format!("  {}^", " ".repeat("[name=xxxx and ".len()));
    assert!(said.starts_with(&format!("  [name=日本 and größe>1]\n{pointer}\n")), "{said}");
    assert!(said.contains("'größe'; there are size"), "{said}");
    let said = refused(&explained(&mounted, NOBODY, "[@montägs]"));
    assert_eq!(said, "canopy: the query [@montägs]: no such snapshot has this directory\n");
    // Nothing in a name gets to the terminal.
    let said = refused(&explained(&mounted, NOBODY, "[\x1b[31m\n=1]"));
    assert!(said.starts_with("  [\\x1b[31m\\n=1]\n") && !said.contains('\x1b'), "{said}");
    // Only the mount knows these.
    let said = refused(&explained(&mounted, NOBODY, "[@monday]"));
    assert_eq!(said, "canopy: the query [@monday]: no such snapshot has this directory\n");
    let said = refused(&explained(&mounted, NOBODY, "[duplicates]/[size>1]"));
    assert!(said.contains("[duplicates]: this is not a query, and stands neither"), "{said}");
    let said = refused(&explained(&mounted, NOBODY, "file"));
    assert!(said.contains("does not end with a query"), "{said}");
    let outside =
        as_user(NOBODY, CANOPY).args(["ns", "query", "--explain", "/tmp/[true]"]).output().unwrap();
    let said = refused(&outside);
    assert_eq!(said, "canopy: /tmp: no namespace and no index is mounted there\n");
}

#[test]
fn plans_name_the_indexes_that_are_used() {
    let mounted = Mounted::new();
    shell(&mounted.on, "mkdir d; truncate -s 2K d/large; echo > d/small; chmod 700 d");
    let plan = |uid, query: &str| success(&explained(&mounted, uid, query));
    let by_size = "looks in: the index of size; every name instead where that has too many files\n";
    assert_eq!(plan(NOBODY, "[size>1K]"), format!("finds: [size>=1025]\n{by_size}"));
    // A user who sees everything gets the numbers, too.
    assert_eq!(plan(0, "[size>1K]"), format!("finds: [size>=1025]\n{by_size}candidates: 1\n"));
    let by_name = "looks in: every name: no index has all files that may pass \
                   (indexes: size, uid, gid, mtime, ext)\n";
    assert_eq!(plan(NOBODY, "[name~l*]"), format!("finds: [name~l*]\n{by_name}"));
    let both = plan(NOBODY, "[size>1K]/[uid=0]");
    assert!(
        both.contains("files that all of these have: the index of size, the index of uid"),
        "{both}"
    );
    assert!(plan(NOBODY, "[recent]").contains("at most: the 1000 files that were changed last\n"));
    assert!(plan(NOBODY, "[duplicates]").ends_with("of one size that you may read\n"));
    assert_eq!(plan(NOBODY, "[@]"), "lists the snapshots\n");
    // Without the option, it says what is found.
    let found = ns("query").arg(mounted.path("[type=f]/[size>1K]")).output().unwrap();
    assert_eq!(success(&found), "d/large\n");
    let found = as_user(NOBODY, CANOPY).args(["ns", "query"]).arg(mounted.path("[true]")).output();
    assert_eq!(success(&found.unwrap()), "d\n");
    mounted.assert_sound();
}

#[test]
fn why_a_query_failed_is_an_attribute_for_whoever_asked() {
    if !has("getfattr") {
        return;
    }
    let mounted = Mounted::new();
    fs::create_dir(mounted.path("d")).unwrap();
    let why = |uid, place: &str| {
        let mut command = as_user(uid, "getfattr");
        command.args(["--only-values", "--absolute-names", "-n", "user.canopy.error"]);
        command.arg(mounted.path(place)).output().unwrap()
    };
    assert!(!as_user(NOBODY, "ls").arg(mounted.path("d/[size>010]")).status().unwrap().success());
    let said = success(&why(NOBODY, "d"));
    assert!(said.starts_with("the query [size>010]: ") && said.contains("without a 0"), "{said}");
    assert!(!why(1234, "d").status.success() && !why(NOBODY, ".").status.success());
    assert!(!why(0, "d").status.success());
    // One below another.
    let both = mounted.path("d/[true]/[nothing=1]");
    assert!(!as_user(NOBODY, "ls").arg(both).status().unwrap().success());
    assert!(success(&why(NOBODY, "d/[true]")).contains("[nothing=1]"));
    assert!(success(&why(NOBODY, "d")).contains("[nothing=1]"));
    // A query has no other attributes.
    let query = mounted.path("d/[true]");
    let mut value = [0; 100];
    for name in ["user.other", "security.selinux", "user.canopy.error"] {
        let got = rustix::fs::getxattr(&query, name, &mut value);
        // Labels are not supported once the mount has found out that no file has one.
        let is_label = name == "security.selinux" && got == Err(Errno::OPNOTSUPP);
        assert!(is_label || got == Err(Errno::NODATA), "{name}: {got:?}");
    }
    mounted.assert_sound();
}
