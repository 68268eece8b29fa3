//! Change logs of Lustre: records in the proportions of a day of a large site, as the paper on
//! Brindexer tells (section II-D, table IV), through all that `canopy watch --lustre` does with them
//! up to the suspects, with several numbers of paths kept (table VIII).
//!
//! A mount of Lustre would find the path of a FID. A computation takes its place here, so only the
//! work of the daemon is measured.

use crate::measure::peak_memory_bytes;
use anyhow::{Context, ensure};
use canopy_model::Generation;
use canopy_scan::MountRules;
use canopy_watch::lustre::{ChangeLogs, Fid, FileLocation, Log, Lustre, Options, Records};
use canopy_watch::{Intake, Journal, Pacing, Scope, Territory, Unresolved, Work};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub struct Arguments {
    /// A directory for the records
    #[arg(long)]
    scratch: PathBuf,
    /// How many records
    #[arg(long, default_value_t = 4_000_000)]
    events: u64,
    /// Directories in which something happens at a time
    #[arg(long, default_value_t = 3000)]
    busy: usize,
    /// The best of so many rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Measure once, with so many paths kept
    #[arg(long, hide = true)]
    kept: Option<usize>,
}

/// Table VIII of the paper, and what the daemon keeps.
const KEPT: [usize; 7] = [200, 500, 1000, 2000, 5000, 7500, 1 << 18];

/// Table IV of the paper.
const MIX: [(&str, u64); 10] = [
    ("01CREAT", 1_322_010),
    ("02MKDIR", 67_791),
    ("03HLINK", 8_841),
    ("04SLINK", 94_711),
    ("17MTIME", 10_098_485),
    ("06UNLNK", 750_480),
    ("07RMDIR", 59_841),
    ("08RENME", 97_227),
    ("14SATTR", 3_432_589),
    ("15XATTR", 164),
];

/// Events of a day, and the files and directories that they are of (section II-D).
const DAY: (u64, u64, u64) = (34_000_000, 10_500_000, 110_000);

/// Events a second that the paper's tests generated, for its percentage of a processor.
const PAPER_RATE: f64 = 766.0;

/// FIDs of directories have this sequence; those of files this one and more, by directory.
const OF_DIRECTORIES: u64 = 0x2_0000_0400;
const OF_FILES: u64 = 0x3_0000_0000;

/// Prints a table in Markdown.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let records = arguments.scratch.join("records");
    if let Some(kept) = arguments.kept {
        return measure(&arguments.scratch, &records, arguments.events, kept);
    }
    generate(&records, arguments)?;
    println!(
        "| paths kept | hit rate | CPU at 766 events/s | memory | events/s | events/s of CPU |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for kept in KEPT {
        let rounds = (0..arguments.rounds).map(|_| once(arguments, kept));
        let rounds = rounds.collect::<anyhow::Result<Vec<_>>>()?;
        let best = rounds.into_iter().min_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
        let best = best.context("no rounds")?;
        let events = arguments.events as f64;
        println!(
            "| {kept} | {:.1} % | {:.3} % | {:.1} MB | {:.0} | {:.0} |",
            100.0 * best.hit_rate,
            100.0 * PAPER_RATE * best.cpu_s / events,
            best.peak_bytes / 1e6,
            events / best.seconds,
            events / best.cpu_s,
        );
    }
    Ok(fs::remove_file(records)?)
}

/// Measurements of a process.
struct Measured {
    seconds: f64,
    cpu_s: f64,
    hit_rate: f64,
    peak_bytes: f64,
}

/// Measures in a process of its own.
fn once(arguments: &Arguments, kept: usize) -> anyhow::Result<Measured> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("lustre").arg("--scratch").arg(&arguments.scratch);
    command.args(["--events", &arguments.events.to_string(), "--kept", &kept.to_string()]);
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [seconds, cpu_s, hit_rate, peak_bytes] = numbers[..] else {
        anyhow::bail!("unexpected: {text}");
    };
    Ok(Measured { seconds, cpu_s, hit_rate, peak_bytes })
}

/// Reads all records, and prints what that took.
fn measure(scratch: &Path, records: &Path, events: u64, kept: usize) -> anyhow::Result<()> {
    let scope = Scope {
        territory: Territory::new(vec![b"/scratch".to_vec()], Vec::new()),
        rules: MountRules::new(Vec::new(), false),
        one_file_system: false,
        suspects_max: 100_000,
        path_bytes_max: 4096,
    };
    let state = scratch.join("watch");
    let (journal, recovered) = Journal::open(&state)?;
    let intake = Intake::new(scope, journal, recovered)?;
    let options = Options { paths_kept: kept, asked_every: Duration::from_secs(3600) };
    let logs = [Log::Target { name: "scratch-MDT0000".to_owned(), user: None }];
    let mount = Computed(records.to_owned());
    let (logs, _) = ChangeLogs::begin(Box::new(mount), &logs, options, &intake)?;
    let pacing = Pacing { interval: Duration::from_secs(5) };
    let cpu_s = || -> anyhow::Result<f64> {
        let usage = getrusage(UsageWho::RUSAGE_SELF)?;
        let both = usage.user_time() + usage.system_time();
        Ok(both.num_microseconds() as f64 / 1e6)
    };
    let (begun, cpu_before) = (Instant::now(), cpu_s()?);
    let heard = std::thread::scope(|scope| {
        scope.spawn(|| logs.run(&intake, &|why| eprintln!("{why}"), &|why| eprintln!("{why:?}")));
        scope.spawn(|| {
            while !intake.is_stopped() {
                let next = intake.next(pacing, Duration::from_millis(100));
                let Some(Work::Changes(batches)) = next else { continue };
                batches.iter().for_each(|batch| intake.succeeded(batch, Generation(1)));
            }
        });
        let heard = || intake.snapshot().map_or_else(Default::default, |snapshot| snapshot.heard);
        while heard().events < events {
            std::thread::sleep(Duration::from_millis(5));
        }
        intake.stop();
        heard()
    });
    let (seconds, cpu_s) = (begun.elapsed().as_secs_f64(), cpu_s()? - cpu_before);
    ensure!(heard.overflows + heard.bad_lines + heard.unresolved == 0, "{heard:?}");
    let asked = heard.cache_hits + heard.cache_misses;
    let hit_rate = heard.cache_hits as f64 / asked as f64;
    println!("{seconds} {cpu_s} {hit_rate} {}", peak_memory_bytes());
    Ok(fs::remove_dir_all(state)?)
}

/// A file system of which all paths follow from FIDs.
struct Computed(PathBuf);

impl Lustre for Computed {
    fn records(&self, _: &str, _: Option<u64>) -> io::Result<Records> {
        File::open(&self.0).map(Records::of_file)
    }

    fn clear(&self, _: &str, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn resolve(&self, fid: Fid) -> Result<FileLocation, Unresolved> {
        let directory = |number: u64| {
            format!("/scratch/user{}/project{}/run{number}", number % 97, number % 1009)
        };
        let is_dir = fid.sequence == OF_DIRECTORIES;
        let path = match is_dir {
            true => directory(fid.object.into()),
            false => format!("{}/output.{:08}", directory(fid.sequence - OF_FILES), fid.object),
        };
        Ok(FileLocation { path: path.into_bytes(), is_dir, linked: None })
    }
}

/// Writes records.
fn generate(path: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let mut output = BufWriter::new(File::create(path)?);
    let mut site = Site {
        random: 0x9E37_79B9_7F4A_7C15,
        busy: (0..arguments.busy as u64).collect(),
        directories: arguments.busy as u64,
        files: 0,
        recent: Vec::new(),
    };
    let sum: u64 = MIX.iter().map(|(_, events)| events).sum();
    for index in 1..=arguments.events {
        let mut left = site.below(sum);
        let kind = MIX.iter().find(|(_, events)| {
            let is_here = left < *events;
            left = left.wrapping_sub(*events);
            is_here
        });
        let (kind, _) = kind.context("a sum is wrong")?;
        site.write(index, kind, &mut output)?;
    }
    Ok(output.flush()?)
}

/// Where something happens.
struct Site {
    random: u64,
    /// Directories that are in use.
    busy: Vec<u64>,
    /// How many there are.
    directories: u64,
    files: u32,
    /// Files in use, twice as many: directory and number.
    recent: Vec<(u64, u32)>,
}

impl Site {
    fn below(&mut self, number: u64) -> u64 {
        // Xorshift.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % number
    }

    /// A directory in use, which now and then is a new one.
    fn directory(&mut self) -> u64 {
        let (events, _, directories) = DAY;
        let place = self.below(self.busy.len() as u64) as usize;
        if self.below(events) < directories {
            self.busy[place] = self.directories;
            self.directories += 1;
        }
        self.busy[place]
    }

    fn new_file(&mut self) -> (u64, u32) {
        self.files += 1;
        let file = (self.directory(), self.files);
        let place = self.below(2 * self.busy.len() as u64) as usize;
        match self.recent.get_mut(place) {
            Some(one) => *one = file,
            None => self.recent.push(file),
        }
        file
    }

    /// A file in use, or in proportion one of which nothing was told before.
    fn file(&mut self) -> (u64, u32) {
        let (events, files, _) = DAY;
        if self.recent.is_empty() || self.below(events) < files {
            return self.new_file();
        }
        let place = self.below(self.recent.len() as u64) as usize;
        self.recent[place]
    }

    fn write(&mut self, index: u64, kind: &str, output: &mut impl Write) -> io::Result<()> {
        let second = index * DAY.0 / 86_400 % 86_400;
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(output, "{index} {kind} {hour:02}:{minute:02}:{:02}.", second % 60)?;
        write!(output, "{:09} 2026.11.23 ", index % 1_000_000_000)?;
        let fid = |(directory, file): (u64, u32)| Fid {
            sequence: OF_FILES + directory,
            object: file,
            version: 0,
        };
        let of =
            |directory: u64| Fid { sequence: OF_DIRECTORIES, object: directory as u32, version: 0 };
        match kind {
            "17MTIME" => writeln!(output, "0x7 t={}", fid(self.file())),
            "14SATTR" | "15XATTR" => writeln!(output, "0x14 t={}", fid(self.file())),
            "02MKDIR" | "07RMDIR" => {
                let parent = of(self.directory());
                self.directories += 1;
                let made = of(self.directories);
                writeln!(output, "0x0 t={made} p={parent} results")
            }
            "08RENME" => {
                let file = self.file();
                let parent = of(file.0);
                let (was, is) = (format_args!("part.{}", file.1), format_args!("whole.{}", file.1));
                let none = Fid { sequence: 0, object: 0, version: 0 };
                writeln!(output, "0x0 t={none} p={parent} {is} s={} sp={parent} {was}", fid(file))
            }
            kind => {
                let file = if kind == "01CREAT" { self.new_file() } else { self.file() };
                let flags = u8::from(kind == "06UNLNK");
                let (target, parent) = (fid(file), of(file.0));
                writeln!(output, "0x{flags:x} t={target} p={parent} output.{:08}", file.1)
            }
        }
    }
}
