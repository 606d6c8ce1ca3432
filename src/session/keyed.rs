//! What the session map says of keys, for who works on behalf of plugins: an
//! entry as it stands, all keys of an agent, and how many agents stand between a
//! session and a person.

use std::path::PathBuf;

use serde_json::{Map, Value};

use super::check_key;
use super::map::{Keys, SessionMap};
use super::store::Store;
use crate::clock::Time;
use crate::error::{Error, Kind, Result};

/// What a key means.
#[derive(Clone, Debug, PartialEq)]
pub struct Keyed {
    /// Whose session it is.
    pub agent: String,
    /// Its file.
    pub path: PathBuf,
    /// When the key got it, in RFC 3339.
    pub created_at: String,
    /// What programs noted when it was made.
    pub metadata: Map<String, Value>,
}

impl Store {
    /// What a key means, if it means anything.
    pub fn keyed(&self, key: &str) -> Result<Option<Keyed>> {
        check_key(key)?;
        let Some(mut owner) = Keys::look(&self.home)?.get(key) else { return Ok(None) };
        let metadata = match owner.extra.remove("metadata") {
            Some(Value::Object(metadata)) => metadata,
            _ => Map::new(),
        };
        let path = self.file_of(&owner);
        let (agent, created_at) = (owner.agent_name, owner.created_at);
        Ok(Some(Keyed { agent, path, created_at, metadata }))
    }

    /// The keys of an agent's sessions with their files, in the order of the map;
    /// of those that an agent started only if they are asked for.
    pub fn keys_of(&self, agent: &str, of_agents_too: bool) -> Result<Vec<(String, PathBuf)>> {
        let keys = Keys::look(&self.home)?;
        let own = keys.iter().filter(|(_, owner)| {
            owner.agent_name == agent && (of_agents_too || owner.depth() == 0)
        });
        Ok(own.map(|(key, owner)| (key.to_owned(), self.file_of(&owner))).collect())
    }

    /// How many agents stand between a session and a person: 0 for a person's
    /// own, and for a key that means nothing yet.
    pub fn depth(&self, key: &str) -> Result<u64> {
        Ok(Keys::look(&self.home)?.get(key).map_or(0, |it| it.depth()))
    }

    /// Notes how many agents stand between a session and a person.
    pub fn set_depth(&self, key: &str, depth: u64, now: Time) -> Result<()> {
        let mut map = SessionMap::open(&self.home, now)?;
        let Some(mut owner) = map.keys.get(key) else {
            return Err(Error::new(Kind::Missing, format!("there is no session `{key}`")));
        };
        if owner.depth() == depth {
            return Ok(());
        }
        let metadata = owner.extra.entry("metadata").or_insert(Value::Null);
        if !metadata.is_object() {
            *metadata = Value::Object(Map::new());
        }
        metadata["depth"] = depth.into();
        map.set(key, &owner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::config::Home;

    const NOW: Time = Time::from_unix_millis(1_796_012_194_668);

    #[test]
    fn a_session_that_an_agent_started_is_known_by_its_depth() -> Result<()> {
        let root = std::env::temp_dir().join(format!("beige-keyed-{}", std::process::id()));
        let home = Home::new(&root);
        crate::config::home::create_private(&home.sessions())?;
        let store = Store::new(home);
        assert_eq!((store.keyed("k")?, store.depth("k")?), (None, 0));
        assert!(store.set_depth("k", 1, NOW).is_err_and(|it| it.kind() == Kind::Missing));
        let metadata = json!({"depth": "odd", "x": 1}).as_object().cloned();
        store.start_with("k", "a", metadata, NOW)?;
        store.start_anew("l", "a", NOW)?;
        assert_eq!((store.depth("k")?, store.depth("l")?), (0, 0));
        store.set_depth("k", 2, NOW)?;
        // A fresh file under a key keeps what is noted with it.
        store.start_anew("k", "a", NOW)?;
        let keyed = store.keyed("k")?.map(|it| (it.agent, Value::Object(it.metadata)));
        assert_eq!(keyed, Some(("a".into(), json!({"depth": 2, "x": 1}))));
        let names = |all| -> Result<Vec<String>> {
            Ok(store.keys_of("a", all)?.into_iter().map(|it| it.0).collect())
        };
        assert_eq!((names(false)?, names(true)?), (vec!["l".into()], vec!["l".into(), "k".into()]));
        assert!(store.keys_of("b", true)?.is_empty());
        let _ = fs::remove_dir_all(&root);
        Ok(())
    }
}
