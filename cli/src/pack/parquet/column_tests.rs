//! Which columns are packed, under which names, and what is refused as one.

use std::path::PathBuf;
use std::sync::Arc;

use parquet::basic::{Compression, Repetition, Type as Physical};
use parquet::schema::types::Type;

use super::tests::{Leaf, records, texts, write, write_typed};
use super::*;

const NESTED: &str = "message m {
    optional group groups (LIST) { repeated group list { optional group element { optional int32 a; } } }
    optional group tuples (LIST) { repeated group tuples_tuple { required int32 a; } }
    optional group arrays (LIST) { repeated group array { required int32 a; } }
    optional group lists (LIST) { repeated group list { optional group element (LIST) { repeated group list { required int32 a; } } } }
    optional group bare (LIST) { repeated group list { repeated int32 a; } }
    optional group map (MAP) { repeated group key_value { required int32 key; } }
    repeated group repeated { required int32 a; }
    repeated int32 plain; required group deep { optional group old (LIST) { repeated int32 element; } }
}";

#[test]
fn lists_are_told_from_lists_of_anything_else_as_the_format_has_it() {
    let leaf = |depth: i16| Leaf::I32(vec![5], vec![depth], vec![0]);
    let file = write(NESTED, &[[4, 2, 2, 4, 3, 2, 1, 1, 2].map(leaf).to_vec()], Compression::SNAPPY);
    for (name, what) in [
        ("groups", "a list of groups"),
        ("tuples", "a list of groups"),
        ("arrays", "a list of groups"),
        ("lists", "a list of lists"),
        ("bare", "a list of lists"),
        ("map", "a map"),
        ("repeated", "a list of groups"),
    ] {
        let error = records(&file, RowForm::Json, &[name]).unwrap_err();
        assert!(error.contains(&format!("column {name:?} holds {what}: name the columns")), "{error}");
    }
    assert!(
        records(&file, RowForm::F32, &[]).unwrap_err().contains("column \"groups\" holds a list of groups")
    );
    assert_eq!(texts(&file, &["deep.old", "plain"]), [r#"{"deep.old":[5],"plain":[5]}"#]);
}

#[test]
fn columns_of_any_name_are_packed_and_two_of_one_name_are_refused() {
    let named = |names: &[&str], group: &str| {
        let fields = names.iter().map(|name| {
            let physical = Physical::INT32;
            let field = Type::primitive_type_builder(name, physical).with_repetition(Repetition::REQUIRED);
            Arc::new(field.build().unwrap())
        });
        let inner = Type::primitive_type_builder("b", Physical::INT32).with_repetition(Repetition::REQUIRED);
        let inner = Type::group_type_builder(group).with_fields(vec![Arc::new(inner.build().unwrap())]);
        let inner = inner.with_repetition(Repetition::REQUIRED).build().unwrap();
        let fields = fields.chain([Arc::new(inner)]).collect();
        let schema = Type::group_type_builder("m").with_fields(fields).build().unwrap();
        let leaves = (0..=names.len() as i32).map(|value| Leaf::I32(vec![value], vec![], vec![])).collect();
        write_typed(schema, &[leaves], Compression::SNAPPY)
    };
    let odd = ["price, usd", "say \"x\"", "", "c.d", " "];
    assert_eq!(
        texts(&named(&odd, "a"), &["", "say \"x\"", "a.b", "price, usd", "c.d"]),
        [r#"{"":2,"say \"x\"":1,"a.b":5,"price, usd":0,"c.d":3}"#]
    );
    let error = records(&named(&odd, "a"), RowForm::Json, &["price"]).unwrap_err();
    assert!(error.ends_with(r#"there are "price, usd","say ""x""","",c.d, ,a.b"#), "{error}");
    for (names, twice) in [(["a", "a"], "a"), (["a.b", "c"], "a.b")] {
        let file = named(&names, "a");
        let error = records(&file, RowForm::F32, &[]).unwrap_err();
        assert!(error.contains(&format!("there are 2 columns {twice:?}")), "{error}");
    }
    // The group `a` has a leaf, whatever else is called so.
    assert_eq!(texts(&named(&["a", "c"], "a"), &["a.b", "a"]), [r#"{"a.b":2,"a":0}"#]);
    let error = records(&named(&["a"], "g"), RowForm::Json, &["a", "a"]).unwrap_err();
    assert!(error.contains("column \"a\" is named twice"), "{error}");
}

#[test]
fn files_after_the_first_have_its_columns_in_its_order_whatever_theirs() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, schema: &str, values: &[i32]| {
        let leaves = values.iter().map(|value| Leaf::I32(vec![*value], vec![], vec![])).collect();
        let path = folder.path().join(name);
        std::fs::write(&path, write(&format!("message m {{ {schema} }}"), &[leaves], Compression::SNAPPY))
            .unwrap();
        path
    };
    let [a, b, c] = ["required int32 a; ", "required int32 b; ", "required int32 c; "];
    let (ab, ba) = (file("ab", &[a, b].concat(), &[1, 2]), file("ba", &[b, a].concat(), &[20, 10]));
    let (abc, only) = (file("abc", &[a, b, c].concat(), &[1, 2, 3]), file("only", a, &[1]));
    let packed = |files: &[&PathBuf], form, names: &[&str]| {
        let mut records = Vec::new();
        let files: Vec<PathBuf> = files.iter().map(|file| (*file).clone()).collect();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let packed = pack(&files, form, &names, &mut |record| {
            records.push(record.to_vec());
            Ok(())
        });
        packed.map(|()| records).map_err(|error| format!("{error:#}"))
    };
    let numbers = |numbers: [f32; 2]| numbers.map(f32::to_le_bytes).concat();
    assert_eq!(packed(&[&ab, &ba], RowForm::F32, &[]).unwrap(), [numbers([1., 2.]), numbers([10., 20.])]);
    assert_eq!(
        packed(&[&ba, &abc], RowForm::F32, &["b", "a"]).unwrap(),
        [numbers([20., 10.]), numbers([2., 1.])]
    );
    for more in [&abc, &only] {
        let error = packed(&[&ab, more], RowForm::Json, &[]).unwrap_err();
        assert!(error.contains("name them with --columns"), "{error}");
    }
}

#[test]
fn a_text_that_a_dictionary_holds_once_is_held_once() {
    let leaf = Leaf::Bytes(vec![b"long".to_vec(); 3], vec![]);
    let file = write("message m { required binary a (UTF8); }", &[vec![leaf]], Compression::SNAPPY);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    std::fs::write(&path, file).unwrap();
    let reader = open(&path).unwrap();
    let columns = columns::choose(reader.metadata().file_metadata().schema_descr(), &[]).unwrap();
    let mut leaf = reader.get_row_group(0).unwrap().get_column_reader(0).unwrap();
    let values = columns[0].read(&mut leaf, 3).unwrap();
    let at = values.iter().map(|value| match value {
        Value::Text(text) => text.data().as_ptr(),
        other => panic!("{other:?}"),
    });
    assert!(at.collect::<Vec<_>>().windows(2).all(|pair| pair[0] == pair[1]));
}
