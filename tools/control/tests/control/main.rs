//! The control node and the command line together, over real sockets on loopback, with fake
//! nodes that speak the real protocol.

mod access;
mod ends;
mod fake_node;
mod kills;
mod lab;
mod nodes;
mod restarts;
mod streams;
mod up;
mod warm;
