//! A cluster that no process runs: its tables are settled for those who read them.

use crate::error::{Error, Result};
use crate::process::Process;
use crate::view::cluster_tables;
use canopy_namespace::Clock;
use canopy_partition::PartitionId;
use canopy_store::{Environment, is_flushed};
use std::thread;
use std::time::{Duration, Instant};

/// Time in which all that a crash has left undone has to be done.
const SETTLING: Duration = Duration::from_secs(30);

/// Time between two looks whether it is.
const PAUSE: Duration = Duration::from_millis(20);

/// Does what crashes have left undone in a cluster, and has the tables' files take what is only in
/// their logs. To be called when no process runs the cluster: it opens the tables, which fences
/// whoever has them. Opens none if the files have everything.
///
/// # Errors
///
/// Fails with `Stopped` if a change of several servers does not come to its end, with `Store` if a
/// process of the cluster starts meanwhile, and as the tables do.
pub fn settle_stopped(environment: &Environment, clock: &Clock) -> Result<()> {
    let mut is_settled = true;
    for table in cluster_tables(&*environment.storage)? {
        is_settled &= is_flushed(environment, table)?;
    }
    if is_settled {
        return Ok(());
    }
    let process = Process::with_all_servers(environment, clock)?;
    let deadline = Instant::now() + SETTLING;
    loop {
        process.settle();
        if process.is_at_rest()? {
            break;
        }
        if Instant::now() > deadline {
            return Err(process.take_failure().unwrap_or(Error::Stopped(PartitionId::ZERO)));
        }
        thread::sleep(PAUSE);
    }
    process.flush()
}
