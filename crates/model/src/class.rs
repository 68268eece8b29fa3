//! Access classes: who may see a listing.
//!
//! A class is a set of grants, all of which its members pass. Whoever may list every directory on
//! the way to a listing sees it: its *listers*. Below a *gate*, a directory that some may enter but
//! not list, there are also those who pass as many checks as it takes to get there by name: its
//! *knowers*. They must know the path of the *passage*, the child of the last gate on the way that
//! leads on, which holds the names of all passages before it.
//!
//! Classes stay short:
//!
//! - a grant is dropped if another one of the class implies it;
//! - two grants that one can express are joined (lists of denied users);
//! - beyond [`GRANTS_MAX`], the class is folded into the users who certainly pass all grants.
//!
//! [`OwnerLimits`] bound how many classes, and names in their grants, one user can cause.
//! Directories of root have no such limits.
//!
//! A directory is a gate only if somebody who reaches it may search it but not read it.
//! [`Grant::implies`](crate::Grant::implies) is exact, so a directory of mode 0711 below one of mode 0700 with that owner
//! is not a gate.

mod restricting;
mod table;
#[cfg(test)]
mod tests;

pub use restricting::GRANTS_MAX;
pub use table::ClassTable;

use std::sync::Arc;

/// Number of a grant within an index. Stays the same over generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrantId(pub u32);

/// Number of an access class within a [`ClassTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassId(pub u32);

/// Those who may see something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Audience {
    /// Those who may list every directory on the way.
    pub listers: ClassId,
    /// Those who may get there by name, the listers among them, where they are more.
    pub knowers: Option<ClassId>,
}

/// The users who may look a directory up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approach {
    /// Those who may.
    pub audience: Audience,
    /// The path that knowers must know: that of the child of the last gate on the way, absolute
    /// and escaped.
    pub passage: Option<Arc<str>>,
}

impl Approach {
    /// A directory that everybody may look up.
    pub const EVERYONE: Approach = Approach {
        audience: Audience { listers: ClassTable::EVERYONE, knowers: None },
        passage: None,
    };
}

/// The access to a directory, computed from the users who may look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Those who may list it and look at what is in it.
    pub listing: Audience,
    /// The path that knowers of the listing must know.
    pub passage: Option<Arc<str>>,
    /// If the directory is a gate, those who may look names up in it.
    pub lookup: Option<ClassId>,
    /// Whether the owner asks for more than [`OwnerLimits`], so that fewer see it than should.
    pub beyond_limits: bool,
}

impl Access {
    /// A directory that everybody may list.
    pub const EVERYONE: Access = Access {
        listing: Approach::EVERYONE.audience,
        passage: None,
        lookup: None,
        beyond_limits: false,
    };
}

/// How many classes and ACL entries the directories of one owner may ask for, so that nobody can
/// make an index slow or large for others. What goes beyond is for that owner and root alone. uid 0
/// has no limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Access classes.
    pub classes: usize,
    /// Users and groups that the grants of these classes name, all together.
    pub names: usize,
}

impl Default for OwnerLimits {
    fn default() -> Self {
        OwnerLimits { classes: 1024, names: 16 * 1024 }
    }
}
