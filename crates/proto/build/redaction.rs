//! `Debug` for messages that carry secrets.
//!
//! A field is secret if CSI says so (`csi_secret`) or if our declaration does (`debug_redact`). A volume context is
//! printed but for the service account tokens that the kubelet may put into it.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor, Value};

/// Messages for which prost's own `Debug` would say too much.
pub(crate) fn redacted_messages(pool: &DescriptorPool) -> Result<Vec<MessageDescriptor>, String> {
    let messages: Vec<_> = own_messages(pool)
        .filter(|message| message.fields().any(|field| printer(&field).is_some()))
        .collect();
    for message in &messages {
        // prost drops `Debug` of everything below a path, and only the message itself gets a new one here.
        if message.oneofs().len() > 0
            || message.child_enums().len() > 0
            || child_messages(message).count() > 0
        {
            return Err(format!(
                "{}: a message with a secret field cannot have a oneof or nested declarations: build/redaction.rs makes no Debug for them",
                message.full_name()
            ));
        }
    }
    Ok(messages)
}

/// Adds the missing `Debug` of each message to the generated file of its package.
pub(crate) fn append_debug_impls(out: &Path, messages: &[MessageDescriptor]) -> io::Result<()> {
    for message in messages {
        let path = out.join(format!("{}.rs", message.package_name()));
        let mut file = OpenOptions::new().append(true).open(path)?;
        file.write_all(debug_impl(message).as_bytes())?;
    }
    Ok(())
}

/// Writes a table from message name to a function that decodes that message and prints it, for the tests.
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

/// The wrapper of `src/redact.rs` that prints a field, if it is not to be printed as it is.
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

/// Where `src/lib.rs` puts a package.
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

/// Path of the generated struct inside its package's module: prost nests in snake-case modules.
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
