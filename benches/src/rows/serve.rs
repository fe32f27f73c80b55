//! A pserver in a process of its own: the shard, the service and the listener that `shoal pserver` has, placed once, without a
//! master. It ends with its standard input.

use crate::buckets::parameter;
use shoal_pserver::block::Placement;
use shoal_pserver::block::verdicts::Verdicts;
use shoal_pserver::hosting::Assignment;
use shoal_pserver::service::PserverService;
use shoal_pserver::shard::{HELD_WINDOW, Shard};
use shoal_runtime::cluster::{
    BlockId, Declaration, Fill, Incarnation, JobId, JobSettings, Mode, Rewind, Rule, Table, Term,
};
use shoal_runtime::host::rpc::{self, Limits, Security};
use shoal_runtime::host::shutdown::Shutdown;
use std::io::Read;
use std::sync::Arc;
use tonic::service::Routes;

pub(crate) const JOB: &str = "rows";
pub(crate) const REWIND: Rewind = Rewind(3);
const ME: Incarnation = Incarnation(1);

/// Serves a table until nobody holds its standard input any more. Prints its address first, and that of plain TCP.
#[allow(clippy::print_stdout, reason = "its address is what whoever started it waits for")]
pub(crate) fn serve(dimension: usize, rule: Rule) -> anyhow::Result<()> {
    let (ended, stop) = Shutdown::pair();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(ended);
    });
    // As `shoal pserver` does.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let limits = Limits::default();
        let listener = rpc::listen(([127, 0, 0, 1], 0).into()).await?;
        println!("{} {}", listener.local_addr()?, crate::plain::answer()?);
        let routes = Routes::new(PserverService::new(Arc::new(shard(dimension, rule)?)).server(limits));
        Ok(rpc::serve(listener, routes, limits, Security::default(), stop).await?)
    })
}

/// All buckets of one table, led here, without copies.
fn shard(dimension: usize, rule: Rule) -> anyhow::Result<Shard> {
    let table = Table::default();
    let placement = Placement {
        fill: Fill(REWIND.0),
        term: Term(REWIND.0),
        rewind: REWIND,
        primary: ME,
        copies: Vec::new(),
        heir: None,
        origin: None,
    };
    let declaration = Declaration { parameters: vec![parameter(table, dimension, rule)], block_elements: 0 };
    let shard = Shard::new(settings(), HELD_WINDOW, ME);
    shard.assign(Assignment {
        master_term: 1,
        routing_version: REWIND.0,
        declaration,
        blocks: (0..table.buckets).map(|block| (BlockId(block), placement.clone())).collect(),
        pservers: Vec::new(),
        may_leave: false,
        checkpoint: None,
        scalars: None,
        exclusions: 0,
        verdicts: Verdicts::default(),
    })?;
    for (hosted, term, _) in shard.unrestored()? {
        shard.restore(&hosted, |block| {
            block.restore_initial(term);
            Ok(())
        })?;
    }
    Ok(shard)
}

/// A job with one microbatch a step: every push is an update. It has more steps than any run measures.
fn settings() -> JobSettings {
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
        warm_start: None,
        evaluated: None,
    }
}
