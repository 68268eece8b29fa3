//! Spreads logical servers evenly over processes, by as few moves as possible.

use super::map::ProcessId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Returns an owner for each server, given the owners so far and the processes that serve. Numbers of
/// servers of any two processes differ by at most 1. A server moves only if its owner does not serve
/// or has more than its share. There are no owners if no process serves.
pub(crate) fn assign(
    owners: &[Option<ProcessId>],
    serving: &BTreeSet<ProcessId>,
) -> Vec<Option<ProcessId>> {
    let mut room = shares(owners, serving);
    let mut assigned = Vec::from_iter(owners.iter().map(|owner| {
        let process = (*owner)?;
        let left = room.get_mut(&process).filter(|left| **left > 0)?;
        *left -= 1;
        Some(process)
    }));
    let places = room.into_iter().flat_map(|(process, left)| std::iter::repeat_n(process, left));
    for (server, process) in assigned.iter_mut().filter(|one| one.is_none()).zip(places) {
        *server = Some(process);
    }
    assigned
}

/// Returns the number of servers for each process. Those with the most servers so far get the larger
/// shares, so that fewer move.
fn shares(
    owners: &[Option<ProcessId>],
    serving: &BTreeSet<ProcessId>,
) -> BTreeMap<ProcessId, usize> {
    let mut counts = BTreeMap::from_iter(serving.iter().map(|process| (*process, 0usize)));
    for owner in owners.iter().flatten() {
        counts.entry(*owner).and_modify(|count| *count += 1);
    }
    let mut by_count = Vec::from_iter(counts);
    by_count.sort_by_key(|(process, count)| (Reverse(*count), *process));
    let (each, more) = match by_count.len() {
        0 => (0, 0),
        processes => (owners.len() / processes, owners.len() % processes),
    };
    let shares = by_count.into_iter().enumerate();
    shares.map(|(at, (process, _))| (process, each + usize::from(at < more))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processes(numbers: impl IntoIterator<Item = u64>) -> BTreeSet<ProcessId> {
        numbers.into_iter().map(ProcessId).collect()
    }

    fn moves(before: &[Option<ProcessId>], after: &[Option<ProcessId>]) -> usize {
        before.iter().zip(after).filter(|(one, other)| one.is_some() && one != other).count()
    }

    fn check(owners: &[Option<ProcessId>], serving: &BTreeSet<ProcessId>) {
        let assigned = assign(owners, serving);
        assert_eq!(assigned.len(), owners.len());
        let count =
            |process: &ProcessId| assigned.iter().filter(|one| **one == Some(*process)).count();
        let counts = Vec::from_iter(serving.iter().map(count));
        let most = counts.iter().max().copied().unwrap_or(0);
        let least = counts.iter().min().copied().unwrap_or(0);
        assert!(most - least <= 1, "{owners:?} {serving:?}: {counts:?}");
        let assigned_servers = if serving.is_empty() { 0 } else { owners.len() };
        assert_eq!(counts.iter().sum::<usize>(), assigned_servers);
        assert_eq!(assign(&assigned, serving), assigned, "it is stable");
    }

    #[test]
    fn servers_are_spread_evenly_from_any_owners() {
        // Every way to give up to 6 servers to 3 processes, one that does not serve, or nobody.
        for servers in 0..=6u32 {
            for code in 0..5u64.pow(servers) {
                let owner = |at| code / 5u64.pow(at) % 5;
                let owners = Vec::from_iter(
                    (0..servers).map(|at| Some(owner(at)).filter(|one| *one < 4).map(ProcessId)),
                );
                for serving in 0..=3 {
                    check(&owners, &processes(0..serving));
                }
            }
        }
    }

    #[test]
    fn few_servers_move_when_a_process_comes_or_goes() {
        for servers in 0..=40 {
            let mut owners = vec![None; servers];
            for before in 0..=9u64 {
                let joined = assign(&owners, &processes(0..=before));
                let most = servers.div_ceil(before as usize + 1);
                assert!(moves(&owners, &joined) <= most, "{servers} servers, {before} processes");
                owners = joined;
            }
            for ended in 0..=8u64 {
                let held = owners.iter().filter(|one| **one == Some(ProcessId(ended))).count();
                let left = assign(&owners, &processes(ended + 1..=9));
                assert_eq!(moves(&owners, &left), held, "only those of the process that ended");
                owners = left;
            }
        }
    }
}
