//! Trust in file systems. On trusted ones, mode and access ACL let the kernel of this machine
//! decide who sees an entry. Others have rules of their own, which an index cannot express. Their
//! entries are for root alone, unless the administrator states that modes and ACLs hold there too.

use crate::ids::Unmapped;
use crate::mounts::{Mount, mounts};
use canopy_model::{Acl, Device};
use rustix::fd::AsFd;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

/// Authority over access to the files of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rules {
    /// The kernel, by mode and access ACL.
    Kernel,
    /// Like `Kernel`, but through a map of users and groups: the access of users not in the map
    /// cannot be determined.
    Mapped,
    /// The kernel, by the mode. Whether it checks ACLs is not known: files with an ACL are for root
    /// alone.
    Mode,
    /// Another authority, such as a server: all files are for root alone.
    Other,
    /// Like `Other`; and the file system holds no files, but data of the kernel or a service in the
    /// form of files.
    Pseudo,
}

impl Rules {
    /// Returns whether mode, owner, group and ACL decide who has access.
    pub(crate) fn decide_access(self, uid: u32, gid: u32, acl: Option<&Acl>) -> bool {
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

/// Types of file systems of other machines, which may be huge, slow or gone, and which somebody
/// else may index. Those of [`KERNEL`] are not among them: they are what big sites keep their files
/// on.
const NETWORK: [&str; 20] = [
    "9p",
    "afs",
    "cifs",
    "coda",
    "davfs",
    "fuse.curlftpfs",
    "fuse.davfs2",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.mount-s3",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.sshfs",
    "ncpfs",
    "nfs",
    "nfs4",
    "orangefs",
    "smb3",
    "smbfs",
];

/// Types of file systems that take change times from the clock of this machine, in full.
const OWN_CLOCK: [&str; 8] =
    ["btrfs", "devtmpfs", "ext2", "ext3", "ext4", "overlay", "tmpfs", "xfs"];

/// Types whose change times are those of other machines.
const CLOCKS_OF_OTHERS: [&str; 5] = ["beegfs", "ceph", "gfs2", "lustre", "ocfs2"];

/// How far a clock of this machine that ticks may be behind.
pub(crate) const TICK_NS: i64 = 20_000_000;

/// How far clocks of other machines may be behind: they are set by one that all go by.
const OTHERS_LAG_NS: i64 = 2_000_000_000;

/// Numbers of types in [`KERNEL`], as statfs(2) returns them, for mounts that are not in mountinfo:
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
    /// Whether file systems without files, and those of other machines, are entered.
    enters_all: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    mounts: Vec<Mount>,
    /// By number and device.
    known: HashMap<(Option<u64>, Device), Rules>,
    closed: Vec<ClosedMount>,
    /// Places of mounts that were not entered.
    without_files: BTreeSet<Vec<u8>>,
}

/// A mount of whose contents the index shows less than the kernel might.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedMount {
    /// Where it is mounted, as bytes of an absolute path; empty if that is not known.
    pub point: Vec<u8>,
    /// Type of the file system; empty if it is not known.
    pub file_system: String,
    /// The rules of the mount.
    pub rules: Rules,
    /// Whether it was entered. If not, it is a user's, or of another machine.
    pub entered: bool,
}

impl ClosedMount {
    /// Returns whether it is of another machine.
    pub fn is_network(&self) -> bool {
        NETWORK.contains(&self.file_system.as_str())
    }
}

impl MountRules {
    /// Returns rules by which file systems of the types `trusted` count as [`Rules::Kernel`].
    /// `enters_all` says whether those without files and those of other machines are entered below a
    /// root.
    pub fn new(trusted: Vec<String>, enters_all: bool) -> Self {
        MountRules { trusted, enters_all, state: Mutex::default() }
    }

    /// Returns the mounts met so far that are not left to the kernel, and were entered or are of
    /// users.
    pub fn closed(&self) -> Vec<ClosedMount> {
        self.state().closed.clone()
    }

    /// Returns the rules of the mount with this number (`None` if the kernel has no numbers) and
    /// this device, which holds an open directory.
    pub(crate) fn of(&self, directory: impl AsFd, id: Option<u64>, dev: Device) -> Rules {
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

    /// Returns the rules of the mount with this number and device, as far as they are known; notes
    /// nothing.
    pub(crate) fn of_mount(&self, id: Option<u64>, dev: Device) -> Rules {
        let mut state = self.state();
        state.find(id, dev).map_or(Rules::Other, |mount| rules_of(mount, &self.trusted))
    }

    /// Returns how far the clock may be behind from which the mount with this number and device has
    /// change times.
    pub(crate) fn lag_ns(&self, id: Option<u64>, dev: Device) -> i64 {
        let mut state = self.state();
        state.find(id, dev).map_or(TICK_NS, |mount| lag_ns_of(&mount.file_system))
    }

    /// Returns whether the mount that an entry belongs to is left out, since it holds no files.
    pub(crate) fn leaves_out(&self, id: Option<u64>, dev: Device) -> bool {
        if self.enters_all {
            return false;
        }
        let mut state = self.state();
        let mount = state.find(id, dev);
        let point = mount
            .filter(|mount| rules_of(mount, &self.trusted) == Rules::Pseudo)
            .map(|mount| mount.point.clone());
        let is_left_out = point.is_some();
        state.without_files.extend(point);
        is_left_out
    }

    /// Returns where file systems without files are mounted that were not entered.
    pub fn without_files(&self) -> Vec<Vec<u8>> {
        self.state().without_files.iter().cloned().collect()
    }

    /// Returns where file systems are mounted that a scan does not touch, as absolute paths: what
    /// users have mounted (FUSE), unless `users` are trusted, since some let not even root in and
    /// what serves them may never answer; and what is of other machines, unless the root, which is
    /// of the mount with this number and device, is such itself.
    pub(crate) fn untouched(&self, users: bool, root: (Option<u64>, Device)) -> Vec<Vec<u8>> {
        let mounts = mounts().unwrap_or_default();
        let is_root = |mount: &&Mount| match root.0 {
            Some(id) => mount.id == id,
            None => mount.dev == root.1,
        };
        let root = mounts.iter().rfind(is_root);
        let is_untouched = |mount: &&Mount| {
            (!users && self.is_users(mount)) || self.is_left_to_others(mount, root)
        };
        mounts.iter().filter(is_untouched).map(|mount| mount.point.clone()).collect()
    }

    /// Returns whether a mount is of another machine and left out of a source on the mount `root`.
    fn is_left_to_others(&self, mount: &Mount, root: Option<&Mount>) -> bool {
        let is_network = |mount: &Mount| {
            NETWORK.contains(&mount.file_system.as_str())
                && !matches!(rules_of(mount, &self.trusted), Rules::Kernel | Rules::Mapped)
        };
        !self.enters_all && is_network(mount) && !root.is_some_and(is_network)
    }

    /// Returns why a scan of a source on the mount `root` does not enter what is mounted below it,
    /// or has it for root alone; `None` if it has it like all else.
    pub fn reason(&self, mount: &Mount, root: Option<&Mount>) -> Option<&'static str> {
        match rules_of(mount, &self.trusted) {
            Rules::Pseudo if !self.enters_all => Some("no files, not entered"),
            _ if self.is_users(mount) => Some("a user's, not entered"),
            _ if self.is_left_to_others(mount, root) => Some("another machine's, not entered"),
            Rules::Other | Rules::Pseudo => Some("for root alone"),
            Rules::Mode => Some("what has an ACL is for root alone"),
            Rules::Kernel | Rules::Mapped => None,
        }
    }

    fn is_users(&self, mount: &Mount) -> bool {
        mount.file_system.starts_with("fuse")
            && mount.option("user_id").is_some_and(|uid| uid != "0")
            && !matches!(rules_of(mount, &self.trusted), Rules::Kernel | Rules::Mapped)
    }

    /// Returns whether a scan of a source on the mount `root` enters what is mounted below it:
    /// neither what holds no files, nor what users have mounted, nor what is of other machines.
    pub fn enters(&self, mount: &Mount, root: Option<&Mount>) -> bool {
        let is_pseudo = rules_of(mount, &self.trusted) == Rules::Pseudo;
        (self.enters_all || !is_pseudo)
            && !self.is_users(mount)
            && !self.is_left_to_others(mount, root)
    }

    /// Notes that nothing was read of what is mounted at a path.
    pub(crate) fn note_left_out(&self, point: Vec<u8>) {
        let mounts = mounts().unwrap_or_default();
        let mount = mounts.into_iter().rfind(|mount| mount.point == point);
        let file_system = mount.map_or_else(|| "fuse".to_owned(), |mount| mount.file_system);
        let rules = Rules::Other;
        self.state().closed.push(ClosedMount { point, file_system, rules, entered: false });
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the mount with this number or, where there are none, device. Reads what is mounted
    /// if it is not known yet.
    fn find(&mut self, id: Option<u64>, dev: Device) -> Option<&Mount> {
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

/// Lag of file systems that make an inode, with a change time of now, whenever one is looked at: so
/// early that nothing counts as changed.
const NO_CHANGE_TIMES: i64 = i64::MIN / 2;

fn lag_ns_of(file_system: &str) -> i64 {
    let is_network = NETWORK.contains(&file_system) || CLOCKS_OF_OTHERS.contains(&file_system);
    match file_system {
        "proc" | "sysfs" => NO_CHANGE_TIMES,
        _ if OWN_CLOCK.contains(&file_system) => 0,
        _ if is_network || file_system.starts_with("fuse") => OTHERS_LAG_NS,
        _ => TICK_NS,
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
        assert!(Rules::Mapped.decide_access(1000, 1000, None));
        assert!(
            !Rules::Mapped.decide_access(65534, 1000, None)
                && !Rules::Mapped.decide_access(0, 65534, None)
        );
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

    #[test]
    fn clocks_of_others_may_be_behind() {
        for (name, expected) in [
            ("xfs", 0),
            ("tmpfs", 0),
            ("lustre", OTHERS_LAG_NS),
            ("nfs4", OTHERS_LAG_NS),
            ("fuse.x", OTHERS_LAG_NS),
            ("not-known", TICK_NS),
        ] {
            assert_eq!(lag_ns_of(name), expected, "{name}");
        }
    }

    #[test]
    fn file_systems_of_other_machines_are_entered_from_such_a_root_alone() {
        let mounts = parse_mounts(
            b"1 0 8:1 / / rw - ext4 /dev/a rw\n\
              2 1 0:5 / /net rw - nfs h:/x rw\n\
              3 2 0:6 / /net/sub rw - nfs h:/x/sub rw\n\
              4 1 0:7 / /trusted rw - nfs4 h:/y rw\n\
              5 1 0:8 / /lustre rw - lustre m:/z rw\n\
              6 1 0:9 / /proc rw - proc proc rw\n",
        );
        let [root, net, sub, trusted, lustre, proc] = &mounts[..] else { panic!("{mounts:?}") };
        let rules = MountRules::new(vec!["nfs4".to_owned()], false);
        let entered =
            |root| [net, sub, trusted, lustre, proc].map(|mount| rules.enters(mount, Some(root)));
        assert_eq!(entered(root), [false, false, true, true, false]);
        assert_eq!(entered(net), [true, true, true, true, false]);
        assert_eq!(rules.reason(net, Some(root)), Some("another machine's, not entered"));
        assert_eq!(rules.reason(sub, Some(net)), Some("for root alone"));
        assert_eq!(rules.reason(lustre, Some(root)), None);
        let all = MountRules::new(Vec::new(), true);
        assert!(mounts.iter().all(|mount| all.enters(mount, Some(root))));
    }
}
