//! Extended attributes that every mount has.

use fuser::INodeNo;

/// The attribute of a directory with the reason why the last query below it failed, for the user who
/// asked.
pub const ERROR: &str = "user.canopy.error";

/// The attribute of a query with its plan.
pub const PLAN: &str = "user.canopy.plan";

/// The number of the process that answers for the mount, so that others can wait for its end. For
/// root and for the user who mounted it. The kernel checks no permissions for attributes of the
/// `system` kind, so it does not ask for those of the directory first: servers may not answer.
pub const PROCESS: &str = "system.canopy.process";

/// Returns the value of [`PROCESS`] to root and to the user who mounted it.
pub fn process(id: INodeNo, name: &[u8], uid: u32) -> Option<Vec<u8>> {
    let is_asked = id == INodeNo::ROOT && name == PROCESS.as_bytes() && is_owner(uid);
    is_asked.then(|| std::process::id().to_string().into_bytes())
}

/// Returns whether a user is root or has mounted this.
pub fn is_owner(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}
