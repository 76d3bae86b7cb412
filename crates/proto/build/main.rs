//! Generates the Rust code of `proto/` without `protoc`, with a `Debug` that hides secrets.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo on standard output")]

use std::{
    env,
    error::Error,
    fs, io,
    path::{Path, PathBuf},
};

mod redaction;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let out = PathBuf::from(env::var("OUT_DIR")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(proto_files(Path::new("proto"))?)?;
    let pool = compiler.descriptor_pool();
    let redacted = redaction::redacted_messages(&pool)?;

    tonic_prost_build::configure()
        .build_transport(false)
        .btree_map(".")
        .skip_debug(redacted.iter().map(|message| format!(".{}", message.full_name())))
        .out_dir(&out)
        .compile_fds(compiler.file_descriptor_set())?;
    redaction::append_debug_impls(&out, &redacted)?;
    redaction::write_debug_table(&out.join("debug_table.rs"), &pool)?;

    // Encode with protox: prost's types would drop the csi_secret options, which are extensions.
    let descriptors = compiler.include_source_info(false).encode_file_descriptor_set();
    fs::write(out.join("descriptors.bin"), descriptors)?;
    Ok(())
}

/// Every `.proto` file below `root`, sorted.
fn proto_files(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(proto_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
