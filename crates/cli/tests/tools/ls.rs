//! ls's options.

use crate::common::{Fixture, seeded};
use crate::place::{Case, Site, some_of, users, words};
use rand::RngExt;
use std::path::Path;
use std::process::Command;

const OPTIONS: [&str; 131] = [
    "-l",
    "-a",
    "-A",
    "-h",
    "-i",
    "-n",
    "-o",
    "-g",
    "-G",
    "-R",
    "-r",
    "-S",
    "-t",
    "-u",
    "-c",
    "-X",
    "-1",
    "-C",
    "-x",
    "-m",
    "-F",
    "-p",
    "-Q",
    "-b",
    "-N",
    "-q",
    "-s",
    "-k",
    "--si",
    "--full-time",
    "--time-style=iso",
    "--time-style=long-iso",
    "--time-style=full-iso",
    "--time-style=locale",
    "--time-style=+%F_%s",
    "--color",
    "--color=always",
    "--color=never",
    "--group-directories-first",
    "--zero",
    "-w40",
    "-w 0",
    "--width=200",
    "-T4",
    "-T0",
    "--file-type",
    "--indicator-style=slash",
    "--indicator-style=none",
    "--quoting-style=shell",
    "--quoting-style=shell-escape",
    "--quoting-style=shell-always",
    "--quoting-style=shell-escape-always",
    "--quoting-style=c",
    "--quoting-style=escape",
    "--sort=size",
    "--sort=time",
    "--sort=extension",
    "--time=atime",
    "--time=status",
    "--format=across",
    "--format=commas",
    "--format=long",
    "--format=vertical",
    "--format=single-column",
    "--block-size=M",
    "--block-size=1",
    "--classify",
    "--classify=auto",
    "--show-control-chars",
    "--hide-control-chars",
    "--literal",
    "--escape",
    "--quote-name",
    "--numeric-uid-gid",
    "--no-group",
    "--human-readable",
    "--kibibytes",
    "--inode",
    "--size",
    "--reverse",
    "--recursive",
    "--all",
    "--almost-all",
    "-d",
    "--directory",
    "--tabsize=16",
    "-T0x4",
    "-w1",
    "-w7",
    "-w0x20",
    "-w010",
    "--time=use",
    "--time=access",
    "--time=ctime",
    "--format=verbose",
    "--format=horizontal",
    "--indicator-style=classify",
    "--indicator-style=file-type",
    "--quoting-style=literal",
    "--quoting-style=locale",
    "--quoting-style=clocale",
    "--quoting-style=c-maybe",
    "--time-style=posix-iso",
    "--time-style=f",
    "--block-size=kB",
    "--block-size='KiB",
    "--block-size=human",
    "--block-size=3M",
    "-L",
    "-H",
    "--dereference",
    "--dereference-command-line",
    "--dereference-command-line-symlink-to-dir",
    "-v",
    "--sort=version",
    "--sort=width",
    "-I *a*",
    "--ignore=[!a-p]*",
    "-B",
    "--ignore-backups",
    "--hide=*l*",
    "--hide .*",
    "--hyperlink",
    "--hyperlink=always",
    "--hyperlink=auto",
    "-Z",
    "--context",
    "--author",
    "-D",
    "--dired",
    "-w 99999999999999999999",
];

/// Environments for generated command lines.
const ENVIRONMENTS: [[(&str, &str); 2]; 10] = [
    [("LC_ALL", "C.UTF-8"), TERMINAL],
    [("LC_ALL", "C.UTF-8"), TERMINAL],
    [("LC_ALL", "C"), TERMINAL],
    [("LC_ALL", "POSIX"), ("COLUMNS", "60")],
    [("LC_ALL", "C"), ("LS_COLORS", "di=1:ex=2:*.gz=3:*.PNG=4:or=5:mi=6:ln=7:no=8")],
    [("LC_ALL", ""), ("QUOTING_STYLE", "shell")],
    [("COLUMNS", "0x41"), TERMINAL],
    [("TIME_STYLE", "long-iso"), TERMINAL],
    [("LS_BLOCK_SIZE", "K"), ("TZ", "Asia/Kolkata")],
    [("TZ", "America/New_York"), ("TABSIZE", "5")],
];

const CHOSEN: [&str; 77] = [
    "-d",
    "-d .",
    "-ld to-dir",
    "-ld to-dir/",
    "to-dir",
    "-l to-dir",
    "-F to-dir",
    "-p to-dir",
    "to-dir sub empty",
    "-R to-dir",
    "-R",
    "-aR sub",
    "plain to-file broken",
    "-la",
    "-la sub",
    "-l char block pipe",
    "-ls block plain",
    "-is",
    "-- -dash --all",
    "missing",
    "missing sub",
    "-RQ sub open\\sdir",
    "-d --color=always .",
    "-C sub sparse",
    "-m empty",
    "-l --zero sub",
    "-RbF sub open\\sdir",
    "-R sub//",
    "--time-style=x",
    "-l plain/",
    "to-file/",
    "broken/",
    "missing plain private",
    "-Rl sub missing",
    "-C --quoting-style=locale",
    "-L",
    "-lL",
    "-lLR sub to-dir broken",
    "-FL --color=always",
    "-isL",
    "-nL broken to-file",
    "-H to-dir to-file",
    "-lH to-dir to-file broken loop",
    "-ldH to-dir",
    "-ld --dereference-command-line-symlink-to-dir to-dir to-file broken",
    "-L to-dir/ absolute",
    "-dL to-dir",
    "-v",
    "-lvr",
    "-v --group-directories-first",
    "--sort=width",
    "-C --sort=width",
    "-Cr --sort=width sub",
    "--sort=width --group-directories-first -x",
    "-a -I .* -I *e*",
    "-A --hide=* sub",
    "--hide=* --hide=.*",
    "-I ?* sub",
    "-I [.]* -a",
    "-aB sub",
    "-lD",
    "-lDR",
    "-laDQ sub empty plain",
    "-lDi --color=always",
    "-D",
    "-lDs --author sub",
    "-gD --quoting-style=shell-escape",
    "-l --hyperlink",
    "-R --hyperlink sub",
    "-C --hyperlink --quoting-style=shell",
    "-la --hyperlink=always --quoting-style=shell-escape sub/deeper",
    "-d --hyperlink plain sub to-dir broken sub/../plain",
    "-l --author",
    "-go --author sub",
    "-w 99999999999999999999 -C",
    "-w 9223372036854775808 -m",
    "-U plain sub block empty -d",
];

/// Values of LS_COLORS.
const COLORS: [&str; 9] = [
    "rs=0:di=01;34",
    "*.gz=01;31:*.png=35:fi=4:no=37:mh=44:or=40;31:mi=05;37;41",
    "ln=target:or=31:mi=32",
    "ln=target:or=33:ex=00:su=0:tw=:ow=00:st=1",
    "lc=<:rc=>:ec=END:cl=CLEAR",
    "lc=\\e[:rc=m:rs=1:*.txt=^[7:*plain=\\x41\\101",
    "or=01;31",
    "bad",
    "*.gz=1:*.gz=2:*r.gz=3",
];

fn compare(site: &Site, line: &[String], dir: &Path, user: usize, vars: &[(&str, &str)]) {
    let users = users();
    let zero = line.iter().any(|word| word == "--zero");
    site.compare(&Case {
        tool: "ls",
        words: line.to_vec(),
        dir,
        user: users[user].as_ref(),
        vars,
        end: if zero { 0 } else { b'\n' },
        unordered: false,
    });
}

const TERMINAL: (&str, &str) = ("TERM", "xterm-256color");

#[test]
fn ls_prints_what_gnus_ls_prints() {
    let site = Site::new();
    for user in 0..3 {
        for line in CHOSEN {
            compare(&site, &words(line), &site.tree, user, &[TERMINAL]);
        }
        compare(&site, &words("-lR"), &site.linked, user, &[TERMINAL]);
    }
    for option in OPTIONS {
        compare(&site, &words(option), &site.tree, 0, &[TERMINAL]);
    }
    let mut random = seeded(11);
    for number in 0..700 {
        let mut line = some_of(&OPTIONS, 6, &mut random);
        let starts = [
            "",
            ".",
            "sub",
            "sub/",
            "empty plain",
            "to-dir",
            "sub/deeper sub",
            "char sub",
            "./sub/../sub",
            "open\\sdir",
            "pipe socket none",
        ];
        line.extend(words(starts[random.random_range(0..starts.len())]));
        let vars = ENVIRONMENTS[random.random_range(0..ENVIRONMENTS.len())];
        compare(&site, &line, &site.tree, number % 3, &vars);
    }
}

#[test]
fn zones_have_the_names_that_gnus_ls_shows() {
    let site = Site::new();
    let line = words("-l --time-style=+%Z|%z|%6Z|%^Z|%F_%T");
    for zone in ["Europe/Berlin", "America/New_York", "Asia/Kolkata", "UTC", "", "XYZ-3", "EST5EDT"]
    {
        compare(&site, &line, &site.tree, 0, &[("TZ", zone)]);
    }
}

#[test]
fn ls_shows_bytes_above_127_in_the_locale_c_as_gnus_ls_does() {
    let site = Site::new();
    for layout in ["-C", "-x", "-m", "-l", "-1", "-sC", "-xi -w70", "-mF -w33", "-C -T0"] {
        for style in
            ["", "-b", "-q", "-Q", "-N", "--quoting-style=shell", "--quoting-style=shell-escape"]
        {
            for locale in ["C", "POSIX", "C.UTF-8", ""] {
                let line = words(&format!("{layout} {style}"));
                compare(&site, &line, &site.tree, 0, &[("LC_ALL", locale)]);
            }
        }
    }
}

#[test]
fn ls_says_what_is_wrong_with_the_environment_as_gnus_ls_does() {
    let site = Site::new();
    let wrong = [
        ("QUOTING_STYLE", "x"),
        ("QUOTING_STYLE", ""),
        ("TABSIZE", ""),
        ("COLUMNS", ""),
        ("QUOTING_STYLE", "shell-escape-a"),
        ("COLUMNS", "x"),
        ("COLUMNS", "08"),
        ("TABSIZE", "x"),
        ("TIME_STYLE", "x"),
        ("TIME_STYLE", "posix-posix-iso"),
        ("LS_COLORS", "x"),
        ("LS_BLOCK_SIZE", "x"),
    ];
    for variable in wrong {
        for line in ["", "-C", "-x", "-m", "-s", "--color", "-w 20 -T 4 -C", "-Q"] {
            site.both_say("ls", line, &[variable]);
        }
    }
    for line in ["plain -l", "-a sub -l plain", "sub -- -l", "-- sub -l", "-I=*", "-1I=plain"] {
        compare(&site, &words(line), &site.tree, 0, &[("POSIXLY_CORRECT", "1")]);
    }
}

#[test]
fn ls_refuses_what_gnus_ls_refuses() {
    let site = Site::new();
    for line in [
        "-w x",
        "-w=30",
        "-lT=4",
        "-T 99999999999999999999",
        "-w -1",
        "-w 08",
        "-T x",
        "-T 08",
        "--color=x",
        "--color=a",
        "--block-size=0",
        "--block-size=08",
        "--block-size=x",
        "--time=x",
        "-l --time-style=x",
        "--sort=x",
        "--format=x",
        "--quoting-style=x",
        "--indicator-style=x",
        "--classify=x",
        "--hyperlink=x",
        "-lD --zero",
        "--i=slash",
        "--d",
        "--nonsense",
        "--nonsense=1",
        "-l=x",
        "-F=always",
        "-w",
        "-lw",
        "--width",
        "--rec=1",
        "--sort",
        "--sort=",
        "--sort=s --sort=e --sort=",
        "--color=",
        "--color=n --color=x",
        "--block-size=1Mx",
        "--block-size=99999999999999999999",
        "-l --time-style=",
        "-l --time-style=l",
        "--version=1",
    ] {
        site.both_refuse("ls", line, &[]);
    }
    for style in ["x", "", "l", "+a\nb\nc"] {
        site.both_refuse("ls", "-l", &[("TIME_STYLE", style)]);
    }
    // No name at all is not the working directory.
    let [expected, shown] = site.run(None, &site.tree, "ls", &["".into()], &[]);
    assert_eq!((expected.status.code(), shown.status.code()), (Some(2), Some(2)));
    assert!(shown.stdout.is_empty());
}

#[test]
fn ls_colors_as_gnus_ls_does() {
    let site = Site::new();
    for colors in COLORS {
        for line in ["", "-l", "-F", "-a -C", "-x -w60", "-lA sub", "-m --group-directories-first"]
        {
            let mut line = words(line);
            line.push("--color=always".to_owned());
            compare(&site, &line, &site.tree, 0, &[("LS_COLORS", colors)]);
            compare(&site, &line, &site.linked, 1, &[("LS_COLORS", colors), TERMINAL]);
        }
    }
    for vars in [
        [("TERM", "dumb"), ("X", "")],
        [("TERM", "dumb"), ("COLORTERM", "truecolor")],
        [("TERM", "screen.linux"), ("X", "")],
    ] {
        compare(&site, &words("--color=always"), &site.tree, 0, &vars);
    }
}

/// Without `or`, ls looks at what links lead to with some other options alone.
#[test]
fn colors_of_targets_need_no_other_option() {
    let site = Site::new();
    let words: Vec<_> = words("-F --color=always").into_iter().map(Into::into).collect();
    let vars = [("LS_COLORS", "ln=target:ex=0:di=4")];
    let is_colored = site.run(None, &site.tree, "ls", &words, &vars).map(|output| {
        let text = output.stdout.escape_ascii().to_string();
        assert!(text.contains("absolute"), "{text}");
        text.contains("4mabsolute")
    });
    assert_eq!(is_colored, [false, true]);
}

#[test]
fn ls_takes_units_and_styles_from_the_environment() {
    let site = Site::new();
    for vars in [
        [("BLOCK_SIZE", "M"), ("COLUMNS", "50")],
        [("LS_BLOCK_SIZE", "si"), ("COLUMNS", "")],
        [("BLOCKSIZE", "1"), ("TABSIZE", "3")],
        [("TIME_STYLE", "long-iso"), ("QUOTING_STYLE", "escape")],
        [("TIME_STYLE", "posix-full-iso"), ("QUOTING_STYLE", "c")],
        [("POSIXLY_CORRECT", "1"), ("LC_ALL", "C")],
    ] {
        for line in ["-l", "-sC", "-lk", "-x", "-sh"] {
            compare(&site, &words(line), &site.tree, 0, &vars);
        }
    }
}

#[test]
fn ls_does_not_know_what_lies_outside_of_the_index() {
    let site = Site::new();
    std::os::unix::fs::symlink("/etc", site.tree.join("outside")).unwrap();
    site.place.index(&site.index, &site.tree);
    let words: Vec<_> = words("-1F --color=always").into_iter().map(Into::into).collect();
    let [_, shown] = site.run(None, &site.tree, "ls", &words, &[("LS_COLORS", "ln=1:or=2:mi=3")]);
    let text = shown.stdout.escape_ascii().to_string();
    assert!(text.contains("[1moutside") && text.contains("[2mbroken"), "{text}");
}

#[test]
fn ls_without_order_shows_the_same_entries() {
    let site = Site::new();
    for line in ["-U --zero", "-f --zero", "-fl --zero", "-lsf --zero", "--sort=none -a --zero"] {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let sorted = site
            .run(None, &site.tree, "ls", &words, &[])
            .map(|output| crate::common::sorted(&output.stdout, 0));
        assert_eq!(sorted[0], sorted[1], "{line}");
        assert!(sorted[1].len() > 40, "{line}");
    }
    // Arguments stay in their order.
    for line in ["-U", "--sort=none", "-f", "-Ur", "-U --group-directories-first"] {
        let line = words(&format!("{line} plain empty exec block none pipe"));
        compare(&site, &line, &site.tree, 0, &[TERMINAL]);
        let line = words("-U empty plain sticky exec");
        compare(&site, &line, &site.tree, 0, &[TERMINAL]);
    }
}

#[test]
fn ls_in_a_directory_that_was_removed_shows_nothing() {
    let site = Site::new();
    let canopy = format!("{} --index {}", site.place.canopy.display(), site.index.display());
    for line in ["ls", "ls -a", "ls -l", "ls -R .", "ls -la ."] {
        let run = |program: &str| {
            let gone = site.place.path("gone");
            std::fs::create_dir(&gone).unwrap();
            let script = format!("rmdir ../gone && exec {program}");
            let output = Command::new("sh").args(["-c", &script]).current_dir(&gone).output();
            output.unwrap()
        };
        let (expected, shown) = (run(line), run(&format!("{canopy} {line}")));
        assert_eq!(shown.stdout, expected.stdout, "{line}");
        assert!(shown.status.success() && shown.stderr.is_empty(), "{line}: {shown:?}");
    }
}

#[test]
fn ls_does_not_go_around_in_loops() {
    let site = Site::new();
    std::os::unix::fs::symlink("..", site.tree.join("sub/deeper/back")).unwrap();
    site.place.index(&site.index, &site.tree);
    for line in ["-RL sub", "-LR", "-RLl sub"] {
        compare(&site, &words(line), &site.tree, 0, &[TERMINAL]);
    }
}

#[test]
fn ls_has_gnus_order_of_versions() {
    let site = Site::new();
    let mut random = seeded(3110);
    let alphabets = ["ab.~01", ".0A", "aZ.~-019_", ".~a0", "a.~01\u{e4} \u{1}"];
    for (at, alphabet) in alphabets.map(|all| Vec::from_iter(all.chars())).iter().enumerate() {
        let directory = site.tree.join(format!("empty/{at}"));
        std::fs::create_dir(&directory).unwrap();
        for _ in 0..300 {
            let letter = |_| alphabet[random.random_range(0..alphabet.len())];
            let name: String = (0..7).map(letter).collect();
            let length = name.char_indices().nth(random.random_range(1..7)).unwrap().0;
            if ![".", ".."].contains(&&name[..length]) {
                std::fs::write(directory.join(&name[..length]), "").unwrap();
            }
        }
    }
    site.place.index(&site.index, &site.tree);
    for line in ["-vAN1 --zero", "-va --zero", "-vr --zero"] {
        for at in 0..alphabets.len() {
            compare(&site, &words(&format!("{line} empty/{at}")), &site.tree, 0, &[TERMINAL]);
        }
    }
}

#[test]
fn contexts_are_shown_as_gnus_tools_show_them() {
    let site = Site::new();
    let paths = ["plain", "sub", "sub/deeper", "a b"].map(|path| site.tree.join(path));
    for (number, path) in paths.iter().enumerate() {
        let context = format!("user_u:object_r:{}_t:s0\0", "x".repeat(number));
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(path, "security.selinux", context.as_bytes(), flags).unwrap();
    }
    site.place.index(&site.index, &site.tree);
    for user in 0..3 {
        for line in [
            "-Z",
            "-lZ",
            "-gGnZ",
            "-dZ",
            "-dlZ sub plain",
            "-mZ",
            "-CZ",
            "-xiZs -w 200",
            "-l",
            "-laZ",
            "-RZ",
            "-lRZ",
            "-LZ",
            "-lLZ empty",
            "-ZH to-dir",
            "-Z sub",
            "-lD --context",
        ] {
            compare(&site, &words(line), &site.tree, user, &[TERMINAL]);
        }
        for line in ["-c %C sub", "-c %n|%20C|%.5C|%C plain sub to-dir", "-Lc %C to-dir plain"] {
            site.compare(&Case {
                tool: "stat",
                words: words(line),
                dir: &site.tree,
                user: users()[user].as_ref(),
                vars: &[],
                end: b'\n',
                unordered: false,
            });
        }
    }
}

#[test]
fn ls_says_where_links_lead_out_of_the_index() {
    let site = Site::new();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(to, site.tree.join("empty").join(name)).unwrap();
    };
    // A target that is not a directory is as the live file system has it.
    link("/etc/passwd", "outside");
    link("/no/such", "nowhere");
    site.place.index(&site.index, &site.tree);
    for (tool, line) in [
        ("ls", "-lL empty"),
        ("ls", "-LF empty"),
        ("ls", "-lH empty/outside"),
        ("ls", "-l --color=always empty"),
        ("stat", "-L -c %n,%s,%F,%d,%i empty/outside"),
        ("stat", "-L empty/nowhere"),
        ("du", "-aL empty/outside"),
    ] {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [expected, shown] = site.run(None, &site.tree, tool, &words, &[]);
        let said = String::from_utf8_lossy(&shown.stderr).into_owned();
        let said = said.replace("canopy: ", &format!("{tool}: "));
        assert_eq!(shown.status.code(), expected.status.code(), "{tool} {line}: {said}");
        assert_eq!(said, String::from_utf8_lossy(&expected.stderr), "{tool} {line}");
        let text =
            |output: &std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(text(&shown), text(&expected), "{tool} {line}");
    }
    link("/etc", "directory");
    site.place.index(&site.index, &site.tree);
    for (line, code) in [("-lL empty", 1), ("-LF empty", 1), ("-lH empty/directory", 2)] {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [_, shown] = site.run(None, &site.tree, "ls", &words, &[]);
        let said = String::from_utf8_lossy(&shown.stderr).into_owned();
        assert!(said.contains("empty/directory': this link leads out of the index"), "{said}");
        assert_eq!(shown.status.code(), Some(code), "{line}");
    }
}

#[test]
fn ls_prints_json() {
    let site = Site::new();
    let json = |line: &str| -> serde_json::Value {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [_, shown] = site.run(None, &site.tree, "ls", &words, &[]);
        assert!(shown.status.success(), "{line}: {shown:?}");
        serde_json::from_slice(&shown.stdout).unwrap()
    };
    let rows = json("--json -R sub plain");
    let rows = rows.as_array().unwrap();
    let paths: Vec<&str> = rows.iter().map(|row| row["path"].as_str().unwrap()).collect();
    assert_eq!(paths[0], "plain");
    assert!(paths.contains(&"sub/deeper/deepest/file.txt"), "{paths:?}");
    let deepest = rows.iter().find(|row| row["name"] == "file.txt").unwrap();
    assert_eq!((&deepest["size"], &deepest["depth"]), (&70_000.into(), &3.into()));
    assert_eq!(json("-S --json --hide=* sub"), serde_json::json!([]));
    assert_eq!(json("-d --json to-dir")[0]["target"], "sub");
    assert_eq!(json("-dL --json to-dir")[0]["type"], "d");
}

#[test]
fn abbreviations_mean_what_they_mean_to_gnus_ls() {
    let site = Site::new();
    for line in [
        "--ind=slash",
        "--ind slash",
        "--inde=x",
        "--rec sub",
        "--ti=atime -l",
        "--wid 40 -C",
        "--hyp",
        "--aut -l",
        "--ver",
        "--he",
        "-w 40 --ind=slash -C",
        "-I --ind plain",
        "--ignore --ind plain",
        "-- --all",
        "--quoting=c",
    ] {
        let words: Vec<_> = words(line).into_iter().map(Into::into).collect();
        let [expected, shown] = site.run(None, &site.tree, "ls", &words, &[]);
        assert_eq!(shown.status.code(), expected.status.code(), "{line}: {shown:?}");
        if !line.starts_with("--ver") && !line.starts_with("--he") {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            assert_eq!(text(&shown.stdout), text(&expected.stdout), "{line}");
        }
    }
}

/// The output of a command line on a terminal of 90 columns.
fn on_terminal(site: &Site, line: &str, vars: &[(&str, &str)]) -> String {
    let mut command = Command::new("script");
    command
        .args(["-qec", &format!("stty cols 90; {line}"), "/dev/null"])
        .current_dir(&site.tree)
        .env_clear();
    command
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("TZ", "UTC")
        .env("LC_ALL", "C.UTF-8")
        .env("SHELL", "/bin/sh");
    command.stdin(std::process::Stdio::null()).envs(vars.iter().copied());
    command.output().unwrap().stdout.escape_ascii().to_string()
}

#[test]
fn ls_on_a_terminal_is_as_ls_with_colors_on_a_terminal() {
    let site = Site::new();
    let canopy = format!("{} --index {}", site.place.canopy.display(), site.index.display());
    for line in [
        "",
        "-l",
        "-a",
        "-R",
        "-N",
        "-b",
        "-sC",
        "-m",
        "-x sub",
        "-1",
        "-q",
        "-F",
        "-l --color=never",
        "--zero",
    ] {
        let shown = on_terminal(&site, &format!("{canopy} ls {line}"), &[TERMINAL]);
        // As most systems define it.
        let expected = on_terminal(&site, &format!("ls --color=auto {line}"), &[TERMINAL]);
        assert_eq!(shown, expected, "{line}");
        assert!(shown.contains("plain"), "{line}: {shown}");
    }
    let plain = on_terminal(&site, &format!("{canopy} ls"), &[TERMINAL, ("NO_COLOR", "1")]);
    assert_eq!(plain, on_terminal(&site, "ls", &[TERMINAL]));
    // Names do no harm in what else is printed on a terminal.
    for line in ["du -a", "stat ./*", "stat -c %n ./*", "du --by extension"] {
        let shown = on_terminal(&site, &format!("{canopy} {line}"), &[TERMINAL]);
        assert!(!shown.contains("\\x1b[") && !shown.contains("\\x07"), "{line}: {shown}");
        assert!(shown.contains("deeper") || !line.starts_with("du -a"), "{line}: {shown}");
    }
}

#[test]
fn the_end_of_a_pipe_is_no_error() {
    let site = Site::new();
    for i in 0..600 {
        std::fs::create_dir_all(site.tree.join(format!("wide/{}{i}", "x".repeat(200)))).unwrap();
    }
    site.place.index(&site.index, &site.tree);
    for line in ["ls -lR", "du", "ls -1 wide", "stat -c %N wide/*", "du --json", "du --sort name"] {
        let canopy = format!("{} --index {}", site.place.canopy.display(), site.index.display());
        let pipe = format!("set -o pipefail; {canopy} {line} | head -n 1 | wc -l");
        let output =
            Command::new("bash").args(["-c", &pipe]).current_dir(&site.tree).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{line}: {errors}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1", "{line}");
    }
}

#[test]
fn trees_of_several_row_groups_are_whole() {
    let place = Fixture::new();
    let (tree, index) = (place.path("tree"), place.path("index"));
    for dir in ["a/deep", "b", "c", "d"].map(|dir| tree.join(dir)) {
        std::fs::create_dir_all(&dir).unwrap();
        for number in 0..40_000 {
            std::fs::File::create(dir.join(format!("{number:05}"))).unwrap();
        }
    }
    place.index(&index, &tree);
    for options in ["-R", "-lR", "-Rr", "-RS"] {
        let shown = place.canopy(&index, &["ls".as_ref(), options.as_ref(), tree.as_ref()]);
        let expected =
            Command::new("ls").arg(options).arg(&tree).env("LC_ALL", "C").output().unwrap();
        assert!(shown.stdout == expected.stdout, "{options}");
    }
    for (dir, count) in [("", 160_006), ("d", 40_001)] {
        let dir = tree.join(dir);
        let words = ["export".as_ref(), "--format".as_ref(), "ncdu".as_ref(), dir.as_ref()];
        let export = String::from_utf8_lossy(&place.canopy(&index, &words).stdout).into_owned();
        assert_eq!(export.matches("\"name\"").count(), count, "{dir:?}");
        let lines = place.canopy(&index, &["du".as_ref(), "-a".as_ref(), dir.as_ref()]).stdout;
        assert_eq!(lines.iter().filter(|byte| **byte == b'\n').count(), count, "{dir:?}");
    }
}

#[test]
fn sources_below_a_path_have_their_own_headings() {
    let place = Fixture::new();
    let (tree, index) = (place.path("above/tree"), place.path("index"));
    std::fs::create_dir_all(tree.join("sub")).unwrap();
    place.index(&index, &tree);
    let ls = |words: &[&str], dir: &Path| {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&index).arg("ls").args(words).current_dir(dir);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    let above = place.path("above");
    let shown = above.to_str().unwrap();
    assert_eq!(ls(&[shown], "/".as_ref()), format!("{shown}/tree:\nsub\n"));
    assert_eq!(ls(&[".."], &tree), "../tree:\nsub\n");
    assert_eq!(ls(&["."], &tree), "sub\n");
    assert_eq!(ls(&["-d", ".."], &tree), "../tree\n");
}
