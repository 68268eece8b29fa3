//! All measurements, interleaved where they are compared.

use crate::measure::interleaved;
use anyhow::Context;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Arguments {
    /// A real tree, best of 300,000 files or more, that nobody changes meanwhile
    #[arg(long)]
    tree: PathBuf,
    /// An index that 'generate' made; without it only the real tree is measured
    #[arg(long)]
    generated: Option<PathBuf>,
    /// The canopy command
    #[arg(long)]
    canopy: PathBuf,
    /// Where to put the index of the real tree
    #[arg(long)]
    scratch: PathBuf,
    /// Counted runs of each command
    #[arg(long, default_value_t = 7)]
    rounds: usize,
}

struct Row {
    what: &'static str,
    seconds: f64,
    limit: String,
}

/// Commands on the generated index: what each measures, its words and its limit.
const GENERATED: &[(&str, &[&str], &str)] = &[
    ("du -s of the generated root", &["du", "-s", "/generated"], "≤ 30 ms"),
    ("du -s of a home", &["du", "-s", "/generated/home/user007"], "≤ 30 ms"),
    ("du -s of a directory in a project", &["du", "-s", "/generated/proj/project07"], "≤ 30 ms"),
    ("du -s of all homes", &["du", "-s", "/generated/home"], "≤ 30 ms"),
    ("find -name '*77.h5' in all", &["find", "/generated", "-name", "*77.h5"], "≤ 800 ms"),
    ("find -name '*_00*7.jpg' in all", &["find", "/generated", "-name", "*_00*7.jpg"], "≤ 800 ms"),
    (
        "SQL sum of size by owner",
        &["sql", "SELECT uid, sum(size) FROM entries GROUP BY uid"],
        "≤ 500 ms",
    ),
    ("SQL sum by owner from usage", &["sql", "SELECT uid, sum(size) FROM usage GROUP BY uid"], ""),
    (
        "all statistics of the root",
        &["sql", "SELECT * FROM trees WHERE path = '/generated'"],
        "≤ 50 ms",
    ),
    (
        "largest file and histogram of sizes of the root",
        &["sql", "SELECT size_max, size_hist FROM trees WHERE path = '/generated'"],
        "≤ 50 ms",
    ),
    (
        "all statistics of all homes",
        &["sql", "SELECT * FROM trees WHERE path = '/generated/home'"],
        "≤ 50 ms",
    ),
    (
        "all statistics of a project, by user",
        &["sql", "SELECT * FROM trees_by_user WHERE path = '/generated/proj/project07'"],
        "≤ 50 ms",
    ),
    ("report of everything", &["report", "/generated"], "≤ 2000 ms"),
    ("report of one user's entries", &["report", "/generated", "--user", "10007"], "≤ 300 ms"),
];

/// Prints a table in Markdown: medians in milliseconds, and the limit of each.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let own = std::env::current_exe()?;
    let text = |path: &PathBuf| path.to_str().map(str::to_owned).context("a path is not UTF-8");
    let (own, tree, canopy, index) =
        (text(&own)?, text(&arguments.tree)?, text(&arguments.canopy)?, text(&arguments.scratch)?);
    let rounds = arguments.rounds;
    println!("| what | median | compared |\n| --- | --- | --- |");
    let [walk, scan] = medians(
        [vec![&own, "walk", &tree], vec![&canopy, "--index", &index, "index", &tree]],
        rounds,
    )?;
    print_row(&Row { what: "bare walk of the real tree", seconds: walk, limit: String::new() });
    print_row(&Row {
        what: "canopy index of the real tree",
        seconds: scan,
        limit: format!("{:.2} × the walk (≤ 1.5)", scan / walk),
    });
    let canopy_on = |arguments: &[&'static str]| -> Vec<String> {
        let mut all = vec![canopy.clone(), "--index".to_owned(), index.clone()];
        all.extend(arguments.iter().map(|a| (*a).to_owned()));
        all
    };
    let with_tree = |mut command: Vec<String>, rest: &[&str]| -> Vec<String> {
        command.push(tree.clone());
        command.extend(rest.iter().map(|a| (*a).to_owned()));
        command
    };
    for (what, ours, theirs) in [
        (
            "du -s of the real tree",
            with_tree(canopy_on(&["du", "-s"]), &[]),
            with_tree(vec!["du".into(), "-s".into()], &[]),
        ),
        (
            "find -name 'Cargo.toml' -size +8k in the real tree",
            with_tree(canopy_on(&["find"]), &["-name", "Cargo.toml", "-size", "+8k"]),
            with_tree(vec!["find".into()], &["-name", "Cargo.toml", "-size", "+8k"]),
        ),
    ] {
        let [ours, theirs] = medians([borrowed(&ours), borrowed(&theirs)], rounds)?;
        print_row(&Row {
            what,
            seconds: ours,
            limit: format!("{:.1} ms live, {:.0} × (≥ 30)", theirs * 1e3, theirs / ours),
        });
    }
    let Some(generated) = arguments.generated else { return Ok(()) };
    let generated = text(&generated)?;
    for &(what, command, limit) in GENERATED {
        let mut all = vec![canopy.as_str(), "--index", &generated];
        all.extend(command);
        let [seconds] = medians([all], rounds)?;
        print_row(&Row { what, seconds, limit: limit.to_owned() });
    }
    Ok(())
}

fn borrowed(command: &[String]) -> Vec<&str> {
    command.iter().map(String::as_str).collect()
}

fn medians<const N: usize>(commands: [Vec<&str>; N], rounds: usize) -> anyhow::Result<[f64; N]> {
    let medians = interleaved(&commands, rounds)?;
    medians.try_into().ok().context("a median for each command")
}

fn print_row(row: &Row) {
    println!("| {} | {:.1} ms | {} |", row.what, row.seconds * 1e3, row.limit);
}
