//! Listings, which the kernel keeps as long as nothing changes, and labels, which few systems have.

mod common;

use common::{Mounted, shell, wait_until};
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The names of a directory by two listings, the second of which the kernel may answer itself.
#[track_caller]
fn names(directory: &Path) -> BTreeSet<String> {
    let list = || {
        let entries = fs::read_dir(directory).unwrap();
        BTreeSet::from_iter(entries.map(|one| one.unwrap().file_name().into_string().unwrap()))
    };
    let (first, second) = (list(), list());
    assert_eq!(first, second);
    second
}

#[test]
fn a_listing_that_the_kernel_keeps_has_every_change() {
    let mounted = Mounted::new();
    let d = &mounted.path("d");
    shell(&mounted.on, "mkdir d other; touch d/a d/b d/c other/x");
    let mut expected = BTreeSet::from(["a", "b", "c"].map(str::to_owned));
    assert_eq!(names(d), expected);
    let changes = [
        ("touch d/new", "+new"),
        ("rm d/a", "-a"),
        ("mv d/b d/moved", "-b +moved"),
        ("mv other/x d/x", "+x"),
        ("mv d/c other/c", "-c"),
        ("ln d/new d/linked; ln -s nowhere d/symbolic", "+linked +symbolic"),
        ("mkdir d/sub; mknod d/null c 1 3", "+sub +null"),
        ("rmdir d/sub; mv d/x d/new", "-sub -x"),
        ("seq 2000 | sed s,^,d/k, | xargs touch", "+k1"),
        ("rm d/k*", "-k1"),
    ];
    for (change, effect) in changes {
        shell(&mounted.on, change);
        for one in effect.split(' ') {
            let (sign, name) = one.split_at(1);
            match sign {
                "+" => assert!(expected.insert(name.into())),
                _ => assert!(expected.remove(name)),
            }
        }
        let mut found = names(d);
        if found.contains("k1") {
            assert_eq!(found.len(), expected.len() + 1999);
            found.retain(|name| name == "k1" || !name.starts_with('k'));
        }
        assert_eq!(found, expected, "{change}");
    }
    // A query, another user's eyes and a mount that begins anew see the same.
    let listed = BTreeSet::from_iter(shell(d, "ls -U").lines().map(str::to_owned));
    assert_eq!(listed, expected);
    mounted.unmount();
    mounted.mount(&[]);
    assert_eq!(names(d), expected);
    mounted.assert_sound();
}

#[test]
fn the_first_listing_after_a_change_is_noted_as_an_access() {
    let mounted = Mounted::new();
    shell(&mounted.on, "mkdir d; touch d/a");
    let atime = || {
        let found = fs::metadata(mounted.path("d")).unwrap();
        (found.atime(), found.atime_nsec())
    };
    names(&mounted.path("d"));
    let first = atime();
    names(&mounted.path("d"));
    assert_eq!(atime(), first, "nothing has changed since");
    shell(&mounted.on, "touch d/b");
    names(&mounted.path("d"));
    assert!(atime() > first);
}

#[test]
fn labels_that_no_file_has_are_not_supported() {
    // ls(1) asks for the label of each file, unless the first answer is that there are none here.
    let mounted = Mounted::new();
    shell(&mounted.on, "touch with without; setfattr -n user.color -v red without");
    let label = |name: &str| {
        let mut value = [0; 100];
        let found = getxattr(mounted.path(name), "security.selinux", &mut value[..]);
        found.map(|length| value[..length].to_vec())
    };
    wait_until("no file is known to have one", || label("with") == Err(Errno::OPNOTSUPP));
    assert_eq!(label("without"), Err(Errno::OPNOTSUPP));
    setxattr(mounted.path("with"), "security.selinux", b"u:r:t", XattrFlags::empty()).unwrap();
    assert_eq!(label("with"), Ok(b"u:r:t".to_vec()));
    assert_eq!(label("without"), Err(Errno::NODATA));
    mounted.unmount();
    mounted.mount(&[]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert_eq!(label("with"), Ok(b"u:r:t".to_vec()));
    assert_eq!(label("without"), Err(Errno::NODATA));
}
