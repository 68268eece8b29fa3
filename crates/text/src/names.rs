//! Names of users and groups, looked up once each.

use nix::unistd::{Gid, Group, Uid, User};
use rustc_hash::FxHashMap;
use std::sync::{LazyLock, RwLock};

type Names = LazyLock<RwLock<FxHashMap<u32, Option<String>>>>;

/// The name of a user, if the system knows one.
pub fn user_name(uid: u32) -> Option<String> {
    static NAMES: Names = LazyLock::new(Default::default);
    cached(&NAMES, uid, |uid| {
        User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
    })
}

/// The name of a group, if the system knows one.
pub fn group_name(gid: u32) -> Option<String> {
    static NAMES: Names = LazyLock::new(Default::default);
    cached(&NAMES, gid, |gid| {
        Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
    })
}

/// The id of a user that is named or numbered.
pub fn user_id(name: &str) -> Option<u32> {
    User::from_name(name).ok().flatten().map(|user| user.uid.as_raw()).or_else(|| name.parse().ok())
}

/// The id of a group that is named or numbered.
pub fn group_id(name: &str) -> Option<u32> {
    Group::from_name(name)
        .ok()
        .flatten()
        .map(|group| group.gid.as_raw())
        .or_else(|| name.parse().ok())
}

fn cached(names: &Names, id: u32, look_up: impl Fn(u32) -> Option<String>) -> Option<String> {
    if let Some(known) = names.read().expect("no thread panics while it holds the lock").get(&id) {
        return known.clone();
    }
    let name = look_up(id);
    names.write().expect("no thread panics while it holds the lock").insert(id, name.clone());
    name
}

/// Name of a user, or the number.
pub fn user_or_number(uid: u32) -> String {
    user_name(uid).unwrap_or_else(|| uid.to_string())
}

/// Name of a group, or the number.
pub fn group_or_number(gid: u32) -> String {
    group_name(gid).unwrap_or_else(|| gid.to_string())
}
