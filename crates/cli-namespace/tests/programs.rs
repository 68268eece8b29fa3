//! Programs that people use, on a mount. The helper `requirements` decides about missing ones.

mod common;

use common::requirements::{self, has, has_user};
use common::{Mounted, as_user, shell, success};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A tree of sources: 50 files with a function each, and a program that calls them.
fn sources(directory: &Path) {
    fs::create_dir_all(directory.join("parts")).unwrap();
    let (mut main, mut calls) = (String::new(), String::new());
    for part in 0..50 {
        let text = format!("int part{part}(void) {{ return {part}; }}\n");
        fs::write(directory.join(format!("parts/part{part}.c")), text).unwrap();
        main += &format!("int part{part}(void);\n");
        calls += &format!(" + part{part}()");
    }
    main += &format!("#include <stdio.h>\nint main(void) {{ printf(\"%d\\n\", 0{calls}); }}\n");
    fs::write(directory.join("main.c"), main).unwrap();
    let rules = "program: main.o $(patsubst %.c,%.o,$(wildcard parts/*.c))\n\tcc -o $@ $^\n";
    fs::write(directory.join("Makefile"), rules).unwrap();
}

#[test]
fn git_clones_checks_and_collects() {
    if !has("git") {
        return;
    }
    let mounted = Mounted::new();
    let origin = mounted.place.path().join("origin");
    sources(&origin);
    let git = "git -c user.name=a -c user.email=a@b -c init.defaultBranch=main";
    let commit = format!("{git} add -A; {git} commit -qm text");
    shell(&origin, &format!("{git} init -q; {commit}"));
    for round in 0..5 {
        fs::write(origin.join(format!("file{round}")), vec![round; 20_000]).unwrap();
        shell(&origin, &commit);
    }
    shell(&mounted.on, &format!("{git} clone -q file://{} copy", origin.display()));
    let copy = mounted.path("copy");
    shell(&copy, &format!("echo more >> main.c; {commit}; {git} checkout -q -b other HEAD~3"));
    shell(&copy, &format!("{git} fsck --strict --full; {git} gc -q; {git} fsck --full"));
    assert_eq!(shell(&copy, &format!("{git} status --porcelain")), "");
    mounted.assert_sound();
}

#[test]
fn tar_and_rsync_keep_all_there_is() {
    let mounted = Mounted::new();
    let tree = mounted.place.path().join("tree");
    sources(&tree);
    shell(
        &tree,
        "ln main.c hard; ln -s main.c soft; ln -s /nowhere dangling; mkfifo pipe; \
         mkdir -m 1777 open; mkdir -m 700 closed; head -c 300000 /dev/urandom > large; \
         truncate -s 10M sparse; touch -d '1999-12-31 23:59:59.123456789' old; chmod 4755 large; \
         touch \"$(printf 'a\\nb')\"; chown 1234:2345 old",
    );
    // Sizes of directories differ between file systems.
    let list = "(find . -type d -printf '%P d %m %U %G %n %T@\\n'; \
                find . ! -type d -printf '%P %y %m %U %G %n %s %T@ %l\\n') | sort";
    let expected = shell(&tree, list);
    shell(
        &mounted.on,
        "mkdir a b; export TAR_OPTIONS=--format=posix; \
         tar -C ../tree -c . | tar -C a -xp; tar -C a -cf b.tar .",
    );
    shell(&mounted.on, "tar -C b -xpf b.tar; diff -r --no-dereference -x pipe a b");
    for name in ["a", "b"] {
        assert_eq!(shell(&mounted.path(name), list), expected);
    }
    if has("rsync") {
        shell(&tree, "setfattr -n user.note -v text main.c; setfacl -m u:1000:r main.c || true");
        let copy = "rsync -aHAX --delete --itemize-changes tree/ on/c/";
        assert!(shell(mounted.place.path(), copy).lines().count() > 50);
        assert_eq!(shell(mounted.place.path(), copy), "");
        shell(mounted.place.path(), "diff -r --no-dereference -x pipe tree on/c; rm tree/hard");
        assert!(shell(mounted.place.path(), copy).contains("*deleting   hard"));
    }
    mounted.assert_sound();
}

#[test]
fn sqlite_keeps_transactions_in_both_modes() {
    if !has("sqlite3") {
        return;
    }
    let mounted = Mounted::new();
    for mode in ["delete", "wal"] {
        let sql = |text: &str| {
            let mut command = Command::new("sqlite3");
            command.args(["-cmd", ".timeout 20000", &format!("{mode}.db"), text]);
            success(&command.current_dir(&mounted.on).output().unwrap())
        };
        let made = sql(&format!("pragma journal_mode={mode}; create table t(a, b);"));
        assert_eq!(made.trim(), mode);
        std::thread::scope(|scope| {
            for writer in 0..3 {
                scope.spawn(move || {
                    for _ in 0..10 {
                        sql(&format!("insert into t values({writer}, randomblob(3000));"));
                    }
                });
            }
        });
        assert_eq!(sql("select count(*) from t;").trim(), "30");
        sql("delete from t where a = 1; vacuum;");
        assert_eq!(sql("pragma integrity_check;").trim(), "ok");
    }
    mounted.assert_sound();
}

#[test]
fn postgresql_runs() {
    if !(has("initdb") && has("pg_ctl") && has("pgbench") && has_user("postgres")) {
        return;
    }
    let user = nix::unistd::User::from_name("postgres").unwrap().unwrap();
    let mounted = Mounted::new();
    let uid = user.uid.as_raw();
    std::os::unix::fs::chown(&mounted.on, Some(uid), Some(uid)).unwrap();
    let line = "initdb -D data -A trust -E UTF8 --locale=C -N > /dev/null; \
                echo \"listen_addresses=''\" >> data/postgresql.conf; \
                echo \"unix_socket_directories='$PWD'\" >> data/postgresql.conf; \
                pg_ctl -D data -w -l log start > /dev/null; export PGHOST=$PWD; \
                trap 'pg_ctl -D data -w -m immediate stop > /dev/null' EXIT; \
                pgbench -q -i -s 1 postgres > log2 2>&1; pgbench -c 2 -T 2 postgres 2>&1; \
                pg_ctl -D data -w -m fast stop > /dev/null; \
                pg_ctl -D data -w -l log start > /dev/null";
    let mut command = as_user(uid, "bash");
    command.args(["-e", "-c", line]).current_dir(&mounted.on).env("HOME", &mounted.on);
    command.env("PATH", requirements::path());
    let told = success(&command.output().unwrap());
    assert!(told.contains("tps = "), "{told}");
    mounted.assert_sound();
}

#[test]
fn projects_are_built() {
    if !(has("make") && has("cc")) {
        return;
    }
    let mounted = Mounted::new();
    sources(&mounted.path("project"));
    let project = mounted.path("project");
    shell(&project, "make -s -j4");
    assert_eq!(shell(&project, "./program"), "1225\n");
    assert!(shell(&project, "make").contains("up to date"));
    shell(&project, "sleep 0.01; echo 'int part3(void) { return 0; }' > parts/part3.c; make -s");
    assert_eq!(shell(&project, "./program"), "1222\n");
    mounted.assert_sound();
}

#[test]
fn cargo_builds() {
    if !has("cargo") {
        return;
    }
    let mounted = Mounted::new();
    let line = "cargo init -q --vcs none --name tiny tiny; cd tiny; \
                cargo run -q --offline; cargo build -q --offline --release";
    let mut command = Command::new("bash");
    command.args(["-e", "-c", line]).current_dir(&mounted.on);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO")) {
        if name != "CARGO_HOME" {
            command.env_remove(name);
        }
    }
    command.env_remove("RUSTC_WORKSPACE_WRAPPER");
    assert_eq!(success(&command.output().unwrap()), "Hello, world!\n");
    mounted.assert_sound();
}

#[test]
fn fio_reads_what_it_wrote() {
    if !has("fio") {
        return;
    }
    let mounted = Mounted::new();
    for engine in ["psync", "mmap"] {
        let line = format!(
            "fio --name=a --size=8M --bs=4k-32k --rw=randrw --ioengine={engine} --numjobs=2 \
             --verify=crc32c --verify_fatal=1 --output=/dev/null"
        );
        shell(&mounted.on, &line);
    }
    mounted.assert_sound();
}

#[test]
fn nothing_that_two_append_is_lost_or_torn() {
    let mounted = Mounted::new();
    // The second file is large from the beginning: the kernel writes it itself.
    for (name, before) in [("small", 0), ("large", 100_000)] {
        let path = mounted.path(name);
        fs::write(&path, vec![b'\n'; before]).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..2 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(path).unwrap();
                    for number in 0..2000 {
                        let line = format!("{writer} {number} {}\n", "x".repeat(number % 50));
                        file.write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        for writer in 0..2 {
            let own = text.lines().filter(|line| line.starts_with(&format!("{writer} ")));
            for (number, line) in own.enumerate() {
                assert_eq!(line, format!("{writer} {number} {}", "x".repeat(number % 50)));
            }
        }
        assert_eq!(text.lines().filter(|line| !line.is_empty()).count(), 4000);
    }
    mounted.assert_sound();
}

#[test]
fn trees_are_walked_and_measured() {
    let mounted = Mounted::new();
    let line = "mkdir -p {a,b}/{c,d}/{e,f}; for i in {1..500}; do echo $i > a/c/e/$i; done; \
                head -c 1M /dev/urandom > b/large";
    shell(&mounted.on, line);
    assert_eq!(shell(&mounted.on, "find . -type f | wc -l").trim(), "501");
    assert_eq!(shell(&mounted.on, "find . -type d -links 2 | wc -l").trim(), "8");
    assert_eq!(shell(&mounted.on, "du -sb --apparent-size b/large | cut -f1").trim(), "1048576");
    assert!(shell(&mounted.on, "du -sk a | cut -f1").trim().parse::<u64>().unwrap() >= 250);
    if has("bfs") {
        assert_eq!(shell(&mounted.on, "bfs . -type f | wc -l").trim(), "501");
    }
    shell(&mounted.on, "df . | grep -q 100% || true; rm -r a b; test -z \"$(ls -A)\"");
    mounted.assert_sound();
}

#[test]
fn files_are_mapped_into_memory() {
    if !has("python3") {
        return;
    }
    let mounted = Mounted::new();
    let program = r#"
import mmap, os
for name, size in (('small', 3000), ('large', 100000)):
    with open(name, 'wb') as file: file.write(b'a' * size)
    with open(name, 'r+b') as file, mmap.mmap(file.fileno(), 0) as shared:
        shared[size - 5:] = b'mmap!'
        # What is written otherwise is seen in the memory, and the other way.
        os.pwrite(file.fileno(), b'write', 0)
        assert shared[:5] == b'write', shared[:5]
        assert os.pread(file.fileno(), 5, size - 5) == b'mmap!'
        shared.flush()
    with open(name, 'rb') as file: assert file.read() == b'write' + b'a' * (size - 10) + b'mmap!'
    with open(name, 'rb') as file, mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE) as own:
        own[:5] = b'mine!'
    assert open(name, 'rb').read(5) == b'write'
"#;
    fs::write(mounted.place.path().join("program.py"), program).unwrap();
    shell(&mounted.on, "python3 ../program.py");
    mounted.unmount();
    mounted.mount(&[]);
    assert!(fs::read(mounted.path("small")).unwrap().ends_with(b"mmap!"));
    assert!(fs::read(mounted.path("large")).unwrap().ends_with(b"mmap!"));
    mounted.assert_sound();
}

#[test]
fn locks_exclude_other_processes() {
    let mounted = Mounted::new();
    let line = "echo 0 > counter; count() { for i in {1..50}; do flock lock bash -c \
                'n=$(cat counter); echo $((n + 1)) > counter'; done; }; count & count & wait";
    shell(&mounted.on, line);
    assert_eq!(fs::read_to_string(mounted.path("counter")).unwrap(), "100\n");
    mounted.assert_sound();
}

#[test]
fn trees_may_be_deeper_than_paths() {
    let mounted = Mounted::new();
    let line = "n=$(printf 'x%.0s' {1..200}); for i in {1..30}; do mkdir $n; cd -P $n; done; \
                echo text > file";
    shell(&mounted.on, line);
    assert_eq!(shell(&mounted.on, "find . -name file -printf '%d\\n'"), "31\n");
    assert_eq!(fs::read_dir(mounted.path("[name=file]")).unwrap().count(), 1);
    let refused = fs::read_link(mounted.path("[name=file]/file")).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::libc::ENAMETOOLONG));
    shell(&mounted.on, "rm -r x*");
    mounted.assert_sound();
}

#[test]
fn unsupported_operations_are_refused() {
    let mounted = Mounted::new();
    let mut options = File::options();
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, nix::libc::O_TMPFILE);
    let refused = options.write(true).open(&mounted.on).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(nix::libc::EOPNOTSUPP));
    let line = "echo text > small; head -c 8192 /dev/zero > large; mkdir directory; \
                ! chattr +i small 2> /dev/null; ! cp --reflink=always large copy 2> /dev/null; \
                stat -c '%n %s %b %W' small large directory";
    let told = shell(&mounted.on, line);
    assert_eq!(told, "small 5 1 0\nlarge 8192 16 0\ndirectory 0 0 0\n");
    mounted.assert_sound();
}
