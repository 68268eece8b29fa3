//! Mounts by a machine that servers do not trust: they check each user.

use crate::common::{as_user, failure, ns, success};
use crate::site::Site;
use rustix::fs::XattrFlags;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Output;

const ADA: u32 = 4001;
const BEN: u32 = 4002;

/// A cluster with certificates, mounted by a machine that does not speak for root, and by the
/// servers' own.
fn mounted() -> Site {
    let mut site = Site::created(2, &["--chunk-size", "64K"]);
    success(&site.cluster(&["certificate", "--server", "@"]));
    success(&site.cluster(&["certificate", "--node", "n1", "@"]));
    success(&site.cluster(&["certificate", "--node", "n2", "--root", "@"]));
    site.start();
    for (on, file) in [("n1", "n1.pem"), ("n2", "n2.pem"), ("own", "namespace/server.pem")] {
        let file = site.path(file);
        site.mount(on, &["-o", "cache=0", "--certificate", file.to_str().unwrap()]);
    }
    site
}

fn run(uid: u32, directory: &Path, line: &str) -> Output {
    let mut command = as_user(uid, "bash");
    command.args(["-e", "-c", line]).current_dir(directory).output().unwrap()
}

#[test]
fn servers_check_users_of_machines() {
    let site = mounted();
    let [node, root_node, own] = ["n1", "n2", "own"].map(|on| site.path(on));
    fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
    for on in [&node, &root_node] {
        let name = on.file_name().unwrap().to_str().unwrap().to_owned();
        success(&run(
            ADA,
            on,
            &format!("mkdir {name} && echo text > {name}/file && chmod 700 {name}"),
        ));
        success(&run(
            ADA,
            on,
            &format!("head -c 300000 /dev/zero > {name}/large && wc -c {name}/large"),
        ));
        success(&run(
            ADA,
            on,
            &format!("ls -la {name}; cat {name}/file; mv {name}/file {name}/moved"),
        ));
        success(&run(
            ADA,
            on,
            &format!("ln {name}/moved {name}/link; rm {name}/link; truncate -s 3 {name}/moved"),
        ));
        assert_eq!(fs::read_to_string(own.join(&name).join("moved")).unwrap(), "tex");
        assert_eq!(own.join(&name).join("large").metadata().unwrap().uid(), ADA);
        for line in ["ls", "cat"] {
            let target = if line == "ls" { name.clone() } else { format!("{name}/moved") };
            let refused = run(BEN, on, &format!("{line} {target}"));
            assert!(!refused.status.success(), "{refused:?}");
        }
        let refused = run(BEN, on, &format!("rm -rf {name}"));
        assert!(!refused.status.success(), "{refused:?}");
    }
    // Root of a machine is nobody there, unless the certificate says that it is root.
    fs::write(own.join("of-root"), "secret").unwrap();
    fs::set_permissions(own.join("of-root"), Permissions::from_mode(0o600)).unwrap();
    assert!(fs::read(node.join("of-root")).is_err());
    assert!(fs::write(node.join("by-root"), "x").is_err());
    assert!(fs::set_permissions(node.join("of-root"), Permissions::from_mode(0o666)).is_err());
    assert!(chown(node.join("of-root"), Some(ADA), None).is_err());
    assert!(fs::remove_file(node.join("of-root")).is_err());
    assert_eq!(fs::read(root_node.join("of-root")).unwrap(), b"secret");
    chown(root_node.join("of-root"), Some(ADA), None).unwrap();
    assert_eq!(success(&run(ADA, &node, "cat of-root")), "secret");
}

#[test]
fn rights_that_are_taken_away_count_at_once() {
    let site = mounted();
    let (node, own) = (site.path("n1"), site.path("own"));
    fs::create_dir(own.join("d")).unwrap();
    fs::write(own.join("d/file"), "text").unwrap();
    fs::set_permissions(own.join("d"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(own.join("d/file"), Permissions::from_mode(0o644)).unwrap();
    assert_eq!(success(&run(BEN, &node, "cat d/file; ls d")), "textfile\n");
    fs::set_permissions(own.join("d"), Permissions::from_mode(0o700)).unwrap();
    for line in ["cat d/file", "ls d", "stat d/file"] {
        let refused = run(BEN, &node, line);
        assert!(!refused.status.success(), "{line}: {refused:?}");
    }
}

/// A file that users may write and not read. They could not open it.
#[test]
fn a_file_is_written_by_users_who_may_not_read_it() {
    let site = mounted();
    let (node, own) = (site.path("n1"), site.path("own"));
    let file = own.join("log");
    fs::write(&file, "0123456789").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o622)).unwrap();
    let written = |line: &str| {
        success(&run(BEN, &node, line));
        fs::read(&file).unwrap()
    };
    let refused = |line: &str| {
        let output = run(BEN, &node, line);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("Permission denied"), "{line}: {output:?}");
        fs::read(&file).unwrap()
    };
    let over = |at: usize| format!("printf AB | dd of=log bs=1 seek={at} conv=notrunc status=none");
    assert_eq!(written(&over(2)), b"01AB456789");
    assert_eq!(written("printf end >> log"), b"01AB456789end");
    assert_eq!(refused("cat log"), b"01AB456789end");
    assert_eq!(refused("cat <> log"), b"01AB456789end");
    // Too large for a record: what is there would have to be read.
    assert_eq!(refused(&over(5000)), b"01AB456789end");
    assert_eq!(written("printf new > log"), b"new");
    let large = written("head -c 200000 /dev/zero | tr '\\0' x > log");
    assert!(large == [b'x'; 200_000]);
    // The client knows the chunks that it has made itself, so each part may be synced.
    let synced =
        "head -c 100000 /dev/zero | tr '\\0' z | dd of=log bs=10000 iflag=fullblock oflag=sync";
    let large_again = written(synced);
    assert!(large_again == [b'z'; 100_000], "{}", large_again.len());
    let large = written("head -c 200000 /dev/zero | tr '\\0' x > log");
    assert!(large == [b'x'; 200_000]);
    // Users can replace whole chunks, but not parts of them.
    let chunk = "head -c 65536 /dev/zero | tr '\\0' y";
    let large = written(&format!("{chunk} | dd of=log bs=64K seek=1 conv=notrunc iflag=fullblock"));
    assert!(large[65_535..][..2] == *b"xy" && large[131_071..][..2] == *b"yx", "{}", large.len());
    assert!(refused(&over(70_000)) == large);
    assert!(refused("printf end >> log") == large);
    assert!(refused("cat log") == large);
}

/// The kernel asks for setuid and setgid bits to be taken away before a write. Servers once let only the
/// owner do that.
#[test]
fn writing_takes_privileges_away() {
    let site = mounted();
    let own = site.path("own");
    fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
    for mode in [0o777, 0o4777, 0o2777, 0o6777, 0o2775, 0o4755] {
        for on in ["n1", "n2", "own"] {
            let here = own.join("file");
            fs::write(&here, "text").unwrap();
            fs::set_permissions(&here, Permissions::from_mode(mode)).unwrap();
            let written = run(ADA, &site.path(on), "echo more 1<> file");
            let is_writable = mode & 0o002 != 0;
            assert_eq!(written.status.success(), is_writable, "{on} {mode:o}: {written:?}");
            let expected = if is_writable { mode & 0o777 } else { mode };
            assert_eq!(here.metadata().unwrap().mode() & 0o7777, expected, "{on} {mode:o}");
            fs::remove_file(&here).unwrap();
        }
    }
}

/// The kernel asks for capabilities to be removed in the name of the user who writes. Servers once
/// refused that to all but root.
#[test]
fn writing_takes_capabilities_away() {
    let site = mounted();
    let own = site.path("own");
    fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
    let here = own.join("file");
    let (name, raw_sockets) =
        ("security.capability", b"\0\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let has_any = || rustix::fs::getxattr(&here, name, &mut [0_u8; 64]).is_ok();
    for on in ["n1", "n2", "own"] {
        for write in ["echo more >> file", "echo less > file", "truncate -s 3 file"] {
            fs::write(&here, "text").unwrap();
            fs::set_permissions(&here, Permissions::from_mode(0o666)).unwrap();
            rustix::fs::setxattr(&here, name, raw_sockets, XattrFlags::CREATE).unwrap();
            assert!(has_any());
            success(&run(ADA, &site.path(on), write));
            assert!(!has_any(), "{on}: {write}");
        }
        rustix::fs::setxattr(&here, name, raw_sockets, XattrFlags::CREATE).unwrap();
        let removed = "python3 -c 'import os; os.removexattr(\"file\", \"security.capability\")'";
        let removed = run(ADA, &site.path(on), removed);
        assert!(!removed.status.success() && has_any(), "{on}: {removed:?}");
        fs::remove_file(&here).unwrap();
    }
}

/// As cp(1) does with a file that has a hole at its end. Servers once judged the mode anew.
#[test]
fn owners_set_the_length_of_files_that_they_have_open() {
    let site = mounted();
    let own = site.path("own");
    fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
    for on in ["n1", "n2", "own"] {
        let make = "python3 -c 'import os; file = os.open(\"file\", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o400); \
                    os.write(file, b\"text\"); os.ftruncate(file, 100000); os.ftruncate(file, 2)'";
        success(&run(ADA, &site.path(on), make));
        assert_eq!(fs::read_to_string(own.join("file")).unwrap(), "te", "{on}");
        // By its path, its mode counts, and always does for others.
        let cut = run(ADA, &site.path(on), "truncate -s 1 file");
        assert!(!cut.status.success(), "{on}: {cut:?}");
        fs::remove_file(own.join("file")).unwrap();
    }
}

/// The contents of a small file become chunks first, which nobody writes.
#[test]
fn lengths_that_root_sets_take_no_privileges() {
    let site = mounted();
    for on in ["own", "n2"] {
        let file = site.path(on).join("file");
        fs::write(&file, "text").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o6775)).unwrap();
        let open = fs::File::options().write(true).open(&file).unwrap();
        open.set_len(100_000).unwrap();
        drop(open);
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o6775, "{on}");
        fs::remove_file(&file).unwrap();
    }
}

/// Bytes of root went under the name of a user who had the file open, too, and were lost with the
/// user's right to write.
#[test]
fn what_root_writes_is_not_lost_with_rights_of_others() {
    let site = mounted();
    let (on, own) = (site.path("n2"), site.path("own"));
    fs::write(own.join("log"), "begin").unwrap();
    fs::set_permissions(own.join("log"), Permissions::from_mode(0o666)).unwrap();
    let open = || fs::File::options().read(true).write(true).open(on.join("log")).unwrap();
    let log = open();
    success(&run(ADA, &on, "exec 3<> log"));
    fs::set_permissions(own.join("log"), Permissions::from_mode(0o600)).unwrap();
    for (file, text) in [(log, "first"), (open(), "other")] {
        file.write_all_at(text.as_bytes(), 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read_to_string(own.join("log")).unwrap(), text);
    }
}

/// These commands could not use addresses of servers with certificates at all.
#[test]
fn commands_find_their_certificate() {
    let site = mounted();
    let (url, on) = (site.url(), site.path("n2"));
    let (node, server) = (site.path("n2.pem"), site.namespace.join("server.pem"));
    let run = |words: &[&str], file: &Path| {
        let mut command = ns(words[0]);
        command.args(&words[1..]).env("CANOPY_CERTIFICATE", file).output().unwrap()
    };
    for words in [&["quota", &url][..], &["snapshot", "list", &url]] {
        success(&run(words, &node));
        let told = failure(&run(words, Path::new("")));
        assert!(told.contains("CANOPY_CERTIFICATE=FILE"), "{told}");
        let told = failure(&run(words, Path::new("/nosuch")));
        assert!(told.contains("cannot use the certificate: /nosuch"), "{told}");
    }
    for place in [&url, on.to_str().unwrap()] {
        let words = ["check", place, "--certificate", server.to_str().unwrap()];
        assert_eq!(success(&run(&words, Path::new(""))), "no faults\n");
    }
}

#[test]
fn a_certificate_is_needed_and_checked() {
    let mut site = Site::created(1, &[]);
    let other = Site::created(1, &[]);
    success(&site.cluster(&["certificate", "--server", "@"]));
    success(&other.cluster(&["certificate", "--node", "n1", "@"]));
    site.start();
    let url = site.url();
    let wrong = other.path("n1.pem");
    for options in [&[][..], &["--certificate", wrong.to_str().unwrap()]] {
        let told = failure(&site.mount_command(&url, "on", options).output().unwrap());
        assert!(told.contains("cannot reach the servers"), "{told}");
    }
    let told = failure(&site.mount_command(&url, "on", &[]).output().unwrap());
    assert!(told.contains("--certificate FILE"), "{told}");
    // That of the servers is beside the place.
    let namespace = site.namespace.to_str().unwrap().to_owned();
    success(&site.mount_command(&namespace, "on", &[]).output().unwrap());
    success(&site.unmount("on"));
}

#[test]
fn snapshots_are_shown_by_the_rights_of_users() {
    let mut site = mounted();
    let own = site.path("own");
    for (name, mode, uid) in [("open", 0o755, 0), ("ada", 0o700, ADA), ("later", 0o755, 0)] {
        fs::create_dir(own.join(name)).unwrap();
        fs::write(own.join(name).join("file"), name).unwrap();
        fs::write(own.join(name).join("large"), vec![b'x'; 200_000]).unwrap();
        fs::set_permissions(own.join(name).join("file"), Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(own.join(name).join("large"), Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("file", own.join(name).join("link")).unwrap();
        for file in ["file", "large", "."] {
            chown(own.join(name).join(file), Some(uid), Some(uid)).unwrap();
        }
        fs::set_permissions(own.join(name), Permissions::from_mode(mode)).unwrap();
    }
    let snapshot = crate::common::ns("snapshot").arg("create").arg(&own).arg("then").output();
    success(&snapshot.unwrap());
    fs::remove_dir_all(own.join("open")).unwrap();
    fs::write(own.join("ada/file"), "now").unwrap();
    fs::set_permissions(own.join("later"), Permissions::from_mode(0o700)).unwrap();
    let past = {
        let certificate = site.path("n1.pem");
        let options = ["--snapshot", "then", "--certificate", certificate.to_str().unwrap()];
        site.mount("past", &options)
    };
    for then in [site.path("n1/[@then]"), site.path("n2/[@then]"), past.clone()] {
        let shown = |uid, line: &str| {
            // The process of this test is root, whom the first machine does not speak for.
            let output = run(uid, Path::new("/"), &format!("cd '{}'; {line}", then.display()));
            (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
        };
        for uid in [ADA, BEN] {
            let list = shown(
                uid,
                "ls . open; ls -a open/.. > /dev/null; cat open/link; wc -c < open/large",
            );
            let expected = ".:\nada\nlater\nopen\n\nopen:\nfile\nlarge\nlink\nopen200000\n";
            assert_eq!(list, (true, expected.to_owned()), "{uid} in {}", then.display());
            // Closed since.
            assert!(!shown(uid, "cat later/file").0);
        }
        assert_eq!(shown(ADA, "cat ada/file"), (true, "ada".to_owned()));
        for line in ["cat ada/file", "ls ada"] {
            assert!(!shown(BEN, line).0, "{line} in {}", then.display());
        }
    }
    assert!(fs::read(past.join("ada/file")).is_err());
    assert_eq!(fs::read_to_string(site.path("n2/[@then]/later/file")).unwrap(), "later");
    for on in ["past", "n1", "n2", "own"] {
        success(&site.unmount(on));
    }
}
