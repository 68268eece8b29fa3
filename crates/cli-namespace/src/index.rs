//! `canopy ns index`: which attributes a namespace keeps indexes of.

use crate::place;
use crate::servers::{Access, Served, is_served};
use anyhow::{Context, bail};
use canopy::Outcome;
use canopy::commands::ns::Index as Arguments;
use canopy_mount::INDEXES;
use canopy_namespace::operation::{Administration, Caller, Operation};
use canopy_namespace::{Reply, Settings};
use rustix::fs::XattrFlags;
use std::io::Write;

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = place::asked(&arguments.place)?;
    let mounted = place::control(&place, INDEXES)?;
    // An attribute that no namespace can have is a mistake, not an index that is already gone.
    Settings::default().with_indexes(&arguments.remove)?;
    if let Some(name) = arguments.add.iter().find(|name| arguments.remove.contains(name)) {
        bail!("{name}: either --add or --remove");
    }
    let is_change = !arguments.add.is_empty() || !arguments.remove.is_empty();
    let wanted = |now: &str| {
        let mut names = Vec::from_iter(now.split_whitespace().map(str::to_owned));
        names.iter_mut().for_each(|name| *name = name.trim_matches(['(', ')']).to_owned());
        names.retain(|name| !arguments.remove.contains(name));
        names.extend(arguments.add.iter().cloned());
        names
    };
    let now = match mounted {
        Some(now) if is_change => {
            let names = wanted(&now);
            // The kernel can only say that something is wrong.
            Settings::default().with_indexes(&names)?;
            let value = names.join(" ");
            let flags = XattrFlags::empty();
            let shown = place.display();
            rustix::fs::setxattr(&place, INDEXES, value.as_bytes(), flags)
                .with_context(|| format!("cannot change the indexes of {shown} to {value}"))?;
            place::control(&place, INDEXES)?.unwrap_or_default()
        }
        Some(now) => now,
        None if is_served(&place)? => {
            let served = Served::open(&place, &Access::default())?;
            if is_change {
                let names = wanted(&indexes(&served)?);
                let names = names.iter().map(String::as_str).collect();
                let set = Operation::Administration(Administration::SetIndexes(names));
                let client = served.connection.client();
                client.execute_for(Caller::Trusted, &set)?;
            }
            let now = indexes(&served)?;
            served.end()?;
            now
        }
        None => {
            let namespace = match is_change {
                true => place::open(&place)?,
                false => place::open_read_only(&place)?,
            };
            if is_change {
                let now = namespace.settings().index_names().join(" ");
                namespace.set_indexes(&wanted(&now))?;
                namespace.build_indexes(|| true)?;
                namespace.sync()?;
            }
            namespace.settings().index_names().join(" ")
        }
    };
    writeln!(std::io::stdout(), "{now}")?;
    Ok(Outcome::Complete)
}

/// Returns the indexes of a namespace on several servers; in parentheses those that are being built.
fn indexes(served: &Served) -> anyhow::Result<String> {
    let ask = Operation::Administration(Administration::Settings);
    let settings = match served.connection.client().execute_for(Caller::Trusted, &ask)? {
        Reply::Settings(settings) => settings,
        _ => bail!("a reply of a server does not fit"),
    };
    let names = settings.index_names().into_iter().map(|name| {
        let is_building = settings.building.contains(name);
        if is_building { format!("({name})") } else { name.to_owned() }
    });
    Ok(Vec::from_iter(names).join(" "))
}
