//! The configuration: which place counts, what is refused, what an index leaves out. Needs root.

use crate::common;

use common::Fixture;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A command with a configuration of its own.
struct Configured {
    place: Fixture,
    site: PathBuf,
    own: PathBuf,
}

impl Configured {
    fn new() -> Self {
        let place = Fixture::new();
        let (site, home) = (place.path("site.toml"), place.path("config/canopy"));
        fs::create_dir_all(&home).unwrap();
        Configured { place, site, own: home.join("config.toml") }
    }

    fn run(&self, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
        Command::new(&self.place.canopy)
            .args(arguments)
            .env_remove("CANOPY_INDEX")
            .env("CANOPY_SITE_CONFIG", &self.site)
            .env("XDG_CONFIG_HOME", self.place.path("config"))
            .envs(environment.iter().copied())
            .output()
            .unwrap()
    }

    fn done(&self, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(environment, arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that ends in an error.
    fn refused(&self, environment: &[(&str, &str)], arguments: &[&str]) -> String {
        let output = self.run(environment, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn paths(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn later_places_come_over_earlier_ones() {
    let at = Configured::new();
    let mut indexes = Vec::new();
    for name in ["site", "own", "environment", "option"] {
        let (tree, index) =
            (at.place.path(&format!("tree-{name}")), at.place.path(&format!("index-{name}")));
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join(name), "").unwrap();
        at.place.index(&index, &tree);
        indexes.push(index.to_str().unwrap().to_owned());
    }
    let query = ["sql", "--format", "csv", "SELECT name FROM entries"];
    fs::write(&at.site, format!("index = '{}'\nthreads = 3\n", indexes[0])).unwrap();
    assert_eq!(at.done(&[], &query), "name\nsite\n");
    fs::write(&at.own, format!("index = '{}'\n", indexes[1])).unwrap();
    assert_eq!(at.done(&[], &query), "name\nown\n");
    let environment = [("CANOPY_INDEX", indexes[2].as_str())];
    assert_eq!(at.done(&environment, &query), "name\nenvironment\n");
    let option = [&["--index", indexes[3].as_str()], &query[..]].concat();
    assert_eq!(at.done(&environment, &option), "name\noption\n");
    // What the user's file does not say, the site's does. The engine tells how many threads it got.
    let threads = "SELECT value FROM information_schema.df_settings \
                   WHERE name = 'datafusion.execution.target_partitions'";
    let asked = ["sql", "--format", "csv", threads];
    assert_eq!(at.done(&[], &asked), "value\n3\n");
    assert_eq!(at.done(&[("CANOPY_THREADS", "4")], &asked), "value\n4\n");
    let option = [&asked[..1], &["--threads", "5"], &asked[1..]].concat();
    assert_eq!(at.done(&[("CANOPY_THREADS", "4")], &option), "value\n5\n");
    assert!(at.refused(&[("CANOPY_THREADS", "many")], &asked).contains("CANOPY_THREADS"));
    // One's own file in another's place says nothing, as after sudo: it may be a link to anything.
    let config = at.place.path("config");
    chown(&config, Some(2001), None).unwrap();
    assert_eq!(at.done(&[], &query), "name\nsite\n");
    chown(&config, Some(0), None).unwrap();
    assert_eq!(at.done(&[], &query), "name\nown\n");
    // Nor does another's file in one's own place.
    chown(&at.own, Some(2001), Some(3001)).unwrap();
    assert_eq!(at.done(&[], &query), "name\nsite\n");
}

#[test]
fn wrong_files_are_errors_with_their_lines() {
    let at = Configured::new();
    fs::write(&at.site, "# comment\nthreads = 2\nprune_name = ['x']\n").unwrap();
    let error = at.refused(&[], &["index"]);
    let expected = format!(
        "canopy: {}, line 3: unknown key 'prune_name'; known are index, sources, threads, prune_names, prune_paths, prune_fs, sql_timeout, sql_memory, trust_fs, path_max, stale_after, limits\n",
        at.site.display()
    );
    assert_eq!(error, expected);
    fs::write(&at.site, "").unwrap();
    fs::write(&at.own, "threads = [").unwrap();
    let error = at.refused(&[], &["info"]);
    assert!(error.contains(&format!("{}, line 1: ", at.own.display())), "{error}");
    // What explains how to write it needs no right one.
    assert!(at.done(&[], &["help", "config"]).contains("prune_names"));
}

#[test]
fn limits_of_statements_come_from_options_before_the_configuration() {
    let at = Configured::new();
    let tree = at.place.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..2000).for_each(|number| fs::write(tree.join(format!("file{number}")), "").unwrap());
    let index = at.place.path("index");
    at.place.index(&index, &tree);
    fs::write(&at.site, format!("index = {index:?}\nsql_timeout = '1s'\nsql_memory = '16M'\n"))
        .unwrap();
    let long = "SELECT count(*) FROM entries a \
                JOIN (SELECT a.size FROM entries a, entries b) b ON a.size < b.size";
    let large = "SELECT array_length(array_agg(a.ino + b.ino)) FROM entries a, entries b";
    let error = at.refused(&[], &["sql", long]);
    let expected = "canopy: the statement took more than 1 s \
                    (--timeout or the setting sql_timeout gives more)\n";
    assert_eq!(error, expected);
    let error = at.refused(&[("CANOPY_SQL_TIMEOUT", "2s")], &["sql", long]);
    assert!(error.contains("more than 2 s "), "{error}");
    let environment = [("CANOPY_SQL_TIMEOUT", "none")];
    let error = at.refused(&environment, &["sql", "--timeout", "1s", long]);
    assert!(error.contains("more than 1 s "), "{error}");
    // Where the reader takes all and rows come without end, too.
    let rows = "SELECT a.ino FROM entries a, entries b, entries c";
    let asked = ["sql", "--memory", "none", "--format", "csv", rows];
    assert_eq!(at.refused(&[], &asked), expected);
    let asked = ["sql", "--timer", "--format", "csv", "SELECT 1 AS one"];
    let told = String::from_utf8(at.run(&[], &asked).stderr).unwrap();
    assert!(told.starts_with("1 row, "), "{told}");
    let error = at.refused(&environment, &["sql", large]);
    assert!(error.contains("needs more memory than 16M: "), "{error}");
    assert!(error.contains("(--memory or the setting sql_memory gives more)"), "{error}");
    for options in [&["--memory", "1G"], &["--memory", "none"]] {
        let asked = [&["sql", "--format", "csv", "--timeout", "none"], &options[..], &[large]];
        assert!(at.done(&[("CANOPY_SQL_MEMORY", "17M")], &asked.concat()).ends_with("\n4000000\n"));
    }
    assert!(at.refused(&[("CANOPY_SQL_MEMORY", "much")], &["info"]).contains("give a size such"));
    assert_eq!(at.run(&[], &["sql", "--timeout", "0", "SELECT 1"]).status.code(), Some(2));
}

#[test]
fn the_site_limits_what_queries_of_users_take() {
    let at = Configured::new();
    let tree = at.place.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..2000).for_each(|number| fs::write(tree.join(format!("file{number}")), "").unwrap());
    let index = at.place.path("index");
    at.place.index(&index, &tree);
    let uid = nix::unistd::geteuid();
    let limited = |who: &str, timeout: &str| {
        let limits = format!("sql_timeout = '{timeout}'\nsql_memory = '16M'\nthreads = 1\n");
        let said = format!("index = {index:?}\nsql_timeout = '2h'\n[[limits]]\n{who}\n{limits}");
        fs::write(&at.site, said).unwrap();
    };
    let long = "SELECT count(*) FROM entries a \
                JOIN (SELECT a.size FROM entries a, entries b) b ON a.size < b.size";
    let large = "SELECT array_length(array_agg(a.ino + b.ino)) FROM entries a, entries b";
    let why = "(the site allows you no more, by 'limits' of its configuration)\n";
    limited(&format!("users = ['{uid}']"), "1s");
    let expected = format!("canopy: the statement took more than 1 s {why}");
    assert_eq!(at.refused(&[], &["sql", long]), expected);
    let warning = "canopy: warning: the site allows you less than this --timeout, by 'limits' of \
                   its configuration\n";
    let error = at.refused(&[], &["sql", "--timeout", "5m", long]);
    assert_eq!(error, format!("{warning}{expected}"));
    // What a user sets is not more, and no option is to blame.
    assert_eq!(at.refused(&[("CANOPY_SQL_TIMEOUT", "none")], &["sql", long]), expected);
    // A busy machine takes longer to need so much.
    limited(&format!("users = ['{uid}']"), "5m");
    let error = at.refused(&[("CANOPY_SQL_MEMORY", "1G")], &["sql", large]);
    assert!(error.contains("needs more memory than 16M: ") && error.ends_with(why), "{error}");
    let told = at.run(&[], &["find", "--threads", "2", tree.to_str().unwrap()]).stderr;
    assert!(String::from_utf8(told).unwrap().contains("less than this --threads, by 'limits'"));
    // Less is what it is.
    let error = at.refused(&[], &["sql", "--memory", "17M", "--timeout", "1s", large]);
    assert!(error.contains("less than this --memory"), "{error}");
    limited("groups = ['no-such-group', '4000000000']", "1s");
    let asked = ["sql", "--format", "csv", "--timeout", "none", "--memory", "none", large];
    assert!(at.done(&[], &asked).ends_with("\n4000000\n"));
    // A user's own file says nothing of it.
    fs::write(&at.own, "[[limits]]\nthreads = 3\n").unwrap();
    assert!(at.refused(&[], &["info"]).contains("'limits' are the site's to set"));
}

/// The entries of an index of a tree, with a configuration.
fn indexed(at: &Configured, tree: &Path, environment: &[(&str, &str)], options: &[&str]) -> String {
    let index = at.place.path("index");
    let index = index.to_str().unwrap();
    let arguments = [&["--index", index, "index", tree.to_str().unwrap()], options].concat();
    let output = at.run(environment, &arguments);
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    at.done(&[], &["--index", index, "find", tree.to_str().unwrap()])
}

#[test]
fn configured_paths_are_left_out() {
    let at = Configured::new();
    let tree = at.place.path("tree");
    for directory in ["a/.git", "a/b", "st{a,o}r", "star", "skip/below"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
        fs::write(tree.join(directory).join("file"), "").unwrap();
    }
    let all = indexed(&at, &tree, &[], &[]);
    assert_eq!(paths(&all).len(), 13, "{all}");
    let skipped = tree.join("skip");
    let text = format!(
        "prune_names = ['.git', 'st{{a,o}}r']\nprune_paths = ['{}', '/elsewhere']\n",
        skipped.display()
    );
    fs::write(&at.site, text).unwrap();
    let left = indexed(&at, &tree, &[], &[]);
    let expected: Vec<String> = ["", "/a", "/a/b", "/a/b/file", "/star", "/star/file"]
        .iter()
        .map(|below| format!("{}{below}", tree.display()))
        .collect();
    assert_eq!(paths(&left), expected);
    // The environment replaces a list, an option adds to it, and another leaves it aside.
    let names = [("CANOPY_PRUNE_NAMES", "star b")];
    let left = indexed(&at, &tree, &names, &["--exclude", "file"]);
    let expected: Vec<String> = ["", "/a", "/a/.git", "/st{a,o}r"]
        .iter()
        .map(|below| format!("{}{below}", tree.display()))
        .collect();
    assert_eq!(paths(&left), expected);
    assert_eq!(indexed(&at, &tree, &[], &["--no-prune"]).lines().count(), 13);
    // A source is scanned though its path is configured to be left out.
    assert_eq!(indexed(&at, &skipped, &[], &[]).lines().count(), 3);
}

#[test]
fn types_of_file_systems_are_left_out_where_they_are_mounted() {
    let at = Configured::new();
    let mounts = String::from_utf8_lossy(&fs::read("/proc/self/mountinfo").unwrap()).into_owned();
    assert!(
        mounts.lines().any(|line| line.contains(" /dev/pts ") && line.contains(" - devpts ")),
        "{mounts}"
    );
    let dev = Path::new("/dev");
    // Others may have much in /dev/shm.
    let indexed =
        |options: &[&str]| indexed(&at, dev, &[], &[&["--exclude", "/shm"], options].concat());
    let all = indexed(&["--no-prune"]);
    assert!(paths(&all).contains(&"/dev/pts/ptmx") && paths(&all).contains(&"/dev/null"), "{all}");
    // What has no files is not entered where nothing is configured either.
    let usual = indexed(&[]);
    assert!(paths(&usual).contains(&"/dev/pts") && !usual.contains("/dev/pts/"), "{usual}");
    fs::write(&at.site, "prune_fs = ['devpts', 'nfs4']\n").unwrap();
    let left = indexed(&[]);
    assert!(paths(&left).contains(&"/dev/null"), "{left}");
    assert!(!left.contains("/dev/pts"), "{left}");
}

#[test]
fn configured_sources_are_indexed_when_none_is_told() {
    let at = Configured::new();
    let (one, two) = (at.place.path("one"), at.place.path("two"));
    for tree in [&one, &two] {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), "").unwrap();
    }
    let index = at.place.path("index");
    assert!(at.refused(&[], &["index"]).contains("no sources are configured"));
    fs::write(&at.site, format!("index = {index:?}\nsources = [{one:?}, {two:?}]\n")).unwrap();
    at.done(&[], &["index"]);
    let query = ["sql", "--format", "csv", "SELECT count(DISTINCT source) AS n FROM entries"];
    assert_eq!(at.done(&[], &query), "n\n2\n");
    // The environment's list comes in its place.
    let only = [("CANOPY_SOURCES", one.to_str().unwrap()), ("CANOPY_INDEX", "other")];
    let output = Command::new(&at.place.canopy)
        .args(["index"])
        .current_dir(at.place.dir.path())
        .env("CANOPY_SITE_CONFIG", &at.site)
        .envs(only)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let other = at.place.path("other");
    let query = [&["--index", other.to_str().unwrap()], &query[..]].concat();
    assert_eq!(at.done(&[], &query), "n\n1\n");
}

#[test]
fn a_wrong_file_of_the_site_stops_who_can_mend_it_and_nobody_else() {
    let at = Configured::new();
    let tree = at.place.path("tree");
    fs::create_dir(&tree).unwrap();
    let index = at.place.path("index");
    at.place.index(&index, &tree);
    let tree = tree.to_str().unwrap();
    let find = ["find", tree];
    fs::write(&at.site, format!("index = {index:?}\nprune_name = ['x']\n")).unwrap();
    // What is right in it counts.
    let output = at.run(&[], &find);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{tree}\n"));
    let told = String::from_utf8(output.stderr).unwrap();
    let place = format!("canopy: warning: {}, line 2: unknown key 'prune_name'", at.site.display());
    assert!(told.starts_with(&place) && told.lines().count() == 1, "{told}");
    for command in ["index", "update"] {
        assert!(at.refused(&[], &[command, tree]).contains("line 2: unknown key"));
    }
    // Nothing counts in a file that is not TOML.
    fs::write(&at.site, "index = '").unwrap();
    let named = ["--index", index.to_str().unwrap(), "find", tree];
    assert!(at.run(&[], &named).status.success());
    assert!(at.refused(&[], &["index", tree]).contains("line 1: "));
    // A user is told, and indexes.
    fs::write(&at.site, "threads = 'many'\n").unwrap();
    let home = at.place.path("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(2001), Some(3001)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "2001", "--regid", "3001", "--clear-groups"])
        .arg(&at.place.canopy)
        .args(["index", home.to_str().unwrap()])
        .env_remove("CANOPY_INDEX")
        .env("CANOPY_SITE_CONFIG", &at.site)
        .env("XDG_DATA_HOME", &home)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && told.contains("line 1: a number is wanted"), "{told}");
}

#[test]
fn a_file_of_the_site_that_cannot_be_read_is_told_and_goes_without() {
    let at = Configured::new();
    let tree = at.place.path("tree");
    fs::create_dir(&tree).unwrap();
    let index = at.place.path("index");
    at.place.index(&index, &tree);
    let index = index.to_str().unwrap();
    let find = ["--index", index, "find", tree.to_str().unwrap()];
    let scan = ["--index", index, "index", tree.to_str().unwrap()];
    let check = |what: &str| {
        let output = at.run(&[], &find);
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{what}: {told}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", tree.display()));
        let beginning = format!("canopy: warning: cannot read {}: {what}", at.site.display());
        assert!(told.starts_with(&beginning) && told.lines().count() == 1, "{told}");
        let error = at.refused(&[], &scan);
        assert!(
            error.starts_with(&format!("canopy: cannot read {}", at.site.display())),
            "{error}"
        );
    };
    fs::write(&at.site, b"index = '/\xff'\n").unwrap();
    check("stream did not contain valid UTF-8");
    fs::remove_file(&at.site).unwrap();
    fs::create_dir(&at.site).unwrap();
    check("it is not a plain file");
    fs::remove_dir(&at.site).unwrap();
    nix::unistd::mkfifo(&at.site, nix::sys::stat::Mode::S_IRWXU).unwrap();
    check("it is not a plain file");
    // One that others may not read.
    fs::remove_file(&at.site).unwrap();
    fs::write(&at.site, "threads = 1\n").unwrap();
    fs::set_permissions(&at.site, fs::Permissions::from_mode(0o600)).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid", "2001", "--regid", "3001", "--clear-groups"])
        .arg(&at.place.canopy)
        .args(find)
        .env("CANOPY_SITE_CONFIG", &at.site)
        .output()
        .unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && told.contains("Permission denied"), "{told}");
}

#[test]
fn sources_have_options_of_their_own() {
    let at = Configured::new();
    let (one, two) = (at.place.path("a b"), at.place.path("two"));
    for tree in [&one, &two] {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), "").unwrap();
        fs::write(tree.join("file.tmp"), "").unwrap();
        xattr(&tree.join("file"));
    }
    let index = at.place.path("index");
    let text = format!(
        "index = {index:?}\n[[sources]]\npath = {one:?}\nexclude = ['*.tmp']\nname = 'first'\n\
         [[sources]]\npath = {two:?}\nno_xattrs = true\n"
    );
    fs::write(&at.site, text).unwrap();
    let shown = |tree: &Path, more: &[&str]| {
        let words = [&["find", tree.to_str().unwrap()], more].concat();
        at.done(&[], &words).lines().count()
    };
    let counts = || {
        [(&one, &[][..]), (&two, &[]), (&one, &["-xattr", "*"]), (&two, &["-xattr", "*"])]
            .map(|(tree, more)| shown(tree, more))
    };
    at.done(&[], &["index"]);
    assert_eq!(counts(), [2, 3, 1, 0]);
    assert!(at.done(&[], &["source", "list"]).contains("first"));
    // They hold where the tree is named, too, by another path as well.
    std::os::unix::fs::symlink(&one, at.place.path("link")).unwrap();
    let link = at.place.path("link");
    at.done(&[], &["index", "--incremental", link.to_str().unwrap(), two.to_str().unwrap()]);
    assert_eq!(counts(), [2, 3, 1, 0]);
    fs::write(one.join("later.tmp"), "").unwrap();
    at.done(&[], &["update", one.to_str().unwrap()]);
    assert_eq!(counts(), [2, 3, 1, 0]);
    at.done(&[], &["index", "--no-prune", one.to_str().unwrap()]);
    assert_eq!(counts(), [4, 3, 1, 0]);
    // A path with a blank in a list of the environment.
    let blank = one.to_str().unwrap().replace(' ', "\\ ");
    let other = at.place.path("other");
    let environment =
        [("CANOPY_SOURCES", blank.as_str()), ("CANOPY_INDEX", other.to_str().unwrap())];
    assert!(at.done(&environment, &["index"]).contains(": 3 files and 1 directory, "));
    let environment = [("CANOPY_SOURCES", one.to_str().unwrap()), environment[1]];
    assert!(at.refused(&environment, &["index"]).contains("a blank in a path of CANOPY_SOURCES"));
}

#[test]
fn options_of_a_source_that_lies_in_another_one_are_told_not_to_hold() {
    let at = Configured::new();
    let (outer, inner) = (at.place.path("outer"), at.place.path("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("file.tmp"), "").unwrap();
    let index = at.place.path("index");
    let site = |exclude: &str| {
        let text = format!(
            "index = {index:?}\n[[sources]]\npath = {outer:?}\nexclude = ['{exclude}']\n\
             [[sources]]\npath = {inner:?}\nexclude = ['*.tmp']\n"
        );
        fs::write(&at.site, text).unwrap();
        let output = at.run(&[], &["index"]);
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    let told = site("*.o");
    assert!(told.contains("does not hold when") && told.contains("exclude it there"), "{told}");
    let told = site("inner");
    assert!(!told.contains("warning"), "{told}");
    at.done(&[], &["update", inner.to_str().unwrap()]);
    assert_eq!(at.done(&[], &["find", inner.to_str().unwrap(), "-name", "*.tmp"]), "");
}

fn xattr(file: &Path) {
    let done = Command::new("setfattr").args(["-n", "user.note", "-v", "x"]).arg(file).status();
    assert!(done.unwrap().success());
}
