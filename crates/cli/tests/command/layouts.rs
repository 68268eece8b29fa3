//! An index that is divided by subtree and directory instead of by access has all for root, nothing
//! for others, and stays so. Needs root.

use crate::common;

use canopy_index::Index;
use common::{Fixture, User, all_paths, random_tree, random_xattrs, seeded};
use std::path::Path;
use std::process::Command;

fn canopy(place: &Fixture, index: &Path, arguments: &[&str]) -> String {
    let output = Command::new(&place.canopy)
        .arg("--index")
        .arg(index)
        .args(arguments)
        .env("LC_ALL", "C.UTF-8")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns what root sees of a tree: entries with attributes, and values of extended attributes.
fn all(place: &Fixture, index: &Path, tree: &str) -> Vec<String> {
    let format = "%i %m %U %G %s %T@ %C@ %n %l %p\\n";
    let values = "SELECT path, name, key, value FROM xattrs";
    let found = canopy(place, index, &["find", tree, "-printf", format]);
    let values = canopy(place, index, &["sql", "--format", "csv", values]);
    let sums = canopy(place, index, &["du", "-ab", tree]);
    let mut lines: Vec<String> =
        [found, values, sums].iter().flat_map(|text| text.lines()).map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

fn shards(index: &Path) -> usize {
    Index::open(index).unwrap().shards().unwrap().len()
}

#[test]
fn a_leveled_index_has_all_for_root_and_nothing_for_others() {
    let place = Fixture::new();
    let mut random = seeded(61);
    let tree = place.path("tree");
    std::fs::create_dir(&tree).unwrap();
    for number in 0..20 {
        random_tree(&tree.join(format!("t{number}")), &mut random, true);
    }
    random_xattrs(&all_paths(&tree), &mut random);
    let root = tree.to_str().unwrap();
    let (index, leveled) = (place.path("index"), place.path("leveled"));
    canopy(&place, &index, &["index", root]);
    canopy(&place, &leveled, &["index", "--layout", "leveled", "--shards", "16", root]);
    let expected = all(&place, &index, root);
    assert!(expected.len() > 500, "{}", expected.len());
    let is_leveled = || {
        assert_eq!(all(&place, &leveled, root), all(&place, &index, root));
        for seed in 0..3 {
            let user = User::random(&mut seeded(seed));
            let seen = user.run(
                place.canopy.as_os_str(),
                &["--index", leveled.to_str().unwrap(), "find", root].map(AsRef::as_ref),
            );
            assert!(seen.stdout.is_empty() && !seen.status.success(), "{seen:?}");
        }
    };
    is_leveled();
    let parts = shards(&leveled);
    assert!((8..=16).contains(&parts), "{parts}");
    // What is listed again stays for root alone, too, and the layout need not be said again.
    std::fs::write(tree.join("t3/new"), "x").unwrap();
    canopy(&place, &leveled, &["update", tree.join("t3").to_str().unwrap()]);
    canopy(&place, &index, &["update", tree.join("t3").to_str().unwrap()]);
    is_leveled();
    for number in 0..5 {
        random_tree(&tree.join(format!("u{number}")), &mut random, true);
    }
    std::fs::remove_dir_all(tree.join("t4")).unwrap();
    canopy(&place, &leveled, &["index", "--incremental", root]);
    canopy(&place, &index, &["index", "--incremental", root]);
    is_leveled();
    canopy(&place, &leveled, &["compact"]);
    is_leveled();
    // A namespace has no layout of its own, and none is taken for it in silence.
    let asked = ["index", "--layout", "leveled", "ns:/no/where"].map(AsRef::as_ref);
    let refused = place.canopy(&leveled, &asked);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--layout are for trees"));
    // Another layout is a new scan.
    canopy(&place, &leveled, &["index", "--incremental", "--layout", "access", root]);
    assert_eq!(all(&place, &leveled, root), all(&place, &index, root));
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let seen = |index: &Path| {
        let asked = ["--index", index.to_str().unwrap(), "find", root].map(AsRef::as_ref);
        common::sorted(&user.run(place.canopy.as_os_str(), &asked).stdout, b'\n')
    };
    assert!(seen(&leveled).len() > 20);
    assert_eq!(seen(&leveled), seen(&index));
    canopy(&place, &leveled, &["index", "--layout", "leveled", "--shards", "1", root]);
    is_leveled();
    assert_eq!(shards(&leveled), 1);
}
