//! Limits of the site for queries of some users: `[[limits]]` of its configuration.
//!
//! They keep users from slowing each other down by mistake. A user who runs another program evades
//! them: use control groups where they must hold.

use crate::Site;
use crate::limits::{MemoryLimit, TimeLimit};
use nix::unistd::{Gid, Group, Uid, User};
use std::time::Duration;

/// Limits for some users, by name or id; for all but root if no user and no group is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueryLimits {
    /// Users.
    pub users: Option<Vec<String>>,
    /// Groups, of which one is enough.
    pub groups: Option<Vec<String>>,
    /// Threads of each command.
    pub threads: Option<usize>,
    /// Time of each statement of SQL.
    pub sql_timeout: Option<TimeLimit>,
    /// Memory of each.
    pub sql_memory: Option<MemoryLimit>,
}

/// The most that a user's queries may take; `None` for any amount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Threads of each command.
    pub threads: Option<usize>,
    /// Time of each statement of SQL.
    pub time: Option<Duration>,
    /// Bytes of memory of each.
    pub memory_bytes: Option<usize>,
}

impl Site {
    /// Returns the limits for queries of the asking user.
    pub fn allowed(&self) -> Allowed {
        let limits = &self.settings.limits;
        *self.allowed.get_or_init(|| match limits.is_empty() {
            true => Allowed::default(),
            false => allowed_to(limits, &Asker::of_process()),
        })
    }
}

/// The asking user.
struct Asker {
    uid: Uid,
    gids: Vec<Gid>,
}

impl Asker {
    fn of_process() -> Self {
        let mut gids = nix::unistd::getgroups().unwrap_or_default();
        gids.push(nix::unistd::getegid());
        Asker { uid: nix::unistd::geteuid(), gids }
    }

    fn is_named(&self, limits: &QueryLimits) -> bool {
        if limits.users.is_none() && limits.groups.is_none() {
            return !self.uid.is_root();
        }
        let is_user = |name: &String| match name.parse() {
            Ok(uid) => self.uid == Uid::from_raw(uid),
            Err(_) => {
                User::from_name(name).is_ok_and(|user| user.is_some_and(|u| u.uid == self.uid))
            }
        };
        let is_group = |name: &String| match name.parse() {
            Ok(gid) => self.gids.contains(&Gid::from_raw(gid)),
            Err(_) => Group::from_name(name)
                .is_ok_and(|group| group.is_some_and(|group| self.gids.contains(&group.gid))),
        };
        limits.users.iter().flatten().any(is_user) || limits.groups.iter().flatten().any(is_group)
    }
}

/// Returns the limits for a user: each from the first table that names the user and has that limit.
fn allowed_to(limits: &[QueryLimits], asker: &Asker) -> Allowed {
    let of_asker = Vec::from_iter(limits.iter().filter(|limits| asker.is_named(limits)));
    Allowed {
        threads: of_asker.iter().find_map(|limits| limits.threads),
        time: of_asker.iter().find_map(|limits| limits.sql_timeout).and_then(|limit| limit.0),
        memory_bytes: of_asker
            .iter()
            .find_map(|limits| limits.sql_memory)
            .and_then(|limit| limit.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_says_anything_counts() {
        let names = |names: &[&str]| Some(names.iter().map(|&name| name.to_owned()).collect());
        let time = |seconds| TimeLimit(Some(Duration::from_secs(seconds)));
        let limits = [
            QueryLimits {
                users: names(&["no-such-user", "1001"]),
                sql_timeout: Some(TimeLimit(None)),
                ..QueryLimits::default()
            },
            QueryLimits {
                users: names(&["root"]),
                groups: names(&["no-such-group", "50"]),
                threads: Some(4),
                sql_timeout: Some(time(60)),
                ..QueryLimits::default()
            },
            QueryLimits {
                threads: Some(1),
                sql_timeout: Some(time(10)),
                sql_memory: Some(MemoryLimit(Some(1 << 30))),
                ..QueryLimits::default()
            },
            QueryLimits { users: Some(Vec::new()), threads: Some(9), ..QueryLimits::default() },
        ];
        let of = |uid, gids: &[u32]| {
            let gids = gids.iter().map(|&gid| Gid::from_raw(gid)).collect();
            let allowed = allowed_to(&limits, &Asker { uid: Uid::from_raw(uid), gids });
            (allowed.threads, allowed.time.map(|time| time.as_secs()), allowed.memory_bytes)
        };
        let memory = Some(1 << 30);
        assert_eq!(of(0, &[0]), (Some(4), Some(60), None));
        assert_eq!(of(1000, &[1000]), (Some(1), Some(10), memory));
        assert_eq!(of(1000, &[1000, 50]), (Some(4), Some(60), memory));
        assert_eq!(of(1001, &[1001]), (Some(1), None, memory));
        assert_eq!(of(1001, &[50]), (Some(4), None, memory));
    }
}
