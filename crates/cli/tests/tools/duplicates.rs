//! `canopy top duplicates`: candidates of the same size, and files whose contents are equal.

use crate::common::{Fixture, User};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Output;

/// Runs `canopy top duplicates` with more arguments, as somebody.
fn duplicates(place: &Fixture, user: Option<&User>, more: &[&str], tree: &Path) -> Output {
    let index = place.path("index");
    let mut arguments: Vec<&OsStr> = vec!["--index".as_ref(), index.as_os_str()];
    arguments.extend(["top", "duplicates"].iter().chain(more).map(OsStr::new));
    arguments.push(tree.as_os_str());
    match user {
        Some(user) => user.run(place.canopy.as_os_str(), &arguments),
        None => place.canopy(&index, &arguments[2..]),
    }
}

fn answer(output: &Output) -> Value {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["duplicates"].clone()
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-r").args([from, to]).status().unwrap();
    assert!(copied.success());
}

/// Copies by `cp -r` have other times, and were not found.
#[test]
fn copies_are_found_by_their_size_and_verified_by_their_contents() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir_all(tree.join("a")).unwrap();
    for number in 0..20_u8 {
        let bytes = vec![number; 100_000 + usize::from(number)];
        fs::write(tree.join(format!("a/{number}")), bytes).unwrap();
    }
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH);
    for number in 0..20 {
        let file = fs::File::options().write(true).open(tree.join(format!("a/{number}"))).unwrap();
        file.set_times(old).unwrap();
    }
    copy(&tree.join("a"), &tree.join("b"));
    // Files that differ only at the end, and in the first byte.
    let mut bytes = vec![7; 300_000];
    fs::write(tree.join("x"), &bytes).unwrap();
    bytes[299_999] = 8;
    fs::write(tree.join("y"), &bytes).unwrap();
    bytes[0] = 8;
    fs::write(tree.join("z"), &bytes).unwrap();
    fs::hard_link(tree.join("x"), tree.join("one-more-name-of-x")).unwrap();
    symlink("x", tree.join("link")).unwrap();
    fs::write(tree.join("empty1"), "").unwrap();
    fs::write(tree.join("empty2"), "").unwrap();
    place.index(&place.path("index"), &tree);

    let by_size = answer(&duplicates(&place, None, &["--json", "-n", "30"], &tree));
    assert_eq!((&by_size["groups"], &by_size["files"]), (&json!(21), &json!(43)));
    assert_eq!(by_size["largest"][0]["files"], 3);
    let output = duplicates(&place, None, &["--json", "--verify", "-n", "30"], &tree);
    assert_eq!(output.status.code(), Some(0));
    let verified = answer(&output);
    let disk_bytes = |name: &str| tree.join(name).metadata().unwrap().blocks() as i64 * 512;
    let saved: i64 = (0..20).map(|number| disk_bytes(&format!("a/{number}"))).sum();
    assert_eq!(
        (&verified["groups"], &verified["files"], &verified["wasted_bytes"]),
        (&json!(20), &json!(40), &json!(saved))
    );
    assert_eq!((&verified["not_read"], &verified["not_compared"]), (&json!(0), &json!(0)));
    let largest = verified["largest"].as_array().unwrap();
    let of_19 = largest.iter().find(|group| group["bytes"] == 100_019).unwrap();
    assert_eq!(of_19["paths"], json!(["a/19", "b/19"].map(|name| tree.join(name))));
    // No other group can exceed the first; their files are counted.
    let first = answer(&duplicates(&place, None, &["--json", "--verify", "-n", "1"], &tree));
    assert_eq!(first["largest"][0]["wasted_bytes"], largest[0]["wasted_bytes"]);
    assert!(first["not_compared"].as_i64().unwrap() > 0, "{first}");
    let shown = duplicates(&place, None, &["--verify", "-n", "2"], &tree);
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("Files of equal contents."), "{shown}");
    assert!(shown.contains("smaller files not compared"), "{shown}");
}

/// Two empty files of 8 EiB, which any user can make on tmpfs, came first and were read for ever; a
/// file in a directory that is bound to a second place was called a copy of itself.
#[test]
fn sparse_files_and_bound_directories_hide_no_duplicates() {
    let place = Fixture::new();
    let disk = place.small_disk("disk", "8M");
    let tree = disk.0.join("tree");
    for name in ["tree", "tree/real", "tree/bound"] {
        fs::create_dir(disk.0.join(name)).unwrap();
    }
    for name in ["a", "b"] {
        fs::File::create(tree.join(name)).unwrap().set_len(i64::MAX as u64).unwrap();
        fs::write(tree.join("real").join(name), vec![b'x'; 70_000]).unwrap();
    }
    // A copy without the hole of the other.
    let sparse = fs::File::create(tree.join("hole")).unwrap();
    sparse.set_len(200_000).unwrap();
    fs::write(tree.join("zeros"), vec![0; 200_000]).unwrap();
    let run = |program: &str, words: &[&OsStr]| {
        assert!(std::process::Command::new(program).args(words).status().unwrap().success());
    };
    let bound = tree.join("bound");
    run("mount", &["--bind".as_ref(), tree.join("real").as_os_str(), bound.as_os_str()]);
    place.index(&place.path("index"), &tree);
    let found = answer(&duplicates(&place, None, &["--json", "--verify"], &tree));
    run("umount", &[bound.as_os_str()]);
    let bytes: Vec<_> =
        found["largest"].as_array().unwrap().iter().map(|it| &it["bytes"]).collect();
    assert_eq!(bytes, [&json!(70_000), &json!(i64::MAX), &json!(200_000)]);
    assert_eq!(found["largest"][0]["files"], 2);
}

/// Contents are read by the permissions of the caller, and only of files that are as the index
/// knows them.
#[test]
fn contents_are_compared_as_the_caller_and_through_no_link() {
    let place = Fixture::new();
    let (tree, secret) = (place.path("tree"), place.path("secret"));
    fs::create_dir(&tree).unwrap();
    let file = |name: &str| -> PathBuf {
        let path = tree.join(name);
        fs::write(&path, vec![b'x'; 10_000]).unwrap();
        path
    };
    let [open, closed, changed, swapped, fifo] =
        ["open", "closed", "changed", "swapped", "fifo"].map(file);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o600)).unwrap();
    chown(&closed, Some(2001), Some(3001)).unwrap();
    let bob = User { uid: 2002, gid: 3002, groups: vec![3002] };
    place.index(&place.path("index"), &tree);
    fs::write(&changed, vec![b'y'; 10_000]).unwrap();
    fs::write(&secret, vec![b'x'; 10_000]).unwrap();
    fs::remove_file(&swapped).unwrap();
    symlink(&secret, &swapped).unwrap();
    fs::remove_file(&fifo).unwrap();
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();

    let output = duplicates(&place, None, &["--json", "--verify"], &tree);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("3 files could not be read or changed since the scan"), "{said}");
    let found = answer(&output);
    assert_eq!(found["largest"][0]["paths"], json!([closed, open]));
    let output = duplicates(&place, Some(&bob), &["--json", "--verify"], &tree);
    assert_eq!(output.status.code(), Some(1));
    let found = answer(&output);
    assert_eq!((&found["groups"], &found["not_read"]), (&json!(0), &json!(4)));
    // Names that are not UTF-8 are opened, too.
    let odd = [b"odd1\xff", b"odd2\xff"].map(|name| tree.join(OsStr::from_bytes(name)));
    odd.iter().for_each(|path| fs::write(path, "12345").unwrap());
    place.index(&place.path("index"), &tree);
    let found = answer(&duplicates(&place, Some(&bob), &["--json", "--verify", "-n", "9"], &tree));
    assert_eq!(found["largest"][0]["bytes"], 5);
    let output =
        place.canopy(&place.path("index"), &["top", "largest", "--verify"].map(OsStr::new));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("--verify is for 'canopy top duplicates'"), "{said}");
}
