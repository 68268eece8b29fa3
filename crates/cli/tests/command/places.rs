//! The index that answers: a user's own beside the site's, the site's alone without a home, all
//! sources below a path; and the messages if none does. Needs root.

use crate::common;

use common::{Fixture, User, sorted};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A site with an index of two trees, and a user with a home of their own.
struct Site {
    place: Fixture,
    user: User,
    home: PathBuf,
}

impl Site {
    fn new() -> Self {
        let place = Fixture::new();
        let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
        let home = place.path("home/u");
        for directory in ["shared/of-u", "shared/b", "other", "home/u/w/x"] {
            fs::create_dir_all(place.path(directory)).unwrap();
            fs::write(place.path(directory).join("file"), directory).unwrap();
        }
        for own in ["shared/of-u", "home/u", "home/u/w", "home/u/w/x"] {
            chown(place.path(own), Some(2001), Some(3001)).unwrap();
        }
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
        let site = Site { place, user, home };
        site.place.index(&site.place.path("site"), &site.place.path("shared"));
        site.place.index(&site.place.path("site"), &site.place.path("other"));
        let config = format!("index = {:?}\n", site.place.path("site"));
        fs::write(site.place.path("site.toml"), config).unwrap();
        site
    }

    fn command(&self, program: &OsStr, arguments: &[&str]) -> Command {
        let mut command = self.user.command();
        command.arg(program).args(arguments).current_dir(self.place.dir.path());
        for name in ["CANOPY_INDEX", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
            command.env_remove(name);
        }
        command.env("HOME", &self.home).env("CANOPY_SITE_CONFIG", self.place.path("site.toml"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(self.place.canopy.as_os_str(), arguments).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> Vec<String> {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        sorted(&output.stdout, b'\n')
    }

    /// The output of the tool of that name.
    fn expected(&self, tool: &str, arguments: &[&str]) -> Vec<String> {
        sorted(&self.command(tool.as_ref(), arguments).output().unwrap().stdout, b'\n')
    }
}

/// Each index has its own generations, and users write but their own.
#[test]
fn the_past_is_that_of_the_own_index() {
    let site = Site::new();
    site.done(&["index", "--keep=5", "home/u/w"]);
    fs::write(site.home.join("w/later"), "").unwrap();
    site.done(&["update", "home/u/w"]);
    let then = site.done(&["find", "--at=1", "home/u/w"]);
    assert_eq!(then.len() + 1, site.done(&["find", "home/u/w"]).len());
    assert!(site.done(&["diff", "1", "2"])[0].contains("created"));
    site.done(&["top", "growth", "home/u/w"]);
    let output = site.run(&["find", "--at=1", "shared"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// Entries of a path in the site's index alone have a past, too, which is hidden; a message says
/// so.
#[test]
fn a_past_that_is_not_whole_is_told_so() {
    let site = Site::new();
    site.done(&["index", "--keep=5", "shared/of-u"]);
    fs::write(site.place.path("shared/of-u/later"), "later").unwrap();
    site.done(&["update", "shared/of-u"]);
    let denied = format!("the past of the index at {} is", site.place.path("site").display());
    for words in [&["history"][..], &["diff", "1", "2"], &["top", "growth", "--since=1"]] {
        for (path, code) in [("shared", 1), ("shared/of-u", 0), (".", 1)] {
            let words = [words, &[path]].concat();
            let output = site.run(&words);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(code), "{words:?}: {errors}");
            assert_eq!(errors.contains(&denied), code == 1, "{words:?}: {errors}");
            assert!(!output.stdout.is_empty(), "{words:?}");
        }
    }
    let output = site.run(&["history", "shared/b"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && errors.contains(&denied), "{errors}");
    // What the site's index has did not come since.
    assert_eq!(site.done(&["top", "growth", "--since=1"]).len(), 1);
}

#[test]
fn users_index_into_their_own_and_read_both() {
    let site = Site::new();
    let shared = site.done(&["find", "shared", "other"]);
    assert_eq!(shared, site.expected("find", &["shared", "other"]));
    assert_eq!(site.run(&["find", "home/u/w"]).status.code(), Some(1));
    // No word of an index: where the site has one, too.
    site.done(&["index", "home/u/w"]);
    assert!(site.home.join(".local/share/canopy/index/CURRENT").exists());
    for (tool, words) in [
        ("find", &["home/u/w", "shared", "other"][..]),
        ("find", &["home/u/w/x/..", "-name", "file"]),
        ("du", &["-a", "home/u/w", "shared"]),
        ("ls", &["-1R", "home/u/w", "other"]),
        ("stat", &["-c", "%n %i", "home/u/w/x/file", "shared/file"]),
    ] {
        let all = [&[tool], words].concat();
        if tool == "stat" {
            assert_eq!(site.run(&all).status.code(), Some(1), "{all:?}");
            let shown = sorted(&site.run(&all).stdout, b'\n');
            assert_eq!(shown, site.expected(tool, words));
            continue;
        }
        assert_eq!(site.done(&all), site.expected(tool, words), "{all:?}");
    }
    let count = "SELECT count(*) AS n FROM entries";
    let files = |found: Vec<String>| found.iter().filter(|path| path.ends_with("file")).count();
    let all = files(site.expected("find", &["home/u/w", "shared", "other"]));
    assert_eq!(site.done(&["sql", "--format", "csv", count]), [all.to_string(), "n".to_owned()]);
    let exported = site.done(&["export", "--format", "csv"]);
    assert_eq!(exported.iter().filter(|line| line.contains("/file,")).count(), all);
    let info = site.run(&["info"]).stdout;
    let info = String::from_utf8(info).unwrap();
    assert!(info.contains(".local/share/canopy/index") && info.contains("/shared: "), "{info}");
    let info: serde_json::Value =
        serde_json::from_slice(&site.run(&["info", "--json"]).stdout).unwrap();
    assert_eq!(info["sources"].as_array().unwrap().len(), 2);
    assert_eq!(info["own"]["sources"].as_array().unwrap().len(), 1);
    // Each has its own generations.
    for (path, generation) in [("home/u/w", 1), ("shared", 2)] {
        let report = site.run(&["report", "--json", path]).stdout;
        let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
        assert_eq!(report["generation"], generation, "{path}");
    }
    // Nobody else is concerned.
    let output = site.place.canopy(&site.place.path("site"), &["find".as_ref(), "/".as_ref()]);
    assert!(!String::from_utf8(output.stdout).unwrap().contains("home/u"));
    let named = site.place.path("site");
    let alone = ["--index", named.to_str().unwrap(), "find", "home/u/w"];
    assert_eq!(site.run(&alone).status.code(), Some(1));
}

/// An old index of one's own, or of the site, kept the other one from answering.
#[test]
fn an_index_that_cannot_be_opened_leaves_the_other_one_to_answer() {
    let site = Site::new();
    site.done(&["index", "home/u/w"]);
    let own = site.home.join(".local/share/canopy/index");
    let of_site = site.place.path("site");
    for (broken, whole, answered, lost) in
        [(&of_site, &own, "home/u/w", "shared"), (&own, &of_site, "shared", "home/u/w")]
    {
        let copy = site.place.path("copy");
        fs::create_dir_all(&copy).unwrap();
        for name in ["CURRENT", "CURRENT.copy"] {
            fs::copy(broken.join(name), copy.join(name)).unwrap();
            fs::write(broken.join(name), "of another time").unwrap();
        }
        let output = site.run(&["find", answered]);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(sorted(&output.stdout, b'\n'), site.expected("find", &[answered]), "{errors}");
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(broken.to_str().unwrap()), "{errors}");
        assert!(
            errors.ends_with(&format!("canopy: {} alone answers\n", whole.display())),
            "{errors}"
        );
        let query = ["sql", "--format=csv", "SELECT count(*) > 0 AS x FROM entries"];
        let output = site.run(&query);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "x\ntrue\n");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(site.run(&["find", lost]).status.code(), Some(1));
        for name in ["CURRENT", "CURRENT.copy"] {
            fs::write(broken.join(name), fs::read(copy.join(name)).unwrap()).unwrap();
        }
        site.done(&["find", answered]);
    }
}

#[test]
fn the_most_specific_source_answers_and_nothing_counts_twice() {
    let site = Site::new();
    site.done(&["index", "shared/of-u"]);
    fs::write(site.place.path("shared/of-u/new"), "").unwrap();
    let old = site.done(&["find", "shared/of-u"]);
    site.done(&["index", "shared/of-u"]);
    let new = site.done(&["find", "shared/of-u"]);
    assert_eq!(new, site.expected("find", &["shared/of-u"]));
    assert_eq!(new.len(), old.len() + 1);
    // From above, it is as the site has seen it.
    assert_eq!(site.done(&["find", "shared"]).len(), site.expected("find", &["shared"]).len() - 1);
    let query = "SELECT path FROM entries WHERE path LIKE '%/of-u/%'";
    assert_eq!(site.done(&["sql", "--format", "csv", query]).len(), 2);
    let exported = site.done(&["export", "--format", "csv"]);
    assert_eq!(exported.iter().filter(|line| line.contains("/of-u/")).count(), 1);
    // A source that both have is one's own.
    site.done(&["index", "other"]);
    fs::write(site.place.path("other/new"), "").unwrap();
    site.done(&["index", "other"]);
    assert_eq!(site.done(&["find", "other"]), site.expected("find", &["other"]));
    let query = "SELECT path FROM entries WHERE path LIKE '%/other/%'";
    assert_eq!(site.done(&["sql", "--format", "csv", query]).len(), 3);
}

/// A command line: options of find stand behind the paths.
fn line<'a>(tool: &'a str, options: &[&'a str], paths: &[&'a str]) -> Vec<&'a str> {
    match tool {
        "find" => [&[tool], paths, options].concat(),
        _ => [&[tool], options, paths].concat(),
    }
}

#[test]
fn a_path_above_sources_means_all_of_them() {
    let site = Site::new();
    site.done(&["index", "home/u/w"]);
    let here = ["./home/u/w", "./other", "./shared"];
    for (tool, options) in [
        ("find", &[][..]),
        ("find", &["-maxdepth", "1"]),
        ("du", &["-a"]),
        ("du", &["-s"]),
        ("ls", &["-1"]),
        ("ls", &["-d"]),
    ] {
        let expected = site.expected(tool, &line(tool, options, &here)[1..]);
        for above in [".", "./"] {
            assert_eq!(site.done(&line(tool, options, &[above])), expected, "{tool} {options:?}");
        }
    }
    let all = site.done(&["find", "/"]);
    let roots = here.map(|root| site.place.path(&root[2..]).display().to_string());
    assert_eq!(all, site.expected("find", &roots.each_ref().map(String::as_str)));
    let exported = |paths: &[&str]| site.done(&[&["export", "--format", "ndjson"], paths].concat());
    assert_eq!(exported(&["."]), exported(&here));
    // Only what lies below.
    assert_eq!(site.done(&["find", "home"]), site.expected("find", &["home/u/w"]));
    assert_eq!(site.run(&["find", "/proc"]).status.code(), Some(1));
}

#[test]
fn without_a_home_the_sites_index_answers() {
    let site = Site::new();
    let run = |arguments: &[&str]| {
        let mut command = site.command(site.place.canopy.as_os_str(), arguments);
        command.env_remove("HOME").output().unwrap()
    };
    let output = run(&["find", "shared"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sorted(&output.stdout, b'\n'), site.expected("find", &["shared"]));
    let output = run(&["index", "shared/of-u"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("name an index with --index"), "{error}");
    // The home of somebody else, as after setpriv(1).
    let closed = site.place.path("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = site.command(site.place.canopy.as_os_str(), &["find", "shared"]);
    let output = command.env("HOME", &closed).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(sorted(&output.stdout, b'\n'), site.expected("find", &["shared"]));
}

#[test]
fn hints_name_what_helps() {
    let site = Site::new();
    let error = |path: &str| {
        let output = site.run(&["stat", path]);
        assert_eq!(output.status.code(), Some(1), "{path}");
        String::from_utf8(output.stderr).unwrap()
    };
    symlink("shared/b", site.place.path("link")).unwrap();
    symlink("nowhere", site.place.path("broken")).unwrap();
    let shown = |path: &str| site.place.path(path).display().to_string();
    let home = error("home/u");
    assert!(home.contains(&format!("('canopy index {}' adds it)", shown("home/u"))), "{home}");
    let file = error("site.toml");
    let directory = Path::new(&shown("site.toml")).parent().unwrap().display().to_string();
    let hint = format!("('canopy index {directory}' adds the directory that it is in)");
    assert!(file.contains(&hint), "{file}");
    let link = error("link");
    assert!(link.contains(&format!("ask for {}/", shown("link"))), "{link}");
    assert_eq!(site.done(&["find", "link/"]), site.expected("find", &["link/"]));
    for (path, words) in [("nowhere", "nothing is there"), ("/", ""), ("broken", "")] {
        let error = error(path);
        assert!(error.contains("no index covers") && error.contains(words), "{error}");
        assert!(!error.contains("canopy index"), "{error}");
    }
}
