//! Pull and push of 10,000 rows over loopback: a trainer in this process and a pserver in another, peers doing the same work,
//! a gather and a scatter of such rows in one thread's memory, and the same bytes over plain TCP. All in turn.

use crate::measure::{self, Spread, Took, seconds};
use crate::paths::buckets::{ADAGRAD, MESSAGE_KEYS, drawn, parameter};
use crate::peers::{Peers, Told};
use crate::plain::Plain;
use crate::pserver::{self, Pserver};
use crate::rows::client::Client;
use crate::rows::flat::Flat;
use serde::Serialize;
use shoal_runtime::cluster::{Declaration, Precision, Rows, Table};
use std::collections::BTreeMap;
use std::hint::black_box;

pub(crate) const DIMENSION: usize = 64;
/// Rows of the table: far more than caches hold.
pub(crate) const TABLE_ROWS: usize = 1_000_000;
/// Pulls or pushes of each in a round.
const TIMES: u32 = 10;
/// Sets of keys that are used in turn.
const SETS: usize = 16;
/// Stands among the peers: the same bytes, and nothing else.
const PLAIN: &str = "plain TCP";

/// One operation, ours and others'.
#[derive(Debug, Serialize)]
pub(crate) struct Operation {
    pub(crate) name: &'static str,
    pub(crate) millis: Spread,
    /// Of processors, in both processes together.
    pub(crate) processor_millis: Spread,
    pub(crate) limit_millis: f64,
    /// Limit / ours inside a round.
    pub(crate) ratio: Spread,
    pub(crate) peers: BTreeMap<String, Beside>,
}

/// A peer beside us.
#[derive(Debug, Serialize)]
pub(crate) struct Beside {
    pub(crate) millis: Spread,
    /// Of processors, in both processes together.
    pub(crate) processor_millis: Spread,
    /// Theirs / ours inside a round: how many times as fast we are.
    pub(crate) times: Spread,
    /// The same of processors' time, which other load changes less.
    pub(crate) processor_times: Spread,
}

/// What was measured, and who was there.
#[derive(Debug, Serialize)]
pub(crate) struct Wire {
    pub(crate) operations: Vec<Operation>,
    pub(crate) peers: BTreeMap<String, Told>,
}

/// What one round took: ours, the limit, each peer.
type Round = (Took, f64, Vec<Took>);

pub(crate) fn measured(rounds: u32, mut peers: Option<Peers>) -> anyhow::Result<Wire> {
    let pserver = Pserver::start(&["--serve"])?;
    let mut plain = Plain::tcp(&pserver.plain)?;
    let process = pserver.id();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut client = Client::new(&pserver.address, DIMENSION)?;
    for keys in (0..TABLE_ROWS as u64).collect::<Vec<u64>>().chunks(MESSAGE_KEYS) {
        runtime.block_on(client.push(&gradients(keys)))?;
    }
    let mut flat = Flat::new(TABLE_ROWS, DIMENSION);
    let sets: Vec<Vec<u64>> = (0..SETS).map(key_set).collect();
    let sums: Vec<Rows> = sets.iter().map(|keys| gradients(keys)).collect();
    let places: Vec<Vec<u32>> =
        sets.iter().map(|keys| keys.iter().map(|key| *key as u32).collect()).collect();
    let names = peers.as_ref().map(Peers::names).unwrap_or_default();
    let keys_bytes = 8 * MESSAGE_KEYS;
    let rows_bytes = 4 * DIMENSION * MESSAGE_KEYS;
    let (mut pulls, mut pushes): (Vec<Round>, Vec<Round>) = (Vec::new(), Vec::new());
    for _ in 0..=rounds {
        let pull = |keys: Vec<u64>| runtime.block_on(client.pull(&keys)).map(|rows| drop(black_box(rows)));
        let ours = took(process, |set| sets[set].clone(), pull)?;
        let limit = each(|set| {
            black_box(flat.gather(&places[set]));
            Ok(())
        })?;
        let way = took(process, |_| (), |()| plain.exchange(keys_bytes, rows_bytes))?;
        pulls.push((ours, limit, theirs(way, peers.as_mut(), &names, "pull")?));
        let ours = took(process, |set| sums[set].clone(), |sum| runtime.block_on(client.push(&sum)))?;
        let limit = each(|set| {
            flat.scatter(&places[set], sums[set].values());
            Ok(())
        })?;
        let way = took(process, |_| (), |()| plain.exchange(keys_bytes + rows_bytes, 1))?;
        pushes.push((ours, limit, theirs(way, peers.as_mut(), &names, "push")?));
    }
    let names: Vec<String> = std::iter::once(PLAIN.to_owned()).chain(names).collect();
    let operations = vec![operation("pull", &pulls[1..], &names), operation("push", &pushes[1..], &names)];
    Ok(Wire { operations, peers: peers.as_ref().map(|peers| peers.told.clone()).unwrap_or_default() })
}

/// The pserver's side.
pub(crate) fn serve() -> anyhow::Result<()> {
    let parameters = vec![parameter(Table::default(), DIMENSION, ADAGRAD)];
    pserver::serve(Declaration { parameters, block_elements: 0 }, Precision::F32)
}

/// Keys of one pull or push, all different, ascending.
fn key_set(set: usize) -> Vec<u64> {
    let mut keys = std::collections::BTreeSet::new();
    let mut draw = (set as u64) << 32;
    while keys.len() < MESSAGE_KEYS {
        keys.insert(drawn(draw, TABLE_ROWS as u64));
        draw += 1;
    }
    keys.into_iter().collect()
}

fn gradients(keys: &[u64]) -> Rows {
    let mut rows = Rows::zeros(DIMENSION, keys.iter().copied());
    rows.values_mut().fill(1.0);
    rows
}

/// The mean seconds of one.
fn each(mut one: impl FnMut(usize) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let all = seconds(&mut || (0..TIMES as usize).try_for_each(|at| one(at % SETS)))?;
    Ok(all / f64::from(TIMES))
}

/// The same with the time of processors, here and in another process. What one needs was just written, as keys and gradients
/// of a step are; that is not measured.
fn took<T>(
    process: u32,
    prepare: impl Fn(usize) -> T,
    mut one: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<Took> {
    let mut all = Took { seconds: 0.0, processor_seconds: 0.0 };
    for at in 0..TIMES as usize {
        let mut prepared = Some(prepare(at % SETS));
        let work = &mut || prepared.take().map_or(Ok(()), &mut one);
        let took = measure::took(&[process, std::process::id()], work)?;
        all.seconds += took.seconds;
        all.processor_seconds += took.processor_seconds;
    }
    let times = f64::from(TIMES);
    Ok(Took { seconds: all.seconds / times, processor_seconds: all.processor_seconds / times })
}

/// The bare way's, then the peers'.
fn theirs(way: Took, peers: Option<&mut Peers>, names: &[String], what: &str) -> anyhow::Result<Vec<Took>> {
    let mut all = vec![way];
    if let Some(peers) = peers {
        for name in names {
            all.push(peers.took(name, what, TIMES)?);
        }
    }
    Ok(all)
}

fn operation(name: &'static str, rounds: &[Round], names: &[String]) -> Operation {
    let spread = |of: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(of).collect());
    let beside = |at: usize| Beside {
        millis: spread(&|round| round.2[at].seconds * 1e3),
        processor_millis: spread(&|round| round.2[at].processor_seconds * 1e3),
        times: spread(&|round| round.2[at].seconds / round.0.seconds),
        processor_times: spread(&|round| round.2[at].processor_seconds / round.0.processor_seconds),
    };
    Operation {
        name,
        millis: spread(&|round| round.0.seconds * 1e3),
        processor_millis: spread(&|round| round.0.processor_seconds * 1e3),
        limit_millis: spread(&|round| round.1 * 1e3).median,
        ratio: spread(&|round| round.1 / round.0.seconds),
        peers: names.iter().enumerate().map(|(at, name)| (name.clone(), beside(at))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_compared_inside_a_round() {
        let took = |seconds| Took { seconds, processor_seconds: 2.0 * seconds };
        let rounds = [(1.0, 0.5, 3.0), (2.0, 0.5, 8.0), (4.0, 1.0, 4.0)];
        let rounds = rounds.map(|(ours, limit, theirs)| (took(ours), limit, vec![took(theirs)]));
        let operation = operation("pull", &rounds, &["peer".to_owned()]);
        assert_eq!((operation.millis.median, operation.limit_millis), (2000.0, 500.0));
        let beside = &operation.peers["peer"];
        assert_eq!((operation.ratio.median, beside.times.median), (0.25, 3.0));
        assert_eq!((operation.processor_millis.median, beside.processor_times.median), (4000.0, 3.0));
    }

    #[test]
    fn a_set_has_different_keys_of_the_table() {
        let keys = key_set(3);
        assert_eq!(keys.len(), MESSAGE_KEYS);
        assert!(keys.is_sorted_by(|left, right| left < right) && keys[MESSAGE_KEYS - 1] < TABLE_ROWS as u64);
        assert_ne!(keys, key_set(4));
    }
}
