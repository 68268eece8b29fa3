//! find in scripts of sh, beside find(1): commands that it runs, how paths are cut, links out of the
//! index, words that people try. Needs root.

use crate::common::Fixture;
use std::process::Command;

/// Runs a script in an empty directory, with mounts of its own; returns what it prints. `ours` is
/// `canopy find`, on the index of the directory.
fn run(script: &str) -> String {
    const PRELUDE: &str = "exec 2>&1
        index() { canopy index --quiet . \"$@\"; }
        ours() { canopy find \"$@\"; }
        live() { canopy find --live \"$@\"; }
        user() { setpriv --reuid 2001 --regid 3001 --clear-groups \"$@\"; }\n";
    let place = Fixture::new();
    let tree = place.path("tree");
    std::fs::create_dir(&tree).unwrap();
    let path = format!("{}:{}", place.dir.path().display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &format!("{PRELUDE}{script}")]).current_dir(&tree);
    command.env("PATH", path).env("CANOPY_INDEX", place.path("index"));
    command.env("LC_ALL", "C.UTF-8").env("TZ", "UTC").env_remove("POSIXLY_CORRECT");
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Expects what a script prints.
fn expect(script: &str, expected: &[&str]) {
    let shown = run(script);
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected, "{script}");
}

/// Expects the same lines, in any order, and the same exit code of find(1), of a search of the
/// index and of a live one, for each of some expressions; also as a user. Names of programs before
/// messages are left out, and what only an index reports of links.
fn same(make: &str, lines: &[String], as_user: bool) {
    const END: &str = "END OF A SEARCH";
    let before = if as_user { "chmod 755 . ..; user" } else { "" };
    let mut script = format!("{make}; index");
    for words in lines {
        for program in ["find", "canopy find", "canopy find --live"] {
            script += &format!("\n{before} {program} {words}\necho exit code $?\necho {END}");
        }
    }
    let shown = run(&script);
    let results: Vec<Vec<&str>> = shown
        .split(END)
        .map(|shown| {
            let lines = shown.trim().lines().filter(|line| !line.contains("symbolic link"));
            let lines = lines.map(|line| line.trim_start_matches("canopy: "));
            let mut lines: Vec<&str> =
                lines.map(|line| line.trim_start_matches("find: ")).collect();
            lines.sort_unstable();
            lines
        })
        .collect();
    assert!(results.len() >= 3 * lines.len(), "{shown}");
    for (of_line, words) in results.chunks(3).zip(lines) {
        assert_eq!(of_line[1], of_line[0], "{words}");
        assert_eq!(of_line[2], of_line[0], "live {words}");
    }
}

/// The bug: `PATH= canopy find D -execdir cmd` ran `D/sub/cmd`, a file of the searched tree.
#[test]
fn an_empty_path_runs_no_file_of_the_searched_tree() {
    let make = "mkdir -p t/sub; touch t/sub/f; canopy=$(command -v canopy)
        printf '#!/bin/sh\\necho RAN\\n' >t/sub/cmd; chmod +x t/sub/cmd; index";
    let insecure = "which is insecure in combination with the";
    for path in ["", ":/usr/bin:/bin", "/usr/bin::/bin", "/usr/bin:", "./bin:/bin", "bin"] {
        for live in ["", "--live"] {
            for (action, end) in
                [("-execdir", "';'"), ("-execdir", "+"), ("-okdir", "';'"), ("-j4 -execdir", "';'")]
            {
                let words = format!("{live} t -name f {action} cmd {{}} {end}");
                let script = format!("{make}; yes | PATH={path} $canopy find {words}; echo $?");
                let shown = run(&script);
                let lines: Vec<&str> = shown.lines().collect();
                assert!(lines[0].contains(insecure), "{path} {words}: {shown}");
                assert_eq!(lines[1..], ["1"], "{path} {words}");
            }
        }
    }
    // Commands run in the working directory, which may be that of somebody else, too.
    for live in ["", "--live"] {
        for end in ["';'", "+"] {
            let words = format!("{live} . -name f -exec cmd {{}} {end}");
            let shown = run(&format!("{make}; cd t/sub; PATH= $canopy find {words}; echo $?"));
            assert!(shown.starts_with("canopy: PATH is empty"), "{words}: {shown}");
            assert!(shown.ends_with("\n1"), "{words}: {shown}");
        }
        // A user who names a file means it.
        let named = format!("{live} . -name f -exec ./cmd {{}} ';' -exec /bin/echo {{}} ';'");
        expect(&format!("{make}; cd t/sub; PATH= $canopy find {named}"), &["RAN", "./f"]);
        // Without PATH, the system's own directories are searched.
        let unset = format!("{live} t -name f -execdir echo {{}} ';' -execdir cmd ';'");
        let unset = format!("{make}; env -u PATH $canopy find {unset}");
        expect(&unset, &["./f", "canopy: ‘cmd’: No such file or directory"]);
    }
}

/// The bug: the environment was taken from the 128 KiB that arguments have, so that a large one
/// had a command started for each file.
#[test]
fn arguments_of_a_batch_have_room_beside_a_large_environment() {
    let make = "mkdir t; cd t; seq -f name-of-a-file-that-is-long-enough-%05.0f 6000 | xargs touch
        cd ..; index; a=$(head -c 100000 /dev/zero | tr '\\0' x)
        export A=$a; export B=$(echo $a | head -c 31000)";
    let count = "-exec sh -c 'echo $#' x {} +";
    let theirs = run(&format!("{make}; find t {count} | wc -l"));
    assert!((2..4).contains(&theirs.parse::<u32>().unwrap()), "{theirs}");
    for program in ["ours", "live"] {
        expect(&format!("{make}; {program} t {count} | wc -l"), &[&theirs]);
        // All that the kernel takes, if that is less.
        let small = format!("{make}; ulimit -s 1000; {program} t {count} | paste -sd+ | bc");
        expect(&small, &["6001"]);
    }
}

/// The bug: slashes at the end of a start stood where find(1) has one or none.
#[test]
fn slashes_behind_a_start_are_cut_as_by_find() {
    const STARTS: &str = "tree/ tree// tree/sub/ t t/ t// t/// t/sub/ t//sub// . ./ .// t/. t/./ \
        t/link/";
    const WORDS: [&str; 5] = [
        "-printf '%p|%h|%f|%P|%H|%d\\n'",
        "-maxdepth 0 -execdir echo {} ';'",
        "-maxdepth 0 -execdir pwd ';'",
        "-execdir sh -c 'printf \"%s\\n\" $*' x {} +",
        "-maxdepth 0 -name t -o -maxdepth 0 -name sub",
    ];
    let make = "mkdir -p t/sub tree/sub; touch t/f t/sub/g; ln -s sub t/link";
    let of_start = |start: &str| WORDS.map(|words| format!("{start} {words}"));
    let lines: Vec<String> = STARTS.split_whitespace().flat_map(of_start).collect();
    same(make, &lines, false);
    let root = "/ -maxdepth 0 -printf '%p|%h|%f|%P|%H\\n' -execdir echo {} ';'";
    let both = format!("find {root}; live {root}; live /{root}; find /{root}");
    expect(&both, &["/||/||/", "/", "/||/||/", "/", "//|/|/||//", "/", "//|/|/||//", "/"]);
}

#[test]
fn operators_of_punctuation_may_have_a_hyphen() {
    let make = "mkdir t; touch t/a t/b";
    let lines = [
        "t '-(' -name a -o -name b '-)'",
        "t '-(' -name a ')' -o '-!' -name b",
        "t -name a '-,' -name b",
        "t '(' -name a '-)' -print",
        "t -name '-)'",
    ];
    same(make, &lines.map(str::to_owned), false);
}

#[test]
fn a_percent_sign_with_a_width_is_printed_as_it_is() {
    let line = "t -printf '%5%|%-5%|%05%|%%|%3%%\\n'".to_owned();
    same("mkdir t", &[line], false);
}

#[test]
fn vanished_directories_are_no_errors_where_races_do_not_matter() {
    // The command removes what the search has seen and not opened yet; or puts a file there.
    let make = "mkdir -p t/a/b; touch t/a/f";
    for remove in ["rm -r {}", "sh -c 'rm -r $1; touch $1' x {}"] {
        let words = format!("-type d -name a -exec {remove} ';'");
        let told = run(&format!("{make}; live t {words}; echo $?"));
        let theirs = run(&format!("{make}; find t {words}; echo $?"));
        assert_eq!(told.replace("canopy: ", "find: "), theirs, "{remove}");
        expect(&format!("{make}; live t -ignore_readdir_race {words}; echo $?"), &["0"]);
    }
}

#[test]
fn lists_have_finds_dates_and_blocks() {
    let make = "mkdir t; for ago in 179 181 364; do touch -d \"$ago days ago\" t/$ago; done
        touch -d '50 minutes' t/ahead; touch -d '90 minutes' t/far
        head -c 5000 /dev/zero >t/blocks; sync";
    let columns = "t -type f -ls | tr -s ' ' | cut -d ' ' -f 3- | sort";
    for set in ["", "export POSIXLY_CORRECT=1"] {
        let script = format!(
            "{make}; index; {set}\nfind {columns} >../theirs\nours {columns} >../ours
            live {columns} | diff ../theirs - && diff ../theirs ../ours && wc -l <../ours"
        );
        expect(&script, &["6"]);
    }
}

/// The bug: an index of an import, which has no device numbers, had no file that is the same as one
/// on the disk.
#[test]
fn the_same_file_is_found_in_an_import() {
    let make = "mkdir -p t/sub; touch t/a t/b; ln t/a t/sub/link; index
        canopy export --format gufi-trace -o ../trace t
        export CANOPY_INDEX=$CANOPY_INDEX.imported
        canopy import --format gufi-trace --root $PWD/t ../trace >/dev/null 2>&1";
    let lines = |words: &str| run(&format!("{make}; {words} | sort; touch ../elsewhere"));
    assert_eq!(lines("ours t -samefile t/a"), "t/a\nt/sub/link");
    assert_eq!(lines("ours t/sub -samefile $PWD/t/a"), "t/sub/link");
    assert_eq!(lines("ours t -samefile t/b"), "t/b");
    let script = format!("{make}; touch ../elsewhere; ours t -samefile ../elsewhere; echo $?");
    let said = "canopy: ‘../elsewhere’: -samefile needs a file that is in the index, which has no \
                device numbers here";
    expect(&script, &[said, "1"]);
}

/// The bug: any tree with a link to /etc/passwd had `-L` and `-xtype` fail.
#[test]
fn links_out_of_the_index_lead_where_they_lead_now() {
    let make = "mkdir -p t/d ../out/dir; touch ../out/file ../out/dir/inner; chmod 600 ../out/file
        ln -s $PWD/../out/file t/file; ln -s ../../out/dir t/dir; ln -s /no/such t/broken
        ln -s ../../out/dir/../file t/d/way; ln -s /etc/passwd t/passwd; ln -s d t/within";
    let lines = [
        "./t -xtype f",
        "./t -xtype d",
        "./t -xtype l",
        "./t -type l -printf '%p %Y\\n'",
        "./t -type l -readable",
        "-L ./t -name passwd -printf '%p %y %s %l\\n'",
        "-L ./t -type l",
        "-L ./t -name way -xtype l",
        "-H ./t/passwd -printf '%y %s\\n'",
        "-H ./t/broken -printf '%y\\n'",
        "-L ./t/broken -printf '%p %y\\n'",
    ];
    let lines = lines.map(str::to_owned);
    same(make, &lines, false);
    same(make, &lines, true);
    // Directories there are not searched, which one line tells.
    let followed = format!("{make}; index; ours -L t -path '*dir*' -printf '%p %y\\n'; echo $?");
    let said = "canopy: 1 symbolic link leads to directories that are not in the index and were not \
                searched ('canopy find --live' searches them)";
    expect(&followed, &["t/dir d", said, "0"]);
    // Where the source is not what lies there now, nothing is asked of the live file system.
    let moved = format!(
        "{make}; index; here=$PWD; cd ..; mv tree old; mkdir tree; cd tree
        ours $here/t -xtype l -printf '%f\\n' | sort; ours $here/t -xtype l >/dev/null; echo $?"
    );
    let said = "canopy: 4 symbolic links lead out of what is searched; such links count as broken";
    expect(&moved, &[said, "broken", "dir", "file", "passwd", "way", said, "0"]);
}

/// The bug: a link to a name that is too long counted as one that leads to nothing.
#[test]
fn a_link_to_a_name_that_is_too_long_is_an_error() {
    let make = "mkdir t; ln -s $(printf '%0300d' 0) t/long; ln -s $(printf '%0255d' 0) t/short";
    let lines = ["t -xtype l", "t -xtype f", "t/$(printf '%0300d' 0)"];
    same(make, &lines.map(str::to_owned), false);
}

#[test]
fn patterns_take_the_last_characters_of_unicode() {
    let make = "mkdir t; touch t/$(printf '\\364\\217\\276\\220') t/a t/ab t/$(printf '\\377')";
    let line =
        |pattern: &str| format!("t -name '{pattern}' -printf '%f\\n' | LC_ALL=C sort | od -c");
    same(make, &["?", "[!a]", "??", "a*", "[[:punct:]]", "????"].map(line), false);
}

#[test]
fn words_that_people_try_have_an_answer() {
    let make = "mkdir t; touch t/root t/other; chown 2001 t/other; head -c 3000 /dev/zero >t/large
        index";
    for (words, shown) in [
        ("t -type f -mine | sort", &["t/large", "t/root"][..]),
        ("t -type f --mine | sort", &["t/large", "t/root"]),
        ("--mine t -type f | sort", &["t/large", "t/root"]),
        ("t -type f --user 2001", &["t/other"]),
        ("t -type f --user=2001", &["t/other"]),
        ("--user root t -type f -size +1k", &["t/large"]),
        ("t --sort=size --limit=1 --reverse -type f", &["t/large"]),
        ("t -size +1T --count", &["0"]),
        (
            "t -user me",
            &["canopy: ‘me’ is not the name of a known user", "your own entries: --mine"],
        ),
        (
            "t -size +1TB",
            &["canopy: invalid -size type `B'", "write -size +1T; units are c, k, M, G, T and P"],
        ),
        (
            "t -mtime +1y",
            &["canopy: invalid argument `+1y' to `-mtime'", "ages are in days: -mtime +365"],
        ),
        ("t -sise 1", &["canopy: unknown predicate `-sise'", "there is -size"]),
        ("t --name x", &["canopy: unknown predicate `--name'", "there is -name"]),
        ("t --sum=x", &["canopy: unknown predicate `--sum=x'", "--sum takes no value"]),
        (
            "t -size '>1G'",
            &[
                "canopy: Invalid argument `>1G' to -size",
                "write -size +1G; units are c, k, M, G, T and P",
            ],
        ),
        // A word with a newline does not start a line of its own.
        (
            "t \"$(printf -- '-name=x\\ncanopy: all is lost')\"",
            &[
                "canopy: unknown predicate `-name=x?canopy: all is lost'",
                "write -name x?canopy: all is lost",
            ],
        ),
    ] {
        expect(&format!("{make}; ours {words}"), shown);
        expect(&format!("{make}; live {words}"), shown);
    }
    // Pruning does not depend on the owner.
    let pruned = "mkdir -p t/skip/in; chown 2001 t/skip; touch t/skip/in/f t/g; index
        ours t --mine -name skip -prune -o -type f -print";
    expect(pruned, &["t/g"]);
}

#[test]
fn a_sum_reports_what_deleting_frees() {
    let make = "mkdir -p t/sub other; head -c 8192 /dev/urandom >t/two; ln t/two t/sub/again
        head -c 4096 /dev/urandom >t/shared; ln t/shared other/shared
        head -c 4096 /dev/urandom >t/one; sync; index";
    for program in ["ours", "live"] {
        let sum = |words: &str| run(&format!("{make}; {program} {words}"));
        assert_eq!(
            sum("t -type f --sum"),
            "4 entries take 16K; deleting all of them frees 12K (4.0K stays in a file with a hard \
             link elsewhere)"
        );
        assert_eq!(
            sum("t/sub t/one -type f --sum --json"),
            "{\"entries\":2,\"bytes\":12288,\"disk_bytes\":12288,\"freed_bytes\":4096,\
             \"files_linked_elsewhere\":1}"
        );
        assert_eq!(
            sum("t other -name shared --sum"),
            "2 entries take 4.0K; deleting all of them frees 4.0K"
        );
        assert_eq!(sum("t --sum -name none"), "0 entries take 0; deleting all of them frees 0");
        assert_eq!(sum("t --sum --limit 1 -name one"), sum("t --sum -name one"));
        // The bug: the first ones were those that came first, in no order.
        for order in ["name", "size --reverse"] {
            assert_eq!(
                sum(&format!("t -type f --sum --sort {order} --limit 1")),
                sum("t -name again --sum"),
                "{order}"
            );
            assert_eq!(sum(&format!("t -type f --sum --sort {order}")), sum("t -type f --sum"));
        }
        for (words, why) in [
            ("t t/sub --sum", "‘t/sub’ lies in ‘t’"),
            ("t --sum --count", "leave --count"),
            ("t --sum -print", "stand in for -print"),
            ("-L t --sum", "leave -L"),
        ] {
            assert!(sum(words).contains(why), "{words}: {}", sum(words));
        }
        // The bug: what two paths lead to was counted twice.
        for (words, why) in
            [("t bound", "‘t’ lies in ‘bound’"), ("t bound/sub", "‘bound/sub’ lies in ‘t’")]
        {
            let script =
                format!("mkdir bound; {make}; mount --bind t bound; {program} {words} --sum");
            assert!(run(&script).contains(why), "{words}: {}", run(&script));
        }
        // Links of a file may be added up together.
        assert_eq!(sum("t/two t/sub/again --sum --json"), sum("t -size 8k --sum --json"));
    }
}
