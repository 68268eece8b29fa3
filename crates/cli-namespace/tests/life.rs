//! The commands as users type them, from making a namespace to unmounting it, and what they say to
//! wrong input.

mod common;

use common::{CANOPY, Mounted, NOBODY, as_user, failure, ns, shell, success, wait_until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

#[test]
fn a_namespace_keeps_what_is_in_it() {
    let mounted = Mounted::new();
    let lines = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    let own = format!("{} {} fuse.canopy ", mounted.namespace.display(), mounted.on.display());
    assert!(lines.contains(&own), "{lines}");
    fs::write(mounted.path("small"), "small").unwrap();
    fs::write(mounted.path("large"), vec![7; 100_000]).unwrap();
    mounted.unmount();
    assert!(!mounted.is_mounted());
    wait_until("the process has ended", || mounted.processes().is_empty());
    assert_eq!(fs::read_dir(&mounted.on).unwrap().count(), 0);
    // With the mount, all is on the disk: it can be opened at once, and be copied.
    let copy = mounted.place.path().join("a copy");
    shell(mounted.place.path(), "cp -a namespace 'a copy'");
    success(&ns("check").arg(&copy).output().unwrap());
    success(&ns("mount").args([&copy, &mounted.on]).output().unwrap());
    assert_eq!(fs::read_to_string(mounted.path("small")).unwrap(), "small");
    assert_eq!(fs::read(mounted.path("large")).unwrap(), vec![7; 100_000]);
    mounted.unmount();
}

#[test]
fn info_tells_what_there_is() {
    let mounted = Mounted::created();
    let told = success(&ns("info").arg(&mounted.namespace).output().unwrap());
    assert!(told.starts_with("format    2\ntable     "), "{told}");
    let told = success(&ns("info").arg("--json").arg(&mounted.namespace).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(json["format"], 2);
    // Also while it is mounted.
    mounted.mount(&[]);
    success(&ns("info").arg(&mounted.namespace).output().unwrap());
}

#[test]
fn paths_may_be_relative_and_have_spaces() {
    let mounted = Mounted::created();
    let place = mounted.place.path();
    shell(place, &format!("mkdir 'my files' 'my place'; {CANOPY} ns create 'my files/a b'"));
    shell(&place.join("my files"), &format!("{CANOPY} ns mount 'a b' '../my place'"));
    fs::write(place.join("my place/large file"), vec![1; 10_000]).unwrap();
    // So much that there is more than one segment of the log, and a table of records.
    shell(place, "for i in {1..300}; do head -c 3000 /dev/zero > \"my place/$i\"; done");
    shell(place, &format!("{CANOPY} ns unmount 'my place'"));
    assert_eq!(shell(place, &format!("{CANOPY} ns check 'my files/a b'")), "no faults\n");
    let objects = shell(place, "find 'my files/a b/contents' -type f");
    assert_eq!(objects.lines().count(), 1);
    shell(place, &format!("{CANOPY} ns mount 'my files/a b' on"));
    assert_eq!(fs::read(mounted.path("large file")).unwrap(), vec![1; 10_000]);
    shell(place, &format!("{CANOPY} ns unmount on/."));
}

#[test]
fn nobody_else_reads_a_namespace() {
    let mounted = Mounted::created();
    let open = mounted.place.path().join("open");
    fs::create_dir(&open).unwrap();
    success(&ns("create").arg(&open).output().unwrap());
    for namespace in [&open, &mounted.namespace] {
        assert_eq!(fs::metadata(namespace).unwrap().mode() & 0o7777, 0o700);
    }
    let output = as_user(NOBODY, CANOPY).args(["ns", "info"]).arg(&open).output().unwrap();
    assert!(failure(&output).ends_with(": Permission denied\n"));
    assert_eq!(failure(&output).matches("os error").count(), 0);
}

/// Links in a user's namespace had root read and write what they lead to.
#[test]
fn root_opens_no_namespace_of_a_user() {
    let mounted = Mounted::created();
    let place = mounted.place.path();
    let home = place.join("home");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
    let theirs = home.join("theirs");
    success(&as_user(NOBODY, CANOPY).args(["ns", "create"]).arg(&theirs).output().unwrap());
    // One of root's in a place that the user can replace.
    let replaceable = home.join("roots");
    fs::create_dir(&replaceable).unwrap();
    shell(place, &format!("cp -a namespace/. {}", replaceable.display()));
    let made = |directory: &Path| shell(directory, "find . -newer . -o -uid 0 | wc -l");
    let before = made(&theirs);
    for namespace in [&theirs, &replaceable] {
        for subcommand in ["info", "find", "du", "check", "export", "mount"] {
            let mut command = ns(subcommand);
            command.arg(namespace);
            match subcommand {
                "export" => command.arg(place.join("copy")),
                "mount" => command.arg(&mounted.on),
                _ => &mut command,
            };
            let said = failure(&command.output().unwrap());
            let is_told = said.contains("belongs to uid 65534") && said.contains("who could");
            assert!(is_told, "{subcommand}: {said}");
        }
    }
    assert_eq!(made(&theirs), before);
    success(&as_user(NOBODY, CANOPY).args(["ns", "check"]).arg(&theirs).output().unwrap());
}

/// `chown : FILE` of anybody made a program of root's lose its setuid bit.
#[test]
fn privileges_of_programs_are_lost_by_whoever_may_change_them() {
    let mounted = Mounted::new();
    let mode = |name| fs::metadata(mounted.path(name)).unwrap().mode() & 0o7777;
    for (name, bits, owner) in [("root's", 0o6755, 0), ("own", 0o4755, NOBODY), ("open", 0o4777, 0)]
    {
        fs::write(mounted.path(name), "program").unwrap();
        chown(mounted.path(name), Some(owner), None).unwrap();
        fs::set_permissions(mounted.path(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    let changes = |name| {
        let output = as_user(NOBODY, "chown").arg(":").arg(mounted.path(name)).output().unwrap();
        output.status.success()
    };
    assert!(!changes("root's"));
    assert_eq!(mode("root's"), 0o6755);
    assert!(changes("own") && changes("open"));
    assert_eq!((mode("own"), mode("open")), (0o755, 0o777));
    fs::set_permissions(mounted.path("open"), fs::Permissions::from_mode(0o4777)).unwrap();
    let append = format!("echo more >> {}", mounted.path("open").display());
    success(&as_user(NOBODY, "sh").args(["-c", &append]).output().unwrap());
    assert_eq!(mode("open"), 0o777);
}

#[test]
fn wrong_places_are_told() {
    let mounted = Mounted::created();
    let place = mounted.place.path();
    fs::write(place.join("file"), "").unwrap();
    fs::create_dir(place.join("empty")).unwrap();
    fs::create_dir(mounted.namespace.join("inside")).unwrap();
    for (name, mode, owner) in
        [("of_another", 0o755, NOBODY), ("theirs", 0o755, NOBODY), ("open", 0o777, 0)]
    {
        fs::create_dir(place.join(name)).unwrap();
        fs::set_permissions(place.join(name), fs::Permissions::from_mode(mode)).unwrap();
        chown(place.join(name), Some(owner), None).unwrap();
    }
    std::os::unix::fs::symlink("../empty", place.join("theirs/way")).unwrap();
    std::os::unix::fs::symlink("empty", place.join("link")).unwrap();
    lchown(place.join("link"), Some(NOBODY), None).unwrap();
    std::os::unix::fs::symlink("empty", place.join("own_link")).unwrap();
    for (line, said) in [
        ("create of_another", "of_another belongs to uid 65534: a namespace needs a directory of"),
        ("create of_another/new", "it belongs to uid 65534, who could replace what is in it"),
        ("create theirs/way/new", "it belongs to uid 65534, who could replace what is in it"),
        ("create open/new", "is not a safe place: others can write to it"),
        ("create link", "is a symbolic link of uid 65534"),
        ("create own_link", "own_link is a symbolic link: give the directory that is meant"),
        ("create namespace", "namespace is not empty"),
        ("create file", "cannot read file: Not a directory"),
        ("create nowhere/new", "cannot make nowhere/new: No such file or directory"),
        ("create --inline 99999999 new", "65536 at most"),
        ("mount nothing on", "nothing: no such directory"),
        ("mount file on", "file: no such directory"),
        ("mount empty on", "there is no namespace; create one first"),
        ("mount namespace nothing", "cannot mount on nothing: No such file"),
        ("mount namespace file", "cannot mount on file: Not a directory"),
        ("mount namespace namespace", "cannot be mounted over itself"),
        ("mount namespace namespace/inside", "cannot be mounted over itself"),
        ("mount namespace .", "cannot be mounted over itself"),
        ("unmount on", "on: no namespace and no index is mounted there"),
        ("unmount nothing", "cannot find nothing"),
        ("info empty", "there is no namespace"),
        ("check empty", "there is no namespace"),
        ("check nothing", "nothing: no such directory"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let output = ns(words[0]).args(&words[1..]).current_dir(place).output().unwrap();
        let told = failure(&output);
        assert!(told.contains(said), "{line}: {told}");
    }
    for unmade in ["nowhere", "of_another/new", "open/new"] {
        assert!(!place.join(unmade).exists(), "{unmade}");
    }
    // Nothing was made where there is no namespace.
    assert_eq!(fs::read_dir(place.join("empty")).unwrap().count(), 0);
    let output = ns("mount").args(["--unknown", "namespace", "on"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("unexpected argument '--unknown'"));
}

#[test]
fn users_without_rights_get_an_error() {
    let mounted = Mounted::created();
    let user = |words: [&str; 2]| {
        let mut command = as_user(NOBODY, CANOPY);
        failure(&command.arg("ns").args(words).current_dir(mounted.place.path()).output().unwrap())
    };
    assert!(user(["create", "new"]).contains("Permission denied"));
    assert!(user(["check", "namespace"]).contains("Permission denied"));
    mounted.mount(&[]);
    assert!(user(["unmount", "on"]).contains("cannot unmount on"));
    assert!(mounted.is_mounted());
}

/// umount(8) returns before the process that served the mount has closed the namespace.
#[test]
fn a_namespace_can_be_mounted_again_at_once() {
    let mounted = Mounted::new();
    for round in 0..10 {
        fs::write(mounted.path(format!("file{round}")), vec![7; 200_000]).unwrap();
        let output = Command::new("umount").arg(&mounted.on).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let output = ns("mount").arg(&mounted.namespace).arg(&mounted.on).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(fs::read_dir(&mounted.on).unwrap().count(), 10);
    mounted.assert_sound();
}

#[test]
fn a_namespace_is_mounted_once() {
    let mounted = Mounted::new();
    let other = mounted.place.path().join("other");
    fs::create_dir(&other).unwrap();
    let output = ns("mount").arg(&mounted.namespace).arg(&other).output().unwrap();
    assert!(failure(&output).contains("is mounted, or used by another command"));
    // Commands that only read work beside the mount.
    let output = ns("du").arg(&mounted.namespace).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(mounted.log().contains("is mounted, or used by another command"));
    // What was tried has done no harm.
    fs::write(mounted.path("file"), "text").unwrap();
    mounted.assert_sound();
}

#[test]
fn a_directory_that_is_used_stays_mounted() {
    let mounted = Mounted::new();
    let file = File::create(mounted.path("file")).unwrap();
    let output = ns("unmount").arg(&mounted.on).output().unwrap();
    assert!(failure(&output).contains("busy"));
    fs::write(mounted.path("other"), "text").unwrap();
    drop(file);
    mounted.assert_sound();
}

#[test]
fn a_mount_that_is_read_only_refuses_changes() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    fs::create_dir(mounted.path("directory")).unwrap();
    fs::write(mounted.path("large"), vec![1; 10_000]).unwrap();
    mounted.unmount();
    for options in [&["--read-only"][..], &["-o", "rw,ro"]] {
        mounted.mount(options);
        let file = mounted.path("file");
        let refused: [std::io::Result<()>; 6] = [
            fs::write(&file, "other"),
            fs::create_dir(mounted.path("new")),
            fs::remove_file(&file),
            fs::rename(&file, mounted.path("new")),
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)),
            File::options().append(true).open(mounted.path("large")).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        }
        let accessed = |name: &str| fs::metadata(mounted.path(name)).unwrap().atime_nsec();
        let before = ["file", "directory"].map(accessed);
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        assert_eq!(fs::read_dir(mounted.path("directory")).unwrap().count(), 0);
        assert_eq!(["file", "directory"].map(accessed), before, "times of access have changed");
        mounted.unmount();
    }
}

#[test]
fn options_restrict_what_files_can_do() {
    let mounted = Mounted::with(&["-o", "nosuid,nodev,noexec,_netdev"]);
    let lines = String::from_utf8_lossy(&fs::read("/proc/self/mounts").unwrap()).into_owned();
    let own = lines.lines().find(|line| line.contains(mounted.on.to_str().unwrap())).unwrap();
    assert!(own.contains("rw,nosuid,nodev,noexec,"), "{own}");
    let program = mounted.path("program");
    fs::copy("/bin/true", &program).unwrap();
    let refused = std::process::Command::new(&program).status().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    fs::write(&program, "text").unwrap();
}

#[test]
fn a_private_mount_is_for_who_made_it() {
    let mounted = Mounted::with(&["--private"]);
    fs::write(mounted.path("file"), "text").unwrap();
    let listed = as_user(NOBODY, "ls").arg(&mounted.on).output().unwrap();
    assert!(!listed.status.success());
}

#[test]
fn unmounting_waits_until_all_is_on_the_disk() {
    let mounted = Mounted::new();
    for round in 0..3 {
        let line = "for i in {1..400}; do echo $i > small$1-$i; done; head -c 3M /dev/zero > l$1";
        shell(&mounted.on, &line.replace("$1", &round.to_string()));
        mounted.unmount();
        // Who mounts it next need not wait.
        mounted.mount(&[]);
        let count = fs::read_dir(&mounted.on).unwrap().count();
        assert_eq!(count, (round + 1) * 401);
        let large = fs::metadata(mounted.path(format!("l{round}"))).unwrap();
        assert_eq!(large.len(), 3 << 20);
    }
    mounted.assert_sound();
}

/// Mounts in the foreground.
fn foreground(mounted: &Mounted) -> Child {
    let mut command = ns("mount");
    command.arg("--foreground").arg(&mounted.namespace).arg(&mounted.on);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it is mounted", || mounted.is_mounted());
    child
}

#[test]
fn signals_unmount() {
    let mounted = Mounted::created();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let child = foreground(&mounted);
        let name = signal.as_str();
        fs::write(mounted.path(name), name).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        success(&child.wait_with_output().unwrap());
        assert!(!mounted.is_mounted());
    }
    mounted.mount(&[]);
    assert_eq!(fs::read_to_string(mounted.path("SIGTERM")).unwrap(), "SIGTERM");
    assert_eq!(fs::read_dir(&mounted.on).unwrap().count(), 3);
}

#[test]
fn a_signal_to_a_mount_that_is_used_is_told_and_the_next_one_works() {
    let mounted = Mounted::created();
    let child = foreground(&mounted);
    let id = Pid::from_raw(child.id() as i32);
    let file = File::create(mounted.path("file")).unwrap();
    kill(id, Signal::SIGINT).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert!(mounted.is_mounted());
    drop(file);
    kill(id, Signal::SIGINT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot unmount"));
    success(&output);
}

#[test]
fn a_mount_of_a_killed_process_is_reported_and_unmounted() {
    let mounted = Mounted::new();
    for id in mounted.processes() {
        kill(Pid::from_raw(id), Signal::SIGKILL).unwrap();
    }
    wait_until("nobody answers", || fs::read_dir(&mounted.on).is_err());
    let output = ns("mount").arg(&mounted.namespace).arg(&mounted.on).output().unwrap();
    let said = failure(&output);
    assert!(said.contains("was killed; first unmount it"), "{said}");
    mounted.unmount();
    mounted.mount(&[]);
    mounted.assert_sound();
}

/// Fails unless every command refuses a namespace, at once and with one line.
fn assert_refused(namespace: &Path, on: &Path, said: &str) {
    let begun = Instant::now();
    let outputs = [
        ns("info").arg(namespace).output().unwrap(),
        ns("find").arg(namespace).output().unwrap(),
        ns("mount").arg(namespace).arg(on).output().unwrap(),
    ];
    for output in outputs {
        let told = failure(&output);
        assert!(told.contains(said), "{told}");
    }
    assert!(begun.elapsed().as_secs() < 10);
}

#[test]
fn damage_is_told() {
    let mounted = Mounted::new();
    fs::write(mounted.path("file"), "text").unwrap();
    mounted.unmount();
    let (namespace, on) = (&mounted.namespace, &mounted.on);
    let object = namespace.join("namespace");
    let whole = fs::read(&object).unwrap();
    for length in [0, 1, whole.len() / 2, whole.len() - 1] {
        fs::write(&object, &whole[..length]).unwrap();
        assert_refused(namespace, on, "damaged: namespace does not say which table");
        let output = ns("check").arg(namespace).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("\n1 fault\n"), "{output:?}");
    }
    let output = ns("check").arg("--repair").arg(namespace).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let done = "namespace: it says again which table is the namespace\nall faults are mended\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), done);
    assert_eq!(fs::read(&object).unwrap(), whole);
    fs::write(&object, "{\"format\":99,\"table\":\"\"}").unwrap();
    assert_refused(namespace, on, "the namespace has format 99; this version reads formats 1 to 2");
    fs::write(&object, &whole).unwrap();
    let table = mounted.table();
    let hidden = mounted.place.path().join("hidden");
    fs::rename(&table, &hidden).unwrap();
    assert_refused(namespace, on, "no such object");
    fs::rename(&hidden, &table).unwrap();
    mounted.mount(&[]);
    assert_eq!(fs::read_to_string(mounted.path("file")).unwrap(), "text");
    mounted.assert_sound();
}

#[test]
fn contents_that_are_missing_are_errors_of_one_file() {
    let mounted = Mounted::new();
    fs::write(mounted.path("large"), vec![1; 10_000]).unwrap();
    fs::write(mounted.path("small"), "text").unwrap();
    mounted.unmount();
    shell(&mounted.namespace, "rm -r contents/*");
    mounted.mount(&[]);
    assert!(fs::read(mounted.path("large")).is_err());
    assert_eq!(fs::read_to_string(mounted.path("small")).unwrap(), "text");
    fs::remove_file(mounted.path("large")).unwrap();
    mounted.assert_sound();
}

/// Sets both times of a file, in seconds and nanoseconds since 1970, and returns what stat(1) shows.
fn set_and_see(path: &Path, time: (i64, i64)) -> String {
    let time = rustix::fs::Timespec { tv_sec: time.0, tv_nsec: time.1 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::empty()).unwrap();
    let shown = Command::new("stat").args(["-c", "%y|%x"]).arg(path).env("TZ", "UTC").output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let (mtime, atime) = shown.trim_end().split_once('|').unwrap();
    assert_eq!(mtime, atime);
    mtime.trim_end_matches(" +0000").to_owned()
}

#[test]
fn times_that_cannot_be_kept_become_the_nearest() {
    const FIRST: &str = "1677-09-21 00:12:43.145224192";
    const LAST: &str = "2262-04-11 23:47:16.854775807";
    let mounted = Mounted::new();
    let all = [
        ((-2, 500_000_000), "1969-12-31 23:59:58.500000000"),
        ((-1, 999_999_999), "1969-12-31 23:59:59.999999999"),
        ((-2_147_483_649, 0), "1901-12-13 20:45:51.000000000"),
        ((4_294_967_296, 1), "2106-02-07 06:28:16.000000001"),
        ((9_223_372_036, 854_775_807), LAST),
        ((9_223_372_036, 854_775_808), LAST),
        // The year 2300, the last one of ext4, the year 9999, and the last second that there is.
        ((10_413_792_000, 0), LAST),
        ((15_032_385_535, 0), LAST),
        ((253_402_300_799, 0), LAST),
        ((i64::MAX, 0), LAST),
        ((i64::MAX, 999_999_999), LAST),
        ((-9_223_372_037, 145_224_192), FIRST),
        ((-9_223_372_038, 0), FIRST),
        ((i64::MIN, 0), FIRST),
        ((i64::MIN, 999_999_999), FIRST),
    ];
    for name in ["small", "directory"] {
        let path = mounted.path(name);
        match name {
            "small" => fs::write(&path, "x").unwrap(),
            _ => fs::create_dir(&path).unwrap(),
        }
        for (time, shown) in all {
            assert_eq!(set_and_see(&path, time), shown, "{name} {time:?}");
        }
    }
    // Attributes that were shown stay.
    let path = mounted.path("small");
    set_and_see(&path, (10_413_792_000, 0));
    mounted.unmount();
    mounted.mount(&[]);
    assert_eq!(set_and_see(&mounted.path("directory"), (-2, 500_000_000)), all[0].1);
    let shown = Command::new("stat").args(["-c", "%y"]).arg(&path).env("TZ", "UTC").output();
    assert_eq!(shown.unwrap().stdout, format!("{LAST} +0000\n").as_bytes());
    mounted.assert_sound();
}
