//! Which file systems leave it to the kernel of this machine, by mode and access ACL, who sees
//! what. The others have rules of their own, which an index cannot express: what they hold is for
//! root alone, unless the administrator says that modes and ACLs tell the truth there too.

use crate::ids::Unmapped;
use crate::mounts::{Mount, mounts};
use canopy_model::Acl;
use rustix::fd::AsFd;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Who decides about access to the files of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The kernel, by mode and access ACL.
    Kernel,
    /// The same, but through a map of users and groups: who is not in the map cannot be told.
    Mapped,
    /// The kernel, by the mode. Whether it looks at ACLs is not known: what has one is for root
    /// alone.
    Mode,
    /// Somebody else, such as a server: all of it is for root alone.
    Other,
    /// The same; and it holds no files, but what the kernel or a service tells in the form of some.
    Pseudo,
}

impl Rules {
    /// Returns whether permissions of this owner and group with this ACL tell who has them.
    pub(crate) fn tell(self, uid: u32, gid: u32, acl: Option<&Acl>) -> bool {
        let hidden = |unmapped: Unmapped| unmapped.hides(uid, gid, acl);
        match self {
            Rules::Kernel => !hidden(Unmapped::here()),
            Rules::Mapped => !hidden(Unmapped::here()) && !hidden(Unmapped::by_a_map()),
            Rules::Mode => acl.is_none() && !hidden(Unmapped::here()),
            Rules::Other | Rules::Pseudo => false,
        }
    }
}

/// Types of file systems whose permissions the kernel checks by itself, as the mode and the access
/// ACL say that it shows.
const KERNEL: [&str; 35] = [
    "bcachefs", "beegfs", "btrfs", "ceph", "devtmpfs", "ecryptfs", "erofs", "exfat", "ext2",
    "ext3", "ext4", "f2fs", "gfs2", "hfs", "hfsplus", "iso9660", "jffs2", "jfs", "lustre", "minix",
    "msdos", "nilfs2", "ntfs3", "ocfs2", "overlay", "ramfs", "reiserfs", "rootfs", "squashfs",
    "tmpfs", "ubifs", "udf", "vfat", "xfs", "zfs",
];

/// Types of file systems without files.
const PSEUDO: [&str; 35] = [
    "autofs",
    "binder",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "cpuset",
    "debugfs",
    "devpts",
    "efivarfs",
    "functionfs",
    // An index as a file system: what it shows is indexed where it is.
    "fuse.canopy-index",
    "fuse.gvfsd-fuse",
    "fuse.lxcfs",
    "fuse.portal",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nfsd",
    "nsfs",
    "ocfs2_dlmfs",
    "openpromfs",
    "oprofilefs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "spufs",
    "sysfs",
    "tracefs",
    "xenfs",
];

/// Numbers of types in [`KERNEL`], as statfs(2) tells them, where mountinfo does not tell a mount:
/// below a changed root, for example.
const KERNEL_MAGIC: [u32; 13] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x8584_58F6,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0x00C3_6400,
    0x0BD0_0BD0,
    0x7371_7368,
    0x4D44,
    0x2011_BAB0,
];

/// The rules of all mounts that a scan meets. Can be shared between threads.
#[derive(Debug, Default)]
pub struct MountRules {
    /// Types whose modes and ACLs the administrator trusts.
    trusted: Vec<String>,
    /// Whether file systems without files are entered.
    pseudo: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mounts: Vec<Mount>,
    /// By number and device.
    known: HashMap<(Option<u64>, u64), Rules>,
    closed: Vec<ClosedMount>,
}

/// A mount of whose contents the index shows less than the kernel might.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedMount {
    /// Where it is mounted, as bytes of an absolute path; empty if that is not known.
    pub point: Vec<u8>,
    /// Type of the file system; empty if it is not known.
    pub file_system: String,
    /// What its rules are.
    pub rules: Rules,
    /// Whether it was entered. If not, it is a user's.
    pub entered: bool,
}

impl MountRules {
    /// Returns rules by which file systems of the types `trusted` count as [`Rules::Kernel`].
    /// `pseudo` says whether those without files are entered below a root.
    pub fn new(trusted: Vec<String>, pseudo: bool) -> Self {
        MountRules { trusted, pseudo, state: Mutex::default() }
    }

    /// Returns the mounts met so far that are not left to the kernel, and were entered or are of
    /// users.
    pub fn closed(&self) -> Vec<ClosedMount> {
        self.state().closed.clone()
    }

    /// Returns the rules of the mount with this number (`None` if the kernel does not tell numbers)
    /// and this device, which holds an open directory.
    pub(crate) fn of(&self, directory: impl AsFd, id: Option<u64>, dev: u64) -> Rules {
        let mut state = self.state();
        if let Some(&rules) = state.known.get(&(id, dev)) {
            return rules;
        }
        let (rules, mount) = match state.find(id, dev) {
            Some(mount) => (rules_of(mount, &self.trusted), Some(mount.clone())),
            None => (rules_by_magic(directory), None),
        };
        if !matches!(rules, Rules::Kernel | Rules::Mapped) {
            let (point, file_system) =
                mount.map(|mount| (mount.point, mount.file_system)).unwrap_or_default();
            state.closed.push(ClosedMount { point, file_system, rules, entered: true });
        }
        state.known.insert((id, dev), rules);
        rules
    }

    /// Returns the rules of the mount with this number and device, as far as it is told what that
    /// is; notes nothing.
    pub(crate) fn of_mount(&self, id: Option<u64>, dev: u64) -> Rules {
        let mut state = self.state();
        state.find(id, dev).map_or(Rules::Other, |mount| rules_of(mount, &self.trusted))
    }

    /// Returns whether the mount that an entry belongs to is left out, since it holds no files.
    pub(crate) fn leaves_out(&self, id: Option<u64>, dev: u64) -> bool {
        if self.pseudo {
            return false;
        }
        let mut state = self.state();
        state.find(id, dev).is_some_and(|mount| rules_of(mount, &self.trusted) == Rules::Pseudo)
    }

    /// Returns where users have mounted file systems of their own (FUSE), as absolute paths. They
    /// are not to be touched: some let not even root in, and what serves them may never answer.
    pub(crate) fn of_users(&self) -> Vec<Vec<u8>> {
        let mounts = mounts().unwrap_or_default();
        mounts.into_iter().filter(|mount| self.is_users(mount)).map(|mount| mount.point).collect()
    }

    fn is_users(&self, mount: &Mount) -> bool {
        mount.file_system.starts_with("fuse")
            && mount.option("user_id").is_some_and(|uid| uid != "0")
            && !matches!(rules_of(mount, &self.trusted), Rules::Kernel | Rules::Mapped)
    }

    /// Returns whether a scan enters what is mounted below its root: neither what holds no files nor
    /// what users have mounted.
    pub fn enters(&self, mount: &Mount) -> bool {
        let is_pseudo = rules_of(mount, &self.trusted) == Rules::Pseudo;
        (self.pseudo || !is_pseudo) && !self.is_users(mount)
    }

    /// Notes that nothing was read of what users have mounted at a path.
    pub(crate) fn note_left_out(&self, point: Vec<u8>) {
        let (file_system, rules) = ("fuse".to_owned(), Rules::Other);
        self.state().closed.push(ClosedMount { point, file_system, rules, entered: false });
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the mount with this number or, where there are none, device. Reads what is mounted
    /// if it is not known yet.
    fn find(&mut self, id: Option<u64>, dev: u64) -> Option<&Mount> {
        let is = |mount: &Mount| match id {
            Some(id) => mount.id == id,
            None => mount.dev == dev,
        };
        if !self.mounts.iter().any(is) {
            self.mounts = mounts().unwrap_or_default();
        }
        self.mounts.iter().rfind(|mount| is(mount))
    }
}

fn rules_of(mount: &Mount, trusted: &[String]) -> Rules {
    let name = mount.file_system.as_str();
    let checked = || mount.has_option("default_permissions") && mount.has_option("allow_other");
    match name {
        _ if KERNEL.contains(&name) || trusted.iter().any(|trusted| trusted == name) => {
            if mount.is_mapped { Rules::Mapped } else { Rules::Kernel }
        }
        _ if PSEUDO.contains(&name) => Rules::Pseudo,
        "virtiofs" => Rules::Mode,
        _ if (name.starts_with("fuse.") || name == "fuse" || name == "fuseblk") && checked() => {
            Rules::Mode
        }
        _ => Rules::Other,
    }
}

fn rules_by_magic(directory: impl AsFd) -> Rules {
    let magic = rustix::fs::fstatfs(directory).map(|about| about.f_type as u32);
    match magic {
        Ok(magic) if KERNEL_MAGIC.contains(&magic) => Rules::Kernel,
        _ => Rules::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::parse_mounts;

    fn rules(file_system: &str, options: &str) -> Rules {
        let mapped = if options == "mapped" { ",idmapped" } else { "" };
        let line = format!("22 1 0:20 / /m rw{mapped} shared:1 - {file_system} none {options}\n");
        let mounts = parse_mounts(line.as_bytes());
        rules_of(&mounts[0], &["nfs4".to_owned()])
    }

    #[test]
    fn only_what_is_known_to_be_left_to_the_kernel_is_open() {
        for name in ["ext4", "xfs", "tmpfs", "vfat", "overlay"] {
            assert_eq!(rules(name, "rw"), Rules::Kernel, "{name}");
        }
        for name in ["proc", "sysfs", "cgroup2", "autofs", "fuse.lxcfs", "fuse.canopy-index"] {
            assert_eq!(rules(name, "rw,hidepid=invisible"), Rules::Pseudo, "{name}");
        }
        for name in ["nfs", "cifs", "9p", "gpfs", "not-known"] {
            assert_eq!(rules(name, "rw,allow_other,default_permissions"), Rules::Other, "{name}");
        }
        assert_eq!(rules("nfs4", "rw"), Rules::Kernel, "it is trusted");
        assert_eq!(rules("ext4", "mapped"), Rules::Mapped);
        assert!(Rules::Mapped.tell(1000, 1000, None));
        assert!(!Rules::Mapped.tell(65534, 1000, None) && !Rules::Mapped.tell(0, 65534, None));
        for (name, options, expected) in [
            ("fuse.sshfs", "rw,user_id=5,group_id=5", Rules::Other),
            ("fuse.sshfs", "rw,user_id=0,allow_other", Rules::Other),
            ("fuse.x", "rw,default_permissions", Rules::Other),
            ("fuseblk", "rw,user_id=0,default_permissions,allow_other,blksize=4096", Rules::Mode),
            ("virtiofs", "rw", Rules::Mode),
        ] {
            assert_eq!(rules(name, options), expected, "{name} {options}");
        }
    }
}
