//! Quotas of a mounted namespace, by an extended attribute that no record has. Reading it returns
//! the limits of the calling user, of that user's groups, and of the tree of the file. Root and the
//! owner of the namespace may read all accounts, and set limits.

use canopy_model::Credentials;
use canopy_namespace::operation::Capacity;
use canopy_namespace::quota::{Account, Limits, Quota};
use canopy_namespace::{Error, Execute, FileId};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The name of the attribute. Its value is a line of JSON for each account ([`QuotaReport`]). With a kind
/// and a number behind, as `user.canopy.quota.group.100`, it has all accounts of a kind from that
/// number on, as many as there is room for. It is set to a [`Wanted`] as JSON; limits of trees on
/// the directory itself.
pub const QUOTA: &str = "user.canopy.quota";

/// Values are no longer, in bytes.
const ANSWER_BYTES_MAX: usize = 60_000;

/// Usage and limits of an account, as a mount reports them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct QuotaReport {
    /// All numbers.
    #[serde(flatten)]
    pub quota: Quota,
    /// Place of a tree, below the root; none if it is gone, or hidden from the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Whether the directory of a tree is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_gone: bool,
}

/// Limits that are to be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wanted {
    /// Whose; none for the tree below the directory that is asked.
    pub account: Option<Account>,
    /// No limits for none.
    pub limits: Limits,
    /// Whether the directory is to be no tree any more.
    pub removes: bool,
}

impl QuotaReport {
    /// Returns what is known of an account, for those who may know everything.
    pub fn new(namespace: &dyn Execute, quota: Quota) -> Result<Self, Error> {
        let is_tree = matches!(quota.account, Account::Tree(_));
        let path = if is_tree { namespace.path(quota.limits.directory)? } else { None };
        let is_gone = is_tree && path.is_none();
        let path = path.map(|path| format!("/{}", String::from_utf8_lossy(&path)));
        Ok(QuotaReport { quota, path, is_gone })
    }
}

impl Wanted {
    /// Sets the limits; those of trees of a directory.
    pub fn set(&self, namespace: &dyn Execute, directory: FileId) -> Result<(), Error> {
        match (self.account, self.removes) {
            (Some(Account::Tree(project)), true) => {
                namespace.remove_tree_of_number(project).map(drop)
            }
            (Some(account), _) => namespace.set_limits(account, self.limits),
            (None, false) => namespace.set_tree_limits(directory, self.limits).map(drop),
            (None, true) => namespace.remove_tree(directory).map(drop),
        }
    }
}

/// Returns whether an attribute is ours.
pub(crate) fn is_quota(name: &[u8]) -> bool {
    let rest = name.strip_prefix(QUOTA.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

/// Gives what statvfs(3) says the limits of a tree, where there is more room than they allow.
pub(crate) fn limit_space(space: &mut Capacity, tree: &Quota) {
    let limit = |soft: u64, hard: u64| if soft != 0 { soft } else { hard };
    let Quota { usage, limits, .. } = tree;
    let bytes = limit(limits.bytes_soft, limits.bytes_hard);
    if bytes != 0 {
        let unit = space.unit_bytes.max(1);
        let (all, free) = (bytes / unit, bytes.saturating_sub(usage.bytes) / unit);
        space.units = space.units.min(all);
        space.units_free = space.units_free.min(free);
        space.units_available = space.units_available.min(free);
    }
    let inodes = limit(limits.inodes_soft, limits.inodes_hard);
    if inodes != 0 {
        space.files = inodes;
        space.files_free = space.files_free.min(inodes.saturating_sub(usage.inodes));
    }
}

fn may_all(who: &Credentials) -> bool {
    who.is_root() || who.uid == rustix::process::geteuid().as_raw()
}

/// Returns the value of such an attribute. May take long.
pub(crate) fn get(
    namespace: &dyn Execute,
    id: FileId,
    name: &[u8],
    who: &Credentials,
) -> Result<Vec<u8>, Error> {
    let mut lines = Vec::new();
    if name == QUOTA.as_bytes() {
        for quota in own(namespace, id, who)? {
            add_line(&mut lines, &QuotaReport { quota, path: None, is_gone: false })?;
        }
        return Ok(lines);
    }
    let from = from_of(name).ok_or(Errno::NODATA)?;
    if !may_all(who) {
        return Err(Errno::PERM.into());
    }
    let is_wanted = |account: Account| {
        let same_kind = std::mem::discriminant(&account) == std::mem::discriminant(&from);
        same_kind && account >= from
    };
    for quota in namespace.quotas()?.into_iter().filter(|quota| is_wanted(quota.account)) {
        if lines.len() > ANSWER_BYTES_MAX {
            break;
        }
        add_line(&mut lines, &QuotaReport::new(namespace, quota)?)?;
    }
    Ok(lines)
}

/// Returns what a user may know: what is counted for that user, the groups, and where the user is.
fn own(namespace: &dyn Execute, id: FileId, who: &Credentials) -> Result<Vec<Quota>, Error> {
    let groups = who.gids.iter().map(|gid| Account::Group(*gid));
    let accounts = [Account::User(who.uid)].into_iter().chain(groups);
    let mut found = Vec::new();
    for account in accounts {
        found.extend(namespace.quota(account)?);
    }
    found.retain(|quota| quota.usage.inodes > 0 || !quota.limits.are_none());
    found.extend(namespace.quota_of_tree(id)?);
    Ok(found)
}

fn add_line(lines: &mut Vec<u8>, told: &QuotaReport) -> Result<(), Error> {
    let line = serde_json::to_string(told).map_err(|error| Error::Corrupt(error.to_string()))?;
    lines.extend_from_slice(line.as_bytes());
    lines.push(b'\n');
    Ok(())
}

/// Reads from which account on is asked.
fn from_of(name: &[u8]) -> Option<Account> {
    let name = std::str::from_utf8(name).ok()?;
    let (kind, id) = name.strip_prefix(QUOTA)?.strip_prefix('.')?.split_once('.')?;
    let id = id.parse().ok()?;
    match kind {
        "user" => Some(Account::User(id)),
        "group" => Some(Account::Group(id)),
        "tree" => Some(Account::Tree(id)),
        _ => None,
    }
}

/// Returns whether somebody may set such an attribute.
pub(crate) fn may_set(name: &[u8], who: &Credentials) -> bool {
    may_all(who) && name == QUOTA.as_bytes()
}

/// Sets such an attribute, for who may. May take long.
pub(crate) fn set(namespace: &dyn Execute, id: FileId, value: &[u8]) -> Result<(), Error> {
    let wanted: Wanted = serde_json::from_slice(value).map_err(|_| Errno::INVAL)?;
    wanted.set(namespace, id)
}
