//! The control node and the command line together, over real sockets on loopback, with fake
//! nodes that speak the real protocol.

mod access;
mod api;
mod casts;
mod down;
mod ends;
mod fake_memory;
mod fake_node;
mod fake_program;
mod hosted;
mod hour;
mod identity;
mod io_page;
mod kills;
mod lab;
mod nodes;
mod outlive;
mod power;
mod queue;
mod restarts;
mod signals;
mod slurm;
mod stopping;
mod storage;
mod streams;
mod terminal;
mod tokens;
mod up;
mod users;
mod warm;
mod watching;
