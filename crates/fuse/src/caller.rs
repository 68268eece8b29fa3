//! The user behind a request of the kernel.

use canopy_model::Credentials;
use rustix::io::Errno;

/// Returns the user and group that the kernel names, with all groups of the thread that waits for
/// the answer.
///
/// # Errors
///
/// Fails with `EACCES` if these cannot be found out: if the thread is in another namespace of
/// processes, or asks by rights that are not its own (as overlayfs does for the user who mounted
/// it). With too few groups, a user might see entries that are for all but a group.
pub fn credentials(uid: u32, gid: u32, pid: u32) -> Result<Credentials, Errno> {
    if uid == 0 {
        return Ok(Credentials::new(0, [gid]));
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|_| Errno::ACCESS)?;
    parse(&status, uid, gid).ok_or(Errno::ACCESS)
}

fn parse(status: &str, uid: u32, gid: u32) -> Option<Credentials> {
    // access(2) asks by real ids, all else by those of the file system.
    let has = |key, id| numbers(status, key).map(|ids| ids.contains(&id));
    if !has("Uid:", uid)? || !has("Gid:", gid)? {
        return None;
    }
    Some(Credentials::new(uid, numbers(status, "Groups:")?.into_iter().chain([gid])))
}

fn numbers(status: &str, key: &str) -> Option<Vec<u32>> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tfind\nUid:\t7\t8\t8\t8\nGid:\t70\t80\t80\t80\nGroups:\t5 6 \n";

    #[test]
    fn the_caller_is_the_waiting_thread() {
        let who = |uid, gid| parse(STATUS, uid, gid);
        assert_eq!(who(8, 80), Some(Credentials::new(8, [5, 6, 80])));
        assert_eq!(who(7, 70), Some(Credentials::new(7, [5, 6, 70])));
        // Another's rights do not go with these groups.
        assert_eq!(who(9, 80), None);
        assert_eq!(who(8, 90), None);
        assert_eq!(parse(&STATUS.replace("Groups", "Other"), 8, 80), None);
        assert_eq!(parse(&STATUS.replace("5 6", "5 x"), 8, 80), None);
    }

    #[test]
    fn nobody_is_known_without_a_process() {
        assert_eq!(credentials(8, 80, 0), Err(Errno::ACCESS));
        assert!(credentials(0, 0, 0).is_ok_and(|who| who.is_root()));
    }
}
