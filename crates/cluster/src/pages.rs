use std::marker::PhantomData;

use http::Request;
use kube::Client;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{ApiFailure, bounded};

/// How many objects are asked for at a time.
const PAGE: usize = 500;

/// A list, page by page: no list ever stands in memory as a whole.
pub struct Pages<T> {
    client: Client,
    what: String,
    collection: String,
    size: usize,
    selection: String,
    next: Next,
    version: String,
    items: PhantomData<fn() -> T>,
}

enum Next {
    First,
    After(String),
    None,
}

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(default = "Vec::new")]
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<T: DeserializeOwned> Pages<T> {
    /// The objects at the path of a collection, which errors call `what`.
    pub fn new(client: &Client, what: impl Into<String>, collection: &str) -> Self {
        Self {
            client: client.clone(),
            what: what.into(),
            collection: collection.to_owned(),
            size: PAGE,
            selection: String::new(),
            next: Next::First,
            version: String::new(),
            items: PhantomData,
        }
    }

    /// Only those that a parameter of the query selects.
    #[must_use]
    pub fn selected(mut self, parameter: &str, value: &str) -> Self {
        self.selection += &format!("&{parameter}={}", escaped(value));
        self
    }

    /// So many on a page.
    #[must_use]
    pub(crate) fn of(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The next page; `None` after the last.
    pub async fn next(&mut self) -> Result<Option<Vec<T>>, ApiFailure> {
        let first = format!("{}?limit={}{}", self.collection, self.size, self.selection);
        let uri = match &self.next {
            Next::First => first,
            Next::After(token) => format!("{first}&continue={}", escaped(token)),
            Next::None => return Ok(None),
        };
        let request = Request::get(uri).body(Vec::new()).expect("all that is foreign is escaped");
        let Page { metadata, items } = bounded(&self.what, self.client.request(request)).await?;
        self.version = metadata.resource_version;
        self.next = match metadata.next {
            Some(token) if !token.is_empty() => Next::After(token),
            _ => Next::None,
        };
        Ok(Some(items))
    }

    /// The version that the list shows, once a page has come.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// What others wrote may be anything; tokens are often base64, whose `+` is a space in a query.
pub(crate) fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{Arc, Mutex},
    };

    use http::Response;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    #[tokio::test]
    async fn tokens_of_any_kind_go_back_as_they_came() {
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let service = tower::service_fn({
            let asked = Arc::clone(&asked);
            move |request: Request<Body>| {
                asked.lock().unwrap().push(request.uri().to_string());
                let token = match asked.lock().unwrap().len() {
                    1 => json!("a+b/c= ä&\n"),
                    _ => Value::Null,
                };
                let metadata = json!({ "resourceVersion": "7", "continue": token });
                let page = json!({ "metadata": metadata, "items": [1] });
                let answer = Response::new(Body::from(page.to_string().into_bytes()));
                async move { Ok::<_, Infallible>(answer) }
            }
        });
        let client = Client::new(service, "default");
        let mut pages = Pages::<u8>::new(&client, "things", "/things").selected("s", "a=b,c");
        let mut all = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            all.extend(page);
        }
        assert_eq!((all, pages.version()), (vec![1, 1], "7"));
        let first = "/things?limit=500&s=a%3Db%2Cc";
        let second = format!("{first}&continue=a%2Bb%2Fc%3D%20%C3%A4%26%0A");
        assert_eq!(*asked.lock().unwrap(), [first, &second]);
    }
}
