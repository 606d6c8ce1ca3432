# What the README names. Everything works from a clean clone with Rust and a
# package registry; nothing else is reached.

CARGO ?= cargo
BEIGE = target/release/beige

.PHONY: demo bench bench-program ceilings test lint build image clean

# Builds, and shows the main job on the repository's config.json5.
demo: build
	sandbox/install-runtime
	sandbox/demo $(BEIGE)

# Measures it, and writes bench/results: a table and a plot.
bench: build bench-program
	sandbox/install-runtime
	if docker version >/dev/null 2>&1; then $(BEIGE) sandbox build --offline --runtime docker; fi
	if podman info >/dev/null 2>&1; then $(BEIGE) sandbox build --offline --runtime podman; fi
	target/release/beige-bench

# Holds the figures that do not depend on the machine's speed against their
# bounds; needs bubblewrap.
ceilings: build bench-program
	target/release/beige-bench --ceilings

# A build of its own: in one with beige its features would be beige's, too.
bench-program:
	$(CARGO) build --release --locked --package beige-bench

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
