//! A bucket among its copies: filled by segments while updates go on, promoted, read, given to a checkpoint piece by piece.

use super::*;
use crate::block::primary::PlacedCopy;
use crate::bucket::Bucket;
use shoal_runtime::cluster::block_copy::decode_rows;
use shoal_runtime::cluster::table::{Ceiling, Full};
use shoal_runtime::cluster::{CheckpointId, Fill, Rows, Table};
use shoal_runtime::wire::rows;

const OTHER: Incarnation = Incarnation(2);
const DIMENSION: usize = 2048;
/// So many rows of 16 KiB, slots included, that a copy has several segments.
const KEYS: u64 = 300;

/// One bucket of long rows.
fn table() -> Declaration {
    let rule = Rule::Adagrad { epsilon: 1e-3 };
    let row = Parameter::new("t", &[DIMENSION as u64], rule, Schedule::constant(0.1), Initial::Zeros);
    let table = Table { buckets: 1, age_max: Some(40), ..Table::default() };
    Declaration { parameters: vec![row.as_table(table)], block_elements: 0 }
}

fn placement(term: u64, primary: Incarnation, copies: &[(Incarnation, bool)]) -> Placement {
    let copies = copies.iter().map(|(pserver, is_in_sync)| PlacedCopy {
        pserver: *pserver,
        fill: Fill(2),
        is_in_sync: *is_in_sync,
    });
    Placement { term: Term(term), primary, copies: copies.collect(), fill: Fill(2), ..alone(1) }
}

fn block(placement: Placement, me: Incarnation) -> Block {
    let declaration = table();
    let terms = Arc::new(BlockSettings::new(&job(200, 2), 16));
    Block::new(shape_of(&declaration, BlockId(0)), terms, placement, me)
}

/// A step's whole sum over some keys.
fn step(block: &mut Block, step: u64, keys: impl IntoIterator<Item = u64>) -> PushOutcome {
    let mut rows = Rows::zeros(DIMENSION, keys);
    rows.values_mut()
        .iter_mut()
        .enumerate()
        .for_each(|(at, value)| *value = libm::sinf((at as u64 + step) as f32));
    let node = Node { level: 1, index: 0 };
    let arriving = NodeGradient { step: Step(step), node, weight: 2, gradient: Gradient::Rows(rows.clone()) };
    block.push(Rewind(1), arriving).unwrap()
}

/// The follower asks once and is told.
fn follow(leader: &mut Block, follower: &mut Block) -> News {
    let (fill, term, cursor) = follower.cursor().unwrap();
    let news = leader.follow(OTHER, fill, term, cursor, usize::MAX);
    follower.hear(fill, term, leader.published(), news.clone()).unwrap();
    news
}

/// All rows of a block's newest state, wherever they lie: (key, last, occurrences, values).
fn content(block: &Block) -> Vec<(u64, u32, u32, Vec<[u8; 4]>)> {
    let state = block.state.as_ref().unwrap();
    let (mut from, mut content) = (0, Vec::new());
    while from != u32::MAX {
        let copy = state.copy(&block.shape, block.copy_of(0, from)).unwrap();
        let rows = decode_rows(&copy.parameters, 2 * DIMENSION).unwrap();
        content.extend(rows.map(|row| (row.key, row.last, row.occurrences, row.values.to_vec())));
        from = copy.segment.unwrap().slots.end;
    }
    content.sort_unstable_by_key(|row| row.0);
    content
}

/// A leader with rows, and a follower that has nothing.
fn pair() -> (Block, Block) {
    let copies = [(OTHER, false)];
    let mut leader = block(placement(1, ME, &copies), ME);
    leader.restore_initial(Term(1));
    let follower = block(placement(1, ME, &copies), OTHER);
    assert!(matches!(step(&mut leader, 0, 0..KEYS), PushOutcome::Applied { is_published: true, .. }));
    (leader, follower)
}

#[test]
fn a_bucket_is_filled_by_segments_while_updates_go_on_and_is_admitted_once_it_is_whole() {
    let (mut leader, mut follower) = pair();
    let (mut segments, mut at) = (0, 1);
    while follower.state.as_ref().is_none_or(|state| state.filled().is_some()) {
        assert_eq!(leader.ask_for(), [], "a part of the rows is no copy");
        let news = follow(&mut leader, &mut follower);
        assert!(matches!(news, News::Copy(_)), "{news:?}");
        segments += 1;
        // New keys, known ones on both sides of what is filled; the oldest go.
        if segments % 2 == 0 {
            let outcome = step(&mut leader, at, [at, KEYS / 2, KEYS - 1, 10 * KEYS + at]);
            assert!(matches!(outcome, PushOutcome::Applied { is_published: false, .. }), "it is waited for");
            assert!(matches!(follow(&mut leader, &mut follower), News::Entry(_)));
            at += 1;
        }
    }
    assert!(segments > 3 && at > 2, "{segments} segments, {at} steps");
    assert_eq!(follow(&mut leader, &mut follower), News::Nothing);
    assert_eq!(leader.ask_for(), [(OTHER, Fill(2))]);
    assert_eq!(content(&follower), content(&leader));
    // Promoted, it goes on to the same bits.
    follower.place(placement(9, OTHER, &[]), OTHER);
    let alone = [(OTHER, false); 0];
    leader.place(placement(1, ME, &alone), ME);
    for at in at..50 {
        let keys = || [at % 7, KEYS - 1];
        assert!(matches!(step(&mut leader, at, keys()), PushOutcome::Applied { .. }));
        assert!(matches!(step(&mut follower, at, keys()), PushOutcome::Applied { .. }));
    }
    assert_eq!(content(&follower), content(&leader));
    assert!(content(&leader).len() < 20, "what has not occurred for long is gone");
}

#[test]
fn a_follower_that_fell_behind_while_it_was_filled_begins_again() {
    let (mut leader, mut follower) = pair();
    follow(&mut leader, &mut follower);
    // It has heard of nothing since its first segment, so that nobody waits for it.
    for at in 1..12 {
        assert!(matches!(step(&mut leader, at, [at]), PushOutcome::Applied { is_published: true, .. }));
    }
    let News::Copy(copy) = follow(&mut leader, &mut follower) else { panic!("the entries are gone") };
    assert_eq!((copy.segment.unwrap().slots.start, copy.name.version), (0, Version(12)));
    while follow(&mut leader, &mut follower) != News::Nothing {}
    assert_eq!(content(&follower), content(&leader));
}

/// Seed 667: it was in-sync, and would have been promoted with a part of the rows.
#[test]
fn a_whole_copy_never_becomes_a_part_of_another_state_under_its_fill() {
    let (mut leader, mut follower) = pair();
    while follow(&mut leader, &mut follower) != News::Nothing {}
    let (fill, term, whole) = (Fill(2), Term(1), content(&follower));
    step(&mut leader, 1, 0..3);
    // As a primary has it that was promoted with a later state, and without entries.
    let News::Copy(copy) = leader.follow(OTHER, fill, term, None, usize::MAX) else { panic!("a state") };
    assert!(copy.segment.as_ref().unwrap().slots.end != u32::MAX);
    follower.hear(fill, term, leader.published(), News::Copy(copy)).unwrap();
    assert!(matches!(follower.standing(), Standing::Follower { name: Some(_), is_broken: true, .. }));
    assert_eq!(
        (content(&follower), follower.cursor()),
        (whole, None),
        "to be filled anew, and sound until then"
    );
}

#[test]
fn a_piece_of_a_checkpoint_is_the_version_that_was_named_whatever_updates_do_meanwhile() {
    let (mut leader, _) = pair();
    leader.place(placement(1, ME, &[]), ME);
    let expected = content(&leader);
    leader.name_checkpoint(Some(NamedCheckpoint {
        checkpoint: CheckpointId(1),
        version: Some(Version(1)),
        since: None,
        named_at: 1,
    }));
    let (shape, mut state) = (Arc::clone(&leader.shape), None::<State>);
    let mut at = 1;
    while let Some(piece) = leader.give_piece(CheckpointId(1)) {
        assert_eq!(piece.copy.name.version, Version(1));
        match &mut state {
            None => state = Some(State::from_copy(&shape, &piece.copy).unwrap()),
            Some(state) => state.fill(&shape, &piece.copy).unwrap(),
        }
        for _ in 0..2 {
            assert!(matches!(
                step(&mut leader, at, [at, KEYS - at, 10 * KEYS + at]),
                PushOutcome::Applied { .. }
            ));
            at += 1;
        }
    }
    let mut restored = block(Placement { rewind: Rewind(7), ..placement(7, ME, &[]) }, ME);
    restored.restore(Term(7), state.unwrap());
    assert_eq!((restored.version(), content(&restored)), (Some(Version(1)), expected));
}

#[test]
fn updates_wait_where_a_piece_would_hold_more_rows_than_it_may() {
    let declaration = table();
    let budget = memory::Budget::of(200_000);
    let terms = Arc::new(BlockSettings::new(&job(200, 2), 16).with_budget(Arc::clone(&budget)));
    let mut leader = Block::new(shape_of(&declaration, BlockId(0)), terms, alone(1), ME);
    leader.restore_initial(Term(1));
    step(&mut leader, 0, 0..KEYS);
    leader.name_checkpoint(Some(NamedCheckpoint {
        checkpoint: CheckpointId(1),
        version: Some(Version(1)),
        since: None,
        named_at: 1,
    }));
    // Rows of 16 KiB: ten may be saved, twenty may not.
    assert!(matches!(step(&mut leader, 1, 0..10), PushOutcome::Applied { .. }));
    assert_eq!(step(&mut leader, 2, 20..30), PushOutcome::Throttled);
    assert!((160_000..200_000).contains(&budget.peak()), "{}", budget.peak());
    while leader.give_piece(CheckpointId(1)).is_some() {}
    assert!(matches!(step(&mut leader, 2, 20..30), PushOutcome::Applied { .. }));
}

#[test]
fn rows_that_an_update_evicts_are_charged_before_they_are_saved() {
    let evicting = |memory: u64| {
        let full = Full::Evict { half_life: 3 };
        let mut declaration = table();
        declaration.parameters[0].table.as_mut().unwrap().ceiling = Some(Ceiling { rows: KEYS as u32, full });
        let budget = memory::Budget::of(memory);
        let terms = Arc::new(BlockSettings::new(&job(200, 2), 16).with_budget(Arc::clone(&budget)));
        let mut leader = Block::new(shape_of(&declaration, BlockId(0)), terms, alone(1), ME);
        leader.restore_initial(Term(1));
        step(&mut leader, 0, 0..KEYS);
        let (checkpoint, version) = (CheckpointId(1), Some(Version(1)));
        let named = NamedCheckpoint { checkpoint, version, since: None, named_at: 1 };
        leader.name_checkpoint(Some(named));
        let keys = (0..5).map(|key| 10 * KEYS + key);
        (step(&mut leader, 1, keys), budget.peak())
    };
    // Rows of 16 KiB: for five that are born a sixteenth of all go, eighteen.
    let (outcome, peak) = evicting(500_000);
    assert!(matches!(outcome, PushOutcome::Applied { .. }) && (290_000..500_000).contains(&peak), "{peak}");
    assert_eq!(evicting(250_000), (PushOutcome::Throttled, 0));
}

#[test]
fn rows_are_read_at_the_version_that_is_asked_for_and_the_unborn_have_none() {
    let (mut leader, _) = pair();
    let read = |block: &Block, step: u64| match block.read(Rewind(1), Step(step), &[3, 5, 10 * KEYS + 1]) {
        Reading::Parameters(bytes, version) if version == Version(step) => bytes,
        other => panic!("{other:?}"),
    };
    let before = read(&leader, 1);
    assert_eq!((before[0], before.len()), (0b011, 1 + 2 * 4 * DIMENSION));
    step(&mut leader, 1, [3, 10 * KEYS + 1]);
    assert_eq!(read(&leader, 1), before, "a version that is still kept");
    let after = read(&leader, 2);
    assert_eq!((after[0], after.len()), (0b111, 1 + 3 * 4 * DIMENSION));
    let row = |bytes: &Bytes, at: usize| bytes.slice(1 + at * 4 * DIMENSION..1 + (at + 1) * 4 * DIMENSION);
    assert!(row(&after, 0) != row(&before, 0) && row(&after, 1) == row(&before, 1));
}

#[test]
fn results_that_differ_in_their_rows_are_told_by_key() {
    let (mut leader, _) = pair();
    let mut came = Rows::zeros(DIMENSION, [3, 4]);
    let leaf = |came: &Rows| {
        let bytes = || {
            let mut bytes = Vec::new();
            rows::encode(came, &mut bytes);
            bytes
        };
        rows::decode(&bytes(), DIMENSION).unwrap()
    };
    let mut push = |rows: &Rows| {
        let rows = leaf(rows);
        let arriving = NodeGradient {
            step: Step(1),
            node: Node::leaf(0),
            weight: 1,
            gradient: Gradient::Rows(rows.clone()),
        };
        leader.push(Rewind(1), arriving)
    };
    assert!(matches!(push(&came), Ok(PushOutcome::Held { .. })));
    assert_eq!(push(&came), Ok(PushOutcome::Covered));
    came.values_mut()[DIMENSION] = 1.0;
    let refusal = push(&came).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::Nondeterministic);
    assert!(refusal.to_string().contains("element 0 of key 4 is 0e0"), "{refusal}");
    let refusal = push(&Rows::zeros(DIMENSION, [3])).unwrap_err();
    assert!(refusal.to_string().contains("one result has key 4, another has not"), "{refusal}");
}

#[test]
fn more_rows_than_messages_carry_fail_the_job_and_say_what_to_declare() {
    let (mut leader, _) = pair();
    let many = Rows::zeros(DIMENSION, 0..2000);
    let arriving = NodeGradient {
        step: Step(1),
        node: Node::leaf(0),
        weight: 1,
        gradient: Gradient::Rows(many.clone()),
    };
    let refusal = leader.push(Rewind(1), arriving).unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::JobFailed);
    assert!(refusal.to_string().contains("declare more buckets"), "{refusal}");
    assert_eq!(Bucket::new(leader.shape.bucket.as_ref().unwrap()).rows().len(), 0);
}
