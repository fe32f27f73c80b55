//! What every role of Shoal must agree on, and the single doors to the world.
//!
//! - [`cluster`]: identities, the reduction tree, the epoch plan, blocks, routing. Pure: no clock, file or network.
//! - [`wire`]: generated protobuf code and its conversions. Protobuf types stop there.
//! - [`host`]: clock, randomness, rpc, telemetry. The only doors to the outside.
//!
//! It must never hold settings or behaviour of one single role.

pub mod cluster;
pub mod host;
pub mod wire;
