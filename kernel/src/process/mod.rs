//! Programs: loading, page faults, system calls.
