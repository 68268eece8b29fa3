//! Becoming another user for good.

use nix::errno::Errno;
use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, getgroups, getresgid, getresuid, setgroups, setresgid, setresuid};
use std::io::{self, ErrorKind};

/// The real and saved user of such processes: nobody's, so that only root may stop, end or trace
/// one.
const HOLDER: u32 = u32::MAX - 15;

/// Lowers a limit of this process, soft and hard, to `most`.
pub(crate) fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let (_, hard) = nix::sys::resource::getrlimit(resource)?;
    let most = most.min(hard);
    Ok(setrlimit(resource, most, most)?)
}

/// Closes every descriptor but the first three, which somebody may have left open.
pub(crate) fn close_all_but_standard() -> io::Result<()> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // The directory that was read has been closed already.
        let _ = nix::unistd::close(descriptor);
    }
    Ok(())
}

/// Gives up all rights but those of a user with these groups, of which the first one is the main
/// one, for good, and lets no process of that user look into this one or send it signals. To be
/// called in a process with one thread. Fails unless all of it is so then.
pub(crate) fn become_user(uid: u32, gids: &[u32]) -> io::Result<()> {
    let refused = |what: &str| io::Error::new(ErrorKind::PermissionDenied, what.to_owned());
    let groups: Vec<Gid> = gids.iter().map(|gid| Gid::from_raw(*gid)).collect();
    let uid = Uid::from_raw(uid);
    let gid = *groups.first().ok_or_else(|| refused("a user without a group"))?;
    set_no_new_privs()?;
    setgroups(&groups)?;
    setresgid(gid, gid, gid)?;
    let holder = if uid.is_root() { uid } else { Uid::from_raw(HOLDER) };
    let holder = match setresuid(holder, uid, holder) {
        // Where namespaces of users do not have it.
        Err(Errno::EINVAL) => setresuid(uid, uid, uid).map(|()| uid),
        done => done.map(|()| holder),
    }?;
    set_dumpable(false)?;
    let (users, group_ids) = (getresuid()?, getresgid()?);
    let mut own = getgroups()?;
    let mut wanted = groups.clone();
    own.sort_unstable_by_key(|gid| gid.as_raw());
    wanted.sort_unstable_by_key(|gid| gid.as_raw());
    let is_user = [users.real, users.effective, users.saved] == [holder, uid, holder];
    let is_group = [group_ids.real, group_ids.effective, group_ids.saved] == [gid; 3];
    if !is_user || !is_group || own != wanted {
        return Err(refused("cannot become the user"));
    }
    if !uid.is_root() && has_capabilities()? {
        return Err(refused("cannot give up capabilities"));
    }
    Ok(())
}

/// Returns whether this process can do more than its user.
fn has_capabilities() -> io::Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let sets = status
        .lines()
        .filter_map(|line| line.strip_prefix("CapPrm:").or_else(|| line.strip_prefix("CapEff:")));
    let sets: Vec<&str> = sets.map(str::trim).collect();
    Ok(sets.len() != 2 || sets.iter().any(|set| set.bytes().any(|digit| digit != b'0')))
}
