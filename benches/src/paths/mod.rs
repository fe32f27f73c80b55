//! Hot paths as the roles call them, for whoever times or counts them. None must know how it is measured.

pub mod blocks;
pub mod buckets;
pub mod leases;
