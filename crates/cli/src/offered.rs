//! Words that shells complete values of options to, where others are taken as well: beginnings of
//! them, or words that need a better message than clap's.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command};
use std::ffi::{OsStr, OsString};

/// Takes any value, and offers these.
#[derive(Clone)]
pub struct Offered<F>(pub F);

impl<F> TypedValueParser for Offered<F>
where
    F: Fn() -> Vec<&'static str> + Clone + Send + Sync + 'static,
{
    type Value = OsString;

    fn parse_ref(
        &self,
        _: &Command,
        _: Option<&Arg>,
        value: &OsStr,
    ) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new((self.0)().into_iter().map(PossibleValue::new)))
    }
}
