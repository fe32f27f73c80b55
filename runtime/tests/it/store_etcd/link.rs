//! A way to etcd that a test cuts, or that loses answers. It must never lose anything unasked.

use shoal_runtime::host::rpc::tls::Role;
use shoal_runtime::host::rpc::{Channel, Dial, TcpDial};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use tower::ServiceExt;

const WHOLE: u8 = 0;
const CUT: u8 = 1;
const LOSES_ONE_ANSWER: u8 = 2;

/// The way of one contender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link(Arc<AtomicU8>);

impl Link {
    /// From now on nothing arrives: to etcd, the contender is dead.
    pub(crate) fn cut(&self) {
        self.0.store(CUT, Ordering::SeqCst);
    }
    /// Everything arrives again.
    pub(crate) fn heal(&self) {
        self.0.store(WHOLE, Ordering::SeqCst);
    }
    /// The next transaction is carried out, and its answer is lost.
    pub(crate) fn lose_one_answer(&self) {
        self.0.store(LOSES_ONE_ANSWER, Ordering::SeqCst);
    }
}

impl Dial for Link {
    fn dial(&self, address: &str, _: Option<Role>) -> Result<Channel, String> {
        let (channel, state) = (TcpDial::default().dial(address, None)?, Arc::clone(&self.0));
        let link = tower::service_fn(move |request: http::Request<tonic::body::Body>| {
            let (channel, state) = (channel.clone(), Arc::clone(&state));
            async move {
                if state.load(Ordering::SeqCst) == CUT {
                    return std::future::pending().await;
                }
                let is_transaction = request.uri().path().ends_with("/Txn");
                let answer = channel.oneshot(request).await?;
                let loses =
                    || state.compare_exchange(LOSES_ONE_ANSWER, WHOLE, Ordering::SeqCst, Ordering::SeqCst);
                if is_transaction && loses().is_ok() {
                    return Err("the answer is lost".into());
                }
                Ok(answer)
            }
        });
        Ok(Channel::new(link))
    }
}
