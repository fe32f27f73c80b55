//! A pserver in a process of its own: the shard, the service and the listener that `shoal pserver` has, placed once, without a
//! master. It ends with its standard input. Plain bytes are answered beside it.

use crate::plain;
use anyhow::Context;
use shoal_pserver::block::Placement;
use shoal_pserver::block::evaluate::Verdicts;
use shoal_pserver::hosting::Assignment;
use shoal_pserver::service::PserverService;
use shoal_pserver::shard::{HELD_WINDOW, Shard};
use shoal_runtime::cluster::{
    BlockId, Declaration, Fill, Incarnation, JobId, JobSettings, Layout, Mode, Precision, Rewind, Term,
};
use shoal_runtime::host::memory::keep_large_buffers;
use shoal_runtime::host::processors::Processors;
use shoal_runtime::host::rpc::{self, Limits, Security};
use shoal_runtime::host::shutdown::Shutdown;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use tonic::service::Routes;

/// The job that it serves.
pub const JOB: &str = "bench";
/// The history of all its blocks.
pub const REWIND: Rewind = Rewind(3);
const ME: Incarnation = Incarnation(1);

/// The process. It ends when nobody has this any more.
#[derive(Debug)]
pub struct Pserver {
    process: Child,
    /// Where it listens.
    pub address: String,
    /// Where it answers plain bytes.
    pub plain: String,
}

impl Pserver {
    /// Starts this program with `arguments`, which make it call [`serve`].
    ///
    /// # Errors
    /// It does not start, or does not say where it listens.
    pub fn start(arguments: &[&str]) -> anyhow::Result<Pserver> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the pserver")?;
        let output = process.stdout.take().context("its address cannot be read")?;
        let mut pserver = Pserver { process, address: String::new(), plain: String::new() };
        let mut addresses = String::new();
        BufReader::new(output).read_line(&mut addresses)?;
        let (address, plain) = addresses.trim().split_once(' ').context("it has said no addresses")?;
        (pserver.address, pserver.plain) = (address.to_owned(), plain.to_owned());
        Ok(pserver)
    }

    /// The process's number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Pserver {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Serves what is declared, in a job whose gradients are that precise, until nobody holds its standard input any more. Prints its address first, and that of plain bytes.
///
/// # Errors
/// No port is free, or the declaration is none.
pub fn serve(declaration: Declaration, gradients: Precision) -> anyhow::Result<()> {
    serve_routes(async move {
        let service = PserverService::new(shard(declaration, gradients).await?);
        Ok(Routes::new(service.server(Limits::default())))
    })
}

/// The same with other services.
///
/// # Errors
/// No port is free, or there are no services.
#[allow(clippy::print_stdout, reason = "its address is what whoever started it waits for")]
pub fn serve_routes(routes: impl Future<Output = anyhow::Result<Routes>>) -> anyhow::Result<()> {
    let (ended, stop) = Shutdown::pair();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    // As `shoal pserver` does.
    keep_large_buffers();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let limits = Limits::default();
        let listener = rpc::listen(([127, 0, 0, 1], 0).into()).await?;
        println!("{} {}", listener.local_addr()?, plain::answer()?);
        Ok(rpc::serve(listener, routes.await?, limits, Security::default(), stop).await?)
    })
}

/// All blocks, led here, without copies.
async fn shard(declaration: Declaration, gradients: Precision) -> anyhow::Result<Arc<Shard>> {
    let placement = Placement {
        fill: Fill(REWIND.0),
        term: Term(REWIND.0),
        rewind: REWIND,
        primary: ME,
        copies: Vec::new(),
        heir: None,
        origin: None,
    };
    declaration.check()?;
    let blocks = Layout::new(&declaration).len() as u32;
    let shard = Shard::new(settings(gradients), HELD_WINDOW, ME).with_processors(Processors::all());
    let shard = Arc::new(shard);
    let assigned = shard.assign(Assignment {
        master_term: 1,
        routing_version: REWIND.0,
        declaration,
        blocks: (0..blocks).map(|block| (BlockId(block), placement.clone())).collect(),
        pservers: Vec::new(),
        may_leave: false,
        is_over: false,
        checkpoint: None,
        scalars: None,
        exclusions: 0,
        verdicts: Verdicts::default(),
        record_hashes: 0,
    });
    assigned.await?;
    let unrestored = shard.unrestored()?.into_iter().map(|(hosted, term, _)| (hosted, term));
    shard.restore_initial(unrestored.collect()).await?;
    Ok(shard)
}

/// A job with one microbatch a step: every push is an update. It has more steps than any run measures.
fn settings(gradients: Precision) -> JobSettings {
    JobSettings {
        job: JobId(JOB.into()),
        seed: 7,
        epochs: 1,
        microbatch_records: 1,
        microbatches_per_step: 1,
        shuffle_run: 1,
        records: 1 << 30,
        manifest_fingerprint: [0; 32],
        lease_ttl_millis: 10_000,
        mode: Mode::SYNC,
        gradients,
        warm_start: None,
        evaluated: None,
    }
}
