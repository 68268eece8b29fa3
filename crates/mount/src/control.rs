//! Requests of root to a mounted namespace: extended attributes of its root directory that no
//! record has. Only processes with the right to administer the system can read `trusted`
//! attributes.

use crate::node::Node;
use canopy_fuse::attributes::is_owner;
use canopy_namespace::{Error, Execute, ROOT};
use rustix::io::Errno;

/// The names of indexes, with spaces between them; those that are still being built in parentheses.
/// Setting it changes which there are.
pub const INDEXES: &str = "trusted.canopy.indexes";

/// Faults of the records, a line each; empty if there are none. Reading it checks everything. With
/// `@` and the name of a snapshot behind it, the snapshot is checked; `ESTALE` if there is none.
pub const CHECK: &str = "trusted.canopy.check";

/// Nothing. Reading it writes all that is in memory into the table's files, for who reads those.
pub const FLUSH: &str = "trusted.canopy.flush";

/// Nothing. Reading it sends all that was written to the servers of the namespace, if it has some. For
/// root and for the user who mounted it. The kernel checks no permissions for it, so servers are asked
/// only if something waits for them.
pub const SEND: &str = "system.canopy.send";

/// The snapshots, a JSON object on a line for each, with what it takes on the disk. `create NAME`
/// and `delete NAME` change which there are. For root and for whoever mounted it.
pub const SNAPSHOTS: &str = "user.canopy.snapshots";

/// Like [`CHECK`], and reads the contents of files, if they lie in storage.
pub const CHECK_DATA: &str = "trusted.canopy.check-data";

/// Reading it mends what is wrong with the records. A line for each thing that was done, and one
/// that begins with [`LEFT`] for each fault that is left.
pub const REPAIR: &str = "trusted.canopy.repair";

/// Like [`REPAIR`], and first reads the contents of files, if they lie in storage.
pub const REPAIR_DATA: &str = "trusted.canopy.repair-data";

/// Beginning of lines with faults that are left.
pub const LEFT: char = '!';

/// Longest answer. The rest of the faults is left out.
const ANSWER_BYTES_MAX: usize = 60_000;

/// Returns whether an attribute is one of ours for a user.
pub(crate) fn is_control(node: Node, name: &[u8], uid: u32) -> bool {
    let all = [INDEXES, CHECK, CHECK_DATA, FLUSH, REPAIR, REPAIR_DATA];
    node == Node::File(ROOT)
        && (all.iter().any(|one| one.as_bytes() == name)
            || snapshot_of(name).is_some()
            || ([SNAPSHOTS, SEND].iter().any(|one| one.as_bytes() == name) && is_owner(uid)))
}

/// Returns the name of the snapshot that is to be checked, and whether its contents are read.
fn snapshot_of(name: &[u8]) -> Option<(&[u8], bool)> {
    let of = |check: &str| name.strip_prefix(check.as_bytes())?.strip_prefix(b"@");
    let data = || of(CHECK_DATA).map(|name| (name, true));
    of(CHECK).map(|name| (name, false)).or_else(data)
}

/// Returns the value of such an attribute. May take long.
pub(crate) fn get(
    namespace: &dyn Execute,
    name: &[u8],
    is_read_only: bool,
) -> Result<Vec<u8>, Error> {
    let reads_contents = [CHECK_DATA, REPAIR_DATA].iter().any(|one| one.as_bytes() == name);
    let repairs = [REPAIR, REPAIR_DATA].iter().any(|one| one.as_bytes() == name);
    if is_read_only && repairs {
        return Err(Errno::ROFS.into());
    }
    if name == INDEXES.as_bytes() {
        let settings = namespace.settings()?;
        let names = settings.index_names().into_iter().map(|name| {
            let is_building = settings.building.contains(name);
            if is_building { format!("({name})") } else { name.to_owned() }
        });
        return Ok(Vec::from_iter(names).join(" ").into_bytes());
    }
    if name == FLUSH.as_bytes() || name == SEND.as_bytes() {
        return namespace.flush().map(|()| Vec::new());
    }
    if name == SNAPSHOTS.as_bytes() {
        let told = namespace.snapshots_as_json()?;
        return Ok(told.into_bytes());
    }
    if let Some((snapshot, reads_contents)) = snapshot_of(name) {
        return Ok(lines(namespace.check(Some(snapshot), reads_contents)?.into_iter()));
    }
    if repairs {
        let (done, left) = namespace.repair(reads_contents)?;
        let left = left.iter().map(|fault| format!("{LEFT}{fault}"));
        return Ok(lines(left.chain(done)));
    }
    Ok(lines(namespace.check(None, reads_contents)?.into_iter()))
}

/// Returns lines, as many as there is room for.
fn lines(all: impl Iterator<Item = String>) -> Vec<u8> {
    let mut told = String::new();
    for line in all {
        if told.len() > ANSWER_BYTES_MAX {
            told.push_str("and more\n");
            break;
        }
        told.push_str(&line);
        told.push('\n');
    }
    told.into_bytes()
}

/// Sets such an attribute.
pub(crate) fn set(namespace: &dyn Execute, name: &[u8], value: &[u8]) -> Result<(), Error> {
    let value = std::str::from_utf8(value).map_err(|_| Errno::INVAL)?;
    if name == SNAPSHOTS.as_bytes() {
        return match value.split_once(' ') {
            Some(("create", name)) => namespace.create_snapshot(name).map(drop),
            Some(("delete", name)) => namespace.delete_snapshot(name),
            _ => Err(Errno::INVAL.into()),
        };
    }
    if name != INDEXES.as_bytes() {
        return Err(Errno::INVAL.into());
    }
    let names = value.split([' ', ',']).filter(|name| !name.is_empty());
    namespace.set_indexes(names.collect())
}
