//! The present routing and the way to its pservers. It only ever moves on; who asks for a newer one is not decided here.

use crate::error::TrainError;
use shoal_runtime::cluster::Routing;
use shoal_runtime::host::rpc::{Dial, PserverClient, pserver_client};
use shoal_runtime::host::signal::{Changes, Signal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The routing that this trainer knows, and a connection to each of its pservers.
pub(crate) struct Routes {
    present: Mutex<Arc<Routing>>,
    changed: Signal,
    clients: Mutex<BTreeMap<String, PserverClient>>,
    dial: Arc<dyn Dial>,
}

impl Routes {
    /// Begins with the routing that came with joining, of a program that has so many blocks.
    pub(crate) fn new(routing: Routing, blocks: usize, dial: Arc<dyn Dial>) -> Result<Routes, TrainError> {
        check(&routing, blocks)?;
        let present = Mutex::new(Arc::new(routing));
        Ok(Routes { present, changed: Signal::new(), clients: Mutex::default(), dial })
    }

    /// Takes in a routing and says whether it is newer than the one known; an older one changes nothing.
    pub(crate) fn learn(&self, routing: Routing) -> Result<bool, TrainError> {
        let present = self.present();
        if routing.version <= present.version {
            return Ok(false);
        }
        check(&routing, present.blocks.len())?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|address, _| routing.pservers.iter().any(|pserver| pserver.address == *address));
        *self.present.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(routing);
        self.changed.send();
        Ok(true)
    }

    pub(crate) fn present(&self) -> Arc<Routing> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Hears of every newer routing.
    pub(crate) fn subscribe(&self) -> Changes {
        self.changed.listen()
    }

    /// A connection to a pserver; it comes about at the first call.
    pub(crate) fn client(&self, address: &str) -> Result<PserverClient, TrainError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let client = pserver_client(&*self.dial, address).map_err(TrainError::Settings)?;
        clients.insert(address.to_owned(), client.clone());
        Ok(client)
    }
}

fn check(routing: &Routing, blocks: usize) -> Result<(), TrainError> {
    if routing.blocks.len() == blocks {
        return Ok(());
    }
    let what = format!("the master routes {} blocks, this program has {blocks}", routing.blocks.len());
    Err(TrainError::Settings(format!("{what}: build all trainers from the same version")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::tests::routing;
    use shoal_runtime::host::rpc::TcpDial;

    #[test]
    fn a_routing_only_moves_on_and_never_to_another_number_of_blocks() {
        let at = |version, primary| routing(version, &[(primary, version, 0)]);
        let routes = Routes::new(at(5, 0), 1, Arc::new(TcpDial::default())).unwrap();
        assert!(!routes.learn(at(4, 1)).unwrap() && !routes.learn(at(5, 1)).unwrap());
        assert_eq!(*routes.present(), at(5, 0));
        let heard = routes.subscribe();
        assert!(routes.learn(at(6, 1)).unwrap() && heard.has_changed());
        assert_eq!(*routes.present(), at(6, 1));
        assert!(routes.learn(routing(7, &[(0, 7, 0), (0, 7, 0)])).is_err());
        assert!(Routes::new(at(5, 0), 2, Arc::new(TcpDial::default())).is_err());
    }
}
