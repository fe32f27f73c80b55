//! Headers as `safetensors` writes them, and headers that nobody should.

use super::*;
use crate::cluster::Rule;
use crate::cluster::initial::Initial;
use crate::cluster::schedule::Schedule;
use proptest::prelude::*;
use safetensors::tensor::{TensorView, serialize};

fn parameter(name: &str, shape: &[u64], rule: Rule) -> Parameter {
    Parameter::new(name, shape, rule, Schedule::constant(0.1), Initial::Zeros)
}

fn declared(parameters: &[Parameter]) -> Declaration {
    Declaration { parameters: parameters.to_vec(), block_elements: 0 }
}

/// A file of one tensor, as the crate writes it.
fn file(name: &str, dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Vec<u8> {
    serialize([(name, TensorView::new(dtype, shape.to_vec(), bytes).unwrap())], None).unwrap()
}

/// The header of a file, read as by range.
fn header_of(file: &[u8]) -> Result<Header, Damage> {
    let end = header_end(&file[..file.len().min(8)], file.len() as u64)?;
    Header::parse(&file[..end as usize], file.len() as u64)
}

/// A file with this header and so many bytes of tensors.
fn forged(header: &str, data: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![0; data]].concat()
}

fn decoded(file: &[u8], parameter: &Parameter, first: u64, elements: usize) -> Vec<f32> {
    let at = header_of(file).unwrap().values_of(parameter).unwrap().unwrap();
    let range = at.range(first, elements as u64);
    let mut values = vec![7.0; elements];
    at.decode(&file[range.start as usize..range.end as usize], &mut values);
    values
}

#[test]
fn values_are_found_wherever_a_piece_begins() {
    let values: Vec<f32> = (0..6).map(|x| x as f32 / 3.0 - 1.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let (other, view) = ([1u8; 8], |shape, bytes| TensorView::new(Dtype::F32, shape, bytes).unwrap());
    let file = serialize([("a", view(vec![2], &other)), ("w", view(vec![2, 3], &bytes))], None).unwrap();
    let w = parameter("w", &[2, 3], Rule::Sgd);
    for first in 0..6 {
        for elements in 0..=6 - first {
            assert_eq!(decoded(&file, &w, first as u64, elements), values[first..first + elements]);
        }
    }
}

#[test]
fn every_half_precision_value_is_taken_exactly() {
    for bits in 0..=u16::MAX {
        // By the definition of the format.
        let (sign, exponent, fraction) = (bits >> 15, i32::from(bits >> 10 & 0x1f), f64::from(bits & 0x3ff));
        let size = match exponent {
            0 => fraction * libm::exp2(-24.0),
            31 if fraction == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1.0 + fraction / 1024.0) * libm::exp2(f64::from(exponent - 15)),
        };
        let (expected, found) = (if sign == 0 { size } else { -size }, f64::from(from_f16(bits)));
        assert!(
            expected == found || expected.is_nan() && found.is_nan(),
            "{bits:#06x}: {found}, not {expected}"
        );
    }
}

#[test]
fn bfloat_values_are_the_upper_halves_of_f32() {
    let upper = |value: f32| [value.to_le_bytes()[2], value.to_le_bytes()[3]];
    let values =
        [1.0, -2.5, 3e38f32, 1e-40, -0.0].map(|value: f32| f32::from_bits(value.to_bits() & 0xffff_0000));
    let bytes: Vec<u8> = values.iter().flat_map(|value| upper(*value)).collect();
    let found = decoded(&file("w", Dtype::BF16, &[5], &bytes), &parameter("w", &[5], Rule::Sgd), 0, 5);
    assert_eq!(found, values);
    assert_eq!(found[4].to_bits(), 0, "-0.0 becomes 0.0");
}

#[test]
fn what_cannot_be_taken_is_refused_with_parameter_and_way_out() {
    let header = header_of(&file("w", Dtype::F32, &[2, 3], &[0; 24])).unwrap();
    let refused = |parameter| header.check(&declared(&[parameter]), true).unwrap_err();
    let shape = refused(parameter("w", &[3, 2], Rule::Sgd));
    assert!(shape.contains("\"w\"") && shape.contains("[2, 3]") && shape.contains("[3, 2]"), "{shape}");
    assert!(shape.contains("declared shape"), "{shape}");
    let nothing = refused(parameter("v", &[2, 3], Rule::Sgd));
    assert!(
        nothing.contains("\"v\"") && nothing.contains("\"w\"") && nothing.contains("name its tensors"),
        "{nothing}"
    );
    for (dtype, bytes) in [(Dtype::F64, 48), (Dtype::I32, 24), (Dtype::F8_E4M3, 6), (Dtype::BOOL, 6)] {
        let header = header_of(&file("w", dtype, &[2, 3], &vec![0; bytes])).unwrap();
        let kind = header.check(&declared(&[parameter("w", &[2, 3], Rule::Sgd)]), true).unwrap_err();
        assert!(
            kind.contains("\"w\"") && kind.contains("F32, F16 and BF16") && kind.contains("convert"),
            "{kind}"
        );
    }
}

#[test]
fn a_parameter_that_is_not_there_is_no_fault_beside_one_that_is() {
    let header = header_of(&file("w", Dtype::F32, &[2], &[0; 8])).unwrap();
    let new = parameter("new", &[9], Rule::Sgd);
    assert_eq!(header.values_of(&new), Ok(None));
    let both = declared(&[new, parameter("w", &[2], Rule::Sgd)]);
    assert_eq!(header.check(&both, true), Ok(()));
    let why = header.check(&both, false).unwrap_err();
    assert!(why.contains("is not in it") && why.contains("whole model"), "nobody trains the rest: {why}");
    let whole = declared(&[parameter("w", &[2], Rule::Sgd), Parameter::sum("counts", &[2])]);
    assert_eq!(header.check(&whole, false), Ok(()), "counters never begin in a file");
}

#[test]
fn metrics_never_begin_in_a_file_and_running_statistics_do() {
    let header = header_of(&file("w", Dtype::F32, &[2], &[0; 8])).unwrap();
    // A metric's shape may differ from that of the job before.
    assert_eq!(header.values_of(&Parameter::sum("w", &[5])), Ok(None));
    assert!(header.check(&declared(&[Parameter::sum("w", &[2])]), true).is_err());
    assert!(header.values_of(&parameter("w", &[2], Rule::Ema { decay: 0.9 })).unwrap().is_some());
}

#[test]
fn hostile_headers_are_refused() {
    let tensor = |offsets: &str| format!(r#"{{"dtype":"F32","shape":[2],"data_offsets":{offsets}}}"#);
    let two = |a: &str, b: &str| forged(&format!(r#"{{"a":{},"b":{}}}"#, tensor(a), tensor(b)), 16);
    let one = |text: &str, data| forged(&format!(r#"{{"a":{text}}}"#), data);
    assert!(header_of(&two("[0,8]", "[8,16]")).is_ok(), "the frame of these forgeries is sound");
    let with_prefix = |bytes: u64| [&bytes.to_le_bytes()[..], b"{}"].concat();
    let hostile = [
        ("overlapping", two("[0,8]", "[4,12]")),
        ("the same twice", two("[0,8]", "[0,8]")),
        ("a hole", two("[0,8]", "[9,17]")),
        ("beyond the end", two("[0,8]", "[16,24]")),
        ("backwards", one(&tensor("[8,0]"), 8)),
        ("longer than its shape", one(&tensor("[0,12]"), 12)),
        ("the file is longer", one(&tensor("[0,8]"), 9)),
        ("the file is shorter", one(&tensor("[0,8]"), 7)),
        ("offsets that wrap", one(&tensor("[0,18446744073709551615]"), 8)),
        ("negative offsets", one(&tensor("[-8,0]"), 8)),
        (
            "a shape that wraps",
            one(r#"{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}"#, 0),
        ),
        ("an unknown kind", one(r#"{"dtype":"F31","shape":[2],"data_offsets":[0,8]}"#, 8)),
        ("a missing field", one(r#"{"dtype":"F32","shape":[2]}"#, 8)),
        ("a name twice", forged(&format!(r#"{{"a":{0},"a":{0}}}"#, tensor("[0,8]")), 16)),
        ("no object", forged("[]", 0)),
        ("no text", forged("\u{0}\u{0}", 0)),
        ("very deep", forged(&"[".repeat(100_000), 0)),
        ("text after it", forged("{}{}", 0)),
        ("a huge header", with_prefix(u64::MAX)),
        ("a header just too large", with_prefix(HEADER_BYTES_MAX + 1)),
        ("a header beyond the file", with_prefix(3)),
        ("nothing", Vec::new()),
        ("seven bytes", vec![0; 7]),
    ];
    for (what, file) in hostile {
        assert!(header_of(&file).is_err(), "{what}");
    }
}

#[test]
fn a_header_that_came_in_part_or_with_more_is_refused() {
    let file = file("w", Dtype::F32, &[2], &[0; 8]);
    let end = header_end(&file[..8], file.len() as u64).unwrap() as usize;
    for length in (0..file.len()).filter(|length| *length != end) {
        assert!(Header::parse(&file[..length], file.len() as u64).is_err(), "{length} of {end} bytes");
    }
}

proptest! {
    #[test]
    fn a_strangers_file_is_an_error_or_stays_within_its_bounds(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
        flips in proptest::collection::vec((0usize..200, any::<u8>()), 0..4), is_forged: bool
    ) {
        if is_forged {
            bytes = file("w", Dtype::F32, &[2, 3], &[0; 24]);
            for (at, byte) in flips {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
        }
        if let Ok(header) = header_of(&bytes)
            && let Ok(Some(values)) = header.values_of(&parameter("w", &[2, 3], Rule::Sgd))
        {
            prop_assert!(values.range(0, 6).end <= bytes.len() as u64);
        }
    }
}

/// A table of two numbers a row.
fn table(rule: Rule) -> Parameter {
    parameter("t", &[2], rule).as_table(crate::cluster::Table::default())
}

/// A file with these tensors.
fn with(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let bytes = [0; 64];
    let views = tensors.iter().map(|(name, kind, shape)| {
        let length = shape.iter().product::<usize>() * if *kind == Dtype::U64 { 8 } else { 4 };
        (*name, TensorView::new(*kind, shape.to_vec(), &bytes[..length]).unwrap())
    });
    serialize(views, None).unwrap()
}

#[test]
fn rows_are_found_with_their_keys() {
    let file = with(&[("a", Dtype::F32, &[3]), ("t", Dtype::F32, &[3, 2]), ("t.keys", Dtype::U64, &[3])]);
    let header = header_of(&file).unwrap();
    let at = header.rows_of(&table(Rule::Sgd)).unwrap().unwrap();
    let (keys, values) = (at.keys(1, 2), at.values.range(2, 4));
    assert_eq!((at.rows, keys.end - keys.start, values.end - values.start), (3, 16, 16));
    assert!(keys.end <= file.len() as u64 && values.end <= file.len() as u64);
    assert!(keys.end <= at.values.range(0, 6).start || at.keys(0, 3).start >= at.values.range(0, 6).end);
    assert_eq!(header.check(&declared(&[table(Rule::Sgd)]), true), Ok(()), "a table alone is enough");
    assert_eq!(header.rows_of(&table(Rule::Sum)), Ok(None), "it counts this job");
    assert_eq!(header.rows_of(&parameter("t", &[3, 2], Rule::Sgd)), Ok(None), "it is dense");
    assert_eq!(header.values_of(&table(Rule::Sgd)), Ok(None));
}

#[test]
fn rows_that_do_not_fit_are_refused_by_table() {
    let refusal = |tensors: &[(&str, Dtype, &[usize])]| {
        header_of(&with(tensors)).unwrap().rows_of(&table(Rule::Sgd)).unwrap_err()
    };
    let alone = refusal(&[("t", Dtype::F32, &[3, 2])]);
    assert!(alone.contains("\"t\" is there and \"t.keys\" is not"), "{alone}");
    let keys = refusal(&[("t.keys", Dtype::U64, &[3])]);
    assert!(keys.contains("\"t.keys\" is there and \"t\" is not"), "{keys}");
    let kind = refusal(&[("t", Dtype::F32, &[3, 2]), ("t.keys", Dtype::F32, &[3])]);
    assert!(kind.contains("keys are U64"), "{kind}");
    let shape = refusal(&[("t", Dtype::F32, &[3, 2]), ("t.keys", Dtype::U64, &[2])]);
    assert!(shape.contains("[3, 2] there, declared is [2, 2]"), "{shape}");
    let width = refusal(&[("t", Dtype::F32, &[3, 1]), ("t.keys", Dtype::U64, &[3])]);
    assert!(width.contains("declared is [3, 2]"), "{width}");
}
