//! Decisions over all blocks on the wire.

use super::proto;
use crate::cluster::decisions::{LossScale, NonFinite};
use crate::cluster::{BlockId, Decisions, Partial};

impl From<Decisions> for proto::Decisions {
    fn from(decisions: Decisions) -> Self {
        proto::Decisions {
            clip_norm: decisions.clip_norm,
            skipped_in_a_row_max: match decisions.non_finite {
                NonFinite::Fail => None,
                NonFinite::Skip { in_a_row_max } => Some(in_a_row_max),
            },
            loss_scale: decisions.loss_scale.map(|scale| scale.initial),
            growth_interval: decisions.loss_scale.map_or(0, |scale| scale.growth_interval),
        }
    }
}

impl From<proto::Decisions> for Decisions {
    fn from(wire: proto::Decisions) -> Self {
        let skip = |in_a_row_max| NonFinite::Skip { in_a_row_max };
        let scale = |initial| LossScale { initial, growth_interval: wire.growth_interval };
        Decisions {
            clip_norm: wire.clip_norm,
            non_finite: wire.skipped_in_a_row_max.map_or(NonFinite::Fail, skip),
            loss_scale: wire.loss_scale.map(scale),
        }
    }
}

impl From<(BlockId, Partial)> for proto::Partial {
    fn from((block, partial): (BlockId, Partial)) -> Self {
        let Partial { sum_of_squares, is_finite, weight } = partial;
        proto::Partial { block: block.0, sum_of_squares, is_finite, weight }
    }
}

impl From<proto::Partial> for (BlockId, Partial) {
    fn from(wire: proto::Partial) -> Self {
        let proto::Partial { block, sum_of_squares, is_finite, weight } = wire;
        (BlockId(block), Partial { sum_of_squares, is_finite, weight })
    }
}
