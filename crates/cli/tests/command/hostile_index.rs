//! Indexes that somebody made to do harm to whoever reads them: every command ends with one clear
//! error, soon, without a panic and in little memory. Needs root.

use crate::common;

use canopy_index::fuzzing::{forge, forge_document};
use common::{Fixture, all_paths, seeded};
use rand::RngExt;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Bytes of address space that a command gets: more than any needs here.
const MEMORY_BYTES: u64 = 4 << 30;

fn tree(place: &Fixture) -> PathBuf {
    let tree = place.path("tree");
    for dir in 0..12 {
        let path = tree.join(format!("dir{dir}/sub"));
        fs::create_dir_all(&path).unwrap();
        for file in 0..60 {
            let file = path.join(format!("file{file}.txt"));
            fs::write(&file, "x").unwrap();
            if dir == 3 {
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&file, "user.a", b"value", flags).unwrap();
            }
        }
        fs::hard_link(path.join("file1.txt"), path.join("again")).unwrap();
    }
    fs::set_permissions(tree.join("dir1"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(tree.join("dir2"), fs::Permissions::from_mode(0o700)).unwrap();
    chown(tree.join("dir2"), Some(2001), None).unwrap();
    tree
}

/// Commands that query an index.
fn questions(tree: &Path) -> Vec<Vec<String>> {
    let tree = tree.to_str().unwrap();
    let deep = format!("{tree}/dir1/sub");
    let questions = [
        vec!["find", tree, "-size", "+0"],
        vec!["du", "-a", tree],
        vec!["du", "-s", &deep],
        vec!["ls", "-lR", tree],
        vec!["stat", &deep],
        vec!["report", tree],
        vec!["export", "--format", "ndjson", tree],
        vec!["sql", "SELECT uid, count(*), sum(size), max(name) FROM entries GROUP BY uid"],
        vec!["info"],
    ];
    questions.map(|words| words.into_iter().map(str::to_owned).collect()).into()
}

fn ask(place: &Fixture, index: &Path, question: &[String]) -> Output {
    let limit = format!("--as={MEMORY_BYTES}");
    let mut command = Command::new("timeout");
    command.args(["20", "prlimit", &limit]).arg(&place.canopy).arg("--index").arg(index);
    command.args(question).output().unwrap()
}

/// Asserts that a command has ended with an answer or an error, and returns whether with an error.
fn ended(output: &Output, what: &str) -> bool {
    let errors = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code();
    assert!(matches!(code, Some(0..=2)), "{what}: {code:?}, {errors}");
    assert!(!errors.contains("panicked") && !errors.contains("RUST_BACKTRACE"), "{what}: {errors}");
    if code != Some(0) {
        assert!(errors.lines().count() <= 2 && !errors.is_empty(), "{what}: {errors}");
    }
    code != Some(0)
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().unwrap().success());
}

#[test]
fn other_files_than_plain_ones_are_refused_at_once() {
    let place = Fixture::new();
    let (tree, sound) = (tree(&place), place.path("sound"));
    place.index(&sound, &tree);
    let index = place.path("index");
    let everyone = fs::read_dir(sound.join("everyone")).unwrap();
    let mut names = everyone.map(|file| file.unwrap().file_name().into_string().unwrap());
    let listings = names.find(|name| name.ends_with("-listings.parquet")).unwrap();
    for name in ["CURRENT", "manifests-1.bin", &format!("everyone/{listings}")] {
        for kind in 0..4 {
            copy(&sound, &index);
            let path = index.join(name);
            fs::remove_file(&path).unwrap();
            match kind {
                0 => symlink("/dev/zero", &path).unwrap(),
                1 => nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap(),
                2 => fs::create_dir(&path).unwrap(),
                _ => fs::File::create(&path).unwrap().set_len(1 << 40).unwrap(),
            }
            let mut failed = 0;
            for question in questions(&tree) {
                let what = format!("{name}, kind {kind}, {question:?}");
                failed += usize::from(ended(&ask(&place, &index, &question), &what));
            }
            assert!(failed > 0, "{name}, kind {kind}");
        }
    }
}

#[test]
fn rows_that_do_not_exist_take_no_memory() {
    let place = Fixture::new();
    let (tree, sound) = (tree(&place), place.path("sound"));
    place.index(&sound, &tree);
    let index = place.path("index");
    for rows in [0, 1, 1 << 17, 1 << 24, (1 << 24) + 1, 1 << 32, 1 << 62, u64::MAX] {
        copy(&sound, &index);
        forge(&index, canopy_model::Generation(1), |known| *known = rows);
        for question in questions(&tree) {
            let what = format!("{rows} rows, {question:?}");
            let failed = ended(&ask(&place, &index, &question), &what);
            assert!(failed || question[0] == "info", "{what}");
        }
    }
}

/// Flips bits of documents and of files of shards, with checksums that fit.
#[test]
fn flipped_bits_with_checksums_that_fit_are_errors_or_other_answers() {
    let place = Fixture::new();
    let (tree, sound) = (tree(&place), place.path("sound"));
    place.index(&sound, &tree);
    let index = place.path("index");
    let mut random = seeded(11);
    let files: Vec<PathBuf> = all_paths(&sound)
        .into_iter()
        .filter(|path| path.extension().is_some_and(|end| end == "parquet"))
        .collect();
    let questions = questions(&tree);
    let mut failed = 0;
    for round in 0..240 {
        copy(&sound, &index);
        let target = match round % 4 {
            0 => sound.join("manifests-1.bin"),
            _ => files[random.random_range(0..files.len())].clone(),
        };
        let mut bytes = fs::read(&target).unwrap();
        let is_document = round % 4 == 0;
        // Behind the first line of a document; mostly in the footer and the indexes of a file.
        let first = if is_document { 40 } else { 0 };
        let tail = bytes.len().saturating_sub(if round % 4 == 1 { bytes.len() } else { 3000 });
        let from = if is_document { first } else { tail };
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(from..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
        }
        let changed = index.join(target.strip_prefix(&sound).unwrap());
        if is_document {
            bytes = forge_document(&bytes);
        }
        fs::write(&changed, &bytes).unwrap();
        if !is_document {
            forge(&index, canopy_model::Generation(1), |_| ());
        }
        let question = &questions[round % questions.len()];
        for question in [question, &questions[0], &questions[7]] {
            let what = format!("round {round}, {}, {question:?}", changed.display());
            failed += usize::from(ended(&ask(&place, &index, question), &what));
        }
    }
    assert!(failed > 120, "{failed}");
}
