//! Pull and push of 64 MiB inside this host, over TCP and over a Unix socket: a trainer in this process and a pserver in another,
//! beside the same bytes, plain, between the same two processes, and peers doing the same work. All in turn.

use crate::measure::{Took, took};
use crate::peers::Peers;
use crate::plain::Plain;
use crate::pserver::{self, Pserver};
use crate::report::Row;
use crate::roofline::client::{Client, Way};
use anyhow::ensure;
use bytes::Bytes;
use shoal_runtime::cluster::initial::Initial;
use shoal_runtime::cluster::precision::bf16_to_bytes;
use shoal_runtime::cluster::{Declaration, Parameter, Precision, Rule, Schedule};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

const ELEMENTS: usize = 16 << 20;
const BYTES: usize = 4 * ELEMENTS;
const RATE: f32 = 1e-3;
/// Every element of every gradient.
const GRADIENT: f32 = 0.25;

#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub(crate) enum Served {
    Sgd,
    SgdBf16,
    Adam,
}

pub(crate) fn serve(served: Served) -> anyhow::Result<()> {
    let (rule, gradients) = match served {
        Served::Sgd => (Rule::Sgd, Precision::F32),
        Served::SgdBf16 => (Rule::Sgd, Precision::Bf16),
        Served::Adam => (Rule::ADAM, Precision::F32),
    };
    let rate = Schedule::constant(RATE);
    let parameter = Parameter::new("w", &[ELEMENTS as u64], rule, rate, Initial::Zeros);
    pserver::serve(Declaration { parameters: vec![parameter], block_elements: 0 }, gradients)
}

/// What ours is measured beside.
struct Beside {
    rounds: u32,
    tcp: Plain<TcpStream>,
    unix: Plain<UnixStream>,
    /// The process at the other end of these, which is always counted.
    plain_process: u32,
    peers: Vec<Peers>,
}

/// What one round took.
struct Round {
    ours: [Took; 2],
    plain: [Took; 2],
    /// In the order of [`Beside::names`].
    theirs: Vec<Took>,
}

/// In the order in which a round has them.
const WAYS: [(Way, &str, &str); 2] = [(Way::Tcp, "", "TCP"), (Way::Here, " in one host", "Unix socket")];

pub(crate) fn rows(rounds: u32, peers: Vec<Peers>) -> anyhow::Result<Vec<Row>> {
    let sgd = Pserver::start(&["--serve", "sgd"])?;
    let adam = Pserver::start(&["--serve", "adam"])?;
    let (tcp, unix) = (Plain::tcp(&sgd.plain)?, Plain::unix(&sgd.plain)?);
    let mut beside = Beside { rounds, tcp, unix, plain_process: sgd.id(), peers };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut values = vec![0.0; ELEMENTS];
    let gradient: Bytes = vec![GRADIENT.to_le_bytes(); ELEMENTS].into_flattened().into();
    let mut client = Client::new(&sgd.address)?;
    let pull = &mut |way| runtime.block_on(client.pull(way, &mut values));
    let mut rows = beside.rows("pull", pull, [8, BYTES], &sgd, Some("pull"))?;
    let push = &mut |way| runtime.block_on(client.push(way, &gradient, Precision::F32));
    rows.extend(beside.rows("push, SGD", push, [BYTES, 8], &sgd, Some("push"))?);
    for (way, ..) in WAYS {
        runtime.block_on(client.pull(way, &mut values))?;
        let expected = (0..2 * (rounds + 1)).fold(0.0, |value, _| value - RATE * GRADIENT);
        ensure!(values.iter().all(|value| *value == expected), "what was pulled is not what was pushed");
    }
    // Half the bytes; each of its updates is the same as that of the whole ones, for this gradient is a bf16.
    let bf16 = Pserver::start(&["--serve", "sgd-bf16"])?;
    let halves: Bytes = vec![bf16_to_bytes(GRADIENT); ELEMENTS].into_flattened().into();
    let mut client = Client::new(&bf16.address)?;
    let push = &mut |way| runtime.block_on(client.push(way, &halves, Precision::Bf16));
    rows.extend(beside.rows("push of bf16, SGD", push, [BYTES / 2, 8], &bf16, None)?);
    runtime.block_on(client.pull(Way::Here, &mut values))?;
    let expected = (0..2 * (rounds + 1)).fold(0.0, |value, _| value - RATE * GRADIENT);
    ensure!(values.iter().all(|value| *value == expected), "what was pulled is not what was pushed as bf16");
    let mut client = Client::new(&adam.address)?;
    let push = &mut |way| runtime.block_on(client.push(way, &gradient, Precision::F32));
    rows.extend(beside.rows("push, Adam", push, [BYTES, 8], &adam, None)?);
    Ok(rows)
}

impl Beside {
    /// Ours, which sends and takes so many bytes with `process`, beside as many plain bytes and, where they can do it, each
    /// peer.
    fn rows(
        &mut self,
        name: &str,
        ours: &mut dyn FnMut(Way) -> anyhow::Result<()>,
        [sent, taken]: [usize; 2],
        process: &Pserver,
        asked: Option<&str>,
    ) -> anyhow::Result<Vec<Row>> {
        let mut processes = vec![std::process::id(), self.plain_process, process.id()];
        processes.dedup();
        let mut rounds = Vec::new();
        for _ in 0..=self.rounds {
            let (tcp, unix) = (&mut self.tcp, &mut self.unix);
            let first = took(&processes, &mut || ours(Way::Tcp))?;
            let plain_tcp = took(&processes, &mut || tcp.exchange(sent, taken))?;
            let second = took(&processes, &mut || ours(Way::Here))?;
            let plain_unix = took(&processes, &mut || unix.exchange(sent, taken))?;
            let theirs = asked.map_or(Ok(Vec::new()), |what| self.theirs(what))?;
            rounds.push(Round { ours: [first, second], plain: [plain_tcp, plain_unix], theirs });
        }
        let mut rows = Vec::new();
        for (at, (_, place, plain)) in WAYS.iter().enumerate() {
            let row = |beside: &str, of: &dyn Fn(&Round) -> Took| {
                let pairs: Vec<[Took; 2]> =
                    rounds[1..].iter().map(|round| [round.ours[at], of(round)]).collect();
                Row::of_bytes(&format!("{name}{place} / {beside}"), sent.max(taken), &pairs)
            };
            rows.push(row(plain, &|round| round.plain[at]));
            for (peer, name) in self.names().iter().enumerate().filter(|_| asked.is_some()) {
                rows.push(row(name, &|round| round.theirs[peer]));
            }
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
