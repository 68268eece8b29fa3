//! How time and space depend on the size of shards, on the number of classes and on the number of
//! entries: what figure 8 of GUFI's paper asks of rollups, asked of shards.

use crate::measure::median;
use crate::process::{Line, User, space};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    /// The canopy command
    #[arg(long)]
    canopy: PathBuf,
    /// Where to put indexes
    #[arg(long)]
    scratch: PathBuf,
    /// Files of the sites whose shards and classes differ; a tenth as many directories
    #[arg(long, default_value_t = 3_000_000)]
    files: u64,
    /// Memory of the builders in MiB
    #[arg(long, value_delimiter = ',', default_value = "16,32,64,128,256,512,1024")]
    memory: Vec<u64>,
    /// Numbers of users
    #[arg(long, value_delimiter = ',', default_value = "5,50,200,800,3000")]
    users: Vec<u64>,
    /// Numbers of entries of the scaling curve; 'none' is 0
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1000000,3000000,10000000,30000000,100000000"
    )]
    entries: Vec<u64>,
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Threads of the query whose threads' ends are told; more than there are processors show how
    /// evenly the work can be spread
    #[arg(long, default_value_t = 16)]
    spread: usize,
    /// Rounds of each query
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

/// The queries of all tables.
const QUERIES: [(&str, &[&str]); 4] = [
    ("names", &["find", "/generated", "!", "-type", "d", "-printf", "%f\\n"]),
    ("sum by owner", &["sql", "SELECT uid, sum(size) FROM entries GROUP BY uid"]),
    ("du -s of all", &["du", "-s", "/generated"]),
    ("du -s of a home", &["du", "-s", "/generated/home/user003"]),
];

/// Prints tables in Markdown.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    println!("\n## Sizes of shards ({} files)\n", arguments.files);
    print_head("builders' memory");
    for memory in &arguments.memory {
        let memory = memory.to_string();
        arguments.row(&format!("{memory} MiB"), arguments.files, &["--memory", &memory])?;
    }
    println!("\n## Numbers of classes ({} files)\n", arguments.files);
    print_head("users, closed subdirectories");
    for users in &arguments.users {
        for closed in ["0", "10"] {
            let users = users.to_string();
            let options = ["--users", &users, "--closed", closed];
            arguments.row(&format!("{users}, {closed} %"), arguments.files, &options)?;
        }
    }
    println!("\n## Numbers of entries\n");
    print_head("entries asked for");
    for &entries in arguments.entries.iter().filter(|&&entries| entries > 0) {
        // A directory for ten files is the documented site.
        arguments.row(&entries.to_string(), entries * 10 / 11, &[])?;
    }
    Ok(())
}

fn print_head(what: &str) {
    let queries = QUERIES.map(|(name, _)| format!("{name} s | with 1 thread s")).join(" | ");
    println!("| {what} | built | MB on disk | files | {queries} | names: threads end after |");
    println!("| --- | --- | --- | --- |{} --- |", " --- |".repeat(2 * QUERIES.len()));
}

impl Arguments {
    /// Makes a site, asks all queries and removes it.
    fn row(&self, what: &str, files: u64, options: &[&str]) -> anyhow::Result<()> {
        let index = self.scratch.join("sweep");
        if index.exists() {
            fs::remove_dir_all(&index)?;
        }
        let mut words = vec![std::env::current_exe()?.display().to_string(), "generate".to_owned()];
        words.push(index.display().to_string());
        words.extend([
            "--files".to_owned(),
            files.to_string(),
            "--dirs".to_owned(),
            (files / 10).to_string(),
        ]);
        words.extend(["--threads".to_owned(), self.threads.to_string()]);
        words.extend(options.iter().map(|option| (*option).to_owned()));
        let built = line(words).answer()?;
        let (bytes, count) = space(&index)?;
        let mut cells = Vec::new();
        for (_, query) in QUERIES {
            // The time of one thread against that of all tells how evenly the work is spread.
            for threads in [self.threads, 1] {
                let line = self.query(&index, query, threads);
                line.seconds()?;
                let times = (0..self.rounds)
                    .map(|_| line.seconds())
                    .collect::<anyhow::Result<Vec<f64>>>()?;
                cells.push(format!("{:.4}", median(times)));
            }
        }
        println!(
            "| {what} | {} | {:.1} | {count} | {} | {} |",
            built.trim(),
            bytes as f64 / 1e6,
            cells.join(" | "),
            self.spread(&index)?
        );
        fs::remove_dir_all(&index)?;
        Ok(())
    }

    fn query(&self, index: &Path, query: &[&str], threads: usize) -> Line {
        let mut words = vec![self.canopy.display().to_string(), "--index".to_owned()];
        words.extend([
            index.display().to_string(),
            query[0].to_owned(),
            format!("--threads={threads}"),
        ]);
        words.extend(query[1..].iter().map(|word| (*word).to_owned()));
        line(words)
    }

    /// When the first, the middle and the last thread of the query for names end, and the whole
    /// command. The thread that starts the others is not among them.
    fn spread(&self, index: &Path) -> anyhow::Result<String> {
        let (mut ends, whole) = self.query(index, QUERIES[0].1, self.spread).thread_ends()?;
        ends.sort_by(f64::total_cmp);
        let (Some(first), Some(last)) = (ends.first(), ends.last()) else {
            return Ok(String::new());
        };
        Ok(format!("{first:.4}, {:.4}, {last:.4} of {whole:.4} s", median(ends.clone())))
    }
}

fn line(words: Vec<String>) -> Line {
    Line { words, user: User { name: "root".to_owned(), ids: None } }
}
