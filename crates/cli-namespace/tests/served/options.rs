//! How a namespace on several servers is named, and options of its mount.

use crate::common::{CANOPY, NOBODY, as_user, failure, has, ns, shell, success};
use crate::site::{Site, mount_line, reserve};
use nix::unistd::{User, geteuid};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[test]
fn a_namespace_is_mounted_by_its_place_or_by_addresses() {
    let mut site = Site::new(2, 1);
    let namespace = site.namespace.to_str().unwrap().to_owned();
    let url = site.url();
    for (source, options, expected) in [
        (&namespace, &[][..], "rw,"),
        (&url, &["-o", "ro,nosuid,_netdev"][..], "ro,nosuid,"),
        (&url, &["--read-only"][..], "ro,"),
        (&url, &["-o", "cache=1.5,nodev"][..], "rw,nodev,"),
    ] {
        success(&site.mount_command(source, "on", options).output().unwrap());
        let on = site.path("on");
        let line = mount_line(&on).unwrap();
        assert!(line.starts_with(&format!("{source} ")), "{line}");
        assert!(line.contains("fuse.canopy") && line.contains(expected), "{line}");
        assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
        assert_eq!(fs::write(on.join("file"), "text").is_ok(), expected.starts_with("rw"));
        assert_eq!(fs::read_to_string(on.join("file")).unwrap(), "text");
        shell(&on, "df .; stat -f .");
        success(&site.unmount("on"));
        assert!(mount_line(&on).is_none());
    }
    let logs = shell(&site.path("cache/canopy/namespaces"), "ls */mount.log | wc -l");
    assert_eq!(logs.trim(), "2");
}

/// mount(8) starts its helper with an empty environment.
#[test]
fn the_helper_of_mount_needs_no_environment() {
    let mut site = Site::new(2, 1);
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mount.fuse.canopy");
    let script = fs::read_to_string(packaged).unwrap().replace("/usr/bin/canopy", CANOPY);
    let helper = site.path("mount.fuse.canopy");
    fs::write(&helper, script).unwrap();
    let home = User::from_uid(geteuid()).unwrap().unwrap().dir;
    let on = site.adopt("on");
    fs::create_dir(&on).unwrap();
    let port = site.processes[0].address.rsplit(':').next().unwrap().to_owned();
    for source in [site.url().into(), site.namespace.clone().into_os_string()] {
        let mut command = Command::new("/bin/sh");
        command.arg(&helper).arg(&source).arg(&on).args(["-o", "rw,nosuid,_netdev"]).env_clear();
        success(&command.output().unwrap());
        fs::write(on.join("file"), "text").unwrap();
        success(&site.unmount("on"));
    }
    let kept = home.join(".cache/canopy/namespaces");
    let logs = fs::read_dir(kept).unwrap().map(|entry| entry.unwrap().path());
    let name = site.namespace.to_str().unwrap().replace('/', "+");
    let is_own = |path: &PathBuf| {
        path.to_str()
            .is_some_and(|path| path.ends_with(&format!(":{port}")) || path.ends_with(&name))
    };
    let own = Vec::from_iter(logs.filter(is_own));
    own.iter().for_each(|directory| fs::remove_dir_all(directory).unwrap());
    assert_eq!(own.len(), 2);
}

#[test]
fn large_files_need_the_storage() {
    let mut site = Site::new(2, 1);
    let other = Site::created(1, &[]);
    let url = site.url();
    let elsewhere = other.namespace.to_str().unwrap();
    for (storage, expected) in
        [("/no/such/place", "no such directory"), (elsewhere, "it has cluster ")]
    {
        let told = site.mount_command(&url, "on", &["--storage", storage]).output().unwrap();
        let told = failure(&told);
        assert!(told.contains(expected) && told.contains("(--storage PLACE)"), "{told}");
        assert!(told.contains("--storage none"), "{told}");
    }
    // Another way to the place.
    let link = site.path("link");
    std::os::unix::fs::symlink(&site.namespace, &link).unwrap();
    let storage = format!("storage={}", link.display());
    let on = site.mount("on", &["-o", &storage]);
    fs::write(on.join("large"), vec![1; 100_000]).unwrap();
    success(&site.unmount("on"));
    let on = site.mount("on", &["--storage", "none"]);
    fs::write(on.join("small"), "text").unwrap();
    assert_eq!(fs::read_to_string(on.join("small")).unwrap(), "text");
    fs::read(on.join("large")).unwrap_err();
    let mut new = fs::File::create(on.join("new")).unwrap();
    new.write_all(&vec![1; 100_000]).unwrap();
    new.sync_all().unwrap_err();
    drop(new);
    assert_eq!(on.join("large").metadata().unwrap().len(), 100_000);
    success(&site.unmount("on"));
}

#[test]
fn wrong_names_and_options_are_reported() {
    let mut site = Site::created(2, &[]);
    let namespace = site.namespace.to_str().unwrap().to_owned();
    for (source, options, expected) in [
        (namespace.as_str(), &[][..], "'canopy cluster start "),
        ("canopy://", &[], "canopy://HOST:PORT,HOST:PORT"),
        ("canopy://127.0.0.1", &[], "is not an address"),
        (&namespace, &["--snapshot", "x"], "no process of this cluster runs"),
        (&namespace, &["--cache", "/tmp"], "are cached in memory"),
        (&namespace, &["-o", "cache=x"], "-o cache=x: give seconds"),
        (&namespace, &["--certificate", "/no/file"], "/no/file: No such file"),
    ] {
        let told = failure(&site.mount_command(source, "on", options).output().unwrap());
        assert!(told.contains(expected), "{source} {options:?}: {told}");
    }
    // A namespace of one machine.
    let local = site.path("local");
    success(&ns("create").arg(&local).output().unwrap());
    let local = local.to_str().unwrap().to_owned();
    let told = site.mount_command(&local, "on", &["--storage", "none"]).output().unwrap();
    assert!(failure(&told).contains("are for namespaces on several servers"));
    // The mount is not over what it reads.
    site.start();
    let command = ns("mount").arg(&namespace).arg(&namespace).output().unwrap();
    assert!(failure(&command).contains("cannot be mounted over itself"));
}

#[test]
fn a_user_mounts_by_several_addresses_and_unmounts() {
    if !has("fusermount3") {
        return;
    }
    let mode = fs::metadata("/dev/fuse").unwrap().mode();
    assert_eq!(mode & 0o006, 0o006, "users cannot mount here: chmod a+rw /dev/fuse");
    let mut site = Site::new(2, 2);
    let url = site.url();
    assert!(url.contains(','), "{url}");
    for name in ["on", "cache"] {
        fs::create_dir(site.path(name)).unwrap();
        chown(site.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let on = site.adopt("on");
    // A mount starts its program again, which is in a directory of root.
    let programs = site.path("programs");
    fs::create_dir(&programs).unwrap();
    for name in ["canopy", "canopy-ns"] {
        fs::copy(Path::new(CANOPY).with_file_name(name), programs.join(name)).unwrap();
    }
    let canopy = programs.join("canopy");
    let as_nobody = |words: &[&str]| {
        let mut command = as_user(NOBODY, canopy.to_str().unwrap());
        command.env("XDG_CACHE_HOME", site.path("cache")).arg("ns").args(words).arg(&on);
        command.output().unwrap()
    };
    success(&as_nobody(&["mount", "--storage", "none", &url]));
    let line = mount_line(&on).unwrap();
    assert!(line.starts_with(&format!("{url} ")), "{line}");
    success(&as_nobody(&["unmount"]));
    assert!(mount_line(&on).is_none());
}

#[test]
fn a_mount_has_no_more_threads_than_can_run() {
    let mut site = Site::new(1, 1);
    let url = site.url();
    let told = site.mount_command(&url, "on", &["--threads", "100000"]).output().unwrap();
    let told = failure(&told);
    assert!(told.contains("--threads 100000: at most "), "{told}");
    assert!(mount_line(&site.path("on")).is_none());
    success(&site.mount_command(&url, "on", &["--threads", "40"]).output().unwrap());
    // A mount in use stays, with advice.
    let on = site.path("on");
    let file = fs::File::create(on.join("file")).unwrap();
    let told = failure(&site.unmount("on"));
    assert!(told.contains("fuser -vm ") && told.contains("umount -l "), "{told}");
    drop(file);
    success(&site.unmount("on"));
}

#[test]
fn messages_name_what_to_give() {
    let mut site = Site::new(1, 1);
    let url = site.url();
    let told = failure(&ns("create").args(["--servers", "1", &url]).output().unwrap());
    assert!(told.contains("give the directory or bucket"), "{told}");
    let spaced = site.path("with space");
    let told = success(&ns("create").args(["--servers", "1"]).arg(&spaced).output().unwrap());
    assert!(told.contains(&format!("canopy cluster start '{}' --listen", spaced.display())));
    let lined = site.path("a\nb");
    let told = success(&ns("create").args(["--servers", "1"]).arg(&lined).output().unwrap());
    assert!(
        told.contains("canopy cluster start $'") && told.contains("/a\\nb' --listen"),
        "{told}"
    );
    let told = site.mount_command(&url, "on", &["--certificate", "/nosuch"]).output().unwrap();
    let told = failure(&told);
    assert!(told.contains("cannot use the certificate: /nosuch"), "{told}");
    site.mount("on", &[]);
    for place in [&site.path("on"), &site.namespace] {
        let told = ns("snapshot").arg("restore").arg(place).arg("one").output().unwrap();
        let told = failure(&told);
        assert!(told.contains("run") && told.contains("stop them"), "{told}");
    }
}

#[test]
fn limits_and_snapshots_need_no_storage() {
    let site = Site::new(1, 1);
    let url = site.url();
    // As on a machine that has no such directory. The servers keep it open.
    let elsewhere = site.path("elsewhere");
    fs::rename(&site.namespace, &elsewhere).unwrap();
    success(&ns("snapshot").args(["create", &url, "one"]).output().unwrap());
    assert!(success(&ns("snapshot").args(["list", &url]).output().unwrap()).contains("one"));
    success(&ns("quota").arg(&url).output().unwrap());
    fs::rename(&elsewhere, &site.namespace).unwrap();
}

#[test]
fn commands_notice_that_all_processes_were_killed() {
    let mut site = Site::new(2, 2);
    let on = site.mount("on", &[]);
    fs::write(on.join("file"), "text").unwrap();
    success(&site.unmount("on"));
    let addresses = site.url();
    let ends = site.processes.drain(..).map(|process| {
        let address = process.address.clone();
        process.kill();
        reserve(&address)
    });
    let _reserved = Vec::from_iter(ends);
    // At once, a lease may still be valid.
    let place = &site.namespace;
    let told = failure(&ns("mount").arg(place).arg(&on).output().unwrap());
    let expected = "no process of this cluster runs: none answers at 127.0.0.1:";
    assert!(told.contains(expected), "{told}");
    // It says first what it waits for.
    let ended = ns("mount").arg(&addresses).arg(&on).output().unwrap();
    assert!(!ended.status.success());
    let told = String::from_utf8(ended.stderr).unwrap();
    assert!(told.contains("the cluster has not answered for 5 s"), "{told}");
    assert!(told.contains("starts one on this machine"), "{told}");
    assert!(!told.contains("certificate"), "{told}");
    // The last renewals are not believed for longer than a lease.
    std::thread::sleep(Duration::from_millis(500));
    let told = failure(&ns("snapshot").arg("create").arg(place).arg("one").output().unwrap());
    assert!(told.contains("no process runs the servers of "), "{told}");
    let told = failure(&ns("mount").arg(place).arg(&on).output().unwrap());
    assert!(told.contains("no process of this cluster runs"), "{told}");
    let told = success(&ns("info").arg(place).output().unwrap());
    assert!(told.contains("processes 0\n"), "{told}");
    assert_eq!(
        success(&ns("find").arg(place).args(["-name", "file"]).output().unwrap()),
        "/file\n"
    );
}
