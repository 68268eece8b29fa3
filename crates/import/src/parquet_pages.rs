//! Sizes of the decoded pages of foreign Parquet files, read from the pages' headers before anything
//! is decoded. A page of a few bytes can decode to gigabytes, and so can a few values: with
//! dictionaries and shared prefixes each value can be as long as its page.

use crate::fault::{Checked, Fault};
use crate::foreign_parquet::{BoundedFile, Compact};
use parquet::arrow::arrow_reader::ArrowReaderMetadata;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::{ChunkReader, Length};

/// Largest sum of decoded bytes: of one page and one dictionary of each column, and of the values
/// of one batch.
const DECODED_BYTES_MAX: u64 = 256 << 20;

/// Largest header of a page, in bytes. It can hold a smallest and a largest value.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Checks the decoded pages of columns, given by their places in the schema. Returns the number of
/// rows, at most `rows_max`, that can be decoded at once within 256 MiB. `has_views` says that
/// texts are read as views: a value of a dictionary is in memory once then, however many rows have
/// it.
pub fn bounded_batch_rows(
    file: &BoundedFile,
    metadata: &ArrowReaderMetadata,
    columns: &[usize],
    rows_max: usize,
    has_views: bool,
) -> Checked<usize> {
    let schema = metadata.parquet_schema();
    let (mut pages, mut longest) = (0_u64, 0_u64);
    for leaf in 0..schema.num_columns() {
        if !columns.contains(&schema.get_column_root_idx(leaf)) {
            continue;
        }
        let mut sizes = Sizes::default();
        for group in metadata.metadata().row_groups() {
            sizes.add(file, group.column(leaf))?;
        }
        let decoded = sizes.page.saturating_add(sizes.dictionary);
        pages = pages.saturating_add(decoded);
        if pages > DECODED_BYTES_MAX {
            let (column, limit) = (schema.column(leaf).path().string(), DECODED_BYTES_MAX >> 20);
            return Err(Fault::form(format!(
                "column {column}: its pages take {decoded} bytes when decoded, and those of all \
                 columns may take {limit} MiB: write the file with smaller pages"
            )));
        }
        let of_dictionary = if has_views { 0 } else { sizes.dictionary };
        longest = longest.saturating_add(of_dictionary.max(sizes.page_with_prefixes));
    }
    let rows = DECODED_BYTES_MAX.checked_div(longest).unwrap_or(u64::MAX).max(1);
    Ok(usize::try_from(rows).unwrap_or(usize::MAX).min(rows_max))
}

/// Largest decoded sizes in a column, in bytes.
#[derive(Default)]
struct Sizes {
    page: u64,
    dictionary: u64,
    /// Largest page whose values can share prefixes.
    page_with_prefixes: u64,
}

impl Sizes {
    /// Adds the pages of a column chunk.
    fn add(&mut self, file: &BoundedFile, chunk: &ColumnChunkMetaData) -> Checked<()> {
        let damaged = || Fault::form("its footer is damaged");
        let bytes = u64::try_from(chunk.compressed_size()).map_err(|_| damaged())?;
        let first = chunk.dictionary_page_offset().unwrap_or(chunk.data_page_offset());
        let mut at = u64::try_from(first).map_err(|_| damaged())?;
        let end = at.checked_add(bytes).filter(|&end| end <= file.len()).ok_or_else(damaged)?;
        while at < end {
            let (page, header_bytes) = Header::read(file, at, end)?;
            // Values of the deprecated LZ4 can be larger than the header says: up to 255 times.
            let is_unbounded = matches!(chunk.compression(), parquet::basic::Compression::LZ4);
            let most = if is_unbounded { page.stored_bytes.saturating_mul(255) } else { 0 };
            let decoded = page.decoded_bytes.max(most);
            match page.is_dictionary {
                true => self.dictionary = self.dictionary.max(decoded),
                false => self.page = self.page.max(decoded),
            }
            if page.has_prefixes {
                self.page_with_prefixes = self.page_with_prefixes.max(decoded);
            }
            at = at.saturating_add(header_bytes).saturating_add(page.stored_bytes);
        }
        Ok(())
    }
}

/// Fields of a page's header that determine how much memory its values take.
#[derive(Default)]
struct Header {
    is_dictionary: bool,
    decoded_bytes: u64,
    stored_bytes: u64,
    /// Whether values can share prefixes with the value before.
    has_prefixes: bool,
}

impl Header {
    /// Reads the header at byte `at` of the file; returns its length in bytes, too.
    fn read(file: &BoundedFile, at: u64, end: u64) -> Checked<(Self, u64)> {
        let mut length = 256;
        loop {
            let bytes = (end - at).min(length);
            let bytes = file.get_bytes(at, bytes as usize).map_err(Fault::decoder)?;
            let mut rest = Compact(&bytes);
            if let Some(header) = Header::parse(&mut rest) {
                return Ok((header, (bytes.len() - rest.0.len()) as u64));
            }
            if bytes.len() as u64 == end - at || length >= HEADER_BYTES_MAX {
                return Err(Fault::form(format!("the header of the page at byte {at} is damaged")));
            }
            length *= 4;
        }
    }

    /// Parses a `PageHeader` of the format's definition in Thrift; `None` if it is not whole.
    fn parse(rest: &mut Compact<'_>) -> Option<Self> {
        const DICTIONARY_PAGE: i32 = 2;
        const DELTA_BYTE_ARRAY: i32 = 7;
        let mut header = Header::default();
        let mut field = 0;
        while let Some(kind) = rest.field(&mut field)? {
            match (field, kind) {
                (1, Compact::I32) => header.is_dictionary = rest.i32()? == DICTIONARY_PAGE,
                (2, Compact::I32) => header.decoded_bytes = u64::try_from(rest.i32()?).ok()?,
                (3, Compact::I32) => header.stored_bytes = u64::try_from(rest.i32()?).ok()?,
                // The encoding is field 2 of a DataPageHeader and field 4 of a DataPageHeaderV2.
                (5 | 8, Compact::STRUCT) => {
                    let encoding_field = if field == 5 { 2 } else { 4 };
                    let mut field = 0;
                    while let Some(kind) = rest.field(&mut field)? {
                        if field == encoding_field && kind == Compact::I32 {
                            header.has_prefixes = rest.i32()? == DELTA_BYTE_ARRAY;
                        } else {
                            rest.skip(kind, 1)?;
                        }
                    }
                }
                _ => rest.skip(kind, 0)?,
            }
        }
        Some(header)
    }
}
