//! Names of the extended attributes in which imports keep facts about a file's storage from policy
//! lists of IBM Storage Scale. The file system itself has none of these names.

/// The pool that has the file's data.
pub const POOL: &str = "gpfs.pool";

/// The fileset that the file belongs to.
pub const FILESET: &str = "gpfs.fileset";

/// Letters for where its data are, such as `M` for those on another storage alone.
pub const STATE: &str = "gpfs.state";
