//! Delivers what is on its way in memory, in the order of arrival: requests to services, replies to callers.

use super::{Answer, Event, Inner, Network};
use crate::sim::call::{Call, Response};
use crate::sim::host::{Host, HostState};
use crate::sim::points::Side;
use crate::sim::weather::Delivery;
use shoal_runtime::cluster::permutation::mix;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tower::ServiceExt;

impl Network {
    pub(super) async fn deliver_for_ever(self: Arc<Self>) {
        loop {
            let next = self.inner().queue.first_key_value().map(|((due, _), _)| *due);
            let posted = self.posted.notified();
            match next {
                None => posted.await,
                Some(due) if due > Instant::now() => {
                    let _ = tokio::time::timeout_at(due, posted).await;
                }
                Some(_) => {
                    // Everybody's timers of this moment first.
                    for _ in 0..3 {
                        tokio::task::yield_now().await;
                    }
                    self.deliver_due();
                }
            }
        }
    }

    fn deliver_due(self: &Arc<Self>) {
        let now = Instant::now();
        loop {
            let mut guard = self.inner();
            let Some(entry) = guard.queue.first_entry().filter(|entry| entry.key().0 <= now) else { return };
            let event = entry.remove();
            match event {
                Event::Request { call, key, delivery, caller } => {
                    self.deliver(&mut guard, call, key, delivery, caller);
                }
                Event::Reply { call, key, answer, is_lost, caller } => {
                    self.answer(&mut guard, &call, key, answer, is_lost, &caller);
                }
            }
        }
    }

    fn deliver(
        self: &Arc<Self>,
        inner: &mut Inner,
        call: Arc<Call>,
        key: u64,
        delivery: Delivery,
        caller: mpsc::Sender<Answer>,
    ) {
        let is_lost = delivery.is_lost || inner.is_cut(&call.from, &call.to);
        inner.note_request(self.began.elapsed(), &call, key, is_lost);
        if is_lost {
            return;
        }
        inner.witnesses.iter_mut().for_each(|witness| witness(&call));
        // A process that was killed leaves a machine that refuses; a machine that is gone says nothing.
        let endpoint = inner.endpoints.get(&call.to).cloned();
        let is_refusing = |host: &Host| host.state() == HostState::Crashed && key & 2 == 0;
        let Some((host, service)) = endpoint.filter(|(host, _)| !is_refusing(host)) else {
            let answer = Err(tonic::Status::unavailable("the connection was refused"));
            let (key, due) = (mix(key), Instant::now() + delivery.reply_delay);
            return inner.post(due, key, Event::Reply { call, key, answer, is_lost: false, caller });
        };
        let service = inner.speaking(&host, service);
        let (network, cancels) = (Arc::clone(self), inner.weather.cancels);
        tokio::spawn(async move {
            let work = host.run(async {
                let answers = || format!("answers {}", call.method);
                network.points.pass(&host, answers, Side::Before).await;
                let response = service.oneshot(call.request()).await.unwrap_or_else(|never| match never {});
                let response = Box::new(Response::collect(response).await);
                network.points.pass(&host, answers, Side::After).await;
                response
            });
            let response = tokio::select! {
                biased;
                response = work => response,
                () = caller.closed(), if cancels => None,
            };
            // A callee that was killed in mid-call leaves a connection that breaks, or one that stays silent.
            let is_broken = host.state() == HostState::Crashed && key & 2 == 0;
            let answer = match response {
                Some(response) => {
                    network.made(&call, &response);
                    Ok(Box::new(network.altered(&call, *response)))
                }
                None if is_broken => Err(tonic::Status::unavailable("the connection broke")),
                None => return,
            };
            let (key, due) = (mix(key), Instant::now() + delivery.reply_delay);
            let is_lost = delivery.is_reply_lost;
            network.inner().post(due, key, Event::Reply { call, key, answer, is_lost, caller });
            network.posted.notify_one();
        });
    }

    fn answer(
        &self,
        inner: &mut Inner,
        call: &Call,
        key: u64,
        answer: Answer,
        is_lost: bool,
        caller: &mpsc::Sender<Answer>,
    ) {
        let is_lost = is_lost || inner.is_cut(&call.to, &call.from);
        inner.note_reply(self.began.elapsed(), call, key, answer.as_deref(), is_lost);
        if !is_lost {
            // The first answer counts; the caller may be gone.
            let _ = caller.try_send(answer);
        }
    }
}
