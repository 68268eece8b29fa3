//! One choice of features for every build. The manifest is the only content of this crate.
//!
//! cargo builds a dependency again for each set of features, and the built packages decide the set.
//! This crate asks for all features that any package asks for. So the command alone, the tests of
//! one crate and the whole workspace share their dependencies. A test names features that are
//! missing here.
