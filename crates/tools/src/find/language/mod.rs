//! The language: what find's words mean, as values. It reads neither an index nor entries.

mod arguments;
mod expr;
mod globals;
mod hints;
mod moment;
mod parse;
mod primary;
mod storage;
mod test;
mod words;

pub(crate) use expr::Expr;
pub use globals::ColorWhen;
pub(crate) use globals::Globals;
pub use hints::Misunderstood;
pub use moment::parse_moment;
pub use parse::{Find, parse, parse_for_records};
pub(crate) use test::{AskedXattr, NamedFile, Test, XattrTest};
pub use words::{Operand, words};
