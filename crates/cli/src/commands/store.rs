//! `canopy store`: its arguments. `canopy-store` carries it out.

use clap::Subcommand;
use std::path::PathBuf;

/// Look into the tables of the engine, to debug it
///
/// STORAGE is where tables lie: a directory, s3://BUCKET/PREFIX, or DIRECTORY+s3://BUCKET/PREFIX.
/// Buckets need AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, unless they are Amazon's,
/// AWS_ENDPOINT_URL. All of this but 'probe' only reads: it takes no writer's lock, makes no checkpoint
/// and changes nothing, and may run beside writers and collectors.
#[derive(clap::Args)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// List the tables, one a line
    ///
    /// Bytes and records are those of the SSTables that the current manifest refers to; records
    /// that hide others count too.
    ///
    /// Example: canopy store list /srv/namespace
    List {
        /// Where the tables lie
        storage: String,
        /// Print JSON, an object a line
        #[arg(long)]
        json: bool,
    },
    /// Show the current manifest of a table, or the structure of an SSTable
    ///
    /// Example: canopy store stat /srv/namespace 4f0c6ab1f3a1de0b5f7d4ca3e5a1b2c3
    Stat {
        /// Where the table lies; without TABLE, an SSTable: STORAGE/TABLE/sst/NAME or any path
        storage: String,
        /// The id of the table, or its first digits
        table: Option<String>,
        /// Print JSON, one object
        #[arg(long)]
        json: bool,
    },
    /// Read and check every byte
    ///
    /// Prints each fault on a line, and a summary at the end; exit code 1 means that there are
    /// faults. Also checks everything that the tables refer to in others. An object that a
    /// collector removes meanwhile is not a fault.
    ///
    /// Example: canopy store verify /srv/namespace
    Verify {
        /// Where the tables lie
        storage: String,
        /// The ids of tables, or their first digits [default: all]
        tables: Vec<String>,
    },
    /// Print the records of a table or of one object
    ///
    /// For a table, prints the records in its SSTables, merged, in the order of keys: the
    /// operation, the key and the value, between tabulators, with control characters escaped. A key
    /// is DIRECTORY/HASH/NAME, with 16 hexadecimal digits of the hash. An option that takes a key
    /// also takes its beginning, and DIRECTORY//NAME, which stands for the hash of NAME.
    ///
    /// Example: canopy store dump /srv/namespace 4f0c6ab1f3a1de0b5f7d4ca3e5a1b2c3 --prefix 7
    Dump(Dump),
    /// Try whether machines that share a directory see at once what others create there
    ///
    /// Run it at the same time on two machines, with the same directory. They meet there, create,
    /// list and remove files for each other, and both print the result. The directory may be empty
    /// still, or one that 'canopy ns create --shared' made. Then both machines may write there once
    /// they have passed, if one of them could before. Exit code 2 means that tables would lose data.
    ///
    /// Example: canopy store probe /gpfs/projects
    Probe(Probe),
}

#[derive(clap::Args)]
pub struct Probe {
    /// The directory that both machines see
    pub directory: PathBuf,
    /// Wait N seconds for the other machine
    #[arg(long, value_name = "N", default_value_t = 120)]
    pub wait: u64,
    /// Try everything N times; the machine that comes first decides
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Print JSON, one object
    #[arg(long)]
    pub json: bool,
}

#[derive(clap::Args)]
pub struct Dump {
    /// Where the table lies; without TABLE, a manifest, an SSTable or a segment of a log:
    /// STORAGE/TABLE/sst/NAME or any path
    pub storage: String,
    /// The id of the table, or its first digits
    pub table: Option<String>,
    /// Also print the records of its log, after the others; they are newer
    #[arg(long, requires = "table", conflicts_with = "reverse")]
    pub log: bool,
    /// Prefix of keys: a DIRECTORY and digits of the hash, or the hash and the beginning of a name
    #[arg(long, value_name = "KEY", conflicts_with_all = ["from", "to"])]
    pub prefix: Option<String>,
    /// Keys from this one on
    #[arg(long, value_name = "KEY")]
    pub from: Option<String>,
    /// Keys before this one
    #[arg(long, value_name = "KEY")]
    pub to: Option<String>,
    /// End after so many lines
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// The greatest key first
    #[arg(long)]
    pub reverse: bool,
    /// Print JSON, an object a line
    #[arg(long)]
    pub json: bool,
}
