use std::{
    collections::HashSet,
    fmt,
    ops::Deref,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Visitor},
};

/// A text that many objects have in common, such as a driver's name or a phase: there is one of it in the process,
/// whoever holds it.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word(Option<Arc<str>>);

impl Word {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        if text.is_empty() {
            return Self(None);
        }
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Self(Some(known.shared(text)))
    }
}

impl From<String> for Word {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<Word> for String {
    fn from(word: Word) -> Self {
        word.as_str().to_owned()
    }
}

impl Deref for Word {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Word {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl PartialEq<String> for Word {
    fn eq(&self, other: &String) -> bool {
        self.as_str() == other
    }
}

impl fmt::Display for Word {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(formatter)
    }
}

impl Serialize for Word {
    fn serialize<S: Serializer>(&self, target: S) -> Result<S::Ok, S::Error> {
        target.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
        source.deserialize_str(Text)
    }
}

struct Text;

impl Visitor<'_> for Text {
    type Value = Word;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Word, E> {
        Ok(text.into())
    }
}

/// All words that somebody holds, and some that nobody does any more.
static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Known {
    words: HashSet<Arc<str>>,
    /// With so many, those that nobody holds are forgotten.
    full: usize,
}

impl Known {
    /// Words are few; should they be many, looking through all of them is left until they have doubled.
    const FEW: usize = 1024;

    fn shared(&mut self, text: &str) -> Arc<str> {
        if let Some(word) = self.words.get(text) {
            return Arc::clone(word);
        }
        if self.words.len() >= self.full {
            self.words.retain(|word| Arc::strong_count(word) > 1);
            self.full = Self::FEW.max(self.words.len() * 2);
        }
        let word = Arc::<str>::from(text);
        self.words.insert(Arc::clone(&word));
        word
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_are_one() {
        let (one, other) = (Word::from("a driver"), Word::from("a driver".to_owned()));
        let (Word(Some(own)), Word(Some(others))) = (&one, &other) else { panic!("a text") };
        assert!(Arc::ptr_eq(own, others));
        assert_eq!((&one, one.as_str()), (&other, "a driver"));
        assert_eq!(Word::default(), "");
        assert_eq!(Word::from(""), Word::default());
        let read: Vec<Word> = serde_json::from_str(r#"["a driver", "", "\u00e4"]"#).unwrap();
        assert_eq!(read, ["a driver", "", "ä"].map(Word::from));
        assert!(serde_json::from_str::<Word>("7").is_err());
    }

    #[test]
    fn what_nobody_holds_is_forgotten_in_time() {
        let mut known = Known::default();
        let held = known.shared("held");
        for number in 0..10 * Known::FEW {
            known.shared(&number.to_string());
            assert!(known.words.len() <= Known::FEW + 1, "{}", known.words.len());
        }
        assert!(Arc::ptr_eq(&held, &known.shared("held")));
    }

    #[test]
    fn many_that_are_held_are_not_looked_through_each_time() {
        let mut known = Known::default();
        let held: Vec<_> = (0..5 * Known::FEW).map(|it| known.shared(&it.to_string())).collect();
        assert!(known.full > held.len(), "{}", known.full);
    }
}
