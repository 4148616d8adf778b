//! End-to-end scenarios (`src/e2e/`) and what the tests on real kernels share.
