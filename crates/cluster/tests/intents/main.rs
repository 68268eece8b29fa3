//! Changes that concern several servers: rename, link, and unlink of one of several names.

mod crashes;
mod kinds;
mod model;
mod net;
mod races;
