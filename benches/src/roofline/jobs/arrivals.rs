//! The rival's pserver, in a process of its own: it adds gradients in the order in which they come, of whatever microbatches they
//! are, and steps when all of a step are in. No tree, no ledger, no terms, no copies: it may lose and double what it likes.

use super::load::{Load, RATE};
use crate::pserver::serve_routes;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shoal_runtime::host::rpc::{Limits, PserverServer};
use shoal_runtime::wire::proto::{self, PushAnswer, pserver_server};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// What it is told, as one argument.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Adding(pub(crate) Load);

impl FromStr for Adding {
    type Err = String;

    fn from_str(text: &str) -> Result<Adding, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

/// Serves until nobody holds its standard input any more.
pub(crate) fn serve(Adding(load): Adding) -> anyhow::Result<()> {
    serve_routes(async move {
        let server = PserverServer::new(Arrivals::new(load), Limits::default().message_bytes);
        Ok(Routes::new(server))
    })
}

struct Arrivals {
    microbatches: u64,
    sums: Mutex<Sums>,
    /// The step that may begin, and its parameters.
    published: watch::Sender<(u64, Bytes)>,
}

#[derive(Debug, PartialEq)]
struct Sums {
    step: u64,
    arrived: u64,
    sum: Vec<f32>,
    values: Vec<f32>,
}

impl Arrivals {
    fn new(load: Load) -> Arrivals {
        let zeros = vec![0.0; load.elements];
        let sums = Sums { step: 0, arrived: 0, sum: zeros.clone(), values: zeros };
        let (published, _) = watch::channel((0, vec![0; load.bytes()].into()));
        Arrivals { microbatches: load.microbatches.into(), sums: Mutex::new(sums), published }
    }

    fn add(&self, request: &proto::PushRequest) -> Result<(), Status> {
        let gradient = request.blocks.first().map(|block| block.gradient.as_chunks::<4>().0);
        let mut sums = self.sums.lock().unwrap_or_else(PoisonError::into_inner);
        let gradient = gradient.filter(|gradient| gradient.len() == sums.sum.len());
        let gradient = gradient.ok_or_else(|| Status::invalid_argument("no gradient of this parameter"))?;
        if request.step != sums.step || sums.arrived + request.weight > self.microbatches {
            return Err(Status::failed_precondition("a gradient too many"));
        }
        sums.sum.iter_mut().zip(gradient).for_each(|(sum, word)| *sum += f32::from_le_bytes(*word));
        sums.arrived += request.weight;
        if sums.arrived == self.microbatches {
            sums.apply();
            let parameters = Bytes::copy_from_slice(bytemuck::cast_slice(&sums.values));
            self.published.send_replace((sums.step, parameters));
        }
        Ok(())
    }
}

impl Sums {
    fn apply(&mut self) {
        let weight = self.arrived as f32;
        for (value, sum) in self.values.iter_mut().zip(&mut self.sum) {
            *value -= RATE * (*sum / weight);
            *sum = 0.0;
        }
        (self.step, self.arrived) = (self.step + 1, 0);
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl pserver_server::Pserver for Arrivals {
    async fn push(&self, request: Request<proto::PushRequest>) -> Answer<proto::PushReply> {
        self.add(request.get_ref())?;
        Ok(Response::new(proto::PushReply { answers: vec![PushAnswer::Held.into()] }))
    }

    /// Kept open until the step may begin; without a block where that takes too long.
    async fn pull(&self, request: Request<proto::PullRequest>) -> Answer<proto::PullReply> {
        let request = request.into_inner();
        let mut published = self.published.subscribe();
        let wait = Duration::from_millis(request.wait_millis.into());
        let due = timeout(wait, published.wait_for(|(step, _)| *step >= request.step)).await;
        let Ok(Ok(due)) = due else { return Ok(Response::new(proto::PullReply::default())) };
        let (version, parameters) = due.clone();
        let block = proto::PulledBlock { parameters, version, ..Default::default() };
        Ok(Response::new(proto::PullReply { blocks: vec![block], ..Default::default() }))
    }

    async fn read_state(&self, _: Request<proto::ReadStateRequest>) -> Answer<proto::ReadStateReply> {
        Err(Status::unimplemented("it has no states"))
    }
    async fn follow(&self, _: Request<proto::FollowRequest>) -> Answer<proto::FollowReply> {
        Err(Status::unimplemented("it has no copies"))
    }
    async fn share(&self, _: Request<proto::ShareRequest>) -> Answer<proto::ShareReply> {
        Err(Status::unimplemented("it shares nothing"))
    }
    async fn decide(&self, _: Request<proto::DecideRequest>) -> Answer<proto::DecideReply> {
        Err(Status::unimplemented("it decides nothing"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pserver_server::Pserver;

    const LOAD: Load = Load { elements: 3, microbatches: 4, micros: 0, jitter_percent: 0, delay: 0 };

    /// One message with the sum of these slots.
    async fn push(arrivals: &Arrivals, step: u64, slots: &[u32]) -> Result<(), Status> {
        let sum: f32 = slots.iter().map(|slot| LOAD.gradient(*slot)).sum();
        let gradient = vec![sum.to_le_bytes(); LOAD.elements].into_flattened().into();
        let blocks = vec![proto::BlockGradient { gradient, ..Default::default() }];
        let request = proto::PushRequest { step, weight: slots.len() as u64, blocks, ..Default::default() };
        arrivals.push(Request::new(request)).await.map(|_| ())
    }

    async fn pulled(arrivals: &Arrivals, step: u64) -> Option<Vec<f32>> {
        let request = proto::PullRequest { step, wait_millis: 10, ..Default::default() };
        let reply = arrivals.pull(Request::new(request)).await.unwrap().into_inner();
        reply.blocks.first().map(|block| bytemuck::pod_collect_to_vec(&block.parameters))
    }

    #[tokio::test]
    async fn a_step_is_published_when_all_its_microbatches_have_come_in_whatever_order() {
        let arrivals = Arrivals::new(LOAD);
        for step in 0..3 {
            LOAD.check(step, &pulled(&arrivals, step).await.unwrap()).unwrap();
            push(&arrivals, step, &[3, 1]).await.unwrap();
            assert_eq!(pulled(&arrivals, step + 1).await, None);
            push(&arrivals, step, &[0]).await.unwrap();
            push(&arrivals, step, &[2]).await.unwrap();
        }
        LOAD.check(3, &pulled(&arrivals, 3).await.unwrap()).unwrap();
    }

    #[tokio::test]
    async fn what_is_of_another_step_or_too_much_is_refused() {
        let arrivals = Arrivals::new(LOAD);
        push(&arrivals, 0, &[0, 1, 2]).await.unwrap();
        assert!(push(&arrivals, 1, &[3]).await.is_err());
        assert!(push(&arrivals, 0, &[3, 3]).await.is_err());
        push(&arrivals, 0, &[3]).await.unwrap();
        LOAD.check(1, &pulled(&arrivals, 1).await.unwrap()).unwrap();
    }
}
