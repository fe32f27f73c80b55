//! The following loops: pservers that reach one another in memory, in paused time, through a net that can be cut.

use super::*;
use crate::block::Placement;
use crate::block::primary::PlacedCopy;
use crate::block::tests::{alone, async_job, job};
use crate::service::PserverService;
use crate::shard::Pushed;
use crate::shard::tests::threads::{Busy, on_threads};
use crate::shard::tests::{assigned, empty, gradient, host, message};
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::routing::PserverAddress;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    BlockId, Declaration, Fill, Incarnation, JobSettings, Node, Parameter, RefusalKind, Rewind, Rule, Step,
    Term, Version,
};
use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Limits, answering};
use shoal_runtime::wire::WireVersion;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::time::Instant;
use tower::util::BoxCloneSyncService;

/// The pservers by address, which of them are cut off, and who was called when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net(Arc<Mutex<Wires>>);

#[derive(Debug, Default)]
pub(crate) struct Wires {
    shards: BTreeMap<String, Arc<Shard>>,
    pub(crate) down: BTreeSet<String>,
    pub(crate) calls: Vec<(Instant, String)>,
    /// What those speak who are called, if not the present one.
    version: Option<WireVersion>,
}

impl Net {
    pub(crate) fn wires(&self) -> MutexGuard<'_, Wires> {
        self.0.lock().unwrap()
    }
    /// A pserver listens at the address of its number.
    pub(crate) fn listen(&self, number: u64, shard: &Arc<Shard>) {
        self.wires().shards.insert(address(number), Arc::clone(shard));
    }
    fn calls(&self, number: u64) -> usize {
        self.wires().calls.iter().filter(|(_, called)| *called == address(number)).count()
    }
}

pub(crate) fn address(number: u64) -> String {
    format!("ps-{number}:1")
}

impl Dial for Net {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        let shard = self.wires().shards.get(address).cloned().ok_or("no such host")?;
        let version = self.wires().version.unwrap_or(WireVersion::PRESENT);
        let server = answering(PserverService::new(shard).server(Limits::default()), version);
        let (net, address) = (self.clone(), address.to_owned());
        let call = move |request: tonic::codegen::http::Request<tonic::body::Body>| {
            let (net, address, mut server) = (net.clone(), address.clone(), server.clone());
            async move {
                net.wires().calls.push((Instant::now(), address.clone()));
                let is_down = || net.wires().down.contains(&address);
                let unreachable = || Box::<dyn std::error::Error + Send + Sync>::from("unreachable");
                if is_down() {
                    return Err(unreachable());
                }
                let answer = tower::Service::call(&mut server, request).await;
                if is_down() { Err(unreachable()) } else { Ok(answer?) }
            }
        };
        Ok(BoxCloneSyncService::new(tower::service_fn(call)))
    }

    fn is_gone<'a>(&'a self, address: &'a str) -> std::pin::Pin<Box<dyn Future<Output = bool> + Send + 'a>> {
        Box::pin(std::future::ready(self.wires().down.contains(address)))
    }
}

/// Pservers 1 to 3 with nothing, and the net between them.
fn pservers(job: &JobSettings) -> (Net, [Arc<Shard>; 3]) {
    let net = Net::default();
    let shards = [1, 2, 3].map(|number| {
        let shard = empty(job.clone(), 16, Incarnation(number));
        net.listen(number, &shard);
        shard
    });
    (net, shards)
}

/// A copy of a block that begins its history at routing version 3: the primary's, or a follower's of fill 3 + its
/// number.
fn placed(me: u64, primary: u64, followers: &[u64], term: u64, is_in_sync: bool) -> Placement {
    let fill = |pserver: u64| Fill(if pserver == 1 { 3 } else { 3 + pserver });
    let copy =
        |pserver: &u64| PlacedCopy { pserver: Incarnation(*pserver), fill: fill(*pserver), is_in_sync };
    let copies = if me == primary { followers.iter().map(copy).collect() } else { Vec::new() };
    Placement { fill: fill(me), term: Term(term), primary: Incarnation(primary), copies, ..alone(3) }
}

/// Tells a pserver to hold these blocks, which `primary` leads, and to whom it may speak.
fn tell(shard: &Arc<Shard>, version: u64, blocks: &[u32], placement: &Placement) {
    let mut assignment = assigned(1, version, blocks.iter().map(|block| (*block, placement.clone())));
    let at = |number| PserverAddress { incarnation: Incarnation(number), address: address(number) };
    assignment.pservers = [1, 2, 3].map(at).to_vec();
    host(shard, assignment);
}

/// Pserver 1 leads blocks 0 and 1, pserver 2 follows.
fn pair(job: &JobSettings) -> (Net, [Arc<Shard>; 3]) {
    let (net, shards) = pservers(job);
    tell(&shards[0], 5, &[0, 1], &placed(1, 1, &[2], 3, false));
    tell(&shards[1], 5, &[0, 1], &placed(2, 1, &[], 3, false));
    (net, shards)
}

fn push(shard: &Arc<Shard>, what: Pushed, version: u64) {
    let bytes = [0.5f32.to_le_bytes().repeat(6), 1.0f32.to_le_bytes().to_vec()];
    let gradients = bytes.iter().zip(0..).map(|(bytes, block)| gradient(block, bytes));
    let gradients = gradients.map(|gradient| proto::BlockGradient { version, ..gradient });
    shard.push(&message(what, 2, gradients.collect())).unwrap();
}

fn root(step: u64) -> Pushed {
    Pushed::Node(Step(step), Node { level: 1, index: 0 })
}

/// How far the copies of blocks 0 and 1 are.
fn versions(shard: &Arc<Shard>) -> Vec<Option<u64>> {
    let copies = shard.whole_standing().unwrap().1.into_iter();
    let each = copies.flat_map(|copy| copy.blocks.into_iter().map(move |block| (block, copy.name)));
    let sorted: BTreeMap<u32, _> = each.collect();
    sorted.into_values().map(|name| name.map(|name| name.version)).collect()
}

/// Lets these pservers follow while `meanwhile` runs. Returns what ended the following, if anything did.
async fn follow_during(
    net: &Net,
    shards: &[&Arc<Shard>],
    meanwhile: impl Future<Output = ()>,
) -> Option<Refusal> {
    let following =
        shards.iter().map(|shard| async move { follow(shard, net, &mut Random::seeded(7)).await });
    let mut following: FuturesUnordered<_> = following.collect();
    tokio::select! {
        biased;
        Some(refusal) = following.next() => Some(refusal),
        () = meanwhile => None,
    }
}

async fn after(millis: u64) {
    sleep(Duration::from_millis(millis)).await;
}

#[tokio::test(start_paused = true)]
async fn a_follower_is_filled_follows_every_update_at_once_and_is_asked_for() {
    let (net, shards) = pair(&job(50, 2));
    let story = async {
        after(10).await;
        assert_eq!(versions(&shards[1]), [Some(0); 2]);
        let asked = shards[0].whole_standing().unwrap().2;
        assert_eq!(asked.iter().map(|asked| (asked.block, asked.fill)).collect::<Vec<_>>(), [(0, 5), (1, 5)]);
        for step in 0..5 {
            push(&shards[0], root(step), 0);
            after(1).await;
            assert_eq!(versions(&shards[1]), [Some(step + 1); 2]);
            assert_eq!(shards[0].whole_standing().unwrap().0[0].version, step + 1, "acknowledged at once");
        }
    };
    assert_eq!(follow_during(&net, &[&shards[1]], story).await, None);
    let counters = shards[1].counters();
    assert_eq!((counters.fills, counters.entries), (2, 10));
}

#[tokio::test(start_paused = true)]
async fn positions_and_their_staleness_come_over_the_wire_with_the_bits_that_they_make() {
    let (net, shards) = pair(&async_job(50, 2, true));
    let story = async {
        for position in [3, 0, 9, 4] {
            after(10).await;
            push(&shards[0], Pushed::Position(position), position % 2);
        }
        after(10).await;
    };
    assert_eq!(follow_during(&net, &[&shards[1]], story).await, None);
    let ids = [BlockId(0), BlockId(1)];
    let read = |shard: &Arc<Shard>| shard.read_state(Version(4), &ids, 0).unwrap();
    let theirs = read(&shards[0]);
    assert!(theirs[0].ledger.contains(9) && !theirs[0].ledger.contains(1));
    tell(&shards[1], 8, &[0, 1], &placed(2, 2, &[], 8, true));
    assert_eq!(read(&shards[1]), theirs);
}

#[tokio::test(start_paused = true)]
async fn an_idle_follower_asks_four_times_in_a_leases_time_to_live_by_each_of_two_lanes() {
    let (net, shards) = pair(&job(50, 2));
    assert_eq!(follow_during(&net, &[&shards[1]], after(10_000)).await, None);
    assert!((80..=86).contains(&net.calls(1)), "{} calls in ten times to live", net.calls(1));
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_cannot_be_reached_is_asked_again_until_it_can() {
    let (net, shards) = pair(&job(50, 2));
    let story = async {
        after(10).await;
        net.wires().down.insert(address(1));
        push(&shards[0], root(0), 0);
        after(60_000).await;
        assert_eq!(versions(&shards[1]), [Some(0); 2]);
        let calls = net.calls(1);
        assert!((480..1200).contains(&calls), "{calls} calls in a minute");
        net.wires().down.clear();
        after(250).await;
        assert_eq!(versions(&shards[1]), [Some(1); 2]);
    };
    assert_eq!(follow_during(&net, &[&shards[1]], story).await, None);
}

/// Blocks 0 and 1 have a channel each while one pserver leads both, and go by one to each once two do.
#[tokio::test(start_paused = true)]
async fn no_block_is_left_out_when_there_are_other_channels() {
    let (net, shards) = pair(&job(50, 2));
    let channels = || {
        let channels = shards[1].channels().unwrap();
        channels.keys().map(|channel| (channel.primary.0, channel.number)).collect::<Vec<_>>()
    };
    let story = async {
        after(10).await;
        assert_eq!((versions(&shards[1]), channels()), (vec![Some(0); 2], vec![(1, 0), (1, 1)]));
        let anew = |placement| Placement { rewind: Rewind(6), ..placement };
        tell(&shards[2], 6, &[1], &anew(placed(3, 3, &[2], 6, false)));
        let mut assignment =
            assigned(1, 6, [(0, placed(2, 1, &[], 3, false)), (1, anew(placed(2, 3, &[], 6, false)))]);
        let at = |number| PserverAddress { incarnation: Incarnation(number), address: address(number) };
        assignment.pservers = [1, 3].map(at).to_vec();
        host(&shards[1], assignment);
        assert_eq!(channels(), [(1, 0), (3, 0)]);
        after(20).await;
        assert_eq!(versions(&shards[1]), [Some(0); 2]);
        push(&shards[0], root(0), 0);
        after(20).await;
        assert_eq!(versions(&shards[1]), [Some(1), Some(0)], "block 0 by the first");
        let value = proto::BlockGradient { rewind: 6, ..gradient(1, &1.0f32.to_le_bytes()) };
        shards[2].push(&message(root(0), 2, vec![value])).unwrap();
        after(20).await;
        assert_eq!(versions(&shards[1]), [Some(1); 2], "block 1 by the other");
    };
    assert_eq!(follow_during(&net, &[&shards[1]], story).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_new_primary_is_followed_and_the_old_one_is_not_asked_any_more() {
    let (net, shards) = pair(&job(50, 2));
    tell(&shards[0], 6, &[0, 1], &placed(1, 1, &[2, 3], 3, true));
    tell(&shards[2], 6, &[0, 1], &placed(3, 1, &[], 3, true));
    let story = async {
        after(10).await;
        push(&shards[0], root(0), 0);
        after(10).await;
        assert_eq!((versions(&shards[1]), versions(&shards[2])), (vec![Some(1); 2], vec![Some(1); 2]));
        // Pserver 1 is gone; 2 leads; 3 hears of it first.
        net.wires().down.insert(address(1));
        tell(&shards[2], 7, &[0, 1], &placed(3, 2, &[], 7, true));
        after(20).await;
        let calls = net.calls(1);
        tell(&shards[1], 7, &[0, 1], &placed(2, 2, &[3], 7, true));
        after(1).await;
        assert_eq!(shards[1].whole_standing().unwrap().0[0].version, 1, "the other copy has it");
        push(&shards[1], root(1), 0);
        after(1).await;
        assert_eq!(versions(&shards[2]), [Some(2); 2]);
        assert_eq!(shards[1].whole_standing().unwrap().0[0].version, 2);
        after(5_000).await;
        assert_eq!(net.calls(1), calls);
    };
    assert_eq!(follow_during(&net, &[&shards[1], &shards[2]], story).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_is_added_does_not_wait_for_the_call_under_way() {
    let (net, shards) = pair(&job(50, 2));
    tell(&shards[1], 6, &[0], &placed(2, 1, &[], 3, false));
    let story = async {
        after(10).await;
        assert_eq!(versions(&shards[1]), [Some(0)]);
        let calls = net.calls(1);
        // The call is open for 250 ms; nothing about these copies changes.
        tell(&shards[1], 7, &[0], &placed(2, 1, &[], 3, false));
        after(1).await;
        assert_eq!(net.calls(1), calls);
        tell(&shards[1], 8, &[0, 1], &placed(2, 1, &[], 3, false));
        after(1).await;
        assert_eq!(versions(&shards[1]), [Some(0); 2]);
        // Dropped, and followed again later, from the beginning.
        tell(&shards[1], 9, &[], &placed(2, 1, &[], 3, false));
        after(1_000).await;
        let calls = net.calls(1);
        after(10_000).await;
        assert_eq!(net.calls(1), calls);
        tell(&shards[0], 10, &[0], &placed(1, 1, &[2], 3, false));
        tell(&shards[1], 10, &[0], &placed(2, 1, &[], 3, false));
        after(10).await;
        assert_eq!(versions(&shards[1]), [Some(0)]);
    };
    assert_eq!(follow_during(&net, &[&shards[1]], story).await, None);
}

#[tokio::test(start_paused = true)]
async fn blocks_of_any_size_fit_the_messages_that_fill_a_follower() {
    // A copy of the first is a little less than half of what a message may be, of the second half of it.
    let parameter = |name: &str, elements| {
        Parameter::new(name, &[elements], Rule::ADAM, Schedule::constant(0.1), Initial::Zeros)
    };
    let parameters = vec![parameter("less", (1 << 18) - 1), parameter("half", 1 << 18)];
    let declaration = Declaration { parameters, block_elements: 1 << 18 };
    let (net, shards) = pservers(&job(50, 2));
    let tell = |shard: &Arc<Shard>, placement: &Placement| {
        let mut assignment = assigned(1, 5, [(0, placement.clone()), (1, placement.clone())]);
        assignment.declaration = declaration.clone();
        assignment.pservers = vec![PserverAddress { incarnation: Incarnation(1), address: address(1) }];
        host(shard, assignment);
    };
    tell(&shards[0], &placed(1, 1, &[2], 3, false));
    let bytes = [vec![0; 4 * ((1 << 18) - 1)], vec![0; 4 << 18]];
    let gradients = bytes.iter().zip(0..).map(|(bytes, block)| gradient(block, bytes));
    shards[0].push(&message(root(0), 0, gradients.collect())).unwrap();
    tell(&shards[1], &placed(2, 1, &[], 3, false));
    assert_eq!(follow_during(&net, &[&shards[1]], after(100)).await, None);
    assert_eq!(versions(&shards[1]), [Some(1); 2]);
}

#[tokio::test(start_paused = true)]
async fn what_no_repetition_can_mend_ends_the_following() {
    let (net, shards) = pair(&job(50, 2));
    // An address that nobody can have.
    net.wires().shards.remove(&address(1));
    let refusal = follow_during(&net, &[&shards[1]], after(1000)).await.unwrap();
    assert_eq!((refusal.kind, refusal.subject.as_str()), (RefusalKind::Malformed, "assignment.pservers"));
    // Copies of other shapes under the same numbers: the two were built from different programs.
    let (net, shards) = pair(&job(50, 2));
    let mut assignment = assigned(1, 6, [(0, placed(1, 1, &[2], 6, false))]);
    assignment.blocks.values_mut().for_each(|placement| placement.fill = Fill(6));
    assignment.declaration.parameters.remove(0);
    let renamed = Placement { rewind: Rewind(6), ..assignment.blocks[&BlockId(0)].clone() };
    assignment.blocks.insert(BlockId(0), renamed);
    host(&shards[0], assignment);
    tell(&shards[1], 6, &[0], &Placement { rewind: Rewind(6), ..placed(2, 1, &[], 6, false) });
    assert_eq!(follow_during(&net, &[&shards[1]], after(1000)).await, None, "a peer's answer ends nobody");
    assert_eq!(shards[1].whole_standing().unwrap().1[0].name, None);
}

#[tokio::test(start_paused = true)]
async fn a_primary_of_another_wire_version_ends_the_following() {
    for version in [WireVersion::PRESENT.0 - 1, WireVersion::PRESENT.0 + 1] {
        let (net, shards) = pair(&job(50, 2));
        net.wires().version = Some(WireVersion(version));
        let refusal = follow_during(&net, &[&shards[1]], after(1000)).await.unwrap();
        assert_eq!(refusal.kind, RefusalKind::OtherVersion);
        assert_eq!(versions(&shards[1]), [None; 2], "nothing of it was taken");
    }
}

/// Runs on threads of its own and on the real clock, as outside of tests.
#[tokio::test]
async fn a_copy_that_is_at_work_keeps_no_copy_of_another_channel() {
    let (net, [leader, follower, _]) = pair(&job(50, 2));
    net.wires().shards.remove(&address(2));
    let follower = on_threads(follower, 2);
    let version = |block: u32| {
        let stands = follower.following_of(Incarnation(1), &[BlockId(block)]).unwrap();
        stands[&BlockId(block)].cursor.map(|cursor| cursor.name.version)
    };
    let until = async |block: u32, wanted: u64| {
        while version(block) != Some(Version(wanted)) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let story = async {
        tokio::join!(until(0, 0), until(1, 0));
        let busy = Busy::with(&follower, 0);
        push(&leader, root(0), 0);
        let is_followed = timeout(Duration::from_secs(4), until(1, 1)).await.is_ok();
        assert!(busy.end() && is_followed, "followed: {is_followed}");
        until(0, 1).await;
    };
    assert_eq!(follow_during(&net, &[&follower], story).await, None);
}
