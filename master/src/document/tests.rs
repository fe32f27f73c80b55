//! The document survives the store byte for byte, costs what its boundaries cost, and is not taken from damage.

use super::*;
use crate::fixture;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::{Decay, Schedule};
use shoal_runtime::cluster::{JobId, Mode, Parameter, Rule, WarmStart};

fn incarnation() -> impl Strategy<Value = Incarnation> {
    (0u32..4, 1u64..9).prop_map(|(term, counter)| Incarnation::new(term, counter))
}

fn placed() -> impl Strategy<Value = PlacedBlock> {
    let copy = (incarnation(), any::<u64>(), any::<bool>()).prop_map(|(pserver, fill, is_in_sync)| {
        PlacedCopy { pserver, fill: Fill(fill), mark: if is_in_sync { Mark::InSync } else { Mark::Filling } }
    });
    (any::<u64>(), any::<u64>(), incarnation(), vec(copy, 0..4), option::of(incarnation())).prop_map(
        |(term, rewind, primary, copies, heir)| PlacedBlock {
            term: Term(term),
            rewind: Rewind(rewind),
            primary,
            copies,
            heir,
            origin: None,
        },
    )
}

/// Rates and scales of any finite size, the awkward ones too.
fn finite() -> impl Strategy<Value = f32> {
    any::<f32>().prop_filter("finite", |x| x.is_finite()).prop_map(f32::abs)
}

/// What is a part of one.
fn part() -> impl Strategy<Value = f32> {
    0.0f32..1.0
}

fn declaration() -> impl Strategy<Value = Declaration> {
    let rule = prop_oneof![
        Just(Rule::Sgd),
        part().prop_map(|momentum| Rule::Momentum { momentum }),
        (part(), part(), finite()).prop_map(|(beta1, beta2, epsilon)| Rule::Adam { beta1, beta2, epsilon }),
        (finite(), finite(), finite()).prop_map(|(l1, l2, beta)| Rule::Ftrl { l1, l2, beta }),
        part().prop_map(|decay| Rule::Ema { decay }),
        Just(Rule::Sum),
    ];
    let decay = prop_oneof![
        Just(Decay::Constant),
        (finite(), any::<u64>()).prop_map(|(factor, every)| Decay::Step { factor, every }),
        (finite(), any::<u64>()).prop_map(|(floor, over)| Decay::Cosine { floor, over }),
        (finite(), finite(), any::<u64>()).prop_map(|(floor, power, over)| Decay::Polynomial {
            floor,
            power,
            over
        }),
        any::<u64>().prop_map(|over| Decay::InverseRoot { over }),
        vec((any::<u64>(), finite()), 0..4).prop_map(|stages| Schedule::piecewise(0.1, stages).decay),
    ];
    let schedule = (finite(), any::<u64>(), decay).prop_map(|(base, warmup_steps, decay)| Schedule {
        base,
        warmup_steps,
        decay,
    });
    let initial = prop_oneof![
        Just(Initial::Zeros),
        finite().prop_map(|limit| Initial::Uniform { limit }),
        finite().prop_map(|value| Initial::Constant { value: -value }),
    ];
    let parameter = ("\\PC{1,20}", vec(1u64..1000, 0..3), rule, schedule, initial).prop_map(
        |(name, shape, rule, schedule, initial)| Parameter::new(&name, &shape, rule, schedule, initial),
    );
    (vec(parameter, 1..3), any::<u64>())
        .prop_map(|(parameters, block_elements)| Declaration { parameters, block_elements })
        .prop_filter("no job can be so", |declaration| declaration.check().is_ok())
}

prop_compose! {
    fn document()(
        name: String, is_sync: bool, window in 1u32..=1 << 20, fingerprint: [u8; 32], number: u64,
        numbers in [1u64..1_000_000, 1u64..1_000_000, 1u64..1000], wanted: [u32; 3], term: u32,
        master: String, declaration in option::of(declaration()), runs in vec((placed(), 1usize..5), 0..6),
        pservers in btree_map(incarnation(), (any::<String>(), any::<String>()), 0..4),
        leaving in btree_set(incarnation(), 0..3), replacing in btree_set(incarnation(), 0..3),
        moves in btree_map((0u32..99).prop_map(BlockId), incarnation(), 0..4), end in option::of(option::of(any::<String>()))
    ) -> Document {
        let job = JobSettings {
            job: JobId(name),
            seed: number,
            lease_ttl_millis: numbers[0],
            warm_start: is_sync.then(|| WarmStart { place: master.clone(), file: "m".into(), bytes: number, header_sha256: fingerprint }),
            mode: if is_sync { Mode::SYNC } else { Mode::Async { staleness_window: window, scale_by_staleness: true } },
            manifest_fingerprint: fingerprint,
            ..fixture::settings(numbers[1], 3, 4, numbers[2])
        };
        let at = |(name, address): (String, String)| PserverAt { name, address };
        Document {
            master_term: term,
            master,
            routing_version: number,
            declaration,
            pservers: pservers.into_iter().map(|(who, pserver)| (who, at(pserver))).collect(),
            blocks: runs.into_iter().flat_map(|(placed, count)| std::iter::repeat_n(placed, count)).collect(),
            leaving,
            replacing,
            moves,
            end: end.map(|why| why.map_or(End::Done, End::Failed)),
            ..Document::new(job, Wanted { pservers: wanted[0], trainers: wanted[1], replicas: wanted[2], exclude_max: 5 })
        }
    }
}

proptest! {
    #[test]
    fn any_document_comes_out_of_the_store_as_it_went_in(document in document()) {
        let bytes = document.to_bytes();
        prop_assert_eq!(&Document::from_bytes(&bytes).unwrap(), &document);
        prop_assert_eq!(Document::from_bytes(&bytes).unwrap().to_bytes(), bytes, "bytes are compared after a lost answer");
    }

    #[test]
    fn what_is_cut_off_is_refused_and_what_is_damaged_never_kills(
        document in document(), cut in 0usize..1000, at in 0usize..1000, byte: u8, garbage in vec(any::<u8>(), 0..60)
    ) {
        let mut bytes = document.to_bytes();
        prop_assert!(Document::from_bytes(&bytes[..cut % bytes.len()]).is_err());
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = Document::from_bytes(&bytes);
        prop_assert!(Document::from_bytes(&garbage).is_err());
    }
}

fn with_blocks(blocks: Vec<PlacedBlock>) -> Document {
    let wanted = Wanted { pservers: 1, trainers: 1, replicas: 0, exclude_max: 0 };
    Document { blocks, ..Document::new(fixture::settings(64, 2, 8, 2), wanted) }
}

#[test]
fn a_table_costs_what_its_boundaries_cost() {
    let [a, b] = [1, 2].map(|who| PlacedBlock::restored(Incarnation(who), 1));
    let cost = |blocks: Vec<PlacedBlock>| with_blocks(blocks).to_bytes().len();
    let (none, one) = (cost(vec![]), cost(vec![a.clone()]));
    assert!(cost(vec![a.clone(); 1_000_000]) <= one + 6, "six digits more");
    let halves = [vec![a.clone(); 500_000], vec![b.clone(); 500_000]].concat();
    assert!(cost(halves) <= 2 * one - none + 12);
    let alternating = [a, b].into_iter().cycle().take(10).collect();
    assert!(cost(alternating) > none + 9 * (one - none), "what is not alike is not one");
}

#[test]
fn more_blocks_than_any_table_has_are_refused_whatever_their_counts_add_up_to() {
    let document =
        String::from_utf8(with_blocks(vec![PlacedBlock::restored(Incarnation(1), 1)]).to_bytes()).unwrap();
    let (before, run, after) = {
        let start = document.find("\"blocks\":[").unwrap() + "\"blocks\":[".len();
        let end = start
            + document[start..].find("}],\"heir\":null,\"origin\":null}}").unwrap()
            + "}],\"heir\":null,\"origin\":null}}".len();
        (&document[..start], &document[start..end], &document[end..])
    };
    let with = |counts: &[u64]| {
        let runs: Vec<String> = counts
            .iter()
            .map(|count| run.replace("\"blocks\":1,", &format!("\"blocks\":{count},")))
            .collect();
        Document::from_bytes(format!("{before}{}{after}", runs.join(",")).as_bytes())
    };
    assert_eq!(with(&[1, 2]).unwrap().blocks.len(), 3);
    let most = 1 << 20;
    for counts in
        [vec![most + 1], vec![most, 1], vec![1, u64::MAX], vec![u64::MAX; 3], vec![1 << 63, 1 << 63]]
    {
        let refused = with(&counts).unwrap_err().to_string();
        assert!(refused.contains("more than 1048576"), "{counts:?}: {refused}");
    }
    assert!(Document::from_bytes(document.replace("\"blocks\":1,", "\"blocks\":-1,").as_bytes()).is_err());
}

#[test]
fn an_election_raises_the_term_and_the_routing_version_and_changes_nothing_else() {
    let fresh = with_blocks(vec![PlacedBlock::restored(Incarnation(1), 1); 3]);
    let (first, second) = (fresh.clone().elected("a"), fresh.clone().elected("a").elected("b"));
    assert_eq!((first.master_term, first.routing_version, first.master.as_str()), (1, 1, "a"));
    assert_eq!((second.master_term, second.routing_version, second.master.as_str()), (2, 2, "b"));
    let alike = Document { master_term: 0, routing_version: 0, master: String::new(), ..second };
    assert_eq!(alike, fresh);
    assert_ne!(
        fresh.clone().elected("a").to_bytes(),
        fresh.elected("b").to_bytes(),
        "no two masters write the same"
    );
}

#[test]
fn routing_names_each_primary_with_its_address_and_is_absent_before_anything_is_placed() {
    assert_eq!(with_blocks(vec![]).routing(), None);
    let [a, b] = [3, 7].map(Incarnation);
    let blocks =
        vec![PlacedBlock::restored(b, 5), PlacedBlock { rewind: Rewind(2), ..PlacedBlock::restored(a, 4) }];
    let at = |name: &str| PserverAt { name: name.to_owned(), address: format!("{name}:7000") };
    let pservers = BTreeMap::from([(b, at("b")), (a, at("a"))]);
    let routing = Document { pservers, routing_version: 9, ..with_blocks(blocks) }.routing().unwrap();
    let routes = routing.blocks.iter().map(|route| {
        let pserver = &routing.pservers[route.primary as usize];
        (pserver.incarnation, pserver.address.as_str(), route.term.0, route.rewind.0)
    });
    assert_eq!(routing.version, 9);
    assert_eq!(routes.collect::<Vec<_>>(), [(b, "b:7000", 5, 5), (a, "a:7000", 4, 2)]);
}

#[test]
fn copies_come_and_go_and_the_primary_is_always_the_first() {
    let [a, b, c] = [1, 2, 3].map(Incarnation);
    let mut block = PlacedBlock::restored(a, 1);
    block.add(b, 2);
    block.add(c, 3);
    assert_eq!(block.in_sync().count(), 1, "what is added is to be filled");
    block.copies[2].mark = Mark::InSync;
    block.heir = Some(c);
    block.remove(b);
    assert_eq!((block.heir, block.copy_on(b)), (Some(c), None));
    block.promote(c, 7);
    assert_eq!((block.primary, block.term, block.rewind, block.heir), (c, Term(7), Rewind(1), None));
    let copies: Vec<_> = block.copies.iter().map(|copy| (copy.pserver, copy.fill.0)).collect();
    assert_eq!(copies, [(c, 3), (a, 1)], "a change of primary fills nobody anew");
    block.heir = Some(a);
    block.remove(a);
    assert_eq!((block.heir, block.copies.len()), (None, 1));
}
