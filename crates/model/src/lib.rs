//! The metadata model that every part of Canopy shares: what an inode's attributes are, how names
//! are kept and ordered, and who passes a permission check.
//!
//! Not its job: any I/O, any file format, anything asynchronous. Every value here is plain data and
//! every function is a function of its arguments.
//!
//! ```
//! use canopy_model::{Credentials, Grant, Wanted};
//! // A directory with mode 0750 that belongs to uid 1000 and gid 50, without an ACL.
//! let grant = Grant::new(0o750, 1000, 50, None, Wanted::READ_SEARCH);
//! assert!(grant.passes(&Credentials::new(1000, [7])));
//! assert!(grant.passes(&Credentials::new(1001, [50])));
//! assert!(!grant.passes(&Credentials::new(1001, [7])));
//! ```

mod acl;
mod attributes;
mod class;
mod device;
mod error_kind;
#[doc(hidden)]
pub mod fuzzing;
mod generation;
mod grant;
pub mod lustre;
mod name;
mod parallel;
mod path;
mod permissions;
mod rows;
pub mod storage_scale;
mod summary;
mod totals;
pub mod xattr_names;

pub use acl::{Acl, AclEntry, AclError, AclTag};
pub use attributes::{Attributes, FileType, Ownership};
pub use class::{
    Access, Approach, Audience, ClassId, ClassTable, GRANTS_MAX, GrantId, OwnerLimits,
};
pub use device::Device;
pub use error_kind::{ErrorKind, Retry};
pub use generation::Generation;
pub use grant::{Credentials, Grant, Principal, Wanted};
pub use name::{base_name, compare_paths, escape, is_below, join, join_absolute, parent, unescape};
pub use parallel::parallel;
pub use path::{AbsolutePath, SourcePath, SourcePathBuf};
pub use permissions::{Permissions, XattrAccess};
pub use rows::{DOUBTFUL_PART, Listing, Row, Rows, Sink, Xattr};
pub use summary::{
    Count, Extrema, Histogram, NUMBERED, Parts, Summary, extension, month, size_class,
    size_class_end, size_class_min,
};
pub use totals::{Totals, clamped};
