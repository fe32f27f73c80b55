//! Tables written, and read again by the library's own reader.

use super::*;
use bytes::Bytes;
use parquet::basic::{ConvertedType, LogicalType};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{ListAccessor, Row as Record, RowAccessor};
use proptest::prelude::*;
use shoal_runner::table_state::samples::{state, table};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Rule, Schedule, Table};
use std::collections::BTreeSet;

fn reader(file: &[u8]) -> SerializedFileReader<Bytes> {
    SerializedFileReader::new(Bytes::copy_from_slice(file)).unwrap()
}

fn records(file: &[u8]) -> Vec<Record> {
    reader(file).get_row_iter(None).unwrap().map(Result::unwrap).collect()
}

fn list(record: &Record, column: usize) -> Vec<f32> {
    let list = record.get_list(column).unwrap();
    (0..list.len()).map(|at| list.get_float(at).unwrap()).collect()
}

/// Keys and embeddings, in the file's order.
pub(crate) fn rows_in(file: &[u8]) -> Vec<(u64, Vec<f32>)> {
    records(file).iter().map(|record| (record.get_ulong(0).unwrap(), list(record, 1))).collect()
}

/// A file of these buckets, as a library may read it.
pub(crate) fn written(table: &Parameter, buckets: Vec<TableState>, with_state: bool) -> Vec<u8> {
    let mut writer = TableWriter::begin(Vec::new(), table, with_state, 12).unwrap();
    let rows: usize = buckets.iter().map(TableState::row_count).sum();
    buckets.into_iter().for_each(|bucket| writer.add(bucket).unwrap());
    let (file, counted) = writer.finish().unwrap();
    assert_eq!(counted, rows as u64);
    file
}

/// The names of its columns.
pub(crate) fn names(file: &[u8]) -> Vec<String> {
    let fields = reader(file).metadata().file_metadata().schema().get_fields().to_vec();
    fields.iter().map(|field| field.name().to_owned()).collect()
}

#[test]
fn rows_come_bucket_by_bucket_in_key_order_wherever_they_lay() {
    let file = written(&table(), vec![state(&[&[9, u64::MAX], &[5]]), state(&[]), state(&[&[2]])], false);
    let expected = [5, 9, u64::MAX, 2].map(|key| (key, vec![key as f32, 1.0]));
    assert_eq!(rows_in(&file), expected);
    assert_eq!(names(&file), ["key", "embedding"]);
    let other = written(&table(), vec![state(&[&[u64::MAX, 5, 9]]), state(&[]), state(&[&[2]])], false);
    assert_eq!(file, other, "equal rows make equal files");
}

#[test]
fn keys_are_unsigned_lists_are_lists_and_the_metadata_say_what_it_is() {
    let file = written(&table(), vec![state(&[&[5]])], true);
    let reader = reader(&file);
    let metadata = reader.metadata().file_metadata();
    let types = metadata.schema().get_fields().iter().map(|field| field.get_basic_info().clone());
    let [key, embedding, slot, last, occurrences] = types.collect::<Vec<_>>().try_into().unwrap();
    let unsigned = |bit_width| Some(LogicalType::integer(bit_width, false));
    assert_eq!(key.logical_type_ref().cloned(), unsigned(64));
    assert_eq!(
        [last, occurrences].map(|info| info.logical_type_ref().cloned()),
        [unsigned(32), unsigned(32)]
    );
    assert_eq!([embedding, slot].map(|info| info.converted_type()), [ConvertedType::LIST; 2]);
    let said = metadata.key_value_metadata().unwrap().iter();
    let said: Vec<_> = said.map(|pair| (pair.key.as_str(), pair.value.as_deref().unwrap())).collect();
    assert_eq!(said, [("format", "shoal"), ("version", "12"), ("table", "t")]);
}

#[test]
fn state_comes_as_columns_named_as_the_rule_names_its_slots() {
    let file = written(&table(), vec![state(&[&[9, 5]])], true);
    assert_eq!(names(&file), ["key", "embedding", "summed_squares", "last_update", "occurrences"]);
    let counts = |record: &Record| (record.get_uint(3).unwrap(), record.get_uint(4).unwrap());
    let rows: Vec<_> = records(&file).iter().map(|row| (list(row, 1), list(row, 2), counts(row))).collect();
    let row = |key| (vec![key, 1.0], vec![0.5, 0.25], (3, 4));
    assert_eq!(rows, [row(5.0), row(9.0)]);
}

#[test]
fn slots_have_the_width_that_the_rule_gives_them() {
    let table = |rule| {
        let row = Parameter::new("t", &[3], rule, Schedule::constant(0.1), Initial::Zeros);
        row.as_table(Table::default())
    };
    let rowwise = table(Rule::RowwiseAdagrad { epsilon: 1e-8 });
    // Three elements and one sum, which is as wide as the rows of `state`.
    let file = written(&rowwise, vec![state(&[&[7]])], true);
    let [row] = &records(&file)[..] else { panic!("one row") };
    assert_eq!((list(row, 1), list(row, 2)), (vec![7.0, 1.0, 0.5], vec![0.25]));
    let adam = table(Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 });
    let ranges = stretches(&adam, true).into_iter().map(|stretch| (stretch.slot, stretch.range));
    let expected = [(None, 0..3), (Some("first_moment"), 3..6), (Some("second_moment"), 6..9)];
    assert_eq!(ranges.collect::<Vec<_>>(), expected);
    assert_eq!(stretches(&adam, false).len(), 1);
}

#[test]
fn small_buckets_share_a_row_group_and_an_empty_table_is_a_file_without_any() {
    let many: Vec<u64> = (0..GROUP_ROWS as u64 - 1).collect();
    let buckets: [&[u64]; 4] = [&many, &[3, 1], &[8], &[6]];
    let file = written(&table(), buckets.map(|keys| state(&[keys])).into(), false);
    let groups: Vec<i64> =
        reader(&file).metadata().row_groups().iter().map(|group| group.num_rows()).collect();
    assert_eq!(groups, [GROUP_ROWS as i64 + 1, 2]);
    let keys: Vec<u64> = rows_in(&file).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&many[..], &[1, 3, 8, 6]].concat());
    let empty = written(&table(), vec![state(&[])], true);
    assert_eq!((rows_in(&empty).len(), reader(&empty).num_row_groups()), (0, 0));
}

proptest! {
    #[test]
    fn whatever_a_table_is_called_its_columns_are_told_apart(
        name in "(key|embedding|occurrences|last|__metadata__|\\PC{1,20})(\\.(key|first_moment|\\PC{1,3})){0,2}", with_state in any::<bool>()
    ) {
        for rule in [Rule::Sgd, Rule::Momentum { momentum: 0.5 }, Rule::ADAM, Rule::AMSGRAD, Rule::RowwiseAdagrad { epsilon: 1e-8 }] {
            let one = Parameter::new(&name, &[2], rule, Schedule::constant(0.1), Initial::Zeros);
            let table = one.as_table(Table { buckets: 1, ..Table::default() });
            let columns = names(&written(&table, vec![TableState::new(&table)], with_state));
            let named: BTreeSet<&String> = columns.iter().collect();
            let state = if with_state { table.rule.slots().len() + 2 } else { 0 };
            prop_assert_eq!((named.len(), columns.len()), (2 + state, 2 + state), "{:?}", columns);
        }
    }
}

#[test]
fn what_is_no_table_is_refused_with_those_that_there_are() {
    let dense = Parameter::new("w", &[3], Rule::Sgd, Schedule::constant(0.1), Initial::Zeros);
    let refused = |parameters: &[&Parameter], name| {
        let parameters = parameters.iter().copied().cloned().collect();
        find(&Declaration { parameters, block_elements: 0 }, name).unwrap_err().to_string()
    };
    assert!(
        refused(&[&dense, &table()], "w").ends_with("is exported without --table; the job's tables are: t")
    );
    assert!(refused(&[&dense, &table()], "x").ends_with("no table \"x\"; the job's tables are: t"));
    assert!(refused(&[&dense], "x").ends_with("the job has no tables"));
}
