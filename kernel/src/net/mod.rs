//! The network stack of the node: smoltcp over the NIC.
