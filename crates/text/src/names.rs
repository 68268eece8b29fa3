//! Names of users and groups, looked up once each.

use nix::unistd::{Gid, Group, Uid, User};
use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use std::sync::LazyLock;

/// Names by id; none for an id that the system does not know.
type Names = LazyLock<RwLock<FxHashMap<u32, Option<String>>>>;

/// Returns the name of a user, if the system knows one.
pub fn user_name(uid: u32) -> Option<String> {
    static NAMES: Names = LazyLock::new(Default::default);
    cached(&NAMES, uid, || User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name))
}

/// Returns the name of a group, if the system knows one.
pub fn group_name(gid: u32) -> Option<String> {
    static NAMES: Names = LazyLock::new(Default::default);
    let look_up = || Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    cached(&NAMES, gid, look_up)
}

fn cached(names: &Names, id: u32, look_up: impl Fn() -> Option<String>) -> Option<String> {
    if let Some(known) = names.read().get(&id) {
        return known.clone();
    }
    let name = look_up();
    names.write().insert(id, name.clone());
    name
}

/// Returns the name of a user, else the number.
pub fn user_or_number(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|| uid.to_string())
}

/// Returns the name of a group, else the number.
pub fn group_or_number(gid: u32) -> String {
    group_name(gid).unwrap_or_else(|| gid.to_string())
}

/// Returns the id of a user, given by name or as a number.
pub fn user_id(name: &str) -> Option<u32> {
    let user = User::from_name(name).ok().flatten();
    user.map_or_else(|| name.parse().ok(), |user| Some(user.uid.as_raw()))
}

/// Returns the id of a group, given by name or as a number.
pub fn group_id(name: &str) -> Option<u32> {
    let group = Group::from_name(name).ok().flatten();
    group.map_or_else(|| name.parse().ok(), |group| Some(group.gid.as_raw()))
}
