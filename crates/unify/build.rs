//! Only with a build script do the features of build dependencies count.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
