use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A registry's metrics in the format that the `Accept` header asks for.
pub(super) fn answer(registry: &Registry, accept: Option<&HeaderValue>) -> Response {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        tracing::error!(%error, "Cannot encode metrics");
        return (StatusCode::INTERNAL_SERVER_ERROR, "cannot encode metrics").into_response();
    }
    let accept = accept.and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    if accept.contains("application/openmetrics-text") {
        ([(CONTENT_TYPE, OPENMETRICS)], text).into_response()
    } else {
        ([(CONTENT_TYPE, PROMETHEUS)], to_prometheus(&text)).into_response()
    }
}

/// Rewrites OpenMetrics text as Prometheus 0.0.4 text, which `curl` and older readers get.
///
/// The two differ in comments only, as far as our registries go: the older format names counters
/// with their `_total`, calls `unknown` `untyped`, and has neither units nor an end mark.
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
            // An exemplar, after the value.
            let sample = line.split_once(" # {").map_or(line, |(sample, _)| sample);
            text.push_str(&format!("{sample}\n"));
        }
    }
    text
}
