//! Generates `Debug` for messages with secrets.
//!
//! A field is secret if it has CSI's option `csi_secret` or protobuf's `debug_redact`. Of a volume
//! context only the service account tokens, which the kubelet may add, are hidden.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, Value};

/// Messages for which prost's own `Debug` would print secrets.
pub(crate) fn redacted_messages(pool: &DescriptorPool) -> Result<Vec<MessageDescriptor>, String> {
    let messages: Vec<_> = own_messages(pool)
        .filter(|message| message.fields().any(|field| printer(&field).is_some()))
        .collect();
    for message in &messages {
        // prost drops `Debug` of everything below a path; this file generates it for the message
        // itself only.
        if message.oneofs().len() > 0
            || message.child_enums().len() > 0
            || child_messages(message).count() > 0
        {
            return Err(format!(
                "{}: a message with a secret field cannot have a oneof or nested declarations: build/redaction.rs generates no Debug for them",
                message.full_name()
            ));
        }
    }
    Ok(messages)
}

/// Appends the missing `Debug` of each message to the generated file of its package.
pub(crate) fn append_debug_impls(out: &Path, messages: &[MessageDescriptor]) -> io::Result<()> {
    for message in messages {
        let path = out.join(format!("{}.rs", message.package_name()));
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(debug_impl(message).as_bytes())?;
    }
    Ok(())
}

/// Writes a table that maps the name of each message to a function that decodes and prints it, for
/// the tests.
pub(crate) fn write_debug_table(path: &Path, pool: &DescriptorPool) -> io::Result<()> {
    let mut table = String::from("&[\n");
    for message in own_messages(pool) {
        let (name, module) = (message.full_name(), rust_module(message.package_name()));
        let _ = writeln!(table, "(\"{name}\", debug::<{module}::{}>),", rust_path(&message));
    }
    table.push(']');
    fs::write(path, table)
}

fn debug_impl(message: &MessageDescriptor) -> String {
    let mut fields = String::new();
    for field in message.fields() {
        let name = field.name().to_snake_case();
        let value = match printer(&field) {
            Some(printer) => format!("crate::redact::{printer}(&self.{name})"),
            None => format!("self.{name}"),
        };
        let _ = writeln!(fields, "            .field(\"{name}\", &{value})");
    }
    format!(
        "impl ::core::fmt::Debug for {path} {{\n    \
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{\n        \
                f.debug_struct(\"{name}\")\n{fields}            .finish()\n    \
            }}\n}}\n",
        path = rust_path(message),
        name = message.name().to_upper_camel_case(),
    )
}

/// The wrapper of `src/redact.rs` that prints a field, unless its own `Debug` will do.
fn printer(field: &FieldDescriptor) -> Option<&'static str> {
    if field.name() == "volume_context" {
        return Some("VolumeContext");
    }
    let options = field.options();
    let secret = is_set(&options, "debug_redact")
        || options.extensions().any(|(extension, value)| {
            extension.full_name() == "csi.v1.csi_secret" && *value == Value::Bool(true)
        });
    secret.then_some("Secret")
}

fn is_set(options: &DynamicMessage, name: &str) -> bool {
    let value = options.get_field_by_name(name);
    let value = value.unwrap_or_else(|| panic!("google.protobuf.FieldOptions has no field {name}"));
    *value == Value::Bool(true)
}

fn own_messages(pool: &DescriptorPool) -> impl Iterator<Item = MessageDescriptor> {
    pool.all_messages()
        .filter(|message| message.package_name() != "google.protobuf" && !message.is_map_entry())
}

fn child_messages(message: &MessageDescriptor) -> impl Iterator<Item = MessageDescriptor> {
    message.child_messages().filter(|child| !child.is_map_entry())
}

/// The module of `src/lib.rs` that holds a package.
fn rust_module(package: &str) -> &str {
    match package {
        "pluginregistration" => "pluginregistration",
        "v1beta1" => "deviceplugin",
        "csi.v1" => "csi",
        "runtime.v1" => "cri",
        "runtime.v1alpha1" => "hooks",
        "k8s.io.kubelet.pkg.apis.dra.v1" => "dra::v1",
        "k8s.io.kubelet.pkg.apis.dra.v1beta1" => "dra::v1beta1",
        other => {
            panic!("package {other} has no module: add it to src/lib.rs and build/redaction.rs")
        }
    }
}

/// Path of the generated struct inside its package's module: prost nests messages in snake-case
/// modules.
fn rust_path(message: &MessageDescriptor) -> String {
    let name = message.name().to_upper_camel_case();
    let mut path = name;
    let mut parent = message.parent_message();
    while let Some(outer) = parent {
        path = format!("{}::{path}", outer.name().to_snake_case());
        parent = outer.parent_message();
    }
    path
}
