//! Every number of a report equals one computed from a live walk as the user who asks: random
//! trees, random credentials, and find(1) and du(1) run with the same credentials. Needs root.

use crate::common;
use crate::report_oracle;

use common::length::rounds;
use common::{Fixture, User, all_paths, random_tree, seeded};
use rand::RngExt;
use rand::rngs::StdRng;
use report_oracle::{Walk, assert_alike, hidden_paths, shown};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn numbers_are_those_of_a_live_walk_1() {
    cases(0..20);
}

#[test]
fn numbers_are_those_of_a_live_walk_2() {
    cases(20..40);
}

const ROOT: User = User { uid: 0, gid: 0, groups: Vec::new() };

/// Root and four users on each tree.
fn cases(seeds: std::ops::Range<u64>) {
    let mut place = Fixture::new();
    // CANOPY_SEED=7 repeats one tree alone, and keeps it for a look at what failed.
    let only: Option<u64> = std::env::var("CANOPY_SEED").ok().map(|seed| seed.parse().unwrap());
    place.dir.disable_cleanup(only.is_some());
    let seeds = seeds.filter(|&seed| only.is_none_or(|only| seed == only));
    for seed in seeds.take(rounds(8, 20)) {
        let mut random = seeded(seed + 5000);
        let tree = place.path(&format!("tree{seed}"));
        let index = place.path(&format!("index{seed}"));
        random_tree(&tree, &mut random, true);
        furnish(&tree, &mut random);
        place.index(&index, &tree);
        let paths = all_paths(&tree);
        let mut users = vec![ROOT];
        users.extend((0..4).map(|_| User::random(&mut random)));
        for user in users {
            let what = format!("seed {seed} {user:?}");
            let walk = Walk::of(&user, &tree);
            let report = json(&place, &index, &user, &tree, &["--top", "10000"]);
            assert_alike(&report, &walk.expected(&report, None), &what);
            walk.check_symlinks(&report, user.uid == 0, &what);
            let owner = common::UIDS[random.random_range(0..5)];
            let of_owner = json(
                &place,
                &index,
                &user,
                &tree,
                &["--top", "10000", "--user", &owner.to_string()],
            );
            assert_alike(
                &of_owner,
                &walk.expected(&of_owner, Some(owner)),
                &format!("{what} --user {owner}"),
            );
            quotas_are_those_of_the_walk(&place, &index, &user, &tree, &walk, owner);
            // Also from paths that nothing above them shows: those that one has to know.
            for _ in 0..2 {
                let start = &paths[random.random_range(0..paths.len())];
                below_start(&place, &index, &user, start, &what);
            }
            lists_are_cut(&place, &index, &user, &tree, &report);
            nothing_hidden_is_named(&place, &index, &user, &tree, &report);
        }
        if only.is_none() {
            fs::remove_dir_all(&tree).unwrap();
            fs::remove_dir_all(&index).unwrap();
        }
    }
}

fn quotas_are_those_of_the_walk(
    place: &Fixture,
    index: &Path,
    user: &User,
    tree: &Path,
    walk: &Walk,
    owner: u32,
) {
    let users = (1..).zip(common::UIDS).map(|(at, id)| ("user", id, at * 20_000, at * 3));
    let groups = (1..).zip(common::GIDS).map(|(at, id)| ("group", id, at * 30_000, at * 5));
    let mut limits: Vec<_> = users.chain(groups).collect();
    limits.sort_by_key(|limit| (limit.0 == "group", limit.1));
    let mut table = "group,user,bytes,files\n".to_owned();
    for (kind, id, bytes, inodes) in &limits {
        let id = if *kind == "user" { format!(",{id}") } else { format!("{id},") };
        table += &format!("{id},{bytes},{inodes}\n");
    }
    let file = place.path("limits.csv");
    fs::write(&file, table).unwrap();
    let options = ["--top", "10000", "--section", "quotas", "--limits", file.to_str().unwrap()];
    let all = json(place, index, user, tree, &options);
    assert_alike(&all, &walk.quotas(&limits, None), &format!("{user:?}"));
    let (owner_text, mut options) = (owner.to_string(), options.to_vec());
    options.extend(["--user", &owner_text]);
    let own = json(place, index, user, tree, &options);
    assert_alike(&own, &walk.quotas(&limits, Some(owner)), &format!("{user:?} --user {owner}"));
}

fn below_start(place: &Fixture, index: &Path, user: &User, start: &Path, what: &str) {
    let (output, errors) = report(place, index, user, start, &["--top", "10000", "--json"]);
    let what = format!("{what} {start:?}");
    if output.is_empty() {
        let known = ["not a directory", "or not for you to see", "Permission denied"];
        assert!(known.iter().any(|known| errors.contains(known)), "{what}: {errors}");
        return;
    }
    let walk = Walk::of(user, start);
    let report: Value = serde_json::from_slice(&output).unwrap();
    assert_alike(&report, &walk.expected(&report, None), &what);
    walk.check_symlinks(&report, user.uid == 0, &what);
}

/// Adds what random trees lack: links of all kinds, duplicates, siblings that are unlike each
/// other, odd permissions, ties.
fn furnish(tree: &Path, random: &mut StdRng) {
    let paths = all_paths(tree);
    let is_dir = |path: &&PathBuf| path.symlink_metadata().unwrap().is_dir();
    let dirs: Vec<&PathBuf> = paths.iter().filter(is_dir).collect();
    let any = |random: &mut StdRng| dirs[random.random_range(0..dirs.len())];
    for number in 0..random.random_range(0..8) {
        let path = any(random).join(if number % 2 == 0 { "same.dat" } else { "twin.tar.gz" });
        let _ = fs::write(&path, [0; 100]);
        let at = UNIX_EPOCH + Duration::from_secs(1_500_000_000 + number % 3);
        let times = fs::FileTimes::new().set_modified(at).set_accessed(at);
        fs::File::open(&path).unwrap().set_times(times).unwrap();
        lchown(&path, Some(common::UIDS[random.random_range(0..5)]), Some(common::GIDS[0]))
            .unwrap();
        let mode = [0o644, 0o666, 0o4755, 0o2755, 0o600][random.random_range(0..5)];
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let future = any(random).join("future\u{202e}.txt");
    fs::write(&future, b"x").unwrap();
    let later = SystemTime::now() + Duration::from_secs(90 * 86_400);
    fs::File::open(&future).unwrap().set_times(fs::FileTimes::new().set_modified(later)).unwrap();
    for number in 0..random.random_range(0..14) {
        let wide = any(random).join("wide");
        let _ = fs::create_dir(&wide);
        for sibling in 0..12 {
            let _ = fs::create_dir(wide.join(format!("s{sibling}")));
        }
        fs::write(wide.join("s3").join(format!("big{number}")), vec![1; 50_000]).unwrap();
    }
    links(tree, &paths, &dirs, random);
}

fn links(tree: &Path, paths: &[PathBuf], dirs: &[&PathBuf], random: &mut StdRng) {
    let name = tree.file_name().unwrap().to_str().unwrap();
    for number in 0..random.random_range(0..20) {
        let dir = dirs[random.random_range(0..dirs.len())];
        let to = &paths[random.random_range(0..paths.len())];
        let below = to.strip_prefix(tree).unwrap();
        let up = "../".repeat(dir.strip_prefix(tree).unwrap().components().count());
        let (kind, target) = match random.random_range(0..9) {
            0 => ("in", to.clone()),
            1 => ("in", Path::new(&format!("./{up}")).join(below)),
            2 => ("in", to.join("missing")),
            3 => ("in", Path::new(&format!("{up}../{name}")).join(below)),
            4 => ("in", PathBuf::from(format!("in{}", (number + 1) % 20))),
            5 => ("in", PathBuf::from(format!("in{number}"))),
            6 => ("in", PathBuf::from(format!("{}/../{up}", to.display()))),
            7 => ("in", PathBuf::from(format!("{}/", to.display()))),
            _ => ("out", PathBuf::from("/nonexistent/place")),
        };
        let _ = symlink(target, dir.join(format!("{kind}{number}")));
    }
}

fn canopy(place: &Fixture, index: &Path, user: &User, arguments: &[&OsStr]) -> (Vec<u8>, String) {
    let mut all = vec![OsStr::new("--index"), index.as_os_str()];
    all.extend(arguments);
    let output = user.run(place.canopy.as_os_str(), &all);
    (output.stdout, String::from_utf8(output.stderr).unwrap())
}

fn report(
    place: &Fixture,
    index: &Path,
    user: &User,
    path: &Path,
    options: &[&str],
) -> (Vec<u8>, String) {
    let mut arguments = vec![OsStr::new("report")];
    arguments.extend(options.iter().map(OsStr::new));
    arguments.push(path.as_os_str());
    canopy(place, index, user, &arguments)
}

fn json(place: &Fixture, index: &Path, user: &User, path: &Path, options: &[&str]) -> Value {
    let mut options = options.to_vec();
    options.push("--json");
    let (output, errors) = report(place, index, user, path, &options);
    serde_json::from_slice(&output).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

/// With few rows, lists are the beginnings of those with all rows, and sums stay.
fn lists_are_cut(place: &Fixture, index: &Path, user: &User, tree: &Path, whole: &Value) {
    for top in [0, 1, 3] {
        let cut = json(place, index, user, tree, &["--top", &top.to_string()]);
        compare_cut(&cut, whole, top, "");
    }
}

fn compare_cut(cut: &Value, whole: &Value, top: usize, at: &str) {
    match (cut, whole) {
        // Rows of fixed classes are not cut, and breakdowns say what the others have.
        (Value::Array(cut), Value::Array(whole))
            if !["/sizes/classes", "/types", "/paths"].contains(&at)
                && !at.ends_with("/modified")
                && !at.ends_with("/accessed") =>
        {
            // One path alone is not a duplicate.
            let least = if at == "/duplicates/largest/paths" { 2 } else { 0 };
            assert_eq!(cut.len(), top.max(least).min(whole.len()), "{at}");
            cut.iter().zip(whole).for_each(|(cut, whole)| compare_cut(cut, whole, top, at));
        }
        (Value::Object(cut), Value::Object(whole)) => {
            for (key, value) in
                cut.iter().filter(|(key, _)| !["top", "others", "rest"].contains(&key.as_str()))
            {
                compare_cut(value, &whole[key], top, &format!("{at}/{key}"));
            }
            if cut.contains_key("rest") {
                let sum = |rows: &Value| {
                    rows.as_array()
                        .unwrap()
                        .iter()
                        .map(|row| row["entries"].as_i64().unwrap())
                        .sum::<i64>()
                };
                assert_eq!(
                    sum(&cut["rows"]) + cut["rest"]["entries"].as_i64().unwrap(),
                    sum(&whole["rows"]),
                    "{at}"
                );
            }
        }
        _ => assert_eq!(cut, whole, "{at}"),
    }
}

/// Neither JSON nor the page nor text has the path of anything that the user's own walk does not
/// show.
fn nothing_hidden_is_named(
    place: &Fixture,
    index: &Path,
    user: &User,
    tree: &Path,
    report_json: &Value,
) {
    let hidden = hidden_paths(user, tree);
    let mut texts = Vec::new();
    strings(report_json, &mut texts);
    let (page, _) = report(place, index, user, tree, &["--top", "10000", "--html"]);
    let page = String::from_utf8(page).unwrap();
    let page = page
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&#39;", "'");
    let page = page.replace("&amp;", "&");
    let (text, _) = report(place, index, user, tree, &["--top", "10000"]);
    let text = String::from_utf8(text).unwrap();
    for path in hidden {
        let escaped = canopy_model::escape(path.as_os_str().as_bytes()).into_owned();
        assert!(!texts.contains(&escaped), "{user:?} {path:?} in JSON");
        let shown = shown(&escaped);
        // The target of a link may be a path that its reader cannot see; then it is not in the
        // column of paths.
        assert!(
            !page.contains(&format!("<td class=\"name\">{shown}</td>")),
            "{user:?} {path:?} in the page"
        );
        assert!(
            !text.lines().any(|line| line.ends_with(&format!(" {shown}"))),
            "{user:?} {path:?} in text"
        );
    }
}

/// All strings of a value but targets of links.
fn strings(value: &Value, all: &mut Vec<String>) {
    match value {
        Value::String(text) => all.push(text.clone()),
        Value::Array(values) => values.iter().for_each(|value| strings(value, all)),
        Value::Object(values) => {
            values
                .iter()
                .filter(|(key, _)| *key != "target")
                .for_each(|(_, value)| strings(value, all));
        }
        _ => {}
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn sections_sources_and_wrong_input() {
    let place = Fixture::new();
    let index = place.path("index");
    for (name, bytes) in [("one", 1000), ("two", 30)] {
        let tree = place.path(name);
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join(format!("{name}.dat")), vec![1; bytes]).unwrap();
        place.index(&index, &tree);
    }
    let (one, two) = (place.path("one"), place.path("two"));
    let run = |arguments: &[&OsStr]| canopy(&place, &index, &ROOT, arguments);
    let parsed =
        |arguments: &[&OsStr]| -> Value { serde_json::from_slice(&run(arguments).0).unwrap() };
    let os = OsStr::new;

    // Without a path, the working directory is '/', which no source covers: all sources.
    let all = parsed(&[os("report"), os("--json")]);
    assert_eq!(all["paths"].as_array().unwrap().len(), 2);
    assert_eq!((&all["totals"]["files"], &all["totals"]["directories"]), (&2.into(), &2.into()));
    // Into a file: the same, and nothing on standard output.
    let file = place.path("report.json");
    let shown = run(&[os("report"), os("--json"), os("--output"), file.as_os_str()]).0;
    assert!(shown.is_empty());
    assert_eq!(serde_json::from_slice::<Value>(&fs::read(&file).unwrap()).unwrap(), all);
    // Two paths, one of them twice, and one below another.
    let both =
        parsed(&[os("report"), os("--json"), one.as_os_str(), two.as_os_str(), one.as_os_str()]);
    assert_eq!(both["totals"], all["totals"]);
    assert_eq!(both["largest"], all["largest"]);

    let some = parsed(&[
        os("report"),
        os("--json"),
        os("--section"),
        os("totals,largest"),
        one.as_os_str(),
    ]);
    let keys: Vec<&String> = some.as_object().unwrap().keys().collect();
    let expected = [
        "asked_by",
        "generation",
        "largest",
        "owner",
        "paths",
        "problems",
        "published",
        "published_ns",
        "top",
        "totals",
    ];
    assert_eq!(
        {
            let mut keys = keys;
            keys.sort();
            keys
        },
        expected.iter().collect::<Vec<_>>()
    );
    let top = parsed(&[os("top"), os("largest"), os("--json"), one.as_os_str()]);
    assert_eq!(top["largest"], some["largest"]);
    let mine = parsed(&[os("top"), os("largest"), os("--mine"), os("-n"), os("1"), os("--json")]);
    assert_eq!(mine["largest"].as_array().unwrap().len(), 1);
    let (text, _) = run(&[os("top"), os("users"), os("--ascii"), two.as_os_str()]);
    assert!(String::from_utf8(text).unwrap().contains("root ####"));

    let limits = place.path("limits.csv");
    fs::write(&limits, "user,bytes\n0,1G\n").unwrap();
    for (arguments, message) in [
        (vec![os("report"), os("--user"), os("nobody-of-this-name")], "no such user"),
        (vec![os("report"), os("--section"), os("colours")], "no such section"),
        (vec![os("report"), os("--section"), os("quotas")], "--limits"),
        (vec![os("report"), os("--limits"), one.join("one.dat").as_os_str()], "line 1: no column"),
        (vec![os("report"), os("--limits"), os("/nonexistent")], "cannot use the limits"),
        (vec![os("report"), os("--limits"), os("/dev/zero")], "it has more than 16 MiB"),
        (
            vec![os("report"), os("--limits"), limits.as_os_str(), os("--section"), os("totals")],
            "--limits is for the section quotas",
        ),
        (vec![os("report"), os("--top"), os("100000000000")], "10000"),
        (vec![os("report"), os("/elsewhere")], "no index covers"),
        (vec![os("report"), one.join("gone").as_os_str()], "No such file"),
        (vec![os("report"), one.join("one.dat").as_os_str()], "not a directory"),
        (vec![os("top"), os("nonsense")], "invalid value"),
    ] {
        let (output, errors) = run(&arguments);
        assert!(errors.contains(message) && output.is_empty(), "{arguments:?}: {errors}");
    }
    // What cannot be answered does not keep the rest from being answered.
    let (output, errors) = run(&[os("report"), os("--json"), os("/elsewhere"), one.as_os_str()]);
    assert!(errors.contains("no index covers") && !output.is_empty());
}

#[test]
#[expect(clippy::too_many_lines, reason = "one course of steps")]
fn nothing_is_written_through_what_others_planted() {
    let place = Fixture::new();
    let (index, tree, directory) = (place.path("index"), place.path("tree"), place.path("csv"));
    for made in [&tree, &directory] {
        fs::create_dir(made).unwrap();
    }
    place.index(&index, &tree);
    let victim = place.path("victim");
    fs::write(&victim, "precious").unwrap();
    let planted = |name: &str| directory.join(name);
    let pipe = |path: &Path| nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink(&victim, planted("totals.csv")).unwrap();
    fs::hard_link(&victim, planted("users.csv")).unwrap();
    pipe(&planted("groups.csv"));
    fs::write(planted("types.csv"), "old").unwrap();
    fs::set_permissions(planted("types.csv"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(planted("ages.csv"), "old").unwrap();
    fs::set_permissions(planted("ages.csv"), fs::Permissions::from_mode(0o666)).unwrap();
    lchown(planted("ages.csv"), Some(2001), Some(3001)).unwrap();
    let write = |to: &Path| {
        let sections = ["--csv", "--section", "totals,users,groups,types,ages", "-o"];
        report(&place, &index, &ROOT, &tree, &[&sections[..], &[to.to_str().unwrap()]].concat()).1
    };
    assert_eq!(write(&directory), "");
    for name in ["totals.csv", "users.csv", "groups.csv", "types.csv", "ages.csv"] {
        let about = planted(name).symlink_metadata().unwrap();
        assert!(about.is_file() && about.nlink() == 1 && about.uid() == 0, "{name}");
        assert!(about.len() > 3 && about.mode() & 0o022 == 0, "{name}");
    }
    assert_eq!(planted("types.csv").metadata().unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 5);
    assert_eq!(fs::read(&victim).unwrap(), b"precious");

    // Directories that are not the caller's.
    let link = place.path("link");
    symlink(&directory, &link).unwrap();
    let slash = place.path("link/");
    assert!(write(&link).contains("it is not a directory, or a link to one"));
    assert!(write(&slash).contains("it is not a directory, or a link to one"));
    lchown(&directory, Some(2001), Some(3001)).unwrap();
    assert!(write(&directory).contains("it belongs to uid 2001"));
    lchown(&directory, Some(0), Some(0)).unwrap();
    for (mode, message) in [(0o777, "everybody may change it"), (0o1777, "")] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
        let errors = write(&directory);
        assert!(errors.contains(message) && errors.is_empty() == message.is_empty(), "{errors}");
    }
    assert_eq!(write(&place.path("new/deep")), "");
    assert!(place.path("new/deep/totals.csv").is_file());

    // Single files.
    let write = |to: &Path| {
        let (output, errors) =
            report(&place, &index, &ROOT, &tree, &["--html", "--output", to.to_str().unwrap()]);
        assert!(output.is_empty());
        errors
    };
    let hard = place.path("hard.html");
    fs::hard_link(&victim, &hard).unwrap();
    assert_eq!(write(&hard), "");
    assert!(fs::read_to_string(&hard).unwrap().ends_with("</html>\n"));
    for name in ["soft.html", "pipe.html"] {
        let path = place.path(name);
        if name == "soft.html" {
            symlink(&victim, &path).unwrap()
        } else {
            pipe(&path)
        }
        lchown(&path, Some(2001), Some(3001)).unwrap();
        assert!(write(&path).contains("what is there belongs to uid 2001"), "{name}");
    }
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
    assert_eq!(write(Path::new("/dev/null")), "");
    // One's own link is followed.
    lchown(place.path("soft.html"), Some(0), Some(0)).unwrap();
    assert_eq!(write(&place.path("soft.html")), "");
    assert!(fs::read_to_string(&victim).unwrap().ends_with("</html>\n"));
}

#[test]
fn the_last_runs_problems_and_the_age_stand_at_the_top() {
    let place = Fixture::new();
    let (index, tree, other) = (place.path("index"), place.path("tree"), place.path("other"));
    for tree in [&tree, &other] {
        fs::create_dir(tree).unwrap();
        place.index(&index, tree);
    }
    fs::rename(&tree, place.path("moved")).unwrap();
    let run = canopy(&place, &index, &ROOT, &["index".as_ref(), tree.as_os_str()]);
    assert!(!run.1.is_empty());
    let text = |user: &User, path: &Path, more: &str| {
        let options = ["--section", "totals", more];
        String::from_utf8(report(&place, &index, user, path, &options).0).unwrap()
    };
    let lines = text(&ROOT, &tree, "--ascii");
    let lines: Vec<&str> = lines.lines().collect();
    let root = tree.display();
    assert!(lines[0].starts_with(&format!("Report of {root}, scanned ")), "{lines:?}");
    assert!(lines[0].ends_with(" ago)"), "{lines:?}");
    assert!(
        lines[2].starts_with(&format!("Problem: {root} could not be scanned since ")),
        "{lines:?}"
    );
    let page = text(&ROOT, &tree, "--html");
    assert!(page.contains(&format!("<p class=\"problem\">{root} could not be scanned")), "{page}");
    let report: Value = serde_json::from_str(&text(&ROOT, &tree, "--json")).unwrap();
    assert_eq!(report["problems"][0]["root"], root.to_string());
    assert_eq!(report["problems"][0]["published"], false);
    // Of another source, and for those who may not know, there is none.
    assert!(!text(&ROOT, &other, "--ascii").contains("Problem"));
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    assert!(!text(&user, &tree, "--ascii").contains("Problem"));
}

#[test]
fn a_user_who_sees_nothing_gets_an_empty_report() {
    let place = Fixture::new();
    let (index, tree) = (place.path("index"), place.path("tree"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("secret.dat"), b"x").unwrap();
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o700)).unwrap();
    place.index(&index, &tree);
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    for options in [vec!["--json"], vec!["--html"], vec![]] {
        let mut arguments = vec![OsStr::new("report")];
        arguments.extend(options.iter().map(OsStr::new));
        let (output, errors) = canopy(&place, &index, &user, &arguments);
        let output = String::from_utf8(output).unwrap();
        assert!(!output.is_empty() && errors.is_empty(), "{options:?}: {errors}");
        assert!(!output.contains("secret"), "{output}");
    }
}

#[test]
fn names_are_text_in_a_page() {
    let place = Fixture::new();
    let (index, tree) = (place.path("index"), place.path("<i>tree & \"more\""));
    fs::create_dir(&tree).unwrap();
    let names: [&[u8]; 6] = [
        b"<script>alert(1)<",
        b"'\"><img src=x onerror=alert(1)>",
        b"line\nend\x1b[31m",
        "gnp.\u{202e}exe".as_bytes(),
        b"\xff\xfe",
        b"&lt;b&gt;",
    ];
    for (size, name) in names.into_iter().enumerate() {
        fs::write(tree.join(OsStr::from_bytes(name)), vec![1; size + 1]).unwrap();
    }
    place.index(&index, &tree);
    let (page, _) = report(&place, &index, &ROOT, &tree, &["--html"]);
    let page = String::from_utf8(page).unwrap();
    // Its own script, and no other.
    let (page, script) = page.split_once("<script>").unwrap();
    assert!(script.starts_with("// Sorts a table") && script.matches("</script>").count() == 1);
    for tag in ["<script", "<img", "<i>", "\u{1b}", "\u{202e}"] {
        assert!(!page.contains(tag), "{tag:?}");
    }
    for text in [
        "&lt;script&gt;alert(1)&lt;",
        "&#39;&quot;&gt;&lt;img src=x onerror=alert(1)&gt;",
        "line\\nend\\x1b[31m",
        "gnp.\\u{202e}exe",
        "\\xff\\xfe",
        "&amp;lt;b&amp;gt;",
        "/&lt;i&gt;tree &amp; &quot;more&quot;",
    ] {
        assert!(page.contains(text), "{text}");
    }
    assert!(!page.contains("http://") && !page.contains("https://"), "nothing from elsewhere");
}

#[test]
fn the_page_names_the_hash_of_its_script() {
    let place = Fixture::new();
    let (index, tree) = (place.path("index"), place.path("tree"));
    fs::create_dir(&tree).unwrap();
    place.index(&index, &tree);
    let page = String::from_utf8(report(&place, &index, &ROOT, &tree, &["--html"]).0).unwrap();
    let between = |from: &str, to: &str| {
        page.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned()
    };
    let file = place.path("script");
    fs::write(&file, between("<script>", "</script>")).unwrap();
    // Base64 has no tool of its own here but base64(1), and bytes of a sum are in hexadecimal.
    let sum = ROOT.run("sha256sum".as_ref(), &[file.as_os_str()]).stdout;
    let sum = String::from_utf8(sum).unwrap();
    let bytes: Vec<u8> =
        (0..64).step_by(2).map(|at| u8::from_str_radix(&sum[at..at + 2], 16).unwrap()).collect();
    fs::write(&file, bytes).unwrap();
    let hash = ROOT.run("base64".as_ref(), &[file.as_os_str()]).stdout;
    let policy = between("script-src 'sha256-", "'");
    assert_eq!(policy, String::from_utf8(hash).unwrap().trim());
}

#[test]
fn every_section_is_csv_with_exact_numbers() {
    let place = Fixture::new();
    let (index, tree) = (place.path("index"), place.path("tree"));
    fs::create_dir(&tree).unwrap();
    for (name, bytes, uid) in [("a,b\"c.dat", 123_456, 2001), ("plain.dat", 1000, 2002)] {
        let path = tree.join(name);
        fs::write(&path, vec![1; bytes]).unwrap();
        // What it takes on disk is settled then.
        fs::File::open(&path).unwrap().sync_all().unwrap();
        lchown(&path, Some(uid), Some(3001)).unwrap();
    }
    symlink("=cmd()", tree.join("link")).unwrap();
    place.index(&index, &tree);
    let csv = |section: &str, more: &[&str]| {
        let mut options = vec!["--csv", "--section", section];
        options.extend(more);
        String::from_utf8(report(&place, &index, &ROOT, &tree, &options).0).unwrap()
    };
    let root = tree.display();
    let largest = csv("largest", &["--top", "1"]);
    let mut lines = largest.lines();
    assert_eq!(lines.next(), Some("size,on_disk,modified,user,path"));
    let line = lines.next().unwrap();
    let file = std::fs::metadata(tree.join("a,b\"c.dat")).unwrap();
    assert!(line.starts_with(&format!("123456,{},", file.blocks() * 512)), "{line}");
    assert!(line.ends_with(&format!("Z,2001,\"{root}/a,b\"\"c.dat\"")), "{line}");
    let groups = csv("user_groups", &[]);
    assert!(groups.lines().any(|line| line.ends_with(",2002")), "{groups}");
    assert!(csv("user_ages", &[]).contains("Since the last modification,123456,2001\n"));
    // Broken, and no formula.
    let links = csv("symlinks", &[]);
    assert!(links.contains(&format!("Broken,,,'=cmd(),{root}/link\n")), "{links}");
    let all = place.path("sections");
    let options = ["--csv", "--output", all.to_str().unwrap()];
    let (shown, errors) = report(&place, &index, &ROOT, &tree, &options);
    assert!(shown.is_empty() && errors.is_empty(), "{errors}");
    let names = json(&place, &index, &ROOT, &tree, &[]);
    let known = [
        "generation",
        "published",
        "published_ns",
        "asked_by",
        "owner",
        "top",
        "paths",
        "problems",
    ];
    let names = names.as_object().unwrap().keys().filter(|key| !known.contains(&key.as_str()));
    for name in names {
        let file = fs::read_to_string(all.join(format!("{name}.csv"))).unwrap();
        assert_eq!(file, csv(name, &[]), "{name}");
    }
    let (shown, errors) = report(&place, &index, &ROOT, &tree, &["--csv"]);
    assert!(shown.is_empty() && errors.contains("--section"), "{errors}");
}
