//! Tests of the master's machine.
