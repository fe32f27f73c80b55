//! Compiles the protocol with protox, so that no protoc is needed. Must never write outside OUT_DIR.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = ["shoal.proto", "block.proto", "piece.proto", "checkpoint.proto"];
    let shoal = protox::compile(files.map(|file| format!("shoal/v1/{file}")), ["proto"])?;
    tonic_prost_build::configure().bytes(".").compile_fds(shoal)?;
    // etcd is called, never served.
    let etcd = protox::compile(["etcd/rpc.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").build_server(false).compile_fds(etcd)?;
    Ok(())
}
