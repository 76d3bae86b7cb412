/// The addresses to try, in order, for an address in the notation of Go's `net.Listen`.
pub(super) fn parse(address: &str) -> Result<Vec<String>, &'static str> {
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("missing ] in address")?;
            (host, after.strip_prefix(':').ok_or("missing port in address")?)
        }
        None => {
            let (host, port) = address.rsplit_once(':').ok_or("missing port in address")?;
            if host.contains(':') {
                return Err("too many colons in address, IPv6 hosts are written in []");
            }
            (host, port)
        }
    };
    // An empty port means any free port, like 0.
    let port: u16 = match port {
        "" => 0,
        port => port.parse().map_err(|_| "the port is not a number up to 65535")?,
    };
    Ok(match host {
        // All interfaces, IPv6 and IPv4; IPv4 only where the system has no IPv6.
        "" => vec![format!("[::]:{port}"), format!("0.0.0.0:{port}")],
        host if host.contains(':') => vec![format!("[{host}]:{port}")],
        host => vec![format!("{host}:{port}")],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_go_addresses() {
        for (address, expected) in [
            (":8080", Ok(&["[::]:8080", "0.0.0.0:8080"][..])),
            (":", Ok(&["[::]:0", "0.0.0.0:0"])),
            ("127.0.0.1:0", Ok(&["127.0.0.1:0"])),
            ("localhost:80", Ok(&["localhost:80"])),
            ("[::1]:80", Ok(&["[::1]:80"])),
            ("8080", Err("missing port in address")),
            ("", Err("missing port in address")),
            ("[::1]", Err("missing port in address")),
            ("[::1:80", Err("missing ] in address")),
            ("::1:80", Err("too many colons in address, IPv6 hosts are written in []")),
            (":http", Err("the port is not a number up to 65535")),
            (":65536", Err("the port is not a number up to 65535")),
        ] {
            let expected = expected.map(<[_]>::to_vec);
            let parsed = parse(address);
            let parsed = parsed.as_deref().map(|hosts| hosts.iter().map(String::as_str).collect());
            assert_eq!(parsed.map_err(|problem| *problem), expected, "{address}");
        }
    }
}
