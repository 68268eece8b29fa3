//! Options of du that GNU's lacks: sums by owner, extension and age, order, JSON. Expected figures
//! come from the live tree.

use crate::place::{Site, words};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(site: &Site, dir: &Path, line: &str) -> String {
    let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
    let [_, shown] = site.run(None, dir, "du", &words, &[]);
    assert!(shown.status.success(), "{line}: {}", String::from_utf8_lossy(&shown.stderr));
    String::from_utf8_lossy(&shown.stdout).into_owned()
}

/// All entries of a tree that are not directories.
fn entries(tree: &Path) -> Vec<(PathBuf, std::fs::Metadata)> {
    let paths = crate::common::all_paths(tree).into_iter();
    let found = paths.map(|path| (path.clone(), path.symlink_metadata().unwrap()));
    found.filter(|(_, metadata)| !metadata.is_dir()).collect()
}

fn sums(
    tree: &Path,
    key: impl Fn(&Path, &std::fs::Metadata) -> String,
    size: impl Fn(&std::fs::Metadata) -> u64,
) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (path, metadata) in entries(tree) {
        *sums.entry(key(&path, &metadata)).or_default() += size(&metadata);
    }
    sums
}

/// Lines of size, key and path, as sizes by key; they must come with the largest first.
fn shown(text: &str) -> BTreeMap<String, u64> {
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.splitn(3, '\t').collect()).collect();
    let sizes: Vec<u64> = lines.iter().map(|line| line[0].parse().unwrap()).collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b), "{text}");
    assert!(lines.iter().all(|line| line[2] == "."), "{text}");
    lines.iter().zip(sizes).map(|(line, size)| (line[1].to_owned(), size)).collect()
}

#[test]
fn du_by_owner_adds_up_every_name() {
    let site = Site::new();
    let user = |uid: u32| {
        nix::unistd::User::from_uid(uid.into()).unwrap().map_or(uid.to_string(), |user| user.name)
    };
    let group = |gid: u32| {
        nix::unistd::Group::from_gid(gid.into())
            .unwrap()
            .map_or(gid.to_string(), |group| group.name)
    };
    for tree in [&site.tree, &site.linked] {
        let by_user = sums(tree, |_, m| user(m.uid()), |m| m.blocks() * 512);
        assert_eq!(shown(&run(&site, tree, "--by user -B1")), by_user);
        let by_group = sums(tree, |_, m| group(m.gid()), MetadataExt::size);
        assert_eq!(shown(&run(&site, tree, "--by=group -b")), by_group);
        let counts = sums(tree, |_, m| user(m.uid()), |_| 1);
        assert_eq!(shown(&run(&site, tree, "--by user --inodes")), counts);
    }
}

#[test]
fn du_by_extension_and_age_adds_up_sizes() {
    let site = Site::new();
    let extension = |path: &Path, _: &std::fs::Metadata| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        match name.rsplit_once('.') {
            Some((stem, end)) if !stem.is_empty() && !end.is_empty() => format!(".{end}"),
            _ => "(none)".to_owned(),
        }
    };
    let expected = sums(&site.tree, extension, MetadataExt::size);
    assert_eq!(shown(&run(&site, &site.tree, "--by extension -B1")), expected);
    assert!(expected.contains_key(".PNG"));
    let counts = sums(&site.tree, extension, |_| 1);
    assert_eq!(shown(&run(&site, &site.tree, "--by ext --inodes")), counts);
    // Months before that of the scan, which was just now.
    let month = |seconds: i64| {
        let output = std::process::Command::new("date")
            .args(["-u", "+%Y %m", "-d", &format!("@{seconds}")])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let (year, month) = text.trim().split_once(' ').unwrap();
        year.parse::<i64>().unwrap() * 12 + month.parse::<i64>().unwrap()
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
        as i64;
    let this = month(now);
    let age = |_: &Path, metadata: &std::fs::Metadata| {
        let label = match this - month(metadata.mtime()) {
            ..0 => "in the future",
            0 => "this month",
            1 => "1 month",
            2 => "2 months",
            3..6 => "3-5 months",
            6..12 => "6-11 months",
            12..24 => "1 year",
            24..36 => "2 years",
            36..60 => "3-4 years",
            60..120 => "5-9 years",
            _ => "10 years and more",
        };
        label.to_owned()
    };
    assert_eq!(
        shown(&run(&site, &site.tree, "--by age -b")),
        sums(&site.tree, age, MetadataExt::size)
    );
    // Of a file and of a directory within.
    assert_eq!(
        run(&site, &site.tree, "--by ext -b sub/deeper/deepest/file.txt"),
        "70000\t.txt\tsub/deeper/deepest/file.txt\n"
    );
    assert_eq!(
        run(&site, &site.tree, "--by ext -b --top 1 sub/deeper"),
        "70000\t.txt\tsub/deeper\n"
    );
}

#[test]
fn du_sorts_and_cuts_off() {
    let site = Site::new();
    let all = run(&site, &site.tree, "-ab sub");
    let mut lines: Vec<(u64, &str)> = all
        .lines()
        .map(|line| line.split_once('\t').unwrap())
        .map(|(size, path)| (size.parse().unwrap(), path))
        .collect();
    lines.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.as_bytes().cmp(b.1.as_bytes())));
    let text = |lines: &[(u64, &str)]| {
        lines.iter().map(|(size, path)| format!("{size}\t{path}\n")).collect::<String>()
    };
    let by_size = run(&site, &site.tree, "-ab --sort size sub");
    let sizes: Vec<&str> = by_size.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(sizes, lines.iter().map(|line| line.0.to_string()).collect::<Vec<_>>());
    assert_eq!(run(&site, &site.tree, "-ab --top=2 sub"), text(&lines[..2]));
    assert_eq!(run(&site, &site.tree, "-ab --top=0 sub"), "");
    lines.sort_by_key(|line| line.1.to_owned());
    assert_eq!(
        run(&site, &site.tree, "--sort name -d1 -b open\\sdir sub")
            .lines()
            .next()
            .unwrap()
            .split('\t')
            .nth(1),
        Some("open dir")
    );
    assert_eq!(run(&site, &site.tree, "-b --top 1 -c sub empty").lines().count(), 2);
}

#[test]
fn du_prints_json() {
    let site = Site::new();
    let json: serde_json::Value =
        serde_json::from_str(&run(&site, &site.tree, "-ab --json --time -c sub")).unwrap();
    let lines = run(&site, &site.tree, "-ab -0 sub");
    let lines: Vec<(&str, &str)> =
        lines.split_terminator('\0').map(|line| line.split_once('\t').unwrap()).collect();
    let rows = json.as_array().unwrap();
    assert_eq!(rows.len(), lines.len() + 1);
    for (row, (size, path)) in rows.iter().zip(lines) {
        assert_eq!(row["bytes"].to_string(), size);
        // A byte that is not UTF-8 is one character of a private range.
        if !path.contains('\u{fffd}') {
            assert_eq!(row["path"], path);
        }
        assert!(row["time"].as_str().unwrap().contains(" +0000"));
    }
    assert_eq!(rows.last().unwrap()["total"], true);
    let json: serde_json::Value =
        serde_json::from_str(&run(&site, &site.tree, "--inodes -s --json sub")).unwrap();
    assert_eq!(json[0]["path"], "sub");
    assert!(json[0]["inodes"].as_i64().unwrap() > 5 && json[0].get("bytes").is_none());
    let json: serde_json::Value =
        serde_json::from_str(&run(&site, &site.tree, "--by user --json")).unwrap();
    assert!(json.as_array().unwrap().iter().any(|row| row["key"] == "root"));
    assert_eq!(run(&site, &site.tree, "-s --json -t 1P"), "[]\n");
}

#[test]
fn options_that_only_gnus_tools_have_are_refused_by_their_names() {
    let site = Site::new();
    for option in ["--file-system", "-f", "--file"] {
        let mut command = Command::new(&site.place.canopy);
        command.arg("--index").arg(&site.index).args(["stat", "plain", option]);
        let output = command.current_dir(&site.tree).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{option}: {said}");
        assert!(output.stdout.is_empty(), "{option}");
        assert!(said.contains("canopy stat has no --"), "{option}: {said}");
        assert!(said.contains("docs/differences.md"), "{option}: {said}");
    }
    let help = Command::new(&site.place.canopy).args(["stat", "--help"]).output().unwrap();
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    assert!(!help.contains("--file-system"), "{help}");
}

#[test]
fn du_draws_a_tree() {
    let site = Site::new();
    let tree = site.place.path("drawn");
    for (path, size) in [("a/x", 3000), ("a/b/y", 6000), ("c/z", 1000), ("c/d/e/w", 1500)] {
        let path = tree.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; size]).unwrap();
    }
    site.place.index(&site.index, &tree);
    let drawn = |line: &str, locale: &str| {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [_, shown] = site.run(None, &site.place.path(""), "du", &words, &[("LC_ALL", locale)]);
        assert!(shown.status.success(), "{line}: {shown:?}");
        String::from_utf8(shown.stdout).unwrap()
    };
    // Without what directories take by themselves, which is up to the file system.
    let names = |text: &str| {
        let name = |line: &str| line.split_once("% ").unwrap().1.to_owned();
        text.lines().map(name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(&drawn("--tree -a --apparent-size drawn", "C.UTF-8")),
        ["drawn", "├─ a", "│  ├─ b", "│  └─ x", "└─ c", "   ├─ d", "   └─ z"]
    );
    assert_eq!(
        names(&drawn("--tree -d9 --inodes drawn", "C")),
        ["drawn", "|- c", "|  `- d", "|     `- e", "`- a", "   `- b"]
    );
    assert_eq!(names(&drawn("--tree --top 1 -ab -d1 drawn", "C"))[1..], ["|- a", "`- (1 other)"]);
    assert_eq!(names(&drawn("--tree -s drawn/a drawn/c", "C")), ["drawn/a", "drawn/c"]);
    let all = drawn("--tree --inodes drawn", "C.UTF-8");
    assert!(all.starts_with(&format!("10 {}  100% drawn\n", "█".repeat(20))), "{all}");
    for line in ["--tree --json", "--tree --by user", "--tree -0", "--tree -S", "--tree --time"] {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [_, shown] = site.run(None, &tree, "du", &words, &[]);
        assert_eq!(shown.status.code(), Some(1), "{line}");
    }
}
