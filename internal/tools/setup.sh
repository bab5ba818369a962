#!/usr/bin/env bash
# Installs what the tests need and this machine lacks: redis-server, a C compiler for the race detector and, where they
# can be had, valkey-server, the beanstalkd that bench measures, and promtool, which checks the alert rules. Does
# nothing when all is there. "setup.sh modules" installs PostgreSQL and MariaDB for the tests of outbox instead, and
# Chromium for those of the page, which are large.
set -euo pipefail

have() { command -v "$1" >/dev/null 2>&1; }

say() { printf 'setup: %s\n' "$*"; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt_install() {
  say "apt-get install $*"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" </dev/null >/dev/null
}

# Valkey, beanstalkd and promtool are welcome, not needed: no password is asked for them and a failure is no error.
may_try() { [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null; }

try_beanstalkd() {
  if have beanstalkd || ! may_try; then return; fi
  apt_install beanstalkd || say "beanstalkd could not be installed; its tests in bench are skipped"
}

try_valkey() {
  if have valkey-server || ! may_try; then return; fi
  if apt-cache show valkey-server >/dev/null 2>&1; then
    apt_install valkey-server || say "valkey-server could not be installed; its tests are skipped"
  elif grep -qs '^VERSION_CODENAME=bookworm$' /etc/os-release && grep -qs '^ID=debian$' /etc/os-release; then
    valkey_from_backports || say "valkey-server could not be installed from bookworm-backports; its tests are skipped"
  fi
}

# Debian 12 has Valkey in its backports only. They are asked for this once, with sources and lists in a directory
# that is removed, so that apt's own sources stay as they are.
valkey_from_backports() {
  local dir keyring=/usr/share/keyrings/debian-archive-keyring.gpg status=0
  [ -r "$keyring" ] || return 1
  dir=$(mktemp -d)
  chmod 755 "$dir"
  mkdir -p "$dir/lists/partial"
  printf 'deb [signed-by=%s] http://deb.debian.org/debian %s main\n' \
    "$keyring" bookworm "$keyring" bookworm-backports >"$dir/sources.list"
  local options=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=-
    -o Dir::State::lists="$dir/lists"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= -o Acquire::Retries=1 -o Acquire::http::Timeout=20)
  say "apt-get install valkey-server, from bookworm-backports"
  as_root apt-get "${options[@]}" update -qq </dev/null &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get "${options[@]}" install -qq -y --no-install-recommends \
      -t bookworm-backports valkey-server </dev/null >/dev/null || status=1
  as_root rm -rf "$dir"
  return "$status"
}

# promtool is part of Debian's package of the Prometheus server, which would be started. So only the tool is unpacked.
try_promtool() {
  if have promtool || ! may_try; then return; fi
  apt-cache show prometheus >/dev/null 2>&1 || as_root apt-get update -qq </dev/null || true
  local dir status=0
  dir=$(mktemp -d)
  chmod 755 "$dir"
  say "unpacking promtool to /usr/local/bin, from the package prometheus"
  (cd "$dir" && apt-get download -qq prometheus </dev/null >/dev/null 2>&1 &&
    dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool &&
    as_root install -m 755 usr/bin/promtool /usr/local/bin/promtool) || status=1
  rm -rf "$dir"
  if [ "$status" -ne 0 ]; then say "promtool could not be unpacked; the tests of alerts are skipped"; fi
}

have_postgres() { have initdb || compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; }

# The tests start servers of their own. A policy keeps the packages from starting theirs.
databases() {
  local missing=() policy=/usr/sbin/policy-rc.d made= status=0
  have_postgres || missing+=(postgresql)
  have mariadb-install-db || missing+=(mariadb-server)
  if [ "${#missing[@]}" -eq 0 ]; then return; fi
  if ! have apt-get || ! may_try; then
    say "${missing[*]} cannot be installed here; the tests of outbox skip them"
    return
  fi
  if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
    as_root chmod 755 "$policy"
    made=yes
  fi
  as_root apt-get update -qq </dev/null && apt_install "${missing[@]}" || status=$?
  if [ -n "$made" ]; then as_root rm -f "$policy"; fi
  if [ "$status" -ne 0 ]; then say "${missing[*]} could not be installed; in CI, the tests of outbox fail"; fi
}

browser() {
  if have chromium || have chromium-browser || have google-chrome; then return; fi
  if ! have apt-get || ! may_try; then
    say "chromium cannot be installed here; the tests of the page are skipped"
    return
  fi
  as_root apt-get update -qq </dev/null && apt_install chromium fonts-liberation ||
    say "chromium could not be installed; in CI, the tests of the page fail"
}

if [ "${1:-}" = modules ]; then
  databases
  browser
  exit
fi

missing=()
have redis-server || missing+=(redis-server)
have cc || have gcc || have clang || missing+=(gcc libc6-dev)

if have apt-get; then
  if [ "${#missing[@]}" -gt 0 ]; then
    say "apt-get update"
    as_root apt-get update -qq </dev/null
    apt_install "${missing[@]}"
  fi
  try_valkey
  try_beanstalkd
  try_promtool
elif have brew; then
  if ! have redis-server; then
    say "brew install redis"
    brew install redis
  fi
  if ! have beanstalkd; then
    say "brew install beanstalkd"
    brew install beanstalkd || say "beanstalkd could not be installed; its tests in bench are skipped"
  fi
elif [ "${#missing[@]}" -gt 0 ]; then
  say "please install ${missing[*]} (Redis 7.0 or later): neither apt-get nor brew is here to do it" >&2
  exit 1
fi

version=$(redis-server --version | sed -E 's/.* v=([0-9]+\.[0-9]+).*/\1/')
if [ "${version%%.*}" -lt 7 ]; then
  say "this machine's redis-server is $version: Later needs 7.0 or later, see" \
    "https://redis.io/docs/latest/operate/oss_and_stack/install/" >&2
  exit 1
fi
valkey=$(valkey-server --version 2>/dev/null | sed -E 's/.* v=([0-9.]+).*/valkey-server \1/' | grep . ||
  echo 'no valkey-server')
say "redis-server $version, $valkey, $(have beanstalkd && beanstalkd -v || echo 'no beanstalkd')," \
  "$(have promtool && echo promtool || echo 'no promtool')"
