//! Alters replies on their way in memory, to order, as a faulty callee would.

use super::{Call, Network, Response};
use prost::Message;

/// Changes a successful reply.
pub(super) type Alter = Box<dyn FnMut(&Call, Response) -> Response + Send>;

impl Network {
    /// Lets `alter` change successful replies to calls of a method that answers with an `M`, after witnesses were shown them. Nothing
    /// on a wire is altered.
    pub fn alter_replies<M: Message + Default>(
        &self,
        method: &'static str,
        mut alter: impl FnMut(&Call, &mut M) + Send + 'static,
    ) {
        let alter = move |call: &Call, response: Response| match call.method == method {
            true => response.changed(|message| alter(call, message)),
            false => response,
        };
        self.inner().alters.push(Box::new(alter));
    }

    /// A reply as it is under way.
    pub(super) fn altered(&self, call: &Call, response: Response) -> Response {
        if response.code() != 0 {
            return response;
        }
        self.inner().alters.iter_mut().fold(response, |response, alter| alter(call, response))
    }
}
