//! Sources that are damaged or made to harm: changed copies of sound ones, the same ones every time. Nothing panics, and no
//! source makes more of a file than it holds.

#[path = "../../../runtime/fuzz/mutate.rs"]
mod mutate;

use super::parquet::RowForm;
use super::*;
use ::parquet::column::writer::ColumnWriter;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Changed copies of each seed.
const CHANGES: u64 = 300;

/// Packs a file; the second is given where a source reads two.
type Pack = fn(&Path, &Path, Emit<'_>) -> anyhow::Result<()>;

pub(super) fn tf_record(bytes: &[u8]) -> Vec<u8> {
    let masked =
        |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8).to_le_bytes();
    let length = (bytes.len() as u64).to_le_bytes();
    [&length[..], &masked(&length), bytes, &masked(bytes)].concat()
}

fn idx(magic: u8, sizes: &[u32], bytes: &[u8]) -> Vec<u8> {
    let sizes = sizes.iter().flat_map(|size| size.to_be_bytes());
    [0, 0, 8, magic].into_iter().chain(sizes).chain(bytes.iter().copied()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn parquet_file() -> Vec<u8> {
    let schema = Arc::new(parse_message_type("message m { required int32 a; required float b; }").unwrap());
    let mut writer =
        SerializedFileWriter::new(Vec::new(), schema, Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    while let Some(mut column) = group.next_column().unwrap() {
        match column.untyped() {
            ColumnWriter::Int32ColumnWriter(column) => column.write_batch(&[1, 2, 3], None, None).unwrap(),
            ColumnWriter::FloatColumnWriter(column) => {
                column.write_batch(&[0.5, 1.5, 2.5], None, None).unwrap()
            }
            _ => panic!("two columns"),
        };
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.into_inner().unwrap()
}

/// How many of so many changed copies are read to their end. `second` stays as it is.
fn read_to_the_end(seed: &[u8], second: &[u8], pack: Pack) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { folder.path().join(name) };
    std::fs::write(at("second"), second).unwrap();
    let others = [second.to_vec(), seed.to_vec()];
    let mut read = 0;
    for number in 0..=CHANGES {
        let changed = if number == 0 { seed.to_vec() } else { mutate::mutate(seed, &others, number) };
        std::fs::write(at("first"), &changed).unwrap();
        let mut bytes = 0;
        let packed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pack(&at("first"), &at("second"), &mut |record| {
                bytes += record.len();
                Ok(())
            })
        }));
        let packed = packed.unwrap_or_else(|_| panic!("change {number} panics: {changed:02x?}"));
        // Gzip makes a thousand bytes of one at most, and a row of JSON has names beside its values.
        let most = 4096 * (changed.len() + second.len() + 1);
        assert!(bytes <= most, "change {number}: {bytes} bytes of {}", changed.len());
        read += u64::from(packed.is_ok());
        assert!(number > 0 || packed.is_ok(), "the seed itself is sound: {:?}", packed.err());
    }
    read
}

#[test]
fn no_source_panics_or_makes_more_of_a_file_than_it_holds() {
    let images = idx(3, &[2, 2, 3], &[7; 12]);
    let labels = idx(1, &[2], &[4, 9]);
    let records = [tf_record(b"one"), tf_record(b""), tf_record(b"three")].concat();
    let table = b"a,b\r\n1,\"x,\"\"y\ntwo\"\r\n\r\n2,z\n".to_vec();
    let sources: [(&str, Vec<u8>, &[u8], Pack); 9] = [
        ("lines", b"one\ntwo\r\n\nlast".to_vec(), &[], |file, _, emit| {
            lines::pack(file, None, emit).map(|_| ())
        }),
        ("zipped lines", gzip(b"one\ntwo\r\n\nlast"), &[], |file, _, emit| {
            lines::pack(file, None, emit).map(|_| ())
        }),
        ("csv", table.clone(), &[], |file, _, emit| csv::pack(file, true, None, emit).map(|_| ())),
        ("zipped csv", gzip(&table), &[], |file, _, emit| csv::pack(file, false, None, emit).map(|_| ())),
        ("images", images.clone(), &labels, |file, second, emit| idx::pack(file, second, emit)),
        ("labels", labels.clone(), &images, |file, second, emit| idx::pack(second, file, emit)),
        ("records", records.clone(), &[], |file, _, emit| tfrecord::pack(file, emit)),
        ("zipped records", gzip(&records), &[], |file, _, emit| tfrecord::pack(file, emit)),
        ("parquet", parquet_file(), &[], |file, _, emit| {
            parquet::pack(&[file.to_owned()], RowForm::Json, &[], emit)
        }),
    ];
    for (name, seed, second, pack) in sources {
        let read = read_to_the_end(&seed, second, pack);
        assert!(read > 0, "{name}");
    }
}
