#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing for the tasks named (build demo test lua lint packaging), through apt: as
# root without a question, else by sudo, else it prints the one command to run and stops. Where
# nothing is missing it says nothing and does nothing.
set -u
cd "$(dirname "$0")/.." || exit 1

needed='' # packages; each probe that fails adds its own
wished='' # those without which it works too, only slower or with less

command_of() { command -v "$1" >/dev/null 2>&1; }
header() { echo "#include <$1>" | "${CC:-cc}" -E - >/dev/null 2>&1; }
lua_headers() { [ -n "$(${MAKE:-make} -s print-LUA_INCDIR LUA="$1" 2>/dev/null)" ]; }
busted() { "$1" -e 'require "busted.runner"' >/dev/null 2>&1; }

probe() { # probe PACKAGES CHECK...: needed unless the check succeeds
  packages=$1 && shift
  "$@" || needed="$needed $packages"
}
probe_wished() {
  packages=$1 && shift
  "$@" || wished="$wished $packages"
}

look() {
  needed='' wished=''
  for task in "$@"; do
    case $task in
      build)
        probe 'gcc libc6-dev' header stdlib.h
        probe luajit command_of luajit
        probe libluajit-5.1-dev lua_headers luajit
        probe 'zlib1g-dev' header zlib.h
        probe 'libcjson-dev' header cjson/cJSON.h
        probe_wished 'libdnnl-dev' header oneapi/dnnl/dnnl.h ;;
      demo) probe dataset-fashion-mnist [ -d /usr/share/datasets/fashion-mnist ] ;;
      test) probe lua-busted busted luajit ;;
      lua)
        for v in 5.1 5.3 5.4; do
          probe "lua$v" command_of "lua$v"
          probe "liblua$v-dev" lua_headers "lua$v"
        done ;;
      lint)
        probe lua-check command_of luacheck
        probe clang-format command_of clang-format
        probe clang command_of clang ;;
      packaging)
        probe luarocks command_of luarocks
        probe zip command_of zip
        probe unzip command_of unzip
        probe git command_of git ;;
      *) echo "setup.sh: unknown task $task" >&2 && exit 2 ;;
    esac
  done
  needed=${needed# } wished=${wished# }
}

look "$@"
[ -n "$needed" ] || [ -n "$wished" ] || exit 0

if ! command_of apt-get; then
  [ -n "$needed" ] || exit 0
  echo "Missing here (by the names of Debian's packages): $needed. Install them, then run make again." >&2
  exit 1
fi

# Packages that are only wished for and that apt does not know are done without, silently.
offered() { case $(apt-cache policy "$1" 2>/dev/null) in *Candidate:\ [0-9]*) ;; *) false ;; esac; }
offered_only() {
  for package in "$@"; do ! offered "$package" || printf '%s ' "$package"; done
}
if [ -z "$needed" ] && offered libc6; then # the lists are there
  wished=$(offered_only $wished)
  [ -n "$wished" ] || exit 0
fi

command="apt-get update && apt-get install -y $needed $wished"
as_root=''
if [ "$(id -u)" != 0 ]; then
  if command_of sudo && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=sudo
  elif [ -n "$needed" ]; then
    printf 'Missing: %s\nPlease run this as root, then make again:\n  %s\n' "$needed" "$command" >&2
    exit 1
  else
    exit 0
  fi
fi

echo "Installing through apt:" $needed $wished
log=$(mktemp) || exit 1
trap 'rm -f "$log"' EXIT
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q "$@" >"$log" 2>&1; }
apt update || { tail -n 5 "$log"; echo 'apt-get update failed; going on with the lists that are there.'; }
if ! apt install -y --no-install-recommends $needed $(offered_only $wished); then
  tail -n 20 "$log" >&2
  printf 'This failed; please run it as root, then make again:\n  %s\n' "$command" >&2
  exit 1
fi
look "$@"
[ -z "$needed" ] || { echo "Still missing after the installation: $needed" >&2; exit 1; }
