//! Tests of devices on machines without one: the kernel's source runs on the processor.

mod compiled;
mod kernel;
