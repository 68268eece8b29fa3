//! Changes that concern several servers: rename, link, and unlink of one of several names.

mod crashes;
mod kinds;
mod model;
mod moving;
mod net;
mod races;
