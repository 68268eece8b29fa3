//! What root asks of a mounted namespace itself: extended attributes of its root directory that no
//! record has. Only who has the right to administer the system gets to `trusted` attributes.

use canopy_namespace::{Error, FileId, Namespace, ROOT};
use rustix::io::Errno;

/// The names of indexes, with spaces between them; those that are still being built in parentheses.
/// Setting it changes which there are.
pub const INDEXES: &str = "trusted.canopy.indexes";

/// What is wrong with the records, a line for each fault; empty if nothing is. Reading it checks
/// everything.
pub const CHECK: &str = "trusted.canopy.check";

/// More of the faults is not told.
const ANSWER_BYTES_MAX: usize = 60_000;

/// Returns whether an attribute is one of ours.
pub(crate) fn is_control(id: FileId, name: &[u8]) -> bool {
    id == ROOT && [INDEXES, CHECK].iter().any(|one| one.as_bytes() == name)
}

/// Returns the value of such an attribute. May take long.
pub(crate) fn get(namespace: &Namespace, name: &[u8]) -> Result<Vec<u8>, Error> {
    if name == INDEXES.as_bytes() {
        let settings = namespace.settings();
        let names = settings.index_names().into_iter().map(|name| {
            let is_building = settings.building.contains(name);
            if is_building { format!("({name})") } else { name.to_owned() }
        });
        return Ok(Vec::from_iter(names).join(" ").into_bytes());
    }
    let mut told = String::new();
    for fault in namespace.check(|_| {})? {
        if told.len() > ANSWER_BYTES_MAX {
            told.push_str("and more\n");
            break;
        }
        told.push_str(&format!("file {}: {}\n", fault.id, fault.what));
    }
    Ok(told.into_bytes())
}

/// Sets such an attribute.
pub(crate) fn set(namespace: &Namespace, name: &[u8], value: &[u8]) -> Result<(), Error> {
    let value = std::str::from_utf8(value).ok().filter(|_| name == INDEXES.as_bytes());
    let value = value.ok_or(Errno::INVAL)?;
    let names = value.split([' ', ',']).filter(|name| !name.is_empty());
    namespace.set_indexes(&Vec::from_iter(names))
}
