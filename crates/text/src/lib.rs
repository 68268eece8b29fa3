//! Text for people, shells and terminals: the one place for how sizes, times, modes, owners and names are shown, and for
//! patterns of names.
//!
//! Not its job: what is shown. It knows neither the index nor a tool.

pub mod clock;
mod human;
mod mode;
mod names;
mod pattern;
mod printf;
mod quote;
pub mod regular;
mod times;

pub use human::{Number, SizeForm, human_size, whole_number};
pub use mode::mode_string;
pub use names::{group_id, group_name, group_or_number, user_id, user_name, user_or_number};
pub use pattern::Glob;
pub use printf::{Flags, control};
pub use quote::{Quoting, Style, visible};
pub use times::{TimeStyle, format_time};
