//! GUFI and canopy on the same site, in one run, interleaved: building and space (`build`), and the
//! queries of GUFI's paper.

mod build;

use crate::measure::median;
use crate::process::{Line, User, drop_caches};
use crate::queries::{self, Check, Fixture, Query};
use anyhow::{Context, bail};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub struct Arguments {
    /// The canopy command, where every user can run it
    #[arg(long)]
    canopy: PathBuf,
    /// Where to put everything; every user must be able to search it
    #[arg(long)]
    scratch: PathBuf,
    /// Sites to generate: FILES/DIRECTORIES, or FILES/DIRECTORIES/PERCENT for extended attributes
    #[arg(
        long = "site", value_name = "FILES/DIRS[/PERCENT]",
        default_values = ["1000000/100000", "5000000/300000"]
    )]
    sites: Vec<String>,
    /// Threads of both sides
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Rounds of each query; those that take long have fewer, and GUFI's index before the rollup
    /// has one
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Measure with cold caches too
    #[arg(long)]
    cold: bool,
    /// Ask GUFI's rolled-up index alone: queries of the plain one take minutes on a large site.
    /// Answers of users are not compared then, since the rollup shows them more
    #[arg(long)]
    rolled_only: bool,
    /// Count files opened, in a run of its own
    #[arg(long)]
    opens: bool,
    /// Keep what was built
    #[arg(long)]
    keep: bool,
    /// Take what an earlier run has built and kept, if it is there
    #[arg(long)]
    reuse: bool,
}

/// Seconds that all rounds of a query may take, about.
const BUDGET_S: f64 = 60.0;

/// Files older than this are old.
const OLD_S: i64 = 1_700_000_000;

/// Prints tables in Markdown, or why there are none.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Some(gufi) = std::env::var_os("GUFI_BIN").map(PathBuf::from) else {
        println!("skipped: GUFI_BIN does not name the directory of GUFI's programs");
        return Ok(());
    };
    for site in &arguments.sites {
        Bench::new(&arguments, &gufi, site)?.run()?;
    }
    Ok(())
}

struct Bench<'a> {
    arguments: &'a Arguments,
    gufi: &'a Path,
    directory: PathBuf,
    files: String,
    dirs: String,
    xattrs: String,
}

/// The sides of a comparison.
struct Sides {
    plain: Option<Line>,
    rolled: Line,
    find: Option<Line>,
    sql: Option<Line>,
}

fn root() -> User {
    User { name: "root".to_owned(), ids: None }
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments, gufi: &'a Path, site: &str) -> anyhow::Result<Self> {
        let mut parts = site.split('/').map(str::to_owned);
        let (Some(files), Some(dirs)) = (parts.next(), parts.next()) else {
            bail!("{site}: not FILES/DIRECTORIES");
        };
        let directory = arguments.scratch.join(format!("gufi-{}", site.replace('/', "-")));
        fs::create_dir_all(&directory)?;
        let xattrs = parts.next().unwrap_or_else(|| "0".to_owned());
        Ok(Bench { arguments, gufi, directory, files, dirs, xattrs })
    }

    fn run(&self) -> anyhow::Result<()> {
        println!(
            "\n## {} files in {} directories, {} % with xattrs\n",
            self.files, self.dirs, self.xattrs
        );
        if !(self.arguments.reuse && Path::new(&self.path("rolled")).exists()) {
            self.build()?;
        }
        let users = self.users()?;
        let caches = if self.arguments.cold { &[false, true][..] } else { &[false][..] };
        for &cold in caches {
            println!(
                "\n| query, {} | user | GUFI s | GUFI rolled up s | canopy find or du s | canopy \
                 SQL s | GUFI / canopy | rolled up / canopy | lines or answer |\n| --- | --- | \
                 --- | --- | --- | --- | --- | --- | --- |",
                if cold { "cold" } else { "warm" }
            );
            for user in &users {
                self.queries(&user.0, &user.1, cold)?;
            }
        }
        self.memory()?;
        if !self.arguments.keep {
            fs::remove_dir_all(&self.directory)?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    fn own(&self, words: &[&str]) -> anyhow::Result<Line> {
        let mut all = vec![std::env::current_exe()?.display().to_string()];
        all.extend(words.iter().map(|word| (*word).to_owned()));
        Ok(Line { words: all, user: root() })
    }

    fn canopy(&self, user: &User, words: &[String]) -> Line {
        let mut all = vec![self.arguments.canopy.display().to_string(), "--index".to_owned()];
        all.push(self.path("canopy"));
        let (command, rest) = words.split_first().expect("every query has a command");
        all.extend([command.clone(), format!("--threads={}", self.arguments.threads)]);
        all.extend(rest.iter().cloned());
        Line { words: all, user: user.clone() }
    }

    fn sql(&self, user: &User, query: &str) -> Line {
        self.canopy(user, &["sql", "--format", "csv", query].map(str::to_owned))
    }

    fn gufi(&self, program: &str, user: &User, words: &[&str]) -> Line {
        let mut all = vec![self.gufi.join(program).display().to_string()];
        all.extend(["-n".to_owned(), self.arguments.threads.to_string()]);
        all.extend(words.iter().map(|word| (*word).to_owned()));
        Line { words: all, user: user.clone() }
    }

    /// Root and the users who own least, a middling number and most of the entries.
    fn users(&self) -> anyhow::Result<Vec<(User, String)>> {
        let query =
            "SELECT uid, min(path) FROM usage GROUP BY uid HAVING uid >= 10000 ORDER BY sum(count)";
        let answer = self.sql(&root(), query).answer()?;
        let uids: Vec<u32> = answer
            .lines()
            .skip(1)
            .filter_map(|line| line.split(',').next()?.parse().ok())
            .collect();
        let mut users = vec![(root(), "/generated".to_owned())];
        for (name, at) in [("smallest", 0), ("median", uids.len() / 2), ("largest", uids.len() - 1)]
        {
            let uid = *uids.get(at).context("the site has no users")?;
            let home = format!("/generated/home/user{:03}", uid - 10_000);
            let group = format!("SELECT gid FROM directories WHERE path = '{home}'");
            let gid = self.sql(&root(), &group).answer()?;
            let gid = gid
                .lines()
                .nth(1)
                .and_then(|gid| gid.parse().ok())
                .context("a home has no group")?;
            users.push((User { name: format!("{name} ({uid})"), ids: Some((uid, gid)) }, home));
        }
        let trees = if self.arguments.rolled_only { &["rolled"][..] } else { &["gufi", "rolled"] };
        for tree in trees {
            for (_, home) in &users {
                self.gufi("gufi_treesummary", &root(), &[&self.path(&format!("{tree}{home}"))])
                    .seconds()?;
            }
        }
        Ok(users)
    }

    fn queries(&self, user: &User, home: &str, cold: bool) -> anyhow::Result<()> {
        let reference = self.path("reference");
        let file = fs::File::create(&reference)?;
        let before =
            std::time::UNIX_EPOCH + std::time::Duration::new(OLD_S as u64 - 1, 999_999_999);
        file.set_modified(before)?;
        let place = Fixture {
            root: "/generated",
            home,
            reference: &reference,
            old_s: OLD_S,
            xattrs: self.xattrs != "0",
        };
        for query in queries::all(&place) {
            let summed = query.gufi.iter().any(|word| word == "-T");
            let start = if summed { home } else { place.root };
            let sides = self.sides(&query, user, start);
            if let Err(error) = self.query(&query, &sides, cold) {
                let error = format!("{error:#}").replace(['\n', '|'], " ");
                let error: String = error.chars().take(120).collect();
                println!("| {} | {} | {error} |  |  |  |  |  |  |", query.what, user.name);
            }
        }
        Ok(())
    }

    fn sides(&self, query: &Query, user: &User, start: &str) -> Sides {
        let gufi = |tree: &str| {
            let tree = self.path(&format!("{tree}{start}"));
            let mut words = vec!["-d", ","];
            words.extend(query.gufi.iter().map(String::as_str));
            words.push(&tree);
            self.gufi("gufi_query", user, &words)
        };
        Sides {
            plain: (!self.arguments.rolled_only).then(|| gufi("gufi")),
            rolled: gufi("rolled"),
            find: query.find.as_ref().map(|words| self.canopy(user, words)),
            sql: query.sql.as_ref().map(|sql| self.sql(user, sql)),
        }
    }

    /// Compares the answers, then measures.
    fn query(&self, query: &Query, sides: &Sides, cold: bool) -> anyhow::Result<()> {
        let sql = sides.sql.as_ref().context("a query without SQL")?;
        let user = &sql.user;
        let checked = query.checked.as_ref().map(|sql| self.sql(user, sql));
        let mut ours = checked.as_ref().unwrap_or(sql).answer()?;
        ours = ours.split_once('\n').map_or(String::new(), |(_, rows)| rows.to_owned());
        let answer = match query.check {
            Check::Lines => |text: &str| text.lines().count().to_string(),
            Check::Text => |text: &str| text.trim().to_owned(),
        };
        let short = |text: &str| answer(text).chars().take(60).collect::<String>();
        let mut plain_s = None;
        // With cold caches, plain GUFI takes minutes; its answers were compared with warm ones.
        if let Some(plain) = sides.plain.as_ref().filter(|_| !cold) {
            // It takes so long that the run whose answer is compared is also the one that is
            // measured.
            let begun = std::time::Instant::now();
            let plain = plain.answer()?;
            plain_s = Some(begun.elapsed().as_secs_f64());
            if answer(&plain) != answer(&ours) {
                bail!("answers differ: GUFI {:?}, canopy {:?}", short(&plain), short(&ours));
            }
        }
        // gufi_rollup joins a closed directory with an open one above it where the owner's bits are
        // the same (`check_pair_permissions`), so users may get more from it than the
        // source shows them. That is said, not hidden.
        let rolled = sides.rolled.answer()?;
        if sides.plain.is_none() && user.ids.is_none() && answer(&rolled) != answer(&ours) {
            bail!("answers differ: GUFI rolled up {:?}, canopy {:?}", short(&rolled), short(&ours));
        }
        let more = match (answer(&rolled) == answer(&ours), query.check) {
            (true, _) => String::new(),
            (false, Check::Lines) => format!(", {} rolled up", short(&rolled)),
            (false, Check::Text) => ", differs rolled up".to_owned(),
        };
        if let (Some(find), Check::Lines, None) = (&sides.find, query.check, &checked)
            && find.answer()?.lines().count() != ours.lines().count()
        {
            bail!("find has other lines than SQL");
        }
        let lines: Vec<Option<&Line>> =
            vec![None, Some(&sides.rolled), sides.find.as_ref(), sides.sql.as_ref()];
        let mut medians = self.medians(&lines, cold)?;
        medians[0] = plain_s;
        let cell = |at: usize| medians[at].map_or(String::new(), |seconds| format!("{seconds:.4}"));
        let best = medians[2].unwrap_or(f64::INFINITY).min(medians[3].unwrap_or(f64::INFINITY));
        let ratio = |at: usize| {
            medians[at].map_or(String::new(), |seconds| format!("{:.1}", seconds / best))
        };
        let lines = ours.lines().count();
        let shown = if lines == 1 { ours.trim().to_owned() } else { format!("{lines} lines") };
        println!(
            "| {} | {} | {} | {} | {} | {} | {} | {} | {shown}{more} |",
            query.what,
            user.name,
            cell(0),
            cell(1),
            cell(2),
            cell(3),
            ratio(0),
            ratio(1),
        );
        Ok(())
    }

    /// Medians of commands that take turns. The first round decides how many there are, and counts
    /// only when cold.
    fn medians(&self, lines: &[Option<&Line>], cold: bool) -> anyhow::Result<Vec<Option<f64>>> {
        let mut times = vec![Vec::new(); lines.len()];
        let mut rounds = 1;
        let mut round = 0;
        while round <= rounds {
            let mut sum = 0.0;
            for (line, times) in lines.iter().zip(&mut times) {
                let Some(line) = line else { continue };
                if cold {
                    drop_caches()?;
                }
                let seconds = line.seconds()?;
                sum += seconds;
                if round > 0 || cold {
                    times.push(seconds);
                }
            }
            if round == 0 {
                let wanted = if cold { 3 } else { self.arguments.rounds };
                rounds = ((BUDGET_S / sum) as usize).clamp(1, wanted);
            }
            round += 1;
        }
        Ok(times.into_iter().map(|times| (!times.is_empty()).then(|| median(times))).collect())
    }

    /// Prints peak memory, and files opened if asked, of each side for root.
    fn memory(&self) -> anyhow::Result<()> {
        println!(
            "\n| query, root | what | GUFI rolled up | canopy find or du | canopy SQL |\n| --- | \
             --- | --- | --- | --- |"
        );
        let reference = self.path("reference");
        let place = Fixture {
            root: "/generated",
            home: "/generated",
            reference: &reference,
            old_s: OLD_S,
            xattrs: self.xattrs != "0",
        };
        for query in queries::all(&place) {
            let sides = self.sides(&query, &root(), place.root);
            let lines = [Some(&sides.rolled), sides.find.as_ref(), sides.sql.as_ref()];
            let row = |what: &str,
                       figure: &dyn Fn(&Line) -> anyhow::Result<String>|
             -> anyhow::Result<()> {
                // A command that does not know the question has no figures.
                let knows = |line: &Line| line.seconds().is_ok();
                let cells = lines.iter().map(|line| match line {
                    Some(line) if knows(line) => figure(line),
                    _ => Ok(String::new()),
                });
                let cells: Vec<String> = cells.collect::<anyhow::Result<_>>()?;
                println!("| {} | {what} | {} |", query.what, cells.join(" | "));
                Ok(())
            };
            row("peak MB", &|line| Ok(format!("{:.0}", line.cost()?.peak_bytes as f64 / 1e6)))?;
            if self.arguments.opens {
                row("files opened", &|line| Ok(line.opens()?.to_string()))?;
            }
        }
        Ok(())
    }
}
