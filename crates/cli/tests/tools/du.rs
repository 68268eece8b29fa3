//! du's options.

use crate::common::seeded;
use crate::place::{Case, Site, some_of, users, words};
use rand::RngExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Options that go with each other.
const OPTIONS: [&str; 66] = [
    "-h",
    "--si",
    "-a",
    "-c",
    "-d1",
    "-d 2",
    "--max-depth=0",
    "-B1",
    "-BM",
    "-BkB",
    "-B 1000",
    "--block-size=K",
    "-B512",
    "-k",
    "-m",
    "-b",
    "--apparent-size",
    "--inodes",
    "-S",
    "-l",
    "-D",
    "-H",
    "-P",
    "-x",
    "--exclude=*e*",
    "--exclude=deeper",
    "--exclude=sub/*",
    "--exclude=[a-p]*",
    "--exclude=\\\\*x",
    "-X ../patterns",
    "-0",
    "--time",
    "--time=atime",
    "--time=ctime",
    "--time=use",
    "--time=status",
    "--time-style=full-iso",
    "--time-style=iso",
    "--time-style=+%s.%N_%d",
    "-t 5K",
    "-t -10000",
    "-t1",
    "--threshold=-1",
    "--separate-dirs",
    "--all",
    "--null",
    "--bytes",
    "--total",
    "--one-file-system",
    "--count-links",
    "--dereference-args",
    "--no-dereference",
    "--human-readable",
    "--exclude-from=../patterns",
    "--block-size='M",
    "--block-size=human-readable",
    "-BG",
    "-B3K",
    "-B KiB",
    "--time=access",
    "--time-style=long-iso",
    "--exclude=./sub",
    "--exclude=sub/",
    "--exclude=?ub",
    "--exclude=[!a-z]*",
    "-t 1M",
];

const CHOSEN: [&str; 45] = [
    "",
    ".",
    "-s",
    "-s .",
    "-sh sub",
    "-a",
    "-ab",
    "-sb",
    "-sk --si",
    "-b -k",
    "-k -h",
    "-c sub empty",
    "-sc sub sub",
    "-sc sub/deeper sub",
    "-c sub sub/deeper .",
    "-a sub/deeper/deepest sub",
    "-s to-dir",
    "-sD to-dir sub",
    "-D to-dir/ to-file",
    "-sS",
    "-S --inodes",
    "-Sc -d1",
    "-aS -d0",
    "-t 100K -a",
    "-t -5000 -a",
    "--time -s",
    "--time -S",
    "--time=access --time-style=long-iso -a sub",
    "--exclude=* .",
    "--exclude=.",
    "-a -- -dash --all",
    "-a plain plain",
    "-lc plain plain",
    "-B1MiB -a",
    "sub//",
    "-a sub///",
    "--exclude=./sub . sub",
    "--exclude=deeper sub .",
    "--exclude=sub/deeper sub .",
    "--exclude=[a-p]* missing sub",
    "--exclude=plain/ plain/",
    "-c --time loop",
    "missing",
    "missing sub",
    "-c plain/ to-file/",
];

/// Command lines for trees with links, whose lines do not say which of the links was met first.
const LINKED: [&str; 16] = [
    "-s",
    "-s .",
    "-sc a c",
    "-sc c a",
    "-sl",
    "-slc a c a",
    "-l",
    "-al",
    "-sc a/b a",
    "-sc c/d c top",
    "-sc top top-again",
    "-s --inodes a c",
    "-lb --inodes",
    "-sb a c .",
    "-sD to-a a",
    "-sc --time a c",
];

fn compare(site: &Site, line: &[String], dir: &Path, user: usize, vars: &[(&str, &str)]) {
    let users = users();
    let null = line.iter().any(|word| word == "-0" || word == "--null");
    site.compare(&Case {
        tool: "du",
        words: line.to_vec(),
        dir,
        user: users[user].as_ref(),
        vars,
        end: if null { 0 } else { b'\n' },
        unordered: true,
    });
}

#[test]
fn du_prints_what_gnus_du_prints() {
    let site = Site::new();
    std::fs::write(site.place.path("patterns"), "deepest  \n\n*.txt\n").unwrap();
    for user in 0..3 {
        for line in CHOSEN {
            compare(&site, &words(line), &site.tree, user, &[]);
        }
        for line in LINKED {
            compare(&site, &words(line), &site.linked, user, &[]);
        }
    }
    // Every option alone, then in company.
    for option in OPTIONS {
        compare(&site, &words(option), &site.tree, 1, &[]);
    }
    let mut random = seeded(7);
    for number in 0..500 {
        let mut line = some_of(&OPTIONS, 5, &mut random);
        if random.random_bool(0.2)
            && !line.iter().any(|word| {
                word == "-a" || word == "--all" || word.starts_with("-d") || word == "2"
            })
        {
            line.push("-s".to_owned());
        }
        let starts = [
            "",
            ".",
            "sub",
            "sub/",
            "empty plain",
            "to-dir",
            "sub/deeper sub",
            "private",
            "./sub/../sub",
            "open\\sdir",
            "sub//",
            ". sub",
            "missing sub",
        ];
        line.extend(words(starts[random.random_range(0..starts.len())]));
        let locale = if number % 2 == 0 { "C" } else { "C.UTF-8" };
        compare(&site, &line, &site.tree, number % 3, &[("LC_ALL", locale)]);
    }
}

#[test]
fn du_follows_links_as_gnus_du_does() {
    let site = Site::new();
    // What links lead to is met once, so that it does not matter what comes first.
    let top = site.tree.join("empty");
    std::fs::create_dir_all(top.join("in/deep")).unwrap();
    for (link, target) in [
        ("in/to-dir", "../../open dir"),
        ("in/to-file", "../../plain"),
        ("to-absolute", "/"),
        ("in/deep/back", "../.."),
        ("broken", "nowhere"),
        ("loop", "loop"),
    ] {
        let target = match target {
            "/" => site.tree.join("sub/deeper"),
            target => target.into(),
        };
        symlink(target, top.join(link)).unwrap();
    }
    site.place.index(&site.index, &site.tree);
    for user in 0..3 {
        for line in [
            "-L empty",
            "-L empty plain sub",
            "-aL empty",
            "-abL empty",
            "-sL empty",
            "-sL sub to-dir",
            "-L -d1 empty",
            "-L --inodes empty",
            "-LS empty",
            "-Lc empty/in empty/to-absolute",
            "-Lxb empty",
            "-lL sub",
            "-lL empty/in",
            "-L --exclude=file1* -b empty",
            "-L --time empty/in",
            "-L -t 3K empty",
            "-sLP empty",
            "-DL empty/to-absolute",
            "-L empty/loop empty/broken empty/in",
        ] {
            compare(&site, &words(line), &site.tree, user, &[]);
        }
    }
    compare(&site, &words("-sL"), &site.tree, 0, &[]);
    compare(&site, &words("-sLb"), &site.linked, 0, &[]);
    symlink("/etc", top.join("outside")).unwrap();
    site.place.index(&site.index, &site.tree);
    let [_, shown] = site.run(None, &site.tree, "du", &["-sL".into(), "empty".into()], &[]);
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(said.contains("empty/outside': this link leads out of the index"), "{said}");
    assert_eq!(shown.status.code(), Some(1));
}

#[test]
fn du_takes_names_from_a_file_as_gnus_du_does() {
    let site = Site::new();
    let names = site.place.path("names");
    for text in [
        &b""[..],
        b"sub",
        b"sub\0empty\0",
        b"plain\0sub/deeper\0sub\0plain\0",
        b"sub\0\0empty",
        b"\0",
        b"\0\0sub\0\0",
        b"missing\0sub",
        b"-\0sub",
        b"to-dir\0sub",
    ] {
        std::fs::write(&names, text).unwrap();
        for line in ["--files0-from=../names", "-c --files0-from ../names", "-D --files0=../names"]
        {
            compare(&site, &words(line), &site.tree, 0, &[]);
        }
    }
    let canopy = format!("{} --index {}", site.place.canopy.display(), site.index.display());
    for program in ["du".to_owned(), format!("{canopy} du")] {
        let script = format!("printf 'sub\\0-\\0empty' | {program} -s --files0-from=-");
        let output = Command::new("sh").args(["-c", &script]).current_dir(&site.tree).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 2);
    }
    for line in ["--files0-from=missing", "--files0-from=../names sub"] {
        site.both_refuse("du", line, &[]);
    }
}

#[test]
fn abbreviations_mean_what_they_mean_to_gnus_du() {
    let site = Site::new();
    for line in ["--th=1", "--thr 5K", "--to -s", "--ap -s", "--ino", "--max 1", "--exclude --th"] {
        compare(&site, &words(line), &site.tree, 0, &[]);
    }
    for (tool, line) in [("du", "--ver"), ("du", "--version"), ("stat", "--v"), ("ls", "--version")]
    {
        let [_, shown] = site.run(None, &site.tree, tool, &[line.into()], &[]);
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(shown.status.success(), "{tool} {line}");
        assert!(text.contains(env!("CARGO_PKG_VERSION")), "{tool} {line}: {text}");
    }
}

#[test]
fn du_takes_units_and_styles_from_the_environment() {
    let site = Site::new();
    for vars in [
        [("DU_BLOCK_SIZE", "1"), ("BLOCK_SIZE", "M")],
        [("BLOCK_SIZE", "human-readable"), ("BLOCKSIZE", "M")],
        [("BLOCKSIZE", "si"), ("TIME_STYLE", "full-iso")],
        [("BLOCKSIZE", "512"), ("TIME_STYLE", "+%Y")],
        [("BLOCK_SIZE", "kB"), ("TIME_STYLE", "posix-long-iso")],
        [("POSIXLY_CORRECT", "1"), ("TIME_STYLE", "locale")],
    ] {
        for line in ["-a", "--time", "-k", "-h"] {
            compare(&site, &words(line), &site.tree, 0, &vars);
        }
    }
}

#[test]
fn du_refuses_what_gnus_du_refuses() {
    let site = Site::new();
    for line in [
        "-s -a",
        "-s -d1",
        "-d x",
        "-d=1",
        "-ht=1",
        "-d -1",
        "-t -0",
        "-t x",
        "-t 09K",
        "-t 9Kx",
        "--threshold=-0",
        "--th=x",
        "-B 0",
        "-B 08",
        "-B x",
        "-B 1Mx",
        "-B +K",
        "--time=",
        "-B 99999999999999999999",
        "-B 0x",
        "--block-size 0x",
        "--bl=1Y",
        "--time-style=x --time",
        "--time --time-style=x",
        "--time --time-style=",
        "-X missing",
        "-X missing\x01name",
        "-e",
        "-ae",
        "--nonsense",
        "--nonsense=1",
        "--apparent-size=1",
        "--app=1",
        "-d",
        "-ad",
        "--max-depth",
        "--th",
    ] {
        site.both_refuse("du", line, &[]);
    }
    for style in ["x", "", "posix-", "posix-x"] {
        site.both_refuse("du", "--time", &[("TIME_STYLE", style)]);
    }
    site.both_say("du", "-d0 -s", &[]);
    site.both_say("du", "--inodes -b", &[]);
    site.both_say("du", "-d 0x1", &[]);
    site.both_say("du", "-d +01", &[]);
    site.both_say("du", "plain -s", &[]);
    site.both_say("du", "--time -d0", &[("TIME_STYLE", "posix-posix-iso")]);
    site.both_say("du", "-d0", &[("TIME_STYLE", "x")]);
}
