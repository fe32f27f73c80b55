//! Pull and push of 64 MiB over loopback: a trainer in this process and a pserver in another, beside the same bytes over plain
//! TCP between the same two processes.

use crate::client::Client;
use bytes::Bytes;
use shoal_benches::measure::{Took, Work, took_in_turn};
use shoal_benches::pserver::{self, Pserver};
use shoal_benches::report::Row;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Declaration, Parameter, Rule, Schedule};

const ELEMENTS: usize = 16 << 20;
const BYTES: usize = 4 * ELEMENTS;

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Served {
    Sgd,
    Adam,
}

pub(crate) fn serve(served: Served) -> anyhow::Result<()> {
    let rule = match served {
        Served::Sgd => Rule::Sgd,
        Served::Adam => Rule::ADAM,
    };
    let rate = Schedule::constant(1e-3);
    let parameter = Parameter::new("w", &[ELEMENTS as u64], rule, rate, Initial::Zeros);
    pserver::serve(Declaration { parameters: vec![parameter], block_elements: 0 })
}

pub(crate) fn rows(rounds: u32) -> anyhow::Result<Vec<Row>> {
    let row = |name, measured: Vec<[Took; 2]>| Row::of_bytes(name, BYTES, &measured);
    let (sgd, mut plain) = Pserver::start(&["--serve", "sgd"])?;
    let (adam, _) = Pserver::start(&["--serve", "adam"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut values = vec![0.0; ELEMENTS];
    let gradient: Bytes = vec![1e-3f32.to_le_bytes(); ELEMENTS].into_flattened().into();
    let mut client = Client::new(&sgd.address)?;
    let mut beside = |ours: Work<'_>, sent: usize, taken: usize, process: &Pserver| {
        let processes = [std::process::id(), process.id(), sgd.id()];
        took_in_turn(rounds, &processes, [ours, &mut || plain.exchange(sent, taken)])
    };
    let pulls = beside(&mut || runtime.block_on(client.pull(&mut values)), 8, BYTES, &sgd)?;
    let pushes = beside(&mut || runtime.block_on(client.push(&gradient)), BYTES, 8, &sgd)?;
    let mut client = Client::new(&adam.address)?;
    let adam_pushes = beside(&mut || runtime.block_on(client.push(&gradient)), BYTES, 8, &adam)?;
    Ok(vec![row("pull / TCP", pulls), row("push, SGD / TCP", pushes), row("push, Adam / TCP", adam_pushes)])
}
