# What the README names. Everything works from a clean clone with Rust and a
# package registry; nothing else is reached.

CARGO ?= cargo
BEIGE = target/release/beige

.PHONY: demo test lint build image clean

# Builds, and shows the main job on the repository's config.json5.
demo: build
	sandbox/install-runtime
	sandbox/demo $(BEIGE)

# Unit tests and the suite, on every sandbox runtime of this host.
test:
	sandbox/install-runtime
	$(CARGO) test --workspace --locked

# Formatting and lints.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

build:
	$(CARGO) build --release --locked

# The sandbox image, from this host's own programs.
image: build
	$(BEIGE) sandbox build --offline

clean:
	$(CARGO) clean
