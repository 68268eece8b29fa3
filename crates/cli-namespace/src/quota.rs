//! `canopy ns quota`: usage and limits of users, groups and trees.

mod limits;
mod place;
mod table;

use anyhow::bail;
use canopy::Outcome;
use canopy::commands::ns::Quota as Arguments;
use canopy_namespace::quota::Account;
use place::{Named, QuotaTarget};

pub fn run(arguments: &Arguments) -> anyhow::Result<Outcome> {
    let place = QuotaTarget::open(&arguments.place)?;
    let account = place.account(&arguments.account)?;
    let changes =
        [&arguments.bytes, &arguments.inodes, &arguments.grace].iter().any(|one| one.is_some());
    match &account {
        Some(account @ Named::Account(Account::Tree(number))) if changes || arguments.remove => {
            if place.quotas(Some(account))?.is_empty() {
                bail!("there is no tree {number}: 'canopy ns quota PLACE' lists all trees");
            }
            if changes {
                bail!("name a tree by its path to set its limits; by number, it can be removed");
            }
            place.remove(account)?;
            return Ok(Outcome::Complete);
        }
        Some(account) if arguments.remove => {
            place.remove(account)?;
            return Ok(Outcome::Complete);
        }
        Some(account) if changes => {
            let now = place.quotas(Some(account))?;
            let mut limits = now.first().map(|told| told.quota.limits).unwrap_or_default();
            limits::change(&mut limits, arguments)?;
            place.set(account, limits)?;
        }
        _ => {}
    }
    let told = place.quotas(account.as_ref())?;
    if told.is_empty() && account.is_some() && !changes && !arguments.json {
        canopy::message(
            "nothing is counted there; or you may not see it: only root and the owner of the namespace see \
             other accounts than their own",
        );
        return Ok(Outcome::Complete);
    }
    table::print(&told, arguments.json)?;
    Ok(Outcome::Complete)
}
