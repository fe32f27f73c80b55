//! A block's state in the making, from the pieces that a checkpoint has of it: whole, or of a bucket newest first. Pure.

use super::shape::BlockShape;
use super::state::{State, wrong_shape};
use shoal_runtime::cluster::block_copy::{Segment, Settled};
use shoal_runtime::cluster::{BlockCopy, Refusal};

/// What the pieces so far have given.
#[derive(Debug, Default)]
pub struct Restoring {
    state: Option<State>,
    settled: Settled,
}

impl Restoring {
    /// Takes in the next piece. Those of the newest state come first, in slot order; then, newest first, what that rests on.
    ///
    /// # Errors
    /// It is not of this block's shape, or says of a slot what cannot be.
    pub fn take(&mut self, shape: &BlockShape, copy: &BlockCopy) -> Result<(), Refusal> {
        let (Some(bucket), Some(segment)) = (&shape.bucket, &copy.segment) else {
            self.state = Some(State::from_copy(shape, copy)?);
            return Ok(());
        };
        let rows = self.settled.take(copy, bucket.width).map_err(|what| wrong_shape(shape, what))?;
        match &mut self.state {
            None => self.state = Some(State::from_copy(shape, &whole(copy, segment))?),
            Some(state) if state.filled().is_some() => state.fill(shape, &whole(copy, segment))?,
            Some(state) => state.fill_beneath(shape, &segment.slots, &rows)?,
        }
        Ok(())
    }

    /// The state, once all pieces are taken in.
    pub fn finish(self) -> Option<State> {
        self.state
    }
}

/// What changed, as if it were all that there is: what it rests on comes later.
fn whole(copy: &BlockCopy, segment: &Segment) -> BlockCopy {
    BlockCopy { segment: Some(Segment { freed: None, ..segment.clone() }), ..copy.clone() }
}
