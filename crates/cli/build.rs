//! Links the command at a fixed address. Elsewhere its tables would need some 60,000 relocations,
//! which cost a short command 0.7 ms, and 1.6 MB more in the file; see ARCHITECTURE.md. Functions
//! with the same code become one, which makes it 0.5 MB smaller.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        // Where Rust links with LLD.
        if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
            println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
        }
    }
}
