//! A tree that goes into an index, out as a trace and into an index again is the same for every
//! user. Needs root.

use crate::common;

use common::length::rounds;
use common::{Fixture, User, all_paths, assert_same, random_tree, random_xattrs, seeded, sorted};
use std::ffi::OsStr;
use std::path::Path;

/// The fields of a trace: times in whole seconds, no device numbers.
const FORMAT: &str = "%p|%y|%s|%b|%m|%U|%G|%n|%i|%l|%Ts|%Cs|%As|%Bs\\0";

fn shown(place: &Fixture, index: &Path, user: &User, arguments: &[&OsStr]) -> Vec<String> {
    let mut all: Vec<&OsStr> = vec!["--index".as_ref(), index.as_os_str()];
    all.extend(arguments);
    sorted(&user.run(place.canopy.as_os_str(), &all).stdout, 0)
}

#[test]
fn a_tree_survives_the_way_through_a_trace() {
    let place = Fixture::new();
    for seed in 0..rounds(12, 40) {
        let mut random = seeded(9000 + seed);
        let tree = place.path(&format!("tree{seed}"));
        random_tree(&tree, &mut random, true);
        let paths = all_paths(&tree);
        random_xattrs(&paths, &mut random);
        let [index, again] = ["index", "again"].map(|name| place.path(&format!("{name}{seed}")));
        place.index(&index, &tree);
        let parts = place.path(&format!("parts{seed}"));
        std::fs::create_dir(&parts).unwrap();
        let arguments: [&OsStr; 9] = [
            "export".as_ref(),
            "--all-xattrs".as_ref(),
            "--format".as_ref(),
            "gufi-trace".as_ref(),
            "--parts".as_ref(),
            "3".as_ref(),
            "-o".as_ref(),
            parts.as_os_str(),
            tree.as_os_str(),
        ];
        let output = place.canopy(&index, &arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        // GUFI's readers go by lines; ours do not, so names with an end of line come back.
        assert!(output.status.success() || errors.contains("end of line"), "seed {seed}: {errors}");
        let files: Vec<_> =
            std::fs::read_dir(&parts).unwrap().map(|file| file.unwrap().path()).collect();
        let mut arguments: Vec<&OsStr> =
            ["import", "--format", "gufi-trace", "--root"].map(OsStr::new).to_vec();
        arguments.push(tree.as_os_str());
        arguments.extend(files.iter().map(|file| file.as_os_str()));
        let output = place.canopy(&again, &arguments);
        assert!(
            output.status.success(),
            "seed {seed}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for number in 0..8 {
            let root = User { uid: 0, gid: 0, groups: vec![0] };
            let user = if number == 0 { root } else { User::random(&mut random) };
            let start = &paths[if number < 4 { 0 } else { number * 7 % paths.len() }];
            for arguments in [
                vec!["find".as_ref(), start.as_os_str(), "-printf".as_ref(), FORMAT.as_ref()],
                vec![
                    "find".as_ref(),
                    start.as_os_str(),
                    "-xattr".as_ref(),
                    "user.a".as_ref(),
                    "-print0".as_ref(),
                ],
                vec![
                    "find".as_ref(),
                    start.as_os_str(),
                    "-xattr".as_ref(),
                    "*=*b*".as_ref(),
                    "-print0".as_ref(),
                ],
                vec!["find".as_ref(), start.as_os_str(), "-acl".as_ref(), "-print0".as_ref()],
                vec!["du".as_ref(), "-s0".as_ref(), start.as_os_str()],
            ] {
                let [first, second] =
                    [&index, &again].map(|index| shown(&place, index, &user, &arguments));
                assert_same(&second, &first, &format!("seed {seed} {user:?} {arguments:?}"));
            }
        }
    }
}
