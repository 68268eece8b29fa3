//! du's options.

use crate::common::seeded;
use crate::place::{Case, Site, some_of, users, words};
use rand::RngExt;
use std::path::Path;

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
        "-d -1",
        "-t -0",
        "-t x",
        "-B 0",
        "-B x",
        "--time=x",
        "--time --time-style=x",
        "-X missing",
        "-e",
    ] {
        site.both_refuse("du", line);
    }
}
