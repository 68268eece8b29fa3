//! Directories above the root: no input describes them, so the user who imports does, or they count
//! as open to all.

use crate::error::{Error, Result};
use crate::path::{check, shown};
use canopy_model::{Approach, ClassTable, Permissions, escape};

/// The permissions of a directory above the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Above {
    /// Its absolute path, as bytes.
    pub path: Vec<u8>,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its owning group.
    pub gid: u32,
}

/// Returns the directories above a path, `/` first; none for `/` itself.
fn ancestors(root: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = root.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.filter(|_| root.len() > 1).map(|at| &root[..at.max(1)])
}

/// Checks that all of them are above the root.
pub(crate) fn checked(above: &[Above], root: &[u8]) -> Result<()> {
    for directory in above {
        let path = &directory.path;
        let valid = path.strip_prefix(b"/").is_some_and(|path| check(path).is_ok());
        if !valid || !ancestors(root).any(|ancestor| ancestor == path) {
            let (path, root) = (shown(path), shown(root));
            return Err(Error::Input(format!(
                "--above {path}: it is not a directory above {root}"
            )));
        }
    }
    Ok(())
}

/// Returns the number of directories above the root, besides `/`, without a description.
pub(crate) fn untold(above: &[Above], root: &[u8]) -> usize {
    let told = |path: &[u8]| path == b"/" || above.iter().any(|known| known.path == path);
    ancestors(root).filter(|path| !told(path)).count()
}

/// Returns those who may look up the root: who may search every directory above it.
pub(crate) fn root_approach(above: &[Above], root: &[u8], classes: &ClassTable) -> Approach {
    let paths: Vec<&[u8]> = ancestors(root).chain([root]).collect();
    paths.windows(2).fold(Approach::EVERYONE, |approach, pair| {
        let [path, child] = pair else { return approach };
        let Some(known) = above.iter().find(|known| known.path == **path) else {
            return approach;
        };
        let Above { mode, uid, gid, .. } = *known;
        let permissions = Permissions { mode, uid, gid, acl: None, unknown: false };
        classes.below(&classes.access(&approach, permissions), || escape(child).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_model::Credentials;

    #[test]
    fn directories_above_decide_who_reaches_the_root() {
        let all: Vec<&[u8]> = ancestors(b"/a/bc/d").collect();
        assert_eq!(all, [&b"/"[..], b"/a", b"/a/bc"]);
        assert_eq!((ancestors(b"/").count(), ancestors(b"/a").count()), (0, 1));
        let known = |path: &str, mode| Above { path: path.into(), mode, uid: 7, gid: 8 };
        let above = [known("/a", 0o750)];
        let classes = ClassTable::default();
        let approach = root_approach(&above, b"/a/bc/d", &classes);
        // 0750 is not a gate.
        assert_eq!(approach.passage, None);
        let class = approach.audience.listers;
        assert!(classes.admits(class, &Credentials::new(9, [8])));
        assert!(!classes.admits(class, &Credentials::new(9, [9])));
        assert_eq!((untold(&above, b"/a/bc/d"), untold(&above, b"/a/b")), (1, 0));
        assert!(checked(&above, b"/a/b").is_ok() && checked(&above, b"/a").is_err());
        for wrong in ["a", "/a/", "/a/../a", "", "/b"] {
            assert!(checked(&[known(wrong, 0o755)], b"/a/b").is_err(), "{wrong}");
        }
    }
}
