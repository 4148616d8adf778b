//! Gives the kernel's linker a build id to write, which the boot image carries and a node reports.

fn main() {
    println!("cargo:rustc-link-arg-bins=--build-id=sha1");
    println!("cargo:rerun-if-changed=build.rs");
}
