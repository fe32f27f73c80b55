//! Blocks that a device updates: a state is put there as it comes, and a version is published once its parameters are back.
//! To the protocol the device is one more copy that is waited for.

use super::Block;
use super::state::State;

impl Block {
    /// Where this pserver keeps a state that has come.
    pub(super) fn house(&self, mut state: State) -> State {
        if let Some(device) = &self.job.device {
            state.house(&self.shape, device);
        }
        state
    }

    /// A device has done an update of this block.
    pub fn note_done(&mut self) {
        self.landed += 1;
        self.publish();
        self.go_on();
    }
}
