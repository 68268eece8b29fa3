//! SSTables: immutable files of records sorted by key. This comment is the only statement of their
//! bytes; `block_builder`, `block`, `columns`, `index`, `filter` and `footer` write and read them.
//!
//! # Notation
//!
//! Numbers are little-endian. A *varint* is a u64 in LEB128, at most 10 bytes; a *signed varint* is
//! an i64 in zigzag, then as a varint. CRC-32 is that of zlib.
//!
//! # File
//!
//! ```text
//! block ...          sorted by key, without gaps, from offset 0
//! tail:
//!   range deletes    postcard of Vec<KeyRange>, sorted by start; of older runs only
//!   index            see below
//!   filter           32-byte blocks of a split-block Bloom filter; none if there are no records
//!   properties       postcard of `footer::Properties`
//!   footer           56 bytes:
//!     u64 × 5        bytes of all blocks, of range deletes, of index, of filter, of properties
//!     u32            CRC-32 of the tail up to here
//!     u32            version of this format: 1
//!     [u8; 8]        "CanopSST"
//! ```
//!
//! A file is created whole or not at all, so that nothing in it can be torn.
//!
//! The order of validation: size of the footer, magic, version, sizes against each other, CRC, then
//! each section, and at last what the caller's `SstableInfo` says. A block is checked against its
//! CRC before anything else of it is used.
//!
//! # Index
//!
//! ```text
//! varint             number of blocks
//! u32 × blocks       CRC-32 of each block
//! column × 5         over all blocks: directory, hash, and length of the name of the separator;
//!                    bytes of the block; its records
//! [u8]               the separators' names, one after the other
//! ```
//!
//! A block's separator is greater than every key of the block before, and at most its own first
//! key.
//!
//! # Block
//!
//! ```text
//! u8                 flags: 1 hashes are stored, 2 columns are stored apart, 4 text is compressed
//! varint             records, 1 to 4096
//! column             directories
//! column             operations, as `Op`
//! column             lengths of names
//! column             hashes, if flag 1; otherwise every hash is `hash_of` the name
//! column             lengths of tails
//! column ...         those of the layout, if flag 2; a delete has any number there
//! varint             bytes of text
//! [u8]               the rest is text, as one lz4 block if flag 4: all names, then all tails
//! ```
//!
//! With flag 2 a tail is what follows the columns in a value, and every value but those of deletes
//! is as long as the columns at least; without, a tail is the whole value.
//!
//! # Column
//!
//! Numbers of a width of 1, 2, 4 or 8 bytes, computed modulo 2^64 and cut off to the width.
//!
//! ```text
//! u8                 kind: 0 plain, 1 dictionary, 2 added to the column that it is near to
//! u8                 bits of a code: 0 to 56, or 64
//! kinds 0 and 2:
//!   signed varint    base
//!   varint           unit, if bits are not 0; a number is base + unit × code
//! kind 1:
//!   u8               entries - 1; an entry is as wide as the column
//!   [u8]             the entries; a number is the entry whose place the code is
//! [u8]               the codes, lowest bits first, to a whole byte
//! ```
//!
//! Codes are read where they lie, so that a look-up decodes the numbers of one record only.
//!
//! # Why it looks like this
//!
//! - The hash in a key is that of the name. It is computed again in 2 ns, and would be 8 bytes of
//!   44.
//! - A column of a block takes the form that is smallest for its numbers.
//! - The filter is Parquet's split-block Bloom filter, written here because its bits must never
//!   change with a library.

mod block;
mod block_builder;
mod builder;
mod cache;
mod columns;
mod cursor;
mod filter;
mod footer;
mod index;
mod reader;
mod repair;
mod rows;
mod salvage;
mod verify;
mod wire;

pub use builder::{Builder, BuilderOptions};
pub use cache::BlockCache;
pub use cursor::Cursor;
pub(crate) use filter::{Block as FilterBlock, EMPTY, Filter, fingerprint, passes};
pub(crate) use footer::MAGIC;
pub use footer::{Properties, SstableInfo, VERSION};
pub use reader::{BlockParts, Sstable};
pub(crate) use repair::repair;
pub(crate) use salvage::{Salvaged, salvage};
