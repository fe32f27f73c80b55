//! The queue for credit: whatever comes and goes, who is told, in which order, and that nobody is forgotten.

use super::*;
use crate::block::reduce::{Gradient, HeldNodes};
use bytes::Bytes;
use proptest::prelude::*;
use shoal_runtime::cluster::tree::aligned;
use shoal_runtime::cluster::{Precision, StepTree};

const WINDOW: usize = 3;
const SLOTS: u32 = 64;

fn asked(node: Node) -> Asked {
    Asked { step: Step(4), node, block: BlockId(9), rewind: Rewind(1), exclusions: 0 }
}

fn leaf(slot: u32) -> Asked {
    asked(Node::leaf(slot))
}

/// One block of one element, trainers that ask, send and fall silent, and a clock.
struct World {
    queue: CreditQueue<Node>,
    held: HeldNodes,
    now: Instant,
    /// CreditAnswer credit, by when.
    told: Vec<(Node, Instant)>,
    waiting: Vec<(Node, Ticket)>,
    /// Whether one that was forgotten came all the same: it takes the credit of another.
    has_surprised: bool,
}

impl World {
    fn new() -> World {
        let held = HeldNodes::new(StepTree::new(SLOTS, SLOTS), WINDOW);
        let (queue, now) = (CreditQueue::new(WINDOW), Instant::now());
        World { queue, held, now, told: Vec::new(), waiting: Vec::new(), has_surprised: false }
    }

    fn ask(&mut self, node: Node) {
        let ticket = self.queue.wait(asked(node), node);
        self.waiting.push((node, ticket));
        self.go_on();
    }

    fn go_on(&mut self) {
        while let Some((node, answer)) =
            self.queue.next(self.now, |_| true, |asked| Ok(self.held.credit(asked.node)))
        {
            let lowest = self.waiting.iter().map(|(node, _)| node.first()).min();
            assert_eq!(Some(node.first()), lowest, "the lowest is told first");
            let at = self.waiting.iter().position(|(waiting, _)| *waiting == node).unwrap();
            self.waiting.swap_remove(at);
            if answer == Ok(()) {
                self.told.push((node, self.now));
            }
        }
    }

    /// No more is on its way than a window, and the one that covers the lowest missing slot.
    fn assert_fits(&self) {
        let is_coming = |(node, since): &&(Node, Instant)| {
            self.now < *since + ON_ITS_WAY && self.held.credit(*node) != Credit::Covered
        };
        let coming = self.told.iter().filter(is_coming).count();
        assert!(self.has_surprised || coming <= WINDOW + 1, "{coming} are on their way");
    }

    fn come(&mut self, at: usize) {
        if self.told.is_empty() {
            return;
        }
        let (node, since) = self.told.swap_remove(at % self.told.len());
        let gradient = Gradient::Words(Bytes::from_static(&[0; 4]), Precision::F32);
        let credit = self.held.judge(node, 1, &gradient).unwrap();
        let is_busy = credit != Credit::Covered && !self.held.takes(credit);
        if self.held.takes(credit) {
            self.held.take(node, 1, gradient);
        }
        self.has_surprised |= self.now >= since + ON_ITS_WAY;
        assert!(self.has_surprised || !is_busy, "{node} was granted credit");
        self.queue.came(Step(4), node, &[BlockId(9)], self.now);
        self.go_on();
        if is_busy {
            self.ask(node);
        }
    }
}

#[derive(Clone, Debug)]
enum Event {
    Ask(usize),
    Come(usize),
    Silence(usize),
    Pass(u64),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => any::<usize>().prop_map(Event::Ask),
        3 => any::<usize>().prop_map(Event::Come),
        1 => any::<usize>().prop_map(Event::Silence),
        1 => (0..6000u64).prop_map(Event::Pass),
    ]
}

/// The step's slots as nodes, cut at random.
fn nodes() -> impl Strategy<Value = Vec<Node>> {
    prop::collection::btree_set(1..SLOTS, 0..40).prop_map(|cuts| {
        let ends: Vec<u32> = cuts.into_iter().chain([SLOTS]).collect();
        let mut nodes = Vec::new();
        let mut first = 0;
        for end in ends {
            aligned(first, end, &mut nodes);
            first = end;
        }
        nodes
    })
}

proptest! {
    #[test]
    fn nobody_is_told_in_vain_and_the_step_ends(nodes in nodes(), events in prop::collection::vec(event(), 0..200)) {
        let mut world = World::new();
        // Those that are not asked for yet, and those that fell silent: somebody computes them again.
        let mut rest = nodes;
        for event in events {
            match event {
                Event::Ask(at) if !rest.is_empty() => {
                    let node = rest.swap_remove(at % rest.len());
                    world.ask(node);
                }
                Event::Ask(_) => {}
                Event::Come(at) => world.come(at),
                Event::Silence(at) if !world.told.is_empty() => {
                    let at = at % world.told.len();
                    rest.push(world.told.swap_remove(at).0);
                }
                Event::Silence(_) => {}
                Event::Pass(millis) => world.now += Duration::from_millis(millis),
            }
            world.assert_fits();
        }
        world.now += ON_ITS_WAY;
        for node in rest {
            world.ask(node);
        }
        world.go_on();
        for _ in 0..4 * SLOTS {
            world.come(0);
        }
        prop_assert!(world.held.root().is_some(), "{:?} wait", world.waiting);
        prop_assert!(world.queue.waiting.is_empty());
    }
}

#[test]
fn who_falls_silent_is_forgotten_and_who_sends_is_not() {
    let mut queue = CreditQueue::new(2);
    let (began, half) = (Instant::now(), ON_ITS_WAY / 2);
    for slot in 5..9 {
        queue.wait(leaf(slot), slot);
    }
    // Nothing is held: each alone would be one beyond the lowest missing slot.
    let next = |queue: &mut CreditQueue<u32>, now| {
        queue.next(now, |_| true, |_| Ok(Credit::Beyond(1))).map(|(slot, _)| slot)
    };
    assert_eq!(
        [next(&mut queue, began), next(&mut queue, began), next(&mut queue, began)],
        [Some(5), Some(6), None]
    );
    queue.came(Step(4), Node::leaf(6), &[BlockId(8)], began + half);
    assert_eq!(next(&mut queue, began + half), None, "its last block has yet to come");
    assert_eq!(next(&mut queue, began + ON_ITS_WAY), Some(7), "in the place of the silent one");
    assert_eq!(next(&mut queue, began + ON_ITS_WAY), None);
    queue.came(Step(4), Node::leaf(6), &[BlockId(8), BlockId(9)], began + ON_ITS_WAY);
    assert_eq!(next(&mut queue, began + ON_ITS_WAY), Some(8));
}

#[test]
fn what_is_on_its_way_for_one_step_takes_no_room_of_another() {
    let mut queue = CreditQueue::new(1);
    let now = Instant::now();
    queue.wait(leaf(5), 4);
    queue.wait(Asked { step: Step(5), ..leaf(5) }, 5);
    let mut next = || queue.next(now, |_| true, |_| Ok(Credit::Beyond(1)));
    assert_eq!([next(), next(), next()], [Some((4, Ok(()))), Some((5, Ok(()))), None]);
}

#[test]
fn one_that_must_wait_for_its_version_or_for_memory_holds_up_nobody() {
    for why in [PushOutcome::Busy, PushOutcome::Throttled] {
        let mut queue = CreditQueue::new(1);
        let now = Instant::now();
        queue.wait(leaf(1), 1);
        queue.wait(Asked { block: BlockId(3), ..leaf(2) }, 2);
        let look = |asked: &Asked| if asked.block == BlockId(9) { Err(why) } else { Ok(Credit::Lowest) };
        assert_eq!(queue.next(now, |_| true, look), Some((2, Ok(()))));
        assert_eq!(queue.next(now, |_| true, look), None);
    }
    let mut queue = CreditQueue::new(1);
    let now = Instant::now();
    queue.wait(leaf(1), 1);
    let late = |_: &Asked| Err(PushOutcome::Late);
    assert_eq!(queue.next(now, |_| true, late), Some((1, Err(PushOutcome::Late))));
}

#[test]
fn who_can_wait_no_longer_is_answered_out_of_turn() {
    let mut queue = CreditQueue::new(1);
    let now = Instant::now();
    queue.wait(leaf(1), ());
    let ticket = queue.wait(leaf(2), ());
    let asked = queue.leave(ticket).unwrap();
    assert!(queue.leave(ticket).is_none());
    assert_eq!(queue.last(asked.clone(), Ok(Credit::Beyond(2)), now), Err(PushOutcome::Busy));
    assert_eq!(queue.last(asked, Ok(Credit::Lowest), now), Ok(()));
    assert_eq!(queue.told.len(), 1);
}
