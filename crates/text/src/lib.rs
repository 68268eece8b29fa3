//! Text for people, shells and terminals: forms of sizes, times, modes, owners and names, text that
//! is safe to show, and patterns of names.
//!
//! The one place for each of these, shared by find, du, ls, stat, reports, SQL and messages. Output
//! in the forms of GNU's tools equals theirs to the byte.
//!
//! Not its job: choosing the values that are shown. It knows neither the index nor a tool nor an
//! option, and reads nothing but the environment and the system's users and groups.
//!
//! ```
//! use canopy_text::{Characters, Glob, SizeForm, mode_string, safe};
//! assert_eq!(SizeForm::HUMAN.show(10_138), "10K");
//! assert_eq!(mode_string(0o10_4755), "-rwsr-xr-x");
//! assert_eq!(safe::message_line("no\nnews"), "no?news");
//! assert!(Glob::new(b"*.h5", false, Characters::Utf8)?.matches("run.h5"));
//! # Ok::<(), canopy_text::Error>(())
//! ```

mod bar;
mod brackets;
mod characters;
pub mod clock;
mod counted;
mod error;
mod human;
pub mod locale;
mod mode;
mod names;
mod near;
mod pattern;
mod printf;
mod quote;
pub mod regular;
pub mod safe;
mod strftime;
mod times;

pub use bar::bar;
pub use characters::Characters;
pub use counted::counted;
pub use error::{Error, Result};
pub use human::{SizeForm, human_size, line_width, parse_size, whole_number};
pub use mode::mode_string;
pub use names::{group_id, group_name, group_or_number, user_id, user_name, user_or_number};
pub use near::{distance, is_near};
pub use pattern::Glob;
pub use printf::{Flags, WIDTH_MAX, byte_of_digits, control};
pub use quote::{Quoting, Style, shell_word};
pub use times::TimeStyle;
