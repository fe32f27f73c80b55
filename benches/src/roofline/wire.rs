//! Pull and push of 64 MiB over loopback: a trainer in this process and a pserver in another, beside the same bytes over plain
//! TCP between the same two processes, and peers doing the same work. All in turn.

use crate::client::Client;
use anyhow::ensure;
use bytes::Bytes;
use shoal_benches::measure::{Took, Work, took};
use shoal_benches::peers::Peers;
use shoal_benches::plain::Plain;
use shoal_benches::pserver::{self, Pserver};
use shoal_benches::report::Row;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::{Declaration, Parameter, Rule, Schedule};

const ELEMENTS: usize = 16 << 20;
const BYTES: usize = 4 * ELEMENTS;
const RATE: f32 = 1e-3;
/// Every element of every gradient.
const GRADIENT: f32 = 0.25;

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
    let rate = Schedule::constant(RATE);
    let parameter = Parameter::new("w", &[ELEMENTS as u64], rule, rate, Initial::Zeros);
    pserver::serve(Declaration { parameters: vec![parameter], block_elements: 0 })
}

/// What ours is measured beside.
struct Beside {
    rounds: u32,
    /// Plain TCP, to a process that is always counted.
    plain: Plain,
    plain_process: u32,
    peers: Vec<Peers>,
}

/// What one round took.
struct Round {
    ours: Took,
    plain: Took,
    /// In the order of [`Beside::names`].
    theirs: Vec<Took>,
}

pub(crate) fn rows(rounds: u32, peers: Vec<Peers>) -> anyhow::Result<Vec<Row>> {
    let (sgd, plain) = Pserver::start(&["--serve", "sgd"])?;
    let (adam, _) = Pserver::start(&["--serve", "adam"])?;
    let mut beside = Beside { rounds, plain, plain_process: sgd.id(), peers };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut values = vec![0.0; ELEMENTS];
    let gradient: Bytes = vec![GRADIENT.to_le_bytes(); ELEMENTS].into_flattened().into();
    let mut client = Client::new(&sgd.address)?;
    let pull = &mut || runtime.block_on(client.pull(&mut values));
    let mut rows = beside.rows("pull", pull, [8, BYTES], &sgd, Some("pull"))?;
    let push = &mut || runtime.block_on(client.push(&gradient));
    rows.extend(beside.rows("push, SGD", push, [BYTES, 8], &sgd, Some("push"))?);
    runtime.block_on(client.pull(&mut values))?;
    let expected = (0..=rounds).fold(0.0, |value, _| value - RATE * GRADIENT);
    ensure!(values.iter().all(|value| *value == expected), "what was pulled is not what was pushed");
    let mut client = Client::new(&adam.address)?;
    let push = &mut || runtime.block_on(client.push(&gradient));
    rows.extend(beside.rows("push, Adam", push, [BYTES, 8], &adam, None)?);
    Ok(rows)
}

impl Beside {
    /// Ours, which sends and takes so many bytes with `process`, beside plain TCP and, where they can do it, each peer.
    fn rows(
        &mut self,
        name: &str,
        ours: Work<'_>,
        [sent, taken]: [usize; 2],
        process: &Pserver,
        asked: Option<&str>,
    ) -> anyhow::Result<Vec<Row>> {
        let mut processes = vec![std::process::id(), self.plain_process, process.id()];
        processes.dedup();
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            let ours = took(&processes, ours)?;
            let plain = took(&processes, &mut || self.plain.exchange(sent, taken))?;
            let theirs = asked.map_or(Ok(Vec::new()), |what| self.theirs(what))?;
            rounds.push(Round { ours, plain, theirs });
        }
        let row = |beside: &str, of: &dyn Fn(&Round) -> Took| {
            let pairs: Vec<[Took; 2]> = rounds[1..].iter().map(|round| [round.ours, of(round)]).collect();
            Row::of_bytes(&format!("{name} / {beside}"), BYTES, &pairs)
        };
        let mut rows = vec![row("TCP", &|round| round.plain)];
        for (at, peer) in self.names().iter().enumerate().filter(|_| asked.is_some()) {
            rows.push(row(peer, &|round| round.theirs[at]));
        }
        Ok(rows)
    }

    fn theirs(&mut self, what: &str) -> anyhow::Result<Vec<Took>> {
        let mut theirs = Vec::new();
        for peers in &mut self.peers {
            for name in peers.names() {
                theirs.push(peers.took(&name, what, 1)?);
            }
        }
        Ok(theirs)
    }

    fn names(&self) -> Vec<String> {
        self.peers.iter().flat_map(Peers::versions).collect()
    }
}
