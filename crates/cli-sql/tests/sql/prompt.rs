//! `canopy sql` at a prompt, from files and from pipes, with the real command on a pseudo terminal.
//! Needs root and script(1).

use crate::common;

use common::{Fixture, User};
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A tree with so many files, indexed.
fn indexed(files: usize) -> (Fixture, PathBuf) {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    (0..files).for_each(|number| fs::write(tree.join(format!("file{number:05}")), "x").unwrap());
    let index = place.path("index");
    place.index(&index, &tree);
    (place, index)
}

/// The command on a terminal of its own.
struct Terminal {
    child: Child,
    input: Option<std::process::ChildStdin>,
    shown: Arc<Mutex<Vec<u8>>>,
    /// Where the next expected text is looked for.
    seen: usize,
}

impl Terminal {
    fn start(place: &Fixture, index: &Path, arguments: &str) -> Self {
        let line =
            format!("exec {} --index {} sql {arguments}", place.canopy.display(), index.display());
        let state = place.path("state");
        fs::create_dir_all(&state).unwrap();
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("TERM", "xterm")
            .env("SHELL", "/bin/sh")
            .env("PAGER", "sed 's/^/page: /'")
            .env("XDG_STATE_HOME", &state)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, mut output) = (child.stdin.take(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(Vec::new()));
        let kept = shown.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = output.read(&mut buffer) {
                kept.lock().unwrap().extend_from_slice(&buffer[..length]);
            }
        });
        Terminal { child, input, shown, seen: 0 }
    }

    fn prompt(place: &Fixture, index: &Path) -> Self {
        let mut terminal = Self::start(place, index, "");
        terminal.expect("canopy> ");
        terminal
    }

    fn send(&mut self, keys: &str) {
        let input = self.input.as_mut().unwrap();
        input.write_all(keys.as_bytes()).unwrap();
        input.flush().unwrap();
    }

    /// Waits until a text is shown behind what was expected before.
    fn expect(&mut self, text: &str) {
        let begun = Instant::now();
        loop {
            let shown = self.shown.lock().unwrap()[self.seen..].to_vec();
            let mut windows = shown.windows(text.len().max(1));
            if let Some(at) = windows.position(|window| window.starts_with(text.as_bytes())) {
                self.seen += at + text.len();
                return;
            }
            let late = begun.elapsed() > Duration::from_secs(60);
            assert!(!late, "no {text:?} in {:?}", String::from_utf8_lossy(&shown));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types a line, and waits for the answer and the next prompt.
    fn answer(&mut self, line: &str, answer: &str) {
        self.send(&format!("{line}\r"));
        self.expect(answer);
        self.expect("canopy> ");
    }

    /// Waits for the end; gives the exit code.
    fn end(mut self) -> i32 {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        status.code().unwrap()
    }
}

fn sql(place: &Fixture, index: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(&place.canopy)
        .arg("--index")
        .arg(index)
        .arg("sql")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[expect(clippy::too_many_lines, reason = "one session")]
fn statements_and_commands_are_answered_at_the_prompt() {
    let (place, index) = indexed(7);
    let mut prompt = Terminal::prompt(&place, &index);
    prompt.answer(".tables", "trees_by_user");
    prompt.answer(".tables", "for GUFI's queries:");
    prompt.answer(".schema usage", "  count Int64");
    prompt.answer("SELECT count(*) AS n FROM entries;", "| 7 |");
    // A statement goes on over lines, and a semicolon in a text ends nothing.
    prompt.send("SELECT ';' AS a,\r");
    prompt.send("count(*) + 1 AS b FROM entries;\r");
    prompt.expect("| ; | 8 |");
    prompt.expect("canopy> ");
    // A line that goes on has another prompt, and Ctrl-C leaves the statement.
    prompt.send("SELECT 1 +\r");
    prompt.expect("   ...> ");
    prompt.send("\u{3}");
    prompt.expect("canopy> ");
    // Two on a line.
    prompt.answer("SELECT 41 + 1 AS c; SELECT 43 + 1 AS d;", "| 44 |");
    prompt.answer("SELECT nonsense;", "canopy: ");
    prompt.answer(".mode csv", "");
    prompt.answer("SELECT name, size FROM entries ORDER BY name LIMIT 1;", "file00000,1");
    prompt.answer(".mode xml", "no mode 'xml'; there are box, csv,");
    prompt.answer(".mode box", "");
    prompt.answer("SELECT 41 + 1 AS c, NULL AS d;", "│ 42 │ NULL │");
    prompt.answer(".nullvalue -", "");
    prompt.answer("SELECT 41 + 1 AS c, NULL AS d;", "│ 42 │ - │");
    prompt.answer(".maxrows 2", "");
    prompt.answer("SELECT name FROM entries;", "(2 of 7 rows shown)");
    prompt.answer(".maxrows few", "use: .maxrows N|all");
    prompt.answer(".maxrows all", "");
    prompt.answer("SELECT name FROM entries ORDER BY 1;", "│ file00006 │");
    prompt.answer(".mode line", "");
    prompt.answer("SELECT 1 AS a, 2 AS Long;", "Long = 2");
    let script = place.path("script.sql");
    fs::write(&script, ".mode csv\nSELECT 'of a file' AS t;\nSELEC;\n").unwrap();
    prompt.answer(&format!(".read {}", script.display()), "script.sql, line 3");
    prompt.answer(".read /none", "cannot read /none");
    fs::write(&script, format!(".read {}\n", script.display())).unwrap();
    prompt.answer(&format!(".read {}", script.display()), "more than 16 files");
    prompt.answer("help", ".nullvalue");
    prompt.answer(".pager on", "");
    prompt.answer("SELECT 7 AS paged;", "page: 7");
    prompt.answer(".pager off", "");
    prompt.answer(".mode json", "");
    prompt.answer("SELECT 45 + 1 AS e;", "[{\"e\":46}]");
    prompt.answer(".timer on", "");
    prompt.answer("SELECT 1 AS f;", "1 row, 0.");
    prompt.answer(".timer off", "");
    let file = place.path("answer");
    prompt.answer(".mode table", "");
    prompt.answer(&format!(".output {}", file.display()), "");
    prompt.answer("SELECT 47 + 1 AS g;", "");
    prompt.answer(".output", "");
    prompt.answer("SELECT 48 + 1 AS h;", "| 49 |");
    assert_eq!(fs::read_to_string(file).unwrap(), "+----+\n|  g |\n+----+\n| 48 |\n+----+\n");
    // The form is what the name tells, as with -o, until answers are on the screen again.
    let file = place.path("answer.csv");
    prompt.answer(&format!(".output {}", file.display()), "");
    prompt.answer("SELECT 50 + 1 AS i;", "");
    for (name, said) in [
        ("o.csv.gz", "o.csv.gz would not be compressed: write"),
        ("o.parquet", "a Parquet file has the answer of one statement"),
        ("o.tsv", "answers have no form for .tsv"),
        ("o.db", "answers have no form for .db"),
    ] {
        prompt.answer(&format!(".output {}", place.path(name).display()), said);
        assert!(!place.path(name).exists(), "{name}");
    }
    prompt.answer("SELECT 51 + 1 AS j;", "");
    prompt.answer(".output", "");
    prompt.answer("SELECT 52 + 1 AS k;", "| 53 |");
    assert_eq!(fs::read_to_string(file).unwrap(), "i\n51\nj\n52\n");
    prompt.answer(".nonsense", "no command '.nonsense'");
    prompt.answer(".help", ".timer on|off");
    // Ctrl-D.
    prompt.send("\x04");
    assert_eq!(prompt.end(), 0);
}

#[test]
fn tab_completes_and_history_is_kept_for_oneself() {
    let (place, index) = indexed(3);
    let mut prompt = Terminal::prompt(&place, &index);
    prompt.send("SELECT count(*) + 100 AS n FROM entr\t;\r");
    prompt.expect("| 103 |");
    prompt.expect("canopy> ");
    prompt.send("SELECT gro\tmax(gid)) AS n FROM entries;\r");
    prompt.expect("canopy> ");
    prompt.send("\x15SELECT human_s\t1024) AS size FROM entries LIMIT 1;\r");
    prompt.expect("| 1.0K |");
    prompt.expect("canopy> ");
    prompt.answer(".sche\t usa\t", "usage (");
    prompt.send(".quit\r");
    assert_eq!(prompt.end(), 0);
    let history = place.path("state/canopy/sql_history");
    assert_eq!(fs::metadata(&history).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(fs::read_to_string(&history).unwrap().contains("AS n FROM entries;"));
    // The next prompt knows it: two up are `.quit` and `.schema`.
    let mut prompt = Terminal::prompt(&place, &index);
    prompt.send("\x1b[A\x1b[A\r");
    prompt.expect("usage (");
    prompt.expect("canopy> ");
    prompt.send("\x04");
    assert_eq!(prompt.end(), 0);
}

#[test]
fn ctrl_c_stops_the_query_and_not_the_prompt() {
    let (place, index) = indexed(3000);
    let mut prompt = Terminal::prompt(&place, &index);
    // At the prompt it clears the line.
    prompt.send("SELECT nonsense");
    prompt.expect("nonsense");
    prompt.send("\x03");
    prompt.expect("canopy> ");
    prompt.answer("SELECT 1 + 1 AS two;", "|   2 |");
    // 10^17 pairs to count. What is shown after a second says that it is under way.
    for query in [
        "SELECT count(*) FROM entries a, entries b, entries c, entries d, entries e;",
        "SELECT max(a.size + b.size + c.size) FROM entries a JOIN entries b ON a.size = b.size \
         JOIN entries c ON b.size = c.size JOIN entries d ON c.size = d.size JOIN entries e ON \
         e.size = d.size;",
        // A join that never has anything to hand over.
        "SELECT count(*) FROM entries a JOIN (SELECT a.size FROM entries a, entries b) b ON a.size < b.size;",
    ] {
        prompt.send(&format!("{query} SELECT 'after' AS it;\r"));
        prompt.expect("pieces of the index");
        let begun = Instant::now();
        prompt.send("\x03");
        prompt.expect("canopy: stopped");
        prompt.expect("canopy> ");
        assert!(begun.elapsed() < Duration::from_secs(10), "{query}");
        assert_eq!(answering(&index), [""; 0], "{query}");
        // It is gone, what followed it too, and the next one is answered.
        prompt.answer("SELECT count(*) + 1 AS n FROM entries;", "| 3001 |");
    }
    // One that prints without end.
    prompt.send("SELECT a.ino, repeat('ab', 20) FROM entries a, entries b, entries c;\r");
    prompt.expect("| ababab");
    prompt.send("\x03");
    prompt.expect("canopy: stopped");
    prompt.expect("canopy> ");
    prompt.answer("SELECT 5 + 5 AS ten;", "|  10 |");
    prompt.send("\x04");
    assert_eq!(prompt.end(), 0);
}

/// Command lines of processes that answer statements from an index at a prompt.
fn answering(index: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let line = fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(text(&line).replace('\0', " "))
    });
    let of_prompt =
        |line: &String| line.contains("--timeout") && line.contains(&index.display().to_string());
    processes.filter(of_prompt).collect()
}

#[test]
fn large_sorts_use_a_private_directory_that_is_removed() {
    let (place, index) = indexed(1500);
    let files = place.path("tmp");
    fs::create_dir(&files).unwrap();
    let asked = |temporary: &Path, query: &str| {
        let mut command = Command::new(&place.canopy);
        command.arg("--index").arg(&index).args(["sql", "--format", "csv", "--memory", "16M"]);
        command.args(["--threads", "2", query]).env("TMPDIR", temporary);
        command
    };
    let left = || fs::read_dir(&files).unwrap().count();
    // 2.25 million groups.
    let groups = "SELECT count(*) AS n, sum(k) AS s FROM (SELECT a.ino * 1000000 + b.ino AS x, \
                  count(*) AS k FROM entries a, entries b GROUP BY x)";
    let output = asked(&files, groups).output().unwrap();
    assert_eq!(text(&output.stdout), "n,s\n2250000,2250000\n", "{}", text(&output.stderr));
    assert_eq!(left(), 0);
    // It did not fit.
    let output = asked(Path::new("/nonexistent"), groups).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--memory"), "{}", text(&output.stderr));
    // Whatever ends it, nothing is left.
    let large =
        "SELECT a.name || b.name || repeat('x', 100) AS x FROM entries a, entries b ORDER BY x";
    let mut process = asked(&files, large).stdout(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let spilled = |directory: &Path| {
        let below = common::all_paths(directory);
        below.iter().filter(|path| path.is_file()).count()
    };
    while spilled(&files) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is written");
        std::thread::sleep(Duration::from_millis(50));
    }
    for directory in fs::read_dir(&files).unwrap() {
        let mode = directory.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }
    let id = nix::unistd::Pid::from_raw(process.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(!process.wait().unwrap().success());
    assert_eq!(left(), 0);
}

#[test]
fn files_and_pipes_have_several_statements() {
    let (place, index) = indexed(5);
    let file = place.path("script.sql");
    let script =
        "-- two; statements\nSELECT count(*) AS n FROM entries;\n\n.mode json\nSELECT 'a;b' AS t";
    fs::write(&file, script).unwrap();
    let expected = "n\n5\n[{\"t\":\"a;b\"}]\n";
    for (arguments, input) in [
        (vec!["-f", file.to_str().unwrap()], ""),
        (vec!["-f", "-"], script),
        (vec![], script),
        (vec![script], ""),
    ] {
        let arguments = [&["--format", "csv"], &arguments[..]].concat();
        // Not taken for an option.
        let arguments = match arguments.last() {
            Some(last) if *last == script => vec!["--format", "csv", "--", script],
            _ => arguments,
        };
        let output = sql(&place, &index, &arguments, input.as_bytes());
        assert_eq!(text(&output.stdout), expected, "{arguments:?} {}", text(&output.stderr));
        assert!(output.status.success());
    }
    // The first that fails ends it, and its line is told.
    let output = sql(
        &place,
        &index,
        &["--format", "csv"],
        b"SELECT 1 AS a;\n\nSELECT nonsense;\nSELECT 2 AS b;",
    );
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), "a\n1\n".to_owned()));
    assert!(text(&output.stderr).contains("standard input, line 3: "), "{}", text(&output.stderr));
    // What would change anything is refused wherever it stands.
    let output = sql(&place, &index, &[], b"SELECT 1; DROP TABLE entries;");
    assert_eq!(output.status.code(), Some(2));
    // A Parquet file has one answer.
    let output = sql(&place, &index, &["--format", "parquet"], b"SELECT 1 AS a;");
    assert!(output.status.success() && output.stdout.starts_with(b"PAR1"));
    let output = sql(&place, &index, &["--format", "parquet"], b"SELECT 1 AS a; SELECT 2 AS b;");
    assert_eq!(output.status.code(), Some(2));
    let output = sql(&place, &index, &["-f", "/nonexistent.sql"], b"");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(sql(&place, &index, &["-f", "x", "SELECT 1"], b"").status.code(), Some(2));
    assert!(sql(&place, &index, &[], b" ; -- nothing\n").status.success());
    let output =
        sql(&place, &index, &["--format", "csv"], b"SELECT 1 AS a;\n.quit\nSELECT 2 AS b;");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "a\n1\n".to_owned()));
}

/// GUFI's functions, which a statement for GUFI makes known, are not there for the next one.
#[test]
fn statements_leave_nothing_behind() {
    let (place, index) = indexed(2);
    let alone = sql(&place, &index, &["--format", "csv"], b"SELECT strftime('%Y', 0) AS y;");
    let after = sql(
        &place,
        &index,
        &["--format", "csv"],
        b"SELECT count(*) AS n FROM pentries;SELECT strftime('%Y', 0) AS y;",
    );
    let end = |output: &Output| text(&output.stdout).lines().last().map(str::to_owned);
    assert_eq!(alone.status.code(), after.status.code());
    if alone.status.success() {
        assert_eq!(end(&alone), end(&after));
    }
    assert!(text(&after.stdout).starts_with("n\n2\n"), "{}", text(&after.stdout));
}

#[test]
fn a_million_rows_are_printed_in_little_memory() {
    let (place, index) = indexed(1000);
    let peak_kb = |rows: usize| {
        let query =
            format!("SELECT a.ino, repeat('x', 300) FROM entries a, entries b LIMIT {rows}");
        let line = format!(
            "{} --index {} sql \"{query}\" | wc -l",
            place.canopy.display(),
            index.display()
        );
        let script = format!("ulimit -c 0; {line}");
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(text(&output.stdout).trim(), (rows + 4).to_string(), "{}", text(&output.stderr));
        nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_CHILDREN)
            .unwrap()
            .max_rss()
    };
    let few = peak_kb(1000);
    let many = peak_kb(1_000_000);
    // The text alone is 310 MB.
    assert!(many < few + (100 << 10), "{few} KB for a thousand rows, {many} KB for a million");
}

#[test]
fn long_lists_take_no_time() {
    let (place, index) = indexed(1);
    let begun = Instant::now();
    let output = sql(&place, &index, &["SELECT range(0, 300000) AS l"], b"");
    assert!(text(&output.stdout).contains(", 299998, 299999]"), "{}", text(&output.stderr));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn names_do_nothing_to_a_terminal() {
    let place = Fixture::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).unwrap();
    let name = OsStr::from_bytes(b"evil\x1b[31m\n| forged |\x7f");
    fs::write(tree.join(name), "").unwrap();
    let index = place.path("index");
    place.index(&index, &tree);
    for (form, expected) in [
        ("table", r"| evil\x1b[31m\n| forged |\x7f |"),
        ("csv", "evil?[31m"),
        ("json", "| forged |?"),
        ("ndjson", "| forged |?"),
    ] {
        let terminal = Terminal::start(
            &place,
            &index,
            &format!("--format {form} \"SELECT name FROM entries\""),
        );
        let shown = terminal.shown.clone();
        assert_eq!(terminal.end(), 0);
        std::thread::sleep(Duration::from_millis(300));
        let shown = shown.lock().unwrap().clone();
        assert!(text(&shown).contains(expected), "{form}: {}", text(&shown));
        assert!(!shown.contains(&0x1b) && !shown.contains(&0x7f), "{form}: {}", text(&shown));
    }
    // Programs get the name as it is.
    let output = sql(&place, &index, &["--format", "csv", "SELECT name FROM entries"], b"");
    assert!(output.stdout.windows(name.len()).any(|window| window == name.as_bytes()));
    // Whole tables do not become Parquet on a screen.
    let terminal = Terminal::start(&place, &index, "--format parquet \"SELECT 1\"");
    assert_eq!(terminal.end(), 2);
}

#[test]
fn explain_tells_what_was_ruled_out_of_what_one_may_read() {
    let place = Fixture::new();
    let (index, one, two) = (place.path("index"), place.path("one"), place.path("two"));
    for tree in [&one, &two] {
        fs::create_dir(tree).unwrap();
        fs::write(tree.join("file"), "x").unwrap();
    }
    fs::create_dir(two.join("private")).unwrap();
    fs::write(two.join("private/file"), "x").unwrap();
    fs::set_permissions(two.join("private"), fs::Permissions::from_mode(0o700)).unwrap();
    let output = place.canopy(&index, &["index".as_ref(), one.as_os_str(), two.as_os_str()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let explain =
        |query: &str| text(&sql(&place, &index, &[&format!("EXPLAIN {query}")], b"").stdout);
    let all = explain("SELECT name FROM entries");
    assert!(all.contains("table=entries, shards=3 of 3, row groups=3 of 3"), "{all}");
    let below = explain(&format!("SELECT name FROM entries WHERE path LIKE '{}/%'", one.display()));
    assert!(below.contains("shards=1 of 3, row groups=1 of 3"), "{below}");
    // Numbers of 64 bits without a sign, whole modes, and either of two conditions rule out, too.
    for condition in [
        "size > 1000",
        "ino > 18446744073709551614",
        "mode = 35309",
        "size <= -1",
        "mode < 100 OR uid = 4000000000",
    ] {
        let none = explain(&format!("SELECT name FROM entries WHERE {condition}"));
        assert!(none.contains("row groups=0 of 3"), "{condition}: {none}");
    }
    let trees =
        explain(&format!("SELECT size FROM trees WHERE path = '{}/private'", two.display()));
    assert!(trees.contains("table=trees, sources=1 of 2"), "{trees}");
    // Nobody learns how much there is that they may not read.
    let user = User { uid: 2001, gid: 3001, groups: Vec::new() };
    let arguments: [&OsStr; 4] = [
        "--index".as_ref(),
        index.as_os_str(),
        "sql".as_ref(),
        "EXPLAIN SELECT name FROM entries".as_ref(),
    ];
    let seen = text(&user.run(place.canopy.as_os_str(), &arguments).stdout);
    assert!(seen.contains("shards=2 of 2"), "{seen}");
}

#[test]
fn all_formats_end_quietly_where_the_reader_goes_away() {
    let (place, index) = indexed(20);
    let canopy = format!("{} --index {}", place.canopy.display(), index.display());
    for format in ["csv", "json", "ndjson", "table", "parquet"] {
        let query = "SELECT repeat('x', 100) FROM range(1, 100000)";
        let query = query.replace("range(1, 100000)", "generate_series(1, 100000)");
        let line = format!(
            "set -o pipefail; {canopy} sql --format {format} \"{query}\" | head -c 1 | wc -c"
        );
        let output = Command::new("bash").args(["-c", &line]).output().unwrap();
        let errors = text(&output.stderr);
        assert!(output.status.success() && errors.is_empty(), "{format}: {errors}");
        assert_eq!(text(&output.stdout).trim(), "1", "{format}");
    }
}

#[test]
fn tables_fit_into_a_terminal() {
    let (place, index) = indexed(1);
    let query = "SELECT repeat(name, 20) AS Names, size FROM entries";
    let canopy = format!("{} --index {}", place.canopy.display(), index.display());
    let shown = |options: &str| {
        let line = format!("stty cols 40 && {canopy} sql {options} '{query}'");
        let output = Command::new("script").args(["-qefc", &line, "/dev/null"]).output().unwrap();
        text(&output.stdout).replace('\r', "")
    };
    let table = shown("");
    assert!(table.lines().all(|line| line.chars().count() == 40), "{table}");
    assert!(table.contains("file00000f… |    1 |"), "{table}");
    assert!(shown("--format line").contains(&"file00000".repeat(20)));
    assert!(shown("--max-rows 0 --null-value x").contains("(0 of 1 row shown)"));
    let output = sql(&place, &index, &["--format", "markdown", query], b"");
    assert!(text(&output.stdout).contains(&"file00000".repeat(20)));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
fn refusals_say_what_to_do() {
    let (place, index) = indexed(1);
    for (query, words, never) in [
        ("SELECT * FROM entres", &["no table 'entres'; did you mean 'entries'?", "xattrs"][..], ""),
        ("SELECT * FROM weather", &["no table 'weather'", "directories"], "did you mean"),
        ("DROP TABLE entries", &["queries change nothing: statements are SELECT"], ""),
        ("DELETE FROM entries", &["queries change nothing"], ""),
        ("insert INTO entries VALUES (1)", &["queries change nothing"], "values"),
        ("PRAGMA x", &["queries change nothing"], ""),
        (
            "SELECT * FROM entries WHERE path = \"/usr/bin/ls\"",
            &["no column '/usr/bin/ls'; text stands in single quotes", "(columns: path, source,"],
            "Schema error",
        ),
        (
            "SELECT nme FROM entries",
            &["did you mean 'name'?", "\n  SELECT nme FROM entries\n  "],
            "",
        ),
        (
            "SELECT 1,\n  e.nme FROM entries e",
            &["no column 'e.nme'", "\n    e.nme FROM entries e\n    ^"],
            "",
        ),
        ("SELECT Nam FROM (SELECT 1 AS \"Nam\")", &["did you mean '\"Nam\"'?"], "normalization"),
        ("SELECT * FROM entries WHERE size > 1/0", &["division by zero"], "caused by"),
        ("SELEC 1", &["expected an SQL statement, found 'SELEC'\n  SELEC 1\n  ^\n"], "Parser"),
        ("SELECT (1", &["but the statement ends\n  SELECT (1\n           ^\n"], "EOF"),
        ("SELECT 1 WHERE 5 > 1G", &["sizes are numbers of bytes"], "Parser"),
        ("SELECT sum(name) FROM entries", &["there is no sum(text), but sum(number)"], "bug"),
        (
            "SELECT usr_name(uid) FROM entries",
            &["no function 'usr_name'; did you mean 'user_name'?"],
            "",
        ),
        ("SELECT name, count(*) FROM entries", &["'name' has to be in GROUP BY"], "wildcard"),
        (
            "SELECT count(*) FROM entries WHERE mtime > 'soon'",
            &["'soon' is not a time; times are"],
            "Arrow",
        ),
        (
            "SELECT 1 FROM entries WHERE mtime > 5",
            &["cannot compare time > number; times are written as '2026-06-01'"],
            "UTC",
        ),
        ("SELECT now() - '7 days'", &["time - text", "now() - INTERVAL '7 days'"], "coerce"),
        ("SELECT row_number() FROM entries", &["row_number() OVER (ORDER BY x)"], "mean"),
        ("SELECT substr(name) FROM entries", &["as substr(name, 1, 3)"], "Ident"),
        ("SELECT strftime(mtime) FROM entries", &["strftime(time), but strftime(value, v"], "UTC"),
        ("SELECT x.name FROM entries e", &["no table or alias 'x' after FROM; there is e"], "did"),
        ("SELECT 1 FROM entries WHERE uid = 'root'", &["'root' is not a number; names of"], ""),
        ("SELECT 1 FROM entries WHERE size > '1M'", &["'1M' is not a number; sizes are"], ""),
        ("SELECT $1", &["there are no parameters: write a value in place of $1"], "provided"),
        ("SELECT 1 FROM entries WHERE name REGEXP 'x'", &["name ~ '^run[0-9]'"], "Ident"),
        ("SELECT 1 FROM entries WHERE name GLOB 'x'", &["patterns are LIKE '%.txt'"], ""),
        (
            "SELECT 1 FROM entries WHERE name SIMILAR TO '('",
            &["wrong regular expression: unclosed group"],
            "Internal",
        ),
        ("USE x", &["queries change nothing"], ""),
        ("SELECT TOP 5 name FROM entries", &["LIMIT 5"], "implemented"),
        ("SELECT \"path FROM entries", &["unterminated name in quotes"], "EOF"),
        (
            "SELECT regexp_like(name, '(') FROM entries",
            &["wrong regular expression: unclosed group"],
            "parse",
        ),
    ] {
        let output = sql(&place, &index, &[query], b"");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{query}: {said}");
        assert!(words.iter().all(|word| said.contains(word)), "{query}: {said}");
        assert!(never.is_empty() || !said.contains(never), "{query}: {said}");
    }
}

#[test]
fn a_birth_that_is_not_known_is_null() {
    let place = Fixture::new();
    let (index, list) = (place.path("index"), place.path("list"));
    let rows = "path,type,mode,uid,gid,size,mtime,btime\n/d/x,f,644,0,0,7,1.5,\n\
        /d/y,f,644,0,0,7,1.5,1600000000\n/d,d,755,0,0,0,0,\n/d/s,d,755,0,0,0,0,\n";
    fs::write(&list, rows).unwrap();
    let words = ["import", "--format", "csv"].map(OsStr::new);
    let output = place.canopy(&index, &[&words[..], &[list.as_os_str()]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (query, answer) in [
        ("SELECT name FROM entries WHERE btime IS NULL", "x"),
        ("SELECT name FROM entries WHERE btime < '2030-01-01'", "y"),
        ("SELECT count(*) FROM directories WHERE btime IS NULL", "2"),
        ("SELECT min(btime) FROM entries", "2020-09-13T12:26:40Z"),
        ("SELECT btime_min IS NULL FROM trees WHERE path = '/d'", "true"),
        ("SELECT crtime FROM vrpentries WHERE name = 'x'", "0"),
    ] {
        let output = sql(&place, &index, &["--format", "csv", query], b"");
        let shown = text(&output.stdout);
        let rows: Vec<&str> = shown.lines().skip(1).collect();
        assert_eq!(rows, [answer], "{query}: {}", text(&output.stderr));
    }
    let found = |words: &[&str]| {
        let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
        text(&place.canopy(&index, &words).stdout)
    };
    assert_eq!(found(&["find", "/d", "-newerBt", "1960-01-01"]), "/d/y\n");
    assert_eq!(found(&["find", "/d/x", "-printf", "[%BY]"]), "[]");
}

/// Scripts printed tables as the command line wanted them, whatever their commands set.
#[test]
fn scripts_change_how_tables_look() {
    let (place, index) = indexed(1);
    let (script, file) = (place.path("script.sql"), place.path("o.md"));
    let lines = [
        ".mode markdown",
        ".nullvalue none",
        "SELECT NULL AS a;",
        ".mode table",
        &format!(".output {}", file.display()),
        "SELECT 1 AS b;",
        ".output",
        "SELECT 2 AS c;",
    ];
    fs::write(&script, lines.join("\n")).unwrap();
    let mut command = Command::new(&place.canopy);
    command.arg("--index").arg(&index).arg("sql").arg("-f").arg(&script);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told, "| a    |\n|------|\n| none |\n+---+\n| c |\n+---+\n| 2 |\n+---+\n");
    let written = fs::read_to_string(file).unwrap();
    assert!(written.starts_with("| b |\n|"), "{written}");
}
