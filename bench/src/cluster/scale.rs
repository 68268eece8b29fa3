//! Large directories: listing one while it grows, and one more server for it.

use crate::cluster::Arguments;
use crate::cluster::load::{Load, create, create_files, list, make_directory_named, name_of};
use crate::cluster::rates::{CLIENTS, Row, setup};
use crate::cluster::site::Site;
use crate::measure::peak_memory_bytes;
use anyhow::{Context, Result, anyhow, ensure};
use canopy_namespace::FileId;
use canopy_namespace::inode::file_type;
use canopy_namespace::operation::Caller;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Servers before one is added.
const BEFORE: u32 = 3;

/// Lists a directory of eight servers while eight clients create files in it.
pub fn listing(arguments: &Arguments) -> Result<Vec<Row>> {
    let site = Site::start(&arguments.programs()?, &setup(arguments, 8))?;
    let client = site.connect()?;
    let directory = make_directory_named(&client, "listed")?;
    let load = Load { clients: CLIENTS, files: arguments.listed, at_once: 64, shift: 0 };
    create_files(&site, directory, load)?;
    let is_over = AtomicBool::new(false);
    let (count, seconds, created, more) = std::thread::scope(|scope| -> Result<_> {
        let creating = Vec::from_iter((0..CLIENTS).map(|number| {
            let (site, is_over) = (&site, &is_over);
            scope.spawn(move || create_until(site, directory, CLIENTS + number, is_over))
        }));
        let (memory, begin) = (peak_memory_bytes(), Instant::now());
        let listed = list(&client, directory);
        let seconds = begin.elapsed().as_secs_f64();
        is_over.store(true, Ordering::Relaxed);
        let mut created = 0;
        for one in creating {
            created += one.join().map_err(|_| anyhow!("a client panicked"))??;
        }
        Ok((listed?, seconds, created, peak_memory_bytes().saturating_sub(memory) >> 20))
    })?;
    ensure!(count >= u64::from(load.files), "only {count} entries were listed");
    let rate = count as f64 / seconds;
    let figure = format!(
        "{seconds:.2} s ({rate:.0} entries/s); {more} MB more in all clients; {:.0} creates/s beside",
        created as f64 / seconds
    );
    let measure = format!("listing {count} entries on 8 servers while 8 clients create");
    Ok(vec![Row::new(measure, "20 M in 10 s; 64 MB", figure)])
}

fn create_until(site: &Site, directory: FileId, client: u32, is_over: &AtomicBool) -> Result<u64> {
    let connected = site.connect()?;
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        let names = Vec::from_iter((count..count + 8).map(|number| name_of(client, number)));
        let all = names.iter().map(|one| create(directory, one, file_type::REGULAR));
        for reply in connected.execute_all(Caller::Trusted, &Vec::from_iter(all)) {
            reply?;
        }
        count += 8;
    }
    Ok(count.into())
}

/// Adds a server to some, and balances a directory.
pub fn added(arguments: &Arguments) -> Result<Vec<Row>> {
    let mut site = Site::start(&arguments.programs()?, &setup(arguments, BEFORE))?;
    let directory = make_directory_named(&site.connect()?, "balanced")?;
    let files = arguments.files.saturating_mul(BEFORE);
    create_files(&site, directory, Load { clients: CLIENTS, files, at_once: 64, shift: 0 })?;
    let before = site.totals()?.1;
    site.command("canopy-cluster", &["cluster", "add", "--servers", "1"], |_| {})?;
    let added = site.start_server()?;
    site.servers.push(added);
    site.wait_until_even()?;
    let begin = Instant::now();
    site.command("canopy-cluster", &["cluster", "balance", "/balanced"], |_| {})?;
    let seconds = begin.elapsed().as_secs_f64();
    let moved = |numbers: &std::collections::BTreeMap<String, u64>| {
        numbers.get("moved_entries_total").copied().context("the servers count moved entries")
    };
    let moved = moved(&site.totals()?.1)? - moved(&before)?;
    let share = moved as f64 / f64::from(files);
    let measure = format!("entries moved when server {} is added and balanced", BEFORE + 1);
    let figure = format!("{share:.3} of {files} entries, in {seconds:.1} s");
    Ok(vec![Row::new(measure, "at most 0.25, 1 / (N + 1)", figure)])
}
