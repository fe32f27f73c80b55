//! Every refusal names what it refuses, changes nothing, and leaves the server serving.

use shoal_pserver::service::PserverService;
use shoal_pserver::shard::{HELD_WINDOW, Shard};
use shoal_runtime::cluster::refusal::NextMove;
use shoal_runtime::cluster::{Incarnation, Node, Refusal, RefusalKind, Rule};
use shoal_runtime::host::rpc::{self, Dial, Limits, Security, TcpDial};
use shoal_runtime::host::shutdown::Shutdown;
use shoal_runtime::wire::proto::pserver_client::PserverClient;
use shoal_runtime::wire::{Fault, WireVersion, proto};
use shoal_tests::sim::data_set::DataSet;
use shoal_tests::sim::evidence::Evidence;
use shoal_tests::sim::hand::Hand;
use shoal_tests::sim::invariants;
use shoal_tests::sim::observer::Observer;
use shoal_tests::sim::program::Program;
use shoal_tests::sim::reference::Trained;
use shoal_tests::sim::run::in_paused_time;
use shoal_tests::sim::scenario::Scenario;
use shoal_tests::sim::world::{World, job_settings};
use std::sync::Arc;
use std::time::Duration;
use tonic::service::Routes;

const LEFT: Node = Node { level: 1, index: 0 };

/// A job amid step 1, with one node of it held.
struct Stage {
    world: World,
    observer: Observer,
    hand: Hand,
}

impl Stage {
    async fn set() -> Stage {
        let world = World::start(Scenario { pservers: 2, ..Scenario::quiet(11) }, true);
        let observer = Observer::new(&world.network);
        let hand = Hand::join(&world, "hand", 1).await.unwrap();
        hand.do_step(&world, 0).await.unwrap();
        hand.push(&world, 0, 1, LEFT).await.unwrap();
        Stage { world, observer, hand }
    }

    /// A good push, to be spoilt.
    fn push(&self) -> proto::PushRequest {
        self.hand.message(&self.world, 0, 1, Node { level: 1, index: 1 })
    }

    async fn state(&self) -> (Vec<Trained>, String) {
        let status = self.observer.status().await.unwrap();
        let members: Vec<(String, String)> =
            status.trainers.iter().map(|trainer| (trainer.name.clone(), trainer.state.clone())).collect();
        let pushes: Vec<u64> =
            status.pservers.iter().map(|pserver| pserver.counters.unwrap_or_default().pushes).collect();
        let rest = format!("{} {} {members:?} {:?} {pushes:?}", status.phase, status.step, status.leases);
        (self.observer.read(&self.world.storage, &status, 1).await.unwrap(), rest)
    }

    /// What `call` answers must be the refusal of `kind`; nothing may be another than before.
    async fn refuses<T: std::fmt::Debug>(
        &self,
        kind: RefusalKind,
        names: &str,
        call: impl Future<Output = Result<T, Fault>>,
    ) {
        // Reports of what was done before are in.
        tokio::time::sleep(self.world.scenario.ttl).await;
        let before = self.state().await;
        let refusal = match call.await {
            Err(Fault::Refused(refusal)) => refusal,
            other => panic!("not refused: {other:?}"),
        };
        let Refusal { subject, detail, .. } = &refusal;
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(subject.contains(names), "{refusal} does not name {names:?} as its subject");
        assert!(!detail.is_empty());
        tokio::time::sleep(self.world.scenario.ttl).await;
        let after = self.state().await;
        assert!(before == after, "{refusal} changed {before:?} to {after:?}");
    }

    async fn refuses_push(&self, kind: RefusalKind, names: &str, push: proto::PushRequest) {
        self.refuses(kind, names, self.hand.send(0, push)).await;
    }

    /// The job goes on to its end, with the right bits: nothing of what was refused was taken.
    async fn ends_well(mut self) {
        self.world.start_trainer("heir");
        let evidence = Evidence::when_over(self.world, &self.observer, Duration::from_secs(60)).await;
        assert_eq!(invariants::check(&evidence), [] as [String; 0]);
    }
}

fn answered<T>(answer: Result<tonic::Response<T>, tonic::Status>) -> Result<T, Fault> {
    answer.map(tonic::Response::into_inner).map_err(Fault::from)
}

#[test]
fn a_caller_of_another_job_is_refused_by_master_and_pserver() {
    in_paused_time(async {
        let stage = Stage::set().await;
        let job = || String::from("other");
        let (mut master, mut pserver) = (stage.hand.master(), stage.hand.pserver(0));
        let names = "\"other\"";
        let wire = Some((&stage.hand.declaration).into());
        let join = proto::JoinRequest {
            job: job(),
            name: "x".into(),
            nonce: 9,
            declaration: wire,
            ..Default::default()
        };
        let wrong = RefusalKind::WrongJob;
        stage.refuses(wrong, names, async { answered(master.join(join).await) }).await;
        let mut master = stage.hand.master();
        let lease =
            proto::LeaseRequest { job: job(), incarnation: stage.hand.incarnation, ..Default::default() };
        stage.refuses(wrong, names, async { answered(master.lease(lease).await) }).await;
        let mut master = stage.hand.master();
        let register = proto::RegisterRequest { job: job(), name: "p".into(), ..Default::default() };
        stage.refuses(wrong, names, async { answered(master.register(register).await) }).await;
        stage.refuses_push(wrong, names, proto::PushRequest { job: job(), ..stage.push() }).await;
        let pull = proto::PullRequest { job: job(), ..Default::default() };
        stage.refuses(wrong, names, async { answered(pserver.pull(pull).await) }).await;
        stage.ends_well().await;
    });
}

#[test]
fn an_older_life_is_refused_by_its_name() {
    in_paused_time(async {
        let mut stage = Stage::set().await;
        let mut old = std::mem::replace(&mut stage.hand, Hand::join(&stage.world, "hand", 2).await.unwrap());
        let stale = RefusalKind::StaleIncarnation;
        stage.refuses(stale, "\"hand\"", old.lease(2)).await;
        let mut master = old.master();
        let job = stage.world.job.job.0.clone();
        let leave = proto::LeaveRequest { job, incarnation: old.incarnation, ..Default::default() };
        stage.refuses(stale, "\"hand\"", async { answered(master.leave(leave).await) }).await;
        stage.refuses(stale, "\"hand\"", Hand::join(&stage.world, "hand", 1)).await;
        stage.ends_well().await;
    });
}

#[test]
fn another_declaration_is_refused_by_its_parameter() {
    in_paused_time(async {
        let stage = Stage::set().await;
        let ours = stage.world.scenario.program().declaration(stage.world.job.records);
        let mut other_rule = ours.clone();
        other_rule.parameters[2].rule = Rule::ADAM;
        let mut other_shape = ours.clone();
        other_shape.parameters[1].shape = vec![3, 2];
        let mut one_less = ours.clone();
        one_less.parameters.pop();
        for (declaration, name) in
            [(other_rule, "\"sgd\""), (other_shape, "\"amsgrad\""), (one_less, "\"count.last\"")]
        {
            let join = Hand::join_with(&stage.world, "stranger", 5, declaration);
            stage.refuses(RefusalKind::DeclarationMismatch, name, join).await;
        }
        let mut impossible = ours;
        impossible.parameters[1].shape = vec![0];
        let join = Hand::join_with(&stage.world, "stranger", 5, impossible);
        stage.refuses(RefusalKind::Malformed, "amsgrad", join).await;
        stage.ends_well().await;
    });
}

#[test]
fn another_environment_is_refused_with_the_difference_and_the_job_goes_on() {
    in_paused_time(async {
        let mut stage = Stage::set().await;
        let program = stage.world.scenario.program();
        let odd = Program { is_odd: true, ..program };
        let other = stage.world.start_trainer_with("other", Duration::ZERO, odd);
        let ended = stage.world.trainers[other].ended().await.unwrap().unwrap();
        let error = ended.unwrap_err();
        assert_eq!(error.exit_code(), 5, "{error}");
        for words in
            ["environment mismatch", "threads is nothing in the job and \"2\" here", "--environment warn"]
        {
            assert!(error.to_string().contains(words), "{error}");
        }
        // It has ended: whoever looks at all trainers need not.
        stage.world.trainers.remove(other);
        stage.ends_well().await;
    });
}

#[test]
fn a_push_that_is_wrong_in_one_block_is_refused_whole() {
    in_paused_time(async {
        let stage = Stage::set().await;
        // Every other block carries what would spoil the sum, were it taken.
        let mut spoilt = stage.push();
        for block in &mut spoilt.blocks {
            let values = block.gradient.len() / 4;
            block.gradient =
                std::iter::repeat_n(7.5f32.to_le_bytes(), values).flatten().collect::<Vec<_>>().into();
        }
        let last = spoilt.blocks.len() - 1;
        let with = |bytes: Vec<u8>| {
            let mut push = spoilt.clone();
            push.blocks[last].gradient = bytes.into();
            push
        };
        let good = spoilt.blocks[last].gradient.to_vec();
        let id = format!("block {}", spoilt.blocks[last].block);
        stage.refuses_push(RefusalKind::WrongShape, &id, with(good[4..].to_vec())).await;
        stage.refuses_push(RefusalKind::WrongShape, &id, with(good[1..].to_vec())).await;
        stage.refuses_push(RefusalKind::WrongShape, &id, with([&good[..], &[0; 4]].concat())).await;
        for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let bytes = [&value.to_le_bytes(), &good[4..]].concat();
            stage.refuses_push(RefusalKind::NonFinite, "parameter", with(bytes)).await;
        }
        let mut unknown = spoilt.clone();
        unknown.blocks[last].block = 1_000_000;
        stage.refuses_push(RefusalKind::OutOfRange, "block 1000000", unknown).await;
        let mut twice = spoilt.clone();
        twice.blocks[last] = twice.blocks[0].clone();
        let first = format!("block {}", spoilt.blocks[0].block);
        stage.refuses_push(RefusalKind::Malformed, &first, twice).await;
        stage.ends_well().await;
    });
}

#[test]
fn a_push_for_no_node_or_no_step_is_refused() {
    in_paused_time(async {
        let stage = Stage::set().await;
        let at =
            |level, index| proto::PushRequest { node: Some(proto::Node { level, index }), ..stage.push() };
        stage
            .refuses_push(
                RefusalKind::Malformed,
                "position",
                proto::PushRequest { node: None, ..stage.push() },
            )
            .await;
        for (level, index) in [(25, 0), (24, 1), (u32::MAX, u32::MAX)] {
            stage.refuses_push(RefusalKind::Malformed, "node", at(level, index)).await;
        }
        for (level, index) in [(3, 0), (2, 1), (0, 4)] {
            stage.refuses_push(RefusalKind::OutOfRange, "node", at(level, index)).await;
        }
        let step = |step| proto::PushRequest { step, ..stage.push() };
        stage.refuses_push(RefusalKind::Ahead, "block", step(2)).await;
        stage.refuses_push(RefusalKind::OutOfRange, "step 1000", step(1000)).await;
        stage.refuses_push(RefusalKind::OutOfRange, "step", step(u64::MAX)).await;
        stage.ends_well().await;
    });
}

#[test]
fn a_push_that_misses_its_block_is_told_so_and_changes_nothing() {
    in_paused_time(async {
        let stage = Stage::set().await;
        let mut elsewhere = stage.push();
        elsewhere.blocks.truncate(1);
        elsewhere.blocks[0].block = stage.hand.routing.blocks_of(1)[0].0;
        let mut of_the_past = stage.push();
        of_the_past.blocks.iter_mut().for_each(|block| block.rewind = 0);
        for (push, expected) in
            [(elsewhere, proto::PushAnswer::Moved), (of_the_past, proto::PushAnswer::Rewound)]
        {
            tokio::time::sleep(stage.world.scenario.ttl).await;
            let before = stage.state().await.0;
            let answers = stage.hand.send(0, push).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == expected), "{answers:?}");
            tokio::time::sleep(stage.world.scenario.ttl).await;
            assert!(stage.state().await.0 == before, "{expected:?} changed something");
        }
        stage.ends_well().await;
    });
}

#[test]
fn two_results_for_one_node_fail_the_job_and_name_the_parameter() {
    in_paused_time(async {
        let stage = Stage::set().await;
        let mut other = stage.hand.message(&stage.world, 0, 1, LEFT);
        let mut bytes = other.blocks[0].gradient.to_vec();
        bytes[0] ^= 1;
        other.blocks[0].gradient = bytes.into();
        let fault = stage.hand.send(0, other).await.unwrap_err();
        let refusal = fault.refusal().unwrap();
        assert_eq!(refusal.kind, RefusalKind::Nondeterministic);
        assert!(refusal.subject.contains("parameter \""), "{refusal}");
        tokio::time::sleep(stage.world.scenario.ttl).await;
        let status = stage.observer.status().await.unwrap();
        assert_eq!(status.phase, "failed");
        assert!(status.failure.contains(&refusal.subject), "{}", status.failure);
    });
}

/// The limit is the codec's, so this goes over a real connection.
#[tokio::test]
async fn a_message_above_the_limit_is_refused_and_the_server_goes_on() {
    let scenario = Scenario::quiet(1);
    let limits = Limits::default();
    let shard = Arc::new(Shard::new(
        job_settings(&scenario, &DataSet::new(scenario.data, 0)),
        HELD_WINDOW,
        Incarnation(1),
    ));
    let routes = Routes::new(PserverService::new(shard).server(limits));
    let listener = rpc::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (stop, shutdown) = Shutdown::pair();
    let serving = tokio::spawn(rpc::serve(listener, routes, limits, Security::Loopback, shutdown));

    // A client without limits of its own: the server must be the one that refuses.
    let channel = rpc::asking(TcpDial::default().dial(&address, None).unwrap(), WireVersion::PRESENT);
    let mut client = PserverClient::new(channel).max_encoding_message_size(usize::MAX);
    let gradient = |bytes: usize| proto::PushRequest {
        job: "sim".into(),
        node: Some(proto::Node { level: 0, index: 0 }),
        blocks: vec![proto::BlockGradient { gradient: vec![0; bytes].into(), ..Default::default() }],
        ..Default::default()
    };
    let fault = answered(client.push(gradient(limits.message_bytes + 1)).await).unwrap_err();
    assert_eq!(fault.next_move(), NextMove::GiveUp, "{fault}");
    assert!(matches!(&fault, Fault::Impossible(words) if words.contains("too large")), "{fault}");
    // It hosts nothing yet, and says so on the same connection.
    let answered = answered(client.push(gradient(8)).await).unwrap();
    assert_eq!(answered.answers, [i32::from(proto::PushAnswer::Moved)]);
    stop.send();
    serving.await.unwrap().unwrap();
}
