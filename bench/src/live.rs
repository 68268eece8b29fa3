//! Searches beside those of others: the live walk beside find, fd and bfs, names in the index
//! beside plocate, and `ls -lR` and `du -a` from the index beside the originals. All commands of
//! one row run in turn.

use crate::measure::median;
use crate::process::{Line, User};
use anyhow::Context;
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub struct Arguments {
    /// A real tree, best of 300,000 files or more, that nobody changes meanwhile
    #[arg(long)]
    tree: PathBuf,
    /// The canopy command
    #[arg(long)]
    canopy: PathBuf,
    /// Where to put the index of the tree and plocate's database
    #[arg(long)]
    scratch: PathBuf,
    /// Pattern of names
    #[arg(long, default_value = "*.so*")]
    name: String,
    /// The user who searches, besides root
    #[arg(long, default_value_t = 65_534)]
    uid: u32,
    /// Counted runs of each command
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

/// A program of others, named by a variable of the environment.
struct Peers {
    fd: Option<String>,
    bfs: Option<String>,
    plocate: Option<(String, String)>,
}

impl Peers {
    fn found() -> Self {
        let named = |variable: &str| {
            let program = std::env::var(variable).ok().filter(|program| !program.is_empty());
            if program.is_none() {
                println!("{variable} is not set: skipped.");
            }
            program
        };
        Peers {
            fd: named("FD_BIN"),
            bfs: named("BFS_BIN"),
            plocate: named("PLOCATE_BIN").zip(named("UPDATEDB_BIN")),
        }
    }
}

/// One question, in the words of each program.
struct Question {
    what: String,
    ours: Vec<String>,
    theirs: Vec<(&'static str, Vec<String>)>,
}

/// Prints a table in Markdown: medians in milliseconds, and how many times as long the others take.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (tree, canopy) = (text(&arguments.tree)?, text(&arguments.canopy)?);
    std::fs::create_dir_all(&arguments.scratch)?;
    let (index, database) =
        (text(&arguments.scratch.join("index"))?, text(&arguments.scratch.join("plocate.db"))?);
    let peers = Peers::found();
    let root = User { name: "root".to_owned(), ids: None };
    let user =
        User { name: format!("uid {}", arguments.uid), ids: Some((arguments.uid, arguments.uid)) };
    prepare(&[&canopy, "--index", &index, "index", &tree])?;
    if let Some((_, updatedb)) = &peers.plocate {
        prepare(&[
            updatedb,
            "-U",
            &tree,
            "-o",
            &database,
            "--prunepaths",
            "",
            "--prunefs",
            "",
            "--prunenames",
            "",
            "--prune-bind-mounts",
            "no",
        ])?;
    }
    println!(
        "\n| what | as | lines | canopy | others, and how many times as long |\n| --- | --- | --- \
         | --- | --- |"
    );
    for question in live(&canopy, &tree, &arguments.name, &peers) {
        for who in [&root, &user] {
            measure(&question, who, arguments.rounds)?;
        }
    }
    for question in indexed(&canopy, &index, &database, &tree, &arguments.name, &peers) {
        measure(&question, &root, arguments.rounds)?;
    }
    Ok(())
}

fn prepare(words: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(words[0])
        .args(&words[1..])
        .status()
        .with_context(|| format!("cannot run {words:?}"))?;
    anyhow::ensure!(matches!(status.code(), Some(0 | 1)), "{words:?} failed: {status}");
    Ok(())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Queries of the live walk.
fn live(canopy: &str, tree: &str, name: &str, peers: &Peers) -> Vec<Question> {
    let rows: [(&str, &[&str], &[&str]); 5] = [
        ("all names", &[], &["."]),
        ("names like the pattern", &["-name", name], &["--glob", name]),
        ("directories", &["-type", "d"], &["--type", "directory", "."]),
        (
            "files above 8 KiB",
            &["-type", "f", "-size", "+8k"],
            &["--type", "file", "--size", "+8ki", "."],
        ),
        ("changed in 30 days", &["-mtime", "-30"], &["--changed-within", "30d", "."]),
    ];
    let question = |(what, expression, fd): (&str, &[&str], &[&str])| {
        let with = |first: &[&str]| [words(first), words(&[tree]), words(expression)].concat();
        let mut theirs = vec![("find", with(&["find"]))];
        if let Some(program) = &peers.fd {
            let all = words(&[program, "--unrestricted", "--unrestricted"]);
            theirs.push(("fd", [all, words(fd), words(&[tree])].concat()));
        }
        if let Some(program) = &peers.bfs {
            theirs.push(("bfs", with(&[program])));
        }
        Question { what: format!("live: {what}"), ours: with(&[canopy, "find", "--live"]), theirs }
    };
    rows.into_iter().map(question).collect()
}

/// Queries of the index.
fn indexed(
    canopy: &str,
    index: &str,
    database: &str,
    tree: &str,
    name: &str,
    peers: &Peers,
) -> Vec<Question> {
    let ours = |rest: &[&str]| [words(&[canopy, "--index", index]), words(rest)].concat();
    let located = peers.plocate.iter().map(|(plocate, _)| {
        ("plocate", words(&[plocate, "--database", database, "--basename", name]))
    });
    vec![
        Question {
            what: "index: names like the pattern".to_owned(),
            ours: ours(&["find", tree, "-name", name]),
            theirs: located.chain([("find", words(&["find", tree, "-name", name]))]).collect(),
        },
        Question {
            what: "index: ls -lR".to_owned(),
            ours: ours(&["ls", "-lR", tree]),
            theirs: vec![("ls", words(&["ls", "-lR", tree]))],
        },
        Question {
            what: "index: du -a".to_owned(),
            ours: ours(&["du", "-a", tree]),
            theirs: vec![("du", words(&["du", "-a", tree]))],
        },
    ]
}

/// Runs all programs of a question in turn, after one uncounted round in which their lines are
/// counted, and prints the row.
fn measure(question: &Question, who: &User, rounds: usize) -> anyhow::Result<()> {
    let line = |words: &Vec<String>| Line { words: words.clone(), user: who.clone() };
    let lines: Vec<Line> = [&question.ours]
        .into_iter()
        .chain(question.theirs.iter().map(|(_, words)| words))
        .map(line)
        .collect();
    let found = lines.iter().map(Line::lines_of_search).collect::<anyhow::Result<Vec<usize>>>()?;
    let mut times = vec![Vec::new(); lines.len()];
    for _ in 0..rounds {
        for (line, times) in lines.iter().zip(&mut times) {
            times.push(line.seconds_of_search()?);
        }
    }
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    let others = question.theirs.iter().zip(medians.iter().zip(&found).skip(1));
    let others: Vec<String> = others
        .map(|((name, _), (seconds, lines))| {
            let same = if *lines == found[0] { String::new() } else { format!(", {lines} lines") };
            format!("{name} {:.1} ms ({:.2} ×{same})", seconds * 1e3, seconds / medians[0])
        })
        .collect();
    let (what, ours) = (&question.what, medians[0] * 1e3);
    println!("| {what} | {} | {} | {ours:.1} ms | {} |", who.name, found[0], others.join(", "));
    Ok(())
}
