use axum::{
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use prometheus_client::{encoding::text::encode, registry::Registry};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A registry's metrics in the format that the `Accept` header asks for.
pub(super) fn answer(registry: &Registry, accept: Option<&HeaderValue>) -> Response {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        tracing::error!(%error, "failed to encode metrics");
        return (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode metrics").into_response();
    }
    let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("application/openmetrics-text") {
        ([(CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(CONTENT_TYPE, PROMETHEUS)], to_prometheus(&text)).into_response()
    }
}

/// Rewrites OpenMetrics text as Prometheus 0.0.4 text, for `curl` and older readers.
///
/// For our registries the two differ in comments only: the older format puts `_total` into the
/// names of counters, calls `unknown` `untyped`, and has neither units nor an end mark.
fn to_prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help: Option<(&str, &str)> = None;
    for line in openmetrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest.split_once(' ').unwrap_or((rest, "")));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "unknown"));
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            let kind = match kind {
                "unknown" => "untyped",
                "info" => "gauge",
                kind => kind,
            };
            if let Some((_, about)) = help.take().filter(|(helped, _)| *helped == name) {
                text.push_str(&format!("# HELP {name}{suffix} {about}\n"));
            }
            text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
        } else if !line.starts_with("# UNIT ") && line != "# EOF" {
            // Removes an exemplar, which follows the value.
            let sample = line.split_once(" # {").map_or(line, |(sample, _)| sample);
            text.push_str(&format!("{sample}\n"));
        }
    }
    text
}
