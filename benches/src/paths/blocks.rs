//! Whole blocks of a pserver, pushed to and updated as its shard does it; and gradients as they come in messages.

use anyhow::ensure;
use bytes::Bytes;
use shoal_pserver::block::NodeGradient;
use shoal_pserver::block::reduce::Gradient;
use shoal_pserver::block::shape::BlockShape;
use shoal_pserver::block::{Block, BlockSettings, Placement, PushOutcome};
use shoal_pserver::kernel::sum::Single;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::schedule::Schedule;
use shoal_runtime::cluster::{
    Declaration, Fill, Incarnation, JobId, JobSettings, Layout, Mode, Node, Parameter, Precision, Rewind,
    Rule, Step, Term,
};
use std::sync::Arc;

/// Records in the gradient of a step.
pub const WEIGHT: u64 = 48;
/// The learning rate.
pub const RATE: f32 = 0.001;
const ME: Incarnation = Incarnation(1);

/// Whole blocks: both checks of each push, the copy that holds the first gradient, the merge, Adam, publication.
/// No locks, no wire.
#[derive(Debug)]
pub struct Blocks {
    step: Step,
    /// What they are, and they.
    pub blocks: Vec<(Arc<BlockShape>, Block)>,
    gradients: [Message; 2],
}

impl Blocks {
    /// Of one parameter of so many elements with Adam.
    ///
    /// # Errors
    /// They cannot be declared.
    pub fn new(elements: usize) -> anyhow::Result<Blocks> {
        let rate = Schedule::constant(RATE);
        let parameter = Parameter::new("w", &[elements as u64], Rule::ADAM, rate, Initial::Zeros);
        let declaration = Declaration { parameters: vec![parameter], block_elements: 0 };
        declaration.check()?;
        let (layout, settings) = (Layout::new(&declaration), settings());
        let terms = Arc::new(BlockSettings::new(&settings, 16));
        let block = |(id, layout)| {
            let shape = Arc::new(BlockShape::new(id, layout, &declaration, 7, Precision::F32));
            let placement = Placement {
                fill: Fill(1),
                term: Term(1),
                rewind: Rewind(1),
                primary: ME,
                copies: Vec::new(),
                heir: None,
                origin: None,
            };
            let mut block = Block::new(Arc::clone(&shape), Arc::clone(&terms), placement, ME);
            block.restore_initial(Term(1));
            (shape, block)
        };
        let blocks: Vec<(Arc<BlockShape>, Block)> = layout.iter().map(block).collect();
        let gradients = [1, 2].map(|seed| Message::new(&gradient(seed, elements)));
        Ok(Blocks { step: Step(0), blocks, gradients })
    }

    /// Every block gets the left slot's gradient, then every block the right one's, and is published.
    ///
    /// # Errors
    /// A gradient is refused or applied at another time.
    pub fn update(&mut self) -> anyhow::Result<()> {
        let step = self.step;
        for (slot, gradient) in self.gradients.iter().enumerate() {
            let mut bytes = gradient.0.slice(1..);
            for (shape, block) in &mut self.blocks {
                let own = bytes.split_to(4 * shape.elements);
                let node = Node::leaf(slot as u32);
                shape.check_values(&own, false, node)?;
                let arriving = NodeGradient {
                    step,
                    node,
                    weight: WEIGHT / 2,
                    gradient: Gradient::Words(own, Precision::F32),
                };
                let outcome = block.push(Rewind(1), arriving)?;
                let is_published = matches!(outcome, PushOutcome::Applied { is_published: true, .. });
                ensure!(is_published == (slot == 1), "a block applied a step too early or not at all");
            }
        }
        self.step = step.next();
        Ok(())
    }
}

/// A job of two microbatches a step and more steps than any run measures.
fn settings() -> JobSettings {
    JobSettings {
        job: JobId("bench".into()),
        seed: 7,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 2,
        shuffle_run: 1,
        records: 1 << 20,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 1000,
        mode: Mode::SYNC,
        gradients: Precision::F32,
        warm_start: None,
        evaluated: None,
    }
}

/// A gradient as it lies in a message: little-endian words at an odd address.
#[derive(Debug)]
pub struct Message(Bytes);

impl Message {
    /// Of these values.
    pub fn new(values: &[f32]) -> Message {
        let mut bytes = Vec::with_capacity(1 + 4 * values.len());
        bytes.push(0);
        bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        Message(bytes.into())
    }

    /// Its words.
    pub fn words(&self) -> &[Single] {
        self.0[1..].as_chunks().0
    }
}

/// Values in -1..1 that differ from element to element (the multiplier is Knuth's, TAOCP 3.3.4).
pub fn gradient(seed: u32, elements: usize) -> Vec<f32> {
    let value =
        |index: u32| (index ^ (seed << 28)).wrapping_mul(2_654_435_761) as i32 as f32 / (1u32 << 31) as f32;
    (0..elements as u32).map(value).collect()
}
