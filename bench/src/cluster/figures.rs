//! Figures 4, 5, 6, 8 and 10 of GIGA+, as tables.

use crate::cluster::Arguments;
use crate::cluster::bucket::Garage;
use crate::cluster::load::{Cost, INTERVAL, Load, create_files, look_up, make_directory};
use crate::cluster::site::Place;
use crate::cluster::site::{Setup, Site};
use anyhow::Result;

/// Clients of each server. The paper has eight on a machine for each.
const CLIENTS: u32 = 4;

/// Operations that a client has for each server at once: so frames are as large with many servers as
/// with one.
const OF_FRAME: usize = 8;

/// Partitions a server of Figure 8.
const PARTITIONS: [u32; 5] = [1, 4, 8, 16, 32];

/// Entries of a partition that splits.
const SPLIT_ENTRIES: u64 = 8000;

fn measure(arguments: &Arguments, setup: &Setup) -> Result<Cost> {
    measure_with(arguments, setup, |_, _, _| Ok(()))
}

/// Creates files in one directory, and does something with it.
fn measure_with(
    arguments: &Arguments,
    setup: &Setup,
    then: impl FnOnce(&Site, canopy_namespace::FileId, Load) -> Result<()>,
) -> Result<Cost> {
    let site = Site::start(&arguments.programs()?, setup)?;
    let directory = make_directory(&site.connect()?)?;
    let clients = CLIENTS * setup.servers;
    let files = arguments.files.saturating_mul(setup.servers);
    let at_once = OF_FRAME * setup.servers as usize;
    let load = Load { clients, files, at_once, shift: 1 };
    let cost = create_files(&site, directory, load)?;
    then(&site, directory, load)?;
    Ok(cost)
}

fn setup(arguments: &Arguments, servers: u32, partitions: u32) -> Setup {
    Setup { servers, partitions, split_entries: SPLIT_ENTRIES, place: arguments.place() }
}

/// Figure 4.
pub fn scaling(arguments: &Arguments) -> Result<()> {
    println!(
        "| servers | creates/s of a server's core | us | calls a create | frames a create | errors | look-ups/s of a core | creates/s here |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for servers in &arguments.servers {
        let mut found = None;
        let setup = setup(arguments, *servers, 4);
        let cost = measure_with(arguments, &setup, |site, directory, load| {
            found = Some(look_up(site, directory, load)?);
            Ok(())
        })?;
        println!(
            "| {servers} | {:.0} | {:.2} | {:.3} | {:.3} | {:.4} % | {:.0} | {:.0} |",
            cost.per_core(),
            cost.server_us(),
            cost.calls / cost.operations,
            cost.frames / cost.operations,
            100.0 * cost.addressing_errors / cost.operations,
            found.map_or(f64::NAN, |cost| cost.per_core()),
            cost.operations / cost.seconds,
        );
    }
    Ok(())
}

/// Figure 5.
pub fn growth(arguments: &Arguments) -> Result<()> {
    println!(
        "| servers | thousands of creates in each {} ms | least of the mean | longest wait |",
        INTERVAL.as_millis()
    );
    println!("| ---: | --- | ---: | ---: |");
    for servers in &arguments.servers {
        let cost = measure(arguments, &setup(arguments, *servers, 1))?;
        let rates =
            cost.rates.iter().take(80).map(|count| format!("{:.1}", f64::from(*count) / 1e3));
        println!(
            "| {servers} | {} | {:.2} | {} ms |",
            Vec::from_iter(rates).join(" "),
            cost.worst_share(),
            cost.longest.as_millis()
        );
    }
    Ok(())
}

/// Figure 6.
pub fn policies(arguments: &Arguments) -> Result<()> {
    println!(
        "| servers | partitions a server | creates/s of a core | us | entries moved | least of the mean |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let servers = arguments.servers.iter().max().copied().unwrap_or(8);
    // More partitions than there are entries for: splitting goes on.
    for partitions in [1, 4, 16, 64] {
        let mut setup = setup(arguments, servers, partitions);
        setup.split_entries = SPLIT_ENTRIES.min(u64::from(arguments.files) / 16).max(100);
        let cost = measure(arguments, &setup)?;
        println!(
            "| {servers} | {partitions} | {:.0} | {:.2} | {:.0} | {:.2} |",
            cost.per_core(),
            cost.server_us(),
            cost.moved,
            cost.worst_share()
        );
    }
    Ok(())
}

/// Figure 8.
pub fn splitting(arguments: &Arguments) -> Result<()> {
    println!(
        "| servers | partitions a server | CPU seconds of the servers | us a create | entries moved | errors | seconds here |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for servers in &arguments.servers {
        for partitions in PARTITIONS {
            let cost = measure(arguments, &setup(arguments, *servers, partitions))?;
            println!(
                "| {servers} | {partitions} | {:.2} | {:.2} | {:.0} | {:.4} % | {:.2} |",
                cost.servers,
                cost.server_us(),
                cost.moved,
                100.0 * cost.addressing_errors / cost.operations,
                cost.seconds
            );
        }
    }
    Ok(())
}

/// Figure 10.
pub fn storage(arguments: &Arguments) -> Result<()> {
    println!(
        "| storage | servers | partitions a server | creates/s of a core | us | creates/s here |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let servers = arguments.servers.iter().max().copied().unwrap_or(8);
    let disk = Place { within: arguments.disk.display().to_string(), ..Place::default() };
    let (mut garage, mut bucket) = (None, Err("no --bucket, and garage is not installed"));
    if let Some(given) = &arguments.bucket {
        bucket = Ok(Place { within: given.clone(), ..Place::default() });
    } else if let Some(started) = Garage::start(&arguments.scratch)? {
        bucket = Ok(garage.insert(started).place(&arguments.scratch));
    }
    let places =
        [("memory", Ok(arguments.place())), ("directory on disk", Ok(disk)), ("bucket", bucket)];
    for (storage, place) in places {
        let place = match place {
            Ok(place) => place,
            Err(reason) => {
                println!("| {storage} | | | skipped: {reason} | | |");
                continue;
            }
        };
        for partitions in [1, 16] {
            let setup = Setup { place: place.clone(), ..setup(arguments, servers, partitions) };
            let cost = measure(arguments, &setup)?;
            println!(
                "| {storage} | {servers} | {partitions} | {:.0} | {:.2} | {:.0} |",
                cost.per_core(),
                cost.server_us(),
                cost.operations / cost.seconds
            );
        }
    }
    drop(garage);
    Ok(())
}
