//! Logs requests and responses for driver authors, in upstream's texts. The messages' `Debug`
//! strips secrets.

use std::fmt::{self, Debug, Write};

use tonic::Status;
use wharf_uds::code_name;

/// Log target of these lines, which appear from `-v=5` on.
pub const PAYLOADS: &str = "wharf_csi::payloads";

/// Default maximum bytes of a message in a log line: a list of volumes may be large.
pub(crate) const MAX_LOGGED: usize = 8 << 10;

pub(crate) fn call<Q: Debug>(rpc: &str, request: &Q) {
    tracing::debug!(target: PAYLOADS, method = %Method(rpc), request = %Capped(request, MAX_LOGGED), "GRPC call");
}

/// Logs a response, cut after `limit` bytes.
pub(crate) fn answer<A: Debug>(rpc: &str, answer: &Result<A, Status>, limit: usize) {
    match answer {
        Ok(answer) => {
            tracing::debug!(target: PAYLOADS, method = %Method(rpc), response = %Capped(answer, limit), "GRPC response");
        }
        Err(status) => {
            let (code, text) = (code_name(status.code()), status.message());
            tracing::debug!(
                target: PAYLOADS,
                method = %Method(rpc),
                err = format!("rpc error: code = {code} desc = {text}"),
                "GRPC response"
            );
        }
    }
}

/// The full path of an RPC, from its name.
struct Method<'a>(&'a str);

impl fmt::Display for Method<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let service = match self.0 {
            "GetPluginInfo" | "GetPluginCapabilities" | "Probe" => "Identity",
            rpc if rpc.starts_with("Node") => "Node",
            rpc if rpc.contains("Group") => "GroupController",
            _ => "Controller",
        };
        write!(out, "/csi.v1.{service}/{}", self.0)
    }
}

/// A message, cut after the given number of bytes.
struct Capped<'a, T>(&'a T, usize);

impl<T: Debug> fmt::Display for Capped<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cap = Cap { out, left: self.1 };
        match write!(cap, "{:?}", self.0) {
            Err(_) if cap.left == 0 => out.write_str(" …"),
            written => written,
        }
    }
}

struct Cap<'a, 'b> {
    out: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Write for Cap<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(self.left);
        self.out.write_str(&text[..end])?;
        if end < text.len() {
            self.left = 0;
            return Err(fmt::Error);
        }
        self.left -= end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_where_it_gets_too_long() {
        assert_eq!(Capped(&"a", MAX_LOGGED).to_string(), "\"a\"");
        let shown = Capped(&"é".repeat(MAX_LOGGED), MAX_LOGGED).to_string();
        assert!(shown.starts_with("\"éé") && shown.ends_with("é …"), "{shown}");
        assert!(shown.len() <= MAX_LOGGED + " …".len());
        assert!(
            Capped(&vec!["ab"; MAX_LOGGED], MAX_LOGGED).to_string().len()
                <= MAX_LOGGED + " …".len()
        );
        // A character of two bytes is shown whole or not at all.
        for (limit, shown) in
            [(1, "\" …"), (3, "\"ab …"), (4, "\"ab …"), (5, "\"abé …"), (6, "\"abé\"")]
        {
            assert_eq!(Capped(&"abé", limit).to_string(), shown, "{limit}");
        }
    }

    #[test]
    fn methods_have_their_paths() {
        for (rpc, path) in [
            ("Probe", "/csi.v1.Identity/Probe"),
            ("CreateVolume", "/csi.v1.Controller/CreateVolume"),
            ("NodeGetInfo", "/csi.v1.Node/NodeGetInfo"),
            ("CreateVolumeGroupSnapshot", "/csi.v1.GroupController/CreateVolumeGroupSnapshot"),
        ] {
            assert_eq!(Method(rpc).to_string(), path);
        }
    }
}
