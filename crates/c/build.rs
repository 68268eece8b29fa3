//! Gives the library its name for the dynamic linker: programs need this version of the interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcanopy_c.so.0");
}
