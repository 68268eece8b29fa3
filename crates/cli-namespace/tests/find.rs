//! `canopy ns find` against find(1) on a mount of the same namespace, which is bound to where the
//! tree was, so that all paths are the same. Needs root.

mod common;
#[path = "../../cli/tests/common/mod.rs"]
mod site;

use canopy_namespace::table_of;
use canopy_store::manifest::Hold;
use canopy_store::storage::LocalStorage;
use canopy_store::{Environment, inspect};
use common::{Mounted, ns, success};
use site::expressions::{LANGUAGE, WORDS};
use site::length::rounds;
use site::{assert_contents_first, assert_same, seeded, sorted, tree_for_all};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// A namespace that has a copy of a tree under the same path.
struct Trial {
    mounted: Mounted,
    tree: PathBuf,
    reference: PathBuf,
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mounted = Mounted::new();
        let (tree, reference) =
            (mounted.place.path().join("tree"), mounted.place.path().join("reference"));
        fs::write(&reference, "").unwrap();
        let past = std::time::SystemTime::now() - std::time::Duration::from_secs(86_400 * 400);
        fs::File::open(&reference).unwrap().set_modified(past).unwrap();
        tree_for_all(&tree, &mut seeded(seed));
        let inside = mounted.on.join(tree.strip_prefix("/").unwrap());
        fs::create_dir_all(&inside).unwrap();
        mounted.unmount();
        let mut import = ns("import");
        import.arg(&tree).arg(&mounted.namespace).arg("--into").arg(&tree).arg("--data");
        success(&import.output().unwrap());
        Trial { mounted, tree, reference }
    }

    /// Has the tree be what the namespace has of it.
    fn bind(&self) {
        self.mounted.mount(&[]);
        let inside = self.mounted.on.join(self.tree.strip_prefix("/").unwrap());
        let mut bind = Command::new("mount");
        success(&bind.arg("--bind").arg(inside).arg(&self.tree).output().unwrap());
    }

    fn release(&self) {
        success(&Command::new("umount").arg(&self.tree).output().unwrap());
        self.mounted.unmount();
    }

    fn words(&self, line: &str) -> Vec<OsString> {
        let tree = self.tree.to_str().unwrap();
        let word = |word: &str| match word {
            "REF" => self.reference.clone().into(),
            "1_day_ago" => "1 day ago".into(),
            word => word.replace("TREE", tree).into(),
        };
        line.split_whitespace().map(word).collect()
    }

    fn run(&self, mut command: Command, line: &str) -> Output {
        command.args(self.words(line)).current_dir("/").env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command.stdin(Stdio::null()).output().unwrap()
    }

    /// The output of find(1) for the tree where the namespace is mounted.
    fn expected(&self, line: &str) -> Output {
        let mut find = Command::new("find");
        find.arg(&self.tree);
        self.run(find, line)
    }

    fn shown(&self, line: &str) -> Output {
        let mut start = self.mounted.namespace.clone().into_os_string();
        start.push(":");
        start.push(&self.tree);
        let mut find = ns("find");
        find.arg(start);
        self.run(find, line)
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.tree).stderr(Stdio::null()).status();
    }
}

/// Whether an expression is for records: it runs no commands, and does not print the one fact that
/// a mount does not show.
fn is_for_records(line: &&&str) -> bool {
    !line.contains("-exec") && !line.contains("-samefile")
}

/// Lines in order, with one blank between words where columns widen as they go.
fn lines(output: &Output, line: &str) -> Vec<String> {
    let lines = sorted(&output.stdout, b'\n');
    let squeeze = |text: &String| Vec::from_iter(text.split_whitespace()).join(" ");
    let mut lines = match line.contains("-ls") {
        true => lines.iter().map(squeeze).collect(),
        false => lines,
    };
    // No dot matches the character by which foreign bytes are kept.
    lines.retain(|shown| !(line.contains("regex") && shown.contains("\\xf4\\x8f\\xbe")));
    lines.sort();
    lines
}

fn compare(expected: &Output, shown: &Output, line: &str, what: &str) {
    let said = String::from_utf8_lossy(&shown.stderr);
    let what = format!("{what} {line}: {said}");
    // find(1) puts tests into another order, so that it may miss loops of links.
    let loops = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("Too many");
    if loops(expected) == loops(shown) {
        let told = String::from_utf8_lossy(&expected.stderr);
        assert_eq!(shown.status.code(), expected.status.code(), "{what} {told}");
    } else {
        assert!(line.contains("-xtype"), "{what}");
    }
    let is_free = ["\\cnever", "/dev/stderr", "%y"].iter().any(|part| line.ends_with(part));
    match is_free || line.contains("/dev/stderr") || line.contains("\\cnever") {
        true => assert_eq!(shown.stdout.len(), expected.stdout.len(), "{what}"),
        false => assert_same(&lines(shown, line), &lines(expected, line), &what),
    }
}

/// No indexes, those that are default, and all that there are.
const INDEXES: [&[&str]; 3] = [
    &["--remove", "size,uid,gid,mtime,ext"],
    &["--add", "size,uid,gid,mtime,ext"],
    &["--add", "blocks,links,type,ctime,atime,btime,name,user.a,user.b"],
];

#[test]
fn expressions_mean_what_they_mean_to_find_with_any_indexes() {
    let seed = 4100;
    let trial = Trial::new(seed);
    let all = LANGUAGE.iter().chain(WORDS).filter(is_for_records);
    trial.bind();
    let expected: Vec<(&str, Output)> = all.map(|line| (*line, trial.expected(line))).collect();
    assert!(expected.len() > 150, "{}", expected.len());
    // Without any index, and without a mount, half of them each.
    let half = |at: usize, of: usize| rounds(at % 2 == of, true);
    for (number, indexes) in INDEXES.into_iter().enumerate() {
        let changed = ns("index").arg(&trial.mounted.on).args(indexes).output().unwrap();
        let _ = success(&changed);
        let built = || {
            let told = success(&ns("index").arg(&trial.mounted.on).output().unwrap());
            !told.contains('(')
        };
        common::wait_until("all indexes are built", built);
        let asked = expected.iter().enumerate().filter(|(at, _)| number > 0 || half(*at, 0));
        for (_, (line, expected)) in asked {
            compare(expected, &trial.shown(line), line, &format!("{seed} {indexes:?}"));
        }
    }
    trial.release();
    // The same without a mount, but for devices.
    for (_, (line, expected)) in expected.iter().enumerate().filter(|(at, _)| half(*at, 1)) {
        let is_the_same = !line.contains("%D") && !line.contains("-newerac");
        if is_the_same {
            compare(expected, &trial.shown(line), line, &format!("{seed} not mounted"));
        }
    }
}

#[test]
fn links_are_followed_as_find_follows_them() {
    let trial = Trial::new(4200);
    trial.bind();
    let lines =
        ["", "-type d", "-xtype l", "-xtype f", "-type l", "-name link*", "-printf %y%Y%p\\n"];
    for option in ["-H", "-L", "-P"] {
        for line in lines {
            let mut find = Command::new("find");
            find.arg(option).arg(&trial.tree);
            let expected = trial.run(find, line);
            let mut start = trial.mounted.namespace.clone().into_os_string();
            start.push(":");
            start.push(&trial.tree);
            let mut find = ns("find");
            find.arg(option).arg(start);
            compare(&expected, &trial.run(find, line), line, option);
        }
    }
}

#[test]
fn order_and_shape_are_what_is_asked_for() {
    let trial = Trial::new(4300);
    let paths = |line: &str| {
        let told = success(&trial.shown(line));
        Vec::from_iter(told.lines().map(str::to_owned))
    };
    assert_contents_first(&trial.shown("-depth -print0").stdout);
    let all = paths("");
    assert_eq!(paths("--count"), [all.len().to_string()]);
    let largest: Vec<u64> = paths("-type f --sort size --reverse -printf %s\\n")
        .iter()
        .map(|size| size.parse().unwrap())
        .collect();
    assert_eq!(paths("-type f --limit 1").len(), 1);
    assert!(largest.is_sorted_by(|one, other| one >= other) && largest.len() > 2);
    let list: serde_json::Value = serde_json::from_slice(&trial.shown("--json").stdout).unwrap();
    assert_eq!(list.as_array().unwrap().len(), all.len());
    assert_eq!(paths("--ndjson").len(), all.len());
    assert_eq!(trial.shown("--0").stdout.iter().filter(|byte| **byte == 0).count(), all.len());
}

/// Returns the message of a failed command: one line, and at most one more for a hint.
#[track_caller]
fn said(arguments: &[&Path], code: i32) -> String {
    let output = ns("find").args(arguments).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    let messages = said.lines().filter(|line| line.starts_with("canopy: ")).count();
    assert!(said.starts_with("canopy: ") && messages == 1, "{said}");
    assert!(said.lines().count() <= 2, "{said}");
    said
}

#[test]
fn impossible_searches_are_errors() {
    let mounted = Mounted::created();
    let (of, path) = (mounted.namespace.as_path(), Path::new);
    for action in ["-exec", "-ok", "-execdir"] {
        let said = said(&[of, path(action), path("echo"), path("{}"), path(";")], 1);
        assert!(said.contains("only where it is mounted"), "{said}");
    }
    assert!(said(&[of, path("-delete")], 1).contains("canopy find --live"));
    assert!(said(&[path("--live"), of], 1).contains("--live"));
    assert!(said(&[of, path("-nam"), path("x")], 1).contains("unknown predicate"));
    assert_eq!(
        said(&[of, path("--sum=\ncanopy: x")], 1),
        "canopy: unknown predicate `--sum=?canopy: x'\n--sum takes no value\n"
    );
    assert!(said(&[path("/nowhere/at/all")], 2).contains("no such directory"));
    let none = said(&[&mounted.on], 2);
    assert!(none.contains("there is no namespace"), "{none}");
    let missing = format!("{}:/gone", of.display());
    assert!(said(&[path(&missing)], 1).contains("No such file or directory"));
    let up = format!("{}:/..", of.display());
    assert!(said(&[path(&up)], 2).contains("'..'"));
    let other = Mounted::created();
    assert!(said(&[of, &other.namespace], 2).contains("two namespaces"));
}

#[test]
fn a_mounted_namespace_is_read_as_it_is_now() {
    let mounted = Mounted::new();
    for number in 0..50 {
        fs::write(mounted.path(format!("file{number}")), vec![b'x'; number * 200]).unwrap();
        // By the namespace, and by where it is mounted.
        for place in [&mounted.namespace, &mounted.on] {
            let mut find = ns("find");
            find.arg(place).args(["-type", "f", "-size", "+0", "--count"]);
            assert_eq!(success(&find.output().unwrap()), format!("{number}\n"));
        }
    }
    // What was kept for the searches was let go.
    let storage = Arc::new(LocalStorage::existing(&mounted.namespace).unwrap());
    let environment = Environment::system(storage);
    let table = table_of(environment.storage.as_ref()).unwrap();
    // Compactions keep what they replaced for a while, too, but not for long.
    let soon_ms = environment.clock.now_ms() + 3_600_000;
    let checkpoints = inspect(&environment, table).unwrap().state.checkpoints;
    let is_short = |hold| matches!(hold, Hold::Until(at_ms) if at_ms < soon_ms);
    assert!(checkpoints.iter().all(|one| is_short(one.hold)), "{checkpoints:?}");
    mounted.assert_sound();
}
