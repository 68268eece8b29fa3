//! Measures how many changes a second are heard of: `rate DIRECTORY [FILES] [THREADS]` creates files
//! in DIRECTORY, in a hundred directories, and says how far behind the suspects were.

use canopy_model::Generation;
use canopy_scan::MountRules;
use canopy_watch::{Fanotify, Intake, Journal, Pacing, Scope, Territory, Work};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

const DIRECTORIES: usize = 100;

fn main() {
    let mut words = std::env::args().skip(1);
    let directory = words.next().expect("the directory is missing");
    let mut number = |default| words.next().map_or(default, |word| word.parse().expect("a number"));
    let (files, threads): (usize, usize) = (number(200_000), number(1));
    let place = tempfile::tempdir_in(directory).expect("the directory cannot be written");
    let root = place.path().join("tree");
    for number in 0..DIRECTORIES {
        fs::create_dir_all(root.join(number.to_string())).expect("directories can be made");
    }
    let territory = Territory::new(vec![root.as_os_str().as_bytes().to_vec()], Vec::new());
    let rules = MountRules::new(Vec::new(), false);
    let scope = Scope {
        territory,
        rules,
        one_file_system: false,
        suspects_max: 100_000,
        path_bytes_max: 4096,
    };
    let (journal, recovered) = Journal::open(&place.path().join("watch")).expect("a journal");
    let intake = Intake::new(scope, journal, recovered).expect("an intake");
    let (group, _) = Fanotify::begin(&intake).expect("fanotify").expect("this needs root");
    let pacing = Pacing { interval: Duration::from_secs(1) };
    std::thread::scope(|scope| {
        scope.spawn(|| group.run(&intake, &|_| {}).expect("events can be read"));
        scope.spawn(|| {
            while !intake.is_stopped() {
                let limit = Duration::from_millis(100);
                let Some(Work::Changes(batches)) = intake.next(pacing, limit) else { continue };
                batches.iter().for_each(|batch| intake.succeeded(batch, Generation(1)));
            }
        });
        let begun = Instant::now();
        create(&root, files, threads);
        let created = begun.elapsed();
        // Each file is told of once at least, since it has a name of its own.
        let told = || intake.snapshot().expect("a snapshot").heard;
        while told().events < files as u64 && told().overflows == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let behind = begun.elapsed() - created;
        let heard = told();
        println!(
            "{files} files created in {:.2} s by {threads} threads, {:.0}/s; {} events, the last \
             heard of {:.0} ms later; {} overflows; {:.2} % of paths known",
            created.as_secs_f64(),
            files as f64 / created.as_secs_f64(),
            heard.events,
            behind.as_secs_f64() * 1000.0,
            heard.overflows,
            100.0 * heard.cache_hits as f64 / (heard.cache_hits + heard.cache_misses) as f64,
        );
        intake.stop();
    });
}

fn create(root: &Path, files: usize, threads: usize) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                for number in (thread..files).step_by(threads) {
                    let path = root.join(format!("{}/{number}", number % DIRECTORIES));
                    fs::File::create(path).expect("files can be made");
                }
            });
        }
    });
}
