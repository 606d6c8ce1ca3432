//! `session-settings.json`: what people chose for single sessions, by key.
//! Changed under a lock and only ever replaced whole, like the map; settings
//! that are not understood stay as they are.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Store, check_key};
use crate::clock::Time;
use crate::config::ModelRef;
use crate::config::file_lock;
use crate::config::state_file::{self, aside, replace};
use crate::error::{During, Error, Kind, Result};
use crate::message::read_json;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Largest settings of one session, in bytes as JSON.
pub const LARGEST_OF_ONE: usize = 64 * 1024;

/// How long another process may hold the file.
const LOCK_WAIT: Duration = Duration::from_secs(5);

/// By session key.
type Settings = Map<String, Value>;

impl Store {
    /// The model that was chosen for a session, if one was.
    pub fn chosen_model(&self, key: &str) -> Result<Option<ModelRef>> {
        Ok(model_in(&self.read_settings()?.unwrap_or_default(), key))
    }

    /// The models that were chosen for sessions, by key. What cannot be read says
    /// nothing.
    pub(super) fn chosen_models(&self) -> HashMap<String, ModelRef> {
        let settings = self.read_settings().unwrap_or_else(|error| {
            log::warn!("{error}; no session is listed with the model that was chosen for it");
            None
        });
        let settings = settings.unwrap_or_default();
        let chosen = settings.keys().filter_map(|it| Some((it.clone(), model_in(&settings, it)?)));
        chosen.collect()
    }

    /// Chooses a model for a session, which need not exist yet.
    pub fn choose_model(&self, key: &str, model: &ModelRef, now: Time) -> Result<()> {
        check_key(key)?;
        let model = json!({ "provider": model.provider, "modelId": model.model });
        self.change_settings(now, |all| {
            let own = all.entry(key).or_insert_with(|| Value::Object(Map::new()));
            match own {
                Value::Object(own) => drop(own.insert("model".into(), model)),
                other => *other = json!({ "model": model }),
            }
        })
    }

    /// All that was chosen for a session.
    pub fn settings(&self, key: &str) -> Result<Map<String, Value>> {
        check_key(key)?;
        match self.read_settings()?.unwrap_or_default().remove(key) {
            Some(Value::Object(own)) => Ok(own),
            _ => Ok(Map::new()),
        }
    }

    /// Puts these in place of what was chosen for a session before; `null`
    /// forgets one. Gives all as they are then. [`Kind::TooLarge`] if they are
    /// over [`LARGEST_OF_ONE`].
    pub fn change_own_settings(
        &self,
        key: &str,
        changed: Map<String, Value>,
        now: Time,
    ) -> Result<Map<String, Value>> {
        let before = self.settings(key)?;
        let mut own = before.clone();
        merge(&mut own, changed.clone());
        let length = Value::Object(own.clone()).to_string().len();
        if length > LARGEST_OF_ONE {
            let what = format!(
                "the settings of `{key}` would take {length} bytes, and those of one session \
                 have at most {LARGEST_OF_ONE}"
            );
            return Err(Error::new(Kind::TooLarge, what));
        }
        if own != before {
            self.change_settings(now, |all| match all.get_mut(key) {
                Some(Value::Object(now)) => merge(now, changed),
                _ => drop(all.insert(key.to_owned(), Value::Object(own.clone()))),
            })?;
        }
        Ok(own)
    }

    /// Forgets all that was chosen for a session.
    pub fn clear_settings(&self, key: &str, now: Time) -> Result<()> {
        // Nothing is written where nothing was chosen.
        match self.read_settings()? {
            Some(all) if !all.contains_key(key) => Ok(()),
            _ => self.change_settings(now, |all| drop(all.remove(key))),
        }
    }

    /// The settings as they stand; `None` if the file is damaged.
    fn read_settings(&self) -> Result<Option<Settings>> {
        let path = self.home.session_settings();
        let what = format!("read the session settings {}", path.display());
        match state_file::read(&path, LARGEST).during(Kind::Internal, what)? {
            None => Ok(Some(Settings::new())),
            Some(bytes) => Ok(read_json(&bytes).ok()),
        }
    }

    fn change_settings(&self, now: Time, change: impl FnOnce(&mut Settings)) -> Result<()> {
        let _held = file_lock::hold(&self.home.session_settings_lock(), LOCK_WAIT)?;
        let mut settings = match self.read_settings()? {
            Some(settings) => settings,
            None => self.set_settings_aside(now)?,
        };
        change(&mut settings);
        let path = self.home.session_settings();
        let write = |file: &mut io::BufWriter<std::fs::File>| {
            serde_json::to_writer_pretty(&mut *file, &settings)?;
            file.write_all(b"\n")
        };
        let what = format!("replace the session settings {}", path.display());
        replace(&path, write).during(Kind::Internal, what)
    }

    /// Puts a damaged file out of the way; nothing of it is known elsewhere.
    fn set_settings_aside(&self, now: Time) -> Result<Settings> {
        let path = self.home.session_settings();
        let aside = aside(&path, "corrupt", now);
        let (from, to) = (path.display(), aside.display());
        std::fs::rename(&path, &aside)
            .during(Kind::Internal, format!("set aside the damaged {from}"))?;
        log::warn!("the session settings {from} did not read; they are now {to}");
        Ok(Settings::new())
    }
}

fn merge(own: &mut Map<String, Value>, changed: Map<String, Value>) {
    for (name, value) in changed {
        match value {
            Value::Null => drop(own.remove(&name)),
            value => drop(own.insert(name, value)),
        }
    }
}

fn model_in(settings: &Settings, key: &str) -> Option<ModelRef> {
    let model = settings.get(key)?.get("model")?;
    let word = |name: &str| model.get(name)?.as_str().map(str::to_owned);
    Some(ModelRef { provider: word("provider")?, model: word("modelId")? })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::config::Home;
    use crate::config::home::create_private;

    const NOW: Time = Time::from_unix_millis(1_796_012_194_668);

    /// A home of its own.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> (Self, Store) {
            let root =
                std::env::temp_dir().join(format!("beige-settings-{name}-{}", std::process::id()));
            let home = Home::new(&root);
            create_private(&home.sessions()).expect("a folder");
            (Self(root), Store::new(home))
        }

        fn file(&self) -> PathBuf {
            self.0.join("sessions/session-settings.json")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn model(id: &str) -> ModelRef {
        ModelRef { provider: "p".into(), model: id.into() }
    }

    #[test]
    fn a_choice_is_of_one_session_and_leaves_other_settings_alone() {
        let (place, store) = Place::new("choice");
        assert_eq!(store.chosen_model("k").expect("absent"), None);
        fs::write(place.file(), r#"{"k":{"verbose":true},"other":{"x":[1]}}"#).expect("written");
        assert_eq!(store.chosen_model("k").expect("none"), None);
        store.choose_model("k", &model("m"), NOW).expect("chosen");
        store.choose_model("l", &model("n"), NOW).expect("chosen");
        assert_eq!(store.chosen_model("k").expect("read"), Some(model("m")));
        let text = fs::read_to_string(place.file()).expect("a file");
        let want = json!({"k": {"verbose": true, "model": {"provider": "p", "modelId": "m"}},
            "other": {"x": [1]}, "l": {"model": {"provider": "p", "modelId": "n"}}});
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(want));
        let all = [("k".to_owned(), model("m")), ("l".to_owned(), model("n"))];
        assert_eq!(store.chosen_models(), all.into());
        store.clear_settings("k", NOW).expect("cleared");
        assert_eq!(store.chosen_model("k").expect("read"), None);
        assert_eq!(store.chosen_model("l").expect("read"), Some(model("n")));
        assert!(store.choose_model("", &model("m"), NOW).is_err());
    }

    #[test]
    fn settings_are_changed_one_by_one_and_bounded() {
        let (place, store) = Place::new("own");
        let object = |it: Value| it.as_object().cloned().expect("an object");
        fs::write(place.file(), r#"{"k":7,"l":{"x":1}}"#).expect("written");
        assert!(store.settings("k").expect("odd").is_empty());
        let change = |it: Value| store.change_own_settings("k", object(it), NOW);
        let all = json!({"verbose": true, "model": {"provider": "p", "modelId": "m"}});
        assert_eq!(change(all.clone()).expect("changed"), object(all));
        assert_eq!(store.chosen_model("k").expect("read"), Some(model("m")));
        let left = json!({"verbose": true});
        assert_eq!(change(json!({"model": null})).expect("changed"), object(left.clone()));
        let long = change(json!({"x": "y".repeat(LARGEST_OF_ONE)}));
        assert_eq!(long.map_err(|it| it.kind()), Err(Kind::TooLarge));
        assert_eq!(store.settings("k").expect("read"), object(left));
        assert_eq!(store.settings("l").expect("read"), object(json!({"x": 1})));
        assert!(store.settings("").is_err());
    }

    #[test]
    fn a_damaged_file_is_no_choice_and_is_set_aside_by_the_next() {
        let (place, store) = Place::new("damaged");
        fs::write(place.file(), "{\"k\":").expect("written");
        assert_eq!(store.chosen_model("k").expect("damaged"), None);
        assert!(store.chosen_models().is_empty());
        store.choose_model("k", &model("m"), NOW).expect("chosen");
        assert_eq!(store.chosen_model("k").expect("read"), Some(model("m")));
        let aside = place.file().with_file_name("session-settings.json.corrupt-20261130-041634");
        assert_eq!(fs::read_to_string(aside).expect("set aside"), "{\"k\":");
        for odd in [r#"{"k":7}"#, r#"{"k":{"model":"m"}}"#, r#"{"k":{"model":{"provider":"p"}}}"#] {
            fs::write(place.file(), odd).expect("written");
            assert_eq!(store.chosen_model("k").expect("odd"), None, "{odd}");
            store.choose_model("k", &model("m"), NOW).expect("chosen");
            assert_eq!(store.chosen_model("k").expect("read"), Some(model("m")), "{odd}");
        }
    }
}
