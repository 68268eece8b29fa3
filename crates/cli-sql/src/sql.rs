//! `canopy sql`, carried out.

use crate::prompt::{self, Prompt};
use anyhow::Context;
use canopy::Outcome;
use canopy::commands::sql::{Arguments, FormatName};
use canopy_sql::{AnswerFormat, Session};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

/// Returns the form of answers that a name stands for.
fn format(name: FormatName) -> AnswerFormat {
    match name {
        FormatName::Table => AnswerFormat::Table,
        FormatName::Csv => AnswerFormat::Csv,
        FormatName::Json => AnswerFormat::Json,
        FormatName::Ndjson => AnswerFormat::NdJson,
        FormatName::Parquet => AnswerFormat::Parquet,
    }
}

/// Carries the command out.
pub fn run(index: Option<PathBuf>, arguments: Arguments) -> anyhow::Result<Outcome> {
    let given = given(&arguments)?;
    if given.is_none() {
        // Before any thread is there that the signal could go to.
        prompt::hold_interrupts()?;
    }
    let index = arguments.read.open(index)?;
    let session = Session::open(index, arguments.read.threads(), arguments.gufi)?;
    let mut prompt = Prompt::new(session, format(arguments.format));
    match given {
        Some((text, name)) => prompt.script(&text, name.as_deref()).map(drop)?,
        None => prompt.interactive()?,
    }
    Ok(Outcome::Complete)
}

/// Returns the statements and what to call where they are from; `None` if they are to be typed.
fn given(arguments: &Arguments) -> anyhow::Result<Option<(String, Option<String>)>> {
    if let Some(query) = &arguments.query {
        return Ok(Some((query.clone(), None)));
    }
    match arguments.file.as_deref() {
        Some(file) if file != Path::new("-") => {
            let name = file.display().to_string();
            let text =
                std::fs::read_to_string(file).with_context(|| format!("cannot read {name}"))?;
            Ok(Some((text, Some(name))))
        }
        None if std::io::stdin().is_terminal() => Ok(None),
        _ => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            Ok(Some((text, Some("standard input".to_owned()))))
        }
    }
}
