//! Device drivers: PCI scan and virtio-net.
