//! What a bucket does not take, and what a frozen one does not have.

use super::*;
use bytes::Bytes;
use shoal_runtime::cluster::block_copy::Segment;

fn filled(keys: &[u64]) -> (BucketShape, Bucket) {
    let shape = shape(Table { buckets: 1, ..Table::default() });
    let mut bucket = Bucket::new(&shape);
    let sums = rows(1, keys);
    let plan = bucket.plan(&shape, &sums, &pass(1));
    bucket.apply(&shape, sums, &plan, pass(1));
    (shape, bucket)
}

#[test]
fn an_entry_of_another_state_is_refused_by_name() {
    let (shape, bucket) = filled(&[3, 5, 8]);
    let sums = rows(2, &[5, 9]);
    let sound = Plan { places: vec![RowPlace::At(1), RowPlace::Born(3)], ..Plan::default() };
    assert_eq!(bucket.check(&shape, &sums, &sound), Ok(()));
    let fault = |plan: Plan| bucket.check(&shape, &sums, &plan).unwrap_err();
    let places = |places: &[RowPlace]| Plan { places: places.to_vec(), ..Plan::default() };
    assert!(fault(places(&[RowPlace::At(0), RowPlace::Born(3)])).contains("key 5 is At(0)"));
    assert!(fault(places(&[RowPlace::Unborn, RowPlace::Born(3)])).contains("key 5"));
    assert!(
        fault(places(&[RowPlace::At(1), RowPlace::Born(4)])).contains("key 9"),
        "not the lowest free slot"
    );
    assert!(fault(places(&[RowPlace::At(1), RowPlace::At(2)])).contains("key 9"));
    assert!(fault(places(&[RowPlace::At(1)])).contains("another sum"));
    let evicting = |key, slot| Plan { evicted: vec![(key, slot)], ..sound.clone() };
    assert_eq!(bucket.check(&shape, &sums, &evicting(8, 2)), Ok(()));
    assert!(fault(evicting(8, 0)).contains("key 8 in slot 0"));
    assert!(fault(evicting(5, 1)).contains("key 5"), "it occurs");
    let table = parameter().as_table(Table { buckets: 1 << 20, ..Table::default() });
    let stranger = BucketShape::new(7, &table, 3).unwrap();
    assert!(bucket.check(&stranger, &sums, &sound).is_err());
}

fn parameter() -> Parameter {
    Parameter::new("t", &[DIMENSION as u64], RULE, Schedule::constant(0.1), Initial::Zeros)
}

#[test]
fn a_segment_of_another_bucket_is_refused_and_changes_nothing() {
    let (shape, bucket) = filled(&[3, 5, 8]);
    let whole = bucket.segment(&shape, head(), 0, usize::MAX, 9);
    assert!(Bucket::begin(&shape, &whole).unwrap().is_whole());
    let fault = |copy: BlockCopy| Bucket::begin(&shape, &copy).unwrap_err();
    let segment = |slots, candidates| {
        let segment = Some(Segment { slots, candidates, freed: None });
        BlockCopy { segment, ..whole.clone() }
    };
    let candidates = whole.segment.as_ref().unwrap().candidates.clone();
    let row = whole.parameters.len() / 3;
    let changed = |at: usize, byte: u8| {
        let mut rows = whole.parameters.to_vec();
        rows[at] = byte;
        BlockCopy { parameters: rows.into(), ..whole.clone() }
    };
    assert!(
        fault(BlockCopy { parameters: whole.parameters.slice(1..), ..whole.clone() })
            .contains("bytes of rows")
    );
    assert!(fault(segment(0..WHOLE, Bytes::from_static(&[7]))).contains("occurred"));
    assert!(
        fault(BlockCopy { earlier: vec![Bytes::from_static(&[1])], ..whole.clone() }).contains("earlier")
    );
    assert!(fault(segment(1..9, candidates)).contains("slots 1..9"));
    assert!(fault(changed(row, 0)).contains("slot 0"), "not ascending");
    assert!(fault(changed(2 * row + 3, 0xff)).contains("a row in slot"), "memory that nobody has");
    let half = bucket.segment(&shape, head(), 0, row, 9);
    assert_eq!((half.segment.as_ref().unwrap().slots.clone(), half.parameters.len()), (0..1, row));
    let mut partial = Bucket::begin(&shape, &half).unwrap();
    let next = bucket.segment(&shape, head(), 1, row, 9);
    let mut twice = next.parameters.to_vec();
    twice[4] = 3;
    assert!(partial.fill(&shape, &BlockCopy { parameters: twice.into(), ..next.clone() }).is_err());
    assert_eq!((partial.filled(), partial.rows().len()), (1, 1));
    partial.fill(&shape, &next).unwrap();
    assert!(partial.fill(&shape, &next).is_err(), "it was taken in");
}

#[test]
fn a_frozen_table_has_no_rows() {
    let parameter = parameter().in_group(shoal_runtime::cluster::Group::FROZEN);
    let table = Table { buckets: 1, admission: 2, ..Table::default() };
    let shape = BucketShape::new(7, &parameter.as_table(table), 0).unwrap();
    let mut bucket = Bucket::new(&shape);
    for update in 1..4 {
        let sums = rows(update, &[1, 1, 2]);
        let plan = bucket.plan(&shape, &sums, &pass(update));
        bucket.apply(&shape, sums, &plan, pass(update));
    }
    assert!(bucket.rows().is_empty() && bucket.candidates == Candidates::default());
}
