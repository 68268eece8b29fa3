//! Sources in sources: no path is in the index twice, and what was scanned last is shown; and
//! `canopy source`. Needs root.

use crate::common;

use common::length::rounds;
use common::{Fixture, User, all_paths, random_tree, random_xattrs, seeded};
use rand::RngExt;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

fn run(place: &Fixture, index: &Path, arguments: &[&str], code: i32) -> (String, String) {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    let output = place.canopy(index, &arguments);
    let (text, errors) = (output.stdout, output.stderr);
    let text = String::from_utf8_lossy(&text).into_owned();
    let errors = String::from_utf8_lossy(&errors).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}{errors}");
    (text, errors)
}

fn count(place: &Fixture, index: &Path, query: &str) -> i64 {
    run(place, index, &["sql", "--format", "csv", query], 0)
        .0
        .lines()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

fn roots(place: &Fixture, index: &Path) -> Vec<String> {
    let listed = run(place, index, &["source", "list", "--json"], 0).0;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let roots = listed.as_array().unwrap().iter();
    roots.map(|source| source["root"].as_str().unwrap().to_owned()).collect()
}

/// The entries of a tree, and of single paths that the user knows, that an index shows to a user.
fn answers(
    place: &Fixture,
    index: &Path,
    user: &User,
    tree: &Path,
    known: &[PathBuf],
) -> Vec<String> {
    let all = |arguments: &[&OsStr]| {
        let fixed = ["--index".as_ref(), index.as_os_str()];
        let Output { status, stdout, .. } =
            user.run(place.canopy.as_os_str(), &[&fixed, arguments].concat());
        let code = status.code().unwrap();
        let mut lines = common::sorted(&stdout, b'\n');
        lines.push(format!("exit code {code} of {:?}", &arguments[..1]));
        lines
    };
    let tree = tree.as_os_str();
    let format = OsStr::new("%p %y %m %U %G %s %n %i %b %T@ %C@ %l\\n");
    let mut lines = all(&["find".as_ref(), tree, "-printf".as_ref(), format]);
    lines.extend(all(&["du".as_ref(), "-ab".as_ref(), tree]));
    lines.extend(all(&["du".as_ref(), "-s".as_ref(), tree]));
    lines.extend(all(&["export".as_ref(), "--format".as_ref(), "ndjson".as_ref(), tree]));
    let query = "SELECT * FROM xattrs";
    lines.extend(all(&["sql".as_ref(), "--format".as_ref(), "csv".as_ref(), query.as_ref()]));
    let query = "SELECT uid, count(*), sum(size), min(mtime) FROM entries GROUP BY uid";
    lines.extend(all(&["sql".as_ref(), "--format".as_ref(), "csv".as_ref(), query.as_ref()]));
    let mut arguments =
        vec![OsStr::new("stat"), "--printf".as_ref(), "%n %A %u %g %s %i %Y\\n".as_ref()];
    arguments.extend(known.iter().map(|path| path.as_os_str()));
    lines.extend(all(&arguments));
    let mut arguments = vec![OsStr::new("find")];
    arguments.extend(known.iter().map(|path| path.as_os_str()));
    arguments.extend(["-maxdepth", "1"].map(OsStr::new));
    lines.extend(all(&arguments));
    lines
}

/// A subtree of a source that is scanned later is shown to each user as if all had been scanned then,
/// also what only those find who know a name.
#[test]
fn a_subtree_that_is_scanned_later_takes_the_place_of_what_was_there() {
    let mut cut = 0;
    let seeds = rounds(6, 16);
    for seed in 0..seeds {
        let place = Fixture::new();
        let mut random = seeded(seed);
        let tree = place.path("tree");
        random_tree(&tree, &mut random, true);
        // A second random tree at a random place, behind whatever is there.
        let dirs: Vec<PathBuf> = all_paths(&tree)
            .into_iter()
            .filter(|path| path.is_dir() && !path.is_symlink())
            .collect();
        let inner = dirs[random.random_range(0..dirs.len())].join("inner");
        random_tree(&inner, &mut random, true);
        random_tree(&inner.join("changing"), &mut random, true);
        random_tree(&inner.join("going"), &mut random, true);
        // An inode with names on both sides.
        fs::write(inner.join("changing/linked"), "x").unwrap();
        fs::hard_link(inner.join("changing/linked"), tree.join("linked")).unwrap();
        let paths = all_paths(&tree);
        random_xattrs(&paths, &mut random);
        let (twice, whole) = (place.path("twice"), place.path("whole"));
        // So that the rest of the tree stays as it is, changes are two levels below the root of the subtree.
        place.index(&twice, &tree);
        let mut known = paths;
        random_tree(&inner.join("changing/new"), &mut random, true);
        for path in all_paths(&inner.join("going")).into_iter().rev() {
            let removed = match path.is_dir() && !path.is_symlink() {
                true if path.ends_with("going") => Ok(()),
                true => fs::remove_dir(&path),
                false => fs::remove_file(&path),
            };
            removed.unwrap();
        }
        known.extend(all_paths(&inner.join("changing")));
        known.sort();
        known.dedup();
        let again = || {
            let output = place.canopy(&twice, &["index".as_ref(), inner.as_os_str()]);
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(0), "{errors}");
            errors
        };
        let said = format!("lies in the source {} and was replaced there", tree.display());
        cut += usize::from(again().contains(&said));
        place.index(&whole, &tree);
        assert_eq!(roots(&place, &twice), [tree.to_str().unwrap()]);
        let users = [
            User { uid: 0, gid: 0, groups: Vec::new() },
            User { uid: 2001, gid: 3001, groups: vec![3002] },
            User { uid: 2002, gid: 3003, groups: Vec::new() },
            User { uid: 2999, gid: 2999, groups: Vec::new() },
        ];
        for user in &users {
            let shown = answers(&place, &twice, user, &tree, &known);
            let expected = answers(&place, &whole, user, &tree, &known);
            common::assert_same(&shown, &expected, &format!("seed {seed}, {user:?}"));
        }
        // Once more, with nothing changed.
        again();
        let shown = answers(&place, &twice, &users[0], &tree, &known);
        let expected = answers(&place, &whole, &users[0], &tree, &known);
        common::assert_same(&shown, &expected, &format!("seed {seed}, again"));
    }
    assert_eq!(cut as u64, seeds);
}

/// Makes `outer/inner` with a file each, two with the same content size, and some more.
fn nested(place: &Fixture) -> (PathBuf, PathBuf) {
    let outer = place.path("outer");
    let inner = outer.join("inner");
    fs::create_dir_all(inner.join("deep")).unwrap();
    for path in ["outer/a", "outer/inner/b", "outer/inner/deep/c"] {
        fs::write(place.path(path), vec![b'x'; 5000]).unwrap();
    }
    (outer, inner)
}

#[test]
fn sources_that_meet_become_one() {
    let place = Fixture::new();
    let (outer, inner) = nested(&place);
    let (o, i) = (outer.to_str().unwrap(), inner.to_str().unwrap());
    let entries = "SELECT count(*) FROM entries";
    for order in [vec![o, i], vec![i, o], vec![o, i, o], vec![i, o, i]] {
        let index = place.path(&format!("index-{}", order.len() + usize::from(order[0] == o)));
        let _ = fs::remove_dir_all(&index);
        for path in &order {
            run(&place, &index, &["index", path], 0);
        }
        assert_eq!(roots(&place, &index), [o], "{order:?}");
        assert_eq!(count(&place, &index, entries), 3, "{order:?}");
        // Also in one run.
        let together = place.path(&format!("together-{}", order.len()));
        let _ = fs::remove_dir_all(&together);
        run(&place, &together, &[&["index"], &order[..]].concat(), 0);
        assert_eq!(roots(&place, &together), [o], "{order:?}");
        assert_eq!(count(&place, &together, entries), 3, "{order:?}");
        let paths = "SELECT count(DISTINCT path) - count(*) FROM directories";
        assert_eq!(count(&place, &together, paths), 0, "{order:?}");
        let same = run(&place, &index, &["du", "-sb", o, i], 0).0;
        let oracle = std::process::Command::new("du").args(["-sb", o, i]).output().unwrap().stdout;
        assert_eq!(same, String::from_utf8(oracle).unwrap(), "{order:?}");
        let info: serde_json::Value =
            serde_json::from_str(&run(&place, &index, &["info", "--json"], 0).0).unwrap();
        assert_eq!(info["visible_entries"], 6, "{order:?}");
    }
    // The message of each.
    let index = place.path("messages");
    run(&place, &index, &["index", i], 0);
    let (_, errors) = run(&place, &index, &["index", o], 0);
    assert!(errors.contains(&format!("{i} is not a source of its own any more")), "{errors}");
    let (_, errors) = run(&place, &index, &["index", i], 0);
    assert!(errors.contains(&format!("{i} lies in the source {o}")), "{errors}");
    let (_, errors) = run(&place, &index, &["index", "--name", "x", i], 2);
    assert!(errors.contains("is replaced there; leave out --name"), "{errors}");
    // What was scanned later is shown: the outer one's change after the inner one's, and back.
    fs::write(inner.join("later"), "").unwrap();
    run(&place, &index, &["index", o], 0);
    assert_eq!(count(&place, &index, entries), 4);
    fs::remove_file(inner.join("later")).unwrap();
    run(&place, &index, &["index", i], 0);
    assert_eq!(count(&place, &index, entries), 3);
}

/// A source gets the name of one that it takes in, but not of one that it leaves out.
#[test]
fn a_source_takes_the_name_of_what_it_takes_in() {
    let place = Fixture::new();
    let index = place.path("index");
    let (outer, inner) = (place.path("outer"), place.path("outer/inner"));
    fs::create_dir_all(&inner).unwrap();
    let (outer, inner) = (outer.to_str().unwrap(), inner.to_str().unwrap());
    run(&place, &index, &["index", "--name", "data", inner], 0);
    let words = ["index", "--name", "data", outer];
    let (_, errors) = run(&place, &index, &[&words[..], &["--exclude", "inner"]].concat(), 2);
    assert!(errors.contains(&format!("'data' belongs to the source {inner}")), "{errors}");
    assert_eq!(roots(&place, &index), [inner]);
    run(&place, &index, &words, 0);
    assert_eq!(roots(&place, &index), [outer]);
    let listed = run(&place, &index, &["source", "list"], 0).0;
    assert!(listed.contains("data"), "{listed}");
}

#[test]
fn a_tree_that_the_source_around_it_leaves_out_is_a_source_of_its_own() {
    let place = Fixture::new();
    let (outer, inner) = nested(&place);
    let (o, i) = (outer.to_str().unwrap(), inner.to_str().unwrap());
    let index = place.path("index");
    let entries = "SELECT count(*) FROM entries";
    for _ in 0..2 {
        run(&place, &index, &["index", "--exclude", "inner", o], 0);
        run(&place, &index, &["index", i], 0);
        assert_eq!(roots(&place, &index), [o, i]);
        assert_eq!(count(&place, &index, entries), 3);
    }
    // Scanned with it again, it is absorbed.
    run(&place, &index, &["index", o], 0);
    assert_eq!(roots(&place, &index), [o]);
    assert_eq!(count(&place, &index, entries), 3);
    // A scan that fails takes nothing away.
    fs::rename(&inner, place.path("away")).unwrap();
    run(&place, &index, &["index", i], 2);
    assert_eq!(count(&place, &index, entries), 3);
}

/// The root of the inner source is in the listing of the outer one, and is one row all the same.
#[test]
fn a_mount_that_a_source_does_not_enter_is_a_source_of_its_own() {
    let place = Fixture::new();
    let outer = place.path("outer");
    fs::create_dir_all(&outer).unwrap();
    fs::write(outer.join("a"), "").unwrap();
    let inner = place.small_disk("outer/inner", "1m");
    fs::write(inner.0.join("b"), "").unwrap();
    let index = place.path("index");
    let (o, i) = (outer.to_str().unwrap(), inner.0.to_str().unwrap());
    for _ in 0..2 {
        run(&place, &index, &["index", "-x", o, i], 0);
        assert_eq!(roots(&place, &index), [o, i]);
        assert_eq!(count(&place, &index, "SELECT count(*) FROM entries"), 2);
        let twice = "SELECT count(*) - count(DISTINCT path) FROM directories";
        assert_eq!(count(&place, &index, twice), 0);
    }
    run(&place, &index, &["index", o], 0);
    assert_eq!(roots(&place, &index), [o]);
    assert_eq!(count(&place, &index, "SELECT count(*) FROM entries"), 2);
}

#[test]
fn sources_are_listed_removed_and_renamed() {
    let place = Fixture::new();
    let (outer, _) = nested(&place);
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("file"), "").unwrap();
    let index = place.path("index");
    let (o, x) = (outer.to_str().unwrap(), other.to_str().unwrap());
    run(&place, &index, &["index", o], 0);
    run(&place, &index, &["index", "--name", "mine", x], 0);
    let (text, _) = run(&place, &index, &["source", "list", "--threads", "1", "--verbose"], 0);
    assert!(text.contains(&format!("{x} (mine): scanned ")), "{text}");
    run(&place, &index, &["source", "rename", "mine", "yours"], 0);
    let (_, errors) = run(&place, &index, &["source", "rename", o, "yours"], 2);
    assert!(errors.contains("belongs to the source"), "{errors}");
    // Nor a path, under which another one would be found.
    let slash = format!("{x}/");
    for words in [&["source", "rename", o, x][..], &["index", "--name", &slash, o]] {
        let (_, errors) = run(&place, &index, words, 2);
        assert!(errors.contains("is not a name but a path"), "{errors}");
    }
    let (_, errors) = run(&place, &index, &["source", "remove", "mine"], 2);
    assert!(errors.contains("'canopy source list' names all"), "{errors}");
    assert!(run(&place, &index, &["source", "list"], 0).0.contains("(yours)"));
    // Also when the tree is gone, by name and by path.
    fs::rename(&outer, place.path("away")).unwrap();
    run(&place, &index, &["source", "remove", o], 0);
    assert_eq!(roots(&place, &index), [x]);
    assert_eq!(count(&place, &index, "SELECT count(*) FROM entries"), 1);
    run(&place, &index, &["source", "remove", "yours"], 0);
    assert_eq!(roots(&place, &index), Vec::<String>::new());
    assert!(other.join("file").exists());
    // Nobody but the writer.
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let arguments: Vec<OsString> =
        ["--index", index.to_str().unwrap(), "source", "remove", x].map(OsString::from).into();
    let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
    let output = user.run(place.canopy.as_os_str(), &arguments);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn sources_have_names_and_paths_with_slashes_at_their_ends() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    place.index(&index, &tree);
    let t = tree.to_str().unwrap();
    for words in [&["source", "rename", t, ""][..], &["index", "--name", "", t]] {
        run(&place, &index, words, 2);
        assert_eq!(roots(&place, &index), [t]);
    }
    fs::remove_dir(&tree).unwrap();
    run(&place, &index, &["source", "remove", &format!("{t}/")], 0);
    assert_eq!(roots(&place, &index), Vec::<String>::new());
}

#[test]
fn commands_take_effect_even_if_their_output_cannot_be_written() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    fs::create_dir(&tree).unwrap();
    let t = tree.to_str().unwrap();
    for words in [&["index", t][..], &["source", "rename", t, "called"]] {
        let mut command = std::process::Command::new(&place.canopy);
        command.arg("--index").arg(&index).args(words);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        let expected = "the work is done, but standard output cannot be written: No space left";
        assert!(said.contains(expected), "{words:?}: {said}");
    }
    assert!(run(&place, &index, &["source", "list"], 0).0.contains("(called)"));
}
