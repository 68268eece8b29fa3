//! Credentials of a process. `root` is user 0 with all capabilities; `u1` to `u4` are users whose
//! groups have the same numbers; `u1+g2+g3` has further groups.

use anyhow::{Context, bail};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

/// The number of `u1` and of its group `g1`. Others count down, so that none is a user who may own
/// something (or be given blocks that file systems keep back).
const FIRST: u32 = 65533;

/// How many users and groups there are besides root.
pub const USERS: u32 = 4;

/// The number of the user `u1`, `u2` and so on, and of its group.
pub const fn id(user: u32) -> u32 {
    FIRST + 1 - user
}

/// A user, its group and its further groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// The user; 0 is root with all capabilities.
    pub uid: u32,
    /// The group of what it makes.
    pub gid: u32,
    /// Its further groups.
    pub groups: Vec<u32>,
}

impl Credentials {
    /// Parses a user's name in a script. Text behind a full stop only distinguishes processes.
    pub fn parse(name: &str) -> anyhow::Result<Self> {
        let name = name.split_once('.').map_or(name, |(name, _)| name);
        let mut parts = name.split('+');
        let uid = match parts.next() {
            Some("root") => 0,
            Some(user) => number(user, 'u')?,
            None => bail!("nobody is named"),
        };
        let groups = parts.map(|group| number(group, 'g')).collect::<Result<_, _>>()?;
        Ok(Self { uid, gid: uid, groups })
    }

    /// Makes the process, which is root's, act as this user.
    pub fn take_on(&self) -> nix::Result<()> {
        setgroups(&Vec::from_iter(self.groups.iter().copied().map(Gid::from_raw)))?;
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)
    }
}

fn number(name: &str, kind: char) -> anyhow::Result<u32> {
    let number = name.strip_prefix(kind).and_then(|number| number.parse().ok());
    let number = number.filter(|number| (1..=USERS).contains(number));
    number.map(id).with_context(|| format!("{name} is neither a user nor a group"))
}
