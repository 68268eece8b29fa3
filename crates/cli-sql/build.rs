//! Links the command at a fixed address, as `cli/build.rs` does. DataFusion's tables need 200,000
//! relocations, which took more than half of the time that a short command needs.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
