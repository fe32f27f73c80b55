//! Parquet files made by the library's writer, and what their rows become.

use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::{BrotliLevel, Compression, GzipLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;
use proptest::prelude::*;

use super::*;

/// What one column of one row group holds: values, definition levels, repetition levels.
#[derive(Clone, Debug)]
pub(super) enum Leaf {
    Bool(Vec<bool>, Vec<i16>),
    I32(Vec<i32>, Vec<i16>, Vec<i16>),
    I64(Vec<i64>, Vec<i16>),
    F32(Vec<f32>, Vec<i16>, Vec<i16>),
    F64(Vec<f64>, Vec<i16>),
    Bytes(Vec<Vec<u8>>, Vec<i16>),
    Fixed(Vec<Vec<u8>>, Vec<i16>),
}

pub(super) fn write(schema: &str, groups: &[Vec<Leaf>], compression: Compression) -> Vec<u8> {
    write_typed(parse_message_type(schema).unwrap(), groups, compression)
}

pub(super) fn write_typed(schema: Type, groups: &[Vec<Leaf>], compression: Compression) -> Vec<u8> {
    let properties =
        WriterProperties::builder().set_compression(compression).set_data_page_row_count_limit(7);
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build())).unwrap();
    for leaves in groups {
        let mut group = writer.next_row_group().unwrap();
        for leaf in leaves {
            let mut column = group.next_column().unwrap().unwrap();
            let bytes = |values: &[Vec<u8>]| -> Vec<ByteArray> {
                values.iter().cloned().map(ByteArray::from).collect()
            };
            let some =
                |levels: &'_ [i16]| -> Option<Vec<i16>> { (!levels.is_empty()).then(|| levels.to_vec()) };
            match (leaf, column.untyped()) {
                (Leaf::Bool(v, d), ColumnWriter::BoolColumnWriter(w)) => {
                    w.write_batch(v, some(d).as_deref(), None)
                }
                (Leaf::I32(v, d, r), ColumnWriter::Int32ColumnWriter(w)) => {
                    w.write_batch(v, some(d).as_deref(), some(r).as_deref())
                }
                (Leaf::I64(v, d), ColumnWriter::Int64ColumnWriter(w)) => {
                    w.write_batch(v, some(d).as_deref(), None)
                }
                (Leaf::F32(v, d, r), ColumnWriter::FloatColumnWriter(w)) => {
                    w.write_batch(v, some(d).as_deref(), some(r).as_deref())
                }
                (Leaf::F64(v, d), ColumnWriter::DoubleColumnWriter(w)) => {
                    w.write_batch(v, some(d).as_deref(), None)
                }
                (Leaf::Bytes(v, d), ColumnWriter::ByteArrayColumnWriter(w)) => {
                    w.write_batch(&bytes(v), some(d).as_deref(), None)
                }
                (Leaf::Fixed(v, d), ColumnWriter::FixedLenByteArrayColumnWriter(w)) => {
                    let values: Vec<FixedLenByteArray> =
                        bytes(v).into_iter().map(FixedLenByteArray::from).collect();
                    w.write_batch(&values, some(d).as_deref(), None)
                }
                (leaf, _) => panic!("{leaf:?}"),
            }
            .unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

pub(super) fn records(file: &[u8], form: RowForm, names: &[&str]) -> Result<Vec<Vec<u8>>, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, file).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut records = Vec::new();
    let packed = pack(&[path], form, &names, &mut |record| {
        records.push(record.to_vec());
        Ok(())
    });
    packed
        .map(|()| records)
        .map_err(|error| format!("{error:#}").replace(&folder.path().display().to_string(), ""))
}

pub(super) fn texts(file: &[u8], names: &[&str]) -> Vec<String> {
    let records = records(file, RowForm::Json, names).unwrap();
    records.into_iter().map(|record| String::from_utf8(record).unwrap()).collect()
}

const KINDS: &str = "message m {
    required boolean yes; optional int32 small; required int32 unsigned (UINT_8); required int64 long;
    required float single; optional double double; optional binary text (UTF8); required binary raw;
    required fixed_len_byte_array(2) pair; required int64 big (UINT_64); required int32 day (DATE);
    optional group deep { required int32 x; optional int32 y; }
}";

fn kinds() -> Vec<Leaf> {
    vec![
        Leaf::Bool(vec![true, false], vec![]),
        Leaf::I32(vec![-5], vec![1, 0], vec![]),
        Leaf::I32(vec![200, 7], vec![], vec![]),
        Leaf::I64(vec![i64::MIN, i64::MAX], vec![]),
        Leaf::F32(vec![0.1, -3e30], vec![], vec![]),
        Leaf::F64(vec![0.1], vec![0, 1]),
        Leaf::Bytes(vec!["say \"hä\"\n".into()], vec![1, 0]),
        Leaf::Bytes(vec![vec![0, 255], vec![]], vec![]),
        Leaf::Fixed(vec![vec![1, 2], vec![3, 4]], vec![]),
        Leaf::I64(vec![-1, 1], vec![]),
        Leaf::I32(vec![19_000, 0], vec![], vec![]),
        Leaf::I32(vec![1], vec![1, 0], vec![]),
        Leaf::I32(vec![2], vec![2, 0], vec![]),
    ]
}

#[test]
fn every_kind_of_value_has_its_json() {
    let expected = [
        r#"{"yes":true,"small":-5,"unsigned":200,"long":-9223372036854775808,"single":0.1,"double":null,"text":"say \"hä\"\n","raw":"AP8=","pair":"AQI=","big":18446744073709551615,"day":19000,"deep.x":1,"deep.y":2}"#,
        r#"{"yes":false,"small":null,"unsigned":7,"long":9223372036854775807,"single":-3e+30,"double":0.1,"text":null,"raw":"","pair":"AwQ=","big":1,"day":0,"deep.x":null,"deep.y":null}"#,
    ];
    for compression in [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(GzipLevel::default()),
        Compression::BROTLI(BrotliLevel::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
    ] {
        let file = write(KINDS, &[kinds(), kinds()], compression);
        assert_eq!(texts(&file, &[]), [expected, expected].concat(), "{compression}");
    }
    let file = write(KINDS, &[kinds()], Compression::UNCOMPRESSED);
    assert_eq!(
        texts(&file, &["deep.y", "yes"]),
        [r#"{"deep.y":2,"yes":true}"#, r#"{"deep.y":null,"yes":false}"#]
    );
}

#[test]
fn numbers_become_f32_in_the_order_asked_for() {
    let schema = "message m { required int32 a; required double b; required boolean c; }";
    let leaves = vec![
        Leaf::I32(vec![1, -2], vec![], vec![]),
        Leaf::F64(vec![0.1, f64::INFINITY], vec![]),
        Leaf::Bool(vec![true, false], vec![]),
    ];
    let file = write(schema, &[leaves], Compression::SNAPPY);
    let row = |numbers: [f32; 2]| numbers.map(f32::to_le_bytes).concat();
    assert_eq!(
        records(&file, RowForm::F32, &["b", "a"]).unwrap(),
        [row([0.1, 1.0]), row([f32::INFINITY, -2.0])]
    );
    assert_eq!(
        records(&file, RowForm::F32, &[]).unwrap()[0],
        [1.0_f32, 0.1, 1.0].map(f32::to_le_bytes).concat()
    );
}

const LIST: &str =
    "message m { optional group v (LIST) { repeated group list { optional float element; } } }";

#[test]
fn lists_are_arrays_and_flattened_numbers() {
    // [1, 2], null, [], [null, 3]
    let leaf = Leaf::F32(vec![1.0, 2.0, 3.0], vec![3, 3, 0, 1, 2, 3], vec![0, 1, 0, 0, 0, 1]);
    let file = write(LIST, &[vec![leaf]], Compression::SNAPPY);
    assert_eq!(
        texts(&file, &["v"]),
        [r#"{"v":[1.0,2.0]}"#, r#"{"v":null}"#, r#"{"v":[]}"#, r#"{"v":[null,3.0]}"#]
    );
    let even = Leaf::F32(vec![1.0, 2.0, 3.0, 4.0], vec![3; 4], vec![0, 1, 0, 1]);
    let file = write(LIST, &[vec![even.clone()]], Compression::SNAPPY);
    let expected = [[1.0_f32, 2.0], [3.0, 4.0]].map(|row| row.map(f32::to_le_bytes).concat());
    assert_eq!(records(&file, RowForm::F32, &[]).unwrap(), expected);
    let uneven = Leaf::F32(vec![1.0], vec![3], vec![0]);
    let error = records(&write(LIST, &[vec![even], vec![uneven]], Compression::SNAPPY), RowForm::F32, &[]);
    let error = error.unwrap_err();
    assert!(
        error.starts_with("/a.parquet: row group 1: row 0: column \"v\": has 1 numbers here and 2"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_said_is_refused_by_file_row_group_row_and_column() {
    let one = |schema: &str, leaf: Leaf| {
        write(&format!("message m {{ {schema} }}"), &[vec![leaf]], Compression::SNAPPY)
    };
    let null = one("optional int32 a;", Leaf::I32(vec![1], vec![1, 0], vec![]));
    let huge = one("required double a;", Leaf::F64(vec![1.0, 1e300], vec![]));
    let nan = one("required float a;", Leaf::F32(vec![1.0, f32::NAN], vec![], vec![]));
    for (file, form, needle) in [
        (null, RowForm::F32, "is null"),
        (huge, RowForm::F32, "1e300 is too large"),
        (nan, RowForm::Json, "is not finite"),
    ] {
        let error = records(&file, form, &[]).unwrap_err();
        assert!(error.starts_with("/a.parquet: row group 0: row 1: column \"a\": "), "{error}");
        assert!(error.contains(needle), "{error}");
    }
    let text = one("required binary a (UTF8);", Leaf::Bytes(vec![vec![0xff]], vec![]));
    let error = records(&text, RowForm::Json, &[]).unwrap_err();
    assert!(error.contains("rows 0 to 0, column \"a\": a text is not UTF-8"), "{error}");
    assert!(records(&text, RowForm::F32, &[]).unwrap_err().contains("column \"a\" holds no numbers"));
    assert!(records(&text, RowForm::Json, &["b"]).unwrap_err().contains("no column \"b\"; there are a"));
    let decimal = one("required int32 a (DECIMAL(9, 2));", Leaf::I32(vec![1], vec![], vec![]));
    assert!(records(&decimal, RowForm::Json, &[]).unwrap_err().contains("column \"a\": holds decimals"));
    let map =
        "optional group a (MAP) { repeated group key_value { required int32 key; optional int32 value; } }";
    let pair = || Leaf::I32(vec![1], vec![2], vec![0]);
    let map = write(
        &format!("message m {{ {map} }}"),
        &[vec![pair(), Leaf::I32(vec![1], vec![3], vec![0])]],
        Compression::SNAPPY,
    );
    let error = records(&map, RowForm::Json, &[]).unwrap_err();
    assert!(error.contains("--columns"), "{error}");
}

#[test]
fn a_file_cut_short_or_of_another_format_is_refused_and_an_empty_one_has_no_records() {
    let file = write(KINDS, &[kinds()], Compression::SNAPPY);
    for cut in 0..file.len() {
        let error = records(&file[..cut], RowForm::Json, &[]).unwrap_err();
        assert!(error.starts_with("/a.parquet: is not a Parquet file, or it is damaged"), "{error}");
    }
    assert!(records(&write(KINDS, &[], Compression::SNAPPY), RowForm::Json, &[]).unwrap().is_empty());
    let error = pack(&[PathBuf::from("/nowhere")], RowForm::Json, &[], &mut |_| Ok(())).unwrap_err();
    assert!(format!("{error:#}").starts_with("/nowhere: cannot be read"));
}

#[test]
fn a_damaged_byte_anywhere_ends_in_an_error_or_in_as_many_records() {
    let file = write(KINDS, &[kinds()], Compression::SNAPPY);
    let mut refused = 0;
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0xff;
        match records(&damaged, RowForm::Json, &[]) {
            Ok(read) => assert!(read.len() <= 2, "byte {at}"),
            Err(error) => {
                assert!(error.starts_with("/a.parquet"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > file.len() / 3, "{refused} of {}", file.len());
}

#[test]
fn many_rows_in_many_batches_keep_their_order() {
    let numbers: Vec<i64> = (0..5000).collect();
    let schema = "message m { required int64 a; required binary b; }";
    let group = |numbers: &[i64]| {
        vec![Leaf::I64(numbers.to_vec(), vec![]), Leaf::Bytes(vec![vec![7; 100]; numbers.len()], vec![])]
    };
    let file = write(schema, &[group(&numbers[..3000]), group(&numbers[3000..])], Compression::SNAPPY);
    let expected: Vec<String> = numbers.iter().map(|number| format!("{{\"a\":{number}}}")).collect();
    assert_eq!(texts(&file, &["a"]), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nullable_numbers_and_texts_make_the_round_trip(
        rows in proptest::collection::vec((any::<Option<f64>>(), any::<Option<String>>()), 0..60),
        split in 0..60_usize,
    ) {
        let rows: Vec<_> = rows.into_iter().map(|(n, t)| (n.filter(|n| n.is_finite()), t)).collect();
        let split = split.min(rows.len());
        let group = |rows: &[(Option<f64>, Option<String>)]| vec![
            Leaf::F64(rows.iter().filter_map(|row| row.0).collect(), rows.iter().map(|row| i16::from(row.0.is_some())).collect()),
            Leaf::Bytes(
                rows.iter().filter_map(|row| row.1.clone().map(String::into_bytes)).collect(),
                rows.iter().map(|row| i16::from(row.1.is_some())).collect(),
            ),
        ];
        let groups: Vec<Vec<Leaf>> =
            [&rows[..split], &rows[split..]].into_iter().filter(|rows| !rows.is_empty()).map(group).collect();
        let file = write("message m { optional double n; optional binary t (UTF8); }", &groups, Compression::SNAPPY);
        let read: Vec<(Option<f64>, Option<String>)> = texts(&file, &[])
            .iter()
            .map(|text| {
                let row: serde_json::Value = serde_json::from_str(text).unwrap();
                // serde_json itself reads numbers a little beside the nearest one.
                let number = text.strip_prefix("{\"n\":").unwrap().split_once(',').unwrap().0;
                (number.parse().ok(), row["t"].as_str().map(str::to_owned))
            })
            .collect();
        prop_assert_eq!(read, rows);
    }
}
