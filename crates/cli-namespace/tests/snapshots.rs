//! Snapshots as users type them, and `[@NAME]` on mounts: what they keep, who sees it, and what
//! crashes leave.

mod common;

use common::{Mounted, NOBODY, as_user, failure, ns, shell, success};
use std::fs::{self, File, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn snapshot(what: &str, place: &Path, name: &str) -> std::process::Output {
    ns("snapshot").arg(what).arg(place).arg(name).output().unwrap()
}

#[track_caller]
fn create(mounted: &Mounted, name: &str) {
    success(&snapshot("create", &mounted.on, name));
}

/// Returns the output of find, getfattr and md5sum for a tree.
#[track_caller]
fn tree_state(directory: &Path) -> String {
    let line = r"find . -printf '%P %y %m %U %G %n %l %T@ ' \( -type d -printf '\n' -o -printf '%s\n' \) | sort
        find . -type f -exec md5sum {} + | sort -k 2; getfattr -Rdm user. . | sort";
    shell(directory, line)
}

const TREE: &str = "mkdir -p a/b c; echo small > a/small; head -c 100000 /dev/urandom > a/large; \
    ln a/large c/hard; ln -s ../a/small c/link; mkfifo c/fifo; setfattr -n user.x -v 1 a/small; \
    echo other > a/b/deep; chown 1000:1001 a/b; chmod 2750 a/b; truncate -s 5M a/sparse; \
    touch -d '2001-02-03 04:05:06.789' a/large; : > empty";

#[test]
fn a_snapshot_shows_the_tree_as_it_was() {
    for options in [&[][..], &["--no-passthrough"]] {
        let mounted = Mounted::with(options);
        shell(&mounted.on, TREE);
        let before = tree_state(&mounted.on);
        create(&mounted, "one");
        let one = mounted.path("[@one]");
        assert_eq!(tree_state(&one), before);
        let ids = |path: &str| {
            [one.join(path), mounted.path(path)].map(|path| fs::metadata(path).unwrap().ino())
        };
        assert_ne!(ids("a/large")[0], ids("a/large")[1]);
        // What is changed, replaced, removed and moved stays in it.
        shell(
            &mounted.on,
            "echo more >> a/large; echo x > a/small; rm -r a/b; mv c d; truncate -s 1 a/sparse; \
             setfattr -x user.x a/small; echo new > a/new; chmod 700 a",
        );
        assert_eq!(tree_state(&one), before);
        create(&mounted, "two");
        let between = tree_state(&mounted.on);
        shell(&mounted.on, "rm -r a d; mkdir a; echo again > a/large");
        assert_eq!(tree_state(&one), before);
        assert_eq!(tree_state(&mounted.path("[@two]")), between);
        mounted.unmount();
        mounted.mount(options);
        assert_eq!(tree_state(&one), before);
        // Any directory shows itself, wherever it is now; a new one was not there.
        assert!(!mounted.path("a/[@one]").exists());
        let listed =
            shell(&mounted.on, "ls '[@]'; readlink '[@]/one'; cat '[@]/two/d/hard' | wc -c");
        assert_eq!(listed, "one\ntwo\n../[@one]\n100005\n");
        success(&snapshot("delete", &mounted.on, "one"));
        assert_eq!(tree_state(&mounted.path("[@two]")), between);
        assert!(!one.exists());
        success(&snapshot("delete", &mounted.on, "two"));
        mounted.assert_sound();
        assert_eq!(mounted.objects(), 0);
    }
}

#[test]
fn nothing_changes_in_a_snapshot() {
    let mounted = Mounted::new();
    shell(&mounted.on, TREE);
    create(&mounted, "one");
    let lines = [
        "echo x > '[@one]/a/small'",
        "echo x >> '[@one]/a/large'",
        "echo x > '[@one]/new'",
        "mkdir '[@one]/new'",
        "rm '[@one]/a/small'",
        "rmdir '[@one]/a/b'",
        "chmod 777 '[@one]/a/small'",
        "touch '[@one]/a/small'",
        "setfattr -n user.y -v 1 '[@one]/a/small'",
        "mv '[@one]/a/small' x",
        "mv a/small '[@one]/x'",
        "ln '[@one]/a/small' x",
    ];
    for line in lines {
        let said = shell(&mounted.on, &format!("({line}) 2>&1 || true"));
        assert!(said.contains("Read-only file system"), "{line}: {said}");
    }
    // Nor can anybody pass something off as a snapshot.
    let said = shell(&mounted.on, "mkdir '[@two]' 2>&1 || true; mv a '[@two]' 2>&1 || true");
    assert_eq!(said.matches("not permitted").count(), 2, "{said}");
    let nested = fs::metadata(mounted.path("[@one]/[@one]")).unwrap_err();
    assert_eq!(nested.kind(), ErrorKind::NotFound);
}

#[test]
fn queries_work_in_snapshots() {
    let mounted = Mounted::new();
    shell(&mounted.on, TREE);
    create(&mounted, "one");
    shell(&mounted.on, "rm -r a; echo x > large");
    let found = shell(&mounted.on, "cd '[@one]/[size>4K and type=f]'; ls -1; cat large | wc -c");
    assert_eq!(found, "hard\nlarge\nsparse\n100000\n");
    let found = shell(&mounted.on, "ls '[@one]/a/[name=deep]' '[@one]/[user=1000]'");
    assert_eq!(found, "[@one]/[user=1000]:\nb\n\n[@one]/a/[name=deep]:\ndeep\n");
}

/// The output of a user's command, or that it is denied.
fn seen(mounted: &Mounted, line: &str) -> String {
    let mut command = as_user(NOBODY, "sh");
    command.args(["-c", line]).current_dir(&mounted.on).env("LC_ALL", "C");
    let output = command.output().unwrap();
    match output.status.success() {
        true => String::from_utf8(output.stdout).unwrap(),
        false => {
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains("Permission denied"), "{line}: {said}");
            "denied".into()
        }
    }
}

#[test]
fn files_hidden_then_or_since_are_hidden() {
    let mounted = Mounted::new();
    shell(
        &mounted.on,
        "for d in open closed locked moved file dead; do mkdir $d; echo $d > $d/text; done; \
         mkdir private; chmod 700 closed private; setfattr -n user.x -v 1 file/text",
    );
    create(&mounted, "one");
    let text = |directory: &str| seen(&mounted, &format!("cat '[@one]/{directory}/text'"));
    let all = || ["open", "closed", "locked", "moved", "file", "dead"].map(text);
    let names = "ls '[@one]/[name=text]' | wc -l";
    assert_eq!(all(), ["open\n", "denied", "locked\n", "moved\n", "file\n", "dead\n"]);
    assert_eq!(seen(&mounted, names), "5\n");
    // The kernel has all of these names in memory now.
    shell(
        &mounted.on,
        "chmod 755 closed; chmod 700 locked; mv moved private; chmod 600 file/text; rm -r dead",
    );
    assert_eq!(all(), ["open\n", "denied", "denied", "denied", "denied", "dead\n"]);
    assert_eq!(seen(&mounted, "getfattr -n user.x '[@one]/file/text'"), "denied");
    assert_eq!(seen(&mounted, "ls '[@one]/locked'"), "denied");
    assert_eq!(seen(&mounted, "ls '[@one]/[name=text]' | wc -l"), "3\n");
    // By another way: what is in a directory that could not be reached then.
    shell(&mounted.on, "mkdir closed/sub; echo sub > closed/sub/text; chmod 700 closed");
    create(&mounted, "two");
    shell(&mounted.on, "mv closed/sub sub");
    assert_eq!(seen(&mounted, "cat sub/text"), "sub\n");
    assert_eq!(seen(&mounted, "cat 'sub/[@two]/text'"), "denied");
    // The directory of a process stays its own, as anywhere; others have to look names up.
    shell(&mounted.on, "chmod 755 locked");
    assert_eq!(text("locked"), "locked\n");
    // Root sees everything.
    assert_eq!(shell(&mounted.on, "cat '[@one]/closed/text'"), "closed\n");
}

#[test]
fn snapshots_give_no_rights_that_were_taken_away() {
    let mounted = Mounted::new();
    shell(&mounted.on, "cp /usr/bin/id id; chmod 6755 id; mknod null c 1 3; chmod 666 null");
    create(&mounted, "one");
    shell(&mounted.on, "rm id null");
    assert_eq!(seen(&mounted, "'[@one]/id' -u"), format!("{NOBODY}\n"));
    assert_eq!(seen(&mounted, "echo x > '[@one]/null'"), "denied");
}

#[test]
fn only_root_and_the_owner_change_snapshots() {
    let mounted = Mounted::new();
    shell(&mounted.on, "chmod 777 .");
    create(&mounted, "one");
    let attempt = |value: &str| {
        let mut command = as_user(NOBODY, "setfattr");
        command.args(["-n", "user.canopy.snapshots", "-v", value]).arg(&mounted.on);
        command.output().unwrap();
    };
    attempt("create two");
    attempt("delete one");
    assert_eq!(shell(&mounted.on, "ls '[@]'"), "one\n");
}

/// Two blocks that a writer changes in turns, each synced before the other: whatever a crash leaves,
/// the first one is not behind.
#[test]
fn files_that_are_written_all_the_time_are_as_a_crash_would_leave_them() {
    let mounted = Mounted::new();
    let path = mounted.path("busy");
    fs::write(&path, vec![0; 3 << 20]).unwrap();
    let other = mounted.path("other");
    fs::write(&other, vec![0; 100_000]).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            let second = File::options().write(true).open(&other).unwrap();
            for count in 1_u64.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                file.write_all_at(&count.to_le_bytes(), 0).unwrap();
                file.sync_data().unwrap();
                second.write_all_at(&count.to_le_bytes(), 50_000).unwrap();
                second.sync_data().unwrap();
                file.write_all_at(&count.to_le_bytes(), 2 << 20).unwrap();
                file.sync_data().unwrap();
                // It rests long enough to be copied now and then, and no snapshot waits for that.
                let rest_ms = if count % 12 == 0 { 1000 } else { 10 };
                std::thread::sleep(std::time::Duration::from_millis(rest_ms));
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(200));
        let mut made = 0;
        for round in 0..12 {
            let output = snapshot("create", &mounted.on, &format!("s{round}"));
            if !output.status.success() {
                assert!(failure(&output).contains("was written all the time"));
                continue;
            }
            made += 1;
            let number = |path: &str, offset: u64| {
                let file = File::open(mounted.path(format!("[@s{round}]/{path}"))).unwrap();
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, offset).unwrap();
                u64::from_le_bytes(bytes)
            };
            let (first, second, third) =
                (number("busy", 0), number("other", 50_000), number("busy", 2 << 20));
            assert!(first >= second && second >= third && third > 0, "{first} {second} {third}");
            assert!(first - third <= 1, "{first} {third}");
        }
        stop.store(true, Ordering::SeqCst);
        assert!(made > 0, "no snapshot of twelve was made");
    });
    mounted.assert_sound();
}

#[test]
fn large_files_are_copied_before_they_change() {
    for options in [&[][..], &["--no-passthrough"]] {
        let mounted = Mounted::with(options);
        shell(&mounted.on, "head -c 20M /dev/urandom > big");
        let sum = shell(&mounted.on, "md5sum < big");
        create(&mounted, "one");
        let open = File::options().write(true).open(mounted.path("big")).unwrap();
        open.write_all_at(b"changed", 1 << 20).unwrap();
        assert_eq!(shell(&mounted.on, "md5sum < '[@one]/big'"), sum);
        open.set_len(5).unwrap();
        // A reader that began before goes on with what it was.
        assert_eq!(shell(&mounted.on, "md5sum < '[@one]/big'"), sum);
        drop(open);
        create(&mounted, "two");
        shell(
            &mounted.on,
            "exec 3< '[@two]/big'; head -c 2 <&3 > first; echo other > big; \
                            cat <&3 | wc -c",
        );
        assert_eq!(shell(&mounted.on, "md5sum < '[@one]/big'"), sum);
        assert_eq!(fs::metadata(mounted.path("[@two]/big")).unwrap().len(), 5);
        mounted.assert_sound();
    }
}

#[test]
fn crashes_leave_whole_snapshots() {
    let mounted = Mounted::new();
    let mut whole = Vec::new();
    for round in 0..6 {
        fs::write(mounted.path("large"), vec![round; 50_000]).unwrap();
        fs::write(mounted.path("small"), [round; 50]).unwrap();
        create(&mounted, &format!("s{round}"));
        whole.push((format!("s{round}"), round));
        // Something is going on when it dies.
        let what = if round % 2 == 0 { "create" } else { "delete" };
        let name = if round % 2 == 0 { "dying".into() } else { format!("s{}", round - 1) };
        let mut doing = ns("snapshot").args([what]).arg(&mounted.on).arg(&name).spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(u64::from(round) * 7));
        mounted.crash();
        let _ = doing.wait();
        mounted.mount(&[]);
        let list = ns("snapshot").arg("list").arg(&mounted.on).arg("--json").output().unwrap();
        let list = success(&list);
        whole.retain(|(one, _)| what == "create" || *one != name || list.contains(one.as_str()));
        for (name, round) in &whole {
            let large = fs::read(mounted.path(format!("[@{name}]/large"))).unwrap();
            assert!(large == vec![*round; 50_000], "{name}");
            assert_eq!(fs::read(mounted.path(format!("[@{name}]/small"))).unwrap(), [*round; 50]);
        }
        if list.contains("dying") {
            assert_eq!(fs::read(mounted.path("[@dying]/small")).unwrap(), [round; 50]);
            success(&snapshot("delete", &mounted.on, "dying"));
        }
        assert_eq!(success(&ns("check").arg(&mounted.on).output().unwrap()), "no faults\n");
    }
    mounted.assert_sound();
}

#[test]
fn snapshots_of_what_is_not_mounted() {
    let mounted = Mounted::created();
    success(&snapshot("create", &mounted.namespace, "one"));
    let said = failure(&snapshot("create", &mounted.namespace, "one"));
    assert!(said.contains("has a snapshot one already"), "{said}");
    let said = failure(&snapshot("create", &mounted.namespace, "a b"));
    assert!(said.contains("letters, digits"), "{said}");
    let said = failure(&snapshot("delete", &mounted.namespace, "two"));
    assert!(said.contains("has no snapshot two"), "{said}");
    let list = |options: &[&str]| {
        success(&ns("snapshot").arg("list").arg(&mounted.namespace).args(options).output().unwrap())
    };
    // The columns have names: "0 files  0  holds 0" did not say what each number is.
    let table = list(&[]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["name", "created", "files", "bytes", "holds"]
    );
    assert!(lines[1].starts_with("one ") && lines[1].ends_with(" 0"), "{table}");
    assert_eq!(lines[0].len(), lines[1].len(), "{table}");
    let told: serde_json::Value = serde_json::from_str(&list(&["--json"])).unwrap();
    assert_eq!(
        (&told["files"], &told["bytes"], &told["held_bytes"]),
        (&0.into(), &0.into(), &0.into())
    );
    mounted.mount(&[]);
    for place in [&mounted.namespace, &mounted.on] {
        let said = failure(&snapshot("create", place, "one"));
        assert!(said.contains("has a snapshot one already"), "{said}");
    }
    let said = failure(&snapshot("delete", &mounted.on, "two"));
    assert!(said.contains("has no snapshot two"), "{said}");
    success(&snapshot("delete", &mounted.on, "one"));
    fs::set_permissions(&mounted.on, Permissions::from_mode(0o755)).unwrap();
    mounted.assert_sound();
    assert_eq!(list(&[]), "");
}

#[test]
fn contents_in_chunks_are_kept_too() {
    let mut mounted = Mounted::created();
    mounted.namespace = mounted.place.path().join("chunked");
    let create = ns("create").args(["--chunk-size", "8K"]).arg(&mounted.namespace).output();
    success(&create.unwrap());
    mounted.mount(&[]);
    let before = Vec::from_iter((0..100_000_u32).map(|at| (at / 7) as u8));
    fs::write(mounted.path("file"), &before).unwrap();
    fs::write(mounted.path("holes"), "x").unwrap();
    let holes = fs::File::options().write(true).open(mounted.path("holes")).unwrap();
    holes.set_len(50_000).unwrap();
    drop(holes);
    success(&ns("snapshot").arg("create").arg(&mounted.on).arg("one").output().unwrap());
    let mut after = before.clone();
    after[20_000..40_000].fill(0);
    fs::write(mounted.path("file"), &after).unwrap();
    fs::remove_file(mounted.path("holes")).unwrap();
    let check = |mounted: &Mounted| {
        let kept = mounted.path("[@one]");
        assert!(fs::read(kept.join("file")).unwrap() == before);
        let holes = fs::read(kept.join("holes")).unwrap();
        assert!(holes.len() == 50_000 && holes[0] == b'x' && holes[1..].iter().all(|at| *at == 0));
        assert!(fs::read(mounted.path("file")).unwrap() == after);
    };
    check(&mounted);
    mounted.unmount();
    mounted.mount(&[]);
    check(&mounted);
    mounted.crash();
    mounted.mount(&[]);
    check(&mounted);
    mounted.assert_sound();
}

#[test]
fn a_snapshot_is_mounted_by_itself() {
    for options in [&[][..], &["--chunk-size", "8K"]] {
        let mounted = Mounted::created_with(options);
        mounted.mount(&[]);
        shell(
            &mounted.on,
            "mkdir -p a/b; echo then > a/b/file; head -c 50000 /dev/urandom > large; ln -s a link; \
             setfattr -n user.one -v 1 a; mkdir -m 700 closed; echo x > closed/x; cp -a . ../source",
        );
        success(&ns("snapshot").args(["create"]).arg(&mounted.on).arg("one").output().unwrap());
        shell(
            &mounted.on,
            "echo now > a/b/file; head -c 9 /dev/zero > large; echo new > new; rm link",
        );
        mounted.unmount();
        let mount = |name: &str| {
            let mut command = ns("mount");
            command.args(["--snapshot", name]).arg(&mounted.namespace).arg(&mounted.on);
            command.output().unwrap()
        };
        let said = failure(&mount("none"));
        assert!(said.contains("has no snapshot none"), "{said}");
        success(&mount("one"));
        shell(&mounted.on, "diff -r --no-dereference . ../source");
        shell(
            &mounted.on,
            "test $(getfattr --only-values -n user.one a) = 1; ls -la . > /dev/null",
        );
        shell(&mounted.on, "cd a/b/../..; test -e large; ls '[size>40k]' | grep -q large");
        for change in ["echo > a/b/file", "rm large", "mkdir more", "chmod 777 a", "touch a"] {
            let refused = shell(&mounted.on, &format!("{{ {change}; }} 2>&1 || true"));
            assert!(refused.contains("Read-only file system"), "{change}: {refused}");
        }
        // Nobody gets where permissions do not let them.
        let ls = as_user(NOBODY, "ls").arg(mounted.path("closed")).output().unwrap();
        assert!(!ls.status.success());
        let cat = as_user(NOBODY, "cat").arg(mounted.path("a/b/file")).output().unwrap();
        assert_eq!(success(&cat), "then\n");
        mounted.unmount();
        mounted.mount(&[]);
        assert_eq!(fs::read_to_string(mounted.path("a/b/file")).unwrap(), "now\n");
        mounted.assert_sound();
    }
}

#[test]
fn snapshots_are_summed_written_and_checked_without_a_mount() {
    for chunks in [&[][..], &["--chunk-size", "16K"]] {
        let mounted = Mounted::created_with(chunks);
        let run = |subcommand: &str, words: &[&str]| {
            ns(subcommand).arg(&mounted.namespace).args(words).output().unwrap()
        };
        mounted.mount(&[]);
        shell(&mounted.on, TREE);
        create(&mounted, "one");
        let before = tree_state(&mounted.on);
        mounted.unmount();
        let summed = success(&run("du", &["-a"]));
        mounted.mount(&[]);
        shell(
            &mounted.on,
            "echo more >> a/large; rm -r a/b c; truncate -s 1 a/sparse; echo new > a/new",
        );
        mounted.unmount();
        assert_ne!(success(&run("du", &["-a"])), summed);
        assert_eq!(success(&run("du", &["-a", "--snapshot", "one"])), summed);
        let copy = mounted.place.path().join("copy");
        let copied = copy.to_str().unwrap();
        success(&run("export", &[copied, "--snapshot", "one"]));
        assert_eq!(tree_state(&copy), before);
        for data in [&["--snapshot", "one"][..], &["--snapshot", "one", "--data"]] {
            assert_eq!(success(&run("check", data)), "no faults\n");
        }
        for (subcommand, words) in [
            ("du", &["--snapshot", "two"][..]),
            ("check", &["--snapshot", "two"]),
            ("export", &["/tmp/no/where", "--snapshot", "two"]),
        ] {
            assert!(failure(&run(subcommand, words)).contains("has no snapshot two"));
        }
        if chunks.is_empty() {
            // The large file of then is kept in a file of its own.
            let kept = "find contents -type f -size -102400c -size +90000c -print -delete";
            assert_ne!(shell(&mounted.namespace, kept), "");
            let checked = run("check", &["--snapshot", "one"]);
            assert_eq!(checked.status.code(), Some(1));
            let said = String::from_utf8_lossy(&checked.stdout).into_owned();
            assert!(said.contains("its object") && said.contains("1 fault"), "{said}");
        }
    }
}

#[test]
fn a_mounted_namespace_is_summed_and_exported() {
    for chunks in [&[][..], &["--chunk-size", "16K"]] {
        let mounted = Mounted::created_with(chunks);
        mounted.mount(&[]);
        shell(&mounted.on, TREE);
        create(&mounted, "one");
        let before = tree_state(&mounted.on);
        let run = |subcommand: &str, words: &[&str]| {
            // By either name.
            let place =
                if words.len().is_multiple_of(2) { &mounted.on } else { &mounted.namespace };
            ns(subcommand).arg(place).args(words).output().unwrap()
        };
        let summed = success(&run("du", &["-a"]));
        shell(&mounted.on, "echo more >> a/large; rm -r a/b c; echo new > a/new");
        let now = tree_state(&mounted.on);
        let (copy, past) = (mounted.place.path().join("copy"), mounted.place.path().join("past"));
        success(&run("export", &[copy.to_str().unwrap()]));
        assert_eq!(tree_state(&copy), now);
        success(&run("export", &[past.to_str().unwrap(), "--snapshot", "one"]));
        assert_eq!(tree_state(&past), before);
        // That is a backup (docs/admin.md): all of it comes back from there.
        let (new, back) = (mounted.place.path().join("new"), mounted.place.path().join("back"));
        success(&ns("create").arg(&new).output().unwrap());
        success(&ns("import").arg("--data").args([&past, &new]).output().unwrap());
        success(&ns("export").args([&new, &back]).output().unwrap());
        assert_eq!(tree_state(&back), before);
        assert_ne!(success(&run("du", &["-a"])), summed);
        assert_eq!(success(&run("du", &["-a", "--snapshot", "one"])), summed);
        assert_eq!(success(&run("check", &["--snapshot", "one"])), "no faults\n");
        assert_eq!(success(&run("check", &["--snapshot", "one", "--data"])), "no faults\n");
        for (subcommand, words) in [
            ("du", &["--snapshot", "two"][..]),
            ("check", &["--snapshot", "two"]),
            ("export", &["/tmp/no/where", "--snapshot", "two"]),
        ] {
            assert!(failure(&run(subcommand, words)).contains("has no snapshot two"));
        }
        // A part of it, and what others of the mount are told.
        let part = mounted.place.path().join("part");
        let source = format!("{}:/a", mounted.on.display());
        success(&ns("export").arg(&source).arg(&part).output().unwrap());
        assert_eq!(
            fs::read(part.join("large")).unwrap(),
            fs::read(mounted.path("a/large")).unwrap()
        );
        let refused = as_user(NOBODY, common::CANOPY).args(["ns", "du"]).arg(&mounted.on).output();
        let said = failure(&refused.unwrap());
        assert!(said.contains("Permission denied"), "{said}");
        mounted.assert_sound();
    }
}

#[test]
fn a_namespace_becomes_what_it_was() {
    for chunks in [&[][..], &["--chunk-size", "16K"]] {
        let mounted = Mounted::created_with(chunks);
        mounted.mount(&[]);
        shell(&mounted.on, TREE);
        success(
            &ns("quota")
                .arg(&mounted.on)
                .args(["--tree", "/a", "--inodes", "1000"])
                .output()
                .unwrap(),
        );
        create(&mounted, "one");
        let before = tree_state(&mounted.on);
        let quotas = success(&ns("quota").arg(&mounted.on).output().unwrap());
        shell(
            &mounted.on,
            "echo more >> a/large; rm -r a/b c; truncate -s 1 a/sparse; echo new > a/new; chmod 700 a; \
             head -c 90000 /dev/urandom > a/large2",
        );
        create(&mounted, "two");
        let later = tree_state(&mounted.on);
        shell(&mounted.on, "rm a/large2; head -c 80000 /dev/urandom > a/large");
        let restore = |place: &Path, name: &str| {
            ns("snapshot").args(["restore"]).arg(place).arg(name).output().unwrap()
        };
        for place in [&mounted.on, &mounted.namespace] {
            let said = failure(&restore(place, "one"));
            assert!(said.contains("unmount it first") && said.contains("[@one]"), "{said}");
        }
        mounted.unmount();
        assert!(failure(&restore(&mounted.namespace, "three")).contains("has no snapshot three"));
        for (name, expected) in [("one", &before), ("two", &later), ("one", &before)] {
            success(&restore(&mounted.namespace, name));
            assert_eq!(
                success(&ns("check").arg(&mounted.namespace).arg("--data").output().unwrap()),
                "no faults\n"
            );
            mounted.mount(&[]);
            assert_eq!(tree_state(&mounted.on), *expected, "{name}");
            assert_eq!(tree_state(&mounted.path("[@one]")), before);
            assert_eq!(tree_state(&mounted.path("[@two]")), later);
            if name == "one" {
                assert_eq!(success(&ns("quota").arg(&mounted.on).output().unwrap()), quotas);
            }
            let found =
                success(&ns("find").arg(&mounted.on).args(["-size", "+70k"]).output().unwrap());
            assert!(found.contains("/a/large\n"), "{found}");
            shell(&mounted.on, "echo after > after; head -c 30000 /dev/zero > after.large");
            mounted.unmount();
        }
        mounted.mount(&[]);
        mounted.assert_sound();
    }
}

/// `ns query` printed paths outside of the snapshot, as if it were one more query to lead out of.
#[test]
fn queries_on_a_snapshot_print_paths_in_it() {
    let mounted = Mounted::new();
    shell(&mounted.on, "mkdir -p p/d; echo > p/d/f");
    create(&mounted, "a");
    let run = |path: &str| ns("query").arg(mounted.path(path)).output().unwrap();
    for (path, expected) in [
        ("[type=f]", "p/d/f\n"),
        ("[@a]/[type=f]", "p/d/f\n"),
        ("[@a]/[type=f]/[name=f]", "p/d/f\n"),
        ("[@a]/p/[type=f]", "d/f\n"),
    ] {
        assert_eq!(success(&run(path)), expected, "{path}");
    }
    let refused = |path: &str| failure(&run(path));
    let said = refused("[@a]");
    assert!(said.contains("is a snapshot, not a query") && said.contains("[@a]/[size"), "{said}");
    let said = refused("[@]");
    assert!(said.contains("has all snapshots, and is not a query"), "{said}");
    let said = refused("p/[@a]");
    assert!(said.contains("is a snapshot, not a query"), "{said}");
}
